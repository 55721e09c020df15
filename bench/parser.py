"""The parser under attack: the worst of a corpus of bombs at the cap, and fuzzing for surprises.

    python bench/parser.py [--cases 100000]

Every bomb fills the cap with something that made other parsers slow: unclosed lists, floods of
brackets, quotes and escapes, labels without lists, spaces and newlines. Each is timed alone, the
best of five, because it is the parser's work that is asked for and not the machine's. The fuzzer
joins fragments of the language at random and wants a Workflow or a WorkflowError, every time;
`--atheris` drives the same target by coverage.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from contextlib import suppress

from podium.errors import WorkflowError
from podium.types import Step, Workflow
from podium.workflow import MAX_CHARS, parse, render

FRAGMENTS = [
    "model_id", "subtasks", "access_list", "access", "Model IDs", " = ", ": ", "[", "]", "[[", "]]",
    "(", ")", ", ", "0", "1", "-1", "9999999999", "0.5", '"a"', "'b'", '"""c"""', "'", '"', "“x”",
    "‘y’", "\\", "\\n", "\\u12", "\\ud83d", "<think>", "</think>", "```", "```json\n", "all",
    '"all"', "None", "null", "true", "#", "\n", "\t", "{", "}", "é", "\x00", "\u2028", "𝄞", "f()",
    "**", "model_id = [0]\n", 'subtasks = ["a"]\n', "access_list = [[]]\n",
]  # fmt: skip

FLOODS = {
    "ints": ("model_id = [", "1,"),
    "big ints": ("model_id = [", "123456789,"),
    "lists": ("access_list = [", "[],"),
    "open brackets": ("model_id = ", "["),
    "close brackets": ("model_id = [", "]"),
    "open parentheses": ("model_id = [", "("),
    "labels": ("", "model_id = "),
    "labels with lists": ("", "model_id=[] "),
    "half labels": ("", "model"),
    "access": ("", "access "),
    "quotes": ("subtasks = [", '"'),
    "single quotes": ("subtasks = [", "'"),
    "smart quotes": ("subtasks = [", "“"),
    "triple quotes": ('subtasks = ["""', '"" '),
    "backslashes": ('subtasks = ["', "\\"),
    "escapes": ('subtasks = ["', "\\n"),
    "unicode escapes": ('subtasks = ["', "\\u12"),
    "adjacent strings": ("subtasks = [", '"a" '),
    "comments": ("subtasks = [", "#\n"),
    "newlines": ("", "\n"),
    "spaces after a label": ("model_id", " "),
    "backticks after a label": ("model_id =", "`"),
    "fences": ("", "```json\n"),
    "json after a label": ("model_id = ", "json "),
    "thinking": ("", "<think>"),
    "done thinking": ("", "</think>"),
    "words": ("model_id = [", "word "),
    "nested pairs": ("model_id = [", "[["),
}


def bombs() -> dict[str, str]:
    """Each flood to the cap, bare and with the lists closed after all."""
    found = {}
    for name, (head, flood) in FLOODS.items():
        for tail in ("", '"]\nsubtasks = ["a"]\naccess_list = [[]]'):
            room = MAX_CHARS - len(head) - len(tail)
            body = (flood * (room // len(flood) + 1))[:room]
            found[f"{name}{' and a tail' if tail else ''}"] = head + body + tail
    long = "x\\n" * ((MAX_CHARS - 200) // 15)
    found["five long subtasks"] = render(Workflow((Step(0, long[: MAX_CHARS // 7]),) * 5))
    return found


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(5):
        parse.cache_clear()
        started = time.perf_counter()
        with suppress(WorkflowError):
            parse(text, workers=8)
        best = min(best, time.perf_counter() - started)
    return best


def target(text: str) -> None:
    """The fuzz target: a Workflow that reads back as itself, or a WorkflowError with words."""
    try:
        found = parse(text, workers=3, may_stop=True)
    except WorkflowError as complaint:
        assert str(complaint), "a complaint without words"
    else:
        assert parse(render(found), workers=3, may_stop=True) == found, "not the same again"


def fuzz(cases: int, seed: int) -> int:
    """How often something else came out."""
    rng = random.Random(seed)
    surprises = 0
    for _ in range(cases):
        text = "".join(rng.choices(FRAGMENTS, k=rng.randint(1, 40)))
        try:
            target(text)
        except Exception as surprise:  # noqa: BLE001 - finding these is the point
            surprises += 1
            print(f"surprise: {surprise!r} from {text!r}")
    return surprises


def fuzz_by_coverage() -> None:
    """Until it is stopped, with atheris (pip install atheris)."""
    import atheris

    def run(data: bytes) -> None:
        target(atheris.FuzzedDataProvider(data).ConsumeUnicodeNoSurrogates(4096))

    atheris.instrument_all()
    atheris.Setup(sys.argv[:1], run)
    atheris.Fuzz()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--cases", type=int, default=100_000)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--atheris", action="store_true", help="fuzz by coverage instead")
    given = flags.parse_args()
    if given.atheris:
        fuzz_by_coverage()
    worst = sorted(((seconds(text) * 1e3, name) for name, text in bombs().items()), reverse=True)
    print(f"{len(worst)} bombs of up to {MAX_CHARS} characters; the slowest, in ms:")
    for ms, name in worst[:8]:
        print(f"  {ms:6.2f}  {name}")
    print(f"fuzzing {given.cases} texts, seed {given.seed}")
    surprises = fuzz(given.cases, given.seed)
    result = {"worst_ms": round(worst[0][0], 3), "fuzz_cases": given.cases, "surprises": surprises}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

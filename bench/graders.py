"""How far the graders can be trusted: gold answers pass, spoilt ones do not, recordings agree.

Gold answers of public sets must pass and spoilt ones must not. Of three recorded worlds the
replies' text is graded anew and compared with what the recording says; every difference is
sorted by what is behind it. Last line: shares by set.

    python bench/graders.py [--data ../shared/data] [--examples 2] [--packages DIR]

BigCodeBench needs some forty libraries, as of 2023 (pandas 2.0, numpy 1, …). Install them with
`pip install --target DIR` and name the directory; what is missing is listed as unscored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sysconfig
import time
from collections import defaultdict
from pathlib import Path

from podium.errors import SandboxError
from podium.eval.graders import GRADERS, Score
from podium.eval.tasks import Item, Report, check, find
from podium.eval.world import Reply, World
from podium.sandbox import Bounds, Sandbox

SETS = {
    "math500": ("all", "math500.json.gz"),
    "gsm8k": ("train", "gsm8k_train.jsonl.gz"),
    "mmlu": ("test", "mmlu_test_sample.jsonl.gz"),
    "humaneval": ("test", "humaneval.jsonl.gz"),
    "bigcodebench-hard": ("test", "bigcodebench_hard.json.gz"),
}
HOSTILE = (
    *("answer", "the answer is ", "answer: (", "answer is\n", "answer is A and B, ", "#### "),
    *("<answer>", "</answer>", "\\boxed{", '"answer": "', "\\text{", "\\", "{", "(", "["),
    *("9", "1/", "1,000", "1 = ", "e1", "- ", "$", "A. ", "\n"),
)
WORLDS = ("gsm8k", "math-l5", "mmlu-pro")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument(
        "--packages",
        type=Path,
        default=Path(sysconfig.get_paths()["purelib"]),
        help="installed packages that code under test may import",
    )
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"{options.data} is not there: name the data with --data")
    figures: dict[str, float] = {}
    bounds = Bounds(seconds=120, memory=8 << 30, processes=256, disk=256 << 20)
    async with Sandbox.open(packages=[options.packages], bounds=bounds) as sandbox:
        for name in SETS:
            figures |= await grade_set(name, options.data / "sets", sandbox)
    figures |= hostile()
    for world in WORLDS:
        figures |= compare(World.load(options.data / "recorded" / world), options.examples)
    print(json.dumps(figures))


async def grade_set(name: str, data: Path, sandbox: Sandbox) -> dict[str, float]:
    split, file = SETS[name]
    task = find(name)
    items = task.load(split, data / file)
    began = time.perf_counter()
    report = await check(task, items, sandbox=sandbox)
    seconds = time.perf_counter() - began
    print(
        f"{name}: {report.passed} of {report.items} gold answers pass, "
        f"{len(report.spoilt_passed)} spoilt ones, in {seconds:.1f} s"
    )
    show(report)
    return {
        name: round(report.passed / report.items, 4),
        f"{name}_items": report.items,
        f"{name}_spoilt_passed": len(report.spoilt_passed),
        f"{name}_unscored": len({failed.id for failed in report.unscored}),
    }


def show(report: Report) -> None:
    for label, failed in (
        ("gold failed", report.gold_failed),
        ("spoilt passed", report.spoilt_passed),
        ("unscored", report.unscored),
    ):
        reasons: dict[str, set[str]] = defaultdict(set)
        for one in failed:
            reasons[" ".join((one.score.note or repr(one.score.answer)).split())].add(one.id)
        for why, ids in sorted(reasons.items()):
            print(f"  {label}: {why:.160} ({', '.join(sorted(ids))})")


def hostile() -> dict[str, float]:
    """The slowest reading of a megabyte that was written to be slow to read."""
    slowest = 0.0, "", ""
    for name in GRADERS.keys() - {"math"}:
        for unit in HOSTILE:
            reply = unit * (1_000_000 // len(unit))
            began = time.perf_counter()
            GRADERS[name](reply, {"literal": "1"}.get(name, "A"))
            slowest = max(slowest, (time.perf_counter() - began, name, unit))
    seconds, name, unit = slowest
    print(f"slowest hostile megabyte: {1000 * seconds:.0f} ms, {name} reading {unit!r}")
    return {"hostile_ms": round(1000 * seconds, 1)}


def compare(world: World, examples: int) -> dict[str, float]:
    """Grade what was replied, and sort the differences from the recording's own word."""
    kinds: dict[str, list[tuple[Item, Reply, Score]]] = defaultdict(list)
    graded = 0
    for item in world.items.values():
        for replies in world.replies.values():
            if reply := replies.get(item.id):
                graded += 1
                score = GRADERS[item.grader](reply.text, item.target)
                if bool(score.value) != reply.correct:
                    kinds[kind(item, reply, score)].append((item, reply, score))
    differ = sum(map(len, kinds.values()))
    print(f"{world.name}: {graded} replies, {differ} differ, agreement {1 - differ / graded:.4f}")
    for what, found in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        print(f"  {len(found):4} {what}")
        for item, reply, score in found[:examples]:
            gold = item.target["letter"] if isinstance(item.target, dict) else item.target
            tail = " ".join(reply.text[-90:].split())
            print(f"       {item.id}: gold {gold}, recorded {reply.extracted}, "
                  f"read {score.answer}: …{tail}")  # fmt: skip
    return {f"{world.name}_agreement": round(1 - differ / graded, 4)}


def kind(item: Item, reply: Reply, score: Score) -> str:
    """What is behind a difference, and who is right."""
    return kind_of_choice(reply, score) if item.grader == "choice" else kind_of_number(reply, score)


def kind_of_choice(reply: Reply, score: Score) -> str:
    if score.answer is None:
        return "the text states no option, and the recording has guessed one: ours is right"
    if len(score.answer) > 1:
        return "several options are named, and the recording took the first: ours is right"
    if reply.extracted is None:
        return "an option is stated that the recording did not read (bold, boxed): ours is right"
    if reply.correct:
        return "the recording read the first statement, ours a later one and not the right one"
    return "the recording read the first statement, ours the conclusion: ours is right"


def kind_of_number(reply: Reply, score: Score) -> str:
    if score.answer and "=" in score.answer:
        return "a calculation and its result: the recording took its first number: ours is right"
    if reply.correct and score.note:
        return "no single number, such as 50π/2: the recording took its first: ours is right"
    if reply.correct:
        return "a number was boxed on the way to another one that is stated as JSON: ours is wrong"
    return "a form of number that the recording did not read: ours is right"


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except SandboxError as exc:
        raise SystemExit(f"code cannot be graded here: {exc}") from exc

"""The child's side of a judge: a line of JSON in, a line of JSON out, until there is no parent.

It is run as a file, without the package, so that it starts as fast as what it imports.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import logging
import re
import resource
import sys
from functools import cache
from typing import Any

KNOWN = frozenset(
    "x y z a b c n C e E I pi sqrt log ln exp sin cos tan asin acos atan sec csc cot Abs Rational"
    " Integer true false".split()
)
"""Names that an answer may use where reasoning-gym would evaluate it as Python."""
PLAIN = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.List, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call),
)


def math(answer: str, target: str) -> tuple[float | None, str]:
    from math_verify import parse, verify

    gold, found = (_expressions(text, parse) for text in (target, answer))
    if not found:
        return 0.0, "the stated answer is not mathematics"
    right = verify(gold, found, timeout_seconds=None)
    return float(right), ""


@cache
def _expressions(text: str, parse: Any) -> Any:
    return parse(f"\\boxed{{{text}}}", parsing_timeout=None)


def gym(answer: str, target: dict[str, Any]) -> tuple[float | None, str]:
    family = _family(target["family"], target["seed"], target["size"])
    if _evaluates(type(family).score_answer) and not _is_plain(answer):
        return 0.0, "the answer is neither a literal nor arithmetic"
    return float(family.score_answer(answer, entry=family[target["index"]])), ""


@cache
def _family(name: str, seed: int, size: int) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, seed=seed, size=size)


@cache
def _evaluates(scoring: Any) -> bool:
    """Whether a family's own scoring hands the answer to Python's `eval`, as ten of them do."""
    source = inspect.getsource(scoring)
    return re.search(r"\b(?:eval|exec|parse_expr|sympify)\(", source) is not None


def _is_plain(answer: str) -> bool:
    """Numbers, strings in lists, operators and well-known functions: nothing that can act."""
    try:
        nodes = list(ast.walk(ast.parse(answer.strip(), mode="eval")))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    named = all(node.id in KNOWN for node in nodes if isinstance(node, ast.Name))
    called = all(isinstance(node.func, ast.Name) for node in nodes if isinstance(node, ast.Call))
    return named and called and all(isinstance(node, PLAIN) for node in nodes)


def main() -> None:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    logging.disable()
    with contextlib.suppress(ImportError):
        import math_verify  # noqa: F401  (warm before the first question)

    answer = sys.stdout
    sys.stdout = sys.stderr
    print("ready", file=answer, flush=True)  # noqa: T201
    for line in sys.stdin:
        kind, text, target = json.loads(line)
        try:
            verdict = {"math": math, "gym": gym}[kind](text, target)
        except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as e:
            verdict = None, f"the {kind} grader failed: {type(e).__name__}"
        print(json.dumps(verdict), file=answer, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

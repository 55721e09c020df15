"""The child's side of a judge: a line of JSON in, a line of JSON out, until there is no parent.

It is run as a file, without the package, so that it starts as fast as what it imports.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import logging
import math
import re
import resource
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

Answer = tuple[object, str]
"""A value, or None and why there is none."""

DECIMALS, DIGITS = 6, 15
"""A decimal equals a number that it is rounded from; other numbers have to agree further."""


def judge_math(answer: str, target: str) -> Answer:
    from math_verify import verify

    gold, found = _expressions(target), _expressions(answer)
    if not found:
        return 0.0, "the stated answer is not mathematics"
    zeros = _zeros(gold[0]) if gold else 0
    right = verify(
        gold,
        found,
        float_rounding=DECIMALS + zeros,
        numeric_precision=DIGITS + zeros,
        timeout_seconds=None,
    )
    return float(right), ""


@cache
def _expressions(text: str) -> Any:
    """Read as LaTeX or not at all: the library's other reading settles for a number in it."""
    from math_verify import LatexExtractionConfig, parse

    boxed = f"\\boxed{{{text}}}"
    return parse(boxed, extraction_config=[LatexExtractionConfig()], parsing_timeout=None)


def _zeros(gold: Any) -> int:
    """How many zeros follow the point of a small number: else all small numbers were equal."""
    from sympy import Expr, Number

    size = abs(gold.evalf(5)) if isinstance(gold, Expr) and gold.is_number else None
    return math.ceil(-math.log10(size)) if isinstance(size, Number) and 0 < size < 1 else 0


def judge_gym(answer: str, target: dict[str, Any]) -> Answer:
    problems = _problems(target["family"], target["seed"], target["size"])
    if "parse_expr(" in _scoring(target["family"]) and not _is_arithmetic(answer):
        return 0.0, "the stated answer is not arithmetic"  # and sympy would run it as Python
    entry = problems[target["index"]]
    try:
        return float(problems.score_answer(answer, entry=entry)), ""
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        return 0.0, f"the stated answer has not the form that is asked for: {type(exc).__name__}"


def make_gym(family: str, size: dict[str, int]) -> Answer:
    """Problems are made here and nowhere else: some depend on the order of sets of strings."""
    from reasoning_gym.factory import DATASETS

    if family not in DATASETS:
        return None, f"there is no family {family!r}; there are: {', '.join(DATASETS)}"
    problems = _problems(family, size["seed"], size["size"])
    return [[problem["question"], problem["answer"]] for problem in problems], ""


@cache
def _problems(family: str, seed: int, size: int) -> Any:
    import reasoning_gym

    problems = reasoning_gym.create_dataset(family, seed=seed, size=size)
    if re.search(r"\beval\(", _scoring(family)):
        # These would run the answer as Python; a module's own name stands before a built-in one.
        vars(sys.modules[type(problems).__module__])["eval"] = ast.literal_eval
    return problems


@cache
def _scoring(family: str) -> str:
    from reasoning_gym.factory import DATASETS

    return inspect.getsource(DATASETS[family][0].score_answer)


_NAME = re.compile(r"[A-Za-z]|pi|sqrt|log|ln|exp|a?(?:sin|cos|tan)|sec|csc|cot|Abs|Integral")
_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
)


def _is_arithmetic(text: str) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    named = all(_NAME.fullmatch(node.id) for node in nodes if isinstance(node, ast.Name))
    called = all(isinstance(node.func, ast.Name) for node in nodes if isinstance(node, ast.Call))
    return named and called and all(isinstance(node, _NODES) for node in nodes)


FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(NotImplementedError, RecursionError, TypeError, ValueError),
)
JOBS: dict[str, Callable[[str, Any], Answer]] = {
    "math": judge_math,
    "gym": judge_gym,
    "make": make_gym,
}


def main() -> None:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    logging.disable()
    with contextlib.suppress(ImportError):
        import math_verify  # noqa: F401  (warm before the first question)

    home = sys.stdout
    sys.stdout = sys.stderr
    print("ready", file=home, flush=True)
    for line in sys.stdin:
        job, text, target = json.loads(line)
        try:
            answer = JOBS[job](text, target)
        except FAULTS as exc:
            answer = None, f"the {job} grader failed: {type(exc).__name__}"
        print(json.dumps(answer), file=home, flush=True)


if __name__ == "__main__":
    main()

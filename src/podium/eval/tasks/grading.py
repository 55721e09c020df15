"""Grade an answer to an item, whatever that takes: a function, a judge, a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from podium.answers import READ_CHARS, read_answer
from podium.errors import ConfigError
from podium.eval.code import (
    Case,
    grade_check,
    grade_function,
    grade_program,
    grade_unittests,
)
from podium.eval.graders import GRADERS, NOT_STATED, Score
from podium.eval.judges import judge
from podium.eval.tasks.hidden import decode_tests
from podium.sandbox import Sandbox

if TYPE_CHECKING:
    from podium.eval.tasks.task import Item

Judged = Callable[[Sandbox, str], Awaitable[Score]]


async def grade(item: Item, answer: str, *, sandbox: Sandbox | None = None) -> Score:
    """Grade by the item's own grader, without holding up the event loop.

    `sandbox` is needed where the answer is code, and only there.
    """
    if item.grader in CODE:
        return await _code(item, answer, sandbox)
    if item.grader == "gym":
        return await asyncio.to_thread(_gym, answer, item.target)
    if item.grader not in GRADERS:
        known = ", ".join([*GRADERS, *CODE, "gym"])
        raise ConfigError(f"item {item.id}: there is no grader {item.grader!r}; there are: {known}")
    if item.grader == "math":
        return await asyncio.to_thread(GRADERS["math"], answer, item.target)
    return GRADERS[item.grader](answer, item.target)


def _gym(answer: str, target: object) -> Score:
    """What stands in the tags counts to the letter: some families ask for whole sentences."""
    _, tag, rest = answer[-READ_CHARS:].rpartition("<answer>")
    stated = rest.partition("</answer>")[0].strip() if tag else read_answer(answer)
    if stated is None:
        return Score(0.0, None, NOT_STATED)
    verdict = judge("gym", stated, target)
    return Score(verdict.value, stated, verdict.note)


async def _code(item: Item, answer: str, sandbox: Sandbox | None) -> Score:
    if sandbox is None:
        raise ConfigError(f"item {item.id}: code is graded in a sandbox, and none was given")
    try:
        # In a thread: the tests of a contest can be megabytes to decode.
        judged = await asyncio.to_thread(CODE[item.grader], item.target)
    except (LookupError, TypeError, ValueError) as exc:
        raise ConfigError(f"item {item.id}: bad target for {item.grader}: {exc!r}") from exc
    return await judged(sandbox, answer)


def _program(target: Any) -> Judged:
    cases = [(str(given), str(expected)) for given, expected in target["cases"]]
    return partial(grade_program, cases=cases)


def _function(target: Any) -> Judged:
    cases = [Case(args, expected) for args, expected in target["cases"]]
    return partial(grade_function, name=target["name"], cases=cases)


def _check(target: Any) -> Judged:
    prompt, test, entry = target["prompt"], target["test"], target["entry_point"]
    return partial(grade_check, prompt=prompt, test=test, entry_point=entry)


def _unittests(target: Any) -> Judged:
    return partial(grade_unittests, tests=target["tests"], libraries=target.get("libraries", ()))


def _contest(target: Any) -> Judged:
    """LiveCodeBench: all tests, the hidden ones included, by standard input or by call."""
    tests = [*orjson.loads(target["public"]), *decode_tests(target["private"])]
    if target["function"] is None:
        cases = [[test["input"], test["output"]] for test in tests]
        return _program({"cases": cases})
    calls = [
        [[orjson.loads(line) for line in test["input"].splitlines() if line.strip()],
         orjson.loads(test["output"])]
        for test in tests
    ]  # fmt: skip
    return _function({"name": target["function"], "cases": calls})


CODE: Mapping[str, Callable[[Any], Judged]] = {
    "program": _program,
    "function": _function,
    "check": _check,
    "unittests": _unittests,
    "contest": _contest,
}
"""What needs a sandbox, by the name an item carries: reads the target, and judges by it."""

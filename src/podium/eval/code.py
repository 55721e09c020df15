"""Grade code by running it: as a function, as a program, by a check, by unit tests.

Every grader takes a model's reply and returns 1 or 0, the code that it read in the reply, and a
note on why. Where the sandbox or the tests themselves could not run, the value is None: such a
sample is counted apart, and never as a failure of the code.

What the code should have done is compared here, outside. In a `check(candidate)` of HumanEval's
kind the expected values are part of the test's own statements; so the test runs in a sandbox of
its own, and its candidate is a call into another one. Only unit tests share an interpreter with
the code, which `podium.sandbox.suite` makes as hard to exploit as it can be made.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from podium.errors import SandboxError
from podium.eval.graders import Score
from podium.sandbox import Execution, Outcome, Returned, Sandbox
from podium.sandbox.extract import extract_code

PRELUDE = """\
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from typing import *
"""
"""What the judges of programming contests import for everybody, and solutions take for granted."""

TOLERANCE = 1e-6
"""Relative: how far a float may be from the expected one."""

WHY: Mapping[Outcome, str] = {
    "ok": "ran to its end",
    "error": "failed",
    "timeout": "took too long",
    "memory": "needed too much memory",
    "output": "wrote too much",
    "killed": "crashed",
    "forged": "meddled with the sandbox",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a function, and what it should return."""

    args: Sequence[object]
    expected: object
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])


async def grade_function(
    sandbox: Sandbox, reply: str, *, name: str, cases: Sequence[Case], prelude: str = PRELUDE
) -> Score:
    """A function, or a method of a class `Solution`, by what it returns: LeetCode's style."""

    async def complaint(code: str) -> str:
        calls = [(case.args, case.kwargs) for case in cases]
        done = await sandbox.call_function(f"{prelude}\n{code}", name, calls)
        for number, (case, got) in enumerate(zip(cases, done.value, strict=False), 1):
            if not isinstance(got, Returned):
                return f"case {number} raised {got.kind}: {got.message}"
            if not equal(got.value, case.expected):
                return f"case {number} returned {_brief(got.value)}"
        missing = len(done.value) < len(cases)
        return _failure(done, f"case {len(done.value) + 1}") if missing else _unless(cases)

    return await _graded(reply, complaint)


async def grade_program(sandbox: Sandbox, reply: str, *, cases: Sequence[tuple[str, str]]) -> Score:
    """A program by what it prints: pairs of standard input and expected output."""

    async def complaint(code: str) -> str:
        for number, (stdin, expected) in enumerate(cases, 1):
            done = await sandbox.run_program(code, stdin)
            if done.outcome != "ok":
                return _failure(done, f"case {number}")
            if not equal_output(done.stdout, expected):
                return f"case {number} printed {_brief(done.stdout)}"
        return _unless(cases)

    return await _graded(reply, complaint)


async def grade_check(
    sandbox: Sandbox, reply: str, *, prompt: str, test: str, entry_point: str
) -> Score:
    """A completion of a prompt by a test that defines `check(candidate)`: HumanEval's style.

    The reply may give the whole function again or only go on where the prompt ends.
    """

    async def complaint(code: str) -> str:
        whole = complete_prompt(prompt, code, entry_point)
        done = await sandbox.run_check(whole, entry_point, test=test, setup=prompt)
        if done.outcome != "ok":
            return _failure(done, "the function")
        return "" if done.value.passed else done.value.note.strip()

    return await _graded(reply, complaint)


async def grade_unittests(
    sandbox: Sandbox, reply: str, *, tests: str, libraries: Sequence[str] = ()
) -> Score:
    """A module by `unittest` cases that see its names: BigCodeBench's style.

    Without one of the `libraries` the sample is unscored: that is not the code's fault.
    """

    async def complaint(code: str) -> str:
        done = await sandbox.run_unittests(code, tests, libraries=libraries)
        if done.outcome != "ok":
            return _failure(done, "the suite")
        if not done.value.ran:
            return "no test ran: " + "; ".join(done.value.failed.values())
        return "; ".join(f"{test}: {_last_line(why)}" for test, why in done.value.failed.items())

    return await _graded(reply, complaint)


def complete_prompt(prompt: str, code: str, entry_point: str) -> str:
    """The prompt with the code after it: as its own function, or as the body of the last one."""
    if re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", code, re.MULTILINE):
        return f"{prompt}\n\n{code}"
    first = next((line for line in code.splitlines() if line.strip()), "")
    body = code if first[:1].isspace() else textwrap.indent(code, "    ")
    return f"{prompt}\n{body}"


def equal(got: object, expected: object) -> bool:
    """Equal by value. A tuple may stand for a list, and floats may differ by the tolerance."""
    if isinstance(expected, list | tuple):
        return isinstance(got, list | tuple) and _all_equal(got, expected)
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(equal(got[key], value) for key, value in expected.items())
        )
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return _equal_number(got, expected)
    return type(got) is type(expected) and got == expected


def _equal_number(got: float, expected: float) -> bool:
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, int) and isinstance(expected, int):
        return got == expected
    try:
        close = math.isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return close or (math.isnan(got) and math.isnan(expected))
    except OverflowError:  # an integer beyond all floats
        return False


def equal_output(got: str, expected: str) -> bool:
    """Equal line by line and word by word; numbers by value, so that `1.0` is `1`."""
    lines, wanted = got.rstrip().splitlines(), expected.rstrip().splitlines()
    return len(lines) == len(wanted) and all(map(_equal_line, lines, wanted))


def _equal_line(got: str, expected: str) -> bool:
    words, wanted = got.split(), expected.split()
    return len(words) == len(wanted) and all(map(_equal_word, words, wanted))


def _equal_word(got: str, expected: str) -> bool:
    if got == expected:
        return True
    try:
        return Decimal(got) == Decimal(expected)
    except InvalidOperation:
        return False


def _all_equal(got: Sequence[object], expected: Sequence[object]) -> bool:
    return len(got) == len(expected) and all(map(equal, got, expected))


async def _graded(reply: str, complaint: Callable[[str], Awaitable[str]]) -> Score:
    """1 for code that there is no complaint about."""
    code = extract_code(reply)
    if not code.strip():
        return Score(0.0, None, "there is no code in the reply")
    try:
        why = await complaint(code)
    except SandboxError as exc:
        return Score(None, code, str(exc))
    return Score(0.0 if why else 1.0, code, why)


def _unless(cases: Sequence[object]) -> str:
    return "" if cases else "there are no cases to pass"


def _failure(done: Execution[object], what: str) -> str:
    last = _last_line(done.stderr)
    return f"{what} {WHY[done.outcome]}" + (f": {last}" if last else "")


def _last_line(text: str) -> str:
    return _brief(next((line for line in reversed(text.splitlines()) if line.strip()), ""))


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

"""Grading code: right code passes in every way there is, and cheating in none."""

from __future__ import annotations

import asyncio
import gzip
import json
import runpy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from podium.eval.code import (
    Case,
    complete_prompt,
    equal,
    equal_output,
    grade_check,
    grade_function,
    grade_program,
    grade_unittests,
)
from podium.eval.graders import Score
from podium.sandbox import Bounds, Opaque, Sandbox
from podium.sandbox.extract import extract_code

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parent.parent
HUMANEVAL = ROOT.parent / "shared" / "data" / "sets" / "humaneval.jsonl.gz"
BOUNDS = Bounds(seconds=20.0, memory=256 << 20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.open(bounds=BOUNDS) as opened:
        yield opened


# -- reading

FENCED = "Here:\n```python\nx = 1\n```\nIt prints\n```\n1\n```\n"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (FENCED, "x = 1\n"),
        ("```python\nfirst\n```\nor better\n```py\nsecond\n```", "second\n"),
        ("```\nunlabelled\n```", "unlabelled\n"),
        ("~~~python\ntildes = '```'\n~~~", "tildes = '```'\n"),
        ("```python\ncut off", "cut off"),
        ("<answer>x = 2</answer>", "x = 2"),
        ("```python\nmusing\n```\n<answer>\n```python\nx = 3\n```\n</answer>", "x = 3\n"),
        ("    return x", "    return x"),
        ("", ""),
    ],
)
async def test_the_code_of_a_reply_is_found(reply: str, code: str):
    assert extract_code(reply) == code


async def test_a_long_hostile_reply_is_read_in_one_pass():
    assert extract_code("```python\n" * 200_000) is not None


@pytest.mark.parametrize(
    "completion",
    ["    return x + 1", "return x + 1", "def f(x):\n    return x + 1", "y = 1\nreturn x + y"],
)
async def test_a_completion_may_go_on_or_begin_again(completion: str):
    namespace: dict[str, object] = {}
    exec(complete_prompt('def f(x):\n    """One more."""\n', completion, "f"), namespace)
    function = namespace["f"]
    assert callable(function) and function(2) == 3


# -- comparing


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        ([1, [2.0000000001]], [1, [2]], True),
        ({"a": (1,)}, {"a": [1]}, True),
        (float("nan"), float("nan"), True),
        (True, 1, False),
        ("1", 1, False),
        ([1], [1, 2], False),
        (10**400, 1.0, False),
        (Opaque("Any", ""), 1, False),
        ({1: 1}, {1: 2}, False),
        (None, 0, False),
    ],
)
async def test_values_are_compared_by_value_and_kind(got: object, expected: object, same: bool):
    assert equal(got, expected) is same


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1 2\n3\n", "1  2 \n3", True),
        ("1.0\n", "1", True),
        ("YES", "yes", False),
        ("1\n2", "1 2", False),
        ("1\n", "1\n2", False),
        ("sNaN", "1", False),
    ],
)
async def test_output_is_compared_line_by_line(got: str, expected: str, same: bool):
    assert equal_output(got, expected) is same


# -- grading

PROMPT = 'def total(numbers):\n    """The sum of the numbers."""\n'
CASES = [Case([[1, 2, 3]], 6), Case([[10, 20]], 30)]
INPUTS = [("1 2 3\n", "6\n"), ("10 20\n", "30\n")]
CHECK = """
def check(candidate):
    expected = 6
    assert candidate([1, 2, 3]) == expected
    assert candidate([10, 20]) == 30
"""
TESTS = """
import math
import unittest
class Tests(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2, 3]), 6)
    def test_close(self):
        expected = 30
        self.assertTrue(math.isclose(total([10, 20]), expected))
    def test_plain(self):
        assert total([1, 2, 3]) == 6
"""


async def grades(sandbox: Sandbox, code: str) -> dict[str, Score]:
    """The code graded in all four ways."""
    reply = f"```python\n{code}\n```"
    main = f"{code}\nimport sys\nprint(total([int(n) for n in sys.stdin.read().split()]))"
    check = {"prompt": PROMPT, "test": CHECK, "entry_point": "total"}
    return {
        "function": await grade_function(sandbox, reply, name="total", cases=CASES),
        "program": await grade_program(sandbox, f"```python\n{main}\n```", cases=INPUTS),
        "check": await grade_check(sandbox, reply, **check),
        "unittests": await grade_unittests(sandbox, reply, tests=TESTS),
    }


async def test_right_code_passes_in_every_way(sandbox: Sandbox):
    scores = await grades(sandbox, "def total(numbers):\n    return sum(numbers)")
    assert {kind: score.value for kind, score in scores.items()} == dict.fromkeys(scores, 1.0)


async def test_wrong_code_fails_and_the_note_says_why(sandbox: Sandbox):
    scores = await grades(sandbox, "def total(numbers):\n    return 6")
    assert {kind: score.value for kind, score in scores.items()} == dict.fromkeys(scores, 0.0)
    assert scores["function"].note == "case 2 returned 6"
    assert scores["program"].note.startswith("case 2 printed 6")
    assert "candidate([10, 20]) == 30" in scores["check"].note
    assert scores["unittests"].note.startswith("solution.Tests.test_close: AssertionError")


async def test_no_cheat_passes_in_any_way(sandbox: Sandbox):
    cheats: dict[str, str] = runpy.run_path(str(ROOT / "bench" / "cheats.py"))["CHEATS"]
    scores = await asyncio.gather(*(grades(sandbox, code) for code in cheats.values()))
    passed = {
        name: [kind for kind, score in by_kind.items() if score.value != 0.0]
        for name, by_kind in zip(cheats, scores, strict=True)
    }
    assert {name: kinds for name, kinds in passed.items() if kinds} == {}


async def test_a_reply_without_code_scores_nothing(sandbox: Sandbox):
    score = await grade_program(sandbox, "```python\n```", cases=INPUTS)
    assert score == Score(0.0, None, "there is no code in the reply")


async def test_without_cases_nothing_passes(sandbox: Sandbox):
    assert (await grade_program(sandbox, "print(1)", cases=[])).value == 0.0
    assert (await grade_function(sandbox, "def f(): pass", name="f", cases=[])).value == 0.0


async def test_what_could_not_be_graded_is_unscored(sandbox: Sandbox):
    tests = "import no_such_library\n" + TESTS
    score = await grade_unittests(sandbox, "def total(n): return sum(n)", tests=tests)
    assert score.value is None and "no_such_library" in score.note
    nowhere = Sandbox.open(bwrap="no-such-bwrap")
    score = await grade_program(nowhere, "print(6)", cases=INPUTS)
    assert score.value is None and "apt-get install bubblewrap" in score.note


async def test_a_solution_may_take_for_granted_what_judges_import(sandbox: Sandbox):
    code = """
class Solution:
    def top(self, words: List[str]) -> Optional[str]:
        return max(Counter(words).items(), key=itemgetter(1))[0] if words else None
"""
    cases = [Case([["a", "b", "b"]], "b"), Case([[]], None)]
    assert (await grade_function(sandbox, code, name="top", cases=cases)).value == 1.0


@pytest.mark.skipif(
    not HUMANEVAL.exists(), reason=f"{HUMANEVAL.name} is not beside this repository"
)
async def test_gold_answers_pass_and_empty_ones_do_not(sandbox: Sandbox):
    lines = gzip.decompress(HUMANEVAL.read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines[::8]]

    async def grade(row: dict[str, str], completion: str) -> Score:
        task = {key: row[key] for key in ("prompt", "test", "entry_point")}
        return await grade_check(sandbox, completion, **task)

    gold = await asyncio.gather(*(grade(row, row["canonical_solution"]) for row in rows))
    assert [score.note for score in gold if score.value != 1.0] == []
    empty = await asyncio.gather(*(grade(row, "    return None") for row in rows))
    assert {score.value for score in empty} == {0.0}


async def test_a_method_is_found_before_an_imported_function_of_its_name(sandbox: Sandbox):
    reply = "```python\nclass Solution:\n    def add(self, a, b):\n        return a + sum(b)\n```"
    score = await grade_function(sandbox, reply, name="add", cases=[Case([1, [2]], 3)])
    assert score.value == 1.0

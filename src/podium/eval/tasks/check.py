"""Check a task by its own answers: every gold answer must pass, and none that was spoilt may."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.eval.graders import Score, read_number
from podium.eval.tasks.grading import CODE, grade
from podium.eval.tasks.task import Item, Task
from podium.sandbox import Sandbox

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Failed:
    id: str
    answer: str
    score: Score


@dataclass(frozen=True, slots=True)
class Report:
    task: str
    items: int
    passed: int
    """Gold answers that pass."""
    without_gold: int
    """Items whose source publishes no right answer: contests do not."""
    gold_failed: tuple[Failed, ...]
    spoilt_passed: tuple[Failed, ...]
    unscored: tuple[Failed, ...]
    """The grader itself could not run: a hang, a missing library."""

    @property
    def sound(self) -> bool:
        return not (self.gold_failed or self.spoilt_passed or self.unscored)


async def check(task: Task, items: Sequence[Item], *, sandbox: Sandbox | None = None) -> Report:
    """Grade the gold answers of a task, and spoilt ones."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def graded(item: Item, answer: str) -> Failed:
        async with slots:
            return Failed(item.id, answer, await grade(item, answer, sandbox=sandbox))

    with_gold = [item for item in items if gold(item) is not None]
    right = await asyncio.gather(*(graded(item, gold(item) or "") for item in with_gold))
    wrong = await asyncio.gather(*(graded(item, spoilt(item)) for item in with_gold))
    return Report(
        task=task.name,
        items=len(items),
        passed=sum(f.score.value is not None and f.score.value >= 1 for f in right),
        without_gold=len(items) - len(with_gold),
        gold_failed=tuple(f for f in right if f.score.value is not None and f.score.value < 1),
        spoilt_passed=tuple(f for f in wrong if f.score.value is not None and f.score.value >= 1),
        unscored=tuple(f for f in (*right, *wrong) if f.score.value is None),
    )


def gold(item: Item) -> str | None:
    """A reply that is right, in the form that the question asks for; None where none is known."""
    match item.target:
        case {"letter": str(letter)}:
            return _tagged(letter)
        case {"solution": str(solution)}:
            return _fenced(solution)
        case {"family": _, "answer": answer}:
            return None if answer is None else _tagged(answer)
    if item.grader in CODE:
        return None
    return f"\\boxed{{{item.target}}}" if item.grader == "math" else _tagged(item.target)


def spoilt(item: Item) -> str:
    """A reply of the same form that is wrong."""
    match item.target:
        case {"letter": str(letter), "options": [*options]}:
            return _tagged(chr(ord("A") + (ord(letter) - ord("A") + 1) % len(options)))
        case {"solution": str(solution), **rest}:
            return _fenced(_spoilt_code(solution, rest))
        case {"family": _}:  # scorers that are lenient by design would forgive a small change
            return _tagged("no idea")
    if item.grader == "choice":
        return _tagged("B" if item.target == "A" else "A")
    other = _other(str(item.target))
    return f"\\boxed{{{other}}}" if item.grader == "math" else _tagged(other)


def _other(answer: str) -> str:
    """Another answer: a number with a digit more, every number one larger, or other words."""
    if "=" not in answer and read_number(answer) is not None:
        return f"9{answer.lstrip('-')}"
    other = re.sub(r"\d{1,20}", lambda digits: str(int(digits[0]) + 1), answer)
    return other if other != answer else f"not {answer}"


def _spoilt_code(solution: str, target: Mapping[Any, Any]) -> str:
    """The same module, whose function then returns nothing."""
    name = target.get("entry_point", "task_func")
    return (
        f"{target.get('prompt', '')}{solution}\n\ndef {name}(*args, **kwargs):\n    return None\n"
    )


def _tagged(answer: object) -> str:
    return f"<answer>{answer}</answer>"


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"

"""What a task is: items to ask, and how an answer to one is graded.

A `Task` is a value: where its problems come from, under which licence, how they are asked and
which grader reads the answer. Loading gives `Item`s, each complete in itself, so that a mixture
of several tasks is simply a longer list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podium.errors import ConfigError
from podium.eval.graders import Score
from podium.eval.tasks.grading import grade
from podium.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a task, as it is asked, and what a right answer is measured by."""

    id: str
    question: str
    target: object
    """Plain JSON: what the grader is given. Nobody who answers ever sees it."""
    grader: str
    category: str | None = None
    split: str = "test"


Read = Callable[[str, Path | None], Sequence[Item]]
"""The items of a split: from its source, or from a file in the source's published schema."""


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    source: str
    licence: str
    splits: tuple[str, ...]
    grader: str
    prompt: str
    """What is asked, with `{question}` where the problem stands."""
    read: Read

    def load(self, split: str, data: Path | None = None) -> Sequence[Item]:
        """The items of a split, from the hub or, where `data` is given, from that file alone."""
        if split not in self.splits:
            have = ", ".join(self.splits)
            raise ConfigError(f"task {self.name} has no split {split!r}; it has: {have}")
        items = self.read(split, data)
        twice = [name for name, n in Counter(item.id for item in items).items() if n > 1]
        if twice:
            raise ConfigError(f"task {self.name}: {len(twice)} ids occur twice, such as {twice[0]}")
        return items

    async def grade(self, item: Item, answer: str, *, sandbox: Sandbox | None = None) -> Score:
        """What the answer is worth. Code needs a `sandbox` to be run in."""
        return await grade(item, answer, sandbox=sandbox)

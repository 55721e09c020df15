"""Tiny: questions about digits that the specialists which ship with Podium answer together.

`single` needs one skill, `chain` two in a row, `merge` two side by side and a third, and `new` has
chains and merges of skills that no training question puts together. Numbers and wordings of the
split `test` are in no training question either. `tiny:7` is another draw of the same kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from podium.errors import ConfigError
from podium.eval.tasks.task import Item, Task
from podium.eval.tiny.questions import Kind, generate
from podium.eval.tiny.skills import Split

SEED = 2026
SIZES: Mapping[Split, int] = {"train": 480, "dev": 24, "test": 96}
KINDS: tuple[Kind, ...] = ("single", "chain", "merge")


def tiny(seed: str = str(SEED)) -> Task:
    """The task as this seed draws it."""
    if not seed.isdecimal():
        raise ConfigError(f"tiny:{seed}: what stands after the colon is a seed, a whole number")
    return Task(
        name="tiny" if int(seed) == SEED else f"tiny:{seed}",
        source=f"generated, seed {seed}",
        licence="Apache-2.0",
        splits=tuple(SIZES),
        grader="exact",
        prompt="{question}",
        read=partial(_read, int(seed)),
    )


def _read(seed: int, split: str, data: Path | None) -> Sequence[Item]:
    if data is not None:
        raise ConfigError("the tiny questions are generated: give no --data")
    kinds = (*KINDS, "new") if split == "test" else KINDS
    part = next(known for known in SIZES if known == split)
    made = generate(seed, SIZES[part], part, kinds)
    return [
        Item(f"tiny/{seed}/{split}/{i}", item.question, item.answer, "exact", item.kind, split)
        for i, item in enumerate(made)
    ]


TINY = tiny()

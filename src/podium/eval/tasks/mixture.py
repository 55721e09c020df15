"""The Conductor paper's training data: 240 problems from each of four sets, drawn by seed 42.

240 is what 60 % of LiveCodeBench's first release leaves for training. Of RLPR only problems with
a short reference answer are drawn. Which problems the authors drew is not published: this draw
has the same make-up, and a digest by which two people can tell that they have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium.errors import ConfigError
from podium.eval.tasks.livecodebench import LIVECODEBENCH
from podium.eval.tasks.math import MATH500
from podium.eval.tasks.mmlu import MMLU
from podium.eval.tasks.rlpr import RLPR
from podium.eval.tasks.splits import SEED, digest, draw
from podium.eval.tasks.task import Item

PARTS = (MATH500, MMLU, RLPR, LIVECODEBENCH[0])
EACH = 240
RLPR_CHARS = 30
"""A longer reference answer can hardly be met by its very words."""


@dataclass(frozen=True, slots=True)
class Mixture:
    items: tuple[Item, ...]
    digest: str


def paper_mixture(
    data: Mapping[str, Path] | None = None, *, each: int = EACH, seed: int = SEED
) -> Mixture:
    """The mixture, from the hub or from local files by the name of the task."""
    unknown = set(data or ()) - {task.name for task in PARTS}
    if unknown:
        raise ConfigError(f"the mixture has no part {', '.join(sorted(unknown))}")
    chosen: list[Item] = []
    for task in PARTS:
        items = task.load("train", (data or {}).get(task.name))
        drawn = draw([item for item in items if _fits(item)], each, seed=seed)
        if len(drawn) < each:
            raise ConfigError(f"{task.name} has {len(drawn)} problems to draw from, not {each}")
        chosen += drawn
    return Mixture(tuple(chosen), digest(chosen))


def _fits(item: Item) -> bool:
    return item.grader != RLPR.grader or len(str(item.target)) <= RLPR_CHARS

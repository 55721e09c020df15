"""reasoning-gym: endless verifiable problems of about a hundred families, made on the spot.

`reasoning-gym:countdown` is a task. Its items are numbers in a seeded sequence, so that train, dev
and test never meet; an answer is scored by the family's own rules, which may give parts of a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podium.errors import ConfigError
from podium.eval.judges import make_problems
from podium.eval.tasks.splits import SEED
from podium.eval.tasks.task import Item, Task

PROMPT = """{question}

Think it through, then end with the final answer alone inside <answer></answer>."""

SIZES = {"train": 1000, "dev": 200, "test": 200}


def reasoning_gym(family: str) -> Task:
    """The task of one family. More of it: `read_family` with sizes of your own."""

    def read(split: str, data: Path | None) -> Sequence[Item]:
        if data is not None:
            raise ConfigError("reasoning-gym makes its problems: it is not read from a file")
        seed = SEED + tuple(SIZES).index(split)
        return read_family(family, split=split, seed=seed, size=SIZES[split])

    return Task(
        name=f"reasoning-gym:{family}",
        source="reasoning-gym (generated)",
        licence="Apache-2.0",
        splits=tuple(SIZES),
        grader="gym",
        prompt=PROMPT,
        read=read,
    )


def read_family(family: str, *, split: str, seed: int, size: int) -> Sequence[Item]:
    source = {"family": family, "seed": seed, "size": size}
    return [
        Item(
            id=f"reasoning-gym/{family}/{seed}/{index}",
            question=PROMPT.replace("{question}", question.strip()),
            target={**source, "index": index, "answer": answer},
            grader="gym",
            category=family,
            split=split,
        )
        for index, (question, answer) in enumerate(make_problems(family, seed=seed, size=size))
    ]

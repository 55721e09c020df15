"""Whom a question may use: everyone, or a random few under new numbers (adaptive pools).

A Conductor that always sees the same numbers learns numbers. One that meets a different part of
the pool with every question has to read who is there, and can then use a worker it has never
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from podium.train.data import Problem
from podium.train.recipe import Recipe
from podium.workers import Pool


@dataclass(frozen=True, slots=True)
class Row:
    """One question as it is put to the Conductor: with the pool it may use this time."""

    problem: Problem
    pool: Pool


def drawn(problems: Sequence[Problem], pool: Pool, recipe: Recipe) -> list[Row]:
    """Each problem with its pool, which the recipe's seed and the problem decide."""
    draw = recipe.pool.draw
    if draw is None:
        return [Row(problem, pool) for problem in problems]
    return [Row(p, some(pool, draw, Random(f"{recipe.seed} {p.id}"))) for p in problems]


def some(pool: Pool, draw: tuple[int, int], rng: Random) -> Pool:
    """A random few of the models in random order, then all programs."""
    models = [i for i, m in enumerate(pool.members) if not m.program]
    programs = [i for i, m in enumerate(pool.members) if m.program]
    count = min(rng.randint(*draw), len(models))
    return pool.subset([*rng.sample(models, count), *programs])

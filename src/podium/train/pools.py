"""Whom a question may use: everyone, or a random few under new numbers (adaptive pools).

A Conductor that always sees the same numbers learns numbers. One that meets a different part of
the pool with every question has to read who is there, and can then use a worker it has never
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from podium.prompts import WHOLE
from podium.train.data import Problem
from podium.train.recipe import Recipe
from podium.types import Step, Workflow
from podium.workers import Pool

VOTE = "Vote."


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


def random_workflow(row: Row, rng: Random, workers: tuple[int, int]) -> Workflow:
    """The question's own plan by random workers.

    Without one: some workers, each asked the whole question, and a vote where there are several
    and somebody to count.
    """
    pool = row.pool
    models = [i for i, m in enumerate(pool.members) if not m.program]
    if row.problem.plan:
        return Workflow(tuple(replace(s, worker=rng.choice(models)) for s in row.problem.plan))
    votes = [i for i, m in enumerate(pool.members) if m.program]
    count = min(rng.randint(*workers), len(models))
    steps = tuple(Step(i, WHOLE) for i in rng.sample(models, count))
    if count > 1 and votes:
        steps += (Step(votes[0], VOTE, "all"),)
    return Workflow(steps)

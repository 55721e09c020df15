"""The held-out report: the Conductor beside every single worker, in the same executor."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podium.conductor import Strategy, Terms
from podium.ledger import Ledger
from podium.train.data import Problem
from podium.types import Limits, Run

TOGETHER = 256
"""Questions that are under way at once."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a strategy did on a split."""

    name: str
    scores: tuple[float, ...]
    dollars: tuple[float, ...]
    runs: tuple[Run, ...]

    @property
    def accuracy(self) -> float:
        return sum(self.scores) / len(self.scores)

    @property
    def cost(self) -> float:
        """Dollars a question, workers only: the Conductor runs here."""
        return sum(self.dollars) / len(self.dollars)

    def summary(self) -> dict[str, Any]:
        rounds = [r for run in self.runs for r in run.rounds]
        use = Counter(s.worker for r in rounds for s in r.results)
        shape = Counter(
            " ".join(s.worker for s in r.results) or (r.failure.kind if r.failure else "stands")
            for r in rounds
        )
        return {
            "strategy": self.name,
            "questions": len(self.scores),
            "accuracy": self.accuracy,
            "dollars": self.cost,
            "rounds": len(rounds) / len(self.runs),
            "workers": dict(use.most_common()),
            "workflows": dict(shape.most_common(12)),
        }


async def hold(strategy: Strategy, problems: Sequence[Problem], limits: Limits) -> Held:
    """Answer every problem and score it."""
    gate = asyncio.Semaphore(TOGETHER)

    async def one(problem: Problem) -> tuple[Run, float]:
        async with gate:
            run = await strategy.solve(problem.question, Terms(Ledger(limits)))
        return run, await problem.score(run.answer or "") or 0.0

    done = await asyncio.gather(*map(one, problems))
    runs = tuple(run for run, _ in done)
    scores = tuple(score for _, score in done)
    return Held(strategy.name, scores, tuple(r.cost for r in runs), runs)

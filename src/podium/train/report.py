"""The held-out report: the Conductor beside every single worker, in the same executor."""

from __future__ import annotations

import asyncio
import math
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

    async def one(problem: Problem) -> Run:
        async with gate:
            return await strategy.solve(problem.question, Terms(Ledger(limits)))

    runs = await asyncio.gather(*map(one, problems))
    scores = [p.score(r.answer or "") or 0.0 for p, r in zip(problems, runs, strict=True)]
    return Held(strategy.name, tuple(scores), tuple(r.cost for r in runs), tuple(runs))


def paired(a: Sequence[float], b: Sequence[float]) -> float:
    """McNemar's exact test, two-sided: how likely so uneven a split of the differences is."""
    better = sum(x > y for x, y in zip(a, b, strict=True))
    worse = sum(x < y for x, y in zip(a, b, strict=True))
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1)) / 2**n
    return min(1.0, 2 * tail)

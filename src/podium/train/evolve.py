"""Separable CMA-ES, asked and told: the search that finds TRINITY's weights.

    search = Evolution(start, sigma=0.03, seed=0)
    while search.generation < 60:
        search.tell([fitness(candidate) for candidate in search.ask()])

The algorithm is the `cmaes` package's (MIT, numpy only). What is added here is that a search is a
pure function of its seed and of what it was told: each generation draws from a generator of its
own. So a log of fitnesses is a complete checkpoint, and `Evolution.resume` walks it again, bit for
bit, in milliseconds a generation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from podium.errors import WorkerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

SEEDS = 2**32
SPREAD = 1_000_003
"""Keeps the generations of one seed apart from those of the next."""


def population_size(dimensions: int) -> int:
    """⌈4 + 3 ln n⌉, as published."""
    return math.ceil(4 + 3 * math.log(dimensions))


class Evolution:
    """A search for the vector of the highest fitness, one generation after another."""

    def __init__(
        self,
        start: Sequence[float] | Vector,
        *,
        sigma: float = 0.03,
        seed: int = 0,
        population: int | None = None,
    ) -> None:
        import numpy as np
        from cmaes import SepCMA

        mean = np.array(start, dtype=np.float64)
        self.population = population or population_size(len(mean))
        self._seed = seed
        self._search: Any = SepCMA(mean=mean, sigma=sigma, population_size=self.population)
        self._asked: list[Vector] = []

    @property
    def generation(self) -> int:
        """How many were told."""
        return int(self._search.generation)

    @property
    def mean(self) -> Vector:
        """Where the search stands: its best guess under noise, unlike any single candidate."""
        found: Vector = self._search.mean.copy()
        return found

    @property
    def sigma(self) -> float:
        return float(self._search._sigma)

    def ask(self) -> list[Vector]:
        """The candidates of this generation; asked again, the same ones."""
        if not self._asked:
            self._search.reseed_rng((self._seed * SPREAD + self.generation) % SEEDS)
            self._asked = [self._search.ask() for _ in range(self.population)]
        return self._asked

    def tell(self, fitness: Sequence[float | None]) -> None:
        """What each candidate is worth; None where nothing could be measured."""
        losses = [-f for f in filled(fitness)]
        self._search.tell(list(zip(self.ask(), losses, strict=True)))
        self._asked = []

    def resume(self, told: Sequence[Sequence[float | None]]) -> None:
        """Walk through what was told before."""
        for fitness in told:
            self.tell(fitness)


def filled(fitness: Sequence[float | None]) -> list[float]:
    """Without gaps: a candidate that could not be measured is neither preferred nor dropped.

    Raises:
        WorkerError: nothing at all could be measured, so the search would walk blindly.
    """
    known = [f for f in fitness if f is not None]
    if not known:
        raise WorkerError("no episode of a whole generation could be scored: are the workers up?")
    middle = median(known)
    return [middle if f is None else f for f in fitness]


@dataclass(frozen=True, slots=True)
class Bonuses:
    """What the released configuration adds to the mean reward; the paper speaks of none of it."""

    diversity: float = 0.0
    """Times the entropy, in nats, of a candidate's picks of workers. Released: 0.15."""
    turns: float = 0.0
    """Times -((N - 1) / K) / 4, with N picks in all episodes and K turns at most. Released: 0.1."""
    dollars: float = 0.0
    """Taken off for each thousandth of a dollar that an episode costs. Not in the release."""


def bonus(picks: Sequence[str], *, turns: int, dollars: float, weights: Bonuses) -> float:
    """What is added for a candidate's picks over all its episodes, and for their mean cost."""
    counts = [picks.count(name) / len(picks) for name in set(picks)]
    entropy = -math.fsum(share * math.log(share) for share in counts)
    length = -((len(picks) - 1) / turns) / 4
    return weights.diversity * entropy + weights.turns * length - weights.dollars * dollars * 1000

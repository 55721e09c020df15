"""What a difference is worth: intervals, paired tests, ceilings, and signs of something wrong.

Outcomes are paired by question: two strategies are compared on the very same ones, in the same
order. Nothing here knows where outcomes come from.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

CONFIDENCE = 0.95
RESAMPLES = 2000
"""Of a bootstrap: enough for two digits of the interval's ends."""
CORRELATED = 0.2
"""Real workers' successes are correlated, because some questions are harder: 0.2 to 0.7."""
ENOUGH = 100
"""Fewer questions say little about a correlation, or about anything."""
RARE = 10
"""Workers that hardly ever fail, or hardly ever succeed, show no correlation either."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


def wilson(successes: float, n: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval for a share: right for small samples and shares near 0 and 1."""
    if n == 0:
        return Interval(0.0, 1.0)
    z = _z(confidence)
    share, z2n = successes / n, z * z / n
    centre = (share + z2n / 2) / (1 + z2n)
    half = z / (1 + z2n) * math.sqrt(share * (1 - share) / n + z2n / (4 * n))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Exact two-sided p: how likely a split as uneven is, if neither of two is the better one."""
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    n, k = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, 2 * tail / (1 << n))


@dataclass(frozen=True, slots=True)
class Difference:
    """How much the first mean is above the second."""

    mean: float
    interval: Interval
    p: float


def bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Difference:
    """Paired bootstrap of a difference of means: whole questions are drawn anew."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not differences:
        raise ValueError("nothing to compare")
    rng = random.Random(seed)
    n = len(differences)
    means = sorted(sum(rng.choices(differences, k=n)) / n for _ in range(resamples))
    tail = (1 - confidence) / 2
    below = (sum(m <= 0 for m in means) + 1) / (resamples + 1)
    above = (sum(m >= 0 for m in means) + 1) / (resamples + 1)
    interval = Interval(_quantile(means, tail), _quantile(means, 1 - tail))
    return Difference(sum(differences) / n, interval, min(1.0, 2 * min(below, above)))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def oracle(outcomes: Mapping[str, Sequence[bool]]) -> Sequence[bool]:
    """Whether some worker was right, question by question: no choice among them does better."""
    return [any(right) for right in zip(*outcomes.values(), strict=True)]


def gap_closed(accuracy: float, *, best_single: float, ceiling: float) -> float | None:
    """The share of the way from the best single worker to the oracle; None without a gap."""
    gap = ceiling - best_single
    return (accuracy - best_single) / gap if gap > 0 else None


def phi(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Correlation of two yes-or-no outcomes; None where one of them never varies."""
    n = len(first)
    both = sum(a and b for a, b in zip(first, second, strict=True))
    p, q = sum(first), sum(second)
    spread = p * (n - p) * q * (n - q)
    return (n * both - p * q) / math.sqrt(spread) if spread else None


@dataclass(frozen=True, slots=True)
class Uncorrelated:
    """Two workers whose successes have nothing to do with each other: made up, or misaligned."""

    first: str
    second: str
    phi: float
    high: float
    """The upper end of the interval."""


def uncorrelated(outcomes: Mapping[str, Sequence[bool]]) -> Sequence[Uncorrelated]:
    """Pairs of workers to doubt: even the upper end of their interval is low."""
    found = []
    for (a, first), (b, second) in combinations(outcomes.items(), 2):
        value = phi(first, second)
        if value is None or not (_tells(first) and _tells(second)):
            continue
        high = fisher(value, len(first)).high
        if high < CORRELATED:
            found.append(Uncorrelated(a, b, value, high))
    return found


def fisher(correlation: float, n: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Fisher's interval for a correlation."""
    if n <= 3 or abs(correlation) >= 1:
        return Interval(-1.0, 1.0)
    half = _z(confidence) / math.sqrt(n - 3)
    centre = math.atanh(correlation)
    return Interval(math.tanh(centre - half), math.tanh(centre + half))


def _tells(outcomes: Sequence[bool]) -> bool:
    right = sum(outcomes)
    return len(outcomes) >= ENOUGH and RARE <= right <= len(outcomes) - RARE


def pareto(points: Mapping[str, tuple[float, float]]) -> Sequence[str]:
    """Names whose cost nobody undercuts without losing accuracy, from cheap to dear.

    A point is cost and accuracy. Of two equal ones both stand.
    """
    ordered = sorted(points.items(), key=lambda point: (point[1][0], -point[1][1]))
    front: list[str] = []
    best, last = -math.inf, (math.nan, math.nan)
    for name, point in ordered:
        if point[1] > best or point == last:
            front.append(name)
            best, last = point[1], point
    return front


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)

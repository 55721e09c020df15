"""What a reader should doubt, in words: every way in which a comparison can fool its authors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.app import SINGLE
from podium.eval import statistics
from podium.eval.tally import BEST_SINGLE, Tally

if TYPE_CHECKING:
    from podium.eval.report import Figures

SIGNIFICANT = 0.05
ALIKE = 1.25
"""Spends that differ by less than this factor are equal."""
FEW = 0.01
"""Share of samples that may be missing before it is worth a word."""


@dataclass(frozen=True, slots=True)
class Doubts:
    of_all: Sequence[str]
    of: Mapping[str, Sequence[str]]
    """By strategy."""


def doubts(tally: Tally, figures: Mapping[str, Figures]) -> Doubts:
    of: dict[str, list[str]] = defaultdict(list)
    for name, own in figures.items():
        of[name] += _of_one(name, own, tally)
        of[name] += _of_its_gain(name, figures)
    return Doubts(list(_of_all(tally, figures)), of)


def _of_all(tally: Tally, figures: Mapping[str, Figures]) -> Iterator[str]:
    if tally.replay:
        yield "replay: every answer was recorded once, so seconds say nothing of the real thing"
    if len(tally.items) < statistics.ENOUGH:
        yield f"only {len(tally.items)} questions: differences of a few points are chance"
    if BEST_SINGLE not in tally.entrants and tally.reference:
        best = tally.reference.removeprefix(SINGLE)
        yield (
            f"the best single worker ({best}) was chosen on these very questions, which flatters "
            "it: ask for best-single to have it chosen on dev"
        )
    elif tally.reference and (better := _better_alone(tally, figures)):
        yield f"{better} alone did better here than the worker that was chosen on dev"
    if tally.seen_before:
        yield (
            f"{tally.seen_before} of these questions stand word for word among those that choices "
            "or training were made on"
        )
    yield from _uncorrelated(tally)


def _better_alone(tally: Tally, figures: Mapping[str, Figures]) -> str:
    alone = {n: f.accuracy for n, f in figures.items() if f.n and n.startswith(SINGLE)}
    best = max(alone, key=lambda name: alone[name], default="")
    chosen = alone.get(str(tally.reference), 1.0)
    return best.removeprefix(SINGLE) if best and alone[best] > chosen else ""


def _uncorrelated(tally: Tally) -> Iterator[str]:
    pairs = statistics.uncorrelated(tally.outcomes)
    if pairs:
        worst = min(pairs, key=lambda pair: pair.phi)
        yield (
            f"the successes of {len(pairs)} pairs of workers hardly go together ({worst.first} and "
            f"{worst.second}: phi {worst.phi:.2f}): real models find the same questions hard, so "
            "these may be made up, or matched to the wrong questions"
        )


def _of_one(name: str, own: Figures, tally: Tally) -> Iterator[str]:
    if own.p_vs_best_single is not None and own.paired < max(own.n, len(tally.items)):
        yield (
            f"unpaired: it shares {own.paired} of {len(tally.items)} questions with the best "
            "single worker, and p rests on those alone"
        )
    if not own.n:
        yield "nothing of it could be scored"
    if own.unscored > FEW * (own.n + own.unscored):
        yield f"{own.unscored} samples are unscored and missing from the accuracy"
    if (failed := sum(own.failures.values())) > FEW * own.n:
        kinds = ", ".join(f"{count} {kind}" for kind, count in own.failed_as.items())
        yield f"{failed} runs failed: {kinds}"
    if own.replayed and not tally.replay:
        yield (
            f"{own.replayed:.0%} of its calls had been made for another strategy or before a "
            "restart: its dollars are whole, its seconds are too few"
        )
    if own.unpriced:
        yield f"{own.unpriced} calls have no known price and are missing from its cost"


def _of_its_gain(name: str, figures: Mapping[str, Figures]) -> Iterator[str]:
    """Whether more calls, rather than better ones, may explain that it beats the best single."""
    best, own = figures.get(BEST_SINGLE), figures[name]
    if best is None or name in (BEST_SINGLE, "oracle") or not own.accuracy > best.accuracy:
        return
    if own.p_vs_best_single is not None and own.p_vs_best_single >= SIGNIFICANT:
        yield f"its gain over the best single worker may be chance (p = {own.p_vs_best_single:.2f})"
    if _spend(own) <= ALIKE * _spend(best):
        return
    rivals = {n: f for n, f in figures.items() if n not in (name, BEST_SINGLE, "oracle")}
    equal = {
        n: f
        for n, f in rivals.items()
        if not n.startswith(SINGLE) and _spend(own) / ALIKE <= _spend(f) <= _spend(own) * ALIKE
    }
    if not equal:
        yield (
            f"it spends {_spend(own) / (_spend(best) or 1):.1f} times what the best single worker "
            "does, and nothing of equal spend was run beside it (--equal-spend)"
        )
    for rival, f in equal.items():
        if f.accuracy >= own.accuracy:
            yield f"its gain vanishes at equal spend: {rival} reaches {f.accuracy:.1%} for as much"


def _spend(figures: Figures) -> float:
    """Dollars, or tokens where nothing costs dollars."""
    return figures.usd_per_question or figures.tokens_per_question / 1e6

"""What an evaluation found: a row of figures for each strategy, and what a reader should doubt.

Strategies are compared question by question with the best single worker. Nothing is left out: what
could not be scored, what failed and whose fault it was are figures like the others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import orjson

from podium.app import SINGLE
from podium.eval import statistics
from podium.eval.doubts import doubts
from podium.eval.tally import BEST_SINGLE, Tally

ORACLE = "oracle"
RESAMPLED = 30
"""From so many questions on a bootstrap can be believed; on fewer, better and worse are counted."""


def percent(share: float, digits: int = 1) -> str:
    return "–" if math.isnan(share) else f"{share:.{digits}%}"


@dataclass(frozen=True, slots=True)
class Category:
    n: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One strategy. Means are per question; `n` counts the questions that were scored."""

    n: int
    accuracy: float
    """Not a number where nothing could be scored; JSON says null."""
    low: float
    high: float
    p_vs_best_single: float | None
    """McNemar's exact test; a paired bootstrap of many questions with scores between 0 and 1."""
    paired: int
    """On how many questions that comparison rests."""
    gap_closed: float | None
    """Of the way from the best single worker to the oracle."""
    categories: Mapping[str, Category]
    usd_per_question: float = 0.0
    tokens_per_question: float = 0.0
    calls_per_question: float = 0.0
    seconds_per_question: float = 0.0
    steps_per_workflow: float = 0.0
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many runs had so many steps."""
    workers: Mapping[str, float] = field(default_factory=dict[str, float])
    """Calls per question, by worker."""
    unscored: int = 0
    unread: int = 0
    """Scored 0 because no answer could be read."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Runs that failed, by blame."""
    step_failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Steps that failed, by blame, in runs that may be well all the same."""
    failed_as: Mapping[str, int] = field(default_factory=dict[str, int])
    """Runs that failed, by the kind of failure."""
    unpriced: int = 0
    """Calls whose price is unknown and missing from the dollars."""
    replayed: float = 0.0
    """Share of the calls that came out of a recording."""
    says: str = ""
    """What the name stands for, where something was chosen."""
    doubts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    label: str
    split: str
    replay: bool
    figures: Mapping[str, Figures]
    """By strategy: those that were asked for, the oracle, then each worker alone."""
    front: Sequence[str]
    """The strategies that nobody undercuts without losing accuracy."""
    doubts: Sequence[str]
    sources: Sequence[Path]

    @property
    def title(self) -> str:
        return f"{self.label}, {self.split}" + (" (replay)" if self.replay else "")


def summarise(tally: Tally) -> Report:
    """The figures of a tally."""
    figures = {name: _figures(tally, name, row) for name, row in rows(tally).items()}
    if tally.oracle:
        figures[ORACLE] = _oracle(tally, [figures[f"{SINGLE}{w}"] for w in tally.workers])
    figures = dict(sorted(figures.items(), key=lambda pair: _place(pair[0])))
    points = {
        name: (f.usd_per_question, f.accuracy)
        for name, f in figures.items()
        if f.n and name != ORACLE
    }
    said = doubts(tally, figures)
    return Report(
        tally.label,
        tally.split,
        tally.replay,
        {name: replace(f, doubts=said.of.get(name, ())) for name, f in figures.items()},
        statistics.pareto(points),
        said.of_all,
        tally.sources,
    )


def rows(tally: Tally) -> dict[str, str]:
    """Every row under its own name, and the best single worker under that name, too."""
    found = {row: row for row in tally.samples}
    best = tally.entrants.get(BEST_SINGLE, {}).get("row")
    return {BEST_SINGLE: best, **found} if best in found else found


def _place(name: str) -> tuple[int, str]:
    """The best single first, then what is compared with it, the ceiling, and each worker alone."""
    return (name != BEST_SINGLE) + (name == ORACLE) + 2 * name.startswith(SINGLE), name


def _figures(tally: Tally, name: str, row: str) -> Figures:
    samples = tally.samples[row]
    asked = len(samples)
    made = _accuracy(tally, tally.scores[row])
    failed = [s for s in samples if s.failure]
    calls = sum(s.calls for s in samples)
    return replace(
        made,
        usd_per_question=fmean(s.usd for s in samples),
        tokens_per_question=fmean(s.input + s.output for s in samples),
        calls_per_question=fmean(s.calls for s in samples),
        seconds_per_question=fmean(s.seconds for s in samples),
        steps_per_workflow=sum(s.steps for s in samples) / (sum(s.rounds for s in samples) or 1),
        steps=dict(sorted(Counter(s.steps for s in samples).items())),
        workers={w: n / asked for w, n in _total(s.workers for s in samples).most_common()},
        unscored=sum(s.score is None for s in samples),
        unread=sum(s.score is not None and s.read is None for s in samples),
        failures=Counter(s.blame for s in failed),
        step_failures=_total(s.step_blames for s in samples),
        failed_as=Counter(s.failure.partition(":")[0] for s in failed),
        unpriced=sum(s.unpriced for s in samples),
        replayed=sum(s.replayed for s in samples) / calls if calls else 0.0,
        says=tally.entrants.get(name, {}).get("says", ""),
    )


def _oracle(tally: Tally, alone: Sequence[Figures]) -> Figures:
    """What it would take to know that somebody is right: to ask everybody."""
    return replace(
        _accuracy(tally, tally.oracle),
        usd_per_question=sum(f.usd_per_question for f in alone),
        tokens_per_question=sum(f.tokens_per_question for f in alone),
        calls_per_question=sum(f.calls_per_question for f in alone),
        seconds_per_question=max(f.seconds_per_question for f in alone),
        workers=dict.fromkeys(tally.workers, 1.0),
        says="some worker right: computed, and priced as asking everybody",
    )


def _accuracy(tally: Tally, scores: Mapping[str, float]) -> Figures:
    """What depends on the scores alone."""
    n, right = len(scores), sum(scores.values())
    accuracy, interval = right / n if n else math.nan, statistics.wilson(right, n)
    reference = tally.scores[tally.reference] if tally.reference else {}
    p, paired = _compare(scores, reference)
    gap = None
    if n and reference and tally.oracle:
        best, ceiling = fmean(reference.values()), fmean(tally.oracle.values())
        gap = statistics.gap_closed(accuracy, best_single=best, ceiling=ceiling)
    return Figures(
        n=n,
        accuracy=accuracy,
        low=interval.low,
        high=interval.high,
        p_vs_best_single=p,
        paired=paired,
        gap_closed=gap,
        categories=_categories(tally, scores),
    )


def _compare(
    scores: Mapping[str, float], reference: Mapping[str, float]
) -> tuple[float | None, int]:
    """The p of the difference on the questions that both have."""
    both = [item for item in scores if item in reference]
    if not both or scores is reference:
        return None, len(both)
    ours, theirs = [scores[i] for i in both], [reference[i] for i in both]
    if {*ours, *theirs} <= {0.0, 1.0} or len(both) < RESAMPLED:
        better = [a > b for a, b in zip(ours, theirs, strict=True)]
        worse = [a < b for a, b in zip(ours, theirs, strict=True)]
        return statistics.mcnemar(better, worse), len(both)
    return statistics.bootstrap(ours, theirs).p, len(both)


def _categories(tally: Tally, scores: Mapping[str, float]) -> dict[str, Category]:
    found: dict[str, list[float]] = defaultdict(list)
    for item, value in scores.items():
        if category := tally.items[item].category:
            found[category].append(value)
    made = {}
    for category, values in sorted(found.items()):
        interval = statistics.wilson(sum(values), len(values))
        made[category] = Category(len(values), fmean(values), interval.low, interval.high)
    return made


def _total(counts: Iterable[str]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        if count != "{}":
            total.update(orjson.loads(count))
    return total

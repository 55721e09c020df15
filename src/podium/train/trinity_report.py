"""The report of a TRINITY: its fitness curve, and its front of accuracy and dollars on test.

The head that is kept is chosen on dev. Test is looked at once, when everything is trained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from podium.eval.statistics import bootstrap, mcnemar, oracle, wilson
from podium.train import contenders
from podium.train.ablations import ABLATIONS, ablated
from podium.train.contenders import LEARNERS, aligned, estimates
from podium.train.trinity import Training
from podium.trinity import Head

if TYPE_CHECKING:
    from podium.train.routers import Array


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy on test: by question, in one order for all."""

    name: str
    price: float | None
    scores: Sequence[float]
    dollars: Sequence[float]

    def summary(self, best: Point) -> dict[str, Any]:
        """Beside the best single worker or, for an ablation, beside the whole."""
        n, gain = len(self.scores), bootstrap(self.scores, best.scores)
        interval = wilson(sum(self.scores), n)
        return {
            "name": self.name,
            "price": self.price,
            "accuracy": fmean(self.scores),
            "interval": [interval.low, interval.high],
            "dollars": fmean(self.dollars),
            "share_of_dollars": fmean(self.dollars) / (fmean(best.dollars) or 1.0),
            "over": gain.mean,
            "over_interval": [gain.interval.low, gain.interval.high],
            "p": mcnemar([s >= 1 for s in self.scores], [s >= 1 for s in best.scores]),
        }


async def report(training: Training, heads: Mapping[float, Head]) -> dict[str, Any]:
    """Choose on dev, look at test, and write `head.json`, `report.json` and `report.md`."""
    learned = await _learned(training) if training.settings.compare else {}
    singles = _singles(training)
    best = max(singles, key=lambda p: _dev(training, p.name)[0])
    price = await _choose(training, heads, best)
    heads[price].save(training.out / "head.json")
    points = [*singles, *[await _held("trinity", h, training, p) for p, h in heads.items()]]
    if training.settings.compare:
        points += [
            await _held(n, h, training, training.settings.prices[0]) for n, h in learned.items()
        ]
        points += _routers(training)
        points += await _warm(training)
    chosen = next(p for p in points if p.name == "trinity" and p.price == price)
    found = {
        "recipe": training.settings.name,
        "questions": {split: len(some) for split, some in training.problems.items()},
        "best_single": best.name,
        "some_worker_right": _ceiling(training),
        "chosen": chosen.summary(best),
        "workers": await _use(training, heads[price]),
        "by_kind": _by_kind(training, chosen),
        "front": [point.summary(best) for point in points],
        "ablations": [p.summary(chosen) for p in await _ablations(training, price)],
        "curve": _curve(heads[price]),
        "examined": training.settings.exam or "the workers of the training",
        "episodes": training.stand.played,
        "dropped": training.stand.dropped,
    }
    (training.out / "report.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (training.out / "report.md").write_text(_page(found), encoding="utf-8")
    return found


async def _learned(training: Training) -> dict[str, Head]:
    """What the other learners find, kept so that a run which goes on need not find it again."""
    found: dict[str, Head] = {}
    for name, learn in LEARNERS.items():
        file = training.out / f"{name.replace(' ', '-')}.json"
        if not file.exists():
            (await learn(training, training.settings.prices[0])).save(file)
        found[name] = Head.load(file)
    return found


def _singles(training: Training) -> list[Point]:
    measured = training.measured["test"]
    by_worker = zip(
        training.workers,
        zip(*measured.rewards, strict=True),
        zip(*measured.dollars, strict=True),
        strict=True,
    )
    return [Point(name, None, scores, dollars) for name, scores, dollars in by_worker]


def _dev(training: Training, worker: str) -> tuple[float, float]:
    """A single worker's accuracy and dollars on dev."""
    at, measured = training.workers.index(worker), training.measured["dev"]
    return fmean(r[at] for r in measured.rewards), fmean(d[at] for d in measured.dollars)


async def _choose(training: Training, heads: Mapping[float, Head], best: Point) -> float:
    """The price whose head is the most accurate on dev and surely within the share of dollars.

    Surely: the interval of what it spends beyond the share ends below zero. What just meets the
    bound on dev breaks it elsewhere half of the time.
    """
    at, problems = training.workers.index(best.name), training.problems["dev"]
    most = [training.settings.dollar_share * d[at] for d in training.measured["dev"].dollars]
    looks: dict[float, Point] = {}
    for price, head in heads.items():
        played = await training.stand.play(head, problems)
        looks[price] = Point("dev", price, *aligned(played, [p.id for p in problems]))
    within = [
        price
        for price, look in looks.items()
        if bootstrap(look.dollars, most, resamples=1000).interval.high <= 0
    ]
    if not within:
        return min(looks, key=lambda p: fmean(looks[p].dollars))
    return max(within, key=lambda p: (fmean(looks[p].scores), p))


async def _held(name: str, head: Head, training: Training, price: float) -> Point:
    ids = [p.id for p in training.problems["test"]]
    played = await training.exam.play(head, training.problems["test"])
    return Point(name, price, *aligned(played, ids))


async def _ablations(training: Training, price: float) -> list[Point]:
    if not training.settings.ablations:
        return []
    found = {name: await ablated(training, name, price) for name in ABLATIONS}
    return [await _held(name, head, own, price) for name, (own, head) in found.items()]


def _by_kind(training: Training, point: Point) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for problem, score in zip(training.problems["test"], point.scores, strict=True):
        scores.setdefault(problem.item.category or "", []).append(score)
    return {kind: fmean(some) for kind, some in sorted(scores.items())}


async def _warm(training: Training) -> list[Point]:
    prices = training.settings.prices if training.settings.warm else ()
    heads = {price: await contenders.warm(training, price) for price in prices}
    return [await _held("warm start alone", h, training, p) for p, h in heads.items()]


def _routers(training: Training) -> list[Point]:
    found = estimates(training)
    return [_routed(n, e, training, p) for n, e in found.items() for p in training.settings.prices]


def _routed(name: str, expected: Array, training: Training, price: float) -> Point:
    import numpy as np

    measured = training.measured["test"]
    toll = 1000 * price * np.array(training.measured["train"].dollars).mean(axis=0)
    picks = (expected - toll).argmax(axis=1).tolist()
    scores = [row[pick] for row, pick in zip(measured.rewards, picks, strict=True)]
    dollars = [row[pick] for row, pick in zip(measured.dollars, picks, strict=True)]
    return Point(name, price, scores, dollars)


def _ceiling(training: Training) -> float:
    rewards = training.measured["test"].rewards
    outcomes = {w: [r[i] >= 1 for r in rewards] for i, w in enumerate(training.workers)}
    return fmean(oracle(outcomes))


async def _use(training: Training, head: Head) -> dict[str, int]:
    played = await training.exam.play(head, training.problems["test"])
    return dict(Counter(name for e in played.episodes for name in e.picks).most_common())


def _curve(head: Head) -> list[dict[str, Any]]:
    """Generation, mean and best fitness of its candidates, and what dev said."""
    lines: list[dict[str, Any]] = []
    for line in head.log:
        known = [f for f in line.get("fitness", ()) if f is not None]
        shown = {"generation": line["generation"], "sigma": line.get("sigma")}
        shown |= {"mean": fmean(known), "best": max(known)} if known else {}
        lines.append(shown | ({"dev": line["dev"]} if "dev" in line else {}))
    return lines


def _page(found: Mapping[str, Any]) -> str:
    chosen = found["chosen"]
    low, high = (100 * x for x in chosen["over_interval"])
    return "\n".join(
        [
            f"# {found['recipe']}",
            "",
            f"Questions: {found['questions']}. Chosen on dev, then looked at on test: "
            f"{100 * chosen['accuracy']:.1f} % right for {100 * chosen['share_of_dollars']:.0f} % "
            f"of the dollars of the best single worker ({found['best_single']}), "
            f"{100 * chosen['over']:+.1f} points against it "
            f"(95 % interval {low:+.1f} to {high:+.1f}, p {chosen['p']:.2g}). Some worker is right "
            f"on {100 * found['some_worker_right']:.1f} %.",
            "",
            f"It asks: {found['workers']}. Episodes played: {found['episodes']}, dropped because "
            f"a provider failed: {found['dropped']}.",
            "",
            *_table("best single", found["front"]),
            *(_table("the whole", found["ablations"]) if found["ablations"] else ()),
            "Fitness of the chosen head's generations:",
            "",
            _svg(found["curve"]),
            "",
        ]
    )


def _table(beside: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    head = f"| strategy | price | right, % | 95 % | $ per 1,000 | against {beside}, points |"
    return [head, "|---|--:|--:|---|--:|---|", *map(_row, points), ""]


def _row(point: Mapping[str, Any]) -> str:
    low, high = (100 * x for x in point["interval"])
    worse, better = (100 * x for x in point["over_interval"])
    price = "" if point["price"] is None else f"{point['price']:g}"
    return (
        f"| {point['name']} | {price} | {100 * point['accuracy']:.1f} | {low:.1f} to {high:.1f} | "
        f"{1000 * point['dollars']:.2f} | {100 * point['over']:+.1f} "
        f"({worse:+.1f} to {better:+.1f}) |"
    )


WIDTH, HEIGHT = 640, 200


def _svg(curve: Sequence[Mapping[str, Any]]) -> str:
    """Mean and best fitness by generation, and dev where it was looked at."""
    series = {
        "steelblue": [(c["generation"], c["mean"]) for c in curve if "mean" in c],
        "lightsteelblue": [(c["generation"], c["best"]) for c in curve if "best" in c],
        "firebrick": [(c["generation"], c["dev"]["fitness"]) for c in curve if "dev" in c],
    }
    seen = [value for line in series.values() for _, value in line]
    if not seen:
        return ""
    low, high = min(seen), max(seen)
    last = max(1, max(c["generation"] for c in curve))

    def place(generation: int, value: float) -> str:
        up = (value - low) / ((high - low) or 1.0)
        return f"{generation / last * WIDTH:.1f},{HEIGHT - up * HEIGHT:.1f}"

    lines = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
        f'points="{" ".join(place(*point) for point in line)}"/>'
        for colour, line in series.items()
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img">{"".join(lines)}</svg>\n\nBlue: mean of the candidates on their training '
        f"questions, light blue: the best of them, red: the mean vector on dev. From {low:.3f} to "
        f"{high:.3f}."
    )

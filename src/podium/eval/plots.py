"""The plots of a report, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from podium.app import SINGLE
from podium.eval.report import ORACLE, Category, Figures, Report

WIDTH = 720
COLOURS = 8
"""The page has so many; more series begin again with the first."""
LETTER = 6.1
"""Width of an average letter at the plots' font size."""


def accuracy_against_cost(report: Report) -> str:
    """Every strategy as a point with its interval, and the front of those worth their price."""
    shown = {n: f for n, f in report.figures.items() if f.n and not _repeats(n, report)}
    if not shown:
        return ""
    scale = _Scale.over([f.usd_per_question for f in shown.values()])
    height = 420
    low = max(0.0, math.floor(20 * min(f.low for f in shown.values())) / 20)
    high = min(1.0, math.ceil(20 * max(f.high for f in shown.values())) / 20)
    plot = _Plot(WIDTH, height, scale, low, high)
    front = [plot.at(report.figures[n]) for n in report.front]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
    parts = [*plot.grid(), f'<polyline class="front" points="{line}"/>']
    taken: list[tuple[float, float, float, float]] = [
        (x - 6, y - 6, x + 6, y + 6) for x, y in map(plot.at, shown.values())
    ]
    parts += [plot.point(name, f, i) for i, (name, f) in enumerate(shown.items())]
    parts += [_label(name, plot.at(f), taken) for name, f in shown.items()]
    return _svg(WIDTH, height, parts, "Share of right answers against dollars per question")


def dollars(usd: float) -> str:
    """Two or three digits that matter, and no powers of ten."""
    digits = 2 if usd <= 0 else max(2, 2 - math.floor(math.log10(usd)))
    whole, point, rest = f"{usd:.{digits}f}".partition(".")
    return f"${whole}{point}{rest[:2]}{rest[2:].rstrip('0')}"


def _repeats(name: str, report: Report) -> bool:
    """The worker that best-single stands for is drawn once."""
    best = report.figures.get("best-single")
    return best is not None and name == f"{SINGLE}{best.says}"


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    log: bool

    @staticmethod
    def over(values: Sequence[float]) -> _Scale:
        least, most = min(values), max(values)
        if least > 0 and most / least > 8:
            return _Scale(least / 1.5, most * 1.8, True)
        return _Scale(0.0, most * 1.15 or 1.0, False)

    def share(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if not self.log:
            step = _round_step(self.high / 5)
            return [step * i for i in range(int(self.high / step) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [m * 10.0**p for p in powers for m in (1, 3)]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.99)


@dataclass(frozen=True, slots=True)
class _Plot:
    width: int
    height: int
    x: _Scale
    low: float
    high: float
    left: int = 48
    bottom: int = 44

    def at(self, f: Figures) -> tuple[float, float]:
        return self._x(f.usd_per_question), self._y(f.accuracy)

    def _x(self, value: float) -> float:
        return self.left + self.x.share(value) * (self.width - self.left - 24)

    def _y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return 12 + (1 - share) * (self.height - self.bottom - 12)

    def grid(self) -> Iterator[str]:
        floor = self.height - self.bottom
        step = 0.05 if self.high - self.low <= 0.4 else 0.1
        for i in range(round((self.high - self.low) / step) + 1):
            y = self._y(self.low + i * step)
            at, share = f'y1="{y:.1f}" y2="{y:.1f}"', f"{self.low + i * step:.0%}"
            yield f'<line class="grid" x1="{self.left}" x2="{self.width}" {at}/>'
            yield f'<text class="end" x="{self.left - 8}" y="{y + 4:.1f}">{share}</text>'
        for tick in self.x.ticks():
            x = self._x(tick)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="12" y2="{floor}"/>'
            yield f'<text class="mid" x="{x:.1f}" y="{floor + 18}">{dollars(tick)}</text>'
        middle = (self.left + self.width) / 2
        yield f'<text class="mid" x="{middle}" y="{self.height - 6}">dollars per question</text>'

    def point(self, name: str, f: Figures, colour: int) -> str:
        x, y = self.at(f)
        kind = "alone" if name.startswith(SINGLE) else f"dot c{colour % COLOURS}"
        kind = "ceiling" if name == ORACLE else kind
        interval = f"{f.low:.1%} to {f.high:.1%}"
        tip = escape(f"{name}: {f.accuracy:.1%} ({interval}), {dollars(f.usd_per_question)}")
        ends = f'y1="{self._y(f.low):.1f}" y2="{self._y(f.high):.1f}"'
        return (
            f'<g class="{kind}"><title>{tip}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" {ends}/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>'
        )


def _label(
    name: str, at: tuple[float, float], taken: list[tuple[float, float, float, float]]
) -> str:
    """The name beside its point, where it covers nothing if there is such a place."""
    text = name.removeprefix(SINGLE)
    text = text if len(text) <= 28 else f"{text[:27]}…"
    wide, (x, y) = LETTER * len(text), at
    beside = (x + 9, x - 9 - wide)
    places = [
        *((left, y + 4) for left in beside),
        *((x - wide / 2, base) for base in (y - 10, y + 19)),
        *((left, base) for left in beside for base in (y - 9, y + 17)),
    ]
    boxes = [(a, b - 10, a + wide, b + 3) for a, b in places]
    inside = [box for box in boxes if box[0] >= 50 and box[2] <= WIDTH]
    box = min(inside or boxes, key=lambda box: sum(_overlap(box, other) for other in taken))
    taken.append(box)
    return f'<text class="name" x="{box[0]:.1f}" y="{box[1] + 10:.1f}">{escape(text)}</text>'


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, wide) * max(0.0, high)


def worker_use(report: Report) -> str:
    """Which workers each strategy asks, as shares of its calls."""
    shown = {n: f.workers for n, f in _compared(report).items() if f.workers and n != ORACLE}
    return _stacked(shown, "Whom each strategy asks: share of its calls")


def steps(report: Report) -> str:
    """How many steps a question takes."""
    shown = {
        name: {f"{count} step{'s' * (count != 1)}": float(runs) for count, runs in f.steps.items()}
        for name, f in _compared(report).items()
        if f.steps
    }
    return _stacked(shown, "Steps that a question takes: share of the questions")


def _compared(report: Report) -> Mapping[str, Figures]:
    found = {n: f for n, f in report.figures.items() if not n.startswith(SINGLE)}
    return found or report.figures


def _stacked(bars: Mapping[str, Mapping[str, float]], title: str) -> str:
    series = list(dict.fromkeys(part for parts in bars.values() for part in parts))
    left, row = 170, 30
    keys = list(_legend(series))
    top = 26 * max(1, len({y for _, y, _ in keys})) + 8
    parts = [
        f'<g class="c{i % COLOURS}"><rect x="{x}" y="{y}" width="10" height="10" rx="2"/>'
        f'<text x="{x + 15}" y="{y + 9}">{escape(name)}</text></g>'
        for i, (x, y, name) in enumerate(keys)
    ]
    for number, (name, shares) in enumerate(bars.items()):
        y, x = top + number * row, float(left)
        label = name if len(name) <= 26 else f"{name[:25]}…"
        parts.append(f'<text class="end" x="{left - 8}" y="{y + 15}">{escape(label)}</text>')
        whole = sum(shares.values()) or 1.0
        for part, value in shares.items():
            wide = value / whole * (WIDTH - left)
            tip = escape(f"{name}: {part} {value / whole:.1%}")
            parts.append(
                f'<rect class="c{series.index(part) % COLOURS}" x="{x:.1f}" y="{y}" rx="2" '
                f'width="{max(0.0, wide - 1):.1f}" height="20"><title>{tip}</title></rect>'
            )
            x += wide
    return _svg(WIDTH, top + len(bars) * row + 4, parts, title)


def _legend(names: Sequence[str]) -> Iterator[tuple[float, float, str]]:
    x, y = 0.0, 4.0
    for name in names:
        wide = 34 + LETTER * 1.05 * len(name)
        if x and x + wide > WIDTH:
            x, y = 0.0, y + 26
        yield round(x, 1), y, name
        x += wide


def categories(report: Report) -> str:
    """How right each strategy is in each category, the hardest last."""
    shown = {n: f.categories for n, f in _compared(report).items() if f.categories}
    if not shown:
        return ""
    first = next(iter(shown.values()))
    order = sorted(first, key=lambda category: -first[category].accuracy)
    left, bar, gap = 170, 9, 12
    keys = list(_legend(list(shown)))
    top = 26 * len({y for _, y, _ in keys}) + 8
    parts = [
        f'<g class="c{i % COLOURS}"><rect x="{x}" y="{y}" width="10" height="10" rx="2"/>'
        f'<text x="{x + 15}" y="{y + 9}">{escape(name)}</text></g>'
        for i, (x, y, name) in enumerate(keys)
    ]
    high = len(shown) * bar + gap
    for number, category in enumerate(order):
        y = top + number * high
        n = first[category].n
        label = escape(f"{category} ({n})")
        parts.append(
            f'<text class="end" x="{left - 8}" y="{y + (high - gap) / 2 + 4:.1f}">{label}</text>'
        )
        for i, (name, found) in enumerate(shown.items()):
            if category in found:
                parts.append(_bar(name, category, found[category], y + i * bar, i))
    return _svg(WIDTH, top + len(order) * high, parts, "Share of right answers by category")


def _bar(name: str, category: str, f: Category, y: float, colour: int) -> str:
    left, room = 170, WIDTH - 170 - 44
    tip = escape(f"{name}, {category}: {f.accuracy:.1%} of {f.n} ({f.low:.0%} to {f.high:.0%})")
    end = left + f.accuracy * room
    return (
        f'<g class="c{colour % COLOURS}"><title>{tip}</title>'
        f'<rect x="{left}" y="{y}" width="{f.accuracy * room:.1f}" height="8" rx="2"/></g>'
        f'<text class="small" x="{end + 5:.1f}" y="{y + 7.5}">{100 * f.accuracy:.0f}</text>'
    )


def _svg(width: int, height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg class="plot" role="img" '
        f'viewBox="0 0 {width} {height:.0f}" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg></figure>"
    )

"""The curves of a run as one page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, PAD = 320, 150, 30
PLOTS = (
    ("Answers that are right", ("accuracy",)),
    ("Reward", ("reward",)),
    ("Drafts that parse", ("parsed",)),
    ("Groups: live, all right, all wrong", ("live_groups", "all_right", "all_wrong")),
    ("Surprise per token (nats)", ("entropy",)),
    ("Steps per workflow", ("steps_per_workflow",)),
    ("Rounds", ("rounds",)),
    ("Access: all, some", ("reads_all", "reads_some")),
    ("Dollars per question", ("cost",)),
    ("First worker depends on the question (bits)", ("question_dependence",)),
    ("Seconds per step", ("seconds",)),
)
COLOURS = ("#1b6ca8", "#d1495b", "#3c887e", "#edae49", "#66579b", "#8d6a4f", "#5b8c2a", "#777777")
SMOOTH = 5
"""Steps over which the bold line is averaged."""

STYLE = """
body{font:14px system-ui,sans-serif;margin:2rem auto;max-width:1060px;color:#222;background:#fff}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(330px,1fr));gap:1rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}text{font-size:9px;fill:#555}
"""


def page(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    workers = sorted({worker for row in rows for worker in row["workers"]})
    plots = [(title, keys, [_series(rows, key) for key in keys]) for title, keys in PLOTS]
    use = [[float(row["workers"].get(worker, 0.0)) for row in rows] for worker in workers]
    plots.append(("Share of calls", tuple(workers), use))
    figures = [_figure(title, series, keys) for title, keys, series in plots if rows and series]
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(name)}</title><style>{STYLE}</style>"
        f"<h1>{escape(name)}</h1><p>{len(rows)} steps</p><main>{''.join(figures)}</main>"
    )


def _series(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [float(row.get(key, 0.0)) for row in rows]


def _figure(title: str, series: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    low = min(0.0, *(min(line) for line in series))
    high = max(max(line) for line in series) or 1.0
    high = 1.0 if 0.5 < high <= 1.0 else high
    drawn = [_lines(s, low, high, COLOURS[i % len(COLOURS)]) for i, s in enumerate(series)]
    legend = [
        f'<text x="{PAD + 4}" y="{10 + 10 * i}" style="fill:{COLOURS[i % len(COLOURS)]}">'
        f"{escape(name)}</text>"
        for i, name in enumerate(names)
        if len(names) > 1
    ]
    axis = (
        f'<path d="M{PAD} 4V{HEIGHT - PAD}H{WIDTH}" fill="none" stroke="#bbb"/>'
        f'<text x="0" y="12">{high:.3g}</text><text x="0" y="{HEIGHT - PAD}">{low:.3g}</text>'
        f'<text x="{WIDTH - 24}" y="{HEIGHT - PAD + 12}">{len(series[0])}</text>'
    )
    body = "".join([axis, *drawn, *legend])
    view = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{body}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{view}</figure>"


def _lines(values: Sequence[float], low: float, high: float, colour: str) -> str:
    smooth = [
        sum(values[max(0, i - SMOOTH + 1) : i + 1]) / min(i + 1, SMOOTH) for i in range(len(values))
    ]
    thin = f'<path d="{_path(values, low, high)}" fill="none" stroke="{colour}" opacity=".3"/>'
    bold = f'<path d="{_path(smooth, low, high)}" fill="none" stroke="{colour}" stroke-width="2"/>'
    return thin + bold


def _path(values: Sequence[float], low: float, high: float) -> str:
    across = (WIDTH - PAD) / max(1, len(values) - 1)
    up = (HEIGHT - PAD - 4) / (high - low)
    points = [
        f"{PAD + i * across:.1f} {HEIGHT - PAD - (v - low) * up:.1f}" for i, v in enumerate(values)
    ]
    return "M" + "L".join(points)

"""Counts for Prometheus, in its text format. No label ever carries content."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate

PREFIX = "podium_"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
KNOWN = {
    "requests_total": ("counter", "Requests by API, model and status."),
    "tokens_total": ("counter", "Tokens of all inner calls, by model and direction."),
    "cost_dollars_total": ("counter", "Dollars of all inner calls, by model."),
    "request_seconds": ("histogram", "Seconds a request took, by API."),
    "disconnects_total": ("counter", "Clients that left before their answer was complete."),
    "slow_readers_total": ("counter", "Clients that were cut off because they read too slowly."),
    "running": ("gauge", "Requests under way."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._values: dict[tuple[str, Labels], float] = defaultdict(float)
        self._counts: dict[tuple[str, Labels], list[int]] = {}
        """Of a histogram: how many fell between each bound and the one before it."""

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        self._values[name, tuple(labels.items())] += value

    def observe(self, name: str, value: float, **labels: str) -> None:
        given = tuple(labels.items())
        counts = self._counts.setdefault((name, given), [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, value)] += 1
        self._values[f"{name}_sum", given] += value

    def text(self) -> str:
        lines: list[str] = []
        for name, (kind, about) in KNOWN.items():
            lines += [f"# HELP {PREFIX}{name} {about}", f"# TYPE {PREFIX}{name} {kind}"]
            found = self._values.items()
            lines += [_line(*k, v) for k, v in found if k[0] in (name, f"{name}_sum")]
            for key, counts in self._counts.items():
                if key[0] == name:
                    lines += _buckets(*key, counts)
        return "\n".join([*lines, ""])


def _buckets(name: str, labels: Labels, counts: list[int]) -> list[str]:
    bounds = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]
    upto = list(accumulate(counts))
    lines = [
        _line(f"{name}_bucket", (*labels, ("le", bound)), count)
        for bound, count in zip(bounds, upto, strict=True)
    ]
    return [*lines, _line(f"{name}_count", labels, upto[-1])]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(said)}"' for key, said in labels)
    return f"{PREFIX}{name}{{{inside}}} {value:g}" if inside else f"{PREFIX}{name} {value:g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

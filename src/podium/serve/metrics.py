"""Counts for Prometheus, in its text format. No label ever carries content."""

from __future__ import annotations

from collections import defaultdict

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

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        self._values[name, tuple(labels.items())] += value

    def observe(self, name: str, value: float, **labels: str) -> None:
        given = tuple(labels.items())
        for bound in BUCKETS:
            if value <= bound:
                self._values[f"{name}_bucket", (*given, ("le", f"{bound:g}"))] += 1
        self._values[f"{name}_bucket", (*given, ("le", "+Inf"))] += 1
        self._values[f"{name}_sum", given] += value
        self._values[f"{name}_count", given] += 1

    def text(self) -> str:
        lines: list[str] = []
        for name, (kind, about) in KNOWN.items():
            lines += [f"# HELP {PREFIX}{name} {about}", f"# TYPE {PREFIX}{name} {kind}"]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            names = {name + suffix for suffix in suffixes}
            lines += [_line(*key, value) for key, value in self._values.items() if key[0] in names]
        return "\n".join([*lines, ""])


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(said)}"' for key, said in labels)
    return f"{PREFIX}{name}{{{inside}}} {value:g}" if inside else f"{PREFIX}{name} {value:g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

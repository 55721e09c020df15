"""What can be seen of a run while it learns: figures, samples, a progress bar, warnings in words.

Every step leaves a line in `metrics.jsonl` and a few drafts in `samples.jsonl`; the page of plots
is drawn anew from those lines. A run that was killed and goes on drops the lines after its last
checkpoint first, so the curve has no seam.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback

from podium.train.checkpoint import needing_room
from podium.train.grpo import UNKNOWN, Rollout
from podium.train.plots import page
from podium.train.processes import processes
from podium.train.recipe import Recipe
from podium.train.reward import cost
from podium.types import Round

log = logging.getLogger(__name__)

SAMPLES = 4
"""Drafts of a step that are kept in full."""
WINDOW = 8
"""Steps that a warning looks back on."""
THEIRS = ("loss", "grad_norm", "learning_rate", "kl", "entropy")
"""What TRL knows and we keep, where we do not know it ourselves."""


class Monitor(TrainerCallback):
    def __init__(self, directory: Path, recipe: Recipe) -> None:
        self.directory, self.recipe = directory, recipe
        self.metrics = Lines(directory / "metrics.jsonl")
        self.samples = Lines(directory / "samples.jsonl")
        self._first = bool(processes().is_main_process)
        """Of several processes one tells the story; all of them know it."""
        self._figures: dict[str, Any] = {}
        self._warned: set[str] = set()
        self._since = time.monotonic()
        self._progress = Progress(
            TextColumn(recipe.name),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not (self._first and Console(stderr=True).is_terminal),
        )
        self._bar = self._progress.add_task("", total=recipe.grpo.steps, figures="")

    def watch(self, step: int, rollouts: Sequence[Rollout]) -> None:
        """Take in what came of a step's drafts."""
        if not self._first:
            return
        self._figures = figures(rollouts, self.recipe.grpo.drafts)
        for rollout in rollouts[:: max(1, len(rollouts) // SAMPLES)]:
            self.samples.add({"step": step + 1, **sample(rollout)})

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._first:
            for lines in (self.metrics, self.samples):
                lines.cut(state.global_step)
        self._progress.start()
        self._since = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        logs: dict[str, Any] = given["logs"]
        if "loss" not in logs or not self._first:  # the summary at the end is no step
            return
        for name, value in flat(self._figures):
            logs[f"conductor/{name}"] = value
        now = time.monotonic()
        theirs = {name: logs[name] for name in THEIRS if name in logs}
        self.metrics.add(
            {"step": state.global_step, "seconds": now - self._since, **theirs, **self._figures}
        )
        self._since = now
        for warning in warnings(self.metrics.last(WINDOW)):
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning("step %d: %s", state.global_step, warning)
        shown = f"right {self._figures['accuracy']:.2f}  parsed {self._figures['parsed']:.2f}"
        self._progress.update(self._bar, completed=state.global_step, figures=shown)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        stop = self.recipe.grpo.stop
        control.should_training_stop |= stop is not None and state.global_step >= stop

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.draw()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.stop()
        self.draw()

    def draw(self) -> None:
        if not self._first:
            return
        (self.directory / "plots.html").write_text(page(self.recipe.name, self.metrics.all()))


class Lines:
    """A file of JSON lines, each with its step."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, row: Mapping[str, Any]) -> None:
        with needing_room(self.file.parent), self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def all(self) -> list[dict[str, Any]]:
        """What was written whole: a process that was killed may have left half a line."""
        if not self.file.exists():
            return []
        whole, _, _ = self.file.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def last(self, count: int) -> list[dict[str, Any]]:
        return self.all()[-count:]

    def cut(self, step: int) -> None:
        """Forget what came after this step."""
        kept = [row for row in self.all() if row["step"] <= step]
        partial = self.file.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        partial.replace(self.file)


def figures(rollouts: Sequence[Rollout], drafts: int) -> dict[str, Any]:
    """A step in numbers."""
    groups = [rollouts[i : i + drafts] for i in range(0, len(rollouts), drafts)]
    right = [[r.outcomes[-1].score == 1.0 for r in group] for group in groups]
    rounds = [o.round for r in rollouts for o in r.outcomes]
    flows = [r.workflow for r in rounds if r.workflow is not None]
    rewards = [r.outcomes[-1].reward for r in rollouts]
    known = [r for r in rewards if r is not None]
    steps = [step for flow in flows for step in flow.steps]
    found = {
        "reward": _mean(known),
        "accuracy": _mean([float(hit) for group in right for hit in group]),
        "parsed": len(flows) / len(rounds),
        "unscored": 1 - len(known) / len(rewards),
        "live_groups": _mean([float(0 < sum(g) < len(g)) for g in right]),
        "all_right": _mean([float(all(g)) for g in right]),
        "all_wrong": _mean([float(not any(g)) for g in right]),
        "format_groups": _mean([float(_format_alone(g)) for g in groups]),
        "rounds": len(rounds) / len(rollouts),
        "steps_per_workflow": len(steps) / max(1, len(flows)),
        "reads_all": _mean([float(s.access == "all") for s in steps]),
        "reads_some": _mean([float(s.access not in ("all", ())) for s in steps]),
        "cost": _mean([sum(cost(o.round) for o in r.outcomes) for r in rollouts]),
        "question_dependence": dependence(groups),
        "workers": _use(rounds),
    }
    return found | _surprise(rollouts)


def _surprise(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """How unlikely the drafts' tokens were, in nats each, where whoever wrote them said so."""
    written = [p for r in rollouts for p, n in zip(r.logprobs, r.drafted, strict=True) if n >= 0]
    known = [-p for p in written if p != UNKNOWN]
    return {"entropy": _mean(known)} if known else {}


def _format_alone(group: Sequence[Rollout]) -> bool:
    """Whether all that tells the group's drafts apart is that some cannot be performed."""
    parsed = {r.outcomes[0].round.workflow is not None for r in group}
    return len(parsed) == 2 and not any(r.outcomes[-1].score == 1.0 for r in group)


def _use(rounds: Sequence[Round]) -> dict[str, float]:
    counts = Counter(result.worker for r in rounds for result in r.results)
    total = counts.total() or 1
    return {name: count / total for name, count in counts.most_common()}


def dependence(groups: Sequence[Sequence[Rollout]]) -> float:
    """How far the first worker depends on the question: mutual information, in bits.

    Worker numbers are compared as names, so that pools of their own do not pretend a choice.
    """
    firsts = [[_first(r) for r in group] for group in groups]
    pooled = Counter(name for group in firsts for name in group if name)
    inside = _mean([_bits(Counter(name for name in group if name)) for group in firsts])
    return max(0.0, _bits(pooled) - inside)


def _first(rollout: Rollout) -> str:
    results = rollout.outcomes[0].round.results
    return results[0].worker if results else ""


def _bits(counts: Counter[str]) -> float:
    total = counts.total()
    return -sum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a person would say who looked at the last steps."""
    if len(rows) < WINDOW:
        return []
    mean: dict[str, float] = defaultdict(float)
    for row in rows:
        for name, value in flat(row):
            mean[name] += value / len(rows)
    mean["top"] = max((n for name, n in mean.items() if name.startswith("workers/")), default=0.0)
    return [text for text, holds in WARNINGS.items() if holds(mean)]


WARNINGS: dict[str, Callable[[Mapping[str, float]], bool]] = {
    "many drafts have no reward because workers fail: learning is slow, not wrong": (
        lambda m: m["unscored"] > 0.2
    ),
    "most groups are dead, all of their answers right: take harder questions": (
        lambda m: m["live_groups"] < 0.3 and m["all_right"] > m["all_wrong"]
    ),
    "most groups are dead, none of their answers right: take larger groups or easier questions": (
        lambda m: m["live_groups"] < 0.3 and m["all_right"] <= m["all_wrong"]
    ),
    "format outweighs the task: more groups are told apart by parsing than by answers": (
        lambda m: m["format_groups"] > m["live_groups"]
    ),
    "most drafts cannot be performed: give it a longer cold start": lambda m: m["parsed"] < 0.5,
    "the policy has collapsed onto one worker": lambda m: m["top"] > 0.95,
    "the policy ignores the question: it asks the same workers whatever is asked": (
        lambda m: m["question_dependence"] < 0.05 and m["entropy"] < 0.02
    ),
}


def flat(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, those inside it under a path."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", float(n)) for inner, n in value.items())
        elif isinstance(value, int | float):
            yield name, float(value)


def sample(rollout: Rollout) -> dict[str, Any]:
    """A rollout as a person reads it."""
    rounds = [
        {
            "draft": outcome.round.drafts[-1].text,
            "complaint": outcome.round.failure.message if outcome.round.failure else None,
            "answers": {r.worker: r.output[-80:] for r in outcome.round.results},
            "score": outcome.score,
            "reward": outcome.reward,
        }
        for outcome in rollout.outcomes
    ]
    return {"question": rollout.row.problem.id, "rounds": rounds}

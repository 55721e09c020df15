"""What can be seen of a run while it learns: a line of metrics and a few drafts for every step."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from podium.train.grpo import Rollout
from podium.train.recipe import Recipe
from podium.train.reward import cost

log = logging.getLogger(__name__)

SAMPLES = 4
"""Drafts of a step that are kept in full."""


class Monitor(TrainerCallback):
    def __init__(self, directory: Path, recipe: Recipe) -> None:
        self.directory, self.drafts = directory, recipe.grpo.drafts
        self._figures: dict[str, Any] = {}
        self._last = time.monotonic()

    def watch(self, step: int, rollouts: Sequence[Rollout]) -> None:
        self._figures = figures(rollouts, self.drafts)
        with (self.directory / "samples.jsonl").open("a") as file:
            for rollout in rollouts[:: max(1, len(rollouts) // SAMPLES)]:
                file.write(json.dumps({"step": step, **sample(rollout)}) + "\n")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" not in logs:  # the summary at the end is no step
            return
        now = time.monotonic()
        wanted = {
            k: logs[k] for k in ("loss", "grad_norm", "learning_rate", "entropy") if k in logs
        }
        row = {"step": state.global_step, "seconds": now - self._last, **self._figures, **wanted}
        self._last = now
        with (self.directory / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def figures(rollouts: Sequence[Rollout], drafts: int) -> dict[str, Any]:
    last = [r.outcomes[-1] for r in rollouts]
    scored = [o.score for o in last if o.score is not None]
    groups = [rollouts[i : i + drafts] for i in range(0, len(rollouts), drafts)]
    right = [[r.outcomes[-1].score == 1.0 for r in g] for g in groups]
    flows = [o.round.workflow for r in rollouts for o in r.outcomes if o.round.workflow]
    use = Counter(
        r.worker for o in (o for r in rollouts for o in r.outcomes) for r in o.round.results
    )
    total = sum(use.values()) or 1
    rewards = [o.reward for o in last if o.reward is not None]
    return {
        "reward": sum(rewards) / max(1, len(rewards)),
        "accuracy": sum(scored) / max(1, len(rollouts)),
        "parsed": sum(o.round.workflow is not None for r in rollouts for o in r.outcomes)
        / sum(len(r.outcomes) for r in rollouts),
        "unscored": sum(o.reward is None for o in last) / len(last),
        "live_groups": sum(0 < sum(g) < len(g) for g in right) / len(groups),
        "all_right": sum(all(g) for g in right) / len(groups),
        "all_wrong": sum(not any(g) for g in right) / len(groups),
        "steps_per_workflow": sum(len(f.steps) for f in flows) / max(1, len(flows)),
        "workers": {name: n / total for name, n in use.most_common()},
        "cost": sum(cost(o.round) for r in rollouts for o in r.outcomes) / len(rollouts),
    }


def sample(rollout: Rollout) -> dict[str, Any]:
    return {
        "problem": rollout.row.problem.id,
        "drafts": [o.round.drafts[-1].text for o in rollout.outcomes],
        "scores": [o.score for o in rollout.outcomes],
        "rewards": [o.reward for o in rollout.outcomes],
        "failures": [
            o.round.failure.message if o.round.failure else None for o in rollout.outcomes
        ],
    }

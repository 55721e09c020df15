"""What a step looks like in numbers, and what is said when it goes wrong for some steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from podium.train.grpo import UNKNOWN, Rollout
from podium.train.monitor import WINDOW, Monitor, figures, warnings
from podium.train.plots import page
from podium.train.pools import Row
from podium.train.recipe import Recipe
from podium.train.rollouts import Outcome
from podium.types import Completion, Draft, Failure, Round, Step, StepResult, Workflow
from podium.workers import Pool
from toy_training import problem

DOWN = Failure("WorkerError", "down", "infra")
MALFORMED = Failure("WorkflowError", "no list", "policy")


def drafted(worker: str, reward: float | None, *, doubt: float = 0.4) -> Rollout:
    """A rollout that asked one worker; a reward of 0 stands for a draft that does not parse."""
    step = Step(0, "Answer the question.")
    draft = (Draft(Completion("")),)
    if reward == 0.0:
        done = Round(draft, failure=MALFORMED)
    else:
        failure = DOWN if reward is None else None
        result = StepResult(step, worker, "42", Completion("42"), failure=failure)
        done = Round(draft, Workflow((step,)), (result,), "42", failure)
    score = None if reward in (None, 0.0) else float(reward == 1.0)
    outcome = Outcome(done, score, reward)
    return Rollout(Row(problem(), Pool(())), [], [1], [0], [-doubt], [outcome])


def said(groups: Sequence[Sequence[Rollout]]) -> list[str]:
    """After some steps like this one."""
    row = figures([r for group in groups for r in group], len(groups[0]))
    return warnings([row] * WINDOW)


def group(workers: str, *rewards: float | None, doubt: float = 0.4) -> list[Rollout]:
    return [drafted(w, r, doubt=doubt) for w, r in zip(workers, rewards, strict=True)]


HEALTHY = [group("aaab", 1.0, 1.0, 0.5, 0.5), group("bbba", 1.0, 0.5, 0.5, 0.5)]


def test_nothing_is_said_of_a_healthy_run_nor_before_enough_steps():
    assert said(HEALTHY) == []
    assert warnings([{"parsed": 0.0}] * (WINDOW - 1)) == []


@pytest.mark.parametrize(
    ("groups", "word"),
    [
        ([group("aaab", None, None, 1.0, 0.5), HEALTHY[1]], "because workers fail"),
        ([group("aabb", 1.0, 1.0, 1.0, 1.0), group("abab", 1.0, 1.0, 1.0, 1.0)], "harder"),
        ([group("aabb", 0.5, 0.5, 0.5, 0.5), group("abbb", 0.5, 0.5, 0.5, 0.5)], "easier"),
        ([group("aabb", 0.5, 0.0, 0.5, 0.5), group("abab", 0.5, 0.5, 0.5, 0.5)], "format"),
        ([group("aabb", 0.0, 0.0, 0.0, 0.5), group("abab", 0.0, 0.0, 1.0, 0.5)], "cold start"),
        ([group("aaaa", 1.0, 0.5, 0.5, 0.5), group("aaaa", 1.0, 0.5, 1.0, 0.5)], "collapsed"),
        (
            [
                group("abab", 1.0, 0.5, 0.5, 0.5, doubt=0.001),
                group("abab", 1.0, 0.5, 1.0, 0.5, doubt=0.001),
            ],
            "ignores the question",
        ),
    ],
)
def test_what_goes_wrong_is_said_in_words(groups: list[list[Rollout]], word: str):
    assert any(word in warning for warning in said(groups))


def test_a_warning_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    made = Recipe.model_validate(
        {"name": "x", "model": {"base": "x"}, "data": {"world": "x"}, "grpo": {"drafts": 4}}
    )
    monitor = Monitor(tmp_path, made)
    down = [*group("aaab", None, None, None, 0.5), *HEALTHY[1]]
    with caplog.at_level(logging.WARNING):
        for step in range(1, WINDOW + 4):
            monitor.watch(step - 1, down)
            state = SimpleNamespace(global_step=step)
            monitor.on_log(None, state, None, logs={"loss": 0.1, "entropy": 0.7})
    (line,) = [r.getMessage() for r in caplog.records if "workers fail" in r.getMessage()]
    assert line.startswith(f"step {WINDOW}: ")


def test_the_figures_of_a_step():
    found = figures([r for g in HEALTHY for r in g], 4)
    assert found["accuracy"] == pytest.approx(3 / 8)
    assert found["reward"] == pytest.approx(5.5 / 8)
    assert (found["live_groups"], found["all_right"], found["all_wrong"]) == (1.0, 0.0, 0.0)
    assert found["workers"] == {"a": 0.5, "b": 0.5}
    assert found["entropy"] == pytest.approx(0.4)
    assert 0 < found["question_dependence"] < 1


def test_where_nobody_said_how_likely_a_token_was_the_trainer_is_asked(tmp_path: Path):
    silent = drafted("a", 1.0)
    silent.logprobs = [UNKNOWN]
    assert "entropy" not in figures([silent] * 4, 4)


def test_the_page_of_plots_can_be_drawn_of_any_step():
    rows = [{"step": 1, **figures([r for g in HEALTHY for r in g], 4)}]
    drawn = page("a <name>", rows)
    assert drawn.count("<svg") > 10
    assert "a &lt;name&gt;" in drawn
    assert page("nothing yet", []).count("<svg") == 0

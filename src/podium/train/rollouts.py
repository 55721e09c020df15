"""Perform what was drafted: all drafts of a step at once, in the executor that serving uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from podium.conductor import Conductor
from podium.errors import LimitError, WorkflowError
from podium.executor import Stage
from podium.ledger import Ledger
from podium.planner import FixedPlanner
from podium.train.data import Problem
from podium.train.recipe import Reward
from podium.train.reward import reward
from podium.types import Completion, Draft, Limits, Round, Workflow
from podium.workers import Pool


@dataclass(frozen=True, slots=True)
class Sketch:
    """A draft that somebody wrote for a problem and a pool, after some rounds."""

    problem: Problem
    pool: Pool
    text: str
    earlier: tuple[Round, ...] = ()
    ended: bool = True
    """Whether it came to an end before its tokens did. One that rambles on after its lists would
    cost whoever serves it all the tokens there are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a draft."""

    round: Round
    score: float | None
    """Of the answer; None where there is none to score."""
    reward: float | None


class Purse(Ledger):
    """What a whole training may spend; no draft is to blame for finding it empty."""

    def __init__(self, limits: Limits, file: Path | None = None) -> None:
        """Open it, with what was spent before the run was stopped if there is a file that says."""
        super().__init__(limits)
        self.file, self.empty = file, False
        if file is not None and file.exists():
            self.dollars = float(file.read_text())

    def keep(self) -> None:
        """Write down what is spent, for whoever goes on after us."""
        if self.file is not None and self.limits.dollars is not None:
            partial = self.file.with_suffix(".partial")
            partial.write_text(f"{self.dollars:.6f}")
            partial.replace(self.file)

    def _check(self, tokens: int, dollars: float) -> None:
        try:
            super()._check(tokens, dollars)
        except LimitError:
            self.empty = True
            raise


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """On what terms drafts are performed during training."""

    limits: Limits
    ledger: Ledger
    """Of the whole training."""
    scale: Reward

    async def perform(self, sketches: Sequence[Sketch]) -> list[Outcome]:
        """All at once; each worker has its own limits on how much it does at a time.

        Raises:
            LimitError: the training has spent what it may. Its drafts get no reward then.
        """
        outcomes = await asyncio.gather(*map(self._one, sketches))
        if isinstance(self.ledger, Purse):
            _settle(self.ledger)
        return list(outcomes)

    async def _one(self, sketch: Sketch) -> Outcome:
        ledger = Ledger(self.limits, self.ledger)
        stage = Stage(sketch.problem.question, sketch.pool, ledger, earlier=sketch.earlier)
        # Nobody asks this planner: the drafts come from the model in training.
        conductor = Conductor(FixedPlanner(Workflow(())), sketch.pool)
        draft = Draft(Completion(sketch.text))
        try:
            if not sketch.ended:
                raise WorkflowError("the draft did not come to an end")
            workflow = conductor.read(draft, stage)
        except WorkflowError as exc:
            done = Round((draft,), failure=exc.as_failure())
        else:
            done = await conductor.perform((draft,), workflow, stage)
        return await self._judged(done, sketch)

    async def _judged(self, done: Round, sketch: Sketch) -> Outcome:
        done = _blamed(done, sketch.pool)
        answered = done.answer is not None and done.failure is None
        score = await sketch.problem.score(done.answer or "") if answered else None
        return Outcome(done, score, reward(done, score, self.scale, sketch.earlier))


def _settle(purse: Purse) -> None:
    purse.keep()
    if purse.empty:
        raise LimitError(
            f"the training has spent ${purse.dollars:.4g} of its ${purse.limits.dollars:g}: raise "
            "`dollars` and start again, and it goes on from its last checkpoint"
        )


def _blamed(done: Round, pool: Pool) -> Round:
    """The round, with the planner blamed for what no worker could have done.

    A program fails only for want of something to read, and a replayed model knows whole questions
    only: both are told to the planner by nothing but its reward.
    """
    if done.failure is None or done.failure.blame != "infra":
        return done
    member = pool.named(done.results[-1].worker)
    impossible = done.failure.kind == "NotRecorded" or (member is not None and member.program)
    return replace(done, failure=replace(done.failure, blame="policy")) if impossible else done

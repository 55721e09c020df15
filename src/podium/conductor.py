"""Question in, `Run` out: draft, parse, perform, and perhaps look again. Start reading here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from podium.errors import LimitError, PodiumError, WorkerError, WorkflowError
from podium.events import (
    Emit,
    Event,
    Finished,
    Planned,
    Planning,
    Rejected,
    RoundFinished,
    Started,
    ignore,
)
from podium.executor import OnFailure, Stage, perform
from podium.ledger import Ledger
from podium.planner import Planner
from podium.tracing import note, span
from podium.types import Completion, Draft, Question, Request, Round, Rules, Run, Workflow
from podium.workers import ANYONE, Call, Pool
from podium.workflow import parse


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a question is answered: who pays, whom one may ask, who listens."""

    ledger: Ledger = field(default_factory=Ledger)
    rules: Rules = ANYONE
    emit: Emit = ignore
    pieces: bool = False
    """Whether to emit the steps' outputs piece by piece as they arrive."""


class Strategy(Protocol):
    """Anything that answers questions. Baselines, TRINITY and the Conductor all fit here."""

    @property
    def name(self) -> str: ...

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run: ...


@dataclass(frozen=True, slots=True)
class Conductor:
    planner: Planner
    pool: Pool
    name: str = "conductor"
    on_failure: OnFailure = "continue"

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run:
        stage = self.stage(question, terms)
        run = begin(self.name, stage)
        with span("invoke_workflow", self.name) as current:
            while len(run.rounds) < stage.ledger.limits.rounds:
                outcome = await self._round(replace(stage, earlier=run.rounds))
                stage.emit(RoundFinished(len(run.rounds), outcome))
                run = replace(run, rounds=(*run.rounds, outcome), failure=outcome.failure)
                if _settled(outcome):
                    break
            run = finish(run, stage)
            note(current, run, run.failure)
        return run

    def stage(self, question: Question | str, terms: Terms | None = None) -> Stage:
        """Where the first round of this question takes place."""
        terms = terms or Terms()
        return Stage(
            Question.of(question),
            self.pool.only(terms.rules),
            terms.ledger,
            terms.emit,
            terms.pieces,
            self.on_failure,
            terms.rules,
        )

    async def _round(self, stage: Stage) -> Round:
        planned = await self.plan(stage)
        if planned.workflow is None:
            return planned
        return await self.perform(planned.drafts, planned.workflow, stage)

    async def plan(self, stage: Stage) -> Round:
        """Draft until one parses or the repairs are used up. A round that is not performed yet."""
        stage.emit(Planning(stage.round))
        drafts: list[Draft] = []
        while True:
            try:
                drafts.append(await self._draft(stage, drafts))
                workflow = self.read(drafts[-1], stage)
            except WorkflowError as exc:
                drafts[-1] = replace(drafts[-1], complaint=str(exc))
                stage.emit(Rejected(stage.round, drafts[-1]))
                if len(drafts) > self.planner.repairs:
                    return Round(tuple(drafts), failure=exc.as_failure())
            except PodiumError as exc:
                return Round(tuple(drafts), failure=exc.as_failure())
            else:
                stage.emit(Planned(stage.round, drafts[-1], workflow))
                return Round(tuple(drafts), workflow)

    async def _draft(self, stage: Stage, rejected: Sequence[Draft]) -> Draft:
        call = Call(stage.ledger, rules=stage.rules)
        with span("plan", self.name) as current:
            try:
                async with asyncio.timeout(stage.ledger.seconds_left):
                    draft = await self.planner.draft(
                        stage.question, stage.pool, call, rounds=stage.earlier, rejected=rejected
                    )
            except TimeoutError:
                raise LimitError("the time limit was reached while planning") from None
            note(current, draft.completion)
        return draft

    def read(self, draft: Draft, stage: Stage) -> Workflow:
        return parse(
            draft.text,
            workers=len(stage.pool),
            max_steps=stage.ledger.limits.steps,
            may_stop=bool(stage.earlier),
        )

    async def perform(self, drafts: tuple[Draft, ...], workflow: Workflow, stage: Stage) -> Round:
        """What comes of a workflow, whoever wrote it. Training calls this directly."""
        if not workflow.steps:
            return Round(drafts, workflow, answer=stage.earlier[-1].answer)
        results = await perform(workflow, stage)
        if results[-1].failure is None:
            return Round(drafts, workflow, results, results[-1].output)
        reached = next((r.output for r in reversed(results) if r.output), None)
        return Round(drafts, workflow, results, reached, results[-1].failure)


def begin(strategy: str, stage: Stage) -> Run:
    """A new run, announced. Ids sort by time."""
    now = time.time()
    run = Run(
        id=f"{int(now * 1000):011x}{secrets.token_hex(4)}",
        question=stage.question,
        strategy=strategy,
        workers=stage.pool.names,
        limits=stage.ledger.limits,
        started=now,
    )
    stage.emit(Started(run))
    return run


def finish(run: Run, stage: Stage) -> Run:
    run = replace(run, seconds=time.time() - run.started)
    stage.emit(Finished(run))
    return run


def _settled(outcome: Round) -> bool:
    """Whether nothing is left to look at: it stands, or it failed in a way a plan can't mend."""
    if outcome.failure is None:
        last = outcome.results[-1].completion if outcome.results else None
        return last is None or bool(last.tool_calls)  # a tool call waits for the caller
    return outcome.failure.blame != "infra" or not outcome.results


async def stream(
    strategy: Strategy, question: Question | str, terms: Terms | None = None
) -> AsyncIterator[Event]:
    """The events of one solve, as they happen. Closing the iterator cancels the run."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    terms = replace(terms or Terms(), emit=queue.put_nowait, pieces=True)
    task = asyncio.create_task(strategy.solve(question, terms))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task  # a bug in the strategy surfaces here, in the caller
    finally:
        task.cancel()
        await asyncio.wait([task])  # do not return while workers are still being paid


@dataclass(frozen=True, slots=True)
class StrategyWorker:
    """A strategy behind the worker protocol, so that one Conductor may work for another."""

    name: str
    strategy: Strategy

    @property
    def fingerprint(self) -> str:
        return f"strategy {self.strategy.name}"

    async def complete(self, request: Request, call: Call) -> Completion:
        *earlier, last = request.messages
        question = Question(
            last.content,
            last.images,
            tuple(earlier),
            request.sampling,
            request.tools,
            request.tool_choice,
            request.extra,
            request.sample,
        )
        run = await self.strategy.solve(question, Terms(call.ledger.nested(), call.rules))
        if run.answer is None:
            reason = run.failure.message if run.failure else "it gave no answer"
            raise WorkerError(f"{self.name}: {reason}", status=502)
        return Completion(run.answer, run.usage, None if run.unpriced else run.cost, inner=run)

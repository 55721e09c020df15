"""Perform a workflow: every step starts the moment the steps it reads have finished.

A step sees the question, the outputs its access names, and its subtask; nothing else. What goes
wrong inside a step becomes data in its result, and its readers go on without it or are skipped.
The last step always tries, because it is the one that answers.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

from podium import prompts
from podium.errors import LimitError, PodiumError
from podium.events import Emit, StepFinished, StepPiece, StepRetried, StepStarted, ignore
from podium.ledger import Ledger
from podium.tracing import note, span
from podium.types import (
    UNSET,
    Completion,
    Failure,
    Piece,
    Question,
    Request,
    Round,
    Rules,
    Seen,
    Step,
    StepResult,
    Workflow,
)
from podium.workers import ANYONE, Call, Member, Pool

OnFailure = Literal["continue", "skip"]

REPEATS = 64
"""Room for equal steps within one run when samples are numbered."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What every step of one round shares. Passed explicitly; there is no ambient state."""

    question: Question
    pool: Pool
    ledger: Ledger
    emit: Emit = ignore
    pieces: bool = False
    """Whether the steps' outputs are wanted piece by piece, as they arrive."""
    on_failure: OnFailure = "continue"
    """What becomes of the readers of a step that failed."""
    rules: Rules = ANYONE
    earlier: tuple[Round, ...] = ()
    """The rounds before this one. Steps with access to "all" see them."""

    @property
    def round(self) -> int:
        return len(self.earlier)

    def now(self) -> float:
        return time.monotonic() - self.ledger.started


async def perform(workflow: Workflow, stage: Stage) -> tuple[StepResult, ...]:
    """Run the steps, each as soon as it can, and return their results in written order."""
    tasks: list[asyncio.Task[StepResult]] = []
    last = len(workflow.steps) - 1

    async def when_ready(index: int, step: Step) -> StepResult:
        reads = range(index) if step.access == "all" else step.access
        read = [await tasks[j] for j in reads]
        cause = next((r.failure for r in read if r.failure), None)
        if cause and stage.on_failure == "skip" and index != last:
            return _finish(index, _skipped(step, cause, stage), stage)
        past = [r for round in stage.earlier for r in round.results] if step.access == "all" else []
        visible = tuple(
            Seen(r.worker, r.step.subtask, r.output) for r in (*past, *read) if not r.failure
        )
        result = await run_step(index, workflow, visible, stage)
        return _finish(index, result, stage)

    if last == 0:  # the common case, without the cost of a task
        return (await when_ready(0, workflow.steps[0]),)
    # Steps may only read earlier steps, so written order is a topological order: by the time a
    # task runs, every task it awaits exists.
    async with asyncio.TaskGroup() as group:
        for index, step in enumerate(workflow.steps):
            tasks.append(group.create_task(when_ready(index, step)))
    return tuple(task.result() for task in tasks)


async def run_step(
    index: int, workflow: Workflow, visible: tuple[Seen, ...], stage: Stage
) -> StepResult:
    """Ask one worker, or those that stand in for it. Failures come back as data; bugs propagate."""
    step = workflow.steps[index]
    chain = stage.pool.chain(step.worker)
    stage.emit(StepStarted(stage.round, index, step, chain[0].name))
    started = stage.now()
    with span("invoke_agent", chain[0].name) as current:
        for member, substitute in zip(chain, (*chain[1:], None), strict=True):
            request = _request(index, workflow, visible, member, stage)
            done, failure = await _ask(index, member, request, stage)
            if failure is None or failure.blame != "infra" or substitute is None:
                break
            stage.emit(StepRetried(stage.round, index, substitute.name, failure.message))
        result = StepResult(
            step,
            member.name,
            done.text if done else "",
            done,
            request.messages,
            started,
            stage.now() - started,
            failure,
        )
        note(current, done, failure)
    return result


async def _ask(
    index: int, member: Member, request: Request, stage: Stage
) -> tuple[Completion | None, Failure | None]:
    """One worker's reply, or why there is none: exactly one of the two."""
    call = Call(stage.ledger, _hear(index, stage), _retried(index, member, stage), stage.rules)
    try:
        async with asyncio.timeout(_deadline(stage)):
            return await member.worker.complete(request, call), None
    except TimeoutError:
        return None, LimitError(f"{member.name} was not done in time").as_failure()
    except PodiumError as exc:
        return None, exc.as_failure()


def _request(
    index: int, workflow: Workflow, visible: tuple[Seen, ...], member: Member, stage: Stage
) -> Request:
    step, question = workflow.steps[index], stage.question
    # The mark is made for this one prompt: nobody whose text it fences off has ever seen it.
    mark = _new_mark() if visible else ""
    answers = index == len(workflow.steps) - 1
    repeat = workflow.steps[:index].count(step)
    return Request(
        prompts.step_messages(question, step, visible, mark=mark, form=member.prompt),
        visible,
        mark,
        sampling=question.sampling if answers else UNSET,
        tools=question.tools if answers else (),
        tool_choice=question.tool_choice if answers else "auto",
        extra=question.extra if answers else {},
        sample=question.sample * REPEATS + repeat,
    )


_SECRET = secrets.token_bytes(32)
_marks = itertools.count()


def _new_mark() -> str:
    """As good as random to whoever lacks the secret, and ten times cheaper than asking the OS."""
    return blake2b(next(_marks).to_bytes(8), key=_SECRET, digest_size=8).hexdigest()


def _deadline(stage: Stage) -> float | None:
    """Seconds this step has: its own limit or what is left of the run's."""
    own, left = stage.ledger.limits.step_seconds, stage.ledger.seconds_left
    return own if left is None else left if own is None else min(own, left)


def _hear(index: int, stage: Stage) -> Callable[[Piece], None] | None:
    if not stage.pieces:
        return None
    return lambda piece: stage.emit(StepPiece(stage.round, index, piece))


def _retried(index: int, member: Member, stage: Stage) -> Callable[[str], None]:
    return lambda reason: stage.emit(StepRetried(stage.round, index, member.name, reason))


def _skipped(step: Step, cause: Failure, stage: Stage) -> StepResult:
    name = stage.pool[step.worker].name
    return StepResult(step, name, started=stage.now(), failure=replace(cause, kind="Skipped"))


def _finish(index: int, result: StepResult, stage: Stage) -> StepResult:
    stage.emit(StepFinished(stage.round, index, result))
    return result

"""Stored runs back into values: whole ones as they were, cut-off ones from what had finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import orjson

from podium.events import Event, Planned, Rejected, StepFinished
from podium.store import Record
from podium.types import Draft, Failure, Round, Run, StepResult

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEPT = (Planned, Rejected, StepFinished)
"""The events of a run under way that are written down as they happen."""

CUT_OFF = Failure("Interrupted", "the run was cut off before this had finished", "infra")


def pack(event: Planned | Rejected | StepFinished) -> bytes:
    return orjson.dumps({type(event).__name__: event})


def unpack(body: bytes) -> Event:
    ((kind, value),) = orjson.loads(body).items()
    return _adapters()[kind].validate_python(value, strict=False)


def load_run(record: Record) -> Run:
    run = run_from(record.run)
    if record.state == "unfinished":
        return rebuild(run, map(unpack, record.progress))
    return run


def run_from(body: bytes) -> Run:
    found: Run = _run_adapter().validate_json(body)
    return found


def rebuild(run: Run, events: Iterable[Event], failure: Failure = CUT_OFF) -> Run:
    """A run that ended in the middle, as far as it came."""
    rounds: list[_Partial] = []
    for event in events:
        if not isinstance(event, KEPT):
            continue
        while len(rounds) <= event.round:
            rounds.append(_Partial())
        rounds[event.round].add(event)
    done = tuple(partial.round(run.workers, failure) for partial in rounds)
    return replace(run, rounds=done, failure=failure)


class _Partial:
    """A round in pieces."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.planned: Planned | None = None
        self.results: dict[int, StepResult] = {}

    def add(self, event: Planned | Rejected | StepFinished) -> None:
        if isinstance(event, StepFinished):
            self.results[event.index] = event.result
            return
        self.drafts.append(event.draft)
        if isinstance(event, Planned):
            self.planned = event

    def round(self, workers: Sequence[str], failure: Failure) -> Round:
        if self.planned is None:
            return Round(tuple(self.drafts), failure=failure)
        steps = self.planned.workflow.steps
        results = tuple(
            self.results.get(i) or StepResult(step, workers[step.worker], failure=failure)
            for i, step in enumerate(steps)
        )
        answer = next((r.output for r in reversed(results) if r.output), None)
        missing = next((r.failure for r in reversed(results) if r.failure), None)
        return Round(tuple(self.drafts), self.planned.workflow, results, answer, missing)


@cache
def _run_adapter() -> TypeAdapter[Run]:
    from pydantic import TypeAdapter

    return TypeAdapter(Run)


@cache
def _adapters() -> dict[str, TypeAdapter[Event]]:
    from pydantic import TypeAdapter

    return {kind.__name__: TypeAdapter(kind) for kind in KEPT}

"""What a run says while it happens. The command line, the web page and SSE all read this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium.types import Draft, Piece, Round, Run, Step, StepResult, Workflow


@dataclass(frozen=True, slots=True)
class Started:
    run: Run
    """Without rounds yet: who is asked what, by which strategy, under which limits."""


@dataclass(frozen=True, slots=True)
class Planning:
    round: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A draft that cannot be performed; `draft.complaint` says why."""

    round: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class Planned:
    round: int
    draft: Draft
    workflow: Workflow


@dataclass(frozen=True, slots=True)
class StepStarted:
    round: int
    index: int
    step: Step
    worker: str


@dataclass(frozen=True, slots=True)
class StepPiece:
    """A piece of a step's output, as it arrives."""

    round: int
    index: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class StepRetried:
    """An attempt failed and another follows, by `worker`: the same one, or its fallback."""

    round: int
    index: int
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepFinished:
    round: int
    index: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class RoundFinished:
    round: int
    outcome: Round


@dataclass(frozen=True, slots=True)
class Finished:
    run: Run


Event = (
    Started
    | Planning
    | Rejected
    | Planned
    | StepStarted
    | StepPiece
    | StepRetried
    | StepFinished
    | RoundFinished
    | Finished
)
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The default listener."""

"""A run's events, told while they happen in the voice of one API.

Only what is certain to be the answer is told as the answer: the last step's words in a run of one
round. What may yet be replaced, and what leads up to it, is told as reasoning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from podium.events import (
    Event,
    Planned,
    Planning,
    Rejected,
    Started,
    StepFinished,
    StepPiece,
    StepRetried,
    StepStarted,
)
from podium.serve.wire import Outcome, Refusal
from podium.types import Piece, Run, Step

SHOWN_OF_A_SUBTASK = 300
CUT = Refusal("a worker broke off in the middle of the answer", 502, code="cut")


class Voice(Protocol):
    """How one API says it; each method gives the bytes to send."""

    def opening(self, run: Run) -> bytes: ...
    def thought(self, text: str) -> bytes: ...
    def text(self, text: str) -> bytes: ...
    def call(self, piece: Piece) -> bytes: ...
    def ending(self, found: Outcome) -> bytes: ...
    def trouble(self, refused: Refusal) -> bytes: ...


class Teller:
    """Listens to a run and writes what its client is to hear."""

    def __init__(
        self,
        voice: Voice,
        write: Callable[[bytes], None],
        *,
        live: bool,
        narrate: bool,
        think: bool,
    ) -> None:
        self._voice, self._write = voice, write
        self._live, self._narrate, self._think = live, narrate, think
        self._last = 0
        """Which step of the workflow under way answers."""
        self._said: list[str] = []
        self._calls: set[int] = set()
        self._names: tuple[str, ...] = ()
        self._cut = False
        self.run = ""
        """Its id, once it has begun."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepPiece):
            self._piece(event)
        elif isinstance(event, Started):
            self.run = event.run.id
            self._names = event.run.workers
            self._write(self._voice.opening(event.run))
        elif isinstance(event, Planned):
            self._last = len(event.workflow.steps) - 1
            self._tell(_planned(event, self._names))
        elif isinstance(event, StepRetried):
            # What was said cannot be taken back, so nobody may begin the answer anew.
            self._cut |= event.index == self._last and bool(self._said or self._calls)
            self._tell(f"Step {event.index + 1}: trying {event.worker} ({event.reason})\n")
        elif not (isinstance(event, StepFinished) and event.index == self._last):
            self._tell(_line(event))

    def _piece(self, event: StepPiece) -> None:
        piece = event.piece
        if event.index != self._last or self._cut:
            return
        if piece.kind == "reasoning":
            if self._think and piece.text:
                self._write(self._voice.thought(piece.text))
        elif not self._live:
            self._tell(piece.text if piece.kind == "text" else "")
        elif piece.kind == "text":
            self._said.append(piece.text)
            self._write(self._voice.text(piece.text))
        else:
            self._calls.add(piece.index)
            self._write(self._voice.call(piece))

    def end(self, found: Outcome) -> None:
        """What is left to say of the answer, and the end; or that the two do not agree."""
        said = "".join(self._said)
        if self._cut or not found.text.startswith(said):
            self.fail(CUT)
            return
        if rest := found.text[len(said) :]:
            self._write(self._voice.text(rest))
        for index, call in enumerate(found.calls):
            if index not in self._calls:
                piece = Piece(call.arguments, "tool", index, call.id, call.name)
                self._write(self._voice.call(piece))
        self._write(self._voice.ending(found))

    def fail(self, refused: Refusal) -> None:
        self._write(self._voice.trouble(refused))

    def _tell(self, text: str) -> None:
        if self._narrate and text:
            self._write(self._voice.thought(text))


def _planned(event: Planned, names: tuple[str, ...]) -> str:
    if not event.workflow.steps:
        return "The answer stands.\n"
    lines = [_step(i, step, names) for i, step in enumerate(event.workflow.steps)]
    return "\n".join(["The workflow:", *lines, ""])


def _step(index: int, step: Step, names: tuple[str, ...]) -> str:
    reads = "all before" if step.access == "all" else ", ".join(str(j + 1) for j in step.access)
    shown = " ".join(step.subtask.split())[:SHOWN_OF_A_SUBTASK]
    return f"{index + 1}. {names[step.worker]}: {shown}" + (f" (reads {reads})" if reads else "")


def _line(event: Event) -> str:
    match event:
        case Planning(round):
            return "Planning.\n" if round == 0 else "Looking at the answer once more.\n"
        case Rejected(_, draft):
            return f"The plan cannot be performed: {draft.complaint}\n"
        case StepStarted(_, index, _, worker):
            return f"Step {index + 1}: {worker} begins.\n"
        case StepFinished(_, index, result):
            ended = f"failed: {result.failure.message}" if result.failure else "is done"
            return f"Step {index + 1}: {result.worker} {ended} after {result.seconds:.1f} s.\n"
    return ""

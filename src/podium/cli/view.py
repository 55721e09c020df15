"""A run as a tree: live while it happens, and the same again from the record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from podium.events import (
    Event,
    Finished,
    Planned,
    Planning,
    Rejected,
    Started,
    StepFinished,
    StepPiece,
    StepRetried,
    StepStarted,
)
from podium.types import Run, Step, StepResult

WIDTH_OF_A_SUBTASK = 64


@dataclass
class _Step:
    step: Step
    worker: str
    started: float | None = None
    heard: int = 0
    retries: list[str] = field(default_factory=list[str])
    result: StepResult | None = None


@dataclass
class _Round:
    steps: list[_Step] = field(default_factory=list[_Step])
    complaints: list[str] = field(default_factory=list[str])
    stands: bool = False


class View:
    """Hears a run's events and can draw at any moment what is known so far."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.rounds: list[_Round] = []

    def __call__(self, event: Event) -> None:
        match event:
            case Started(run) | Finished(run):
                self.run = run
            case Planning():
                self.rounds.append(_Round())
            case Rejected(_, draft):
                self.rounds[-1].complaints.append(draft.complaint)
            case Planned(_, _, workflow):
                names = self.run.workers if self.run else ()
                self.rounds[-1].steps = [_Step(s, names[s.worker]) for s in workflow.steps]
                self.rounds[-1].stands = not workflow.steps
            case StepStarted(_, index, _, worker):
                step = self.rounds[-1].steps[index]
                step.worker, step.started = worker, time.monotonic()
            case StepPiece(_, index, piece):
                self.rounds[-1].steps[index].heard += len(piece.text)
            case StepRetried(_, index, worker, reason):
                self.rounds[-1].steps[index].worker = worker
                self.rounds[-1].steps[index].retries.append(reason)
            case StepFinished(_, index, result):
                self.rounds[-1].steps[index].result = result
            case _:
                pass

    def tree(self) -> Tree:
        title = self.run.question.text if self.run else "…"
        tree = Tree(Text(_one_line(title, 96), style="bold"), guide_style="dim")
        for number, round in enumerate(self.rounds):
            label = "workflow" if len(self.rounds) == 1 else f"round {number + 1}"
            branch = tree.add(self._heading(label, round))
            for complaint in round.complaints:
                branch.add(Text(f"✗ draft rejected: {complaint}", style="yellow"))
            for index, step in enumerate(round.steps):
                node = branch.add(_line(index, step))
                for retry in step.retries:
                    node.add(Text(f"↻ {_one_line(retry, 90)}", style="yellow"))
                if step.result and step.result.failure:
                    failure = step.result.failure
                    node.add(Text(f"{failure.kind}: {failure.message}", style="red"))
        return tree

    def _heading(self, label: str, round: _Round) -> RenderableType:
        if round.stands:
            return Text(f"{label}: the answer stands", style="green")
        if not round.steps and self.run and not self.run.rounds:
            return Spinner("dots", Text(f"{label}: planning"))
        return Text(label, style="dim")


def _line(index: int, step: _Step) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    reads = "all" if step.step.access == "all" else ",".join(map(str, step.step.access))
    text = Text.assemble(
        (f"{index} ", "dim"),
        (step.worker, "cyan"),
        f"  {_one_line(step.step.subtask, WIDTH_OF_A_SUBTASK)}",
        (f"  ⟵ {reads}" if reads else "", "dim"),
    )
    grid.add_row(_state(step), text, Text(_figures(step), style="dim"))
    return grid


def _state(step: _Step) -> RenderableType:
    if step.result is not None:
        if step.result.failure is None:
            return Text("✓", style="green")
        skipped = step.result.failure.kind == "Skipped"
        return Text("⤼" if skipped else "✗", style="yellow" if skipped else "red")
    return Spinner("dots") if step.started is not None else Text("·", style="dim")


def _figures(step: _Step) -> str:
    if step.result is None:
        if step.started is None:
            return ""
        heard = f" · {step.heard} characters" if step.heard else ""
        return f"{time.monotonic() - step.started:.1f} s{heard}"
    done = step.result.completion
    if done is None:
        return f"{step.result.seconds:.1f} s"
    replay = " · replayed" if done.replayed else ""
    return f"{step.result.seconds:.1f} s · {done.usage.total} tokens · {money(done.cost)}{replay}"


def money(cost: float | None) -> str:
    if cost is None:
        return "price unknown"
    return "free" if cost == 0 else f"${cost:.2g}" if cost < 0.01 else f"${cost:.4f}"


def summary(run: Run) -> str:
    """One line under the tree."""
    steps = sum(len(r.results) for r in run.rounds)
    unpriced = f" + {run.unpriced} calls without a known price" if run.unpriced else ""
    rounds = f"{len(run.rounds)} rounds · " if len(run.rounds) > 1 else ""
    plural = "" if steps == 1 else "s"
    return (
        f"{rounds}{steps} step{plural} · {run.seconds:.1f} s · {run.usage.total} tokens · "
        f"{money(run.cost)}{unpriced} · run {run.id}"
    )


def replay(run: Run) -> View:
    """The view as it stood at the end of a stored run."""
    view = View()
    for event in _events(run):
        view(event)
    return view


def _events(run: Run) -> Iterator[Event]:
    yield Started(run)
    for number, round in enumerate(run.rounds):
        yield Planning(number)
        for draft in round.drafts:
            if draft.complaint:
                yield Rejected(number, draft)
        if round.workflow is not None:
            yield Planned(number, round.drafts[-1], round.workflow)
        for index, result in enumerate(round.results):
            yield StepStarted(number, index, result.step, result.worker)
            yield StepFinished(number, index, result)
    yield Finished(run)


class LiveView(View):
    """Draws itself on a terminal as events come in; elsewhere it prints a line for each end."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
        self._live = Live(console=console, get_renderable=self.tree, refresh_per_second=12)

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if not self.console.is_terminal and isinstance(event, (Planned, Rejected, StepFinished)):
            self.console.print(_spoken(event), highlight=False, soft_wrap=True)


def _spoken(event: Planned | Rejected | StepFinished) -> str:
    match event:
        case Planned(round, _, workflow):
            count = len(workflow.steps)
            return f"round {round + 1}: {count} steps" if count else "the answer stands"
        case Rejected(round, draft):
            return f"round {round + 1}: draft rejected: {draft.complaint}"
        case StepFinished(_, index, result):
            state = f"{result.failure.kind}: {result.failure.message}" if result.failure else "done"
            return f"  step {index} {result.worker}: {state} ({result.seconds:.1f} s)"


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"

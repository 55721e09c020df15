"""One leg of an evaluation: some strategies, asked some questions, until nothing is left to do.

A question is claimed, asked of every strategy that lacks it, and released. Whatever comes of it
is one row per strategy: an answer and its score, or a failure and whose fault it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from podium.conductor import Terms
from podium.errors import SandboxError
from podium.eval.graders import Score
from podium.eval.results import Sample, Unit
from podium.eval.strategies import Entrant
from podium.eval.tasks import Item, grade
from podium.eval.tasks.grading import CODE
from podium.ledger import Ledger
from podium.sandbox import Sandbox
from podium.types import Completion, Question, Run

PATIENCE = 0.2
"""Seconds between looks at what other processes are still working on."""
BATCH = 64
"""Questions that are claimed at a time, at most."""
CHARS = 400
"""Of a failure's message."""


class Books(Protocol):
    """Where a leg sees what is done, claims what is not, and writes down what came of it."""

    async def done(
        self, split: str, items: Sequence[str] | None = None
    ) -> set[tuple[str, str, int]]: ...

    async def claimed(self, split: str) -> set[Unit]: ...

    async def claim(self, split: str, units: Sequence[Unit]) -> list[Unit]: ...

    async def release(self, split: str, unit: Unit) -> None: ...

    async def bury(self) -> None: ...

    async def keep(self, sample: Sample, run: Run) -> None: ...


@dataclass(slots=True)
class Leg:
    results: Books
    split: str
    items: Mapping[str, Item]
    entrants: Sequence[Entrant]
    samples: int
    ledger: Ledger
    """Of the whole evaluation."""
    sandbox: Sandbox | None = None
    hear: Callable[[Sample], None] = lambda sample: None
    missing: dict[Unit, list[Entrant]] = field(default_factory=dict[Unit, list[Entrant]])
    """What is not done yet: for each question those who have still to be asked it."""
    _mine: deque[Unit] = field(default_factory=deque[Unit])
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> None:
        """See what is missing."""
        done = await self.results.done(self.split)
        units = ((id, sample) for id in self.items for sample in range(self.samples))
        self.missing = {unit: left for unit in units if (left := self._left(unit, done))}

    def _left(self, unit: Unit, done: set[tuple[str, str, int]]) -> list[Entrant]:
        return [e for e in self.entrants if (e.row, *unit) not in done]

    async def run(self, concurrency: int) -> None:
        """Do what is missing, so many questions at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(self.missing))):
                group.create_task(self._work(min(BATCH, concurrency)))

    async def _work(self, batch: int) -> None:
        while (unit := await self._next(batch)) is not None:
            scores: dict[str, Score] = {}  # strategies often give the very same answer
            kept = [await self._ask(e, unit, scores) for e in self.missing.pop(unit, [])]
            await asyncio.gather(*kept)
            await self.results.release(self.split, unit)

    async def _next(self, batch: int) -> Unit | None:
        """A question that is ours alone; None once every one is done, by whomever."""
        async with self._claiming:
            while not self._mine and self.missing:
                taken = await self.results.claimed(self.split)
                free = [unit for unit in self.missing if unit not in taken][:batch]
                if free:
                    await self._take(await self.results.claim(self.split, free))
                else:
                    await asyncio.sleep(PATIENCE)
                    await self.results.bury()
                    await self.look()
            return self._mine.popleft() if self._mine else None

    async def _take(self, units: Sequence[Unit]) -> None:
        """Somebody may have finished one of them between our look and our claim."""
        done = await self.results.done(self.split, [id for id, _ in units])
        for unit in units:
            self.missing[unit] = self._left(unit, done)
            self._mine.append(unit)

    async def _ask(
        self, entrant: Entrant, unit: Unit, scores: dict[str, Score]
    ) -> asyncio.Task[None]:
        """Ask, grade, and begin to write it down."""
        item = self.items[unit[0]]
        terms = Terms(Ledger(entrant.limits, self.ledger))
        run = await entrant.strategy.solve(Question(item.question, sample=unit[1]), terms)
        answer = run.answer or ""
        if answer not in scores:
            scores[answer] = await score(run, item, self.sandbox)
        sample = _sample(entrant.row, self.split, unit, run, scores[answer])
        self.hear(sample)
        return asyncio.create_task(self.results.keep(sample, run))


async def open_sandbox(items: Iterable[Item], stack: AsyncExitStack) -> Sandbox | None:
    """A sandbox if the answers to some of the items are code."""
    if not any(item.grader in CODE for item in items):
        return None
    return await stack.enter_async_context(Sandbox.open())


async def score(run: Run, item: Item, sandbox: Sandbox | None) -> Score:
    """What the answer of a run is worth.

    A run without an answer is worth nothing if it is its own fault, and unscored if it is the
    world's.
    """
    if run.answer is None:
        ours = run.failure is not None and run.failure.blame != "infra"
        return Score(0.0 if ours else None, None, "there is no answer")
    try:
        return await grade(item, run.answer, sandbox=sandbox)
    except SandboxError as exc:
        return Score(None, None, str(exc))


def _sample(row: str, split: str, unit: Unit, run: Run, score: Score) -> Sample:
    results = [result for round in run.rounds for result in round.results]
    asked = [(r.worker, r.completion) for r in results if r.completion and _is_call(r.completion)]
    drafts = [d.completion for r in run.rounds for d in r.drafts if _is_call(d.completion)]
    usage = run.usage
    return Sample(
        strategy=row,
        split=split,
        item=unit[0],
        sample=unit[1],
        score=score.value,
        read=score.answer,
        note=score.note,
        run=run.id,
        usd=run.cost,
        input=usage.input,
        output=usage.output,
        calls=len(asked) + len(drafts),
        steps=len(results),
        rounds=sum(bool(round.results) for round in run.rounds),
        seconds=run.seconds,
        workers=_counts([name for name, _ in asked]),
        failure=f"{run.failure.kind}: {run.failure.message}"[:CHARS] if run.failure else "",
        blame=run.failure.blame if run.failure else "",
        step_blames=_counts([r.failure.blame for r in results if r.failure]),
        replayed=sum(done.replayed for _, done in asked),
        unpriced=run.unpriced,
    )


def _is_call(done: Completion) -> bool:
    """Programs and fixed workflows cost no tokens, and are no calls."""
    return done.usage.total > 0


def _counts(names: Sequence[str]) -> str:
    return orjson.dumps(Counter(names)).decode()

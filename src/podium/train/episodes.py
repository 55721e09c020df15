"""Episodes: a head answers questions through the executor, and what it earned is written down.

A candidate is worth the mean reward of its episodes. An episode in which a provider failed says
nothing about the candidate: it is dropped, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from podium.conductor import Terms
from podium.errors import WorkerError
from podium.ledger import Ledger
from podium.train.data import Problem
from podium.train.evolve import Bonuses, bonus
from podium.trinity import Coordinator, Head, Reading, States, Trinity
from podium.trinity.states import State
from podium.types import Limits, Message, Request, Run
from podium.workers import Call, Member, Pool

TOGETHER = 256
"""Episodes that are under way at once."""


@dataclass(frozen=True, slots=True)
class Episode:
    problem: Problem
    reward: float
    dollars: float
    picks: tuple[str, ...]
    """Who was asked, turn by turn."""


@dataclass(frozen=True, slots=True)
class Played:
    episodes: tuple[Episode, ...]
    dropped: int

    @property
    def accuracy(self) -> float:
        return sum(e.reward for e in self.episodes) / len(self.episodes)

    @property
    def dollars(self) -> float:
        """Per episode."""
        return sum(e.dollars for e in self.episodes) / len(self.episodes)

    def fitness(self, weights: Bonuses, turns: int) -> float | None:
        """None where every episode was dropped."""
        if not self.episodes:
            return None
        picks = [name for e in self.episodes for name in e.picks]
        extra = bonus(picks, turns=turns, dollars=self.dollars, weights=weights) if picks else 0.0
        return self.accuracy + extra


@dataclass(slots=True)
class Stand:
    """Where heads play: the pool, the states they read, and on what terms."""

    pool: Pool
    states: States
    limits: Limits = field(default_factory=Limits)
    ledger: Ledger = field(default_factory=Ledger)
    """Of the whole training."""
    played: int = 0
    dropped: int = 0
    _scores: dict[tuple[str, str], float | None] = field(default_factory=dict)
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TOGETHER))

    async def play(
        self, head: Head, problems: Sequence[Problem], *, seed: int | None = None
    ) -> Played:
        """One episode each: sampled under a seed, and without one the likeliest picks."""
        coordinator = Coordinator(head, self.states, sampled=seed is not None, seed=seed or 0)
        trinity = Trinity(coordinator, self.pool)
        seeds = Random(seed)
        found = await asyncio.gather(
            *(self._one(trinity, p, seeds.getrandbits(32)) for p in problems)
        )
        kept = tuple(e for e in found if e is not None)
        self.played += len(found)
        self.dropped += len(found) - len(kept)
        return Played(kept, len(found) - len(kept))

    async def _one(self, trinity: Trinity, problem: Problem, seed: int) -> Episode | None:
        own = replace(trinity, coordinator=replace(trinity.coordinator, seed=seed))
        async with self._gate:
            run = await own.solve(problem.question, Terms(Ledger(self.limits, self.ledger)))
        score = None if spoiled(run) else await self._score(problem, run.answer)
        if score is None:
            return None
        picks = tuple(r.worker for round in run.rounds for r in round.results)
        return Episode(problem, score, run.cost, picks)

    async def _score(self, problem: Problem, answer: str | None) -> float | None:
        if answer is None:
            return 0.0
        key = (problem.id, answer)
        if key not in self._scores:
            self._scores[key] = await problem.score(answer)
        return self._scores[key]


@dataclass(slots=True)
class Heard:
    """Another source's states, and a list of those that were asked for."""

    states: States
    states_read: list[State] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return self.states.digest

    async def state(self, messages: Sequence[Message], reading: Reading) -> State:
        found = await self.states.state(messages, reading)
        self.states_read.append(found)
        return found


def spoiled(run: Run) -> bool:
    """Whether the world failed somewhere in it."""
    failures = [r.failure for r in run.rounds if r.failure is not None]
    return any(f.blame == "infra" for f in failures)


@dataclass(frozen=True, slots=True)
class Measured:
    """What each worker earns and costs on each problem, asked alone."""

    rewards: list[list[float]]
    dollars: list[list[float]]


async def measure(problems: Sequence[Problem], pool: Pool, ledger: Ledger) -> Measured:
    """Ask every worker every question, once. Where a worker fails it earns nothing."""
    gate = asyncio.Semaphore(TOGETHER)

    async def one(problem: Problem, member: Member) -> tuple[float, float]:
        request = Request((Message("user", problem.question.text),))
        try:
            async with gate:
                done = await member.worker.complete(request, Call(ledger))
        except WorkerError:
            return 0.0, 0.0
        return await problem.score(done.text) or 0.0, done.cost or 0.0

    # Worker by worker: models that share their weights need not change between two calls.
    columns = [await asyncio.gather(*(one(p, m) for p in problems)) for m in pool.members]
    rows = list(zip(*columns, strict=True))
    return Measured([[r for r, _ in row] for row in rows], [[c for _, c in row] for row in rows])

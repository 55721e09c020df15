"""Questions to learn from: where they come from, who can answer them, and which are worth asking.

A question that every worker answers alike, right or wrong, gives every draft the same reward and
so teaches nothing. Each worker is therefore asked every question of the training split once
(replayed where it is recorded), and only the contested ones are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from podium.errors import ConfigError, PodiumError
from podium.eval import world
from podium.eval.tasks.grading import grade
from podium.eval.tasks.task import Item
from podium.ledger import Ledger
from podium.train.recipe import Data, PoolSection, Recipe
from podium.types import Message, Question, Request, Usage
from podium.workers import FREE, Call, Member, Pool, Price
from podium.workers.recorded import ReplayedWorker, Reply
from podium.workers.tools import VoteWorker

QUESTION_TOKENS, REPLY_TOKENS = 1000, 1000
"""Of a call, where an estimate is all there is."""

Split = Literal["train", "dev", "test"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A question whose answer can be graded, by the grader that evaluation uses."""

    item: Item

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def question(self) -> Question:
        return Question(self.item.question)

    async def score(self, answer: str) -> float | None:
        return (await grade(self.item, answer)).value


@dataclass(frozen=True, slots=True)
class Source:
    """Problems by split, and the pool that is asked them."""

    splits: Mapping[Split, Sequence[Problem]]
    pool: Pool

    def of(self, split: Split) -> list[Problem]:
        return list(self.splits[split])


def load(data: Data, pool: PoolSection) -> Source:
    """Read the problems and put the pool together.

    Raises:
        ConfigError: there are none, or `only` names a worker that does not exist.
    """
    recorded = world.World.load(Path(data.world).expanduser())
    members = [_replayed(name, recorded) for name in recorded.workers]
    unknown = set(pool.only) - {m.name for m in members}
    if unknown:
        raise ConfigError(f"`pool.only` names {min(unknown)!r}, which is not in {data.world}")
    kept = [m for m in members if not pool.only or m.name in pool.only]
    if "vote" in pool.programs:
        kept.append(Member(VoteWorker(), "counts the answers it may read", FREE, program=True))
    splits: dict[Split, Sequence[Problem]] = {
        "train": [*map(Problem, recorded.split("train"))],
        "dev": [*map(Problem, recorded.split("dev"))],
        "test": [*map(Problem, recorded.split("test"))],
    }
    return Source(splits, Pool(tuple(kept)))


def _replayed(name: str, recorded: world.World) -> Member:
    listed = recorded.workers[name]
    price = Price(listed.input, listed.output, source="the recording")
    replies = {
        recorded.items[id].question: Reply(r.text, Usage(r.tokens_in, r.tokens_out))
        for id, r in recorded.replies[name].items()
    }
    return Member(ReplayedWorker(name, replies, price), price=price)


async def check_gold(problems: Sequence[Problem]) -> None:
    """Grade every gold answer by its own grader, as far as it can be written down.

    Raises:
        ConfigError: one of them is not right.
    """
    for problem in problems:
        target = problem.item.target
        gold = target["letter"] if isinstance(target, dict) else target
        if await problem.score(f"<answer>{gold}</answer>") != 1.0:
            raise ConfigError(f"the gold answer {gold!r} of {problem.id} fails its own grader")


async def measure(problems: Sequence[Problem], pool: Pool) -> list[list[float | None]]:
    """What each worker (not the programs) scores on each problem, asked alone."""
    ledger = Ledger()

    async def one(problem: Problem, member: Member) -> float | None:
        request = Request((Message("user", problem.question.text),))
        try:
            reply = await member.worker.complete(request, Call(ledger))
        except PodiumError:
            return None
        return await problem.score(reply.text)

    workers = [m for m in pool.members if not m.program]
    return [
        await asyncio.gather(*(one(problem, member) for member in workers)) for problem in problems
    ]


def contested(scores: Sequence[float | None]) -> bool:
    known = [s for s in scores if s is not None]
    return bool(known) and min(known) < 1.0 <= max(known)


def expected(recipe: Recipe, source: Source) -> dict[str, float]:
    """Calls and dollars of a whole training, as if every step were used and asked the dearest."""
    workflows = recipe.grpo.steps * recipe.grpo.questions * recipe.grpo.drafts
    calls = workflows * recipe.limits.steps * recipe.limits.rounds
    prices = [m.price for m in source.pool.members if m.price is not None and not m.program]
    one = max((p.of(QUESTION_TOKENS, REPLY_TOKENS) for p in prices), default=0.0)
    return {"workflows": workflows, "calls_at_most": calls, "dollars_at_most": calls * one}

"""Questions to learn from: where they come from, who can answer them, and which are worth asking.

A question that every worker answers alike, right or wrong, gives every draft the same reward and
so teaches nothing. Each worker is therefore asked every question of the training split once
(replayed where it is recorded), and only the contested ones are kept.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from podium.errors import ConfigError, PodiumError
from podium.eval.graders import Grader, choice
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
    """A question whose answer is known."""

    id: str
    question: Question
    target: str
    split: Split
    grade: Grader

    def score(self, answer: str) -> float | None:
        return self.grade(answer, self.target).value


@dataclass(frozen=True, slots=True)
class Source:
    """Problems and the pool that is asked them."""

    problems: tuple[Problem, ...]
    pool: Pool

    def of(self, split: Split) -> list[Problem]:
        return [p for p in self.problems if p.split == split]


def load(data: Data, pool: PoolSection) -> Source:
    source = _world(Path(data.world).expanduser())
    members = [m for m in source.pool.members if not pool.only or m.name in pool.only]
    if "vote" in pool.programs:
        members.append(Member(VoteWorker(), "counts the answers it may read", FREE, program=True))
    for problem in source.problems:
        if problem.score(problem.target) != 1.0:
            raise ConfigError(
                f"the gold answer {problem.target!r} of {problem.id} fails its own grader"
            )
    return Source(source.problems, Pool(tuple(members)))


def _world(directory: Path) -> Source:
    rows = list(_rows(directory / "questions.jsonl.gz"))
    texts = {row["id"]: _text(row) for row in rows}
    problems = tuple(
        Problem(r["id"], Question(texts[r["id"]]), r["answer"], r["split"], choice) for r in rows
    )
    replies: dict[str, dict[str, Reply]] = {}
    for row in _rows(directory / "replies.jsonl.gz"):
        used = Usage(row["tokens_in"], row["tokens_out"])
        replies.setdefault(row["worker"], {})[texts[row["id"]]] = Reply(row["text"], used)
    listed = json.loads((directory / "pool.json").read_text())
    members = [_replayed(entry, replies[entry["name"]]) for entry in listed]
    return Source(problems, Pool(tuple(members)))


def _replayed(entry: Mapping[str, object], replies: Mapping[str, Reply]) -> Member:
    price = Price(float(str(entry["usd_per_mtok_in"])), float(str(entry["usd_per_mtok_out"])))
    return Member(ReplayedWorker(str(entry["name"]), replies, price), price=price)


def _rows(file: Path) -> Iterator[dict[str, object]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _text(row: Mapping[str, object]) -> str:
    options = row.get("options") or []
    lettered = [f"{chr(65 + i)}. {option}" for i, option in enumerate(options)]
    return "\n".join([str(row["question"]), *lettered])


async def measure(problems: Sequence[Problem], pool: Pool) -> list[list[float | None]]:
    """What each worker (not the programs) scores on each problem, asked alone."""
    ledger = Ledger()

    async def one(problem: Problem, member: Member) -> float | None:
        request = Request((Message("user", problem.question.text),))
        try:
            return problem.score((await member.worker.complete(request, Call(ledger))).text)
        except PodiumError:
            return None

    workers = [m for m in pool.members if not m.program]
    return [
        await asyncio.gather(*(one(problem, member) for member in workers)) for problem in problems
    ]


def contested(scores: Sequence[float | None]) -> bool:
    known = [s for s in scores if s is not None]
    return bool(known) and min(known) < 1.0 <= max(known)


def expected(recipe: Recipe, source: Source) -> dict[str, float]:
    """Calls and dollars of a whole training, as if every step were used and asked a worker."""
    rollouts = recipe.grpo.steps * recipe.grpo.questions * recipe.grpo.drafts
    calls = rollouts * recipe.limits.steps * recipe.limits.rounds
    prices = [m.price for m in source.pool.members if m.price is not None and not m.program]
    one = max((p.of(QUESTION_TOKENS, REPLY_TOKENS) for p in prices), default=0.0)
    return {"workflows": rollouts, "calls_at_most": calls, "dollars_at_most": calls * one}

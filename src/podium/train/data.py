"""Questions to learn from: where they come from, who can answer them, and which are worth asking.

A question that every worker answers alike, right or wrong, gives every draft the same reward and
so teaches nothing. Each worker is therefore asked every question of the training split once
(replayed where it is recorded), and only the contested ones are kept.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

from podium.app import Podium
from podium.config import PlannerSection
from podium.config import load as load_config
from podium.errors import ConfigError, PodiumError
from podium.eval import tasks, world
from podium.eval.graders import GRADERS
from podium.eval.tasks.grading import grade
from podium.eval.tasks.task import Item
from podium.eval.tiny import questions
from podium.eval.tiny.facts import facts
from podium.eval.tiny.skills import SKILLS, Skill, Split
from podium.ledger import Ledger
from podium.prompts import WHOLE, step_messages
from podium.train.recipe import PoolSection, Recipe
from podium.train.tiny.nonsense import nonsense
from podium.types import Completion, Question, Request, Step, Usage
from podium.workers import FREE, Call, Member, Pool, Price
from podium.workers.recorded import ReplayedWorker, Reply
from podium.workers.tools import VoteWorker

QUESTION_TOKENS, REPLY_TOKENS = 1000, 1000
"""Of a call, where an estimate is all there is."""

Part = Literal[Split, "cold"]
"""Of a source: `cold` is for the cold start alone."""
NUMBER = re.compile(r"\b\d{1,9}\b")
"""One to work on: `5th`, in a subtask, is none."""
EVERY = 16
"""Of so many tiny questions one is about the world, for the member that is no specialist: as many
as need each of the skills alone."""
NONSENSE = "nonsense"
"""The kind of questions that are taken apart in a cold start and never asked."""
PAPER = "paper"
"""The name of the mixture that the Conductor was trained on."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question whose answer can be graded, by the grader that evaluation uses."""

    item: Item
    plan: tuple[Step, ...] = ()
    """One way to take it apart, for the cold start; who works on it is left open."""
    kind: str = ""
    """What it asks for. Every step of a training meets each kind in its due share."""

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

    splits: Mapping[Part, Sequence[Problem]]
    pool: Pool
    close: Callable[[], Awaitable[None]]
    """Lets go of the pool."""

    def of(self, split: Part) -> list[Problem]:
        return list(self.splits.get(split, ()))


async def _nothing() -> None:
    """What closing a pool without connections takes."""


def load(recipe: Recipe) -> Source:
    """Read the problems and put the pool together.

    Raises:
        ConfigError: there are none, or `only` names a worker that does not exist.
    """
    data, settings = recipe.data, recipe.pool
    if data.world:
        source = _world(Path(data.world).expanduser())
    elif data.task == "tiny":
        source = _tiny(recipe)
    else:
        source = _task(data.task, settings)
    members = _kept(source.pool.members, settings)
    if "vote" in settings.programs:
        members += (Member(VoteWorker(), "counts the answers it may read", FREE, program=True),)
    return replace(source, pool=Pool(members))


def _kept(members: Sequence[Member], settings: PoolSection) -> tuple[Member, ...]:
    names = [m.name for m in members]
    unknown = set(settings.only) - set(names)
    if unknown:
        raise ConfigError(f"`pool.only` names {min(unknown)!r}: there are {', '.join(names)}")
    return tuple(m for m in members if not settings.only or m.name in settings.only)


def _world(directory: Path) -> Source:
    recorded = world.World.load(directory)
    parts: tuple[Split, ...] = ("train", "dev", "test")
    splits: dict[Part, Sequence[Problem]] = {
        part: [Problem(item, kind=item.category or "") for item in recorded.split(part)]
        for part in parts
    }
    pool = Pool(tuple(_replayed(name, recorded) for name in recorded.workers))
    return Source(splits, pool, _nothing)


def _replayed(name: str, recorded: world.World) -> Member:
    listed = recorded.workers[name]
    price = Price(listed.input, listed.output, source="the recording")
    replies = {
        recorded.items[id].question: Reply(r.text, Usage(r.tokens_in, r.tokens_out))
        for id, r in recorded.replies[name].items()
    }
    return Member(ReplayedWorker(name, replies, price), price=price)


def _task(name: str, settings: PoolSection) -> Source:
    """The training questions of a benchmark, or the paper's mixture of four, over a real pool."""
    items = tasks.paper_mixture().items if name == PAPER else tasks.find(name).load("train")
    pool, close = _configured(settings)
    return Source({"train": [*map(Problem, items)]}, pool, close)


def _configured(settings: PoolSection) -> tuple[Pool, Callable[[], Awaitable[None]]]:
    if not settings.config:
        raise ConfigError("`pool.config` must name the podium.toml whose workers are the pool")
    podium = workers_of(settings.config)
    return podium.pool, podium.close


def workers_of(config: str) -> Podium:
    """The workers of a configuration; training brings its own planner, and keeps all calls."""
    given = load_config(config).keeping_calls()
    anybody = PlannerSection(worker=given.worker[0].name)
    return Podium(given.model_copy(update={"planner": anybody}))


def _tiny(recipe: Recipe) -> Source:
    sizes: dict[Split, int] = {"train": recipe.data.questions or 2000, "dev": 240, "test": 480}
    splits: dict[Part, Sequence[Problem]] = {
        split: [
            _tiny_problem(split, i, item)
            for i, item in enumerate(tiny_items(recipe.data.seed, size, split))
        ]
        for split, size in sizes.items()
    }
    worldly = _facts(recipe.data.seed, sizes["train"] // EVERY)
    splits["train"] = [*splits["train"], *worldly]
    splits["cold"] = _nonsense(recipe.data.seed, recipe.data.nonsense)
    if recipe.pool.config:
        pool, close = _configured(recipe.pool)
        return Source(splits, pool, close)
    known = {p.item.question: str(p.item.target) for p in worldly}
    workers: list[ExactSpecialist | ExactTalker] = [*map(ExactSpecialist, SKILLS.values())]
    workers.append(ExactTalker(known))
    exact = tuple(Member(w, w.description, FREE, prompt="compact") for w in workers)
    return Source(splits, Pool(exact), _nothing)


def tiny_items(seed: int, size: int, split: Split) -> list[questions.Item]:
    """Half of one skill, which tell who can do what; the other half builds on it."""
    singles = questions.generate(seed, size // 2, split, ("single",))
    return [*singles, *questions.generate(seed, size - size // 2, split, ("chain", "merge"))]


def _plan(calls: Sequence[questions.Call]) -> tuple[Step, ...]:
    return tuple(Step(0, call.subtask, call.access) for call in calls)


def _nonsense(seed: int, n: int) -> list[Problem]:
    """Questions without an answer: the cold start asks for none."""
    return [
        Problem(Item(f"tiny/nonsense/{i}", question, "", "exact"), _plan(calls), NONSENSE)
        for i, (question, calls) in enumerate(nonsense(seed, n))
    ]


def _tiny_problem(split: Split, number: int, made: questions.Item) -> Problem:
    plan = _plan(made.calls)
    item = Item(f"tiny/{split}/{number}", made.question, made.answer, "exact", made.kind, split)
    alone = made.kind == "single"
    return Problem(item, plan, f"{made.kind} {made.skills[0]}" if alone else made.kind)


def _facts(seed: int, n: int) -> list[Problem]:
    return [
        Problem(
            Item(f"tiny/fact/{i}", q, a, "mentions", "fact", "train"), (Step(0, WHOLE),), "fact"
        )
        for i, (q, a) in enumerate(facts(seed, n, "train"))
    ]


@dataclass(frozen=True, slots=True)
class ExactSpecialist:
    """A specialist that never errs at its skill and knows no other: it stands in for a real one.

    Like a real one it does its one thing to whatever numbers it is given: those of its subtask,
    or else those of the answers it may read.
    """

    skill: Skill

    @property
    def name(self) -> str:
        return self.skill.name

    @property
    def description(self) -> str:
        return self.skill.description

    @property
    def fingerprint(self) -> str:
        return f"exact {self.name}"

    async def complete(self, request: Request, call: Call) -> Completion:
        reservation = await call.ledger.reserve(0, 0.0)
        reservation.settle(Usage(), 0.0)
        *_, subtask = request.messages[-1].content.splitlines()
        seen = " ".join(seen.output for seen in request.visible)
        given = NUMBER.findall(subtask) or NUMBER.findall(seen)
        xs = tuple(map(int, given))
        return Completion(self.skill.apply(xs) if xs and self.skill.takes(xs) else "?")


@dataclass(frozen=True, slots=True)
class ExactTalker:
    """Stands in for the plain model: it answers a whole question about the world, and no other."""

    known: Mapping[str, str]
    name: str = "talk"
    description: str = "answers in sentences"
    fingerprint: str = "exact talk"

    async def complete(self, request: Request, call: Call) -> Completion:
        reservation = await call.ledger.reserve(0, 0.0)
        reservation.settle(Usage(), 0.0)
        return Completion(self.known.get(request.messages[-1].content, "?"))


async def check_gold(problems: Sequence[Problem]) -> None:
    """Grade every gold answer by its own grader, as far as it can be written down.

    Raises:
        ConfigError: one of them is not right.
    """
    for problem in problems:
        if problem.item.grader not in GRADERS:
            continue
        target = problem.item.target
        gold = target["letter"] if isinstance(target, dict) else target
        if await problem.score(f"<answer>{gold}</answer>") != 1.0:
            raise ConfigError(f"the gold answer {gold!r} of {problem.id} fails its own grader")


async def measure(problems: Sequence[Problem], pool: Pool) -> list[list[float | None]]:
    """What each worker (not the programs) scores on each problem, asked alone."""
    ledger = Ledger()

    async def one(problem: Problem, member: Member) -> float | None:
        messages = step_messages(problem.question, Step(0, WHOLE), (), mark="", form=member.prompt)
        request = Request(messages)
        try:
            reply = await member.worker.complete(request, Call(ledger))
        except PodiumError:
            return None
        return await problem.score(reply.text)

    workers = [m for m in pool.members if not m.program]
    return [
        await asyncio.gather(*(one(problem, member) for member in workers)) for problem in problems
    ]


def of_the_best(
    scores: Sequence[Sequence[float | None]], count: int | None
) -> list[list[float | None]]:
    """The scores of the workers that have the best mean, question by question."""
    means = [fmean(s or 0.0 for s in column) for column in zip(*scores, strict=True)]
    best = sorted(range(len(means)), key=lambda i: -means[i])[:count]
    return [[row[i] for i in best] for row in scores]


def contested(scores: Sequence[float | None]) -> bool:
    known = [s for s in scores if s is not None]
    return bool(known) and min(known) < 1.0 <= max(known)


def dealt(problems: Sequence[Problem], rng: Random, later: float = 0.0) -> list[Problem]:
    """In random order, but with each kind spread evenly over the whole.

    Those whose plan has several steps are spread over what is left after the share `later`.

    A step with few kinds of questions pushes towards whoever is good at those, for all questions.
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    places: list[tuple[float, Problem]] = []
    for kind in sorted(kinds):
        some, first = kinds[kind], rng.random()
        rng.shuffle(some)
        start = later if len(some[0].plan) > 1 else 0.0
        even = [(first + i) / len(some) for i in range(len(some))]
        places += [(start + (1 - start) * x, p) for x, p in zip(even, some, strict=True)]
    return [problem for _, problem in sorted(places, key=lambda placed: placed[0])]


def expected(recipe: Recipe, source: Source) -> dict[str, float]:
    """Calls and dollars of a whole training, as if every step were used and asked the dearest."""
    steps = min(recipe.grpo.steps, recipe.grpo.stop or recipe.grpo.steps)
    workflows = steps * recipe.grpo.questions * recipe.grpo.drafts
    calls = workflows * recipe.limits.steps * recipe.limits.rounds
    prices = [m.price for m in source.pool.members if m.price is not None and not m.program]
    one = max((p.of(QUESTION_TOKENS, REPLY_TOKENS) for p in prices), default=0.0)
    return {"workflows": workflows, "calls_at_most": calls, "dollars_at_most": calls * one}

"""From a request to a run: which strategy its model means, on whose account, under which limits.

The desk belongs to no API. It is handed an `Asked` and gives back an `Outcome`, or raises the
`Refusal` that the client is to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import orjson

from podium.app import MAIN, SINGLE, Podium
from podium.conductor import Strategy, Terms, begin, finish
from podium.config import WorkerSection
from podium.errors import ConfigError
from podium.events import Emit, ignore
from podium.executor import Stage, perform
from podium.ledger import Ledger
from podium.prompts import WHOLE
from podium.records import KEPT
from podium.serve import talk
from podium.serve.denials import Denials
from podium.serve.journal import Journal
from podium.serve.keys import Key, Keys
from podium.serve.metrics import Metrics
from podium.serve.retries import Retries
from podium.serve.wire import PLAIN, Asked, Outcome, Refusal, outcome
from podium.tracing import note, span
from podium.types import Limits, Message, Question, Round, Rules, Run, Step, Workflow
from podium.workers import ANYONE, Pool, Price
from podium.workers.chat import CHARS_PER_TOKEN, IMAGE_TOKENS
from podium.workers.dialects.wire import budget

FAST, DEEP = "podium-fast", "podium-deep"
DEEP_ROUNDS = 2
PLANNING = 2
"""Calls of a round beside its steps: a plan, and one more where it has to be repaired."""
MESSAGE, PROMPT = 100, 6_000
"""Characters around a message, and around a question that is given to a team."""
AGAIN = 2
"""A call may be made once more after a failure that had to be paid."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request, understood: all that a run needs."""

    podium: Podium
    asked: Asked
    key: Key
    strategy: Strategy
    question: Question
    limits: Limits
    rules: Rules

    @property
    def direct(self) -> bool:
        """One worker is asked the very conversation: there is nothing to tell of a workflow."""
        return self.strategy.name.startswith(SINGLE)

    @property
    def live(self) -> bool:
        """Whether the last step's words are certain to be the answer while they arrive."""
        return self.direct or self.limits.rounds == 1


@dataclass(frozen=True, slots=True)
class Direct:
    """One worker, asked the very conversation: a run of one step that nobody plans."""

    worker: str
    pool: Pool

    @property
    def name(self) -> str:
        return SINGLE + self.worker

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run:
        terms = terms or Terms()
        pool = self.pool if terms.rules is ANYONE else self.pool.only(terms.rules)
        flow = Workflow((Step(pool.names.index(self.worker), WHOLE),))
        # A single step leaves nothing that could be picked up half-way, so nothing is noted.
        emit = _except_kept(terms.emit)
        stage = Stage(
            Question.of(question), pool, terms.ledger, emit, terms.pieces, rules=terms.rules
        )
        run = begin(self.name, stage)
        with span("invoke_workflow", self.name) as current:
            results = await perform(flow, stage)
            (result,) = results
            answer = None if result.failure else result.output
            done = Round((), flow, results, answer, result.failure)
            run = finish(replace(run, rounds=(done,), failure=result.failure), stage)
            note(current, run, run.failure)
        return run


def _except_kept(emit: Emit) -> Emit:
    return lambda event: None if isinstance(event, KEPT) else emit(event)


@dataclass(slots=True)
class Billed:
    """A strategy whose run can be asked what it has spent, however it ended."""

    strategy: Strategy
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def name(self) -> str:
        return self.strategy.name

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run:
        terms = terms or Terms()
        self.ledger = terms.ledger
        return await self.strategy.solve(question, terms)


class Desk:
    def __init__(self, podium: Podium, *, node: str = "", operators: Collection[str] = ()) -> None:
        self._open(podium, node)
        self._operators = frozenset(operators)
        self.metrics = Metrics()
        self.journal = Journal()
        self.running: set[object] = set()
        """A token for each request under way."""
        self._left = asyncio.Event()
        self.ready = True

    def _open(self, podium: Podium, node: str) -> None:
        self.podium = podium
        self.keys = Keys(podium.store, node)
        self.denials = Denials(podium.store)
        strategies = (section.name for section in podium.config.strategy)
        self._names = dict.fromkeys([MAIN, FAST, DEEP, *strategies, *podium.pool.names])
        self._known: dict[str, tuple[Strategy, Limits]] = {}

    def enter(self) -> object:
        token = object()
        self.running.add(token)
        return token

    def leave(self, token: object) -> None:
        self.running.discard(token)
        self._left.set()

    async def change(self, podium: Podium) -> Podium:
        """Answer by another configuration; the old one is returned once nobody uses it."""
        old, users = self.podium, set(self.running)
        podium.ledger.calls = old.ledger.calls
        podium.ledger.tokens, podium.ledger.dollars = old.ledger.tokens, old.ledger.dollars
        keys = self.keys
        self._open(podium, keys.node)
        await self.idle(users)
        await keys.book_all()
        return old

    async def idle(self, users: set[object] | None = None) -> None:
        """Wait until these requests are done, or all of them."""
        while self.running if users is None else users & self.running:
            self._left.clear()
            await self._left.wait()

    async def close(self) -> None:
        self.journal.flush()
        await self.keys.book_all()
        await self.podium.close()

    def models(self, key: Key) -> list[str]:
        """The names that a key may ask for."""
        return [name for name in self._names if _may(key, name)]

    def operates(self, key: Key) -> bool:
        """Whether this key runs the server: without keys, everybody on this machine does."""
        return not key.id or not self._operators.isdisjoint((key.id, key.name))

    async def job(self, asked: Asked, key: Key) -> Job:
        """Understand a request.

        Raises:
            Refusal: the model does not exist, or this key may not use it.
        """
        if asked.previous:
            asked = replace(asked, talk=(*await self._before(asked, key), *asked.talk))
        strategy, own = self._strategy(asked.wishes.strategy or asked.model, key)
        limits = own if asked.wishes is PLAIN else asked.wishes.limits.within(own)
        if asked.tools and limits.rounds > 1:
            limits = replace(limits, rounds=1)  # a tool call must go out before anybody looks again
        rules = self._rules(asked, key, await self.denials.known())
        if isinstance(strategy, Direct):
            question = talk.exactly(asked, asked.talk)
        else:
            question = talk.question(asked)
        job = Job(self.podium, asked, key, strategy, question, limits, rules)
        waits = talk.waiting(asked.talk)
        return job if waits is None else await self._resumed(job, waits)

    async def run(self, job: Job, emit: Emit = ignore, *, pieces: bool = False) -> Outcome:
        """Answer it, having set aside what it may cost; book what it did, however it ends.

        Raises:
            Refusal: it has no answer, or no money.
        """
        keys, limits, promised = self.keys, job.limits, 0.0
        if job.key.limited:
            promised = await keys.take(job.key, _worst(job))
            limits = replace(limits, dollars=promised)
        billed, heard = Billed(job.strategy), Retries(emit)
        try:
            run = await job.podium.ask(
                job.question,
                billed,
                limits=limits,
                rules=job.rules,
                emit=heard,
                pieces=pieces,
                owner=job.key.id,
            )
        except ConfigError as exc:
            raise Refusal(str(exc)) from exc
        finally:
            heard.keep(job.podium.store)
            spent = billed.ledger.dollars
            self.metrics.add("cost_dollars_total", spent, model=job.asked.model)
            if job.key.id:
                keys.give_back(job.key, promised, spent)
        self._count(job, run)
        if session := talk.session_of(run):
            await talk.keep(job.podium.store, run.id, job.key.id, session)
        return outcome(run, job.asked.model)

    async def several(self, job: Job) -> Sequence[Outcome]:
        """Independent answers to the same request, all or none."""
        jobs = [replace(job, question=replace(job.question, sample=i)) for i in range(job.asked.n)]
        if len(jobs) == 1:
            return [await self.run(jobs[0])]
        tasks = [asyncio.create_task(self.run(each)) for each in jobs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _strategy(self, name: str, key: Key) -> tuple[Strategy, Limits]:
        """What a model's name means, which is worked out once."""
        plain = name.removeprefix(SINGLE)
        if plain not in self._names:
            there = ", ".join(self.models(key))
            message = f"there is no model {plain[:200]!r} here: there are {there}"
            raise Refusal(message, 404, param="model", code="model_not_found")
        if not _may(key, plain):
            raise Refusal(f"this key may not use the model {plain!r}", 403, param="model")
        if name not in self._known:
            self._known[name] = self._made(name, plain)
        return self._known[name]

    def _made(self, name: str, plain: str) -> tuple[Strategy, Limits]:
        podium = self.podium
        own = podium.limits(name)
        if any(s.name == name for s in podium.config.strategy):
            return podium.strategy(name), own
        if name == FAST:
            return podium.strategy(MAIN), replace(own, steps=1, rounds=1)
        if name == DEEP:
            return podium.strategy(MAIN), replace(own, rounds=max(DEEP_ROUNDS, own.rounds))
        if name == MAIN:
            return podium.strategy(name), own
        return Direct(plain, podium.pool), own

    def _rules(self, asked: Asked, key: Key, denied: frozenset[str]) -> Rules:
        if asked.wishes is PLAIN and key.workers is None and not denied:
            return ANYONE
        wished, pool = asked.wishes.rules, self.podium.pool
        allowed = wished.allowed
        if key.workers is not None:
            allowed = key.workers if allowed is None else allowed & key.workers
        denied &= frozenset(pool.names)  # one of an earlier configuration may be gone
        rules = replace(wished, allowed=allowed, denied=wished.denied | denied)
        if not any(rules.admit(m.name, m.region) for m in pool.members):
            raise Refusal("no worker is left that this request may use", param="podium")
        named = (asked.wishes.strategy or asked.model).removeprefix(SINGLE)
        member = pool.named(named)
        if named in denied:
            raise Refusal(f"the worker {named!r} is not given to anybody now", 403, param="model")
        if member is not None and not rules.admit(member.name, member.region):
            raise Refusal(f"this request may not use the worker {named!r}", 403, param="model")
        return rules

    async def _before(self, asked: Asked, key: Key) -> Sequence[Message]:
        """The conversation up to a stored response, which the client need not send again."""
        run = await self.podium.run(asked.previous, owner=key.id)
        if run is None:
            message = f"there is no response {asked.previous[:80]!r} to go on from"
            raise Refusal(message, 404, param="previous_response_id")
        found = outcome(run, asked.model)
        asked_before = Message("user", run.question.text, run.question.images)
        said = Message("assistant", found.text, tool_calls=found.calls)
        new = [asked_before] if asked_before.content or asked_before.images else []
        return (*run.question.earlier, *new, said)

    async def _resumed(self, job: Job, waits: talk.Waiting) -> Job:
        """If a worker waits for what this request brings, it is the one who is asked."""
        session = await talk.find(self.podium.store, waits.run, job.key.id)
        member = self.podium.pool.named(session.worker) if session else None
        if session is None or member is None or not job.rules.admit(member.name, member.region):
            return job
        before = waits.before if job.direct else ()
        question = talk.exactly(job.asked, session.resumed(waits.results, before))
        # Nobody stands in for it: the exchange is private, and signed by its provider.
        alone = Pool((replace(member, fallback=""),))
        return replace(job, question=question, strategy=Direct(member.name, alone))

    def _count(self, job: Job, run: Run) -> None:
        model, used = job.asked.model, run.usage
        self.metrics.add("tokens_total", used.input, model=model, direction="input")
        self.metrics.add("tokens_total", used.output, model=model, direction="output")


def _worst(job: Job) -> float:
    """Dollars that a run can cost: its limits say so, or else the prices of those it may ask."""
    limits = [each for each in (job.limits.dollars, job.key.per_run) if each is not None]
    if limits:
        return min(limits)
    calls = 1 if job.direct else (job.limits.steps + PLANNING) * job.limits.rounds
    pool, sections = job.podium.pool, job.podium.config.worker
    costs = [
        _cost(job, member.price, section, calls)
        for member, section in zip(pool.members, sections, strict=True)
        if member.price is not None and job.rules.admit(member.name, member.region)
    ]
    return AGAIN * max(costs, default=0.0)


def _cost(job: Job, price: Price, section: WorkerSection, calls: int) -> float:
    """Of so many calls to one worker that writes as much as it may.

    A call reserves as if each byte were a token, and gives most of that back when it is done. So
    one of them is counted in full, and the others by what they come to.
    """
    asked = job.asked
    read = sum(len(m.content) * 2 + MESSAGE + IMAGE_TOKENS * len(m.images) for m in asked.talk)
    read += len(orjson.dumps(asked.tools)) if asked.tools else 0
    sampling = job.question.sampling
    written = max(section.max_tokens, sampling.max_tokens or 0)
    written += budget(section.effort) + budget(sampling.effort)
    if calls > 1:
        read += PROMPT + CHARS_PER_TOKEN * written * job.limits.steps
    return price.of(read, written) + (calls - 1) * price.of(read // CHARS_PER_TOKEN, written)


def _may(key: Key, model: str) -> bool:
    return key.models is None or model in key.models

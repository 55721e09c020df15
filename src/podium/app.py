"""Podium, opened: a configuration's pool, strategies, limits and store behind one `ask`.

    async with Podium.open() as podium:
        run = await podium.ask("Why is the sky blue?", limits=Limits(dollars=0.05))
        print(run.answer, run.cost)

The command line, evaluation and the server all stand on this; it adds nothing to a strategy but
what surrounds it: who pays, what is written down, and which name means which strategy.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from podium import prompts
from podium.checkpoints import find_checkpoint
from podium.conductor import Conductor, Strategy, StrategyWorker, Terms
from podium.config import FILE, Config, PlannerSection, StrategySection, WorkerSection, load
from podium.errors import ConfigError
from podium.events import Emit, Event, Started, ignore
from podium.ledger import Ledger
from podium.planner import FixedPlanner, ModelPlanner, Planner
from podium.records import KEPT, load_run, pack, rebuild
from podium.store import Store, open_store
from podium.types import Failure, Limits, Question, Rules, Run, Sampling, Step, Workflow
from podium.workers import ANYONE, Member, Pool, Worker
from podium.workers.recorded import RecordedWorker
from podium.workflow import parse
from podium.workshop import Workshop, embedded

if TYPE_CHECKING:
    from podium.trinity import Trinity

CANCELLED = Failure("Cancelled", "the run was cancelled before it had finished", "infra")

MAIN = "podium"
"""The name of the strategy that the `[planner]` of the configuration leads."""

SINGLE = "single:"
"""`single:NAME` asks one worker the bare question."""


def find_config() -> Path | None:
    """The configuration of this directory, or else of this user."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", "~/.config")).expanduser()
    return next((p for p in (Path(FILE), home / "podium" / FILE) if p.is_file()), None)


class Podium:
    """Made by `Podium.open()`, which finds the configuration; close it when you are done."""

    def __init__(self, config: Config, *, store: Store | None = None) -> None:
        self.config = config
        self.ledger = Ledger(config.process.value())
        self.store = store or open_store(config.store)
        self._workshop = Workshop()
        self.pool = Pool(tuple(self._member(section) for section in config.worker))
        # Now, not when one is asked for: a local model takes its adapters before its first call.
        self._checkpoints = {
            section: find_checkpoint(section.checkpoint).planner(
                self._workshop.model, held=section.held
            )
            for section in (config.planner, *(s.planner for s in config.strategy))
            if section is not None and section.checkpoint
        }
        self._coordinators = {s.name: self._coordinator(s) for s in config.strategy if s.head}
        self.digest, self._facts = self._describe()
        self._facts_kept = False

    @staticmethod
    def open(config: Config | Path | str | None = None) -> Podium:
        """Open a configuration: the one given, the one found, or the embedded default."""
        if config is None:
            config = find_config()
        if config is None:
            return Podium(embedded())
        return Podium(config if isinstance(config, Config) else load(config))

    async def __aenter__(self) -> Podium:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._workshop.close()
        await self.store.close()

    async def ask(
        self,
        question: Question | str,
        strategy: Strategy | str = MAIN,
        *,
        limits: Limits | None = None,
        rules: Rules = ANYONE,
        emit: Emit = ignore,
        pieces: bool = False,
        owner: str = "",
    ) -> Run:
        """Answer a question and keep the run, also if it is cancelled in the middle.

        Raises:
            ConfigError: the strategy or a worker named in the rules does not exist.
        """
        chosen = self.strategy(strategy) if isinstance(strategy, str) else strategy
        self._check(rules)
        await self._keep_facts()
        own = self.limits(chosen.name) if limits is None else limits
        scribe = Scribe(self.store, emit, owner, self.digest)
        terms = Terms(Ledger(own, self.ledger), rules, scribe, pieces)
        try:
            run = await chosen.solve(question, terms)
        except asyncio.CancelledError:
            await asyncio.shield(scribe.keep_partial())
            raise
        await self.store.end_run(run, owner=owner, config=self.digest)
        return run

    def strategy(self, name: str) -> Strategy:
        """By name: the main one, one of the configuration, or `single:WORKER`."""
        if name == MAIN:
            return self._conductor(MAIN, self.config.planner)
        if name.startswith(SINGLE):
            return single(name.removeprefix(SINGLE), self.pool)
        for section in self.config.strategy:
            if section.name == name:
                return self._configured(section)
        known = [MAIN, *(s.name for s in self.config.strategy), f"{SINGLE}WORKER"]
        raise ConfigError(f"there is no strategy {name!r}: there are {', '.join(known)}")

    def limits(self, strategy: str = MAIN) -> Limits:
        """Those of the configuration, with the steps and rounds of a strategy that has its own."""
        section = next((s for s in self.config.strategy if s.name == strategy), None)
        if section is None:
            return self._trained(self.config.planner)
        own = self._trained(section.planner) if section.planner else self._turns(section.name)
        steps, rounds = section.steps or own.steps, section.rounds or own.rounds
        return replace(own, steps=steps, rounds=rounds)

    def _trained(self, planner: PlannerSection) -> Limits:
        """The configuration's limits; steps and rounds that it leaves out are a checkpoint's."""
        own = self.config.limits.value()
        if not planner.checkpoint:
            return own
        used_to = find_checkpoint(planner.checkpoint).limits(own)
        given = self.config.limits.model_fields_set
        return replace(
            used_to,
            steps=own.steps if "steps" in given else used_to.steps,
            rounds=own.rounds if "rounds" in given else used_to.rounds,
        )

    def _turns(self, strategy: str) -> Limits:
        """The configuration's limits; every turn of a coordinator is a round."""
        head = self._coordinators[strategy].coordinator.head
        return replace(self.config.limits.value(), rounds=head.rules.turns if head.roles else 1)

    async def run(self, id: str, *, owner: str | None = None) -> Run | None:
        """A stored run, as far as it came."""
        record = await self.store.record(id, owner=owner)
        return load_run(record) if record else None

    def _configured(self, section: StrategySection) -> Strategy:
        allowed = None if section.workers is None else frozenset(section.workers)
        pool = self.pool.only(Rules(allowed))
        if section.planner:
            return self._conductor(section.name, section.planner, pool)
        return replace(self._coordinators[section.name], name=section.name, pool=pool)

    def _conductor(self, name: str, planner: PlannerSection, pool: Pool | None = None) -> Conductor:
        pool = pool or self.pool
        if planner.checkpoint:
            pool = find_checkpoint(planner.checkpoint).led(pool)
        return Conductor(self._planner(planner), pool, name, self.config.on_failure)

    def _coordinator(self, section: StrategySection) -> Trinity:
        from podium.trinity.load import load_trinity  # most configurations have none

        found = load_trinity(Path(section.head), self.pool, self._workshop.model)
        return replace(found, coordinator=replace(found.coordinator, sampled=section.sampled))

    def _planner(self, section: PlannerSection) -> Planner:
        if section.checkpoint:
            return self._checkpoints[section]
        if section.workflow:
            return FixedPlanner(read_workflow(Path(section.workflow), self.pool), self.pool.names)
        style = prompts.Style(section.show, section.prompt, section.binary)
        sampling = Sampling(max_tokens=section.max_tokens, temperature=section.temperature)
        return ModelPlanner(
            self._planning_worker(section.worker), style, sampling, section.repairs, section.held
        )

    def _planning_worker(self, name: str) -> Worker:
        if member := self.pool.named(name):
            return member.worker
        section = next(s for s in self.config.planner_worker if s.name == name)
        return self._member(section).worker

    def _member(self, section: WorkerSection) -> Member:
        if section.kind == "strategy":
            worker: Worker = StrategyWorker(section.name, Named(section.strategy, self.strategy))
            member = Member(worker)
        else:
            member = self._workshop.make(section)
        if self.config.recording != "off" and section.record and not member.program:
            recorded = RecordedWorker(member.worker, self.store, self.config.recording)
            member = replace(member, worker=recorded)
        return replace(
            member,
            description=section.description or member.description,
            accuracy=section.accuracy,
            fallback=section.fallback,
            region=section.region,
            prompt=section.prompt,
        )

    def _check(self, rules: Rules) -> None:
        unknown = ((rules.allowed or frozenset()) | rules.denied) - set(self.pool.names)
        if unknown:
            there = ", ".join(self.pool.names)
            raise ConfigError(f"there is no worker {min(unknown)!r} in the pool: {there}")

    def _describe(self) -> tuple[str, bytes]:
        """All that identifies results besides the question, and its digest."""
        facts = {
            "config": self.config.model_dump(mode="json"),
            "prices": {m.name: m.price for m in self.pool.members},
            "versions": {"podium": version("podium"), "python": platform.python_version()},
        }
        body = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(body).hexdigest()[:12], body

    async def _keep_facts(self) -> None:
        if not self._facts_kept:
            self._facts_kept = True
            await self.store.put_config(self.digest, self._facts)


class Scribe:
    """Listens to a run and writes down what can't be had again, then passes the event on."""

    def __init__(self, store: Store, emit: Emit, owner: str, config: str) -> None:
        self._store, self._emit = store, emit
        self._owner, self._config = owner, config
        self._run: Run | None = None
        self._kept: list[Event] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._run = event.run
            self._store.begin_run(event.run, owner=self._owner, config=self._config)
        elif isinstance(event, KEPT) and self._run is not None:
            self._store.put_progress(self._run.id, len(self._kept), pack(event))
            self._kept.append(event)
        self._emit(event)

    async def keep_partial(self) -> None:
        if self._run is not None:
            run = rebuild(self._run, self._kept, CANCELLED)
            await self._store.end_run(run, owner=self._owner, config=self._config)


@dataclass(frozen=True, slots=True)
class Named:
    """A strategy known by name until it is asked: strategies and workers may name each other."""

    name: str
    find: Callable[[str], Strategy]

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run:
        return await self.find(self.name).solve(question, terms)


def single(name: str, pool: Pool) -> Conductor:
    """One worker, asked the bare question."""
    if name not in pool.names:
        raise ConfigError(f"there is no worker {name!r} in the pool: {', '.join(pool.names)}")
    flow = Workflow((Step(pool.names.index(name), prompts.WHOLE),))
    return Conductor(FixedPlanner(flow, pool.names), pool, f"{SINGLE}{name}")


def read_workflow(path: Path, pool: Pool) -> Workflow:
    """A workflow written by hand.

    Raises:
        ConfigError: the file cannot be read.
        WorkflowError: it holds no workflow over this pool.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot read the workflow {path}: {exc.strerror}") from exc
    return parse(text, workers=len(pool), max_steps=32)

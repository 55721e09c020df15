"""Evaluate strategies on questions: resumable at any moment, by any number of processes.

An evaluation goes in legs. Where something is to be chosen, each worker is first asked alone on
dev; where a router is to be trained, on train; then every strategy is asked every question of the
split that is reported. A leg takes what is not done yet, question by question, and no answer is
lost: a failure is a row like any other, and says whose fault it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from statistics import fmean

from podium.app import SINGLE
from podium.errors import ConfigError
from podium.eval.legs import Leg, open_sandbox, score
from podium.eval.results import Results, Sample
from podium.eval.router import WORDS, Lessons
from podium.eval.setting import Setting
from podium.eval.strategies import Entrant, Field, Spec, Spend, Standing, build, parse_spec
from podium.eval.tasks import Item, draw
from podium.records import run_from
from podium.sandbox import Sandbox
from podium.workers import Pool

EXPECTED_TOKENS = 600
"""Of a reply, where nothing was measured yet: for the estimate alone."""
AT_ONCE = 256
"""Samples that are written together when they are scored again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be evaluated."""

    specs: Sequence[Spec]
    split: str = "test"
    limit: int | None = None
    samples: int = 1
    seed: int = 0
    concurrency: int = 16
    choose_on: str = "dev"
    choose_limit: int | None = None
    train_limit: int = 1000
    embedding: str = WORDS
    equal_spend: str = ""
    """The strategy whose spend per question the others are given."""
    retry_unscored: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a leg will roughly cost."""

    usd: float
    calls: int
    unpriced: Sequence[str]
    """Workers without a known price, whose share is missing."""


async def consent(estimate: Estimate) -> bool:
    """The default: spend."""
    return True


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on: told of every leg and sample, and asked before money is spent."""

    leg: Callable[[str, int, int], None] = lambda name, total, done: None
    sample: Callable[[Sample], None] = lambda sample: None
    approve: Callable[[Estimate], Awaitable[bool]] = consent


Engine = Callable[[Leg, Field, int], Awaitable[None]]
"""Does what is missing of a leg, so many questions at a time."""


async def here(leg: Leg, built: Field, concurrency: int) -> None:
    """In this process."""
    await leg.run(concurrency)


@dataclass(slots=True)
class Evaluation:
    setting: Setting
    plan: Plan
    results: Results
    watch: Watch = field(default_factory=Watch)
    engine: Engine = here
    _sandbox: Sandbox | None = None

    async def run(self) -> None:
        """All of it, as far as it is not done yet.

        Raises:
            ConfigError: the set-up differs from that of the results, something named does not
                exist, or the spending was not approved.
        """
        plan = self.plan
        await self.results.agree(self._facts())
        items = self._items(plan.split, plan.limit)
        if plan.retry_unscored:
            await self.results.forget_unscored(plan.split)
        async with AsyncExitStack() as stack:
            self._sandbox = await open_sandbox(items, stack)
            built = await self._field()
            if plan.equal_spend:
                built = await self._at_equal_spend(built, items)
            entrants = [build(spec, built) for spec in self._specs()]
            await self._introduce(entrants)
            await self._leg(plan.split, items, entrants, built)

    # ── before the questions that count ──

    def _specs(self) -> list[Spec]:
        """Each worker alone where all of them, or the oracle, are asked for."""
        found: dict[str, Spec] = {}
        for spec in self.plan.specs:
            every = spec.kind == "oracle" or (spec.kind == "single" and spec.name == "*")
            for one in self._singles() if every else [spec]:
                found[one.text] = one
        return list(found.values())

    def _singles(self) -> list[Spec]:
        models = [m.name for m in self.setting.pool.members if not m.program]
        return [Spec(f"{SINGLE}{name}", "single", name) for name in models]

    async def _field(self) -> Field:
        setting, plan = self.setting, self.plan
        built = Field(setting.pool, setting.limits, setting.find, setting.replay, plan.seed)
        singles = [build(spec, built) for spec in self._singles()]
        specs = [*plan.specs, *([parse_spec(plan.equal_spend)] if plan.equal_spend else [])]
        if plan.equal_spend or any(spec.chosen for spec in specs):
            built = replace(built, standings=await self._standings(singles, built))
        if any(spec.kind == "router" for spec in specs):
            built = replace(built, lessons=await self._lessons(singles, built))
        return built

    async def _standings(self, singles: Sequence[Entrant], built: Field) -> list[Standing]:
        """Each worker alone on dev, the best first; of equals the one that the pool lists first."""
        split = self.plan.choose_on
        if split == self.plan.split:
            raise ConfigError(
                f"the best worker is chosen on one split and reported on another: --choose-on is "
                f"{split!r}, and so is --split"
            )
        items = self._items(split, self.plan.choose_limit)
        await self._leg(split, items, singles, built)
        wanted = {item.id for item in items}
        samples = [s for s in await self.results.samples(split) if s.item in wanted]
        found = [_standing(e.row, samples) for e in singles]
        return sorted(found, key=lambda s: -s.accuracy)

    async def _lessons(self, singles: Sequence[Entrant], built: Field) -> Lessons:
        items = self._items("train", self.plan.train_limit)
        await self._leg("train", items, singles, built)
        names = [e.row for e in singles]
        samples = [s for s in await self.results.samples("train", names) if s.sample == 0]
        by = {(s.item, s.strategy): s.score for s in samples}
        rows = [(item, [by.get((item.id, name)) for name in names]) for item in items]
        whole = [(i.question, [v for v in row if v is not None]) for i, row in rows]
        whole = [(question, row) for question, row in whole if len(row) == len(names)]
        if len(whole) < 2:
            raise ConfigError("a router needs training questions that every worker answered")
        return Lessons(
            [question for question, _ in whole],
            [name.removeprefix(SINGLE) for name in names],
            [row for _, row in whole],
            [_standing(name, samples).usd for name in names],
            self.plan.embedding,
        )

    async def _at_equal_spend(self, built: Field, items: Sequence[Item]) -> Field:
        """What the strategy under test spends, as a bound for those that size themselves by it."""
        tested = build(parse_spec(self.plan.equal_spend), built)
        await self._introduce([tested])
        await self._leg(self.plan.split, items, [tested], built)
        samples = await self.results.samples(self.plan.split, [tested.row])
        spend = Spend(fmean(s.usd for s in samples), fmean(s.input + s.output for s in samples))
        capped = replace(
            built.limits,
            dollars=spend.usd or built.limits.dollars,
            tokens=built.limits.tokens if spend.usd else int(spend.tokens),
        )
        return replace(built, spend=spend, led_limits=capped)

    async def _introduce(self, entrants: Sequence[Entrant]) -> None:
        """Write down what each name stands for, and see that it still stands for the same."""
        known = await self.results.facts("entrants")
        for entrant in entrants:
            now = {"row": entrant.row, "says": entrant.says}
            if (before := known.setdefault(entrant.name, now)) != now:
                raise ConfigError(
                    f"{entrant.name} was {before} in these results and would now be {now}: choose "
                    "another --out"
                )
        await self.results.remember("entrants", known)
        reported = await self.results.facts("reported")
        await self.results.remember("reported", {**reported, self.plan.split: True})

    def _items(self, split: str, limit: int | None) -> Sequence[Item]:
        items = self.setting.load(split)
        if not items:
            raise ConfigError(f"{self.setting.label} has no questions in the split {split!r}")
        return items if limit is None else draw(items, limit)

    def _facts(self) -> Mapping[str, object]:
        plan = self.plan
        return {
            **self.setting.facts,
            "label": self.setting.label,
            "workers": [spec.name for spec in self._singles()],
            "replay": self.setting.replay,
            "limits": self.setting.limits,
            "seed": plan.seed,
            "choose_on": plan.choose_on,
            "choose_limit": plan.choose_limit,
            "train_limit": plan.train_limit,
            "embedding": plan.embedding,
            "equal_spend": plan.equal_spend,
            "podium": version("podium"),
        }

    async def _leg(
        self, split: str, items: Sequence[Item], entrants: Sequence[Entrant], built: Field
    ) -> None:
        rows = list({entrant.row: entrant for entrant in entrants}.values())
        await self.results.put_items(split, items)
        leg = Leg(
            self.results,
            split,
            {item.id: item for item in items},
            rows,
            self.plan.samples if split == self.plan.split else 1,
            self.setting.ledger,
            self._sandbox,
            self.watch.sample,
        )
        await leg.look()
        left, total = sum(map(len, leg.missing.values())), len(items) * leg.samples * len(rows)
        self.watch.leg(split, total, total - left)
        estimate = estimated(leg, self.setting.pool, built.standings)
        if not self.setting.replay and left and not await self.watch.approve(estimate):
            raise ConfigError("nothing more was asked: the spending was not approved")
        if left:
            await self.engine(leg, built, self.plan.concurrency)


def estimated(leg: Leg, pool: Pool, standings: Sequence[Standing]) -> Estimate:
    """What is missing of a leg, by what was measured of each worker, or else by its price."""
    measured = {s.worker: s.usd for s in standings}
    usd = calls = 0.0
    for (id, _), entrants in leg.missing.items():
        prompt = len(leg.items[id].question) // 4
        for worker, count in (pair for e in entrants for pair in e.calls.items()):
            member = pool.named(worker)
            price = member.price if member else None
            by_price = price.of(prompt, EXPECTED_TOKENS) if price else 0.0
            usd += count * measured.get(worker, by_price)
            calls += count
    asked = {worker for entrants in leg.missing.values() for e in entrants for worker in e.calls}
    unpriced = [m.name for m in pool.members if m.name in asked and m.price is None]
    return Estimate(usd, round(calls), unpriced)


def _standing(row: str, samples: Sequence[Sample]) -> Standing:
    own = [s for s in samples if s.strategy == row]
    scored = [s.score for s in own if s.score is not None]
    if not scored:
        raise ConfigError(f"{row} has no scored answer to choose by: see its failures")
    return Standing(
        row.removeprefix(SINGLE),
        fmean(scored),
        fmean(s.usd for s in own),
        fmean(s.input + s.output for s in own),
    )


async def rescore(results: Results, watch: Watch) -> int:
    """Grade every recorded answer again and ask nobody. Returns how many scores changed."""
    changed = 0
    for (split,) in await results.store.fetch("SELECT DISTINCT split FROM items"):
        items = {item.id: item for item in await results.items(split)}
        samples = await results.samples(split)
        watch.leg(f"{split} again", len(samples), 0)
        async with AsyncExitStack() as stack:
            sandbox = await open_sandbox(items.values(), stack)
            for at in range(0, len(samples), AT_ONCE):
                before = samples[at : at + AT_ONCE]
                again = [await _rescored(s, items[s.item], results, sandbox) for s in before]
                changed += sum(a.score != b.score for a, b in zip(again, before, strict=True))
                await results.put(*again)
                for sample in again:
                    watch.sample(sample)
    return changed


async def _rescored(
    sample: Sample, item: Item, results: Results, sandbox: Sandbox | None
) -> Sample:
    record = await results.store.record(sample.run)
    if record is None:
        raise ConfigError(f"the run {sample.run} of {sample.item} is not in the results")
    again = await score(run_from(record.run), item, sandbox)
    return replace(sample, score=again.value, read=again.answer, note=again.note)

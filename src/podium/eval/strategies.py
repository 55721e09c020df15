"""Strategies by name: what `--strategy` understands, and how a name becomes one.

    single:NAME            one worker alone; `single:*` is each of them
    best-single            the worker that was best on dev
    vote:K                 plurality of the K best on dev
    self-consistency:NAME:K, reflect:NAME:TURNS
    moa:AGGREGATOR:LAYERS  Mixture-of-Agents
    random, random-workflow
    router:knn:WEIGHT, router:logistic:WEIGHT
    cascade:A+B+C          the next one only while nobody confirms the latest
    conductor              the configuration's own planner; conductor:CHECKPOINT a trained one
    strategy:NAME          one of the configuration
    trinity:FILE           an evolved coordinator
    oracle                 some worker right: computed from the singles, never run

What is left out after a colon is chosen on dev, never on the questions that are reported. For a
worker's name `best` means that choice, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from podium.app import MAIN, SINGLE, single
from podium.checkpoints import load_conductor
from podium.conductor import Conductor, Strategy
from podium.errors import ConfigError
from podium.eval import baselines
from podium.eval.router import Lessons, Method, router
from podium.trinity.load import load_trinity
from podium.types import Limits
from podium.workers import Pool

Kind = Literal[
    "single",
    "best-single",
    "vote",
    "self-consistency",
    "reflect",
    "moa",
    "random",
    "random-workflow",
    "router",
    "cascade",
    "conductor",
    "strategy",
    "trinity",
    "oracle",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

BEST = "best"
VOICES, TURNS, RUNGS = 3, 5, 3
SAMPLES = 5
MOST_STEPS = 63
"""What the workflow language reads, less the step that counts."""

NUMBERED: Mapping[Kind, str] = {
    "vote": "how many vote",
    "self-consistency": "how many samples",
    "reflect": "how many turns",
    "moa": "how many layers",
}
NAMED: Mapping[Kind, str] = {
    "single": "a worker, or *",
    "router": "knn or logistic",
    "strategy": "a strategy of the configuration",
    "trinity": "a file",
}
"""Kinds that say nothing without a name."""
OPTIONAL: frozenset[Kind] = frozenset(
    {"moa", "cascade", "conductor", "self-consistency", "reflect"}
)
"""Kinds that may have one."""


@dataclass(frozen=True, slots=True)
class Spec:
    text: str
    kind: Kind
    name: str = ""
    number: int | None = None
    weight: float = 0.0

    @property
    def chosen(self) -> bool:
        """Whether something about it is chosen on dev."""
        if self.kind in ("best-single", "vote"):
            return True
        open_ones = ("moa", "cascade", "self-consistency", "reflect")
        return self.kind in open_ones and (not self.name or self.name == BEST)


def parse_specs(text: str) -> list[Spec]:
    """Several, with commas between them; each counts once."""
    parts = [part.strip() for part in text.split(",")]
    return [parse_spec(part) for part in dict.fromkeys(filter(None, parts))]


def parse_spec(text: str) -> Spec:
    """What one name asks for.

    Raises:
        ConfigError: there is no such kind, or what stands after the colon does not fit it.
    """
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"there is no strategy {text!r}; there are: {', '.join(KINDS)}")
    spec = Spec(text, kind)
    if kind == "router":
        return _routed(spec, rest)
    if spec.kind in NUMBERED:
        spec, rest = _numbered(spec, rest)
    wanted = NAMED.get(spec.kind)
    if wanted and not rest:
        raise ConfigError(f"{text!r} needs a name: {kind}:NAME, {wanted}")
    if rest and not wanted and spec.kind not in OPTIONAL:
        raise ConfigError(f"{text!r}: nothing may stand after {kind!r}, got {rest!r}")
    if colon and not rest and spec.number is None:
        raise ConfigError(f"{text!r} ends in a colon: name what comes after it, or leave it out")
    return replace(spec, name=rest)


def _numbered(spec: Spec, rest: str) -> tuple[Spec, str]:
    """A number at the end, if there is one; what is left is a name, which may hold colons."""
    name, _, last = rest.rpartition(":")
    if spec.kind == "vote" and rest and not rest.isdecimal():
        raise ConfigError(f"{spec.text!r}: {NUMBERED[spec.kind]} must be a number, got {rest!r}")
    if not last.isdecimal():
        return spec, rest
    number = int(last)
    if not 1 <= number <= MOST_STEPS:
        raise ConfigError(f"{spec.text!r}: {NUMBERED[spec.kind]} must be 1 to {MOST_STEPS}")
    return replace(spec, number=number), name


def _routed(spec: Spec, rest: str) -> Spec:
    method, colon, weight = rest.partition(":")
    if method not in get_args(Method):
        raise ConfigError(f"{spec.text!r}: a router is one of {', '.join(get_args(Method))}")
    try:
        return replace(spec, name=method, weight=float(weight) if colon else 0.0)
    except ValueError:
        raise ConfigError(
            f"{spec.text!r}: the weight of the price must be a number, got {weight!r}"
        ) from None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a worker did alone on the questions that choices are made on."""

    worker: str
    accuracy: float
    usd: float
    """Mean dollars per question."""
    tokens: float


@dataclass(frozen=True, slots=True)
class Spend:
    """What a question may cost on average: dollars, or tokens where nothing costs dollars."""

    usd: float
    tokens: float

    def buys(self, standings: Sequence[Standing]) -> float:
        """How often these workers together can be asked for it."""
        usd = sum(s.usd for s in standings)
        if self.usd and usd:
            return self.usd / usd
        return self.tokens / (sum(s.tokens for s in standings) or 1.0)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A strategy that takes part, and on what terms."""

    name: str
    row: str
    """The name its samples are kept under: that of the worker, for the best one."""
    strategy: Strategy
    limits: Limits
    calls: Mapping[str, float]
    """How often it asks each worker for one question, as far as that is known beforehand."""
    says: str = ""
    """What the name stands for, where something was chosen."""


@dataclass(frozen=True, slots=True)
class Field:
    """All that a strategy is built from."""

    pool: Pool
    limits: Limits
    find: Callable[[str], Strategy]
    """The configuration's strategies by name."""
    replay: bool = False
    """The pool knows nothing but whole answers to whole questions."""
    seed: int = 0
    standings: Sequence[Standing] = ()
    """Best first; of the questions that choices are made on."""
    lessons: Lessons | None = None
    spend: Spend | None = None
    """What the strategy under test spends: others choose their size by it."""
    led_limits: Limits | None = None
    """For those that decide for themselves how much they ask."""

    @property
    def workers(self) -> list[str]:
        """The models of the pool, without the programs."""
        return [m.name for m in self.pool.members if not m.program]

    def number(self, worker: str) -> int:
        if worker == BEST and BEST not in self.pool.names:
            worker = self.standings[0].worker
        if worker not in self.pool.names:
            there = ", ".join(self.workers)
            raise ConfigError(f"there is no worker {worker!r} in the pool: {there}")
        return self.pool.names.index(worker)

    def names(self, numbers: Sequence[int]) -> dict[str, float]:
        found = [self.pool.names[n] for n in numbers]
        return {name: float(found.count(name)) for name in found}


def build(spec: Spec, field: Field) -> Entrant:
    """The strategy that a name asks for.

    Raises:
        ConfigError: a worker, checkpoint or file it names does not exist, or a recorded world
            cannot answer what it would ask.
    """
    if field.replay and _asks_anew(spec):
        raise ConfigError(
            f"{spec.text!r} asks what was never recorded: a recorded world holds one answer of "
            "each worker to each whole question"
        )
    return BUILDERS[spec.kind](spec, field)


def _asks_anew(spec: Spec) -> bool:
    if spec.kind == "self-consistency":
        return spec.number != 1
    return spec.kind == "moa" or (spec.kind == "reflect" and spec.number != 1)


def _entrant(
    spec: Spec, made: Conductor, field: Field, *, asks: Sequence[int], rounds: int = 1
) -> Entrant:
    limits = replace(field.limits, steps=max(field.limits.steps, len(asks) + 1), rounds=rounds)
    calls = field.names(asks)
    says = " + ".join(f"{name} x{n:.0f}" if n > 1 else name for name, n in calls.items())
    return Entrant(spec.text, spec.text, made, limits, calls, says)


def _single(spec: Spec, field: Field) -> Entrant:
    number = field.number(spec.name)
    return _entrant(spec, single(field.pool.names[number], field.pool), field, asks=[number])


def _best_single(spec: Spec, field: Field) -> Entrant:
    best = field.standings[0].worker
    return replace(
        _single(Spec(f"{SINGLE}{best}", "single", best), field), name=spec.text, says=best
    )


def _vote(spec: Spec, field: Field) -> Entrant:
    ranked, count = field.standings, spec.number
    if count is None:
        fits = [k for k in range(1, len(ranked) + 1) if _affordable(ranked[:k], field)]
        count = (max(fits) if fits else 1) if field.spend else VOICES
    if count > len(ranked):
        raise ConfigError(f"{spec.text!r}: the pool has {len(ranked)} workers")
    voices = [field.number(s.worker) for s in ranked[:count]]
    return _entrant(spec, baselines.plurality(spec.text, voices, field.pool), field, asks=voices)


def _affordable(standings: Sequence[Standing], field: Field) -> bool:
    return field.spend is not None and field.spend.buys(standings) >= 1.0


def _affordable_times(number: int, field: Field) -> int | None:
    """How often the spend allows to ask this worker; None where nothing is said of spend."""
    if field.spend is None:
        return None
    own = [s for s in field.standings if s.worker == field.pool.names[number]]
    return max(1, min(MOST_STEPS, int(field.spend.buys(own))))


def _self_consistency(spec: Spec, field: Field) -> Entrant:
    number = field.number(spec.name or BEST)
    voices = [number] * (spec.number or _affordable_times(number, field) or SAMPLES)
    return _entrant(spec, baselines.plurality(spec.text, voices, field.pool), field, asks=voices)


def _reflect(spec: Spec, field: Field) -> Entrant:
    number = field.number(spec.name or BEST)
    turns = spec.number or _affordable_times(number, field) or TURNS
    made = baselines.reflection(spec.text, number, field.pool, turns=turns)
    return _entrant(spec, made, field, asks=[number] * turns)


def _moa(spec: Spec, field: Field) -> Entrant:
    aggregator, layers = field.number(spec.name or BEST), spec.number or 1
    proposers = [field.number(worker) for worker in field.workers]
    if len(proposers) * layers > MOST_STEPS:
        raise ConfigError(f"{spec.text!r}: {len(proposers)} workers x {layers} are too many steps")
    made = baselines.mixture(spec.text, proposers, aggregator, field.pool, layers=layers)
    return _entrant(spec, made, field, asks=[*proposers * layers, aggregator])


def _random(spec: Spec, field: Field) -> Entrant:
    numbers = [field.number(worker) for worker in field.workers]
    made = baselines.random_worker(spec.text, numbers, field.pool, seed=field.seed)
    return _even(_entrant(spec, made, field, asks=numbers), 1.0)


def _random_workflow(spec: Spec, field: Field) -> Entrant:
    numbers = [field.number(worker) for worker in field.workers]
    steps = min(field.limits.steps, len(numbers)) if field.replay else field.limits.steps
    made = baselines.random_workflow(
        spec.text, numbers, field.pool, seed=field.seed, steps=steps, reading=not field.replay
    )
    return _even(_entrant(spec, made, field, asks=numbers), (1 + steps) / 2)


def _even(entrant: Entrant, calls: float) -> Entrant:
    """As many calls in all, of anybody."""
    share = calls / len(entrant.calls)
    return replace(entrant, calls=dict.fromkeys(entrant.calls, share), says="")


def _router(spec: Spec, field: Field) -> Entrant:
    assert field.lessons is not None
    method = cast(Method, spec.name)
    made = router(spec.text, method, field.pool, field.lessons, weight=spec.weight)
    numbers = [field.number(worker) for worker in field.lessons.workers]
    return _even(_entrant(spec, made, field, asks=numbers), 1.0)


def _cascade(spec: Spec, field: Field) -> Entrant:
    named = spec.name.split("+") if not spec.chosen else _ladder(field.standings)
    if len(named) < 2:
        raise ConfigError(f"{spec.text!r}: a cascade has at least two workers: A+B+C")
    ladder = [field.number(worker) for worker in named]
    made = baselines.cascade(spec.text, ladder, field.pool)
    return _entrant(spec, made, field, asks=ladder, rounds=max(2, len(ladder) - 1))


def _ladder(ranked: Sequence[Standing]) -> list[str]:
    """The best worker on top; below it the two best of those at half its price or less."""
    top = ranked[0]
    cheap = [s for s in ranked[1:] if s.usd <= top.usd / 2] or list(ranked[1:])
    return [s.worker for s in [*cheap[: RUNGS - 1], top]]


def _conductor(spec: Spec, field: Field) -> Entrant:
    if not spec.name:
        return _led(spec, field.find(MAIN), field)
    limits = field.led_limits or field.limits
    made, own = load_conductor(spec.name, field.pool, limits)
    return replace(_led(spec, replace(made, name=spec.text), field), limits=own)


def _configured(spec: Spec, field: Field) -> Entrant:
    return _led(spec, field.find(spec.name), field)


def _trinity(spec: Spec, field: Field) -> Entrant:
    return _led(spec, load_trinity(Path(spec.name), field.pool), field)


def _led(spec: Spec, strategy: Strategy, field: Field) -> Entrant:
    """Somebody else decides how much is asked: as many calls as a workflow may have steps."""
    calls = field.limits.steps * field.limits.rounds / max(1, len(field.workers))
    each = dict.fromkeys(field.workers, calls)
    return Entrant(spec.text, spec.text, strategy, field.led_limits or field.limits, each)


def _oracle(spec: Spec, field: Field) -> Entrant:
    raise AssertionError("the oracle is computed, not run")


BUILDERS: Mapping[Kind, Callable[[Spec, Field], Entrant]] = {
    "single": _single,
    "best-single": _best_single,
    "vote": _vote,
    "self-consistency": _self_consistency,
    "reflect": _reflect,
    "moa": _moa,
    "random": _random,
    "random-workflow": _random_workflow,
    "router": _router,
    "cascade": _cascade,
    "conductor": _conductor,
    "strategy": _configured,
    "trinity": _trinity,
    "oracle": _oracle,
}

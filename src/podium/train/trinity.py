"""Train TRINITY: a supervised warm start where rewards were measured, then evolution.

    train_trinity(tomllib.loads(text), Path("runs/router"))

Everything is kept in the run's directory as it comes: the states that were read, what each worker
earned, what every generation was told. A run that was killed goes on where it stood and ends as
it would have ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from podium.errors import ConfigError
from podium.eval.tiny.skills import Split
from podium.ledger import Ledger
from podium.models import KNOWN, find_model
from podium.train import data, routers
from podium.train.data import Problem
from podium.train.episodes import Heard, Measured, Stand, measure
from podium.train.evolve import Bonuses
from podium.train.recipe import Model, Recipe
from podium.train.search import evolved
from podium.train.trinity_recipe import ModelSection, TrinityRecipe, read_recipe
from podium.trinity import (
    CachedStates,
    Head,
    LocalStates,
    Reading,
    Rules,
    States,
    TransformersStates,
)
from podium.trinity.prompts import coordinator_messages
from podium.trinity.states import file_digest
from podium.types import Limits
from podium.types import Rules as Denials
from podium.workers import Pool

if TYPE_CHECKING:
    from podium.train.routers import Array

log = logging.getLogger(__name__)

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
READERS = 4
"""Prompts that llama.cpp reads at once: while one waits for Python another is computed."""
CHUNK = 128
"""Questions that are read before the next look at the log."""


def train_trinity(recipe: dict[str, Any], out: Path) -> Path:
    """Run a recipe into a directory, or go on with it, and return the head's file.

    Raises:
        ConfigError: the recipe is wrong, or the directory is another recipe's.
    """
    settings = read_recipe(recipe)
    out.mkdir(parents=True, exist_ok=True)
    _claim(settings, out / "recipe.json")
    return asyncio.run(_train(settings, out))


def _claim(settings: TrinityRecipe, file: Path) -> None:
    body = settings.model_dump_json(indent=1)
    if file.exists() and file.read_text(encoding="utf-8") != body:
        raise ConfigError(f"{file.parent} is the directory of another recipe: choose a new one")
    file.write_text(body, encoding="utf-8")


async def _train(settings: TrinityRecipe, out: Path) -> Path:
    from podium.train.trinity_report import report

    training = await Training.prepare(settings, out)
    try:
        heads = {price: await training.head(price) for price in settings.prices}
        await report(training, heads)
    finally:
        await training.close()
    return out / "head.json"


@dataclass(frozen=True, slots=True)
class Training:
    settings: TrinityRecipe
    out: Path
    stand: Stand
    exam: Stand
    """Where test is played: on the same workers, unless others only stood in for them."""
    blank: Head
    """No opinion yet, or what an earlier head knows of this pool."""
    problems: dict[Split, list[Problem]]
    states: dict[Split, Array]
    """What the coordinator reads before the first turn."""
    variety: Array
    """States as they come up in any turn: what the search has to tell apart."""
    measured: dict[Split, Measured]
    close: Callable[[], Awaitable[None]]
    """Lets go of the pool."""

    @staticmethod
    async def prepare(settings: TrinityRecipe, out: Path) -> Training:
        source = data.load(_as_recipe(settings))
        problems = {s: _some(source.of(s), s, settings) for s in SPLITS}
        source_of_states = reader(settings.model)
        states = CachedStates(source_of_states, out / "states.bin")
        reading = await _reading(states, settings.model, problems["train"][0])
        if isinstance(source_of_states, TransformersStates) and reading.tuned:
            scales = await source_of_states.tunable(reading.tuned)
            reading = replace(reading, offsets=(0.0,) * scales)
        ledger = Ledger(Limits(dollars=settings.dollars))
        stand = Stand(source.pool, states, settings.limits.value(), ledger)
        pool, close = _examined(settings, source)
        exam = stand if pool is source.pool else replace(stand, pool=pool)
        blank = _blank(settings, reading, source.pool.names)
        read = {s: await _read(states, reading, some) for s, some in problems.items()}
        measured = {
            s: await _measured(out, s, some, exam if s == "test" else stand)
            for s, some in problems.items()
        }
        found = Training(
            settings, out, stand, exam, blank, problems, read, read["train"], measured, close
        )
        return replace(found, variety=await _variety(found))

    async def varied(self, settings: TrinityRecipe, label: str) -> Training:
        """The same questions and workers under other settings, in a directory of its own."""
        out = self.out / label
        out.mkdir(exist_ok=True)
        reading = replace(self.reading, position=settings.model.position)
        blank = _blank(settings, reading, self.workers)
        states = self.stand.states
        read = {s: await _read(states, reading, some) for s, some in self.problems.items()}
        found = replace(self, settings=settings, out=out, blank=blank, states=read)
        return replace(found, variety=await _variety(found))

    @property
    def workers(self) -> tuple[str, ...]:
        return self.stand.pool.names

    @property
    def reading(self) -> Reading:
        return self.blank.reading

    def basis(self) -> routers.Basis:
        import numpy as np

        components = self.settings.evolution.components
        if components is None:
            return routers.Basis(np.eye(self.reading.width))
        return routers.Basis.of(self.variety, components)

    def weights(self, price: float) -> Bonuses:
        own = self.settings.bonuses
        return Bonuses(own.diversity, own.turns, price)

    def earned(self, split: Split, price: float) -> Array:
        """Rewards less what the calls cost, by question and worker."""
        import numpy as np

        found = self.measured[split]
        earned: Array = np.array(found.rewards) - 1000 * price * np.array(found.dollars)
        return earned

    def start(self, price: float) -> Head:
        """Where evolution begins: the blank head, or one that knows what each worker earned."""
        warm = self.settings.warm
        if warm is None:
            return self.blank
        found = routers.warm_start(
            self.states["train"],
            self.earned("train", price),
            [p.item.category for p in self.problems["train"]],
            shrink=routers.Shrink(warm.shrink_kinds, warm.shrink_questions),
        )
        rows = (found / warm.temperature).tolist()
        return replace(self.blank, rows=(*map(tuple, rows), *self.blank.rows[len(rows) :]))

    async def head(self, price: float) -> Head:
        """Warm up and evolve for this price, and keep what is best on dev."""
        return await evolved(self, price, self.basis(), self.start(price), f"price-{price:g}")

    def size(self, basis: routers.Basis) -> int:
        """How many numbers are searched for."""
        return len(self.blank.rows) * basis.to.shape[1] + len(self.reading.offsets)

    async def validate(self, head: Head, price: float) -> dict[str, float]:
        played = await self.stand.play(head, self.problems["dev"])
        worth = played.fitness(self.weights(price), self.settings.rules.turns)
        return {"accuracy": played.accuracy, "dollars": played.dollars, "fitness": worth or 0.0}


def _as_recipe(settings: TrinityRecipe) -> Recipe:
    """What decides the questions and the pool, in the form that a Conductor's recipe has."""
    return Recipe(
        name=settings.name,
        seed=settings.seed,
        model=Model(base=settings.model.base),
        data=settings.data,
        pool=settings.pool,
        limits=settings.limits,
    )


def reader(model: ModelSection) -> States:
    """The engine that reads the states."""
    if model.engine == "llama.cpp":
        from podium.workers.local import LocalModel

        return LocalStates(LocalModel(find_model(model.base), parallel=READERS))
    from podium.workers.weights import base_directory

    unpacked = model.base in KNOWN or model.base.endswith(".gguf")
    digest = file_digest(find_model(model.base)) if unpacked else ""
    return TransformersStates(base_directory(model.base), digest=digest)


async def _reading(states: States, model: ModelSection, problem: Problem) -> Reading:
    """How the model is read, and how wide its states turn out to be."""
    how = (model.position, model.question_chars, model.tuned)
    reading = Reading(model.base, states.digest, 0, *how)
    return replace(reading, width=len(await _state(states, reading, problem)))


async def _state(states: States, reading: Reading, problem: Problem) -> Sequence[float]:
    messages = coordinator_messages(problem.question, (), chars=reading.question_chars)
    return await states.state(messages, reading)


async def _read(states: States, reading: Reading, problems: Sequence[Problem]) -> Array:
    import numpy as np

    found: list[Sequence[float]] = []
    for at in range(0, len(problems), CHUNK):
        some = problems[at : at + CHUNK]
        found += await asyncio.gather(*(_state(states, reading, p) for p in some))
        log.info("%d of %d states read", len(found), len(problems))
    return np.array(found)


async def _measured(out: Path, split: Split, problems: Sequence[Problem], stand: Stand) -> Measured:
    file = out / f"measured-{split}.json"
    if not file.exists():
        found = await measure(problems, stand.pool, stand.ledger)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(found)), encoding="utf-8")
        part.replace(file)
    return Measured(**json.loads(file.read_text(encoding="utf-8")))


def _some(problems: list[Problem], split: Split, settings: TrinityRecipe) -> list[Problem]:
    wanted = settings.questions
    most = {"train": wanted.train, "dev": wanted.dev, "test": wanted.test}[split]
    kept = [p for p in problems if not wanted.kinds or p.item.category in wanted.kinds]
    Random(settings.seed).shuffle(kept)
    return kept[:most]


def _examined(
    settings: TrinityRecipe, source: data.Source
) -> tuple[Pool, Callable[[], Awaitable[None]]]:
    """Whom test is played with, and how to let go of everybody."""
    if not settings.exam:
        return source.pool, source.close
    podium = data.workers_of(settings.exam)
    missing = set(source.pool.names) - set(podium.pool.names)
    if missing:
        raise ConfigError(f"{settings.exam} has no worker {min(missing)!r}, which is trained on")

    async def close() -> None:
        await source.close()
        await podium.close()

    return podium.pool.only(Denials(frozenset(source.pool.names))), close


def _blank(settings: TrinityRecipe, reading: Reading, workers: Sequence[str]) -> Head:
    blank = Head.zero(reading, workers, settings.roles)
    if settings.start:
        blank = Head.load(Path(settings.start)).for_workers(workers)
        same = replace(blank.reading, offsets=reading.offsets) == reading
        if not same or blank.roles != settings.roles:
            raise ConfigError(
                f"{settings.start} reads another model, or reads it otherwise, or has other "
                "roles: it can't be gone on from here"
            )
    return replace(blank, rules=Rules(**settings.rules.model_dump()), log=())


async def _variety(training: Training) -> Array:
    """The first turns' states and, where there may be more turns, those of runs at random."""
    import numpy as np

    first = training.states["train"]
    if not training.settings.roles:
        return first
    heard = Heard(training.stand.states)
    stand = replace(training.stand, states=heard)
    anybody = training.blank.with_weights([0.0] * len(training.blank.weights))
    await stand.play(anybody, training.problems["train"], seed=training.settings.seed)
    # In an order that does not depend on which run was quicker: sums of floats do.
    return np.concatenate([first, np.array(sorted(map(tuple, heard.states_read)))])

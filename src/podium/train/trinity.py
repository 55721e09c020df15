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
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from podium.errors import ConfigError
from podium.ledger import Ledger
from podium.models import KNOWN, find_model
from podium.train import data, routers
from podium.train.data import Problem
from podium.train.episodes import Measured, Stand, measure
from podium.train.evolve import Bonuses, Evolution
from podium.train.recipe import Model, Recipe
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

if TYPE_CHECKING:
    from podium.train.routers import Array

log = logging.getLogger(__name__)

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
    reading: Reading
    problems: dict[data.Split, list[Problem]]
    states: dict[data.Split, Array]
    """What the coordinator reads before the first turn."""
    measured: dict[data.Split, Measured]
    close: Callable[[], Awaitable[None]]
    """Lets go of the pool."""

    @staticmethod
    async def prepare(settings: TrinityRecipe, out: Path) -> Training:
        source = data.load(_as_recipe(settings))
        kept: dict[data.Split, int | None] = {
            "train": settings.questions.train,
            "dev": settings.questions.dev,
            "test": settings.questions.test,
        }
        problems = {s: _some(source.of(s), most, settings.seed) for s, most in kept.items()}
        states = CachedStates(reader(settings.model), out / "states.bin")
        reading = await _reading(states, settings.model, problems["train"][0])
        stand = Stand(
            source.pool,
            states,
            Rules(**settings.rules.model_dump()),
            settings.limits.value(),
            Ledger(Limits(dollars=settings.dollars)),
        )
        read = {s: await _read(states, reading, some) for s, some in problems.items()}
        measured = {s: await _measured(out, s, some, stand) for s, some in problems.items()}
        return Training(settings, out, stand, reading, problems, read, measured, source.close)

    @property
    def workers(self) -> tuple[str, ...]:
        return self.stand.pool.names

    def blank(self) -> Head:
        if self.settings.start:
            return Head.load(Path(self.settings.start)).for_workers(self.workers)
        return Head.zero(self.reading, self.workers, self.settings.roles)

    def basis(self) -> routers.Basis:
        import numpy as np

        components = self.settings.evolution.components
        if components is None:
            return routers.Basis(np.eye(self.reading.width))
        return routers.Basis.of(self.states["train"], components)

    def weights(self, price: float) -> Bonuses:
        own = self.settings.bonuses
        return Bonuses(own.diversity, own.turns, price)

    def earned(self, split: data.Split, price: float) -> Array:
        """Rewards less what the calls cost, by question and worker."""
        import numpy as np

        found = self.measured[split]
        earned: Array = np.array(found.rewards) - 1000 * price * np.array(found.dollars)
        return earned

    def start(self, price: float, basis: routers.Basis) -> Array:
        """Where evolution begins, in the coordinates of the basis."""
        import numpy as np

        warm, size = self.settings.warm, basis.to.shape[1]
        if warm is None:
            rows = np.array(self.blank().rows)
            back: Array = np.linalg.lstsq(basis.to, rows.T, rcond=None)[0].T.reshape(-1)
            return back
        features = self.states["train"] @ basis.to
        found = routers.warm_start(
            features,
            self.earned("train", price),
            temperature=warm.temperature,
            decay=warm.decay,
            steps=warm.steps,
        )
        return np.concatenate([found, np.zeros(size * len(self.settings.roles))])

    async def head(self, price: float) -> Head:
        """Warm up and evolve for this price, and keep what is best on dev."""
        basis = self.basis()
        return await evolved(self, price, basis, self.start(price, basis), f"price-{price:g}")

    def shaped(self, vector: Array, basis: routers.Basis) -> Head:
        rows = basis.rows(vector)
        return replace(self.blank(), rows=tuple(tuple(row) for row in rows.tolist()))

    async def validate(self, head: Head, price: float) -> dict[str, float]:
        played = await self.stand.play(head, self.problems["dev"])
        worth = played.fitness(self.weights(price), self.settings.rules.turns)
        return {"accuracy": played.accuracy, "dollars": played.dollars, "fitness": worth or 0.0}


async def evolved(
    training: Training, price: float, basis: routers.Basis, start: Array, label: str
) -> Head:
    """Evolve from a start, generation by generation, each written down before the next."""
    settings = training.settings.evolution
    search = Evolution(
        start,
        sigma=settings.sigma,
        seed=training.settings.seed,
        population=settings.population,
    )
    kept = _Log(training.out / f"evolution-{label}.jsonl")
    best, best_head = -1e9, training.blank()
    while True:
        done = search.generation
        line = kept.line(done) or await _generation(training, search, basis, price)
        kept.keep(done, line)
        if (dev := line.get("dev")) and dev["fitness"] > best:
            best, best_head = dev["fitness"], training.shaped(search.mean, basis)
        if done == settings.generations:
            return replace(best_head, log=tuple(kept.lines))
        search.tell(line["fitness"])


async def _generation(
    training: Training, search: Evolution, basis: routers.Basis, price: float
) -> dict[str, Any]:
    """Look at dev when it is time, then play every candidate's episodes."""
    settings = training.settings.evolution
    number, line = search.generation, dict[str, Any](generation=search.generation)
    if number % settings.validate_every == 0 or number == settings.generations:
        line["dev"] = await training.validate(training.shaped(search.mean, basis), price)
    if number == settings.generations:
        return line
    seed = number if settings.sampled else None
    played = await asyncio.gather(
        *(
            training.stand.play(
                training.shaped(vector, basis), _draw(training, number, i), seed=seed
            )
            for i, vector in enumerate(search.ask())
        )
    )
    weights, turns = training.weights(price), training.settings.rules.turns
    line["fitness"] = [p.fitness(weights, turns) for p in played]
    line["dropped"] = sum(p.dropped for p in played)
    line["sigma"] = search.sigma
    log.info("generation %d: %s", number, _middle(line["fitness"]))
    return line


def _draw(training: Training, generation: int, candidate: int) -> list[Problem]:
    settings = training.settings
    own = "" if settings.evolution.same_questions else candidate
    rng = Random(f"{settings.seed} {generation} {own}")
    return rng.choices(training.problems["train"], k=settings.evolution.repeats)


def _middle(fitness: Sequence[float | None]) -> str:
    known = [f for f in fitness if f is not None]
    return f"{sum(known) / len(known):.3f}" if known else "nothing scored"


class _Log:
    """One line per generation. A line that was cut off by a kill never was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole, _, _ = text.rpartition("\n")
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        if path.exists():
            path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")

    def line(self, generation: int) -> dict[str, Any] | None:
        return self.lines[generation] if generation < len(self.lines) else None

    def keep(self, generation: int, line: dict[str, Any]) -> None:
        if generation < len(self.lines):
            return
        self.lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


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
    name = Path(model.base).name
    reading = Reading(name, states.digest, 0, model.position, model.question_chars)
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


async def _measured(
    out: Path, split: data.Split, problems: Sequence[Problem], stand: Stand
) -> Measured:
    file = out / f"measured-{split}.json"
    if not file.exists():
        found = await measure(problems, stand.pool, stand.ledger)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(found)), encoding="utf-8")
        part.replace(file)
    return Measured(**json.loads(file.read_text(encoding="utf-8")))


def _some(problems: list[Problem], most: int | None, seed: int) -> list[Problem]:
    Random(seed).shuffle(problems)
    return problems[:most]

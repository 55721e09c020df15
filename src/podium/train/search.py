"""Evolution of a head: candidates play, the search is told, and every generation is written down.

The log of a search is its checkpoint. A run that was killed walks it again and goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from podium.train import routers
from podium.train.data import Problem
from podium.train.evolve import Evolution
from podium.trinity import Head

if TYPE_CHECKING:
    from podium.train.routers import Array
    from podium.train.trinity import Training

log = logging.getLogger(__name__)


def moved(head: Head, vector: Array, basis: routers.Basis) -> Head:
    """A head with its weights, and its model's tuned values, moved along a vector."""
    import numpy as np

    cut = len(head.rows) * basis.to.shape[1]
    rows = np.array(head.rows) + basis.rows(vector[:cut])
    offsets = np.array(head.reading.offsets) + vector[cut:]
    reading = replace(head.reading, offsets=tuple(offsets.tolist()))
    return replace(head, reading=reading, rows=tuple(map(tuple, rows.tolist())))


async def evolved(
    training: Training, price: float, basis: routers.Basis, start: Head, label: str
) -> Head:
    """Evolve from a head, generation by generation, each written down before the next."""
    import numpy as np

    settings = training.settings.evolution
    search = Evolution(
        np.zeros(training.size(basis)),
        sigma=settings.sigma,
        seed=training.settings.seed,
        population=settings.population,
    )

    def place(vector: Array) -> Head:
        return moved(start, vector, basis)

    kept = _Log(training.out / f"evolution-{label}.jsonl")
    best, best_head = -1e9, start
    while True:
        done = search.generation
        line = kept.line(done) or await _generation(training, search, price, place)
        kept.keep(done, line)
        if (dev := line.get("dev")) and dev["fitness"] > best:
            best, best_head = dev["fitness"], place(search.mean)
        if done == settings.generations:
            return replace(best_head, log=tuple(kept.lines))
        search.tell(line["fitness"])


async def _generation(
    training: Training, search: Evolution, price: float, place: Callable[[Array], Head]
) -> dict[str, Any]:
    """Look at dev when it is time, then play every candidate's episodes."""
    settings = training.settings.evolution
    number, line = search.generation, dict[str, Any](generation=search.generation)
    if number % settings.validate_every == 0 or number == settings.generations:
        line["dev"] = await training.validate(place(search.mean), price)
    if number == settings.generations:
        return line
    seed = number if settings.sampled else None
    played = await asyncio.gather(
        *(
            training.stand.play(place(vector), _draw(training, number, i), seed=seed)
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

"""What evolution is compared with: other learners on as many episodes, and other routers.

Random search and REINFORCE find the same kind of head from the same kind of episodes. Nearest
neighbours and logistic regression are given what each worker earned on every training question,
once on the head's own hidden states and once on the words of the question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from podium.eval.router import Lessons, Method, train
from podium.train import routers
from podium.train.episodes import Played
from podium.train.evolve import population_size
from podium.train.routers import Basis
from podium.train.search import evolved, moved
from podium.train.trinity import Training
from podium.trinity import Head

if TYPE_CHECKING:
    from podium.train.routers import Array

SPREAD = 0.5
"""Random search draws each weight from [-0.5, 0.5], as published."""
NEIGHBOURS = 40
STRENGTH = 1e-3
"""Of the logistic regression on hidden states: scikit-learn's C."""
RATE = 0.02
"""Of REINFORCE."""


async def warm(training: Training, price: float) -> Head:
    """The start of evolution, as it is."""
    return training.start(price)


async def published(training: Training, price: float) -> Head:
    """Evolution from nothing in the raw coordinates, each candidate on questions of its own."""
    import numpy as np

    way = training.settings.evolution.model_copy(
        update={"sigma": 0.03, "same_questions": False, "population": None, "sampled": True}
    )
    plain = replace(training, settings=training.settings.model_copy(update={"evolution": way}))
    basis = Basis(np.eye(training.reading.width))
    return await evolved(plain, price, basis, plain.blank, "published")


async def random_search(training: Training, price: float) -> Head:
    """As many episodes, dealt out evenly to heads drawn at random; the best of them."""
    import numpy as np

    basis, settings = training.basis(), training.settings.evolution
    size = training.size(basis)
    rng = np.random.default_rng(training.settings.seed)
    trials = settings.population or population_size(size)
    each = settings.generations * settings.repeats
    best, found = -np.inf, training.blank
    for trial in range(trials):
        head = moved(training.blank, rng.uniform(-SPREAD, SPREAD, size), basis)
        some = Random(trial).choices(training.problems["train"], k=each)
        played = await training.stand.play(head, some, seed=trial)
        worth = played.fitness(training.weights(price), training.settings.rules.turns)
        if worth is not None and worth > best:
            best, found = worth, head
    return found


async def reinforce(training: Training, price: float) -> Head:
    """Policy gradient on as many episodes, a generation's worth of them at a step. Routers only."""
    import numpy as np

    basis, settings = training.basis(), training.settings.evolution
    shape = (basis.to.shape[1], len(training.workers))
    batch = settings.repeats * (settings.population or population_size(shape[0] * shape[1]))
    index = {p.id: i for i, p in enumerate(training.problems["train"])}
    features = training.states["train"] @ basis.to
    rng = Random(training.settings.seed)

    async def play(weights: Array) -> routers.Batch:
        head = moved(training.blank, weights, basis)
        some = rng.choices(training.problems["train"], k=batch)
        episodes = (await training.stand.play(head, some, seed=rng.getrandbits(32))).episodes
        return (
            features[[index[e.problem.id] for e in episodes]],
            np.array([training.workers.index(e.picks[0]) for e in episodes]),
            np.array([e.reward - 1000 * price * e.dollars for e in episodes]),
        )

    found = await routers.reinforce(shape, play, steps=settings.generations, rate=RATE)
    return moved(training.blank, found, basis)


LEARNERS: dict[str, Callable[[Training, float], Awaitable[Head]]] = {
    "random search": random_search,
    "REINFORCE": reinforce,
    "evolved as published": published,
}


def estimates(training: Training) -> dict[str, Array]:
    """What each worker is expected to score on each test question, by router."""
    import numpy as np

    rewards = np.array(training.measured["train"].rewards)
    states, asked = training.states["train"], training.states["test"]
    near = min(NEIGHBOURS, len(rewards) - 1)
    return {
        "kNN on states": routers.nearest(states, rewards, neighbours=near)(asked),
        "logistic on states": routers.logistic(states, rewards, strength=STRENGTH)(asked),
        "kNN on words": _on_words("knn", training),
        "logistic on words": _on_words("logistic", training),
    }


def _on_words(method: Method, training: Training) -> Array:
    import numpy as np

    measured = training.measured["train"]
    lessons = Lessons(
        [p.question.text for p in training.problems["train"]],
        training.workers,
        measured.rewards,
        np.array(measured.dollars).mean(axis=0).tolist(),
    )
    chances = train(method, lessons)
    return np.array([chances(p.question.text) for p in training.problems["test"]])


def aligned(played: Played, ids: list[str]) -> tuple[list[float], list[float]]:
    """Scores and dollars in the order of these ids; what was dropped counts as wrong."""
    found = {e.problem.id: e for e in played.episodes}
    scores = [found[i].reward if i in found else 0.0 for i in ids]
    return scores, [found[i].dollars if i in found else 0.0 for i in ids]

"""Routers by supervision and by gradient: the warm start, and what evolution is compared with.

All of them read the same hidden states as the head, and all that are given rewards are given the
measured reward of every worker on every training question. Arrays: `states` is questions x width,
`rewards` and `dollars` are questions x workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Batch = tuple[Array, NDArray[np.int64], Array]
    """Sampled episodes: the features that were read, who was picked, and what it earned."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Coordinates in which states vary evenly: the leading principal directions, scaled.

    Hidden states of different questions are nearly parallel, and a step along one raw coordinate
    mostly moves what they share. A map that is linear in these coordinates is linear in the raw
    state, still without a bias.
    """

    to: Array
    """Width x components: from states to coordinates."""

    @staticmethod
    def of(states: Array, components: int) -> Basis:
        import numpy as np

        power, directions = np.linalg.eigh(states.T @ states / len(states))
        kept = slice(None, -components - 1, -1)
        return Basis(directions[:, kept] / np.sqrt(np.maximum(power[kept], 1e-12)))

    def rows(self, vector: Array) -> Array:
        """Weights in these coordinates as rows of a head on raw states."""
        return vector.reshape(-1, self.to.shape[1]) @ self.to.T


def warm_start(
    states: Array, earned: Array, kinds: Sequence[str | None], *, shrink: Shrink
) -> Array:
    """Rows whose logits are what each worker is expected to earn, by regression.

    What a kind of question earns on average is known well and is fitted closely. What a single
    question earns beyond that is mostly chance, and little of it is believed.
    """
    import numpy as np

    usual = np.empty_like(earned)
    for kind in set(kinds):
        of_kind = np.array([k == kind for k in kinds])
        usual[of_kind] = earned[of_kind].mean(axis=0)
    close = ridge(states, usual, shrink.kinds)
    return (close + ridge(states, earned - usual, shrink.questions)).T


@dataclass(frozen=True, slots=True)
class Shrink:
    """How little is believed, in squared units of the state."""

    kinds: float
    questions: float


def ridge(states: Array, targets: Array, shrink: float) -> Array:
    """Least squares with every direction shrunk but the one that all states share.

    That one stands in for the bias which a head does not have.
    """
    import numpy as np

    power, directions = np.linalg.eigh(states.T @ states / len(states))
    damped = power + shrink
    damped[-1] = power[-1]
    along: Array = directions.T @ (states.T @ targets) / len(states)
    return directions @ (along / damped[:, None])


class Adam:
    """Adam on one array, in place."""

    def __init__(self, weights: Array, rate: float) -> None:
        import numpy as np

        self.weights, self.rate = weights, rate
        self._first, self._second = np.zeros_like(weights), np.zeros_like(weights)
        self._steps = 0

    def step(self, gradient: Array) -> None:
        import numpy as np

        self._steps += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first = self._first / (1 - 0.9**self._steps)
        second = self._second / (1 - 0.999**self._steps)
        self.weights -= self.rate * first / (np.sqrt(second) + 1e-8)


def softmax(logits: Array) -> Array:
    import numpy as np

    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def nearest(states: Array, rewards: Array, *, neighbours: int) -> Callable[[Array], Array]:
    """The mean reward of the nearest training questions, by cosine after centring."""
    import numpy as np

    middle = states.mean(axis=0)

    def direction(raw: Array) -> Array:
        centred = raw - middle
        found: Array = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        return found

    known = direction(states)

    def estimate(asked: Array) -> Array:
        near = np.argpartition(-(direction(asked) @ known.T), neighbours, axis=1)[:, :neighbours]
        found: Array = rewards[near].mean(axis=1)
        return found

    return estimate


def logistic(states: Array, rewards: Array, *, strength: float) -> Callable[[Array], Array]:
    """A logistic regression per worker. `strength` is scikit-learn's C."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(states)
    scaled = scaler.transform(states)
    models = [
        LogisticRegression(C=strength, max_iter=500).fit(scaled, column) for column in rewards.T
    ]

    def estimate(asked: Array) -> Array:
        read = scaler.transform(asked)
        return np.stack([m.predict_proba(read)[:, 1] for m in models], axis=1)

    return estimate


async def reinforce(
    shape: tuple[int, int], play: Callable[[Array], Awaitable[Batch]], *, steps: int, rate: float
) -> Array:
    """Policy gradient on the same head from the same kind of episodes, with a mean baseline."""
    import numpy as np

    weights = np.zeros(shape)
    optimiser = Adam(weights, rate)
    for _ in range(steps):
        features, picks, rewards = await play(weights.T.reshape(-1))
        surprise = np.eye(shape[1])[picks] - softmax(features @ weights)
        advantage = (rewards - rewards.mean())[:, None]
        optimiser.step(-features.T @ (surprise * advantage) / len(picks))
    return weights.T.reshape(-1)

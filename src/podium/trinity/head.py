"""The head: one bias-free linear map from a hidden state to a logit per worker and per role.

It is all that is learned, a few thousand numbers, and is kept in one small JSON file together
with what it is worthless without: which model's states it reads and how that model is spoken to,
and which workers its rows stand for.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

import orjson

from podium.errors import ConfigError
from podium.trinity.roles import Role, Rules

FORMAT = 1

_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True, slots=True)
class Reading:
    """Of which model a hidden state is, and of which reading of the question."""

    model: str
    digest: str
    """Of the model's weights: another model's states mean something else."""
    width: int
    position: int = -2
    """Which token's state, counted from the end of the prompt: the last but one is published."""
    question_chars: int = 320
    """How much of a question is read, and of each idea: the time of a decision grows with it."""
    tuned: tuple[str, ...] = ()
    """Which of its linear maps have tuned singular values: how their names begin."""
    offsets: tuple[float, ...] = ()
    """By how much each of those values is moved, map by map."""


@dataclass(frozen=True, slots=True)
class Head:
    reading: Reading
    workers: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    """Weights, one row per worker and then one per role."""
    roles: tuple[Role, ...] = ()
    """None for a router: one turn, and the worker is asked the bare question."""
    rules: Rules = field(default_factory=Rules)
    """How its turns follow each other, in training and in use."""
    log: tuple[Mapping[str, Any], ...] = ()
    """How it was trained."""

    def __post_init__(self) -> None:
        wanted = len(self.workers) + len(self.roles)
        if len(self.rows) != wanted or any(len(r) != self.reading.width for r in self.rows):
            raise ConfigError(
                f"a head of {len(self.workers)} workers and {len(self.roles)} roles has {wanted} "
                f"rows of {self.reading.width} weights"
            )

    @staticmethod
    def zero(reading: Reading, workers: Sequence[str], roles: Sequence[Role] = ()) -> Head:
        """No opinion: every worker and every role is as likely as the others."""
        row = (0.0,) * reading.width
        return Head(reading, tuple(workers), (row,) * (len(workers) + len(roles)), tuple(roles))

    @property
    def weights(self) -> array[float]:
        """All rows in one vector: what evolution varies."""
        return array("f", (w for row in self.rows for w in row))

    def with_weights(self, vector: Iterable[float]) -> Head:
        flat, width = tuple(vector), self.reading.width
        rows = tuple(flat[at : at + width] for at in range(0, len(flat), width))
        return replace(self, rows=rows)

    def for_workers(self, names: Sequence[str]) -> Head:
        """The same head over another pool, to go on training from.

        A worker it does not know gets the mean of the rows of those it knows: neither preferred
        nor ruled out.
        """
        count = len(self.workers)
        known = dict(zip(self.workers, self.rows[:count], strict=True))
        mean = tuple(sum(column) / count for column in zip(*self.rows[:count], strict=True))
        rows = (*(known.get(name, mean) for name in names), *self.rows[count:])
        return replace(self, workers=tuple(names), rows=rows)

    def worker_logits(self, state: Sequence[float], allowed: Iterable[str]) -> dict[str, float]:
        """By name, and of these workers only: the others' logits are masked."""
        among = set(allowed)
        pairs = zip(self.workers, self.rows[: len(self.workers)], strict=True)
        found = {name: _dot(row, state) for name, row in pairs if name in among}
        if not found:
            raise ConfigError(
                f"the head knows none of the workers this run may use: it was trained for "
                f"{', '.join(self.workers)}"
            )
        return found

    def role_logits(self, state: Sequence[float], allowed: Iterable[Role]) -> dict[Role, float]:
        among = set(allowed)
        pairs = zip(self.roles, self.rows[len(self.workers) :], strict=True)
        return {role: _dot(row, state) for role, row in pairs if role in among}

    def save(self, path: Path) -> None:
        """Write the file as a whole or not at all."""
        weights = self.weights
        if sys.byteorder == "big":
            weights.byteswap()
        body = {
            "format": FORMAT,
            "kind": "trinity",
            "reading": self.reading,
            "workers": self.workers,
            "roles": self.roles,
            "rules": self.rules,
            "weights": base64.b64encode(weights.tobytes()).decode(),
            "log": self.log,
        }
        part = path.with_suffix(f"{path.suffix}.part")
        part.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
        part.replace(path)

    @staticmethod
    def load(path: Path) -> Head:
        """Read a head.

        Raises:
            ConfigError: there is no such file, or it holds something else.
        """
        try:
            body = orjson.loads(path.read_bytes())
        except OSError as exc:
            raise ConfigError(f"cannot read the head {path}: {exc.strerror}") from exc
        except orjson.JSONDecodeError as exc:
            raise ConfigError(f"{path} is no head: {exc}") from exc
        try:
            return _head(body)
        except (KeyError, TypeError, ValueError) as exc:
            raise ConfigError(f"{path} is no head of format {FORMAT}: {exc}") from exc


def _head(body: dict[str, Any]) -> Head:
    if (body["kind"], body["format"]) != ("trinity", FORMAT):
        raise ValueError(f"kind {body['kind']!r}, format {body['format']!r}")
    weights = array("f")
    weights.frombytes(base64.b64decode(body["weights"], validate=True))
    if sys.byteorder == "big":
        weights.byteswap()
    workers, roles = tuple(body["workers"]), cast("tuple[Role, ...]", tuple(body["roles"]))
    reading = Reading(**body["reading"])
    reading = replace(reading, tuned=tuple(reading.tuned), offsets=tuple(reading.offsets))
    head = Head.zero(reading, workers, roles)
    rules = Rules(**body.get("rules", {}))
    return replace(head.with_weights(weights), rules=rules, log=tuple(body["log"]))


def softmax(logits: Mapping[_Choice, float]) -> dict[_Choice, float]:
    top = max(logits.values())
    powers = {name: math.exp(logit - top) for name, logit in logits.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}


def choose(chances: Mapping[_Choice, float], rng: Random | None) -> _Choice:
    """The likeliest, or with `rng` one drawn."""
    if rng is None:
        return max(chances, key=chances.__getitem__)
    return rng.choices(tuple(chances), tuple(chances.values()))[0]


def _dot(row: Sequence[float], state: Sequence[float]) -> float:
    return float(sum(map(mul, row, state)))

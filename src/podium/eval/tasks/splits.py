"""Splits and samples that anyone can make again: by a hash of seed and id, not by file order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from podium.eval.tasks.task import Item

SEED = 42
"""The paper's."""
SIXTY = {"train": 0.6, "dev": 0.2, "test": 0.2}
"""How the paper's code cuts a set that has no splits."""
ALL = "all"
"""The uncut set, which every cut one also offers."""


T = TypeVar("T")


def order(things: Iterable[T], *, key: Callable[[T], str], seed: int = SEED) -> list[T]:
    """Shuffled, in an order that depends on nothing but the seed and the keys."""
    return sorted(things, key=lambda thing: _rank(f"{seed}/{key(thing)}"))


def cut(
    items: Sequence[Item], split: str, *, shares: Mapping[str, float], seed: int = SEED
) -> Sequence[Item]:
    """One split of a set that was published as a whole."""
    if split == ALL:
        return items
    ends = [round(len(items) * share) for share in accumulate(shares.values())]
    starts = dict(zip(shares, [0, *ends], strict=False))
    end = dict(zip(shares, ends, strict=True))[split]
    return order(items, key=lambda item: f"split/{item.id}", seed=seed)[starts[split] : end]


def draw(items: Sequence[Item], n: int, *, seed: int = SEED) -> Sequence[Item]:
    """A random sample, the same for everybody."""
    return order(items, key=lambda item: f"draw/{item.id}", seed=seed)[:n]


def digest(items: Iterable[Item]) -> str:
    """Tells two selections apart: it depends on the ids chosen, not on their order."""
    return _rank("\n".join(sorted(item.id for item in items))).hex()


def _rank(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()

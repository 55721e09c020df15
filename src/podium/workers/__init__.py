"""Workers: anything that turns a request into a completion; and the pool that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from podium.errors import ConfigError
from podium.ledger import Ledger
from podium.types import Completion, Piece, Request, Rules


def silent(reason: str) -> None:
    """The default listener for retries."""


ANYONE = Rules()


@dataclass(frozen=True, slots=True)
class Call:
    """What comes with a request and is no part of it: who pays, and who listens."""

    ledger: Ledger
    hear: Callable[[Piece], None] | None = None
    """Given the reply piece by piece as it arrives. None asks for the whole at once."""
    retried: Callable[[str], None] = silent
    """Told why an attempt failed when another one follows."""
    rules: Rules = ANYONE
    """For a worker that is a strategy: whom it may use in turn."""


class Worker(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """All that decides a reply besides the request: model, address, settings; never a key."""
        ...

    async def complete(self, request: Request, call: Call) -> Completion:
        """Answer, having reserved and settled in `call.ledger`; or raise `PodiumError`."""
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, and where the figure comes from."""

    input: float
    output: float
    cached: float | None = None
    source: str = "configuration"

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6


FREE = Price(0.0, 0.0, source="runs here")


@dataclass(frozen=True, slots=True)
class Member:
    """A worker with what the pool knows of it."""

    worker: Worker
    description: str = ""
    price: Price | None = None
    accuracy: float | None = None
    """Measured on some task, between 0 and 1; shown on its card."""
    fallback: str = ""
    """The name of the member that stands in when this one fails."""
    region: str = ""
    program: bool = False
    """It runs code instead of a model: the planner is always told what it does."""
    prompt: Literal["full", "compact"] = "full"
    """How a step is put to it: in full, or in the few words that a very small model can follow."""

    @property
    def name(self) -> str:
        return self.worker.name


@dataclass(frozen=True, slots=True)
class Pool:
    members: tuple[Member, ...]

    @staticmethod
    def of(*workers: Worker | Member) -> Pool:
        return Pool(tuple(w if isinstance(w, Member) else Member(w) for w in workers))

    def __post_init__(self) -> None:
        names = [m.name for m in self.members]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise ConfigError(f"two workers are called {twice!r}: names must differ")

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.members)

    def named(self, name: str) -> Member | None:
        return next((m for m in self.members if m.name == name), None)

    def only(self, rules: Rules) -> Pool:
        """The pool without those that may not be used. Nobody is shown, or can reach, the rest."""
        kept = tuple(m for m in self.members if rules.admit(m.name, m.region))
        if not kept:
            raise ConfigError("no worker is left: every one of the pool is denied to this run")
        return self if len(kept) == len(self.members) else Pool(kept)

    def chain(self, index: int) -> list[Member]:
        """The member and those that stand in for it, in order, each once."""
        found: list[Member] = []
        member: Member | None = self.members[index]
        while member is not None and member not in found:
            found.append(member)
            member = self.named(member.fallback)
        return found

    def subset(self, indices: Sequence[int]) -> Pool:
        """The chosen members, renumbered in the given order."""
        return replace(self, members=tuple(self.members[i] for i in indices))

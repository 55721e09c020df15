"""Where an evaluation takes place: the questions, and the pool that is asked them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from podium.app import Podium, find_config
from podium.conductor import Strategy
from podium.config import load
from podium.errors import ConfigError
from podium.eval.baselines import with_vote
from podium.eval.tasks import Item, Task, find
from podium.eval.world import World
from podium.ledger import Ledger
from podium.store import Store
from podium.types import Limits, Usage
from podium.workers import Member, Pool, Price
from podium.workers.recorded import ReplayedWorker, Reply
from podium.workshop import embedded


@dataclass(frozen=True, slots=True)
class Setting:
    label: str
    load: Callable[[str], Sequence[Item]]
    """The questions of a split."""
    pool: Pool
    find: Callable[[str], Strategy]
    """The configuration's strategies by name."""
    limits: Limits
    """Of one run."""
    ledger: Ledger
    """Of the whole."""
    facts: Mapping[str, object]
    """All that decides the results besides the questions and the strategies."""
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """What to open: a task and a configuration, or a recorded world."""

    task: str | None = None
    world: Path | None = None
    data: Path | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        if (self.task is None) == (self.world is None):
            raise ConfigError("what is to be asked? Give either --task or --world")
        if self.world is not None and (self.data or self.config):
            raise ConfigError("a world brings its own questions and workers: give it alone")

    @asynccontextmanager
    async def open(self, store: Store) -> AsyncIterator[Setting]:
        """The setting; every call is kept in the store, so that none is paid for twice."""
        if self.task is None:
            assert self.world is not None
            yield recorded(self.world)
            return
        path = self.config or find_config()
        config = load(path) if path else embedded()
        podium = Podium(config.keeping_calls(), store=store)
        try:
            yield asked(find(self.task), podium, self.data)
        finally:
            await podium.close()  # and with it the store


def asked(task: Task, podium: Podium, data: Path | None = None) -> Setting:
    """A task, put to the workers of a configuration."""
    # A worker that is measured alone must not be answered for by the one that stands in for it.
    members = tuple(replace(member, fallback="") for member in podium.pool.members)
    pool, _ = with_vote(Pool(members))
    config = podium.config.model_dump(mode="json", exclude={"store", "recording", "process"})
    prices = {member.name: member.price for member in pool.members}
    return Setting(
        label=task.name,
        load=lambda split: task.load(split, data),
        pool=pool,
        find=podium.strategy,
        limits=podium.limits(),
        ledger=podium.ledger,
        facts={"config": config, "prices": prices, "source": task.source},
    )


def recorded(directory: Path) -> Setting:
    """A recorded world, whose pool are the models that were recorded, and a count of votes."""
    world = World.load(directory)
    items = _told_apart(world.items)
    prices = {n: Price(p.input, p.output, source="recording") for n, p in world.workers.items()}
    members = [_replayed(name, price, world, items) for name, price in prices.items()]
    pool, _ = with_vote(Pool(tuple(members)))
    splits = {item.split for item in items.values()}

    def load_split(split: str) -> Sequence[Item]:
        if split not in splits:
            have = ", ".join(sorted(splits))
            raise ConfigError(f"world {world.name} has no split {split!r}; it has: {have}")
        return [item for item in items.values() if item.split == split]

    return Setting(
        label=world.name,
        load=load_split,
        pool=pool,
        find=_no_planner,
        limits=Limits(),
        ledger=Ledger(),
        facts={"world": world.name, "prices": prices},
        replay=True,
    )


def _no_planner(name: str) -> Strategy:
    raise ConfigError(
        "a recorded world has no planner of its own: name a trained one, conductor:CHECKPOINT"
    )


def _told_apart(items: Mapping[str, Item]) -> dict[str, Item]:
    """Questions that read alike, each with its own replies: a space more for every twin."""
    seen: dict[str, int] = {}
    apart: dict[str, Item] = {}
    for id, item in items.items():
        twins = seen[item.question] = seen.get(item.question, -1) + 1
        apart[id] = replace(item, question=item.question + " " * twins)
    return apart


def _replayed(name: str, price: Price, world: World, items: Mapping[str, Item]) -> Member:
    replies = {
        items[id].question: Reply(reply.text, Usage(reply.tokens_in, reply.tokens_out))
        for id, reply in world.replies[name].items()
    }
    return Member(ReplayedWorker(name, replies, price), price=price)

"""The same work on a Ray cluster: every node asks, and one desk beside the results writes.

A worker process on a node opens the task and the configuration for itself, so their files have to
be there under the same paths, and keys in its environment. It claims questions and writes samples
and calls through the desk, which treats it like any process that shares the directory. What a
node that died had claimed is done in the end by whoever started the evaluation.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from podium.errors import ConfigError
from podium.eval.legs import Leg, open_sandbox
from podium.eval.results import Results, Sample, Unit
from podium.eval.router import Lessons
from podium.eval.setting import Place
from podium.eval.strategies import Field, Spend, Standing, build, parse_spec
from podium.eval.tasks import Item
from podium.store import Store
from podium.types import Limits, Run

LOOK = 0.5
"""Seconds between looks at what the nodes have done."""


@dataclass(frozen=True, slots=True)
class Job:
    """A leg as it travels to a node."""

    place: Place
    split: str
    items: Mapping[str, Item]
    names: Sequence[str]
    """Of the strategies."""
    samples: int
    concurrency: int
    seed: int
    standings: Sequence[Standing]
    lessons: Lessons | None
    spend: Spend | None
    led_limits: Limits | None


class Desk:
    """Beside the results: does for each node what a process that shares the directory does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._clients: dict[str, Results] = {}

    async def do(self, client: str, task: str, *given: Any) -> Any:
        if client not in self._clients:
            self._clients[client] = await Results.open(self._directory)
        return await TASKS[task](self._clients[client], *given)

    async def leave(self) -> None:
        for results in self._clients.values():
            await results.close()
        self._clients.clear()


TASKS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "done": Results.done,
    "claimed": Results.claimed,
    "claim": Results.claim,
    "release": Results.release,
    "bury": Results.bury,
    "keep": Results.keep,
    "call": lambda results, *given: results.store.call(*given),
    "put_call": lambda results, *given: results.store.put_call(*given),
}


@dataclass(frozen=True, slots=True)
class Remote:
    """The desk as a node sees it: the books of its leg, and the store of its calls."""

    desk: Any
    client: str

    async def _ask(self, task: str, *given: Any) -> Any:
        return await self.desk.do.remote(self.client, task, *given)

    async def done(
        self, split: str, items: Sequence[str] | None = None
    ) -> set[tuple[str, str, int]]:
        return cast(set[tuple[str, str, int]], await self._ask("done", split, items))

    async def claimed(self, split: str) -> set[Unit]:
        return cast(set[Unit], await self._ask("claimed", split))

    async def claim(self, split: str, units: Sequence[Unit]) -> list[Unit]:
        return cast(list[Unit], await self._ask("claim", split, units))

    async def release(self, split: str, unit: Unit) -> None:
        await self._ask("release", split, unit)

    async def bury(self) -> None:
        await self._ask("bury")

    async def keep(self, sample: Sample, run: Run) -> None:
        await self._ask("keep", sample, run)

    async def call(self, digest: str, sample: int) -> bytes | None:
        return cast("bytes | None", await self._ask("call", digest, sample))

    async def put_call(
        self, digest: str, sample: int, worker: str, request: bytes, completion: bytes
    ) -> None:
        await self._ask("put_call", digest, sample, worker, request, completion)

    async def close(self) -> None:
        """The desk outlives a node."""


def work(job: Job, desk: Any) -> None:
    """What runs on a node."""
    asyncio.run(_work(job, Remote(desk, secrets.token_hex(4))))


async def _work(job: Job, remote: Remote) -> None:
    async with AsyncExitStack() as stack:
        # Evaluation touches nothing of a store but the calls.
        setting = await stack.enter_async_context(job.place.open(cast(Store, remote)))
        built = Field(
            setting.pool,
            setting.limits,
            setting.find,
            setting.replay,
            job.seed,
            job.standings,
            job.lessons,
            job.spend,
            job.led_limits,
        )
        sandbox = await open_sandbox(job.items.values(), stack)
        entrants = [build(parse_spec(name), built) for name in job.names]
        leg = Leg(
            remote, job.split, job.items, entrants, job.samples, setting.ledger, sandbox=sandbox
        )
        await leg.look()
        await leg.run(job.concurrency)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The engine: the cluster that this machine belongs to, or one made of this machine alone."""

    place: Place
    results: Results

    async def __call__(self, leg: Leg, built: Field, concurrency: int) -> None:
        ray = _ray()
        nodes = max(1, int(ray.cluster_resources().get("CPU", 1)))
        job = Job(
            self.place,
            leg.split,
            leg.items,
            [entrant.name for entrant in leg.entrants],
            leg.samples,
            max(1, concurrency // nodes),
            built.seed,
            built.standings,
            built.lessons,
            built.spend,
            built.led_limits,
        )
        last = await self.results.last()
        desk = ray.remote(Desk).options(num_cpus=0).remote(self.results.directory.resolve())
        asked = [ray.remote(work).remote(job, desk) for _ in range(nodes)]
        await self._watch(leg, {asyncio.wrap_future(ref.future()) for ref in asked}, last)
        await desk.leave.remote()
        await leg.look()
        await leg.run(concurrency)

    async def _watch(self, leg: Leg, asked: set[asyncio.Future[None]], last: int) -> None:
        """Tell what the nodes have done while they do it. A node that is lost is lost."""
        import ray

        waiting = asked
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=LOOK)
            for number, sample in await self.results.since(leg.split, last):
                last = number
                leg.hear(sample)
        for failure in filter(None, (future.exception() for future in asked)):
            if isinstance(failure, ray.exceptions.RayTaskError):
                raise ConfigError(f"a node cannot do its part: {failure.cause}") from None


def _ray() -> Any:
    try:
        import ray
    except ImportError as exc:
        raise ConfigError("a cluster needs Ray: pip install 'podium[ray]'") from exc
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    return ray

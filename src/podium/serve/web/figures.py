"""The pool and the spending, counted out of what was run.

Sums by day and model come from the list of runs; what one worker did stands only in the records,
so it is counted over the newest of them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import ceil
from statistics import median
from typing import Any

import orjson

from podium.config import WorkerSection
from podium.ledger import Ledger
from podium.serve.desk import Desk
from podium.serve.keys import NOBODY, Key
from podium.serve.web.runs import owned, windows
from podium.serve.wire import Json
from podium.store import Store
from podium.workers import Member, Worker
from podium.workers.chat import ChatWorker
from podium.workers.recorded import RecordedWorker

RECENT = 200
"""Runs that the workers' figures rest on."""
RECENT_BYTES = 8 << 20
COUNTED = 200_000
"""Runs that sums by day look back on."""
DAY = 86_400
LATEST = 5
"""Steps of a worker that its health is read off."""


@dataclass(slots=True)
class Work:
    """What one worker did in the newest runs."""

    steps: int = 0
    failed: int = 0
    usd: float = 0.0
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    latest: list[bool] = field(default_factory=list)
    """Of its last steps, the newest first: whether they went well."""
    reason: str = ""
    """Of its newest failure."""

    def add(self, result: dict[str, Any]) -> None:
        done, failure = result["completion"], result["failure"]
        self.steps += 1
        self.failed += failure is not None
        if failure is None:
            self.seconds.append(result["seconds"])
        else:
            self.reason = self.reason or failure["message"]
        if len(self.latest) < LATEST:
            self.latest.append(failure is None)
        if done is not None:
            self.usd += done["cost"] or 0.0
            self.tokens += done["usage"]["input"] + done["usage"]["output"]


@dataclass(frozen=True, slots=True)
class Recent:
    runs: int
    works: dict[str, Work]


async def recent(store: Store, owner: str | None) -> Recent:
    records = await _records(store, owner)
    return Recent(len(records), await asyncio.to_thread(_tally, records))


def _tally(records: Sequence[bytes]) -> dict[str, Work]:
    works: dict[str, Work] = defaultdict(Work)
    for record in records:
        for round in reversed(orjson.loads(record)["rounds"]):
            for result in reversed(round["results"]):
                if (result["failure"] or {}).get("kind") != "Skipped":
                    works[result["worker"]].add(result)
    return works


async def _records(store: Store, owner: str | None) -> Sequence[bytes]:
    """As many of the newest as fit into a bounded number of bytes."""
    mine, whose = owned(owner)
    sql = f"SELECT id, LENGTH(record) FROM runs WHERE {mine} ORDER BY id DESC LIMIT ?"
    room, oldest = RECENT_BYTES, ""
    for id, size in await store.fetch(sql, *whose, RECENT):
        room -= size
        if room < 0:
            break
        oldest = id
    if not oldest:
        return []
    sql = f"SELECT record FROM runs WHERE {mine} AND id >= ? ORDER BY id DESC LIMIT ?"
    return [bytes(row[0]) for row in await store.fetch(sql, *whose, oldest, RECENT)]


async def pool(desk: Desk, key: Key) -> Json:
    operates = desk.operates(key)
    found = await recent(desk.podium.store, None if operates else key.id)
    denials = {denial.worker: denial for denial in await desk.denials.all()}
    steps = sum(work.steps for work in found.works.values()) or 1
    members = zip(desk.podium.pool.members, desk.podium.config.worker, strict=True)
    rows = [
        {
            **_row(m, s, found.works.get(m.name, Work()), steps),
            "denied": denials.get(m.name) if operates else m.name in denials,
        }
        for m, s in members
    ]
    allowed = [row for row in rows if key.workers is None or row["name"] in key.workers]
    return {"runs": found.runs, "workers": allowed, "operator": operates}


def _row(member: Member, section: WorkerSection, work: Work, steps: int) -> Json:
    ordered = sorted(work.seconds)
    return {
        "name": member.name,
        "kind": section.kind,
        "model": section.model,
        "description": member.description,
        "region": member.region,
        "fallback": member.fallback,
        "price": member.price,
        "program": member.program,
        "steps": work.steps,
        "share": work.steps / steps,
        "errors": work.failed / work.steps if work.steps else None,
        "median": median(ordered) if ordered else None,
        "slow": ordered[ceil(0.95 * len(ordered)) - 1] if ordered else None,
        "usd": work.usd,
        "tokens": work.tokens,
        "reason": work.reason,
        "latest": work.latest,
        "health": _health(member.worker, work),
    }


def _health(worker: Worker, work: Work) -> str:
    """`resting` is a worker that failed so often in a row that it is not asked for a while."""
    inside = worker.worker if isinstance(worker, RecordedWorker) else worker
    if isinstance(inside, ChatWorker) and inside.breaker.in_a_row >= inside.breaker.failures:
        return "resting"
    if not work.latest:
        return "unknown"
    if not any(work.latest):
        return "failing"
    return "well" if all(work.latest) else "shaky"


async def spend(desk: Desk, key: Key) -> Json:
    """Dollars by day, model and worker, by key for an operator, and against the limits."""
    store, operates = desk.podium.store, desk.operates(key)
    owner = None if operates else key.id
    days: dict[int, Sums] = defaultdict(Sums)
    models: dict[str, Sums] = defaultdict(Sums)
    owners: dict[str, Sums] = defaultdict(Sums)
    counted = 0
    async for rows in windows(store, owner, "started, usd, tokens, strategy, owner", most=COUNTED):
        counted += len(rows)
        for _, started, usd, tokens, strategy, whose in rows:
            for sums in (days[int(started // DAY)], models[strategy], owners[whose]):
                sums.add(usd, tokens)
    found = await recent(store, owner)
    return {
        "counted": counted,
        "days": [_day(number, sums) for number, sums in sorted(days.items())],
        "models": _ranked(models),
        "keys": await _keys(desk, owners) if operates and key.id else [],
        "recent": found.runs,
        "workers": sorted(
            ({"name": n, "usd": w.usd, "tokens": w.tokens} for n, w in found.works.items()),
            key=lambda row: -float(str(row["usd"])),
        ),
        "process": _process(desk.podium.ledger) if operates else None,
        "run": {"limit": desk.podium.limits().dollars},
        "key": _budget(key) if key.id else None,
    }


@dataclass(slots=True)
class Sums:
    usd: float = 0.0
    tokens: int = 0
    runs: int = 0

    def add(self, usd: float, tokens: int) -> None:
        self.usd += usd
        self.tokens += tokens
        self.runs += 1


def _day(number: int, sums: Sums) -> Json:
    day = datetime.fromtimestamp(number * DAY, UTC).strftime("%Y-%m-%d")
    return {"day": day, "usd": sums.usd, "runs": sums.runs}


def _ranked(models: dict[str, Sums]) -> Sequence[Json]:
    found = sorted(models.items(), key=lambda item: -item[1].usd)
    return [{"name": n, "usd": s.usd, "tokens": s.tokens, "runs": s.runs} for n, s in found]


async def _keys(desk: Desk, owners: dict[str, Sums]) -> Sequence[Json]:
    """Every key's spending beside its budget, the dearest first."""
    known = [NOBODY, *await desk.keys.all()]
    rows = [{**_budget(k), **asdict(owners.get(k.id, Sums()))} for k in known]
    return sorted((row for row in rows if row["id"] or row["runs"]), key=lambda row: -row["usd"])


def _process(ledger: Ledger) -> Json:
    """All that this server spends: nothing that one key may know of another."""
    return {"spent": ledger.dollars, "limit": ledger.limits.dollars}


def _budget(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "daily": key.daily,
        "today": key.today,
        "monthly": key.monthly,
        "this_month": key.this_month,
        "per_run": key.per_run,
        "held": key.held,
    }

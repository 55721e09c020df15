"""Workers that nobody is given here, whoever asks: an operator's decision, kept in the store.

It holds for every request that comes after it, on every server of the store, and outlives a
restart. Runs under way go on as they were planned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from podium.store import Store

SEEN_SECONDS = 1.0
"""How long the list is taken to be what it was: another process heeds a change after this."""
TABLE = """
    CREATE TABLE IF NOT EXISTS denied (
        worker TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, operator TEXT NOT NULL
    )
"""


@dataclass(frozen=True, slots=True)
class Denial:
    worker: str
    at: float
    operator: str
    """The name of the key that asked for it; empty where there are no keys."""


class Denials:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._there = False
        self._seen = -SEEN_SECONDS
        self.names: frozenset[str] = frozenset()
        """As `known` found them last."""

    async def known(self) -> frozenset[str]:
        """The denied workers, as they were a second ago at the latest."""
        if time.monotonic() - self._seen >= SEEN_SECONDS:
            await self.all()
        return self.names

    async def all(self) -> list[Denial]:
        if not self._there:
            await self._store.change((TABLE, ()))
            self._there = True
        seen = time.monotonic()
        rows = await self._store.fetch("SELECT worker, at, operator FROM denied ORDER BY at")
        found = [Denial(*row) for row in rows]
        self._seen, self.names = seen, frozenset(denial.worker for denial in found)
        return found

    async def deny(self, worker: str, operator: str) -> None:
        sql = "INSERT INTO denied VALUES (?, ?, ?) ON CONFLICT (worker) DO NOTHING"
        await self._store.change((TABLE, ()), (sql, (worker, time.time(), operator)))
        await self.all()

    async def allow(self, worker: str) -> None:
        sql = "DELETE FROM denied WHERE worker = ?"
        await self._store.change((TABLE, ()), (sql, (worker,)))
        await self.all()

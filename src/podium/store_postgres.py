"""The same store in Postgres, for several servers that share runs, keys, budgets and sessions.

Writes that nobody waits for keep their order: one task takes everything that is queued into one
transaction. The rest runs on a pool of connections.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import orjson

from podium.errors import ConfigError, StoreError
from podium.store import (
    MIGRATIONS,
    Record,
    RunRow,
    Statement,
    row_of,
    state_of,
    where_of,
)
from podium.types import Run

CONNECTIONS = 8
LOCK = 7_263_486
"""Held while a database is brought up to date, so that only one server does it."""
BATCH = 256
BROKEN = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

_TYPES = {
    r"\bBLOB\b": "BYTEA",
    r"\bREAL\b": "DOUBLE PRECISION",
    r"\bINTEGER\b": "BIGINT",
    r"\bWITHOUT ROWID\b": "",
}
_COLUMNS = (*RunRow.__slots__, "record")
_KEPT = ", ".join(f"{c} = EXCLUDED.{c}" for c in _COLUMNS if c != "id")
_PUT_RUN = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (id) DO UPDATE SET {_KEPT}"
)
_PUT_CALL = (
    "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (digest, sample) DO UPDATE SET "
    "worker = EXCLUDED.worker, at = EXCLUDED.at, request = EXCLUDED.request, "
    "completion = EXCLUDED.completion"
)
_PUT_PROGRESS = (
    "INSERT INTO progress VALUES (?, ?, ?) ON CONFLICT (run, seq) DO UPDATE SET "
    "body = EXCLUDED.body"
)


@dataclass(frozen=True, slots=True)
class _Write:
    statements: tuple[Statement, ...]
    done: asyncio.Future[None] | None = None


class PostgresStore:
    def __init__(self, address: str) -> None:
        """Name the database; it is reached when it is first needed.

        Raises:
            ConfigError: the address carries a password, which has no place in a configuration.
        """
        parts = urlsplit(address)
        if parts.password:
            raise ConfigError(
                "the store's address carries a password: leave it out and set PGPASSWORD instead"
            )
        self.place = f"{parts.hostname or 'localhost'}{parts.path}"
        self._address = address
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._queue: asyncio.Queue[_Write | None] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None

    async def call(self, digest: str, sample: int) -> bytes | None:
        sql = "SELECT completion FROM calls WHERE digest = ? AND sample = ?"
        rows = await self.fetch(sql, digest, sample)
        return bytes(rows[0][0]) if rows else None

    async def put_call(
        self, digest: str, sample: int, worker: str, request: bytes, completion: bytes
    ) -> None:
        row = (digest, sample, worker, time.time(), request, completion)
        await self.change((_PUT_CALL, row))

    async def put_config(self, digest: str, body: bytes) -> None:
        sql = "INSERT INTO configs VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING"
        await self.change((sql, (digest, time.time(), body)))

    def begin_run(self, run: Run, *, owner: str, config: str) -> None:
        self._put((_PUT_RUN, row_of(run, "unfinished", owner, config)))

    def put_progress(self, run: str, seq: int, body: bytes) -> None:
        self._put((_PUT_PROGRESS, (run, seq, body)))

    async def end_run(self, run: Run, *, owner: str, config: str) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(
            ("DELETE FROM progress WHERE run = ?", (run.id,)),
            (_PUT_RUN, row_of(run, state_of(run), owner, config)),
            done=done,
        )
        await done

    async def runs(
        self, *, owner: str | None = None, limit: int = 20, before: str = ""
    ) -> Sequence[RunRow]:
        where, values = where_of({"owner = ?": owner, "id < ?": before or None})
        columns = ", ".join(RunRow.__slots__)
        sql = f"SELECT {columns} FROM runs{where} ORDER BY id DESC LIMIT ?"
        return [RunRow(*row) for row in await self.fetch(sql, *values, limit)]

    async def record(self, id: str, *, owner: str | None = None) -> Record | None:
        where, values = where_of({"id = ?": id, "owner = ?": owner})
        found = await self.fetch(f"SELECT record, state, config FROM runs{where}", *values)
        if not found:
            return None
        run, state, digest = found[0]
        steps = await self.fetch("SELECT body FROM progress WHERE run = ? ORDER BY seq", id)
        config = await self.fetch("SELECT body FROM configs WHERE digest = ?", digest)
        body = orjson.loads(config[0][0]) if config else {}
        return Record(bytes(run), str(state), [bytes(row[0]) for row in steps], body)

    async def fetch(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        pool = await self._opened()
        try:
            return [tuple(row) for row in await pool.fetch(numbered(sql), *_clean(values))]
        except BROKEN as exc:
            raise self._lost(exc) from exc

    async def change(self, *statements: Statement) -> int:
        pool = await self._opened()
        try:
            async with pool.acquire() as connection, connection.transaction():
                return await _execute(connection, statements)
        except BROKEN as exc:
            raise self._lost(exc) from exc

    async def close(self) -> None:
        """Write what is waiting, then let go of the connections."""
        if self._writer is not None:
            self._queue.put_nowait(None)
            await self._writer
            self._writer = None
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def _put(self, *statements: Statement, done: asyncio.Future[None] | None = None) -> None:
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        self._queue.put_nowait(_Write(statements, done))

    async def _write(self) -> None:
        more = True
        while more:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < BATCH:
                batch.append(self._queue.get_nowait())
            more = None not in batch
            await self._write_batch([write for write in batch if write is not None])

    async def _write_batch(self, batch: Sequence[_Write]) -> None:
        """All in one transaction; if that fails, one by one, so that a bad write fails alone."""
        failed: StoreError | None = None
        try:
            await self.change(*(statement for write in batch for statement in write.statements))
        except StoreError as exc:
            if len(batch) > 1:
                for write in batch:
                    await self._write_batch([write])
                return
            failed = exc
        for write in batch:
            if write.done is None or write.done.done():
                continue
            if failed is None:
                write.done.set_result(None)
            else:
                write.done.set_exception(failed)

    async def _opened(self) -> asyncpg.Pool[asyncpg.Record]:
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._pool is None:
                self._pool = await self._open()
        return self._pool

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        try:
            pool = await asyncpg.create_pool(self._address, min_size=1, max_size=CONNECTIONS)
        except (*BROKEN, ValueError) as exc:
            raise self._lost(exc) from exc
        try:
            async with pool.acquire() as connection, connection.transaction():
                await _migrate(connection, self.place)
        except (ConfigError, *BROKEN) as exc:
            await pool.close()
            raise exc if isinstance(exc, ConfigError) else self._lost(exc) from exc
        return pool

    def _lost(self, exc: Exception) -> StoreError:
        said = " ".join(str(exc).split()) or type(exc).__name__
        return StoreError(f"the store {self.place}: {said}")


async def _execute(connection: Any, statements: Sequence[Statement]) -> int:
    status = ""
    for sql, row in statements:
        status = await connection.execute(numbered(sql), *_clean(row))
    last = status.rpartition(" ")[2]
    return int(last) if last.isdecimal() else 0


async def _migrate(connection: Any, place: str) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
    await connection.execute("CREATE TABLE IF NOT EXISTS podium (version BIGINT NOT NULL)")
    version = await connection.fetchval("SELECT version FROM podium") or 0
    if version > len(MIGRATIONS):
        raise ConfigError(f"the store {place} was written by a newer Podium: update this one")
    for migration in MIGRATIONS[version:]:
        await connection.execute(_translated(migration))
    if version < len(MIGRATIONS):
        await connection.execute("DELETE FROM podium")
        await connection.execute("INSERT INTO podium VALUES ($1)", len(MIGRATIONS))


def _translated(sql: str) -> str:
    for found, put in _TYPES.items():
        sql = re.sub(found, put, sql)
    return sql


@lru_cache(maxsize=256)
def numbered(sql: str) -> str:
    """SQL with `$1`, `$2` … in place of each `?`. Only fixed text of ours comes here."""
    first, *rest = sql.split("?")
    return first + "".join(f"${i}{part}" for i, part in enumerate(rest, 1))


def _clean(values: Sequence[object]) -> list[object]:
    """Postgres keeps no NUL in its text."""
    return [v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in values]

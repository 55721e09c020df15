"""Runs and calls on disk: SQLite in WAL mode, one writer thread, group commit.

Whoever writes hands a statement to the writer thread and may await its commit. The thread takes
everything that is waiting into one transaction, so that a thousand tasks cost a handful of
commits. What nobody awaits goes along with the next commit, or follows within a moment. What was
committed survives `kill -9`; a run that was cut off is put together again from the steps it had
finished.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from podium.errors import ConfigError, StoreError
from podium.types import Run

Row = tuple[object, ...]

MIGRATIONS = (
    """
    CREATE TABLE calls (
        digest TEXT NOT NULL, sample INTEGER NOT NULL, worker TEXT NOT NULL, at REAL NOT NULL,
        request BLOB NOT NULL, completion BLOB NOT NULL, PRIMARY KEY (digest, sample)
    );
    CREATE TABLE configs (digest TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, started REAL NOT NULL, seconds REAL NOT NULL, strategy TEXT NOT NULL,
        question TEXT NOT NULL, state TEXT NOT NULL, failure TEXT NOT NULL, usd REAL NOT NULL,
        tokens INTEGER NOT NULL, rounds INTEGER NOT NULL, steps INTEGER NOT NULL,
        workers TEXT NOT NULL, owner TEXT NOT NULL, config TEXT NOT NULL, record BLOB NOT NULL
    );
    CREATE INDEX runs_by_owner ON runs (owner, id);
    CREATE TABLE progress (
        run TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, seq)
    );
    """,
    """
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, created REAL NOT NULL,
        revoked REAL, daily REAL, monthly REAL, per_run REAL, models TEXT, workers TEXT,
        day TEXT NOT NULL, day_usd REAL NOT NULL, month TEXT NOT NULL, month_usd REAL NOT NULL,
        held REAL NOT NULL, last_hold TEXT NOT NULL
    );
    CREATE TABLE holds (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, node TEXT NOT NULL, usd REAL NOT NULL,
        until REAL NOT NULL
    );
    CREATE INDEX holds_by_end ON holds (until);
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX sessions_by_end ON sessions (until);
    """,
)
"""Each entry brings a database from the version of its index to the next one."""

SHOWN_OF_A_QUESTION = 500
MOMENT = 0.005
"""Seconds that a write which nobody awaits may wait for another one's commit."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as a list shows it, without its record."""

    id: str
    started: float
    seconds: float
    strategy: str
    question: str
    state: str
    """`unfinished`, `answered`, `partial` (answered, and cut short by a failure) or `failed`."""
    failure: str
    usd: float
    tokens: int
    rounds: int
    steps: int
    workers: str
    owner: str
    config: str


Statement = tuple[str, Row]
"""SQL that SQLite and Postgres both understand, with `?` for each value."""


class Store(Protocol):
    """Where runs and calls are kept. SQLite and Postgres both fit here."""

    async def call(self, digest: str, sample: int) -> bytes | None: ...

    async def put_call(
        self, digest: str, sample: int, worker: str, request: bytes, completion: bytes
    ) -> None:
        """Returns once it is durable."""
        ...

    async def put_config(self, digest: str, body: bytes) -> None: ...

    def begin_run(self, run: Run, *, owner: str, config: str) -> None:
        """Queued in order with what follows; not awaited, for nobody waits on it."""
        ...

    def put_progress(self, run: str, seq: int, body: bytes) -> None: ...

    async def end_run(self, run: Run, *, owner: str, config: str) -> None: ...

    async def runs(
        self, *, owner: str | None = None, limit: int = 20, before: str = ""
    ) -> Sequence[RunRow]: ...

    async def record(self, id: str, *, owner: str | None = None) -> Record | None: ...

    async def fetch(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """The rows that a question of somebody else's finds."""
        ...

    async def change(self, *statements: Statement) -> int:
        """All of them or none, durably. Returns how many rows the last one touched."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Record:
    """A stored run: the record itself, and what had happened if it was cut off."""

    run: bytes
    state: str
    progress: Sequence[bytes]
    config: Mapping[str, object]


class SqliteStore:
    def __init__(self, path: Path | str) -> None:
        """Open the store, bringing it up to date first.

        Raises:
            ConfigError: the file is no store of ours, or cannot be written.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            writer, self._reader = self._connect(), self._connect()
            _migrate(writer, self.path)
        except (sqlite3.Error, OSError) as exc:
            raise ConfigError(f"cannot open the store {self.path}: {exc}") from exc
        self._reading = threading.Lock()
        self._writer = _Writer(writer)

    def _connect(self) -> sqlite3.Connection:
        found = sqlite3.connect(
            self.path, timeout=30, isolation_level=None, check_same_thread=False
        )
        found.execute("PRAGMA journal_mode = WAL")
        found.execute("PRAGMA synchronous = NORMAL")
        return found

    async def call(self, digest: str, sample: int) -> bytes | None:
        rows = self._read(
            "SELECT completion FROM calls WHERE digest = ? AND sample = ?", (digest, sample)
        )
        return bytes(rows[0][0]) if rows else None

    async def put_call(
        self, digest: str, sample: int, worker: str, request: bytes, completion: bytes
    ) -> None:
        row = (digest, sample, worker, time.time(), request, completion)
        await self._commit("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row)

    async def put_config(self, digest: str, body: bytes) -> None:
        row = (digest, time.time(), body)
        await self._commit("INSERT OR IGNORE INTO configs VALUES (?, ?, ?)", row)

    def begin_run(self, run: Run, *, owner: str, config: str) -> None:
        self._writer.later(_Write(_PUT_RUN, row_of(run, "unfinished", owner, config)))

    def put_progress(self, run: str, seq: int, body: bytes) -> None:
        row = (run, seq, body)
        self._writer.later(_Write("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", row))

    async def end_run(self, run: Run, *, owner: str, config: str) -> None:
        row = row_of(run, state_of(run), owner, config)
        await self._commit(_PUT_RUN, row, (("DELETE FROM progress WHERE run = ?", (run.id,)),))

    async def runs(
        self, *, owner: str | None = None, limit: int = 20, before: str = ""
    ) -> Sequence[RunRow]:
        where, values = where_of({"owner = ?": owner, "id < ?": before or None})
        columns = ", ".join(RunRow.__slots__)
        sql = f"SELECT {columns} FROM runs{where} ORDER BY id DESC LIMIT ?"
        return [RunRow(*row) for row in self._read(sql, (*values, limit))]

    async def record(self, id: str, *, owner: str | None = None) -> Record | None:
        where, values = where_of({"id = ?": id, "owner = ?": owner})
        found = self._read(f"SELECT record, state, config FROM runs{where}", values)
        if not found:
            return None
        run, state, digest = found[0]
        steps = self._read("SELECT body FROM progress WHERE run = ? ORDER BY seq", (id,))
        config = self._read("SELECT body FROM configs WHERE digest = ?", (digest,))
        body = orjson.loads(config[0][0]) if config else {}
        return Record(bytes(run), str(state), [bytes(row[0]) for row in steps], body)

    async def fetch(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        return self._read(sql, values)

    async def change(self, *statements: Statement) -> int:
        *first, (sql, row) = statements
        return await self._commit(sql, row, tuple(first))

    async def close(self) -> None:
        """Write what is waiting, then let go of the file."""
        await asyncio.to_thread(self._writer.close)
        self._reader.close()

    def _read(self, sql: str, values: Iterable[object]) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(sql, tuple(values)).fetchall()

    async def _commit(self, sql: str, row: Row, before: tuple[Statement, ...] = ()) -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._writer.now(_Write(sql, row, done, before))
        return await done


def open_store(place: str) -> Store:
    """The store at a path, or in the database at a `postgresql://` address."""
    if place.startswith(("postgresql://", "postgres://")):
        from podium.store_postgres import PostgresStore  # its driver comes with podium[serve]

        return PostgresStore(place)
    return SqliteStore(Path(place).expanduser())


def state_of(run: Run) -> str:
    if run.answer is None:
        return "failed"
    return "partial" if run.failure else "answered"


_PUT_RUN = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * 15)})"


def row_of(run: Run, state: str, owner: str, config: str) -> Row:
    results = [result for round in run.rounds for result in round.results]
    return (
        run.id,
        run.started,
        run.seconds,
        run.strategy,
        run.question.text[:SHOWN_OF_A_QUESTION],
        state,
        run.failure.kind if run.failure else "",
        run.cost,
        run.usage.total,
        len(run.rounds),
        len(results),
        " ".join(sorted({result.worker for result in results})),
        owner,
        config,
        orjson.dumps(run),
    )


def where_of(conditions: Mapping[str, object | None]) -> tuple[str, Row]:
    """Only fixed text of ours becomes SQL; what a caller gives is always a value."""
    given = {sql: value for sql, value in conditions.items() if value is not None}
    return (f" WHERE {' AND '.join(given)}" if given else ""), tuple(given.values())


@dataclass(slots=True)
class _Write:
    sql: str
    row: Row
    done: asyncio.Future[int] | None = None
    before: tuple[Statement, ...] = ()
    """What must be written together with it, and first."""
    touched: int = 0


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        connection.execute("ROLLBACK")
        raise ConfigError(f"the store {path} was written by a newer Podium: update this one")
    statements = ";".join(MIGRATIONS[version:]).split(";")
    for statement in filter(str.strip, statements):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


class _Writer:
    """The one thread that writes, and what waits for it.

    Waking a thread costs more than a row does, so it is woken once for all that an event loop
    hands over in one turn.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._writes: deque[_Write] = deque()
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._soon: asyncio.AbstractEventLoop | None = None
        self._later: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="podium-store", daemon=True)
        self._thread.start()

    def now(self, write: _Write) -> None:
        self._writes.append(write)
        loop = asyncio.get_running_loop()
        if self._soon is not loop:
            self._soon = loop
            loop.call_soon(self._wake)

    def later(self, write: _Write) -> None:
        """In order with all that is written after it, and at the latest in a moment."""
        self._writes.append(write)
        loop = asyncio.get_running_loop()
        if self._later is not loop:
            self._later = loop
            loop.call_later(MOMENT, self._wake)

    def close(self) -> None:
        self._wakes.put(False)
        self._thread.join()

    def _wake(self) -> None:
        self._soon = self._later = None
        self._wakes.put(True)

    def _work(self) -> None:
        more = True
        while more:
            more = self._wakes.get()
            while more and not self._wakes.empty():
                more = self._wakes.get()
            if batch := [self._writes.popleft() for _ in range(len(self._writes))]:
                _write_batch(self._connection, batch)
        self._connection.close()


def _write_batch(connection: sqlite3.Connection, batch: Sequence[_Write]) -> None:
    """All in one transaction; if that fails, one by one, so that a bad write fails alone."""
    failed = _transact(connection, batch)
    if failed is not None and len(batch) > 1:
        for write in batch:
            _write_batch(connection, [write])
        return
    by_loop: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
    for write in batch:
        if write.done is not None:
            by_loop.setdefault(write.done.get_loop(), []).append(write)
    for loop, writes in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_tell, writes, failed)


def _transact(connection: sqlite3.Connection, batch: Sequence[_Write]) -> sqlite3.Error | None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for write in batch:
            for sql, row in write.before:
                connection.execute(sql, row)
            write.touched = connection.execute(write.sql, write.row).rowcount
        connection.execute("COMMIT")
    except sqlite3.Error as exc:  # a full disk, a lost file: those who wait are told
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return exc
    return None


def _tell(writes: Sequence[_Write], failed: sqlite3.Error | None) -> None:
    for write in writes:
        if write.done is None or write.done.done():
            continue
        if failed is None:
            write.done.set_result(write.touched)
        else:
            write.done.set_exception(StoreError(f"the store could not be written: {failed}"))

"""An evaluation on disk: one directory that survives `kill -9` and that several processes share.

    DIR/results.sqlite    Podium's own store (runs, recorded calls) and four tables more:
        facts             how the evaluation is set up; another set-up is refused, and says why
        items             the questions, as they were asked
        samples           a row for each strategy, question and sample that is done
        claims            which process works on which question
    DIR/claims/           a locked file for each process that is alive

A process holds the lock on its own file as long as it lives, whatever ends it; the claims of one
whose lock can be taken are given to others.
"""

from __future__ import annotations

import asyncio
import fcntl
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import IO

import orjson

from podium.errors import ConfigError
from podium.eval.tasks import Item
from podium.store import SqliteStore, Statement
from podium.types import Run

FILE = "results.sqlite"

TABLES = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, body BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS items (
        split TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (split, id))""",
    """CREATE TABLE IF NOT EXISTS samples (
        strategy TEXT NOT NULL, split TEXT NOT NULL, item TEXT NOT NULL, sample INTEGER NOT NULL,
        score REAL, read TEXT, note TEXT NOT NULL, run TEXT NOT NULL, usd REAL NOT NULL,
        input INTEGER NOT NULL, output INTEGER NOT NULL, calls INTEGER NOT NULL,
        steps INTEGER NOT NULL, rounds INTEGER NOT NULL, seconds REAL NOT NULL,
        workers TEXT NOT NULL, failure TEXT NOT NULL, blame TEXT NOT NULL,
        step_blames TEXT NOT NULL, replayed INTEGER NOT NULL, unpriced INTEGER NOT NULL,
        PRIMARY KEY (split, item, sample, strategy))""",
    """CREATE TABLE IF NOT EXISTS claims (
        split TEXT NOT NULL, item TEXT NOT NULL, sample INTEGER NOT NULL, owner TEXT NOT NULL,
        PRIMARY KEY (split, item, sample))""",
)

Unit = tuple[str, int]
"""A question by its id, and which sample of it: what one process claims."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What became of one question under one strategy."""

    strategy: str
    split: str
    item: str
    sample: int
    score: float | None
    """None: unscored, because the grader could not run or the world failed; `note` says why."""
    read: str | None
    """The answer that was read; None where none is stated."""
    note: str
    run: str
    usd: float
    input: int
    output: int
    calls: int
    steps: int
    rounds: int
    seconds: float
    workers: str
    """Calls by worker, as JSON."""
    failure: str
    """Of the run: its kind, and after a colon its message."""
    blame: str
    step_blames: str
    """How many steps failed, by blame, as JSON: a run can be well in spite of some."""
    replayed: int
    unpriced: int


COLUMNS = [field.name for field in fields(Sample)]
PUT_SAMPLE = f"INSERT OR REPLACE INTO samples VALUES ({', '.join('?' * len(COLUMNS))})"


class Results:
    def __init__(self, directory: Path, store: SqliteStore) -> None:
        self.directory = directory
        self.store = store
        self._owner = ""
        self._lock: IO[bytes] | None = None

    @staticmethod
    async def open(directory: Path) -> Results:
        """Open the results in a directory, or begin them.

        Raises:
            ConfigError: the directory cannot be written.
        """
        store = SqliteStore(directory / FILE)
        await store.change(*((table, ()) for table in TABLES))
        return Results(directory, store)

    @staticmethod
    async def read(directory: Path) -> Results:
        """Open what is there.

        Raises:
            ConfigError: there are no results in it.
        """
        if not (directory / FILE).is_file():
            raise ConfigError(f"{directory} holds no results: there is no {FILE} in it")
        return await Results.open(directory)

    async def close(self) -> None:
        await self.withdraw()
        await self.store.close()

    async def withdraw(self) -> None:
        """Give up what this process has claimed."""
        if self._lock is not None:
            await self.store.change(("DELETE FROM claims WHERE owner = ?", (self._owner,)))
            self._lock.close()
            self._file(self._owner).unlink(missing_ok=True)
            self._lock, self._owner = None, ""

    # ── how it is set up ──

    async def facts(self, name: str) -> dict[str, object]:
        rows = await self.store.fetch("SELECT body FROM facts WHERE name = ?", name)
        found: dict[str, object] = orjson.loads(rows[0][0]) if rows else {}
        return found

    async def agree(self, facts: Mapping[str, object]) -> None:
        """Keep how this evaluation is set up, or make sure that it is the same as before.

        Raises:
            ConfigError: it differs; the message lists in what.
        """
        body = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
        await self.store.change(("INSERT OR IGNORE INTO facts VALUES ('setup', ?)", (body,)))
        before, now = _flat(await self.facts("setup")), _flat(orjson.loads(body))
        differ = [
            f"{key}: {before.get(key, 'absent')} before, {now.get(key, 'absent')} now"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        ]
        if differ:
            raise ConfigError(
                f"{self.directory} holds results of another set-up; choose another --out, or "
                "restore: " + "; ".join(differ)
            )

    async def remember(self, name: str, facts: Mapping[str, object]) -> None:
        body = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
        await self.store.change(("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, body)))

    async def put_items(self, split: str, items: Iterable[Item]) -> None:
        """Keep the questions, or make sure that they are those of before.

        Raises:
            ConfigError: a question of the same id was another one.
        """
        bodies = {item.id: orjson.dumps(item) for item in items}
        rows = await self.store.fetch("SELECT id, body FROM items WHERE split = ?", split)
        known = {str(id): bytes(body) for id, body in rows}
        for id, body in bodies.items():
            if known.get(id, body) != body:
                raise ConfigError(f"{self.directory}: the question {id} has changed since")
        new = [(split, id, body) for id, body in bodies.items() if id not in known]
        if new:
            await self.store.change(
                *(("INSERT OR IGNORE INTO items VALUES (?, ?, ?)", row) for row in new)
            )

    async def items(self, split: str) -> list[Item]:
        rows = await self.store.fetch("SELECT body FROM items WHERE split = ?", split)
        return [Item(**orjson.loads(row[0])) for row in rows]

    # ── what is done ──

    async def keep(self, sample: Sample, run: Run) -> None:
        """The run and its sample, durably."""
        await asyncio.gather(self.store.end_run(run, owner="eval", config=""), self.put(sample))

    async def put(self, *samples: Sample) -> None:
        await self.store.change(*((PUT_SAMPLE, astuple(sample)) for sample in samples))

    async def samples(self, split: str, strategies: Iterable[str] | None = None) -> list[Sample]:
        columns = ", ".join(COLUMNS)
        rows = await self.store.fetch(f"SELECT {columns} FROM samples WHERE split = ?", split)
        wanted = None if strategies is None else set(strategies)
        return [Sample(*row) for row in rows if wanted is None or row[0] in wanted]

    async def done(
        self, split: str, items: Sequence[str] | None = None
    ) -> set[tuple[str, str, int]]:
        """Which strategy has answered which sample of which question: of all, or of some."""
        sql = "SELECT strategy, item, sample FROM samples WHERE split = ?"
        if items is not None:
            sql += f" AND item IN ({', '.join('?' * len(items))})"
        return {(s, i, n) for s, i, n in await self.store.fetch(sql, split, *(items or ()))}

    async def last(self) -> int:
        """The number of the latest sample."""
        ((number,),) = await self.store.fetch("SELECT COALESCE(MAX(rowid), 0) FROM samples")
        return int(number)

    async def since(self, split: str, last: int) -> list[tuple[int, Sample]]:
        """The samples after that number, in order, each with its own."""
        columns = ", ".join(COLUMNS)
        sql = f"SELECT rowid, {columns} FROM samples WHERE split = ? AND rowid > ? ORDER BY rowid"
        return [(int(n), Sample(*row)) for n, *row in await self.store.fetch(sql, split, last)]

    async def forget_unscored(self, split: str) -> int:
        """So that they are tried again."""
        sql = "DELETE FROM samples WHERE split = ? AND score IS NULL"
        return await self.store.change((sql, (split,)))

    # ── who does what ──

    async def claim(self, split: str, units: Sequence[Unit]) -> list[Unit]:
        """Those of the units that nobody else works on; they are this process's until released."""
        if not self._owner:
            self._announce()
        sql = "INSERT OR IGNORE INTO claims VALUES (?, ?, ?, ?)"
        rows = [(sql, (split, item, sample, self._owner)) for item, sample in units]
        await self.store.change(*rows)
        mine = await self.store.fetch(
            "SELECT item, sample FROM claims WHERE split = ? AND owner = ?", split, self._owner
        )
        asked = set(units)
        return [(item, sample) for item, sample in mine if (item, sample) in asked]

    async def claimed(self, split: str) -> set[Unit]:
        sql = "SELECT item, sample FROM claims WHERE split = ?"
        return {(item, sample) for item, sample in await self.store.fetch(sql, split)}

    async def release(self, split: str, unit: Unit) -> None:
        sql = "DELETE FROM claims WHERE split = ? AND item = ? AND sample = ?"
        await self.store.change((sql, (split, *unit)))

    async def bury(self) -> None:
        """Give up the claims of processes that are no more."""
        owners = await self.store.fetch("SELECT DISTINCT owner FROM claims")
        gone = [owner for (owner,) in owners if owner != self._owner and not self._alive(owner)]
        statements: list[Statement] = [("DELETE FROM claims WHERE owner = ?", (o,)) for o in gone]
        if statements:
            await self.store.change(*statements)

    def _announce(self) -> None:
        self._owner = secrets.token_hex(8)
        file = self._file(self._owner)
        file.parent.mkdir(exist_ok=True)
        self._lock = file.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _alive(self, owner: str) -> bool:
        file = self._file(owner)
        try:
            with file.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        file.unlink(missing_ok=True)
        return False

    def _file(self, owner: str) -> Path:
        return self.directory / "claims" / owner


def _flat(value: object, at: str = "") -> dict[str, object]:
    """Nested facts under dotted names, so that a difference can be named."""
    if isinstance(value, Mapping) and value:
        return {
            key: found
            for name, inner in value.items()
            for key, found in _flat(inner, f"{at}.{name}" if at else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        named = {
            str(v.get("name", i)) if isinstance(v, Mapping) else str(i): v
            for i, v in enumerate(value)
        }
        return _flat(named, at)
    return {at: value}

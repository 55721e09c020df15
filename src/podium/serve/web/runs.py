"""The list of runs: filters over windows of bounded size, so that no search holds the server up.

Ids sort by time, so a page begins where the last one ended. A search that finds little in one
window says how far it looked, and the page asks for the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.app import CANCELLED
from podium.errors import (
    ConfigError,
    LimitError,
    NotRecorded,
    SandboxError,
    StoreError,
    WorkerError,
    WorkflowError,
)
from podium.records import CUT_OFF
from podium.serve.wire import Refusal
from podium.store import RunRow, Store

WINDOW = 1_000
"""Runs that one question to the store looks at."""
SECONDS = 0.08
"""After which a search says how far it came."""
PAGE = 50
LISTED = 200
EVERYBODY, NOBODY = "*", "-"
"""In place of a key's id: the runs of all of them, and those that were asked without one."""
FAILURES = (
    *(
        kind.__name__
        for kind in (
            WorkerError,
            LimitError,
            WorkflowError,
            ConfigError,
            NotRecorded,
            SandboxError,
            StoreError,
        )
    ),
    CANCELLED.kind,
    CUT_OFF.kind,
)
"""The kinds of failure that a run can end in."""
LAST = "g"
"""Behind every id, which are hexadecimal, in whatever order a database sorts."""
COLUMNS = ", ".join(RunRow.__slots__)
FILTERS = {
    "q": "LOWER(question) LIKE ? ESCAPE '!'",
    "strategy": "strategy = ?",
    "worker": "' ' || workers || ' ' LIKE ? ESCAPE '!'",
    "state": "state = ?",
    "failure": "failure = ?",
    "dollars": "usd >= ?",
    "seconds": "seconds >= ?",
}


@dataclass(frozen=True, slots=True)
class Page:
    runs: Sequence[RunRow]
    next: str
    """Where the list goes on; empty at its end."""
    looked: int
    """How many runs were looked at."""


def owned(owner: str | None) -> tuple[str, tuple[str, ...]]:
    """A condition on whose a run is; None is everybody."""
    return ("1 = 1", ()) if owner is None else ("owner = ?", (owner,))


async def page(store: Store, owner: str | None, asked: Mapping[str, str]) -> Page:
    """The runs that a request asks for, newest first; without an owner, everybody's.

    Raises:
        Refusal: a filter is not what it must be.
    """
    limit = int(_number(asked, "limit", PAGE, LISTED, least=1))
    before = asked.get("before", "") or _id_at(asked, "until") or LAST
    since = _id_at(asked, "since")
    where, values = _where(asked)
    window = WINDOW if where else limit
    mine, whose = owned(owner)
    inside = f"FROM runs WHERE {mine} AND id < ? AND id >= ? ORDER BY id DESC LIMIT ?"
    sql = f"SELECT {COLUMNS} FROM (SELECT {COLUMNS} {inside}) AS recent {where}"
    sql += " ORDER BY id DESC LIMIT ?"
    edge = f"SELECT id {inside} OFFSET ?"
    rows: list[RunRow] = []
    looked, until = 0, time.monotonic() + SECONDS
    while True:
        first = (*whose, before, since)
        found = await store.fetch(sql, *first, window, *values, limit - len(rows))
        rows += [RunRow(*row) for row in found]
        looked += window
        if len(rows) == limit:
            return Page(rows, rows[-1].id, looked)
        last = await store.fetch(edge, *first, 1, window - 1)  # of the window, if it is full
        before = str(last[0][0]) if last else ""
        if not before or time.monotonic() > until:
            return Page(rows, before, looked)
        await asyncio.sleep(0)  # others have their turn between two windows


def _where(asked: Mapping[str, str]) -> tuple[str, list[object]]:
    given: dict[str, object] = {}
    for name, sql in FILTERS.items():
        if value := asked.get(name, "").strip():
            given[sql] = _value(name, value, asked)
    return ("WHERE " + " AND ".join(given) if given else ""), list(given.values())


def _value(name: str, value: str, asked: Mapping[str, str]) -> object:
    if name in ("dollars", "seconds"):
        return _number(asked, name, 0.0)
    if name == "q":
        return f"%{_plain(value.lower())}%"
    return f"% {_plain(value)} %" if name == "worker" else value


def _plain(value: str) -> str:
    """Without meaning for LIKE."""
    for mark in "!%_":
        value = value.replace(mark, f"!{mark}")
    return value


def _number(
    asked: Mapping[str, str], name: str, default: float, most: float = 1e15, *, least: float = 0
) -> float:
    try:
        found = float(asked.get(name) or default)
    except ValueError:
        found = -1.0
    if not least <= found <= most:
        raise Refusal(f"`{name}` must be a number from {least:g} to {most:g}", param=name)
    return found


def _id_at(asked: Mapping[str, str], name: str) -> str:
    """The smallest id of a run that began at a time, given in seconds since the epoch."""
    seconds = _number(asked, name, 0.0, 1e11)
    return f"{int(seconds * 1000):011x}" if seconds else ""


async def windows(
    store: Store, owner: str | None, columns: str, *, most: int
) -> AsyncIterator[Sequence[Sequence[Any]]]:
    """Columns of the newest runs, a window at a time; the id comes first in each row."""
    before, seen = LAST, 0
    mine, whose = owned(owner)
    sql = f"SELECT id, {columns} FROM runs WHERE {mine} AND id < ? ORDER BY id DESC LIMIT ?"
    while seen < most:
        rows = await store.fetch(sql, *whose, before, min(WINDOW, most - seen))
        if not rows:
            return
        yield rows
        await asyncio.sleep(0)  # others have their turn between two windows
        before, seen = rows[-1][0], seen + len(rows)

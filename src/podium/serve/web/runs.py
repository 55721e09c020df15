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

from podium.serve.wire import Refusal
from podium.store import RunRow, Store

WINDOW = 1_000
"""Runs that one question to the store looks at."""
SECONDS = 0.08
"""After which a search says how far it came."""
PAGE = 50
LISTED = 200
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


async def page(store: Store, owner: str, asked: Mapping[str, str]) -> Page:
    """The runs that a request asks for, newest first.

    Raises:
        Refusal: a filter is not what it must be.
    """
    limit = int(_number(asked, "limit", PAGE, LISTED))
    before = asked.get("before", "") or _id_at(asked, "until") or LAST
    since = _id_at(asked, "since")
    where, values = _where(asked)
    window = WINDOW if where else limit
    sql = f"""
        SELECT {COLUMNS} FROM (
            SELECT {COLUMNS} FROM runs
            WHERE owner = ? AND id < ? AND id >= ? ORDER BY id DESC LIMIT ?
        ) AS recent {where} ORDER BY id DESC LIMIT ?
    """
    rows: list[RunRow] = []
    looked, until = 0, time.monotonic() + SECONDS
    while True:
        first = (owner, before, since, window)
        found = await store.fetch(sql, *first, *values, limit - len(rows))
        rows += [RunRow(*row) for row in found]
        looked += window
        if len(rows) == limit:
            return Page(rows, rows[-1].id, looked)
        before = await _edge(store, first)
        if not before or time.monotonic() > until:
            return Page(rows, before, looked)
        await asyncio.sleep(0)  # others have their turn between two windows


async def _edge(store: Store, first: Sequence[object]) -> str:
    """The oldest run of a window, if there may be more behind it."""
    owner, before, since, window = first
    sql = "SELECT id FROM runs WHERE owner = ? AND id < ? AND id >= ? ORDER BY id DESC LIMIT 1"
    rows = await store.fetch(f"{sql} OFFSET ?", owner, before, since, int(str(window)) - 1)
    return str(rows[0][0]) if rows else ""


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


def _number(asked: Mapping[str, str], name: str, default: float, most: float = 1e15) -> float:
    try:
        found = float(asked.get(name) or default)
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise Refusal(f"`{name}` must be a number from 0 to {most:g}", param=name)
    return found


def _id_at(asked: Mapping[str, str], name: str) -> str:
    """The smallest id of a run that began at a time, given in seconds since the epoch."""
    seconds = _number(asked, name, 0.0, 1e11)
    return f"{int(seconds * 1000):011x}" if seconds else ""


async def windows(
    store: Store, owner: str, columns: str, *, most: int
) -> AsyncIterator[Sequence[Sequence[Any]]]:
    """Columns of the newest runs, a window at a time; the id comes first in each row."""
    before, seen = LAST, 0
    while seen < most:
        sql = f"SELECT id, {columns} FROM runs WHERE owner = ? AND id < ? ORDER BY id DESC LIMIT ?"
        rows = await store.fetch(sql, owner, before, min(WINDOW, most - seen))
        if not rows:
            return
        yield rows
        await asyncio.sleep(0)  # others have their turn between two windows
        before, seen = rows[-1][0], seen + len(rows)

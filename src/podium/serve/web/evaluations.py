"""What `podium eval` left behind: its figures, each strategy's questions, and the runs behind them.

Everything is counted anew when the results have changed, beside the server's other work. What
evaluation needs may not be installed, so it is imported when it is first asked for.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from podium.errors import PodiumError
from podium.records import run_from
from podium.serve.wire import Json, Refusal
from podium.types import Run

if TYPE_CHECKING:
    from podium.eval.report import Report
    from podium.eval.results import Sample
    from podium.eval.tally import Tally

RESULTS = "results.sqlite"
TICKET_SECONDS = 60.0
KEPT = 8
"""Evaluations that are held in memory."""
LISTED = 50
EXCERPT = 300

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Counted:
    tallies: Sequence[Tally]
    reports: Sequence[Report]


@dataclass(slots=True)
class Evaluations:
    _counted: dict[Path, tuple[float, Counted]] = field(default_factory=dict)
    _pages: dict[Path, tuple[float, bytes]] = field(default_factory=dict)
    _tickets: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def figures(self, folder: Path) -> Json:
        """Those of every task and split, or why there are none."""
        try:
            counted = await self._fresh(self._counted, folder, _count)
        except Refusal as exc:
            return {"problem": str(exc), "reports": []}
        told = [
            {"title": r.title, "figures": r.figures, "front": r.front, "doubts": r.doubts}
            for r in counted.reports
        ]
        body: Json = orjson.loads(orjson.dumps({"reports": told}, option=orjson.OPT_NON_STR_KEYS))
        return body

    async def questions(self, folder: Path, asked: Mapping[str, str]) -> Json:
        """The questions of one strategy, or of two, as far as a request wants to see them."""
        counted = await self._fresh(self._counted, folder, _count)
        number = asked.get("report", "") or "0"
        if not number.isdecimal() or int(number[:6]) >= len(counted.tallies):
            raise Refusal("there is no such report", 404, param="report")
        return await asyncio.to_thread(_questions, counted.tallies[int(number)], asked)

    async def ticket(self, folder: Path) -> str:
        """An address under which the report can be opened for a minute: a key never stands in one.

        Raises:
            Refusal: there is nothing to report yet.
        """
        body = await self._fresh(self._pages, folder, _page)
        now = time.monotonic()
        self._tickets = {k: v for k, v in self._tickets.items() if v[1] > now}
        name = secrets.token_urlsafe(24)
        self._tickets[name] = body, now + TICKET_SECONDS
        return name

    def page(self, ticket: str) -> bytes | None:
        body, until = self._tickets.get(ticket, (b"", 0.0))
        return body if until > time.monotonic() else None

    async def _fresh(
        self, known: dict[Path, tuple[float, Made]], folder: Path, make: Callable[[Path], Made]
    ) -> Made:
        """What was made of the results as they are now; one is made at a time."""
        async with self._turn:
            changed = _changed(folder)
            if folder not in known or known[folder][0] != changed:
                try:
                    known[folder] = changed, await asyncio.to_thread(make, folder)
                except PodiumError as exc:
                    raise Refusal(str(exc), 409) from exc
                if len(known) > KEPT:
                    del known[next(iter(known))]
            return known[folder][1]


def _changed(folder: Path) -> float:
    files = (folder / RESULTS, folder / f"{RESULTS}-wal")
    return max(file.stat().st_mtime for file in files if file.is_file())


def _count(folder: Path) -> Counted:
    from podium.eval.report import summarise
    from podium.eval.tally import read

    tallies = asyncio.run(read([folder]))
    return Counted(tallies, [summarise(tally) for tally in tallies])


def _page(folder: Path) -> bytes:
    from podium.eval.page import write_page
    from podium.eval.report import summarise
    from podium.eval.tally import read

    async def write(path: Path) -> None:
        tally, *_ = await read([folder])
        await write_page(path, tally, summarise(tally))

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "report.html"
        asyncio.run(write(path))
        return path.read_bytes()


# ── questions ──


@dataclass(frozen=True, slots=True)
class Side:
    """What one strategy made of each question."""

    name: str
    scores: Mapping[str, float]
    samples: Mapping[str, Sequence[Sample]]

    def has(self, item: str) -> bool:
        return item in self.samples or item in self.scores


SHOWN: dict[str, Callable[[str, Side, Side], bool]] = {
    "all": lambda item, a, b: True,
    "right": lambda item, a, b: a.scores.get(item, 0.0) >= 1.0,
    "wrong": lambda item, a, b: item in a.scores and a.scores[item] < 1.0,
    "unscored": lambda item, a, b: item not in a.scores,
    "differ": lambda item, a, b: _gap(item, a, b) != 0,
    "better": lambda item, a, b: _gap(item, a, b) > 0,
    "worse": lambda item, a, b: _gap(item, a, b) < 0,
}
"""Which questions of the first strategy are wanted, perhaps against the second."""


def _gap(item: str, a: Side, b: Side) -> float:
    both = item in a.scores and item in b.scores
    return a.scores[item] - b.scores[item] if both else 0.0


def _questions(tally: Tally, asked: Mapping[str, str]) -> Json:
    from podium.eval.page import target

    show, wanted = asked.get("show", "") or "all", asked.get("category", "")
    if show not in SHOWN:
        raise Refusal(f"`show` is one of {', '.join(SHOWN)}", param="show")
    a = _side(tally, asked.get("a", ""))
    b = _side(tally, asked["b"]) if asked.get("b") else a
    sides = (a,) if a is b else (a, b)
    items = [i for i in tally.items.values() if any(side.has(i.id) for side in sides)]
    counts = {name: sum(fits(i.id, a, b) for i in items) for name, fits in SHOWN.items()}
    fits = [i for i in items if SHOWN[show](i.id, a, b) and wanted in ("", i.category or "")]
    begin = asked.get("from", "")
    begun = int(begin[:9]) if begin.isdecimal() else 0
    return {
        "counts": counts,
        "categories": sorted({i.category for i in items if i.category}),
        "found": len(fits),
        "questions": [
            {
                "id": item.id,
                "category": item.category or "",
                "question": " ".join(item.question[: 2 * EXCERPT].split())[:EXCERPT],
                "target": target(item.target)[:EXCERPT],
                "answers": [_answer(side, item.id) for side in sides],
            }
            for item in fits[begun : begun + LISTED]
        ],
    }


def _side(tally: Tally, name: str) -> Side:
    from podium.eval.report import ORACLE, rows

    if name == ORACLE:
        return Side(name, tally.oracle, {})
    row = rows(tally).get(name)
    if row is None:
        raise Refusal(f"there is no strategy {name[:200]!r} here", 404, param="a")
    samples: dict[str, list[Sample]] = {}
    for sample in tally.samples[row]:
        samples.setdefault(sample.item, []).append(sample)
    return Side(name, tally.scores[row], samples)


def _answer(side: Side, item: str) -> Json:
    samples = side.samples.get(item, ())
    first = samples[0] if samples else None
    return {
        "score": side.scores.get(item),
        "read": first.read[:EXCERPT] if first and first.read is not None else None,
        "said": (first.failure or first.note)[:EXCERPT] if first else "",
        "usd": sum(s.usd for s in samples),
        "runs": [s.run for s in samples],
    }


def run(folder: Path, id: str) -> Run:
    """A run of an evaluation, out of its results, which nothing here may change.

    Raises:
        Refusal: there is none, or it cannot be read.
    """
    try:
        with sqlite3.connect(f"{(folder / RESULTS).resolve().as_uri()}?mode=ro", uri=True) as found:
            rows = found.execute("SELECT record FROM runs WHERE id = ?", (id,)).fetchall()
        found.close()
        if not rows:
            raise Refusal("there is no such run", 404)
        return run_from(rows[0][0])
    except (sqlite3.Error, ValueError) as exc:
        problem = "was written by another version of Podium, or is damaged"
        raise Refusal(f"this run {problem}: {str(exc).splitlines()[0]}", 409) from exc

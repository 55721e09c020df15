"""The directories of `podium train` and `podium eval`, found where they are put on the shelf.

`PODIUM_RUNS` names the shelf. Where it is not set and nobody needs a key, it is `runs` of the
directory that the server was started in. A directory is known by its place on the shelf; no path
that a request brings is ever opened.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from podium.errors import ConfigError
from podium.serve.wire import Json, Refusal

SHELF = "PODIUM_RUNS"
DEPTH = 3
METRICS, SAMPLES, RESULTS = "metrics.jsonl", "samples.jsonl", "results.sqlite"
MAX_SAMPLES = 64
TICKET_SECONDS = 60.0


def shelf(*, keyed: bool) -> Path | None:
    given = os.environ.get(SHELF)
    return Path(given) if given else None if keyed else Path("runs")


def found(root: Path | None, mark: str) -> dict[str, Path]:
    """The directories that hold a file of this name, by their place."""
    if root is None or not root.is_dir():
        return {}
    return {p.relative_to(root).as_posix(): p for p in _below(root, mark, DEPTH)}


def _below(folder: Path, mark: str, depth: int) -> Iterator[Path]:
    if (folder / mark).is_file():
        yield folder
    elif depth:
        for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
            yield from _below(inner, mark, depth - 1)


def at(root: Path | None, mark: str, name: str) -> Path:
    folder = found(root, mark).get(name)
    if folder is None:
        raise Refusal("there is no such directory on the shelf", 404)
    return folder


# ── training ──


def trainings(root: Path | None) -> Sequence[Json]:
    return [_training(name, folder) for name, folder in found(root, METRICS).items()]


def _training(name: str, folder: Path) -> Json:
    lines, recipe = _lines(folder / METRICS), folder / "recipe.json"
    body = orjson.loads(recipe.read_bytes()) if recipe.is_file() else {}
    return {
        "name": name,
        "recipe": body.get("name", name),
        "of": (body.get("grpo") or {}).get("steps"),
        "last": lines[-1] if lines else {},
        "changed": (folder / METRICS).stat().st_mtime,
        "finished": (folder / "report.json").is_file(),
    }


def metrics(folder: Path, after: int) -> Json:
    rows = [row for row in _lines(folder / METRICS) if int(str(row["step"])) > after]
    return {"rows": rows, "finished": (folder / "report.json").is_file()}


def samples(folder: Path, step: int) -> Sequence[Json]:
    rows = _lines(folder / SAMPLES) if (folder / SAMPLES).is_file() else []
    return [row for row in rows if row["step"] == step][:MAX_SAMPLES]


def _lines(path: Path) -> list[Json]:
    """Whole lines only: the last one may be just being written."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [orjson.loads(line) for line in whole.splitlines() if line.strip()]


# ── evaluations ──


@dataclass(slots=True)
class Evaluations:
    """Reports are made anew when their results have changed, beside the server's other work."""

    _figures: dict[Path, tuple[float, Json]] = field(default_factory=dict)
    _pages: dict[Path, tuple[float, bytes]] = field(default_factory=dict)
    _tickets: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    async def figures(self, folder: Path) -> Json:
        changed = _changed(folder)
        known = self._figures.get(folder)
        if known is None or known[0] != changed:
            made = await asyncio.to_thread(_figures, folder)
            known = self._figures[folder] = changed, made
        return known[1]

    async def ticket(self, folder: Path) -> str:
        """An address under which the report can be opened for a minute: a key never stands in one.

        Raises:
            Refusal: there is nothing to report yet.
        """
        changed = _changed(folder)
        known = self._pages.get(folder)
        if known is None or known[0] != changed:
            known = self._pages[folder] = changed, await asyncio.to_thread(_page, folder)
        now = time.monotonic()
        self._tickets = {k: v for k, v in self._tickets.items() if v[1] > now}
        name = secrets.token_urlsafe(24)
        self._tickets[name] = known[1], now + TICKET_SECONDS
        return name

    def page(self, ticket: str) -> bytes | None:
        body, until = self._tickets.get(ticket, (b"", 0.0))
        return body if until > time.monotonic() else None


def _changed(folder: Path) -> float:
    files = (folder / RESULTS, folder / f"{RESULTS}-wal")
    return max(file.stat().st_mtime for file in files if file.is_file())


def _figures(folder: Path) -> Json:
    from podium.eval.report import summarise  # what evaluation needs may not be installed
    from podium.eval.tally import read

    try:
        tallies = asyncio.run(read([folder]))
    except ConfigError as exc:
        return {"problem": str(exc), "reports": []}
    reports = [summarise(tally) for tally in tallies]
    told = [{"title": r.title, "figures": r.figures, "doubts": r.doubts} for r in reports]
    body: Json = orjson.loads(orjson.dumps({"reports": told}, option=orjson.OPT_NON_STR_KEYS))
    return body


def _page(folder: Path) -> bytes:
    from podium.eval.page import write_page
    from podium.eval.report import summarise
    from podium.eval.tally import read

    async def write(path: Path) -> None:
        tally, *_ = await read([folder])
        await write_page(path, tally, summarise(tally))

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "report.html"
        try:
            asyncio.run(write(path))
        except ConfigError as exc:
            raise Refusal(str(exc), 409) from exc
        return path.read_bytes()

"""The shelf: where the directories of `podium train` and `podium eval` are found.

`PODIUM_RUNS` names it. Where it is not set and nobody needs a key, it is `runs` of the directory
that the server was started in. A directory is known by its place on the shelf; no path that a
request brings is ever opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from podium.serve.wire import Refusal

SHELF = "PODIUM_RUNS"
DEPTH = 3


def shelf(*, keyed: bool) -> Path | None:
    given = os.environ.get(SHELF)
    return Path(given) if given else None if keyed else Path("runs")


def found(root: Path | None, *marks: str) -> dict[str, Path]:
    """The directories that hold a file of one of these names, by their place."""
    if root is None or not root.is_dir():
        return {}
    return {p.relative_to(root).as_posix(): p for p in _below(root, marks, DEPTH)}


def _below(folder: Path, marks: tuple[str, ...], depth: int) -> Iterator[Path]:
    if any((folder / mark).is_file() for mark in marks):
        yield folder
    elif depth and os.access(folder, os.R_OK | os.X_OK):
        for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
            yield from _below(inner, marks, depth - 1)


def at(root: Path | None, name: str, *marks: str) -> Path:
    """The directory of that name.

    Raises:
        Refusal: there is none.
    """
    folder = found(root, *marks).get(name)
    if folder is None:
        raise Refusal("there is no such directory on the shelf", 404)
    return folder

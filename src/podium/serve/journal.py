"""A line of JSON for every request: what was asked of whom and how it ended, never its content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import orjson

FLUSH_SECONDS = 0.2
"""Lines are written together: a request is not held up by the log."""


class Journal:
    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """Write by a function such as `sys.stderr.write`; without one, keep no journal."""
        self._write = write
        self._lines: list[dict[str, object]] = []

    def note(self, told: dict[str, object]) -> None:
        if self._write is None:
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        told["at"] = round(time.time(), 3)
        self._lines.append(told)

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._write is not None and lines:
            self._write("".join(orjson.dumps(line).decode() + "\n" for line in lines))

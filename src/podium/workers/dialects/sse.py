"""Server-sent events out of bytes as they arrive."""

from __future__ import annotations

from podium.errors import WorkerError

MAX_LINE = 1 << 20
"""Bytes of one line. The longest honest ones carry a whole reply and stay far below it."""


class Events:
    """Feed it chunks, cut anywhere; it gives back the data of every event that is complete."""

    __slots__ = ("_data", "_line", "_pending")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._pending = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = chunk.split(b"\n")
        self._line.append(lines[0])
        self._pending += len(lines[0])
        if self._pending > MAX_LINE:
            raise WorkerError(f"the stream has a line over {MAX_LINE} bytes")
        if len(lines) == 1:
            return []
        lines[0] = b"".join(self._line)
        self._line = [lines.pop()]
        self._pending = len(self._line[0])
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif self._data and not line.strip():
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def rest(self) -> list[bytes]:
        """What is left when the stream ends: some servers forget the last empty line."""
        return self.feed(b"\n\n")

"""What a worker is spared: too many calls at once or a minute, and calls while it is down."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE = 60.0


@dataclass(slots=True)
class Entry:
    """A call that went ahead, and the tokens it is thought to use until they are known."""

    at: float
    tokens: int
    past: bool = False


class Pace:
    """At most so many calls, and so many tokens, in any minute that one looks back on."""

    def __init__(
        self, rpm: int | None, tpm: int | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rpm = rpm
        self._tpm = tpm
        self._clock = clock
        self._minute: deque[Entry] = deque()
        self._tokens = 0

    def enter(self, tokens: int) -> Entry | float:
        """Book a call now; or say how many seconds to wait before asking again."""
        now = self._clock()
        while self._minute and self._minute[0].at <= now - MINUTE:
            old = self._minute.popleft()
            old.past = True
            self._tokens -= old.tokens
        if self._full(tokens):
            return self._minute[0].at + MINUTE - now
        entry = Entry(now, tokens)
        self._minute.append(entry)
        self._tokens += tokens
        return entry

    def correct(self, entry: Entry, tokens: int) -> None:
        """Now it is known what the call used."""
        if not entry.past:
            self._tokens += tokens - entry.tokens
            entry.tokens = tokens

    def _full(self, tokens: int) -> bool:
        """A call that alone is over the tokens of a minute goes when nothing else has gone."""
        if not self._minute:
            return False
        if self._rpm is not None and len(self._minute) >= self._rpm:
            return True
        return self._tpm is not None and self._tokens + tokens > self._tpm


class Gate:
    """Where the calls to one worker queue, in the order they came."""

    def __init__(self, *, concurrency: int | None, rpm: int | None, tpm: int | None) -> None:
        self._slots = asyncio.Semaphore(concurrency) if concurrency else None
        self._pace = Pace(rpm, tpm) if rpm or tpm else None
        self._turn = asyncio.Lock()

    async def enter(self, tokens: int) -> Entry | None:
        if self._slots is not None:
            await self._slots.acquire()
        if self._pace is None:
            return None
        try:
            return await self._paced(self._pace, tokens)
        except asyncio.CancelledError:
            self.leave()
            raise

    async def _paced(self, pace: Pace, tokens: int) -> Entry:
        async with self._turn:
            entered = pace.enter(tokens)
            while isinstance(entered, float):
                await asyncio.sleep(entered)
                entered = pace.enter(tokens)
        return entered

    def leave(self, entry: Entry | None = None, used: int | None = None) -> None:
        if self._slots is not None:
            self._slots.release()
        if self._pace is not None and entry is not None and used is not None:
            self._pace.correct(entry, used)


@dataclass(slots=True)
class Breaker:
    """Opens after so many failures in a row, and then lets one call through per cool-down."""

    failures: int = 8
    cool_down: float = 30.0
    clock: Callable[[], float] = time.monotonic
    in_a_row: int = field(default=0, init=False)
    reason: str = field(default="", init=False)
    _closed_at: float = field(default=0.0, init=False)

    def wait(self) -> float:
        """Seconds for which nobody may call; 0.0 admits the caller, and nobody else for a while."""
        if self.in_a_row < self.failures:
            return 0.0
        now = self.clock()
        if now < self._closed_at:
            return self._closed_at - now
        self._closed_at = now + self.cool_down
        return 0.0

    def succeeded(self) -> None:
        self.in_a_row = 0

    def failed(self, reason: str) -> None:
        self.in_a_row += 1
        self.reason = reason
        self._closed_at = self.clock() + self.cool_down

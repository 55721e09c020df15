"""Limits made real: reserve the worst case before a call, settle what it was after it.

Ledgers form a chain: a nested run's ledger draws on its run's, and that on the process's. A
reservation holds at every level at once, so runs that spend together can't pass a limit
together, and retries, fallbacks and recursion all draw on the same account. A call that would
not fit even if nothing else were under way is refused; one that does not fit *yet* waits for the
calls under way to settle.

Everything here runs on one event loop and never awaits between a check and its booking.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from podium.errors import LimitError
from podium.types import Limits, Usage


@dataclass(slots=True)
class Reservation:
    """Money, tokens and a call, set aside. Settle it or it is charged in full."""

    ledger: Ledger
    tokens: int
    dollars: float
    open: bool = True

    def settle(self, usage: Usage, cost: float | None) -> None:
        """Book what the call really used. An unknown cost is booked as the reserved one."""
        if self.open:
            self.open = False
            for ledger in self.ledger.chain():
                ledger.held_tokens -= self.tokens
                ledger.held_dollars -= self.dollars
                ledger.tokens += usage.total
                ledger.dollars += self.dollars if cost is None else cost
                ledger.wake()

    def release(self) -> None:
        """Nothing was used: the call never reached anyone."""
        self.settle(Usage(), 0.0)


class Ledger:
    def __init__(
        self, limits: Limits | None = None, parent: Ledger | None = None, *, depth: int = 0
    ) -> None:
        self.limits = limits or Limits()
        self.parent = parent
        self.depth = depth
        self.started = time.monotonic()
        self.tokens = 0
        self.dollars = 0.0
        self.calls = 0
        self.held_tokens = 0
        self.held_dollars = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def nested(self, limits: Limits | None = None) -> Ledger:
        """The ledger of a run inside this one: one level deeper, on the same account."""
        if self.depth >= self.limits.depth:
            raise LimitError(f"a strategy may call another {self.limits.depth} deep, not deeper")
        inner = self.limits if limits is None else limits.within(self.limits)
        return Ledger(inner, self, depth=self.depth + 1)

    def chain(self) -> Iterator[Ledger]:
        ledger: Ledger | None = self
        while ledger is not None:
            yield ledger
            ledger = ledger.parent

    @property
    def has_dollar_limit(self) -> bool:
        return any(ledger.limits.dollars is not None for ledger in self.chain())

    @property
    def seconds_left(self) -> float | None:
        """Until the earliest deadline of the chain."""
        left = [
            ledger.limits.seconds - (time.monotonic() - ledger.started)
            for ledger in self.chain()
            if ledger.limits.seconds is not None
        ]
        return max(0.0, min(left)) if left else None

    async def reserve(self, tokens: int, dollars: float | None) -> Reservation:
        """Set the worst case of one call aside at every level, or raise `LimitError`.

        An unknown price (None) is refused under a dollar limit before anything is spent.
        """
        if dollars is None and self.has_dollar_limit:
            raise LimitError(
                "a dollar limit is set and the worker's price is unknown: give it a price in the "
                "configuration"
            )
        need = dollars or 0.0
        while (full := self._full(tokens, need)) is not None:
            turn = asyncio.get_running_loop().create_future()
            full._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                full.wake()  # the turn may have been ours already: hand it on
                raise
        for ledger in self.chain():
            ledger.calls += 1
            ledger.held_tokens += tokens
            ledger.held_dollars += need
        return Reservation(self, tokens, need)

    def book_replayed(self, usage: Usage, cost: float | None) -> None:
        """Count a replayed call against the run's limits, while nobody is charged for it.

        The process's own ledger is left alone: a resumed run reaches its limits where the first
        one did, and the money that was spent then is not counted twice.
        """
        runs = [ledger for ledger in self.chain() if ledger.parent is not None or ledger is self]
        for ledger in runs:
            ledger._check(usage.total, cost or 0.0)
        for ledger in runs:
            ledger.calls += 1
            ledger.tokens += usage.total
            ledger.dollars += cost or 0.0

    def wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _full(self, tokens: int, dollars: float) -> Ledger | None:
        """The first ledger in which this has to wait for others to settle, if it fits at all."""
        for ledger in self.chain():
            ledger._check(tokens, dollars)
        for ledger in self.chain():
            if ledger._over(tokens + ledger.held_tokens, dollars + ledger.held_dollars):
                return ledger
        return None

    def _check(self, tokens: int, dollars: float) -> None:
        if self.limits.calls is not None and self.calls >= self.limits.calls:
            raise LimitError(f"the limit of {self.limits.calls} calls is reached")
        if over := self._over(tokens, dollars):
            raise LimitError(over)

    def _over(self, tokens: int, dollars: float) -> str:
        limits = self.limits
        if limits.tokens is not None and self.tokens + tokens > limits.tokens:
            return f"a call of up to {tokens} tokens may pass the limit of {limits.tokens}"
        if limits.dollars is not None and self.dollars + dollars > limits.dollars:
            return f"a call of up to ${dollars:.4g} may pass the limit of ${limits.dollars:g}"
        return ""

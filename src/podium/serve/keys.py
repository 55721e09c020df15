"""Keys: who may ask, for what, and how much they may spend.

A key is a long random word of which only a hash is stored. Its budgets are kept by holds: before
anything is spent it is set aside in one transaction of the store that all servers share, and
afterwards the hold is exchanged for what was really spent. Runs that begin at the same moment
can't pass a budget together, on one server or on many. A server holds a little more than one run
needs (its purse), so that not every request has to wait for the store, and gives back what it
does not use. A server that dies leaves its holds behind; they run out, and are booked in full.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from podium.errors import ConfigError
from podium.serve.wire import Refusal
from podium.store import Statement, Store

PREFIX = "pk-"
HOLD_SECONDS = 30.0
"""How long a hold lives unless its server renews it."""
RENEW_SECONDS = 8.0
SEEN_SECONDS = 1.0
"""How long a key is taken to be what it was: a revoked one is refused after this at the latest."""
BOOK_SECONDS = 0.2
"""After which what was spent out of a purse is booked, and what is not needed given back."""
AHEAD = 32
AHEAD_SHARE = 0.01
"""A purse is filled for so many runs, but with no more than this part of the budget."""
CENT = 1e-9
"""What sums of dollars may be off by."""
USED_UP = "the budget of this key is used up"


@dataclass(frozen=True, slots=True)
class Key:
    """What a key may do. None is no limit."""

    id: str
    name: str
    daily: float | None = None
    """Dollars a day, counted in UTC."""
    monthly: float | None = None
    per_run: float | None = None
    models: frozenset[str] | None = None
    workers: frozenset[str] | None = None
    revoked: bool = False
    created: float = 0.0
    today: float = 0.0
    """Dollars spent today."""
    this_month: float = 0.0
    held: float = 0.0
    """Dollars that runs under way have set aside."""

    @property
    def limited(self) -> bool:
        return self.daily is not None or self.monthly is not None

    @property
    def budget(self) -> float:
        """The tightest."""
        return min(b for b in (self.daily, self.monthly) if b is not None)

    @property
    def left(self) -> float:
        """Dollars that are neither spent nor held."""
        spent = ((self.daily, self.today), (self.monthly, self.this_month))
        return min(budget - used - self.held for budget, used in spent if budget is not None)


NOBODY = Key("", "")
"""Who asks where no key has been made: somebody on this very machine."""


@dataclass(slots=True)
class Purse:
    """What one server holds of one key's budget."""

    key: Key
    id: str = ""
    held: float = 0.0
    """Dollars set aside in the store."""
    promised: float = 0.0
    """Of these: what runs under way may still spend."""
    spent: float = 0.0
    """Of these: what runs have spent, and is not booked yet."""
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)
    booking: asyncio.TimerHandle | None = None

    @property
    def free(self) -> float:
        return self.held - self.promised - self.spent


def digest(secret: str) -> str:
    """Keys are random and long, so that a plain hash cannot be turned around."""
    return hashlib.sha256(secret.encode()).hexdigest()


_COLUMNS = (
    "id, name, daily, monthly, per_run, models, workers, revoked, created, "
    "day, day_usd, month, month_usd, held"
)


class Keys:
    def __init__(self, store: Store, node: str = "") -> None:
        self._store = store
        self.node = node or secrets.token_hex(8)
        self._exist = False
        self._seen: dict[str, tuple[Key, float]] = {}
        self._purses: dict[str, Purse] = {}
        self._bookings: set[asyncio.Task[None]] = set()

    async def new(self, key: Key) -> str:
        """Make a key; its secret is returned once and never stored."""
        if not key.name.strip():
            raise ConfigError("a key needs a name, so that one knows whose it is")
        secret = PREFIX + secrets.token_urlsafe(32)
        now, day, month = _now()
        row = (key.id, key.name, digest(secret), now, None, *_limits(key), day, 0.0, month, 0.0)
        marks = ", ".join("?" * 16)
        await self._store.change((f"INSERT INTO keys VALUES ({marks})", (*row, 0.0, "")))
        return secret

    async def all(self) -> Sequence[Key]:
        rows = await self._store.fetch(f"SELECT {_COLUMNS} FROM keys ORDER BY created")
        return [_key(row) for row in rows]

    async def named(self, name: str) -> Key:
        """By id or by name.

        Raises:
            ConfigError: there is none, or more than one.
        """
        found = [k for k in await self.all() if name in (k.id, k.name)]
        alive = [k for k in found if not k.revoked] or found
        if len(alive) != 1:
            problem = "no key" if not alive else f"{len(alive)} keys"
            raise ConfigError(f"there is {problem} called {name!r}: see `podium keys list`")
        return alive[0]

    async def limit(self, key: Key) -> None:
        """Give a key other limits."""
        row = (*_limits(key), key.id)
        sql = "daily = ?, monthly = ?, per_run = ?, models = ?, workers = ?"
        await self._store.change((f"UPDATE keys SET {sql} WHERE id = ?", row))

    async def revoke(self, key: Key) -> None:
        sql = "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL"
        await self._store.change((sql, (time.time(), key.id)))

    async def exist(self) -> bool:
        """Whether any key was ever made: from then on nobody is let in without one."""
        if not self._exist:
            self._exist = bool(await self._store.fetch("SELECT 1 FROM keys LIMIT 1"))
        return self._exist

    async def find(self, secret: str) -> Key | None:
        """The key with this secret, as it was a second ago at the latest."""
        hashed, now = digest(secret), time.monotonic()
        known = self._seen.get(hashed)
        if known is not None and now - known[1] < SEEN_SECONDS:
            return known[0]
        rows = await self._store.fetch(f"SELECT {_COLUMNS} FROM keys WHERE hash = ?", hashed)
        found = _key(rows[0]) if rows else None
        if found is None or found.revoked:
            self._seen.pop(hashed, None)
            return None
        self._seen[hashed] = found, now
        return found

    # ── budgets ──

    async def take(self, key: Key, usd: float) -> float:
        """Promise a run what it may spend, or what is left if that is less.

        Raises:
            Refusal: nothing is left.
        """
        purse = self._purses.setdefault(key.id, Purse(key))
        purse.key = key
        if usd > 0 and purse.free < usd:
            async with purse.filling:
                usd = await self._fill(purse, usd)
        purse.promised += usd
        return usd

    def give_back(self, key: Key, promised: float, spent: float) -> None:
        """A run has ended: keep what it spent, and free the rest of what it was promised."""
        purse = self._purses.setdefault(key.id, Purse(key))
        purse.promised -= promised
        purse.spent += spent
        if purse.booking is None:
            loop = asyncio.get_running_loop()
            purse.booking = loop.call_later(BOOK_SECONDS, self._book_soon, purse)

    async def _fill(self, purse: Purse, usd: float) -> float:
        """Hold more of the budget: for many runs, for this one, or the last of it."""
        for wanted in (max(usd, min(AHEAD * usd, AHEAD_SHARE * purse.key.budget)), usd):
            if purse.free >= usd:  # another run has filled it meanwhile
                return usd
            if await self._hold(purse, wanted - max(0.0, purse.free)):
                return usd
        fresh = await self._fresh(purse.key)
        if fresh.left > 0:
            await self._hold(purse, fresh.left)
        if (rest := min(usd, purse.free)) > 0:
            return rest
        if purse.promised > 0 or fresh.held - purse.held > CENT:
            busy = "the rest of this key's budget is reserved by runs under way: try again"
            raise Refusal(busy, 429, code="budget_reserved")
        raise Refusal(USED_UP, 402, code="insufficient_quota")

    async def _hold(self, purse: Purse, usd: float) -> bool:
        id = purse.id or secrets.token_hex(12)
        granted = await self._store.change(*_held(id, purse.key.id, self.node, usd))
        if granted:
            purse.id, purse.held = id, purse.held + usd
        return bool(granted)

    async def _fresh(self, key: Key) -> Key:
        rows = await self._store.fetch(f"SELECT {_COLUMNS} FROM keys WHERE id = ?", key.id)
        return _key(rows[0])

    def _book_soon(self, purse: Purse) -> None:
        purse.booking = None
        task = asyncio.get_running_loop().create_task(self._book(purse))
        self._bookings.add(task)
        task.add_done_callback(self._bookings.discard)

    async def _book(self, purse: Purse) -> None:
        """Exchange what is no longer needed of a hold for what was spent out of it."""
        async with purse.filling:
            spent, held, keep = purse.spent, purse.held, purse.promised
            purse.spent = 0.0
            if not purse.id:
                if spent:
                    row = (*_spend(0.0, spent), purse.key.id)
                    await self._store.change((f"{_SPEND} WHERE id = ?", row))
            elif held > keep:
                settled = _settled(purse.id, purse.key.id, held, spent, keep)
                alive = await self._store.change(*settled)
                # A hold that ran out was booked in full: nothing of it is ours any more.
                purse.held = keep if alive else 0.0
                purse.id = purse.id if purse.held > 0 else ""

    async def book_all(self) -> None:
        """Leave nothing behind that is not booked."""
        for purse in self._purses.values():
            if purse.booking is not None:
                purse.booking.cancel()
                purse.booking = None
            await self._book(purse)

    async def renew(self) -> None:
        row = (time.time() + HOLD_SECONDS, self.node)
        await self._store.change(("UPDATE holds SET until = ? WHERE node = ?", row))

    async def sweep(self) -> int:
        """Book the holds of servers that died: nobody knows what they had spent, so all of it."""
        sql = "SELECT id, owner, usd FROM holds WHERE until < ?"
        lost = await self._store.fetch(sql, time.time())
        for id, owner, usd in lost:
            await self._store.change(*_settled(id, owner, usd, usd, 0.0))
        return len(lost)


def _now() -> tuple[float, str, str]:
    now = datetime.now(UTC)
    return now.timestamp(), now.strftime("%Y-%m-%d"), now.strftime("%Y-%m")


def _limits(key: Key) -> tuple[object, ...]:
    return key.daily, key.monthly, key.per_run, _joined(key.models), _joined(key.workers)


def _joined(names: frozenset[str] | None) -> str | None:
    return None if names is None else " ".join(sorted(names))


def _parted(names: str | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names.split())


def _key(row: Sequence[Any]) -> Key:
    id, name, daily, monthly, per_run, models, workers, revoked, created, *spent = row
    day, day_usd, month, month_usd, held = spent
    _, today, this_month = _now()
    return Key(
        id=id,
        name=name,
        daily=daily,
        monthly=monthly,
        per_run=per_run,
        models=_parted(models),
        workers=_parted(workers),
        revoked=revoked is not None,
        created=created,
        today=day_usd if day == today else 0.0,
        this_month=month_usd if month == this_month else 0.0,
        held=held,
    )


_FITS = """
    (daily IS NULL OR CASE WHEN day = ? THEN day_usd ELSE 0.0 END + held + ? <= daily)
    AND (monthly IS NULL OR CASE WHEN month = ? THEN month_usd ELSE 0.0 END + held + ? <= monthly)
"""
_SPEND = """
    UPDATE keys SET held = held - ?,
    day_usd = CASE WHEN day = ? THEN day_usd ELSE 0.0 END + ?, day = ?,
    month_usd = CASE WHEN month = ? THEN month_usd ELSE 0.0 END + ?, month = ?
"""


def _held(id: str, owner: str, node: str, usd: float) -> tuple[Statement, Statement]:
    """The second statement finds its key only if the first one has granted this very hold."""
    now, day, month = _now()
    turn = f"{id} {now}"
    take = f"UPDATE keys SET held = held + ?, last_hold = ? WHERE id = ? AND {_FITS}"
    note = """
        INSERT INTO holds (id, owner, node, usd, until)
        SELECT CAST(? AS TEXT), id, CAST(? AS TEXT), CAST(? AS DOUBLE PRECISION),
            CAST(? AS DOUBLE PRECISION)
        FROM keys WHERE id = ? AND last_hold = ?
        ON CONFLICT (id) DO UPDATE SET usd = holds.usd + EXCLUDED.usd, until = EXCLUDED.until
    """
    return (
        (take, (usd, turn, owner, day, usd, month, usd)),
        (note, (id, node, usd, now + HOLD_SECONDS, owner, turn)),
    )


def _settled(
    id: str, owner: str, held: float, usd: float, keep: float
) -> tuple[Statement, Statement]:
    """A hold that was swept meanwhile is booked already, and is not booked twice."""
    still = " WHERE id = ? AND EXISTS (SELECT 1 FROM holds WHERE holds.id = ?)"
    end: Statement = ("DELETE FROM holds WHERE id = ?", (id,))
    if keep > 0:
        end = ("UPDATE holds SET usd = ? WHERE id = ?", (keep, id))
    return (_SPEND + still, (*_spend(held - keep, usd), owner, id)), end


def _spend(held: float, usd: float) -> tuple[object, ...]:
    _, day, month = _now()
    return held, day, usd, day, month, usd, month

"""The sockets, shared by all HTTP workers of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import aiohttp

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One of a thing for each event loop that asks: what asyncio makes belongs to one loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        try:
            return self._made[loop]
        except KeyError:
            made = self._made[loop] = self._make()
            return made

    def clear(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Forget them all, and hand them over."""
        made = list(self._made.items())
        self._made.clear()
        return made


class Transport:
    """Connections, kept alive and reused. Close it when the last worker has answered.

    It takes nothing from the environment (no proxy, no .netrc), keeps no cookies, and asks for
    replies that are not compressed, so that the size on the wire is the size in memory.
    """

    def __init__(self, *, connections: int = 1_000) -> None:
        self._connections = connections
        self._sessions = PerLoop(self._open)

    def session(self) -> aiohttp.ClientSession:
        return self._sessions.get()

    async def close(self) -> None:
        """Close the connections of every loop that used them, also of those that have ended."""
        here = asyncio.get_running_loop()
        for loop, session in self._sessions.clear():
            if loop is not here and loop.is_running():
                done = asyncio.run_coroutine_threadsafe(session.close(), loop)
                await asyncio.wrap_future(done)
            else:
                with suppress(RuntimeError):  # "Event loop is closed", and its sockets with it
                    await session.close()

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

"""The sockets, shared by all HTTP workers of a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import aiohttp

T = TypeVar("T")
Keeper = AsyncGenerator[aiohttp.ClientSession, None]


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


class Transport:
    """Connections, kept alive and reused. Close it when the last worker has answered.

    It takes nothing from the environment (no proxy, no .netrc), keeps no cookies, and asks for
    replies that are not compressed, so that the size on the wire is the size in memory.
    """

    def __init__(self, *, connections: int = 1_000) -> None:
        self._connections = connections
        self._open: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, Keeper]] = {}

    async def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            keeper = self._keep(loop)
            self._open[loop] = (await anext(keeper), keeper)
        return self._open[loop][0]

    async def close(self) -> None:
        """Close the connections of every loop that has any."""
        here = asyncio.get_running_loop()
        for loop, (_, keeper) in list(self._open.items()):
            if loop is here:
                await keeper.aclose()
            elif loop.is_running():
                done = asyncio.run_coroutine_threadsafe(keeper.aclose(), loop)
                await asyncio.wrap_future(done)

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> Keeper:
        """A generator, because asyncio ends those that are left over when it ends a loop."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
        try:
            yield session
        finally:
            self._open.pop(loop, None)
            await session.close()

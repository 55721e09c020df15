"""llama.cpp in this process: its own server, on threads of its own, behind a private socket.

The server batches requests and knows chat templates, grammars and adapters. It is spoken to by
HTTP through a Unix socket in a directory that only this user can enter: no port is open, the
event loop does not wait for C++, and hanging up stops the work. Only its start and its end hold
Python up, because there it keeps the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import orjson

from podium.errors import ConfigError

Calls = dict[asyncio.Timeout, "asyncio.Future[None]"]
"""Requests under way: the scope that each runs in, and a sign that it has ended."""


class Engine:
    """A running llama.cpp and the socket it listens on. It stops with Python at the latest."""

    def __init__(self, params: Any, about: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="podium-"))
        key = secrets.token_urlsafe()
        self._socket = str(folder / "llama.sock")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._under_way: Calls = {}
        server: list[object] = []
        self.stop = weakref.finalize(self, _stop, server, self._under_way, folder)
        params.hostnames, params.api_keys = [self._socket], [key]
        try:
            server.append(library().Server(params))
        except RuntimeError:
            self.stop()
            raise ConfigError(f"llama.cpp cannot load {about}") from None

    @asynccontextmanager
    async def request(
        self, route: str, body: Mapping[str, object] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a request; one that is hung up on ends in a `TimeoutError`."""
        method, data = ("GET", None) if body is None else ("POST", orjson.dumps(body))
        ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(None) as scope:
                self._under_way[scope] = ended
                async with (
                    self._session() as session,
                    session.request(method, route, data=data) as response,
                ):
                    yield response
        finally:
            del self._under_way[scope]
            ended.set_result(None)

    @property
    def under_way(self) -> int:
        """How many requests it is working on, or will."""
        return len(self._under_way)

    async def hang_up(self) -> None:
        """End all requests: llama.cpp does not stop while somebody listens to it."""
        for scope in self._under_way:
            scope.reschedule(asyncio.get_running_loop().time())
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    def _session(self) -> aiohttp.ClientSession:
        """A session for one request: what aiohttp keeps for longer belongs to one event loop."""
        return aiohttp.ClientSession(
            "http://llama.cpp",
            connector=aiohttp.UnixConnector(self._socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None),  # a call is timed by whoever makes it
        )


def _stop(server: list[object], under_way: Calls, folder: Path) -> None:
    if under_way:
        # Python ends in the middle of a call that nobody will finish, and which llama.cpp would
        # wait for: one more reference, and its server is never asked to stop.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server[0]))
    server.clear()  # the last reference to it
    shutil.rmtree(folder, ignore_errors=True)


def library() -> ModuleType:
    # Read when llama.cpp is loaded: its threads would otherwise spin while they wait for each
    # other, and where anything else wants the cores a token then takes seconds.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return importlib.import_module("xllamacpp")
    except ModuleNotFoundError:
        raise ConfigError("local models need llama.cpp: pip install 'podium[local]'") from None

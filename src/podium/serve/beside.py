"""A run, shown on the page while it happens, by a server that is there or by one beside it.

Where no server shows it, this very process serves the page on a free port of this machine, until
it is interrupted.
"""

from __future__ import annotations

import asyncio
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import uvicorn

from podium.app import Podium
from podium.errors import ConfigError
from podium.events import Event, Started
from podium.serve import visit
from podium.serve.app import build
from podium.serve.desk import Desk
from podium.serve.keys import Keys


class Beside(uvicorn.Server):
    """A server that is a guest in its process: signals are not its affair."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Show:
    """Hears a run's events, and opens the page the moment it begins."""

    def __init__(self, podium: Podium, say: Callable[[str], None]) -> None:
        self._podium, self._say = podium, say
        self._opening: asyncio.Task[None] | None = None
        self._server: Beside | None = None
        self._serving: asyncio.Task[None] | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started) and self._opening is None:
            self._opening = asyncio.create_task(self._open(event.run.id))

    async def stay(self) -> None:
        """Return at once if another server shows the run, or else when somebody interrupts."""
        if self._opening is not None:
            await self._opening
        if self._serving is not None:
            self._say("the page stays until you press Ctrl-C")
            with suppress(asyncio.CancelledError):  # that is what is waited for
                await asyncio.wait([self._serving])

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])

    async def _open(self, run: str) -> None:
        # It is being written down, and the page would not find it; of that a store says nothing.
        while await self._podium.store.record(run) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        place = await visit.where(run) or f"{self._serve()}/#/runs/{run}"
        self._say(f"watch it at {place}")
        await asyncio.to_thread(webbrowser.open, place)

    def _serve(self) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        options = uvicorn.Config(
            build(Desk(self._podium)),
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = Beside(options)
        self._serving = asyncio.create_task(self._server.serve([listener]))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def shown(podium: Podium, say: Callable[[str], None]) -> AsyncIterator[Show]:
    """Show the next run on the page; `say` tells a person where.

    Raises:
        ConfigError: nobody could see it there.
    """
    status, _ = await visit.ask("me")
    if status == 0 and await Keys(podium.store).exist():
        raise ConfigError(
            "with keys, a run of this machine's own is shown by a server to its operators: "
            "start one with `podium serve --operator KEY`, or leave out --open"
        )
    show = Show(podium, say)
    try:
        yield show
    finally:
        await show.close()

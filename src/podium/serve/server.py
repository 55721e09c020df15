"""The process around the app: sockets, signals, several processes, reload, and a quiet end.

A SIGHUP reads the configuration anew; if it is wrong, the old one stays and one line says why. A
SIGTERM stops taking connections and lets the runs under way finish.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import orjson
import uvicorn
from opentelemetry import trace
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from podium.app import Podium
from podium.errors import ConfigError, PodiumError
from podium.serve import talk
from podium.serve.app import build
from podium.serve.denials import Denials
from podium.serve.desk import Desk
from podium.serve.exchange import Application, Receive, Scope, Send, reply_json
from podium.serve.journal import Journal
from podium.serve.keys import RENEW_SECONDS, Keys

HEAD_SECONDS = 10.0
"""For the head of a request to arrive."""
MAX_HEAD = 64 << 10
"""Bytes of it."""
RESTART_SECONDS = 1.0
"""Before a process that died is started again."""

log = logging.getLogger("podium.serve")


@dataclass(frozen=True, slots=True)
class Options:
    config: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    grace: float = 60.0
    """Seconds that runs under way have when the server is told to stop."""
    operators: tuple[str, ...] = ()
    """Keys, by name or id, whose holders see all runs and may deny workers to everybody."""
    open: bool = False
    """Show the page in a browser."""


def serve(options: Options) -> None:
    """Serve until told to stop.

    Raises:
        ConfigError: something must be fixed first: the configuration, the address, the keys.
    """
    asyncio.run(_check(options))
    listener = _listen(options)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"the page is at http://{shown}:{port}/", file=sys.stderr)  # noqa: T201
    print(f"podium serves http://{shown}:{port}/v1", file=sys.stderr, flush=True)  # noqa: T201
    if options.open:
        page = f"http://{shown}:{port}/"
        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
    if options.workers == 1:
        _one(options, listener)
    else:
        _several(options, listener)


async def _check(options: Options) -> None:
    """Open everything once, so that what is wrong is said before anybody is promised a server."""
    async with Podium.open(options.config) as podium:
        keys = Keys(podium.store)
        await Denials(podium.store).known()
        for name in options.operators:
            await keys.named(name)
        if not _is_loopback(options.host) and not await keys.exist():
            raise ConfigError(
                f"without keys the server listens on this machine only, not on {options.host}: "
                "make a key first with `podium keys new NAME`"
            )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as exc:
        place = f"{options.host}:{options.port}"
        raise ConfigError(f"cannot listen on {place}: {exc.strerror or exc}") from exc


def _one(options: Options, listener: socket.socket) -> None:
    _set_up_logs()
    _set_up_tracing()
    keeper = Keeper(options)
    config = uvicorn.Config(
        bounded(build(keeper.desk, keeper.lifespan)),
        http=Guarded,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(options.grace),
    )
    gc.collect()
    gc.freeze()  # what is there now stays: no need to look at it again and again
    uvicorn.Server(config).run(sockets=[listener])


class Keeper:
    """What has to be done beside answering: holds renewed, old things forgotten, reloads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.desk = Desk(Podium.open(options.config), operators=options.operators)
        if log.isEnabledFor(logging.INFO):
            self.desk.journal = Journal(sys.stderr.write)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.reload()))
        chores = loop.create_task(self._chores())
        try:
            yield
        finally:
            self.desk.ready = False
            chores.cancel()
            await asyncio.wait([chores])
            await self.desk.close()

    async def _chores(self) -> None:
        while True:
            try:
                await self.desk.keys.renew()
                await self.desk.keys.sweep()
                await talk.forget_old(self.desk.podium.store)
            except PodiumError as exc:
                log.warning("%s", exc)
            await asyncio.sleep(RENEW_SECONDS)

    async def reload(self) -> None:
        """Serve by the configuration as it is now; by the old one if it is wrong."""
        try:
            fresh = Podium.open(self._options.config)
        except PodiumError as exc:
            log.error("the old configuration stays: %s", exc)
            return
        old = await self.desk.change(fresh)
        log.info("the configuration was read anew")
        await old.close()


def bounded(app: Application) -> Application:
    """The app, behind a bound on headers."""

    async def bounds(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size = sum([len(name) + len(value) for name, value in scope["headers"]])
            if size > MAX_HEAD:
                said = {"error": {"message": f"the headers are over {MAX_HEAD} bytes"}}
                await reply_json(send, 431, said, [(b"connection", b"close")])
                return
        await app(scope, receive, send)

    return bounds


class Guarded(HttpToolsProtocol):
    """uvicorn's protocol, which by itself would wait for ever for the end of a head."""

    _late: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._late is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._expect()

    def on_headers_complete(self) -> None:
        self._arrived()
        super().on_headers_complete()

    def _expect(self) -> None:
        self._head = 0
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _several(options: Options, listener: socket.socket) -> None:
    """Several processes on one socket; whichever dies is started again."""
    context = multiprocessing.get_context("fork")
    told: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: told.append(signal.Signals(n)))

    def start() -> BaseProcess:
        process = context.Process(target=_child, args=(options, listener))
        process.start()
        return process

    processes = [start() for _ in range(options.workers)]
    stopping = False
    while processes:
        wait([p.sentinel for p in processes], timeout=0.2)
        while told:
            number = told.pop(0)
            stopping |= number != signal.SIGHUP
            for process in processes:
                os.kill(process.pid or 0, signal.SIGTERM if stopping else signal.SIGHUP)
        alive = [p for p in processes if p.is_alive()]
        if len(alive) < len(processes) and not stopping:
            time.sleep(RESTART_SECONDS)
            alive += [start() for _ in range(len(processes) - len(alive))]
        processes = alive


def _child(options: Options, listener: socket.socket) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _one(options, listener)


class JsonLines(logging.Formatter):
    """A JSON object a line. What is logged is never what was asked or answered."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(said).decode()


def _set_up_logs() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(os.environ.get("PODIUM_LOG", "INFO").upper())


def _set_up_tracing() -> None:
    """Send spans where OpenTelemetry's own variable says, if the SDK is installed."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and tracing is not installed: "
            "pip install 'podium[otel]'"
        ) from None
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

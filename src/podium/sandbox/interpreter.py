"""One interpreter behind walls: started before it is needed, used once, and killed.

It is spoken to over a channel of its own (see `child`). Whatever
stops it, be it the clock, its memory, its output or a lie on the channel, stops it by killing it:
then every pipe ends, and whoever was reading learns the reason from `stopped`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Literal, cast

from podium.errors import SandboxError
from podium.sandbox.child import Message, pack
from podium.sandbox.walls import ENVIRONMENT, Walls

Outcome = Literal["ok", "error", "timeout", "memory", "output", "killed", "forged"]
"""How a piece of code ended. `error` is an exception or an exit status of its own; `killed`, a
signal or a crash; `forged`, something on the channel that was never written by us."""

START_SECONDS = 60.0
WATCH_SECONDS = 0.05
"""How often the memory of all processes together is looked at."""
LAST_WORDS_SECONDS = 1.0
"""How long something may outlive its end: a process that fell silent, or a pipe of a dead one."""


class Interpreter(asyncio.SubprocessProtocol):
    """Made by `start`. One job is given to it at most, and `end` is always called."""

    def __init__(
        self, walls: Walls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        self.landlock = 0
        self.stopped: Outcome | None = None
        self._walls, self._reader, self._writer = walls, reader, writer
        self._transport: asyncio.SubprocessTransport | None = None
        self._output = {1: bytearray(), 2: bytearray()}
        self._exited: asyncio.Future[None] = loop.create_future()
        self._silent: asyncio.Future[None] = loop.create_future()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._nonce = secrets.token_hex(16).encode()
        self._began = 0.0
        self._directory = "" if walls.bwrap else tempfile.mkdtemp(prefix="podium-")

    @staticmethod
    async def start(walls: Walls) -> Interpreter:
        """Start one and wait until it is behind its walls.

        Raises:
            SandboxError: it could not be started. The message says why, as far as is known.
        """
        ours, theirs = socket.socketpair()
        async with AsyncExitStack() as undo:
            undo.callback(theirs.close)
            streams = await asyncio.open_unix_connection(sock=ours, limit=2 * walls.bounds.output)
            interpreter = Interpreter(walls, *streams)
            undo.push_async_callback(interpreter.end)
            await interpreter._spawn(theirs)
            theirs.close()
            interpreter._writer.write(walls.python.payload)
            interpreter.send(walls.settings)
            await interpreter._hear_hello()
            undo.pop_all()
        return interpreter

    async def _spawn(self, channel: socket.socket) -> None:
        walls = self._walls
        filter_fd, writer = os.pipe()
        os.write(writer, walls.filter)
        os.close(writer)
        own = {"HOME": self._directory, "TMPDIR": self._directory} if self._directory else {}
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *walls.command(channel.fileno(), filter_fd),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[channel.fileno(), filter_fd],
                start_new_session=True,
                cwd=self._directory or "/",
                env={**ENVIRONMENT, **own, "PATH": os.defpath},
            )
        except OSError as exc:
            raise SandboxError(f"cannot start {walls.bwrap or 'Python'}: {exc.strerror}") from exc
        finally:
            os.close(filter_fd)

    async def _hear_hello(self) -> None:
        hello = b""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                hello = await self._reader.readline()
        if not hello:
            await asyncio.wait([self._silent], timeout=LAST_WORDS_SECONDS)
            why = self.stderr.strip()[-500:] or "it said nothing"
            raise SandboxError(f"the sandbox cannot start: {why} ({HINT})")
        self.landlock = json.loads(hello)["landlock"]

    # -- what the process does

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept, most = self._output[fd], self._walls.bounds.output
        kept += data[: most - len(kept)]
        if len(kept) >= most:
            self.stop("output")

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has exited, and everything that it wrote was read."""
        if not self._silent.done():
            self._silent.set_result(None)

    @property
    def alive(self) -> bool:
        return not self._exited.done()

    @property
    def stdout(self) -> str:
        return self._output[1].decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self._output[2].decode(errors="replace")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    # -- talking to it

    def begin(self, job: Message, seconds: float) -> None:
        self._began = time.monotonic()
        later = asyncio.get_running_loop().call_later
        self._timers["clock"] = later(seconds, self.stop, "timeout")
        self._timers["memory"] = later(WATCH_SECONDS, self._watch)
        self.send({**job, "nonce": self._nonce.decode(), "seconds": seconds})

    def send(self, message: Message) -> None:
        self._writer.write(pack(message))

    async def receive(self) -> Message | None:
        """The next message, or None when no more will come."""
        try:
            line = await self._reader.readline()
        except ValueError:
            self.stop("output")
            return None
        except OSError:
            return None
        if not line:
            return None
        with suppress(ValueError, RecursionError):
            message = json.loads(line.removeprefix(self._nonce))
            if line.startswith(self._nonce) and isinstance(message, dict):
                return message
        self.stop("forged")
        return None

    async def exit_status(self, patience: float | None = None) -> int:
        """Wait until it ends by itself; or, its patience at an end, end it."""
        await asyncio.wait([self._exited], timeout=patience)
        self.stop("killed")
        await self._fall_silent()
        assert self._transport is not None
        return self._transport.get_returncode() or 0

    # -- ending it

    def stop(self, why: Outcome) -> None:
        """Kill it and all its children. The first reason counts."""
        if self.stopped is None and (why == "output" or not self._exited.done()):
            self.stopped = why
            self._kill()

    async def end(self) -> None:
        """Leave no process, descriptor or file of it behind."""
        for timer in self._timers.values():
            timer.cancel()
        self._writer.close()
        if self._transport is not None:
            await self._grow_up()
            self._kill()
            await self._fall_silent()
            self._transport.close()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _grow_up(self) -> None:
        """Bubblewrap that dies before its child does leaves an orphan for someone else to bury."""
        assert self._transport is not None
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while self._walls.bwrap and not self._exited.done() and time.monotonic() < deadline:
            if any(_children(self._transport.get_pid())):
                return
            await asyncio.sleep(0.002)

    async def _fall_silent(self) -> None:
        await self._exited
        await asyncio.wait([self._silent], timeout=LAST_WORDS_SECONDS)

    def _kill(self) -> None:
        """The first process of a PID namespace takes all others with it, and dies last."""
        assert self._transport is not None
        pid = self._transport.get_pid()
        with suppress(ProcessLookupError):
            if not self._walls.bwrap:
                os.killpg(pid, signal.SIGKILL)
            elif not self._exited.done():
                for target in list(_children(pid)) or [pid]:
                    os.kill(target, signal.SIGKILL)

    def _watch(self) -> None:
        assert self._transport is not None
        if _memory(self._transport.get_pid()) > self._walls.bounds.memory:
            return self.stop("memory")
        again = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch)
        self._timers["memory"] = again


HINT = (
    "bubblewrap 0.8 or newer and user namespaces are needed: in a container, allow them to it; on "
    "Ubuntu, see kernel.apparmor_restrict_unprivileged_userns"
)


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, thread.read_text().split())


def _memory(pid: int) -> int:
    """Bytes in memory of a process and all its descendants."""
    total = 0
    with suppress(OSError):
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return total + sum(_memory(child) for child in _children(pid))

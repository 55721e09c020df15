"""Bytes in and out of one exchange: bounded bodies, slow readers, and clients that leave.

Nothing here knows what is said. Everything that a client can make large or slow has a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from types import TracebackType
from typing import Any

import orjson

from podium.serve.wire import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY = 32 << 20
"""Bytes of a request: long conversations, and a few images inside them."""
BODY_SECONDS = 30.0
BEAT_SECONDS = 5.0
"""Between two signs of life in a stream; proxies and clients give up after a minute or so."""
STALL_SECONDS = 30.0
"""A reader that takes nothing for so long is cut off."""
MAX_PENDING = 1 << 20
"""Bytes that wait for a slow reader before it is cut off."""
BEAT = b": working\n\n"
JSON = (b"content-type", b"application/json")
EVENTS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Gone(Exception):
    """The client left before it had said what it wants."""


def header(headers: Headers, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


async def read_body(headers: Headers, receive: Receive, limit: int = MAX_BODY) -> bytes:
    """The body of a request.

    Raises:
        Refusal: it is too large, or does not arrive in good time.
    """
    size = header(headers, b"content-length")
    if size.isdigit() and int(size) > limit:
        raise Refusal(f"the body is over {limit} bytes", 413)
    first = await _within(receive, BODY_SECONDS)
    if not first.get("more_body"):
        return bytes(first.get("body", b""))
    return await _rest(first, receive, limit)


async def _rest(first: MutableMapping[str, Any], receive: Receive, limit: int) -> bytes:
    chunks, read, message = [first["body"]], len(first["body"]), first
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS
    while message.get("more_body"):
        left = deadline - asyncio.get_running_loop().time()
        message = await _within(receive, left)
        if message["type"] == "http.disconnect":
            raise Gone
        chunks.append(message.get("body", b""))
        read += len(chunks[-1])
        if read > limit:
            raise Refusal(f"the body is over {limit} bytes", 413)
    return b"".join(chunks)


async def _within(receive: Receive, seconds: float) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        raise Refusal(f"the body did not arrive within {BODY_SECONDS:g} s", 408) from None


def parsed(raw: bytes) -> object:
    """What a body says.

    Raises:
        Refusal: it is not JSON.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise Refusal(f"the body is not JSON: {exc}") from None


async def reply(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    size = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [JSON, size, *headers]})
    await send({"type": "http.response.body", "body": body})


async def reply_json(send: Send, status: int, body: object, headers: Headers = ()) -> None:
    await reply(send, status, orjson.dumps(body, default=_plain), headers)


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


class Watch:
    """Cancels what is done inside it the moment the client is gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.gone = False

    async def __aenter__(self) -> Watch:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher = asyncio.create_task(self._wait())
        return self

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._watcher.cancel()
        if self.gone and kind is asyncio.CancelledError:
            self._task.uncancel()
            return True
        return False


class Outlet:
    """A stream to one client: whoever writes never waits, and whoever reads too slowly is cut.

    What is written in one turn of the loop goes out together at its end. Only if the client is
    slow to take it does anybody have to wait: the task that pumps, which else sleeps.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._size = 0
        self._closed = False
        self._flowing = False
        """Whether bytes may go out: the head has, and none before them are stuck."""
        self._stuck: _Rest | None = None
        self._stuck_since = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._quiet = True
        self.slow = False

    def write(self, data: bytes) -> None:
        if self._size > MAX_PENDING:
            self.slow = True
            self._wake()
            return
        if self._flowing and not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._size += len(data)
        if not self._flowing:
            self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def begun(self) -> bool:
        """Wait for the first bytes; False if it is closed without any."""
        if not self._pending and not self._closed:
            await self._sleep()
        return bool(self._pending)

    async def pump(self, headers: Headers = ()) -> None:
        """Send what is written until it is closed, or the reader turns out to be too slow."""
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": [*EVENTS, *headers]}
        )
        task = asyncio.current_task()
        assert task is not None
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat, task)
        self._flowing = True
        try:
            await self._flow()
        finally:
            self._flowing = False
            self._timer.cancel()

    async def _flow(self) -> None:
        self._flush()
        while not self.slow:
            if self._stuck is not None:
                await self._stuck
                self._stuck, self._flowing = None, True
                self._flush()
            elif self._closed:
                self._flush()
                if self._stuck is None:
                    await self._send({"type": "http.response.body", "body": b""})
                    return
            else:
                await self._sleep()

    def _flush(self) -> None:
        if not self._pending or not self._flowing:
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        self._quiet = False
        body = {"type": "http.response.body", "body": data, "more_body": True}
        sending = self._send(body).__await__()
        try:
            waits = next(sending)
        except StopIteration:
            return  # taken at once, as nearly always
        self._stuck, self._flowing = _Rest(sending, waits), False
        self._stuck_since = self._loop.time()
        self._wake()

    def _beat(self, task: asyncio.Task[Any]) -> None:
        stuck = self._stuck is not None
        if stuck and self._loop.time() - self._stuck_since > STALL_SECONDS:
            self.slow = True
            task.cancel()
            return
        if self._quiet:
            self.write(BEAT)
        self._quiet = True
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat, task)

    async def _sleep(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Rest:
    """What is left of an awaitable that was begun without awaiting it, and had to wait."""

    def __init__(self, begun: Generator[Any, Any, None], waits: Any) -> None:
        self._begun, self._waits = begun, waits

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._waits
        yield from self._begun

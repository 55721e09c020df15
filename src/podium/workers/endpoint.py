"""One model's HTTP address: a body goes out, a reply comes back, or one line about what to fix.

Everything that a server may do wrong ends here as a `WorkerError`. A key is in the headers of a
request and nowhere else: it is taken out of whatever comes back before anybody reads it. Memory
and time are bounded whatever a server sends, except that a call as a whole is timed by its caller.
"""

from __future__ import annotations

import asyncio
import io
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import aiohttp
from yarl import URL

from podium.errors import ConfigError, WorkerError
from podium.types import Piece
from podium.workers.dialects import Dialect, Events, Reply, Stream, loads, trouble
from podium.workers.transport import Transport

MAX_BYTES = 16 << 20
WORDY = 8
"""A stream wraps each piece in this many times its size, and nothing of that is kept."""
ERROR_BYTES = 64 << 10
ERROR_SECONDS = 5.0
DRAIN_SECONDS = 0.1
"""For the end of a stream after its last event, so that its connection can be used again."""
MAX_PAUSE = 60.0
"""Between two attempts, whatever a server asks for."""
LARGE = 1 << 20
"""aiohttp warns about bytes over this size and wants a file in their place."""
UNREACHED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What aiohttp raises before a byte of the request has left."""

SHORT = 4
PLACEHOLDER = 12
"""Keys below this length (`EMPTY`, `ollama`) are words, which a reply may well contain."""

ADVICE = {
    400: "the request was refused",
    402: "the account has no credit left",
    413: "the request is too large",
    422: "the request was refused",
    429: "the rate limit is reached",
}


class Secret:
    """A key. Only `reveal` shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value.strip()

    def __repr__(self) -> str:
        return "Secret(***)" if self._value else "Secret()"

    def reveal(self) -> str:
        return self._value


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A call as a whole is bounded by whoever makes it."""

    connect: float = 10.0
    first_byte: float = 300.0
    """Long, because a model that thinks says nothing meanwhile."""
    idle: float = 60.0
    """Between two pieces of a stream."""


@dataclass(slots=True)
class Progress:
    """How far a call has come."""

    hear: Callable[[Piece], None] | None
    heard: int = 0
    """Characters given to `hear`. Once there are any, nothing can be taken back."""
    reached: bool = True
    """False where the worker certainly did no work: nobody listened, or it refused."""

    def tell(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.heard += len(piece.text)
            if self.hear is not None:
                self.hear(piece)


@dataclass(slots=True, kw_only=True, eq=False)
class Endpoint:
    name: str
    """Of the worker, for error messages."""
    model: str
    dialect: Dialect
    base_url: str
    key: Secret
    key_env: str
    timeouts: Timeouts
    max_bytes: int
    transport: Transport
    host: str = field(init=False)
    port: int = field(init=False)
    _urls: dict[bool, URL] = field(init=False, repr=False)
    _headers: dict[str, str] = field(init=False, repr=False)
    _timeout: aiohttp.ClientTimeout = field(init=False, repr=False)
    _hidden: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        home = self._checked()
        self.host, self.port = home.host or "", home.port or 0
        self._urls = {
            stream: URL(self.dialect.url(self.base_url, self.model, stream), encoded=True)
            for stream in (False, True)
        }
        self._headers = self._header_fields()
        key = self.key.reveal().encode()
        self._hidden = key if len(key) >= PLACEHOLDER else b""
        self._timeout = aiohttp.ClientTimeout(
            sock_connect=self.timeouts.connect, sock_read=self.timeouts.first_byte
        )

    def _checked(self) -> URL:
        try:
            url = URL(self.base_url)
            (url.host or "").encode("idna")
            if url.scheme in ("http", "https") and url.host and not (url.query or url.user):
                return url
        except ValueError:
            pass
        shown = "" if "@" in self.base_url else f" {self.base_url!r}"  # a password may be in it
        raise ConfigError(
            f"worker {self.name!r}: base_url{shown} is no plain http or https address"
        )

    def _header_fields(self) -> dict[str, str]:
        key = self.key.reveal()
        if not (key.isascii() and key.isprintable()):
            where = self.key_env or "the key"
            raise ConfigError(f"worker {self.name!r}: {where} holds characters no key has")
        return {
            **self.dialect.headers(key),
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "podium",
        }

    async def send(self, body: bytes, progress: Progress, *, stream: bool) -> Reply:
        try:
            session = await self.transport.session()
            response = await session.post(
                self._urls[stream],
                data=body if len(body) <= LARGE else io.BytesIO(body),
                headers=self._headers,
                allow_redirects=False,
                timeout=self._timeout,
            )
            try:
                return await self._receive(response, progress, stream=stream)
            finally:
                response.close()
        except WorkerError as bare:
            failure = self.error(str(bare), status=bare.status, retry_after=bare.retry_after)
        except aiohttp.ClientError as error:
            progress.reached = not isinstance(error, UNREACHED)
            failure = self.error(self._broken(error))
        # Outside of `except`, so that the error carries no aiohttp exception, and so no headers.
        raise failure

    async def _receive(
        self, response: aiohttp.ClientResponse, progress: Progress, *, stream: bool
    ) -> Reply:
        if response.status >= 300:
            progress.reached = False
            raise await self._refusal(response)
        kind = response.headers.get("Content-Type", "")
        if stream and kind.startswith("text/event-stream"):
            return await self._listen(response, progress)
        raw = self._clean(await _body(response, self.max_bytes))
        if kind.startswith("text/html"):
            raise WorkerError(
                f"a web page came back and not a reply: check base_url {self.base_url}", status=200
            )
        reply = self.dialect.read(loads(raw))
        if stream:
            progress.tell(_whole(reply))
        return reply

    async def _listen(self, response: aiohttp.ClientResponse, progress: Progress) -> Reply:
        events, stream, size = Events(), self.dialect.stream(), 0
        try:
            async for chunk in response.content.iter_any():
                if not size:
                    self._expect_more(response)
                size += len(chunk)
                if size > WORDY * self.max_bytes or progress.heard > self.max_bytes:
                    raise WorkerError(f"the stream is over {self.max_bytes} bytes", status=200)
                self._hear(events.feed(chunk), stream, progress)
                if stream.finished:
                    await _drain(response)
                    break
            else:
                self._hear(events.rest(), stream, progress)
        except aiohttp.ClientPayloadError:
            pass  # cut; the stream knows whether everything had been said
        reply = stream.reply()
        if self._hidden:  # it may have come in parts, of which none was the key
            key = self.key.reveal()
            reply.text = reply.text.replace(key, "***")
            reply.reasoning = reply.reasoning.replace(key, "***")
        return reply

    def _expect_more(self, response: aiohttp.ClientResponse) -> None:
        """Now that it has begun to speak, it may not be silent for as long as before."""
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = self.timeouts.idle
            connection.protocol.start_timeout()

    def _hear(self, events: list[bytes], stream: Stream, progress: Progress) -> None:
        for data in events:
            if pieces := stream.feed(self._clean(data)):
                progress.tell(pieces)

    async def _refusal(self, response: aiohttp.ClientResponse) -> WorkerError:
        status = response.status
        raw = self._clean(await _beginning(response))
        try:
            said = str(trouble(loads(raw), ""))
        except WorkerError:
            said = "" if raw.lstrip().startswith(b"<") else _line(raw.decode("utf-8", "replace"))
        place = response.headers.get("Location", "") if status < 400 else ""
        advice = self._advice(status, place)
        return WorkerError(
            f"HTTP {status}: {advice}" + (f" ({said})" if said else ""),
            status=status,
            retry_after=_retry_after(response.headers),
        )

    def _advice(self, status: int, place: str) -> str:
        if status < 400:
            return f"it redirects to {_line(place)!r}: put the final address into base_url"
        if status in (401, 403):
            return f"the key was refused: check {self.key_env or 'its key'}"
        if status == 404:
            return (
                f"check that model {self.model!r} exists and that base_url {self.base_url} is right"
            )
        return ADVICE.get(status, "the server failed" if status >= 500 else "it was refused")

    def _broken(self, error: Exception) -> str:
        place = f"{self.host}:{self.port}"
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection to {place} within {self.timeouts.connect:g} s"
        if isinstance(error, aiohttp.ClientConnectorError):
            return (
                f"can't reach {place} ({_reason(error)}): check base_url and that the server runs"
            )
        if isinstance(error, TimeoutError):
            return f"{place} fell silent for too long"
        return f"{place} broke the connection ({type(error).__name__})"

    def error(
        self, what: str, *, status: int | None = None, retry_after: float | None = None
    ) -> WorkerError:
        key = self.key.reveal()
        shown = what.replace(key, "***") if len(key) >= SHORT else what
        return WorkerError(f"worker {self.name!r}: {shown}", status=status, retry_after=retry_after)

    def _clean(self, raw: bytes) -> bytes:
        return raw.replace(self._hidden, b"***") if self._hidden and self._hidden in raw else raw


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    size = response.content_length
    if size is not None and size <= limit:
        return await response.read()
    chunks: list[bytes] = []
    read = size or 0
    if size is None:
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            read += len(chunk)
            if read > limit:
                break
    if read > limit:
        raise WorkerError(f"the reply is over {limit} bytes", status=200)
    return b"".join(chunks)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """As much of an error's body as arrives in good time."""
    chunks: list[bytes] = []
    read = 0
    try:
        async with asyncio.timeout(ERROR_SECONDS):
            while read < ERROR_BYTES and (chunk := await response.content.readany()):
                chunks.append(chunk)
                read += len(chunk)
    except (aiohttp.ClientError, OSError):
        pass
    return b"".join(chunks)[:ERROR_BYTES]


async def _drain(response: aiohttp.ClientResponse) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        pass


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _line(str(error.certificate_error))
    cause = error.os_error
    if isinstance(error, aiohttp.ClientSSLError) or not cause.errno or cause.errno < 0:
        return _line(cause.strerror or str(cause))
    return os.strerror(cause.errno)


def _whole(reply: Reply) -> list[Piece]:
    """A reply that came at once, as pieces for one who listens."""
    calls = enumerate(reply.tool_calls)
    return [
        *([Piece(reply.reasoning, "reasoning")] if reply.reasoning else []),
        *([Piece(reply.text)] if reply.text else []),
        *(Piece(call.arguments, "tool", index, call.id, call.name) for index, call in calls),
    ]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, given as such or as a date."""
    value = headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(MAX_PAUSE, max(0.0, seconds)) if math.isfinite(seconds) else None


def _line(text: str) -> str:
    return " ".join(text.split())[:300]

"""A scripted HTTP server that speaks all three dialects, on a free port of this machine."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import orjson
from aiohttp import web

from podium.errors import ConfigError
from podium.testing import sdks
from podium.testing.bodies import EVENTS, WHOLE, Body, Say, refusal
from podium.types import Usage

KNOWN = ("/chat/completions", "/messages", ":generateContent", ":streamGenerateContent")


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error status, with the error in the form of the dialect."""

    status: int
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Raw:
    """Anything at all: bytes at once, or chunk by chunk, for ever if the iterator is endless."""

    body: bytes | Iterable[bytes]
    _: KW_ONLY
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: bool = False
    """Break the connection instead of ending the reply."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it arrived."""

    path: str
    dialect: str
    model: str
    stream: bool
    headers: Mapping[str, str]
    body: Body
    client: int
    """The port it came from: equal ports are one connection."""


Answer = str | Say | Refuse | Raw
Scripted = Answer | Callable[[Sent], Answer]


class Upstream:
    """Answers in order, for all models or for each its own; the last answer repeats for ever.

        async with Upstream([Refuse(503), "Hello."]) as upstream:
            ...  # a worker at upstream.url is refused once and greeted from then on
            assert upstream.requests[1].body["model"] == "m"

    What it is sent must have the types of the dialect's official SDK, or it answers 400.
    """

    def __init__(
        self,
        replies: Sequence[Scripted] | Mapping[str, Sequence[Scripted]] = ("ok",),
        *,
        check: bool = True,
    ) -> None:
        self.requests: list[Sent] = []
        self.aborted = 0
        """Requests whose client left before the answer was complete."""
        self.open = 0
        self._scripts = replies if isinstance(replies, Mapping) else {"": replies}
        self._asked: dict[str, int] = defaultdict(int)
        self._check = check
        self._change = asyncio.Condition()

    async def __aenter__(self) -> Upstream:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def arrived(self, count: int = 1) -> None:
        """Wait until so many requests have come."""
        async with self._change:
            await self._change.wait_for(lambda: len(self.requests) >= count)

    async def quiet(self) -> None:
        """Wait until no request is being answered."""
        async with self._change:
            await self._change.wait_for(lambda: self.open == 0)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(KNOWN):
            return web.json_response(refusal("openai", 404, "no such path"), status=404)
        sent = _sent(request, orjson.loads(await request.read()))
        self.requests.append(sent)
        self.open += 1
        await self._changed()
        try:
            return await self._answer(request, sent)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.open -= 1
            await asyncio.shield(self._changed())

    async def _changed(self) -> None:
        async with self._change:
            self._change.notify_all()

    async def _answer(self, request: web.Request, sent: Sent) -> web.StreamResponse:
        if self._check and (wrong := _wrong(sent)):
            return _json(refusal(sent.dialect, 400, wrong), 400)
        answer = self._next(sent)
        if isinstance(answer, Refuse):
            body = refusal(sent.dialect, answer.status, answer.message)
            return _json(body, answer.status, answer.headers)
        if isinstance(answer, Raw):
            return await _send(request, answer)
        say = Say(answer) if isinstance(answer, str) else answer
        await asyncio.sleep(say.delay)
        if say.gate is not None:
            await say.gate.wait()
        return await _send(request, self._written(say, sent))

    def _next(self, sent: Sent) -> Answer:
        name = sent.model if sent.model in self._scripts else ""
        script = self._scripts[name]
        reply = script[min(self._asked[name], len(script) - 1)]
        self._asked[name] += 1
        return reply(sent) if callable(reply) else reply

    def _written(self, say: Say, sent: Sent) -> Raw:
        if sent.stream:
            events = list(EVENTS[sent.dialect](say, sent.model))
            self._judge(say, events, sent)
            frames = [_frame(sent.dialect, event) for event in events]
            if sent.dialect == "openai":
                frames.append(b"data: [DONE]\n\n")
            return Raw(frames[: say.cut], content_type="text/event-stream", cut=say.cut is not None)
        body = WHOLE[sent.dialect](say, sent.model)
        self._judge(say, [body], sent)
        written = orjson.dumps(body)
        if say.cut is None:
            return Raw(written)
        return Raw([written[: say.cut]], cut=True)

    def _judge(self, say: Say, bodies: Iterable[Body], sent: Sent) -> None:
        """A reply is meant to be a proper one unless its usage is scripted to be wrong."""
        if self._check and isinstance(say.usage, Usage):
            for body in bodies:
                if body.get("type") != "ping":
                    sdks.validate(sent.dialect, body, event=sent.stream)


def _sent(request: web.Request, body: Body) -> Sent:
    path, headers = request.path, dict(request.headers)
    peer = request.transport.get_extra_info("peername") if request.transport else None
    port = peer[1] if peer else 0
    if path.endswith(KNOWN[2:]):
        model = path.rpartition("/")[2].partition(":")[0]
        stream = path.endswith(":streamGenerateContent")
        return Sent(path, "gemini", model, stream, headers, body, port)
    dialect = "anthropic" if path.endswith("/messages") else "openai"
    stream = body.get("stream") is True
    return Sent(path, dialect, str(body.get("model")), stream, headers, body, port)


def _wrong(sent: Sent) -> str:
    try:
        return sdks.complaint(sent.dialect, sent.body)
    except ConfigError as missing:
        return str(missing)


def _frame(dialect: str, event: Body) -> bytes:
    name = f"event: {event['type']}\n".encode() if dialect == "anthropic" else b""
    return name + b"data: " + orjson.dumps(event) + b"\n\n"


def _json(body: Body, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, headers=headers, content_type="application/json"
    )


async def _send(request: web.Request, raw: Raw) -> web.StreamResponse:
    headers = {"Content-Type": raw.content_type, **raw.headers}
    if isinstance(raw.body, bytes):
        return web.Response(body=raw.body, status=raw.status, headers=headers)
    response = web.StreamResponse(status=raw.status, headers=headers)
    await response.prepare(request)
    for chunk in raw.body:
        await response.write(chunk)
        await asyncio.sleep(0)  # so that an endless reply shares the loop, and can be cancelled
    if raw.cut and request.transport is not None:
        request.transport.close()
        return response
    await response.write_eof()
    return response

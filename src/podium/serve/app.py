"""The routes: three APIs over one desk, what was run, and what operations need to know.

Plain ASGI all the way down: nothing stands between a handler and the socket that could hide a
client that left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from podium.errors import PodiumError
from podium.serve import chat, messages, responses
from podium.serve.desk import Desk, Job
from podium.serve.exchange import (
    Application,
    Gone,
    Headers,
    Outlet,
    Receive,
    Scope,
    Send,
    Watch,
    header,
    parsed,
    read_body,
    reply_json,
)
from podium.serve.keys import NOBODY, Key
from podium.serve.openapi import description
from podium.serve.telling import Teller, Voice
from podium.serve.web import mount
from podium.serve.wire import Asked, Json, Outcome, Refusal, refusal

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "testserver")
LISTED = 100
"""Runs of one answer at most."""


class Read(Protocol):
    def __call__(self, body: object, headers: Headers) -> Asked: ...


@dataclass(frozen=True, slots=True)
class Api:
    name: str
    read: Read
    body: Callable[[Sequence[Outcome], Asked], Json]
    voice: Callable[[Asked], Voice]
    error: Callable[[Refusal], Json]


CHAT = Api("chat", chat.read, chat.body, chat.Voice, chat.error)
RESPONSES = Api("responses", responses.read, responses.body, responses.Voice, responses.error)
MESSAGES = Api("messages", messages.read, messages.body, messages.Voice, messages.error)


Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def build(desk: Desk, lifespan: Lifespan | None = None) -> Application:
    house = House(desk)
    routes = [
        Route("/v1/messages/count_tokens", house.count_tokens, methods=["POST"]),
        Route("/v1/models", house.models),
        Route("/v1/models/{name:path}", house.model),
        Route("/v1/podium/runs", house.runs),
        Route("/v1/podium/runs/{id}", house.run),
        Route("/metrics", house.metrics),
        Route("/healthz", house.alive),
        Route("/readyz", house.ready),
        Route("/openapi.json", house.openapi),
    ]
    posts = {
        "/v1/chat/completions": Endpoint(desk, CHAT),
        "/v1/responses": Endpoint(desk, RESPONSES),
        "/v1/messages": Endpoint(desk, MESSAGES),
    }
    routes += [Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()]
    paths, lifespan = mount(desk, admit, lifespan)
    routes += paths
    handlers = {HTTPException: _http_error, PodiumError: _refused, 500: _bug}
    rest = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        """The three that are asked thousands of times a second are found without a search."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        found = posts.get(scope["path"]) if posted else None
        await (found or rest)(scope, receive, send)

    return ServerErrorMiddleware(dispatch, handler=_bug)


async def admit(desk: Desk, headers: Headers) -> Key:
    """Whose request this is.

    Raises:
        Refusal: it brings no key, or not one that is good here.
    """
    bearer = header(headers, b"authorization")
    secret = bearer[7:] if bearer[:7].lower() == b"bearer " else header(headers, b"x-api-key")
    if await desk.keys.exist():
        key = await desk.keys.find(secret.decode("latin-1").strip()) if secret else None
        if key is None:
            problem = "this key is not known here" if secret else "a key is needed"
            raise Refusal(f"{problem}: see `podium keys`", 401, code="invalid_api_key")
        return key
    _from_here(headers)
    return NOBODY


def _from_here(headers: Headers) -> None:
    """Without keys only this machine may ask, and no web page that a browser on it has open."""
    host = header(headers, b"host").decode("latin-1")
    origin = header(headers, b"origin").decode("latin-1")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    page = origin.partition("://")[2]
    if name not in LOOPBACK or (page and page != host):
        raise Refusal("without keys only this machine may ask: make one with `podium keys`", 403)


class Endpoint:
    """One of the three APIs."""

    def __init__(self, desk: Desk, api: Api) -> None:
        self._desk, self._api = desk, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk, headers = self._desk, scope["headers"]
        started, model, status = time.monotonic(), "", 500
        token = desk.enter()
        try:
            key = await admit(desk, headers)
            asked = self._api.read(parsed(await read_body(headers, receive)), headers)
            job = await desk.job(asked, key)
            model = asked.model
            status = await self._answer(job, receive, send)
        except PodiumError as exc:
            refused = exc if isinstance(exc, Refusal) else refusal(exc.as_failure())
            status = refused.status
            await reply_json(send, status, self._api.error(refused))
        except Gone:
            status = 499
        finally:
            desk.leave(token)
            self._note(model, status, time.monotonic() - started)

    async def _answer(self, job: Job, receive: Receive, send: Send) -> int:
        async with Watch(receive) as watch:
            if job.asked.stream:
                return await self._stream(job, send)
            found = await self._desk.several(job)
            await reply_json(send, 200, self._api.body(found, job.asked), _headers(found))
            return 200
        assert watch.gone
        self._desk.metrics.add("disconnects_total")
        return 499

    async def _stream(self, job: Job, send: Send) -> int:
        outlet = Outlet(send)
        teller = self._teller(job, outlet)
        work = asyncio.create_task(self._tell(job, teller, outlet))
        try:
            if await outlet.begun():
                await outlet.pump([(b"x-podium-run-id", teller.run.encode())])
            if not outlet.slow:
                return await work
        except asyncio.CancelledError:
            if not outlet.slow:
                raise
        finally:
            work.cancel()
            await asyncio.wait([work])
        self._desk.metrics.add("slow_readers_total")
        return 408

    def _teller(self, job: Job, outlet: Outlet) -> Teller:
        told = job.asked.wishes.reasoning
        return Teller(
            self._api.voice(job.asked),
            outlet.write,
            live=job.live,
            narrate=told and not job.direct,
            think=told,
        )

    async def _tell(self, job: Job, teller: Teller, outlet: Outlet) -> int:
        """The run, told as it happens. A refusal before the first word is an error as any other."""
        try:
            teller.end(await self._desk.run(job, teller, pieces=True))
        except PodiumError as exc:
            if not teller.run:
                raise
            refused = exc if isinstance(exc, Refusal) else refusal(exc.as_failure())
            teller.fail(refused)
            return refused.status
        finally:
            outlet.close()
        return 200

    def _note(self, model: str, status: int, seconds: float) -> None:
        name = self._api.name
        self._desk.metrics.add("requests_total", api=name, model=model, status=str(status))
        self._desk.metrics.observe("request_seconds", seconds, api=name)
        self._desk.journal.note(
            {"api": name, "model": model, "status": status, "seconds": round(seconds, 4)}
        )


def _headers(found: Sequence[Outcome]) -> Headers:
    runs = [each.run for each in found]
    told = {
        "run-id": runs[0].id,
        "strategy": runs[0].strategy,
        "cost": f"{sum(run.cost for run in runs):.9f}",
        "rounds": str(len(runs[0].rounds)),
        "steps": str(sum(len(r.results) for run in runs for r in run.rounds)),
    }
    return [(f"x-podium-{k}".encode(), v.encode("latin-1", "replace")) for k, v in told.items()]


class House:
    """The routes that are asked for facts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def models(self, request: Request) -> Response:
        key = await admit(self._desk, request.headers.raw)
        data = [_model(name) for name in self._desk.models(key)]
        more = {"has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return _answer({"object": "list", "data": data, **more})

    async def model(self, request: Request) -> Response:
        key = await admit(self._desk, request.headers.raw)
        name = request.path_params["name"]
        if name not in self._desk.models(key):
            raise Refusal(f"there is no model {name!r} here", 404, code="model_not_found")
        return _answer(_model(name))

    async def count_tokens(self, request: Request) -> Response:
        """An estimate: workers count differently, and which ones will read this is not known."""
        await admit(self._desk, request.headers.raw)
        raw = await read_body(request.headers.raw, request.receive)
        messages.read(parsed(raw), ())
        return _answer({"input_tokens": max(1, len(raw) // 4)})

    async def runs(self, request: Request) -> Response:
        key = await admit(self._desk, request.headers.raw)
        limit, before = _page(request)
        rows = await self._desk.podium.store.runs(owner=key.id, limit=limit, before=before)
        return _answer({"object": "list", "data": rows, "has_more": len(rows) == limit})

    async def run(self, request: Request) -> Response:
        key = await admit(self._desk, request.headers.raw)
        run = await self._desk.podium.run(request.path_params["id"], owner=key.id)
        if run is None:
            raise Refusal("there is no such run", 404)
        return _answer(run)

    async def metrics(self, request: Request) -> Response:
        await admit(self._desk, request.headers.raw)
        gauge = f"podium_running {len(self._desk.running)}\n"
        return Response(self._desk.metrics.text() + gauge, media_type="text/plain; version=0.0.4")

    async def alive(self, request: Request) -> Response:
        return _answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        if not self._desk.ready:
            raise Refusal("shutting down", 503)
        await self._desk.podium.store.fetch("SELECT 1")
        return _answer({"status": "ready"})

    async def openapi(self, request: Request) -> Response:
        key = await admit(self._desk, request.headers.raw)
        return _answer(description(self._desk.models(key)))


def _model(name: str) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "podium",
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }


def _page(request: Request) -> tuple[int, str]:
    given = request.query_params.get("limit", "20")
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:9]) <= LISTED:
        raise Refusal(f"`limit` must be a whole number from 1 to {LISTED}", param="limit")
    return int(given), request.query_params.get("before", "")


def _answer(value: object, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _shape(request: Request) -> Callable[[Refusal], Json]:
    return messages.error if request.url.path.startswith("/v1/messages") else chat.error


async def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, PodiumError)
    refused = exc if isinstance(exc, Refusal) else refusal(exc.as_failure())
    return _answer(_shape(request)(refused), refused.status)


async def _http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    refused = Refusal(f"{request.method} {request.url.path[:200]}: {exc.detail}", exc.status_code)
    return _answer(_shape(request)(refused), refused.status)


async def _bug(request: Request, exc: Exception) -> Response:
    """Whatever was not foreseen: it is logged with its trace, and the client learns no more."""
    return _answer(_shape(request)(Refusal("an error of the server's own", 500)), 500)

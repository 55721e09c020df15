"""The routes of the page. Each admits its caller first, and shows a key its own runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from podium.app import MAIN
from podium.events import StepRetried
from podium.records import load_run
from podium.serve import chat, retries
from podium.serve.desk import Desk
from podium.serve.exchange import (
    Headers,
    Outlet,
    Receive,
    Scope,
    Send,
    Watch,
    header,
    parsed,
    read_body,
)
from podium.serve.keys import Key
from podium.serve.web import evaluations, figures, runs, shelf, training
from podium.serve.web.files import HEADERS, serve_file, shipped
from podium.serve.web.live import Lives
from podium.serve.web.outline import draft_in_full, outline, step_in_full
from podium.serve.wire import Json, Refusal
from podium.types import Run

Admit = Callable[[Desk, Headers], Awaitable[Key]]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]

SHARED_BYTES = 32 << 20
"""Of a run that is shared as one file."""
REPORT_POLICY = "sandbox allow-scripts allow-popups"
"""A report brings its own content policy; here it also loses its origin, and so every access."""


def mount(desk: Desk, admit: Admit, lifespan: Lifespan | None) -> tuple[Sequence[Route], Lifespan]:
    """The page's routes, and the server's life with its runs ended before anything is closed.

    `admit` says whose request it is, or refuses it.
    """
    shipped()  # read now, so that no request has to wait for it
    web = Web(desk, admit)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with lifespan(app) if lifespan else nullcontext():
            yield
            await web.lives.close()

    return _routes(web), life


def _routes(web: Web) -> list[Route]:
    return [
        Route("/", serve_file),
        Route("/web/api/me", web.me),
        Route("/web/api/ask", web.ask, methods=["POST"]),
        Route("/web/api/runs", web.runs),
        Route("/web/api/runs/{id}", web.run),
        Route("/web/api/runs/{id}/full", web.full),
        Route("/web/api/runs/{id}/events", Events(web)),
        Route("/web/api/runs/{id}/stop", web.stop, methods=["POST"]),
        Route("/web/api/runs/{id}/steps/{round:int}/{index:int}", web.step),
        Route("/web/api/runs/{id}/drafts/{round:int}/{index:int}", web.draft),
        Route("/web/api/pool", web.pool),
        Route("/web/api/pool/deny", web.deny, methods=["POST"]),
        Route("/web/api/spend", web.spend),
        Route("/web/api/training", web.trainings),
        Route("/web/api/training/metrics", web.metrics),
        Route("/web/api/training/samples", web.samples),
        Route("/web/api/evaluations", web.evaluations),
        Route("/web/api/evaluations/figures", web.figures),
        Route("/web/api/evaluations/questions", web.questions),
        Route("/web/api/evaluations/ticket", web.ticket, methods=["POST"]),
        Route("/web/report/{ticket}", web.report),
        Route("/web/{path:path}", serve_file),
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """A stored run, with what its record does not say."""

    run: Run
    state: str
    retries: Sequence[StepRetried] = ()

    @property
    def told(self) -> Json:
        return {**outline(self.run), "state": self.state, "retries": self.retries}


class Web:
    def __init__(self, desk: Desk, admit: Admit) -> None:
        self.desk = desk
        self.lives = Lives(desk)
        self._admit = admit
        self._evaluations = evaluations.Evaluations()

    async def key(self, headers: Headers) -> Key:
        return await self._admit(self.desk, headers)

    async def me(self, request: Request) -> Response:
        """Who asks, and what they may use."""
        key = await self.key(request.headers.raw)
        podium = self.desk.podium
        known = await self.desk.keys.all() if self.desk.operates(key) else []
        return _json(
            {
                "key": key.name if key.id else None,
                "operator": self.desk.operates(key),
                "keys": [{"id": k.id, "name": k.name} for k in known],
                "models": self.desk.models(key),
                "strategies": [MAIN, *(s.name for s in podium.config.strategy)],
                "workers": [
                    n for n in podium.pool.names if key.workers is None or n in key.workers
                ],
                "denied": sorted(await self.desk.denials.known()),
                "failures": runs.FAILURES,
                "limits": podium.limits(),
                "shelf": await self._shelf() is not None,
            }
        )

    # ── runs ──

    async def ask(self, request: Request) -> Response:
        """Begin a run; the body is that of a chat completion."""
        key = await self.key(request.headers.raw)
        raw = await read_body(request.headers.raw, request.receive)
        job = await self.desk.job(chat.read(parsed(raw), ()), key)
        return _json({"run": await self.lives.start(job)})

    async def runs(self, request: Request) -> Response:
        key = await self.key(request.headers.raw)
        asked = request.query_params
        whose = asked.get("key", "")
        if whose and not self.desk.operates(key):
            raise Refusal("a key sees its own runs alone", 403, param="key")
        owner = {"": key.id, runs.EVERYBODY: None, runs.NOBODY: ""}.get(whose, whose)
        return _json(await runs.page(self.desk.podium.store, owner, asked))

    async def run(self, request: Request) -> Response:
        found = await self._found(request)
        live = self.lives.find(found.run.id, None)
        under_way = live is not None and not live.over
        return _json({**found.told, "live": under_way})

    async def full(self, request: Request) -> Response:
        """The run with every message, for the file that is shared."""
        found = await self._found(request)
        rounds = found.run.rounds
        body = orjson.dumps(
            {**found.told, "steps": [[step_in_full(r) for r in each.results] for each in rounds]}
        )
        if len(body) > SHARED_BYTES:
            raise Refusal("this run is too large for one file", 413)
        return Response(body, 200, HEADERS, "application/json")

    async def step(self, request: Request) -> Response:
        run = (await self._found(request)).run
        round, index = request.path_params["round"], request.path_params["index"]
        if round >= len(run.rounds) or index >= len(run.rounds[round].results):
            raise Refusal("there is no such step", 404)
        return _json(step_in_full(run.rounds[round].results[index]))

    async def draft(self, request: Request) -> Response:
        run = (await self._found(request)).run
        round, index = request.path_params["round"], request.path_params["index"]
        if round >= len(run.rounds) or index >= len(run.rounds[round].drafts):
            raise Refusal("there is no such draft", 404)
        return _json(draft_in_full(run.rounds[round].drafts[index]))

    async def stop(self, request: Request) -> Response:
        key = await self.key(request.headers.raw)
        id = request.path_params["id"]
        live = self.lives.find(id, self.owner(key))
        if live is None:
            return await self.elsewhere(id, key)
        self.lives.stop(live)
        return _json({"run": id})

    async def elsewhere(self, id: str, key: Key) -> Response:
        """Another process has the run: the same request finds it over a new connection, in time.

        Raises:
            Refusal: it is not known, or it is over.
        """
        record = await self.desk.podium.store.record(id, owner=self.owner(key))
        if record is None:
            raise Refusal("there is no such run", 404)
        if record.state != "unfinished":
            raise Refusal("this run is over", 410)
        body = {"error": {"message": "this run is under way in another process"}}
        return Response(orjson.dumps(body), 421, {**HEADERS, "connection": "close"})

    def owner(self, key: Key) -> str | None:
        """Whose runs a key may open: its own, or as an operator anybody's."""
        return None if self.desk.operates(key) else key.id

    async def _found(self, request: Request) -> Found:
        """The run that a request names."""
        key = await self.key(request.headers.raw)
        id, store = request.path_params["id"], self.desk.podium.store
        if name := request.query_params.get("shelf"):
            folder = await self._at(name, evaluations.RESULTS)
            return Found(await asyncio.to_thread(evaluations.run, folder, id), "evaluated")
        record = await store.record(id, owner=self.owner(key))
        if record is None:
            raise Refusal("there is no such run", 404)
        return Found(load_run(record), record.state, retries.kept(record))

    # ── figures ──

    async def pool(self, request: Request) -> Response:
        return _json(await figures.pool(self.desk, await self.key(request.headers.raw)))

    async def deny(self, request: Request) -> Response:
        """Give a worker to nobody from here on, or to everybody again."""
        key = await self.key(request.headers.raw)
        if not self.desk.operates(key):
            raise Refusal("only an operator's key may deny a worker to everybody", 403)
        body = parsed(await read_body(request.headers.raw, request.receive))
        match body:
            case {"worker": str(name), "denied": bool(denied)}:
                pass
            case _:
                raise Refusal('say which: {"worker": NAME, "denied": true or false}')
        if name not in self.desk.podium.pool.names:
            raise Refusal(f"there is no worker {name[:200]!r} in the pool", 404, param="worker")
        if denied:
            await self.desk.denials.deny(name, key.name)
        else:
            await self.desk.denials.allow(name)
        return _json({"denied": sorted(self.desk.denials.names)})

    async def spend(self, request: Request) -> Response:
        return _json(await figures.spend(self.desk, await self.key(request.headers.raw)))

    # ── the shelf ──

    async def trainings(self, request: Request) -> Response:
        await self.key(request.headers.raw)
        return _json(await asyncio.to_thread(training.trainings, await self._shelf()))

    async def metrics(self, request: Request) -> Response:
        folder = await self._folder(request, *training.MARKS)
        return _json(await asyncio.to_thread(training.metrics, folder, _whole(request, "after")))

    async def samples(self, request: Request) -> Response:
        folder = await self._folder(request, *training.MARKS)
        return _json(await asyncio.to_thread(training.samples, folder, _whole(request, "step")))

    async def evaluations(self, request: Request) -> Response:
        await self.key(request.headers.raw)
        names = await asyncio.to_thread(shelf.found, await self._shelf(), evaluations.RESULTS)
        return _json([{"name": name} for name in names])

    async def figures(self, request: Request) -> Response:
        folder = await self._folder(request, evaluations.RESULTS)
        return _json(await self._evaluations.figures(folder))

    async def questions(self, request: Request) -> Response:
        folder = await self._folder(request, evaluations.RESULTS)
        return _json(await self._evaluations.questions(folder, request.query_params))

    async def ticket(self, request: Request) -> Response:
        folder = await self._folder(request, evaluations.RESULTS)
        return _json({"ticket": await self._evaluations.ticket(folder)})

    async def report(self, request: Request) -> Response:
        body = self._evaluations.page(request.path_params["ticket"])
        if body is None:
            raise Refusal("this address was good for a minute: open the report again", 404)
        headers = {**HEADERS, "content-security-policy": REPORT_POLICY, "cache-control": "no-store"}
        return Response(body, 200, headers, "text/html; charset=utf-8")

    async def _shelf(self) -> Path | None:
        return shelf.shelf(keyed=await self.desk.keys.exist())

    async def _folder(self, request: Request, *marks: str) -> Path:
        await self.key(request.headers.raw)
        return await self._at(request.query_params.get("name", ""), *marks)

    async def _at(self, name: str, *marks: str) -> Path:
        return await asyncio.to_thread(shelf.at, await self._shelf(), name, *marks)


class Events:
    """A run's events as they happen, and first those that a reader has missed."""

    def __init__(self, web: Web) -> None:
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = await self._web.key(scope["headers"])
        id = scope["path_params"]["id"]
        live = self._web.lives.find(id, self._web.owner(key))
        if live is None:
            response = await self._web.elsewhere(id, key)
            await response(scope, receive, send)
            return
        last = header(scope["headers"], b"last-event-id")
        outlet = Outlet(send)
        live.follow(outlet, int(last) if last.isdigit() else 0)
        try:
            async with Watch(receive):
                await outlet.pump()
        except asyncio.CancelledError:
            if not outlet.slow:  # a reader that is cut off may come back for what it missed
                raise
        finally:
            live.leave(outlet)


def _whole(request: Request, name: str) -> int:
    given = request.query_params.get(name, "-1")
    if not given.removeprefix("-").isdecimal():
        raise Refusal(f"`{name}` must be a whole number", param=name)
    return int(given[:12])


def _json(value: Json | object) -> Response:
    return Response(orjson.dumps(value), 200, HEADERS, "application/json")

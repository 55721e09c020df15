"""Workers over HTTP: limits, retries, money and tracing around one exchange.

    complete ─ breaker ─ gate ─ reserve ─ exchange ─ settle ─ completion
                  ▲                          │
                  └── pause, `call.retried` ◄┘ a failure that may pass

The exchange is `endpoint.py`, what is said in it `dialects`. Nothing else in Podium retries.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import orjson
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer

from podium.errors import ConfigError, WorkerError
from podium.ledger import Reservation
from podium.types import Completion, Request, Sampling, Usage
from podium.workers import Call, Price
from podium.workers.dialects import DIALECTS, Ask, Dialect, Reply, Settings
from podium.workers.endpoint import MAX_BYTES, MAX_PAUSE, Endpoint, Progress, Secret, Timeouts
from podium.workers.limits import Breaker, Gate
from podium.workers.transport import PerLoop, Transport

__all__ = ["ChatWorker", "Secret", "Timeouts", "Transport"]

tracer = get_tracer("podium")

TEMPLATE_TOKENS = 256
"""More than a server wraps around a prompt: its template, an instruction of its own."""
IMAGE_TOKENS = 3_000
"""More than an image costs at any provider, whatever its size."""
CHARS_PER_TOKEN = 4
"""For estimates where a server reports nothing. In the worst case a token is one byte."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it goes over the wire, and the worst that it can cost."""

    body: bytes
    stream: bool
    text_bytes: int
    """Of the body without the images in it. A token is at least one byte."""
    images: int
    output_tokens: int

    @property
    def input_tokens(self) -> int:
        return self.text_bytes + TEMPLATE_TOKENS + self.images * IMAGE_TOKENS

    def estimate(self, written: int) -> Usage:
        """What it used, as far as one can tell without being told."""
        text = max(1, self.text_bytes // CHARS_PER_TOKEN)
        return Usage(text + self.images * IMAGE_TOKENS, math.ceil(written / CHARS_PER_TOKEN))


@dataclass(slots=True, kw_only=True, eq=False)
class ChatWorker:
    """A model behind an HTTP address."""

    name: str
    model: str
    transport: Transport
    dialect: str = "openai"
    base_url: str = ""
    """Empty stands for the home of the dialect."""
    key: Secret = field(default_factory=Secret)
    """Empty for servers that want none."""
    key_env: str = ""
    """The variable it comes from, for error messages."""
    sampling: Sampling = field(default_factory=Sampling)
    """Where a request leaves something open."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the body. They never replace what Podium itself sends."""
    max_tokens_field: str = ""
    """Of the OpenAI dialect: `max_tokens`, or `max_completion_tokens` as OpenAI itself wants."""
    price: Price | None = None
    concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    retries: int = 2
    backoff: float = 0.5
    """Seconds before the first retry; twice as many before each further one."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_bytes: int = MAX_BYTES
    breaker: Breaker = field(default_factory=Breaker)

    fingerprint: str = field(init=False)
    _dialect: Dialect = field(init=False, repr=False)
    _endpoint: Endpoint = field(init=False, repr=False)
    _attributes: dict[str, str | int] = field(init=False, repr=False)
    _settings: dict[bool, tuple[Sampling, Settings]] = field(init=False, repr=False)
    _gates: PerLoop[Gate] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise ConfigError(f"worker {self.name!r}: dialect {self.dialect!r} is none of {known}")
        self._dialect = DIALECTS[self.dialect]
        self.base_url = (self.base_url or self._dialect.home).rstrip("/")
        self._endpoint = Endpoint(
            name=self.name,
            model=self.model,
            dialect=self._dialect,
            base_url=self.base_url,
            key=self.key,
            key_env=self.key_env,
            timeouts=self.timeouts,
            max_bytes=self.max_bytes,
            transport=self.transport,
        )
        if not self.max_tokens_field:
            official = self._endpoint.host == "api.openai.com"
            self.max_tokens_field = "max_completion_tokens" if official else "max_tokens"
        self._attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._dialect.provider,
            "gen_ai.request.model": self.model,
            "server.address": self._endpoint.host,
            "server.port": self._endpoint.port,
        }
        self._settings = {}
        limited = self.concurrency or self.rpm or self.tpm
        self._gates = PerLoop(self._gate) if limited else None
        self.fingerprint = self._fingerprint()

    async def complete(self, request: Request, call: Call) -> Completion:
        asked = self._ask(request, stream=call.hear is not None)
        progress = Progress(call.hear)
        attempts = 0
        while True:
            self._check_breaker()
            attempts += 1
            try:
                completion = await self._attempt(asked, call, progress)
            except WorkerError as failure:
                if failure.status is None or failure.status >= 500:
                    self.breaker.failed(str(failure))
                if attempts > self.retries or progress.heard or not failure.retryable:
                    raise
                call.retried(str(failure))
                pause = self._pause(attempts, failure.retry_after)
            else:
                self.breaker.succeeded()
                return completion if attempts == 1 else replace(completion, attempts=attempts)
            await asyncio.sleep(pause)

    def _check_breaker(self) -> None:
        if (wait := self.breaker.wait()) > 0:
            raise WorkerError(
                f"worker {self.name!r} failed {self.breaker.in_a_row} times in a row and is not "
                f"asked again for {wait:.0f} s; the last time: {self.breaker.reason}"
            )

    def _pause(self, attempt: int, asked_for: float | None) -> float:
        """Half of the wait is chance, so that calls that failed together don't return together."""
        own: float = self.backoff * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
        return min(MAX_PAUSE, max(own, asked_for or 0.0))

    def _ask(self, request: Request, *, stream: bool) -> Asked:
        settings = self._settled(request.sampling, stream=stream)
        body = {**settings.fields, **self._dialect.content(request)}
        if request.extra and self.dialect == "openai":
            body = {**request.extra, **body}
            body.pop("n", None)  # one answer is read, so one is paid for
        try:
            written = orjson.dumps(body, default=_plain)
        except TypeError as error:
            raise WorkerError(
                f"worker {self.name!r}: the request can't be written as JSON: {error}", status=400
            ) from None
        images = [url for message in request.messages for url in message.images]
        inline = sum(len(url) for url in images if url.startswith("data:"))
        return Asked(written, stream, len(written) - inline, len(images), settings.ceiling)

    def _settled(self, sampling: Sampling, *, stream: bool) -> Settings:
        """The settings for this sampling; nearly always those of the request before."""
        last = self._settings.get(stream)
        if last is not None and (last[0] is sampling or last[0] == sampling):
            return last[1]
        merged = sampling.over(self.sampling)
        settings = self._dialect.settings(
            Ask(self.model, merged, stream, self.extra, self.max_tokens_field)
        )
        self._settings[stream] = (sampling, settings)
        return settings

    async def _attempt(self, asked: Asked, call: Call, progress: Progress) -> Completion:
        if self._gates is None:
            return await self._paid(asked, call, progress)
        gate, used = self._gates.get(), None
        entry = await gate.enter(asked.estimate(0).input + asked.output_tokens)
        try:
            completion = await self._paid(asked, call, progress)
            used = completion.usage.total
            return completion
        finally:
            gate.leave(entry, used)

    async def _paid(self, asked: Asked, call: Call, progress: Progress) -> Completion:
        worst = asked.input_tokens, asked.output_tokens
        dollars = self.price.of(*worst) if self.price else None
        hold = await call.ledger.reserve(sum(worst), dollars)
        span = tracer.start_span(
            f"chat {self.model}", kind=SpanKind.CLIENT, attributes=self._attributes
        )
        progress.reached = True
        try:
            reply = await self._endpoint.send(asked.body, progress, stream=asked.stream)
            completion = self._completion(reply, asked)
            hold.settle(completion.usage, completion.cost)
            if span.is_recording():
                _describe(span, reply, completion.usage)
            return completion
        except BaseException as error:
            self._lose(hold, asked, progress, cancelled=isinstance(error, asyncio.CancelledError))
            if span.is_recording():
                span.set_attribute("error.type", _kind(error))
                span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def _lose(
        self, hold: Reservation, asked: Asked, progress: Progress, *, cancelled: bool
    ) -> None:
        """Book a call that brought no completion.

        A server that did nothing costs nothing, and one that we left costs what it had said till
        then. One that broke off may bill what it likes, so it is booked at its worst.
        """
        if not progress.reached:
            hold.release()
        elif cancelled:
            usage = asked.estimate(progress.heard)
            hold.settle(usage, self.price.of(usage.input, usage.output) if self.price else None)
        else:
            hold.settle(Usage(asked.input_tokens, asked.output_tokens), None)

    def _completion(self, reply: Reply, asked: Asked) -> Completion:
        usage, cost = reply.usage, reply.cost
        if not usage.input or not usage.output:
            usage = _mended(usage, reply, asked)
        if cost is None and self.price is not None:
            cost = self.price.of(usage.input, usage.output, usage.cached)
        return Completion(
            reply.text,
            usage,
            cost,
            reply.finish,
            reply.reasoning,
            reply.tool_calls,
            reply.thinking,
        )

    def _fingerprint(self) -> str:
        try:
            decides = {
                "dialect": self.dialect,
                "base_url": self.base_url,
                "model": self.model,
                "sampling": asdict(self.sampling),
                "extra": self.extra,
            }
            return orjson.dumps(decides, default=_plain, option=orjson.OPT_SORT_KEYS).decode()
        except TypeError as error:
            raise ConfigError(f"worker {self.name!r}: its settings are no JSON: {error}") from None

    def _gate(self) -> Gate:
        return Gate(concurrency=self.concurrency, rpm=self.rpm, tpm=self.tpm)


def _mended(usage: Usage, reply: Reply, asked: Asked) -> Usage:
    """Usage with an estimate wherever the server left a count out or got it wrong."""
    written = len(reply.text) + len(reply.reasoning)
    written += sum(len(call.arguments) + len(call.name) for call in reply.tool_calls)
    guess = asked.estimate(written)
    return replace(usage, input=usage.input or guess.input, output=usage.output or guess.output)


def _kind(error: BaseException) -> str:
    status = error.status if isinstance(error, WorkerError) else None
    return str(status) if status is not None else type(error).__name__


def _describe(span: Span, reply: Reply, usage: Usage) -> None:
    span.set_attributes(
        {
            "gen_ai.response.id": reply.id,
            "gen_ai.response.model": reply.model,
            "gen_ai.response.finish_reasons": (reply.finish,),
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
        }
    )


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")

"""Models on this machine: GGUF files under llama.cpp, and the workers that share them.

    LocalModel    one file in memory, with the adapters that its workers brought
    LocalWorker   a model, perhaps an adapter, and how it writes

A call that is given up stops within a token, or within `BATCH` tokens of its prompt.
Requests with different adapters take turns, those with the same one are computed together.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import aiohttp
import orjson
from opentelemetry.trace import SpanKind, get_tracer

from podium.errors import ConfigError, WorkerError
from podium.tracing import note
from podium.types import UNSET, Completion, Message, Piece, Request, Sampling, Usage
from podium.workers import Call
from podium.workers.dialects import OPENAI, Ask, Events, Stream, loads, trouble
from podium.workers.dialects.wire import items, mapping, text, tokens
from podium.workers.llama import Engine, library

tracer = get_tracer("podium")

BATCH = 256
"""Tokens of a prompt that are read at a time. More is no faster on a processor, and whoever hangs
up, or writes at the same time, has to wait for them."""

LARGE = 1 << 30
"""From this size on a model is computed on half of the cores; smaller ones gain little by it."""

ENGINES = 4
"""Of a small model, at most, a core each: every one takes memory of its own."""

SAMPLED_BYTES = 1 << 20
"""Of each end of a file, to tell it from others: reading gigabytes would take longer than a run."""


class LocalModel:
    """A GGUF file, loaded when it is first used and shared by the workers that are made of it.

    A small one is computed on one core, and loaded once more, for another core, when more is asked
    of it than it works on at once.
    """

    def __init__(
        self, path: Path, *, context: int = 4096, parallel: int = 2, threads: int | None = None
    ) -> None:
        """Describe a model; nothing is read yet.

        Args:
            path: the GGUF file.
            context: tokens that one request may have, prompt and reply together.
            parallel: requests that are worked on at once. Each takes memory for its context.
            threads: to compute with. Left out, one for small models, which may be loaded several
                times, and half the cores for others.
        """
        self.path = path
        self.context = context
        self._parallel = parallel
        self._threads = threads
        self._adapters: list[Path] = []
        self._engines: list[Engine] = []
        self._loading = Lock()

    @property
    def name(self) -> str:
        return self.path.stem

    def adopt(self, adapter: Path) -> None:
        """Have this adapter loaded with the model, for the requests that ask for it.

        Raises:
            ConfigError: the model is loaded already, without it.
        """
        if adapter in self._adapters:
            return
        if self._engines:
            raise ConfigError(
                f"{self.name} is loaded and can take no further adapter, such as {adapter.name}: "
                "make all workers of a model before the first call, or close it"
            )
        self._adapters.append(adapter)

    def lora(self, adapter: Path | None) -> list[dict[str, float]]:
        """How a request asks for one adapter, or for none. What it leaves out may be on."""
        return [{"id": i, "scale": float(a == adapter)} for i, a in enumerate(self._adapters)]

    async def load(self) -> None:
        """Load it now, not at the first call.

        Raises:
            ConfigError: llama.cpp is not installed, or it cannot load the file or an adapter.
        """
        if not self._engines:
            await asyncio.to_thread(self._load, 1)

    async def close(self) -> None:
        """Stop what is under way and let the memory go. A later call loads the model again."""
        engines, self._engines = self._engines, []
        for engine in engines:
            await engine.hang_up()
            await asyncio.to_thread(engine.stop)

    async def chat(self, body: Mapping[str, object], hear: Callable[[bytes], None]) -> None:
        """Ask for a streamed chat completion and hear the data of its events."""
        events = Events()
        async with self._send("/v1/chat/completions", body) as response:
            async for chunk in response.content.iter_any():
                for data in events.feed(chunk):
                    hear(data)

    async def count(self, body: Mapping[str, object]) -> int:
        """Tokens of the prompt that a chat request amounts to."""
        counted = await self._read("/v1/chat/completions/input_tokens", body)
        return tokens(mapping(counted).get("input_tokens"))

    async def hidden_state(
        self, messages: Sequence[Message], position: int = -2
    ) -> tuple[float, ...]:
        """What the last layer, after its norm, holds at one token of a prompt, without adapters.

        The prompt is the messages in the model's chat template, up to where it would answer. A
        token sees only what stands before it, so the prompt is read up to that token and no more.
        """
        body = OPENAI.content(Request(tuple(messages)))
        prompt = text(mapping(await self._read("/apply-template", body)).get("prompt"))
        asked = {"content": prompt, "add_special": True, "parse_special": True}
        read = items(mapping(await self._read("/tokenize", asked)).get("tokens"))
        self.check(len(read))
        seen = read[: position + 1 or None]
        if not seen or position >= len(read):
            raise WorkerError(f"the prompt has no token {position}: it has {len(read)}", status=400)
        found = await self._read("/embeddings", {"content": seen, "embd_normalize": -1})
        state = items(items(mapping(items(found)[0]).get("embedding"))[0])
        return tuple(x for x in state if isinstance(x, float))

    async def busy(self) -> int:
        """How many requests it is working on."""
        working = 0
        for engine in self._engines:
            async with engine.request("/slots", None) as response:
                slots = items(loads(await response.read()))
            working += sum(mapping(slot).get("is_processing") is True for slot in slots)
        return working

    def check(self, prompt: int) -> None:
        """Refuse a prompt that leaves no room to write."""
        if prompt >= self.context:
            raise WorkerError(
                f"the prompt has {prompt} tokens and the context of {self.name} holds "
                f"{self.context}, the reply included: shorten it",
                status=400,
            )

    async def _read(self, route: str, body: Mapping[str, object] | None = None) -> object:
        async with self._send(route, body) as response:
            return loads(await response.read())

    @asynccontextmanager
    async def _send(
        self, route: str, body: Mapping[str, object] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        engine = await self._idlest()
        try:
            async with engine.request(route, body) as response:
                if response.status != 200:
                    refusal = trouble(loads(await response.read()), "llama.cpp refused")
                    raise WorkerError(f"{self.name}: {refusal}", status=refusal.status)
                yield response
        except TimeoutError:
            raise WorkerError(f"{self.name} was closed in the middle of a call") from None
        except aiohttp.ClientError as exc:
            raise WorkerError(f"{self.name}: llama.cpp broke off: {exc}") from exc

    async def _idlest(self) -> Engine:
        """The engine with the least to do, or another one where each has its hands full."""
        await self.load()
        there = len(self._engines)
        if there < self._most and all(e.under_way >= self._parallel for e in self._engines):
            await asyncio.to_thread(self._load, there + 1)
        return min(self._engines, key=lambda engine: engine.under_way)

    def _load(self, count: int) -> None:
        """Have so many engines."""
        with self._loading:
            if len(self._engines) < count:
                about = f"{self.path}: {self._suspects()}"
                self._engines.append(Engine(self._params(), about))

    @property
    def _most(self) -> int:
        return min(ENGINES, os.cpu_count() or 1) if self._small and not self._threads else 1

    @property
    def _small(self) -> bool:
        return not self.path.is_file() or self.path.stat().st_size < LARGE

    def _params(self) -> Any:
        llama = library()
        params = llama.CommonParams()
        params.model.path = str(self.path)
        params.lora_adapters = [llama.CommonAdapterLoraInfo(str(a), 0.0) for a in self._adapters]
        params.n_ctx, params.n_parallel = self.context * self._parallel, self._parallel
        params.n_batch = params.n_ubatch = BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._cores()
        # Hidden states beside text: that of the last token which it is given.
        params.embedding = True
        params.pooling_type = llama.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
        # Its store of earlier prompts does not know with which adapter they were read.
        params.cache_ram_mib = 0
        # Nothing is cut off the distribution unless a request says so.
        params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
        params.verbosity, params.ui = -1, False
        return params

    def _cores(self) -> int:
        return self._threads or (1 if self._small else max(1, (os.cpu_count() or 1) // 2))

    def _suspects(self) -> str:
        """What may be wrong where llama.cpp does not say."""
        adapters = ", ".join(a.name for a in self._adapters)
        foreign = f", or an adapter was not made for it ({adapters})" if adapters else ""
        return f"it is no whole GGUF model, memory is short{foreign}"


@dataclass(frozen=True, slots=True)
class LocalWorker:
    """A model on this machine as a worker. It costs tokens and no money.

    A last message of the assistant's is taken as the beginning of the reply: the model goes on
    from there, and the completion holds what it added.
    """

    name: str
    model: LocalModel
    adapter: Path | None = None
    """A LoRA adapter for this worker's calls alone."""
    system: str = ""
    """A system prompt for requests that bring none."""
    sampling: Sampling = UNSET
    """Where a request leaves something open."""

    def __post_init__(self) -> None:
        if self.adapter is not None:
            self.model.adopt(self.adapter)

    @property
    def fingerprint(self) -> str:
        decides = {
            "model": _digest(self.model.path),
            "adapter": _digest(self.adapter) if self.adapter else "",
            "system": self.system,
            "sampling": asdict(self.sampling),
        }
        return orjson.dumps(decides, option=orjson.OPT_SORT_KEYS).decode()

    async def complete(self, request: Request, call: Call) -> Completion:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": self.model.name}
        with tracer.start_as_current_span(
            f"chat {self.model.name}", kind=SpanKind.CLIENT, attributes=attributes
        ) as span:
            completion = await self._complete(request, call)
            note(span, completion)
            return completion

    async def _complete(self, request: Request, call: Call) -> Completion:
        body, ceiling = self._body(request)
        prompt = await self.model.count(body)
        self.model.check(prompt)
        limit = min(ceiling, self.model.context - prompt)
        hold = await call.ledger.reserve(prompt + limit, 0.0)
        heard = _Heard(prompt, call.hear)
        try:
            await self.model.chat({**body, "max_tokens": limit}, heard.feed)
            reply = heard.stream.reply()
            heard.usage = reply.usage
        finally:
            hold.settle(heard.usage, 0.0)
        return Completion(
            reply.text, reply.usage, 0.0, reply.finish, reply.reasoning, reply.tool_calls
        )

    def _body(self, request: Request) -> tuple[dict[str, object], int]:
        sampling = request.sampling.over(self.sampling)
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + request.sample)
        settings = OPENAI.settings(Ask(self.model.name, sampling, stream=True))
        if self.system and not any(m.role == "system" for m in request.messages):
            system = Message("system", self.system)
            request = replace(request, messages=(system, *request.messages))
        # Progress is sent while a prompt is read: how llama.cpp notices that nobody listens.
        told = {"lora": self.model.lora(self.adapter), "return_progress": True}
        fields = {**settings.fields, **told}
        if sampling.grammar:
            fields["grammar"] = sampling.grammar
        return {**fields, **OPENAI.content(request)}, settings.ceiling


@dataclass(slots=True)
class _Heard:
    """A reply while it arrives, and what it has used so far: each piece is about a token."""

    prompt: int
    hear: Callable[[Piece], None] | None
    stream: Stream = field(default_factory=OPENAI.stream)
    usage: Usage = field(default_factory=Usage)

    def feed(self, data: bytes) -> None:
        pieces = self.stream.feed(data)
        self.usage = Usage(self.prompt, self.usage.output + len(pieces))
        if self.hear is not None:
            for piece in pieces:
                self.hear(piece)


def _digest(path: Path) -> str:
    facts = path.stat()
    return _sampled(path, facts.st_size, facts.st_mtime_ns)


@cache
def _sampled(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        head = file.read(SAMPLED_BYTES)
        file.seek(max(0, size - SAMPLED_BYTES))
        return hashlib.sha256(b"%d %b %b" % (size, head, file.read())).hexdigest()[:16]

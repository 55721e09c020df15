"""Record and replay: one store of worker calls for training, evaluation, serving and CI.

A call is known by a digest of all that decides its reply: the worker's fingerprint, the
messages, the settings, and which sample is wanted. The random marks that fence other workers'
text off are left out of it, so that the same workflow gives the same digests every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import orjson

from podium.errors import NotRecorded
from podium.store import Store
from podium.types import Completion, Message, Piece, Request, Usage
from podium.workers import Call, Price, Worker

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Mode = Literal["off", "record", "replay", "read-through"]
"""`record` always calls and keeps the reply; `read-through` calls only for what is not there."""

FORMAT = 1
"""Raised when the digest's make-up changes, so that old recordings miss instead of misleading."""


def canonical(fingerprint: str, request: Request) -> bytes:
    """The request as bytes, without what is random and without settings that were not given."""
    body: dict[str, object] = {
        "format": FORMAT,
        "worker": fingerprint,
        "messages": [_message(m, request.mark) for m in request.messages],
        "sampling": request.sampling,
    }
    if request.tools:
        body |= {"tools": request.tools, "tool_choice": request.tool_choice}
    if request.extra:
        body["extra"] = request.extra
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def _message(message: Message, mark: str) -> dict[str, object]:
    content = message.content.replace(mark, "MARK") if mark else message.content
    body: dict[str, object] = {"role": message.role, "content": content}
    if message.images:
        body["images"] = message.images
    if message.tool_calls:
        body["tool_calls"] = message.tool_calls
    if message.tool_call_id:
        body["tool_call_id"] = message.tool_call_id
    if message.thinking:
        body["thinking"] = message.thinking
    return body


def digest(canonical_request: bytes) -> str:
    return blake2b(canonical_request, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class RecordedWorker:
    """Another worker, with its calls kept in or taken from a store."""

    worker: Worker
    store: Store
    mode: Mode
    _flying: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def fingerprint(self) -> str:
        return self.worker.fingerprint

    async def complete(self, request: Request, call: Call) -> Completion:
        body = canonical(self.fingerprint, request)
        key = (digest(body), request.sample)
        fresh = self.mode == "record"
        while True:
            if not fresh and (found := await self._replay(key, call)) is not None:
                return found
            if self.mode == "replay":
                raise NotRecorded(
                    f"{self.name}: this request is not recorded (digest {key[0]}, sample {key[1]})"
                )
            if (underway := self._flying.get(key)) is None:
                return await self._call(key, body, request, call)
            await underway.wait()
            fresh = False  # whoever called has written it down; if that failed, it is our turn

    async def _call(
        self, key: tuple[str, int], body: bytes, request: Request, call: Call
    ) -> Completion:
        landed = self._flying[key] = asyncio.Event()
        try:
            done = await self.worker.complete(request, call)
            await self.store.put_call(*key, self.name, body, orjson.dumps(done))
        finally:
            del self._flying[key]
            landed.set()
        return done

    async def _replay(self, key: tuple[str, int], call: Call) -> Completion | None:
        kept = await self.store.call(*key)
        if kept is None:
            return None
        done = replace(_completions().validate_json(kept), replayed=True)
        return replayed(done, call)


def replayed(done: Completion, call: Call) -> Completion:
    """Hand out a recorded completion: heard at once, counted, and paid by nobody."""
    call.ledger.book_replayed(done.usage, done.cost)
    if call.hear is not None and done.text:
        call.hear(Piece(done.text))
    return done


@cache
def _completions() -> TypeAdapter[Completion]:
    from pydantic import TypeAdapter  # not at import: half of the start-up time of a small command

    return TypeAdapter(Completion)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model once answered to a whole question."""

    text: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class ReplayedWorker:
    """A model of which only its answers to whole questions are known.

    Choosing it, voting over it and stopping early are exact. A subtask of one's own wording has
    no recorded reply, and is refused rather than guessed.
    """

    name: str
    replies: Mapping[str, Reply]
    """By the text of the question."""
    price: Price

    @property
    def fingerprint(self) -> str:
        return f"recorded {self.name}"

    async def complete(self, request: Request, call: Call) -> Completion:
        asked = request.messages[0].content if len(request.messages) == 1 else ""
        reply = self.replies.get(asked) if request.sample == 0 else None
        if reply is None:
            raise NotRecorded(
                f"{self.name}: not recorded: only one answer to each whole question is, "
                "so a step must read nothing and ask exactly that"
            )
        cost = self.price.of(reply.usage.input, reply.usage.output)
        return replayed(Completion(reply.text, reply.usage, cost, replayed=True), call)

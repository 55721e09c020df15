"""A worker that says what it is told to, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from podium.errors import PodiumError
from podium.types import Completion, Piece, Request, Usage
from podium.workers import FREE, Call, Price

Said = str | Completion | PodiumError
Scripted = Said | Callable[[Request], Said]
MAX_TOKENS = 4096


class Wait(Protocol):
    """An `asyncio.Event`, or a barrier."""

    async def wait(self) -> object: ...


class ScriptedWorker:
    """Replies in order: text, a completion, an error to raise, or a function of the request.

    It spends from the ledger as a real one does, streams its text in a few pieces to whoever
    listens, and keeps every request in `seen`. Asked once more than it has replies, it fails the
    test; one function in place of a list is asked for ever.
    """

    def __init__(
        self,
        replies: Sequence[Scripted] | Callable[[Request], Said],
        *,
        name: str = "scripted",
        price: Price | None = FREE,
        delay: float = 0.0,
        gate: Wait | None = None,
    ) -> None:
        self.name = name
        self.price = price
        self.delay = delay
        self.gate = gate
        self.seen: list[Request] = []
        self.replies = replies

    @property
    def fingerprint(self) -> str:
        return f'{{"scripted":"{self.name}"}}'

    async def complete(self, request: Request, call: Call) -> Completion:
        reply = self._next()
        self.seen.append(request)
        prompt = sum(len(m.content.encode()) + 8 for m in request.messages)
        limit = request.sampling.max_tokens or MAX_TOKENS
        worst = self.price.of(prompt, limit) if self.price else None
        hold = await call.ledger.reserve(prompt + limit, worst)
        try:
            await self._wait()
            completion = self._completion(reply, request, prompt)
            hold.settle(completion.usage, completion.cost)
        except PodiumError:
            hold.release()
            raise
        except asyncio.CancelledError:
            usage = _estimate(prompt, "")
            hold.settle(usage, self.price.of(usage.input, 0) if self.price else None)
            raise
        if call.hear is not None:
            for piece in _pieces(completion):
                call.hear(piece)
        return completion

    async def _wait(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.gate is not None:
            await self.gate.wait()

    def _next(self) -> Scripted:
        if callable(self.replies):
            return self.replies
        if len(self.seen) == len(self.replies):
            raise AssertionError(
                f"{self.name} was asked {len(self.seen) + 1} times and has {len(self.replies)} "
                "replies"
            )
        return self.replies[len(self.seen)]

    def _completion(self, reply: Scripted, request: Request, prompt: int) -> Completion:
        said = reply(request) if callable(reply) else reply
        if isinstance(said, PodiumError):
            raise said
        if isinstance(said, Completion):
            return said
        usage = _estimate(prompt, said)
        cost = self.price.of(usage.input, usage.output) if self.price else None
        return replace(Completion(said), usage=usage, cost=cost)


def _estimate(prompt: int, text: str) -> Usage:
    return Usage(max(1, prompt // 4), -(-len(text) // 4))


def _pieces(completion: Completion) -> list[Piece]:
    text, size = completion.text, max(1, -(-len(completion.text) // 3))
    calls = enumerate(completion.tool_calls)
    return [
        *([Piece(completion.reasoning, "reasoning")] if completion.reasoning else []),
        *(Piece(text[at : at + size]) for at in range(0, len(text), size)),
        *(Piece(call.arguments, "tool", index, call.id, call.name) for index, call in calls),
    ]

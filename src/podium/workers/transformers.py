"""A Hugging Face model in this process as a worker: full weights, or an adapter on its base.

Torch is imported when the model is first needed. Requests that come while it writes are written
together when it is free again, since a batch takes hardly longer than one.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import ConfigError, WorkerError
from podium.types import Completion, Piece, Request, Usage
from podium.workers import Call

if TYPE_CHECKING:
    from podium.workers.sampling import Habit, Written

BATCH = 32
"""Requests that are written together."""

MAX_TOKENS = 1024
"""Where a request does not say how long a reply may be."""


@dataclass(slots=True)
class _Asked:
    prompt: list[int]
    temperature: float
    max_tokens: int
    done: asyncio.Future[Written]


class TransformersWorker:
    def __init__(self, name: str, directory: Path | str, *, batch: int = BATCH) -> None:
        """Name a model; nothing is read before the first request.

        Args:
            name: of the worker.
            directory: of the weights, or of an adapter, which knows its base.
            batch: requests that are written together.
        """
        self.name = name
        self.directory = Path(directory)
        self._size = batch
        self._habit: Habit | None = None
        self._waiting: list[_Asked] = []
        self._writing: asyncio.Task[None] | None = None

    @cached_property
    def fingerprint(self) -> str:
        files = sorted(self.directory.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{self.directory} holds no weights (*.safetensors)")
        parts = hashlib.sha256()
        for file in files:
            with file.open("rb") as stream:
                parts.update(hashlib.file_digest(stream, "sha256").digest())
        return f"transformers {parts.hexdigest()[:16]}"

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from podium.workers.weights import load_trained

        return load_trained(self.directory)

    async def complete(self, request: Request, call: Call) -> Completion:
        _, tokenizer = await asyncio.to_thread(lambda: self._loaded)
        prompt = _tokens(tokenizer, request)
        sampling = request.sampling
        most = sampling.max_tokens or MAX_TOKENS
        reservation = await call.ledger.reserve(len(prompt) + most, 0.0)
        asked = _Asked(
            prompt, sampling.temperature or 0.0, most, asyncio.get_running_loop().create_future()
        )
        try:
            self._waiting.append(asked)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())
            written = await asked.done
        except asyncio.CancelledError:
            reservation.release()
            raise
        usage = Usage(len(prompt), len(written.tokens))
        reservation.settle(usage, 0.0)
        text = str(tokenizer.decode(written.tokens, skip_special_tokens=True))
        if call.hear is not None and text:
            call.hear(Piece(text))
        ended = written.tokens and written.tokens[-1] == tokenizer.eos_token_id
        return Completion(text, usage, finish="stop" if ended else "length")

    async def _write(self) -> None:
        """Write all that waits, batch after batch; equal settings share a batch."""
        await asyncio.sleep(0)  # let everybody who is about to ask do so
        while self._waiting:
            first = self._waiting[0]
            alike = [a for a in self._waiting if _settings(a) == _settings(first)][: self._size]
            self._waiting = [a for a in self._waiting if a not in alike]
            alive = [a for a in alike if not a.done.cancelled()]
            if not alive:
                continue
            written = await asyncio.to_thread(self._generate, alive)
            for asked, result in zip(alive, written, strict=True):
                if not asked.done.cancelled():
                    asked.done.set_result(result)

    def _generate(self, batch: list[_Asked]) -> list[Written]:
        from podium.workers.sampling import Habit, Sampler, generate

        model, tokenizer = self._loaded
        self._habit = self._habit or Habit()
        how = Sampler.of(
            tokenizer, temperature=batch[0].temperature, max_tokens=batch[0].max_tokens
        )
        return generate(model, [a.prompt for a in batch], how, habit=self._habit)


def _settings(asked: _Asked) -> tuple[float, int]:
    return asked.temperature, asked.max_tokens


def _tokens(tokenizer: Any, request: Request) -> list[int]:
    if any(m.images for m in request.messages):
        raise WorkerError("this model reads no images", status=400)
    talk = [{"role": m.role, "content": m.content} for m in request.messages]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])

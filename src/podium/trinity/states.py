"""Where hidden states come from: llama.cpp, transformers, or the cache of either.

A state is what the last layer, after its norm, holds at one token of the prompt. One decision is
one such reading, and nothing is generated.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from podium.errors import ConfigError
from podium.trinity.head import Reading
from podium.types import Message
from podium.workers.weights import quick_dtype

if TYPE_CHECKING:
    from podium.trinity.svf import SingularValues
    from podium.workers.local import LocalModel

State = Sequence[float]


class States(Protocol):
    @property
    def digest(self) -> str:
        """Of the weights that the states come from."""
        ...

    async def state(self, messages: Sequence[Message], reading: Reading) -> State: ...


@dataclass(frozen=True, slots=True)
class LocalStates:
    """States of a GGUF model under llama.cpp."""

    model: LocalModel

    @property
    def digest(self) -> str:
        return file_digest(self.model.path)

    async def state(self, messages: Sequence[Message], reading: Reading) -> State:
        if reading.offsets:
            raise ConfigError("tuned singular values need transformers: llama.cpp cannot set them")
        return await self.model.hidden_state(messages, reading.position)


class TransformersStates:
    """States of a model in Hugging Face's format. Torch is imported when the first is wanted.

    What is asked for while a batch is being read is read together in the next one.
    """

    def __init__(self, directory: Path | str, *, digest: str = "", batch: int = 16) -> None:
        """Name a model; nothing is read yet.

        Args:
            directory: of its weights and its tokenizer.
            digest: of the file that the weights were unpacked from, where they were.
            batch: prompts that are read together.
        """
        self.directory = Path(directory)
        self._digest, self._batch = digest, batch
        self._waiting: list[tuple[str, Reading, asyncio.Future[State]]] = []
        self._reader: asyncio.Task[None] | None = None
        self._tuned: dict[tuple[str, ...], SingularValues] = {}

    @cached_property
    def digest(self) -> str:
        files = sorted(self.directory.glob("*.safetensors"))
        if not self._digest and not files:
            raise ConfigError(f"{self.directory} holds no weights (*.safetensors)")
        return self._digest or hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()

    async def state(self, messages: Sequence[Message], reading: Reading) -> State:
        _, tokenizer = await asyncio.to_thread(lambda: self._loaded)
        talk = [{"role": m.role, "content": m.content} for m in messages]
        prompt = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        done: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, reading, done))
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        return await done

    async def _read(self) -> None:
        await asyncio.sleep(0)  # let everybody who is about to ask do so
        while self._waiting:
            now = self._next()
            states = await asyncio.to_thread(self._forward, [(p, r) for p, r, _ in now])
            for (_, _, done), state in zip(now, states, strict=True):
                if not done.cancelled():
                    done.set_result(state)

    def _next(self) -> list[tuple[str, Reading, asyncio.Future[State]]]:
        """A batch for one tuning of the weights, of prompts as long as each other."""
        self._waiting.sort(key=lambda asked: (asked[1].offsets, len(asked[0])))
        offsets = self._waiting[0][1].offsets
        alike = [asked for asked in self._waiting if asked[1].offsets == offsets]
        now = alike[: self._batch]  # padding is computed in vain, hence the order
        self._waiting = self._waiting[len(now) :]
        return now

    async def tunable(self, named: tuple[str, ...]) -> int:
        """How many singular values these maps have."""
        return (await asyncio.to_thread(self._singular, named)).count

    def _tune(self, reading: Reading) -> None:
        if reading.tuned:
            self._singular(reading.tuned)
        for named, values in self._tuned.items():
            values.scale(reading.offsets if named == reading.tuned else ())

    def _singular(self, named: tuple[str, ...]) -> SingularValues:
        from podium.trinity.svf import SingularValues

        if named not in self._tuned:
            self._tuned[named] = SingularValues(self._loaded[0], named)
        return self._tuned[named]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        hub = _installed("transformers")
        _installed("torch")
        model = hub.AutoModel.from_pretrained(self.directory, dtype=quick_dtype()).eval()
        return model, hub.AutoTokenizer.from_pretrained(self.directory, padding_side="right")

    def _forward(self, asked: Sequence[tuple[str, Reading]]) -> list[State]:
        from podium.workers.sampling import same_opening

        model, tokenizer = self._loaded
        self._tune(asked[0][1])
        rows = tokenizer([prompt for prompt, _ in asked], add_special_tokens=False)["input_ids"]
        furthest = min(r.position for _, r in asked)
        # What all prompts open with is read once, up to before the first state that is wanted.
        common = max(0, min(same_opening(rows), min(map(len, rows)) + furthest))
        hidden = _hidden(model, tokenizer, rows, common)
        return [
            tuple(hidden[i, len(row) - common + reading.position].tolist())
            for i, (row, (_, reading)) in enumerate(zip(rows, asked, strict=True))
        ]


def _hidden(model: Any, tokenizer: Any, rows: Sequence[list[int]], common: int) -> Any:
    """The states of the rows' tokens after those that all of them open with."""
    torch = _installed("torch")
    rest = tokenizer.pad({"input_ids": [row[common:] for row in rows]}, return_tensors="pt")
    cache = _installed("transformers").DynamicCache()
    mask = torch.cat([torch.ones(len(rows), common).long(), rest["attention_mask"]], dim=1)
    with torch.inference_mode():
        if common:
            opening = torch.tensor([rows[0][:common]])
            model(input_ids=opening, past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(len(rows))
        read = model(
            input_ids=rest["input_ids"], attention_mask=mask, past_key_values=cache, use_cache=True
        )
    return read.last_hidden_state.float()


class CachedStates:
    """Another source's states, kept in a file: what was read once is never computed again.

    Kept as half floats, and handed out as such also when they are fresh, so that a run does not
    depend on what an earlier one has left behind. States of tuned weights are not kept: every
    candidate of a search has weights of its own.
    """

    def __init__(self, states: States, path: Path) -> None:
        self._states, self._path = states, path
        self._kept = _kept(path)
        self.computed = 0

    @property
    def digest(self) -> str:
        return self._states.digest

    async def state(self, messages: Sequence[Message], reading: Reading) -> State:
        import numpy as np

        if any(reading.offsets):
            return await self._states.state(messages, reading)
        key = self._key(messages, reading)
        if (found := self._kept.get(key)) is None:
            state = await self._states.state(messages, reading)
            found = np.asarray(state, dtype="<f2").tobytes()
            self._keep(key, found)
        return tuple(np.frombuffer(found, dtype="<f2").astype(float).tolist())

    def _keep(self, key: bytes, state: bytes) -> None:
        self._kept[key] = state
        self.computed += 1
        with self._path.open("ab") as file:
            file.write(key + len(state).to_bytes(4, "little") + state)

    def _key(self, messages: Sequence[Message], reading: Reading) -> bytes:
        said = [(m.role, m.content) for m in messages]
        body = orjson.dumps([self.digest, reading.position, said])
        return hashlib.blake2b(body, digest_size=_KEY).digest()


_KEY = 16


def _kept(path: Path) -> dict[bytes, bytes]:
    """The states in the file. One that was being written when its process died is cut off."""
    if not path.exists():
        return {}
    body, kept, at = path.read_bytes(), dict[bytes, bytes](), 0
    while at + _KEY + 4 <= len(body):
        start = at + _KEY + 4
        end = start + int.from_bytes(body[at + _KEY : start], "little")
        if end > len(body):
            break
        kept[body[at : at + _KEY]] = body[start:end]
        at = end
    if at < len(body):
        with path.open("r+b") as file:
            file.truncate(at)
    return kept


def _installed(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ConfigError(f"{module} is not installed: pip install 'podium[train]'") from None


@lru_cache
def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

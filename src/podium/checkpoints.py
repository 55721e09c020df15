"""Trained Conductors from their directories.

A Conductor is weights and `conductor.json`, which says how to use them. An adapter in GGUF form
runs under llama.cpp on any machine; weights in Hugging Face's format need torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from podium.conductor import Conductor
from podium.errors import ConfigError
from podium.models import ADAPTERS, find_model
from podium.planner import ModelPlanner
from podium.prompts import Form, Show, Style
from podium.types import Limits, Sampling
from podium.workers import Pool, Worker

if TYPE_CHECKING:
    from podium.workers.local import LocalModel

FILE = "conductor.json"
HELD_TOKENS = 160
"""Of a step, for a draft that is held by a grammar."""


class StyleRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    show: Show = "numbers"
    form: Form = "full"
    binary: bool = False
    aloud: bool = False
    question_chars: int = 20_000


class Manner(BaseModel):
    """How a checkpoint wants to be used."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    style: StyleRecord = StyleRecord()
    steps: int
    rounds: int = 1
    max_tokens: int = 1024
    workers: tuple[str, ...] = ()
    base: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained Conductor on disk."""

    directory: Path
    manner: Manner

    def planner(
        self, local: Callable[[Path], LocalModel] | None = None, *, held: bool = False
    ) -> ModelPlanner:
        """Its planner, spoken to as it was in training.

        Args:
            local: gives the base model that llama.cpp runs; its caller lets go of it. Left out,
                it is loaded for this planner alone.
            held: whether a grammar keeps its drafts in form; for llama.cpp.
        """
        style = Style(**self.manner.style.model_dump())
        # A grammar counts characters, and a token is several: it must not cut a subtask short.
        most = max(self.manner.max_tokens, HELD_TOKENS * self.manner.steps * held)
        sampling = Sampling(max_tokens=most, temperature=0.0)
        known = self.manner.workers if style.show == "numbers" else ()
        return ModelPlanner(self._worker(local), style, sampling, 0, held, known)

    def led(self, pool: Pool) -> Pool:
        """The pool in the order of the numbers that it learned.

        Raises:
            ConfigError: the pool lacks a worker that it was trained to lead.
        """
        names = self.manner.workers
        missing = [name for name in names if name not in pool.names]
        if not missing:
            return pool.subset([pool.names.index(name) for name in names]) if names else pool
        if self.manner.style.show == "cards":  # it reads who is there
            return pool
        raise ConfigError(
            f"this Conductor leads {', '.join(names)}: the pool has no {missing[0]!r}"
        )

    def limits(self, limits: Limits) -> Limits:
        """With the steps and rounds that it is used to."""
        return replace(limits, steps=self.manner.steps, rounds=self.manner.rounds)

    def _worker(self, local: Callable[[Path], LocalModel] | None) -> Worker:
        adapters = sorted(self.directory.glob("*.gguf"))
        if adapters:
            from podium.workers.local import LocalModel, LocalWorker

            model = (local or LocalModel)(find_model(self.manner.base))
            return LocalWorker(self.directory.name, model, adapter=adapters[0])
        if not any(self.directory.glob("*.safetensors")):
            raise ConfigError(
                f"{self.directory} holds no weights: neither *.gguf nor *.safetensors"
            )
        from podium.workers.transformers import TransformersWorker

        return TransformersWorker(self.directory.name, self.directory)


def find_checkpoint(named: str) -> Checkpoint:
    """The Conductor in a directory, or the shipped one of this name.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    for directory in (Path(named).expanduser(), ADAPTERS / named):
        if (directory / FILE).is_file():
            return Checkpoint(directory, _manner(directory / FILE))
    shipped = ", ".join(sorted(p.parent.name for p in ADAPTERS.glob(f"*/{FILE}"))) or "none"
    raise ConfigError(
        f"there is no Conductor {named!r}: name a directory with {FILE}, or one that comes with "
        f"Podium ({shipped})"
    )


def load_conductor(named: str, pool: Pool, limits: Limits) -> tuple[Conductor, Limits]:
    """The Conductor of this name over the pool it knows, and the limits it is used to.

    Raises:
        ConfigError: there is none, it cannot be read, or the pool lacks a worker it was trained
            to lead.
    """
    found = find_checkpoint(named)
    return Conductor(found.planner(), found.led(pool)), found.limits(limits)


def _manner(file: Path) -> Manner:
    try:
        return Manner.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as exc:
        raise ConfigError(f"{file} cannot be used: {exc}") from exc

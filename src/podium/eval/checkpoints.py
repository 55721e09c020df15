"""Trained strategies from their files: a Conductor's directory, and TRINITY's head.

A Conductor is weights and `conductor.json`, which says how to use them. An adapter in GGUF form
runs under llama.cpp on any machine; weights in Hugging Face's format need torch. A head names the
model whose states it reads.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from podium.conductor import Conductor, Strategy
from podium.errors import ConfigError
from podium.models import ADAPTERS, KNOWN, find_model
from podium.planner import ModelPlanner
from podium.prompts import Form, Show, Style
from podium.types import Limits, Sampling
from podium.workers import Pool, Worker

FILE = "conductor.json"


class StyleRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    show: Show = "numbers"
    form: Form = "full"
    binary: bool = False
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


def load_conductor(named: str, pool: Pool, limits: Limits) -> tuple[Conductor, Limits]:
    """The Conductor in a directory, or the shipped one of this name, over the pool it knows.

    Raises:
        ConfigError: there is none, it cannot be read, or the pool lacks a worker it was trained
            to lead.
    """
    directory = _find(named)
    manner = _manner(directory / FILE)
    style = Style(**manner.style.model_dump())
    planner = ModelPlanner(
        _worker(directory, manner),
        style,
        Sampling(max_tokens=manner.max_tokens, temperature=0.0),
        repairs=0,
    )
    led = _numbered(pool, manner)
    return Conductor(planner, led), replace(limits, steps=manner.steps, rounds=manner.rounds)


def _find(named: str) -> Path:
    for directory in (Path(named).expanduser(), ADAPTERS / named):
        if (directory / FILE).is_file():
            return directory
    shipped = ", ".join(sorted(p.parent.name for p in ADAPTERS.glob(f"*/{FILE}"))) or "none"
    raise ConfigError(
        f"there is no Conductor {named!r}: name a directory with {FILE}, or one that comes with "
        f"Podium ({shipped})"
    )


def _manner(file: Path) -> Manner:
    try:
        return Manner.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as exc:
        raise ConfigError(f"{file} cannot be used: {exc}") from exc


def _worker(directory: Path, manner: Manner) -> Worker:
    adapters = sorted(directory.glob("*.gguf"))
    if adapters:
        from podium.workers.local import LocalModel, LocalWorker

        model = LocalModel(find_model(manner.base))
        return LocalWorker(directory.name, model, adapter=adapters[0])
    if not any(directory.glob("*.safetensors")):
        raise ConfigError(f"{directory} holds no weights: neither *.gguf nor *.safetensors")
    from podium.workers.transformers import TransformersWorker

    return TransformersWorker(directory.name, directory)


def _numbered(pool: Pool, manner: Manner) -> Pool:
    """The pool in the order of the numbers that the checkpoint learned."""
    if not manner.workers:
        return pool
    missing = [name for name in manner.workers if name not in pool.names]
    if not missing:
        return pool.subset([pool.names.index(name) for name in manner.workers])
    if manner.style.show == "cards":  # it reads who is there
        return pool
    raise ConfigError(
        f"this Conductor leads {', '.join(manner.workers)}: the pool has no {missing[0]!r}"
    )


def load_trinity(file: Path, pool: Pool) -> Strategy:
    """The coordinator with this head, on the model it was trained on.

    Raises:
        ConfigError: the file is no head, or its model is not on this machine.
    """
    from podium.trinity import Coordinator, Head, LocalStates, States, TransformersStates, Trinity
    from podium.workers.local import LocalModel

    head = Head.load(file)
    unknown = [name for name in head.workers if name not in pool.names]
    if len(unknown) == len(head.workers):
        raise ConfigError(f"{file} chooses among {', '.join(head.workers)}: none is in the pool")
    model = head.reading.model
    states: States
    if model in KNOWN or model.endswith(".gguf"):
        states = LocalStates(LocalModel(find_model(model)))
    else:
        states = TransformersStates(model)
    return Trinity(Coordinator(head, states), pool)

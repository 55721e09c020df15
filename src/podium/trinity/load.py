"""An evolved coordinator from its file: a head names the model whose states it reads."""

from __future__ import annotations

from pathlib import Path

from podium.conductor import Strategy
from podium.errors import ConfigError
from podium.models import KNOWN, find_model
from podium.workers import Pool


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

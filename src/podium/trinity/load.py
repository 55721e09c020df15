"""A head from its file, on the model whose states it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import ConfigError
from podium.models import KNOWN, find_model
from podium.trinity.coordinator import Coordinator, Trinity
from podium.trinity.head import Head, Reading
from podium.trinity.states import LocalStates, States, TransformersStates, file_digest
from podium.workers import Pool

if TYPE_CHECKING:
    from podium.workers.local import LocalModel


def load_trinity(
    file: Path, pool: Pool, model: Callable[[Path], LocalModel] | None = None
) -> Trinity:
    """The coordinator with this head, on the model it was trained on.

    `model` gives the model in a GGUF file, where others use it, too.

    Raises:
        ConfigError: the file is no head, it knows nobody of the pool, or its model is not on this
            machine or has changed.
    """
    head = Head.load(file.expanduser())
    if not set(head.workers) & set(pool.names):
        raise ConfigError(f"{file} chooses among {', '.join(head.workers)}: none is in the pool")
    return Trinity(Coordinator(head, _states(head.reading, model)), pool)


def _states(reading: Reading, model: Callable[[Path], LocalModel] | None) -> States:
    if reading.model not in KNOWN and not reading.model.endswith(".gguf"):
        return TransformersStates(reading.model)
    file = find_model(reading.model)
    if reading.offsets:
        from podium.workers.weights import base_directory

        return TransformersStates(base_directory(reading.model), digest=file_digest(file))
    from podium.workers.local import LocalModel

    return LocalStates((model or LocalModel)(file))

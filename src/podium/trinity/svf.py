"""Singular-value fine-tuning: a matrix keeps its directions, and how much each counts is learned.

Each singular value s of a chosen matrix becomes s (1 + offset), and the whole is scaled back to
the sum that the values had. Hundreds of numbers tune a matrix of hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from podium.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Matrix:
    weight: Any
    original: Any
    left: Any
    values: Any
    right: Any


class SingularValues:
    """Chosen matrices of a torch model, taken apart once and put together with any offsets."""

    def __init__(self, model: Any, named: Sequence[str]) -> None:
        """Take apart the linear maps whose names begin like one of these, as `layers.28.`.

        Raises:
            ConfigError: the model has no such map.
        """
        import torch

        self._torch = torch
        self._matrices = [
            self._apart(module.weight)
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and name.startswith(tuple(named))
        ]
        if not self._matrices:
            raise ConfigError(f"the model has no linear map whose name begins {' or '.join(named)}")
        self._set: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        return sum(len(matrix.values) for matrix in self._matrices)

    def scale(self, offsets: Sequence[float]) -> None:
        """Set the matrices to these offsets; without any, to what they were."""
        wanted = tuple(offsets) if any(offsets) else ()
        if wanted == self._set:
            return
        rest = self._torch.tensor(wanted or (0.0,) * self.count)
        for matrix in self._matrices:
            own, rest = rest[: len(matrix.values)], rest[len(matrix.values) :]
            with self._torch.no_grad():
                matrix.weight.copy_(_together(matrix, own) if wanted else matrix.original)
        self._set = wanted

    def _apart(self, weight: Any) -> _Matrix:
        original = weight.detach().clone()
        left, values, right = self._torch.linalg.svd(original.float(), full_matrices=False)
        return _Matrix(weight, original, left, values, right)


def _together(matrix: _Matrix, offsets: Any) -> Any:
    values = matrix.values * (1 + offsets)
    values = values * (matrix.values.sum() / values.sum())
    return (matrix.left * values) @ matrix.right

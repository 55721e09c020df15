"""Turn a LoRA adapter in peft's format into a GGUF file that llama.cpp applies to its base model.

The two engines hold the same matrices under different names, and llama.cpp keeps the rows of the
query and key projections in another order (its rotary embedding pairs neighbours, transformers
pairs halves). An adapter is therefore renamed and, in these two, its `B` reordered. Each shape is
checked against the base model, so that an adapter of another model is refused here and not there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from numpy.typing import NDArray
from safetensors.numpy import load_file

from podium.errors import ConfigError

Matrix = NDArray[np.float32]
Precision = Literal["f16", "q8_0"]

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_KEY = re.compile(r"layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight$")
_Q8_BLOCK = 32
"""Rows are quantised in blocks of this many; a row that does not divide by it stays f16."""


@dataclass(frozen=True, slots=True)
class _Base:
    """What has to be known of the base model."""

    path: Path
    architecture: str
    heads: dict[str, int]
    """Of the projections whose rows are reordered."""
    shapes: dict[str, tuple[int, int]]
    """Rows and columns of each matrix."""

    @staticmethod
    def read(path: Path) -> _Base:
        reader = GGUFReader(path)

        def field(name: str) -> Any:
            found = reader.get_field(name)
            if found is None:
                raise ConfigError(f"{path} has no field {name}: it is not a model of this kind")
            return found.contents()

        architecture = field("general.architecture")
        if architecture != "llama":
            raise ConfigError(f"{path} is of architecture {architecture}: only llama is known here")
        heads = {
            "attn_q": field("llama.attention.head_count"),
            "attn_k": field("llama.attention.head_count_kv"),
        }
        shapes = {
            t.name: (int(t.shape[1]), int(t.shape[0]))
            for t in reader.tensors
            if t.n_elements and len(t.shape) == 2
        }
        return _Base(path, architecture, heads, shapes)


def export(adapter: Path, base: Path, out: Path, *, precision: Precision = "f16") -> Path:
    """Write the peft adapter in directory `adapter`, made for the GGUF model `base`, to `out`."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    model = _Base.read(base)
    matrices = dict(_matrices(adapter / "adapter_model.safetensors", model))
    partial = out.with_suffix(".partial")
    writer = GGUFWriter(partial, model.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    writer.add_string("general.base_model.0.name", model.path.stem)
    for name, matrix in matrices.items():
        _add(writer, name, matrix, precision)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(out)
    return out


def _matrices(file: Path, base: _Base) -> list[tuple[str, Matrix]]:
    """The adapter's matrices under llama.cpp's names and in its order of rows."""
    found = []
    for key, matrix in sorted(load_file(file).items()):
        match = _KEY.search(key)
        if match is None or match[2] not in _NAMES:
            raise ConfigError(f"{file} adapts {key!r}, which llama.cpp cannot: use the projections")
        kind, side = _NAMES[match[2]], match[3]
        name = f"blk.{match[1]}.{kind}.weight"
        rows, columns = base.shapes.get(name, (0, 0))
        wanted = columns if side == "A" else rows
        if matrix.shape[1 if side == "A" else 0] != wanted:
            raise ConfigError(
                f"{file} is no adapter of {base.path.name}: {key!r} is {matrix.shape}"
            )
        if side == "B" and kind in base.heads:
            matrix = _reordered(matrix, base.heads[kind])
        found.append((f"{name}.lora_{side.lower()}", matrix.astype(np.float32)))
    return found


def _reordered(matrix: Matrix, heads: int) -> Matrix:
    """Within each head, the two halves of the rows become neighbours."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _add(writer: GGUFWriter, name: str, matrix: Matrix, precision: Precision) -> None:
    if precision == "q8_0" and matrix.shape[1] % _Q8_BLOCK == 0:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quants.quantize(matrix, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, matrix.astype(np.float16))

"""A LoRA adapter crosses from transformers to llama.cpp: names, order of rows, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.errors import ConfigError

np = pytest.importorskip("numpy", reason="needs the extra 'train'")
gguf = pytest.importorskip("gguf", reason="needs the extra 'train'")
safetensors = pytest.importorskip("safetensors.numpy", reason="needs the extra 'train'")

from podium.train.gguf_adapter import Precision, export  # noqa: E402

HEADS, KV_HEADS, HEAD, WIDTH, RANK = 4, 2, 8, 32, 4
"""A model of one layer: 4 query heads and 2 key heads of 8 rows each, 32 wide."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    for name, rows in (("attn_q", HEADS * HEAD), ("attn_k", KV_HEADS * HEAD), ("ffn_up", 64)):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((rows, WIDTH), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def adapter(directory: Path, **shapes: tuple[int, int]) -> Path:
    """A peft adapter whose matrices count their rows, so that every row can be recognised."""
    places = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "up": "mlp.up_proj"}
    tensors = {}
    for key, (rows, columns) in shapes.items():
        name = f"base_model.model.model.layers.0.{places.get(key, key)}"
        tensors[f"{name}.lora_A.weight"] = np.ones((RANK, columns), np.float32) / 3
        counted = np.arange(rows, dtype=np.float32)[:, None]
        tensors[f"{name}.lora_B.weight"] = np.repeat(counted, RANK, axis=1)
    directory.mkdir()
    safetensors.save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 8}))
    return directory


def test_names_and_facts_are_those_that_llama_cpp_looks_for(tmp_path: Path, base: Path) -> None:
    out = export(adapter(tmp_path / "a", up=(64, WIDTH)), base, tmp_path / "a.gguf")
    reader = gguf.GGUFReader(out)
    assert {t.name for t in reader.tensors} == {
        "blk.0.ffn_up.weight.lora_a",
        "blk.0.ffn_up.weight.lora_b",
    }
    facts = ("general.type", "adapter.type", "general.architecture")
    assert [reader.get_field(f).contents() for f in facts] == ["adapter", "lora", "llama"]
    assert reader.get_field("adapter.lora.alpha").contents() == 8.0


@pytest.mark.parametrize(("key", "heads"), [("q", HEADS), ("k", KV_HEADS)])
def test_halves_of_a_head_become_neighbours(
    tmp_path: Path, base: Path, key: str, heads: int
) -> None:
    made = adapter(tmp_path / "a", **{key: (heads * HEAD, WIDTH)})
    reader = gguf.GGUFReader(export(made, base, tmp_path / "a.gguf"))
    (b,) = [t for t in reader.tensors if t.name.endswith("lora_b")]
    rows = b.data[:, 0].tolist()
    assert rows[:HEAD] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert rows[HEAD : 2 * HEAD] == [8, 12, 9, 13, 10, 14, 11, 15]


def test_other_projections_keep_their_order(tmp_path: Path, base: Path) -> None:
    out = export(adapter(tmp_path / "a", up=(64, WIDTH)), base, tmp_path / "a.gguf")
    (b,) = [t for t in gguf.GGUFReader(out).tensors if t.name.endswith("lora_b")]
    assert b.data[:, 0].tolist() == list(range(64))


@pytest.mark.parametrize(("precision", "wanted"), [("f16", "F16"), ("q8_0", "Q8_0")])
def test_long_rows_may_be_stored_in_eight_bits(
    tmp_path: Path, base: Path, precision: Precision, wanted: str
) -> None:
    made = adapter(tmp_path / "a", up=(64, WIDTH))
    reader = gguf.GGUFReader(export(made, base, tmp_path / "a.gguf", precision=precision))
    kinds = {t.name[-1]: t.tensor_type.name for t in reader.tensors}
    assert kinds == {"a": wanted, "b": "F16"}


def test_an_adapter_of_another_model_is_refused(tmp_path: Path, base: Path) -> None:
    with pytest.raises(ConfigError, match=r"no adapter of base\.gguf"):
        export(adapter(tmp_path / "a", up=(80, WIDTH)), base, tmp_path / "a.gguf")
    assert not (tmp_path / "a.gguf").exists()


def test_what_llama_cpp_cannot_adapt_is_refused(tmp_path: Path, base: Path) -> None:
    made = adapter(tmp_path / "a", **{"mlp.gates": (64, WIDTH)})
    with pytest.raises(ConfigError, match=r"mlp\.gates"):
        export(made, base, tmp_path / "a.gguf")

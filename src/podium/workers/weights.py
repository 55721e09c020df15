"""Weights in Hugging Face's format: a base to build on, and a trained Conductor to write with.

A checkpoint is a plain directory, full weights or an adapter, with one file of ours beside them:
`conductor.json` says how it wants to be spoken to and which base it belongs to. Torch is imported
when something is loaded.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from podium.errors import ConfigError
from podium.models import KNOWN, find_model, home

FILE = "conductor.json"


def base_directory(base: str) -> str:
    """The base in Hugging Face's format; a GGUF file is unpacked once."""
    if base not in KNOWN and not base.endswith(".gguf"):
        return base
    gguf = find_model(base)
    directory = home() / f"{gguf.stem}-{digest(gguf)[:8]}"
    if not (directory / "config.json").exists():
        unpack(gguf, directory)
    return str(directory)


def unpack(gguf: Path, directory: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    at = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **at, quantization_config=GgufConfig(dequantize=True)
    )
    # A place of its own: two commands started together both unpack, and one is used.
    partial = Path(mkdtemp(prefix=directory.name, suffix=".partial", dir=directory.parent))
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(**at).save_pretrained(partial)
    try:
        partial.rename(directory)
    except OSError:
        rmtree(partial)
        if not (directory / "config.json").exists():
            raise


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_trained(directory: Path) -> tuple[Any, Any]:
    """A checkpoint ready to write: full weights, or an adapter on its base.

    Raises:
        ConfigError: the base that is there is not the one the adapter was trained on.
    """
    from peft import PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    if not (directory / "adapter_config.json").exists():
        return load_weights(str(directory)).eval(), tokenizer
    manner = json.loads((directory / FILE).read_text())
    base = base_directory(manner["base"])
    if manner["base_digest"] != weights_digest(Path(base)):
        raise ConfigError(
            f"{directory} is an adapter of another model: {manner['base']} here has other weights"
        )
    return PeftModel.from_pretrained(load_weights(base), str(directory)).eval(), tokenizer


def load_weights(directory: str, dtype: Any = None) -> Any:
    """A model in Hugging Face's format, as this machine computes it quickly."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from podium.workers import attention

    family = AutoConfig.from_pretrained(directory).model_type
    ours = not torch.cuda.is_available() and family in attention.FAMILIES
    how = {"attn_implementation": attention.NAME} if ours else {}
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype or quick_dtype(), **how)
    return _with_quick_head(model)


def quick_dtype() -> Any:
    """What this machine computes quickly in.

    A processor without instructions for bfloat16 takes longer for it than for float32.
    """
    import torch

    can = torch.cpu.get_capabilities()
    known = any(can.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return torch.bfloat16 if known or torch.cuda.is_available() else torch.float32


def _with_quick_head(model: Any) -> Any:
    """The model, its head given only states that lie together in memory.

    Logits are wanted of the last few tokens of each row, and such a slice of the states takes torch
    many times as long on a processor.
    """
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, given: (given[0].contiguous(), *given[1:]))
    return model


def weights_digest(directory: Path) -> str:
    """Of the weights in a directory; nothing for a model that is known by its name on a hub."""
    files = sorted(directory.glob("*.safetensors"))
    return hashlib.sha256("".join(map(digest, files)).encode()).hexdigest()[:16] if files else ""

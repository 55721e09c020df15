"""Models in and out: a base to train, and a checkpoint that says how it wants to be spoken to.

A checkpoint is a plain Hugging Face directory, full or an adapter, with one file of ours beside
the weights: `conductor.json` holds the style it was trained in, its limits, its pool, and which
base it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.errors import ConfigError
from podium.models import KNOWN, find_model
from podium.train.recipe import Model, Recipe
from podium.workers.weights import FILE, base_directory, weights_digest


def load_tokenizer(settings: Model) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base_directory(settings.base), padding_side="left")
    if not tokenizer.chat_template:
        raise ConfigError(f"{settings.base} has no chat template: take a model tuned to chat")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(settings: Model) -> tuple[Any, Any]:
    """The model to train, with fresh or given adapters, and its tokenizer."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(settings)
    directory = base_directory(settings.base)
    dtype = getattr(torch, settings.dtype)
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    if settings.adapter:
        return PeftModel.from_pretrained(model, settings.adapter, is_trainable=True), tokenizer
    if settings.lora is not None:
        config = LoraConfig(
            r=settings.lora.rank,
            lora_alpha=settings.lora.alpha,
            target_modules=list(settings.lora.modules),
            task_type="CAUSAL_LM",
        )
        model = get_peft_model(model, config)
    return model, tokenizer


def restore(model: Any, directory: Path) -> bool:
    """Put saved weights into the model, if there are any."""
    from peft import PeftModel, set_peft_model_state_dict
    from safetensors.torch import load_file

    adapter = isinstance(model, PeftModel)
    file = directory / ("adapter_model.safetensors" if adapter else "model.safetensors")
    if not file.exists():
        return False
    if adapter:
        set_peft_model_state_dict(model, load_file(file))
    else:
        model.load_state_dict(load_file(file))
    return True


def complete(directory: Path, recipe: Recipe, workers: Sequence[str]) -> None:
    """Put beside the saved weights what others need: how to speak to them, and llama.cpp's form."""
    manner = {
        "style": asdict(recipe.style.value()),
        "steps": recipe.limits.steps,
        "rounds": recipe.limits.rounds,
        "max_tokens": recipe.grpo.max_tokens,
        "workers": [] if recipe.pool.draw else list(workers),
        "base": recipe.model.base,
        "base_digest": weights_digest(Path(base_directory(recipe.model.base))),
        "recipe": recipe.name,
    }
    (directory / FILE).write_text(json.dumps(manner, indent=1))
    if recipe.model.lora is not None and recipe.model.base in KNOWN:
        from podium.train.gguf_adapter import export

        export(directory, find_model(recipe.model.base), directory / "conductor.gguf")

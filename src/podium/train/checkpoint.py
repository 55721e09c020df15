"""Models in and out: a base to train, and a checkpoint that says how it wants to be spoken to.

A checkpoint is a plain Hugging Face directory, full or an adapter, with one file of ours beside
the weights: `conductor.json` holds the style it was trained in, its limits, its pool, and which
base it belongs to.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from podium.errors import ConfigError, StoreError
from podium.models import KNOWN, find_model
from podium.train.recipe import Model, Recipe
from podium.workers.weights import (
    FILE,
    base_directory,
    load_weights,
    weights_digest,
)

STATE = "trainer_state.json"
REPORTS = ("tensorboard", "trackio", "wandb")
"""Places to report to whose packages have their names."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAID_FULL = ("os error 28", "os error 27", "os error 122", "inline_container.cc")
"""What libraries say that keep the number of the error to themselves: safetensors, then torch."""


@contextmanager
def needing_room(directory: Path) -> Iterator[None]:
    """Turn what each library raises when the disk is full into one error.

    Raises:
        StoreError: it is.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as exc:
        full = isinstance(exc, OSError) and exc.errno in FULL
        if not full and not any(said in str(exc) for said in SAID_FULL):
            raise
        raise StoreError(
            f"there is no room to write in {directory}: make some and start again, and the run "
            "goes on from its last checkpoint"
        ) from exc


def load_tokenizer(settings: Model) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base_directory(settings.base), padding_side="left")
    if not tokenizer.chat_template:
        raise ConfigError(f"{settings.base} has no chat template: take a model tuned to chat")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check(recipe: Recipe) -> None:
    """Refuse before anything is paid for what would fail long after.

    Raises:
        ConfigError: the model cannot chat, its adapter is another model's, or nothing is known of
            the place to report to.
    """
    load_tokenizer(recipe.model)
    if recipe.model.adapter:
        check_adapter(recipe.model)
    check_reports(recipe.grpo.report_to)


def check_reports(names: Sequence[str]) -> None:
    from transformers.integrations import INTEGRATION_TO_CALLBACK

    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            known = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
            raise ConfigError(f"`grpo.report_to` names {name!r}: there are {known}")
        if name in REPORTS and find_spec(name) is None:
            raise ConfigError(f"`grpo.report_to` names {name}, which is not installed")


def check_adapter(settings: Model) -> None:
    """See that the adapter to go on from belongs to the base.

    Raises:
        ConfigError: it does not, or there is none.
    """
    directory = Path(settings.adapter).expanduser()
    if not (directory / "adapter_config.json").is_file():
        raise ConfigError(f"`model.adapter`: there is no adapter in {directory}")
    file = directory / FILE
    known = json.loads(file.read_text())["base_digest"] if file.is_file() else ""
    if known and known != weights_digest(Path(base_directory(settings.base))):
        raise ConfigError(
            f"`model.adapter`: {directory} was trained on other weights than {settings.base} has"
        )


def load_model(settings: Model) -> tuple[Any, Any]:
    """The model to train, with fresh or given adapters, and its tokenizer."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    tokenizer = load_tokenizer(settings)
    dtype = None if settings.dtype == "auto" else getattr(torch, settings.dtype)
    model = load_weights(base_directory(settings.base), dtype)
    if settings.adapter:
        check_adapter(settings)
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


def last_whole(folder: Path) -> Path | None:
    """The newest checkpoint of a run that was written to its end; those that were not are removed.

    The trainer's state is what is written last of each.
    """
    for found in sorted(folder.glob("checkpoint-*"), key=step_of, reverse=True):
        if _readable(found / STATE):
            return found
        shutil.rmtree(found, ignore_errors=True)
    return None


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _readable(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return False


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
    base = recipe.model.base
    if (directory / "adapter_config.json").exists() and (base in KNOWN or base.endswith(".gguf")):
        from podium.train.gguf_adapter import export

        export(directory, find_model(base), directory / "conductor.gguf")

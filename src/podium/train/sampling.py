"""Write with a Hugging Face model in this process: many drafts at once, shared prompts read once.

The trainer, the evaluation of a checkpoint and the worker that serves one all sample here, so that
what is measured is what was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

Tokens = list[int]


@dataclass(frozen=True, slots=True)
class Sampler:
    temperature: float
    """0 takes the likeliest token."""
    max_tokens: int
    ends: frozenset[int]
    pad: int

    def sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """One token for each row, and its log-probability."""
        scores = (logits.float() / (self.temperature or 1.0)).log_softmax(-1)
        if self.temperature:
            token = torch.multinomial(scores.exp(), 1)
        else:
            token = scores.argmax(-1, keepdim=True)
        return token, scores.gather(-1, token)[:, 0]


@dataclass(slots=True)
class Written:
    """A draft in tokens, up to and with the one that ends it, and how likely each of them was."""

    tokens: Tokens
    logprobs: list[float]


@torch.no_grad()
def generate(model: Any, prompts: Sequence[Tokens], how: Sampler) -> list[Written]:
    """Sample under each prompt. Rows that have ended leave the batch."""
    width = max(map(len, prompts))
    ids = torch.tensor([[how.pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    cache = prefix(model, ids[:, :-1], mask[:, :-1])
    written = [Written([], []) for _ in prompts]
    rows, last = list(range(len(prompts))), ids[:, -1:]
    for _ in range(how.max_tokens):
        out = model(input_ids=last, attention_mask=mask, past_key_values=cache, use_cache=True)
        last, logprobs = how.sample(out.logits[:, -1])
        for row, token, logprob in zip(rows, last[:, 0].tolist(), logprobs.tolist(), strict=True):
            written[row].tokens.append(token)
            written[row].logprobs.append(logprob)
        mask = torch.cat([mask, torch.ones_like(last)], dim=1)
        going = [i for i, token in enumerate(last[:, 0].tolist()) if token not in how.ends]
        if not going:
            break
        if len(going) < len(rows):
            rows, kept = [rows[i] for i in going], torch.tensor(going)
            last, mask = last[kept], mask[kept]
            cache.batch_select_indices(kept)
    return written


def prefix(model: Any, ids: Tensor, mask: Tensor) -> DynamicCache:
    """The cache of these prompts, each different one computed once."""
    both = torch.stack([ids, mask.to(ids.dtype)], dim=-1)
    unique, inverse = torch.unique(both, dim=0, return_inverse=True)
    cache = DynamicCache()
    model(
        input_ids=unique[..., 0],
        attention_mask=unique[..., 1],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    cache.batch_select_indices(inverse)
    return cache

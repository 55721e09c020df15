"""Attention for processors: heads that share keys are computed together.

Models of today have several heads to each key. torch's own attention for processors, and the plain
one of transformers, copy every key once per head first, and most of the time of a small model went
there. Here the heads of a key become further rows of one product, and nothing is copied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "podium-grouped"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Whose attention is this one and nothing more."""


def grouped(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    rows, heads, new, width = query.shape
    keys, seen = key.shape[1], key.shape[2]
    together = query.reshape(rows, keys, heads // keys * new, width)
    scores = ((together * scaling) @ key.transpose(2, 3)).view(rows, heads, new, seen)
    if attention_mask is not None:
        scores = scores + attention_mask
    shares = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    shares = torch.nn.functional.dropout(shares, p=dropout, training=module.training)
    found = shares.view(rows, keys, heads // keys * new, seen) @ value
    return found.view(rows, heads, new, width).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped)
AttentionMaskInterface.register(NAME, eager_mask)

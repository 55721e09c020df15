"""Attention in which heads that share keys are computed together says what the plain one says."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the `train` extra is not installed")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from podium.workers.attention import NAME  # noqa: E402


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_scores_and_gradients_are_those_of_plain_attention(keys: int) -> None:
    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=50)
    config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=keys)
    torch.manual_seed(0)
    plain = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    ours = LlamaForCausalLM._from_config(config, attn_implementation=NAME)
    ours.load_state_dict(plain.state_dict())
    ids, mask = torch.randint(0, 50, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[1, :4] = 0  # padded on the left
    told = []
    for model in (plain, ours):
        logits = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        logits.logsumexp(-1).sum().backward()
        told.append((logits.detach(), model.model.layers[0].self_attn.k_proj.weight.grad))
    (logits, gradient), (our_logits, our_gradient) = told
    assert torch.allclose(logits, our_logits, atol=1e-5)
    assert torch.allclose(gradient, our_gradient, atol=1e-4) and gradient.abs().max() > 0

"""Singular values: a model tuned by a few numbers, and the search that finds them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from podium.errors import ConfigError  # noqa: E402
from podium.trinity import Head, LocalStates, Reading, TransformersStates  # noqa: E402
from podium.trinity.svf import SingularValues  # noqa: E402
from podium.types import Message  # noqa: E402
from podium.workers.local import LocalModel  # noqa: E402
from tiny_llama import save_tiny_llama  # noqa: E402

ASKED = [Message("user", "What is the sum of 2 and 3?")]


def linear() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"first": torch.nn.Linear(6, 4), "other": torch.nn.Linear(3, 3)})


def test_without_offsets_the_weights_are_what_they_were():
    model = linear()
    before = model["first"].weight.detach().clone()
    values = SingularValues(model, ["first"])
    values.scale([0.5, -0.2, 0.0, 0.1])
    assert not torch.allclose(model["first"].weight, before)
    values.scale([0.0] * values.count)
    assert torch.equal(model["first"].weight, before)


def test_directions_and_the_sum_of_the_values_stay_and_their_shares_move():
    model = linear()
    _, before, _ = torch.linalg.svd(model["first"].weight.detach(), full_matrices=False)
    SingularValues(model, ["first"]).scale([1.0, 0.0, 0.0, 0.0])
    _, after, _ = torch.linalg.svd(model["first"].weight.detach(), full_matrices=False)
    wanted = before * torch.tensor([2.0, 1.0, 1.0, 1.0])
    assert torch.allclose(after, wanted * before.sum() / wanted.sum(), atol=1e-5)


def test_a_map_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r"layers\.99"):
        SingularValues(linear(), ["layers.99."])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("model"), [ASKED[0].content])


async def test_states_asked_for_at_once_are_each_of_their_own_tuning(model: Path):
    states = TransformersStates(model)
    plain = Reading(str(model), states.digest, 64)
    count = await states.tunable(("layers.0.",))
    moved = [
        replace(plain, tuned=("layers.0.",), offsets=(x,) * (count - 1) + (0.0,)) for x in (0.5, 2)
    ]
    alone = [await states.state(ASKED, reading) for reading in (plain, *moved, plain)]
    together = await asyncio.gather(*(states.state(ASKED, r) for r in (plain, *moved, plain)))
    assert all(a == pytest.approx(t, abs=1e-5) for a, t in zip(alone, together, strict=True))
    assert alone[0] == alone[3] and len({*alone}) == 3


async def test_a_tuned_head_survives_its_file_and_is_refused_by_llama_cpp(tmp_path: Path):
    reading = Reading("m", "d", 2, tuned=("layers.0.",), offsets=(0.25, -0.5))
    head = Head.zero(reading, ("a",))
    head.save(tmp_path / "head.json")
    assert Head.load(tmp_path / "head.json") == head
    with pytest.raises(ConfigError, match="transformers"):
        await LocalStates(LocalModel(tmp_path / "none.gguf")).state(ASKED, reading)


async def test_what_all_questions_open_with_is_read_once_and_no_state_is_another_for_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
):
    from transformers import AutoModel, AutoTokenizer

    # In bfloat16 another batch rounds otherwise: here a state is to be the same, not alike.
    monkeypatch.setattr("podium.trinity.states.quick_dtype", lambda: torch.float32)
    asked = [[Message("user", text)] for text in ("What is 2?", "What is the sum?", "of 3 and 2?")]
    states = TransformersStates(model)
    reading = Reading(str(model), states.digest, 64)
    found = await asyncio.gather(*(states.state(messages, reading) for messages in asked))
    whole, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    for (message,), state in zip(asked, found, strict=True):
        talk = [{"role": "user", "content": message.content}]
        text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            alone = whole(ids).last_hidden_state[0, -2]
        assert torch.allclose(torch.tensor(state), alone.float(), atol=1e-4)

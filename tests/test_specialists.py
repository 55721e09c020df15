"""A specialist in training, on a random model small enough for a second."""

from __future__ import annotations

import string
from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'train'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'train'")

from podium.eval.tiny.skills import SKILLS  # noqa: E402
from podium.train.tiny.recipe import Lesson  # noqa: E402
from podium.train.tiny.specialists import Base, Batch, Specialist, logits  # noqa: E402
from podium.train.tiny.subtasks import Example, example  # noqa: E402

TEMPLATE = "{{ 'system\n' + messages[0]['content'] + '\nassistant\n' }}"
LESSON = Lesson(steps=4, batch=4, warmup=1)

pytestmark = pytest.mark.filterwarnings("default::FutureWarning:transformers")


@pytest.fixture
def base() -> Base:
    """Two random layers, and a token for every character."""
    torch.manual_seed(0)
    letters = {c: i for i, c in enumerate([*string.printable, "<|im_end|>"])}
    by_letter = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="?"))
    by_letter.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    by_letter.add_special_tokens(["<|im_end|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=by_letter)
    tokenizer.chat_template = TEMPLATE
    config = transformers.LlamaConfig(
        vocab_size=len(letters),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return Base(transformers.LlamaForCausalLM(config), tokenizer)


def asked(n: int) -> list[Example]:
    return [example(SKILLS["reverse"], Random(i), "train") for i in range(n)]


def test_the_shared_beginning_changes_nothing(base: Base) -> None:
    specialist = Specialist(SKILLS["reverse"], LESSON, base)
    specialist.learn(0)
    rows = [base.encode(e) for e in asked(5)]
    with torch.no_grad():
        together = logits(specialist.model, Batch.of(rows))
        apart = []
        for prompt, answer in rows:
            whole = specialist.model(torch.tensor([[*prompt, *answer]])).logits[0]
            apart.append(whole[len(prompt) - 1 : -1])
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-4, rtol=1e-4)


def test_every_adapter_weight_moves_and_no_other(base: Base) -> None:
    specialist = Specialist(SKILLS["add"], LESSON, base)
    before = {n: p.detach().clone() for n, p in specialist.model.named_parameters()}
    for step in range(2):
        specialist.learn(step)
    for name, weight in specialist.model.named_parameters():
        assert torch.equal(weight, before[name]) != ("lora_" in name), name


def test_accuracy_is_that_of_greedy_writing(base: Base) -> None:
    specialist = Specialist(SKILLS["reverse"], LESSON, base)
    prompt = base.encode(Example("Say something.", ""))[0]
    written = specialist.model.generate(
        torch.tensor([prompt]), max_new_tokens=3, do_sample=False, pad_token_id=0
    )
    said = base.tokenizer.decode(written[0, len(prompt) :]).replace(" ", "")
    rows = [Example("Say something.", said), Example("Say something.", said[::-1] + "!")]
    tokens = [(prompt, base.tokenizer(e.answer)["input_ids"]) for e in rows]
    agree = logits(specialist.model, Batch.of(tokens[:1])).argmax(-1).tolist()
    assert agree == tokens[0][1]
    assert specialist.accuracy(rows[1:]) == 0.0


def test_a_killed_run_continues_on_the_same_curve(base: Base, tmp_path: Path) -> None:
    whole = Specialist(SKILLS["last"], LESSON, base)
    losses = [whole.learn(step) for step in range(2)]
    whole.save(tmp_path / "checkpoint.pt", 2)
    losses += [whole.learn(step) for step in range(2, 4)]
    whole.model.unload()
    again = Specialist(SKILLS["last"], LESSON, base)
    first = again.resume(tmp_path / "checkpoint.pt")
    assert first == 2
    assert [again.learn(step) for step in range(first, 4)] == pytest.approx(losses[2:], rel=1e-5)


def test_a_run_without_a_checkpoint_begins_at_the_beginning(base: Base, tmp_path: Path) -> None:
    assert Specialist(SKILLS["last"], LESSON, base).resume(tmp_path / "checkpoint.pt") == 0

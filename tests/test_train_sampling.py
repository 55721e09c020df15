"""What is expected of a draft changes how fast it is written, and never what is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the `train` extra is not installed")

from tiny_llama import save_tiny_llama  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

TEXT = "a b c d\n"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder: Path = save_tiny_llama(tmp_path_factory.mktemp("model"), [TEXT])
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(40)  # so that some tokens are likelier than others
    return model, AutoTokenizer.from_pretrained(folder)


def write(loaded, prompts, *, temperature: float, habit=None, max_tokens: int = 3):
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    how = Sampler.of(tokenizer, temperature=temperature, max_tokens=max_tokens)
    return generate(model, prompts, how, habit=habit or expecting([]))


def expecting(opening, ends=()):
    from podium.workers.sampling import Habit

    habit = Habit()
    habit.opening = list(opening)
    habit._ends = dict(ends)
    return habit


def test_sampling_has_the_models_distribution_whatever_is_expected(loaded):
    _, tokenizer = loaded
    prompt = tokenizer("a b")["input_ids"]
    many = [prompt] * 3000
    torch.manual_seed(1)
    plain = Counter(tuple(w.tokens) for w in write(loaded, many, temperature=1.0))
    usual = [*plain.most_common(1)[0][0]]
    held = write(loaded, many, temperature=1.0, habit=expecting(usual))
    guided = Counter(tuple(w.tokens) for w in held)
    apart = sum(abs(plain[t] - guided[t]) for t in plain.keys() | guided.keys()) / 2 / len(many)
    again = Counter(tuple(w.tokens) for w in write(loaded, many, temperature=1.0))
    noise = sum(abs(plain[t] - again[t]) for t in plain.keys() | again.keys()) / 2 / len(many)
    assert apart < 1.5 * noise + 0.01


def test_drafts_under_one_prompt_cover_what_the_model_would_write(loaded):
    """Of 16 drafts a token of one in eight is in two, not in none and not in six."""
    model, tokenizer = loaded
    prompt = tokenizer("a b")["input_ids"]
    with torch.no_grad():
        likely = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    for _ in range(20):
        first = Counter(w.tokens[0] for w in write(loaded, [prompt] * 16, temperature=1.0))
        for token, p in enumerate(likely.tolist()):
            assert abs(first[token] - 16 * p) < 2


def test_the_likeliest_draft_is_the_same_whatever_is_expected(loaded):
    _, tokenizer = loaded
    prompts = [tokenizer(text)["input_ids"] for text in ("a", "b c", "d a\nb")]
    plain = [w.tokens for w in write(loaded, prompts, temperature=0.0, max_tokens=8)]
    for opening in (plain[0], plain[1][:2], [1, 2, 3]):
        ends = {n: plain[2][n:] for n in range(1, 8)}
        habit = expecting(opening, ends)
        found = write(loaded, prompts, temperature=0.0, habit=habit, max_tokens=8)
        assert [w.tokens for w in found] == plain


def test_log_probabilities_are_those_of_one_plain_pass(loaded):
    model, tokenizer = loaded
    prompts = [tokenizer(text)["input_ids"] for text in ("a", "b c d", "d a\nb")]
    torch.manual_seed(2)
    found = write(loaded, prompts, temperature=1.0, habit=expecting([3, 4]), max_tokens=6)
    for prompt, written in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt + written.tokens])
        with torch.no_grad():
            scores = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        wanted = scores.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        assert torch.allclose(torch.tensor(written.logprobs), wanted, atol=1e-4)


def test_following_another_draft_changes_neither_the_distribution_nor_its_probabilities(loaded):
    """Without a habit the first draft under a prompt leads the others."""
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    prompt = tokenizer("a b")["input_ids"]
    how = Sampler.of(tokenizer, temperature=1.0, max_tokens=3)
    torch.manual_seed(3)
    runs = [[generate(model, [prompt] * 6, how) for _ in range(400)] for _ in range(2)]
    led, again = (Counter(tuple(w.tokens) for r in run for w in r) for run in runs)
    plain = Counter(
        tuple(w.tokens) for _ in range(400) for w in write(loaded, [prompt] * 6, temperature=1.0)
    )
    apart = sum(abs(plain[t] - led[t]) for t in plain.keys() | led.keys())
    noise = sum(abs(led[t] - again[t]) for t in led.keys() | again.keys())
    assert apart < 1.5 * noise + 24
    for written in runs[0][0]:
        ids = torch.tensor([prompt + written.tokens])
        with torch.no_grad():
            scores = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        wanted = scores.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        assert torch.allclose(torch.tensor(written.logprobs), wanted, atol=1e-4)


def test_the_likeliest_draft_is_the_same_when_one_leads(loaded):
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    prompts = [tokenizer(text)["input_ids"] for text in ("a", "a", "b c", "b c")]
    plain = [w.tokens for w in write(loaded, prompts, temperature=0.0, max_tokens=8)]
    how = Sampler.of(tokenizer, temperature=0.0, max_tokens=8)
    assert [w.tokens for w in generate(model, prompts, how)] == plain


def led(loaded, prompts, *, max_tokens: int):
    """Without a habit: the first draft under a prompt is written, and the others follow it."""
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    how = Sampler.of(tokenizer, temperature=1.0, max_tokens=max_tokens)
    return generate(model, prompts, how)


def test_rows_that_follow_write_each_token_as_often_as_the_model_gives_it(loaded, monkeypatch):
    """Wherever they are: along with their leader, coming back to it, or on their own at last."""
    from podium.workers import sampling

    monkeypatch.setattr(sampling, "AHEAD", 2)
    monkeypatch.setattr(sampling, "ASTRAY", 2)
    model, tokenizer = loaded
    prompt = tokenizer("a b")["input_ids"]
    torch.manual_seed(4)
    leader, *rows = led(loaded, [prompt] * 2000, max_tokens=6)
    for at in range(6):
        there = [w.tokens[: at + 1] for w in rows if len(w.tokens) > at]
        ids = torch.tensor([prompt + tokens for tokens in there])
        with torch.no_grad():
            likely = model(ids[:, :-1]).logits[:, -1].softmax(-1)
        with_leader = torch.tensor([tokens[:-1] == leader.tokens[:at] for tokens in there])
        for some in (with_leader, ~with_leader):
            wrote = torch.nn.functional.one_hot(ids[some, -1], likely.size(1)).sum(0)
            variance = (likely[some] * (1 - likely[some])).sum(0)
            off = (wrote - likely[some].sum(0)).abs() / variance.clamp(min=4).sqrt()
            assert off.max() < 5


def test_rows_that_follow_still_cover_what_the_model_would_write(loaded):
    model, tokenizer = loaded
    prompt = tokenizer("b c")["input_ids"]
    with torch.no_grad():
        likely = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    for _ in range(20):
        _, *rows = led(loaded, [prompt] * 33, max_tokens=1)
        first = Counter(w.tokens[0] for w in rows)
        for token, p in enumerate(likely.tolist()):
            assert abs(first[token] - 32 * p) < 2


def test_what_is_given_below_a_prompt_is_read_like_a_longer_prompt(loaded):
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    how = Sampler.of(tokenizer, temperature=0.0, max_tokens=6)
    whole = [tokenizer(text)["input_ids"] for text in ("a b c", "a b", "d c\nb a")]
    split = generate(model, [t[:1] for t in whole], how, given=[t[1:] for t in whole])
    assert [w.tokens for w in split] == [w.tokens for w in generate(model, whole, how)]


def test_the_likeliest_draft_is_the_same_whatever_is_foreseen_from_its_first_line(loaded):
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    prompts = [tokenizer(text)["input_ids"] for text in ("a", "a", "b c", "d a\nb")]
    plain = [w.tokens for w in write(loaded, prompts, temperature=0.0, max_tokens=8)]
    how = Sampler.of(tokenizer, temperature=0.0, max_tokens=8)
    told = {tuple(draft): draft for draft in plain}

    def rightly(line: list[int]) -> list[int]:
        (whole,) = [d for d in told if [*d][: len(line)] == line]
        return [*whole][len(line) :]

    for foresee in (rightly, lambda line: [1, 2, 3], lambda line: []):
        assert [w.tokens for w in generate(model, prompts, how, foresee=foresee)] == plain


def test_what_is_foreseen_changes_no_distribution(loaded):
    from podium.workers.sampling import Sampler, generate

    model, tokenizer = loaded
    prompt = tokenizer("a b")["input_ids"]
    how = Sampler.of(tokenizer, temperature=1.0, max_tokens=3)
    torch.manual_seed(4)

    def one(foresee) -> Counter:
        drafts = [generate(model, [prompt] * 6, how, foresee=foresee) for _ in range(400)]
        return Counter(tuple(w.tokens) for some in drafts for w in some)

    guided, again = one(lambda line: [3, 3]), one(lambda line: [3, 3])
    plain = Counter(
        tuple(w.tokens) for _ in range(400) for w in write(loaded, [prompt] * 6, temperature=1.0)
    )
    apart = sum(abs(plain[t] - guided[t]) for t in plain.keys() | guided.keys())
    noise = sum(abs(guided[t] - again[t]) for t in guided.keys() | again.keys())
    assert apart < 1.5 * noise + 24

"""With two rounds a rollout is one row of tokens, and only what the Conductor wrote is learnt."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the `train` extra is not installed")
pytest.importorskip("trl", reason="the `train` extra is not installed")

from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: E402

from podium.ledger import Ledger  # noqa: E402
from podium.train import data  # noqa: E402
from podium.train.checkpoint import load_model  # noqa: E402
from podium.train.cold import Lesson, past, random_workflow, teach  # noqa: E402
from podium.train.grpo import ConductorTrainer, Rollout, Writer, dataset, settings  # noqa: E402
from podium.train.pools import drawn  # noqa: E402
from podium.train.recipe import Cold, load  # noqa: E402
from podium.train.rollouts import Rehearsal  # noqa: E402
from podium.workflow import parse, render  # noqa: E402
from toy_training import recipe, save_base, save_world  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


class Witness(ConductorTrainer):
    """Remembers what was sampled, and keeps the gradient of each token."""

    seen: dict[int, list[list[int]]]
    logps: Any

    def _write(self, rollouts, number):
        found = super()._write(rollouts, number)
        for rollout, written in zip(rollouts, found, strict=True):
            self.seen.setdefault(id(rollout), []).append(list(written.tokens))
        return found

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self.logps = found[0]
        if self.logps.requires_grad:
            self.logps.retain_grad()
        return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory):
    """One batch of two-round rollouts of a model that knows the language, and what TRL made of it.

    Nothing is discounted, so that each round stands alone.
    """
    folder: Path = tmp_path_factory.mktemp("tokens")
    text = recipe(
        save_world(folder),
        save_base(folder),
        cold="again = 0.5",
        limits="rounds = 2",
        grpo="steps = 1\ndiscount = 0.0",
    ).replace('"dapo"', '"bnpo"')
    file = folder / "recipe.toml"
    file.write_text(text)
    made = load(file)
    source = data.load(made)
    rows = drawn(source.of("train"), source.pool, made)
    torch.manual_seed(0)
    model, tokenizer = load_model(made.model)
    writer = Writer(tokenizer, made.style.value(), made.limits.steps)
    assert made.cold is not None
    teach(model, Lesson(made.cold, rows, writer, seed=0), folder / "cold")
    with asyncio.Runner() as runner:
        trainer = Witness(
            made,
            rows,
            writer=writer,
            rehearsal=Rehearsal(made.limits.value(), Ledger(), made.reward),
            runner=runner,
            watch=lambda step, rollouts: None,
            model=model,
            args=settings(made, folder / "grpo"),
            processing_class=tokenizer,
            train_dataset=dataset(rows),
        )
        trainer.seen = {}
        trainer.current_gradient_accumulation_steps = 1
        model.train()
        inputs = [{"prompt": rows[i].problem.id, "row": i} for i in (0, 1) for _ in range(16)]
        yield trainer, trainer._generate_and_score_completions(inputs)


def twice(trainer: Witness) -> list[int]:
    return [i for i, r in enumerate(trainer._rollouts) if len(r.outcomes) == 2]


def of_round(rollout: Rollout, number: int) -> list[int]:
    return [j for j, n in enumerate(rollout.drafted) if n == number]


def gradient(trainer: Witness, batch: dict[str, Any]) -> Any:
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, batch).backward()
    return trainer.logps.grad


def test_what_was_sampled_is_what_is_learnt_from_token_by_token(played):
    trainer, batch = played
    assert len(twice(trainer)) > 8
    for i, rollout in enumerate(trainer._rollouts):
        sampled = trainer.seen[id(rollout)]
        ids = batch["completion_ids"][i].tolist()
        for number, draft in enumerate(sampled):
            assert [ids[j] for j in of_round(rollout, number)] == draft
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        assert prompt == trainer.writer.opening(rollout.row)


def test_a_second_draft_is_written_below_the_first_and_what_came_of_it(played):
    trainer, _ = played
    for i in twice(trainer):
        rollout = trainer._rollouts[i]
        upto = of_round(rollout, 1)[0]
        messages = trainer.writer.messages(rollout.row, rollout.rounds[:1])
        asked = trainer.writer._encode(trainer.writer._render(messages))
        assert rollout.prompt + rollout.tokens[:upto] == asked  # as evaluation will ask it


def test_only_what_the_conductor_wrote_is_in_the_mask(played):
    trainer, batch = played
    mask = batch["completion_mask"] * batch["tool_mask"]
    for i, rollout in enumerate(trainer._rollouts):
        own = [j for j, n in enumerate(rollout.drafted) if n >= 0]
        assert mask[i].nonzero()[:, 0].tolist() == own
        assert not batch["advantages"][i, [j for j, n in enumerate(rollout.drafted) if n < 0]].any()


def test_the_words_of_others_carry_no_gradient_whatever_their_advantage(played):
    trainer, batch = played
    loud = batch | {"advantages": torch.ones_like(batch["advantages"])}
    found = gradient(trainer, loud)
    for i, rollout in enumerate(trainer._rollouts):
        for j, number in enumerate(rollout.drafted):
            assert (found[i, j] != 0) == (number >= 0)


def test_what_went_wrong_is_blamed_on_tokens_that_were_in_doubt(played, monkeypatch):
    trainer, batch = played
    grpo = trainer.recipe.grpo.model_copy(update={"blame": 0.5})
    monkeypatch.setattr(trainer, "recipe", trainer.recipe.model_copy(update={"grpo": grpo}))
    whole, blamed = batch["advantages"], trainer._token_advantages(batch["completion_ids"])
    likely = torch.zeros_like(whole)
    for i, rollout in enumerate(trainer._rollouts):
        likely[i, : len(rollout.tokens)] = torch.tensor(rollout.logprobs).exp()
    spared = (whole < 0) & (likely > 0.5)
    assert spared.any() and ((whole < 0) & ~spared).any()
    assert torch.equal(blamed, whole.masked_fill(spared, 0.0))


def test_what_came_of_round_two_leaves_the_tokens_of_round_one_alone(played):
    trainer, batch = played
    before = gradient(trainer, batch).clone()
    rollouts = trainer._rollouts
    changed = twice(trainer)[0]
    first, second = rollouts[changed].outcomes
    score = 0.0 if second.reward == 1.0 else 1.0
    other = replace(second, score=score, reward=1.0 if score else 0.5)
    rollouts[changed].outcomes = [first, other]
    try:
        after = gradient(
            trainer,
            batch | {"advantages": trainer._token_advantages(batch["completion_ids"])},
        )
    finally:
        rollouts[changed].outcomes = [first, second]
    moved = after - before
    for i, rollout in enumerate(rollouts):
        assert not moved[i, of_round(rollout, 0)].any()
    assert moved[changed, of_round(rollouts[changed], 1)].any()


def test_a_row_that_is_shortened_learns_what_the_whole_row_would(played):
    """The loss that divides by all tokens does not see that some without advantage are missing."""
    trainer, batch = played
    trainer.loss_type = "dapo"
    try:
        whole = gradient(trainer, batch).clone()
        total = trainer._compute_loss(trainer.model, batch).item()
        short = trainer._without_certain_ends(dict(batch))
        found = gradient(trainer, short)
        assert short["completion_ids"].size(1) <= batch["completion_ids"].size(1)
        assert torch.allclose(found, whole[:, : found.size(1)], atol=1e-6)
        assert trainer._compute_loss(trainer.model, short).item() == pytest.approx(total, abs=1e-6)
    finally:
        trainer.loss_type = "bnpo"


def test_what_is_computed_once_for_equal_rows_is_what_trl_computes_for_each(played):
    trainer, batch = played
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    assert len(torch.unique(ids, dim=0)) < len(ids)
    width = batch["completion_ids"].size(1)
    with torch.no_grad():
        args = (trainer.model, ids, mask, width)
        ours = ConductorTrainer._get_per_token_logps_and_entropies(
            trainer, *args, compute_entropy=True
        )
        theirs = GRPOTrainer._get_per_token_logps_and_entropies(
            trainer, *args, compute_entropy=True
        )
    written = batch["completion_mask"].bool()
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert torch.allclose(one[written], other[written], atol=1e-4)


def test_second_drafts_of_a_cold_start_look_again_where_voices_differ(played):
    trainer, _ = played
    cold = Cold(drafts=1, under_one_prompt=1, workers=(2, 2), again=1.0)
    lesson, row, rng = Lesson(cold, trainer.rows, trainer.writer, 1), trainer.rows[0], Random(1)
    stood: dict[bool, list[bool]] = {True: [], False: []}
    asked: Counter[int] = Counter()
    for _ in range(1200):
        before = past(random_workflow(row, rng, (2, 2)), row.pool, rng)
        draft = lesson.draft(row, rng, before)
        agreed = len({r.output for r in before.results}) == 1
        stood[agreed].append(not draft.steps)
        asked.update(step.worker for step in draft.steps[:1])
    assert fmean(stood[True]) > 0.75 > 0.25 > fmean(stood[False])
    assert max(asked.values()) < 1.4 * min(asked.values())  # nobody is taught to be better


def test_a_cold_start_aloud_says_each_subtask_and_a_random_worker_before_the_lists(played):
    trainer, _ = played
    style = replace(trainer.writer.style, aloud=True)
    writer = Writer(trainer.writer.tokenizer, style, trainer.writer.steps)
    lesson = Lesson(Cold(drafts=64, workers=(1, 1), under_one_prompt=1), trainer.rows, writer, 0)
    who = set()
    for i in range(len(lesson)):
        (tokens,) = lesson[i]["drafts"]
        flow = parse(writer.tokenizer.decode(tokens, skip_special_tokens=True), workers=4)
        (step,) = flow.steps
        assert tokens == writer.draft(f"{step.subtask} - {step.worker}.\n{render(flow)}")
        who.add(step.worker)
    assert who == {0, 1, 2}

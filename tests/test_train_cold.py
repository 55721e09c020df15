"""A cold start teaches how drafts are written, and nothing about who is good."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the `train` extra is not installed")

from transformers import AutoModelForCausalLM, TrainingArguments  # noqa: E402

from podium.prompts import Style, aloud  # noqa: E402
from podium.train import data  # noqa: E402
from podium.train.cold import ColdTrainer, Lesson, collate  # noqa: E402
from podium.train.grpo import Writer  # noqa: E402
from podium.train.pools import Row  # noqa: E402
from podium.train.recipe import Cold, Recipe  # noqa: E402
from podium.workflow import parse, render  # noqa: E402
from tiny_llama import save_tiny_llama  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

CARDS = Style(show="cards", form="compact", aloud=True)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Tiny questions of one, two and three steps."""
    settings = {"name": "x", "model": {"base": "x"}, "data": {"task": "tiny", "questions": 30}}
    source = data.load(Recipe.model_validate(settings))
    return [Row(problem, source.pool) for problem in source.of("train")]


@pytest.fixture(scope="module")
def tokenizer(rows: list[Row], tmp_path_factory: pytest.TempPathFactory):
    from transformers import AutoTokenizer

    subtasks = [step.subtask for row in rows for step in row.problem.plan]
    cards = [member.description for member in rows[0].pool.members]
    known = " ".join([*subtasks, *cards, "model_id subtasks access_list = [,]\"'all-."])
    return AutoTokenizer.from_pretrained(save_tiny_llama(tmp_path_factory.mktemp("it"), [known]))


def taught(row: Row, tokenizer, style: Style, count: int) -> list[str]:
    """Drafts of one question."""
    writer = Writer(tokenizer, style, 3)
    lesson = Lesson(Cold(drafts=count, under_one_prompt=count), [row], writer, seed=0)
    return [writer.text(tokens) for tokens in lesson[0]["drafts"]]


@pytest.mark.parametrize("show", ["cards", "numbers"])
def test_aloud_every_draft_opens_with_who_does_what_and_is_the_questions_own_plan(
    rows: list[Row], tokenizer, show
):
    style = replace(CARDS, show=show)
    assert {len(row.problem.plan) for row in rows} == {1, 2, 3}
    for row in rows:
        for text in taught(row, tokenizer, style, 4):
            thought, lists = text.split("\n", 1)
            flow = parse(text, workers=len(row.pool))
            assert (thought, lists) == (aloud(flow, row.pool, style), render(flow))
            assert [replace(step, worker=0) for step in flow.steps] == [*row.problem.plan]


def test_in_silence_a_draft_is_its_lists(rows: list[Row], tokenizer):
    for text in taught(rows[0], tokenizer, replace(CARDS, aloud=False), 8):
        assert text == render(parse(text, workers=len(rows[0].pool)))


def test_whoever_is_named_aloud_is_named_at_random(rows: list[Row], tokenizer):
    row = max(rows, key=lambda row: len(row.problem.plan))
    flows = [parse(t, workers=len(row.pool)) for t in taught(row, tokenizer, CARDS, 900)]
    for place in range(len(row.problem.plan)):
        named = Counter(flow.steps[place].worker for flow in flows)
        assert sorted(named) == [*range(len(row.pool))]
        assert max(named.values()) < 2 * min(named.values())


def test_a_batch_is_computed_in_tables_of_like_length_and_taught_as_one(rows: list[Row], tokenizer):
    """What drafts share may be read once; the loss is that of every token on its own."""
    lesson = Lesson(Cold(drafts=8, under_one_prompt=1), rows, Writer(tokenizer, CARDS, 3), seed=0)
    examples = [lesson[i] for i in range(8)]
    tables = collate(examples, tokenizer.pad_token_id)["tables"]
    widths = [table.ids.size(1) for table in tables]
    assert len(tables) == 2 and widths[0] < widths[1]
    assert all(table.common > 0 for table in tables)

    model = AutoModelForCausalLM.from_pretrained(tokenizer.name_or_path)
    trainer = ColdTrainer(model, TrainingArguments(use_cpu=True, report_to=[]))
    losses = {}
    for shared in (False, True):
        trainer.shared = shared
        losses[shared] = float(trainer.training_step(model, {"tables": tables}))
    told, count = 0.0, 0
    for example in examples:
        ids = torch.tensor([example["prompt"] + example["drafts"][0]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(example["prompt"]) - 1 : -1]
        wanted = ids[0, len(example["prompt"]) :]
        told += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        count += len(wanted)
    assert losses[False] == pytest.approx(told / count, rel=1e-4)
    assert losses[True] == pytest.approx(told / count, rel=1e-4)


def test_of_a_question_that_nobody_can_answer_a_draft_says_the_steps_and_no_more(tokenizer):
    settings = {"name": "x", "model": {"base": "x"}}
    settings["data"] = {"task": "tiny", "questions": 30, "nonsense": 20}
    source = data.load(Recipe.model_validate(settings))
    strange = [Row(problem, source.pool) for problem in source.of("cold")]
    assert len(strange) == 20
    lesson = Lesson(Cold(drafts=1, under_one_prompt=1), strange[:1], Writer(tokenizer, CARDS, 3), 0)
    (draft,) = lesson[0]["drafts"]
    assert lesson.writer.text(draft).count("\n") == 1
    assert not lesson.writer.ended(draft)

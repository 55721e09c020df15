"""What cannot be trained is refused on the command line, in a sentence that says what to change."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from podium.cli import main
from tiny_llama import save_tiny_llama
from toy_training import DRAFT, LORA, recipe, save_base, save_world, trained

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What the command says of a recipe, and that its exit code is 2."""

    def run(text: str) -> str:
        file = tmp_path / "recipe.toml"
        file.write_text(text)
        monkeypatch.setattr(
            sys, "argv", ["podium", "train", str(file), "--out", str(tmp_path / "out")]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said = capsys.readouterr().err.splitlines()
        (sentence,) = [line for line in said if line.startswith("podium: ")]
        return sentence

    return run


def test_an_unknown_key_is_named(tmp_path: Path, refused):
    text = recipe(save_world(tmp_path), save_base(tmp_path), grpo="stepps = 2")
    assert "unknown key `grpo.stepps`" in refused(text)


def test_a_pool_without_prices_cannot_be_capped(tmp_path: Path, refused):
    worker = '[[worker]]\nname = "w"\nmodel = "home-made"\nbase_url = "http://127.0.0.1:9/v1"\n'
    pool = tmp_path / "podium.toml"
    store = f'store = "{tmp_path / "calls.db"}"\n'
    pool.write_text(f'{store}[planner]\nworker = "w"\n{worker}')
    text = recipe(tmp_path, save_base(tmp_path), pool=f'config = "{pool}"')
    text = "dollars = 5\n" + text.replace(f'world = "{tmp_path}"', 'task = "tiny"')
    said = refused(text)
    assert "may spend $5, and the price of 'w' is unknown: give it a price" in said


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path, refused):
    bare = save_tiny_llama(tmp_path / "bare", [DRAFT], chat=False)
    said = refused(recipe(save_world(tmp_path), bare, start="", grpo="steps = 1"))
    assert "has no chat template: take a model tuned to chat" in said


def test_a_gold_answer_that_fails_its_own_grader_is_named(tmp_path: Path, refused):
    world = save_world(tmp_path)
    file = world / "questions.jsonl.gz"
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    rows[1] |= {"grader": "number", "answer": "<answer>7</answer>"}
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    said = refused(recipe(world, save_base(tmp_path), start="", grpo="steps = 1"))
    assert "the gold answer '<answer>7</answer>' of q1 fails its own grader" in said


def test_an_adapter_of_another_base_is_refused(tmp_path: Path, refused):
    world, base = save_world(tmp_path), save_base(tmp_path)
    first = recipe(world, base, model=LORA, start="", grpo="steps = 1")
    made = trained(tmp_path / "first", first) / "checkpoint"
    going_on = f'adapter = "{made}"\n'
    other = save_tiny_llama(tmp_path / "other", [DRAFT])
    said = refused(recipe(world, other, model=going_on, start="", grpo="steps = 1"))
    assert "was trained on other weights than" in said
    trained(tmp_path / "second", recipe(world, base, model=going_on, start="", grpo="steps = 1"))


def test_an_adapter_that_is_not_there_is_named(tmp_path: Path, refused):
    going_on = f'adapter = "{tmp_path / "nowhere"}"\n'
    said = refused(recipe(save_world(tmp_path), save_base(tmp_path), model=going_on, start=""))
    assert "`model.adapter`: there is no adapter in" in said


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tensorbord", "`grpo.report_to` names 'tensorbord': there are"),
        ("wandb", "`grpo.report_to` names wandb, which is not installed"),
        ("trackio", "`grpo.report_to` names trackio, which is not installed"),
    ],
)
def test_a_place_to_report_to_that_is_not_there_is_refused(
    tmp_path: Path, refused, monkeypatch: pytest.MonkeyPatch, name: str, complaint: str
):
    monkeypatch.setattr("podium.train.checkpoint.find_spec", lambda name: None)
    text = recipe(
        save_world(tmp_path), save_base(tmp_path), start="", grpo=f'report_to = ["{name}"]'
    )
    assert complaint in refused(text)

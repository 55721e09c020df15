"""A tiny model learns whom to ask. Runs where the `train` extra is installed."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from podium.errors import ConfigError
from podium.types import Question
from tiny_llama import save_tiny_llama
from toy_training import (
    DRAFT,
    LORA,
    WORKERS,
    metrics,
    recipe,
    save_base,
    save_world,
    trained,
)

pytestmark = [
    pytest.mark.filterwarnings("default"),  # theirs, not ours: torch, transformers, trl
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def world(folder: Path) -> Path:
    return save_world(folder)


@pytest.fixture(scope="module")
def base(folder: Path) -> Path:
    return save_base(folder)


@pytest.fixture(scope="module")
def learned(folder: Path, world: Path, base: Path) -> Path:
    """A run in which every weight is trained."""
    report = '[report]\nsplits = ["test"]\nchoose = 2\nchoose_on = 8'
    grpo = "steps = 40\nsave = 20\ncertain = 0.001"
    return trained(folder / "learned", recipe(world, base, grpo=grpo, report=report))


def test_a_tiny_model_learns_whom_to_ask(learned: Path):
    accuracy = [row["accuracy"] for row in metrics(learned)]
    assert len(accuracy) == 40
    assert sum(accuracy[:4]) / 4 < 0.6
    assert sum(accuracy[-4:]) / 4 > 0.7


def test_every_trainable_parameter_moves(learned: Path, base: Path):
    from safetensors.torch import load_file

    before = load_file(base / "model.safetensors")
    after = load_file(learned / "grpo" / "checkpoint-40" / "model.safetensors")
    assert before.keys() == after.keys()
    assert not [name for name, weights in before.items() if weights.equal(after[name])]


def test_a_run_leaves_its_story_behind(learned: Path):
    report = json.loads((learned / "report.json").read_text())
    led, *alone = report["test"]["strategies"]
    assert led["accuracy"] > 0.8
    assert {row["strategy"]: row["accuracy"] for row in alone} == {
        "single:weak": 0.0, "single:strong": 1.0, "single:other": 0.0,
    }  # fmt: skip
    assert set(report["chosen"]) == {"checkpoint-20", "checkpoint-40"}
    assert "<svg" in (learned / "plots.html").read_text()
    sample = json.loads((learned / "samples.jsonl").read_text().splitlines()[-1])
    assert "model_id" in sample["rounds"][0]["draft"]


async def test_the_checkpoint_is_a_worker_that_drafts_as_it_was_trained(learned: Path):
    from transformers import AutoModelForCausalLM

    from podium.checkpoints import load_conductor
    from podium.eval.tasks.choices import lettered
    from podium.ledger import Ledger
    from podium.testing import ScriptedWorker
    from podium.types import Limits
    from podium.workers import Call, Pool

    AutoModelForCausalLM.from_pretrained(learned / "checkpoint")
    pool = Pool.of(*(ScriptedWorker([], name=n) for n in (*WORKERS, "vote")))
    conductor, limits = load_conductor(str(learned / "checkpoint"), pool, Limits())
    drafts = await asyncio.gather(
        *(
            conductor.planner.draft(
                Question(lettered(f"What is {i}?", ["x", "y"])), pool, Call(Ledger(limits))
            )
            for i in range(4)
        )
    )
    assert sum("model_id = [1]" in draft.text for draft in drafts) >= 3


def test_a_run_that_died_goes_on_along_the_same_curve(folder: Path, world: Path, base: Path):
    text = recipe(world, base, model=LORA, drafts="320", grpo="steps = 4\nsave = 2")
    run = trained(folder / "killed", text)
    whole = [{k: v for k, v in row.items() if k != "seconds"} for row in metrics(run)]
    shutil.rmtree(run / "grpo" / "checkpoint-4")
    shutil.rmtree(run / "checkpoint")
    trained(run, text)
    again = [{k: v for k, v in row.items() if k != "seconds"} for row in metrics(run)]
    assert again == whole
    assert (run / "checkpoint" / "adapter_model.safetensors").exists()


def test_a_directory_is_not_shared_by_two_recipes(
    folder: Path, learned: Path, world: Path, base: Path
):
    with pytest.raises(ConfigError, match="another recipe, which differs in grpo"):
        trained(learned, recipe(world, base, grpo="steps = 31"))


def test_a_rollout_may_have_two_rounds(folder: Path, world: Path, base: Path):
    run = trained(
        folder / "twice",
        recipe(
            world,
            base,
            grpo="steps = 2",
            cold="again = 0.5",
            limits="rounds = 2",
            pool="draw = [2, 3]",
        ),
    )
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert any(len(s["rounds"]) == 2 for s in samples)


def test_a_model_without_a_chat_template_is_refused(folder: Path, world: Path):
    bare = save_tiny_llama(folder / "bare", [DRAFT], chat=False)
    with pytest.raises(ConfigError, match="has no chat template"):
        trained(folder / "refused", recipe(world, bare))


def test_a_dry_run_says_what_would_be_done_and_does_nothing(folder: Path, world: Path, base: Path):
    from podium.train.run import train

    file = folder / "dry.toml"
    file.write_text(recipe(world, base, grpo="steps = 2"))
    plan = train(file, folder / "dry", dry_run=True)
    assert plan["questions"] == {"train": 36, "dev": 12, "test": 12}
    assert plan["workflows"] == 64
    assert plan["pool"] == (*WORKERS, "vote")
    assert 10 < plan["prompt_tokens"]["median"] <= plan["prompt_tokens"]["longest"]
    assert not (folder / "dry").exists()

"""A tiny model learns whom to ask. Runs where the `train` extra is installed."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from tests.tiny_llama import save_tiny_llama  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # theirs, not ours: torch, transformers, trl
]

WORKERS = ("weak", "strong", "other")
DRAFT = (
    'model_id = [0, 1, 2, 3]\nsubtasks = ["Answer the question.", "Vote."]\n'
    'access_list = [[], ["all"]]'
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Sixty questions that only one of three workers can answer."""
    folder = tmp_path / "world"
    folder.mkdir()
    questions, replies = [], []
    for i in range(60):
        split = ("train", "train", "train", "dev", "test")[i % 5]
        asked = {"question": f"What is {i}?", "options": ["x", "y"], "answer": "A"}
        questions.append({"id": f"q{i}", "split": split, "grader": "choice", **asked})
        for worker in WORKERS:
            letter = "A" if worker == "strong" else "B"
            said = {"correct": worker == "strong", "text": f"The answer is ({letter}).", "tokens_in": 10, "tokens_out": 5}
            replies.append({"id": f"q{i}", "worker": worker, **said})
    for name, rows in (("questions", questions), ("replies", replies)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    prices = [{"name": w, "usd_per_mtok_in": 1, "usd_per_mtok_out": 1} for w in WORKERS]
    (folder / "pool.json").write_text(json.dumps(prices))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    text = "What is ?\nA. x\nB. y\nTeam: 0 1 2 3\nSteps: at most 5 step (model ): A"
    return save_tiny_llama(tmp_path / "base", [DRAFT, text])


def recipe(world: Path, base: Path, **more: str) -> str:
    grpo = more.get("grpo", "")
    return f"""
name = "toy"
[model]
base = "{base}"
dtype = "float32"
{more.get("model", "")}
[style]
form = "compact"
[data]
world = "{world}"
[pool]
programs = ["vote"]
{more.get("pool", "")}
[limits]
{more.get("limits", "")}
[cold]
drafts = {more.get("drafts", "2400")}
workers = [1, 1]
batch = 16
learning_rate = 5e-3
{more.get("cold", "")}
[grpo]
questions = 2
drafts = 16
learning_rate = 1e-3
schedule = "constant"
max_tokens = 60
loss = "dapo"
{grpo}
[reward]
malformed = 0.45
"""


def trained(tmp_path: Path, text: str, out: str = "run") -> Path:
    from podium.train.run import train

    file = tmp_path / "recipe.toml"
    file.write_text(text)
    train(file, tmp_path / out)
    return tmp_path / out


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_tiny_model_learns_whom_to_ask(tmp_path: Path, world: Path, base: Path):
    run = trained(tmp_path, recipe(world, base, grpo="steps = 30"))
    accuracy = [row["accuracy"] for row in metrics(run)]
    assert len(accuracy) == 30
    assert sum(accuracy[:4]) / 4 < 0.6
    assert sum(accuracy[-4:]) / 4 > 0.8


def test_every_trainable_parameter_moves(tmp_path: Path, world: Path, base: Path):
    from safetensors.torch import load_file

    run = trained(tmp_path, recipe(world, base, grpo="steps = 2", drafts="800"))
    before = load_file(base / "model.safetensors")
    after = load_file(run / "checkpoint" / "model.safetensors")
    assert before.keys() == after.keys()
    assert not [name for name, weights in before.items() if weights.equal(after[name])]


def test_two_rounds_are_one_sequence_whose_foreign_tokens_are_masked(
    tmp_path: Path, world: Path, base: Path
):
    run = trained(
        tmp_path, recipe(world, base, grpo="steps = 2", cold="again = 0.5", limits="rounds = 2")
    )
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert any(len(s["drafts"]) == 2 for s in samples)

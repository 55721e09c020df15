"""Several processes learn what one learns: the road to several cards, on two cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from toy_training import metrics, recipe, save_taught, save_world

pytestmark = pytest.mark.filterwarnings("default")

LAUNCH = (
    "--multi_gpu",  # torch's launcher; where there is no card it is gloo on processors
    "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0",
    "--mixed_precision", "no", "--dynamo_backend", "no",
)  # fmt: skip


def started(words: list[str]) -> None:
    quiet = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, **quiet}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same recipe by one process and by two, both from the command line."""
    folder = tmp_path_factory.mktemp("processes")
    world = save_world(folder)
    file = folder / "recipe.toml"
    file.write_text(
        recipe(world, save_taught(folder, world), start="", limits="rounds = 2", grpo="steps = 3")
    )
    command = ["-m", "podium", "train", str(file), "--out"]
    started([*command, str(folder / "one")])
    started(["-m", "accelerate.commands.launch", *LAUNCH, *command, str(folder / "two")])
    return {"one": folder / "one", "two": folder / "two"}


def mean(run: Path, name: str) -> float:
    rows = metrics(run)
    return sum(row[name] for row in rows) / len(rows)


def test_two_processes_earn_what_one_earns(runs: dict[str, Path]):
    for name, noise in (("reward", 0.1), ("accuracy", 0.25), ("parsed", 0.2), ("entropy", 0.2)):
        assert mean(runs["two"], name) == pytest.approx(mean(runs["one"], name), abs=noise), name


def test_one_of_the_processes_tells_the_story_of_all(runs: dict[str, Path]):
    found = {name: metrics(run) for name, run in runs.items()}
    assert [row["step"] for row in found["two"]] == [1, 2, 3]
    assert found["one"][0].keys() == found["two"][0].keys()
    assert questions(runs["two"]) == questions(runs["one"])
    assert (runs["two"] / "plots.html").exists()


def questions(run: Path) -> set[Any]:
    """That were asked, as far as samples were kept: of every process's share of the step."""
    lines = (run / "samples.jsonl").read_text().splitlines()
    return {(row["step"], row["question"]) for row in map(json.loads, lines)}


def test_what_two_processes_have_learnt_is_one_checkpoint(runs: dict[str, Path]):
    files = {name: {f.name for f in (run / "checkpoint").iterdir()} for name, run in runs.items()}
    assert files["one"] == files["two"]
    assert {"model.safetensors", "conductor.json"} <= files["two"]

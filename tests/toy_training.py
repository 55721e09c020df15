"""A toy to train on: sixty questions, three workers of whom one is right, and a tiny Llama."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from podium.eval.tasks.task import Item
from podium.train.data import Problem
from tiny_llama import save_tiny_llama

WORKERS = ("weak", "strong", "other")
DRAFT = (
    'model_id = [0, 1, 2, 3]\nsubtasks = ["Answer the question.", "Vote."]\n'
    'access_list = [[], ["all"]]'
)
TEXT = "What is ?\nA. x\nB. y\nTeam: 0 1 2 3\nSteps: at most 5 step (model ): A Answer"

LORA = """[model.lora]
rank = 4
alpha = 8"""


COLD = """[cold]
drafts = {drafts}
workers = [1, 1]
batch = 16
learning_rate = 5e-3
{cold}"""


def save_world(folder: Path) -> Path:
    """Sixty questions that only one of three workers can answer."""
    there = folder / "world"
    there.mkdir()
    questions, replies = [], []
    for i in range(60):
        split = ("train", "train", "train", "dev", "test")[i % 5]
        asked = {"question": f"What is {i}?", "options": ["x", "y"], "answer": "A"}
        questions.append({"id": f"q{i}", "split": split, "grader": "choice", **asked})
        for worker in WORKERS:
            right = worker == "strong"
            said = {"text": f"The answer is ({'A' if right else 'B'}).", "correct": right}
            used = {"tokens_in": 10, "tokens_out": 5}
            replies.append({"id": f"q{i}", "worker": worker, **said, **used})
    for name, rows in (("questions", questions), ("replies", replies)):
        with gzip.open(there / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    prices = [{"name": w, "usd_per_mtok_in": 1, "usd_per_mtok_out": 1} for w in WORKERS]
    (there / "pool.json").write_text(json.dumps(prices))
    return there


def problem(answer: str = "42") -> Problem:
    return Problem(Item("q", "What is it?", answer, "exact"))


def save_base(folder: Path) -> Path:
    return save_tiny_llama(folder / "base", [DRAFT, TEXT])


def save_taught(folder: Path, world: Path) -> Path:
    """A base that has had its cold start: most of what it writes can be performed.

    It takes some seconds, so those who share a folder share it.
    """
    there = folder / "taught"
    if not there.exists():
        run = trained(folder / "teaching", recipe(world, save_base(folder), grpo="steps = 1"))
        (run / "checkpoint").rename(there)
    return there


def recipe(world: Path, base: Path, **more: str) -> str:
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
{more.get("start", COLD).format(drafts=more.get("drafts", "3200"), cold=more.get("cold", ""))}
[grpo]
questions = 2
drafts = 16
learning_rate = 6e-4
schedule = "constant_with_warmup"
warmup = 0.1
max_tokens = 60
loss = "dapo"
{more.get("grpo", "")}
[reward]
malformed = 0.45
{more.get("report", "")}
"""


def trained(out: Path, text: str) -> Path:
    """Train in this process."""
    from podium.train.run import train

    file = out.with_suffix(".toml")
    file.write_text(text)
    train(file, out)
    return out


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

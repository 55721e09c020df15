"""Seconds of a GRPO step, split into drafting, performing and learning; and beside stock TRL.

    python bench/train.py [--model DIR] [--steps 3]

`perform_s`: what 64 workflows of three steps, each of 200 ms, add to a step: they overlap.
`step_vs_stock`: our step over that of `GRPOTrainer` with a constant reward, on the same model, the
same prompts and the same number of tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from podium.eval.tasks.task import Item
from podium.ledger import Ledger
from podium.prompts import Style
from podium.testing import ScriptedWorker
from podium.train import grpo
from podium.train.checkpoint import load_model
from podium.train.data import Problem
from podium.train.pools import Row
from podium.train.recipe import Recipe
from podium.train.rollouts import Rehearsal, Sketch
from podium.types import Limits, Step, Workflow
from podium.workers import Pool
from podium.workflow import render

DRAFTS, QUESTIONS, TOKENS, SECONDS = 16, 4, 48, 0.2
CHAIN = Workflow((Step(0, "One."), Step(1, "Two.", (0,)), Step(2, "Three.", (1,))))


def pool(delay: float) -> Pool:
    return Pool.of(*(ScriptedWorker(lambda _: "42", name=n, delay=delay) for n in "abc"))


def problem(number: int) -> Problem:
    return Problem(Item(f"q{number}", f"What is the answer to question {number}?", "42", "exact"))


def perform_s() -> float:
    """Seconds beyond the three calls that a single workflow takes anyway."""
    team = pool(SECONDS)
    rehearsal = Rehearsal(Limits(), Ledger(), recipe("x").reward)
    sketches = [Sketch(problem(i), team, render(CHAIN)) for i in range(DRAFTS * QUESTIONS)]
    started = time.perf_counter()
    outcomes = asyncio.run(rehearsal.perform(sketches))
    spent = time.perf_counter() - started
    assert all(o.reward == 1.0 for o in outcomes)
    return spent


def recipe(base: str) -> Recipe:
    settings = {
        "name": "bench",
        "model": {"base": base, "lora": {}},
        "style": {"form": "compact"},
        "data": {"world": "none"},
        "grpo": {
            "steps": 1, "questions": QUESTIONS, "drafts": DRAFTS, "max_tokens": TOKENS,
            "loss": "dapo", "learning_rate": 1e-6, "schedule": "constant",
        },
    }  # fmt: skip
    return Recipe.model_validate(settings)


class Timed(grpo.ConductorTrainer):
    """Our trainer with a stop-watch; every draft has full length, as in stock TRL."""

    drafting = performing = 0.0

    def _write(self, rollouts: Sequence[grpo.Rollout], number: int) -> list[grpo.Written]:
        started = time.perf_counter()
        found = super()._write(rollouts, number)
        self.drafting += time.perf_counter() - started
        return found


def ours(base: str, steps: int, folder: Path) -> tuple[float, float]:
    made = recipe(base)
    made = made.model_copy(update={"grpo": made.grpo.model_copy(update={"steps": steps})})
    model, tokenizer = load_model(made.model)
    rows = [Row(problem(i), pool(0.0)) for i in range(QUESTIONS * steps)]
    settings = grpo.settings(made, folder)
    times = Steps([])
    with asyncio.Runner() as runner:
        trainer = Timed(
            made,
            rows,
            writer=grpo.Writer(tokenizer, Style(form="compact"), 5),
            rehearsal=Rehearsal(Limits(), Ledger(), made.reward),
            runner=runner,
            watch=lambda step, rollouts: None,
            model=model,
            args=settings,
            processing_class=tokenizer,
            train_dataset=grpo.dataset(rows),
            callbacks=[times],
        )
        trainer.train()
    return times.median(), trainer.drafting / steps


def stock(base: str, steps: int, folder: Path) -> float:
    made = recipe(base)
    model, tokenizer = load_model(made.model)
    writer = grpo.Writer(tokenizer, Style(form="compact"), 5)
    rows = [Row(problem(i), pool(0.0)) for i in range(QUESTIONS * steps)]
    prompts = [
        [{"role": m.role, "content": m.content} for m in writer.messages(row)] for row in rows
    ]
    times = Steps([])
    made = made.model_copy(update={"grpo": made.grpo.model_copy(update={"steps": steps})})
    args: GRPOConfig = grpo.settings(made, folder)
    trainer = GRPOTrainer(
        model=model,
        args=args,
        reward_funcs=lambda completions, **_: [1.0] * len(completions),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": p} for p in prompts]),
        callbacks=[times],
    )
    trainer.train()
    return times.median()


class Steps(TrainerCallback):
    """The time of each step."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self._since = 0.0

    def on_step_begin(self, *_: object, **__: object) -> None:
        self._since = time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.seconds.append(time.perf_counter() - self._since)

    def median(self) -> float:
        return statistics.median(self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    alone = 3 * SECONDS
    performing = perform_s()
    print(f"64 workflows of three 200 ms calls: {performing:.2f} s; one alone: {alone:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        whole, drafting = ours(given.model, given.steps, Path(folder) / "ours")
        theirs = stock(given.model, given.steps, Path(folder) / "stock")
    print(f"a step: {whole:.1f} s, drafting {drafting:.1f} s; stock TRL: {theirs:.1f} s")
    result = {"perform_s": round(performing, 3), "step_vs_stock": round(whole / theirs, 3)}
    print(json.dumps(result | {"step_s": whole, "drafting_s": drafting, "stock_s": theirs}))


if __name__ == "__main__":
    main()

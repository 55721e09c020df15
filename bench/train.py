"""Seconds of a GRPO step, split into drafting, performing and learning; and beside stock TRL.

    python bench/train.py [--model NAME] [--steps 3] [--questions 4] [--drafts 16] [--tokens 48]

`perform_s`: how long 64 workflows take together, each of three HTTP calls of 200 ms that wait for
one another: 0.6 s is the least.

`step_vs_stock`: our step over that of `GRPOTrainer` with a constant reward: the same model, prompts
and settings, as many tokens. Ours performs its workflows, calls of 200 ms among them, and every
draft has an advantage, so that the whole of each is learnt from. Both leave out their first step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer

from podium.eval.tasks.task import Item
from podium.ledger import Ledger
from podium.testing import Say, ScriptedWorker, Upstream
from podium.train import grpo
from podium.train.checkpoint import load_model
from podium.train.data import Problem
from podium.train.pools import Row
from podium.train.recipe import Recipe, Reward
from podium.train.rollouts import Rehearsal, Sketch
from podium.types import Limits, Step, Workflow
from podium.workers import FREE, Pool
from podium.workers.chat import ChatWorker
from podium.workers.transport import Transport
from podium.workflow import render

WORKFLOWS, SECONDS, TEAM = 64, 0.2, "abc"
CHAIN = Workflow((Step(0, "One."), Step(1, "Two.", (0,)), Step(2, "Three.", (1,))))


def problem(number: int) -> Problem:
    return Problem(Item(f"q{number}", f"What is the answer to question {number}?", "42", "exact"))


async def perform_s() -> float:
    transport = Transport()
    async with Upstream([Say("42", delay=SECONDS)], check=False) as upstream:
        at = {"transport": transport, "base_url": f"{upstream.url}/v1", "price": FREE}
        team = Pool.of(*(ChatWorker(name=n, model=n, **at) for n in TEAM))
        rehearsal = Rehearsal(Limits(), Ledger(), Reward())
        await rehearsal.perform([Sketch(problem(0), team, render(CHAIN))])  # open a connection
        sketches = [Sketch(problem(i), team, render(CHAIN)) for i in range(WORKFLOWS)]
        started = time.perf_counter()
        outcomes = await rehearsal.perform(sketches)
        spent = time.perf_counter() - started
    await transport.close()
    assert all(o.reward == 1.0 for o in outcomes)
    return spent


@dataclass(eq=False)
class Steps(TrainerCallback):
    """The seconds of each step, and of its parts."""

    whole: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)

    def on_step_begin(self, *_: object, **__: object) -> None:
        self._since = time.perf_counter()
        for seconds in self.parts.values():
            seconds.append(0.0)

    def on_step_end(self, *_: object, **__: object) -> None:
        self.whole.append(time.perf_counter() - self._since)

    def add(self, part: str, seconds: float) -> None:
        self.parts[part][-1] += seconds


class Timed(grpo.ConductorTrainer):
    """Our trainer with a stop-watch on its drafting."""

    times: Steps

    def _write(self, *given: Any) -> list[grpo.Written]:
        started = time.perf_counter()
        found = super()._write(*given)
        self.times.add("drafting", time.perf_counter() - started)
        return found


@dataclass
class TimedRunner:
    """A loop with a stop-watch on what it runs, which is the performing."""

    runner: asyncio.Runner
    times: Steps

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        started = time.perf_counter()
        found = self.runner.run(work)
        self.times.add("performing", time.perf_counter() - started)
        return found


class Ghostwriter(grpo.Writer):
    """Whatever an untrained model drafts, a workflow that can be performed is read."""

    def text(self, tokens: grpo.Tokens) -> str:
        return render(CHAIN)

    def ended(self, tokens: grpo.Tokens) -> bool:
        return True


def recipe(given: argparse.Namespace) -> Recipe:
    settings = {
        "name": "bench",
        "model": {"base": given.model, "lora": {}},
        "style": {"form": "compact"},
        "data": {"world": "none"},
        "grpo": {
            "steps": given.steps + 1, "questions": given.questions, "drafts": given.drafts,
            "max_tokens": given.tokens, "loss": "dapo", "learning_rate": 1e-6,
            "schedule": "constant", "save": 10_000,
        },
    }  # fmt: skip
    return Recipe.model_validate(settings)


def questions(made: Recipe) -> list[Row]:
    rng = Random(0)

    def guesses(_: object) -> str:
        return rng.choice(("42", "41"))

    pool = Pool.of(*(ScriptedWorker(guesses, name=n, delay=SECONDS) for n in TEAM))
    return [Row(problem(i), pool) for i in range(made.grpo.questions * made.grpo.steps)]


def ours(made: Recipe, folder: Path) -> Steps:
    model, tokenizer = load_model(made.model)
    rows, times = questions(made), Steps(parts={"drafting": [], "performing": []})
    Timed.times = times
    with asyncio.Runner() as runner:
        Timed(
            made,
            rows,
            writer=Ghostwriter(tokenizer, made.style.value(), made.limits.steps),
            rehearsal=Rehearsal(Limits(), Ledger(), made.reward),
            runner=TimedRunner(runner, times),
            watch=lambda step, rollouts: told("ours", [len(r.tokens) for r in rollouts]),
            model=model,
            args=grpo.settings(made, folder),
            processing_class=tokenizer,
            train_dataset=grpo.dataset(rows),
            callbacks=[times],
        ).train()
    return times


def stock(made: Recipe, folder: Path) -> Steps:
    model, tokenizer = load_model(made.model)
    writer = grpo.Writer(tokenizer, made.style.value(), made.limits.steps)
    prompts = [
        [{"role": m.role, "content": m.content} for m in writer.messages(row)]
        for row in questions(made)
    ]

    def constant(completions: list[Any], completion_ids: list[Any], **_: Any) -> list[float]:
        told("stock", [len(ids) for ids in completion_ids])
        return [1.0] * len(completions)

    times = Steps()
    GRPOTrainer(
        model=model,
        args=grpo.settings(made, folder),
        reward_funcs=constant,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": p} for p in prompts]),
        callbacks=[times],
    ).train()
    return times


def told(who: str, lengths: list[int]) -> None:
    print(f"{who}: {len(lengths)} drafts of {statistics.mean(lengths):.0f} tokens", flush=True)


def median(seconds: list[float]) -> float:
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m-instruct")
    for name, default in (("steps", 3), ("questions", 4), ("drafts", 16), ("tokens", 48)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    performed = asyncio.run(perform_s())
    print(f"64 workflows of three 200 ms calls: {performed:.2f} s; one alone takes 0.6 s")
    made = recipe(given)
    with tempfile.TemporaryDirectory() as folder:
        mine = ours(made, Path(folder) / "ours")
        theirs = stock(made, Path(folder) / "stock")
    step, stock_step = median(mine.whole), median(theirs.whole)
    drafting, performing = (median(mine.parts[part]) for part in ("drafting", "performing"))
    learning = step - drafting - performing
    print(
        f"a step: {step:.1f} s, of which drafting {drafting:.1f} s, performing {performing:.1f} s, "
        f"learning {learning:.1f} s; stock TRL: {stock_step:.1f} s"
    )
    found = {
        "perform_s": performed, "step_vs_stock": step / stock_step, "step_s": step,
        "drafting_s": drafting, "performing_s": performing, "learning_s": learning,
        "stock_s": stock_step,
    }  # fmt: skip
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()

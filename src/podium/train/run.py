"""Run a recipe: choose questions, warm up, learn, and report. Resumable wherever it stops.

out/
├── recipe.json      the recipe as it was resolved
├── measured.json    what each worker scores on each training question
├── cold/            the model after the cold start: a checkpoint that learnt nothing from rewards
├── grpo/            checkpoints of the learning, from which a stopped run goes on
├── metrics.jsonl    a line per step
├── samples.jsonl    some drafts of each step, and what came of them
├── plots.html       the curves
├── checkpoint/      the Conductor: weights or adapter, tokenizer, conductor.json
└── report.json      held-out figures
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from podium.app import single
from podium.conductor import Conductor
from podium.errors import ConfigError
from podium.eval.statistics import mcnemar
from podium.planner import ModelPlanner
from podium.train import data
from podium.train.checkpoint import check, needing_room
from podium.train.data import Problem, Source
from podium.train.pools import Row, drawn
from podium.train.recipe import Recipe, load
from podium.train.report import Held, hold
from podium.train.rollouts import Purse
from podium.types import Limits, Sampling
from podium.workers.transformers import TransformersWorker

if TYPE_CHECKING:
    from podium.train.grpo import Writer

log = logging.getLogger(__name__)

STATE = ("optimizer.*", "scheduler.*", "rng_state*", "trainer_state.json", "training_args.bin")
"""What a run needs to go on from a checkpoint and nobody needs to use it."""


def train(recipe_path: Path | str, out: Path | str, *, dry_run: bool = False) -> dict[str, Any]:
    """Run the recipe into a directory; return its plan (if that is all) or its report.

    Raises:
        ConfigError: the recipe, its data, pool or model cannot be used, or the directory holds a
            run of another recipe.
        LimitError: what it may spend is spent.
        StoreError: the disk is full.
    """
    recipe, directory = load(recipe_path), Path(out)
    with asyncio.Runner() as runner:
        run = _Run(recipe, directory, runner)
        try:
            with needing_room(directory):
                return run.plan() if dry_run else run.go()
        finally:
            runner.run(run.close())


class _Run:
    def __init__(self, recipe: Recipe, directory: Path, runner: asyncio.Runner) -> None:
        self.recipe, self.directory, self.runner = recipe, directory, runner
        self.source: Source = data.load(recipe)
        _check_prices(recipe, self.source)
        check(recipe)

    async def close(self) -> None:
        await self.source.close()

    def plan(self) -> dict[str, Any]:
        """What would be done, and what it would cost at most."""
        from podium.train.checkpoint import load_tokenizer

        problems = self.source.of("train")
        writer = self._writer(load_tokenizer(self.recipe.model))
        lengths = sorted(
            len(writer.opening(row)) for row in drawn(problems[:500], self.source.pool, self.recipe)
        )
        return {
            "recipe": self.recipe.name,
            "questions": {s: len(self.source.of(s)) for s in ("train", "dev", "test")},
            "pool": self.source.pool.names,
            "prompt_tokens": {"median": lengths[len(lengths) // 2], "longest": lengths[-1]},
            **data.expected(self.recipe, self.source),
        }

    def go(self) -> dict[str, Any]:
        """Train and report. Of several processes the first one chooses, writes and reports."""
        from transformers import set_seed

        from podium.train.checkpoint import load_model
        from podium.train.processes import processes

        mine = processes()
        with mine.main_process_first():  # the others find what it wrote
            self.directory.mkdir(parents=True, exist_ok=True)
            self._claim()
            problems = self._chosen()
        rows = drawn(problems, self.source.pool, self.recipe)
        set_seed(self.recipe.seed)
        model, tokenizer = load_model(self.recipe.model)
        writer = self._writer(tokenizer)
        further = drawn(self.source.of("cold"), self.source.pool, self.recipe)
        self._warm_up(model, [*rows, *further], writer)
        self._learn(model, rows, writer)
        return self._report() if mine.is_main_process else {}

    def _claim(self) -> None:
        """Make the directory this recipe's own, or see that it is."""
        file, body = self.directory / "recipe.json", self.recipe.model_dump(mode="json")
        there = json.loads(file.read_text()) if file.exists() else body
        # Whoever has spent it may add to it and go on.
        differ = sorted(k for k in body if body[k] != there.get(k) and k != "dollars")
        if differ:
            raise ConfigError(
                f"{self.directory} holds a run of another recipe, which differs in "
                f"{', '.join(differ)}: choose another directory"
            )
        _keep(file, json.dumps(body, indent=1))

    def _chosen(self) -> list[Problem]:
        """The problems to learn from, in an order that the seed decides."""
        kinds = self.recipe.data.kinds
        problems = [p for p in self.source.of("train") if not kinds or p.item.category in kinds]
        self.runner.run(data.check_gold(problems))
        if self.recipe.data.contested:
            scores = data.of_the_best(self._measured(problems), self.recipe.data.among)
            kept = [p for p, s in zip(problems, scores, strict=True) if data.contested(s)]
            log.info("%d of %d questions are contested and kept", len(kept), len(problems))
            problems = kept
        if not problems:
            raise ConfigError("no question is left to learn from: no worker differs from another")
        settings = self.recipe.data
        return data.dealt(problems, Random(self.recipe.seed), settings.later)[: settings.questions]

    def _measured(self, problems: Sequence[Problem]) -> list[list[float | None]]:
        file = self.directory / "measured.json"
        if not file.exists():
            _keep(file, json.dumps(self.runner.run(data.measure(problems, self.source.pool))))
        scores: list[list[float | None]] = json.loads(file.read_text())
        return scores

    def _writer(self, tokenizer: Any) -> Writer:
        from podium.train.grpo import Writer

        return Writer(tokenizer, self.recipe.style.value(), self.recipe.limits.steps)

    def _warm_up(self, model: Any, rows: Sequence[Row], writer: Writer) -> None:
        from podium.train.checkpoint import complete, restore
        from podium.train.cold import Lesson, teach
        from podium.train.processes import processes

        if self.recipe.cold is None:
            return
        done = self.directory / "cold"
        if not restore(model, done):
            lesson = Lesson(self.recipe.cold, rows, writer, self.recipe.seed)
            teach(model, lesson, self.directory / "cold.partial")
            if processes().is_main_process:
                partial = self.directory / "cold.partial"
                model.save_pretrained(partial)
                writer.tokenizer.save_pretrained(partial)
                complete(partial, self.recipe, self.source.pool.names)
                partial.rename(done)

    def _learn(self, model: Any, rows: Sequence[Row], writer: Writer) -> None:
        from podium.train.checkpoint import complete
        from podium.train.grpo import ConductorTrainer, dataset, settings
        from podium.train.monitor import Monitor
        from podium.train.rollouts import Rehearsal

        folder = self.directory / "grpo"
        monitor = Monitor(self.directory, self.recipe)
        limits = self.recipe.limits.value()
        trainer = ConductorTrainer(
            self.recipe,
            rows,
            writer=writer,
            rehearsal=Rehearsal(limits, self._purse(), self.recipe.reward),
            runner=self.runner,
            watch=monitor.watch,
            model=model,
            args=settings(self.recipe, folder),
            processing_class=writer.tokenizer,
            train_dataset=dataset(rows),
            callbacks=[monitor],
        )
        trainer.train()
        trainer.save_model(str(self.directory / "checkpoint"))
        if trainer.is_world_process_zero():
            complete(self.directory / "checkpoint", self.recipe, self.source.pool.names)

    def _purse(self) -> Purse:
        """What this process may spend of the training's dollars."""
        from podium.train.processes import processes

        mine, dollars = processes(), self.recipe.dollars
        share = dollars and dollars / mine.num_processes
        return Purse(Limits(dollars=share), self.directory / f"spent-{mine.process_index}.txt")

    def _choose(self) -> dict[str, float]:
        """Keep the best of the last checkpoints on the dev split; what each of them scored."""
        from podium.train.checkpoint import complete, step_of

        settings, kept = self.recipe.report, self.directory / "checkpoint"
        saved = sorted((self.directory / "grpo").glob("checkpoint-*"), key=step_of)
        if not settings.choose or not saved:
            return {}
        dev, scores = self.source.of("dev")[: settings.choose_on], {}
        for folder in saved[-settings.choose :]:
            complete(folder, self.recipe, self.source.pool.names)
            scores[folder.name] = self.runner.run(self._held(folder, dev)).accuracy
        best = max(scores, key=lambda name: scores[name])
        shutil.rmtree(kept)
        shutil.copytree(self.directory / "grpo" / best, kept, ignore=shutil.ignore_patterns(*STATE))
        return scores

    async def _held(self, folder: Path, problems: Sequence[Problem]) -> Held:
        # Many questions at once are for torch; llama.cpp, which serves it, takes them one by one.
        writes = Sampling(max_tokens=self.recipe.grpo.max_tokens, temperature=0.0)
        worker = TransformersWorker(self.recipe.name, folder)
        planner = ModelPlanner(worker, self.recipe.style.value(), writes, repairs=0)
        conductor = Conductor(planner, self.source.pool, f"conductor:{self.recipe.name}")
        return await hold(conductor, problems, self.recipe.limits.value())

    def _report(self) -> dict[str, Any]:
        found: dict[str, Any] = {"recipe": self.recipe.name, "chosen": self._choose()}
        limits, pool = self.recipe.limits.value(), self.source.pool
        for split in self.recipe.report.splits:
            problems = self.source.of(split)
            led = self.runner.run(self._held(self.directory / "checkpoint", problems))
            alone = [
                self.runner.run(hold(single(m.name, pool), problems, limits))
                for m in pool.members
                if not m.program
            ]
            best = max(alone, key=lambda held: held.accuracy)
            p = mcnemar([s == 1.0 for s in led.scores], [s == 1.0 for s in best.scores])
            rows = [held.summary() for held in (led, *alone)]
            found[split] = {"p": p, "best_single": best.name, "strategies": rows}
        (self.directory / "report.json").write_text(json.dumps(found, indent=1))
        return found


def _keep(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(file)


def _check_prices(recipe: Recipe, source: Source) -> None:
    unpriced = [m.name for m in source.pool.members if m.price is None and not m.program]
    if recipe.dollars is not None and unpriced:
        raise ConfigError(
            f"the training may spend ${recipe.dollars:g}, and the price of {unpriced[0]!r} is "
            "unknown: give it a price, or leave `dollars` out"
        )

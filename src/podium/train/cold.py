"""The cold start: teach a small model to write drafts that can be performed, and nothing else.

Every draft is well formed, and who works in it is drawn at random, so nothing about who is good
leaks in. A draft does not depend on the question either; several are therefore taught under one
prompt, which is computed once for all of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainingArguments

from podium.prompts import WHOLE, aloud
from podium.train.data import NONSENSE
from podium.train.grpo import Writer
from podium.train.pools import Row
from podium.train.processes import processes
from podium.train.recipe import Cold
from podium.types import Completion, Draft, Round, Step, StepResult, Workflow
from podium.workers import Pool
from podium.workers.sampling import Table, Tokens, below
from podium.workflow import render

log = logging.getLogger(__name__)

VOTE = "Vote."
SURPRISE = 0.03
"""Of second drafts, the share that does the unusual: stands where voices differ, looks again where
they agree, counts a further voice with the others where it would decide alone."""
WARM_UP = 5
"""Steps over which the learning rate rises."""
TOGETHER = 4
"""Drafts that are computed together: few, so that they are of like length."""


def random_workflow(row: Row, rng: Random, workers: tuple[int, int]) -> Workflow:
    """The question's own plan by random workers.

    Without one: some workers, each asked the whole question, and a vote where there are several
    and somebody to count.
    """
    pool = row.pool
    models = [i for i, m in enumerate(pool.members) if not m.program]
    if row.problem.plan:
        return Workflow(tuple(replace(s, worker=rng.choice(models)) for s in row.problem.plan))
    votes = [i for i, m in enumerate(pool.members) if m.program]
    count = min(rng.randint(*workers), len(models))
    steps = tuple(Step(i, WHOLE) for i in rng.sample(models, count))
    if count > 1 and votes:
        steps += (Step(votes[0], VOTE, "all"),)
    return Workflow(steps)


class Lesson:
    """Examples of a cold start, made one batch at a time from the seed and the batch's number."""

    def __init__(self, settings: Cold, rows: Sequence[Row], writer: Writer, seed: int) -> None:
        self.settings, self.rows, self.writer, self.seed = settings, rows, writer, seed

    def __len__(self) -> int:
        return self.settings.drafts // self.settings.under_one_prompt

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = Random(f"{self.seed} cold {index}")
        row, before = rng.choice(self.rows), None
        prompt = self.writer.opening(row)
        if rng.random() < self.settings.again:
            flow = random_workflow(row, rng, self.settings.workers)
            before = past(flow, row.pool, rng)
            prompt += self._written(flow, row)
            prompt += self.writer.next_turn(row, [before])
        drafts = [self.draft(row, rng, before) for _ in range(self.settings.under_one_prompt)]
        return {"prompt": prompt, "drafts": [self._written(d, row) for d in drafts]}

    def _written(self, workflow: Workflow, row: Row) -> Tokens:
        style, lists = self.writer.style, render(workflow)
        thought = aloud(workflow, row.pool, style) if style.aloud else ""
        if thought and row.problem.kind == NONSENSE:
            return self.writer.line(thought)  # the rest is the same whatever it is about
        return self.writer.draft(f"{thought}\n{lists}" if thought else lists)

    def draft(self, row: Row, rng: Random, before: Round | None) -> Workflow:
        """A first draft; or a second one, which looks again where the first one's voices differ.

        Now and then it is the other way round: whether to look again is to be learnt as well.
        """
        votes = [i for i, m in enumerate(row.pool.members) if m.program]
        if before is None:
            # Several voices are for a vote, or for a second look at where they differ.
            several = votes or self.settings.again
            return random_workflow(row, rng, self.settings.workers if several else (1, 1))
        if _agreed(before) != (rng.random() < SURPRISE):
            return Workflow(())
        flow = random_workflow(row, rng, (1, 1))
        # Somebody at random is worse alone than in a vote, and before it is found out whom to ask,
        # asking alone would be given up (docs/log.md).
        alone = len(flow.steps) > 1 or not votes or rng.random() >= SURPRISE
        return flow if alone else Workflow((*flow.steps, Step(votes[0], VOTE, "all")))


def past(workflow: Workflow, pool: Pool, rng: Random) -> Round:
    """A first round as it might have gone: half of the time all who were asked agree."""
    first, *others = rng.sample("ABCDEFGHIJ", 3)
    letters = [first] * len(workflow.steps)
    if rng.random() < 0.5:
        letters = [rng.choice((first, *others)) for _ in letters]
    said = [f"The answer is ({letter})." for letter in letters]
    counted = [i for i, step in enumerate(workflow.steps) if pool[step.worker].program]
    for i in counted:
        said[i] = Counter(said[:i]).most_common(1)[0][0]
    results = tuple(
        StepResult(step, pool[step.worker].name, text)
        for step, text in zip(workflow.steps, said, strict=True)
    )
    return Round((Draft(Completion(render(workflow))),), workflow, results, said[-1])


def _agreed(before: Round) -> bool:
    return len({result.output for result in before.results}) == 1


def teach(model: Any, lesson: Lesson, folder: Path) -> None:
    """One pass over the lesson. It follows from the seed, so a run that was stopped begins anew."""
    settings = lesson.settings
    together = settings.under_one_prompt * processes().num_processes
    arguments = TrainingArguments(
        output_dir=str(folder),
        seed=lesson.seed,
        num_train_epochs=1,
        per_device_train_batch_size=max(1, settings.batch // together),
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=WARM_UP,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    pad = lesson.writer.tokenizer.pad_token_id
    trainer = ColdTrainer(
        model, arguments, train_dataset=lesson, data_collator=partial(collate, pad=pad)
    )
    trainer.shared = settings.under_one_prompt > 1
    trainer.remove_callback(PrinterCallback)
    trainer.train()


class ColdTrainer(Trainer):
    shared = False
    """Whether several drafts are taught under one prompt."""

    def log(self, logs: dict[str, float], *_: Any, **__: Any) -> None:
        if "loss" in logs:
            log.info("cold start, step %d: loss %.3f", self.state.global_step, logs["loss"])

    def training_step(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """A table at a time: graphs of several together take twice as long, for want of memory."""
        model.train()
        tables = inputs["tables"]
        count = sum(int(t.mask[:, t.shared + 1 :].sum()) for t in tables)
        total = torch.zeros(())
        for table in tables:
            loss = self._loss(model, table) / count
            self.accelerator.backward(loss)
            total += loss.detach().cpu()
        return total.to(self.accelerator.device)

    def _loss(self, model: Any, table: Table) -> Tensor:
        """Of all that is taught in a table."""
        # Reading what drafts share in a pass of its own pays where they do share it, and several
        # passes before one backward are for a single process.
        apart = self.accelerator.num_processes == 1 and self.shared
        read = table if apart else Table(table.ids, table.mask, 0)
        width = table.ids.size(1) - table.shared
        logits = below(model, read, logits_to_keep=width).logits[:, :-1].float()
        targets = table.ids.masked_fill(table.mask == 0, -100)[:, table.shared + 1 :]
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum"
        )


def collate(examples: Sequence[dict[str, Any]], pad: int) -> dict[str, list[Table]]:
    """A batch, in tables of rows of like length: what is padded is computed in vain."""
    by_length = sorted(examples, key=lambda e: len(e["prompt"]) + max(map(len, e["drafts"])))
    several = processes().num_processes > 1
    size = len(examples) if several else max(1, TOGETHER // len(examples[0]["drafts"]))
    return {
        "tables": [_table(by_length[i : i + size], pad) for i in range(0, len(by_length), size)]
    }


def _table(examples: Sequence[dict[str, Any]], pad: int) -> Table:
    pairs = [(e["prompt"], d) for e in examples for d in e["drafts"]]
    prompts, drafts = [p for p, _ in pairs], [d for _, d in pairs]
    return Table.of([p[:-1] for p in prompts], [p[-1:] for p in prompts], drafts, pad=pad)

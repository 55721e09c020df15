"""Who writes the draft: any chat model by prompt, a checkpoint of our own, or a fixed workflow.

Planners know nothing about execution, and their drafts may be wrong: that is for
`workflow.parse` to say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from podium import prompts
from podium.errors import ConfigError
from podium.grammar import workflow_grammar
from podium.types import UNSET, Completion, Draft, Question, Request, Round, Sampling, Workflow
from podium.workers import Call, Pool, Worker
from podium.workflow import render

ALOUD_CHARS = 100
"""Of a step, in the line that goes through the steps before the lists."""


class Planner(Protocol):
    @property
    def repairs(self) -> int:
        """How often it may try again after a draft that cannot be performed."""
        ...

    async def draft(
        self,
        question: Question,
        pool: Pool,
        call: Call,
        *,
        rounds: Sequence[Round] = (),
        rejected: Sequence[Draft] = (),
    ) -> Draft:
        """Workflow text, given the rounds so far and this round's rejected drafts."""
        ...


@dataclass(frozen=True, slots=True)
class ModelPlanner:
    """The Conductor proper: a language model, trained for it or merely prompted."""

    worker: Worker
    style: prompts.Style = prompts.PLAIN
    sampling: Sampling = UNSET
    repairs: int = 1
    held: bool = False
    """Hold a local model to the workflow language by a grammar, so that every draft parses."""
    workers: tuple[str, ...] = ()
    """Whom it has learnt to know by number, where that is all it knows of them."""

    async def draft(
        self,
        question: Question,
        pool: Pool,
        call: Call,
        *,
        rounds: Sequence[Round] = (),
        rejected: Sequence[Draft] = (),
    ) -> Draft:
        if missing := [name for name in self.workers if name not in pool.names]:
            raise ConfigError(
                f"{self.worker.name} knows its workers by number and cannot do without "
                f"{missing[0]!r}: allow it, or take a Conductor that reads cards"
            )
        steps = call.ledger.limits.steps
        messages = prompts.planner_messages(
            question, pool, self.style, steps=steps, rounds=rounds, rejected=rejected
        )
        sampling = self.sampling
        if self.held:
            sampling = replace(sampling, grammar=self._grammar(len(pool), steps, bool(rounds)))
        request = Request(messages, sampling=sampling, sample=question.sample)
        started = time.monotonic()
        completion = await self.worker.complete(request, call)
        return Draft(completion, messages, time.monotonic() - started)

    def _grammar(self, workers: int, steps: int, may_stop: bool) -> str:
        # So many characters that the lists are closed before the tokens run out: no token of a
        # subtask is shorter than a character, and the rest of a draft takes some twenty a step. A
        # thought is in plain words, of two characters and more.
        thought = ALOUD_CHARS * steps * self.style.aloud
        room = ((self.sampling.max_tokens or 1024) - thought // 2) // steps - 24
        return workflow_grammar(
            workers,
            steps,
            may_stop=may_stop,
            access="binary" if self.style.binary else "full",
            subtask_chars=max(16, min(200, room)),
            reasoning_chars=thought,
        )


@dataclass(frozen=True, slots=True)
class FixedPlanner:
    """Always the same workflow, then content with it. Most baselines are one of these."""

    workflow: Workflow
    workers: tuple[str, ...] = ()
    """The names its numbers stand for; without them they are positions in whatever pool it gets."""
    repairs: int = 0

    async def draft(
        self,
        question: Question,
        pool: Pool,
        call: Call,
        *,
        rounds: Sequence[Round] = (),
        rejected: Sequence[Draft] = (),
    ) -> Draft:
        return Draft(Completion(_rendered(Workflow(()) if rounds else self._numbered(pool))))

    def _numbered(self, pool: Pool) -> Workflow:
        """The workflow in this pool's numbers: some of its workers may be denied to this run."""
        if not self.workers or self.workers == pool.names:
            return self.workflow
        return Workflow(
            tuple(replace(s, worker=self._number(s.worker, pool)) for s in self.workflow.steps)
        )

    def _number(self, worker: int, pool: Pool) -> int:
        name = self.workers[worker]
        if name not in pool.names:
            raise ConfigError(f"the workflow needs the worker {name!r}, which this run may not use")
        return pool.names.index(name)


_rendered = lru_cache(render)

"""Podium as an environment of the library `verifiers`, for the engines that train on it.

    vf-eval podium-conductor --env.taskset.recipe recipes/recorded.toml -n 20 --model NAME

A task is a question of the recipe with the pool it may use. The model under training drafts; the
draft is performed and graded by the very code that `podium train` uses, on the recipe's terms;
with a second round the model reads what came of the first and drafts again, in one conversation.
The reward is that of the last round. A failure of the world is an error of the episode, not a
reward. Torch is not needed here: the engine has the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import verifiers.v1 as vf
from openai import APIConnectionError, APIError, AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE

from podium.errors import ConfigError, WorkerError
from podium.eval.tiny.skills import Split
from podium.ledger import Ledger
from podium.prompts import planner_messages
from podium.train import data
from podium.train.pools import Row, drawn
from podium.train.recipe import Recipe, load
from podium.train.rollouts import Outcome, Rehearsal, Sketch
from podium.types import Limits, Message, Round


class ConductorTasksetConfig(vf.TasksetConfig):
    recipe: str = ""
    """The file that says which questions, which pool, and on what terms."""
    split: Split = "train"


class ConductorTaskset(vf.Taskset[vf.Task, ConductorTasksetConfig]):
    """The questions of a recipe."""

    @cached_property
    def recipe(self) -> Recipe:
        if not self.config.recipe:
            raise ConfigError("name a recipe with --env.taskset.recipe")
        return load(self.config.recipe)

    @cached_property
    def source(self) -> data.Source:
        return data.load(self.recipe)

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        problems = self.source.of(self.config.split)
        return {row.problem.id: row for row in drawn(problems, self.source.pool, self.recipe)}

    def load(self) -> Iterator[vf.Task]:
        for id, row in self.rows.items():
            *system, asked = self.messages(row)
            told = system[0].content if system else None
            yield vf.Task(vf.TaskData(id=id, system_prompt=told, prompt=asked.content))

    def messages(self, row: Row, rounds: Sequence[Round] = ()) -> tuple[Message, ...]:
        style, steps = self.recipe.style.value(), self.recipe.limits.steps
        return planner_messages(row.problem.question, row.pool, style, steps=steps, rounds=rounds)


class ConductorEnvConfig(vf.EnvConfig):
    conductor: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig(), network_notice=False)
    """The model that drafts."""


class ConductorEnv(vf.Env[ConductorEnvConfig]):
    """Draft, perform, and perhaps look again."""

    taskset: ConductorTaskset

    async def start(self) -> None:
        recipe = self.taskset.recipe
        purse = Ledger(Limits(dollars=recipe.dollars))
        self.rehearsal = Rehearsal(recipe.limits.value(), purse, recipe.reward)

    async def stop(self) -> None:
        await self.taskset.source.close()

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        row = self.taskset.rows[task.data.id]
        async with agents.conductor.interaction(task) as talk:
            outcomes = await self._rounds(row, talk)
            if outcomes:
                _note(talk.trace, outcomes)

    async def _rounds(self, row: Row, talk: vf.Interaction) -> list[Outcome]:
        outcomes: list[Outcome] = []
        heard = await talk.turn()
        while not heard.terminated:  # by a limit of the engine's
            earlier = tuple(o.round for o in outcomes)
            sketch = Sketch(row.problem, row.pool, heard.last_reply, earlier)
            outcomes += await self.rehearsal.perform([sketch])
            done = outcomes[-1].round
            if done.failure is not None or len(outcomes) == self.rehearsal.limits.rounds:
                break
            heard = await talk.turn(self.taskset.messages(row, (*earlier, done))[-1].content)
        return outcomes


def _note(trace: vf.Trace, outcomes: Sequence[Outcome]) -> None:
    """Put what was earned on the record.

    Raises:
        WorkerError: the last round says nothing about the policy.
    """
    last = outcomes[-1]
    if last.reward is None:
        failure = last.round.failure
        raise WorkerError(failure.message if failure else "the answer could not be graded")
    trace.record_reward("conductor", last.reward)
    trace.record_metric("right", float(last.score == 1.0))
    trace.record_metric("parsed", float(last.round.workflow is not None))
    trace.record_metric("rounds", len(outcomes))
    trace.record_metric("steps", sum(len(o.round.results) for o in outcomes))


class ConductorHarness(vf.Harness[vf.HarnessConfig]):
    """One question to the model, in this process: a draft needs no tools and no box to run in."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        *rest: Any,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(rest[-1])
        talk = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt
        told = [vf.SystemMessage(content=system)] if system else []
        messages: Any = [message_to_wire(m) for m in (*told, *(talk or ()))]
        # Whatever may be tried again is tried behind the endpoint.
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as model:
            try:
                await model.chat.completions.create(model=ctx.model, messages=messages)
            except APIConnectionError as exc:
                return vf.ProgramResult(MODEL_TRANSPORT_ERROR_EXIT_CODE, "", str(exc))
            except APIError as exc:  # also how a limit of the engine's ends a conversation
                return vf.ProgramResult(1, "", str(exc))
        return vf.ProgramResult(0, "", "")

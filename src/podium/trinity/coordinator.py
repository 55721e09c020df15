"""TRINITY as a strategy: read once, pick a worker and a role, perform the turn, and again.

Every turn is a round of one step through the executor that serves the Conductor, so that limits,
recordings, events and traces are the same. A router is the same thing without roles: one turn,
and the worker it picks is asked the bare question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from podium.conductor import Terms, begin, finish
from podium.errors import ConfigError, LimitError, PodiumError, WorkflowError
from podium.events import Planned, Planning, RoundFinished, StepFinished
from podium.executor import Stage, run_step
from podium.prompts import WHOLE
from podium.tracing import note, span
from podium.trinity import roles
from podium.trinity.head import Head, choose, softmax
from podium.trinity.prompts import coordinator_messages
from podium.trinity.roles import Role, Talk
from podium.trinity.states import States
from podium.types import (
    UNSET,
    Completion,
    Draft,
    Message,
    Question,
    Round,
    Run,
    Seen,
    Step,
    Workflow,
)
from podium.workers import Pool


@dataclass(frozen=True, slots=True)
class Decision:
    worker: str
    role: Role
    worker_chance: float
    role_chance: float
    messages: tuple[Message, ...]
    """What the coordinator's model read."""

    @property
    def text(self) -> str:
        return f"{self.worker} ({self.worker_chance:.2f}) as {self.role} ({self.role_chance:.2f})"


@dataclass(frozen=True, slots=True)
class Coordinator:
    """A head on its model's states."""

    head: Head
    states: States
    sampled: bool = False
    """Draw from the two softmaxes, as in training, instead of taking the likeliest."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.states.digest != self.head.reading.digest:
            raise ConfigError(
                f"the head was trained on the states of {self.head.reading.model} "
                f"({self.head.reading.digest[:12]}) and can't read those of another model "
                f"({self.states.digest[:12]})"
            )

    async def decide(
        self, question: Question, talk: Talk, workers: Sequence[str], among: Sequence[Role]
    ) -> Decision:
        """Pick one of these workers and one of these roles: one forward pass."""
        ideas = [idea.output for idea in talk.ideas]
        reading = self.head.reading
        messages = coordinator_messages(question, ideas, chars=reading.question_chars)
        state = await self.states.state(messages, reading)
        drawn = f"{self.seed} {question.sample} {talk.turns} {question.text}"
        rng = Random(drawn) if self.sampled else None
        chances = softmax(self.head.worker_logits(state, workers))
        worker = choose(chances, rng)
        if not self.head.roles:
            return Decision(worker, "worker", chances[worker], 1.0, messages)
        parts = softmax(self.head.role_logits(state, among))
        role = choose(parts, rng)
        return Decision(worker, role, chances[worker], parts[role], messages)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where a run stands before a turn."""

    stage: Stage
    talk: Talk = field(default_factory=Talk)
    left: int = 1
    down: frozenset[str] = frozenset()
    """Workers that failed in this run: they are not asked again."""

    @property
    def workers(self) -> list[str]:
        return [name for name in self.stage.pool.names if name not in self.down]

    @property
    def over(self) -> bool:
        return self.talk.over or self.left == 0 or not self.workers


@dataclass(frozen=True, slots=True)
class Trinity:
    coordinator: Coordinator
    pool: Pool
    name: str = "trinity"

    async def solve(self, question: Question | str, terms: Terms | None = None) -> Run:
        terms = terms or Terms()
        stage = Stage(
            Question.of(question),
            self.pool.only(terms.rules),
            terms.ledger,
            terms.emit,
            terms.pieces,
            rules=terms.rules,
        )
        run = begin(self.name, stage)
        turn = _Turn(stage, left=self._turns(stage))
        with span("invoke_workflow", self.name) as current:
            while not turn.over:
                outcome, turn = await self._take(turn)
                stage.emit(RoundFinished(len(run.rounds), outcome))
                run = replace(run, rounds=(*run.rounds, outcome), failure=outcome.failure)
                turn = replace(turn, stage=replace(stage, earlier=run.rounds))
            run = finish(run, stage)
            note(current, run, run.failure)
        return run

    def _turns(self, stage: Stage) -> int:
        """A caller's tools belong to a single turn: whoever asks for one is answered by them."""
        head = self.coordinator.head
        most = head.rules.turns if head.roles and not stage.question.tools else 1
        return min(most, stage.ledger.limits.steps)

    async def _take(self, turn: _Turn) -> tuple[Round, _Turn]:
        stage = turn.stage
        stage.emit(Planning(stage.round))
        started = time.monotonic()
        try:
            decision = await self._decide(turn)
        except PodiumError as exc:
            return Round((), failure=exc.as_failure()), replace(turn, left=0)
        draft = Draft(Completion(decision.text), decision.messages, time.monotonic() - started)
        return await self._perform(draft, decision, turn)

    async def _decide(self, turn: _Turn) -> Decision:
        stage, head = turn.stage, self.coordinator.head
        among = roles.choices(turn.talk, head.roles, head.rules, turn.left)
        if stage.question.tools:
            among = ("worker",)
        with span("plan", self.name):
            try:
                async with asyncio.timeout(stage.ledger.seconds_left):
                    decision = await self.coordinator.decide(
                        stage.question, turn.talk, turn.workers, among
                    )
            except TimeoutError:
                raise LimitError("the time limit was reached while deciding") from None
        if decision.role == "verifier" and turn.talk.answer is None:
            raise WorkflowError("a verifier was chosen before there was anything to verify")
        return decision

    async def _perform(self, draft: Draft, decision: Decision, turn: _Turn) -> tuple[Round, _Turn]:
        stage, talk, role = _asked(turn.stage, decision.role), turn.talk, decision.role
        visible = roles.reading(talk, role)
        flow = Workflow((self._step(decision, visible, stage),))
        stage.emit(Planned(stage.round, draft, flow))
        result = await run_step(0, flow, visible, stage)
        stage.emit(StepFinished(stage.round, 0, result))
        so_far = talk.answer.output if talk.answer else None
        if result.failure is not None:
            gone = replace(turn, down=turn.down | {result.worker, decision.worker})
            mended = result.failure.blame == "infra"
            lost = Round((draft,), flow, (result,), so_far, result.failure)
            return lost, gone if mended else replace(gone, left=0)
        reply = Seen(result.worker, flow.steps[0].subtask, result.output)
        talk = roles.after(talk, role, reply, self.coordinator.head.rules)
        answer = talk.answer.output if talk.answer else None
        done = Round((draft,), flow, (result,), answer)
        return done, replace(turn, talk=talk, left=turn.left - 1)

    def _step(self, decision: Decision, visible: Sequence[Seen], stage: Stage) -> Step:
        worker = stage.pool.names.index(decision.worker)
        if not self.coordinator.head.roles:
            return Step(worker, WHOLE)
        compact = stage.pool[worker].prompt == "compact"
        return roles.step(worker, decision.role, visible, question=stage.question, compact=compact)


def _asked(stage: Stage, role: Role) -> Stage:
    """How the answer is to be written, and with which tools, concerns who writes it."""
    if role == "worker":
        return stage
    bare = replace(stage.question, sampling=UNSET, tools=(), tool_choice="auto", extra={})
    return replace(stage, question=bare)

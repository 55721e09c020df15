"""Strategies to compare with, each a workflow that the very same executor performs.

Most are fixed: plurality, Mixture-of-Agents and reflection are lists of steps. Where the workflow
depends on the question or on what came of the round before, as in a cascade, a `Rule` writes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from podium.answers import canonical, read_answer
from podium.conductor import Conductor
from podium.planner import FixedPlanner
from podium.prompts import WHOLE
from podium.types import Completion, Draft, Question, Round, Step, Workflow
from podium.workers import FREE, Call, Member, Pool
from podium.workers.tools import VoteWorker
from podium.workflow import render

COUNT = "Return the answer that most of these outputs state."

REFLECT = (
    "You have tried this question before, and your attempts are above. Look for mistakes in them, "
    "correct what is wrong, and give your full answer again in the form the question asks for."
)

AGGREGATE = (
    "Several models have answered the question; their answers are above. Some of them may be "
    "biased or wrong, so judge them critically rather than repeating one. Merge what is right in "
    "them into one accurate, complete answer, in the form the question asks for."
)

CONTENT = Workflow(())
"""What a rule writes when the answer stands."""

Choose = Callable[[Question, Sequence[Round]], Workflow]


@dataclass(frozen=True, slots=True)
class Rule:
    """A planner that is a function of the question and of the rounds so far."""

    choose: Choose
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
        return Draft(Completion(render(self.choose(question, rounds))))


def with_vote(pool: Pool) -> tuple[Pool, int]:
    """The pool with somebody who counts votes in it, and their number."""
    for number, member in enumerate(pool.members):
        if isinstance(member.worker, VoteWorker):
            return pool, number
    name = "vote" if "vote" not in pool.names else "plurality"
    counter = Member(VoteWorker(name), "counts answers", FREE, program=True)
    return Pool((*pool.members, counter)), len(pool)


def fixed(name: str, steps: Sequence[Step], pool: Pool) -> Conductor:
    return Conductor(FixedPlanner(Workflow(tuple(steps)), pool.names), pool, name)


def plurality(name: str, voices: Sequence[int], pool: Pool) -> Conductor:
    """Everybody answers on their own, ties go to whom is named first. One voice needs no count.

    The same worker several times is self-consistency: equal steps are separate samples.
    """
    asked = [Step(worker, WHOLE) for worker in voices]
    if len(voices) == 1:
        return fixed(name, asked, pool)
    pool, counter = with_vote(pool)
    return fixed(name, [*asked, Step(counter, COUNT, "all")], pool)


def reflection(name: str, worker: int, pool: Pool, *, turns: int) -> Conductor:
    """One worker again and again, all its own attempts in view."""
    again = [Step(worker, REFLECT, "all")] * (turns - 1)
    return fixed(name, [Step(worker, WHOLE), *again], pool)


def mixture(
    name: str, proposers: Sequence[int], aggregator: int, pool: Pool, *, layers: int
) -> Conductor:
    """Mixture-of-Agents (Wang et al., 2024): each layer merges what the one before proposed."""
    steps = [Step(worker, WHOLE) for worker in proposers]
    width = len(proposers)
    for layer in range(1, layers):
        before = tuple(range((layer - 1) * width, layer * width))
        steps += [Step(worker, AGGREGATE, before) for worker in proposers]
    last = tuple(range((layers - 1) * width, layers * width))
    return fixed(name, [*steps, Step(aggregator, AGGREGATE, last)], pool)


def random_worker(name: str, workers: Sequence[int], pool: Pool, *, seed: int) -> Conductor:
    def choose(question: Question, rounds: Sequence[Round]) -> Workflow:
        return Workflow((Step(_dice(seed, question).choice(workers), WHOLE),))

    return Conductor(Rule(choose), pool, name)


def random_workflow(
    name: str, workers: Sequence[int], pool: Pool, *, seed: int, steps: int, reading: bool
) -> Conductor:
    """Any workers in any number; each step reads some of the earlier ones, or a count ends them.

    Without `reading` (a replay knows nothing but whole questions) the answers are counted.
    """
    pool, counter = with_vote(pool)

    def choose(question: Question, rounds: Sequence[Round]) -> Workflow:
        dice = _dice(seed, question)
        count = dice.randint(1, steps)
        if not reading:
            voices = dice.sample(workers, min(count, len(workers)))
            asked = [Step(worker, WHOLE) for worker in voices]
            return Workflow((*asked, Step(counter, COUNT, "all")) if count > 1 else tuple(asked))
        return Workflow(tuple(_any_step(i, workers, dice) for i in range(count)))

    return Conductor(Rule(choose), pool, name)


def _any_step(index: int, workers: Sequence[int], dice: random.Random) -> Step:
    reads = tuple(sorted(dice.sample(range(index), dice.randint(0, index))))
    return Step(dice.choice(workers), AGGREGATE if reads else WHOLE, reads)


def _dice(seed: int, question: Question) -> random.Random:
    """The same throw for the same question in every process."""
    body = f"{seed}/{question.sample}/{question.text}".encode()
    return random.Random(blake2b(body, digest_size=8).digest())


def cascade(name: str, ladder: Sequence[int], pool: Pool) -> Conductor:
    """Ask two; while nobody confirms the latest answer, ask the next one up the ladder.

    Whoever spoke last is believed: they were confirmed, or nobody is left who could.
    """

    def choose(question: Question, rounds: Sequence[Round]) -> Workflow:
        asked = sum(len(past.results) for past in rounds)
        if asked == 0:
            return Workflow(tuple(Step(worker, WHOLE) for worker in ladder[:2]))
        if asked >= len(ladder) or _confirmed(rounds):
            return CONTENT
        return Workflow((Step(ladder[asked], WHOLE),))

    return Conductor(Rule(choose), pool, name)


def _confirmed(rounds: Sequence[Round]) -> bool:
    """Whether the latest answer was given before. A reply without an answer confirms nothing."""
    read = [read_answer(result.output) for past in rounds for result in past.results]
    *earlier, latest = [canonical(answer) if answer else None for answer in read]
    return latest is not None and latest in earlier

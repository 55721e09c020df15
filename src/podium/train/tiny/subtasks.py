"""Subtasks as a specialist reads them: what it is taught and tested on.

The executor speaks to a specialist in compact form: the subtask alone, or below the answers of
earlier steps. The Conductor chooses the words, so a specialist meets many; and it may be shown
answers that its subtask does not speak of, which it must learn to leave aside. Those are any
numbers; the ones it has to work on are of the split alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from podium.eval.tiny.skills import Skill, Split, listed, sentence
from podium.prompts import step_messages
from podium.types import Question, Seen, Step

ONE = ("the previous answer", "the result", "it", "that number", "the answer above")
TWO = ("the two answers", "both answers", "the two results", "answer 1 and answer 2", "them")


@dataclass(frozen=True, slots=True)
class Example:
    prompt: str
    answer: str


def example(skill: Skill, rng: Random, split: Split) -> Example:
    """A subtask in compact form: with its numbers, with answers to read, or with both."""
    form = rng.choices(("given", "read", "both"), (6, 3, 1))[0]
    if form == "read" and (skill.merges or len(skill.draw(Random(0), split)) == 1):
        xs = skill.reads(rng, split)
        subtask = _order(skill, rng.choice(ONE if len(xs) == 1 else TWO), rng, split)
        return Example(compact(subtask, [*map(str, xs)]), skill.apply(xs))
    xs = skill.draw(rng, split)
    seen = [str(rng.randint(1, 999)) for _ in range(rng.choice((1, 2)))] if form == "both" else []
    return Example(compact(_order(skill, listed(xs), rng, split), seen), skill.apply(xs))


def compact(subtask: str, outputs: Sequence[str] = ()) -> str:
    """What the executor sends to a worker that is spoken to in compact form."""
    seen = [Seen("", "", output) for output in outputs]
    step = Step(0, subtask, tuple(range(len(seen))))
    return step_messages(Question(""), step, seen, mark="", form="compact")[-1].content


def _order(skill: Skill, x: str, rng: Random, split: Split) -> str:
    if rng.random() < 0.7:
        return sentence(rng.choice(skill.tasks.of(split)).format(x=x))
    noun = rng.choice(skill.nouns.of(split)).format(x=x)
    return rng.choice((f"What is {noun}?", sentence(noun), f"Give {noun}."))

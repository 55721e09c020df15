"""Thinker, worker, verifier: what each is shown, and what its reply changes. Rules only, no model.

A worker's idea joins the transcript and its reply becomes the answer. A thinker's suggestion
reaches the next turn alone, and may name the role of that turn. A verifier's ACCEPT ends the run.
Two of the published rules look like slips, and `Rules` says what is done instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from podium.prompts import WHOLE
from podium.trinity import prompts
from podium.types import Question, Seen, Step

Role = Literal["thinker", "worker", "verifier"]
ROLES: tuple[Role, ...] = ("thinker", "worker", "verifier")

_SUBTASKS: dict[Role, str] = {
    "thinker": prompts.THINKER,
    "worker": prompts.WORKER,
    "verifier": prompts.VERIFIER,
}
_COMPACT: dict[Role, str] = {
    "thinker": prompts.COMPACT_THINKER,
    "worker": prompts.GO_ON,
    "verifier": prompts.COMPACT_VERIFIER,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """How turns follow each other. Both switches off gives the published rules."""

    turns: int = 5
    always_answer: bool = True
    """A verifier has its turn only when there is an answer, and the last turn is a worker's if
    there still is none. Published: a verifier with nothing to verify ends the run with nothing."""
    show_objections: bool = True
    """Why an answer was rejected is shown to the next turn. Published: nobody is shown it."""


@dataclass(frozen=True, slots=True)
class Talk:
    """How far the team is: all that the next decision and the next prompt depend on."""

    ideas: tuple[Seen, ...] = ()
    answer: Seen | None = None
    suggestion: Seen | None = None
    next_role: Role | None = None
    """What the last thinker wants the next turn to be."""
    over: bool = False
    turns: int = 0
    """Taken so far."""


def choices(talk: Talk, roles: Sequence[Role], rules: Rules, left: int) -> tuple[Role, ...]:
    """The roles that the next turn may have, with so many turns left."""
    possible = tuple(roles)
    if rules.always_answer and talk.answer is None:
        possible = ("worker",) if left == 1 else tuple(r for r in roles if r != "verifier")
    named = talk.next_role
    return (named,) if named is not None and named in possible else possible


def reading(talk: Talk, role: Role) -> tuple[Seen, ...]:
    """What a turn is shown besides the question."""
    shown = {
        "worker": (*talk.ideas, talk.suggestion),
        "thinker": (*talk.ideas, talk.answer),
        "verifier": (talk.answer, talk.suggestion),
    }
    return tuple(seen for seen in shown[role] if seen is not None)


def step(
    worker: int, role: Role, visible: Sequence[Seen], *, question: Question, compact: bool
) -> Step:
    """The turn as a step. A very small model is asked the question, then to go on from there."""
    access: Literal["all"] | tuple[int, ...] = "all" if visible else ()
    if not compact:
        return Step(worker, _SUBTASKS[role], access)
    if role == "worker" and not visible:
        return Step(worker, WHOLE)
    return Step(worker, _COMPACT[role].format(question=question.text), access)


def after(talk: Talk, role: Role, reply: Seen, rules: Rules) -> Talk:
    """The talk once this reply has come."""
    return replace(_after(talk, role, reply, rules), turns=talk.turns + 1)


def _after(talk: Talk, role: Role, reply: Seen, rules: Rules) -> Talk:
    if role == "worker":
        idea = Seen(reply.worker, prompts.THE_IDEA, _tagged(reply.output, "idea") or reply.output)
        answer = replace(reply, subtask=prompts.THE_ANSWER)
        return Talk((*talk.ideas, idea), answer)
    if role == "thinker":
        return _advised(talk, reply)
    if accepts(reply.output):
        return replace(talk, over=True)
    objection = replace(reply, subtask=prompts.THE_OBJECTION) if rules.show_objections else None
    return replace(talk, suggestion=objection, next_role=None)


def _advised(talk: Talk, reply: Seen) -> Talk:
    """Both parts of a thinker's reply count, or neither."""
    text, named = _tagged(reply.output, "suggestion"), _tagged(reply.output, "suggested_role")
    wanted = next((r for r in ROLES if named and named.strip().casefold() == r), None)
    if text is None or wanted in (None, "thinker"):
        return replace(talk, suggestion=None, next_role=None)
    suggestion = Seen(reply.worker, prompts.THE_SUGGESTION, text)
    return replace(talk, suggestion=suggestion, next_role=wanted)


_VERDICT = re.compile(r"\b(ACCEPT|REJECT)\b", re.IGNORECASE)


def accepts(reply: str) -> bool:
    """How it begins decides; else which of the two words it holds; with both or none it rejects."""
    start = _VERDICT.match(reply.lstrip(" \t\n*#_`\"'"))
    if start:
        return start[1].upper() == "ACCEPT"
    return {found.upper() for found in _VERDICT.findall(reply)} == {"ACCEPT"}


def _tagged(text: str, tag: str) -> str | None:
    _, opened, rest = text.partition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else None

"""The number that GRPO sees, and what it makes of a group of them.

A round earns `malformed` if its draft cannot be performed, `wrong` if it can and the answer is
wrong, `right` if it is right (Conductor, section 3.1: 0, 0.5, 1). A failure of the world says
nothing about the policy and earns no number at all. What an answer cost counts among right
answers only, and never so much that a wrong one comes out above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podium.train.recipe import Against, Reward, Scale
from podium.types import Round

EPSILON = 1e-4
"""As in TRL: keeps a group without variance from dividing by zero."""


def reward(
    outcome: Round, score: float | None, scale: Reward, earlier: Sequence[Round] = ()
) -> float | None:
    """What a round earns, given the score of its answer; None where it earns nothing at all.

    An answer has cost what the rounds before it cost, too.
    """
    if outcome.failure is not None:
        return None if outcome.failure.blame == "infra" else scale.malformed
    if score is None:
        return None
    if not scale.repeats and repeats(outcome):
        return scale.malformed
    if score < 1.0:
        return scale.wrong
    spent = math.fsum(map(cost, (*earlier, outcome)))
    return scale.right - scale.cost * min(1.0, spent / scale.cost_at)


def repeats(outcome: Round) -> bool:
    """Whether somebody was asked the same thing twice."""
    steps = [r.step for r in outcome.results]
    return len(set(steps)) < len(steps)


def cost(outcome: Round) -> float:
    """Dollars of a round's worker calls."""
    return sum(r.completion.cost or 0.0 for r in outcome.results if r.completion is not None)


def discounted(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """Let each round share in what became of the next: r0 <- (1 - discount) r0 + discount r1.

    The second round is taken as it was earned, before any discount of its own (Conductor's code).
    """
    following = [*rewards[1:], None]
    return [
        own if own is None or after is None else (1 - discount) * own + discount * after
        for own, after in zip(rewards, following, strict=True)
    ]


def advantages(group: Sequence[float | None], scale: Reward, by: Scale = "group") -> list[float]:
    """Each reward against the mean of its group; nothing for those that have no reward."""
    known = [r for r in group if r is not None]
    if len(known) < 2:
        return [0.0] * len(group)
    mean = math.fsum(known) / len(known)
    unit = _unit(known, mean, scale, by)
    return [0.0 if r is None else (r - mean) / unit for r in group]


def _unit(known: Sequence[float], mean: float, scale: Reward, by: Scale) -> float:
    """What advantages of a group are divided by."""
    if by == "none":
        return 1.0
    if by == "right":
        share = sum(r > scale.wrong for r in known) / len(known)
        return (scale.right - scale.wrong) * share or 1.0
    return EPSILON + math.sqrt(math.fsum((r - mean) ** 2 for r in known) / (len(known) - 1))


def gated(group: Sequence[float | None], scale: Reward) -> list[float | None]:
    """The group as it is, or without rewards where no draft of it led to a right answer."""
    if not scale.gate or any(r is not None and r > scale.wrong for r in group):
        return list(group)
    return [None] * len(group)


def advantages_of(
    group: Sequence[Sequence[float | None]],
    scale: Reward,
    *,
    discount: float,
    by: Scale,
    against: Against = "group",
) -> list[list[float]]:
    """From the rewards of every round of every rollout, their advantages.

    A round is compared with the same round of the other rollouts: a second draft is written in
    another situation than a first one, and its mean reward is another. Second drafts of a group
    may differ in their situation, too; each can then be compared with what letting the answer
    stand would have earned in its own.
    """
    earned = [discounted(rounds, discount) for rounds in group]
    found: list[list[float]] = [[] for _ in group]
    for number in range(max(map(len, earned))):
        there = [i for i, rounds in enumerate(earned) if len(rounds) > number]
        if number and against == "standing":
            worth = [gain(group[i][number - 1], group[i][number], scale) for i in there]
        else:
            worth = advantages(gated([earned[i][number] for i in there], scale), scale, by)
        for i, value in zip(there, worth, strict=True):
            found[i].append(value)
    return found


def gain(before: float | None, after: float | None, scale: Reward) -> float:
    """What a round earned beyond the one before it, which letting its answer stand would earn.

    Where neither answer is right, a gate lets nothing be learnt.
    """
    if before is None or after is None:
        return 0.0
    if scale.gate and max(before, after) <= scale.wrong:
        return 0.0
    return after - before

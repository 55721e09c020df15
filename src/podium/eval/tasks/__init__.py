"""Tasks: benchmarks by name, a file each.

from podium.eval.tasks import find

items = find("math500").load("test")
score = await find("math500").grade(items[0], "… \\\\boxed{42}")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podium.errors import ConfigError
from podium.eval.tasks.aime import AIME_2024, AIME_2025
from podium.eval.tasks.bigcodebench import BIGCODEBENCH, BIGCODEBENCH_HARD
from podium.eval.tasks.check import Report, check
from podium.eval.tasks.gpqa import GPQA_DIAMOND
from podium.eval.tasks.grading import grade
from podium.eval.tasks.gsm8k import GSM8K
from podium.eval.tasks.humaneval import HUMANEVAL
from podium.eval.tasks.livecodebench import LIVECODEBENCH
from podium.eval.tasks.math import MATH500, MATH_TRAIN
from podium.eval.tasks.mixture import Mixture, paper_mixture
from podium.eval.tasks.mmlu import MMLU
from podium.eval.tasks.mmlu_pro import MMLU_PRO
from podium.eval.tasks.own import own
from podium.eval.tasks.reasoning_gym import reasoning_gym
from podium.eval.tasks.rlpr import RLPR
from podium.eval.tasks.splits import digest, draw
from podium.eval.tasks.task import Item, Task
from podium.eval.tasks.tiny import TINY, tiny

__all__ = [
    "FAMILIES",
    "TASKS",
    "Item",
    "Mixture",
    "Report",
    "Task",
    "check",
    "digest",
    "draw",
    "find",
    "grade",
    "paper_mixture",
]

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        MATH500,
        MATH_TRAIN,
        MMLU,
        MMLU_PRO,
        GSM8K,
        RLPR,
        *LIVECODEBENCH,
        AIME_2024,
        AIME_2025,
        GPQA_DIAMOND,
        BIGCODEBENCH,
        BIGCODEBENCH_HARD,
        HUMANEVAL,
        TINY,
    )
}

FAMILIES: Mapping[str, Callable[[str], Task]] = {
    "reasoning-gym": reasoning_gym,
    "jsonl": own,
    "tiny": tiny,
}
"""Tasks that take an argument: `reasoning-gym:countdown`, `jsonl:questions.jsonl`, `tiny:7`."""


def find(name: str) -> Task:
    """The task of this name, which may be a family's with its argument."""
    family, colon, argument = name.partition(":")
    if colon and family in FAMILIES:
        return FAMILIES[family](argument)
    if name in TASKS:
        return TASKS[name]
    known = ", ".join([*TASKS, *(f"{family}:…" for family in FAMILIES)])
    raise ConfigError(f"there is no task {name!r}; there are: {known}")

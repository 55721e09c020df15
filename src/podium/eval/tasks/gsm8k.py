"""GSM8K: grade-school word problems whose answer is an integer (Cobbe et al., 2021)."""

from __future__ import annotations

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task

PROMPT = """{question}

Work it out step by step, then end with the number alone inside <answer></answer>."""


def parse(row: Row) -> Item:
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark:
        raise row.fault("'answer' has no final answer after ####")
    return Item(
        id=f"gsm8k/{row.number}",
        question=row.text("question"),
        target=answer.strip(),
        grader="value",
    )


SPLITS = {"train": "train", "test": "test"}

GSM8K = Task(
    name="gsm8k",
    source="openai/gsm8k",
    licence="MIT",
    splits=tuple(SPLITS),
    grader="value",
    prompt=PROMPT,
    read=published(Hub("openai/gsm8k", SPLITS, configs=("main",)), PROMPT, parse, shares=None),
)

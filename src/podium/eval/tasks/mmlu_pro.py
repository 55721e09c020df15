"""MMLU-Pro: up to ten options, 14 fields (Wang et al., 2024)."""

from __future__ import annotations

from string import ascii_uppercase

from podium.eval.tasks.choices import PROMPT, lettered, target
from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task


def parse(row: Row) -> Item:
    options = row.texts("options")
    letter = row.text("answer")
    if letter not in ascii_uppercase[: len(options)] or len(letter) != 1:
        raise row.fault(f"'answer' is not the letter of an option: {letter!r}")
    return Item(
        id=f"mmlu-pro/{row.text('question_id')}",
        question=lettered(row.text("question"), options),
        target=target(ascii_uppercase.index(letter), options),
        grader="choice",
        category=row.maybe("category"),
    )


SPLITS = {"dev": "validation", "test": "test"}

MMLU_PRO = Task(
    name="mmlu-pro",
    source="TIGER-Lab/MMLU-Pro",
    licence="MIT",
    splits=tuple(SPLITS),
    grader="choice",
    prompt=PROMPT,
    read=published(Hub("TIGER-Lab/MMLU-Pro", SPLITS), PROMPT, parse, shares=None),
)

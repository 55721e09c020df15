"""GPQA-Diamond: 198 questions that experts agree on and others fail (Rein et al., 2023)."""

from __future__ import annotations

from podium.eval.tasks.choices import PROMPT, lettered, target
from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.splits import order
from podium.eval.tasks.task import Item, Task


def parse(row: Row) -> Item:
    """The right option comes first in every row: here their order is drawn by the record's id."""
    record = row.text("Record ID")
    right = row.text("Correct Answer").strip()
    wrong = [row.text(f"Incorrect Answer {i}").strip() for i in (1, 2, 3)]
    options = order([right, *wrong], key=lambda option: f"{record}/{option}")
    return Item(
        id=f"gpqa-diamond/{record}",
        question=lettered(row.text("Question"), options),
        target=target(options.index(right), options),
        grader="choice",
        category=row.maybe("High-level domain"),
    )


GPQA_DIAMOND = Task(
    name="gpqa-diamond",
    source="Idavidrein/gpqa",
    licence="CC-BY-4.0; its authors ask that no question be published in plain text",
    splits=("test",),
    grader="choice",
    prompt=PROMPT,
    read=published(
        Hub("Idavidrein/gpqa", {"test": "train"}, configs=("gpqa_diamond",)),
        PROMPT,
        parse,
        shares=None,
    ),
)

"""MMLU: four options, 57 subjects (Hendrycks et al., 2021)."""

from __future__ import annotations

from podium.eval.tasks.choices import PROMPT, lettered, target
from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task


def parse(row: Row) -> Item:
    """As on the hub (`choices`), or with a column per option (`choice0` to `choice3`)."""
    if "choices" in row.fields:
        options = row.texts("choices")
    else:
        options = [row.text(f"choice{i}") for i in range(4)]
    answer = row.text("answer")
    if not answer.isdigit() or int(answer) >= len(options):
        raise row.fault(f"'answer' is not the index of an option: {answer!r}")
    return Item(
        id=f"mmlu/{row.maybe('subject') or 'none'}/{row.number}",
        question=lettered(row.text("question"), options),
        target=target(int(answer), options),
        grader="choice",
        category=row.maybe("subject"),
    )


SPLITS = {"train": "auxiliary_train", "dev": "validation", "test": "test"}

MMLU = Task(
    name="mmlu",
    source="cais/mmlu",
    licence="MIT",
    splits=tuple(SPLITS),
    grader="choice",
    prompt=PROMPT,
    read=published(Hub("cais/mmlu", SPLITS, configs=("all",)), PROMPT, parse, shares=None),
)

"""AIME: thirty problems a year whose answers are integers from 0 to 999."""

from __future__ import annotations

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task

PROMPT = """{question}

The answer is an integer from 0 to 999. Work it out, then state it alone inside \\boxed{}."""


def _task(year: int, hub: Hub) -> Task:
    def parse(row: Row) -> Item:
        return Item(
            id=f"aime-{year}/{row.maybe('id') or row.number}",
            question=row.text("problem", "question"),
            target=row.text("answer").strip(),
            grader="value",
        )

    return Task(
        name=f"aime-{year}",
        source=hub.path,
        licence="problems © Mathematical Association of America, used for evaluation",
        splits=tuple(hub.splits),
        grader="value",
        prompt=PROMPT,
        read=published(hub, PROMPT, parse, shares=None),
    )


AIME_2024 = _task(2024, Hub("HuggingFaceH4/aime_2024", {"test": "train"}))
AIME_2025 = _task(2025, Hub("math-ai/aime25", {"test": "test"}))

"""RLPR: questions from many fields with a short reference answer (Yu et al., 2025)."""

from __future__ import annotations

from collections.abc import Mapping

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.splits import ALL, SIXTY
from podium.eval.tasks.task import Item, Task

PROMPT = """{question}

Think it through, then end with the final answer alone, as short as it can be said, inside \
<answer></answer>."""


def parse(row: Row) -> Item:
    return Item(
        id=f"rlpr/{row.number}",
        question=_asked(row),
        target=row.inner("reward_model").text("ground_truth").strip(),
        grader="number",
        category=row.maybe("ability"),
    )


def _asked(row: Row) -> str:
    """The user's message: the one before it tells a model how to think, which we leave open."""
    messages = row.fields.get("prompt")
    for message in reversed(messages) if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            return str(message.get("content"))
    raise row.fault("'prompt' has no message of the user's")


RLPR = Task(
    name="rlpr",
    source="openbmb/RLPR-Train-Dataset",
    licence="Apache-2.0",
    splits=(*SIXTY, ALL),
    grader="number",
    prompt=PROMPT,
    read=published(
        Hub("openbmb/RLPR-Train-Dataset", dict.fromkeys((*SIXTY, ALL), "train")),
        PROMPT,
        parse,
        shares=SIXTY,
    ),
)

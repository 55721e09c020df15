"""MATH: competition problems with an answer in LaTeX (Hendrycks et al., 2021)."""

from __future__ import annotations

from podium.answers import read_answer
from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.splits import ALL, SIXTY
from podium.eval.tasks.task import Item, Task

PROMPT = """{question}

Work it out, then state the final answer alone, in its simplest form, inside \\boxed{}."""

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)


def parse_500(row: Row) -> Item:
    return Item(
        id=f"math500/{row.text('unique_id')}",
        question=row.text("problem"),
        target=row.text("answer"),
        grader="math",
        category=row.maybe("subject"),
    )


def parse_train(row: Row) -> Item | None:
    """The answer has a field of its own, or stands in the last box of the solution."""
    answer = row.maybe("answer") if "answer" in row.fields else read_answer(row.text("solution"))
    if not answer:
        return None
    return Item(
        id=f"math-train/{row.number}",
        question=row.text("problem"),
        target=answer,
        grader="math",
        category=row.maybe("type"),
    )


MATH500 = Task(
    name="math500",
    source="HuggingFaceH4/MATH-500",
    licence="MIT",
    splits=(*SIXTY, ALL),
    grader="math",
    prompt=PROMPT,
    read=published(
        Hub("HuggingFaceH4/MATH-500", dict.fromkeys((*SIXTY, ALL), "test")),
        PROMPT,
        parse_500,
        shares=SIXTY,
    ),
)
"""Cut 300 / 100 / 100 as in the paper; `all` is what others report on."""

MATH_TRAIN = Task(
    name="math-train",
    source="EleutherAI/hendrycks_math",
    licence="MIT",
    splits=("train",),
    grader="math",
    prompt=PROMPT,
    read=published(
        Hub("EleutherAI/hendrycks_math", {"train": "train"}, configs=SUBJECTS),
        PROMPT,
        parse_train,
        shares=None,
    ),
)

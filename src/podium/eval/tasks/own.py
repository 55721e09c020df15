"""Your own questions: a JSONL file, a row each.

    {"id": "1", "question": "6 × 7?", "answer": "42", "grader": "value", "split": "test"}

`grader` is choice, exact, literal, math, number, value, or one of those for code; a choice has
`options`, and its answer is a letter. `split` and `category` may be left out, and so may `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

from podium.eval.graders import GRADERS
from podium.eval.tasks.choices import lettered, target
from podium.eval.tasks.grading import CODE
from podium.eval.tasks.source import Row, read_file
from podium.eval.tasks.task import Item, Task

ENDINGS = {
    "math": "State the final answer alone inside \\boxed{}.",
    **dict.fromkeys(CODE, "Give the code in one ```python block."),
}
ENDING = "End with the final answer alone inside <answer></answer>."


def own(path: str) -> Task:
    """The task in a file. Its splits are those that its rows name."""
    items = _items(Path(path))

    def read(split: str, data: Path | None) -> Sequence[Item]:
        return [item for item in (_items(data) if data else items) if item.split == split]

    return Task(
        name=f"jsonl:{path}",
        source=path,
        licence="your own",
        splits=tuple(dict.fromkeys(item.split for item in items)),
        grader=", ".join(dict.fromkeys(item.grader for item in items)),
        prompt="{question}\n\n" + ENDING,
        read=read,
    )


def _items(path: Path) -> list[Item]:
    return [_item(row) for row in read_file(path)]


def _item(row: Row) -> Item:
    grader = row.text("grader")
    if grader not in GRADERS and grader not in CODE:
        raise row.fault(f"'grader' is {grader!r}, not one of {', '.join([*GRADERS, *CODE])}")
    if "answer" not in row.fields:
        raise row.fault("there is no field 'answer'")
    item = Item(
        id=row.maybe("id") or str(row.number),
        question=row.text("question"),
        target=row.fields["answer"],
        grader=grader,
        category=row.maybe("category"),
        split=row.maybe("split") or "test",
    )
    item = _with_options(row, item) if grader == "choice" else item
    return replace(item, question=f"{item.question}\n\n{ENDINGS.get(grader, ENDING)}")


def _with_options(row: Row, item: Item) -> Item:
    options, letter = row.texts("options"), row.text("answer").strip().upper()
    if len(letter) != 1 or letter not in ascii_uppercase[: len(options)]:
        raise row.fault(f"'answer' is not the letter of an option: {letter!r}")
    return replace(
        item,
        question=lettered(item.question, options),
        target=target(ascii_uppercase.index(letter), options),
    )

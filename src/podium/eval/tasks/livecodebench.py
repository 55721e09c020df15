"""LiveCodeBench: contest problems by month, with public and hidden tests (Jain et al., 2024).

`livecodebench-v6` holds the problems that came with release 6, `livecodebench-release-v6` all up
to it. A contest is easy to have read: prefer a window that is younger than the models you ask.
"""

from __future__ import annotations

from itertools import chain

import orjson

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.splits import ALL, SIXTY
from podium.eval.tasks.task import Item, Task

PROGRAM = """

Write a Python 3 program that reads this from standard input and prints the answer to standard \
output. Give the whole program in one ```python block."""

FUNCTION = """

Complete this, without changing its signature, and give it whole in one ```python block:

```python
{starter}
```"""

FILES = tuple(f"test{n}.jsonl" for n in ("", 2, 3, 4, 5, 6))
RELEASES = len(FILES)


def parse(row: Row) -> Item:
    starter = row.text("starter_code")
    function = _function(row) if starter.strip() else None
    ask = FUNCTION.replace("{starter}", starter.strip()) if function else PROGRAM
    return Item(
        id=f"livecodebench/{row.text('question_id')}",
        question=row.text("question_content").strip() + ask,
        target={
            "public": row.text("public_test_cases"),
            "private": row.text("private_test_cases"),
            "function": function,
        },
        grader="contest",
        category=row.maybe("difficulty"),
    )


def _function(row: Row) -> str:
    try:
        return str(orjson.loads(row.text("metadata"))["func_name"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        raise row.fault("'metadata' does not name the function to call") from exc


def _task(name: str, files: tuple[str, ...]) -> Task:
    hub = Hub("livecodebench/code_generation_lite", {}, files=files)
    return Task(
        name=name,
        source=hub.path,
        licence="CC (the problems belong to the contests' sites)",
        splits=(*SIXTY, ALL),
        grader="contest",
        prompt="{question}",
        read=published(hub, "{question}", parse, shares=SIXTY),
    )


LIVECODEBENCH = tuple(
    chain.from_iterable(
        (
            _task(f"livecodebench-v{n}", FILES[n - 1 : n]),
            _task(f"livecodebench-release-v{n}", FILES[:n]),
        )
        for n in range(1, RELEASES + 1)
    )
)

"""HumanEval: 164 functions to complete, each with a check (Chen et al., 2021)."""

from __future__ import annotations

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task

PROMPT = """Complete this Python function and give it whole in one ```python block.

```python
{question}
```"""


def parse(row: Row) -> Item:
    prompt = row.text("prompt")
    return Item(
        id=row.text("task_id"),
        question=prompt.rstrip(),
        target={
            "prompt": prompt,
            "test": row.text("test"),
            "entry_point": row.text("entry_point"),
            "solution": row.text("canonical_solution"),
        },
        grader="check",
    )


HUMANEVAL = Task(
    name="humaneval",
    source="openai/openai_humaneval",
    licence="MIT",
    splits=("test",),
    grader="check",
    prompt=PROMPT,
    read=published(
        Hub("openai/openai_humaneval", {"test": "test"}), PROMPT, parse, shares=None
    ),
)  # fmt: skip

"""BigCodeBench: functions that use many libraries, tested by unittest (Zhuo et al., 2024)."""

from __future__ import annotations

import ast

from podium.eval.tasks.source import Hub, Row, published
from podium.eval.tasks.task import Item, Task

PROMPT = """Complete this Python function. Give the whole module, imports included, in one \
```python block.

```python
{question}
```"""

VERSION = "v0.1.4"


def parse(row: Row) -> Item:
    """As on the hub, or as `problem`, `solutions` and `tests`."""
    prompt = row.text("complete_prompt", "problem")
    tests = row.text("test", "tests")
    solution = row.maybe("solutions") or prompt + row.text("canonical_solution")
    return Item(
        id=row.maybe("task_id") or f"BigCodeBench/row-{row.number}",
        question=prompt.rstrip(),
        target={"tests": tests, "libraries": _libraries(row, solution), "solution": solution},
        grader="unittests",
    )


def _libraries(row: Row, solution: str) -> list[str]:
    """What has to be installed for the tests to mean anything: what prompt and tests import."""
    try:
        nodes = [*ast.walk(ast.parse(solution)), *ast.walk(ast.parse(row.text("test", "tests")))]
    except SyntaxError as exc:
        raise row.fault(f"the solution or the tests are not Python: {exc}") from exc
    plain = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return sorted({name.partition(".")[0] for name in plain | parts})


def _task(name: str, path: str) -> Task:
    return Task(
        name=name,
        source=path,
        licence="Apache-2.0",
        splits=("test",),
        grader="unittests",
        prompt=PROMPT,
        read=published(Hub(path, {"test": VERSION}), PROMPT, parse, shares=None),
    )


BIGCODEBENCH = _task("bigcodebench", "bigcode/bigcodebench")
BIGCODEBENCH_HARD = _task("bigcodebench-hard", "bigcode/bigcodebench-hard")

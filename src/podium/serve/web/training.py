"""What `podium train` leaves behind, read while it is written: figures, drafts, the last word.

A run that was killed and goes on drops the lines after its last checkpoint, so a reader names
the last step it has, and is told how far the record reaches now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.errors import WorkflowError
from podium.serve.web.shelf import found
from podium.serve.wire import Json
from podium.types import Workflow
from podium.workflow import parse

METRICS, SAMPLES, RECIPE, REPORT = "metrics.jsonl", "samples.jsonl", "recipe.json", "report.json"
MARKS = (METRICS, RECIPE)
"""What a directory of a training run has: before its first step, the recipe alone."""
MAX_SAMPLES = 64
MANY = 10_000
"""More workers and steps than any draft has: what a draft may say is not judged here."""


def trainings(root: Path | None) -> Sequence[Json]:
    folders = found(root, *MARKS).items()
    return [_training(name, folder) for name, folder in folders if _learns(folder)]


def _learns(folder: Path) -> bool:
    """A recipe may also be one that evolves a TRINITY head, which has no steps to show."""
    return (folder / METRICS).is_file() or "grpo" in _object(folder / RECIPE)


def _training(name: str, folder: Path) -> Json:
    rows, recipe = _rows(folder / METRICS), _object(folder / RECIPE)
    marks = [folder / mark for mark in MARKS if (folder / mark).is_file()]
    return {
        "name": name,
        "recipe": recipe.get("name", name),
        "of": _steps(recipe),
        "last": rows[-1] if rows else {},
        "curve": [_number(row.get("reward")) for row in rows],
        "changed": max(mark.stat().st_mtime for mark in marks),
        "finished": (folder / REPORT).is_file(),
    }


def metrics(folder: Path, after: int) -> Json:
    rows = _rows(folder / METRICS)
    return {
        "rows": [row for row in rows if row["step"] > after],
        "last": rows[-1]["step"] if rows else 0,
        "of": _steps(_object(folder / RECIPE)),
        "finished": (folder / REPORT).is_file(),
        "report": _object(folder / REPORT),
    }


def samples(folder: Path, step: int) -> Sequence[Json]:
    """Some drafts of a step, each with the workflow that it is, where it is one."""
    rows = [row for row in _rows(folder / SAMPLES) if row["step"] == step]
    return [
        {"question": str(row.get("question", "")), "rounds": _rounds(row.get("rounds"))}
        for row in rows[:MAX_SAMPLES]
    ]


def _rounds(found: object) -> Sequence[Json]:
    """As the page reads them, whatever is missing or odd."""
    rounds = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return [_round(each) for each in rounds]


def _round(found: Mapping[str, Any]) -> Json:
    draft, answers = str(found.get("draft") or ""), found.get("answers")
    said = {str(k): str(v) for k, v in answers.items()} if isinstance(answers, dict) else {}
    return {
        "draft": draft,
        "complaint": str(found.get("complaint") or ""),
        "score": _number(found.get("score")),
        "reward": _number(found.get("reward")),
        "answers": said,
        "steps": _workflow(draft, said),
    }


def _number(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _workflow(draft: str, answers: Mapping[str, str]) -> Sequence[Json] | None:
    try:
        flow = parse(draft, workers=MANY, max_steps=MANY, may_stop=True)
    except WorkflowError:
        return None
    names = _names(flow, answers)
    return [
        {"worker": names.get(step.worker, f"worker {step.worker}"), "step": step}
        for step in flow.steps
    ]


def _names(flow: Workflow, answers: Mapping[str, str]) -> dict[int, str]:
    """Whose number is whose: answers stand in the order in which their workers first appear."""
    numbers = list(dict.fromkeys(step.worker for step in flow.steps))
    return dict(zip(numbers, answers, strict=True)) if len(numbers) == len(answers) else {}


def _steps(recipe: Mapping[str, Any]) -> int | None:
    grpo = recipe.get("grpo")
    return grpo.get("steps") if isinstance(grpo, dict) else None


def _object(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none that can be read."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _rows(path: Path) -> list[dict[str, Any]]:
    """Lines that are objects with a step; the last one may be just being written.

    Python's own reader, because a figure may be NaN, which JSON does not know.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [row for row in map(_row, lines) if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None

"""Graders: pure functions of an answer and a target that also say what they read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth, and what was read in it."""

    value: float | None
    """None: the grader itself could not run. Such a sample is unscored and counted apart."""
    answer: str | None
    """None: no answer could be read, and the value is 0."""
    note: str = ""

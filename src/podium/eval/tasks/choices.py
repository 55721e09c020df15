"""How multiple choice is asked, whatever the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

PROMPT = """{question}

One option is right. Think it through, then end with its letter alone inside <answer></answer>."""


def lettered(question: str, options: Sequence[str]) -> str:
    """The question with its options below it, by letter."""
    listed = (
        f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)
    )
    return "\n".join([question.strip(), "", *listed])


def target(index: int, options: Sequence[str]) -> dict[str, object]:
    return {"letter": ascii_uppercase[index], "options": list(options)}

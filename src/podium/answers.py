"""Read the answer that a reply states, wherever a model likes to put it.

Votes, graders and the planner's second look all read answers here, so that they agree on what
was said. A reply that states none has none: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

READ_CHARS = 64 * 1024
"""Only the end of a longer reply is read: an answer that matters stands there."""

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_FIELD = re.compile(
    r'"answer"\s*+:\s*+("(?:[^"\\]++|\\.)*+"|\[[^\[\]\n]*+\]|[^,}\n]++)', re.IGNORECASE
)
_STATED = re.compile(
    r"answer[\s*_]*+(?:is\b|[:=])[\s*:=`]*+(?=([^\n]{1,1000}+))|^####\s*+([^\n]++)",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(r"^[\s*`]*+\(?([A-Za-z])\)?(?=[\s).:,*`]|$)")
_ESCAPED = re.compile(r'\\(["\\/])')
_NAMED = re.compile(
    r"answer[\s*_]*+(?:is\b|[:=])(?:[\s*:=`$({\[\\]|text\b)*+([A-Z])(?=\s*+(?:[).:,*}\\$\]]|$))",
    re.MULTILINE,
)
AT_ONCE = 25
"""Statements with fewer characters between them follow each other without a thought: a model that
goes on inventing questions and answering them. The first of such a row answers ours."""


def read_answer(text: str) -> str | None:
    """The stated answer, stripped of its wrapping; None where the reply states none."""
    text = text[-READ_CHARS:]
    found = _tagged(text) or _field_or_box(text) or _last(_STATED, text)
    if found is None and "\n" not in text.strip() and len(text) < 200:
        found = text
    return _clean(found) if found else None


def voices(texts: Sequence[str]) -> list[tuple[str, str]]:
    """What each text votes for, with the text; without those that state no answer.

    Where half of them or more name an option by its letter, only letters are counted.
    """
    named = [(letter, text) for text in texts if (letter := _named_option(text))]
    if 2 * len(named) >= len(texts) and named:
        return named
    return [(canonical(answer), text) for text in texts if (answer := read_answer(text))]


def _named_option(text: str) -> str | None:
    """The letter that is stated last, or first in a row of statements at its end."""
    text = text[-READ_CHARS:]
    stated = list(_NAMED.finditer(_tagged(text) or text))
    if not stated:
        alone = _OPTION.fullmatch((read_answer(text) or "").rstrip("."))
        return alone[1].upper() if alone else None
    last = len(stated) - 1
    while last and stated[last].start() - stated[last - 1].end() < AT_ONCE:
        last -= 1
    return stated[last][1]


def canonical(answer: str) -> str:
    """The form in which two answers are compared when votes are counted."""
    option = _OPTION.match(answer)
    if option:
        return option[1].upper()
    plain = answer.casefold().replace(",", "").replace("$", "").strip(" .\"'`")
    try:
        return f"{float(plain):.12g}"
    except ValueError:
        return " ".join(plain.split())


def _tagged(text: str) -> str | None:
    """What stands in the last pair of tags. One pass: a reply may be nothing but tags."""
    start, found = None, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            start, found = None, text[start : tag.start()]
    return found


def _field_or_box(text: str) -> str | None:
    """Whichever comes last: a box in a JSON object's reasoning is not its answer."""
    fields = list(_FIELD.finditer(text))
    if not fields or text.rfind("\\boxed{") > fields[-1].start():
        return _boxed(text)
    return _ESCAPED.sub(r"\1", fields[-1][1])


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = next((group for group in match.groups() if group), found)
    return found


def _boxed(text: str) -> str | None:
    """What stands in the last box of LaTeX, braces matched."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, first = 1, start + len("\\boxed{")
    for end in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[first:end]
    return None


def _clean(found: str) -> str | None:
    return found.strip().strip("*`\"' ").rstrip(".").strip("*` ") or None

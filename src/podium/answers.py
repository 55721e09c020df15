"""Read the answer that a reply states, wherever a model likes to put it.

Votes, graders and the planner's second look all read answers here, so that they agree on what
was said. A reply that states none has none: nothing is guessed.
"""

from __future__ import annotations

import re

READ_CHARS = 64 * 1024
"""Only the end of a longer reply is read: an answer that matters stands there."""

_TAGGED = re.compile(r"<answer>((?:[^<]++|<(?!/answer>))*+)</answer>", re.IGNORECASE)
_FIELD = re.compile(r'"answer"\s*+:\s*+("(?:[^"\\]++|\\.)*+"|[^,}\n]++)', re.IGNORECASE)
_STATED = re.compile(
    r"(?:final\s+)?answer\s*+(?:is|:|=)?[\s*:=`]*+([^\n]++)|^####\s*+([^\n]++)",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(r"^[\s*`]*+\(?([A-Za-z])\)?(?=[\s).:,*`]|$)")


def read_answer(text: str) -> str | None:
    """The stated answer, stripped of its wrapping; None where the reply states none."""
    text = text[-READ_CHARS:]
    found = _last(_TAGGED, text) or _boxed(text) or _last(_FIELD, text) or _last(_STATED, text)
    if found is None and "\n" not in text.strip() and len(text) < 200:
        found = text
    return _clean(found) if found else None


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

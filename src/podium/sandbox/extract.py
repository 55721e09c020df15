"""Find the code in what a model wrote."""

from __future__ import annotations

FENCES = ("```", "~~~")
PYTHON = ("python", "py", "python3")


def extract_code(text: str) -> str:
    """The code of a reply: its last block of Python, or else its last block, or else all of it.

    Where the reply has `<answer>` tags only what stands in the last of them is read. A block that
    was never closed, as in a reply that was cut off, counts to the end.
    """
    text = _tagged(text)
    blocks = _blocks(text)
    for labels in (PYTHON, ("",)):
        if fitting := [code for label, code in blocks if label in labels]:
            return fitting[-1]
    return blocks[-1][1] if blocks else text


def _tagged(text: str) -> str:
    _, opened, rest = text.rpartition("<answer>")
    return rest.partition("</answer>")[0] if opened else text


def _blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks with their labels. One pass over the lines: a reply may be long and hostile."""
    blocks: list[tuple[str, str]] = []
    lines: list[str] = []
    fence = label = ""
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if not fence and mark.startswith(FENCES):
            fence, label, lines = mark[:3], mark[3:].strip().lower(), []
        elif fence and mark == fence:
            blocks.append((label, "".join(lines)))
            fence = ""
        elif fence:
            lines.append(line)
    return [*blocks, (label, "".join(lines))] if fence else blocks

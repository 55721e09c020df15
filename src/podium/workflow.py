"""The workflow language: three parallel lists, written by a model, read by us.

    model_id    = [2, 0, 1]
    subtasks    = ["Plan the proof.", "Carry it out.", "Check it and give the answer."]
    access_list = [[], [0], ["all"]]

Step i asks worker `model_id[i]` to do `subtasks[i]`, showing it the outputs of the earlier steps
in `access_list[i]`. Reasoning and code fences around the lists are ignored; the first list under
each label counts. Three empty lists mean "the answer stands" and are allowed only after a first
round.

The text is untrusted. It is capped, then scanned once from left to right by regular expressions
that cannot backtrack, and nothing in it is evaluated.
"""

from __future__ import annotations

import re
from functools import lru_cache

from podium.errors import WorkflowError
from podium.types import Access, Step, Workflow

MAX_CHARS = 32 * 1024
"""Longer drafts are rejected unread. A plan of five steps takes about one thousand characters."""

MAX_ITEMS, MAX_TOKENS, MAX_LISTS = 64, 2048, 16
"""No workflow has a reason to pass these; stopping here keeps the worst text cheap to reject."""

Value = int | str | list["Value"] | None

_LABELS = {"m": "model_id", "s": "subtasks", "a": "access_list"}
_LABEL = re.compile(
    r"""(?<![A-Za-z0-9_])
    (model[_ ]?ids?|sub[_ ]?tasks?|access(?:[_ ]?lists?)?)
    (?:\(s\))?+ [\s"'`*]*+ [:=] (?:[\s`*]++|python\b|json\b)*+ (?=\[)""",
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN = re.compile(
    r"""(?:\s++|\#[^\n]*+)*+
    (?: (?P<punct>[\[\](),])
      | (?P<int>-?\d{1,9}(?![\w.]))
      | \"\"\"(?P<long>(?:[^"\\]++|\\.|"(?!""))*+)\"\"\"
      | "(?P<double>(?:[^"\\]++|\\.)*+)"
      | '(?P<single>(?:[^'\\]++|\\.)*+)'
      | “(?P<curly>(?:[^”\\]++|\\.)*+)”
      | ‘(?P<tick>(?:[^’\\]++|\\.)*+)’
      | (?P<word>[A-Za-z]{1,16}+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_STRINGS = frozenset({"long", "double", "single", "curly", "tick"})
_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
# \f and \b stay as written: in a model's subtask they begin \frac and \beta, not a form feed.
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\n": ""}
_ESCAPES |= {f"\\{c}": c for c in "\"'/“”‘’"}


@lru_cache(maxsize=256)  # fixed workflows and a settled policy write the same text again and again
def parse(text: str, *, workers: int, max_steps: int = 5, may_stop: bool = False) -> Workflow:
    """Read a workflow out of a model's reply, or say precisely what is wrong with it.

    Raises:
        WorkflowError: a list is missing or malformed, the lengths differ, there are too few or
            too many steps, or a step names a worker or an earlier step that does not exist.
    """
    if len(text) > MAX_CHARS:
        raise WorkflowError(f"the draft has {len(text)} characters: at most {MAX_CHARS} are read")
    lists = _find_lists(_without_thinking(text))
    for label in _LABELS.values():
        if label not in lists:
            raise WorkflowError(f"there is no list `{label} = [...]` in the draft")
    ids, subtasks, access = (lists[label] for label in _LABELS.values())
    if not len(ids) == len(subtasks) == len(access):
        raise WorkflowError(
            f"the lists must be equally long: model_id has {len(ids)}, subtasks {len(subtasks)}, "
            f"access_list {len(access)}"
        )
    if not ids and not may_stop:
        raise WorkflowError("the lists are empty: a first round has something to do")
    if len(ids) > max_steps:
        raise WorkflowError(f"there are {len(ids)} steps: at most {max_steps} are allowed")
    return Workflow(
        tuple(
            Step(_worker(ids[i], i, workers), _subtask(subtasks[i], i), _access(access[i], i))
            for i in range(len(ids))
        )
    )


def render(workflow: Workflow) -> str:
    """Write a workflow as text; `parse(render(w)) == w`."""
    steps = workflow.steps
    access = ['["all"]' if s.access == "all" else str([*s.access]) for s in steps]
    return "\n".join(
        [
            f"model_id = {[s.worker for s in steps]}",
            f"subtasks = [{', '.join(_quote(s.subtask) for s in steps)}]",
            f"access_list = [{', '.join(access)}]",
        ]
    )


def _worker(value: Value, i: int, workers: int) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or not 0 <= number < workers:
        raise WorkflowError(
            f"step {i}: model_id must be one of 0 to {workers - 1}, got {_show(value)}"
        )
    return number


def _subtask(value: Value, i: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise WorkflowError(f"step {i}: the subtask must be a non-empty string, got {_show(value)}")
    return value


def _access(value: Value, i: int) -> Access:
    named: list[Value] = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(v, str) and v.strip().lower() == "all" for v in named):
        return "all"
    positions = {int(v) if isinstance(v, str) and v.isdecimal() else v for v in map(_flat, named)}
    earlier = {v for v in positions if isinstance(v, int) and 0 <= v < i}
    if earlier != positions:
        raise WorkflowError(f"step {i}: may only read steps before it, got {_show(value)}")
    return tuple(sorted(earlier))


def _flat(value: Value) -> int | str | None:
    """A list inside an access entry is no position; any string that is no number will do."""
    return "[…]" if isinstance(value, list) else value


def _without_thinking(text: str) -> str:
    """What follows the last closed thought, up to one that is never closed."""
    after = text.rpartition("</think>")[2]
    return after.partition("<think>")[0]


def _find_lists(text: str) -> dict[str, list[Value]]:
    """The first list under each label. What stands inside a list that was read is not searched."""
    lists: dict[str, list[Value]] = {}
    position = 0
    for _ in range(MAX_LISTS):
        found = _LABEL.search(text, position)
        if found is None or len(lists) == len(_LABELS):
            break
        label = _LABELS[found[1][0].lower()]
        value, position = _read_list(text, found.end(), label)
        lists.setdefault(label, value)
    return lists


def _read_list(text: str, start: int, label: str) -> tuple[list[Value], int]:
    """The list that opens at `start`, and where it ends. Brackets and parentheses both do."""
    root: list[Value] = []
    stack: list[list[Value]] = []
    position, adjacent = start, False
    for _ in range(MAX_TOKENS):
        token = _TOKEN.match(text, position)
        if token is None:
            break
        position = token.end()
        kind, read = str(token.lastgroup), token[str(token.lastgroup)]
        if kind != "punct":
            _append(stack[-1], kind, read, label, adjacent=adjacent)
        elif read in "[(":
            inner: list[Value] = root if not stack else []
            if stack:
                _check_room(stack[-1], label)
                stack[-1].append(inner)
            stack.append(inner)
            if len(stack) > 2:
                raise WorkflowError(f"`{label}`: lists are nested too deeply")
        elif read in "])":
            stack.pop()
            if not stack:
                return root, position
        adjacent = kind in _STRINGS
    rest = text[position : position + 40].strip()
    raise WorkflowError(
        f"`{label}`: cannot read {_show(rest)}" if rest else f"`{label}` is never closed"
    )


def _append(into: list[Value], kind: str, read: str, label: str, *, adjacent: bool) -> None:
    if kind in _STRINGS and adjacent and into and isinstance(into[-1], str):
        into[-1] += _unescape(read)  # "two strings" "side by side" are one, as in Python
        return
    _check_room(into, label)
    if kind == "int":
        into.append(int(read))
    elif kind in _STRINGS:
        into.append(_unescape(read))
    elif read.lower() in ("none", "null"):
        into.append(None)
    elif read.lower() == "all":
        into.append("all")
    else:
        raise WorkflowError(f"`{label}`: cannot read {_show(read)}: strings stand in quotes")


def _check_room(into: list[Value], label: str) -> None:
    if len(into) >= MAX_ITEMS:
        raise WorkflowError(f"`{label}` has more than {MAX_ITEMS} entries")


def _unescape(read: str) -> str:
    if "\\" not in read:
        return read
    # Between two escaped backslashes every backslash begins an escape, so plain replacing is right
    # there, and stays quick on a text that is nothing but escapes.
    return "\\".join(_unescape_simple(part) for part in read.split("\\\\"))


def _unescape_simple(part: str) -> str:
    if "\\" not in part:
        return part
    for written, meant in _ESCAPES.items():
        part = part.replace(written, meant)
    if "\\u" in part or "\\x" in part:
        part = _CODE.sub(lambda found: chr(int(found[1] or found[2], 16)), part)
        # A character outside the basic plane may have been written as two escapes.
        part = part.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return part


def _quote(text: str) -> str:
    # Thinking tags are cut before the lists are read, so they may not stand in one as they are.
    escaped = "".join(_QUOTED.get(c, c) if c >= " " else f"\\u{ord(c):04x}" for c in text)
    return f'"{escaped}"'.replace("think>", "think\\u003e")


_QUOTED = {"\\": "\\\\", '"': '\\"'}


def _show(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"

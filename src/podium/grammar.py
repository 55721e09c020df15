"""A grammar that holds a local model to the workflow language, so that every draft parses.

`workflow_grammar` writes GBNF, the notation of llama.cpp. It describes what `workflow.render`
writes, after a line of free words if wanted: a text that was finished under it parses.

Three lists of equal length are beyond a context-free grammar, but up to `max_steps` they can be
told apart by the length of the first: closing it after n workers leads to a rule that asks for
exactly n subtasks and n accesses. No two ways on from a place begin alike, so there is only ever
one reading to keep track of, which is what makes it fast to sample under.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

MODEL_ID = '"model_id = ["'
SUBTASKS = r'"\nsubtasks = ["'
ACCESS_LIST = r'"\naccess_list = ["'
STAND = r'"]\nsubtasks = []\naccess_list = []"'
ALL = r'"\"all\"]"'
CLOSE = '"]"'
COMMA = '", "'

VISIBLE = r'[^"\\<\x00-\x20\x7F-\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]'
"""A character that is no kind of space: a subtask starts with one, and so is never blank."""

CHAR = r'[^"\\<\x00-\x1F\x7F] | "\\" [^\x00-\x1F\x7F] | "<" [ =0-9]'
"""Anything on one line. `<` opens no tag, because thinking tags are cut before lists are read."""

THOUGHT = r"[^\[<\x00-\x1F\x7F]"
"""In the free words before the lists. Without a bracket none of them is mistaken for a list."""


def workflow_grammar(
    workers: int,
    max_steps: int,
    *,
    may_stop: bool = False,
    access: Literal["full", "binary"] = "full",
    subtask_chars: int = 200,
    reasoning_chars: int = 0,
) -> str:
    """The workflows of 1 to `max_steps` steps over `workers` workers, as GBNF.

    Args:
        workers: how many there are; a step may name 0 to `workers - 1`.
        max_steps: of one workflow.
        may_stop: also allow three empty lists, which let an earlier answer stand.
        access: `binary` allows `[]` and `["all"]`, `full` positions of earlier steps besides.
        subtask_chars: the longest subtask.
        reasoning_chars: the longest line of free words before the lists; 0 asks for none. Letting
            an answer stand takes no words.
    """
    opening = ("thought? " if may_stop else "thought ") * bool(reasoning_chars)
    rules = {
        "root": f"{opening}{MODEL_ID} first",
        "first": f"worker ids1 {f'| {STAND}' * may_stop}",
        "worker": _either(f'"{i}"' for i in range(workers)),
        **{f"ids{n}": _ids(n, max_steps) for n in range(1, max_steps + 1)},
        **{f"rest{n}": _rest(n) for n in range(1, max_steps + 1)},
        **dict(_accesses(max_steps, positions=access == "full")),
        "subtask": rf'"\"" {VISIBLE} char{{0,{subtask_chars - 1}}} "\""',
        "char": CHAR,
    }
    if reasoning_chars:
        rules["thought"] = rf'{THOUGHT}{{1,{reasoning_chars}}} "\n"'
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())


def _ids(n: int, max_steps: int) -> str:
    """What may follow the nth worker: the end of the list, or one more."""
    return _either([f"{CLOSE} rest{n}", f"{COMMA} worker ids{n + 1}"][: 1 + (n < max_steps)])


def _rest(n: int) -> str:
    """The other two lists of a workflow of n steps."""
    subtasks = f" {COMMA} ".join(["subtask"] * n)
    accesses = f" {COMMA} ".join(f"access{i}" for i in range(n))
    return f"{SUBTASKS} {subtasks} {CLOSE} {ACCESS_LIST} {accesses} {CLOSE}"


def _accesses(max_steps: int, *, positions: bool) -> Iterator[tuple[str, str]]:
    """For each step, what it may read. Positions rise: `after{j}of{i}` follows position j."""
    for i in range(max_steps):
        earlier = [f'"{j}" after{j}of{i}' for j in range(i if positions else 0)]
        yield f"access{i}", f'"[" ({_either([CLOSE, ALL, *earlier])})'
        for j in range(len(earlier)):
            more = [f"{COMMA} ({_either(earlier[j + 1 :])})"] if j + 1 < i else []
            yield f"after{j}of{i}", _either([CLOSE, *more])


def _either(ways: Iterable[str]) -> str:
    return " | ".join(ways)

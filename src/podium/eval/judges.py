"""Judges: graders that may hang, each in a warm process of its own that is killed when it does.

math-verify keeps its time by signals, which work in the main thread only, and reasoning-gym not
at all. Here a judgement is one line to a child process and one line back; where the answer is
late the child is killed and another takes its place. A child has nothing of our environment,
bounded memory, and ends by itself when this process does. Its strings hash alike in every run, on
which some of reasoning-gym's problems depend.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal

from podium.errors import ConfigError

SECONDS = 5.0
"""For one judgement. A usual one takes milliseconds."""
START_SECONDS = 60.0
"""For a child to import what it judges with."""
MAKE_SECONDS = 300.0
"""For a thousand of reasoning-gym's problems, of a family that takes its time."""
MEMORY = 2 * 1024**3
"""Bytes of address space: towers of powers are written in a few characters."""
JUDGES = max(1, min(4, os.cpu_count() or 1))
CHARS = 8 * 1024
"""A longer expression is nobody's answer."""

Kind = Literal["math", "gym"]
PACKAGES: dict[Kind, tuple[str, str]] = {
    "math": ("math_verify", "math-verify"),
    "gym": ("reasoning_gym", "reasoning-gym"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    value: float | None
    """None: no verdict was reached, and `note` says why."""
    note: str = ""


class Judge:
    """One child. It knows no state, so that any of them can judge anything."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-sP", str(Path(__file__).with_name("judge_child.py")), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "PYTHONHASHSEED": "0"},
        )
        try:
            self._read(START_SECONDS)
        except (TimeoutError, BrokenPipeError):
            self.close()
            raise

    def ask(self, question: object, seconds: float) -> tuple[Any, str]:
        self._pipe(self._child.stdin).write(json.dumps(question).encode() + b"\n")
        self._pipe(self._child.stdin).flush()
        value, note = json.loads(self._read(seconds))
        return value, note

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(BrokenPipeError):
                self._pipe(pipe).close()

    def _read(self, seconds: float) -> bytes:
        # One line is asked for at a time, so nothing can be left waiting in a buffer.
        out = self._pipe(self._child.stdout)
        poll = select.poll()
        poll.register(out, select.POLLIN)
        if not poll.poll(1000 * seconds):
            raise TimeoutError
        line = out.readline()
        if not line:
            raise BrokenPipeError
        return line

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


class Bench:
    """As many judges as there are cores, started when first needed, lent to one thread each."""

    def __init__(self, judges: int) -> None:
        self._seats = threading.BoundedSemaphore(judges)
        self._idle: list[Judge] = []
        self._owner = os.getpid()

    @contextlib.contextmanager
    def lend(self) -> Iterator[Judge]:
        """A judge. One that fails its borrower is not lent again."""
        with self._seats:
            judge = self._idle.pop() if self._idle else Judge()
            try:
                yield judge
            except BaseException:
                judge.close()
                raise
            self._idle.append(judge)

    def close(self) -> None:
        """End the idle judges, unless they are those of a process that this one was forked from."""
        while self._idle and self._owner == os.getpid():
            self._idle.pop().close()


@cache
def _bench() -> Bench:
    bench = Bench(JUDGES)
    atexit.register(bench.close)
    os.register_at_fork(after_in_child=_bench.cache_clear)
    return bench


@cache
def _require(package: str, name: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(f"this grader needs {name}: pip install 'podium[eval]'")


def judge(kind: Kind, answer: str, target: object, *, seconds: float = SECONDS) -> Verdict:
    """What a judge of this kind says of the answer."""
    if len(answer) > CHARS:
        return Verdict(0.0, f"the stated answer is longer than {CHARS} characters")
    return Verdict(*_ask(kind, [kind, answer, target], seconds))


def make_problems(family: str, *, seed: int, size: int) -> list[tuple[str, str | None]]:
    """Questions and answers of one of reasoning-gym's families, the same for everybody."""
    job = ["make", family, {"seed": seed, "size": size}]
    made, note = _ask("gym", job, MAKE_SECONDS)
    if made is None:
        raise ConfigError(f"reasoning-gym: {note}")
    return [(question, answer) for question, answer in made]


def _ask(kind: Kind, job: object, seconds: float) -> tuple[Any, str]:
    _require(*PACKAGES[kind])
    try:
        with _bench().lend() as judge:
            return judge.ask(job, seconds)
    except TimeoutError:
        return None, f"the {kind} grader took over {seconds:g} s"
    except BrokenPipeError:
        return None, f"the {kind} grader died"

"""Run Python that a model wrote.

    async with Sandbox.open() as sandbox:
        done = await sandbox.run_program("print(input()[::-1])", "hello")
        print(done.outcome, done.stdout)

What holds: no network, no file of this machine but a Python and the system's libraries, an empty
environment, no privileges, another process tree, and bounds on time, memory, processes, files and
output. Each piece of code gets an interpreter that never ran another one; it waits, warm, until
it is needed, and is killed with all its children when it is done. Where these walls cannot be had
nothing is run at all: see `Sandbox.open`.

What does not: a fault of the kernel is a way out. The code can read what is shown to it (Python,
its packages, /usr/lib), can learn the machine's time and load, and can use its bounds to the full,
while memory of the kernel that serves it (empty files, say) is bounded by time alone.

Whether code is right is never decided where it runs. Expected values stay here: `run_program` and
`call_function` return what was said, `run_check` judges in a second sandbox. Only `run_unittests`
has to judge beside the code it judges; `suite` says how that is hardened, and what remains.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TypeVar, cast

from podium.errors import SandboxError
from podium.sandbox.child import Message, Opaque, decode, encode
from podium.sandbox.interpreter import LAST_WORDS_SECONDS, Interpreter, Outcome
from podium.sandbox.results import (
    NOTHING_RAN,
    Execution,
    Raised,
    Reply,
    Returned,
    TestReport,
    Verdict,
)
from podium.sandbox.walls import Bounds, Python, Walls

__all__ = [
    "Bounds",
    "Execution",
    "Opaque",
    "Outcome",
    "Raised",
    "Returned",
    "Sandbox",
    "TestReport",
    "Verdict",
]

T = TypeVar("T")


Conversation = Callable[[Interpreter], Awaitable[tuple[T, bool]]]
"""What is said to an interpreter that has its job: the value, and whether it was all said."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the walls are to be raised, once somebody needs them."""

    bounds: Bounds
    packages: tuple[Path, ...]
    python: Path | None
    bwrap: str
    unsandboxed: bool

    async def first(self) -> tuple[Walls, Interpreter]:
        python = await Python.at(self.python)
        try:
            walls = await Walls.bubblewrap(self.bwrap, python, self.bounds, self.packages)
            return await self._behind(walls)
        except SandboxError:
            if not self.unsandboxed:
                raise
        return await self._behind(Walls((), python, self.bounds, self.packages))

    async def _behind(self, walls: Walls) -> tuple[Walls, Interpreter]:
        with ExitStack() as undo:
            undo.callback(walls.close)
            first = await Interpreter.start(walls)
            undo.pop_all()
        return walls, first


class Sandbox:
    """Made by `Sandbox.open`. It starts with its first use, and belongs to one event loop."""

    def __init__(self, plan: _Plan, concurrency: int) -> None:
        self._plan = plan
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._raising = asyncio.Lock()
        self._walls: Walls | None = None
        self._warm: deque[asyncio.Future[Interpreter]] = deque()

    @staticmethod
    def open(
        *,
        bounds: Bounds | None = None,
        concurrency: int | None = None,
        packages: Sequence[Path] = (),
        python: Path | None = None,
        bwrap: str = "bwrap",
        allow_unsandboxed_execution: bool = False,
    ) -> Sandbox:
        """Prepare a sandbox. As a context manager it is tried out at once, and closed at the end.

        Args:
            bounds: what one piece of code may use.
            concurrency: how many run at once; by default one for each core.
            packages: directories of installed packages that the code may import from.
            python: the interpreter, if another than our own.
            bwrap: the name or path of bubblewrap.
            allow_unsandboxed_execution: where bubblewrap cannot be had, run code as this very user
                with nothing but resource limits and, where the kernel has it, Landlock. The code
                can then see and signal this user's processes, read the state of the system, send
                over the network (Landlock stops TCP alone) and outlive its end in a session of
                its own; as root it can start any number of processes. Give it only code that you
                would run yourself.
        """
        plan = _Plan(
            bounds or Bounds(), tuple(packages), python, bwrap, allow_unsandboxed_execution
        )
        return Sandbox(plan, concurrency or os.cpu_count() or 1)

    @property
    def bounds(self) -> Bounds:
        return self._plan.bounds

    async def __aenter__(self) -> Sandbox:
        await self.walls()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def walls(self) -> tuple[str, ...]:
        """Which walls stand around the code; they are raised now, if they were not up yet.

        Raises:
            SandboxError: they cannot be raised here. The message names what to install or allow.
        """
        return (await self._raised()).names

    async def close(self) -> None:
        """Kill the interpreters that wait. Those at work end with the task that uses them."""
        warm, self._warm = self._warm, deque()
        for start in warm:
            start.cancel()
        for done in await asyncio.gather(*warm, return_exceptions=True):
            if isinstance(done, Interpreter):
                await done.end()
        if self._walls is not None:
            self._walls.close()
            self._walls = None

    # -- what can be run

    async def run_program(
        self, code: str, stdin: str = "", *, seconds: float | None = None
    ) -> Execution[None]:
        """As `python program.py < stdin`. The outcome is ok if it exits with status 0."""
        job: Message = {"kind": "program", "code": code, "stdin": stdin}
        return await self._perform(job, _exit, seconds)

    async def call_function(
        self,
        code: str,
        name: str,
        calls: Sequence[tuple[Sequence[object], Mapping[str, object]]],
        *,
        seconds: float | None = None,
    ) -> Execution[tuple[Reply, ...]]:
        """What a function, or a method of a `Solution`, makes of each call's arguments.

        There are fewer replies than calls if the code did not live to answer all of them.
        """

        async def ask(interpreter: Interpreter) -> tuple[tuple[Reply, ...], bool]:
            replies: list[Reply] = []
            for args, kwargs in calls:
                interpreter.send({"args": encode(tuple(args)), "kwargs": encode(dict(kwargs))})
                reply = await _reply(interpreter)
                if reply is None:
                    return tuple(replies), False
                replies.append(reply)
            return tuple(replies), True

        return await self._perform({"kind": "calls", "code": code, "name": name}, ask, seconds)

    async def run_check(
        self, code: str, name: str, *, test: str, setup: str = "", seconds: float | None = None
    ) -> Execution[Verdict]:
        """Judge a function by a test that defines `check(candidate)`.

        The test runs in a sandbox of its own, after `setup`; the candidate it is given sends its
        arguments to the sandbox where the code is, and returns what comes back: plain values, so
        that nothing of the code reaches the test, and nothing of the test the code.

        Raises:
            SandboxError: the test itself cannot be loaded.
        """

        async def relay(candidate: Interpreter) -> tuple[Verdict, bool]:
            judge = await self._take()
            try:
                job: Message = {"kind": "judge", "setup": setup, "test": test, "name": name}
                judge.begin(job, seconds or self.bounds.seconds)
                verdict = await _relay(judge, candidate)
            finally:
                await judge.end()
            if judge.stopped is not None:
                candidate.stop(judge.stopped)
            return verdict or Verdict(False, judge.stopped or ""), verdict is not None

        return await self._perform({"kind": "calls", "code": code, "name": name}, relay, seconds)

    async def run_unittests(
        self,
        code: str,
        tests: str,
        *,
        libraries: Sequence[str] = (),
        seconds: float | None = None,
    ) -> Execution[TestReport]:
        """Run the `unittest` cases of `tests` in the namespace of `code`.

        What passes is run a second time with false assertions put in, and each test has to fail
        by them: see `suite` for this and for what cannot be excluded.

        Raises:
            SandboxError: the tests cannot be loaded, or one of the `libraries` is not there.
        """
        allowed = seconds or self.bounds.seconds
        job: Message = {
            "kind": "unittests",
            "code": code,
            "tests": tests,
            "libraries": list(libraries),
            "suite": files("podium.sandbox").joinpath("suite.py").read_text("utf-8"),
            "token": "",
        }
        done = await self._perform(job, _report, allowed)
        if done.outcome != "ok" or not done.value.passed:
            return done
        token = secrets.token_hex(8)
        again = await self._perform({**job, "token": token}, _report, 2 * allowed)
        return replace(done, value=_confirmed(done.value, again.value, token))

    # -- interpreters

    async def _perform(
        self, job: Message, converse: Conversation[T], seconds: float | None
    ) -> Execution[T]:
        async with self._slots:
            interpreter = await self._take()
            try:
                interpreter.begin(job, seconds or self.bounds.seconds)
                value, complete = await converse(interpreter)
                status = 0 if complete else await interpreter.exit_status(LAST_WORDS_SECONDS)
                spent = interpreter.seconds
            finally:
                await interpreter.end()
        outcome = "ok" if complete else _outcome(interpreter, status)
        return Execution(outcome, value, interpreter.stdout, interpreter.stderr, spent)

    async def _raised(self) -> Walls:
        async with self._raising:
            if self._walls is None:
                walls, first = await self._plan.first()
                landlock = (f"landlock {first.landlock}",) if first.landlock else ()
                self._walls = replace(walls, names=(*walls.names, *landlock))
                ready: asyncio.Future[Interpreter] = asyncio.get_running_loop().create_future()
                ready.set_result(first)
                self._warm.append(ready)
            return self._walls

    async def _take(self) -> Interpreter:
        """A fresh interpreter; others are started to take its place."""
        walls = await self._raised()
        while True:
            while len(self._warm) <= self._concurrency:
                self._warm.append(asyncio.create_task(Interpreter.start(walls)))
            start = self._warm.popleft()
            try:
                await asyncio.wait([start])
            except asyncio.CancelledError:
                self._warm.appendleft(start)
                raise
            if start.result().alive:
                return start.result()
            await start.result().end()


# -- conversations


async def _exit(interpreter: Interpreter) -> tuple[None, bool]:
    return None, await interpreter.exit_status() == 0 and interpreter.stopped is None


async def _reply(interpreter: Interpreter) -> Reply | None:
    message = await interpreter.receive()
    if message is None:
        return None
    with suppress(LookupError, TypeError, ValueError, RecursionError):
        if "returned" in message:
            return Returned(decode(message["returned"]))
        kind, text = cast(list[str], message["raised"])
        return Raised(str(kind), str(text))
    interpreter.stop("forged")
    return None


async def _relay(judge: Interpreter, candidate: Interpreter) -> Verdict | None:
    """Carry calls and replies to and fro until the judge has its verdict."""
    calls = 0
    while (message := await judge.receive()) is not None:
        if "args" not in message:
            return _verdict(message, calls)
        calls += 1
        candidate.send(message)
        reply = await candidate.receive()
        if reply is None:
            return None
        try:
            judge.send(reply)
        except ValueError:  # nested too deep to be a value of anyone's
            candidate.stop("forged")
            return None
    return None


def _verdict(message: Message, calls: int) -> Verdict:
    if "broken" in message:
        raise SandboxError(f"the check cannot be loaded: {message['broken']}")
    if message["failed"] is not None:
        return Verdict(False, str(message["failed"]))
    return Verdict(True) if calls else Verdict(False, "the check never called the function")


async def _report(interpreter: Interpreter) -> tuple[TestReport, bool]:
    """First whether the tests can be run, which the code has no part in; then what they found."""
    prepared = await interpreter.receive()
    if prepared is not None and prepared["broken"] is not None:
        raise SandboxError(f"the tests cannot be run: {prepared['broken']}")
    message = await interpreter.receive()
    if message is None:
        return NOTHING_RAN, False
    ran, failed = message.get("ran"), message.get("failed")
    if not isinstance(ran, list) or not isinstance(failed, dict):
        interpreter.stop("forged")
        return NOTHING_RAN, False
    whys = {test: str(why) for test, why in failed.items()}
    return TestReport(tuple(map(str, ran)), whys), True


def _confirmed(report: TestReport, sabotaged: TestReport, token: str) -> TestReport:
    """The report, if every test that passed failed by the false assertion put into it."""
    why = "it passes, or fails otherwise, where an assertion that cannot hold was put into it"
    unmoved = {test: why for test in report.ran if token not in sabotaged.failed.get(test, "")}
    return replace(report, failed=unmoved)


def _outcome(interpreter: Interpreter, status: int) -> Outcome:
    if interpreter.stopped is not None:
        return interpreter.stopped
    if status in (128 + signal.SIGXCPU, -signal.SIGXCPU):
        return "timeout"
    if status > 128 or status < 0:
        return "killed"
    return "memory" if _LAST_LINE_OF_MEMORY in interpreter.stderr[-200:] else "error"


_LAST_LINE_OF_MEMORY = "\nMemoryError"

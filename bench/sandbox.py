"""Attack the sandbox, cheat its graders, and time it.

    python bench/sandbox.py

Every attack is judged from outside: whether a secret came out, someone who listens was reached, a
bystander died, the bounds were passed, or anything was left behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from attacks import ATTACKS, LIBC
from cheats import CHEATS, HONEST, WRONG
from podium.eval.code import Case, grade_check, grade_function, grade_program, grade_unittests
from podium.eval.graders import Score
from podium.sandbox import Bounds, Execution, Sandbox

BOUNDS = Bounds(seconds=3.0, memory=512 << 20, processes=32, disk=64 << 20)
SLACK = 1.0
"""Seconds after its time by which a program must be gone."""
TRIED = "tried all"
"""What an attack prints that came to its end."""
PROGRAMS, ROUNDS = 100, 3


# -- attacks


@dataclass
class Outside:
    """What an attack could reach, if it could reach anything."""

    secret: str
    """Known to no attack; it is in the file and in our environment."""
    mark: str
    """Part of the name of all that an attack creates."""
    file: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    victim: subprocess.Popen[bytes]

    def fill(self, code: str) -> str:
        values = {
            "file": self.file,
            "mark": self.mark,
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": self.unix.getsockname(),
            "abstract": self.abstract.getsockname()[1:].decode(),
            "victim": self.victim.pid,
        }
        text = f"{LIBC}\n{textwrap.dedent(code)}\nprint('{TRIED}')"
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def reached(self) -> str:
        for name in ("tcp", "unix", "abstract"):
            with suppress(BlockingIOError):
                getattr(self, name).accept()
                return f"it connected to the {name} socket outside"
        with suppress(BlockingIOError):
            self.udp.recv(100)
            return "its datagram arrived outside"
        if self.victim.poll() is not None:
            return "it killed a bystander"
        places = ("/tmp", "/dev/shm", "/var/tmp", "/run", "/mnt", ".")
        left = [p for place in places for p in Path(place).glob(f"*{self.mark}*")]
        return f"it left {left[0]}" if left else ""


@contextmanager
def outside() -> Iterator[Outside]:
    secret, mark = secrets.token_hex(8), secrets.token_hex(8)
    os.environ["PODIUM_BENCH_SECRET"] = secret
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        file = Path(directory) / "secret"
        file.write_text(secret)
        tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        unix.bind(f"{directory}/socket")
        Path(f"{directory}/socket").chmod(0o777)
        abstract.bind(f"\0podium-bench-{os.getpid()}")
        for listener in (unix, abstract):
            listener.listen()
        for each in (tcp, udp, unix, abstract):
            each.setblocking(False)
        same_user = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        victim = subprocess.Popen(["sleep", "600"], **same_user)
        try:
            yield Outside(secret, mark, file, tcp, udp, unix, abstract, victim)
        finally:
            victim.kill()
            victim.wait()
            for each in (tcp, udp, unix, abstract):
                each.close()


class Watcher:
    """Looks at the processes of a sandbox from outside while it runs."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.most_processes = 0
        self.most_memory = 0

    async def watch(self) -> None:
        ours = _namespace(os.getpid())
        while True:
            pids = [pid for pid in _descendants(os.getpid()) if _namespace(pid) not in (ours, "")]
            self.namespaces |= {_namespace(pid) for pid in pids} - {""}
            self.most_processes = max(self.most_processes, sum(map(_threads, pids)))
            self.most_memory = max(self.most_memory, sum(map(_memory, pids)))
            await asyncio.sleep(0.02)

    def left(self) -> list[int]:
        everyone = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in everyone if _namespace(pid) in self.namespaces]


def _namespace(pid: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from _descendants(child)


def _threads(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    return 0


def _memory(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE")
    return 0


async def attack(code: str, world: Outside) -> str:
    """Why it was not contained, or nothing."""
    watcher = Watcher()
    watching = asyncio.create_task(watcher.watch())
    started = time.monotonic()
    async with Sandbox.open(bounds=BOUNDS, concurrency=1) as sandbox:
        started = time.monotonic()
        done = await sandbox.run_program(world.fill(code))
        took = time.monotonic() - started
    watching.cancel()
    return (
        said(done, world.secret)
        or world.reached()
        or (f"{len(watcher.left())} processes are left" if watcher.left() else "")
        or (f"it took {took:.1f} s" if took > BOUNDS.seconds + SLACK else "")
        # two interpreters, each with two processes of bubblewrap, are there besides
        or over("processes", watcher.most_processes, BOUNDS.processes + 12)
        or over("bytes of memory", watcher.most_memory, int(BOUNDS.memory * 1.5))
    )


def said(done: Execution[None], secret: str) -> str:
    if done.outcome in ("ok", "error") and TRIED not in done.stdout:
        return f"it could not even be tried: {done.stderr}"
    if secret in done.stdout + done.stderr:
        return "the secret is out"
    return next((line for line in done.stdout.splitlines() if "ESCAPED" in line), "")


def over(what: str, count: int, most: int) -> str:
    return f"it had {count} {what} where {most} are allowed" if count > most else ""


async def attacks() -> int:
    contained = 0
    with outside() as world:
        for name, code in ATTACKS.items():
            why = await attack(code, world)
            contained += not why
            print(f"{'NOT CONTAINED: ' + why if why else 'contained':<24} {name}")
    return contained


# -- cheats

CASES = [Case([[1, 2, 3]], 6), Case([[10, 20]], 30)]
INPUTS = [("1 2 3\n", "6\n"), ("10 20\n", "30\n")]
PROMPT = 'def total(numbers):\n    """The sum of the numbers."""\n'
CHECK = """
def check(candidate):
    import math
    expected = 6
    assert candidate([1, 2, 3]) == expected
    assert math.isclose(candidate([10, 20]), 30)
"""
TESTS = """
import json
import math
import unittest
class Tests(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2, 3]), 6)
    def test_close(self):
        expected = 30
        self.assertTrue(math.isclose(total([10, 20]), expected))
    def test_plain(self):
        assert total([1, 2, 3]) == 6
    def test_json(self):
        self.assertEqual(json.loads(json.dumps([total([4])])), [4])
"""


async def grades(sandbox: Sandbox, code: str) -> dict[str, Score]:
    program = f"{code}\nimport sys\nprint(total([int(n) for n in sys.stdin.read().split()]))"
    return {
        "function": await grade_function(sandbox, code, name="total", cases=CASES),
        "program": await grade_program(sandbox, program, cases=INPUTS),
        "check": await grade_check(
            sandbox, code, prompt=PROMPT, test=CHECK, entry_point="total"
        ),
        "unittests": await grade_unittests(sandbox, code, tests=TESTS),
    }  # fmt: skip


async def cheats() -> int:
    passed = 0
    async with Sandbox.open(bounds=BOUNDS) as sandbox:
        honest = await grades(sandbox, HONEST)
        if any(score.value != 1.0 for score in honest.values()):
            raise SystemExit(f"the honest solution fails: {honest}")
        for name, code in {"is just wrong": WRONG, **CHEATS}.items():
            scores = await grades(sandbox, code)
            through = [kind for kind, score in scores.items() if score.value != 0.0]
            passed += bool(through)
            print(f"{'PASSED by ' + ', '.join(through) if through else 'scored 0':<24} {name}")
    return passed


# -- speed


async def starts() -> float:
    """Milliseconds from asking for a program to its first line, as a median."""
    code = "import time; print(time.monotonic())"
    spans = []
    async with Sandbox.open(concurrency=1) as sandbox:
        for _ in range(30):
            asked = time.monotonic()
            done = await sandbox.run_program(code)
            spans.append(float(done.stdout) - asked)
            await asyncio.sleep(0.1)  # others are warm again
    return statistics.median(spans) * 1000


async def throughput() -> tuple[float, float]:
    """Programs a second on two cores, sandboxed and bare, by turns: the machine may be busy."""
    walled, bare = [], []
    async with Sandbox.open(concurrency=2) as sandbox:
        for _ in range(ROUNDS):
            began = time.monotonic()
            await asyncio.gather(*(sandbox.run_program("print(6)") for _ in range(PROGRAMS)))
            walled.append(PROGRAMS / (time.monotonic() - began))
            bare.append(await asyncio.to_thread(throughput_bare))
    return statistics.median(walled), statistics.median(bare)


def throughput_bare() -> float:
    command = [sys.executable, "-I", "-S", "-c", "print(6)"]
    with ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        list(pool.map(lambda _: subprocess.run(command, capture_output=True), range(PROGRAMS)))
        return PROGRAMS / (time.monotonic() - began)


async def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("something inside reached us"))
    result = {
        "contained": await attacks(),
        "attacks": len(ATTACKS),
        "cheats_passed": await cheats(),
        "cheats": len(CHEATS) + 1,
        "median_start_ms": round(await starts(), 2),
    }
    walled, bare = await throughput()
    result |= {"programs_per_s": round(walled, 1), "programs_per_s_bare": round(bare, 1)}
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())

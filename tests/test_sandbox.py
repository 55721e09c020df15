"""What code that a model wrote can do, and above all what it can't."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from podium.errors import SandboxError, WorkerError
from podium.ledger import Ledger
from podium.sandbox import Bounds, Opaque, Raised, Returned, Sandbox
from podium.sandbox.child import decode, encode
from podium.types import Request, Seen
from podium.workers import Call
from podium.workers.python import PythonWorker

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUNDS = Bounds(seconds=20.0, memory=256 << 20, disk=4 << 20, output=64 << 10, processes=16)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.open(bounds=BOUNDS) as opened:
        yield opened


def descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from descendants(child)


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


async def until(condition: Callable[[], bool]) -> None:
    """What other processes do has no event to wait for."""
    give_up = time.monotonic() + 20

    def wait() -> None:
        while not condition():
            assert time.monotonic() < give_up
            time.sleep(0.01)

    await asyncio.to_thread(wait)


# -- programs


async def test_a_program_reads_its_input_and_its_output_comes_back(sandbox: Sandbox):
    done = await sandbox.run_program("print(input()[::-1])", "olleh\n")
    assert (done.outcome, done.stdout, done.stderr) == ("ok", "hello\n", "")


async def test_a_program_that_fails_shows_its_own_lines_and_none_of_ours(sandbox: Sandbox):
    done = await sandbox.run_program("def f():\n    return 1 / 0\nf()")
    assert done.outcome == "error"
    assert "return 1 / 0" in done.stderr and "ZeroDivisionError" in done.stderr
    assert "child.py" not in done.stderr and "<string>" not in done.stderr


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("raise SystemExit(0)", "ok"),
        ("raise SystemExit(3)", "error"),
        ("this is no Python", "error"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(60)", "timeout"),
        ("x = bytearray(1 << 30)", "memory"),
        ("while True: print('x' * 1000)", "output"),
        ("import ctypes; ctypes.string_at(0)", "killed"),
    ],
)
async def test_how_a_program_ended_is_told(sandbox: Sandbox, code: str, outcome: str):
    seconds = 0.5 if outcome == "timeout" else None
    assert (await sandbox.run_program(code, seconds=seconds)).outcome == outcome


async def test_memory_is_bounded_over_all_processes_together(sandbox: Sandbox):
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        block = b"x" * (100 << 20)
        time.sleep(60)
time.sleep(60)
"""
    assert (await sandbox.run_program(code)).outcome == "memory"


async def test_a_fork_bomb_runs_into_its_bound_and_is_gone_with_its_time(sandbox: Sandbox):
    code = """
import os
made = 0
try:
    while True:
        if os.fork() == 0:
            while True: pass
        made += 1
except OSError:
    print(made, flush=True)
while True: pass
"""
    done = await sandbox.run_program(code, seconds=1.0)
    assert done.outcome == "timeout"
    assert 0 < int(done.stdout) < BOUNDS.processes


async def test_what_it_may_write_is_bounded(sandbox: Sandbox):
    code = "with open('/tmp/big', 'wb') as out:\n    for _ in range(8): out.write(bytes(1 << 20))"
    done = await sandbox.run_program(code)
    assert done.outcome == "error"
    assert "No space left" in done.stderr or "File too large" in done.stderr


async def test_no_program_finds_what_another_left(sandbox: Sandbox):
    leave = "import builtins, sys; builtins.trace = 1; open('/tmp/trace', 'w').write('here')"
    seek = "import builtins, os; print(hasattr(builtins, 'trace'), os.listdir('/tmp'))"
    assert (await sandbox.run_program(leave)).outcome == "ok"
    assert (await sandbox.run_program(seek)).stdout == "False []\n"


@pytest.mark.parametrize(
    "code",
    [
        "open('{file}').read()",
        "open('/etc/passwd').read()",
        "import os; os.listdir('/proc')",
        "open('/usr/lib/new', 'w')",
        "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "import os; os.kill({pid}, 9)",
        "import os; os.setuid(0)",
        "import os; os.chroot('/tmp')",
        "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])",
        "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
        "import ctypes; assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ],
)
async def test_the_walls_hold(sandbox: Sandbox, code: str, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    filled = code.format(file=secret, port=port, pid=os.getpid())
    done = await sandbox.run_program(filled + "\nprint('through')")
    server.close()
    assert done.outcome == "error" and "through" not in done.stdout


async def test_it_is_nobody_with_an_empty_environment(sandbox: Sandbox, monkeypatch):
    monkeypatch.setenv("PODIUM_TEST_KEY", "sk-secret")
    done = await sandbox.run_program("import os; print(os.getuid(), os.getgid(), dict(os.environ))")
    assert done.stdout.startswith("65534 65534")
    assert "PODIUM_TEST_KEY" not in done.stdout


async def test_all_three_walls_stand(sandbox: Sandbox):
    walls = await sandbox.walls()
    assert walls[:2] == ("bubblewrap", "seccomp")


# -- functions


async def test_a_function_returns_values_of_their_own_types(sandbox: Sandbox):
    code = "def f(*args, **kwargs): return args, kwargs"
    given_ = ((1, "a", None, True, 2.5, [1, (2,)], {3: {4}}, b"x", 2**100), {"k": 1j})
    done = await sandbox.call_function(code, "f", [given_])
    assert done.value == (Returned(given_),)


async def test_what_a_function_raises_is_a_reply_too_and_the_next_call_still_comes(
    sandbox: Sandbox,
):
    code = "def f(x):\n    print('seen', x)\n    return 10 // x"
    done = await sandbox.call_function(code, "f", [((0,), {}), ((5,), {})])
    assert done.value == (
        Raised("ZeroDivisionError", "integer division or modulo by zero"),
        Returned(2),
    )
    assert done.outcome == "ok" and done.stdout == "seen 0\nseen 5\n"


async def test_a_method_of_a_solution_is_found(sandbox: Sandbox):
    code = "class Solution:\n    def double(self, x): return x * 2"
    assert (await sandbox.call_function(code, "double", [((4,), {})])).value == (Returned(8),)


async def test_replies_before_the_end_are_kept(sandbox: Sandbox):
    code = "import os\ndef f(x):\n    if x: os._exit(0)\n    return x"
    done = await sandbox.call_function(code, "f", [((0,), {}), ((1,), {}), ((0,), {})])
    assert done.outcome == "error" and done.value == (Returned(0),)


async def test_an_object_is_opaque_and_equals_nothing(sandbox: Sandbox):
    code = "class Any:\n    def __eq__(self, other): return True\ndef f(): return [Any()]"
    (reply,) = (await sandbox.call_function(code, "f", [((), {})])).value
    assert isinstance(reply, Returned) and isinstance(reply.value, list)
    assert isinstance(reply.value[0], Opaque) and reply.value[0] != 1


@pytest.mark.parametrize("line", ['{"returned": 6}', "x" * 500_000, "", "[" * 20_000])
async def test_what_is_forged_on_the_channel_is_refused(sandbox: Sandbox, line: str):
    code = f"""
import os
def f():
    for fd in range(3, 64):
        try: os.write(fd, {line!r}.encode() + b"\\n")
        except OSError: pass
    return 6
"""
    done = await sandbox.call_function(code, "f", [((), {})])
    assert done.outcome in ("forged", "output") and done.value == ()


keys = st.booleans() | st.integers() | st.text() | st.binary()
plain = st.recursive(
    keys | st.none() | st.floats() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner),
)


def sent(value: object) -> object:
    return decode(json.loads(json.dumps(encode(value))))


@given(plain, st.frozensets(keys))
async def test_every_plain_value_comes_back_as_it_was(value: object, chosen: frozenset[object]):
    assert repr(sent(value)) == repr(value)
    assert (sent(chosen), sent(set(chosen))) == (chosen, set(chosen))


# -- checks and unit tests

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate([1]) == [1, 1]"


@pytest.mark.parametrize(("body", "passed"), [("x * 2", True), ("4", False), ("x / 0", False)])
async def test_a_check_is_judged_in_another_sandbox(sandbox: Sandbox, body: str, passed: bool):
    done = await sandbox.run_check(f"def f(x): return {body}", "f", test=CHECK)
    assert done.value.passed is passed
    assert passed or "assert" in done.value.note or "ZeroDivisionError" in done.value.note


async def test_a_check_that_calls_nothing_passes_nobody(sandbox: Sandbox):
    done = await sandbox.run_check("def f(): pass", "f", test="def check(candidate): pass")
    assert not done.value.passed


async def test_a_check_that_cannot_be_loaded_is_our_failure(sandbox: Sandbox):
    with pytest.raises(SandboxError, match="check cannot be loaded"):
        await sandbox.run_check("def f(): pass", "f", test="def check(candidate:")


TESTS = """
import unittest
class Tests(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(4), 8)
    def test_errors(self):
        with self.assertRaises(TypeError):
            double()
"""


async def test_unit_tests_see_the_names_of_the_code(sandbox: Sandbox):
    done = await sandbox.run_unittests("def double(x): return x * 2", TESTS)
    assert done.value.passed and len(done.value.ran) == 2


async def test_the_unit_test_that_fails_is_named_with_its_reason(sandbox: Sandbox):
    done = await sandbox.run_unittests("def double(x): return x * 3", TESTS)
    assert list(done.value.failed) == ["solution.Tests.test_double"]
    assert "12 != 8" in done.value.failed["solution.Tests.test_double"]


@pytest.mark.parametrize("tests", ["import unittest", "x = 1", TESTS.replace("test_", "text_")])
async def test_a_suite_without_tests_does_not_pass(sandbox: Sandbox, tests: str):
    done = await sandbox.run_unittests("def double(x): return x * 2", tests)
    assert not done.value.passed


async def test_tests_that_pass_in_their_own_ways_are_believed(sandbox: Sandbox):
    tests = """
import asyncio
import unittest
from unittest import mock
class Tests(unittest.IsolatedAsyncioTestCase):
    async def test_awaited(self):
        await asyncio.sleep(0)
        self.assertEqual(double(1), 2)
    @mock.patch("time.time", return_value=5)
    def test_patched(self, clock):
        import time
        self.assertEqual(double(time.time()), 10)
        clock.assert_called_once()
    def test_anything(self):
        self.assertEqual(double(1), mock.ANY)
    def test_loop(self):
        for number in range(3):
            with self.subTest(number=number):
                assert double(number) == number + number
    def test_try(self):
        try:
            double(None)
            self.fail("it should have raised")
        except TypeError:
            pass
    def test_silent(self):
        double(3)
    def test_call(self):
        self.assertRaises(TypeError, double)
"""
    done = await sandbox.run_unittests("def double(x): return x * 2", tests)
    assert done.value.passed, done.value.failed
    assert len(done.value.ran) == 7


async def test_a_missing_library_is_not_the_fault_of_the_code(sandbox: Sandbox):
    with pytest.raises(SandboxError, match="no_such_library"):
        await sandbox.run_unittests("", TESTS, libraries=["no_such_library"])


# -- the sandbox itself


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    (tmp_path / "shown.py").write_text("value = 7")
    tmp_path.chmod(0o755)
    return tmp_path


async def test_packages_can_be_shown_to_the_code(packages: Path):
    async with Sandbox.open(packages=[packages], concurrency=1) as sandbox:
        done = await sandbox.run_program("import shown; print(shown.value)")
    assert done.stdout == "7\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are out of reach of nobody")
async def test_packages_that_nobody_can_read_are_refused_by_name(tmp_path: Path):
    sandbox = Sandbox.open(packages=[tmp_path])
    with pytest.raises(SandboxError, match=f"chmod -R o=rX {tmp_path}"):
        await sandbox.walls()
    await sandbox.close()


async def test_packages_that_are_not_there_are_refused_by_name(tmp_path: Path):
    sandbox = Sandbox.open(packages=[tmp_path / "missing"])
    with pytest.raises(SandboxError, match="missing"):
        await sandbox.walls()
    await sandbox.close()


async def test_no_more_run_at_once_than_asked_for():
    code = "import time; a = time.monotonic(); time.sleep(0.1); print(a, time.monotonic())"
    async with Sandbox.open(concurrency=1) as sandbox:
        done = await asyncio.gather(*(sandbox.run_program(code) for _ in range(3)))
    spans = sorted(tuple(map(float, each.stdout.split())) for each in done)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


async def test_cancelling_and_closing_leave_no_process_behind():
    before = set(descendants(os.getpid()))
    async with Sandbox.open(concurrency=2) as sandbox:
        code = "import os, time\nos.fork() or os.setsid()\nos.fork()\ntime.sleep(60)"
        running = asyncio.create_task(sandbox.run_program(code, seconds=60))
        await until(lambda: len(set(descendants(os.getpid())) - before) >= 8)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert set(descendants(os.getpid())) == before


async def test_when_we_are_killed_the_code_dies_with_us():
    script = """
import asyncio
from podium.sandbox import Sandbox
async def main():
    async with Sandbox.open(concurrency=1) as sandbox:
        print("open", flush=True)
        await sandbox.run_program("while True: pass", seconds=60)
asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    await until(lambda: len(list(descendants(process.pid))) >= 4)
    inside = list(descendants(process.pid))
    process.kill()
    await process.wait()
    await until(lambda: not any(map(alive, inside)))


async def test_without_bubblewrap_nothing_runs_and_the_package_is_named():
    sandbox = Sandbox.open(bwrap="no-such-bwrap")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        await sandbox.run_program("print(1)")
    await sandbox.close()


async def test_where_bubblewrap_cannot_start_the_reason_is_given():
    sandbox = Sandbox.open(bwrap="ls")
    with pytest.raises(SandboxError, match=r"cannot start: .*ls: unrecognized option"):
        await sandbox.run_program("print(1)")
    await sandbox.close()


def directories() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("podium-*"))


async def test_without_walls_code_runs_only_if_it_is_allowed_by_name():
    before = directories()
    async with Sandbox.open(
        bwrap="no-such-bwrap", allow_unsandboxed_execution=True, concurrency=1
    ) as sandbox:
        assert "bubblewrap" not in await sandbox.walls()
        assert (await sandbox.run_program("print(6)")).stdout == "6\n"
        loop = await sandbox.run_program("while True: pass", seconds=0.2)
        assert loop.outcome == "timeout"
    assert directories() == before


def as_someone(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the system's Python as a user who is not root and owns nothing."""
    user = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.defpath}
    command = [*user, "/usr/bin/python3", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
async def test_it_works_for_other_users_than_root():
    script = """
import asyncio
from podium.sandbox import Sandbox
async def main():
    async with Sandbox.open(concurrency=1) as sandbox:
        assert (await sandbox.walls())[0] == "bubblewrap"
        code = "import os; print(os.getuid(), os.path.exists('/etc'))"
        print((await sandbox.run_program(code)).stdout)
asyncio.run(main())
"""
    if as_someone("import podium.sandbox").returncode != 0:
        pytest.skip("another user has no Python here that can read this package")
    done = as_someone(script)
    assert done.stdout.split() == ["65534", "False"], done.stderr


# -- the worker


async def ask(worker: PythonWorker, *outputs: str) -> str:
    seen = tuple(Seen("writer", "write it", output) for output in outputs)
    return (await worker.complete(Request((), seen), Call(Ledger()))).text


async def test_the_worker_runs_the_last_code_it_may_read_and_says_what_happened(sandbox: Sandbox):
    worker = PythonWorker(sandbox=sandbox)
    said = await ask(
        worker, "```python\nprint(1)\n```", "Now:\n```python\nprint(6 * 7)\n```\nDone."
    )
    assert "ran to its end" in said and "42" in said
    failed = await ask(worker, "```python\nprint('so far')\nraise ValueError('no')\n```")
    assert "failed" in failed and "so far" in failed and "ValueError: no" in failed


async def test_the_worker_reports_long_output_in_part(sandbox: Sandbox):
    said = await ask(PythonWorker(sandbox=sandbox), "```python\nprint('x' * 20000)\n```")
    assert len(said) < 5000 and "characters left out" in said


async def test_the_worker_refuses_where_there_is_no_code_or_no_sandbox(sandbox: Sandbox):
    with pytest.raises(WorkerError, match="no code") as refused:
        await ask(PythonWorker(sandbox=sandbox))
    assert not refused.value.retryable
    for prose in ("Paris", "The answer is not a question."):
        with pytest.raises(WorkerError, match="no code"):
            await ask(PythonWorker(sandbox=sandbox), prose)
    with pytest.raises(SandboxError, match="bubblewrap"):
        await ask(PythonWorker(sandbox=Sandbox.open(bwrap="no-such-bwrap")), "print(1)")

"""The program inside the walls: it raises the last ones, does one job, and ends.

Its parent starts it before there is anything to do, so it waits, warm, on a channel. What the
parent says there is marshalled, since the parent can be trusted; what goes back is a line of JSON
after a nonce that came with the job, while all that untrusted code prints goes elsewhere. Four
jobs exist: run a program; answer calls of a function; judge a function that lives in another
sandbox; run a suite of unit tests.

Only the standard library is at hand here, and as little of it as can be: every import is paid for
by every program. The parent imports `encode` and `decode`, so that both sides speak one language
of values.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import stat
import sys

Message = dict[str, object]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ast import Module
    from collections.abc import Callable, Mapping
    from types import ModuleType, TracebackType
    from typing import Any

    Receive = Callable[[], Message | None]
    Send = Callable[[Message], None]

PROGRAM, SOLUTION, TESTS = "program.py", "solution.py", "tests.py"
"""What untrusted code, and the tests, are called in a traceback."""

DETAIL = 2000
"""Characters of an explanation that are sent home: its end, where the error is named."""


# -- values: plain JSON where it is exact, and otherwise an object whose one key is the type


class Opaque:
    """A value that is no plain data: it is known by name and looks, and equals nothing."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.text}>"


def encode(value: object) -> object:
    """A value as JSON. Whoever compares sees only what is decoded from it: no class has a say."""
    if value is None or isinstance(value, bool | str):
        return value if type(value) in (str, bool) or value is None else str(value)
    if isinstance(value, int):
        return int(value) if -(2**63) < value < 2**63 else {"int": hex(value)}
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else {"float": repr(float(value))}
    return _encode_compound(value)


def _encode_compound(value: object) -> object:
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if hasattr(value, "tolist"):  # arrays and their scalars, of whatever library
        return encode(value.tolist())
    return {"object": [type(value).__qualname__, _looks(value)]}


def _looks(value: object, show: Callable[[object], str] = repr) -> str:
    with Caught() as caught:
        return show(value)[:DETAIL]
    return f"cannot be shown: {type(caught.error).__name__}"


_DECODERS: dict[str, Callable[..., object]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "object": lambda parts: Opaque(*parts),
    "dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
    "tuple": lambda items: tuple(decode(item) for item in items),
    "set": lambda items: {decode(item) for item in items},
    "frozenset": lambda items: frozenset(decode(item) for item in items),
}


def decode(data: object) -> Any:
    """The value that was encoded. What no `encode` wrote raises LookupError, Type or ValueError."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if isinstance(data, dict):
        ((tag, inner),) = data.items()
        return _DECODERS[tag](inner)
    return data


# -- the walls that can only be raised from within


def limit(limits: Mapping[str, int]) -> None:
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def limit_cpu(seconds: int) -> None:
    """A signal that names the reason, and a second later the one that cannot be ignored."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls; their numbers are the same on every architecture."""
_NO_NEW_PRIVILEGES = 38
_READ = 0b1101
"""Execute and read files, list directories."""
_OF_FILES = 0xC007
"""Those rights that make sense for what is no directory."""
_FS_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
"""Every right on files that a version of Landlock knows; from version 5 on there is one more."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def confine(readable: list[str], writable: list[str]) -> int:
    """Landlock: no file but beneath these, no TCP, no signal or socket to the outside.

    Returns its version, or 0 where the kernel has none.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(_CREATE_RULESET, None, 0, 1))
    if version < 1:
        return 0
    every = _FS_RIGHTS.get(version, 0xFFFF)
    rules = _Ruleset(every, 0b11, 0b11)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0))
    for path in (*readable, *writable):
        beneath = os.open(path, os.O_PATH)
        rights = every if path in writable else _READ
        rule = _PathRule(rights if _is_directory(beneath) else rights & every & _OF_FILES, beneath)
        _checked(libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0))
        os.close(beneath)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    return version


def _is_directory(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


# -- untrusted code


class Caught:
    """Catches whatever untrusted code raises, be it SystemExit or an exception of its own."""

    error: BaseException | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        self.error = error
        return True


def load(code: str, name: str, filename: str) -> ModuleType:
    """Run code as a module of its own."""
    module = type(sys)(name)
    module.__file__ = filename
    sys.modules[name] = module
    extend(module, code, filename)
    return module


_sources: dict[str, str] = {}


def extend(module: ModuleType, code: str, filename: str, tree: Module | None = None) -> None:
    """Run code in a module; or rather a tree made of it, if there is one."""
    _sources[filename] = code
    exec(compile(tree or code, filename, "exec"), vars(module))


def explain(error: BaseException) -> str:
    """The traceback with its source lines, without our own frames."""
    import linecache
    import traceback

    for name, code in _sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in _sources:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def run_program(job: Message) -> None:
    """As `python program.py < stdin`, exit status included."""
    with os.fdopen(os.open(".", os.O_TMPFILE | os.O_RDWR), "w+b") as feed:
        feed.write(str(job["stdin"]).encode("utf-8", "surrogatepass"))
        feed.seek(0)
        os.dup2(feed.fileno(), 0)
    sys.argv[:] = [PROGRAM]
    with Caught() as caught:
        load(str(job["code"]), "__main__", PROGRAM)
    if isinstance(caught.error, SystemExit):
        raise caught.error
    if caught.error is not None:
        sys.stdout.flush()
        sys.stderr.write(explain(caught.error))
        sys.exit(1)


def answer_calls(job: Message, receive: Receive, send: Send) -> None:
    """Load a function, then answer call after call until no more come."""
    with Caught() as caught:
        module = load(str(job["code"]), "solution", SOLUTION)
        find(module, str(job["name"]))
    if caught.error is not None:
        sys.stderr.write(explain(caught.error))
        sys.exit(1)
    while (call := receive()) is not None:
        send(answer(module, str(job["name"]), call))


def find(module: ModuleType, name: str) -> Callable[..., object]:
    """The method of that name of a fresh `Solution`, or else a function of the module.

    In this order, because a module may have imported another function of the same name.
    """
    solution = getattr(module, "Solution", None)
    owner = solution() if hasattr(solution, name) and solution is not None else module
    function: Callable[..., object] = getattr(owner, name)
    return function


def answer(module: ModuleType, name: str, call: Message) -> Message:
    with Caught() as caught:
        args, kwargs = decode(call["args"]), decode(call["kwargs"])
        return {"returned": encode(find(module, name)(*args, **kwargs))}
    error = caught.error
    return {"raised": [type(error).__name__, _looks(error, str)]}


def judge(job: Message, receive: Receive, send: Send) -> None:
    """Run `check(candidate)`, where the candidate is a call to another sandbox and back."""

    def candidate(*args: object, **kwargs: object) -> object:
        send({"args": encode(args), "kwargs": encode(kwargs)})
        reply = receive() or {"raised": ["SystemExit", "the candidate is gone"]}
        if "raised" in reply:
            raise _raised(reply["raised"])
        return decode(reply["returned"])

    with Caught() as broken:
        module = load(str(job["setup"]), "check", "setup.py")
        vars(module)[str(job["name"])] = candidate
        extend(module, str(job["test"]), TESTS)
        check = module.check
    if broken.error is not None:
        return send({"broken": explain(broken.error)[-DETAIL:]})
    with Caught() as caught:
        check(candidate)
    error = caught.error
    send({"failed": explain(error)[-DETAIL:] if error is not None else None})


def run_suite(job: Message, _: Receive, send: Send) -> None:
    """Run unit tests by `suite.py`, whose text comes with the job: few jobs need it."""
    sys.modules["podium.sandbox.child"] = sys.modules["__main__"]
    suite: dict[str, Callable[[Message, Send], None]] = {}
    exec(compile(str(job.pop("suite")), "suite.py", "exec"), suite)
    del sys.modules["podium.sandbox.child"]
    suite["run"](job, send)


def _raised(error: object) -> BaseException:
    import builtins

    kind, text = error if isinstance(error, list) else ("", "")
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        with Caught():
            return known(text)
    return RuntimeError(f"{kind}: {text}")


# -- one job


def pack(message: Message) -> bytes:
    """A message from the parent as bytes, their number first."""
    body = marshal.dumps(message, 2)
    return len(body).to_bytes(4, "big") + body


class Channel:
    """The way to the parent and back. Until the job names a nonce there is none."""

    def __init__(self, fd: int) -> None:
        os.closerange(3, fd)
        os.closerange(fd + 1, 1024)  # whatever else was inherited
        os.set_inheritable(fd, False)
        self._read, self._write = os.fdopen(fd, "rb", closefd=False).read, os.write
        self._fd, self._nonce = fd, b""

    def receive(self) -> Message | None:
        size = self._read(4)
        if not size:
            return None
        message: Message = marshal.loads(self._read(int.from_bytes(size, "big")))
        self._nonce = str(message.pop("nonce", self._nonce.decode())).encode()
        return message

    def send(self, message: Message) -> None:
        import json

        with Caught():
            sys.stdout.flush()
        self.write(json.dumps(message))

    def write(self, text: str) -> None:
        line = self._nonce + text.encode() + b"\n"
        while line:
            line = line[self._write(self._fd, line) :]

    def close(self) -> None:
        os.close(self._fd)


def main() -> None:
    channel = Channel(int(sys.argv[1]))
    settings: Any = channel.receive()
    sys.path.extend(settings["packages"])
    limit(settings["limits"])
    landlock = confine(settings["readable"], settings["writable"])
    channel.write(f'{{"landlock": {landlock}}}')
    job: Any = channel.receive()
    if job is None:
        return
    limit_cpu(int(job["seconds"]) + 2)
    if job["kind"] == "program":
        channel.close()
        run_program(job)
    else:
        jobs = {"calls": answer_calls, "judge": judge, "unittests": run_suite}
        jobs[job["kind"]](job, channel.receive, channel.send)


if __name__ == "__main__":
    main()

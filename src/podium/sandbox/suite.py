"""Unit tests run beside the code they test, and so have to be hard to fool.

The tests and the candidate share one interpreter: tests hand over data frames, mocks and open
files, which no pipe can carry. The candidate can therefore reach whatever judges it. Against that:

- what the tests import is loaded before the candidate, and no function of the candidate's may
  take a place in it, in `builtins` or in `unittest.TestCase`;
- a value that claims to equal what it has never seen fails the assertion that it is used in;
- the candidate cannot walk its callers' frames, list all objects, or trace;
- a skipped test has not passed, and a suite that runs no test has not either;
- a suite that passes is run again, in a fresh sandbox, with a false assertion before each of its
  assertions. Every test must then fail, and by that very assertion: whoever silences assertions,
  patches the runner or forges the report does so both times, and is caught.

What cannot be excluded: a candidate that reads the tests by a way that Python does not audit (a
running generator's own frame), that undoes its tampering before the test ends and can tell the
two runs apart, or whose class lies in other operators than `==`. Functions of plain values are
better tested by `call_function` or `run_check`, where none of this is possible.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import sys
import unittest
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, MappingProxyType, ModuleType, TracebackType
from typing import TYPE_CHECKING

from podium.sandbox.child import (
    DETAIL,
    SOLUTION,
    TESTS,
    Caught,
    Message,
    explain,
    extend,
    load,
)

if TYPE_CHECKING:
    from podium.sandbox.child import Send

Definition = ast.FunctionDef | ast.AsyncFunctionDef
ErrorInfo = (
    tuple[type[BaseException], BaseException, TracebackType]
    | tuple[None, None, None]
)  # fmt: skip


# -- reading the tests


class _Guard(ast.NodeTransformer):
    """Asks of all that is compared or asserted whether it is genuine."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = self._ask(node.left)
        node.comparators = [self._ask(operand) for operand in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _asserts(node):
            node.args = [self._ask(argument) for argument in node.args]
        return node

    def _ask(self, operand: ast.expr) -> ast.expr:
        if isinstance(operand, ast.Constant | ast.Starred):
            return operand
        return ast.Call(ast.Name(self.name, ast.Load()), [operand], [])


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert")
    return isinstance(node, ast.Assert)


class _Sabotage(ast.NodeTransformer):
    """Puts falsehoods before each assertion of a test, its operands once evaluated, and at its end.

    Those whose exceptions a test would catch itself are left alone: the end is still to come.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.test = ""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, Definition) and node.name.startswith("test") and node.args.args:
            self.test = node.args.args[0].arg
            self.generic_visit(node)
            node.body.append(ast.Expr(self._false(ast.Constant(None))))
        elif isinstance(node, ast.Assert) and self.test:
            node.test = self._false(node.test)
        elif isinstance(node, ast.Call) and self.test and _asserts(node):
            self._put_into(node)
        elif not isinstance(node, ast.Try):
            self.generic_visit(node)
        return node

    def _put_into(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr.startswith(("assertRaises", "assertWarns", "assertLogs", "assertNoLogs")):
            return
        if call.keywords:
            call.keywords[-1].value = self._false(call.keywords[-1].value)
        elif call.args and not isinstance(call.args[-1], ast.Starred):
            call.args[-1] = self._false(call.args[-1])
        else:
            call.func.value = self._false(call.func.value)

    def _false(self, value: ast.expr) -> ast.expr:
        arguments = [ast.Name(self.test, ast.Load()), value]
        return ast.Call(ast.Name(self.name, ast.Load()), arguments, [])


FALSEHOODS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("assertEqual", (0, 1)),
    ("assertNotEqual", (0, 0)),
    ("assertTrue", (False,)),
    ("assertFalse", (True,)),
    ("assertIs", (0, None)),
    ("assertIsNot", (None, None)),
    ("assertIsNone", (0,)),
    ("assertIsNotNone", (None,)),
    ("assertIn", (0, ())),
    ("assertNotIn", (0, (0,))),
    ("assertIsInstance", (0, str)),
    ("assertNotIsInstance", (0, int)),
    ("assertGreater", (0, 1)),
    ("assertGreaterEqual", (0, 1)),
    ("assertLess", (1, 0)),
    ("assertLessEqual", (1, 0)),
    ("assertAlmostEqual", (0, 1)),
    ("assertNotAlmostEqual", (0, 0)),
    ("assertRegex", ("", "x")),
    ("assertCountEqual", ([0], [])),
    ("assertListEqual", ([0], [])),
    ("assertTupleEqual", ((0,), ())),
    ("assertSetEqual", ({0}, set())),
    ("assertDictEqual", ({0: 0}, {})),
    ("assertSequenceEqual", ([0], [])),
    ("assertMultiLineEqual", ("a", "b")),
)


def _falsehood(token: str) -> Callable[[unittest.TestCase, object], object]:
    """Fails the test, and says so by the token, unless assertions no longer can."""

    def falsehood(test: unittest.TestCase, value: object) -> object:
        for name, arguments in FALSEHOODS:
            with Caught() as caught:
                getattr(test, name)(*arguments)
            if not isinstance(caught.error, AssertionError):
                return value  # silenced: let the test go on, and pass where it must not
        test.assertEqual(token, None)
        return value

    return falsehood


def _import_all(tree: ast.Module) -> list[str]:
    """Import what the tests will import, and say what that was."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    names = [name for name in names if name.partition(".")[0] != "solution"]
    return [name for name in names if _imported(name)]


def _imported(name: str) -> bool:
    """Import a module; a name that is only something inside of one is none."""
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and (hasattr(parent, last) or not hasattr(parent, "__path__")):
        return name in sys.modules
    importlib.import_module(name)
    return True


# -- watching the candidate


def _genuine() -> Callable[[object], object]:
    """The question that guarded tests ask. One object may equal all others: `mock.ANY`."""
    mock = sys.modules.get("unittest.mock")
    anything = mock and mock.ANY

    def genuine(value: object, depth: int = 3) -> object:
        if value is not anything and _impostor(value):
            raise AssertionError(f"a {type(value).__name__} equals whatever it is compared with")
        for part in _parts(value)[: 1000 if depth else 0]:
            genuine(part, depth - 1)
        return value

    return genuine


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, list | tuple | set) else []


def _impostor(value: object) -> bool:
    kinds = type(value).__mro__
    equality = next((vars(kind)["__eq__"] for kind in kinds if "__eq__" in vars(kind)), None)
    if not isinstance(equality, FunctionType):
        return False
    number = int.from_bytes(os.urandom(7), "big")
    for stranger in (object(), number, number / 7, str(number), [number], (number,), {number: 0}):
        with Caught():
            if (value == stranger) is True:
                return True
    return False


class Watch:
    """What the candidate must not touch, as it was before the candidate came."""

    def __init__(self, names: list[str]) -> None:
        self._modules = {name: sys.modules[name] for name in names}
        classes = (*unittest.TestCase.__mro__[:-1], *_Result.__mro__[:-1])
        places = [*self._modules.values(), *classes]
        self._before = [(str(place), vars(place), dict(vars(place))) for place in places]

    def complaint(self) -> str:
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                return f"the module {name} was replaced"
        for place, now, before in self._before:
            for name, value in _changed(before, now):
                if isinstance(value, FunctionType) and _foreign(value.__code__.co_filename):
                    return f"{place}: {name} was replaced by the code under test"
        return ""


def _changed(
    before: dict[str, object], after: dict[str, object] | MappingProxyType[str, object]
) -> Iterator[tuple[str, object]]:
    for name, value in list(after.items()):
        if value is not before.get(name):
            yield name, value


def _foreign(filename: str) -> bool:
    """Whether code is neither in a file of the system nor ours nor the tests': the candidate's."""
    ours = (TESTS, "suite.py", "child.py")
    return not filename.startswith(("/", "<frozen ")) and filename not in ours


_NOSY = frozenset(
    {
        "sys._getframe",
        "sys._current_frames",
        "sys.settrace",
        "sys.setprofile",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
    }
)
_LENSES = ("inspect.py", "traceback.py")
"""Modules of the library that look at frames for whoever asks them."""


def forbid_looking_around() -> None:
    """No frames but its own for the candidate. An audit hook cannot be taken away again."""
    looking = False

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal looking
        frames = event in _NOSY or (event == "object.__getattr__" and args[1] == "tb_frame")
        if frames and not looking:
            looking = True
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.endswith(_LENSES):
                frame = frame.f_back
            nosy = frame is not None and _foreign(frame.f_code.co_filename)
            looking = False
            if nosy:
                raise RuntimeError("the code under test may not look at its callers")

    sys.addaudithook(hook)


# -- running


class _Result(unittest.TestResult):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self.ran: list[str] = []
        self.failed: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.ran.append(test.id())

    def addError(self, test: unittest.TestCase, err: ErrorInfo) -> None:
        self._fail(test, explain(err[1]) if err[1] else "failed")

    def addFailure(self, test: unittest.TestCase, err: ErrorInfo) -> None:
        self.addError(test, err)

    def addSubTest(
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: ErrorInfo | None
    ) -> None:
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._fail(test, f"skipped: {reason}")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._fail(test, "succeeded where a failure was expected")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if complaint := self.watch.complaint():
            self._fail(test, complaint)

    def _fail(self, test: unittest.TestCase, why: str) -> None:
        self.failed.setdefault(test.id(), why[-DETAIL:])


def run(job: Message, send: Send) -> None:
    """Run the tests of a job on its code and report what failed, once, at the end."""
    with Caught() as broken:
        tests = _Tests(job)
    send({"broken": explain(broken.error)[-DETAIL:] if broken.error is not None else None})
    if broken.error is not None:
        return
    find_tests = unittest.TestLoader().loadTestsFromModule
    result = _Result(tests.watch)
    with Caught() as caught:
        find_tests(tests.beside(str(job["code"]))).run(result)
    if caught.error is not None:
        result.failed["the module"] = explain(caught.error)[-DETAIL:]
    send({"ran": result.ran, "failed": result.failed})


class _Tests:
    """The tests of a job, read and made ready before there is a candidate."""

    def __init__(self, job: Message) -> None:
        self.text = str(job["tests"])
        self.tree = ast.parse(self.text, TESTS)
        names = _import_all(self.tree)
        _require(job["libraries"])
        self.watch = Watch(["builtins", "unittest", "unittest.case", *names])
        self.helpers: dict[str, object] = {_unguessable(): _genuine()}
        _Guard(*self.helpers).visit(self.tree)
        if token := str(job["token"]):
            name = _unguessable()
            self.helpers[name] = _falsehood(token)
            _Sabotage(name).visit(self.tree)
        ast.fix_missing_locations(self.tree)

    def beside(self, code: str) -> ModuleType:
        """The module of the candidate and, after it, the tests."""
        forbid_looking_around()
        module = load(code, "solution", SOLUTION)
        vars(builtins).update(self.helpers)
        extend(module, self.text, TESTS, self.tree)
        return module


def _unguessable() -> str:
    """The name of a helper in the tests, so that the code under test cannot put up another."""
    return f"podium_{os.urandom(8).hex()}"


def _require(libraries: object) -> None:
    for name in libraries if isinstance(libraries, list) else ():
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")

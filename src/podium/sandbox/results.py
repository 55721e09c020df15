"""What comes back from a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from podium.sandbox.interpreter import Outcome

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Execution(Generic[T_co]):
    """What came of a piece of code. That it failed is a result, not an error of ours."""

    outcome: Outcome
    value: T_co
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Returned:
    value: object
    """Plain data. What is none, such as an instance of a class, is an `Opaque`."""


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str
    message: str


Reply = Returned | Raised


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: bool
    note: str = ""
    """Why not: the end of a traceback."""


@dataclass(frozen=True, slots=True)
class TestReport:
    __test__ = False  # pytest would take it for a test

    ran: tuple[str, ...]
    failed: Mapping[str, str]
    """Why, by test; also what was skipped, or could not even be loaded."""

    @property
    def passed(self) -> bool:
        return bool(self.ran) and not self.failed


NOTHING_RAN = TestReport((), {"the suite": "it did not come to its end"})

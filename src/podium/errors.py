"""Every expected failure, and whose fault it is.

    PodiumError
    ├── ConfigError      the person running us must fix something     exit 2, HTTP 400
    ├── WorkflowError    the planner wrote a workflow we cannot run   reward 0, HTTP 502
    ├── LimitError       a limit we were given was reached            reward 0, HTTP 402
    ├── WorkerError      a worker did not answer                      no reward, HTTP 502
    │   └── NotRecorded  a replay was asked for what it never heard   no reward
    ├── StoreError       what happened could not be written down      no reward, HTTP 500
    └── SandboxError     the sandbox broke (not the code inside it)   no reward, HTTP 500

Anything else that escapes is a bug and is allowed to crash. Expected failures are raised where
they happen, become a `Failure` in `executor.run_step` (or in `Conductor`, for its own planner),
and are never logged on the way: a failed run is data, not noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from podium.types import Blame, Failure


class PodiumError(Exception):
    """Base class. Catch this at a boundary; raise one of the below."""

    blame: ClassVar[Blame] = "infra"

    def as_failure(self) -> Failure:
        return Failure(kind=type(self).__name__, message=str(self), blame=self.blame)


class ConfigError(PodiumError):
    """A setting is missing, misspelt or contradictory. The message says what to change."""


class WorkflowError(PodiumError):
    """The draft does not parse, or names a worker or a step that does not exist."""

    blame = "policy"


class LimitError(PodiumError):
    """A limit (dollars, tokens, calls, seconds, steps, depth) was reached."""

    blame = "limits"


class WorkerError(PodiumError):
    """A worker did not answer. `status` is the HTTP status, or None if none arrived."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def as_failure(self) -> Failure:
        return replace(super().as_failure(), status=self.status)

    @property
    def retryable(self) -> bool:
        return self.status is None or self.status in (408, 409, 425, 429) or self.status >= 500


class NotRecorded(WorkerError):
    """The recording has no reply to this request, and a replay may not make one up."""

    @property
    def retryable(self) -> bool:
        return False


class StoreError(PodiumError):
    """The store could not be written: a full disk, a lost file, a database that is gone."""


class SandboxError(PodiumError):
    """The sandbox could not run the code at all."""

"""The worker that runs code: it reads the last output it may see, and says what happened."""

from __future__ import annotations

import ast
import platform

from podium.errors import WorkerError
from podium.sandbox import Execution, Sandbox
from podium.sandbox.extract import extract_code
from podium.types import Completion, Piece, Request, Usage
from podium.workers import Call

SHOWN = 4000
"""Characters of each stream that are reported: its beginning and its end."""

HAPPENED = {
    "ok": "The program ran to its end.",
    "error": "The program failed.",
    "timeout": "The program was stopped: it took too long.",
    "memory": "The program was stopped: it needed too much memory.",
    "output": "The program was stopped: it wrote too much.",
    "killed": "The program crashed.",
    "forged": "The program was stopped: it meddled with the sandbox.",
}


class PythonWorker:
    """Runs the code in the last output that its step may read, in a sandbox, free of charge.

    The sandbox starts with the first request; close the worker when you are done.
    """

    def __init__(self, name: str = "python", sandbox: Sandbox | None = None) -> None:
        self.name = name
        self._sandbox = sandbox or Sandbox.open()

    @property
    def fingerprint(self) -> str:
        return f"python {platform.python_version()} {self._sandbox.bounds}"

    async def complete(self, request: Request, call: Call) -> Completion:
        """Report what the code did.

        Raises:
            WorkerError: there is no code to run.
            SandboxError: there is no sandbox to run it in.
        """
        output = request.visible[-1].output if request.visible else ""
        code = extract_code(output)
        if not (code != output or _does_something(code)):
            raise WorkerError(
                f"{self.name}: the step gives it no code: let it read a step that writes a program",
                status=422,
            )
        reservation = await call.ledger.reserve(0, 0.0)
        try:
            text = describe(await self._sandbox.run_program(code))
        finally:
            reservation.settle(Usage(), 0.0)
        if call.hear is not None:
            call.hear(Piece(text))
        return Completion(text)

    async def close(self) -> None:
        await self._sandbox.close()


def _does_something(text: str) -> bool:
    """Whether a text that marks no code is a program all the same: prose is not run to see."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return any(isinstance(node, (ast.Call, ast.Assign, ast.Import)) for node in ast.walk(tree))


def describe(done: Execution[None]) -> str:
    """What happened, in words that another worker can use."""
    parts = [HAPPENED[done.outcome]]
    for title, stream in (("Output", done.stdout), ("Errors", done.stderr)):
        if stream.strip():
            parts.append(f"{title}:\n```\n{_short(stream.rstrip())}\n```")
    if len(parts) == 1:
        parts.append("It wrote nothing.")
    return "\n\n".join(parts)


def _short(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n[... {len(text) - SHOWN} characters left out ...]\n{text[-half:]}"

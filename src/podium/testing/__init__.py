"""Doubles that ship with Podium, so that nobody writes their own.

`ScriptedWorker` stands where a model would be; `Upstream` is a real HTTP server on this machine
that says what it is told to in all three dialects, and holds what it is sent against the types of
the official SDKs.
"""

from podium.testing.bodies import Say
from podium.testing.upstream import Raw, Refuse, Sent, Upstream
from podium.testing.worker import ScriptedWorker

__all__ = ["Raw", "Refuse", "Say", "ScriptedWorker", "Sent", "Upstream"]

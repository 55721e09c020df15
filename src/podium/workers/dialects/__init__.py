"""Three ways of speaking to a model over HTTP, each as pure functions over values.

A `Dialect` writes a request (address, headers, body) and reads a reply, whole or as a stream of
server-sent events. It knows nothing of sockets, retries or money: that is `chat.py`. Whatever a
server sends, reading gives a `Reply` or a `WorkerError` and never another exception.
"""

from __future__ import annotations

from collections.abc import Mapping

from podium.workers.dialects.anthropic import ANTHROPIC
from podium.workers.dialects.gemini import GEMINI
from podium.workers.dialects.openai import OPENAI
from podium.workers.dialects.sse import Events
from podium.workers.dialects.wire import Ask, Dialect, Reply, Settings, Stream, loads, trouble

DIALECTS: Mapping[str, Dialect] = {d.name: d for d in (OPENAI, ANTHROPIC, GEMINI)}

__all__ = [
    "ANTHROPIC",
    "DIALECTS",
    "GEMINI",
    "OPENAI",
    "Ask",
    "Dialect",
    "Events",
    "Reply",
    "Settings",
    "Stream",
    "loads",
    "trouble",
]

"""Conversations: which question they ask, and to whom the result of a tool belongs.

While a worker waits for its tools, what passes between it and the client is private: the results
go to that very worker, behind the messages that only it was sent. Once it has answered, the
exchange is part of the conversation, and whoever works on the next question reads it as plain
words, because another model's tool calls mean nothing to a provider.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import orjson

from podium.serve.wire import Asked, answering
from podium.store import Store
from podium.types import Message, Question, Run

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEPT_SECONDS = 7 * 86_400.0
"""How long a worker waits for its tools."""

_CALL = re.compile(r"call_([0-9a-f]{16,24})_(\d{1,4})")

CALLED = "[asked for the tool {name} with {arguments}]"
RETURNED = "[the tool returned]\n{content}"


def question(asked: Asked) -> Question:
    """The last thing the user said, after everything before it."""
    at = max((i for i, m in enumerate(asked.talk) if m.role == "user"), default=-1)
    last = asked.talk[at]
    after = [plain(m).content for m in asked.talk[at + 1 :]] if at >= 0 else []
    text = "\n\n".join([last.content, *after])
    return _question(asked, text, last.images, tuple(plain(m) for m in asked.talk[:at]))


def exactly(asked: Asked, talk: Sequence[Message]) -> Question:
    """The conversation as it is, and nothing around it: the next turn is wanted."""
    *earlier, last = talk
    if last.role == "user" and (last.content or last.images):
        return _question(asked, last.content, last.images, tuple(earlier))
    return _question(asked, "", (), tuple(talk))


def _question(
    asked: Asked, text: str, images: tuple[str, ...], earlier: tuple[Message, ...]
) -> Question:
    return Question(
        text, images, earlier, asked.sampling, asked.tools, asked.tool_choice, asked.extra
    )


def plain(message: Message) -> Message:
    """Tool calls and results as words that any model can read."""
    if message.role == "tool":
        return Message("user", RETURNED.format(content=message.content), message.images)
    if not message.tool_calls and not message.thinking:
        return message
    calls = [CALLED.format(name=c.name, arguments=c.arguments) for c in message.tool_calls]
    said = [message.content] if message.content else []
    return Message(message.role, "\n".join([*said, *calls]), message.images)


@dataclass(frozen=True, slots=True)
class Session:
    """A worker that waits for its tools."""

    worker: str
    messages: tuple[Message, ...]
    """What it alone was sent."""
    turn: Message
    """What it said then, tool calls and thinking untouched."""

    def resumed(self, results: Sequence[Message], before: Sequence[Message] = ()) -> list[Message]:
        """The exchange so far, with the results under the names the worker gave its calls.

        `before` stands for the worker's own messages where the client knows better.
        """
        return [*(before or self.messages), self.turn, *(self._named(m) for m in results)]

    def _named(self, message: Message) -> Message:
        found = _CALL.fullmatch(message.tool_call_id)
        if found is None or int(found[2]) >= len(self.turn.tool_calls):
            return message
        return replace(message, tool_call_id=self.turn.tool_calls[int(found[2])].id)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The end of a conversation that waits for nobody but a worker with its tools."""

    run: str
    before: tuple[Message, ...]
    results: tuple[Message, ...]


def waiting(talk: Sequence[Message]) -> Waiting | None:
    """Whether the newest messages are results of tools, and of which run's."""
    at = max((i for i, m in enumerate(talk) if m.role == "assistant" and m.tool_calls), default=-1)
    results = talk[at + 1 :]
    if not results or results[0].role != "tool" or any(m.role == "assistant" for m in results):
        return None
    for message in results:
        if found := _CALL.fullmatch(message.tool_call_id):
            return Waiting(found[1], tuple(talk[: max(at, 0)]), tuple(results))
    return None


def session_of(run: Run) -> Session | None:
    """What has to be kept, if the run ended with a worker asking for tools."""
    result = answering(run)
    if result is None or result.completion is None or not result.completion.tool_calls:
        return None
    done = result.completion
    turn = Message("assistant", done.text, tool_calls=done.tool_calls, thinking=done.thinking)
    return Session(result.worker, result.messages, turn)


async def keep(store: Store, run: str, owner: str, session: Session) -> None:
    sql = "INSERT INTO sessions (id, owner, until, body) VALUES (?, ?, ?, ?)"
    row = (run, owner, time.time() + KEPT_SECONDS, orjson.dumps(session))
    await store.change((sql, row))


async def find(store: Store, run: str, owner: str) -> Session | None:
    sql = "SELECT body FROM sessions WHERE id = ? AND owner = ? AND until > ?"
    rows = await store.fetch(sql, run, owner, time.time())
    return _sessions().validate_json(bytes(rows[0][0])) if rows else None


async def forget_old(store: Store) -> None:
    await store.change(("DELETE FROM sessions WHERE until < ?", (time.time(),)))


@cache
def _sessions() -> TypeAdapter[Session]:
    from pydantic import TypeAdapter

    return TypeAdapter(Session)

"""Anthropic's messages: content in blocks, the system prompt apart, thinking signed."""

from __future__ import annotations

from podium.errors import WorkerError
from podium.types import Message, Piece, Request, Sampling, Tool, ToolCall, Usage
from podium.workers.dialects.wire import (
    CUT,
    Ask,
    Dialect,
    Reply,
    Settings,
    arguments,
    budget,
    ceiling,
    data_url,
    dumps,
    given,
    items,
    loads,
    mapping,
    schema_of,
    text,
    tokens,
    trouble,
    usage,
)

VERSION = "2023-06-01"
THINKING = ("thinking", "redacted_thinking")
LEAST_BUDGET = 1_024
"""The API refuses a smaller thinking budget."""
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
CHOICE = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}


def url(base: str, model: str, stream: bool) -> str:
    return f"{base.removesuffix('/v1')}/v1/messages"


def headers(key: str) -> dict[str, str]:
    return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}


def settings(ask: Ask) -> Settings:
    sampling = ask.sampling
    thinking, limit = thoughts(sampling)
    # A model that thinks refuses any temperature but its own.
    free = thinking.get("thinking") in (None, {"type": "disabled"})
    schema = schema_of(sampling.response_format)
    shaped = {"format": {"type": "json_schema", "schema": schema}} if schema else {}
    output = {**mapping(ask.extra.get("output_config")), **mapping(thinking.get("output_config"))}
    fields = {
        **ask.extra,
        **thinking,
        "model": ask.model,
        "max_tokens": limit,
        **given(
            temperature=sampling.temperature if free else None,
            top_p=sampling.top_p if free else None,
            stop_sequences=sampling.stop,
            output_config={**output, **shaped} or None,
        ),
    }
    if ask.stream:
        fields["stream"] = True
    return Settings(fields, limit)


def thoughts(sampling: Sampling) -> tuple[dict[str, object], int]:
    """How it is asked to think, and the tokens it may write in all, which include the thinking.

    A word is an effort level of present models, which decide for themselves how long to think. A
    number is a budget, which only earlier models take, and which must stay below the limit.
    """
    effort, limit = sampling.effort, ceiling(sampling)
    if effort is None:
        return {}, limit
    allowed = budget(effort)
    if allowed == 0:
        return {"thinking": {"type": "disabled"}}, limit
    if not effort.isdecimal():
        level = "low" if effort == "minimal" else effort
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}, limit
    allowed = max(allowed, LEAST_BUDGET)
    limit = limit if limit > allowed else limit + allowed
    return {"thinking": {"type": "enabled", "budget_tokens": allowed}}, limit


def content(request: Request) -> dict[str, object]:
    system = "\n\n".join(m.content for m in request.messages if m.role == "system" and m.content)
    fields: dict[str, object] = {"messages": turns(request)}
    if system:
        fields["system"] = system
    if request.tools:
        fields["tools"] = [tool(t) for t in request.tools]
        named = {"type": "tool", "name": request.tool_choice}
        fields["tool_choice"] = CHOICE.get(request.tool_choice, named)
    return fields


def turns(request: Request) -> list[object]:
    """The conversation. Results of tools called together belong into one turn of the user's."""
    said: list[object] = []
    results: list[object] = []
    for message in request.messages:
        if message.role == "tool":
            if not results:
                said.append({"role": "user", "content": results})
            results.append(result(message))
        elif message.role != "system":
            results = []
            said.append({"role": message.role, "content": blocks(message)})
    return said


def result(message: Message) -> dict[str, object]:
    block: dict[str, object] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if message.content or message.images:
        block["content"] = blocks(message)
    return block


def blocks(message: Message) -> object:
    if not (message.images or message.tool_calls or message.thinking):
        return message.content
    found: list[object] = [b for b in message.thinking if b.get("type") in THINKING]
    found += [image(url) for url in message.images]
    if message.content:
        found.append({"type": "text", "text": message.content})
    found += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments(call)}
        for call in message.tool_calls
    ]
    return found


def image(url: str) -> dict[str, object]:
    if inline := data_url(url):
        media, data = inline
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def tool(offered: Tool) -> dict[str, object]:
    schema = {"type": "object", "properties": {}, **offered.parameters}
    fields: dict[str, object] = {"name": offered.name, "input_schema": schema}
    if offered.description:
        fields["description"] = offered.description
    return fields


def read(body: object) -> Reply:
    reply = mapping(body)
    if reply.get("type") == "error" or not isinstance(reply.get("content"), list):
        raise trouble(body, "the reply has no content")
    found = [mapping(block) for block in items(reply["content"])]
    return compose(found, reply.get("stop_reason"), counted(mapping(reply.get("usage"))), reply)


def compose(
    found: list[dict[str, object]], stop: object, used: Usage, head: dict[str, object]
) -> Reply:
    stop = text(stop) or "end_turn"
    return Reply(
        text="".join(text(b.get("text")) for b in found if b.get("type") == "text"),
        usage=used,
        finish=FINISH.get(stop, stop),
        reasoning="".join(text(b.get("thinking")) for b in found if b.get("type") == "thinking"),
        tool_calls=tuple(tool_call(b) for b in found if b.get("type") == "tool_use"),
        thinking=tuple(b for b in found if b.get("type") in THINKING),
        id=text(head.get("id")),
        model=text(head.get("model")),
    )


def tool_call(block: dict[str, object]) -> ToolCall:
    written = block.get("input") or {}
    written = written if isinstance(written, str) else dumps(written)
    return ToolCall(text(block.get("id")), text(block.get("name")), written)


def counted(used: dict[str, object]) -> Usage:
    """Anthropic counts what it read from, and wrote to, its cache beside the input."""
    cached = tokens(used.get("cache_read_input_tokens"))
    stored = tokens(used.get("cache_creation_input_tokens"))
    thought = tokens(mapping(used.get("output_tokens_details")).get("thinking_tokens"))
    given, written = tokens(used.get("input_tokens")), tokens(used.get("output_tokens"))
    return usage(given + cached + stored, written, cached, thought)


class AnthropicStream:
    def __init__(self) -> None:
        self.finished = False
        self._head: dict[str, object] = {}
        self._used: dict[str, object] = {}
        self._stop: object = None
        self._blocks: dict[int, dict[str, object]] = {}
        self._parts: dict[tuple[int, str], list[str]] = {}
        self._calls: dict[int, int] = {}

    def feed(self, data: bytes) -> list[Piece]:
        event = mapping(loads(data))
        index = tokens(event.get("index"))
        match event.get("type"):
            case "content_block_delta":
                return self._delta(index, mapping(event.get("delta")))
            case "content_block_start":
                return self._start(index, mapping(event.get("content_block")))
            case "message_start":
                self._head = mapping(event.get("message"))
                self._used |= mapping(self._head.get("usage"))
            case "message_delta":
                self._stop = mapping(event.get("delta")).get("stop_reason") or self._stop
                fresh = mapping(event.get("usage"))
                self._used |= {name: value for name, value in fresh.items() if value is not None}
            case "message_stop":
                self.finished = True
            case "error":
                raise trouble(event, "the stream reported an error")
        return []

    def _start(self, index: int, block: dict[str, object]) -> list[Piece]:
        self._blocks[index] = block
        if block.get("type") != "tool_use":
            return []
        self._calls[index] = len(self._calls)
        name, id = text(block.get("name")), text(block.get("id"))
        return [Piece("", "tool", self._calls[index], id, name)]

    def _delta(self, index: int, delta: dict[str, object]) -> list[Piece]:
        match delta.get("type"):
            case "text_delta":
                return [Piece(self._grow(index, "text", delta.get("text")))]
            case "thinking_delta":
                return [Piece(self._grow(index, "thinking", delta.get("thinking")), "reasoning")]
            case "signature_delta":
                self._grow(index, "signature", delta.get("signature"))
            case "input_json_delta":
                written = self._grow(index, "input", delta.get("partial_json"))
                return [Piece(written, "tool", self._calls.get(index, 0))]
        return []

    def _grow(self, index: int, name: str, value: object) -> str:
        part = text(value)
        self._parts.setdefault((index, name), []).append(part)
        return part

    def reply(self) -> Reply:
        if not (self._stop or self.finished):
            raise WorkerError(CUT)
        for (index, name), parts in self._parts.items():
            block = self._blocks.setdefault(index, {"type": "text"})
            block[name] = text(block.get(name)) + "".join(parts)
        found = [self._blocks[index] for index in sorted(self._blocks)]
        return compose(found, self._stop, counted(self._used), self._head)


ANTHROPIC = Dialect(
    name="anthropic",
    provider="anthropic",
    home="https://api.anthropic.com",
    url=url,
    headers=headers,
    settings=settings,
    content=content,
    read=read,
    stream=AnthropicStream,
)

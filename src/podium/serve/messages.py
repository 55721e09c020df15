"""Anthropic's messages: a body into `Asked`, a run into a message or its events.

What a client is shown of the orchestration are thinking blocks whose signature is ours. They are
dropped when the client sends them back; anybody else's come through untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from podium.serve.wire import (
    Asked,
    Fields,
    Json,
    Outcome,
    Refusal,
    call_id,
    dumps,
    image,
    trace,
    wishes,
)
from podium.types import Message, Piece, Role, Run, Sampling, Tool, ToolCall

SIGNATURE = "podium:"
THINKING = ("thinking", "redacted_thinking")
STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read(body: object, headers: Sequence[tuple[bytes, bytes]]) -> Asked:
    """What a body asks for.

    Raises:
        Refusal: a field is missing or cannot be what it is.
    """
    given = Fields(body)
    talk = [*_system(given), *(m for turn in given.each("messages") for m in _turn(turn))]
    if all(message.role == "system" for message in talk):
        raise Refusal("`messages` must be a list that is not empty", param="messages")
    tools = tuple(tool for t in given.each("tools") if (tool := _tool(t)) is not None)
    return Asked(
        model=given.needed("model"),
        talk=tuple(talk),
        sampling=_sampling(given),
        tools=tools,
        tool_choice=_choice(given.mapping("tool_choice"), tools),
        stream=given.flag("stream") or False,
        wishes=wishes(given.mapping("podium"), headers),
    )


def _system(given: Fields) -> list[Message]:
    text = _text(given, "system")
    return [Message("system", text)] if text else []


def _text(given: Fields, key: str) -> str:
    value = given.take(key)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise given.wrong(key, "must be a string or a list of text blocks")
    blocks = [Fields(block, f"{given.name(key)}[{i}]") for i, block in enumerate(value)]
    return "\n\n".join(block.text("text") or "" for block in blocks)


def _sampling(given: Fields) -> Sampling:
    output, thinking = given.mapping("output_config"), given.mapping("thinking")
    effort = output.text("effort") if output else None
    if thinking:
        budget = thinking.whole("budget_tokens")
        effort = "none" if thinking.text("type") == "disabled" else str(budget or "") or effort
    shape = output.mapping("format") if output else None
    schema = shape.mapping("schema") if shape else None
    return Sampling(
        max_tokens=given.whole("max_tokens"),
        temperature=given.number("temperature", 0, 2),
        top_p=given.number("top_p", 0, 1),
        stop=given.stops("stop_sequences"),
        effort=effort,
        response_format=_schema(schema.rest) if schema else None,
    )


def _schema(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def _turn(given: Fields) -> Iterator[Message]:
    """A turn as messages: the results of tools first, then what the user says beside them."""
    role, value = given.needed("role"), given.take("content")
    if role not in ROLES:
        raise given.wrong("role", "must be user or assistant")
    if isinstance(value, str):
        yield Message(ROLES[role], value)
        return
    if not isinstance(value, list):
        raise given.wrong("content", "must be a string or a list of blocks")
    blocks = [Fields(b, f"{given.name('content')}[{i}]") for i, b in enumerate(value)]
    kinds = [(block.needed("type"), block) for block in blocks]
    if role == "assistant":
        yield _assistant(kinds)
        return
    yield from (_result(block) for kind, block in kinds if kind == "tool_result")
    said = [(kind, block) for kind, block in kinds if kind != "tool_result"]
    text, images = _said(said)
    if text or images:
        yield Message(ROLES[role], text, images)


def _assistant(kinds: Sequence[tuple[str, Fields]]) -> Message:
    said = [(kind, block) for kind, block in kinds if kind == "text"]
    calls = [_call(block) for kind, block in kinds if kind == "tool_use"]
    thinking = [{"type": kind, **block.rest} for kind, block in kinds if kind in THINKING]
    foreign = [b for b in thinking if not str(b.get("signature", "")).startswith(SIGNATURE)]
    return Message("assistant", _said(said)[0], tool_calls=tuple(calls), thinking=tuple(foreign))


def _said(kinds: Sequence[tuple[str, Fields]]) -> tuple[str, tuple[str, ...]]:
    texts: list[str] = []
    images: list[str] = []
    for kind, block in kinds:
        if kind == "text":
            texts.append(block.text("text") or "")
        elif kind == "image":
            images.append(_image(block))
        elif kind not in THINKING:
            raise block.wrong("type", f"is {kind[:40]!r}: text, images and tools can be passed on")
    return "\n".join(texts), tuple(images)


def _image(block: Fields) -> str:
    source = block.mapping("source")
    if source is None:
        raise block.wrong("source", "must say where the image is")
    if source.text("type") == "base64":
        media = source.text("media_type") or "image/png"
        return f"data:{media};base64,{source.needed('data')}"
    return image(source.take("url"), source.name("url"))


def _call(block: Fields) -> ToolCall:
    id, name = block.needed("id"), block.needed("name")
    return ToolCall(id, name, orjson.dumps(block.take("input") or {}).decode())


def _result(block: Fields) -> Message:
    id, value = block.needed("tool_use_id"), block.take("content")
    if isinstance(value, list):
        parts = [Fields(p, f"{block.name('content')}[{i}]") for i, p in enumerate(value)]
        text, images = _parts(parts)
    else:
        text, images = value if isinstance(value, str) else "", ()
    return Message("tool", text, images, tool_call_id=id)


def _parts(parts: Sequence[Fields]) -> tuple[str, tuple[str, ...]]:
    """Of a tool's result; what is neither text nor image stands in it as JSON."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        match part.needed("type"):
            case "text":
                texts.append(part.text("text") or "")
            case "image":
                images.append(_image(part))
            case other:
                texts.append(orjson.dumps({"type": other, **part.rest}).decode())
    return "\n".join(texts), tuple(images)


def _tool(given: Fields) -> Tool | None:
    """A tool of the client's; those that a provider runs have a type of their own."""
    if given.text("type") not in (None, "custom"):
        return None
    schema = given.mapping("input_schema")
    name, about = given.needed("name"), given.text("description") or ""
    return Tool(name, about, schema.rest if schema else {})


def _choice(given: Fields | None, tools: Sequence[Tool]) -> str:
    if given is None:
        return "auto"
    kind = given.text("type") or "auto"
    if kind != "tool":
        return CHOICES.get(kind, "auto")
    name = given.needed("name")
    if all(tool.name != name for tool in tools):
        raise Refusal(f"`tool_choice` names {name[:80]!r}, which is none of the tools")
    return name


# ── what came of it ──


def body(found: Sequence[Outcome], asked: Asked) -> Json:
    first = found[0]
    told: Json = {"podium": trace(first)} if asked.wishes.trace else {}
    return {
        **_head(first.run, first.model),
        "content": list(_blocks(first)),
        "stop_reason": STOPS.get(first.finish, "end_turn"),
        "usage": usage(first),
        **told,
    }


def _head(run: Run, model: str) -> Json:
    return {
        "id": f"msg_{run.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
    }


def _blocks(found: Outcome) -> Iterator[Json]:
    signed = [dict(block) for block in found.thinking if block.get("type") in THINKING]
    if found.reasoning and not signed:
        signed = [_thinking(found.reasoning, found.run.id)]
    yield from signed
    if found.text or not found.calls:
        yield {"type": "text", "text": found.text, "citations": None}
    for call in found.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}


def _thinking(text: str, run: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": SIGNATURE + run}


def _input(call: ToolCall) -> object:
    try:
        value = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def usage(found: Outcome) -> Json:
    """Every inner call counts; what orchestration used is part of the totals."""
    used, beside = found.run.usage, found.orchestration
    return {
        "input_tokens": used.input - used.cached,
        "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
        "orchestration_input_tokens": beside.input,
        "orchestration_output_tokens": beside.output,
    }


def error(refused: Refusal) -> Json:
    kind = TYPES.get(refused.status, "api_error" if refused.status >= 500 else TYPES[400])
    return {"type": "error", "error": {"type": kind, "message": str(refused)}}


class Voice:
    """A message's events, block by block."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._run = ""
        self._index = -1
        self._open = ""
        """The kind of the block that is being written."""
        self._call = -1

    def opening(self, run: Run) -> bytes:
        self._run = run.id
        usage = {"input_tokens": 0, "output_tokens": 0}
        message = {**_head(run, self._asked.model), "content": [], "stop_reason": None}
        return _event("message_start", {"message": {**message, "usage": usage}})

    def thought(self, text: str) -> bytes:
        start = self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return start + self._delta({"type": "thinking_delta", "thinking": text})

    def text(self, text: str) -> bytes:
        start = self._begin("text", {"type": "text", "text": "", "citations": None})
        return start + self._delta({"type": "text_delta", "text": text})

    def call(self, piece: Piece) -> bytes:
        start = b""
        if piece.index != self._call:
            self._call = piece.index
            block = {"type": "tool_use", "id": call_id(self._run, piece.index)}
            start = self._begin("", {**block, "name": piece.name, "input": {}})
            self._open = "tool"
        return start + self._delta({"type": "input_json_delta", "partial_json": piece.text})

    def ending(self, found: Outcome) -> bytes:
        begun = b"" if self._index >= 0 else self.text("")
        delta = {"stop_reason": STOPS.get(found.finish, "end_turn"), "stop_sequence": None}
        told: Json = {"podium": trace(found)} if self._asked.wishes.trace else {}
        end = _event("message_delta", {"delta": delta, "usage": usage(found), **told})
        return begun + self._end() + end + _event("message_stop", {})

    def trouble(self, refused: Refusal) -> bytes:
        return _event("error", error(refused))

    def _begin(self, kind: str, block: Json) -> bytes:
        if self._open == kind and kind:
            return b""
        ended = self._end()
        self._index += 1
        self._open = kind
        return ended + _event("content_block_start", {"index": self._index, "content_block": block})

    def _end(self) -> bytes:
        if not self._open:
            return b""
        signed = b""
        if self._open == "thinking":
            signed = self._delta({"type": "signature_delta", "signature": SIGNATURE + self._run})
        self._open = ""
        return signed + _event("content_block_stop", {"index": self._index})

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})


def _event(kind: str, fields: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps({"type": kind, **fields}))

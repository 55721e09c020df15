"""OpenAI's chat completions: a body into `Asked`, a run into a completion or its chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from podium.types import Message, Piece, Run, Sampling, Tool, ToolCall, Usage

MAX_N = 8
NAMES = frozenset({"auto", "none", "required"})
TYPES = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error"}


def read(body: object, headers: Sequence[tuple[bytes, bytes]]) -> Asked:
    """What a body asks for.

    Raises:
        Refusal: a field is missing or cannot be what it is.
    """
    given = Fields(body)
    talk = tuple(_message(m) for m in given.each("messages"))
    if not talk:
        raise Refusal("`messages` must be a list that is not empty", param="messages")
    stream = given.flag("stream") or False
    options = given.mapping("stream_options")
    n = given.whole("n", 1, MAX_N) or 1
    if n > 1 and stream:
        raise Refusal("`n` above 1 cannot be streamed: ask for it whole", param="n")
    tools = tuple(tool for t in given.each("tools") if (tool := _tool(t)) is not None)
    return Asked(
        model=given.needed("model"),
        talk=talk,
        sampling=_sampling(given),
        tools=tools,
        tool_choice=choice(given.take("tool_choice"), tools),
        stream=stream,
        usage=options is not None and options.flag("include_usage") is True,
        n=n,
        wishes=wishes(given.mapping("podium"), headers),
        extra=given.rest,
    )


def _sampling(given: Fields) -> Sampling:
    shape = given.mapping("response_format")
    older = given.whole("max_tokens")
    return Sampling(
        max_tokens=given.whole("max_completion_tokens") or older,
        temperature=given.number("temperature", 0, 2),
        top_p=given.number("top_p", 0, 1),
        seed=given.whole("seed", -(2**63), 2**63 - 1),
        stop=given.stops("stop"),
        effort=given.text("reasoning_effort"),
        response_format=shape.rest if shape else None,
    )


def _message(given: Fields) -> Message:
    role = given.needed("role")
    text, images = content(given, "content")
    match role:
        case "system" | "developer":
            return Message("system", text)
        case "user":
            return Message("user", text, images)
        case "assistant":
            calls = [call for c in given.each("tool_calls") if (call := _call(c)) is not None]
            return Message("assistant", text, tool_calls=tuple(calls))
        case "tool":
            return Message("tool", text, images, tool_call_id=given.needed("tool_call_id"))
    raise given.wrong("role", "must be system, developer, user, assistant or tool")


def content(given: Fields, key: str) -> tuple[str, tuple[str, ...]]:
    """The text and the images of a message, which is a string or a list of parts."""
    value = given.take(key)
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list):
        raise given.wrong(key, "must be a string or a list of parts")
    texts: list[str] = []
    images: list[str] = []
    for i, item in enumerate(value):
        part = Fields(item, f"{given.name(key)}[{i}]")
        match part.needed("type"):
            case "text" | "input_text" | "output_text":
                texts.append(part.text("text") or "")
            case "refusal":
                texts.append(part.text("refusal") or "")
            case "image_url" | "input_image":
                images.append(_address(part))
            case other:
                raise part.wrong("type", f"is {other[:40]!r}: text and images can be passed on")
    return "\n".join(texts), tuple(images)


def _address(part: Fields) -> str:
    place, value = part.name("image_url"), part.take("image_url")
    return image(value.get("url") if isinstance(value, dict) else value, place)


def _call(given: Fields) -> ToolCall | None:
    id, function = given.needed("id"), given.mapping("function")
    if function is None:
        return None
    return ToolCall(id, function.needed("name"), function.text("arguments") or "")


def _tool(given: Fields) -> Tool | None:
    """A function; other kinds run on a provider's side, and are left out."""
    if given.text("type") != "function":
        return None
    function = given.mapping("function") or given
    return tool(function, "parameters")


def tool(given: Fields, schema: str) -> Tool:
    parameters = given.mapping(schema)
    return Tool(
        given.needed("name"),
        given.text("description") or "",
        parameters.rest if parameters else {},
    )


def choice(value: object, tools: Sequence[Tool]) -> str:
    if isinstance(value, str) and value in NAMES:
        return value
    named = value.get("function", value) if isinstance(value, dict) else {}
    name = named.get("name") if isinstance(named, dict) else None
    if isinstance(value, dict) and value.get("type") == "function" and isinstance(name, str):
        if all(tool.name != name for tool in tools):
            raise Refusal(f"`tool_choice` names {name[:80]!r}, which is none of the tools")
        return name
    return "auto"


# ── what came of it ──


def body(found: Sequence[Outcome], asked: Asked) -> Json:
    first = found[0]
    told: Json = {"podium": trace(first)} if asked.wishes.trace else {}
    return {
        "id": f"chatcmpl-{first.run.id}",
        "object": "chat.completion",
        "created": first.created,
        "model": first.model,
        "choices": [_choice_of(each, i) for i, each in enumerate(found)],
        "usage": usage(found),
        **told,
    }


def _choice_of(found: Outcome, index: int) -> Json:
    message: Json = {"role": "assistant", "content": found.text or None, "refusal": None}
    if not found.calls:
        message["content"] = found.text
    if found.reasoning:
        message["reasoning_content"] = found.reasoning
    if found.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in found.calls
        ]
    return {"index": index, "message": message, "logprobs": None, "finish_reason": found.finish}


def usage(found: Sequence[Outcome]) -> Json:
    """Every inner call counts. What orchestration used is part of the totals, not beside them."""
    used = sum((each.run.usage for each in found), Usage())
    beside = sum((each.orchestration for each in found), Usage())
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.total,
        "prompt_tokens_details": {
            "cached_tokens": used.cached,
            "audio_tokens": 0,
            "orchestration_input_tokens": beside.input,
        },
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning,
            "audio_tokens": 0,
            "orchestration_output_tokens": beside.output,
        },
    }


def error(refused: Refusal) -> Json:
    kind = "rate_limit_error" if refused.status == 429 else "invalid_request_error"
    kind = TYPES.get(refused.status, "api_error" if refused.status >= 500 else kind)
    return {
        "error": {
            "message": str(refused),
            "type": kind,
            "param": refused.param or None,
            "code": refused.code or None,
        }
    }


class Voice:
    """Chunks of a completion, each as the bytes of one server-sent event."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._head = self._piece = b""
        self._run = ""

    def opening(self, run: Run) -> bytes:
        self._run = run.id
        head = {
            "id": f"chatcmpl-{run.id}",
            "object": "chat.completion.chunk",
            "created": int(run.started),
            "model": self._asked.model,
        }
        self._head = b"data: " + dumps(head)[:-1]
        self._piece = self._head + b',"choices":[{"index":0,"delta":{"content":'
        return self._chunk({"role": "assistant", "content": ""})

    def thought(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        # The one that is written for every token: all but the token itself is ready.
        return b'%b%b},"logprobs":null,"finish_reason":null}]}\n\n' % (self._piece, dumps(text))

    def call(self, piece: Piece) -> bytes:
        if not piece.name:
            part: Json = {"index": piece.index, "function": {"arguments": piece.text}}
            return self._chunk({"tool_calls": [part]})
        function = {"name": piece.name, "arguments": piece.text}
        id = call_id(self._run, piece.index)
        part = {"index": piece.index, "id": id, "type": "function", "function": function}
        return self._chunk({"tool_calls": [part]})

    def ending(self, found: Outcome) -> bytes:
        last: Json = {"podium": trace(found)} if self._asked.wishes.trace else {}
        end = self._chunk({}, found.finish, last)
        if self._asked.usage:
            end += self._event({"choices": [], "usage": usage([found])})
        return end + b"data: [DONE]\n\n"

    def trouble(self, refused: Refusal) -> bytes:
        return b"data: " + dumps(error(refused)) + b"\n\n"

    def _chunk(
        self, delta: Json, finish: str | None = None, more: Mapping[str, object] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event({"choices": [choice], **(more or {})})

    def _event(self, fields: Json) -> bytes:
        return b"%b,%b\n\n" % (self._head, dumps(fields)[1:])

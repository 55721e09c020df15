"""A scripted reply as each dialect's servers write it, whole or in events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

import orjson

from podium.types import ToolCall, Usage

Body = dict[str, object]
USAGE = Usage(10, 5)


@dataclass(frozen=True, slots=True)
class Say:
    """A proper reply."""

    text: str = ""
    _: KW_ONLY
    reasoning: str = ""
    signature: str = ""
    """Of the reasoning, in the dialects that sign it."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = ""
    """As the dialect spells it; empty for the usual end."""
    usage: Usage | Mapping[str, object] | None = USAGE
    """A mapping is sent as it is, wrong or not; None leaves usage out."""
    cost: float | None = None
    pieces: int = 3
    """In how many the text arrives, where it is streamed."""
    cut: int | None = None
    """The connection breaks after so many events, or bytes of a body."""
    delay: float = 0.0
    gate: asyncio.Event | None = None

    @property
    def parts(self) -> Iterator[str]:
        size = max(1, -(-len(self.text) // self.pieces))
        return (self.text[at : at + size] for at in range(0, len(self.text), size))


def counts(say: Say, write: Callable[[Usage], Body]) -> object:
    return write(say.usage) if isinstance(say.usage, Usage) else say.usage


def arguments(call: ToolCall) -> object:
    return orjson.loads(call.arguments)


# ── OpenAI ──


def openai(say: Say, model: str) -> Body:
    message: Body = {"role": "assistant", "content": say.text or None, "refusal": None}
    if say.reasoning:
        message["reasoning_content"] = say.reasoning
    if say.tool_calls:
        message["tool_calls"] = [{**_openai_call(c), "type": "function"} for c in say.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _ended(say)}
    return _openai_head(model, "chat.completion") | {"choices": [choice]} | _openai_usage(say)


def openai_events(say: Say, model: str) -> Iterator[Body]:
    head = _openai_head(model, "chat.completion.chunk")

    def chunk(delta: Body, finish: str | None = None) -> Body:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if say.reasoning:
        yield chunk({"reasoning_content": say.reasoning})
    for part in say.parts:
        yield chunk({"content": part})
    for index, call in enumerate(say.tool_calls):
        first, rest = call.arguments[:3], call.arguments[3:]
        start = _openai_call(ToolCall(call.id, call.name, first))
        yield chunk({"tool_calls": [{"index": index, "type": "function", **start}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": rest}}]})
    yield chunk({}, _ended(say))
    if say.usage is not None:
        yield {**head, "choices": [], **_openai_usage(say)}


def _openai_head(model: str, kind: str) -> Body:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": model}


def _openai_call(call: ToolCall) -> Body:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}


def _ended(say: Say) -> str:
    return say.finish or ("tool_calls" if say.tool_calls else "stop")


def _openai_usage(say: Say) -> Body:
    def write(used: Usage) -> Body:
        return {
            "prompt_tokens": used.input,
            "completion_tokens": used.output,
            "total_tokens": used.total,
            "prompt_tokens_details": {"cached_tokens": used.cached},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning},
            **({"cost": say.cost} if say.cost is not None else {}),
        }

    return {} if say.usage is None else {"usage": counts(say, write)}


# ── Anthropic ──


def anthropic(say: Say, model: str) -> Body:
    blocks: list[Body] = []
    if say.reasoning:
        thinking = {"type": "thinking", "thinking": say.reasoning, "signature": say.signature}
        blocks.append({**thinking})
    if say.text:
        blocks.append({"type": "text", "text": say.text, "citations": None})
    blocks += [_tool_use(call, arguments(call)) for call in say.tool_calls]
    reply = {**_message(model), "content": blocks, "stop_reason": _stopped(say)}
    return reply if say.usage is None else {**reply, "usage": counts(say, _anthropic_usage)}


def anthropic_events(say: Say, model: str) -> Iterator[Body]:
    start = {**_message(model), "content": [], "stop_reason": None}
    used = counts(say, _anthropic_usage)
    if isinstance(say.usage, Usage):
        used = _anthropic_usage(Usage(say.usage.input, 1, say.usage.cached))
    yield {"type": "message_start", "message": {**start, **({"usage": used} if used else {})}}
    yield {"type": "ping"}
    for index, (block, deltas) in enumerate(_blocks(say)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end: Body = {"type": "message_delta", "delta": {"stop_reason": _stopped(say)}}
    if say.usage is not None:
        end["usage"] = counts(say, _anthropic_usage)
    yield end
    yield {"type": "message_stop"}


def _blocks(say: Say) -> Iterator[tuple[Body, list[Body]]]:
    if say.reasoning:
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": say.reasoning},
                {"type": "signature_delta", "signature": say.signature},
            ],
        )
    if say.text:
        text: Body = {"type": "text", "text": "", "citations": None}
        yield text, [{"type": "text_delta", "text": part} for part in say.parts]
    for call in say.tool_calls:
        halves = call.arguments[:3], call.arguments[3:]
        yield (
            _tool_use(call, {}),
            [{"type": "input_json_delta", "partial_json": half} for half in halves],
        )


def _message(model: str) -> Body:
    head: Body = {"id": "msg_1", "type": "message", "role": "assistant", "model": model}
    return {**head, "stop_sequence": None}


def _tool_use(call: ToolCall, given: object) -> Body:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _stopped(say: Say) -> str:
    return say.finish or ("tool_use" if say.tool_calls else "end_turn")


def _anthropic_usage(used: Usage) -> Body:
    return {
        "input_tokens": used.input - used.cached,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
    }


# ── Gemini ──


def gemini(say: Say, model: str) -> Body:
    text: list[Body] = [{"text": say.text}] if say.text else []
    return _gemini_reply(say, model, [*_thoughts(say), *text, *_functions(say)], last=True)


def gemini_events(say: Say, model: str) -> Iterator[Body]:
    texts: list[Body] = [{"text": text} for text in say.parts]
    for part in [*_thoughts(say), *texts, *_functions(say)]:
        yield _gemini_reply(say, model, [part], last=False)
    yield _gemini_reply(say, model, [{"text": ""}], last=True)


def _gemini_reply(say: Say, model: str, parts: list[Body], *, last: bool) -> Body:
    content: Body = {"role": "model", "parts": parts}
    candidate: Body = {"index": 0, "content": content}
    reply: Body = {"candidates": [candidate], "modelVersion": model, "responseId": "gemini-1"}
    if last:
        candidate["finishReason"] = say.finish or "STOP"
        if say.usage is not None:
            reply["usageMetadata"] = counts(say, _gemini_usage)
    return reply


def _thoughts(say: Say) -> list[Body]:
    return [{"text": say.reasoning, "thought": True}] if say.reasoning else []


def _functions(say: Say) -> list[Body]:
    parts: list[Body] = [
        {"functionCall": {"id": call.id, "name": call.name, "args": arguments(call)}}
        for call in say.tool_calls
    ]
    if parts and say.signature:
        parts[0]["thoughtSignature"] = say.signature
    return parts


def _gemini_usage(used: Usage) -> Body:
    return {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "cachedContentTokenCount": used.cached,
        "totalTokenCount": used.total,
    }


WHOLE: Mapping[str, Callable[[Say, str], Body]] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
}
EVENTS: Mapping[str, Callable[[Say, str], Iterator[Body]]] = {
    "openai": openai_events,
    "anthropic": anthropic_events,
    "gemini": gemini_events,
}


def refusal(dialect: str, status: int, message: str) -> Body:
    """An error as the dialect's servers put it."""
    if dialect == "gemini":
        return {"error": {"code": status, "message": message, "status": "UNAVAILABLE"}}
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": "api_error", "message": message}}
    return {"error": {"message": message, "type": "error", "param": None, "code": None}}

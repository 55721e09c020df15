"""OpenAI's responses: a body into `Asked`, a run into a response or its events.

The conversation may come whole, or as the id of the response that it goes on from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podium.serve import chat
from podium.serve.wire import (
    Asked,
    Fields,
    Json,
    Outcome,
    Refusal,
    call_id,
    dumps,
    trace,
    wishes,
)
from podium.types import Message, Piece, Run, Sampling, Tool, ToolCall

PREFIX = "resp_"
error = chat.error


def read(body: object, headers: Sequence[tuple[bytes, bytes]]) -> Asked:
    """What a body asks for.

    Raises:
        Refusal: a field is missing or cannot be what it is.
    """
    given = Fields(body)
    system = given.text("instructions")
    talk = [*([Message("system", system)] if system else []), *_input(given)]
    if all(message.role == "system" for message in talk):
        raise Refusal("`input` must be a string or a list that is not empty", param="input")
    tools = tuple(t for each in given.each("tools") if (t := _tool(each)) is not None)
    choice = given.take("tool_choice")
    echo = _echo(given, system, choice if isinstance(choice, str | dict) else "auto", tools)
    previous = given.text("previous_response_id") or ""
    return Asked(
        model=given.needed("model"),
        talk=tuple(talk),
        sampling=_sampling(given, echo),
        tools=tools,
        tool_choice=chat.choice(choice, tools),
        stream=given.flag("stream") or False,
        previous=previous.removeprefix(PREFIX),
        wishes=wishes(given.mapping("podium"), headers),
        echo=echo | {"previous_response_id": previous or None},
    )


def _input(given: Fields) -> Iterator[Message]:
    value = given.take("input")
    if isinstance(value, str):
        yield Message("user", value)
        return
    if not isinstance(value, list):
        raise given.wrong("input", "must be a string or a list of items")
    calls: list[ToolCall] = []
    for i, item in enumerate(value):
        fields = Fields(item, f"input[{i}]")
        kind = fields.text("type") or "message"
        if kind == "function_call":
            name, written = fields.needed("name"), fields.text("arguments") or ""
            calls.append(ToolCall(fields.needed("call_id"), name, written))
            continue
        if calls:
            yield Message("assistant", "", tool_calls=tuple(calls))
            calls = []
        if kind == "message":
            yield _message(fields)
        elif kind == "function_call_output":
            id = fields.needed("call_id")
            text, images = chat.content(fields, "output")
            yield Message("tool", text, images, tool_call_id=id)
    if calls:
        yield Message("assistant", "", tool_calls=tuple(calls))


def _message(given: Fields) -> Message:
    role = given.needed("role")
    text, images = chat.content(given, "content")
    match role:
        case "system" | "developer":
            return Message("system", text)
        case "user":
            return Message("user", text, images)
        case "assistant":
            return Message("assistant", text)
    raise given.wrong("role", "must be system, developer, user or assistant")


def _tool(given: Fields) -> Tool | None:
    return chat.tool(given, "parameters") if given.text("type") == "function" else None


def _sampling(given: Fields, echo: Json) -> Sampling:
    reasoning, text = given.mapping("reasoning"), given.mapping("text")
    effort = reasoning.text("effort") if reasoning else None
    shape = text.mapping("format") if text else None
    made = Sampling(
        max_tokens=given.whole("max_output_tokens"),
        temperature=given.number("temperature", 0, 2),
        top_p=given.number("top_p", 0, 1),
        effort=effort,
        response_format=_shape(shape) if shape else None,
    )
    echo |= {
        "max_output_tokens": made.max_tokens,
        "temperature": made.temperature,
        "top_p": made.top_p,
        "reasoning": {"effort": effort, "summary": None},
    }
    return made


def _shape(given: Fields) -> Json | None:
    kind, fields = given.text("type"), given.rest
    if kind != "json_schema":
        return {"type": kind} if kind == "json_object" else None
    return {"type": kind, "json_schema": fields}


def _echo(given: Fields, system: str | None, choice: object, tools: Sequence[Tool]) -> Json:
    metadata = given.mapping("metadata")
    return {
        "instructions": system,
        "metadata": metadata.rest if metadata else {},
        "parallel_tool_calls": given.flag("parallel_tool_calls") is not False,
        "store": given.flag("store") is not False,
        "text": {"format": {"type": "text"}},
        "tool_choice": choice,
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ],
        "truncation": "disabled",
        "user": given.text("user"),
    }


# ── what came of it ──


def body(found: Sequence[Outcome], asked: Asked) -> Json:
    first = found[0]
    items: list[Json] = [_reasoning(first.run.id, first.reasoning)] if first.reasoning else []
    if first.text or not first.calls:
        items.append(_said(first.run.id, first.text))
    items += [_called(first.run.id, i, call) for i, call in enumerate(first.calls)]
    return _whole(first, asked, items)


def _whole(found: Outcome, asked: Asked, items: Sequence[Json]) -> Json:
    told: Json = {"podium": trace(found)} if asked.wishes.trace else {}
    short = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(found.finish)
    return {
        **_head(found.run, asked),
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": short} if short else None,
        "output": items,
        "usage": usage(found),
        **told,
    }


def _head(run: Run, asked: Asked) -> Json:
    return {
        "id": PREFIX + run.id,
        "object": "response",
        "created_at": int(run.started),
        "model": asked.model,
        "error": None,
        "incomplete_details": None,
        **asked.echo,
    }


def _reasoning(run: str, text: str) -> Json:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": f"rs_{run}", "type": "reasoning", "summary": summary}


def _said(run: str, text: str, status: str = "completed") -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{run}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part] if status == "completed" else [],
    }


def _called(run: str, index: int, call: ToolCall, status: str = "completed") -> Json:
    return {
        "id": f"fc_{run}_{index}",
        "type": "function_call",
        "status": status,
        "call_id": call_id(run, index),
        "name": call.name,
        "arguments": call.arguments,
    }


def usage(found: Outcome) -> Json:
    """Every inner call counts; what orchestration used is part of the totals."""
    used, beside = found.run.usage, found.orchestration
    return {
        "input_tokens": used.input,
        "output_tokens": used.output,
        "total_tokens": used.total,
        "input_tokens_details": {
            "cached_tokens": used.cached,
            "cache_write_tokens": 0,
            "orchestration_input_tokens": beside.input,
        },
        "output_tokens_details": {
            "reasoning_tokens": used.reasoning,
            "orchestration_output_tokens": beside.output,
        },
    }


class Voice:
    """A response's events, item by item."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._head: Json = {}
        self._run = ""
        self._count = 0
        self._items: list[Json] = []
        """Those that are complete."""
        self._open = ""
        self._written: list[str] = []
        self._call = ToolCall("", "", "")
        self._index = -1

    def opening(self, run: Run) -> bytes:
        self._run = run.id
        self._head = {**_head(run, self._asked), "output": [], "usage": None}
        head: Json = {"response": {**self._head, "status": "in_progress"}}
        return self._event("response.created", head) + self._event("response.in_progress", head)

    def thought(self, text: str) -> bytes:
        start = b""
        if self._open != "reasoning":
            start = self._begin("reasoning", _reasoning(self._run, "") | {"status": "in_progress"})
            part = {"type": "summary_text", "text": ""}
            start += self._part("response.reasoning_summary_part.added", summary_index=0, part=part)
        self._written.append(text)
        name = "response.reasoning_summary_text.delta"
        return start + self._part(name, summary_index=0, delta=text)

    def text(self, text: str) -> bytes:
        start = b""
        if self._open != "message":
            start = self._begin("message", _said(self._run, "", "in_progress"))
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            start += self._part("response.content_part.added", content_index=0, part=part)
        self._written.append(text)
        name = "response.output_text.delta"
        return start + self._part(name, content_index=0, delta=text, logprobs=[])

    def call(self, piece: Piece) -> bytes:
        start = b""
        if piece.index != self._index or self._open != "call":
            self._call = ToolCall("", piece.name, "")
            item = _called(self._run, piece.index, self._call, "in_progress")
            start = self._begin("call", item)  # ends the call before it, under its own index
            self._index = piece.index
        self._written.append(piece.text)
        return start + self._part("response.function_call_arguments.delta", delta=piece.text)

    def ending(self, found: Outcome) -> bytes:
        begun = b"" if self._open or found.calls else self.text("")
        ended = begun + self._end()
        whole = _whole(found, self._asked, self._items)
        return ended + self._event(f"response.{whole['status']}", {"response": whole})

    def trouble(self, refused: Refusal) -> bytes:
        said = {"code": refused.code or "server_error", "message": str(refused)}
        plain = self._event("error", {**said, "param": refused.param or None})
        if not self._head:
            return plain
        whole = {**self._head, "status": "failed", "error": said, "output": self._items}
        return plain + self._event("response.failed", {"response": whole})

    def _begin(self, kind: str, item: Json) -> bytes:
        ended = self._end()
        self._open = kind
        place = {"output_index": len(self._items), "item": item}
        return ended + self._event("response.output_item.added", place)

    def _end(self) -> bytes:
        kind, text = self._open, "".join(self._written)
        if not kind:
            return b""
        if kind == "reasoning":
            part: Json = {"type": "summary_text", "text": text}
            done = self._part("response.reasoning_summary_text.done", summary_index=0, text=text)
            done += self._part("response.reasoning_summary_part.done", summary_index=0, part=part)
            item = _reasoning(self._run, text)
        elif kind == "message":
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            name = "response.output_text.done"
            done = self._part(name, content_index=0, text=text, logprobs=[])
            done += self._part("response.content_part.done", content_index=0, part=part)
            item = _said(self._run, text)
        else:
            call = ToolCall("", self._call.name, text)
            name = "response.function_call_arguments.done"
            done = self._part(name, arguments=text, name=call.name)
            item = _called(self._run, self._index, call)
        done += self._event(
            "response.output_item.done", {"output_index": len(self._items), "item": item}
        )
        self._items.append(item)
        self._open, self._written = "", []
        return done

    def _part(self, kind: str, /, **fields: object) -> bytes:
        ids = {"reasoning": "rs", "message": "msg", "call": "fc"}
        id = f"{ids[self._open]}_{self._run}" + (f"_{self._index}" if self._open == "call" else "")
        return self._event(kind, {"item_id": id, "output_index": len(self._items), **fields})

    def _event(self, kind: str, fields: Json) -> bytes:
        body = {"type": kind, "sequence_number": self._count, **fields}
        self._count += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps(body))

"""OpenAI's chat completions, which nearly every server of open models speaks as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podium.errors import WorkerError
from podium.types import Message, Piece, Request, Tool, ToolCall, Usage
from podium.workers.dialects.wire import (
    CUT,
    EFFORTS,
    Ask,
    Dialect,
    Reply,
    Settings,
    budget,
    ceiling,
    dollars,
    given,
    items,
    loads,
    mapping,
    text,
    tokens,
    trouble,
    usage,
)

REASONING = ("reasoning_content", "reasoning")
"""What servers call the field; the first is the older spelling."""
KEPT = frozenset((*REASONING, "reasoning_details"))
"""Fields of an assistant's turn that some servers want back when its tools have answered."""
NO_PARAMETERS = {"type": "object", "properties": {}}


def url(base: str, model: str, stream: bool) -> str:
    return f"{base}/chat/completions"


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def settings(ask: Ask) -> Settings:
    sampling, limit = ask.sampling, ceiling(ask.sampling)
    fields = {
        **ask.extra,
        "model": ask.model,
        ask.max_tokens_field: limit,
        **given(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            stop=sampling.stop,
            reasoning_effort=word(sampling.effort),
            response_format=sampling.response_format,
        ),
    }
    fields.pop("n", None)  # one answer is read, so one is paid for
    if ask.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return Settings(fields, limit)


def word(effort: str | None) -> str | None:
    """The effort as a word: a number becomes the nearest one from below."""
    tokens = budget(effort)
    if effort is None or effort in EFFORTS:
        return effort
    return max((w for w in EFFORTS if EFFORTS[w] <= tokens), key=lambda w: EFFORTS[w])


def content(request: Request) -> dict[str, object]:
    fields: dict[str, object] = {"messages": [message(m) for m in request.messages]}
    if request.tools:
        fields["tools"] = [tool(t) for t in request.tools]
        fields["tool_choice"] = choice(request.tool_choice)
    return fields


def message(said: Message) -> dict[str, object]:
    if said.images and said.role == "user":
        parts: list[object] = [{"type": "text", "text": said.content}] if said.content else []
        parts += [{"type": "image_url", "image_url": {"url": image}} for image in said.images]
        return {"role": said.role, "content": parts}
    if said.role == "tool":
        return {"role": "tool", "tool_call_id": said.tool_call_id, "content": said.content}
    if said.tool_calls or said.thinking:
        return turn(said)
    return {"role": said.role, "content": said.content}


def turn(said: Message) -> dict[str, object]:
    """An assistant's turn that asked for tools."""
    fields: dict[str, object] = {"role": said.role, "content": said.content or None}
    for block in said.thinking:
        fields |= {name: value for name, value in block.items() if name in KEPT}
    if said.tool_calls:
        fields["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in said.tool_calls
        ]
    return fields


def tool(offered: Tool) -> dict[str, object]:
    function: dict[str, object] = {
        "name": offered.name,
        "parameters": offered.parameters or NO_PARAMETERS,
    }
    if offered.description:
        function["description"] = offered.description
    return {"type": "function", "function": function}


def choice(wanted: str) -> object:
    if wanted in ("auto", "none", "required"):
        return wanted
    return {"type": "function", "function": {"name": wanted}}


def read(body: object) -> Reply:
    reply = mapping(body)
    choices = items(reply.get("choices"))
    if not choices:
        raise trouble(body, "the reply has no choices")
    first = mapping(choices[0])
    if first.get("error"):
        raise trouble(first, "the model failed")
    said = mapping(first.get("message"))
    calls = tuple(map(tool_call, items(said.get("tool_calls")))) if "tool_calls" in said else ()
    used, cost = counted(mapping(reply.get("usage")))
    return Reply(
        text=words(said.get("content")) or text(said.get("refusal")),
        usage=used,
        cost=cost,
        finish=text(first.get("finish_reason")) or "stop",
        reasoning=text(said.get("reasoning_content")) or text(said.get("reasoning")),
        tool_calls=calls,
        thinking=kept(said) if calls else (),
        id=text(reply.get("id")),
        model=text(reply.get("model")),
    )


def words(value: object) -> str:
    """A message's text; a few servers send it in parts."""
    if isinstance(value, str):
        return value
    return "".join(text(mapping(part).get("text")) for part in items(value))


def kept(said: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    fields = {name: value for name, value in said.items() if name in KEPT and value}
    return (fields,) if fields else ()


def tool_call(value: object) -> ToolCall:
    function = mapping(mapping(value).get("function"))
    return ToolCall(
        text(mapping(value).get("id")), text(function.get("name")), text(function.get("arguments"))
    )


def counted(used: dict[str, object]) -> tuple[Usage, float | None]:
    """Usage, and the cost where the server reports one (OpenRouter does)."""
    prompt, written = tokens(used.get("prompt_tokens")), tokens(used.get("completion_tokens"))
    cached = tokens(mapping(used.get("prompt_tokens_details")).get("cached_tokens"))
    thought = tokens(mapping(used.get("completion_tokens_details")).get("reasoning_tokens"))
    if thought and tokens(used.get("total_tokens")) == prompt + written + thought:
        written += thought  # a few servers count reasoning beside the output, not in it
    return usage(prompt, written, cached, thought), dollars(used.get("cost"))


@dataclass(slots=True)
class _Call:
    """A tool call while it arrives."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class OpenAIStream:
    def __init__(self) -> None:
        self.finished = False
        self._finish = ""
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[dict[str, object]] = []
        self._parts: list[dict[str, list[str]]] = []
        self._place: tuple[object, object] = (None, None)
        self._calls: dict[int, _Call] = {}
        self._used: tuple[Usage, float | None] = (Usage(), None)
        self._id = self._model = ""

    def feed(self, data: bytes) -> list[Piece]:
        if data == b"[DONE]":
            self.finished = True
            return []
        chunk = mapping(loads(data))
        if used := chunk.get("usage"):
            self._used = counted(mapping(used))
        if not self._id:
            self._id, self._model = text(chunk.get("id")), text(chunk.get("model"))
        choices = items(chunk.get("choices"))
        if not choices:
            if chunk.get("error"):
                raise trouble(chunk, "the stream reported an error")
            return []
        first = mapping(choices[0])
        if first.get("error"):
            raise trouble(first, "the model failed")
        self._finish = text(first.get("finish_reason")) or self._finish
        return self._delta(mapping(first.get("delta")))

    def _delta(self, delta: dict[str, object]) -> list[Piece]:
        pieces: list[Piece] = []
        for name in REASONING:
            if thought := text(delta.get(name)):
                self._reasoning.setdefault(name, []).append(thought)
                pieces.append(Piece(thought, "reasoning"))
                break
        if said := words(delta.get("content")) or text(delta.get("refusal")):
            self._text.append(said)
            pieces.append(Piece(said))
        if "tool_calls" in delta:
            pieces += [self._call(mapping(part)) for part in items(delta["tool_calls"])]
        if "reasoning_details" in delta:
            for part in items(delta["reasoning_details"]):
                self._detail(mapping(part))
        return pieces

    def _call(self, part: dict[str, object]) -> Piece:
        function = mapping(part.get("function"))
        index = tokens(part.get("index"))
        call = self._calls.setdefault(index, _Call())
        new = not call.name
        call.id = call.id or text(part.get("id"))
        call.name = call.name or text(function.get("name"))
        written = text(function.get("arguments"))
        call.arguments.append(written)
        if new:
            return Piece(written, "tool", index, call.id, call.name)
        return Piece(written, "tool", index)

    def _detail(self, part: dict[str, object]) -> None:
        """Join a block of reasoning that arrives in parts to what came of it before."""
        place = (part.get("index"), part.get("type"))
        if not self._details or self._place != place:
            self._place = place
            self._details.append({})
            self._parts.append({})
        self._details[-1] |= {name: value for name, value in part.items() if value is not None}
        for name in ("text", "summary", "data"):
            if written := text(part.get(name)):
                self._parts[-1].setdefault(name, []).append(written)

    def _thoughts(self) -> dict[str, object]:
        thoughts: dict[str, object] = {n: "".join(t) for n, t in self._reasoning.items()}
        for detail, parts in zip(self._details, self._parts, strict=True):
            detail |= {name: "".join(written) for name, written in parts.items()}
        return {**thoughts, "reasoning_details": self._details}

    def reply(self) -> Reply:
        if not (self._finish or self.finished):
            raise WorkerError(CUT)
        calls = [self._calls[i] for i in sorted(self._calls)]
        used, cost = self._used
        return Reply(
            text="".join(self._text),
            usage=used,
            cost=cost,
            finish=self._finish or "stop",
            reasoning="".join("".join(t) for t in self._reasoning.values()),
            tool_calls=tuple(ToolCall(c.id, c.name, "".join(c.arguments)) for c in calls),
            thinking=kept(self._thoughts()) if calls else (),
            id=self._id,
            model=self._model,
        )


OPENAI = Dialect(
    name="openai",
    provider="openai",
    home="https://api.openai.com/v1",
    url=url,
    headers=headers,
    settings=settings,
    content=content,
    read=read,
    stream=OpenAIStream,
)

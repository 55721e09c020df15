"""Gemini's generateContent: turns in parts, thoughts signed part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

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

VERSIONS = ("/v1beta", "/v1", "/v1alpha")
SIGNED = "thoughtSignature"
FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
}
MODE = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
LEVEL = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM"}
"""Anything above is HIGH."""


def url(base: str, model: str, stream: bool) -> str:
    root = base if base.endswith(VERSIONS) else f"{base}/v1beta"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"{root}/models/{quote(model.removeprefix('models/'))}:{method}"


def headers(key: str) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


def settings(ask: Ask) -> Settings:
    sampling, limit = ask.sampling, ceiling(ask.sampling)
    config = {
        **mapping(ask.extra.get("generationConfig")),
        "maxOutputTokens": limit,
        **given(
            temperature=sampling.temperature,
            topP=sampling.top_p,
            seed=sampling.seed,
            stopSequences=sampling.stop,
            thinkingConfig=thoughts(sampling.effort),
        ),
        **shape(sampling),
    }
    config.pop("candidateCount", None)  # one answer is read, so one is paid for
    return Settings({**ask.extra, "generationConfig": config}, limit)


def thoughts(effort: str | None) -> dict[str, object] | None:
    """A word is a level of present models, a number a budget in tokens."""
    if effort is None:
        return None
    allowed = budget(effort)
    if effort.isdecimal() or allowed == 0:
        return {"thinkingBudget": allowed, "includeThoughts": allowed > 0}
    return {"thinkingLevel": LEVEL.get(effort, "HIGH"), "includeThoughts": True}


def shape(sampling: Sampling) -> dict[str, object]:
    if not sampling.response_format or sampling.response_format.get("type") == "text":
        return {}
    schema = schema_of(sampling.response_format)
    return given(responseMimeType="application/json", responseJsonSchema=schema)


def content(request: Request) -> dict[str, object]:
    system = [{"text": m.content} for m in request.messages if m.role == "system" and m.content]
    fields: dict[str, object] = {"contents": list(turns(request))}
    if system:
        fields["systemInstruction"] = {"parts": system}
    if request.tools:
        fields["tools"] = [{"functionDeclarations": [tool(t) for t in request.tools]}]
        fields["toolConfig"] = {"functionCallingConfig": choice(request.tool_choice)}
    return fields


def turns(request: Request) -> Iterator[dict[str, object]]:
    """The conversation. Results of tools called together belong into one turn of the user's."""
    names: dict[str, str] = {}
    results: list[object] = []
    for message in request.messages:
        names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool":
            if not results:
                yield {"role": "user", "parts": results}
            results.append(result(message, names))
        elif message.role != "system":
            results = []
            role = "model" if message.role == "assistant" else "user"
            yield {"role": role, "parts": parts(message)}


def result(message: Message, names: Mapping[str, str]) -> dict[str, object]:
    name = names.get(message.tool_call_id, message.tool_call_id)
    response = {"id": message.tool_call_id, "name": name, "response": {"output": message.content}}
    return {"functionResponse": response}


def parts(message: Message) -> list[object]:
    """A signed turn goes back as it came: a signature holds only for its part and its place."""
    if any(SIGNED in part for part in message.thinking):
        return list(message.thinking)
    found: list[object] = [image(url) for url in message.images]
    if message.content or not (message.images or message.tool_calls):
        found.append({"text": message.content})
    found += [
        {"functionCall": {"id": call.id, "name": call.name, "args": arguments(call)}}
        for call in message.tool_calls
    ]
    return found


def image(url: str) -> dict[str, object]:
    if inline := data_url(url):
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    return {"fileData": {"fileUri": url}}


def tool(offered: Tool) -> dict[str, object]:
    fields: dict[str, object] = {"name": offered.name, "description": offered.description}
    if offered.parameters:
        fields["parametersJsonSchema"] = offered.parameters
    return fields


def choice(wanted: str) -> dict[str, object]:
    if wanted in MODE:
        return {"mode": MODE[wanted]}
    return {"mode": "ANY", "allowedFunctionNames": [wanted]}


def read(body: object) -> Reply:
    stream = GeminiStream()
    stream.take(mapping(body), body)
    return stream.reply()


def counted(used: dict[str, object]) -> Usage:
    """Gemini counts thoughts beside the answer, and what tools added beside the prompt."""
    thought = tokens(used.get("thoughtsTokenCount"))
    prompt = tokens(used.get("promptTokenCount")) + tokens(used.get("toolUsePromptTokenCount"))
    written = tokens(used.get("candidatesTokenCount")) + thought
    return usage(prompt, written, tokens(used.get("cachedContentTokenCount")), thought)


class GeminiStream:
    """Each event is a reply of its own shape, and so a whole reply is a stream of one event."""

    def __init__(self) -> None:
        self.finished = False
        self._finish = ""
        self._parts: list[dict[str, object]] = []
        self._texts: list[list[str]] = []
        self._calls: list[ToolCall] = []
        self._used: dict[str, object] = {}
        self._id = self._model = ""

    def feed(self, data: bytes) -> list[Piece]:
        body = loads(data)
        return self.take(mapping(body), body)

    def take(self, reply: dict[str, object], body: object) -> list[Piece]:
        candidates = items(reply.get("candidates"))
        blocked = mapping(reply.get("promptFeedback")).get("blockReason")
        if reply.get("error") or not (candidates or blocked or "usageMetadata" in reply):
            raise trouble(body, "the reply has no candidates")
        self._used |= mapping(reply.get("usageMetadata"))
        self._id = text(reply.get("responseId")) or self._id
        self._model = text(reply.get("modelVersion")) or self._model
        if blocked:
            self._finish = "SAFETY"
        if not candidates:
            return []
        first = mapping(candidates[0])
        self._finish = text(first.get("finishReason")) or self._finish
        found = items(mapping(first.get("content")).get("parts"))
        return [piece for part in found for piece in self._part(mapping(part))]

    def _part(self, part: dict[str, object]) -> list[Piece]:
        self._keep(part)
        if "functionCall" in part:
            call = mapping(part["functionCall"])
            index = len(self._calls)
            id, name = text(call.get("id")) or f"call_{index}", text(call.get("name"))
            self._calls.append(ToolCall(id, name, dumps(call.get("args") or {})))
            return [Piece(self._calls[-1].arguments, "tool", index, id, name)]
        if said := text(part.get("text")):
            return [Piece(said, "reasoning" if part.get("thought") is True else "text")]
        return []

    def _keep(self, part: dict[str, object]) -> None:
        """Text goes on from the text before it, unless one of the two is signed."""
        last = self._parts[-1] if self._parts else {}
        joined = all("text" in p and SIGNED not in p for p in (last, part))
        if joined and last.get("thought") == part.get("thought"):
            self._texts[-1].append(text(part["text"]))
        else:
            self._parts.append(part)
            self._texts.append([text(part.get("text"))])

    def reply(self) -> Reply:
        if not self._finish:
            raise WorkerError(CUT)
        finish = FINISH.get(self._finish, self._finish.lower())
        signed = any(SIGNED in part for part in self._parts)
        for part, texts in zip(self._parts, self._texts, strict=True):
            if "text" in part:
                part["text"] = "".join(texts)
        return Reply(
            text=self._said(thought=False),
            usage=counted(self._used),
            finish="tool_calls" if self._calls and finish == "stop" else finish,
            reasoning=self._said(thought=True),
            tool_calls=tuple(self._calls),
            thinking=tuple(self._parts) if signed else (),
            id=self._id,
            model=self._model,
        )

    def _said(self, *, thought: bool) -> str:
        parts = [p for p in self._parts if (p.get("thought") is True) is thought]
        return "".join(text(p.get("text")) for p in parts)


GEMINI = Dialect(
    name="gemini",
    provider="gcp.gemini",
    home="https://generativelanguage.googleapis.com",
    url=url,
    headers=headers,
    settings=settings,
    content=content,
    read=read,
    stream=GeminiStream,
)

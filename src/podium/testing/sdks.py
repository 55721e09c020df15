"""The official SDKs as judges: what is sent, and what is answered, must have their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from podium.errors import ConfigError

ALSO = {
    "openai": frozenset({"reasoning_content", "reasoning", "reasoning_details"}),
    "anthropic": frozenset({"temperature", "top_p", "top_k"}),
    "gemini": frozenset[str](),
}
"""Fields that servers of the dialect take although the SDK's types don't name them."""
GEMINI = {
    "contents": "Content",
    "systemInstruction": "Content",
    "tools": "Tool",
    "toolConfig": "ToolConfig",
    "generationConfig": "GenerationConfig",
    "safetySettings": "SafetySetting",
}


def complaint(dialect: str, body: object) -> str:
    """What the dialect's own SDK would not have sent so; empty if nothing."""
    try:
        lost = list(_gemini(body) if dialect == "gemini" else _params(dialect, body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{dialect}'s SDK: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    unknown = [path for path in lost if path.rpartition(".")[2] not in ALSO[dialect]]
    return f"{dialect}'s SDK knows no {unknown[0]}" if unknown else ""


def validate(dialect: str, body: object, *, event: bool) -> None:
    """Raise pydantic's ValidationError unless the SDK would read this reply."""
    _replies(dialect, event).validate_json(orjson.dumps(body))


def _params(dialect: str, body: object) -> Iterator[str]:
    kept = _settled(_requests(dialect).validate_python(body))
    return _lost(body, kept, "body")


def _gemini(body: object) -> Iterator[str]:
    """Google's types are models that forbid what they don't know; the body's own is not public."""
    fields = body if isinstance(body, dict) else {}
    types = _module("google.genai.types", "google-genai")
    for name, value in fields.items():
        if name not in GEMINI:
            yield f"body.{name}"
            continue
        adapter: TypeAdapter[object] = TypeAdapter(types[GEMINI[name]])
        for each in value if isinstance(value, list) else [value]:
            adapter.validate_json(orjson.dumps(each))


@cache
def _requests(dialect: str) -> TypeAdapter[object]:
    if dialect == "openai":
        module = _module("openai.types.chat.completion_create_params", "openai")
        return TypeAdapter(module["CompletionCreateParams"])
    module = _module("anthropic.types.message_create_params", "anthropic")
    return TypeAdapter(module["MessageCreateParams"])


@cache
def _replies(dialect: str, event: bool) -> TypeAdapter[object]:
    if dialect == "openai":
        module = _module("openai.types.chat", "openai")
        return TypeAdapter(module["ChatCompletionChunk" if event else "ChatCompletion"])
    if dialect == "anthropic":
        module = _module("anthropic.types", "anthropic")
        return TypeAdapter(module["RawMessageStreamEvent" if event else "Message"])
    return TypeAdapter(_module("google.genai.types", "google-genai")["GenerateContentResponse"])


def _module(name: str, package: str) -> Mapping[str, Any]:
    try:
        return vars(import_module(name))
    except ImportError:
        raise ConfigError(
            f"podium.testing.Upstream holds requests against {package}'s types: "
            f"pip install {package}, or give it check=False"
        ) from None


def _settled(value: object) -> object:
    """Validated values with their iterators run: pydantic validates an Iterable as it is read."""
    if isinstance(value, Mapping):
        return {name: _settled(each) for name, each in value.items()}
    if isinstance(value, Iterator | list | tuple):
        return [_settled(each) for each in value]
    return value


def _lost(sent: object, kept: object, path: str) -> Iterator[str]:
    """Where validation dropped or changed something: the type has no such field."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            if name in kept:
                yield from _lost(value, kept[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for index, (one, other) in enumerate(zip(sent, kept, strict=True)):
            yield from _lost(one, other, f"{path}.{index}")
    elif sent != kept:
        yield path

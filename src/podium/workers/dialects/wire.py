"""What the dialects have in common: their shape, and how to read JSON that may be anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from podium.errors import ConfigError, WorkerError
from podium.types import Piece, Request, Sampling, ToolCall, Usage

MAX_TOKENS = 4096
"""Of an answer, where nobody says otherwise: a worst case must be known to be reserved."""

EFFORTS = {
    "none": 0,
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 65_536,
}
"""Words for reasoning effort, and the tokens that thinking so hard may well take."""

PLAUSIBLE = 10**9
"""Tokens or dollars above this are a mistake of the server's, not a bill."""

UNKNOWN = Usage()
MAX_MESSAGE = 300
"""Characters of a server's own words in an error of ours."""

KINDS_OF_ERROR = {
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
}
"""Errors named inside a reply of status 200, or in a stream, by the status they stand for."""


@dataclass(frozen=True, slots=True)
class Ask:
    """How a model is asked, apart from what it is asked."""

    model: str
    sampling: Sampling
    stream: bool = False
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    max_tokens_field: str = "max_tokens"


@dataclass(frozen=True, slots=True)
class Settings:
    """The part of a body that is the same for every request asked in the same way."""

    fields: dict[str, object]
    ceiling: int
    """Tokens that the reply, thinking included, can't pass."""


@dataclass(slots=True)
class Reply:
    """What was read: the parts of a completion, and what the server says of itself."""

    text: str = ""
    usage: Usage = UNKNOWN
    """A zero stands for what the server left out or got wrong."""
    cost: float | None = None
    """Dollars, where the provider reports them."""
    finish: str = "stop"
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Mapping[str, object], ...] = ()
    id: str = ""
    model: str = ""


class Stream(Protocol):
    """A reply while it arrives."""

    finished: bool
    """Everything has been said: what follows can be left unread."""

    def feed(self, data: bytes) -> Sequence[Piece]:
        """Take the data of one event; give the pieces in it."""
        ...

    def reply(self) -> Reply:
        """The whole, at the end. Raises `WorkerError` if the stream was cut before it."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    provider: str
    """As OpenTelemetry's conventions for generative AI call it."""
    home: str
    """The base URL of the company whose dialect it is."""
    url: Callable[[str, str, bool], str]
    """Of (base URL, model, stream)."""
    headers: Callable[[str], dict[str, str]]
    """Of the key, which may be empty."""
    settings: Callable[[Ask], Settings]
    content: Callable[[Request], dict[str, object]]
    """The fields of the body that carry messages and tools."""
    read: Callable[[object], Reply]
    stream: Callable[[], Stream]


CUT = "the stream ended before the reply was complete"


def budget(effort: str | None) -> int:
    """Tokens of thinking that an effort stands for."""
    if effort is None:
        return 0
    if effort.isdecimal():
        return int(effort)
    if effort not in EFFORTS:
        words = ", ".join(EFFORTS)
        raise ConfigError(f"effort {effort!r} is neither a number of tokens nor one of {words}")
    return EFFORTS[effort]


def ceiling(sampling: Sampling) -> int:
    """`max_tokens`; where nobody says how many, thinking gets its room beside the answer."""
    if sampling.max_tokens is not None:
        return sampling.max_tokens
    return MAX_TOKENS + budget(sampling.effort)


def given(**fields: object) -> dict[str, object]:
    """Those fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None and value != ()}


def schema_of(response_format: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """The JSON schema that a reply is held to, if it is."""
    return mapping(mapping((response_format or {}).get("json_schema")).get("schema")) or None


def data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 of a `data:` URL; None for every other address."""
    if not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    return head.partition(";")[0] or "image/png", data


def loads(raw: bytes) -> object:
    """JSON, with invalid UTF-8 repaired: the reply is paid for, and most of it is readable."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(raw.decode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        start = " ".join(raw[:80].decode("utf-8", "replace").split())
        raise WorkerError(f"the reply is not JSON: it begins {start!r}") from None


def dumps(value: object) -> str:
    return orjson.dumps(value).decode()


def arguments(call: ToolCall) -> dict[str, object]:
    """A tool call's arguments as an object, which two dialects insist on."""
    try:
        value = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def trouble(body: object, otherwise: str) -> WorkerError:
    """What went wrong, as far as the body tells."""
    first = body[0] if isinstance(body, list) and body else body
    error = mapping(first).get("error") or mapping(first)
    named = mapping(error)
    message = error if isinstance(error, str) else named.get("message") or named.get("detail")
    code = named.get("code")
    for kind in (code, named.get("type")):
        if isinstance(kind, str):
            code = KINDS_OF_ERROR.get(kind, code)
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    said = " ".join(str(message).split())[:MAX_MESSAGE] if message else otherwise
    return WorkerError(said, status=status)


def mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def tokens(value: object) -> int:
    """A count of tokens, or 0 for what can't be one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PLAUSIBLE:
        return value
    return 0


def dollars(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= PLAUSIBLE else None


def usage(given: int, written: int, cached: int, reasoning: int) -> Usage:
    return Usage(given, written, min(cached, given), min(reasoning, written))

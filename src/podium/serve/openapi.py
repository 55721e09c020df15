"""What the server takes and gives, as OpenAPI: small, written by hand, and served as it is."""

from __future__ import annotations

from importlib.metadata import version

from podium.serve.wire import Json

TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 1}


def _object(required: list[str], **properties: object) -> Json:
    return {"type": "object", "required": required, "properties": properties}


def _list(items: object, least: int = 0) -> Json:
    return {"type": "array", "items": items, "minItems": least}


WISHES = _object(
    [],
    dollars={"type": "number", "minimum": 0},
    tokens=COUNT,
    calls=COUNT,
    steps=COUNT,
    rounds=COUNT,
    seconds={"type": "number", "minimum": 0},
    allow=_list(TEXT),
    deny=_list(TEXT),
    regions=_list(TEXT),
    strategy=TEXT,
    trace=FLAG,
    reasoning=FLAG,
)
COMMON: Json = {"stream": FLAG, "podium": WISHES}
CONTENT: Json = {"anyOf": [TEXT, _list(_object(["type"], type=TEXT), 1)]}
MESSAGE = _object(
    ["role", "content"],
    role={"enum": ["system", "developer", "user", "assistant", "tool"]},
    content=CONTENT,
    tool_call_id=TEXT,
)
CHAT = _object(
    ["model", "messages"],
    **COMMON,
    messages=_list(MESSAGE, 1),
    max_tokens=COUNT,
    max_completion_tokens=COUNT,
    temperature={"type": "number", "minimum": 0, "maximum": 2},
    top_p={"type": "number", "minimum": 0, "maximum": 1},
    seed={"type": "integer"},
    stop={"anyOf": [TEXT, _list(TEXT)]},
    n={"type": "integer", "minimum": 1, "maximum": 8},
    tools=_list({"type": "object"}),
    tool_choice={},
    response_format={"type": "object"},
    stream_options={"type": "object"},
)
RESPONSES = _object(
    ["model", "input"],
    **COMMON,
    input={"anyOf": [TEXT, _list({"type": "object"}, 1)]},
    instructions=TEXT,
    previous_response_id=TEXT,
    max_output_tokens=COUNT,
    tools=_list({"type": "object"}),
    tool_choice={},
    text={"type": "object"},
    reasoning={"type": "object"},
)
MESSAGES = _object(
    ["model", "messages"],
    **COMMON,
    messages=_list(
        _object(["role", "content"], role={"enum": ["user", "assistant"]}, content=CONTENT), 1
    ),
    max_tokens=COUNT,
    system={"anyOf": [TEXT, _list({"type": "object"})]},
    stop_sequences=_list(TEXT),
    tools=_list({"type": "object"}),
    tool_choice={"type": "object"},
    thinking={"type": "object"},
)


def description(models: list[str]) -> Json:
    model: Json = {**TEXT, "enum": models}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Podium", "version": version("podium")},
        "paths": {
            "/v1/chat/completions": _post("Chat completions, as OpenAI's", _of(CHAT, model)),
            "/v1/responses": _post("Responses, as OpenAI's", _of(RESPONSES, model)),
            "/v1/messages": _post("Messages, as Anthropic's", _of(MESSAGES, model)),
            "/v1/messages/count_tokens": _post(
                "An estimate of a message's tokens", _of(MESSAGES, model)
            ),
            "/v1/models": _get("The models that this key may use"),
            "/v1/models/{name}": _get("One of them", _in("path", "name", TEXT)),
            "/v1/podium/runs": _get(
                "This key's runs, the newest first",
                _in("query", "limit", {**COUNT, "maximum": 100}),
                _in("query", "before", TEXT),
            ),
            "/v1/podium/runs/{id}": _get("One of them, whole", _in("path", "id", TEXT)),
            "/metrics": _get("Counts for Prometheus"),
            "/healthz": _get("Whether the process lives"),
            "/readyz": _get("Whether it can answer"),
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}],
    }


def _of(body: Json, model: Json) -> Json:
    properties = body["properties"]
    assert isinstance(properties, dict)
    return {**body, "properties": {"model": model, **properties}}


def _in(place: str, name: str, schema: Json) -> Json:
    return {"in": place, "name": name, "required": place == "path", "schema": schema}


def _get(summary: str, *parameters: Json) -> Json:
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": _ANSWERS}}


def _post(summary: str, body: Json) -> Json:
    content = {"application/json": {"schema": body}}
    asked = {"required": True, "content": content}
    return {"post": {"summary": summary, "requestBody": asked, "responses": _ANSWERS}}


_ANSWERS: Json = {
    "200": {"description": "As asked"},
    "default": {"description": "An error in the shape of the API", "content": {}},
}

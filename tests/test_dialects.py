"""What is sent has the types of the official SDKs, and what they can send is read."""

from __future__ import annotations

import base64
import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.errors import ConfigError, WorkerError
from podium.testing import Say, sdks
from podium.testing.bodies import EVENTS, WHOLE
from podium.types import Message, Piece, Request, Sampling, Tool, ToolCall, Usage
from podium.workers.dialects import DIALECTS, Ask, Dialect, Events, Reply, loads

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
WEB = "https://example.org/cat.png"
LOOK = Tool(
    "look",
    "Look something up.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}},
}
CALL = ToolCall("call_1", "look", '{"q":"cats"}')
TALK = (
    Message("system", "Be brief."),
    Message("user", "What is this?", images=(PNG, WEB)),
    Message(
        "assistant", "Let me see.", tool_calls=(CALL, ToolCall("call_2", "look", '{"q":"dogs"}'))
    ),
    Message("tool", "A cat.", tool_call_id="call_1"),
    Message("tool", "No dog.", tool_call_id="call_2"),
    Message("user", "So?"),
)
ALL = sorted(DIALECTS)
every = pytest.mark.parametrize("name", ALL)


def body(name: str, request: Request, *, stream: bool = False, **more: object) -> dict:
    dialect = DIALECTS[name]
    ask = Ask("m", request.sampling, stream, **more)
    return orjson.loads(orjson.dumps({**dialect.settings(ask).fields, **dialect.content(request)}))


def asked(name: str, sampling: Sampling, **more: object) -> dict:
    return body(name, Request((Message("user", "x"),), sampling=sampling), **more)


def streamed(dialect: Dialect, events: list[bytes]) -> tuple[Reply, list[Piece]]:
    stream = dialect.stream()
    pieces = [piece for data in events for piece in stream.feed(data)]
    return stream.reply(), pieces


def both(name: str, say: Say) -> tuple[Reply, Reply, list[Piece]]:
    """A reply read whole, and the same one read from a stream."""
    events = [orjson.dumps(event) for event in EVENTS[name](say, "m")]
    whole = DIALECTS[name].read(orjson.loads(orjson.dumps(WHOLE[name](say, "m"))))
    return (whole, *streamed(DIALECTS[name], events))


# ── what is sent ──


@every
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["auto", "none", "required", "look"])
async def test_a_whole_conversation_has_the_types_of_the_official_sdk(name, stream, choice):
    sampling = Sampling(
        max_tokens=100, temperature=0.5, top_p=0.9, seed=7, stop=("END",), response_format=SCHEMA
    )
    request = Request(TALK, sampling=sampling, tools=(LOOK, Tool("bare")), tool_choice=choice)
    assert sdks.complaint(name, body(name, request, stream=stream)) == ""


@every
@pytest.mark.parametrize(
    "effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max", "5000"]
)
async def test_every_effort_has_the_types_of_the_official_sdk(name, effort):
    assert sdks.complaint(name, asked(name, Sampling(effort=effort))) == ""


@every
async def test_an_effort_that_is_neither_word_nor_number_is_a_configuration_error(name):
    with pytest.raises(ConfigError, match="effort 'hard' is neither"):
        asked(name, Sampling(effort="hard"))


async def test_a_word_for_effort_is_the_providers_own_level():
    assert asked("openai", Sampling(effort="minimal"))["reasoning_effort"] == "minimal"
    sent = asked("anthropic", Sampling(effort="minimal"))
    assert sent["thinking"] == {"type": "adaptive"} and sent["output_config"] == {"effort": "low"}
    config = asked("gemini", Sampling(effort="high"))["generationConfig"]
    assert config["thinkingConfig"] == {"thinkingLevel": "HIGH", "includeThoughts": True}


async def test_a_number_for_effort_is_a_budget_of_tokens():
    assert asked("openai", Sampling(effort="9000"))["reasoning_effort"] == "medium"
    sent = asked("anthropic", Sampling(effort="9000", max_tokens=2000))
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 9000}
    assert sent["max_tokens"] == 11_000  # the budget counts as output and must stay below it
    config = asked("gemini", Sampling(effort="9000"))["generationConfig"]
    assert config["thinkingConfig"]["thinkingBudget"] == 9000


async def test_no_effort_turns_thinking_off():
    assert asked("openai", Sampling(effort="none"))["reasoning_effort"] == "none"
    assert asked("anthropic", Sampling(effort="none"))["thinking"] == {"type": "disabled"}
    config = asked("gemini", Sampling(effort="none"))["generationConfig"]
    assert config["thinkingConfig"]["thinkingBudget"] == 0


async def test_a_model_that_thinks_is_not_told_a_temperature():
    hot = asked("anthropic", Sampling(effort="high", temperature=0.2, top_p=0.5))
    assert "temperature" not in hot and "top_p" not in hot
    assert asked("anthropic", Sampling(temperature=0.2))["temperature"] == 0.2


async def test_max_tokens_is_always_sent_with_room_for_thinking_where_nobody_says_how_many():
    assert asked("openai", Sampling())["max_tokens"] == 4096
    assert asked("anthropic", Sampling())["max_tokens"] == 4096
    assert asked("gemini", Sampling())["generationConfig"]["maxOutputTokens"] == 4096
    assert asked("openai", Sampling(effort="low"))["max_tokens"] == 4096 + 2048
    assert asked("openai", Sampling(effort="low", max_tokens=9))["max_tokens"] == 9


async def test_the_openai_field_for_max_tokens_can_be_chosen():
    sent = asked("openai", Sampling(max_tokens=9), max_tokens_field="max_completion_tokens")
    assert sent["max_completion_tokens"] == 9 and "max_tokens" not in sent


async def test_usage_is_asked_for_in_streams():
    sent = asked("openai", Sampling(), stream=True)
    assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
    assert "stream" not in asked("openai", Sampling())


@every
async def test_further_fields_are_sent_and_replace_nothing_of_ours(name):
    extra = {"model": "other", "top_k": 5, "generationConfig": {"topK": 5, "maxOutputTokens": 1}}
    sent = asked(name, Sampling(), extra=extra)
    assert sent["top_k"] == 5
    if name == "gemini":
        assert sent["generationConfig"] == {"topK": 5, "maxOutputTokens": 4096}
    else:
        assert sent["model"] == "m"


async def test_one_answer_is_asked_for_because_one_is_read():
    assert "n" not in asked("openai", Sampling(), extra={"n": 8})
    extra = {"generationConfig": {"candidateCount": 8}}
    assert "candidateCount" not in asked("gemini", Sampling(), extra=extra)["generationConfig"]


async def test_images_are_passed_on_and_never_fetched():
    picture = base64.b64encode(b"\x89PNG").decode()
    request = Request((Message("user", "?", images=(PNG, WEB)),))
    openai = body("openai", request)["messages"][0]["content"]
    assert [part["image_url"]["url"] for part in openai[1:]] == [PNG, WEB]
    anthropic = body("anthropic", request)["messages"][0]["content"]
    assert anthropic[0]["source"] == {"type": "base64", "media_type": "image/png", "data": picture}
    assert anthropic[1]["source"] == {"type": "url", "url": WEB}
    gemini = body("gemini", request)["contents"][0]["parts"]
    assert gemini[0] == {"inlineData": {"mimeType": "image/png", "data": picture}}
    assert gemini[1] == {"fileData": {"fileUri": WEB}}


async def test_results_of_tools_called_together_go_back_together():
    request = Request(TALK, tools=(LOOK,))
    turns = body("anthropic", request)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in turns[2]["content"]] == ["call_1", "call_2"]
    turns = body("gemini", request)["contents"]
    answers = [part["functionResponse"] for part in turns[2]["parts"]]
    assert [(a["name"], a["id"]) for a in answers] == [("look", "call_1"), ("look", "call_2")]


async def test_arguments_that_are_no_json_still_go_back_as_an_object():
    broken = Message("assistant", "", tool_calls=(ToolCall("1", "look", "{q: cats"),))
    request = Request((Message("user", "?"), broken, Message("tool", "no", tool_call_id="1")))
    for name in ALL:
        assert sdks.complaint(name, body(name, request)) == ""
    sent = body("anthropic", request)["messages"][1]["content"]
    assert sent[0]["input"] == {"arguments": "{q: cats"}


# ── where it is sent ──


@pytest.mark.parametrize(
    ("name", "base", "stream", "url"),
    [
        ("openai", "http://h/v1", False, "http://h/v1/chat/completions"),
        ("anthropic", "http://h", True, "http://h/v1/messages"),
        ("anthropic", "http://h/v1", True, "http://h/v1/messages"),
        ("gemini", "http://h", False, "http://h/v1beta/models/m:generateContent"),
        ("gemini", "http://h/v1", True, "http://h/v1/models/m:streamGenerateContent?alt=sse"),
    ],
)
async def test_the_address(name, base, stream, url):
    assert DIALECTS[name].url(base, "m", stream) == url


async def test_a_models_name_cannot_leave_its_place_in_the_address():
    url = DIALECTS["gemini"].url("http://h", "m?key=1#x", False)
    assert url == "http://h/v1beta/models/m%3Fkey%3D1%23x:generateContent"


async def test_the_key_goes_into_the_dialects_own_header():
    assert DIALECTS["openai"].headers("k") == {"Authorization": "Bearer k"}
    assert DIALECTS["anthropic"].headers("k")["x-api-key"] == "k"
    assert DIALECTS["gemini"].headers("k") == {"x-goog-api-key": "k"}
    assert all("k" not in DIALECTS[name].headers("").values() for name in ALL)


# ── what is read ──


@every
async def test_a_stream_and_a_whole_reply_read_the_same(name):
    used = Usage(20, 9, cached=4, reasoning=3)
    say = Say("Hello there.", reasoning="Hmm.", usage=used, tool_calls=(CALL,))
    whole, stream, pieces = both(name, say)
    assert whole == stream
    assert (whole.text, whole.reasoning, whole.tool_calls) == ("Hello there.", "Hmm.", (CALL,))
    assert whole.finish == "tool_calls" and whole.model == "m" and whole.id
    assert whole.usage == used
    said = {
        kind: "".join(p.text for p in pieces if p.kind == kind)
        for kind in ("text", "reasoning", "tool")
    }
    assert said == {"text": "Hello there.", "reasoning": "Hmm.", "tool": CALL.arguments}
    first = next(p for p in pieces if p.kind == "tool")
    assert (first.index, first.id, first.name) == (0, "call_1", "look")


@every
async def test_several_tool_calls_keep_their_order_and_their_arguments(name):
    calls = tuple(ToolCall(f"c{i}", "look", f'{{"q":"{i}"}}') for i in range(3))
    whole, stream, pieces = both(name, Say(tool_calls=calls))
    assert whole.tool_calls == stream.tool_calls == calls
    for index, call in enumerate(calls):
        assert "".join(p.text for p in pieces if p.index == index) == call.arguments


@pytest.mark.parametrize(
    ("name", "said", "read"),
    [
        ("openai", "length", "length"),
        ("openai", "content_filter", "content_filter"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "refusal", "content_filter"),
        ("gemini", "MAX_TOKENS", "length"),
        ("gemini", "SAFETY", "content_filter"),
    ],
)
async def test_how_it_ended_has_one_spelling(name, said, read):
    whole, stream, _ = both(name, Say("x", finish=said))
    assert whole.finish == stream.finish == read


async def test_signed_thinking_comes_back_to_anthropic_byte_for_byte_and_first():
    signature = "EqQBCgIYAhIM+/=\u2028é"
    whole, stream, _ = both(
        "anthropic", Say("So.", reasoning="Hm\u2028é", signature=signature, tool_calls=(CALL,))
    )
    assert whole.thinking == stream.thinking
    redacted = {"type": "redacted_thinking", "data": "abc+/="}
    turn = Message("assistant", "So.", tool_calls=(CALL,), thinking=(*whole.thinking, redacted))
    request = Request((Message("user", "?"), turn, Message("tool", "cat", tool_call_id="call_1")))
    sent = body("anthropic", request)
    blocks = sent["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "Hm\u2028é", "signature": signature}
    assert blocks[1] == redacted and [b["type"] for b in blocks[2:]] == ["text", "tool_use"]
    assert sdks.complaint("anthropic", sent) == ""


async def test_a_turn_that_gemini_signed_goes_back_as_it_came():
    say = Say("So.", reasoning="Hm", signature="c2lnbmVk", tool_calls=(CALL,))
    whole, stream, _ = both("gemini", say)
    assert [p for p in whole.thinking if "thoughtSignature" in p]
    assert "c2lnbmVk" in json.dumps(stream.thinking)
    turn = Message("assistant", whole.text, tool_calls=whole.tool_calls, thinking=whole.thinking)
    request = Request((Message("user", "?"), turn, Message("tool", "cat", tool_call_id="call_1")))
    sent = body("gemini", request)
    assert sent["contents"][1]["parts"] == [dict(part) for part in whole.thinking]
    assert sdks.complaint("gemini", sent) == ""


async def test_reasoning_of_a_turn_with_tools_goes_back_to_the_openai_server_that_wrote_it():
    details = [{"type": "reasoning.text", "index": 0, "text": "Hm", "signature": "s"}]
    say = WHOLE["openai"](Say(tool_calls=(CALL,), reasoning="Hm"), "m")
    say["choices"][0]["message"]["reasoning_details"] = details
    reply = DIALECTS["openai"].read(say)
    turn = Message("assistant", "", tool_calls=reply.tool_calls, thinking=reply.thinking)
    sent = body("openai", Request((turn,)))["messages"][0]
    assert sent["reasoning_content"] == "Hm" and sent["reasoning_details"] == details


async def test_reasoning_details_that_arrive_in_parts_are_joined():
    def delta(**fields: object) -> bytes:
        return orjson.dumps({"choices": [{"index": 0, "delta": fields}]})

    kind = {"type": "reasoning.text", "index": 0}
    reply, _ = streamed(
        DIALECTS["openai"],
        [
            delta(reasoning="H", reasoning_details=[{**kind, "text": "H"}]),
            delta(reasoning="m", reasoning_details=[{**kind, "text": "m", "signature": "s"}]),
            delta(
                tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]
            ),
            b"[DONE]",
        ],
    )
    details = [{**kind, "text": "Hm", "signature": "s"}]
    assert reply.thinking == ({"reasoning": "Hm", "reasoning_details": details},)


async def test_another_dialects_thinking_is_left_out():
    foreign = ({"type": "thinking", "thinking": "a", "signature": "b"}, {"reasoning_content": "c"})
    turn = Message("assistant", "So.", thinking=foreign)
    assert body("openai", Request((turn,)))["messages"][0] == {
        "role": "assistant", "content": "So.", "reasoning_content": "c",
    }  # fmt: skip
    assert body("gemini", Request((turn,)))["contents"][0]["parts"] == [{"text": "So."}]
    assert len(body("anthropic", Request((turn,)))["messages"][0]["content"]) == 2


async def test_a_cost_that_the_provider_reports_is_read():
    whole, stream, _ = both("openai", Say("x", cost=0.0125))
    assert whole.cost == stream.cost == 0.0125


async def test_reasoning_counted_beside_the_output_is_counted_into_it():
    used = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 17}
    used["completion_tokens_details"] = {"reasoning_tokens": 10}
    whole, _, _ = both("openai", Say("x", usage=used))
    assert whole.usage == Usage(5, 12, 0, 10)


async def test_text_in_parts_and_refusals_are_text():
    parts = {"choices": [{"message": {"content": [{"text": "a"}, {"text": "b"}, 3]}}]}
    assert DIALECTS["openai"].read(parts).text == "ab"
    refused = {"choices": [{"message": {"content": None, "refusal": "no"}}]}
    assert DIALECTS["openai"].read(refused).text == "no"


async def test_a_prompt_that_gemini_blocks_is_an_empty_reply_that_says_so():
    reply = DIALECTS["gemini"].read({"promptFeedback": {"blockReason": "SAFETY"}})
    assert (reply.text, reply.finish) == ("", "content_filter")


async def test_a_function_call_without_an_id_gets_one():
    part = {"functionCall": {"name": "look", "args": {"q": 1}}}
    candidate = {"content": {"parts": [part, part]}, "finishReason": "STOP"}
    reply = DIALECTS["gemini"].read({"candidates": [candidate]})
    assert [call.id for call in reply.tool_calls] == ["call_0", "call_1"]


# ── what is wrong ──


@every
@pytest.mark.parametrize("upto", [0, 1, 3])
async def test_a_stream_that_ends_early_is_an_error(name, upto):
    events = [orjson.dumps(e) for e in EVENTS[name](Say("abc", reasoning="hm"), "m")][:upto]
    with pytest.raises(WorkerError, match="ended before the reply was complete"):
        streamed(DIALECTS[name], events)


@every
async def test_an_error_inside_a_reply_of_status_200_is_an_error_with_its_status(name):
    error = {"error": {"code": 503, "message": "no\n room"}, "type": "error"}
    for read in (DIALECTS[name].read, lambda e: DIALECTS[name].stream().feed(orjson.dumps(e))):
        with pytest.raises(WorkerError, match="no room") as caught:
            read(error)
        assert caught.value.status == 503 and caught.value.retryable


async def test_an_error_that_is_only_named_has_the_status_it_stands_for():
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    with pytest.raises(WorkerError) as caught:
        DIALECTS["anthropic"].stream().feed(orjson.dumps(event))
    assert caught.value.status == 529


@every
@pytest.mark.parametrize("wrong", [-5, float("1e300"), "many", True, None, [1], 10**15, 2**70])
async def test_a_count_that_cannot_be_one_is_read_as_unknown(name, wrong):
    fields = {
        "openai": ("prompt_tokens", "completion_tokens"),
        "anthropic": ("input_tokens", "output_tokens"),
        "gemini": ("promptTokenCount", "candidatesTokenCount"),
    }[name]
    say = Say("x", usage=dict.fromkeys(fields, wrong))
    assert DIALECTS[name].read(WHOLE[name](say, "m")).usage == Usage()


async def test_cached_and_reasoning_tokens_never_pass_the_whole_they_are_part_of():
    used = {"prompt_tokens": 5, "completion_tokens": 5}
    used |= {"prompt_tokens_details": {"cached_tokens": 99}}
    used |= {"completion_tokens_details": {"reasoning_tokens": 99}}
    assert DIALECTS["openai"].read(WHOLE["openai"](Say("x", usage=used), "m")).usage == Usage(
        5, 5, 5, 5
    )


@pytest.mark.parametrize("cost", [-1, float("inf"), "1", True, 1e12])
async def test_a_cost_that_cannot_be_one_is_no_cost(cost):
    say = Say("x", usage={"prompt_tokens": 1, "completion_tokens": 1, "cost": cost})
    assert DIALECTS["openai"].read(WHOLE["openai"](say, "m")).cost is None


async def test_invalid_utf8_is_repaired():
    assert loads(b'{"a":"x\xff\xfey"}') == {"a": "x\ufffd\ufffdy"}


async def test_what_is_no_json_is_an_error_that_shows_its_beginning():
    with pytest.raises(WorkerError, match="not JSON: it begins '<html> oops'"):
        loads(b"<html>\n  oops")


FIELDS = """
choices message delta content text tool_calls function name arguments id index error usage type
thinking candidates parts functionCall args finishReason usageMetadata promptTokenCount
content_block input code
"""
LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    LEAF | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=4)
    ),
    max_leaves=20,
)
KINDS = ["message_start", "content_block_start", "content_block_delta", "message_delta", "error"]


@every
@settings(max_examples=300, deadline=None)
@given(value=JSON, kind=st.sampled_from(KINDS))
def test_any_json_is_a_reply_or_a_worker_error(name, value, kind):
    dialect = DIALECTS[name]
    shaped = {**value, "type": kind} if isinstance(value, dict) else value
    for body in (
        value,
        shaped,
        *({field: [value]} for field in ("choices", "content", "candidates")),
    ):
        raw = json.dumps(body).encode()
        for read in (
            lambda raw=raw: dialect.read(loads(raw)),
            lambda raw=raw: streamed(dialect, [raw, b'{"type":"message_stop"}'])[0],
        ):
            try:
                assert isinstance(read(), Reply)
            except WorkerError as error:
                assert "\n" not in str(error) and len(str(error)) < 400


# ── events ──


@given(cuts=st.lists(st.integers(1, 60), max_size=20))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts):
    raw = b": hi\r\n\r\nevent: x\r\ndata: one\r\n\r\ndata: two\ndata: more\n\ndata:three\n\n"
    events, at, found = Events(), 0, []
    for cut in [*cuts, len(raw)]:
        found += events.feed(raw[at : at + cut])
        at += cut
    assert found + events.rest() == [b"one", b"two\nmore", b"three"]


async def test_an_event_without_its_empty_line_counts_at_the_end():
    events = Events()
    assert events.feed(b"data: last") == [] and events.rest() == [b"last"]


async def test_a_line_without_an_end_is_an_error_and_costs_linear_time():
    events = Events()
    with pytest.raises(WorkerError, match="a line over"):
        for _ in range(200_000):
            events.feed(b"data: xxxxxx")

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from podium.testing import Say
from podium.types import Step, ToolCall, Usage
from serving import workflow

TWO = workflow(Step(0, "Think about it."), Step(1, "Answer.", (0,)))
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}


def client(server) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0)


async def test_a_question_is_planned_performed_and_answered(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["42"]})
    async with client(server) as openai:
        reply = await openai.chat.completions.create(
            model="podium", messages=[{"role": "user", "content": "What is it?"}]
        )
    assert reply.choices[0].message.content == "42"
    assert reply.choices[0].finish_reason == "stop"
    assert [sent.model for sent in server.upstream.requests] == ["plan", "a", "b"]


async def test_usage_counts_every_inner_call_and_its_parts_add_up(serve):
    said = [
        Say("x", usage=Usage(10, 5)),
        Say("x", usage=Usage(20, 7)),
        Say("x", usage=Usage(40, 9)),
    ]
    server = await serve({"plan": [Say(TWO, usage=Usage(10, 5))], "a": [said[1]], "b": [said[2]]})
    async with client(server) as openai:
        reply = await openai.chat.completions.create(
            model="podium",
            messages=[{"role": "user", "content": "?"}],
            extra_body={"podium": {"trace": True}},
        )
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (70, 21, 91)
    assert usage.prompt_tokens_details.orchestration_input_tokens == 30
    assert usage.completion_tokens_details.orchestration_output_tokens == 12
    (round,) = reply.podium["rounds"]
    parts = [*round["planning"], *round["steps"]]
    assert sum(part["input_tokens"] for part in parts) == usage.prompt_tokens
    assert sum(part["output_tokens"] for part in parts) == usage.completion_tokens
    assert reply.podium["cost"] == pytest.approx((70 * 1.0 + 21 * 2.0) / 1e6)


async def test_nothing_strange_is_in_the_body_unless_it_is_asked_for(serve):
    server = await serve(["hello"])
    async with client(server) as openai:
        raw = await openai.chat.completions.with_raw_response.create(
            model="a", messages=[{"role": "user", "content": "hi"}]
        )
    assert not raw.parse().model_extra
    assert len(raw.headers["x-podium-run-id"]) == 19 and float(raw.headers["x-podium-cost"]) > 0


async def test_a_worker_is_passed_through_with_everything_that_was_asked(serve):
    server = await serve(["hello"])
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
        ]},
    ]  # fmt: skip
    async with client(server) as openai:
        await openai.chat.completions.create(
            model="a", messages=messages, temperature=0.5, top_p=0.9, seed=7, stop=["END"],
            max_tokens=50, response_format={"type": "json_object"}, presence_penalty=0.25,
        )  # fmt: skip
    (sent,) = server.upstream.requests
    assert sent.body["messages"] == messages
    for name, value in {
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_tokens": 50,
        "response_format": {"type": "json_object"}, "presence_penalty": 0.25,
    }.items():  # fmt: skip
        assert sent.body[name] == value


async def test_a_stream_tells_the_workflow_as_reasoning_and_then_the_answer(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["forty-two"]})
    thoughts, words, finish, usage = [], [], None, None
    async with client(server) as openai:
        stream = await openai.chat.completions.create(
            model="podium",
            messages=[{"role": "user", "content": "What is it?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                thoughts.append((choice.delta.model_extra or {}).get("reasoning_content", ""))
                words.append(choice.delta.content or "")
                finish = choice.finish_reason or finish
    assert [w for w in words if w] == ["for", "ty-", "two"]
    told = "".join(thoughts)
    assert "1. a: Think about it." in told and "2. b: Answer. (reads 1)" in told
    assert "forty" not in told and finish == "stop"
    assert usage.total_tokens == 45


async def test_reasoning_can_be_switched_off(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["forty-two"]})
    async with client(server) as openai:
        stream = await openai.chat.completions.create(
            model="podium",
            messages=[{"role": "user", "content": "What is it?"}],
            stream=True,
            extra_headers={"x-podium-reasoning": "off"},
        )
        deltas = [c.choices[0].delta async for c in stream]
    assert not any(d.model_extra for d in deltas)


async def test_what_may_yet_be_replaced_is_told_as_reasoning(serve):
    stands = "model_id = []\nsubtasks = []\naccess_list = []"
    one = workflow(Step(0, "Answer the question."))
    server = await serve({"plan": [one, stands], "a": ["first words"]})
    async with client(server) as openai:
        stream = await openai.chat.completions.create(
            model="podium-deep", messages=[{"role": "user", "content": "?"}], stream=True
        )
        chunks = [c async for c in stream]
    order = [
        "thought" if "reasoning_content" in (c.choices[0].delta.model_extra or {}) else "text"
        for c in chunks
        if c.choices[0].delta.content or c.choices[0].delta.model_extra
    ]
    assert order[-1] == "text" and set(order[:-1]) == {"thought"}
    assert chunks[-2].choices[0].delta.content == "first words"


async def test_a_tool_call_goes_to_the_client_and_its_result_back_to_the_worker(serve):
    called = Say(tool_calls=(ToolCall("up-1", "look", '{"q": "x"}'),), reasoning="private thought")
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": [called, "found it"]})
    question = [{"role": "user", "content": "Look x up."}]
    async with client(server) as openai:
        first = await openai.chat.completions.create(
            model="podium", messages=question, tools=[TOOL]
        )
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        assert message.tool_calls[0].function.arguments == '{"q": "x"}'
        second = await openai.chat.completions.create(
            model="podium",
            messages=[
                *question,
                message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "it is y"},
            ],
            tools=[TOOL],
        )
    assert second.choices[0].message.content == "found it"
    *_, private, resumed = server.upstream.requests
    assert [sent.model for sent in server.upstream.requests] == ["plan", "a", "b", "b"]
    *before, turn, result = resumed.body["messages"]
    assert before == private.body["messages"]
    assert turn["tool_calls"][0]["id"] == "up-1" and turn["reasoning_content"] == "private thought"
    assert result == {"role": "tool", "tool_call_id": "up-1", "content": "it is y"}
    assert "tools" not in server.upstream.requests[1].body and "tools" in resumed.body


async def test_tool_arguments_stream_with_integer_indices(serve):
    calls = (ToolCall("x", "look", '{"q": "one"}'), ToolCall("y", "look", '{"q": "two"}'))
    server = await serve([Say(tool_calls=calls)])
    async with (
        client(server) as openai,
        openai.chat.completions.stream(
            model="a", messages=[{"role": "user", "content": "?"}], tools=[TOOL]
        ) as stream,
    ):
        indices = [
            call.index
            async for event in stream
            if event.type == "chunk"
            for call in event.chunk.choices[0].delta.tool_calls or []
        ]
        final = await stream.get_final_completion()
    assert indices == [0, 0, 1, 1]
    made = final.choices[0].message.tool_calls
    assert [call.function.arguments for call in made] == ['{"q": "one"}', '{"q": "two"}']
    assert len({call.id for call in made}) == 2


async def test_a_finished_tool_exchange_is_read_as_words_by_whoever_comes_next(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["done"]})
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with client(server) as openai:
        await openai.chat.completions.create(
            model="podium",
            messages=[
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "seen"},
                {"role": "assistant", "content": "I looked."},
                {"role": "user", "content": "And now?"},
            ],
        )
    sent = server.upstream.requests[1].body["messages"]
    assert {m["role"] for m in sent} == {"user", "assistant"}
    assert not any("tool_calls" in m for m in sent) and "seen" in sent[2]["content"]


async def test_several_answers_are_several_samples(serve):
    server = await serve({"a": ["one", "two"]})
    async with client(server) as openai:
        reply = await openai.chat.completions.create(
            model="a", messages=[{"role": "user", "content": "?"}], n=2
        )
    assert sorted(c.message.content for c in reply.choices) == ["one", "two"]
    assert [c.index for c in reply.choices] == [0, 1] and reply.usage.total_tokens == 30


async def test_unknown_tools_and_fields_are_never_a_failure(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        reply = await openai.chat.completions.create(
            model="a",
            messages=[{"role": "user", "content": "?"}],
            tools=[TOOL, {"type": "web_search"}, {"type": "custom", "custom": {"name": "x"}}],
            extra_body={"metadata": {"a": "b"}},
        )
    assert reply.choices[0].message.content == "fine"
    (sent,) = server.upstream.requests
    assert [t["function"]["name"] for t in sent.body["tools"]] == ["look"]
    assert sent.body["metadata"] == {"a": "b"}


async def test_errors_have_the_shape_that_clients_parse(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        with pytest.raises(NotFoundError) as missing:
            await openai.chat.completions.create(
                model="nobody", messages=[{"role": "user", "content": "?"}]
            )
        assert missing.value.code == "model_not_found" and "podium-fast" in missing.value.message
        with pytest.raises(BadRequestError) as wrong:
            await openai.chat.completions.create(
                model="a", messages=[{"role": "user", "content": "?"}], temperature=9
            )
        assert wrong.value.param == "temperature"
        assert [m.id async for m in openai.models.list()] == [
            "podium", "podium-fast", "podium-deep", "a", "b",
        ]  # fmt: skip

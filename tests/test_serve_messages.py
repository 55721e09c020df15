import anthropic
import pytest
from anthropic import AsyncAnthropic

from podium.testing import Say
from podium.types import Step, ToolCall, Usage
from serving import workflow

TWO = workflow(Step(0, "Think about it."), Step(1, "Answer.", (0,)))
TOOL = {
    "name": "look",
    "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
}
ASK = [{"role": "user", "content": "What is it?"}]


def client(server) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)


async def test_a_message_is_answered(serve):
    server = await serve(
        {"plan": [TWO], "a": ["a thought"], "b": [Say("42", usage=Usage(10, 5, 4))]}
    )
    async with client(server) as claude:
        reply = await claude.messages.create(
            model="podium", max_tokens=100, system="Be brief.", messages=ASK
        )
    assert [block.text for block in reply.content] == ["42"] and reply.stop_reason == "end_turn"
    usage = reply.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == 30 and usage.output_tokens == 15
    assert usage.orchestration_input_tokens == 20 and usage.orchestration_output_tokens == 10
    assert server.upstream.requests[2].body["max_tokens"] == 100


async def test_a_stream_shows_the_work_in_thinking_blocks(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["forty-two"]})
    async with (
        client(server) as claude,
        claude.messages.stream(model="podium", max_tokens=100, messages=ASK) as stream,
    ):
        said = [text async for text in stream.text_stream]
        final = await stream.get_final_message()
    assert "".join(said) == "forty-two" and len(said) == 3
    thinking, text = final.content
    assert "1. a: Think about it." in thinking.thinking
    assert thinking.signature.startswith("podium:") and text.text == "forty-two"
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 15


async def test_tools_and_thinking_survive_a_loop_untouched(serve):
    called = Say(
        "Let me look.",
        reasoning="deep thought",
        signature="c2lnbmVk",
        tool_calls=(ToolCall("toolu_up", "look", '{"q":"x"}'),),
    )

    def claude_worker(upstream):
        base = {"kind": "anthropic", "model": "c", "base_url": upstream.url, "retries": 0}
        return {"name": "c", "price": {"input": 1, "output": 1}, **base}

    flow = workflow(Step(0, "Answer the question."))
    server = await serve({"plan": [flow], "c": [called, "found it"]}, worker=[claude_worker])
    async with client(server) as claude:
        async with claude.messages.stream(
            model="podium", max_tokens=500, messages=ASK, tools=[TOOL]
        ) as stream:
            async for _ in stream:
                pass
            first = await stream.get_final_message()
        assert first.stop_reason == "tool_use"
        (use,) = [block for block in first.content if block.type == "tool_use"]
        assert use.input == {"q": "x"}
        second = await claude.messages.create(
            model="podium",
            max_tokens=500,
            messages=[
                *ASK,
                {"role": "assistant", "content": [b.model_dump() for b in first.content]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": use.id, "content": "it is y"},
                    {"type": "text", "text": "go on"},
                ]},
            ],
            tools=[TOOL],
        )  # fmt: skip
    assert second.content[-1].text == "found it"
    sent = server.upstream.requests[-1].body["messages"]
    turn, result = sent[1]["content"], sent[2]["content"]
    assert turn[0] == {"type": "thinking", "thinking": "deep thought", "signature": "c2lnbmVk"}
    assert turn[2] == {"type": "tool_use", "id": "toolu_up", "name": "look", "input": {"q": "x"}}
    assert result[0]["tool_use_id"] == "toolu_up"
    assert len(server.upstream.requests) == 3  # nobody planned again


async def test_foreign_thinking_passes_through_and_ours_is_dropped(serve):
    def claude_worker(upstream):
        base = {"kind": "anthropic", "model": "c", "base_url": upstream.url, "retries": 0}
        return {"name": "c", "price": {"input": 1, "output": 1}, **base}

    server = await serve({"c": ["fine"]}, worker=[claude_worker], planner={"worker": "c"},
                         planner_worker=[])  # fmt: skip
    signed = {"type": "thinking", "thinking": "theirs", "signature": "abc"}
    async with client(server) as claude:
        await claude.messages.create(
            model="c",
            max_tokens=50,
            messages=[
                *ASK,
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "ours", "signature": "podium:1"},
                    signed,
                    {"type": "text", "text": "It is."},
                ]},
                {"role": "user", "content": "Sure?"},
            ],
        )  # fmt: skip
    turn = server.upstream.requests[0].body["messages"][1]["content"]
    assert turn == [signed, {"type": "text", "text": "It is."}]


async def test_images_are_passed_on(serve):
    server = await serve(["fine"])
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    async with client(server) as claude:
        await claude.messages.create(
            model="a",
            max_tokens=50,
            messages=[{"role": "user", "content": [{"type": "image", "source": source}]}],
        )
    part = server.upstream.requests[0].body["messages"][0]["content"][0]
    assert part["image_url"]["url"] == "data:image/png;base64,AAAA"


async def test_errors_have_the_shape_that_clients_parse(serve):
    server = await serve(["fine"])
    async with client(server) as claude:
        with pytest.raises(anthropic.NotFoundError) as missing:
            await claude.messages.create(model="nobody", max_tokens=5, messages=ASK)
        assert missing.value.body["error"]["type"] == "not_found_error"
        with pytest.raises(anthropic.BadRequestError) as wrong:
            await claude.messages.create(model="a", max_tokens=0, messages=ASK)
        assert "max_tokens" in wrong.value.message
        count = await claude.messages.count_tokens(model="a", messages=ASK)
    assert count.input_tokens > 0


async def test_a_stream_that_is_cut_upstream_ends_with_an_error(serve):
    server = await serve([Say("half an answer", cut=3)])
    async with client(server) as claude:
        with pytest.raises(anthropic.APIError):
            async with claude.messages.stream(model="a", max_tokens=50, messages=ASK) as stream:
                await stream.get_final_message()

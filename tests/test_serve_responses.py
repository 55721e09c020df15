import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from pydantic import BaseModel

from podium.testing import Say
from podium.types import Step, ToolCall
from serving import workflow

TWO = workflow(Step(0, "Think about it."), Step(1, "Answer.", (0,)))
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Look something up.",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    "strict": False,
}


def client(server) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0)


def text(said: str) -> dict[str, str]:
    return {"type": "input_text", "text": said}


async def test_a_response_is_given_whole(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["42"]})
    async with client(server) as openai:
        reply = await openai.responses.create(
            model="podium", input="What is it?", instructions="Be brief."
        )
    assert reply.output_text == "42" and reply.status == "completed"
    assert reply.usage.input_tokens_details.orchestration_input_tokens == 20
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens == 45
    assert server.upstream.requests[2].body["messages"][0]["content"] == "Be brief."


async def test_a_response_is_streamed_with_a_summary_of_the_work(serve):
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ["forty-two"]})
    async with (
        client(server) as openai,
        openai.responses.stream(model="podium", input="What is it?") as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [e.sequence_number for e in events] == list(range(len(events)))
    told = "".join(e.delta for e in events if e.type == "response.reasoning_summary_text.delta")
    said = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "1. a: Think about it." in told and "".join(said) == "forty-two" and len(said) == 3
    assert final.output_text == "forty-two"
    assert [item.type for item in final.output] == ["reasoning", "message"]


async def test_a_tool_call_streams_and_its_output_goes_back_to_the_worker(serve):
    called = Say(tool_calls=(ToolCall("up-1", "look", '{"q": "x"}'),))
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": [called, "found it"]})
    async with client(server) as openai:
        async with openai.responses.stream(
            model="podium", input="Look x up.", tools=[TOOL]
        ) as stream:
            async for _ in stream:
                pass
            first = await stream.get_final_response()
        call = next(item for item in first.output if item.type == "function_call")
        assert call.name == "look" and call.arguments == '{"q": "x"}'
        second = await openai.responses.create(
            model="podium",
            input=[
                {"role": "user", "content": "Look x up."},
                *(item.model_dump(exclude={"parsed_arguments"}) for item in first.output),
                {"type": "function_call_output", "call_id": call.call_id, "output": "it is y"},
            ],
            tools=[TOOL],
        )
    assert second.output_text == "found it"
    assert [sent.model for sent in server.upstream.requests] == ["plan", "a", "b", "b"]
    assert server.upstream.requests[-1].body["messages"][-1]["tool_call_id"] == "up-1"


async def test_a_conversation_can_go_on_from_a_response(serve):
    server = await serve({"a": ["Paris", "about two million"]})
    async with client(server) as openai:
        first = await openai.responses.create(model="a", input="Capital of France?")
        second = await openai.responses.create(
            model="a", input="How many people?", previous_response_id=first.id
        )
        with pytest.raises(NotFoundError):
            await openai.responses.create(model="a", input="?", previous_response_id="resp_none")
    assert second.previous_response_id == first.id
    sent = server.upstream.requests[1].body["messages"]
    assert [m["content"] for m in sent] == ["Capital of France?", "Paris", "How many people?"]


async def test_tool_outputs_alone_can_go_on_from_a_response(serve):
    called = Say(tool_calls=(ToolCall("up-1", "look", "{}"),))
    server = await serve({"plan": [TWO], "a": ["a thought"], "b": [called, "found it"]})
    async with client(server) as openai:
        first = await openai.responses.create(model="podium", input="Look.", tools=[TOOL])
        (call,) = first.output
        second = await openai.responses.create(
            model="podium",
            previous_response_id=first.id,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "y"}],
            tools=[TOOL],
        )
    assert second.output_text == "found it" and server.upstream.requests[-1].model == "b"


async def test_a_shape_is_asked_of_the_worker_that_answers(serve):
    class Answer(BaseModel):
        number: int

    server = await serve({"plan": [TWO], "a": ["a thought"], "b": ['{"number": 42}']})
    async with client(server) as openai:
        reply = await openai.responses.parse(model="podium", input="?", text_format=Answer)
    assert reply.output_parsed == Answer(number=42)
    shape = server.upstream.requests[2].body["response_format"]
    assert shape["type"] == "json_schema" and shape["json_schema"]["name"] == "Answer"
    assert "response_format" not in server.upstream.requests[1].body


async def test_what_a_coding_agent_sends_is_understood(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        reply = await openai.responses.create(
            model="a",
            input=[
                {"type": "message", "role": "developer", "content": [text("Rules.")]},
                {"type": "message", "role": "user", "content": [text("Hi.")]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"},
                {"type": "local_shell_call", "id": "x", "call_id": "y", "action": {}},
            ],
            tools=[TOOL, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}],
            include=["reasoning.encrypted_content"],
            store=False,
            parallel_tool_calls=False,
            reasoning={"effort": "low", "summary": "auto"},
            extra_body={"prompt_cache_key": "k", "client_metadata": {}},
        )  # fmt: skip
    assert reply.output_text == "fine"
    (sent,) = server.upstream.requests
    assert [m["role"] for m in sent.body["messages"]] == ["system", "user"]


async def test_a_stream_that_is_cut_upstream_fails(serve):
    server = await serve([Say("half an answer", cut=3)])
    async with client(server) as openai:
        stream = await openai.responses.create(model="a", input="?", stream=True)
        kinds = []
        try:
            async for event in stream:
                kinds.append(event.type)
        except Exception as error:  # noqa: BLE001
            kinds.append(type(error).__name__)
    assert "response.completed" not in kinds and kinds[-1] in ("response.failed", "APIError")


async def test_bad_input_gets_one_clear_error(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        with pytest.raises(BadRequestError) as wrong:
            await openai.responses.create(model="a", input=[{"role": "king", "content": "x"}])
    assert "input[0].role" in wrong.value.message

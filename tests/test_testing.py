"""The doubles are held to what the real things do."""

from __future__ import annotations

import asyncio

import aiohttp
import anthropic
import openai
import pytest
from google import genai

from podium.errors import ConfigError, LimitError, WorkerError
from podium.ledger import Ledger
from podium.testing import Raw, Refuse, Say, ScriptedWorker, Upstream, sdks
from podium.types import Completion, Limits, Message, Piece, Request, ToolCall, Usage
from podium.workers import Call, Price

ASK = Request((Message("user", "What is it?"),))
OPENAI = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


async def post(url: str, body: object) -> tuple[int, dict]:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return response.status, await response.json()


async def test_a_scripted_worker_replies_in_order_and_remembers_what_it_was_asked():
    worker = ScriptedWorker(
        ["one", Completion("two", Usage(3, 4), 0.5), lambda r: r.messages[0].content]
    )
    texts = [(await worker.complete(ASK, Call(Ledger()))).text for _ in range(3)]
    assert texts == ["one", "two", "What is it?"]
    assert worker.seen == [ASK] * 3


async def test_a_scripted_worker_asked_too_often_fails_the_test():
    with pytest.raises(AssertionError, match="was asked 1 times and has 0 replies"):
        await ScriptedWorker([]).complete(ASK, Call(Ledger()))


async def test_a_function_in_place_of_a_list_is_asked_for_ever():
    worker = ScriptedWorker(lambda request: "again")
    assert [(await worker.complete(ASK, Call(Ledger()))).text for _ in range(5)] == ["again"] * 5


async def test_a_scripted_worker_spends_as_a_real_one_does():
    ledger = Ledger(Limits(dollars=1.0))
    worker = ScriptedWorker(
        [Completion("x", Usage(10, 10), 0.25), WorkerError("down")], price=Price(1, 1)
    )
    await worker.complete(ASK, Call(ledger))
    with pytest.raises(WorkerError):
        await worker.complete(ASK, Call(ledger))
    assert (ledger.dollars, ledger.tokens, ledger.calls) == (0.25, 20, 2)
    assert (ledger.held_dollars, ledger.held_tokens) == (0.0, 0)


async def test_a_scripted_worker_without_a_price_is_refused_under_a_dollar_limit():
    worker = ScriptedWorker(["x"], price=None)
    with pytest.raises(LimitError, match="price is unknown"):
        await worker.complete(ASK, Call(Ledger(Limits(dollars=1.0))))


async def test_a_scripted_worker_streams_in_pieces():
    heard: list[Piece] = []
    call = ToolCall("1", "look", "{}")
    worker = ScriptedWorker([Completion("abcdef", reasoning="hm", tool_calls=(call,))])
    await worker.complete(ASK, Call(Ledger(), heard.append))
    assert "".join(p.text for p in heard if p.kind == "text") == "abcdef"
    assert len([p for p in heard if p.kind == "text"]) == 3
    assert heard[0].kind == "reasoning" and heard[-1].name == "look"


async def test_a_gated_worker_that_is_cancelled_is_paid_for_what_it_read():
    ledger, gate = Ledger(), asyncio.Event()
    worker = ScriptedWorker(["never"], gate=gate)
    task = asyncio.create_task(worker.complete(ASK, Call(ledger)))
    await asyncio.sleep(0)
    assert worker.seen == [ASK]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.held_tokens == 0 and ledger.tokens > 0


async def test_an_upstream_answers_each_model_from_its_own_script_and_repeats_the_last():
    async with Upstream({"a": ["one", "two"], "": ["other"]}) as upstream:
        url = f"{upstream.url}/v1/chat/completions"

        async def ask(model: str) -> str:
            _, body = await post(url, {**OPENAI, "model": model})
            return body["choices"][0]["message"]["content"]

        assert [await ask("a"), await ask("b"), await ask("a"), await ask("a")] == [
            "one", "other", "two", "two",
        ]  # fmt: skip
        assert [sent.model for sent in upstream.requests] == ["a", "b", "a", "a"]


@pytest.mark.parametrize(
    ("path", "body", "wrong"),
    [
        ("/v1/chat/completions", {**OPENAI, "max_token": 1}, "max_token"),
        ("/v1/chat/completions", {**OPENAI, "temperature": "hot"}, "temperature"),
        (
            "/v1/chat/completions",
            {**OPENAI, "messages": [{"role": "user", "content": [{"type": "txt"}]}]},
            "messages|text|content",
        ),
        ("/v1/messages", OPENAI | {"stop": ["x"]}, "stop"),
        ("/v1/messages", {"model": "m", "messages": []}, "max_tokens"),
        ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "text": "x"}]}, "text"),
        ("/v1beta/models/m:generateContent", {"contents": [], "temperature": 1}, "temperature"),
    ],
)
async def test_what_the_official_sdk_would_not_send_is_refused(path, body, wrong):
    async with Upstream() as upstream:
        status, said = await post(upstream.url + path, body)
        assert status == 400
        assert any(word in said["error"]["message"] for word in wrong.split("|"))


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini"])
async def test_an_sdk_that_is_missing_is_named_with_the_command_that_installs_it(
    dialect, monkeypatch
):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(sdks, "import_module", absent)
    sdks._requests.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install .*check=False"):
        sdks.complaint(dialect, {"contents": []})


async def test_an_upstream_can_refuse_and_say_anything_at_all():
    refuse, raw = Refuse(429, "slow down", {"Retry-After": "7"}), Raw(b"{}", status=418)
    async with Upstream([refuse, raw, Say("ok", usage=None)]) as upstream:
        url = f"{upstream.url}/v1/chat/completions"
        assert await post(url, OPENAI) == (
            429, {"error": {"message": "slow down", "type": "error", "param": None, "code": None}},
        )  # fmt: skip
        assert (await post(url, OPENAI))[0] == 418
        assert "usage" not in (await post(url, OPENAI))[1]


async def test_an_upstream_knows_who_left_before_the_answer():
    async with Upstream([Say("late", gate=asyncio.Event())]) as upstream:
        task = asyncio.create_task(post(f"{upstream.url}/v1/chat/completions", OPENAI))
        await upstream.arrived()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.quiet()
        assert upstream.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_openai_client_understands_the_upstream(stream):
    ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with (
        Upstream([Say("Hello there.")]) as upstream,
        openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k") as client,
    ):
        reply = await client.chat.completions.create(**ask, stream=stream)
        if stream:
            deltas = [c.choices[0].delta.content async for c in reply if c.choices]
            assert "".join(d or "" for d in deltas) == "Hello there."
        else:
            assert reply.choices[0].message.content == "Hello there."


@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_anthropic_client_understands_the_upstream(stream):
    say = Say("Hello there.", reasoning="Hm.", signature="s")
    async with Upstream([say]) as upstream:
        async with anthropic.AsyncAnthropic(base_url=upstream.url, api_key="k") as client:
            ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            if stream:
                async with client.messages.stream(**ask) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(**ask)
        assert [block.type for block in reply.content] == ["thinking", "text"]
        assert reply.content[0].signature == "s" and reply.content[1].text == "Hello there."
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 5)


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")
async def test_the_official_gemini_client_understands_the_upstream():
    async with Upstream([Say("Hello there.")]) as upstream:
        client = genai.Client(api_key="k", http_options={"base_url": upstream.url}).aio
        reply = await client.models.generate_content(model="m", contents="hi")
        assert (reply.text, reply.usage_metadata.total_token_count) == ("Hello there.", 15)
        parts = await client.models.generate_content_stream(model="m", contents="hi")
        assert "".join([part.text or "" async for part in parts]) == "Hello there."
        await client.aclose()

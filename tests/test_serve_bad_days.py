import asyncio
import json
import re

import aiohttp
import pytest
from openai import APIError, APIStatusError, AsyncOpenAI

from podium.serve import exchange, server
from podium.serve.keys import Key
from podium.testing import Raw, Refuse, Say
from podium.types import Step
from serving import workflow

ASK = [{"role": "user", "content": "?"}]
TWO = workflow(Step(0, "Think about it."), Step(1, "Answer.", (0,)))
FAN = workflow(Step(0, "one"), Step(1, "two"), Step(0, "three", "all"))
STANDS = "model_id = []\nsubtasks = []\naccess_list = []"


def client(served) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=served.v1, api_key="none", max_retries=0)


async def post(served, body: object, *, headers: str = "", path: str = "/v1/chat/completions"):
    """A connection that has sent a request; what is done with it is the test's business."""
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n{headers}"
    writer.write(head.encode() + b"\r\n" + raw)
    await writer.drain()
    return reader, writer


async def text_of(served, path: str, key: str = "none") -> str:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(served.url + path) as reply,
    ):
        return await reply.text()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("phase", "arrived"), [("planning", 1), ("fan-out", 3), ("recursion", 3), ("answering", 4)]
)
async def test_when_the_client_leaves_every_call_is_cancelled_and_booked(
    serve, phase, arrived, stream
):
    never = asyncio.Event()
    held = Say("x", gate=never)
    script = {
        "planning": {"plan": [held]},
        "fan-out": {"plan": [FAN], "a": [held], "b": [held]},
        "recursion": {"plan": [workflow(Step(0, "one")), held], "a": ["done"], "b": ["done"]},
        "answering": {"plan": [FAN], "a": ["done", held], "b": ["done"]},
    }[phase]
    served = await serve(script)
    body = {"model": "podium-deep", "messages": ASK, "stream": stream}
    _, writer = await post(served, body)
    await served.upstream.arrived(arrived)
    writer.close()
    await served.upstream.quiet()
    assert served.upstream.aborted == (2 if phase == "fan-out" else 1)
    await served.desk.idle()
    (row,) = await served.desk.podium.store.runs()
    assert row.failure == "Cancelled" and served.desk.podium.ledger.dollars > 0


async def test_a_sign_of_life_comes_while_nothing_happens(serve, monkeypatch):
    monkeypatch.setattr(exchange, "BEAT_SECONDS", 0.02)
    gate = asyncio.Event()
    served = await serve({"plan": [Say(TWO, gate=gate)], "a": ["x"], "b": ["y"]})
    reader, writer = await post(served, {"model": "podium", "messages": ASK, "stream": True})
    seen = b""
    while seen.count(b": working") < 3:
        seen += await reader.read(4096)
    assert b'"role":"assistant"' in seen.partition(b": working")[0]
    gate.set()
    while b"[DONE]" not in seen:
        seen += await reader.read(4096)
    writer.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_cut_upstream_is_an_error_event_and_never_a_clean_end(serve, path):
    served = await serve([Say("half an answer", cut=3)])
    body = {"model": "a", "messages": ASK, "input": "?", "max_tokens": 50, "stream": True}
    reader, writer = await post(served, body, path=path, headers="Connection: close\r\n")
    seen = await reader.read()
    writer.close()
    assert b'"error"' in seen
    for clean in (b"[DONE]", b"message_stop", b"response.completed", b'"finish_reason":"stop"'):
        assert clean not in seen


async def test_a_fallback_that_begins_anew_is_no_answer(serve):
    def first(upstream):
        return {
            "name": "a", "model": "a", "base_url": f"{upstream.url}/v1", "retries": 0,
            "price": {"input": 1, "output": 1}, "fallback": "b",
        }  # fmt: skip

    def second(upstream):
        return {"name": "b", "model": "b", "base_url": f"{upstream.url}/v1",
                "price": {"input": 1, "output": 1}}  # fmt: skip

    served = await serve(
        {"a": [Say("half an answer", cut=3)], "b": ["a whole one"]}, worker=[first, second]
    )
    async with client(served) as openai:
        stream = await openai.chat.completions.create(model="a", messages=ASK, stream=True)
        with pytest.raises(APIError):
            async for _ in stream:
                pass
        whole = await openai.chat.completions.create(model="b", messages=ASK)
    assert whole.choices[0].message.content == "a whole one"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Refuse(429), 429),
        (Refuse(500), 502),
        (Refuse(400), 400),
        (Refuse(401), 502),
        (Raw(b"<html>no</html>", content_type="text/html"), 502),
        (Raw(b'{"choices": ['), 502),
        (Say("x", cut=20), 502),
    ],
)
async def test_what_an_upstream_does_wrong_becomes_an_honest_error(serve, answer, status):
    served = await serve([answer])
    async with client(served) as openai:
        with pytest.raises(APIStatusError) as refused:
            await openai.chat.completions.create(model="a", messages=ASK)
    assert refused.value.status_code == status and "a" in refused.value.message


async def test_a_failing_worker_is_tried_again_and_then_replaced(serve):
    def first(upstream):
        base = {"name": "a", "model": "a", "base_url": f"{upstream.url}/v1", "retries": 0}
        return {**base, "price": {"input": 1, "output": 1}, "fallback": "b"}

    def second(upstream):
        base = {"name": "b", "model": "b", "base_url": f"{upstream.url}/v1", "retries": 1}
        return {**base, "price": {"input": 1, "output": 1}}

    served = await serve({"a": [Refuse(500)], "b": [Refuse(503), "fine"]}, worker=[first, second])
    async with client(served) as openai:
        reply = await openai.chat.completions.create(model="a", messages=ASK)
    assert reply.choices[0].message.content == "fine"


async def test_the_best_so_far_is_marked_as_cut_short_when_a_limit_is_reached(serve):
    served = await serve({"plan": [TWO], "a": ["a first thought"], "b": ["never"]})
    async with client(served) as openai:
        reply = await openai.chat.completions.create(
            model="podium", messages=ASK, extra_body={"podium": {"calls": 2}}
        )
    assert reply.choices[0].message.content == "a first thought"
    assert reply.choices[0].finish_reason == "length"


async def test_bodies_and_heads_are_bounded(serve, monkeypatch):
    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
    served = await serve(["fine"])
    port = int(served.url.rpartition(":")[2])

    async def say(raw: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    post = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    assert b" 413 " in await say(post + b"Content-Length: 99999999999\r\n\r\n")
    assert b" 408 " in await say(post + b"Content-Length: 100\r\n\r\n{")
    assert b" 431 " in await say(post + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n")
    assert await say(post + b"X-Long: " + b"x" * 200_000) == b""
    assert await say(b"POST /v1/chat") == b""
    assert b" 400 " in await say(post + b"Content-Length: 3\r\n\r\n{x}")
    assert b" 400 " in await say(b"nonsense\r\n\r\n")


async def test_a_reader_that_takes_nothing_is_cut_off(serve, monkeypatch):
    monkeypatch.setattr(exchange, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(exchange, "STALL_SECONDS", 0.05)
    piece = {"choices": [{"index": 0, "delta": {"content": "x" * 10_000}}]}
    event = b"data: " + json.dumps(piece).encode() + b"\n\n"
    served = await serve([Raw([event] * 1500, content_type="text/event-stream")])
    _, writer = await post(served, {"model": "a", "messages": ASK, "stream": True})
    await served.upstream.arrived(1)
    await served.desk.idle()
    assert "podium_slow_readers_total 1" in served.desk.metrics.text()
    writer.close()


async def test_no_field_of_a_request_makes_the_server_fetch_anything(serve):
    served = await serve(["fine"])
    fetched = []

    async def canary(reader, writer):
        fetched.append(await reader.read(100))
        writer.close()

    trap = await asyncio.start_server(canary, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/x.png"
    image = {"type": "image_url", "image_url": {"url": url}}
    fields = {name: url for name in ("base_url", "api_base", "webhook", "callback_url", "proxy")}
    async with client(served) as openai:
        await openai.chat.completions.create(
            model="a", messages=[{"role": "user", "content": [image]}],
            extra_body={"metadata": fields, "user": url}, extra_headers={"x-base-url": url},
        )  # fmt: skip
        for odd in ("file:///etc/passwd", "gopher://x", "ftp://x", "/etc/passwd", "javascript:1"):
            part = {"type": "image_url", "image_url": {"url": odd}}
            with pytest.raises(APIStatusError) as refused:
                await openai.chat.completions.create(
                    model="a", messages=[{"role": "user", "content": [part]}]
                )
            assert refused.value.status_code == 400
    trap.close()
    sent = served.upstream.requests[0].body["messages"][0]["content"][0]
    assert sent["image_url"]["url"] == url and fetched == [] and len(served.upstream.requests) == 1


async def test_operations_learn_what_they_need(serve):
    served = await serve(["fine"])
    async with client(served) as openai:
        await openai.chat.completions.create(model="a", messages=ASK)
        text = await text_of(served, "/metrics")
        ready = await openai.get("/../readyz", cast_to=object)
        alive = await openai.get("/../healthz", cast_to=object)
    assert (ready, alive) == ({"status": "ready"}, {"status": "ok"})
    assert 'podium_requests_total{api="chat",model="a",status="200"} 1' in text
    assert 'podium_request_seconds_count{api="chat"} 1' in text
    assert re.search(r'podium_tokens_total\{model="a",direction="input"\} 10\b', text)


async def test_unknown_paths_and_methods_have_the_shape_of_errors(serve):
    served = await serve(["fine"])
    async with client(served) as openai:
        for call in (
            openai.get("/nowhere", cast_to=object),
            openai.get("/responses", cast_to=object),
        ):
            with pytest.raises(APIStatusError) as refused:
                await call
            assert refused.value.status_code in (404, 405) and refused.value.body["message"]


async def test_no_key_is_ever_shown(serve, caplog):
    caplog.set_level("DEBUG")
    served = await serve([Refuse(500, "canary-in-error")])
    secret = await served.desk.keys.new(Key("k1", "alice", daily=1.0))
    openai = AsyncOpenAI(base_url=served.v1, api_key=secret, max_retries=0)
    async with openai:
        with pytest.raises(APIStatusError) as refused:
            await openai.chat.completions.create(model="a", messages=ASK)
        metrics = await text_of(served, "/metrics", secret)
        runs = await openai.get("/podium/runs", cast_to=object)
    logged = "".join(r.getMessage() for r in caplog.records if r.name.startswith("podium"))
    for place in (str(refused.value.body), metrics, json.dumps(runs), logged):
        assert secret not in place

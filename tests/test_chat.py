"""HTTP workers against a real server: what they pay, retry, bound, tell and hide."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from podium.errors import ConfigError, LimitError, WorkerError
from podium.ledger import Ledger
from podium.testing import Raw, Refuse, Say, Upstream
from podium.types import Limits, Message, Piece, Request, Sampling, Tool, ToolCall, Usage
from podium.workers import Call, Price
from podium.workers import chat as chat_module
from podium.workers.chat import ChatWorker, Secret, Timeouts
from podium.workers.endpoint import _retry_after
from podium.workers.limits import Breaker, Pace
from podium.workers.prices import price_of
from podium.workers.transport import Transport

ASK = Request((Message("user", "What is it?"),))
CANARY = "sk-canary-5f3a9c1e7b"
PRICE = Price(1.0, 2.0)
EVENTS = {"content_type": "text/event-stream"}
PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
ALL = ["openai", "anthropic", "gemini"]
every = pytest.mark.parametrize("dialect", ALL)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    transport = Transport()
    yield transport
    await transport.close()


@pytest.fixture
def worker(transport):
    """A worker at an upstream, quick to retry."""

    def make(upstream: Upstream | str, **settings) -> ChatWorker:
        url = upstream if isinstance(upstream, str) else upstream.url
        if settings.setdefault("dialect", "openai") == "openai":
            url += "/v1"
        defaults = {
            "name": "w",
            "model": "m",
            "key": Secret(CANARY),
            "backoff": 0.001,
            "price": PRICE,
        }
        return ChatWorker(transport=transport, base_url=url, **{**defaults, **settings})

    return make


async def complete(worker: ChatWorker, request: Request = ASK, **call):
    call.setdefault("ledger", Ledger())
    return await worker.complete(request, Call(**call))


async def failure(worker: ChatWorker, request: Request = ASK, **call) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await complete(worker, request, **call)
    return caught.value


# ── a call ──


@every
@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_asks_and_answers_in_every_dialect(worker, dialect, stream):
    look = Tool("look", "Look.", {"type": "object", "properties": {}})
    call = ToolCall("call_1", "look", '{"q":1}')
    say = Say("Hello.", reasoning="Hm.", tool_calls=(call,), usage=Usage(30, 8, 5, 2))
    heard: list[Piece] = []
    async with Upstream([say]) as upstream:
        request = Request((Message("system", "Be brief."), *ASK.messages), tools=(look,))
        hear = heard.append if stream else None
        done = await complete(worker(upstream, dialect=dialect), request, hear=hear)
    assert (done.text, done.reasoning, done.tool_calls) == ("Hello.", "Hm.", (call,))
    assert (done.usage, done.finish, done.attempts) == (Usage(30, 8, 5, 2), "tool_calls", 1)
    assert done.cost == pytest.approx(PRICE.of(30, 8, 5))
    assert upstream.requests[0].stream is stream
    assert "".join(p.text for p in heard if p.kind == "text") == ("Hello." if stream else "")


async def test_a_request_settles_over_the_workers_own_settings(worker):
    async with Upstream() as upstream:
        own = worker(
            upstream, sampling=Sampling(temperature=0.1, max_tokens=50), extra={"user": "u"}
        )
        await complete(own)
        await complete(own, Request(ASK.messages, sampling=Sampling(temperature=0.9)))
        await complete(
            own, Request(ASK.messages, extra={"n": 4, "logprobs": True, "max_tokens": 9})
        )
        bodies = [sent.body for sent in upstream.requests]
    assert [body["temperature"] for body in bodies] == [0.1, 0.9, 0.1]
    assert [body["max_tokens"] for body in bodies] == [50, 50, 50]
    assert bodies[2]["logprobs"] is True and "n" not in bodies[2] and bodies[2]["user"] == "u"


async def test_a_server_that_ignores_the_wish_to_stream_is_heard_all_the_same(worker):
    reply = orjson.dumps({"choices": [{"message": {"content": "whole"}}]})
    heard: list[Piece] = []
    async with Upstream([Raw(reply)]) as upstream:
        assert (await complete(worker(upstream), hear=heard.append)).text == "whole"
    assert heard == [Piece("whole")]


async def test_connections_are_used_again_whole_or_streamed(worker, transport):
    async with Upstream(["ok"]) as upstream:
        one = worker(upstream)
        for hear in (None, lambda piece: None) * 3:
            await complete(one, hear=hear)
        ports = {sent.client for sent in upstream.requests}
    assert len(ports) == 1


async def test_a_large_image_goes_out_without_a_warning(worker):
    picture = "data:image/png;base64," + "A" * 2_000_000
    ledger = Ledger(Limits(tokens=20_000))
    async with Upstream() as upstream:
        request = Request((Message("user", "?", images=(picture,)),))
        assert (await complete(worker(upstream), request, ledger=ledger)).text == "ok"
        assert len(orjson.dumps(upstream.requests[0].body)) > 2_000_000


async def test_a_thousand_calls_at_once(worker):
    async with Upstream(["ok"]) as upstream:
        ledger, one = Ledger(), worker(upstream)
        done = await asyncio.gather(*(complete(one, ledger=ledger) for _ in range(1_000)))
    assert {d.text for d in done} == {"ok"} and ledger.calls == 1_000
    assert (ledger.held_tokens, ledger.tokens) == (0, 15_000)


async def test_one_worker_serves_several_event_loops(transport):
    """TRL runs rewards on a loop of its own."""
    async with Upstream(["ok"]) as upstream:
        one = ChatWorker(
            name="w", model="m", base_url=f"{upstream.url}/v1", transport=transport, concurrency=1
        )

        async def crowd() -> list[str]:
            return [d.text for d in await asyncio.gather(*(complete(one) for _ in range(5)))]

        assert await crowd() == ["ok"] * 5
        assert await asyncio.to_thread(lambda: asyncio.run(crowd())) == ["ok"] * 5


async def test_closing_reaches_the_connections_of_a_loop_that_still_runs(transport):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    async with Upstream(["ok"]) as upstream:
        one = ChatWorker(name="w", model="m", base_url=f"{upstream.url}/v1", transport=transport)
        done = asyncio.run_coroutine_threadsafe(complete(one), loop)
        assert (await asyncio.wrap_future(done)).text == "ok"
        await transport.close()
    loop.call_soon_threadsafe(loop.stop)
    await asyncio.to_thread(thread.join)
    loop.close()


# ── money ──


@every
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_that_is_missing_is_estimated_and_never_zero(worker, dialect, stream):
    async with Upstream([Say("x" * 40, usage=None)]) as upstream:
        hear = (lambda piece: None) if stream else None
        done = await complete(worker(upstream, dialect=dialect), hear=hear)
    assert done.usage.output == 10 and done.usage.input > 0 and done.cost > 0


@every
@pytest.mark.parametrize("wrong", [-7, "many", 1e300])
async def test_usage_that_is_wrong_is_estimated(worker, dialect, wrong):
    counts = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    used = dict.fromkeys((*counts, "promptTokenCount", "candidatesTokenCount"), wrong)
    async with Upstream([Say("x" * 40, usage=used)]) as upstream:
        done = await complete(worker(upstream, dialect=dialect))
    assert done.usage.output == 10 and 0 < done.usage.input < 200


async def test_a_cost_that_the_provider_reports_comes_before_the_price(worker):
    async with Upstream([Say("x", cost=0.5)]) as upstream:
        assert (await complete(worker(upstream))).cost == 0.5
        assert (await complete(worker(upstream, price=None))).cost == 0.5


async def test_without_a_price_the_cost_is_unknown_and_a_dollar_limit_refuses_first(worker):
    async with Upstream() as upstream:
        assert (await complete(worker(upstream, price=None))).cost is None
        with pytest.raises(LimitError, match="price is unknown"):
            await complete(worker(upstream, price=None), ledger=Ledger(Limits(dollars=1)))
        assert len(upstream.requests) == 1


async def test_the_worst_case_is_an_upper_bound_and_is_reserved_before_the_call(worker):
    request = Request((Message("user", "é" * 1000),), sampling=Sampling(max_tokens=10))
    gate = asyncio.Event()
    async with Upstream([Say("ok", gate=gate)]) as upstream:
        ledger = Ledger()
        task = asyncio.create_task(complete(worker(upstream), request, ledger=ledger))
        await upstream.arrived()
        assert 2_010 <= ledger.held_tokens <= 2_500
        assert ledger.held_dollars == pytest.approx(PRICE.of(ledger.held_tokens - 10, 10))
        gate.set()
        await task
    assert (ledger.held_tokens, ledger.held_dollars, ledger.tokens) == (0, 0, 15)


async def test_a_call_that_may_pass_a_limit_is_never_made(worker):
    async with Upstream() as upstream:
        with pytest.raises(LimitError):
            await complete(worker(upstream), ledger=Ledger(Limits(tokens=1_000)))
        assert upstream.requests == []


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_a_refusal_costs_nothing(worker, status):
    ledger = Ledger()
    async with Upstream([Refuse(status)]) as upstream:
        await failure(worker(upstream, retries=1), ledger=ledger)
    assert (ledger.tokens, ledger.dollars, ledger.held_tokens) == (0, 0, 0)


async def test_a_connection_that_is_refused_costs_nothing(worker):
    ledger = Ledger()
    error = await failure(worker("http://127.0.0.1:9", retries=1), ledger=ledger)
    assert "can't reach 127.0.0.1:9" in str(error) and "Connection refused" in str(error)
    assert (ledger.tokens, ledger.calls, ledger.held_tokens) == (0, 2, 0)


@every
async def test_a_cut_stream_is_booked_at_its_worst_for_nobody_says_what_it_cost(worker, dialect):
    heard: list[Piece] = []
    ledger = Ledger()
    say = Say("word " * 100, pieces=100, cut=60)
    async with Upstream([say]) as upstream:
        asked = worker(upstream, dialect=dialect, sampling=Sampling(max_tokens=5000))
        error = await failure(asked, hear=heard.append, ledger=ledger)
    assert "ended before the reply was complete" in str(error)
    assert heard and ledger.held_tokens == 0 and ledger.tokens > 5000


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_leaves_no_connection_and_is_paid_by_estimate(worker, stream):
    ledger, begun = Ledger(), asyncio.Event()
    endless = iter(lambda: PIECE, b"")
    say = Raw(endless, **EVENTS) if stream else Say("late", gate=asyncio.Event())
    async with Upstream([say]) as upstream:
        hear = (lambda piece: begun.set()) if stream else None
        task = asyncio.create_task(complete(worker(upstream), hear=hear, ledger=ledger))
        await upstream.arrived()
        if stream:
            await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.quiet()
        assert upstream.aborted == 1
    assert ledger.held_tokens == 0 and ledger.tokens > 0 and ledger.dollars > 0


# ── retries ──


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_what_may_pass_is_tried_again(worker, status):
    reasons: list[str] = []
    async with Upstream([Refuse(status), Refuse(status), "ok"]) as upstream:
        done = await complete(worker(upstream), retried=reasons.append)
        assert (done.text, done.attempts, len(upstream.requests)) == ("ok", 3, 3)
    assert len(reasons) == 2 and f"HTTP {status}" in reasons[0]


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 413, 422])
async def test_what_will_not_pass_is_not_tried_again(worker, status):
    async with Upstream([Refuse(status, "because")]) as upstream:
        error = await failure(worker(upstream))
        assert error.status == status and "because" in str(error)
        assert len(upstream.requests) == 1


async def test_there_are_as_many_attempts_as_retries_and_one(worker):
    async with Upstream([Refuse(500)]) as upstream:
        await failure(worker(upstream, retries=3))
        assert len(upstream.requests) == 4


async def test_a_stream_cut_before_anything_was_heard_is_tried_again_and_never_after(worker):
    heard: list[Piece] = []
    async with Upstream([Say("abc", cut=1), "ok"]) as upstream:
        assert (await complete(worker(upstream), hear=heard.append)).text == "ok"
    assert "".join(p.text for p in heard) == "ok"
    async with Upstream([Say("abc", cut=3), "ok"]) as upstream:
        error = await failure(worker(upstream), hear=heard.append)
        assert len(upstream.requests) == 1 and error.retryable


async def test_retry_after_is_waited_for(worker, monkeypatch):
    slept = no_sleep(monkeypatch)
    async with Upstream([Refuse(429, headers={"Retry-After": "7"}), "ok"]) as upstream:
        await complete(worker(upstream))
    assert slept == [7.0]


async def test_pauses_grow_and_are_never_alike(worker, monkeypatch):
    slept = no_sleep(monkeypatch)
    async with Upstream([Refuse(503)]) as upstream:
        await failure(worker(upstream, retries=4, backoff=1.0))
    assert [low <= s <= 2 * low for low, s in zip((0.5, 1, 2, 4), slept, strict=True)] == [True] * 4
    assert len(set(slept)) == 4


def no_sleep(monkeypatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.extend([seconds] if seconds else [])

    monkeypatch.setattr(chat_module.asyncio, "sleep", sleep)
    return slept


async def test_retry_after_is_seconds_or_a_date_and_is_capped():
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    assert _retry_after({"Retry-After": "1.5"}) == 1.5
    assert 17 < (_retry_after({"Retry-After": soon}) or 0) < 21
    past = email.utils.formatdate(0, usegmt=True)
    assert _retry_after({"Retry-After": past}) == 0.0
    assert _retry_after({"Retry-After": "86400"}) == 60.0
    for nonsense in ("", "soon", "nan", "-"):
        assert _retry_after({"Retry-After": nonsense}) is None


@given(value=st.text(max_size=40) | st.from_regex(r"\w{3}, \d+ \w{3} -?\d+ \d+:\d+:\d+ [-+]?\w+"))
def test_any_retry_after_is_a_wait_or_none(value):
    wait = _retry_after({"Retry-After": value})
    assert wait is None or 0 <= wait <= 60


# ── the breaker ──


async def test_the_breaker_opens_after_failures_in_a_row_and_answers_at_once(worker):
    async with Upstream([Refuse(500, "broken")]) as upstream:
        one = worker(upstream, retries=0, breaker=Breaker(failures=3))
        for _ in range(3):
            await failure(one)
        error = await failure(one)
        assert len(upstream.requests) == 3
    assert "3 times in a row" in str(error) and "broken" in str(error)


async def test_the_breaker_lets_one_call_through_after_its_cool_down(worker):
    now = [0.0]
    breaker = Breaker(failures=2, cool_down=30.0, clock=lambda: now[0])
    gate = asyncio.Event()
    async with Upstream([Refuse(500), Refuse(500), Say("ok", gate=gate), "ok"]) as upstream:
        one = worker(upstream, retries=0, breaker=breaker)
        await failure(one)
        await failure(one)
        now[0] = 31.0
        probe = asyncio.create_task(complete(one))
        await upstream.arrived(3)
        await failure(one)
        gate.set()
        assert (await probe).text == "ok"
        assert (await complete(one)).text == "ok"


async def test_refusals_that_are_the_callers_fault_do_not_open_the_breaker(worker):
    async with Upstream([Refuse(400), Refuse(400), Refuse(429), "ok"]) as upstream:
        one = worker(upstream, retries=0, breaker=Breaker(failures=1))
        for _ in range(3):
            await failure(one)
        assert (await complete(one)).text == "ok"


# ── limits ──


async def test_no_more_calls_at_once_than_allowed(worker):
    most = 0
    gate = asyncio.Event()
    async with Upstream([Say("ok", gate=gate)]) as upstream:
        one = worker(upstream, concurrency=3)
        tasks = [asyncio.create_task(complete(one)) for _ in range(9)]
        await upstream.arrived(3)
        for _ in range(20):
            await asyncio.sleep(0)
            most = max(most, upstream.open)
        assert most == 3 and len(upstream.requests) == 3
        gate.set()
        await asyncio.gather(*tasks)
        assert len(upstream.requests) == 9


async def test_a_cancelled_call_gives_its_place_back(worker):
    async with Upstream([Say("late", gate=asyncio.Event()), "ok"]) as upstream:
        one = worker(upstream, concurrency=1)
        first = asyncio.create_task(complete(one))
        await upstream.arrived()
        second = asyncio.create_task(complete(one))
        first.cancel()
        assert (await second).text == "ok"


async def test_no_minute_has_more_calls_or_tokens_than_allowed():
    now = [0.0]
    pace = Pace(rpm=3, tpm=100, clock=lambda: now[0])
    first = pace.enter(60)
    assert not isinstance(first, float)
    assert pace.enter(60) == 60.0  # tokens: until the first has left the minute
    pace.correct(first, 10)
    now[0] = 5.0
    assert not isinstance(pace.enter(40), float) and not isinstance(pace.enter(40), float)
    assert pace.enter(1) == 55.0  # calls
    now[0] = 60.0
    assert not isinstance(pace.enter(20), float)
    assert pace.enter(1) == 5.0


async def test_a_call_over_the_tokens_of_a_minute_goes_alone():
    now = [0.0]
    pace = Pace(rpm=None, tpm=100, clock=lambda: now[0])
    big = pace.enter(5_000)
    assert not isinstance(big, float) and pace.enter(1) == 60.0
    now[0] = 61.0
    pace.correct(big, 10)  # too late to matter
    assert not isinstance(pace.enter(100), float) and pace.enter(1) == 60.0


async def test_requests_a_minute_are_kept_by_the_worker(worker, monkeypatch):
    async with Upstream() as upstream:
        one = worker(upstream, rpm=2)
        await complete(one)
        await complete(one)
        third = asyncio.create_task(complete(one))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not third.done() and len(upstream.requests) == 2
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third


# ── what to fix ──


@pytest.mark.parametrize(
    ("answer", "settings", "words"),
    [
        (Refuse(401, "bad key"), {"key_env": "W_KEY"}, ["HTTP 401", "check W_KEY", "bad key"]),
        (Refuse(403, "no"), {}, ["HTTP 403", "check its key"]),
        (Refuse(404, "no such model"), {}, ["model 'm'", "base_url http://", "no such model"]),
        (Refuse(402, "pay"), {}, ["no credit left", "pay"]),
        (Refuse(503, "x" * 9_000), {}, ["the server failed", "x" * 300]),
        (Raw(b"", status=307, headers={"Location": "http://x/"}), {}, ["redirects to 'http://x/'"]),
        (Raw(b"<html>hi</html>", content_type="text/html"), {}, ["a web page came back"]),
        (Raw(b"<html>hi</html>", status=404), {}, ["HTTP 404"]),
        (Raw(b'{"detail":"Not Found"}', status=404), {}, ["Not Found"]),
        (Raw(b"plain words", status=500), {}, ["(plain words)"]),
    ],
)
async def test_an_error_is_one_line_that_says_what_to_fix(worker, answer, settings, words):
    async with Upstream([answer]) as upstream:
        error = await failure(worker(upstream, retries=0, **settings))
    assert str(error).startswith("worker 'w': ") and "\n" not in str(error)
    assert all(word in str(error) for word in words), str(error)
    assert len(str(error)) < 500


async def test_a_host_that_does_not_exist_is_named(worker):
    error = await failure(worker("http://nowhere.invalid", retries=0))
    assert "can't reach nowhere.invalid:80" in str(error)


async def test_a_server_that_speaks_no_tls_is_named(worker):
    async with Upstream() as upstream:
        error = await failure(worker(f"https://127.0.0.1:{upstream.port}", retries=0))
    assert f"can't reach 127.0.0.1:{upstream.port}" in str(error) and "SSL" in str(error)


async def test_a_server_that_hangs_up_is_named(worker):
    async with Upstream([Raw([b""], cut=True)]) as upstream:
        error = await failure(worker(upstream, retries=0))
    assert f"127.0.0.1:{upstream.port} broke the connection" in str(error)


@pytest.mark.parametrize(
    "settings",
    [
        {"dialect": "klingon"},
        {"base_url": "ftp://x"},
        {"base_url": "localhost:80"},
        {"base_url": "http://"},
        {"base_url": "http://user:pw@host"},
        {"base_url": "http://h?x=1"},
        {"base_url": "http://" + "a" * 70 + ".org"},
        {"base_url": "http://[::1"},
        {"key": Secret("sk-\nInjected: yes")},
        {"key": Secret("sk-é")},
        {"extra": {"x": object()}},
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(transport, settings):
    with pytest.raises(ConfigError, match="worker 'w': ") as caught:
        ChatWorker(**{"name": "w", "model": "m", "transport": transport, **settings})
    assert "Injected" not in str(caught.value) and "pw" not in str(caught.value)


async def test_text_that_cannot_be_written_is_an_error_of_ours(worker):
    async with Upstream() as upstream:
        error = await failure(worker(upstream), Request((Message("user", "\ud800"),)))
        assert "can't be written as JSON" in str(error) and upstream.requests == []


async def test_a_homeless_worker_lives_where_its_dialect_is_at_home(transport):
    urls = {d: ChatWorker(name="w", model="m", dialect=d, transport=transport) for d in ALL}
    assert urls["openai"].base_url == "https://api.openai.com/v1"
    assert urls["openai"].max_tokens_field == "max_completion_tokens"
    assert urls["anthropic"].base_url == "https://api.anthropic.com"
    assert urls["gemini"].base_url == "https://generativelanguage.googleapis.com"


# ── hostile servers ──


def chunks(size: int) -> Iterator[bytes]:
    """A body of so many bytes."""
    block = b"x" * (1 << 16)
    return (block for _ in range(size // len(block)))


@every
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(b'{"choices": [{"message": {"content": "tru'), "not JSON"),
        (Raw(b""), "not JSON"),
        (Raw(b"\xff\xfe\xff"), "not JSON"),
        (Raw(b"null"), "the reply has no"),
        (Raw(b"[1,2]"), "the reply has no"),
        (Raw(b'{"usage": NaN}'), "not JSON"),
        (Raw(b'{"error": {"message": "so sorry"}}'), "so sorry"),
        (Raw(b'{"error": "so sorry"}'), "so sorry"),
        (Raw(b"[" * 100_000), "not JSON"),
        (Raw(b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"}), "not JSON"),
        (Raw([b'{"choices":'], cut=True), "broke the connection"),
        (Raw(chunks(1 << 27)), "over 100000 bytes"),
        (Raw(b"x" * 200_000), "over 100000 bytes"),
    ],
)
async def test_a_hostile_reply_is_a_typed_failure(worker, dialect, answer, words):
    ledger = Ledger()
    async with Upstream([answer]) as upstream:
        one = worker(upstream, dialect=dialect, retries=0, max_bytes=100_000)
        error = await failure(one, ledger=ledger)
    assert words in str(error) and "\n" not in str(error)
    assert ledger.held_tokens == 0 and ledger.tokens > 0


@every
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(iter(lambda: b"data: 1\n\n", b""), **EVENTS), "over 10000 bytes|no candidates"),
        (Raw(iter(lambda: b": still here\n\n", b""), **EVENTS), "over 10000 bytes"),
        (Raw(iter(lambda: b"x" * 65_536, b""), **EVENTS), "over 10000 bytes"),
        (Raw([b"data: {oops\n\n"], **EVENTS), "not JSON"),
        (Raw([b'data: {"type":"error","error":{"message":"so sorry"}}\n\n'], **EVENTS), "so sorry"),
        (Raw([], **EVENTS), "ended before"),
        (Raw([b"data: [DONE"], **EVENTS), "not JSON"),
    ],
)
async def test_a_hostile_stream_is_a_typed_failure(worker, dialect, answer, words):
    ledger = Ledger()
    async with Upstream([answer]) as upstream:
        one = worker(upstream, dialect=dialect, retries=0, max_bytes=10_000)
        error = await failure(one, ledger=ledger, hear=lambda piece: None)
    assert any(word in str(error) for word in words.split("|")), str(error)
    assert ledger.held_tokens == 0 and ledger.tokens > 0


async def test_an_endless_stream_of_words_is_ended_by_their_size(worker):
    heard: list[Piece] = []
    async with Upstream([Raw(iter(lambda: PIECE, b""), **EVENTS)]) as upstream:
        error = await failure(worker(upstream, max_bytes=50_000), hear=heard.append)
        await upstream.quiet()
    assert "over 50000 bytes" in str(error)
    assert sum(len(p.text) for p in heard) < 130_000


async def test_a_line_that_never_ends_is_ended(worker):
    async with Upstream([Raw(iter(lambda: b"x" * 65_536, b""), **EVENTS)]) as upstream:
        error = await failure(worker(upstream, retries=0), hear=lambda piece: None)
    assert "a line over 1048576 bytes" in str(error)


async def test_a_server_that_keeps_talking_after_the_end_is_not_listened_to(worker):
    def talk() -> Iterator[bytes]:
        yield PIECE
        yield b"data: [DONE]\n\n"
        yield from iter(lambda: PIECE, b"")

    heard: list[Piece] = []
    async with Upstream([Raw(talk(), **EVENTS)]) as upstream:
        assert (await complete(worker(upstream), hear=heard.append)).text == "word "
        await upstream.quiet()
    assert len(heard) == 1


async def test_a_server_that_falls_silent_is_given_up(worker):
    quick = Timeouts(connect=1.0, first_byte=0.05, idle=0.05)
    ledger = Ledger()
    async with Upstream([Say("late", gate=asyncio.Event())]) as upstream:
        error = await failure(worker(upstream, timeouts=quick, retries=0), ledger=ledger)
    assert "fell silent" in str(error) and error.retryable and ledger.tokens > 0


async def test_a_stream_that_falls_silent_half_way_is_given_up_and_not_begun_anew(worker):
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + PIECE
    calls = 0

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await reader.readuntil(b"}")
        writer.write(begun)
        await reader.read()  # until the client leaves
        writer.close()

    heard: list[Piece] = []
    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        one = worker(url, timeouts=Timeouts(first_byte=20.0, idle=0.05))
        async with asyncio.timeout(10):
            error = await failure(one, hear=heard.append)
    assert "fell silent" in str(error) and (calls, len(heard)) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n",
        b"HTTP/1.1 999 What\r\nContent-Length: 0\r\nRetry-After: \xff\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; \xff\r\nContent-Length: 9\r\n\r\n{}",
    ],
)
async def test_a_server_that_breaks_http_is_a_typed_failure(worker, answer, stream):
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ledger = Ledger()
    async with server:
        one = worker(f"http://127.0.0.1:{port}", retries=0)
        hear = (lambda piece: None) if stream else None
        error = await failure(one, ledger=ledger, hear=hear)
    assert str(error).startswith("worker 'w': ") and "\n" not in str(error)
    assert ledger.held_tokens == 0


async def test_invalid_utf8_in_a_reply_is_repaired(worker):
    reply = b'{"choices":[{"message":{"content":"caf\xe9"}}]}'
    async with Upstream([Raw(reply, content_type="text/plain")]) as upstream:
        assert (await complete(worker(upstream))).text == "caf\ufffd"


# ── the key ──


@every
async def test_the_key_is_sent_and_appears_nowhere_else(worker, dialect, caplog, spans):
    caplog.set_level(logging.DEBUG)
    echo = orjson.dumps({"error": {"message": f"bad key {CANARY}", "type": CANARY}, "id": CANARY})
    answers = [
        Raw(echo, status=401),
        Raw(f"plain {CANARY}".encode(), status=500),
        Raw(echo),
        Raw(CANARY.encode()),
        Raw(b"data: " + echo + b"\n\n", **EVENTS),
        Raw(b"", status=302, headers={"Location": f"http://x/{CANARY}"}),
        Raw(b"HTTP/1.1 nonsense", headers={"X": CANARY}, status=503),
        Say(f"your key is {CANARY}"),
    ]
    shown: list[str] = []
    for answer in answers:
        async with Upstream([answer]) as upstream:
            one = worker(upstream, dialect=dialect, key_env="W_KEY", retries=1)
            shown += [repr(one), one.fingerprint, repr(one.key), repr(one._endpoint)]
            for hear in (None, lambda piece, shown=shown: shown.append(repr(piece))):
                try:
                    shown.append(repr(await complete(one, hear=hear, retried=shown.append)))
                except WorkerError as error:
                    shown += [
                        str(error),
                        repr(error),
                        repr(error.__context__),
                        repr(error.__cause__),
                    ]
            assert any(CANARY in value for value in upstream.requests[0].headers.values())
    shown += [span.to_json() for span in spans()]
    assert len(shown) > 30
    assert CANARY not in "\n".join(shown) and CANARY not in caplog.text


async def test_a_key_that_is_a_word_leaves_replies_alone(worker):
    async with Upstream(["I run on ollama."]) as upstream:
        done = await complete(worker(upstream, key=Secret("ollama")))
    assert done.text == "I run on ollama."


async def test_the_fingerprint_tells_settings_apart_and_hides_the_key(transport):
    def fingerprint(**settings) -> str:
        return ChatWorker(
            **{"name": "w", "model": "m", "transport": transport, **settings}
        ).fingerprint

    assert fingerprint() == fingerprint(name="other", key=Secret(CANARY), retries=9)
    different = [
        {"model": "n"}, {"dialect": "gemini"}, {"base_url": "http://h"}, {"extra": {"top_k": 1}},
        {"sampling": Sampling(temperature=0.5)},
    ]  # fmt: skip
    assert len({fingerprint(), *(fingerprint(**d) for d in different)}) == 6
    assert orjson.loads(fingerprint(extra={"b": 1, "a": 2}))["extra"] == {"a": 2, "b": 1}


# ── tracing ──


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(chat_module, "tracer", provider.get_tracer("podium"))
    return exporter.get_finished_spans


async def test_every_attempt_is_a_span_by_the_conventions_and_without_content(worker, spans):
    async with Upstream([Refuse(503), "secret words"]) as upstream:
        await complete(worker(upstream))
    failed, answered = spans()
    assert failed.name == answered.name == "chat m" and answered.kind.name == "CLIENT"
    assert failed.attributes["error.type"] == "503" and not failed.status.is_ok
    assert dict(answered.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": upstream.port,
    }
    assert "secret" not in answered.to_json() and "What is it" not in answered.to_json()


async def test_a_cancelled_call_ends_its_span(worker, spans):
    async with Upstream([Say("late", gate=asyncio.Event())]) as upstream:
        task = asyncio.create_task(complete(worker(upstream)))
        await upstream.arrived()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [span.attributes["error.type"] for span in spans()] == ["CancelledError"]


# ── prices ──


async def test_a_configured_price_comes_first_and_a_published_one_names_its_source():
    mine = Price(7, 8)
    assert price_of("gpt-5-mini", "https://api.openai.com/v1", mine) is mine
    found = price_of("gpt-5-mini", "https://api.openai.com/v1")
    assert found is not None and found.source.startswith("genai-prices ")
    assert 0 < (found.cached or 0) < found.input < found.output


async def test_an_unknown_model_or_a_server_of_ones_own_has_no_price():
    assert price_of("no-such-model-at-all", "https://api.openai.com/v1") is None
    assert price_of("gpt-5-mini", "http://127.0.0.1:8000/v1") is None

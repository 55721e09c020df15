import asyncio
from dataclasses import replace

import pytest
from openai import APIStatusError, AsyncOpenAI, AuthenticationError, PermissionDeniedError

from podium.serve import keys as keys_module
from podium.serve.keys import Key, Keys, digest
from podium.serve.wire import Refusal
from podium.store import SqliteStore
from podium.testing import Refuse, Say
from podium.types import Step, Usage
from serving import workflow

ASK = [{"role": "user", "content": "?"}]
ONE = workflow(Step(0, "Answer the question."))


def client(server, key: str = "none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.v1, api_key=key, max_retries=0)


@pytest.fixture
async def keys(tmp_path):
    store = SqliteStore(tmp_path / "keys.sqlite")
    yield Keys(store)
    await store.close()


async def test_a_key_is_shown_once_and_stored_as_a_hash(keys, tmp_path):
    secret = await keys.new(Key("k1", "alice"))
    assert await keys.find(secret) == (await keys.all())[0]
    assert await keys.find(secret + "x") is None
    await keys._store.close()
    assert secret.encode() not in (tmp_path / "keys.sqlite").read_bytes()
    assert len(secret) > 40 and len(digest(secret)) == 64


async def test_a_revoked_key_opens_nothing(keys):
    secret = await keys.new(Key("k1", "alice"))
    await keys.revoke(await keys.named("alice"))
    assert await keys.find(secret) is None and await keys.exist()


async def test_parallel_runs_cannot_pass_a_budget_together(keys):
    await keys.new(Key("k1", "alice", daily=1.0))
    key = await keys.named("alice")
    taken = await asyncio.gather(*(keys.take(key, 0.3) for _ in range(8)), return_exceptions=True)
    given = [usd for usd in taken if not isinstance(usd, Exception)]
    assert sum(given) <= 1.0 and len(given) == 4  # three in full, and one with the rest
    assert all(isinstance(refused, Refusal) for refused in taken if refused not in given)
    for usd in given:
        keys.give_back(key, usd, 0.05)
    await keys.book_all()
    fresh = await keys.named("alice")
    assert fresh.today == pytest.approx(0.2) and fresh.held == pytest.approx(0.0)


async def test_a_run_is_given_what_is_left_and_then_nothing(keys):
    await keys.new(Key("k1", "alice", daily=1.0, monthly=5.0))
    key = await keys.named("alice")
    keys.give_back(key, await keys.take(key, 0.9), 0.9)
    assert await keys.take(key, 0.5) == pytest.approx(0.1)
    with pytest.raises(Refusal) as busy:
        await keys.take(key, 0.5)
    assert busy.value.status == 429
    keys.give_back(key, 0.1, 0.1)
    await keys.book_all()
    with pytest.raises(Refusal) as empty:
        await keys.take(key, 0.5)
    assert empty.value.status == 402


async def test_what_a_server_holds_and_does_not_use_goes_back(keys):
    await keys.new(Key("k1", "alice", daily=100.0))
    key = await keys.named("alice")
    usd = await keys.take(key, 0.5)
    assert usd < (await keys.named("alice")).held <= 1.0  # a hundredth of the budget
    keys.give_back(key, usd, 0.2)
    await keys.book_all()
    fresh = await keys.named("alice")
    assert (fresh.today, fresh.held) == (pytest.approx(0.2), pytest.approx(0.0))


async def test_a_day_passes_and_the_month_remembers(keys, monkeypatch):
    await keys.new(Key("k1", "alice", daily=1.0, monthly=1.5))
    key = await keys.named("alice")
    keys.give_back(key, await keys.take(key, 1.0), 1.0)
    await keys.book_all()
    at, _, month = keys_module._now()
    monkeypatch.setattr(keys_module, "_now", lambda: (at, "2999-01-01", month))
    usd = await keys.take(key, 1.0)
    assert usd == pytest.approx(0.5)
    keys.give_back(key, usd, 0.5)
    await keys.book_all()
    fresh = await keys.named("alice")
    assert (fresh.today, fresh.this_month) == (pytest.approx(0.5), pytest.approx(1.5))


async def test_the_holds_of_a_dead_server_are_booked_in_full(keys, monkeypatch):
    await keys.new(Key("k1", "alice", daily=1.0))
    key = await keys.named("alice")
    usd = await keys.take(key, 0.6)
    assert await keys.sweep() == 0
    monkeypatch.setattr(keys_module, "HOLD_SECONDS", -1.0)
    await keys.renew()
    assert await keys.sweep() == 1
    keys.give_back(key, usd, 0.1)  # it was not dead after all, and is not booked twice
    await keys.book_all()
    fresh = await keys.named("alice")
    assert fresh.today == pytest.approx(0.6) and fresh.held == pytest.approx(0.0)


async def test_a_key_without_a_budget_is_counted_all_the_same(keys):
    await keys.new(Key("k1", "alice"))
    keys.give_back(await keys.named("alice"), 0.0, 0.25)
    await keys.book_all()
    assert (await keys.named("alice")).this_month == pytest.approx(0.25)


async def test_once_there_is_a_key_nobody_is_let_in_without_one(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        await openai.chat.completions.create(model="a", messages=ASK)
        secret = await server.desk.keys.new(Key("k1", "alice"))
        with pytest.raises(AuthenticationError):
            await openai.chat.completions.create(model="a", messages=ASK)
        for path in ("models", "podium/runs", "../metrics", "models/a", "podium/runs/x"):
            with pytest.raises(AuthenticationError):
                await openai.get(f"/{path}", cast_to=object)
    async with client(server, secret) as openai:
        await openai.chat.completions.create(model="a", messages=ASK)


async def test_a_key_is_held_to_its_models_and_workers(serve):
    server = await serve({"plan": [ONE], "a": ["fine"], "b": ["other"]})
    limits = Key("k1", "x", models=frozenset({"podium", "a", "b"}), workers=frozenset({"b"}))
    secret = await server.desk.keys.new(limits)
    async with client(server, secret) as openai:
        with pytest.raises(PermissionDeniedError):
            await openai.chat.completions.create(model="podium-deep", messages=ASK)
        with pytest.raises(PermissionDeniedError):
            await openai.chat.completions.create(model="a", messages=ASK)
        reply = await openai.chat.completions.create(model="podium", messages=ASK)
        assert reply.choices[0].message.content == "other"
        assert [m.id async for m in openai.models.list()] == ["podium", "a", "b"]


async def test_each_key_sees_its_own_runs_alone(serve):
    server = await serve(["fine"])
    alice = await server.desk.keys.new(Key("k1", "alice"))
    bob = await server.desk.keys.new(Key("k2", "bob"))
    async with client(server, alice) as openai:
        raw = await openai.chat.completions.with_raw_response.create(model="a", messages=ASK)
        id = raw.headers["x-podium-run-id"]
        run = await openai.get(f"/podium/runs/{id}", cast_to=object)
        assert run["question"]["text"] == "?"
        assert len((await openai.get("/podium/runs", cast_to=object))["data"]) == 1
    async with client(server, bob) as openai:
        with pytest.raises(APIStatusError) as missing:
            await openai.get(f"/podium/runs/{id}", cast_to=object)
        assert missing.value.status_code == 404
        assert (await openai.get("/podium/runs", cast_to=object))["data"] == []


async def test_what_is_spent_is_booked_on_the_key(serve):
    server = await serve([Say("fine", usage=Usage(1000, 500))])
    secret = await server.desk.keys.new(Key("k1", "alice", daily=1.0))
    async with client(server, secret) as openai:
        await openai.chat.completions.create(model="a", messages=ASK)
    await server.desk.keys.book_all()
    key = await server.desk.keys.named("alice")
    assert key.today == pytest.approx(0.002) and key.held == pytest.approx(0.0)


async def test_a_budget_holds_against_many_requests_at_once(serve):
    server = await serve([Say("fine", usage=Usage(50, 100))])
    budget = 0.05
    secret = await server.desk.keys.new(Key("k1", "alice", daily=budget, per_run=0.01))

    async def one(openai):
        try:
            await openai.chat.completions.create(model="a", messages=ASK, max_tokens=1000)
        except APIStatusError as refused:
            return refused.status_code
        return 200

    async with client(server, secret) as openai:
        codes = await asyncio.gather(*(one(openai) for _ in range(60)))
    await server.desk.keys.book_all()
    key = await server.desk.keys.named("alice")
    paid = len(server.upstream.requests) * (50 * 1.0 + 100 * 2.0) / 1e6
    assert key.today == pytest.approx(paid) and key.today <= budget
    assert set(codes) <= {200, 402, 429} and codes.count(200) >= 5


async def test_a_request_can_lower_its_limits_and_never_raise_them(serve):
    server = await serve(["fine"], limits={"tokens": 10_000})
    async with client(server) as openai:
        with pytest.raises(APIStatusError) as low:
            await openai.chat.completions.create(
                model="a", messages=ASK, extra_headers={"x-podium-tokens": "5"}
            )
        assert low.value.status_code == 402 and low.value.code == "limit_reached"
        with pytest.raises(APIStatusError) as high:
            await openai.chat.completions.create(
                model="a",
                messages=ASK,
                max_tokens=20_000,
                extra_body={"podium": {"tokens": 1_000_000}},
            )
        assert high.value.status_code == 402
        with pytest.raises(APIStatusError) as odd:
            await openai.chat.completions.create(
                model="a", messages=ASK, extra_body={"podium": {"dolars": 1}}
            )
    assert odd.value.status_code == 400 and "dolars" in odd.value.message
    assert server.upstream.requests == []


async def test_without_keys_no_web_page_may_ask(serve):
    server = await serve(["fine"])
    async with client(server) as openai:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            with pytest.raises(PermissionDeniedError):
                await openai.chat.completions.create(model="a", messages=ASK, extra_headers=headers)
    assert server.upstream.requests == []


async def test_limits_of_a_key_can_be_changed(keys):
    await keys.new(Key("k1", "alice", daily=1.0))
    key = await keys.named("alice")
    await keys.limit(replace(key, daily=None, monthly=3.0, models=frozenset({"podium"})))
    fresh = await keys.named("k1")
    assert (fresh.daily, fresh.monthly, fresh.models) == (None, 3.0, frozenset({"podium"}))


async def test_a_denied_worker_does_not_stand_in_for_another(serve):
    def first(upstream):
        base = {"name": "a", "model": "a", "base_url": f"{upstream.url}/v1", "retries": 0}
        return {**base, "price": {"input": 1, "output": 1}, "fallback": "b"}

    def second(upstream):
        base = {"name": "b", "model": "b", "base_url": f"{upstream.url}/v1", "region": "moon"}
        return {**base, "price": {"input": 1, "output": 1}}

    server = await serve({"a": [Refuse(500)], "b": ["fine"]}, worker=[second, first])
    async with client(server) as openai:
        for wish in ({"deny": ["b"]}, {"regions": [""]}, {"allow": ["a"]}):
            with pytest.raises(APIStatusError) as failed:
                await openai.chat.completions.create(
                    model="a", messages=ASK, extra_body={"podium": wish}
                )
            assert failed.value.status_code == 502
        with pytest.raises(PermissionDeniedError):
            await openai.chat.completions.create(
                model="podium", messages=ASK,
                extra_body={"podium": {"deny": ["b"], "strategy": "b"}},
            )  # fmt: skip
        with pytest.raises(APIStatusError) as nobody:
            await openai.chat.completions.create(
                model="podium", messages=ASK, extra_body={"podium": {"allow": ["nobody"]}}
            )
        assert nobody.value.status_code == 400
    assert {sent.model for sent in server.upstream.requests} == {"a"}

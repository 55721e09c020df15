"""Two servers on one real Postgres: whatever one of them knows, the other knows too."""

from contextlib import AsyncExitStack

import pytest
from openai import APIStatusError, AsyncOpenAI, AuthenticationError

import postgres
from podium.serve.keys import Key
from podium.testing import Say, Upstream
from podium.types import Step, ToolCall
from serving import config, served, workflow

ONE = workflow(Step(1, "Answer the question."))
ASK = [{"role": "user", "content": "Look it up."}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def cluster():
    if postgres.binary("initdb") is None:
        pytest.skip("Postgres is not installed: apt-get install postgresql")
    with postgres.postgres() as place:
        yield place


@pytest.fixture
async def pair(cluster, tmp_path):
    """Two servers over one upstream, which asks for a tool and then answers."""
    store = await postgres.database(cluster)
    call = Say(tool_calls=(ToolCall("up-1", "look", "{}"),))
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(
            Upstream({"plan": [ONE], "a": ["fine"], "b": [call, "found"]})
        )
        settings = config(tmp_path, upstream, store=store)
        yield [await stack.enter_async_context(served(settings, upstream)) for _ in range(2)]


def client(server, key: str = "none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.v1, api_key=key, max_retries=0)


async def test_a_tool_exchange_may_go_on_at_another_server(pair):
    async with client(pair[0]) as one, client(pair[1]) as other:
        first = await one.chat.completions.create(model="podium", messages=ASK, tools=[TOOL])
        turn = first.choices[0].message
        result = {"role": "tool", "tool_call_id": turn.tool_calls[0].id, "content": "seen"}
        last = await other.chat.completions.create(
            model="podium",
            messages=[*ASK, turn.model_dump(exclude_none=True), result],
            tools=[TOOL],
        )
    assert last.choices[0].message.content == "found"
    assert [sent.model for sent in pair[0].upstream.requests] == ["plan", "b", "b"]


async def test_keys_runs_and_budgets_are_shared(pair):
    secret = await pair[0].desk.keys.new(Key("k1", "alice", daily=0.0007))
    async with client(pair[1]) as nobody:
        with pytest.raises(AuthenticationError):
            await nobody.chat.completions.create(model="a", messages=ASK)
    codes = []
    async with client(pair[0], secret) as one, client(pair[1], secret) as other:
        for turn in range(40):
            try:
                await (one if turn % 2 else other).chat.completions.create(
                    model="a", messages=ASK, max_tokens=50
                )
                codes.append(200)
            except APIStatusError as refused:
                codes.append(refused.status_code)
            for server in pair:
                await server.desk.keys.book_all()
        shown = (await other.get("/podium/runs?limit=100", cast_to=object))["data"]
    key = await pair[0].desk.keys.named("alice")
    asked = len(pair[0].upstream.requests)
    assert key.today == pytest.approx(asked * 20 / 1e6) and key.today <= 0.0007
    assert codes[-1] == 402 and codes.count(200) == asked >= 3
    assert sum(row["state"] == "answered" for row in shown) == asked

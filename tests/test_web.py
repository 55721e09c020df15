"""The page's own routes, over a real server: what they show, to whom, and how a stream resumes."""

import asyncio
import json

import aiohttp
import pytest

import postgres
from podium.serve.denials import Denials
from podium.serve.keys import Key
from podium.serve.web import figures, runs
from podium.serve.web.files import STATIC, shipped
from podium.store import open_store
from podium.testing import Refuse, Say, Upstream
from podium.types import Question, Run, Step
from serving import worker, workflow
from test_serve_process import running

CONFIG = """
store = "{store}"
[planner]
worker = "a"
[[worker]]
name = "a"
model = "a"
base_url = "{url}/v1"
"""
PLAN = workflow(Step(0, "Think."), Step(1, "Answer.", (0,)))


@pytest.fixture
async def client():
    async with aiohttp.ClientSession() as session:
        yield session


async def begin(client, server, text="Why?", headers=None, **more):
    body = {"model": "podium", "messages": [{"role": "user", "content": text}], **more}
    async with client.post(f"{server.url}/web/api/ask", json=body, headers=headers) as reply:
        return reply.status, await reply.json()


async def events(client, server, run, last=0, stop=None, headers=None):
    """What a reader is told after an event, up to one that it stops at, or the end."""
    url, found = f"{server.url}/web/api/runs/{run}/events", []
    async with client.get(url, headers={"last-event-id": str(last), **(headers or {})}) as reply:
        assert reply.status == 200
        async for line in reply.content:
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                found.append((number, json.loads(line[6:])))
                if stop is not None and stop(found[-1][1]):
                    break
    return found


async def get(client, server, path, headers=None, **params):
    url = f"{server.url}/web/api/{path}"
    async with client.get(url, params=params, headers=headers) as reply:
        return reply.status, await reply.json()


async def test_a_run_tells_its_plan_its_pieces_and_its_end(serve, client):
    server = await serve({"plan": [PLAN], "a": ["a thought"], "b": ["the answer"]})
    _, begun = await begin(client, server)
    told = [event for _, event in await events(client, server, begun["run"])]
    kinds = [event["kind"] for event in told]
    assert kinds[0] == "started" and kinds[-1] == "finished"
    assert {"planning", "planned", "begun", "done", "round"} <= set(kinds)
    assert told[-1]["run"]["answer"] == "the answer"
    numbers = [number for number, _ in await events(client, server, begun["run"])]
    assert numbers == sorted(set(numbers))


async def test_a_reader_that_comes_back_misses_nothing_and_hears_nothing_twice(serve, client):
    gate = asyncio.Event()
    said = "one two three four five six"
    server = await serve(
        {"plan": [PLAN], "a": [Say(said, pieces=9)], "b": [Say("done", gate=gate)]}
    )
    _, begun = await begin(client, server)
    first = await events(client, server, begun["run"], stop=lambda e: e["kind"] == "planned")
    gate.set()
    rest = await events(client, server, begun["run"], last=first[-1][0])
    numbers = [number for number, _ in [*first, *rest]]
    assert numbers == sorted(set(numbers))
    done = [e["result"]["output"] for _, e in rest if e["kind"] == "done"]
    assert done == [said, "done"]


async def test_what_is_kept_for_readers_stays_small_and_says_the_whole(serve, client):
    gate, long = asyncio.Event(), "x" * 300_000
    server = await serve(
        {"plan": [PLAN], "a": [Say(long, pieces=6_000)], "b": [Say("", gate=gate)]}
    )
    _, begun = await begin(client, server)
    heard = await events(
        client, server, begun["run"], stop=lambda e: e["kind"] == "begun" and e["index"] == 1
    )
    late = await events(
        client, server, begun["run"], stop=lambda e: e["kind"] == "begun" and e["index"] == 1
    )
    gate.set()
    assert len(heard) > 100 > len(late)
    whole = next(e for _, e in late if e["kind"] == "done")
    assert whole["result"]["length"] == len(long)


async def test_stop_cancels_the_call_under_way_and_keeps_what_was_done(serve, client):
    gate = asyncio.Event()
    server = await serve({"plan": [PLAN], "a": ["a thought"], "b": [Say("never", gate=gate)]})
    _, begun = await begin(client, server)
    await server.upstream.arrived(3)
    async with client.post(f"{server.url}/web/api/runs/{begun['run']}/stop") as reply:
        assert reply.status == 200
    told = await events(client, server, begun["run"])
    assert told[-1][1]["kind"] == "over"
    await server.upstream.quiet()
    assert server.upstream.aborted == 1
    _, run = await get(client, server, f"runs/{begun['run']}")
    assert run["failure"]["kind"] == "Cancelled"
    assert run["rounds"][0]["results"][0]["output"] == "a thought"


async def test_a_step_is_shown_down_to_its_exact_messages(serve, client):
    server = await serve({"plan": [PLAN], "a": ["a thought"], "b": ["the answer"]})
    _, begun = await begin(client, server, "Why is the sky blue?")
    await events(client, server, begun["run"])
    _, step = await get(client, server, f"runs/{begun['run']}/steps/0/1")
    sent = server.upstream.requests[-1].body["messages"]
    assert [m["content"] for m in step["messages"]] == [m["content"] for m in sent]
    _, run = await get(client, server, f"runs/{begun['run']}")
    assert "messages" not in run["rounds"][0]["results"][1]
    status, _ = await get(client, server, f"runs/{begun['run']}/steps/0/2")
    assert status == 404


async def test_a_follow_up_carries_the_conversation(serve, client):
    server = await serve({"a": ["blue", "really"]})
    talk = [
        {"role": "user", "content": "What colour?"},
        {"role": "assistant", "content": "blue"},
        {"role": "user", "content": "Are you sure?"},
    ]
    body = {"model": "a", "messages": talk}
    async with client.post(f"{server.url}/web/api/ask", json=body) as reply:
        begun = await reply.json()
    await events(client, server, begun["run"])
    assert [m["content"] for m in server.upstream.requests[0].body["messages"]] == [
        "What colour?", "blue", "Are you sure?",
    ]  # fmt: skip


async def test_why_a_step_was_tried_again_is_kept_with_the_run(serve, client):
    server = await serve(
        {"plan": [PLAN], "a": [Refuse(500, "overloaded"), Refuse(503, "down")], "b": ["x", "y"]},
        worker=[
            lambda up: worker("a", up, retries=1, fallback="b"),
            lambda up: worker("b", up),
        ],
    )
    _, begun = await begin(client, server)
    await events(client, server, begun["run"])
    await server.desk.idle()
    await server.desk.keys.renew()  # whatever was to be written before is there by then
    _, run = await get(client, server, f"runs/{begun['run']}")
    again, stood_in = run["retries"]
    assert (again["round"], again["index"], again["worker"]) == (0, 0, "a")
    assert "overloaded" in again["reason"] and "down" in stood_in["reason"]
    assert stood_in["worker"] == run["rounds"][0]["results"][0]["worker"] == "b"
    assert run["answer"] == "y"


async def keep(server, count, owner="", **more):
    store = server.desk.podium.store
    for i in range(count):
        run = Run(f"{i + 1:011x}00000000", Question(f"Question {i}"), started=float(i + 1), **more)
        await store.end_run(run, owner=owner, config="")


async def test_pages_of_runs_follow_each_other_without_a_gap(serve, client):
    server = await serve(["ok"])
    await keep(server, 25)
    seen, before = [], ""
    while True:
        _, page = await get(client, server, "runs", limit="10", before=before)
        seen += [run["question"] for run in page["runs"]]
        if not (before := page["next"]):
            break
    assert seen == [f"Question {i}" for i in reversed(range(25))]


async def test_a_search_goes_on_where_its_window_ended(serve, client, monkeypatch):
    monkeypatch.setattr("podium.serve.web.runs.WINDOW", 10)
    monkeypatch.setattr("podium.serve.web.runs.SECONDS", -1.0)
    server = await serve(["ok"])
    await keep(server, 25)
    found, before, asked = [], "", 0
    while True:
        _, page = await get(client, server, "runs", q="question 3", before=before)
        found += [run["question"] for run in page["runs"]]
        asked += 1
        if not (before := page["next"]):
            break
    assert found == ["Question 3"] and asked == 3


async def test_a_search_takes_its_words_literally(serve, client):
    server = await serve(["ok"])
    await keep(server, 3)
    for words in ("%", "_", "' OR 1=1 --", "!"):
        _, page = await get(client, server, "runs", q=words)
        assert page["runs"] == []
    for name, value in {"dollars": "much", "limit": "0", "since": "inf"}.items():
        status, body = await get(client, server, "runs", **{name: value})
        assert status == 400 and name in body["error"]["message"]


async def test_runs_are_filtered_by_what_became_of_them(serve, client):
    server = await serve({"plan": [PLAN], "a": ["a thought"], "b": ["the answer"]})
    _, begun = await begin(client, server)
    await events(client, server, begun["run"])
    await keep(server, 2)
    _, page = await get(client, server, "runs", state="answered", worker="b", strategy="podium")
    assert [run["id"] for run in page["runs"]] == [begun["run"]]
    _, page = await get(client, server, "runs", worker="nobody")
    assert page["runs"] == []


async def test_without_a_good_key_nothing_is_shown_and_another_keys_runs_stay_unseen(serve, client):
    server = await serve({"plan": [PLAN], "a": ["a thought"], "b": ["the answer"]})
    one = await server.desk.keys.new(Key("one", "one"))
    two = await server.desk.keys.new(Key("two", "two"))
    mine = {"authorization": f"Bearer {one}"}
    theirs = {"authorization": f"Bearer {two}"}
    _, begun = await begin(client, server, headers=mine)
    await events(client, server, begun["run"], headers=mine)
    places = ["me", "runs", "pool", "spend", "training", "evaluations", "training/metrics",
              "training/samples", "evaluations/figures", f"runs/{begun['run']}",
              f"runs/{begun['run']}/full", f"runs/{begun['run']}/events",
              f"runs/{begun['run']}/steps/0/0", f"runs/{begun['run']}/drafts/0/0"]  # fmt: skip
    for path in places:
        assert (await get(client, server, path))[0] == 401, path
        assert (await get(client, server, path, {"authorization": "Bearer no"}))[0] == 401, path
        if path.startswith("runs/"):
            assert (await get(client, server, path, theirs))[0] == 404, path
    assert (await get(client, server, "runs", theirs))[1]["runs"] == []
    assert len((await get(client, server, "runs", mine))[1]["runs"]) == 1
    assert (await get(client, server, "spend", theirs))[1]["process"] is None
    for path in ("ask", f"runs/{begun['run']}/stop", "evaluations/ticket"):
        async with client.post(f"{server.url}/web/api/{path}", json={}) as reply:
            assert reply.status == 401, path


async def test_the_pool_tells_share_errors_and_spending(serve, client):
    server = await serve({"plan": [PLAN], "a": [Refuse(500)], "b": ["the answer"]})
    _, begun = await begin(client, server)
    await events(client, server, begun["run"])
    _, found = await get(client, server, "pool")
    a, b = found["workers"]
    assert (a["name"], a["share"], a["errors"], a["health"]) == ("a", 0.5, 1.0, "failing")
    assert b["errors"] == 0 and b["usd"] > 0 and b["health"] == "well"
    _, spent = await get(client, server, "spend")
    assert spent["counted"] == 1 and spent["days"][0]["usd"] == pytest.approx(
        server.desk.podium.ledger.dollars
    )


async def test_what_the_page_loads_comes_under_a_strict_policy_and_with_its_licences(serve, client):
    server = await serve(["ok"])
    async with client.get(server.url) as reply:
        policy = reply.headers["content-security-policy"]
        assert reply.status == 200 and "unsafe" not in policy and "default-src 'none'" in policy
    for path in ("../files.py", "%2e%2e/files.py", "nothing.js", "vendor/../../api.py"):
        async with client.get(f"{server.url}/web/{path}") as reply:
            assert reply.status == 404
    vendored = {path.stem for path in (STATIC / "vendor").glob("*.js")}
    assert vendored == {path.stem for path in (STATIC / "vendor").glob("*.LICENSE")}
    assert all("http:" not in name for name in shipped())


async def test_one_of_several_processes_has_the_run_and_is_found(tmp_path, client):
    gate = asyncio.Event()
    async with Upstream([Say("never", gate=gate)]) as upstream:
        path = tmp_path / "podium.toml"
        path.write_text(CONFIG.format(store=tmp_path / "podium.sqlite", url=upstream.url))
        async with running(path, "--workers", "2") as process:
            url = str(process.openai.base_url).removesuffix("/v1/")
            body = {"model": "a", "messages": [{"role": "user", "content": "?"}]}
            async with client.post(f"{url}/web/api/ask", json=body) as reply:
                run = (await reply.json())["run"]
            await upstream.arrived()
            statuses = set()
            async with asyncio.timeout(20):
                while 200 not in statuses:
                    async with client.post(f"{url}/web/api/runs/{run}/stop") as reply:
                        statuses.add(reply.status)
                await upstream.quiet()
            assert statuses <= {200, 404, 421} and upstream.aborted == 1


async def test_a_server_that_is_told_to_stop_keeps_what_a_run_had_done(tmp_path, client):
    async with Upstream([Say("never", gate=asyncio.Event())]) as upstream:
        path, place = tmp_path / "podium.toml", tmp_path / "podium.sqlite"
        path.write_text(CONFIG.format(store=place, url=upstream.url))
        async with running(path) as process:
            url = str(process.openai.base_url).removesuffix("/v1/")
            body = {"model": "a", "messages": [{"role": "user", "content": "?"}]}
            async with client.post(f"{url}/web/api/ask", json=body) as reply:
                run = (await reply.json())["run"]
            await upstream.arrived()
        store = open_store(str(place))
        (row,) = await store.runs()
        assert (row.id, row.failure) == (run, "Cancelled")
        await store.close()


@pytest.fixture
async def on_postgres():
    if postgres.binary("initdb") is None:
        pytest.skip("Postgres is not installed: apt-get install postgresql")
    with postgres.postgres() as place:
        store = open_store(await postgres.database(place))
        yield store
        await store.close()


async def test_postgres_keeps_denials_as_well(on_postgres):
    denials = Denials(on_postgres)
    await denials.deny("a", "boss")
    await denials.deny("a", "another")
    assert [(d.worker, d.operator) for d in await denials.all()] == [("a", "boss")]
    await denials.allow("a")
    assert await denials.known() == frozenset()


async def test_postgres_answers_the_same_questions(on_postgres):
    for i in range(12):
        run = Run(f"{i + 1:011x}00000000", Question(f"Question {i}"), started=float(i + 1))
        await on_postgres.end_run(run, owner="", config="")
    asked = {"q": "QUESTION 1", "state": "failed", "dollars": "0", "since": "0.001", "limit": "2"}
    first = await runs.page(on_postgres, "", asked)
    rest = await runs.page(on_postgres, "", {**asked, "before": first.next})
    assert [r.question for r in [*first.runs, *rest.runs]] == [
        "Question 11", "Question 10", "Question 1",
    ]  # fmt: skip
    assert (await runs.page(on_postgres, "", {"worker": "a"})).runs == []
    assert (await figures.recent(on_postgres, "")).runs == 12

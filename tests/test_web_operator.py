"""Who runs the server sees all of it, and may deny a worker to everybody from here on."""

import aiohttp
import pytest
from click.testing import CliRunner
from openai import AsyncOpenAI, PermissionDeniedError

from podium.cli.serve import serve as serve_command
from podium.errors import ConfigError
from podium.serve.denials import Denials
from podium.serve.desk import Desk
from podium.serve.keys import Key
from podium.testing import Upstream
from podium.types import Failure, Question, Run, Step
from serving import config, served, workflow
from test_web import begin, events, get, keep

ANY = workflow(Step(0, "Answer."))


@pytest.fixture
async def client():
    async with aiohttp.ClientSession() as session:
        yield session


async def deny(client, server, worker, denied=True, headers=None):
    body = {"worker": worker, "denied": denied}
    url = f"{server.url}/web/api/pool/deny"
    async with client.post(url, json=body, headers=headers) as reply:
        return reply.status, await reply.json()


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


async def test_a_denied_worker_gets_no_step_of_any_client_until_it_is_allowed_again(serve, client):
    server = await serve({"plan": [ANY, ANY, ANY], "a": ["from a"], "b": ["from b", "from b"]})
    assert await deny(client, server, "a") == (200, {"denied": ["a"]})
    async with AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0) as openai:
        ask = [{"role": "user", "content": "?"}]
        reply = await openai.chat.completions.create(model="podium", messages=ask)
        assert reply.choices[0].message.content == "from b"
        reply = await openai.responses.create(model="podium", input="?")
        assert reply.output_text == "from b"
        with pytest.raises(PermissionDeniedError, match="'a' is not given to anybody now"):
            await openai.chat.completions.create(model="a", messages=ask)
        assert (await get(client, server, "me"))[1]["denied"] == ["a"]
        await deny(client, server, "a", False)
        reply = await openai.chat.completions.create(model="podium", messages=ask)
        assert reply.choices[0].message.content == "from a"


async def test_a_denial_outlives_the_server(serve, client, tmp_path):
    async with Upstream({"plan": [ANY], "a": ["from a"], "b": ["from b"]}) as upstream:
        settings = config(tmp_path, upstream)
        async with served(settings, upstream) as server:
            await deny(client, server, "a")
        async with served(settings, upstream) as server:
            _, begun = await begin(client, server)
            told = await events(client, server, begun["run"])
            assert told[-1][1]["run"]["answer"] == "from b"
            _, pool = await get(client, server, "pool")
            assert [bool(w["denied"]) for w in pool["workers"]] == [True, False]


async def test_another_process_on_the_store_heeds_a_denial(serve, client):
    server = await serve(["ok"])
    other = Denials(server.desk.podium.store)
    assert await other.known() == frozenset()
    await deny(client, server, "b")
    other._seen -= 2  # a second later
    assert await other.known() == {"b"}


async def test_what_cannot_be_denied_is_said(serve, client):
    server = await serve(["ok"])
    status, said = await deny(client, server, "nobody")
    assert status == 404 and "nobody" in said["error"]["message"]
    for body in ("{", "[]", '{"worker": 3, "denied": true}', '{"worker": "a"}'):
        url = f"{server.url}/web/api/pool/deny"
        async with client.post(url, data=body) as reply:
            assert reply.status == 400, body
    foreign = {"origin": "http://elsewhere.example"}
    assert (await deny(client, server, "a", headers=foreign))[0] == 403
    await deny(client, server, "a")
    await deny(client, server, "b")
    status, said = await begin(client, server)
    assert status == 400 and "no worker is left" in said["error"]["message"]


async def test_only_an_operators_key_denies_and_sees_the_runs_of_others(serve, client):
    server = await serve(["ok"])
    boss = await server.desk.keys.new(Key("k1", "boss"))
    guest = await server.desk.keys.new(Key("k2", "guest"))
    server.desk._operators = frozenset({"boss"})
    await keep(server, 3, owner="k2")
    (first, *_) = await server.desk.podium.store.runs()
    assert (await deny(client, server, "a", headers=bearer(guest)))[0] == 403
    assert (await get(client, server, "runs", bearer(guest), key="*"))[0] == 403
    assert (await get(client, server, "me", bearer(guest)))[1]["keys"] == []
    assert (await get(client, server, "runs", bearer(boss)))[1]["runs"] == []
    for whose, found in {"*": 3, "k2": 3, "k1": 0, "-": 0}.items():
        _, page = await get(client, server, "runs", bearer(boss), key=whose)
        assert len(page["runs"]) == found, whose
    assert (await get(client, server, f"runs/{first.id}", bearer(boss)))[0] == 200
    _, spent = await get(client, server, "spend", bearer(boss))
    assert {(k["name"], k["runs"]) for k in spent["keys"]} == {("guest", 3), ("boss", 0)}
    assert (await get(client, server, "spend", bearer(guest)))[1]["keys"] == []
    assert (await deny(client, server, "a", headers=bearer(boss)))[0] == 200
    _, pool = await get(client, server, "pool", bearer(boss))
    assert pool["workers"][0]["denied"]["operator"] == "boss"
    _, pool = await get(client, server, "pool", bearer(guest))
    assert pool["workers"][0]["denied"] is True


async def test_runs_are_filtered_by_their_kind_of_failure(serve, client):
    server = await serve(["ok"])
    for i, kind in enumerate(("LimitError", "WorkerError", "LimitError")):
        failure = Failure(kind, "so it went", "limits")
        run = Run(f"{i + 1:011x}00000000", Question(f"Question {i}"), failure=failure)
        await server.desk.podium.store.end_run(run, owner="", config="")
    _, page = await get(client, server, "runs", failure="LimitError")
    assert [run["question"] for run in page["runs"]] == ["Question 2", "Question 0"]
    _, me = await get(client, server, "me")
    assert {"LimitError", "WorkerError", "WorkflowError", "Cancelled"} <= set(me["failures"])


def test_an_operator_that_does_not_exist_is_refused_before_serving(tmp_path, monkeypatch):
    path = tmp_path / "podium.toml"
    path.write_text(
        f'store = "{tmp_path}/s.sqlite"\n[planner]\nworker = "a"\n'
        '[[worker]]\nname = "a"\nmodel = "a"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    done = CliRunner().invoke(serve_command, ["-c", str(path), "--operator", "ghost"])
    assert isinstance(done.exception, ConfigError) and "ghost" in str(done.exception)


async def test_a_desk_without_keys_is_everybodys_who_is_on_this_machine(serve):
    server = await serve(["ok"])
    assert isinstance(server.desk, Desk)
    assert server.desk.operates(Key("", "")) and not server.desk.operates(Key("k", "k"))

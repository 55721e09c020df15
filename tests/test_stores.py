"""What holds of a store, wherever it is: the same tests over SQLite and a real Postgres."""

import asyncio
from dataclasses import replace

import pytest

import postgres
from podium import Question, Round, Run, Step, StepResult, Workflow
from podium.errors import ConfigError, StoreError
from podium.events import Planned, StepFinished
from podium.records import load_run, pack
from podium.serve import talk
from podium.serve.keys import Key, Keys
from podium.serve.wire import Refusal
from podium.store import MIGRATIONS, open_store
from podium.types import Completion, Draft, Message, ToolCall, Usage

DRAFT = Draft(Completion("draft", Usage(1, 2), 0.1))
FLOW = Workflow((Step(0, "a"), Step(1, "b", "all")))
RESULT = StepResult(FLOW.steps[0], "w0", "out", Completion("out", Usage(3, 4), 0.2))


def run_of(id: str = "r1", **changes) -> Run:
    return replace(Run(id, Question("What?"), workers=("w0", "w1"), started=1.0), **changes)


@pytest.fixture(scope="module")
def cluster():
    if postgres.binary("initdb") is None:
        pytest.skip("Postgres is not installed: apt-get install postgresql")
    with postgres.postgres() as place:
        yield place


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "podium.sqlite")
    return await postgres.database(request.getfixturevalue("cluster"))


@pytest.fixture
async def store(address):
    store = open_store(address)
    yield store
    await store.close()


async def test_a_run_comes_back_as_it_was(store):
    done = run_of(rounds=(Round((DRAFT,), FLOW, (RESULT, RESULT), "out"),), seconds=2.0)
    await store.end_run(done, owner="me", config="c")
    record = await store.record("r1")
    assert record is not None and load_run(record) == done
    (row,) = await store.runs()
    assert (row.state, row.tokens, row.steps, row.workers) == ("answered", 17, 2, "w0")


async def test_an_interrupted_run_is_put_together_from_what_had_finished(store):
    store.begin_run(run_of(), owner="", config="c")
    store.put_progress("r1", 0, pack(Planned(0, DRAFT, FLOW)))
    store.put_progress("r1", 1, pack(StepFinished(0, 0, RESULT)))
    await store.put_config("c", b'{"a": 1}')
    await store.end_run(run_of("r2"), owner="", config="c")
    record = await store.record("r1")
    assert record.config == {"a": 1} and len(record.progress) == 2
    found = load_run(record)
    assert found.answer == "out" and found.failure.kind == "Interrupted"


async def test_only_the_owners_runs_are_found(store):
    for id, owner in (("r1", "me"), ("r2", "you"), ("r3", "me")):
        await store.end_run(run_of(id), owner=owner, config="")
    assert [row.id for row in await store.runs(owner="me")] == ["r3", "r1"]
    assert [row.id for row in await store.runs(owner="me", before="r3")] == ["r1"]
    assert await store.record("r2", owner="me") is None


async def test_a_call_is_kept_and_can_be_replaced(store):
    assert await store.call("d", 0) is None
    await store.put_call("d", 0, "w", b"asked", b"one")
    await store.put_call("d", 0, "w", b"asked", b"two")
    assert await store.call("d", 0) == b"two" and await store.call("d", 1) is None


async def test_what_was_written_is_there_after_closing(store, address):
    store.begin_run(run_of(), owner="", config="")
    await store.close()
    again = open_store(address)
    assert [row.state for row in await again.runs()] == ["unfinished"]
    await again.close()


async def test_no_character_of_a_question_is_too_odd(store):
    odd = "nul \0 quote ' \" percent % dollar $1 mark ? snow ☃ \U0001f600"
    await store.end_run(run_of(question=Question(odd)), owner="o", config="")
    assert load_run(await store.record("r1")).question.text == odd
    assert await store.runs(owner="' OR 1=1 --") == []


async def test_statements_are_changed_all_or_none(store):
    good = ("INSERT INTO configs VALUES (?, ?, ?)", ("x", 1.0, b"y"))
    with pytest.raises(StoreError):
        await store.change(good, ("INSERT INTO nowhere VALUES (?)", (1,)))
    assert await store.fetch("SELECT 1 FROM configs") == []
    assert await store.change(good) == 1


async def test_a_newer_database_is_left_alone(store, address, monkeypatch):
    await store.fetch("SELECT 1")
    await store.close()
    monkeypatch.setattr("podium.store.MIGRATIONS", MIGRATIONS[:1])
    monkeypatch.setattr("podium.store_postgres.MIGRATIONS", MIGRATIONS[:1])
    with pytest.raises(ConfigError, match="newer Podium"):
        again = open_store(address)
        await again.fetch("SELECT 1")


async def test_an_older_database_is_brought_up_to_date(address, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr("podium.store.MIGRATIONS", MIGRATIONS[:1])
        older.setattr("podium.store_postgres.MIGRATIONS", MIGRATIONS[:1])
        store = open_store(address)
        await store.end_run(run_of(), owner="", config="")
        await store.close()
    store = open_store(address)
    assert len(await store.runs()) == 1 and await store.fetch("SELECT 1 FROM keys") == []
    await store.close()


async def test_servers_that_share_a_store_cannot_pass_a_budget_together(address):
    stores = [open_store(address) for _ in range(3)]
    servers = [Keys(store) for store in stores]
    await servers[0].new(Key("k1", "alice", daily=1.0))
    key = await servers[1].named("alice")
    taken = await asyncio.gather(
        *(servers[i % 3].take(key, 0.15) for i in range(30)), return_exceptions=True
    )
    given = [(i, usd) for i, usd in enumerate(taken) if not isinstance(usd, Exception)]
    assert all(isinstance(t, Refusal) for t in taken if isinstance(t, Exception))
    assert 0.8 < sum(usd for _, usd in given) <= 1.0 + 1e-9
    for i, usd in given:
        servers[i % 3].give_back(key, usd, usd)
    await asyncio.gather(*(server.book_all() for server in servers))
    fresh = await servers[2].named("alice")
    assert fresh.today <= 1.0 + 1e-9 and fresh.held == pytest.approx(0.0)
    for store in stores:
        await store.close()


async def test_a_session_of_tool_calls_is_found_by_every_server_and_only_by_its_owner(address):
    one, other = open_store(address), open_store(address)
    turn = Message("assistant", "", tool_calls=(ToolCall("x", "look", "{}"),),
                   thinking=({"type": "thinking", "signature": "s"},))  # fmt: skip
    session = talk.Session("w", (Message("user", "?"),), turn)
    await talk.keep(one, "run", "alice", session)
    assert await talk.find(other, "run", "alice") == session
    assert await talk.find(other, "run", "bob") is None
    await one.close()
    await other.close()


async def test_a_password_has_no_place_in_the_configuration():
    with pytest.raises(ConfigError, match="PGPASSWORD") as refused:
        open_store("postgresql://me:hunter2@db/podium")
    assert "hunter2" not in str(refused.value)


async def test_a_database_that_is_not_there_is_named(tmp_path):
    store = open_store(f"postgresql:///podium?host={tmp_path}&user=nobody")
    with pytest.raises(StoreError, match="podium"):
        await store.fetch("SELECT 1")

import asyncio
import sqlite3
import sys
import textwrap
from dataclasses import replace

import pytest

from podium import Limits, Question, Round, Run, Step, StepResult, Workflow
from podium.errors import ConfigError, StoreError
from podium.events import Planned, StepFinished
from podium.records import load_run, pack
from podium.store import SqliteStore
from podium.types import Completion, Draft, Usage

DRAFT = Draft(Completion("draft", Usage(1, 2), 0.1))
FLOW = Workflow((Step(0, "a"), Step(1, "b", "all")))
RESULT = StepResult(FLOW.steps[0], "w0", "out", Completion("out", Usage(3, 4), 0.2))


def run_of(id: str = "r1", **changes) -> Run:
    base = Run(id, Question("What?"), workers=("w0", "w1"), limits=Limits(dollars=1), started=1.0)
    return replace(base, **changes)


@pytest.fixture
async def store(tmp_path):
    store = SqliteStore(tmp_path / "deep" / "podium.sqlite")
    yield store
    await store.close()


async def test_a_run_comes_back_as_it_was(store):
    done = run_of(rounds=(Round((DRAFT,), FLOW, (RESULT, RESULT), "out"),), seconds=2.0)
    await store.end_run(done, owner="me", config="c")
    record = await store.record("r1")
    assert record is not None and load_run(record) == done
    (row,) = await store.runs()
    assert (row.state, row.usd, row.tokens, row.steps, row.workers) == (
        "answered",
        0.5,
        17,
        2,
        "w0",
    )


async def test_an_owner_sees_its_own_runs_alone(store):
    await store.end_run(run_of("r1"), owner="alice", config="")
    await store.end_run(run_of("r2"), owner="bob", config="")
    assert [row.id for row in await store.runs(owner="alice")] == ["r1"]
    assert await store.record("r1", owner="bob") is None
    assert [row.id for row in await store.runs()] == ["r2", "r1"]
    assert [row.id for row in await store.runs(before="r2")] == ["r1"]


async def test_a_run_that_was_cut_off_keeps_the_steps_it_had_finished(store):
    store.begin_run(run_of(), owner="", config="")
    store.put_progress("r1", 0, pack(Planned(0, DRAFT, FLOW)))
    store.put_progress("r1", 1, pack(StepFinished(0, 0, RESULT)))
    await store.put_config("flush", b"{}")
    record = await store.record("r1")
    assert record is not None and record.state == "unfinished"
    run = load_run(record)
    assert run.answer == "out" and run.cost == pytest.approx(0.3)
    assert [bool(r.failure) for r in run.rounds[0].results] == [False, True]


async def test_values_never_become_sql(store):
    await store.end_run(run_of("r1"), owner="x", config="")
    assert await store.runs(owner="' OR 1=1 --") == []
    assert await store.record("r1' OR '1'='1") is None


async def test_many_tasks_write_at_once_and_all_is_there(store):
    await asyncio.gather(*(store.put_call(f"d{i}", 0, "w", b"{}", b"{}") for i in range(500)))
    found = await asyncio.gather(*(store.call(f"d{i}", 0) for i in range(500)))
    assert found == [b"{}"] * 500


async def test_two_processes_share_a_store(store):
    code = textwrap.dedent("""
        import asyncio, sys
        from podium.store import SqliteStore
        async def main():
            store = SqliteStore(sys.argv[1])
            names = [f"other{i}" for i in range(200)]
            await asyncio.gather(*(store.put_call(n, 0, "w", b"{}", b"{}") for n in names))
            await store.close()
        asyncio.run(main())
    """)
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(store.path))
    await asyncio.gather(*(store.put_call(f"mine{i}", 0, "w", b"{}", b"{}") for i in range(200)))
    assert await other.wait() == 0
    assert all([await store.call(f"{who}{i}", 0) for who in ("mine", "other") for i in range(200)])


async def test_what_was_committed_survives_kill_9(tmp_path):
    code = textwrap.dedent("""
        import asyncio, os, signal, sys
        from podium.store import SqliteStore
        async def main():
            store = SqliteStore(sys.argv[1])
            for i in range(50):
                await store.put_call(f"d{i}", 0, "w", b"{}", b"{}")
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """)
    path = tmp_path / "killed.sqlite"
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path))
    assert await killed.wait() == -9
    store = SqliteStore(path)
    assert all([await store.call(f"d{i}", 0) for i in range(50)])
    await store.close()


async def test_a_store_that_cannot_be_written_says_so(store):
    with sqlite3.connect(store.path) as other:
        other.execute("DROP TABLE calls")
    with pytest.raises(StoreError, match="could not be written"):
        await store.put_call("d", 0, "w", b"", b"")
    await store.put_config("still", b"{}")  # and the writer goes on with the rest


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "x").write_text("not a database, but long enough to be looked at" * 20)
    with pytest.raises(ConfigError, match="cannot open the store"):
        SqliteStore(tmp_path / "x")


async def test_a_store_of_a_newer_podium_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "new.sqlite") as newer:
        newer.execute("PRAGMA user_version = 999")
    with pytest.raises(ConfigError, match="newer Podium"):
        SqliteStore(tmp_path / "new.sqlite")

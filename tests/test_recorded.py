import asyncio

import pytest

from podium import (
    Conductor,
    FixedPlanner,
    Ledger,
    Limits,
    Pool,
    Price,
    Step,
    Terms,
    Usage,
    Workflow,
)
from podium.errors import NotRecorded, WorkerError
from podium.store import SqliteStore
from podium.testing import ScriptedWorker
from podium.types import Message, Request, Sampling
from podium.workers import Call
from podium.workers.recorded import RecordedWorker, ReplayedWorker, Reply

ASK = Request((Message("user", "hello"),))


@pytest.fixture
async def store(tmp_path):
    store = SqliteStore(tmp_path / "podium.sqlite")
    yield store
    await store.close()


async def complete(worker, request: Request = ASK, ledger: Ledger | None = None):
    return await worker.complete(request, Call(ledger or Ledger()))


async def test_read_through_calls_once_and_then_replays(store):
    scripted = ScriptedWorker(["one"], price=Price(1, 1))
    worker = RecordedWorker(scripted, store, "read-through")
    first, second = await complete(worker), await complete(worker)
    assert (first.text, second.text) == ("one", "one")
    assert (first.replayed, second.replayed) == (False, True)
    assert first.cost == second.cost and first.usage == second.usage


async def test_record_always_calls_and_keeps_the_newest(store):
    recording = RecordedWorker(ScriptedWorker(["one", "two"]), store, "record")
    assert [(await complete(recording)).text for _ in range(2)] == ["one", "two"]
    assert (await complete(RecordedWorker(ScriptedWorker([]), store, "replay"))).text == "two"


async def test_a_replay_that_misses_fails_clearly(store):
    with pytest.raises(NotRecorded, match="scripted: this request is not recorded"):
        await complete(RecordedWorker(ScriptedWorker([]), store, "replay"))


async def test_samples_and_settings_tell_requests_apart(store):
    scripted = ScriptedWorker(["a", "b", "c"])
    worker = RecordedWorker(scripted, store, "read-through")
    others = [
        ASK,
        Request(ASK.messages, sample=1),
        Request(ASK.messages, sampling=Sampling(temperature=0.5)),
    ]
    assert [(await complete(worker, r)).text for r in others * 2] == ["a", "b", "c"] * 2


async def test_equal_calls_in_flight_are_made_once(store):
    scripted = ScriptedWorker(["one"], gate=(gate := asyncio.Event()))
    worker = RecordedWorker(scripted, store, "read-through")
    asking = [asyncio.create_task(complete(worker)) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    assert {(await task).text for task in asking} == {"one"}
    assert len(scripted.seen) == 1


async def test_when_the_one_call_in_flight_fails_the_next_in_line_makes_it(store):
    scripted = ScriptedWorker([WorkerError("down", status=500), "two"])
    worker = RecordedWorker(scripted, store, "read-through")
    results = await asyncio.gather(complete(worker), complete(worker), return_exceptions=True)
    assert isinstance(results[0], WorkerError) and results[1].text == "two"


async def test_the_random_marks_of_a_workflow_do_not_hide_its_recording(store):
    scripted = ScriptedWorker(["x", "y"])
    pool = Pool.of(RecordedWorker(scripted, store, "read-through"))
    flow = Workflow((Step(0, "a"), Step(0, "b", (0,))))
    conductor = Conductor(FixedPlanner(flow), pool)
    first, second = await conductor.solve("?"), await conductor.solve("?")
    assert first.answer == second.answer == "y" and len(scripted.seen) == 2
    assert first.cost == second.cost


async def test_a_replay_counts_for_its_run_and_costs_the_process_nothing(store):
    worker = RecordedWorker(ScriptedWorker(["one"], price=Price(1000, 1000)), store, "read-through")
    await complete(worker)
    process = Ledger(Limits(dollars=100))
    run = Ledger(Limits(), process)
    done = await complete(worker, ledger=run)
    assert run.dollars == done.cost and run.dollars > 0 and process.dollars == 0


WORLD = ReplayedWorker("gpt", {"What is 2+2?": Reply("4", Usage(1_000_000, 0))}, Price(2.0, 8.0))


async def test_a_recorded_model_answers_the_whole_question_at_its_price():
    run = await Conductor(
        FixedPlanner(Workflow((Step(0, "Answer the question."),))), Pool.of(WORLD)
    ).solve("What is 2+2?", Terms(Ledger(Limits(), Ledger())))
    assert (run.answer, run.cost) == ("4", 2.0)
    completion = run.rounds[0].results[0].completion
    assert completion is not None and completion.replayed


@pytest.mark.parametrize(
    ("question", "subtask"),
    [("What is 2+2?", "Think hard."), ("What is 3+3?", "Answer the question.")],
)
async def test_a_recorded_model_refuses_what_it_was_never_asked(question: str, subtask: str):
    run = await Conductor(FixedPlanner(Workflow((Step(0, subtask),))), Pool.of(WORLD)).solve(
        question
    )
    assert run.failure is not None and run.failure.kind == "NotRecorded"
    assert "not recorded" in run.failure.message

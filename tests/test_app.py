import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from podium import Limits, Rules, Step, Workflow, render
from podium.app import Podium
from podium.config import Config
from podium.errors import ConfigError
from podium.events import StepStarted
from podium.testing import Refuse, Say, Upstream

PLAN = render(Workflow((Step(0, "Try."), Step(1, "Check.", (0,)))))


def config(upstream: Upstream, tmp_path, **changes) -> Config:
    worker = {"base_url": f"{upstream.url}/v1", "price": {"input": 1, "output": 2}, "retries": 0}
    settings = {
        "store": str(tmp_path / "podium.sqlite"),
        "planner": {"worker": "leader"},
        "planner_worker": [{"name": "leader", "model": "leader", **worker}],
        "worker": [{"name": n, "model": n, **worker} for n in ("a", "b")],
    }
    return Config.model_validate(settings | changes)


async def test_a_question_travels_from_the_configuration_to_a_stored_run(tmp_path):
    script = {"leader": [PLAN], "a": ["first"], "b": ["second"]}
    async with Upstream(script) as upstream:
        async with Podium.open(config(upstream, tmp_path)) as podium:
            run = await podium.ask("Why?")
            assert run.answer == "second" and run.cost > 0
            assert await podium.run(run.id) == run
            (row,) = await podium.store.runs()
            assert row.state == "answered" and row.config == podium.digest
            record = await podium.store.record(run.id)
        assert record is not None
        assert record.config["prices"]["a"]["output"] == 2
        assert record.config["versions"]["podium"]
    assert [sent.body["model"] for sent in upstream.requests] == ["leader", "a", "b"]


async def test_a_cancelled_run_leaves_no_call_and_keeps_what_it_had(tmp_path):
    script = {"leader": [PLAN], "a": ["first"], "b": [Say("never", delay=600)]}
    async with Upstream(script) as upstream, Podium.open(config(upstream, tmp_path)) as podium:
        second = asyncio.Event()

        def hear(event) -> None:
            if isinstance(event, StepStarted) and event.index == 1:
                second.set()

        asking = asyncio.create_task(podium.ask("Why?", emit=hear))
        await second.wait()
        await upstream.arrived(3)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await upstream.quiet()
        (row,) = await podium.store.runs()
        run = await podium.run(row.id)
    assert upstream.aborted == 1
    assert row.state == "partial" and run is not None and run.answer == "first"
    assert run.failure is not None and run.failure.kind == "Cancelled"


async def test_a_step_falls_back_when_its_worker_refuses(tmp_path):
    script = {"leader": [PLAN], "a": [Refuse(500)], "b": ["spare", "second"]}
    async with Upstream(script) as upstream:
        made = config(upstream, tmp_path).model_dump()
        made["worker"][0]["fallback"] = "b"
        async with Podium.open(Config.model_validate(made)) as podium:
            run = await podium.ask("Why?")
    assert run.rounds[0].results[0].worker == "b" and run.answer == "second"


async def test_recordings_make_the_second_time_free(tmp_path):
    script = {"leader": [PLAN], "a": ["first"], "b": ["second"]}
    async with Upstream(script) as upstream:
        async with Podium.open(config(upstream, tmp_path, recording="read-through")) as podium:
            first, second = await podium.ask("Why?"), await podium.ask("Why?")
            assert podium.ledger.dollars == pytest.approx(first.cost)
        assert first.answer == second.answer and first.cost == second.cost
        assert len(upstream.requests) == 3
    async with Podium.open(config(upstream, tmp_path, recording="replay")) as podium:
        assert (await podium.ask("Why?")).answer == "second"  # with nobody to ask
        assert (await podium.ask("What else?")).answer is None


async def test_limits_of_a_process_hold_over_its_runs(tmp_path):
    script = {"leader": [PLAN], "a": ["first"], "b": ["second"]}
    async with Upstream(script) as upstream:
        made = config(upstream, tmp_path, process={"calls": 4})
        async with Podium.open(made) as podium:
            assert (await podium.ask("Why?")).answer == "second"
            run = await podium.ask("Why again?", limits=Limits())
    assert run.failure is not None and "4 calls" in run.failure.message
    assert len(upstream.requests) == 4


async def test_a_strategy_of_the_configuration_has_its_own_workers_and_rounds(tmp_path):
    again = render(Workflow((Step(0, "Once more."),)))
    script = {"leader": [again, again], "b": ["one", "two"]}
    deep = {"name": "deep", "planner": {"worker": "leader"}, "workers": ["b"], "rounds": 2}
    async with (
        Upstream(script) as upstream,
        Podium.open(config(upstream, tmp_path, strategy=[deep])) as podium,
    ):
        run = await podium.ask("Why?", "deep")
    assert run.answer == "two" and run.workers == ("b",) and run.strategy == "deep"


async def test_one_worker_alone_is_asked_the_bare_question(tmp_path):
    async with (
        Upstream({"a": ["yes"]}) as upstream,
        Podium.open(config(upstream, tmp_path)) as podium,
    ):
        assert (await podium.ask("Why?", "single:a")).answer == "yes"
        with pytest.raises(ConfigError, match="no worker 'z'"):
            podium.strategy("single:z")
        with pytest.raises(ConfigError, match="no strategy 'nope'"):
            await podium.ask("Why?", "nope")
        with pytest.raises(ConfigError, match="no worker 'z'"):
            await podium.ask("Why?", rules=Rules(denied=frozenset({"z"})))
    assert upstream.requests[0].body["messages"] == [{"role": "user", "content": "Why?"}]


async def test_a_missing_key_is_named_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.delenv("PODIUM_TEST_KEY", raising=False)
    async with Upstream() as upstream:
        made = config(upstream, tmp_path).model_dump()
        made["worker"][0]["key_env"] = "PODIUM_TEST_KEY"
        with pytest.raises(ConfigError, match=r"worker 'a': .*PODIUM_TEST_KEY is not set"):
            Podium.open(Config.model_validate(made))


async def test_spans_follow_the_conventions_and_hold_no_content(tmp_path, monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    script = {"leader": [PLAN], "a": ["the secret text"], "b": ["second"]}
    async with Upstream(script) as upstream, Podium.open(config(upstream, tmp_path)) as podium:
        await podium.ask("A secret question?")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    root = spans["invoke_workflow podium"]
    assert root.parent is None
    for child, parent in {
        "plan podium": "invoke_workflow podium",
        "chat leader": "plan podium",
        "invoke_agent a": "invoke_workflow podium",
        "chat a": "invoke_agent a",
        "chat b": "invoke_agent b",
    }.items():
        found = spans[child].parent
        assert found is not None and found.span_id == spans[parent].context.span_id, child
    assert spans["chat a"].attributes["gen_ai.usage.output_tokens"] > 0
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())

"""The shelf over a real server: training while it is written, evaluations down to their runs."""

import json
import sqlite3
from dataclasses import replace

import aiohttp
import pytest

from pages import number, stored, write_evaluation, write_training
from podium.errors import ConfigError
from podium.eval.results import Results
from podium.eval.tally import read
from test_web import get


@pytest.fixture
async def client():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("PODIUM_RUNS", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


async def test_training_is_read_line_by_whole_line_and_from_the_shelf_alone(serve, client, shelf):
    folder = shelf / "tiny"
    folder.mkdir(parents=True)
    rows = [{"step": i, "reward": 0.1 * i, "accuracy": 0.5, "parsed": 1.0} for i in (1, 2)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines + '{"step": 3, "rew')
    server = await serve(["ok"])
    _, found = await get(client, server, "training/metrics", name="tiny", after="1")
    assert [row["step"] for row in found["rows"]] == [2]
    for name in ("../tiny", "/etc", "tiny/..", ""):
        assert (await get(client, server, "training/metrics", name=name))[0] == 404


async def test_a_run_is_on_the_page_before_its_first_step_and_whatever_is_broken(
    serve, client, shelf
):
    (shelf / "warm").mkdir(parents=True)
    (shelf / "warm" / "recipe.json").write_text('{"name": "warm", "grpo": {"steps": 9}}')
    (shelf / "head").mkdir()
    (shelf / "head" / "recipe.json").write_text('{"name": "head"}')
    (shelf / "broken").mkdir()
    (shelf / "broken" / "recipe.json").write_text("{")
    lines = [b"{", b"[1]", b'{"reward": 1}', b'{"step": 1, "entropy": NaN}', b'{"step": "2"}']
    (shelf / "broken" / "metrics.jsonl").write_bytes(b"\n".join(lines))
    server = await serve(["ok"])
    status, found = await get(client, server, "training")
    assert status == 200 and [t["name"] for t in found] == ["broken", "warm"]
    _, made = await get(client, server, "training/metrics", name="broken")
    assert made["rows"] == [{"step": 1, "entropy": None}]
    _, made = await get(client, server, "training/metrics", name="warm")
    assert (made["rows"], made["last"], made["of"]) == ([], 0, 9)
    assert (await get(client, server, "training/samples", name="warm", step="1")) == (200, [])


async def test_a_draft_is_shown_as_the_workflow_that_it_is_with_its_workers_by_name(
    serve, client, shelf
):
    write_training(shelf / "tiny", [1])
    server = await serve(["ok"])
    _, (good, bad) = await get(client, server, "training/samples", name="tiny", step="1")
    (round,) = good["rounds"]
    assert [(s["worker"], s["step"]["subtask"]) for s in round["steps"]] == [
        ("b", "Count to 1."),
        ("a", "Write it up."),
    ]
    assert bad["rounds"][0]["steps"] is None


async def test_odd_samples_are_shown_as_far_as_they_go(serve, client, shelf):
    write_training(shelf / "tiny", [])
    odd = ['{"step": 1}', '{"step": 1, "rounds": [3, {"draft": null, "answers": [1]}]}']
    (shelf / "tiny" / "samples.jsonl").write_text("\n".join(odd))
    server = await serve(["ok"])
    status, found = await get(client, server, "training/samples", name="tiny", step="1")
    assert status == 200 and [len(s["rounds"]) for s in found] == [0, 1]


async def test_a_strategys_questions_lead_to_their_runs_down_to_each_message(serve, client, shelf):
    await write_evaluation(shelf / "sums")
    server = await serve(["ok"])
    _, found = await get(client, server, "evaluations/questions", name="sums", a="podium")
    assert found["counts"]["all"] == 20 and found["counts"]["right"] == 16
    _, wrong = await get(
        client, server, "evaluations/questions", name="sums", a="podium", show="wrong"
    )
    by_id = {q["id"]: q for q in wrong["questions"]}
    assert by_id.keys() == {"0", "5", "10", "15"}
    (run,) = by_id["5"]["answers"][0]["runs"]
    status, shown = await get(client, server, f"runs/{run}", shelf="sums")
    assert status == 200 and shown["question"] == "What is 5 + 5?"
    _, step = await get(client, server, f"runs/{run}/steps/0/0", shelf="sums")
    assert step["messages"][0]["content"]
    assert (await get(client, server, f"runs/{run}"))[0] == 404
    assert (await get(client, server, f"runs/{run}", shelf="../sums"))[0] == 404


async def test_two_strategies_are_shown_where_they_differ(serve, client, shelf):
    await write_evaluation(shelf / "sums")
    server = await serve(["ok"])
    pair = {"name": "sums", "a": "podium", "b": "single:b"}
    _, found = await get(client, server, "evaluations/questions", show="differ", **pair)
    for question in found["questions"]:
        one, other = question["answers"]
        assert one["score"] != other["score"] and one["runs"] != other["runs"]
    counts = found["counts"]
    assert counts["differ"] == counts["better"] + counts["worse"] == len(found["questions"]) > 0
    for bad in ({"a": "nobody"}, {"show": "odd"}, {"report": "7"}, {"report": "-1"}):
        status, said = await get(client, server, "evaluations/questions", **{**pair, **bad})
        assert status in (400, 404) and said["error"]["message"]
    _, oracle = await get(client, server, "evaluations/questions", name="sums", a="oracle")
    assert oracle["questions"][0]["answers"][0]["runs"] == []


async def test_results_of_another_version_or_damaged_ones_are_named_and_never_an_error_of_ours(
    serve, client, shelf
):
    await write_evaluation(shelf / "old")
    db = sqlite3.connect(shelf / "old" / "results.sqlite")
    db.execute("UPDATE facts SET body = ? WHERE name = 'setup'", (b'{"label": "sums"}',))
    db.commit()
    await write_evaluation(shelf / "narrow")
    db = sqlite3.connect(shelf / "narrow" / "results.sqlite")
    db.execute("ALTER TABLE samples DROP COLUMN unpriced")
    db.commit()
    await write_evaluation(shelf / "fields")
    db = sqlite3.connect(shelf / "fields" / "results.sqlite")
    db.execute("UPDATE items SET body = ?", (b'{"id": "0", "prompt": "?"}',))
    db.commit()
    (shelf / "text").mkdir()
    (shelf / "text" / "results.sqlite").write_text("no database at all, but long enough to be one")
    (shelf / "empty").mkdir()
    (shelf / "empty" / "results.sqlite").touch()
    server = await serve(["ok"])
    for name in ("old", "narrow", "fields", "text", "empty"):
        status, found = await get(client, server, "evaluations/figures", name=name)
        assert status == 200 and found["problem"] and found["reports"] == [], name
        status, said = await get(client, server, "evaluations/questions", name=name, a="podium")
        assert status == 409 and said["error"]["message"] == found["problem"], name
        status, _ = await get(client, server, f"runs/{number(999)}", shelf=name)
        assert status in (404, 409), name
    with pytest.raises(ConfigError, match=r"old .*another version.*workers"):
        await read([shelf / "old"])


async def test_an_evaluations_run_of_another_version_is_refused_in_words(serve, client, shelf):
    await write_evaluation(shelf / "sums")
    db = sqlite3.connect(shelf / "sums" / "results.sqlite")
    db.execute("UPDATE runs SET record = ? WHERE id = ?", (json.dumps({"id": 3}), number(5)))
    db.commit()
    server = await serve(["ok"])
    status, said = await get(client, server, f"runs/{number(5)}", shelf="sums")
    assert status == 409 and "another version" in said["error"]["message"]


async def test_figures_are_counted_anew_when_results_change(serve, client, shelf):
    await write_evaluation(shelf / "sums")
    server = await serve(["ok"])
    _, before = await get(client, server, "evaluations/figures", name="sums")
    results = await Results.open(shelf / "sums")
    (first, *_) = await results.samples("test", ["podium"])
    await results.keep(replace(first, score=1.0), stored(number(900), "1"))
    await results.close()
    _, after = await get(client, server, "evaluations/figures", name="sums")
    found = [r["reports"][0]["figures"]["podium"]["accuracy"] for r in (before, after)]
    assert found == [0.8, 0.85]

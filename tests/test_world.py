"""A recorded world is loaded whole, row by row checked, and never makes a reply up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from podium.errors import ConfigError, NotRecorded
from podium.eval.tasks import grade
from podium.eval.world import Price, World

DATA = Path(__file__).parents[2] / "shared" / "data" / "recorded"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded worlds at {DATA}")

QUESTIONS = [
    {"id": "q1", "split": "train", "question": "2+2?", "answer": "4", "grader": "number"},
    {"id": "q2", "split": "test", "question": "Sky?", "answer": "B", "grader": "choice",
     "options": ["red", "blue"], "category": "art"},
    {"id": "q3", "split": "test", "question": "[1]?", "answer": "[1]", "grader": "literal"},
]  # fmt: skip
REPLY = {"id": "q2", "worker": "w", "text": "The answer is (B).", "extracted": "B",
         "correct": True, "tokens_in": 1000, "tokens_out": 100}  # fmt: skip
POOL = [{"name": "w", "usd_per_mtok_in": 3, "usd_per_mtok_out": 15}]


def write(directory: Path, questions=QUESTIONS, replies=(REPLY,), pool=POOL) -> Path:
    for name, rows in (("questions", questions), ("replies", replies)):
        lines = "\n".join(map(json.dumps, rows)).encode()
        (directory / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines))
    (directory / "pool.json").write_text(json.dumps(pool))
    return directory


def test_a_world_has_questions_workers_and_what_they_said(tmp_path):
    world = World.load(write(tmp_path))
    assert [item.id for item in world.split("test")] == ["q2", "q3"]
    assert world.workers == {"w": Price(3, 15)}
    reply = world.reply("q2", "w")
    assert (reply.text, reply.correct, reply.extracted) == ("The answer is (B).", True, "B")
    assert world.workers["w"].of(reply) == pytest.approx(0.0045)


async def test_a_world_is_a_task(tmp_path):
    task = World.load(write(tmp_path)).task
    assert task.splits == ("train", "test")
    sky = task.load("test")[0]
    assert sky.question == "Sky?\n\nA. red\nB. blue"
    assert sky.category == "art"
    assert (await grade(sky, "The answer is (B).")).value == 1.0
    (sum_,) = task.load("train")
    assert (await grade(sum_, "#### 4.002")).value == 0.0
    with pytest.raises(ConfigError, match="leave out --data"):
        task.load("test", tmp_path)


def test_a_reply_that_was_never_recorded_is_not_made_up(tmp_path):
    world = World.load(write(tmp_path))
    for id, worker in (("q1", "w"), ("q2", "stranger"), ("q9", "w")):
        with pytest.raises(NotRecorded, match=f"no reply of {worker} to {id}"):
            world.reply(id, worker)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"questions": [{**QUESTIONS[0], "grader": "judge"}]},
            "questions.jsonl.gz, row 1: 'grader'",
        ),
        ({"questions": [{"id": "q1"}]}, "questions.jsonl.gz, row 1: there is no text"),
        ({"questions": [{**QUESTIONS[1], "answer": "C"}]}, "not the letter of an option: 'C'"),
        ({"questions": [{**QUESTIONS[1], "options": None}]}, "'options' is not a list of texts"),
        ({"replies": [REPLY, {**REPLY, "correct": "yes"}]}, "replies.jsonl.gz, row 2: not a reply"),
        ({"replies": [{**REPLY, "worker": "stranger"}]}, "row 1: 'stranger' or 'q2' is not in"),
        ({"replies": [{**REPLY, "id": "q9"}]}, "row 1: 'w' or 'q9' is not in"),
        ({"replies": [REPLY, REPLY]}, "row 2: a second reply of w to q2"),
        ({"pool": [{"name": "w", "usd_per_mtok_in": "three"}]}, "pool.json, row 1"),
        ({"pool": [{"name": "w", "usd_per_mtok_in": 3}]}, "'usd_per_mtok_out'"),
        (
            {"questions": QUESTIONS + QUESTIONS[:1]},
            "questions.jsonl.gz, row 4: 'q1' is there twice",
        ),
    ],
)
def test_a_bad_row_is_an_error_that_names_file_and_row(change, complaint, tmp_path):
    with pytest.raises(ConfigError) as caught:
        World.load(write(tmp_path, **change))
    assert complaint in str(caught.value)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"questions\.jsonl\.gz cannot be read"):
        World.load(tmp_path)
    write(tmp_path)
    (tmp_path / "replies.jsonl.gz").write_bytes(gzip.compress(b'{"id": \n{}'))
    with pytest.raises(ConfigError, match=r"replies\.jsonl\.gz, line 1 is not JSON"):
        World.load(tmp_path)


@needs_data
@pytest.mark.parametrize(
    ("name", "test", "best", "ceiling"),
    [
        ("gsm8k", 463, 0.981, 0.994),
        ("math-l5", 234, 0.662, 0.863),
        ("mmlu-pro", 1565, 0.720, 0.899),
    ],
)
def test_the_recorded_worlds_have_their_known_figures(name, test, best, ceiling):
    world = World.load(DATA / name)
    items = world.split("test")
    right = {w: [world.reply(i.id, w).correct for i in items] for w in world.workers}
    assert len(items) == test
    assert max(sum(r) for r in right.values()) / test == pytest.approx(best, abs=5e-4)
    anyone = sum(map(any, zip(*right.values(), strict=True))) / test
    assert anyone == pytest.approx(ceiling, abs=6e-4)


@needs_data
@pytest.mark.parametrize("name", ["gsm8k", "math-l5"])
async def test_our_graders_agree_with_the_recording(name):
    world = World.load(DATA / name)
    agree = total = 0
    for replies in world.replies.values():
        for id, reply in replies.items():
            score = await grade(world.items[id], reply.text)
            agree += bool(score.value) == reply.correct
            total += 1
    assert agree / total >= 0.99

"""Where questions come from, who is asked, and what is made of it: all of it without a model."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from podium.errors import ConfigError, WorkerError
from podium.eval.tasks.task import Item
from podium.ledger import Ledger
from podium.testing import ScriptedWorker
from podium.train import data
from podium.train.pools import drawn, some
from podium.train.recipe import Recipe, Reward
from podium.train.rollouts import Rehearsal, Sketch
from podium.types import Limits, Step, Workflow
from podium.workers import Member, Pool
from podium.workers.tools import VoteWorker
from podium.workflow import render


def recipe(**more: object) -> Recipe:
    settings = {"name": "x", "model": {"base": "x"}, "data": {"task": "tiny", "questions": 30}}
    return Recipe.model_validate(settings | more)


def world(folder: Path, *, answer: str = "A") -> Path:
    row = {"id": "q", "split": "train", "grader": "choice", "question": "Which?"}
    asked = row | {"options": ["x", "y"], "answer": answer}
    said = [
        {"id": "q", "worker": w, "text": f"The answer is ({t}).", "correct": t == "A"}
        | {"tokens_in": 1000, "tokens_out": 1000}
        for w, t in (("a", "A"), ("b", "B"))
    ]
    for name, rows in (("questions", [asked]), ("replies", said)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(r) + "\n" for r in rows)
    prices = [{"name": w, "usd_per_mtok_in": 1, "usd_per_mtok_out": 2} for w in "ab"]
    (folder / "pool.json").write_text(json.dumps(prices))
    return folder


async def test_a_contested_question_is_one_that_workers_differ_on(tmp_path: Path):
    source = data.load(recipe(data={"world": str(world(tmp_path))}))
    (scores,) = await data.measure(source.of("train"), source.pool)
    assert scores == [1.0, 0.0]
    assert data.contested(scores)
    assert not data.contested([1.0, 1.0, None])
    assert not data.contested([0.0, 0.0])
    assert not data.contested([None, None])


async def test_specialists_that_do_not_err_solve_every_plan_of_the_tiny_questions():
    source = data.load(recipe())
    names = {name: i for i, name in enumerate(source.pool.names)}
    rehearsal = Rehearsal(Limits(), Ledger(), Reward())
    made = data.tiny_items(1, 30, "train")
    flows = [
        Workflow(tuple(Step(names[c.skill], c.subtask, c.access) for c in item.calls))
        for item in made
    ]
    sketches = [
        Sketch(p, source.pool, render(flow))
        for p, flow in zip(source.of("train"), flows, strict=False)  # facts follow
    ]
    outcomes = await rehearsal.perform(sketches)
    assert [o.reward for o in outcomes] == [1.0] * 30


async def test_a_draft_that_does_not_come_to_an_end_is_malformed():
    source = data.load(recipe())
    rehearsal = Rehearsal(Limits(), Ledger(), Reward(malformed=0.45))
    whole = Sketch(source.of("train")[0], source.pool, render(Workflow((Step(0, "Go."),))))
    fine, endless = await rehearsal.perform([whole, replace(whole, ended=False)])
    assert fine.reward in (0.5, 1.0) and endless.reward == 0.45
    assert endless.round.failure and endless.round.failure.blame == "policy"


def test_every_step_meets_each_kind_of_question_in_its_due_share():
    kinds = ["a"] * 40 + ["b"] * 20 + ["c"] * 20
    problems = [data.Problem(Item(str(i), "?", "", "exact"), kind=k) for i, k in enumerate(kinds)]
    order = data.dealt(problems, Random(3))
    assert {p.id for p in order} == {p.id for p in problems}
    for start in range(0, 80, 8):
        there = [p.kind for p in order[start : start + 8]]
        assert 3 <= there.count("a") <= 5 and there.count("b") and there.count("c")
    assert [p.id for p in order] != [p.id for p in data.dealt(problems, Random(4))]


def test_questions_of_several_steps_can_come_later():
    made = data.tiny_items(1, 200, "train")
    plans = [tuple(Step(0, c.subtask, c.access) for c in m.calls) for m in made]
    problems = [
        data.Problem(Item(str(i), "?", "", "exact"), plan, str(len(plan)))
        for i, plan in enumerate(plans)
    ]
    order = [len(p.plan) > 1 for p in data.dealt(problems, Random(0), 0.25)]
    assert not any(order[:24]) and 0.4 < sum(order[40:]) / len(order[40:]) < 0.7


def problem() -> data.Problem:
    return data.load(recipe()).of("train")[0]


async def reward(team: Pool, text: str, **scale: float) -> float | None:
    rehearsal = Rehearsal(Limits(steps=3), Ledger(), Reward(**scale))
    (outcome,) = await rehearsal.perform([Sketch(problem(), team, text)])
    return outcome.reward


async def test_a_failing_worker_gives_no_reward_and_an_idle_vote_is_the_planners_fault():
    down = Member(ScriptedWorker([WorkerError("down", status=503)], name="down"))
    team = Pool((down, Member(VoteWorker(), program=True)))
    assert await reward(team, render(Workflow((Step(0, "Work."),)))) is None
    assert await reward(team, render(Workflow((Step(1, "Vote."),)))) == 0.0
    assert await reward(team, "I would rather not.", malformed=0.45) == 0.45


async def test_what_a_replayed_worker_cannot_know_is_a_draft_that_cannot_be_performed(
    tmp_path: Path,
):
    source = data.load(recipe(data={"world": str(world(tmp_path))}))
    (asked,) = source.of("train")
    rehearsal = Rehearsal(Limits(), Ledger(), Reward(cost=0.2, cost_at=0.006))
    texts = ["Answer the question.", "Think of a number."]
    sketches = [Sketch(asked, source.pool, render(Workflow((Step(0, t),)))) for t in texts]
    right, impossible = await rehearsal.perform(sketches)
    assert right.reward == pytest.approx(0.9)  # three thousandths of a dollar
    assert impossible.reward == 0.0


def test_a_drawn_pool_is_renumbered_and_keeps_its_programs():
    team = Pool.of(*(ScriptedWorker([], name=n) for n in "abcde"))
    team = Pool((*team.members, Member(VoteWorker(), program=True)))
    pools = [some(team, (2, 3), Random(i)) for i in range(20)]
    assert {len(p) for p in pools} == {3, 4}
    assert {p.names[-1] for p in pools} == {"vote"}
    assert len({p.names for p in pools}) > 10


def test_a_question_meets_the_same_pool_whenever_it_comes():
    made = recipe(pool={"draw": (2, 4)})
    source = data.load(made)
    first, second = (drawn(source.of("train"), source.pool, made) for _ in range(2))
    assert [r.pool.names for r in first] == [r.pool.names for r in second]
    assert len({r.pool.names for r in first}) > 10


def test_a_worker_that_does_not_exist_is_named(tmp_path: Path):
    bad = recipe(data={"world": str(world(tmp_path))}, pool={"only": ("a", "z")})
    with pytest.raises(ConfigError, match=r"`pool.only` names 'z': there are a, b"):
        data.load(bad)


async def test_a_gold_answer_that_fails_its_own_grader_is_refused():
    from dataclasses import replace

    good = problem()
    await data.check_gold([good])
    bad = replace(good, item=replace(good.item, target="4", grader="choice"))
    with pytest.raises(ConfigError, match="fails its own grader"):
        await data.check_gold([bad])


def test_a_price_is_estimated_before_the_start(tmp_path: Path):
    made = recipe(data={"world": str(world(tmp_path))}, limits={"steps": 2, "rounds": 2})
    plan = data.expected(made, data.load(made))
    assert plan["workflows"] == 200 * 4 * 64
    assert plan["calls_at_most"] == 4 * plan["workflows"]
    assert plan["dollars_at_most"] == pytest.approx(plan["calls_at_most"] * 0.003)

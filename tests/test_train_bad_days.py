"""Killed, out of room, out of money, or with half the workers down: nothing wrong is learnt."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("trl", reason="the `train` extra is not installed")

from podium.errors import LimitError, WorkerError
from podium.ledger import Ledger
from podium.testing import Say, ScriptedWorker, Sent, Upstream
from podium.train.checkpoint import last_whole
from podium.train.data import Problem
from podium.train.monitor import Lines
from podium.train.recipe import Reward
from podium.train.rollouts import Purse, Rehearsal, Sketch
from podium.types import Limits, Step, Workflow
from podium.workers import Pool, Price
from podium.workflow import render
from toy_training import WORKERS, metrics, problem, recipe, save_taught, save_world

pytestmark = pytest.mark.filterwarnings("default")

DRIVER = """
import sys
from dataclasses import replace

from podium.train import data, run
from podium.train.recipe import PoolSection
from podium.workers import Pool

recorded = data.load


def over_http(recipe):
    source = recorded(recipe)
    pool, close = data._configured(PoolSection(config=sys.argv[3]))
    programs = [m for m in source.pool.members if m.program]
    return replace(source, pool=Pool((*pool.members, *programs)), close=close)


data.load = over_http
run.train(sys.argv[1], sys.argv[2])
"""
"""The questions of the recipe's world, and its workers behind HTTP."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad-days")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """A recipe whose model needs no cold start any more."""
    world = save_world(folder)
    made = recipe(world, save_taught(folder, world), start="", grpo="steps = 4\nsave = 2")
    return made.replace("[pool]", "contested = false\n[pool]")


def curve(run: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in metrics(run)]


# Killed


def config(folder: Path, upstream: Upstream) -> Path:
    workers = "".join(
        f'[[worker]]\nname = "{name}"\nmodel = "{name}"\nbase_url = "{upstream.url}/v1"\n'
        "price = { input = 1, output = 1 }\n"
        for name in WORKERS
    )
    file = folder / "podium.toml"
    store = f'store = "{folder / "calls.db"}"\nrecording = "read-through"\n'
    file.write_text(f'{store}[planner]\nworker = "weak"\n{workers}')
    return file


async def started(recipe: Path, out: Path, pool: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, str(recipe), str(out), str(pool),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def finished(process: asyncio.subprocess.Process) -> None:
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


def asked(sent: Sent) -> tuple[str, str]:
    return sent.model, str(sent.body["messages"])


async def test_a_run_that_is_killed_goes_on_along_its_curve_and_pays_for_nothing_twice(
    tmp_path: Path, text: str
):
    file, out, never = tmp_path / "recipe.toml", tmp_path / "out", asyncio.Event()
    file.write_text(text)
    saved = out / "grpo" / "checkpoint-2" / "trainer_state.json"
    killing, in_step_three = True, asyncio.Event()

    def reply(sent: Sent) -> Say:
        said = f"The answer is ({'A' if sent.model == 'strong' else 'B'})."
        if not (killing and saved.exists()):
            return Say(said)
        in_step_three.set()
        return Say(said, gate=never)

    async with Upstream([reply]) as upstream:
        pool = config(tmp_path, upstream)
        process = await started(file, out, pool)
        await asyncio.wait_for(in_step_three.wait(), 300)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        lost = upstream.open + upstream.aborted  # on their way when it was killed
        killing = False
        await finished(await started(file, out, pool))
        resumed = Counter(asked(sent) for sent in upstream.requests)
        await finished(await started(file, tmp_path / "whole", pool))
        after = len(upstream.requests)
    assert len(metrics(out)) == 4
    assert curve(out) == curve(tmp_path / "whole")
    assert after == resumed.total()  # the whole run replayed every call
    assert lost
    assert resumed.total() - len(resumed) <= lost  # only they are asked once more


def test_a_checkpoint_that_was_not_written_to_its_end_is_not_gone_on_from(tmp_path: Path):
    for step, state in ((2, '{"global_step": 2}'), (10, '{"global_'), (12, None)):
        there = tmp_path / f"checkpoint-{step}"
        there.mkdir()
        if state is not None:
            (there / "trainer_state.json").write_text(state)
    assert last_whole(tmp_path) == tmp_path / "checkpoint-2"
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-2"]
    assert last_whole(tmp_path / "none") is None


def test_half_a_line_is_no_line(tmp_path: Path):
    lines = Lines(tmp_path / "metrics.jsonl")
    lines.add({"step": 1})
    lines.add({"step": 2})
    with lines.file.open("a") as file:
        file.write('{"step": 3, "rew')
    assert lines.all() == [{"step": 1}, {"step": 2}]
    lines.cut(1)
    lines.add({"step": 2, "again": True})
    assert lines.all() == [{"step": 1}, {"step": 2, "again": True}]


# Out of room

ROOM = 500_000
"""Bytes a file may have: the weights fit, and the optimizer's state does not."""


def little_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


def test_a_full_disk_ends_the_run_with_a_sentence_and_it_goes_on_when_there_is_room(
    tmp_path: Path, text: str
):
    file, out = tmp_path / "recipe.toml", tmp_path / "out"
    file.write_text(text)
    command = [sys.executable, "-m", "podium", "train", str(file), "--out", str(out)]
    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=little_room)
    assert full.returncode == 1, full.stderr
    assert "podium: there is no room to write in" in full.stderr
    assert "Traceback" not in full.stderr
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in metrics(out)] == [1, 2, 3, 4]
    assert json.loads((out / "report.json").read_text())["recipe"] == "toy"


# Out of money, and workers that are down


def chain() -> str:
    return render(Workflow((Step(0, "Think."), Step(1, "Check.", (0,)))))


async def test_a_training_that_has_spent_its_money_stops_and_blames_no_draft():
    dear = Price(0.0, 10.0)
    team = Pool.of(*(ScriptedWorker(lambda _: "42", name=n, price=dear) for n in "ab"))
    purse = Purse(Limits(dollars=0.2))
    rehearsal = Rehearsal(Limits(), purse, Reward())
    with pytest.raises(LimitError, match=r"has spent \$.* of its \$0\.2: raise `dollars`"):
        for _ in range(1000):
            outcomes = await rehearsal.perform([Sketch(problem(), team, chain())] * 16)
            assert {o.reward for o in outcomes} == {1.0}
    assert purse.dollars <= 0.2


async def test_what_was_spent_before_a_stop_counts_after_it(tmp_path: Path):
    file, dear = tmp_path / "spent", Price(0.0, 10.0)
    team = Pool.of(*(ScriptedWorker(lambda _: "42", name=n, price=dear) for n in "ab"))
    first = Purse(Limits(dollars=1.0), file)
    await Rehearsal(Limits(), first, Reward()).perform([Sketch(problem(), team, chain())] * 4)
    assert 0 < first.dollars == pytest.approx(Purse(Limits(dollars=1.0), file).dollars)


async def test_a_draft_that_passes_its_own_limit_is_to_blame_for_it():
    team = Pool.of(*(ScriptedWorker(lambda _: "42", name=n, price=Price(0, 10)) for n in "ab"))
    rehearsal = Rehearsal(Limits(dollars=0.001), Purse(Limits(dollars=1.0)), Reward())
    (outcome,) = await rehearsal.perform([Sketch(problem(), team, chain())])
    assert outcome.reward == 0.0


async def test_with_half_of_all_calls_failing_every_reward_that_is_given_is_right():
    rng = Random(1)

    def now_and_then(request: object) -> str | WorkerError:
        return "42" if rng.random() < 0.5 else WorkerError("down", status=503)

    team = Pool.of(*(ScriptedWorker(now_and_then, name=n) for n in "ab"))
    rehearsal = Rehearsal(Limits(), Ledger(), Reward())
    asked: list[Problem] = [problem("42"), problem("41")]
    sketches = [Sketch(asked[i % 2], team, chain()) for i in range(200)]
    outcomes = await rehearsal.perform(sketches)
    for sketch, outcome in zip(sketches, outcomes, strict=True):
        right = 1.0 if sketch.problem.item.target == "42" else 0.5
        failed = outcome.round.results[-1].failure is not None
        assert outcome.reward == (None if failed else right)
    assert 60 < sum(o.reward is None for o in outcomes) < 140

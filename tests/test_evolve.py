"""Evolution finds what it is told to, repeats itself exactly, and survives a kill."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("cmaes")

from podium.errors import ConfigError, WorkerError  # noqa: E402
from podium.eval.tasks.task import Item  # noqa: E402
from podium.testing import ScriptedWorker  # noqa: E402
from podium.train import routers  # noqa: E402
from podium.train.data import Problem  # noqa: E402
from podium.train.episodes import Stand  # noqa: E402
from podium.train.evolve import Bonuses, Evolution, bonus, filled, population_size  # noqa: E402
from podium.train.trinity import train_trinity  # noqa: E402
from podium.train.trinity_recipe import read_recipe  # noqa: E402
from podium.trinity import Head, Reading  # noqa: E402
from podium.workers import Pool  # noqa: E402


def sphere(x) -> float:
    return -float(((x - 1) ** 2).sum())


def test_the_population_is_the_published_one():
    assert (population_size(10_240), population_size(19_456)) == (32, 34)


def test_the_search_finds_the_top_of_a_sphere():
    search = Evolution(np.zeros(10), sigma=0.5)
    for _ in range(150):
        search.tell([sphere(x) for x in search.ask()])
    assert sphere(search.mean) > -1e-6


def test_a_search_that_is_told_the_same_again_stands_at_the_same_place_bit_for_bit():
    whole, told = Evolution(np.zeros(20), seed=3), []
    for _ in range(12):
        told.append([sphere(x) for x in whole.ask()])
        whole.tell(told[-1])
    resumed = Evolution(np.zeros(20), seed=3)
    resumed.resume(told)
    assert np.array_equal(resumed.mean, whole.mean)
    assert all(np.array_equal(a, b) for a, b in zip(resumed.ask(), whole.ask(), strict=True))


def test_another_seed_is_another_search():
    first, second = (Evolution(np.zeros(5), seed=s).ask() for s in (0, 1))
    assert not np.array_equal(first[0], second[0])


def test_a_candidate_without_a_score_is_neither_preferred_nor_dropped():
    assert filled([0.0, None, 1.0, 0.4]) == [0.0, 0.4, 1.0, 0.4]
    with pytest.raises(WorkerError, match="no episode"):
        filled([None, None])


def test_bonuses_are_off_until_they_are_given():
    picks = ["a", "b", "a", "b"]
    assert bonus(picks, turns=5, dollars=0.01, weights=Bonuses()) == 0.0
    entropy = bonus(picks, turns=5, dollars=0.0, weights=Bonuses(diversity=1.0))
    assert entropy == pytest.approx(np.log(2))
    assert bonus(picks, turns=5, dollars=0.0, weights=Bonuses(turns=1.0)) == -(3 / 5) / 4
    assert bonus(picks, turns=5, dollars=0.002, weights=Bonuses(dollars=0.1)) == -0.2


# ── episodes ──


class Constant:
    digest = "d"

    async def state(self, messages, reading):
        return (1.0,)


HEAD = Head(Reading("by hand", "d", width=1), ("a", "b"), ((1.0,), (0.0,)))


def problem(name: str) -> Problem:
    return Problem(Item(id=name, question=f"{name}?", target="B", grader="choice"))


async def test_an_episode_in_which_a_provider_failed_is_dropped_and_counted():
    a = ScriptedWorker(
        lambda r: WorkerError("down", status=503) if "x?" in r.messages[0].content else "B",
        name="a",
    )
    stand = Stand(Pool.of(a, ScriptedWorker(lambda _: "C", name="b")), Constant())
    played = await stand.play(HEAD, [problem("x"), problem("y"), problem("z")])
    assert (played.accuracy, played.dropped, stand.dropped) == (1.0, 1, 1)
    assert [e.picks for e in played.episodes] == [("a",), ("a",)]
    lost = await stand.play(HEAD, [problem("x")])
    assert lost.fitness(Bonuses(), 5) is None


# ── routers ──


def test_a_warm_start_prefers_whoever_earned_more_on_such_questions():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 400)
    states = np.c_[np.ones(400), 2 * kind - 1 + 0.1 * rng.standard_normal(400)]
    earned = np.stack([kind == 0, kind == 1], axis=1).astype(float)
    for kinds in ([str(k) for k in kind], [None] * 400):
        rows = routers.warm_start(states, earned, kinds, shrink=routers.Shrink(0.01, 0.01))
        assert ((states @ rows.T).argmax(axis=1) == kind).mean() > 0.99


def test_little_is_believed_of_what_single_questions_earn_beyond_their_kind():
    rng = np.random.default_rng(0)
    states = np.c_[np.full(400, 10.0), rng.standard_normal((400, 8))]
    chance = rng.integers(0, 2, (400, 2)).astype(float)
    believed, doubted = [
        routers.warm_start(states, chance, ["all"] * 400, shrink=routers.Shrink(0.1, doubt))
        for doubt in (0.01, 100.0)
    ]
    assert np.allclose(doubted @ states.mean(axis=0), chance.mean(axis=0), atol=0.05)
    assert np.abs(doubted[:, 1:]).max() < 0.1 * np.abs(believed[:, 1:]).max()


def test_neighbours_and_regressions_expect_what_such_questions_earned():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    states = rng.standard_normal((300, 4))
    rewards = np.stack([states[:, 0] > 0, states[:, 0] <= 0], axis=1).astype(float)
    for estimate in (
        routers.nearest(states, rewards, neighbours=9),
        routers.logistic(states, rewards, strength=1.0),
    ):
        picks = estimate(states).argmax(axis=1)
        assert rewards[np.arange(300), picks].mean() > 0.85


# ── recipes ──


def test_a_misspelt_key_of_a_recipe_is_named():
    with pytest.raises(ConfigError, match=r"evolution\.sigmaa"):
        read_recipe(
            {
                "kind": "trinity",
                "name": "x",
                "data": {"world": "w"},
                "evolution": {"sigmaa": 1.0},
            }
        )


SUMS_AND_CAPITALS = (("a", "sum"), ("b", "capital"))


def world(folder: Path, *models: tuple[str, str]) -> Path:
    """Models by name, each of which knows one kind of question."""
    folder.mkdir()
    questions, replies = [], []
    for i in range(32):
        split = ("train", "train", "dev", "test")[i % 4]
        kind = "sum" if i % 3 else "capital"
        row = {"id": f"q{i}", "split": split, "question": f"The {kind} of number {i}?"}
        row |= {"options": ["x", "y"], "answer": "B", "grader": "choice", "category": kind}
        questions.append(row)
        for worker, knows in models:
            right = knows == kind
            reply = {"id": f"q{i}", "worker": worker, "text": "B" if right else "A"}
            reply |= {"extracted": None, "correct": right, "tokens_in": 9, "tokens_out": 9}
            replies.append(reply)
    for name, rows in (("questions", questions), ("replies", replies)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    prices = [{"name": n, "usd_per_mtok_in": 1, "usd_per_mtok_out": 1} for n, _ in models]
    (folder / "pool.json").write_text(json.dumps(prices))
    return folder


def recipe(place: Path) -> dict[str, object]:
    return {
        "kind": "trinity",
        "name": "small",
        "data": {"world": str(place)},
        "model": {"question_chars": 40},
        "dollar_share": 1.0,
        "evolution": {"generations": 30, "repeats": 16, "components": 3, "sampled": False},
    }


def only_states(_: str, names: list[str]) -> list[str]:
    """Reading is slow, and another test's business."""
    return [name for name in names if name != "states.bin"]


TRAIN = """
import sys, json
from pathlib import Path
from podium.train.trinity import train_trinity
train_trinity(json.loads(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_training_that_is_killed_goes_on_and_ends_as_if_nothing_had_happened(tmp_path: Path):
    pytest.importorskip("xllamacpp")
    killed = {
        "kind": "trinity",
        "name": "killed",
        "data": {"world": str(world(tmp_path / "world", *SUMS_AND_CAPITALS))},
        "model": {"question_chars": 40},
        "evolution": {"generations": 120, "repeats": 4, "components": 3, "validate_every": 40},
    }

    def start(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", TRAIN, json.dumps(killed), str(out)])

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole).wait(timeout=300) == 0
    broken.mkdir()
    shutil.copy(whole / "states.bin", broken)  # reading is slow, and another test's business
    first, log = start(broken), broken / "evolution-price-0.jsonl"
    while not log.exists() or log.read_bytes().count(b"\n") < 5:
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = log.read_bytes().count(b"\n")
    assert done < 120
    assert start(broken).wait(timeout=300) == 0
    assert Head.load(broken / "head.json") == Head.load(whole / "head.json")
    assert log.read_text() == (whole / "evolution-price-0.jsonl").read_text()
    assert "polyline" in (whole / "report.md").read_text()
    killed["seed"] = 1
    assert start(broken).wait(timeout=60) != 0


def test_a_new_worker_joins_from_the_old_head_and_takes_what_only_it_knows(tmp_path: Path):
    pytest.importorskip("xllamacpp")
    place = world(tmp_path / "world", *SUMS_AND_CAPITALS)
    old = train_trinity(recipe(place), tmp_path / "old")
    wider = world(tmp_path / "wider", ("a", "sum"), ("b", "nothing"), ("new", "capital"))
    shutil.copytree(tmp_path / "old", tmp_path / "new", ignore=only_states)
    begun = recipe(wider) | {"start": str(old), "evolution": {"generations": 0}}
    before = Head.load(train_trinity(begun, tmp_path / "new"))
    assert before.workers == ("a", "b", "new")
    assert before.weights == Head.load(old).for_workers(before.workers).weights
    shutil.copytree(tmp_path / "old", tmp_path / "more", ignore=only_states)
    grown = recipe(wider) | {"start": str(old)}
    train_trinity(grown, tmp_path / "more")
    found = json.loads((tmp_path / "more" / "report.json").read_text())
    assert found["workers"].get("new", 0) > 0 and found["chosen"]["accuracy"] > 0.8


def test_a_head_of_another_reading_is_no_start(tmp_path: Path):
    pytest.importorskip("xllamacpp")
    other = Head.zero(Reading("by hand", "d", width=1), ("a", "b"))
    other.save(tmp_path / "head.json")
    place = world(tmp_path / "world", *SUMS_AND_CAPITALS)
    with pytest.raises(ConfigError, match="can't be gone on from"):
        train_trinity(recipe(place) | {"start": str(tmp_path / "head.json")}, tmp_path / "out")


def test_a_start_and_a_warm_start_exclude_each_other():
    with pytest.raises(ConfigError, match="not from both"):
        read_recipe(recipe(Path("w")) | {"start": "head.json", "warm": {}})

"""The trained Conductors that ship with Podium: how they are used, with no torch."""

import json

import pytest

from podium import Limits, Member, Pool, Question, Terms
from podium.app import Podium
from podium.checkpoints import find_checkpoint, load_conductor
from podium.errors import ConfigError
from podium.ledger import Ledger
from podium.models import ADAPTERS, embedded_model
from podium.testing import ScriptedWorker
from podium.types import Rules
from podium.workers.tools import VoteWorker
from podium.workshop import embedded

SHIPPED = sorted(path.parent.name for path in ADAPTERS.glob("*/conductor.json"))


def team(names: tuple[str, ...]) -> Pool:
    said = "The answer is (B)."
    models = [Member(ScriptedWorker(lambda _: said, name=n)) for n in names if n != "vote"]
    return Pool((*models, Member(VoteWorker(), program=True)))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_conductor_says_how_it_wants_to_be_used(name):
    said = json.loads((ADAPTERS / name / "conductor.json").read_text())
    manner = find_checkpoint(name).manner
    assert said["base"] == manner.base == "smollm2-135m-instruct"
    assert said["base_digest"]
    # One that reads cards leads whoever is there; one that knows numbers says whose they are.
    assert bool(manner.workers) == (manner.style.show == "numbers")
    assert manner.steps <= 5
    assert (ADAPTERS / name / "conductor.gguf").stat().st_size < 6_000_000


async def test_the_recorded_conductor_asks_the_strongest_first():
    try:
        embedded_model()
    except ConfigError as missing:
        pytest.skip(str(missing))
    pool = team(find_checkpoint("recorded").manner.workers)
    conductor, limits = load_conductor("recorded", pool, Limits())
    question = Question("Which gas do plants take in?\nA. oxygen\nB. carbon dioxide\nC. helium")
    run = await conductor.solve(question, Terms(Ledger(limits)))
    assert run.rounds[-1].results[0].worker == "gpt-4o-2024-05-13"
    assert run.answer == "The answer is (B)."


async def test_one_that_knows_numbers_says_whom_it_cannot_do_without():
    pool = team(find_checkpoint("recorded").manner.workers)
    conductor, limits = load_conductor("recorded", pool, Limits())
    denied = Rules(denied=frozenset({"mathstral-7B"}))
    run = await conductor.solve("Why?", Terms(Ledger(limits), denied))
    assert run.answer is None and run.failure is not None
    assert "cannot do without 'mathstral-7B'" in run.failure.message


@pytest.mark.parametrize(
    ("question", "answer", "steps"),
    [
        ("Reverse the digits of 4821.", "1284", 1),
        ("Sort the digits of 5738, then write the result as an ordinal.", "3578th", 2),
    ],
)
async def test_the_embedded_default_leads_real_specialists_to_the_right_answer(
    question, answer, steps, tmp_path
):
    try:
        embedded_model()
    except ConfigError as missing:
        pytest.skip(str(missing))
    config = embedded().model_copy(update={"store": str(tmp_path / "podium.sqlite")})
    async with Podium(config) as podium:
        run = await podium.ask(question)
    assert run.answer == answer
    assert len(run.rounds[0].results) == steps


def test_a_pool_without_one_of_its_workers_is_refused():
    pool = team(("mathstral-7B",))
    with pytest.raises(ConfigError, match="the pool has no 'gpt-4o"):
        load_conductor("recorded", pool, Limits())

"""Strategies to compare with: each one a workflow that the executor performs."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from podium import Limits, Member, Pool, Price, Question, Terms
from podium.errors import ConfigError, WorkerError
from podium.eval import baselines
from podium.eval.router import Lessons, router, train
from podium.eval.strategies import Field, Spec, Spend, Standing, build, parse_spec, parse_specs
from podium.ledger import Ledger
from podium.models import SMOLLM2, embedded_model
from podium.prompts import WHOLE, Style
from podium.testing import ScriptedWorker
from podium.trinity import Head, Reading
from podium.trinity.states import file_digest

PRICE = Price(1.0, 2.0)


def says(name: str, *replies) -> ScriptedWorker:
    return ScriptedWorker([*replies] if len(replies) > 1 else lambda _: replies[0], name=name)


def pool(*workers: ScriptedWorker) -> Pool:
    return Pool(tuple(Member(worker, price=PRICE) for worker in workers))


def field(team: Pool, **more) -> Field:
    def nobody(name: str):
        raise ConfigError(f"no strategy {name}")

    usd = {"a": 0.01, "b": 0.002, "c": 0.001, "d": 0.001}
    standings = [
        Standing(name, 0.9 - i / 10, usd.get(name, 0.0), 100) for i, name in enumerate(team.names)
    ]
    return Field(team, Limits(), nobody, **{"standings": standings, **more})


async def solve(entrant, question: str = "Q?", sample: int = 0):
    terms = Terms(Ledger(entrant.limits))
    return await entrant.strategy.solve(Question(question, sample=sample), terms)


async def test_a_plurality_takes_the_answer_of_most_and_ties_go_to_the_best():
    team = pool(says("a", "answer: 1"), says("b", "answer: 2"), says("c", "answer: 2"))
    most = build(parse_spec("vote:3"), field(team))
    assert (await solve(most)).answer == "answer: 2"
    assert most.says == "a + b + c"
    tie = build(parse_spec("vote:2"), field(team))
    assert (await solve(tie)).answer == "answer: 1"


async def test_self_consistency_asks_for_independent_samples_of_the_bare_question():
    worker = says("a", "answer: 1", "answer: 2", "answer: 2")
    run = await solve(build(parse_spec("self-consistency:a:3"), field(pool(worker))))
    assert run.answer == "answer: 2"
    assert [request.sample for request in worker.seen] == [0, 1, 2]
    assert {request.messages[0].content for request in worker.seen} == {"Q?"}


async def test_reflection_shows_a_worker_all_its_own_attempts():
    worker = says("a", "one", "two", "three", "four", "five")
    run = await solve(build(parse_spec("reflect:a"), field(pool(worker))))
    assert run.answer == "five" and len(worker.seen) == 5
    assert [len(request.visible) for request in worker.seen] == [0, 1, 2, 3, 4]


async def test_a_mixture_shows_the_aggregator_what_everybody_proposed():
    first, second = says("a", "A1", "merged"), says("b", "B1")
    run = await solve(build(parse_spec("moa:a"), field(pool(first, second))))
    assert run.answer == "merged"
    assert [seen.output for seen in first.seen[1].visible] == ["A1", "B1"]
    layered = build(parse_spec("moa:a:2"), field(pool(says("a", "x"), says("b", "y"))))
    steps = (await solve(layered)).rounds[0].workflow.steps
    assert [step.access for step in steps] == [(), (), (0, 1), (0, 1), (2, 3)]


async def test_a_cascade_stops_when_the_second_confirms_the_first():
    cheap = (says("b", "answer: 7"), says("c", "The answer is 7."))
    team = pool(says("a", "answer: 8"), *cheap)
    run = await solve(build(parse_spec("cascade"), field(team)))
    assert run.answer == "The answer is 7." and not team[0].worker.seen


async def test_a_cascade_believes_the_last_where_nobody_agrees():
    team = pool(says("a", "answer: 8"), says("b", "answer: 7"), says("c", "answer: 6"))
    run = await solve(build(parse_spec("cascade:b+c+a"), field(team)))
    assert run.answer == "answer: 8" and len(run.rounds) == 2


async def test_a_cascade_goes_on_after_a_worker_that_failed():
    team = pool(says("a", "answer: 8"), says("b", "x: 7"), says("c", WorkerError("down")))
    run = await solve(build(parse_spec("cascade:b+c+a"), field(team)))
    assert run.answer == "answer: 8"


async def test_random_choices_are_the_same_for_everybody_with_the_same_seed():
    team = pool(*(says(name, name) for name in "abcd"))
    entrant = build(parse_spec("random"), field(team, seed=7))
    again = build(parse_spec("random"), field(team, seed=7))
    other = build(parse_spec("random"), field(team, seed=8))
    asked = [f"question {i}" for i in range(40)]
    first = [(await solve(entrant, text)).answer for text in asked]
    assert first == [(await solve(again, text)).answer for text in asked]
    assert first != [(await solve(other, text)).answer for text in asked]
    assert set(first) == set("abcd")


@pytest.mark.parametrize("replay", [False, True])
async def test_a_random_workflow_can_be_performed_whatever_it_is(replay):
    team = pool(*(says(name, f"answer: {name}") for name in "abcd"))
    entrant = build(parse_spec("random-workflow"), field(team, replay=replay))
    runs = [await solve(entrant, f"question {i}") for i in range(30)]
    assert all(run.answer and not run.failure for run in runs)
    assert len({len(run.rounds[0].results) for run in runs}) > 2
    if replay:  # it asks nothing but whole questions
        asked = {r.messages[0].content for m in team.members for r in m.worker.seen}
        assert asked == {f"question {i}" for i in range(30)}


LESSONS = Lessons(
    questions=[*(f"integral of x to the {i}" for i in range(60)),
               *(f"king number {i} of France" for i in range(60))],
    workers=["a", "b"],
    scores=[[1.0, 0.0]] * 60 + [[0.0, 1.0]] * 60,
    usd=[0.01, 0.001],
)  # fmt: skip


@pytest.mark.parametrize("method", ["knn", "logistic"])
async def test_a_router_learns_who_knows_what(method):
    team = pool(says("a", "maths"), says("b", "history"))
    entrant = build(parse_spec(f"router:{method}"), field(team, lessons=LESSONS))
    assert (await solve(entrant, "integral of x to the 99")).answer == "maths"
    assert (await solve(entrant, "king number 99 of France")).answer == "history"


def test_the_weight_of_the_price_moves_a_router_to_the_cheaper_worker():
    team = pool(says("a", "dear"), says("b", "cheap"))
    alike = Lessons(LESSONS.questions, ["a", "b"], [[0.9, 0.8]] * 120, LESSONS.usd)
    for weight, chosen in ((0.0, 0), (0.5, 1)):
        made = router("r", "knn", team, alike, weight=weight)
        workflow = made.planner.choose(Question("integral of x"), ())
        assert workflow.steps[0].worker == chosen and workflow.steps[0].subtask == WHOLE


def test_a_worker_that_is_always_right_needs_no_regression():
    always = Lessons(LESSONS.questions, ["a", "b"], [[1.0, 0.0]] * 120, LESSONS.usd)
    assert train("logistic", always)("anything") == [1.0, 0.0]


def test_a_sentence_model_that_is_not_installed_is_named():
    pytest.importorskip("sklearn")
    with pytest.raises(ConfigError, match="sentence-transformers"):
        train("knn", Lessons(["q"], ["a"], [[1.0]], [0.0], embedding="all-minilm"))


def test_equal_spend_decides_how_often_a_worker_is_asked():
    team = pool(says("a", "x"), says("b", "x"), says("c", "x"))
    at = field(team, spend=Spend(0.0135, 0))
    assert build(parse_spec("self-consistency:b"), at).says == "b x6"
    assert build(parse_spec("reflect:c"), at).calls == {"c": 13.0}
    assert build(parse_spec("vote"), at).says == "a + b + c"
    assert build(parse_spec("vote"), field(team, spend=Spend(0.0121, 0))).says == "a + b"
    assert build(parse_spec("vote:1"), at).says == "a"  # what is asked for is not changed
    free = [Standing(name, 0.5, 0.0, 100) for name in "abc"]
    by_tokens = field(team, standings=free, spend=Spend(0.0, 250))
    assert build(parse_spec("self-consistency:a"), by_tokens).says == "a x2"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("single:qwen:7b", Spec("single:qwen:7b", "single", "qwen:7b")),
        ("self-consistency:qwen:7b:5", Spec("", "self-consistency", "qwen:7b", 5)),
        ("self-consistency:a", Spec("", "self-consistency", "a")),
        ("vote", Spec("", "vote")),
        ("moa:a:2", Spec("", "moa", "a", 2)),
        ("router:knn:0.5", Spec("", "router", "knn", weight=0.5)),
        ("conductor:runs/checkpoint", Spec("", "conductor", "runs/checkpoint")),
        ("oracle", Spec("", "oracle")),
    ],
)
def test_a_name_says_what_it_asks_for(text, found):
    spec = parse_spec(text)
    assert (spec.kind, spec.name, spec.number, spec.weight) == (
        found.kind, found.name, found.number, found.weight,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("votes:3", "no strategy 'votes:3'"),
        ("vote:three", "how many vote must be a number, got 'three'"),
        ("vote:0", "how many vote must be 1 to 63"),
        ("single", "needs a name"),
        ("single:", "needs a name"),
        ("random:a", "nothing may stand after 'random'"),
        ("router:svm", "a router is one of knn, logistic"),
        ("router:knn:x", "the weight of the price must be a number, got 'x'"),
        ("conductor:", "ends in a colon"),
        ("trinity", "a file"),
    ],
)
def test_a_name_that_cannot_be_understood_says_why(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_spec(text)


@pytest.mark.parametrize("text", ["reflect", "self-consistency:5", "moa", "reflect:best:3"])
def test_who_is_left_out_is_the_best_on_dev(text):
    standing = [Standing("b", 0.9, 0.0, 1.0), Standing("a", 0.1, 0.0, 1.0)]
    at = field(pool(says("a", "x"), says("b", "x")), standings=standing)
    assert parse_spec(text).chosen
    assert "b" in build(parse_spec(text), at).calls


def test_each_strategy_of_a_list_counts_once():
    assert [spec.text for spec in parse_specs("vote:3, oracle,,vote:3")] == ["vote:3", "oracle"]


def test_what_does_not_exist_is_named():
    at = field(pool(says("a", "x"), says("b", "x")))
    for text, complaint in {
        "single:z": "no worker 'z' in the pool: a, b",
        "vote:3": "the pool has 2 workers",
        "cascade:a": "at least two workers",
        "conductor:nowhere": "no Conductor 'nowhere'",
    }.items():
        with pytest.raises(ConfigError, match=complaint):
            build(parse_spec(text), at)


@pytest.mark.parametrize("text", ["moa", "reflect:a", "self-consistency:a:3"])
def test_a_replay_refuses_what_was_never_recorded(text):
    with pytest.raises(ConfigError, match="never recorded"):
        build(parse_spec(text), field(pool(says("a", "x"), says("b", "x")), replay=True))


def checkpoint(folder: Path, **more) -> Path:
    folder.mkdir(exist_ok=True)
    manner = {"steps": 3, "base": SMOLLM2.name, "workers": ["b", "a"], "style": {"form": "compact"}}
    (folder / "conductor.json").write_text(json.dumps(manner | more))
    (folder / "model.safetensors").touch()
    return folder


def test_a_checkpoint_leads_the_pool_in_the_order_it_was_trained_with(tmp_path):
    team = pool(says("a", "x"), says("b", "x"), says("c", "x"))
    entrant = build(parse_spec(f"conductor:{checkpoint(tmp_path / 'it')}"), field(team))
    assert entrant.strategy.pool.names == ("b", "a")
    assert entrant.strategy.planner.style.form == "compact"
    assert entrant.limits.steps == 3 and entrant.limits.rounds == 1


@pytest.mark.parametrize("aloud", [True, False])
def test_a_checkpoint_thinks_aloud_if_it_was_trained_to(tmp_path, aloud):
    style = Style(show="cards", form="compact", aloud=aloud)
    made = checkpoint(tmp_path / "it", style=asdict(style))
    entrant = build(parse_spec(f"conductor:{made}"), field(pool(says("a", "x"), says("b", "x"))))
    assert entrant.strategy.planner.style == style


@pytest.mark.parametrize(
    ("more", "complaint"),
    [({"workers": ["z"]}, "the pool has no 'z'"), ({"steps": "many"}, "conductor.json cannot be")],
)
def test_a_checkpoint_that_does_not_fit_says_why(more, complaint, tmp_path):
    made = checkpoint(tmp_path / "it", **more)
    with pytest.raises(ConfigError, match=complaint):
        build(parse_spec(f"conductor:{made}"), field(pool(says("a", "x"))))


def test_a_checkpoint_without_weights_is_refused(tmp_path):
    made = checkpoint(tmp_path / "it")
    (made / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="holds no weights"):
        build(parse_spec(f"conductor:{made}"), field(pool(says("a", "x"), says("b", "x"))))


async def test_an_evolved_head_picks_a_worker_by_the_state_of_its_model(tmp_path):
    try:
        model = embedded_model()
    except ConfigError as missing:
        pytest.skip(str(missing))
    reading = Reading(SMOLLM2.name, file_digest(model), 576)
    Head.zero(reading, ["b", "unknown"]).save(tmp_path / "head.json")
    team = pool(says("a", "first"), says("b", "second"))
    entrant = build(parse_spec(f"trinity:{tmp_path / 'head.json'}"), field(team))
    try:
        assert (await solve(entrant)).answer == "second"
    finally:
        await entrant.strategy.coordinator.states.model.close()


def test_a_pool_without_somebody_who_counts_gets_one():
    team = pool(says("a", "x"))
    made, number = baselines.with_vote(team)
    assert made[number].program and baselines.with_vote(made) == (made, number)

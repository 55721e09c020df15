"""TRINITY: one reading decides, roles follow their rules, and the run is like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from podium.conductor import Terms
from podium.errors import ConfigError, LimitError, WorkerError
from podium.events import Event, Finished, Planned, RoundFinished, Started, StepFinished
from podium.ledger import Ledger
from podium.testing import ScriptedWorker
from podium.trinity import (
    ROLES,
    CachedStates,
    Coordinator,
    Head,
    LocalStates,
    Reading,
    Role,
    Rules,
    Trinity,
)
from podium.trinity.prompts import coordinator_messages
from podium.trinity.roles import accepts
from podium.types import Limits, Message, Question, Sampling, Tool
from podium.types import Rules as Denials
from podium.workers import Member, Pool

READING = Reading("by hand", "digest", width=3)
PUBLISHED = Rules(always_answer=False, show_objections=False)


class Features:
    """States that can be read by eye: always 1, whether it is about sums, and the ideas so far."""

    digest = "digest"

    def __init__(self) -> None:
        self.reads = 0

    async def state(self, messages: Sequence[Message], reading: Reading) -> tuple[float, ...]:
        self.reads += 1
        text = messages[-1].content
        return (1.0, float("sum" in text), float(text.count("\nIdea ")))


def router(*rows: tuple[float, float, float], names: tuple[str, ...] = ("a", "b")) -> Head:
    return Head(READING, names, rows)


def team(*rows: tuple[float, float, float], workers: int = 1) -> Head:
    """Workers that are all alike, and rows for thinker, worker and verifier."""
    names = ("a", "b", "c")[:workers]
    return Head(READING, names, (*[(0.0, 0.0, 0.0)] * workers, *rows), ROLES)


ANSWER_THEN_CHECK = ((0.0, 0.0, -9.0), (1.0, 0.0, -9.0), (0.0, 0.0, 9.0))
"""A worker while there is no idea, then a verifier."""
ALWAYS_VERIFY = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (2.0, 0.0, 0.0))


def trinity(head: Head, *workers: ScriptedWorker, rules: Rules | None = None) -> Trinity:
    head = replace(head, rules=rules or Rules())
    return Trinity(Coordinator(head, Features()), Pool.of(*workers))


def parts(run) -> list[Role]:
    """Which role each turn had."""
    return [r.drafts[-1].text.rsplit(" as ", 1)[1].split()[0] for r in run.rounds if r.drafts]


# ── the head ──


async def test_a_router_asks_the_worker_its_head_prefers_and_nothing_but_the_question():
    a, b = ScriptedWorker(["from a"], name="a"), ScriptedWorker(["from b"], name="b")
    strategy = trinity(router((1, 0, 0), (0, 2, 0)), a, b)
    assert (await strategy.solve("Which colour?")).answer == "from a"
    assert (await strategy.solve("What is the sum?")).answer == "from b"
    assert [m.content for m in b.seen[0].messages] == ["What is the sum?"]


async def test_a_denied_worker_is_masked_and_the_next_best_is_asked():
    a, b = ScriptedWorker([], name="a"), ScriptedWorker(["b"], name="b")
    terms = Terms(rules=Denials(denied=frozenset({"a"})))
    run = await trinity(router((5, 0, 0), (0, 0, 0)), a, b).solve("?", terms)
    assert run.answer == "b"
    assert "b (1.00)" in run.rounds[0].drafts[0].text


async def test_a_head_that_knows_no_worker_of_the_pool_says_whom_it_knows():
    run = await trinity(router((1, 0, 0), (0, 0, 0)), ScriptedWorker([], name="z")).solve("?")
    assert run.failure and "trained for a, b" in run.failure.message


async def test_a_head_refuses_the_states_of_another_model():
    head = Head.zero(Reading("other", "else", width=3), ("a",))
    with pytest.raises(ConfigError, match="another model"):
        Coordinator(head, Features())


def test_a_head_survives_its_file(tmp_path: Path):
    rows = ((0.5, -2.0, 0.25), *[(0.0, 1.0, 0.0)] * 3)
    head = Head(READING, ("a",), rows, ROLES, Rules(3, show_objections=False), ({"g": 1},))
    head.save(tmp_path / "head.json")
    assert Head.load(tmp_path / "head.json") == head


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "trinity", "format": 9}', "[1]"])
def test_a_file_that_is_no_head_is_refused(tmp_path: Path, text: str):
    (tmp_path / "head.json").write_text(text)
    with pytest.raises(ConfigError, match=r"head\.json is no head"):
        Head.load(tmp_path / "head.json")


def test_a_new_worker_starts_at_the_mean_of_the_known_ones():
    head = router((1, 0, 0), (3, 2, 0)).for_workers(("b", "new"))
    assert head.rows == ((3, 2, 0), (2, 1, 0))


async def test_sampled_picks_follow_the_softmax_and_repeat_under_their_seed():
    workers = [ScriptedWorker(lambda _, n=n: n, name=n) for n in "ab"]
    head = router((0, 0, 0), (0, 0, 0))

    async def picks() -> str:
        made = [
            Trinity(Coordinator(head, Features(), sampled=True, seed=s), Pool.of(*workers))
            for s in range(60)
        ]
        return "".join([(await m.solve("?")).answer or "" for m in made])

    first = await picks()
    assert first == await picks()
    assert 15 < first.count("a") < 45


# ── turns ──


async def test_a_run_ends_when_a_verifier_accepts_and_answers_what_the_worker_said():
    a = ScriptedWorker(["<idea>count</idea><answer>4</answer>", "ACCEPT: right"], name="a")
    run = await trinity(team(*ANSWER_THEN_CHECK), a).solve("?")
    assert parts(run) == ["worker", "verifier"]
    assert run.answer == "<idea>count</idea><answer>4</answer>"
    assert run.failure is None


async def test_only_ideas_join_what_the_coordinator_reads():
    a = ScriptedWorker(["<idea>by halves</idea><answer>4</answer>", "ACCEPT"], name="a")
    run = await trinity(team(*ANSWER_THEN_CHECK), a).solve("?")
    read = run.rounds[1].drafts[0].messages[-1].content
    assert "by halves" in read and "<answer>" not in read


async def test_there_are_never_more_turns_than_the_rules_and_the_limits_allow():
    a = ScriptedWorker(lambda _: "<idea>i</idea>x", name="a")
    always = team((0, 0, 0), (1, 0, 0), (0, 0, 0))
    assert len((await trinity(always, a).solve("?")).rounds) == 5
    few = Terms(Ledger(Limits(steps=2)))
    assert len((await trinity(always, a).solve("?", few)).rounds) == 2


async def test_a_thinker_names_the_role_of_the_next_turn_and_suggests_to_it():
    advice = "<suggestion>try small cases</suggestion><suggested_role>worker</suggested_role>"
    a = ScriptedWorker([advice, "<answer>4</answer>", advice, "5", advice], name="a")
    think = team((9, 0, 0), (0, 0, 0), (0, 0, 0))
    run = await trinity(think, a).solve("?")
    assert parts(run)[:2] == ["thinker", "worker"]
    assert "try small cases" in a.seen[1].messages[-1].content
    assert run.answer == "5"


async def test_half_an_advice_is_no_advice():
    a = ScriptedWorker(["<suggestion>lost</suggestion>", "4"], name="a")
    think = team((9, 0, 0), (0, 0, 0), (0, 0, 0))
    run = await trinity(think, a, rules=Rules(turns=2)).solve("?")
    assert parts(run) == ["thinker", "worker"]  # nobody had answered, and it was the last turn
    assert "lost" not in a.seen[1].messages[-1].content


async def test_reasons_of_a_rejection_are_shown_to_the_next_turn_unless_the_rules_are_published():
    said = ["<idea>i</idea>4", "REJECT: you forgot the carry", "ACCEPT"]
    for rules, shown in ((Rules(turns=3), True), (Rules(3, show_objections=False), False)):
        a = ScriptedWorker(said, name="a")
        await trinity(team(*ANSWER_THEN_CHECK), a, rules=rules).solve("?")
        assert ("forgot the carry" in a.seen[2].messages[-1].content) is shown


async def test_a_verifier_with_nothing_to_verify_ends_a_run_under_the_published_rules_only():
    a = ScriptedWorker(lambda _: "ACCEPT", name="a")
    published = await trinity(team(*ALWAYS_VERIFY), a, rules=PUBLISHED).solve("?")
    assert published.answer is None and published.failure
    assert published.failure.blame == "policy" and not a.seen
    assert (await trinity(team(*ALWAYS_VERIFY), a).solve("?")).answer == "ACCEPT"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("ACCEPT", True),
        ("**ACCEPT** because", True),
        ("REJECT, though one could ACCEPT it", False),
        ("I would accept this.", True),
        ("Shall I accept or reject it?", False),
        ("The answer is acceptable.", False),
        ("", False),
    ],
)
def test_a_verdict_is_how_the_reply_begins_or_the_one_word_it_holds(reply: str, verdict: bool):
    assert accepts(reply) is verdict


# ── a run like any other ──


async def test_a_worker_that_fails_is_not_asked_again_and_takes_nobodys_turn():
    a = ScriptedWorker([WorkerError("down", status=503)], name="a")
    b = ScriptedWorker(["b"], name="b")
    run = await trinity(router((5, 0, 0), (0, 0, 0)), a, b).solve("?")
    assert run.answer == "b" and run.failure is None
    assert run.rounds[0].failure and run.rounds[0].failure.blame == "infra"


async def test_a_limit_ends_the_run_with_the_answer_so_far():
    a = ScriptedWorker(["<idea>i</idea>4", LimitError("enough")], name="a")
    run = await trinity(team(*ANSWER_THEN_CHECK), a).solve("?")
    assert run.answer == "<idea>i</idea>4"
    assert run.failure and run.failure.blame == "limits"


async def test_events_tell_every_turn_as_a_round():
    heard: list[Event] = []
    a = ScriptedWorker(["<idea>i</idea>4", "ACCEPT"], name="a")
    run = await trinity(team(*ANSWER_THEN_CHECK), a).solve("?", Terms(emit=heard.append))
    assert isinstance(heard[0], Started) and heard[-1] == Finished(run)
    for kind in (Planned, StepFinished, RoundFinished):
        assert [e.round for e in heard if isinstance(e, kind)] == [0, 1]


async def test_a_question_with_tools_is_one_workers_turn():
    for head in (team(*ANSWER_THEN_CHECK), team(*ALWAYS_VERIFY)):
        a = ScriptedWorker(["<idea>i</idea>4"], name="a")
        asked = Question("?", tools=(Tool("look"),))
        run = await trinity(head, a, rules=PUBLISHED).solve(asked)
        assert parts(run) == ["worker"] and len(a.seen[0].tools) == 1


async def test_how_the_answer_is_written_concerns_workers_and_not_those_who_check():
    a = ScriptedWorker(["<idea>i</idea>4", "ACCEPT"], name="a")
    asked = Question("?", sampling=Sampling(max_tokens=5))
    await trinity(team(*ANSWER_THEN_CHECK), a).solve(asked)
    assert [request.sampling.max_tokens for request in a.seen] == [5, None]


async def test_turns_that_read_the_same_are_drawn_anew():
    a = ScriptedWorker(lambda _: "nothing of use", name="a")
    undecided = team((0, 0, 0), (0, 0, 0), (-9, 0, 0))
    pool, seen = Pool.of(a), set()
    for seed in range(16):
        coordinator = Coordinator(undecided, Features(), sampled=True, seed=seed)
        seen.add(tuple(parts(await Trinity(coordinator, pool).solve("?"))[:2]))
    assert {("thinker", "thinker"), ("thinker", "worker")} <= seen


async def test_a_very_small_worker_is_asked_in_few_words():
    a = ScriptedWorker(lambda _: "284", name="a")
    always = team((0, 0, 0), (1, 0, 0), (0, 0, 0))
    pool = Pool.of(Member(a, prompt="compact"))
    head = replace(always, rules=Rules(turns=2))
    await Trinity(Coordinator(head, Features()), pool).solve("Reverse 482.")
    asked = [request.messages[-1].content for request in a.seen]
    assert asked == ["Reverse 482.", "Previous answer: 284\nNow do it to the previous answer."]


async def test_a_very_small_verifier_is_shown_the_question_and_the_answer():
    a = ScriptedWorker(["284", "ACCEPT"], name="a")
    pool = Pool.of(Member(a, prompt="compact"))
    run = await Trinity(Coordinator(team(*ANSWER_THEN_CHECK), Features()), pool).solve("Turn 482.")
    checked = a.seen[1].messages[-1].content
    assert checked.startswith("Previous answer: 284\nTurn 482.\n") and run.answer == "284"


# ── states ──


async def test_a_cached_state_is_computed_once_and_outlives_a_torn_write(tmp_path: Path):
    messages = coordinator_messages(Question("What is the sum?"), (), chars=100)
    first, file = Features(), tmp_path / "states.bin"
    assert await CachedStates(first, file).state(messages, READING) == (1.0, 1.0, 0.0)
    with file.open("ab") as torn:
        torn.write(b"half a record")
    again = Features()
    cached = CachedStates(again, file)
    assert await cached.state(messages, READING) == (1.0, 1.0, 0.0)
    await cached.state(coordinator_messages(Question("Else?"), (), chars=100), READING)
    assert (first.reads, again.reads) == (1, 1)
    assert len(CachedStates(again, file)._kept) == 2


async def test_the_embedded_model_tells_questions_apart_in_one_reading():
    pytest.importorskip("xllamacpp")
    from podium.models import pull
    from podium.workers.local import LocalModel

    model = LocalModel(await asyncio.to_thread(pull), context=512)
    states = LocalStates(model)
    reading = Reading("smollm2-135m-instruct", states.digest, width=576)
    try:
        maths, law = [
            await states.state(coordinator_messages(Question(q), (), chars=320), reading)
            for q in ("What is 17 times 23?", "Is an oral contract binding?")
        ]
    finally:
        await model.close()
    assert len(maths) == len(law) == 576 and maths != law
    head = Head(reading, ("mathematician", "lawyer"), (tuple(maths), tuple(law)))
    picks = [head.worker_logits(s, head.workers) for s in (maths, law)]
    centred = [p["mathematician"] - p["lawyer"] for p in picks]
    assert centred[0] > centred[1]

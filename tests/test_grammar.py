"""Whatever is finished under the grammar parses, and whatever is rendered is allowed by it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium.eval.tiny.skills import SKILLS
from podium.grammar import workflow_grammar
from podium.ledger import Ledger
from podium.models import pull
from podium.planner import ModelPlanner
from podium.prompts import Style, aloud
from podium.testing import ScriptedWorker
from podium.train.data import ExactSpecialist, tiny_items
from podium.types import Access, Limits, Message, Question, Request, Sampling, Step, Workflow
from podium.workers import Call, Member, Pool
from podium.workers.local import LocalModel, LocalWorker
from podium.workflow import parse, render

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[a-z]+[a-z0-9]*|\{[\d,]+\}|[()|?]')


def as_pattern(grammar: str) -> str:
    """The grammar as a regular expression: without recursion it is one."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    def expand(rule: str) -> str:
        return "".join(atom(token) for token in TOKEN.findall(rules[rule]))

    def atom(token: str) -> str:
        if token[0] == '"':
            return re.escape(token[1:-1].encode().decode("unicode_escape"))
        if token[0].isalpha():
            return f"(?:{expand(token)})"
        return "(?:" if token == "(" else token

    return expand("root")


@st.composite
def workflows(draw: st.DrawFn, *, workers: int, max_steps: int) -> Workflow:
    words = st.text(st.characters(exclude_characters="<", exclude_categories=["C", "Zl", "Zp"]))
    subtasks = st.tuples(st.characters(categories=["L", "N"]), words).map("".join)
    steps: list[Step] = []
    for i in range(draw(st.integers(1, max_steps))):
        earlier = st.sets(st.integers(0, max(0, i - 1)), max_size=i)
        access: Access = draw(st.just("all") | earlier.map(sorted).map(tuple))
        steps.append(Step(draw(st.integers(0, workers - 1)), draw(subtasks), access))
    return Workflow(tuple(steps))


@given(workflows(workers=12, max_steps=4))
def test_every_rendered_workflow_is_allowed(workflow: Workflow) -> None:
    assert re.fullmatch(EVERY, render(workflow))


EVERY = as_pattern(workflow_grammar(12, 4, subtask_chars=10_000))
ANY = as_pattern(workflow_grammar(11, 3, may_stop=True, subtask_chars=12, reasoning_chars=20))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.from_regex(ANY, fullmatch=True))
def test_every_allowed_text_parses(text: str) -> None:
    parse(text, workers=11, max_steps=3, may_stop=True)


@pytest.mark.parametrize(
    "text",
    [
        'model_id = [8]\nsubtasks = ["a"]\naccess_list = [[]]',
        'model_id = [0, 1]\nsubtasks = ["a"]\naccess_list = [[], []]',
        'model_id = [0]\nsubtasks = [" "]\naccess_list = [[]]',
        'model_id = [0]\nsubtasks = ["a<think>"]\naccess_list = [[]]',
        'model_id = [0]\nsubtasks = ["a\nb"]\naccess_list = [[]]',
        'model_id = [0]\nsubtasks = ["a"]\naccess_list = [[0]]',
        'model_id = [0, 0, 0]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [], [1, 0]]',
        "model_id = []\nsubtasks = []\naccess_list = []",
    ],
)
def test_what_cannot_be_performed_is_not_allowed(text: str) -> None:
    assert not re.fullmatch(as_pattern(workflow_grammar(8, 3)), text)


def test_binary_access_knows_no_positions() -> None:
    binary = as_pattern(workflow_grammar(8, 2, access="binary"))
    text = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], {}]'
    assert re.fullmatch(binary, text.format('["all"]'))
    assert not re.fullmatch(binary, text.format("[0]"))


SPECIALISTS = Pool(tuple(Member(ExactSpecialist(s), s.description) for s in SKILLS.values()))
FLOW = Workflow((Step(0, "Reverse the digits of 42."), Step(3, "Make it an ordinal.", (0,))))


async def held(style: Style) -> str:
    """What a planner of this style, held by a grammar, lets a model write over the specialists."""
    worker = ScriptedWorker([""])
    planner = ModelPlanner(worker, style, Sampling(max_tokens=480), held=True)
    await planner.draft(Question("?"), SPECIALISTS, Call(Ledger(Limits(steps=3))))
    grammar = worker.seen[0].sampling.grammar
    assert grammar
    return as_pattern(grammar)


@pytest.mark.parametrize("show", ["cards", "numbers"])
async def test_a_held_planner_thinks_before_it_lists_if_and_only_if_its_style_is_to(show) -> None:
    style = Style(show=show, form="compact", aloud=True)
    lists = render(FLOW)
    said = f"{aloud(FLOW, SPECIALISTS, style)}\n{lists}"
    thinking, silent = await held(style), await held(Style(show=show, form="compact"))
    assert re.fullmatch(thinking, said) and not re.fullmatch(thinking, lists)
    assert re.fullmatch(silent, lists) and not re.fullmatch(silent, said)


async def test_a_held_planner_has_room_for_the_thought_of_every_tiny_question() -> None:
    style = Style(show="cards", form="compact", aloud=True)
    allowed, rng = re.compile(await held(style)), Random(0)
    for item in tiny_items(1, 300, "train"):
        workers = [rng.randrange(len(SPECIALISTS)) for _ in item.calls]
        flow = Workflow(
            tuple(Step(w, c.subtask, c.access) for w, c in zip(workers, item.calls, strict=True))
        )
        assert allowed.fullmatch(f"{aloud(flow, SPECIALISTS, style)}\n{render(flow)}"), item


async def test_a_thought_has_an_end() -> None:
    style = Style(form="compact", aloud=True)
    assert not re.fullmatch(await held(style), f"{'and so on ' * 40}\n{render(FLOW)}")


@pytest.fixture(scope="module")
def worker() -> Iterator[LocalWorker]:
    model = LocalModel(pull(), context=2048)
    yield LocalWorker("smol", model, sampling=Sampling(temperature=1.5, max_tokens=400))
    asyncio.run(model.close())


@pytest.mark.parametrize("seed", range(4))
async def test_a_feverish_model_still_writes_a_workflow(worker: LocalWorker, seed: int) -> None:
    grammar = workflow_grammar(8, 5, subtask_chars=24, reasoning_chars=40, may_stop=seed % 2 == 0)
    sampling = Sampling(seed=seed, grammar=grammar)
    request = Request((Message("user", "Plan how to bake bread."),), sampling=sampling)
    done = await worker.complete(request, Call(Ledger()))
    assert done.finish == "stop"
    parse(done.text, workers=8, may_stop=seed % 2 == 0)


def test_an_answer_may_stand_without_a_word_where_workflows_are_thought_of_aloud():
    assert re.fullmatch(ANY, render(Workflow(())))
    thinking = as_pattern(workflow_grammar(8, 3, reasoning_chars=20))
    assert not re.fullmatch(thinking, render(Workflow((Step(0, "x"),))))

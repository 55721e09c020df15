"""What a planner reads of its team, and what it says of it before it lists the steps."""

from __future__ import annotations

import pytest

from podium.prompts import Style, aloud, announced_in, planner_messages
from podium.testing import ScriptedWorker
from podium.types import Question, Step, Workflow
from podium.workers import Member, Pool
from podium.workflow import parse, render

TEAM = Pool(
    (
        Member(ScriptedWorker([], name="add"), "adds two numbers"),
        Member(ScriptedWorker([], name="nameless")),
        Member(ScriptedWorker([], name="sort"), "sorts digits"),
    )
)
FLOW = Workflow(
    (Step(2, "Sort the digits of 41."), Step(0, "Add 1 and 2."), Step(1, "Say it.", (0, 1)))
)
CARDS = Style(show="cards", form="compact", aloud=True)
NUMBERS = Style(form="compact", aloud=True)


def team(pool: Pool, style: Style) -> str:
    """The line of the prompt that lists who is there."""
    (message,) = planner_messages(Question("Who?"), pool, style, steps=3)
    (line,) = [s for s in message.content.splitlines() if s.startswith("Team: ")]
    return line.removeprefix("Team: ")


def test_a_compact_list_says_what_each_can_do_and_then_its_number():
    assert team(TEAM, CARDS) == "adds two numbers 0, nameless 1, sorts digits 2"
    assert team(TEAM, NUMBERS) == "0 1 2"


def test_a_thought_names_each_worker_as_the_list_of_the_team_does():
    names = team(TEAM, CARDS).split(", ")
    subtasks = [step.subtask for step in FLOW.steps]
    for style, (a, b, c) in ((CARDS, (names[2], names[0], names[1])), (NUMBERS, "201")):
        said = f"{subtasks[0]} - {a}. {subtasks[1]} - {b}. {subtasks[2]} - {c}."
        assert aloud(FLOW, TEAM, style) == said


def test_what_is_said_of_a_worker_goes_with_it_to_another_number():
    turned = TEAM.subset([2, 1, 0])
    flow = Workflow((Step(0, "Sort the digits of 41."),))
    assert team(turned, CARDS).split(", ")[0] == "sorts digits 0"
    assert aloud(flow, turned, CARDS) == "Sort the digits of 41. - sorts digits 0."


@pytest.mark.parametrize("style", [CARDS, NUMBERS])
def test_a_thought_changes_nothing_of_the_workflow_below_it(style: Style):
    draft = f"{aloud(FLOW, TEAM, style)}\n{render(FLOW)}"
    assert parse(draft, workers=3) == FLOW


@pytest.mark.parametrize("style", [CARDS, NUMBERS])
def test_the_lists_can_be_foreseen_from_a_thought(style: Style):
    assert announced_in(aloud(FLOW, TEAM, style) + "\n") == FLOW
    assert announced_in("Let me think about it.\n") == Workflow(())

"""The tiny world: skills that are exact, questions that need a team, splits that do not leak."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from itertools import product
from pathlib import Path
from random import Random
from typing import cast, get_args

import pytest

from podium.errors import ConfigError
from podium.eval.tiny.questions import (
    CHAINS,
    MERGES,
    NEW_CHAINS,
    NEW_MERGES,
    Item,
    Kind,
    generate,
    right,
)
from podium.eval.tiny.skills import SKILLS, Split, in_words, listed, ordinal, split_of
from podium.prompts import announced_in
from podium.train.data import ExactTalker
from podium.train.tiny.nonsense import nonsense
from podium.train.tiny.recipe import lessons
from podium.train.tiny.subtasks import compact, example
from podium.types import Step
from podium.workshop import embedded

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny" / "specialists.toml"
SPLITS: tuple[Split, ...] = get_args(Split)


def numbers_in(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d+", text)}


def perform(item: Item) -> str:
    """Follow the item's own workflow with perfect workers that read only their subtask."""
    outputs: list[str] = []
    for call in item.calls:
        read = tuple(int(outputs[i]) for i in call.access)
        given = tuple(int(n) for n in re.findall(r"\d+", call.subtask))
        outputs.append(SKILLS[call.skill].apply(read or given))
    return outputs[-1]


@pytest.mark.parametrize(
    ("skill", "given", "answer"),
    [
        ("reverse", (482,), "284"),
        ("sort", (482,), "248"),
        ("last", (480,), "0"),
        ("ordinal", (112,), "112th"),
        ("words", (482,), "four hundred eighty-two"),
        ("maximum", (48, 21, 73), "73"),
        ("add", (48, 21), "69"),
        ("join", (48, 213), "48213"),
    ],
)
def test_a_skill_is_exact(skill: str, given: tuple[int, ...], answer: str) -> None:
    assert SKILLS[skill].apply(given) == answer


def test_numbers_are_named_as_in_english() -> None:
    assert [in_words(n) for n in (0, 13, 40, 85, 100, 317, 999)] == [
        "zero",
        "thirteen",
        "forty",
        "eighty-five",
        "one hundred",
        "three hundred seventeen",
        "nine hundred ninety-nine",
    ]
    assert len({in_words(n) for n in range(1000)}) == 1000
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 111, 1002)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "111th",
        "1002nd",
    ]


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_takes_what_it_draws(name: str) -> None:
    skill, rng = SKILLS[name], Random(0)
    for split, draw in product(SPLITS, (skill.draw, skill.reads)):
        drawn = [draw(rng, split) for _ in range(200)]
        assert all(map(skill.takes, drawn))
        assert {split_of(n) for xs in drawn for n in xs} <= {split, None}


@pytest.mark.parametrize("name", SKILLS)
def test_training_and_test_share_no_wording(name: str) -> None:
    skill = SKILLS[name]
    for wordings in (skill.tasks, skill.nouns):
        assert not set(wordings.train) & set(wordings.test)
        assert all(w.count("{x}") == 1 for w in wordings.train + wordings.test)


@pytest.mark.parametrize("split", SPLITS)
def test_the_workflow_of_a_question_reaches_its_answer(split: Split) -> None:
    for item in generate(3, 200, split):
        assert right(perform(item), item.answer), item


def test_a_question_shows_only_numbers_of_its_split() -> None:
    for split in SPLITS:
        shown = {n for item in generate(5, 300, split) for n in numbers_in(item.question)}
        assert {split_of(n) for n in shown} == {split, None}


def test_the_numbers_of_a_subtask_stand_in_the_question() -> None:
    for item in generate(7, 200, "train"):
        for call in item.calls:
            assert numbers_in(call.subtask) <= numbers_in(item.question)


def test_a_question_depends_on_its_seed_and_place_alone() -> None:
    assert generate(1, 10, "train") == generate(1, 100, "train")[:10]
    assert generate(1, 10, "train") != generate(2, 10, "train")


def test_kinds_and_skills_are_used_evenly() -> None:
    items = generate(1, 240, "train", ("single",))
    assert [sum(i.skills == (name,) for i in items) for name in SKILLS] == pytest.approx(
        [30] * len(SKILLS), abs=6
    )
    mixed = generate(1, 300, "train")
    kinds = [sum(i.kind == kind for i in mixed) for kind in ("single", "chain", "merge")]
    assert kinds == pytest.approx([100] * 3, abs=5)


def test_training_never_puts_the_new_skills_together() -> None:
    new = {(a, b, m) for a, b in NEW_MERGES for m in ("add", "join")} | NEW_CHAINS
    seen = {i.skills for split in SPLITS for i in generate(1, 600, split)}
    assert not seen & new
    assert {i.skills for i in generate(1, 60, "test", ("new",))} <= new
    assert new & {*CHAINS, *MERGES} == {i.skills for i in generate(1, 60, "test", ("new",))}


def test_new_chains_use_skills_that_training_chains_in_the_same_place() -> None:
    known = set(CHAINS) - NEW_CHAINS
    for first, second in NEW_CHAINS:
        assert first in {a for a, _ in known}
        assert second in {b for _, b in known}


def test_no_single_skill_answers_a_question_of_several_steps() -> None:
    for item in generate(1, 300, "test", ("chain", "merge", "new")):
        given = tuple(int(n) for n in re.findall(r"\d+", item.question))
        for skill in SKILLS.values():
            assert not (skill.takes(given) and skill.apply(given) == item.answer), item


def test_questions_for_the_test_are_refused_elsewhere() -> None:
    with pytest.raises(ConfigError, match="split 'test'"):
        generate(1, 1, "train", ("new",))
    with pytest.raises(ConfigError, match="puzzle"):
        generate(1, 1, "train", cast("list[Kind]", ["puzzle"]))


def test_an_answer_is_compared_as_a_literal() -> None:
    assert right(" Forty-Two\n", "forty-two")
    assert not right("042", "42")
    assert not right("42.", "42")


def test_numbers_are_listed_as_in_a_sentence() -> None:
    assert [listed(xs) for xs in ((1,), (1, 2), (1, 2, 3))] == ["1", "1 and 2", "1, 2 and 3"]


def test_a_specialist_is_spoken_to_in_compact_form() -> None:
    assert compact("Add 4 and 5.") == "Add 4 and 5."
    assert compact("Reverse it.", ["12"]) == "Previous answer: 12\nReverse it."
    assert compact("Add them.", ["4", "5"]) == "Answer 1: 4\nAnswer 2: 5\nAdd them."


@pytest.mark.parametrize("name", SKILLS)
def test_a_subtask_can_be_answered_from_its_prompt(name: str) -> None:
    skill = SKILLS[name]
    for i in range(100):
        asked = example(skill, Random(i), "train")
        *seen, subtask = asked.prompt.split("\n")
        named = subtask.casefold().replace("answer 1 and answer 2", "")
        given = tuple(int(n) for n in re.findall(r"\d+", named))
        read = tuple(int(line.split(": ")[1]) for line in seen)
        assert skill.apply(given or read) == asked.answer, asked


def test_a_recipe_names_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for text, complaint in (
        ("[all]\nstepz = 5\n[skills.add]", "stepz"),
        ("[skills.dance]", "dance"),
        ("[skills.add]\nsteps = 0", "steps"),
        ("[skills", "cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=complaint):
            lessons(file)


def test_a_skill_may_differ_from_the_rest_of_its_recipe(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("[all]\nsteps = 7\n[skills.add]\nsteps = 9\n[skills.last]")
    assert {n: one.steps for n, one in lessons(file).items()} == {"add": 9, "last": 7}
    assert list(lessons(file, only=["last"])) == ["last"]


def test_the_shipped_recipe_teaches_every_skill() -> None:
    assert list(lessons(RECIPE)) == list(SKILLS)


def test_no_wording_of_the_test_is_read_in_training() -> None:
    for skill in SKILLS.values():
        for words in (skill.tasks, skill.nouns):
            assert not {*words.test} & {*words.train, *words.more}
            assert words.asked("test") == words.of("test") == words.test
            assert {*words.more} <= {*words.asked("train")} and not {*words.more} & {*words.train}


def test_a_card_tells_specialists_apart_by_its_first_word() -> None:
    shipped = tomllib.loads((files("podium") / "embedded.toml").read_text())["worker"]
    cards = {w["name"]: w["description"] for w in shipped}
    assert all(cards[name] == skill.description for name, skill in SKILLS.items())
    assert len({card.split()[0] for card in cards.values()}) == len(cards)


def has(text: str, wording: str) -> bool:
    return all(part in text.casefold() for part in wording.casefold().split("{x}"))


def asks(question: str, wording: str) -> bool:
    """Whether the wording stands in the question, with numbers in its place."""
    pattern = re.escape(wording.casefold()).replace(re.escape("{x}"), r"\d[\d, and]*")
    return re.search(pattern, question.casefold()) is not None


def test_further_wordings_are_asked_in_training_and_never_in_the_test() -> None:
    training, test = (
        {
            name: [i.question for i in generate(1, 2400, split, ("single",)) if i.skills == (name,)]
            for name in SKILLS
        }
        for split in cast("tuple[Split, ...]", ("train", "test"))
    )
    for name, skill in SKILLS.items():
        for wording in skill.tasks.more + skill.nouns.more:
            assert wording.count("{x}") == 1
            assert any(asks(q, wording) for q in training[name]), wording
            assert not any(asks(q, wording) for q in test[name]), wording


@pytest.mark.parametrize("name", SKILLS)
def test_a_specialist_meets_no_further_wording(name: str) -> None:
    skill = SKILLS[name]
    plain = skill.tasks.train + skill.nouns.train
    further = [
        wording
        for wording in skill.tasks.more + skill.nouns.more
        if not any(has(other, wording) for other in plain)
    ]
    assert further
    for i in range(200):
        asked = example(skill, Random(i), "train").prompt
        assert not any(has(asked, wording) for wording in further), asked


def test_nonsense_is_taken_apart_like_any_question_and_says_nothing_of_dev_or_test() -> None:
    others = [
        wording
        for skill in SKILLS.values()
        for words in (skill.tasks, skill.nouns)
        for wording in (*words.dev, *words.test)
    ]
    lengths = set()
    for question, calls in nonsense(3, 2000):
        lengths.add(len(calls))
        assert {split_of(n) for n in numbers_in(question) if n > 9} <= {"train"}, question
        for call in calls[:1]:
            assert numbers_in(call.subtask) and numbers_in(call.subtask) <= numbers_in(question)
        assert calls[-1].access == tuple(range(len(calls) - 1))
        assert not any(asks(question, wording) for wording in others), question
        steps = tuple(Step(3, call.subtask, call.access) for call in calls)
        said = " ".join(f"{step.subtask} - does things 3." for step in steps)
        assert announced_in(said).steps == steps
    assert lengths == {1, 2, 3}


def test_the_stand_in_for_the_plain_model_has_its_card() -> None:
    (talk,) = [worker for worker in embedded().worker if worker.name not in SKILLS]
    stand_in = ExactTalker({})
    assert (talk.name, talk.description) == (stand_in.name, stand_in.description)

"""Rewards, advantages and recipes: the arithmetic of learning, without a model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from podium.errors import ConfigError
from podium.train.recipe import Reward, load
from podium.train.reward import advantages, advantages_of, discounted, gain, gated, reward
from podium.types import Completion, Draft, Failure, Round, Step, StepResult

PAPER = Reward()


def outcome(*, blame: str = "", dollars: float = 0.0) -> Round:
    step = Step(0, "Answer the question.")
    done = StepResult(step, "a", "42", Completion("42", cost=dollars))
    failure = Failure("X", "x", blame) if blame else None
    return Round((Draft(Completion("")),), results=(done,), answer="42", failure=failure)


def test_rewards_blame_the_right_party():
    assert reward(outcome(), 1.0, PAPER) == 1.0
    assert reward(outcome(), 0.0, PAPER) == 0.5
    assert reward(outcome(blame="policy"), None, PAPER) == 0.0
    assert reward(outcome(blame="limits"), None, PAPER) == 0.0
    assert reward(outcome(blame="infra"), None, PAPER) is None


def test_an_answer_that_could_not_be_graded_earns_nothing():
    assert reward(outcome(), None, PAPER) is None


def test_cost_orders_right_answers_and_no_others():
    scale = Reward(cost=0.4, cost_at=0.01)
    cheap, dear = outcome(dollars=0.001), outcome(dollars=1.0)
    assert reward(cheap, 1.0, scale) == pytest.approx(0.96)
    assert reward(dear, 1.0, scale) == pytest.approx(0.6)
    assert reward(cheap, 0.0, scale) == reward(dear, 0.0, scale) == 0.5


def test_an_answer_costs_what_all_its_rounds_cost():
    scale = Reward(cost=0.4, cost_at=0.01)
    first, second = outcome(dollars=0.001), outcome(dollars=0.004)
    assert reward(second, 1.0, scale, [first]) == pytest.approx(0.8)
    assert reward(second, 0.0, scale, [first]) == 0.5


def test_asking_one_worker_the_same_thing_twice_may_count_as_malformed():
    asked = outcome().results[0]
    another = replace(asked, step=Step(1, asked.step.subtask))
    twice = replace(outcome(), results=(asked, asked))
    both = replace(outcome(), results=(asked, another))
    scale = Reward(malformed=0.45, repeats=False)
    assert reward(twice, 1.0, Reward(malformed=0.45)) == 1.0
    assert reward(twice, 1.0, scale) == 0.45
    assert reward(both, 1.0, scale) == 1.0


def test_a_cost_that_could_lift_a_wrong_answer_over_a_right_one_is_refused():
    with pytest.raises(ValueError, match="any right answer must stay above"):
        Reward(cost=0.5)


def test_the_first_round_shares_in_the_second():
    assert discounted([0.5, 1.0], 0.25) == [0.625, 1.0]
    assert discounted([1.0], 0.25) == [1.0]
    assert discounted([1.0, None], 0.25) == [1.0, None]
    assert discounted([None, 1.0], 0.25) == [None, 1.0]


def test_advantages_have_mean_zero_and_leave_out_what_has_no_reward():
    found = advantages([1.0, 0.5, None, 0.5], PAPER)
    assert found[2] == 0.0
    assert math.fsum(found) == pytest.approx(0.0)
    assert found[0] > 0 > found[1] == found[3]
    assert advantages([1.0, 0.5], PAPER, "none") == [0.25, -0.25]


def test_by_the_share_of_right_answers_the_rare_ones_count_most():
    rare = advantages([1.0] + [0.5] * 7, PAPER, "right")
    common = advantages([1.0] * 7 + [0.5], PAPER, "right")
    assert rare == pytest.approx([7.0] + [-1.0] * 7)
    assert common == pytest.approx([1 / 7] * 7 + [-1.0])
    assert advantages([0.5] * 3, PAPER, "right") == [0.0] * 3


def test_a_group_without_variance_teaches_nothing():
    assert advantages([0.5] * 4, PAPER) == [0.0] * 4
    assert advantages([None, 1.0], PAPER) == [0.0, 0.0]


def test_a_gate_keeps_an_all_wrong_group_from_being_ordered():
    scale = Reward(malformed=0.45, gate=True)
    assert gated([0.5, 0.45, 0.5], scale) == [None] * 3
    assert gated([0.5, 0.45, 1.0], scale) == [0.5, 0.45, 1.0]
    assert gated([0.5, 0.0], PAPER) == [0.5, 0.0]


def test_a_round_is_compared_with_the_same_round_of_the_others():
    group = [[0.5, 1.0], [0.5, 0.5], [0.0]]
    found = advantages_of(group, PAPER, discount=0.25, by="none")
    assert [len(rounds) for rounds in found] == [2, 2, 1]
    first, second, third = found
    assert first[1] == 0.25 == -second[1]
    assert first[0] - second[0] == pytest.approx(0.125)  # a quarter of what came of it
    assert third[0] < second[0]
    assert first[0] + second[0] + third[0] == pytest.approx(0.0)


def test_a_second_look_may_be_compared_with_letting_the_answer_stand():
    group = [[0.5, 1.0], [1.0, 0.5], [1.0], [0.5, 0.5]]
    found = advantages_of(group, PAPER, discount=0.25, by="none", against="standing")
    assert [rounds[1:] for rounds in found] == [[0.5], [-0.5], [], [0.0]]
    plain = advantages_of(group, PAPER, discount=0.25, by="none")
    assert [rounds[0] for rounds in found] == [rounds[0] for rounds in plain]


def test_a_second_look_is_worth_what_it_changes():
    scale = Reward(cost=0.2, gate=True)
    assert gain(0.9, 0.8, scale) == pytest.approx(-0.1)  # right before, and more was paid
    assert gain(0.9, 0.9, scale) == 0.0
    assert gain(0.5, 0.8, scale) == pytest.approx(0.3)
    assert gain(0.5, 0.0, PAPER) == -0.5
    assert gain(0.5, 0.0, scale) == 0.0  # a gate orders no wrong answers
    assert gain(None, 1.0, scale) == gain(1.0, None, scale) == 0.0


RECIPE = """
name = "x"
[model]
base = "some/model"
[data]
world = "somewhere"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    return file


def test_what_a_recipe_leaves_out_is_as_in_the_paper(tmp_path: Path):
    recipe = load(written(tmp_path, RECIPE))
    grpo = recipe.grpo
    assert (grpo.steps, grpo.questions, grpo.drafts) == (200, 4, 64)
    assert (grpo.learning_rate, grpo.kl, grpo.temperature) == (1e-6, 0.0, 1.0)
    assert (recipe.reward.malformed, recipe.reward.wrong, recipe.reward.right) == (0.0, 0.5, 1.0)


def test_a_recipe_says_whether_drafts_think_aloud_and_what_second_ones_are_compared_with(
    tmp_path: Path,
):
    said = '[style]\naloud = true\n[grpo]\nagainst = "standing"'
    plain, other = load(written(tmp_path, RECIPE)), load(written(tmp_path, RECIPE + said))
    assert (plain.style.value().aloud, plain.grpo.against) == (False, "group")
    assert (other.style.value().aloud, other.grpo.against) == (True, "standing")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("[grpo]\nlearning_rat = 1", "unknown key `grpo.learning_rat`"),
        ("[reward]\nwrong = 2", "`malformed` <= `wrong` < `right`"),
        ("[grpo]\ndrafts = 1", "`grpo.drafts`"),
        ('[grpo]\nagainst = "nobody"', "`grpo.against`"),
        ("[grpo", "is not valid TOML"),
    ],
)
def test_a_bad_recipe_is_refused_with_the_key_to_change(tmp_path: Path, more: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint.replace("[", r"\[")):
        load(written(tmp_path, RECIPE + more))


def test_questions_have_one_source(tmp_path: Path):
    both = RECIPE + 'task = "tiny"'
    with pytest.raises(ConfigError, match="either from a `world` or from a `task`"):
        load(written(tmp_path, both))


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.toml")


HERE = Path(__file__).parent.parent / "recipes"
OURS = (
    "recorded",
    "recorded-recursive",
    "tiny/conductor",
    "paper-7b",
    "paper-3b",
    "adaptive",
    "recursion",
)


@pytest.mark.parametrize("name", OURS)
def test_every_recipe_that_ships_can_be_read(name: str):
    load(HERE / f"{name}.toml")


def test_the_pool_of_the_paper_can_be_opened():
    from podium.config import load as load_config

    assert len(load_config(HERE / "paper-pool.toml").worker) == 7

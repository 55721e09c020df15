"""Graders read the stated answer, say what they read, and never guess."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.errors import ConfigError
from podium.eval.graders import (
    GRADERS,
    Score,
    choice,
    exact,
    literal,
    math,
    number,
    read_number,
    value,
)
from podium.eval.judges import CHARS, Bench, judge

FOUR = ["red", "green", "blue", "no colour at all"]


def four(letter: str) -> dict[str, object]:
    return {"letter": letter, "options": FOUR}


# ── choice ──


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "(b)",
        "B.",
        "**B**",
        "B. green",
        "The answer is (B).",
        "the answer is B",
        "The correct answer is **B. green**.",
        "The answer is $\\boxed{B}$.",
        "\\boxed{\\text{B}}",
        "Reasoning first.\n\nAnswer: B",
        "**Answer:** B",
        "The correct answer is:\n\n**B. green**",
        "Final answer:\n\nB",
        "<answer>B</answer>",
        "<answer> (b) green </answer>",
        '{"reasoning": "it is grass", "answer": "B"}',
        '```json\n{"reasoning": "it is grass", "answer": "B) green"}\n```',
        "So it is grass.\n#### B",
        "The answer is option B, because of the grass.",
        "The answer is \\( B \\).",
        "The answer is green",
    ],
)
def test_a_stated_option_is_read_wherever_it_stands(text):
    assert choice(text, four("B")) == Score(1.0, "B")
    assert choice(text, four("C")).value == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot say.",
        "The answer is a matter of taste.",
        "The answer is I don't know which.",
        "The answer depends on the light; A and B are both possible.",
        "Option A is wrong, and so is B.",
        "The answer is P(A | B) = 1.",
        "The answer is N/A",
        "The closest answer is:\n\nA. red\nB. green\nC. blue",
        "The answer is not listed.",
    ],
)
def test_where_no_option_is_stated_none_is_guessed(text):
    for letter in "ABCD":
        assert choice(text, four(letter)) == Score(0.0, None, "no answer is stated")


def test_the_form_that_was_asked_for_outranks_prose():
    assert choice("<answer>C</answer> although the answer is B", "C").value == 1.0
    assert choice("The answer is (D). Final Answer: $\\boxed{A}$", "A").value == 1.0
    assert choice("The answer is (A)? No: <answer>blue</answer>", four("C")).value == 1.0
    assert choice("The answer is (A). <answer>none</answer>", four("A")).answer is None


def test_a_change_of_mind_counts_and_a_recital_does_not():
    reasoned = "The answer is (A). Wait, that is the hue of blood. The answer is (B)."
    recited = "The answer is (A).\n\nNow all the answers:\nThe answer is (D).\nThe answer is (C)."
    assert choice(reasoned, four("B")).answer == "B"
    assert choice(recited, four("A")).answer == "A"


def test_naming_several_options_is_no_answer():
    assert choice("The answer is (B) and (C).", four("B")) == Score(
        0.0, "B) and (C", "several options are named"
    )


def test_a_letter_beyond_the_options_is_wrong_and_said_to_be():
    assert choice("The answer is (F).", four("B")) == Score(0.0, "F", "no option has this letter")
    assert choice("The answer is (F).", "F").value == 1.0


def test_a_choice_without_a_letter_as_target_is_a_fault_of_the_task():
    with pytest.raises(ConfigError, match="a choice needs a letter"):
        choice("B", 1)


# ── numbers ──


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("42", "42"),
        ("-3.50", "-7/2"),
        ("1,234,567", "1234567"),
        ("$15,000", "15000"),
        ("\\$25,000/year", "25000"),
        ("54 minutes", "54"),
        ("2600g", "2600"),
        ("15 m/s", "15"),
        ("12 cm^2", "12"),
        ("20%", "20"),
        ("1/4", "1/4"),
        ("\\frac{9}{2}", "9/2"),
        ("-\\frac{1}{3}", "-1/3"),
        ("3 × 10^5", "300000"),
        ("2.5e-3", "1/400"),
        ("x = 5", "5"),
        ("2 + 8 + 6 = 16", "16"),
        ("1112112_3", "1112112"),
        ("10{,}000", "10000"),
        ("\\text{about } 7 \\text{ apples}", "7"),
        ("Johnny buys 17 masks", "17"),
        ("2:00 pm", "2"),
        ("−4", "-4"),
    ],
)
def test_one_number_is_read_with_whatever_unit(stated, expected):
    assert str(read_number(stated)) == expected


@pytest.mark.parametrize(
    "stated",
    [
        "50π/2",
        "4\\sqrt{6} - 5",
        "p - 2",
        "2, -1",
        "3 or 4",
        "5i",
        "6*sqrt(2)",
        "2^{10}",
        "7 \\sqrt[7]{108}",
        "x = 5, y = 6",
        "1/0",
        "no number",
        "H2O",
        "1e999999999",
        "9" * 10_000,
    ],
)
def test_mathematics_and_lists_are_not_one_number(stated):
    assert read_number(stated) is None


def test_close_is_right_for_number_and_wrong_for_value():
    assert number("<answer>1000.9</answer>", "1000").value == 1.0
    assert number("<answer>1001.1</answer>", "1000").value == 0.0
    assert number("<answer>0.5000009</answer>", "0.5").value == 1.0
    assert number("<answer>0.50001</answer>", "0.5").value == 0.0
    assert value("<answer>1000.9</answer>", "1000").value == 0.0
    assert value("<answer>1,000.0 dollars</answer>", 1000) == Score(1.0, "1,000.0 dollars")


def test_a_reference_in_words_has_to_be_met_by_its_words():
    assert number("<answer>Ohm's  law.</answer>", "Ohm's law").value == 1.0
    assert number("<answer>5</answer>", "Ohm's law").value == 0.0


def test_what_is_no_number_scores_zero_and_says_why():
    score = value('{"answer": "50π/2"}', "50")
    assert score == Score(0.0, "50π/2", "the stated answer is not one number")
    assert value("There are many steps.\nNone of them concludes.", "5").answer is None


@settings(deadline=None)
@given(st.integers(), st.sampled_from(["<answer>{}</answer>", "x\n#### {}", '{{"answer": "{}"}}']))
def test_every_integer_is_read_back(n, form):
    assert value(form.format(n), str(n)).value == 1.0
    assert value(form.format(n), str(n + 1)).value == 0.0


# ── exact and literal ──


def test_exact_forgives_case_and_spaces_and_nothing_else():
    assert exact("<answer>New  York.</answer>", "new york").value == 1.0
    assert exact("<answer>New York City</answer>", "New York").value == 0.0


@pytest.mark.parametrize(
    ("stated", "target"),
    [
        ("[1, 2, 3]", "[1,2,3]"),
        ("{'b': 2, 'a': 1}", "{'a': 1, 'b': 2}"),
        ("None", "None"),
        ("(1, 'x')", "(1, 'x')"),
        ("[1, 2]", [1, 2]),
    ],
)
def test_literals_are_equal_by_value(stated, target):
    assert literal(f"<answer>{stated}</answer>", target).value == 1.0


@pytest.mark.parametrize(
    "stated",
    ["1", "[2, 1]", "__import__('os')", "[" * 5000, "(1" * 3000, "9" * 20_000, "[{[]}]", "'open"],
)
def test_what_is_not_the_literal_scores_zero(stated):
    assert literal(f"<answer>{stated}</answer>", "True").value == 0.0


def test_a_target_that_is_no_literal_is_a_fault_of_the_task():
    with pytest.raises(ConfigError, match="not a Python literal"):
        literal("<answer>1</answer>", "one")


# ── mathematics ──


@pytest.mark.parametrize(
    ("stated", "target"),
    [
        ("1/2", "\\frac{1}{2}"),
        ("0.5", "\\frac12"),
        ("\\dfrac{3\\sqrt{2}}{2}", "\\frac{3}{\\sqrt{2}}"),
        ("(3, \\pi/2)", "\\left( 3, \\frac{\\pi}{2} \\right)"),
        ("x^2 + 2x + 1", "(x+1)^2"),
        ("\\{2, 1\\}", "\\{1, 2\\}"),
        ("\\text{Evelyn}", "\\text{Evelyn}"),
    ],
)
def test_mathematics_is_compared_by_meaning(stated, target):
    assert math(f"so it is \\boxed{{{stated}}}.", target).value == 1.0


@pytest.mark.parametrize(
    ("stated", "target"),
    [
        ("1/3", "\\frac{1}{2}"),
        ("50\\pi/2", "50"),
        ("2008 + \\frac\\pi 2", "2007 + \\frac\\pi 2"),
        ("\\frac{2}{3^{99}}", "\\frac{1}{2^{98}}"),
        ("(x+1)^3", "(x+1)^2"),
    ],
)
def test_what_means_something_else_is_wrong(stated, target):
    assert math(f"\\boxed{{{stated}}}", target).value == 0.0


def test_mathematics_is_graded_off_the_main_thread():
    scores: list[Score] = []
    thread = threading.Thread(target=lambda: scores.append(math("\\boxed{1/2}", "0.5")))
    thread.start()
    thread.join()
    assert scores == [Score(1.0, "1/2")]


def test_a_grader_that_hangs_is_stopped_and_the_sample_unscored():
    verdict = judge("math", "9^{9^{9^{9^9}}}", "3", seconds=0.5)
    assert verdict.value is None
    assert verdict.note == "the math grader took over 0.5 s"
    assert judge("math", "1/2", "0.5").value == 1.0


def test_a_monstrous_expression_is_not_even_parsed():
    assert judge("math", "x" * (CHARS + 1), "x").value == 0.0


def test_a_judge_that_dies_leaves_the_sample_unscored_and_another_takes_its_place():
    bench = Bench(1)
    with pytest.raises(BrokenPipeError), bench.lend() as one:
        one._child.kill()
        one.ask(["math", "1", "1"], 5.0)
    with bench.lend() as another:
        assert another.ask(["math", "1", "1"], 5.0) == (1.0, "")
    bench.close()


# ── all of them ──


def test_only_the_end_of_a_long_reply_is_read():
    padding = "The answer is (A). " * 50_000
    assert choice(padding + "However, on reflection: <answer>B</answer>", "B").value == 1.0
    assert value("#### 5\n" + "so on " * 50_000 + "\nand on", "5").answer is None


@settings(deadline=None)
@given(st.sampled_from([name for name in GRADERS if name != "math"]), st.text(max_size=300))
def test_no_reply_makes_a_grader_raise(name, text):
    target = {"choice": four("A"), "literal": "1"}.get(name, "1")
    score = GRADERS[name](text, target)
    assert score.value in (0.0, 1.0)
    assert score.answer is not None or score.value == 0.0

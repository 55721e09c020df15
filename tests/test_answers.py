"""An answer is read where it is stated, and nowhere else."""

import pytest

from podium.answers import read_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("**Answer:** 42", "42"),
        ("**Answer**: 42", "42"),
        ("The correct answer is:\n\nThe answer is D.", "D"),
        ('{"reasoning": "\\boxed{46}, so p is", "answer": "-46"}', "-46"),
        ('{"answer": "\\\\frac{1}{2}"}', "\\frac{1}{2}"),
        ('{"answer": [1, 2]}', "[1, 2]"),
        ('{"answer": "5"} and so\nfinally \\boxed{6}', "6"),
        ("<answer>a<answer>b</answer> tail", "b"),
        ("Steps.\n#### 72\n", "72"),
        ("It depends.\nNo answer could be found here.", None),
        ("The answer depends\non 5 things.", None),
    ],
)
def test_the_stated_answer_is_read(text, answer):
    assert read_answer(text) == answer

"""Statistics agree with values that others have published or computed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.eval.statistics import (
    Interval,
    bootstrap,
    fisher,
    gap_closed,
    mcnemar,
    oracle,
    pareto,
    phi,
    uncorrelated,
    wilson,
)

outcomes = st.lists(st.booleans(), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (1127, 1565, 0.6974, 0.7418),
    ],
)
def test_wilson_meets_the_published_intervals(right, n, low, high):
    interval = wilson(right, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_nothing_observed_says_nothing():
    assert wilson(0, 0) == Interval(0.0, 1.0)


def split(only_first: int, only_second: int, both: int = 7) -> tuple[list[bool], list[bool]]:
    first = [True] * only_first + [False] * only_second + [True] * both
    second = [False] * only_first + [True] * only_second + [True] * both
    return first, second


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [
        (10, 2, 0.03857421875),
        (0, 5, 0.0625),
        (3, 3, 1.0),
        (0, 0, 1.0),
        (121, 59, 4.434449263755e-06),
        (900, 800, 0.01632068249445),
        (700, 300, 1.766567800795e-37),
    ],
)
def test_mcnemar_is_the_exact_binomial_test(only_first, only_second, p):
    first, second = split(only_first, only_second)
    assert mcnemar(first, second) == pytest.approx(p, rel=1e-10)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_unpaired_outcomes_are_refused():
    with pytest.raises(ValueError, match="longer than"):
        mcnemar([True], [True, False])


def test_the_bootstrap_of_a_clear_difference_excludes_zero():
    rng = random.Random(3)
    dear = [rng.gauss(1.3, 0.2) for _ in range(200)]
    cheap = [rng.gauss(1.0, 0.2) for _ in range(200)]
    found = bootstrap(dear, cheap)
    assert found.mean == pytest.approx(sum(dear) / 200 - sum(cheap) / 200)
    assert 0.2 < found.interval.low < found.mean < found.interval.high < 0.4
    assert found.p < 0.01


def test_the_bootstrap_of_no_difference_includes_zero_and_is_the_same_each_time():
    rng = random.Random(4)
    first = [rng.random() for _ in range(100)]
    second = [rng.random() for _ in range(100)]
    found = bootstrap(first, second, seed=1)
    assert found.interval.low < 0 < found.interval.high
    assert found.p > 0.05
    assert bootstrap(first, second, seed=1) == found != bootstrap(first, second, seed=2)


def test_equal_means_on_every_question_have_a_p_of_one():
    assert bootstrap([0.5] * 10, [0.5] * 10).p == 1.0


def test_the_width_of_a_bootstrap_interval_is_that_of_theory():
    rng = random.Random(5)
    values = [rng.gauss(0, 1) for _ in range(400)]
    found = bootstrap(values, [0.0] * 400)
    assert found.interval.high - found.interval.low == pytest.approx(2 * 1.96 / 20, rel=0.1)


def test_the_oracle_is_right_where_anybody_is():
    workers = {"a": [True, False, False], "b": [False, True, False]}
    assert oracle(workers) == [True, True, False]


def test_the_gap_is_measured_from_the_best_single_worker_to_the_oracle():
    assert gap_closed(0.757, best_single=0.72, ceiling=0.899) == pytest.approx(0.2067, abs=1e-4)
    assert gap_closed(0.7, best_single=0.72, ceiling=0.899) < 0
    assert gap_closed(1.0, best_single=1.0, ceiling=1.0) is None


@pytest.mark.parametrize(
    ("table", "expected"),
    [((30, 10, 20, 40), 0.4082482904638631), ((25, 25, 25, 25), 0.0), ((50, 0, 0, 50), 1.0)],
)
def test_phi_is_the_correlation_of_a_table_of_four(table, expected):
    both, first_only, second_only, neither = table
    first = [True] * (both + first_only) + [False] * (second_only + neither)
    second = [True] * both + [False] * first_only + [True] * second_only + [False] * neither
    assert phi(first, second) == pytest.approx(expected)


def test_what_never_varies_has_no_correlation():
    assert phi([True, True], [True, False]) is None


def test_fisher_meets_the_textbook():
    interval = fisher(0.7284, 300)
    assert (interval.low, interval.high) == pytest.approx((0.67046, 0.77751), abs=1e-5)


def workers(shared: float, n: int = 500, p: float = 0.6) -> dict[str, list[bool]]:
    """Two workers that on a share of the questions succeed or fail together."""
    rng = random.Random(6)
    first = [rng.random() < p for _ in range(n)]
    second = [a if rng.random() < shared else rng.random() < p for a in first]
    return {"one": first, "two": second}


def test_workers_who_share_no_hard_question_are_doubted():
    (pair,) = uncorrelated(workers(shared=0.0))
    assert (pair.first, pair.second) == ("one", "two")
    assert pair.high < 0.2


def test_workers_like_real_ones_are_not_doubted():
    assert uncorrelated(workers(shared=0.4)) == []


def test_too_few_questions_or_failures_tell_nothing():
    assert uncorrelated(workers(shared=0.0, n=60)) == []
    assert uncorrelated(workers(shared=0.0, p=0.999)) == []


def test_the_front_has_whom_nobody_beats_at_the_price():
    points = {
        "cheap": (1.0, 0.5),
        "dominated": (2.0, 0.5),
        "middle": (2.0, 0.7),
        "twin": (2.0, 0.7),
        "waste": (5.0, 0.6),
        "dear": (9.0, 0.9),
    }
    assert pareto(points) == ["cheap", "middle", "twin", "dear"]


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 9), st.floats(0, 1)), min_size=1)
)
def test_every_point_off_the_front_is_beaten_by_one_on_it(points):
    front = pareto(points)
    for name in points.keys() - set(front):
        cost, accuracy = points[name]
        assert any(
            points[other] != (cost, accuracy)
            and points[other][0] <= cost
            and points[other][1] >= accuracy
            for other in front
        )


@settings(deadline=None)
@given(outcomes)
def test_an_interval_holds_the_share_it_is_for(right):
    interval = wilson(sum(right), len(right))
    share = sum(right) / len(right)
    assert 0 <= interval.low <= share + 1e-12
    assert share - 1e-12 <= interval.high <= 1

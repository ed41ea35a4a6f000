"""Values in their order: what hangs together, drifts, is of sessions or slow now and then."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks import situations
from rater.analysis.stats.estimate import Basis, f_exceeded
from rater.analysis.stats.independence import (
    MeasuredLog,
    autocorrelation,
    estimate_from_rounds,
    estimate_from_runs,
)
from rater.analysis.stats.intervals import Decision, RatioInterval, ratio_interval


def rounds(differences: Sequence[float], sessions: Sequence[int] = ()) -> RatioInterval:
    pairs = [
        (
            MeasuredLog(value, 2 * i + i % 2, sessions[i] if sessions else 0),
            MeasuredLog(0.0, 2 * i + 1 - i % 2, sessions[i] if sessions else 0),
        )
        for i, value in enumerate(differences)
    ]
    return ratio_interval(estimate_from_rounds(pairs), 0.01)


def runs(here: Sequence[float], there: Sequence[float], first: int = 0) -> RatioInterval:
    sides = (
        [MeasuredLog(value, first + i) for i, value in enumerate(here)],
        [MeasuredLog(value, len(here) + i) for i, value in enumerate(there)],
    )
    return ratio_interval(estimate_from_runs(*sides), 0.01)


def test_the_autocorrelation_is_the_textbooks_and_its_p_that_of_all_orders() -> None:
    # 0 0 0 1 1 1 from their mean: -.5 -.5 -.5 .5 .5 .5; products of neighbours .25 x (4 - 1).
    r, p = autocorrelation([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]])
    assert r == pytest.approx(0.75 / 1.5)
    # Of 20 orders of three and three, two have one change: 0.1.
    assert p == pytest.approx(0.1, abs=0.05)
    assert autocorrelation([[0.0, 1.0] * 3])[1] > 0.9
    assert autocorrelation([[1.0] * 6]) == (0.0, 1.0)
    # Two benchmarks of the same rounds, one of which says nothing.
    both, _ = autocorrelation([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [2.0] * 6])
    assert both == pytest.approx(r)


def test_the_p_of_variances_is_that_of_the_tables() -> None:
    assert f_exceeded(4.9646, 1, 10) == pytest.approx(0.05, abs=1e-5)
    assert f_exceeded(3.0725, 4, 12) == pytest.approx(0.0588, abs=1e-3)


def test_a_verdict_from_few_rounds_says_how_many_they_are() -> None:
    assert rounds([0.021, 0.02, 0.019, 0.02]).words == "better (4 rounds)"
    assert rounds([0.021, 0.02, 0.019, 0.02, 0.0195, 0.0205]).words == "better"


def test_rounds_that_hang_together_have_a_wider_interval_and_say_so() -> None:
    state = [0.02, 0.021, 0.019, 0.0205, 0.01, 0.0095, 0.0105, 0.01]
    mixed = [state[i] for i in (0, 4, 1, 5, 6, 2, 7, 3)]
    alone, together = rounds(mixed), rounds(state)
    assert alone.words == "better"
    assert together.ratio == pytest.approx(alone.ratio)
    assert (together.low or 0) < 1 < (together.high or 0)
    assert together.words.startswith("inconclusive: rounds not independent; ")
    large = rounds([value + 0.3 for value in state])
    assert large.words == "better (rounds not independent)"


def test_sessions_that_differ_are_the_values() -> None:
    days = [0.02, 0.021, 0.019, 0.01, 0.011, 0.009]
    told = rounds(days, (0, 0, 0, 1, 1, 1))
    assert not told.decided  # of two means
    assert "sessions differ" in told.words
    assert rounds([0.02, 0.01, 0.021, 0.011, 0.019, 0.01], (0, 0, 0, 1, 1, 1)).decided


def test_what_a_drift_could_do_is_no_verdict_and_in_turn_it_does_nothing() -> None:
    slower = [-0.01 * i for i in range(8)]
    words = "inconclusive: a drift would look the same (make them in turn)"
    assert runs(slower[:4], slower[4:]).words == words
    # A step of 10 % on top of the drift and a little noise is a difference.
    noise = (0.001, -0.001, 0.0005, -0.0005) * 2
    values = [a + b for a, b in zip(slower, noise, strict=True)]
    assert runs(values[:4], [value - 0.1 for value in values[4:]]).words == "better (unblocked)"
    turned = estimate_from_runs(
        [MeasuredLog(slower[i] + noise[i] + 0.05, i) for i in (0, 2, 4, 6)],
        [MeasuredLog(slower[i] + noise[i], i) for i in (1, 3, 5, 7)],
    )
    assert turned.basis is Basis.RUNS
    without = turned.also[0]
    assert without.log_ratio == pytest.approx(0.05, abs=0.002)
    assert (without.error() or 1) < (turned.error() or 0) / 5


def test_one_run_against_several_is_not_judged() -> None:
    told = runs([0.3], [0.0, 0.001, -0.001])
    assert (told.words, told.p) == ("inconclusive: one run of one side", None)
    assert (told.low or 0) > 1


def test_a_rare_slow_mode_is_a_verdict_of_its_own() -> None:
    rng = random.Random(3)
    usual = [rng.gauss(0, 0.002) for _ in range(10)]
    assert rounds(usual).words == "same within 1 % (slow runs: at most 1 in 3)"
    slow = [*usual[:4], -math.log(1.2), *usual[5:]]
    told = rounds(slow)
    assert told.verdict is Decision.RARELY
    assert told.words == "same median, but 1 run in 10 is 20 % slower"
    assert not told.decided  # more rounds say how rare
    other = rounds([-value for value in slow])
    assert other.words == "same median, but 1 run in 10 of the baseline is 20 % slower"
    both = runs([0.0, 0.001, -0.001, 0.0005, -0.3, 0.0], [0.0, 0.001, -0.001, 0.0, 0.0005, 0.001])
    assert both.words == "same median, but 1 run in 6 is 35 % slower"


def test_more_rounds_narrow_the_share_that_may_be_slow() -> None:
    # 1 - 0.05^(1/30) = 9.5 %.
    assert rounds([0.0002, -0.0002] * 15).words == "same within 1 % (slow runs: at most 1 in 10)"


@pytest.mark.parametrize(
    ("named", "most"),
    [
        ("independent, 10 rounds", 0.05),
        ("independent, t of 3 degrees, 10 rounds", 0.05),
        ("AAA then BBB, independent, 5 runs", 0.05),
        ("AAA then BBB, drift of 10 %, 5 runs", 0.05),
        ("one run of 3 % noise against ten of 0.3 %", 0.0),
        ("a session for each point, 5 runs", 0.0),
        ("a state that sticks to a point, 20 rounds", 0.2),
    ],
)
def test_equal_points_that_are_not_independent_are_seldom_told_apart(
    named: str, most: float
) -> None:
    (one,) = [it for it in situations.SITUATIONS if it.name == named]
    times = 150
    found = situations.figures(one, times, np.random.default_rng(12))
    assert found.apart <= most + 2.5 * math.sqrt(most * (1 - most) / times)


def test_little_power_is_lost_where_rounds_are_independent() -> None:
    (one,) = [it for it in situations.SITUATIONS if it.name == "+2 %, independent, 10 rounds"]
    found = situations.figures(one, 150, np.random.default_rng(13))
    assert found.apart_before > 0.95
    assert found.apart > 0.83

"""Student's t against tables, intervals against cases by hand, and how often verdicts err."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import comparing
from rater.analysis.stats import estimate as student
from rater.analysis.stats.estimate import (
    Basis,
    Estimate,
    mean_estimate,
    paired_estimate,
    t_quantile,
    two_sided_p,
    unpaired_estimate,
)
from rater.analysis.stats.intervals import (
    Decision,
    RatioInterval,
    confidence_per_look,
    ratio_interval,
)

TIMES = 4000


@pytest.mark.parametrize(
    ("confidence", "degrees", "t"),
    [
        # Fisher and Yates' table, with the digits that R's qt has.
        (0.95, 1, 12.706205),
        (0.95, 2, 4.302653),
        (0.95, 4, 2.776445),
        (0.95, 9, 2.262157),
        (0.99, 5, 4.032143),
        (0.99, 120, 2.617421),
        (0.999, 3, 12.923979),
        (0.90, 30, 1.697261),
        (0.95, 120, 1.979930),
        (0.5, 1, 1.0),
        (0.95, 1e9, 1.959964),
    ],
)
def test_the_quantiles_are_those_of_the_tables(confidence: float, degrees: float, t: float) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(t, abs=1e-6)


def test_whole_degrees_agree_with_the_exact_sums_and_others_lie_between_them() -> None:
    # By bisection on the sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    exact = {1: 12.7062047362, 3: 3.18244630528, 20: 2.08596344727, 99: 1.98421695159}
    for degrees, t in exact.items():
        assert t_quantile(0.95, degrees) == pytest.approx(t, rel=1e-11)
    many = [t_quantile(0.95, degrees / 4) for degrees in range(3, 60)]
    assert all(before > after for before, after in pairwise(many))


def test_p_is_the_inverse_of_the_quantile_down_to_tiny_values() -> None:
    assert two_sided_p(0, 3) == 1
    assert two_sided_p(math.inf, 3) == 0
    assert two_sided_p(1.0, 1) == pytest.approx(0.5)  # Cauchy: quartiles at +-1
    assert two_sided_p(t_quantile(0.95, 2.7), 2.7) == pytest.approx(0.05, rel=1e-9)
    # Two degrees: p = 1 - t / sqrt(2 + t^2), which for large t is 1 / t^2.
    assert two_sided_p(1e6, 2) == pytest.approx(1e-12, rel=1e-6)


@pytest.mark.parametrize(("confidence", "degrees"), [(0.95, 0), (0, 3), (1, 3), (0.95, -1)])
def test_no_degrees_and_no_confidence_are_refused(confidence: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile(confidence, degrees)
    if degrees < 1:
        with pytest.raises(ValueError, match="degrees of freedom"):
            two_sided_p(1, degrees)


def test_pairs_have_the_interval_of_their_differences() -> None:
    # Differences 0.01, 0.02, 0.03: mean 0.02, deviation 0.01, error 0.01 / sqrt(3).
    told = ratio_interval(paired_estimate([0.01, 0.02, 0.03]), 0.01)
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert told.ratio == pytest.approx(math.exp(0.02))
    assert (told.low, told.high) == pytest.approx((math.exp(0.02 - reach), math.exp(0.02 + reach)))
    assert (told.degrees, told.count, told.basis) == (2, 3, Basis.BLOCKS)
    # t = 0.02 / 0.0057735 = 3.4641; p = 1 - t / sqrt(2 + t^2).
    assert told.p == pytest.approx(1 - 3.4641016 / math.sqrt(14), rel=1e-6)
    assert told.verdict is Decision.UNKNOWN


def test_welch_has_the_degrees_of_satterthwaite() -> None:
    # Variances of means 0.01^2 / 3 and 0.03^2 / 3 (deviations 0.01 and 0.03).
    here = [-0.01, 0.0, 0.01]
    there = [-0.02, 0.01, 0.04]
    estimate = unpaired_estimate(here, there, Basis.RUNS)
    variances = 0.0001 / 3, 0.0009 / 3
    degrees = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 2)
    assert estimate.error() == pytest.approx(math.sqrt(sum(variances)))
    assert estimate.degrees() == pytest.approx(degrees)
    assert estimate.log_ratio == pytest.approx(-0.01)


def test_many_values_do_not_lend_their_degrees_to_two() -> None:
    many = [0.01 * (-1) ** n for n in range(20)]
    estimate = unpaired_estimate([0.0, 1e-5], many, Basis.RUNS)  # Satterthwaite alone: 19
    assert estimate.degrees() == 2
    assert estimate.degrees(1) == 4  # three values on a side
    assert mean_estimate([estimate, estimate]).degrees() == pytest.approx(4)


def test_equal_things_of_unequal_numbers_of_runs_are_seldom_told_apart() -> None:
    rng = random.Random(1)

    def values(n: int) -> list[float]:
        return [rng.gauss(0, 0.01) for _ in range(n)]

    for few, many in ((2, 20), (3, 10)):
        # A wide margin: how many more runs would tell is found in few steps.
        told = [
            ratio_interval(unpaired_estimate(values(few), values(many), Basis.RUNS), 1.0).verdict
            for _ in range(1000)
        ]
        wrong = sum(it in (Decision.BETTER, Decision.WORSE) for it in told)
        assert wrong <= 1000 * 0.06  # 5 % and two standard deviations


def test_what_more_would_tell_minds_that_it_is_a_second_look() -> None:
    estimate = paired_estimate([0.02, 0.0, 0.01, -0.005])
    once = ratio_interval(estimate, 0.01).more
    again = ratio_interval(estimate, 0.01, next_confidence=0.98).more
    assert 0 < (once or 0) < (again or 0)


def test_one_value_has_the_noise_of_the_several_on_the_other_side_and_no_verdict() -> None:
    estimate = unpaired_estimate([0.05], [-0.01, 0.0, 0.01], Basis.RUNS)
    assert estimate.error() == pytest.approx(0.01 * math.sqrt(1 + 1 / 3))
    assert estimate.degrees() == pytest.approx(2)
    told = ratio_interval(estimate, 0.01)
    assert (told.low or 0) > 1  # if it were so
    assert told.words == "inconclusive: one run of one side"
    # The same whichever side is the single one.
    other = ratio_interval(unpaired_estimate([-0.01, 0.0, 0.01], [0.05], Basis.RUNS), 0.01)
    assert 1 / (other.low or 1) == pytest.approx(told.high)


def test_one_value_each_tells_nothing() -> None:
    for estimate in (paired_estimate([0.5]), unpaired_estimate([0.5], [0.0], Basis.RUNS)):
        told = ratio_interval(estimate, 0.01)
        assert told.words == "inconclusive: one run each"
        assert (told.low, told.p, told.basis) == (None, None, Basis.NOTHING)
        assert told.ratio == pytest.approx(math.exp(0.5))


def test_values_without_noise_are_the_same_or_not_told() -> None:
    # A clock of whole seconds: no difference is what it says, one step of it may be chance.
    same = ratio_interval(paired_estimate([0.0, 0.0, 0.0]), 0.01)
    assert (same.words, same.p, same.low, same.high) == ("same within 1 %", 1.0, 1.0, 1.0)
    step = ratio_interval(paired_estimate([0.01, 0.01, 0.01]), 0.01)
    assert (step.words, step.p) == ("inconclusive", 1.0)
    # Equal but for roundings is equal.
    assert (
        ratio_interval(paired_estimate([0.1, 0.1 + 1e-17, 0.1 - 2e-17]), 0.01).words
        == "inconclusive"
    )


def test_of_one_run_each_there_is_an_interval_and_no_verdict() -> None:
    told = ratio_interval(
        unpaired_estimate([0.5, 0.501, 0.499], [0.0, 0.001, -0.001], Basis.ITERATIONS), 0.01
    )
    assert (told.low or 0) > 1.6
    assert (told.words, told.p, told.within) == ("inconclusive: one run each", None, False)
    equal = ratio_interval(unpaired_estimate([0.0, 0.0], [0.0, 0.0], Basis.ITERATIONS), 0.01)
    assert (equal.words, equal.p) == ("inconclusive: one run each", None)


def test_times_in_coarse_steps_widen_the_interval_by_a_step_and_their_rounding() -> None:
    # Two runs each without any noise, known to 10 %: deviation 0.1 / sqrt(12) each.
    far = ratio_interval(unpaired_estimate([0.0, 0.0], [0.7, 0.7], Basis.RUNS, step=0.1), 0.01)
    error = 0.1 / math.sqrt(12)
    reach = 4.302653 * error + 0.1
    assert (far.low, far.high) == pytest.approx((math.exp(-0.7 - reach), math.exp(-0.7 + reach)))
    assert far.p == pytest.approx(two_sided_p(0.6 / error, 2))
    assert far.words == "worse"
    near = ratio_interval(paired_estimate([0.02, 0.02, 0.02], step=0.1), 0.01)
    assert (near.words, near.more) == ("inconclusive: times too coarse", None)
    # Steps of a nanosecond change nothing.
    fine = ratio_interval(paired_estimate([0.01, 0.02, 0.03], step=1e-10), 0.01)
    assert fine.p == pytest.approx(ratio_interval(paired_estimate([0.01, 0.02, 0.03]), 0.01).p)
    assert mean_estimate(
        [paired_estimate([0, 0], step=0.1), paired_estimate([0, 0], step=0.3)]
    ).blur == pytest.approx(0.2)


def test_a_quantile_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def counted(t: float, degrees: float) -> float:
        asked.append(t)
        return two_sided_p(t, degrees)

    monkeypatch.setattr(student, "two_sided_p", counted)
    found = [t_quantile(0.9371, degrees) for degrees in (1.37, 2.91, 17.3, 431.7)]
    assert [two_sided_p(t, n) for t, n in zip(found, (1.37, 2.91, 17.3, 431.7), strict=True)] == [
        pytest.approx(1 - 0.9371, rel=1e-9)
    ] * 4
    assert len(asked) < 4 * 20  # bisecting takes some 50 for each


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ([0.021, 0.02, 0.019, 0.02], "better"),
        ([-0.021, -0.02, -0.019, -0.02], "worse"),
        ([0.001, -0.001, 0.0005, -0.0005], "same within 1 %"),
        ([0.0041, 0.004, 0.0039, 0.004], "better (less than 1 %)"),
        ([-0.0041, -0.004, -0.0039, -0.004], "worse (less than 1 %)"),
    ],
)
def test_the_verdicts_are_these_words_and_turn_where_less_is_better(
    differences: list[float], words: str
) -> None:
    assert ratio_interval(paired_estimate(differences), 0.01).words == words
    turned = [-it for it in differences]
    assert ratio_interval(paired_estimate(turned), 0.01, less_is_better=True).words == words


def test_how_many_more_rounds_would_tell() -> None:
    noisy = paired_estimate([0.03, -0.01, 0.03, -0.01])  # mean 0.01, deviation 0.0231
    told = ratio_interval(noisy, 0.01)
    assert told.more is not None
    assert told.words == f"inconclusive: about {told.more} more rounds needed"
    # With so many the half width is below the effect, with one fewer it is not.
    for more, enough in ((told.more, True), (told.more - 1, False)):
        reach = t_quantile(0.95, 3 + more) * 0.0230940 / math.sqrt(4 + more)
        assert (reach < 0.01) is enough
    # Near no effect, it is `same` that is near: the margin counts.
    assert (
        ratio_interval(paired_estimate([0.02, -0.02, 0.02, -0.02]), 0.01).words
        == "inconclusive: about 20 more rounds needed"
    )
    far = ratio_interval(paired_estimate([0.5, -0.5, 0.5, -0.5]), 0.001)
    assert far.words == "inconclusive: more than 1000 rounds needed"
    one = RatioInterval(1, 0.01, Basis.BLOCKS, 4, more=1)
    assert one.words == "inconclusive: about 1 more round needed"


def test_strata_count_alike_and_their_noise_adds() -> None:
    first, second = paired_estimate([0.01, 0.03]), paired_estimate([0.05, 0.07, 0.09])
    both = mean_estimate([first, second])
    assert both.log_ratio == pytest.approx((0.02 + 0.07) / 2)
    errors = (0.0141421 / math.sqrt(2), 0.02 / math.sqrt(3))
    assert both.error() == pytest.approx(math.hypot(*errors) / 2, rel=1e-5)
    assert mean_estimate([first]) is first
    assert mean_estimate([first, paired_estimate([0.0])]).error() is None
    assert mean_estimate([first, unpaired_estimate([0, 1], [0, 1], Basis.RUNS)]).basis is Basis.RUNS


def test_an_interval_is_always_a_pair_of_numbers() -> None:
    told = ratio_interval(Estimate(600.0, paired_estimate([0.0, 900.0]).parts, Basis.BLOCKS), 0.01)
    assert 0 < (told.low or 0) < told.ratio < (told.high or 0) < math.inf


def test_the_levels_of_repeated_looks_get_stricter() -> None:
    assert confidence_per_look(1) == 0.95
    levels = [1 - confidence_per_look(looks) for looks in (*range(1, 40), 100, 999, 1000, 5000)]
    assert all(before >= after for before, after in pairwise(levels))
    assert levels[1] == pytest.approx(0.02205)  # of three looks
    assert 1 - confidence_per_look(5000) == pytest.approx(0.00001)
    with pytest.raises(ValueError, match="0 looks"):
        confidence_per_look(0)


def test_the_simulations_use_the_formulas_of_rater() -> None:
    comparing.check_against_functions(np.random.default_rng(1))


@pytest.mark.parametrize("noise", comparing.NOISES.values(), ids=comparing.NOISES)
def test_equal_points_are_called_apart_in_at_most_5_per_cent(noise: comparing.Noise) -> None:
    rng = np.random.default_rng(2)
    for rounds in (2, 3, 5, 10):
        wrong = comparing.false_verdicts(noise, rounds, TIMES, rng)
        assert wrong < 0.05 + 3 * math.sqrt(0.05 * 0.95 / TIMES)


def test_2_per_cent_at_1_per_cent_noise_is_found_with_ten_rounds_both_signs_alike() -> None:
    rng = np.random.default_rng(3)
    more = comparing.found(comparing.normal, 0.02, 10, TIMES, rng)
    less = comparing.found(comparing.normal, -0.02, 10, TIMES, rng)
    assert more > 0.95
    assert less > 0.95
    assert abs(more - less) < 0.02


def test_looking_after_every_round_errs_in_at_most_5_per_cent_of_series() -> None:
    rng = np.random.default_rng(4)
    wrong, _ = comparing.stopped_wrongly(comparing.normal, 20, TIMES, rng)
    naive, _ = comparing.stopped_wrongly(comparing.normal, 20, TIMES, rng, looks=1)
    assert wrong < 0.05 + 3 * math.sqrt(0.05 * 0.95 / TIMES)
    assert naive > 0.15  # what the stricter level is for


def test_a_drift_over_the_rounds_does_not_look_like_a_difference() -> None:
    pairs, runs = comparing.drifting(0.02, 10, TIMES, np.random.default_rng(5))
    assert pairs < 0.06
    assert runs < pairs  # without blocks the drift is noise, and hides what there is


def test_in_a_table_of_equal_points_nothing_is_marked_in_19_of_20() -> None:
    share = comparing.any_holds(14, 3, 5, 1000, np.random.default_rng(11))
    assert share < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_so_many_rounds_as_are_named_show_that_equal_points_are_the_same() -> None:
    rng = np.random.default_rng(6)
    assert [comparing.rounds_for_same(noise, 0.01) for noise in (0.002, 0.005, 0.01, 0.02)] == [
        4,
        8,
        24,
        87,
    ]
    assert comparing.rounds_for_same(0.5, 0.01) is None
    assert comparing.told_same(0.01, 24, TIMES, rng) > 0.79
    assert comparing.told_same(0.01, 12, TIMES, rng) < 0.6

"""Intervals against tables and cases by hand, how often verdicts err, and values in their order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks import comparing, situations
from rater.analysis.stats import estimate as student
from rater.analysis.stats.estimate import (
    Alternative,
    Basis,
    Estimate,
    f_exceeded,
    geometric_mean,
    lower_median_index,
    mean_estimate,
    paired_estimate,
    population_cv,
    spread,
    t_quantile,
    two_sided_p,
    unpaired_estimate,
)
from rater.analysis.stats.independence import (
    MeasuredLog,
    estimate_from_rounds,
    estimate_from_runs,
    serial_evidence,
)
from rater.analysis.stats.intervals import (
    Decision,
    RatioInterval,
    confidence_per_look,
    ratio_interval,
)


def test_the_geometric_mean_of_two_and_eight_is_four_and_needs_numbers_above_zero() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 0.0]) is None


def test_the_cv_divides_by_n_as_spec_cpu_2026_does() -> None:
    # The example of the public write-ups: mean 226, CV 0.018 (sample SD would give 0.0208).
    assert population_cv([220.0, 225.0, 228.0, 231.0]) == pytest.approx(0.0180, abs=5e-5)
    assert (population_cv([3.0]), population_cv([])) == (0.0, None)


def test_of_three_ratios_the_median_counts_and_of_two_the_slower() -> None:
    assert lower_median_index([30.0, 10.0, 20.0]) == 2
    assert lower_median_index([20.0, 10.0]) == 1
    assert lower_median_index([4.0, 1.0, 3.0, 2.0]) == 3
    assert lower_median_index([5.0, 5.0, 5.0]) == 0


def test_quartiles_and_fences_of_five_numbers() -> None:
    found = spread([1.0, 2.0, 3.0, 4.0, 10.0])
    assert found is not None
    assert (found.minimum, found.lower_quartile, found.median) == (1.0, 2.0, 3.0)
    assert (found.upper_quartile, found.maximum, found.mean) == (4.0, 10.0, 4.0)


def test_the_spread_of_one_number_is_that_number() -> None:
    found = spread([7.0])
    assert found is not None
    assert (found.lower_quartile, found.median, found.upper_quartile) == (7.0, 7.0, 7.0)
    assert spread([]) is None


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
    interval = ratio_interval(paired_estimate([0.01, 0.02, 0.03]), 0.01)
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert interval.ratio == pytest.approx(math.exp(0.02))
    assert (interval.low, interval.high) == pytest.approx(
        (math.exp(0.02 - reach), math.exp(0.02 + reach))
    )
    assert (interval.degrees, interval.count, interval.basis) == (2, 3, Basis.BLOCKS)
    # t = 0.02 / 0.0057735 = 3.4641; p = 1 - t / sqrt(2 + t^2).
    assert interval.p == pytest.approx(1 - 3.4641016 / math.sqrt(14), rel=1e-6)
    assert interval.verdict is Decision.UNKNOWN


def test_welch_has_the_degrees_of_satterthwaite() -> None:
    # Variances of means 0.01^2 / 3 and 0.03^2 / 3 (deviations 0.01 and 0.03).
    here = [-0.01, 0.0, 0.01]
    there = [-0.02, 0.01, 0.04]
    estimate = unpaired_estimate(here, there)
    variances = 0.0001 / 3, 0.0009 / 3
    degrees = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 2)
    assert estimate.error() == pytest.approx(math.sqrt(sum(variances)))
    assert estimate.degrees() == pytest.approx(degrees)
    assert estimate.log_ratio == pytest.approx(-0.01)


def test_many_values_do_not_lend_their_degrees_to_two() -> None:
    many = [0.01 * (-1) ** number for number in range(20)]
    estimate = unpaired_estimate([0.0, 1e-5], many)  # Satterthwaite alone: 19
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
            ratio_interval(unpaired_estimate(values(few), values(many)), 1.0).verdict
            for _ in range(1000)
        ]
        wrong = sum(it in (Decision.BETTER, Decision.WORSE) for it in told)
        assert wrong <= 1000 * 0.06  # 5 % and two standard deviations


def test_what_more_would_tell_minds_that_it_is_a_second_look() -> None:
    estimate = paired_estimate([0.02, 0.0, 0.01, -0.005])
    once = ratio_interval(estimate, 0.01).more
    again = ratio_interval(estimate, 0.01, next_confidence=0.98).more
    assert 0 < (once or 0) < (again or 0)


def test_one_value_against_several_has_neither_interval_nor_verdict() -> None:
    for estimate in (
        unpaired_estimate([0.05], [-0.01, 0.0, 0.01]),
        unpaired_estimate([-0.01, 0.0, 0.01], [0.05]),
        mean_estimate([paired_estimate([0.01, 0.02]), unpaired_estimate([0.05], [0.0, 0.1])]),
    ):
        told = ratio_interval(estimate, 0.01)
        assert told.verdict_text == "inconclusive: one run of one side"
        assert (told.low, told.high, told.degrees, told.p) == (None, None, None, None)


def test_one_value_each_tells_nothing() -> None:
    for estimate in (paired_estimate([0.5]), unpaired_estimate([0.5], [0.0])):
        told = ratio_interval(estimate, 0.01)
        assert told.verdict_text == "inconclusive: one run each"
        assert (told.low, told.p, told.basis) == (None, None, Basis.NOTHING)
        assert told.ratio == pytest.approx(math.exp(0.5))


def test_values_without_noise_are_the_same_or_not_told() -> None:
    # A clock of whole seconds: equal values are no difference, one step may be chance.
    same = ratio_interval(paired_estimate([0.0, 0.0, 0.0]), 0.01)
    assert (same.verdict_text, same.p, same.low, same.high) == ("same within 1 %", 1.0, 1.0, 1.0)
    step = ratio_interval(paired_estimate([0.01, 0.01, 0.01]), 0.01)
    assert (step.verdict_text, step.p) == ("inconclusive", 1.0)
    # Equal but for roundings is equal.
    assert (
        ratio_interval(paired_estimate([0.1, 0.1 + 1e-17, 0.1 - 2e-17]), 0.01).verdict_text
        == "inconclusive"
    )


def test_a_mixture_has_the_tails_of_its_parts() -> None:
    estimate = paired_estimate([0.01, 0.02, 0.03, 0.06])
    wider = Alternative(reason="why", weight=0.25, shift=-0.01, widening=2.0, degrees=-1.0)
    interval = ratio_interval(replace(estimate, alternatives=(wider,)), 0.01)
    error = estimate.error() or 0.0
    for end, sign in ((interval.low, -1), (interval.high, 1)):
        x = math.log(end or 0)
        tails = [
            two_sided_p(sign * (x - middle) / scale, degrees) / 2
            for middle, scale, degrees in ((0.03, error, 3), (0.02, 2 * error, 2))
        ]
        assert 0.75 * tails[0] + 0.25 * tails[1] == pytest.approx(0.025, rel=1e-4)
    below = two_sided_p(0.03 / error, 3) / 2, two_sided_p(0.01 / error, 2) / 2
    assert interval.p == pytest.approx(2 * (0.75 * below[0] + 0.25 * below[1]))
    # What is as good as impossible moves nothing.
    never = replace(estimate, alternatives=(replace(wider, weight=1e-5),))
    assert ratio_interval(never, 0.01).low == pytest.approx(ratio_interval(estimate, 0.01).low)


def test_times_in_coarse_steps_widen_the_interval_by_a_step_and_their_rounding() -> None:
    # Two runs each without any noise, known to 10 %: deviation 0.1 / sqrt(12) each.
    far = ratio_interval(unpaired_estimate([0.0, 0.0], [0.7, 0.7], step=0.1), 0.01)
    error = 0.1 / math.sqrt(12)
    reach = 4.302653 * error + 0.1
    assert (far.low, far.high) == pytest.approx((math.exp(-0.7 - reach), math.exp(-0.7 + reach)))
    assert far.p == pytest.approx(two_sided_p(0.6 / error, 2))
    assert far.verdict_text == "worse"
    near = ratio_interval(paired_estimate([0.02, 0.02, 0.02], step=0.1), 0.01)
    assert (near.verdict_text, near.more) == ("inconclusive: times too coarse", None)
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
    assert [
        two_sided_p(t, number) for t, number in zip(found, (1.37, 2.91, 17.3, 431.7), strict=True)
    ] == [pytest.approx(1 - 0.9371, rel=1e-9)] * 4
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
    assert ratio_interval(paired_estimate(differences), 0.01).verdict_text == words
    turned = [-difference for difference in differences]
    assert ratio_interval(paired_estimate(turned), 0.01, less_is_better=True).verdict_text == words


def test_how_many_more_rounds_would_tell() -> None:
    noisy = paired_estimate([0.03, -0.01, 0.03, -0.01])  # mean 0.01, deviation 0.0231
    told = ratio_interval(noisy, 0.01)
    assert told.more is not None
    assert told.verdict_text == f"inconclusive: about {told.more} more rounds needed"
    # With so many the half width is below the effect, with one fewer it is not.
    for more, enough in ((told.more, True), (told.more - 1, False)):
        reach = t_quantile(0.95, 3 + more) * 0.0230940 / math.sqrt(4 + more)
        assert (reach < 0.01) is enough
    # Near no effect, it is `same` that is near: the margin counts.
    assert (
        ratio_interval(paired_estimate([0.02, -0.02, 0.02, -0.02]), 0.01).verdict_text
        == "inconclusive: about 20 more rounds needed"
    )
    far = ratio_interval(paired_estimate([0.5, -0.5, 0.5, -0.5]), 0.001)
    assert far.verdict_text == "inconclusive: more than 1000 rounds needed"
    one = RatioInterval(ratio=1, margin=0.01, basis=Basis.BLOCKS, count=4, more=1)
    assert one.verdict_text == "inconclusive: about 1 more round needed"


def test_strata_count_alike_and_their_noise_adds() -> None:
    first, second = paired_estimate([0.01, 0.03]), paired_estimate([0.05, 0.07, 0.09])
    both = mean_estimate([first, second])
    assert both.log_ratio == pytest.approx((0.02 + 0.07) / 2)
    errors = (0.0141421 / math.sqrt(2), 0.02 / math.sqrt(3))
    assert both.error() == pytest.approx(math.hypot(*errors) / 2, rel=1e-5)
    assert mean_estimate([first]) is first
    assert mean_estimate([first, paired_estimate([0.0])]).error() is None
    assert mean_estimate([first, unpaired_estimate([0, 1], [0, 1])]).basis is Basis.RUNS


def test_an_interval_is_always_a_pair_of_numbers() -> None:
    told = ratio_interval(
        Estimate(log_ratio=600.0, parts=paired_estimate([0.0, 900.0]).parts, basis=Basis.BLOCKS),
        0.01,
    )
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
    more = comparing.share_with_sign(comparing.normal, 0.02, 10, TIMES, rng)
    less = comparing.share_with_sign(comparing.normal, -0.02, 10, TIMES, rng)
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


def rounds(differences: Sequence[float], sessions: Sequence[int] = ()) -> RatioInterval:
    pairs = [
        (
            MeasuredLog(value, 2 * number + number % 2, sessions[number] if sessions else 0),
            MeasuredLog(0.0, 2 * number + 1 - number % 2, sessions[number] if sessions else 0),
        )
        for number, value in enumerate(differences)
    ]
    return ratio_interval(estimate_from_rounds(pairs), 0.01)


def runs(base: Sequence[float], other: Sequence[float], first: int = 0) -> RatioInterval:
    sides = (
        [MeasuredLog(value, first + number) for number, value in enumerate(base)],
        [MeasuredLog(value, len(base) + number) for number, value in enumerate(other)],
    )
    return ratio_interval(estimate_from_runs(*sides), 0.01)


def test_the_evidence_of_rounds_is_that_of_their_covariance() -> None:
    # Against the likelihood with the whole covariance matrix, mean and variance integrated out.
    values = np.array([0.01, 0.012, 0.02, 0.018, 0.01, 0.005])
    logs = []
    for rho in (0.9, 0.0):
        inverse = np.linalg.inv(rho ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
        mean = inverse.sum(axis=1) @ values / inverse.sum()
        squares = (values - mean) @ inverse @ (values - mean)
        log_det = np.linalg.slogdet(inverse)[1] - math.log(inverse.sum())
        logs.append((log_det - 5 * math.log(squares)) / 2)
    assert serial_evidence([list(values)]) == pytest.approx(logs[0] - logs[1])
    assert serial_evidence([[0.0, 0.01, 0.02, 0.03, 0.04, 0.05]]) > 1
    assert serial_evidence([[0.0, 0.01] * 3]) < -1
    assert serial_evidence([[1.0] * 6]) == 0.0


def test_benchmarks_that_repeat_each_other_are_one_and_others_add_up() -> None:
    up = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
    alone = serial_evidence([up])
    assert serial_evidence([up, [2 * value for value in up], [1.0] * 6]) == pytest.approx(alone)
    # Not correlated: deviations -5 -3 -1 1 3 5 and 5 -1 -4 -4 -1 5.
    other = [0.05, -0.01, -0.04, -0.04, -0.01, 0.05]
    both = serial_evidence([up, other])
    assert both == pytest.approx(alone + serial_evidence([other]))


def test_the_p_of_variances_is_that_of_the_tables() -> None:
    assert f_exceeded(4.9646, 1, 10) == pytest.approx(0.05, abs=1e-5)
    assert f_exceeded(3.0725, 4, 12) == pytest.approx(0.0588, abs=1e-3)


def test_a_verdict_from_few_rounds_says_how_many_they_are() -> None:
    assert rounds([0.021, 0.02, 0.019, 0.02]).verdict_text == "better (4 rounds)"
    six = [0.021, 0.02, 0.019, 0.02, 0.0195, 0.0205]
    assert rounds(six).verdict_text == "better (6 rounds)"
    assert rounds(six * 2).verdict_text == "better"


def test_rounds_that_hang_together_have_a_wider_interval_and_say_so() -> None:
    state = [0.02, 0.021, 0.019, 0.0205, 0.0, -0.0005, 0.0005, 0.0]
    mixed = [state[number] for number in (0, 4, 1, 5, 6, 2, 7, 3)]
    alone, together = rounds(mixed), rounds(state)
    assert together.ratio == pytest.approx(alone.ratio)
    assert (together.high or 0) - (together.low or 0) > 1.3 * ((alone.high or 0) - (alone.low or 0))
    assert together.verdict_text.startswith("inconclusive: rounds not independent; ")
    large = rounds([value + 0.3 for value in state])
    assert large.verdict_text == "better (8 rounds; rounds not independent)"


def test_no_dependence_takes_an_interval_beyond_the_range_of_the_values() -> None:
    rng = random.Random(4)
    for many in (6, 8, 10, 20, 100):
        values, state = [], 0.0
        for _ in range(many):
            state = 0.95 * state + rng.gauss(0, 0.01)
            values.append(state)
        told, width = rounds(values), max(values) - min(values)
        assert math.log((told.high or 0) / told.ratio) <= width
        assert math.log((told.low or 0) / told.ratio) >= -width


def test_an_order_counts_only_where_it_is_known() -> None:
    state = [0.02, 0.021, 0.019, 0.0205, 0.0, -0.0005, 0.0005, 0.0]
    pairs = [(MeasuredLog(value), MeasuredLog(0.0)) for value in state]
    assert not estimate_from_rounds(pairs).alternatives
    sides = [MeasuredLog(value) for value in state[:4]], [MeasuredLog(v) for v in state[4:]]
    assert not estimate_from_runs(*sides).alternatives


def test_a_drift_counts_where_the_same_point_goes_first_in_every_round() -> None:
    noise = (0.001, -0.001, 0.0005, -0.0005, 0.0, 0.001)
    logs = [-0.01 * place for place in range(12)]
    pairs = [
        (
            MeasuredLog(logs[2 * number] + noise[number], 2 * number),
            MeasuredLog(logs[2 * number + 1], 2 * number + 1),
        )
        for number in range(6)
    ]
    told = ratio_interval(estimate_from_rounds(pairs), 0.01)
    assert told.verdict_text == "inconclusive: a drift would look the same (make them in turn)"


def test_sessions_that_differ_are_the_values() -> None:
    days = [0.02, 0.021, 0.019, 0.004, 0.005, 0.003]
    assert rounds([days[number] for number in (0, 3, 1, 4, 2, 5)]).decided
    told = rounds(days, (0, 0, 0, 1, 1, 1))
    assert not told.decided  # of two means
    assert "sessions differ" in told.verdict_text
    assert rounds([0.02, 0.01, 0.021, 0.011, 0.019, 0.01], (0, 0, 0, 1, 1, 1)).decided


def test_what_a_drift_could_do_is_no_verdict_and_in_turn_it_does_nothing() -> None:
    slower = [-0.01 * number for number in range(8)]
    words = "inconclusive: a drift would look the same (make them in turn)"
    assert runs(slower[:4], slower[4:]).verdict_text == words
    # A step of 10 % on top of the drift and a little noise is a difference.
    noise = (0.001, -0.001, 0.0005, -0.0005) * 2
    values = [a + b for a, b in zip(slower, noise, strict=True)]
    assert (
        runs(values[:4], [value - 0.1 for value in values[4:]]).verdict_text == "better (unblocked)"
    )
    turned = estimate_from_runs(
        [MeasuredLog(slower[number] + noise[number] + 0.05, number) for number in (0, 2, 4, 6)],
        [MeasuredLog(slower[number] + noise[number], number) for number in (1, 3, 5, 7)],
    )
    assert turned.basis is Basis.RUNS
    drift = max(turned.alternatives, key=lambda one: one.weight)
    assert drift.weight > 0.5
    assert turned.log_ratio + drift.shift == pytest.approx(0.05, abs=0.002)
    assert drift.widening < 1 / 5


def test_a_step_that_moves_what_is_probable_leaves_the_estimate_in_its_interval() -> None:
    stepped, usual = [0.0, 0.01, 2.01, 2.0, 2.01, 2.0], [0.01, 0.0, 0.01, 0.0, 0.01]
    interval = runs(stepped, usual, 11)  # made after the others
    assert interval.low == pytest.approx(0.987, abs=0.001)
    assert interval.high == interval.ratio == pytest.approx(3.79, abs=0.001)
    assert (interval.decided, interval.p) == (False, 1.0)
    interval = runs(usual, stepped[:5], 10)
    assert interval.low == pytest.approx(0.133, abs=0.001)
    assert interval.high == interval.ratio
    assert interval.verdict is Decision.WORSE


def test_one_run_against_several_is_not_judged() -> None:
    told = runs([0.3], [0.0, 0.001, -0.001])
    assert (told.verdict_text, told.p) == ("inconclusive: one run of one side", None)
    assert (told.low, told.high) == (None, None)


def test_a_rare_slow_mode_is_a_verdict_of_its_own() -> None:
    rng = random.Random(3)
    usual = [rng.gauss(0, 0.002) for _ in range(10)]
    assert rounds(usual).verdict_text == "same within 1 % (10 rounds; slow runs: at most 1 in 3)"
    slow = [*usual[:4], -math.log(1.2), *usual[5:]]
    told = rounds(slow)
    assert told.verdict is Decision.RARELY
    assert told.verdict_text == "same median, but 1 run in 10 is 20 % slower"
    assert not told.decided  # more rounds say how rare
    other = rounds([-value for value in slow])
    assert other.verdict_text == "same median, but 1 run in 10 of the baseline is 20 % slower"
    both = runs([0.0, 0.001, -0.001, 0.0005, -0.3, 0.0], [0.0, 0.001, -0.001, 0.0, 0.0005, 0.001])
    assert both.verdict_text == "same median, but 1 run in 6 is 35 % slower"


def test_more_rounds_narrow_the_share_that_may_be_slow() -> None:
    # 1 - 0.05^(1/30) = 9.5 %.
    assert (
        rounds([0.0002, -0.0002] * 15).verdict_text
        == "same within 1 % (slow runs: at most 1 in 10)"
    )


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
    assert found.apart > 0.65
    (ten,) = [it for it in situations.SITUATIONS if it.name == f"{one.name}, 10 benchmarks"]
    assert situations.figures(ten, 150, np.random.default_rng(13)).apart > 0.93


@pytest.mark.parametrize("rounds_made", [5, 10])
def test_5_per_cent_at_1_per_cent_noise_are_decided(rounds_made: int) -> None:
    name = f"+5 %, independent, {rounds_made} rounds"
    (one,) = [it for it in situations.SITUATIONS if it.name == name]
    assert situations.figures(one, 150, np.random.default_rng(14)).apart > 0.975

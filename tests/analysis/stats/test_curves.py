"""Curves of throughput against copies: the Universal Scalability Law, knee, plateau, fall."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rater.analysis.stats.curves import CurveShape, LawScale, NoLaw, Usl, curve_shape, fit_usl
from rater.analysis.stats.intervals import ASSUMED_SD, Noise, noise_within_rounds, run_to_run_noise
from rater.analysis.stats.roots import sign_change

NOISE = Noise(0.02, None)
DOUBLING = (1, 2, 4, 8, 16, 32)


def law(copies: Sequence[int], rate: float, sigma: float, kappa: float) -> list[float]:
    return [rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1)) for n in copies]


def fit(
    copies: Sequence[int],
    rates: Sequence[float],
    noise: Noise = NOISE,
    scale: LawScale = LawScale.LOG,
) -> Usl:
    found = fit_usl(copies, rates, [1] * len(copies), noise, scale)
    assert isinstance(found, Usl)
    return found


def test_a_curve_computed_by_hand_gives_its_coefficients_back() -> None:
    # lambda 10, sigma 0.05, kappa 0.01: 20 / 1.07, 40 / 1.27, 80 / 1.91, 160 / 4.15
    law = fit([1, 2, 4, 8, 16], [10.0, 20 / 1.07, 40 / 1.27, 80 / 1.91, 160 / 4.15])
    assert law.rate.value == pytest.approx(10)
    assert law.sigma.value == pytest.approx(0.05)
    assert law.kappa.value == pytest.approx(0.01)
    assert law.peak == pytest.approx(math.sqrt(95))  # sqrt((1 - 0.05) / 0.01)
    assert not law.extrapolated
    assert law.rms == pytest.approx(0, abs=1e-9)
    assert law.fitted_rate(2) == pytest.approx(20 / 1.07)
    assert law.degrees == 2


@pytest.mark.parametrize(
    ("sigma", "kappa"), [(0.3, 0.0), (0.0, 0.002), (0.001, 0.0001), (0.8, 0.05), (0.02, 0.3)]
)
def test_other_exact_curves_too(sigma: float, kappa: float) -> None:
    found = fit(DOUBLING, law(DOUBLING, 3.0, sigma, kappa), Noise(1e-6, None))
    fitted = (found.sigma.value, found.kappa.value, found.rate.value)
    assert fitted == pytest.approx((sigma, kappa, 3.0), abs=1e-8)


def test_a_measured_curve_is_fitted_as_well_as_an_independent_search_does() -> None:
    # Loads and throughputs of a SPARCcenter 2000 (SPEC SDM91), as Gunther's book has them.
    copies = np.array([1.0, 18, 36, 72, 108, 144, 216])
    rates = np.array([64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2])
    law = fit([int(n) for n in copies], rates.tolist())
    best = math.inf
    for sigma, kappa in itertools.product(np.linspace(0, 0.03, 121), np.linspace(0, 2e-4, 81)):
        left = np.log(rates / copies * (1 + sigma * (copies - 1) + kappa * copies * (copies - 1)))
        best = min(best, float(((left - left.mean()) ** 2).sum()))
    squares = sum(math.log1p(residual) ** 2 for residual in law.residuals)
    assert best * 0.99 < squares <= best
    assert law.sigma.value == pytest.approx(0.01345, abs=5e-5)
    assert law.kappa.value == pytest.approx(1.151e-4, abs=5e-7)
    assert law.peak == pytest.approx(92.6, abs=0.1)


def test_published_examples_come_out_as_published_on_the_scale_they_were_fitted_on() -> None:
    # SPEC SDM91 on a SPARCcenter 2000 (Gunther, Guerrilla Capacity Planning), as the R package
    # usl prints it: alpha 0.0277285 +- 0.0091217, beta 0.0001044 +- 0.0000199, gamma 89.9952 +-
    # 14.2135, residual standard error 82.8, peak 96.5.
    copies = [1, 18, 36, 72, 108, 144, 216]
    rates = [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2]
    law = fit(copies, rates, scale=LawScale.RATE)
    assert law.scale is LawScale.RATE
    assert law.sigma.value == pytest.approx(0.0277285, abs=5e-7)
    assert law.kappa.value == pytest.approx(0.0001044, abs=5e-8)
    assert law.rate.value == pytest.approx(89.9952, abs=5e-4)
    assert law.sigma.error == pytest.approx(0.0091217, rel=1e-3)
    assert law.kappa.error == pytest.approx(0.0000199, rel=2e-3)
    assert law.rate.error == pytest.approx(14.2135, rel=1e-3)
    assert law.peak == pytest.approx(96.5, abs=0.05)
    mean = sum(rates) / len(rates)
    assert law.rms * mean * math.sqrt(7 / 4) == pytest.approx(82.8, abs=0.05)
    # The ray tracer of the same book: alpha 0.057771, gamma 21.848843, beta held at 0.
    copies = [1, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64]
    rates = [20.0, 78, 130, 170, 190, 200, 210, 230, 260, 280, 310]
    law = fit(copies, rates, scale=LawScale.RATE)
    assert law.sigma.value == pytest.approx(0.057771, abs=1e-6)
    assert law.rate.value == pytest.approx(21.848843, abs=1e-5)
    assert (law.kappa.value, law.kappa.error, law.peak) == (0.0, None, None)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_spread_of_many_fits() -> None:
    rng = np.random.default_rng(3)
    true = np.array(law(DOUBLING, 1.0, 0.05, 0.002))
    fits = [fit(DOUBLING, (true * np.exp(rng.normal(0, 0.02, 6))).tolist()) for _ in range(80)]
    for values, errors, truth in (
        (
            [fitted.sigma.value for fitted in fits],
            [fitted.sigma.error or 0 for fitted in fits],
            0.05,
        ),
        (
            [fitted.kappa.value for fitted in fits],
            [fitted.kappa.error or 0 for fitted in fits],
            0.002,
        ),
        ([fitted.rate.value for fitted in fits], [fitted.rate.error or 0 for fitted in fits], 1.0),
    ):
        assert np.mean(values) == pytest.approx(truth, rel=0.05)
        assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.15)
    held = sum(fitted.sigma.low <= 0.05 <= fitted.sigma.high for fitted in fits)
    assert 70 <= held <= 79  # 95 % of 80


def test_a_coefficient_that_would_be_negative_is_held_at_0() -> None:
    rates = law(DOUBLING, 1.0, 0.1, 0.0)
    rates[-1] *= 1.02  # less than nothing lost to coherency
    fitted = fit(DOUBLING, rates)
    assert (fitted.kappa.value, fitted.kappa.error) == (0.0, None)
    assert fitted.degrees == 4
    assert fitted.peak is None
    assert fitted.limit == pytest.approx(fitted.rate.value / fitted.sigma.value)
    assert fitted.kappa.low == 0 < fitted.kappa.high < 0.001
    assert fitted.none_before == pytest.approx(
        math.sqrt((1 - fitted.sigma.value) / fitted.kappa.high)
    )


@pytest.mark.slow
def test_what_is_held_at_0_has_a_bound_that_holds_the_truth() -> None:
    rng = np.random.default_rng(5)
    true = np.array(law(DOUBLING, 1.0, 0.1, 0.0))
    fits = [fit(DOUBLING, (true * np.exp(rng.normal(0, 0.03, 6))).tolist()) for _ in range(30)]
    held = [fitted.kappa for fitted in fits if fitted.kappa.error is None]
    assert 8 < len(held) < 25
    # The truth a little off the bound, so that it can be missed at all.
    few = np.array(law(DOUBLING, 1.0, 0.1, 2e-4))
    fits = [fit(DOUBLING, (few * np.exp(rng.normal(0, 0.03, 6))).tolist()) for _ in range(40)]
    assert sum(fitted.kappa.low <= 2e-4 <= fitted.kappa.high for fitted in fits) >= 36
    assert all(0 < coefficient.high < 0.01 for coefficient in held)


def test_the_interval_is_where_the_profile_of_squares_says() -> None:
    rates = [1.0, 1.9, 3.4, 5.3, 7.6, 8.0]
    law = fit(DOUBLING, rates)
    n, y = np.array(DOUBLING), np.log(np.array(rates) / DOUBLING)

    def least(kappa: float) -> float:
        # By a grid over sigma instead of steps.
        sigmas = np.linspace(0, 0.4, 8001)[:, None]
        left = y + np.log(1 + sigmas * (n - 1) + kappa * n * (n - 1))
        return float(((left - left.mean(axis=1)[:, None]) ** 2).sum(axis=1).min())

    most = least(law.kappa.value) * (1 + 3.182446**2 / 3)  # Student's t of 3 degrees, 95 %
    for border in (law.kappa.low, law.kappa.high):
        assert least(border) == pytest.approx(most, rel=1e-3)


def test_a_peak_beyond_the_last_point_is_an_extrapolation() -> None:
    found = fit(DOUBLING, law(DOUBLING, 1.0, 0.02, 0.0002))
    assert found.peak == pytest.approx(70)  # sqrt(0.98 / 0.0002)
    assert found.extrapolated


def test_the_interval_of_the_peak_is_where_the_profile_of_squares_says() -> None:
    rates = [1.0, 1.9, 3.4, 5.3, 7.6, 8.0]
    law = fit(DOUBLING, rates)
    n, y = np.array(DOUBLING), np.log(np.array(rates) / DOUBLING)

    def least(sigmas: Any, kappas: Any) -> float:
        left = y + np.log(1 + sigmas * (n - 1) + kappas * n * (n - 1))
        return float(((left - left.mean(axis=1)[:, None]) ** 2).sum(axis=1).min())

    sigmas = np.linspace(0, 0.4, 8001)[:, None]
    most = least(np.array([[law.sigma.value]]), law.kappa.value) * (1 + 3.182446**2 / 3)
    assert law.peak_interval is not None
    low, high = law.peak_interval
    assert low < (law.peak or 0) < high
    for border in (low, high):
        assert least(sigmas, (1 - sigmas) / border**2) == pytest.approx(most, rel=1e-3)


def test_a_far_peak_is_not_named_at_half_the_truth() -> None:
    # The truth is 128 copies, of 32 that were measured; 1 in 20 was named, at 65 on average.
    rng = np.random.default_rng(11)
    true = np.array(law(DOUBLING, 1.0, 0.1, 0.9 / 128**2))
    fits = [fit(DOUBLING, (true * np.exp(rng.normal(0, 0.01, 6))).tolist()) for _ in range(60)]
    assert sum(one.peak is not None for one in fits) <= 2
    assert all(one.peak_interval is None for one in fits if one.peak is None)
    # One that was measured is named in all, with an interval that holds it.
    true = np.array(law(DOUBLING, 1.0, 0.1, 0.9 / 16**2))
    fits = [fit(DOUBLING, (true * np.exp(rng.normal(0, 0.01, 6))).tolist()) for _ in range(60)]
    within = [one.peak_interval for one in fits if one.peak_interval]
    assert len(within) == 60
    assert sum(low <= 16 <= high for low, high in within) >= 54


def test_a_peak_far_beyond_what_was_measured_is_none() -> None:
    # Its law peaks at sqrt(0.9 / 4e-18), 4.7e8 copies.
    found = fit(DOUBLING, law(DOUBLING, 1.0, 0.1, 4e-18), Noise(1e-9, None))
    assert found.peak is None
    assert not found.extrapolated
    near = fit(DOUBLING, law(DOUBLING, 1.0, 0.02, 0.00005))  # 140 copies, more than 4 x 32
    assert near.peak is None


def test_an_error_that_would_reach_beyond_the_bound_is_told_as_an_interval() -> None:
    found = fit(DOUBLING, [1.0, 1.85, 3.2, 4.9, 6.1, 7.9])
    for one in (found.sigma, found.kappa):
        assert (one.symmetric is None) == (one.low == 0)
    assert None in (found.sigma.symmetric, found.kappa.symmetric)


def test_no_peak_follows_from_a_kappa_that_is_not_told_from_0() -> None:
    pattern = np.array([0.0, 0.05, -0.05, 0.05, -0.05, 0.0])
    found = fit(DOUBLING, (np.array(law(DOUBLING, 1.0, 0.1, 4e-4)) * np.exp(pattern)).tolist())
    assert found.kappa.error is not None
    assert found.kappa.low == 0 < found.kappa.value
    assert found.peak is None


CLOSE = (32, 40, 48, 56, 64)


@pytest.mark.parametrize(
    ("copies", "rates", "said"),
    [
        ((1, 2, 4), [1.0, 1.5, 1.7], "need 4 numbers of copies, not 3"),
        (CLOSE, law(CLOSE, 1.0, 0.1, 0.01), "32 to 64 copies cover too little"),
        (DOUBLING, [1.0, 2.02, 3.96, 8.1, 15.9, 32.2], "a straight line fits as well"),
        # Superlinear curves get no negative contention.
        ((1, 2, 4, 8), [1.0, 2.2, 5.0, 11.0], "a straight line fits as well"),
    ],
)
def test_what_has_no_law_is_refused(copies: Sequence[int], rates: list[float], said: str) -> None:
    found = fit_usl(copies, rates, [1] * len(copies), NOISE)
    assert isinstance(found, NoLaw)
    assert said in found.reason


def test_linear_runs_with_noise_are_hardly_ever_taken_for_a_law() -> None:
    rng = np.random.default_rng(9)
    for sd in (0.02, 0.05):
        fitted = 0
        for _ in range(80):
            rates = (np.array(DOUBLING) * np.exp(rng.normal(0, sd, 6))).tolist()
            fitted += isinstance(fit_usl(DOUBLING, rates, [1] * 6, Noise(sd, None)), Usl)
        assert fitted <= 6


def test_a_curve_of_another_kind_is_told_by_its_residuals() -> None:
    found = fit(DOUBLING, [1.0, 2.0, 4.0, 8.0, 3.0, 3.0])
    assert found.bad
    assert max(map(abs, found.residuals)) > 0.2


QUIET = Noise(0.01, None)


def shape(
    copies: Sequence[int], rates: Sequence[float], fair: int | None = None, noise: Noise = QUIET
) -> CurveShape:
    return curve_shape(copies, rates, [1] * len(copies), noise, fair)


@pytest.mark.parametrize(
    ("rates", "knee", "plateau", "peak", "falls_at"),
    [
        # A copy adds 1.0, 0.8, 0.45, 0.2: less than half from 4 on.
        ([1.0, 2.0, 3.6, 5.4, 7.0], 4, None, 16, None),
        ([1.0, 1.98, 2.0, 2.0], 2, 2, 4, None),  # it stops at two copies
        ([1.0, 2.0, 2.0, 6.5], None, None, 8, None),  # from 2 to 8 it gains 0.75 a copy
        ([3.0, 6.0, 12.0, 24.0], None, None, 8, None),  # linear
        ([1.0, 1.0, 1.0], 1, 1, 1, None),  # nothing gained at all
        # It falls at the first point below the peak by more than noise.
        ([1.0, 1.8, 2.4, 2.39, 1.5], 2, 4, 4, 16),
    ],
)
def test_the_knee_is_where_a_copy_adds_less_than_half(
    rates: list[float], knee: int | None, plateau: int | None, peak: int, falls_at: int | None
) -> None:
    found = shape([1, 2, 4, 8, 16][: len(rates)], rates)
    assert (found.knee, found.plateau) == (knee, plateau)
    assert (found.peak, found.falls_at) == (peak, falls_at)


def test_less_than_half_by_no_more_than_noise_is_no_knee() -> None:
    rates = [1.0, 2.0, 2.9]  # 0.45 a copy
    assert shape([1, 2, 4], rates, noise=Noise(0.001, None)).knee == 2
    hidden = shape([1, 2, 4], rates, noise=Noise(0.05, None))
    assert (hidden.knee, hidden.maybe) == (None, 2)
    assert shape([1, 2, 3], [1.0, 2.0, 2.4], noise=Noise(0.3, None)).maybe is None


def test_two_numbers_of_copies_have_no_knee_and_it_is_said_why() -> None:
    found = shape([1, 2], [1.0, 1.0])
    assert found.knee is None
    assert found.reason == "2 numbers of copies; a knee needs 3"


def test_more_copies_than_cpus_make_no_knee_before_those_are_used_up() -> None:
    # 2 CPUs; 1 -> 2 gains 0.45, which noise of 5 % does not tell from half; 4 copies gain nothing.
    copies, rates, noise = [1, 2, 4], [1.0, 1.45, 1.0], Noise(0.05, None)
    assert shape(copies, rates, noise=noise).knee == 1
    assert shape(copies, rates, fair=2, noise=noise).knee == 2


def test_noise_is_that_of_repeated_runs() -> None:
    first, second = [1.0, math.exp(0.02)], [5.0, 5.0 * math.exp(0.04), 5.0 * math.exp(0.02)]
    found = run_to_run_noise([first, second, [7.0]])
    # Squares 2 x 0.01^2 + 2 x 0.02^2 = 0.001, degrees 1 + 2.
    assert found.sd == pytest.approx(math.sqrt(0.001 / 3))
    assert found.degrees == 3


def test_with_too_few_repeated_runs_noise_is_assumed_or_what_was_seen_if_that_is_more() -> None:
    assert run_to_run_noise([[1.0], [2.0]]) == Noise(ASSUMED_SD, None)
    found = run_to_run_noise([[1.0, math.exp(0.2)]])
    assert found.sd == pytest.approx(0.2 / math.sqrt(2))
    assert found.degrees is None


def test_what_a_round_does_to_all_runs_in_it_is_no_noise_between_them() -> None:
    # Rounds of 1, 2 and 0.5 times the speed; 4 % between two points in the last of them.
    noise = noise_within_rounds(
        [{1: 1.0, 2: 2.0, 3: 0.5}, {1: 2.0, 2: 4.0, 3: 1.0}, {1: 4.0, 2: 8.0, 3: 2.0 * 1.04}]
    )
    assert noise is not None
    # One cell of 3 x 3 that is off by d leaves 4/9 of its square.
    assert noise.sd == pytest.approx(math.sqrt(4 / 9 * math.log(1.04) ** 2 / 4))
    assert (noise.degrees, noise.in_rounds) == (4, True)


def test_rounds_that_not_all_points_have_say_nothing() -> None:
    assert noise_within_rounds([{1: 1.0, 2: 1.0}, {1: 1.0, 3: 1.0}, {1: 1.0, 2: 1.0}]) is None
    assert noise_within_rounds([{1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}]) is None  # one degree
    assert noise_within_rounds([{}, {}, {}]) is None


def test_drift_between_rounds_makes_no_knee_and_hides_none() -> None:
    rng = np.random.default_rng(4)
    copies = (1, 2, 4, 8, 16)
    truths: list[tuple[Callable[[int], float], int | None]] = [
        (float, None),
        (lambda n: min(n, 4.0), 4),
    ]
    for truth, knee in truths:
        right = 0
        for _ in range(100):
            drift = rng.normal(0, 0.15, 4)
            rates = [
                {
                    block: truth(n) * math.exp(drift[block] + rng.normal(0, 0.02))
                    for block in range(4)
                }
                for n in copies
            ]
            noise = noise_within_rounds(rates)
            assert noise is not None
            medians = [statistics.median(rate.values()) for rate in rates]
            right += curve_shape(copies, medians, [4] * 5, noise).knee == knee
        assert right >= 98


def test_a_median_of_runs_is_surer_than_a_run() -> None:
    noise = Noise(0.02, 10)
    assert noise.of_median(1) == 0.02
    assert noise.of_median(2) == pytest.approx(0.02 / math.sqrt(2))
    assert noise.of_median(5) == pytest.approx(0.02 * math.sqrt(math.pi / 10))


GRIDS = {
    "few": (1, 2, 4),
    "doubling": (1, 2, 4, 8, 16, 32),
    "every": tuple(range(1, 13)),
    "dense at the end": (1, 2, 4, 8, 16, 32, 48, 60, 62, 64),
}


def simulated(
    grid: str, truth: Callable[[int], float], sd: float, runs: int, trials: int
) -> list[CurveShape]:
    rng = np.random.default_rng(11)
    copies, fits = GRIDS[grid], []
    for _ in range(trials):
        rates = [
            [truth(n) * factor for factor in np.exp(rng.normal(0, sd, runs)).tolist()]
            for n in copies
        ]
        medians = [statistics.median(rate) for rate in rates]
        fits.append(curve_shape(copies, medians, [runs] * len(copies), run_to_run_noise(rates)))
    return fits


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("sd", "runs"), [(0.02, 1), (0.05, 1), (0.05, 3)])
def test_noise_on_a_straight_line_makes_no_knee_plateau_or_fall(
    grid: str, sd: float, runs: int
) -> None:
    shapes = simulated(grid, float, sd, runs, 100)
    named = sum(one.knee is not None or one.falls_at is not None for one in shapes)
    assert named <= 1


def test_what_still_rises_by_less_than_noise_shows_is_no_plateau() -> None:
    # 0.3 of the first's rise up to the end: 12 % in all, with 5 % of noise.
    found = shape([1, 2, 4, 8, 12], [1.0, 2.0, 4.0, 5.2, 6.4], noise=Noise(0.05, None))
    assert (found.knee, found.plateau) == (4, None)


@pytest.mark.parametrize(("sd", "runs"), [(0.02, 1), (0.05, 3)])
def test_a_real_knee_is_found_at_its_place_through_noise(sd: float, runs: int) -> None:
    shapes = simulated("doubling", lambda n: min(n, 8.0), sd, runs, 100)
    assert sum(one.knee == 8 for one in shapes) >= 98
    assert sum(8 in (one.plateau, one.maybe_plateau) for one in shapes) >= 85
    assert sum(one.falls_at is not None for one in shapes) <= 2


def test_a_profile_that_is_flat_far_out_has_an_end() -> None:
    rates = {
        31: 16.499874886200033,
        38: 17.640687371450106,
        64: 18.527821805046067,
        84: 17.875899392694766,
        126: 15.263942606448618,
        128: 15.122773708691904,
    }
    law = fit_usl([*rates], [*rates.values()], [2] * len(rates), Noise(0.01, None))
    assert isinstance(law, Usl) and law.peak == pytest.approx(57.3, abs=0.1)


@pytest.mark.parametrize("scale", LawScale)
def test_a_curve_that_falls_from_the_start_has_its_law(scale: LawScale) -> None:
    # Made with sigma 0.8, kappa 0.05. Sigma alone would grow without an end: that broke the fit.
    found = fit((3, 18, 39, 65, 98), [3.1521, 1.8591, 1.1791, 0.739, 0.56851], scale=scale)
    fitted = (found.sigma.value, found.kappa.value)
    assert fitted == pytest.approx((0.7811, 0.04783), rel=2e-3)
    assert 0.1 < found.sigma.low < fitted[0]


def test_a_curve_that_only_falls_may_have_any_rate_of_one_copy() -> None:
    # On X the squares fall on and on as lambda, sigma and kappa grow together.
    curve = ((6, 14, 39, 309, 327), [3.03327, 2.05093, 1.18557, 0.190398, 0.182462])
    assert fit(*curve).sigma.value == pytest.approx(2.1834, rel=1e-4)
    none = fit_usl(*curve, [1] * 5, NOISE, LawScale.RATE)
    assert none == NoLaw("from 6 copies on rates only fall: any rate of one copy fits")


@pytest.mark.parametrize("scale", LawScale)
@pytest.mark.parametrize("sigma", [0.001, 0.2])
def test_a_curve_without_any_noise_has_an_interval_of_rounding(
    sigma: float, scale: LawScale
) -> None:
    copies = [2**power for power in range(11)]
    found = fit(copies, law(copies, 3.0, sigma, 0.0), scale=scale)
    assert (found.kappa.value, found.kappa.low, found.peak) == (0, 0, None)
    assert 0 < found.kappa.high < 1e-12
    assert found.limit == pytest.approx(3.0 / sigma)


def test_a_profile_with_a_hollow_beside_its_minimum_still_has_no_end() -> None:
    # The largest kappa that is possible has none: with a large sigma each kappa fits at .68 of the
    # squares that are allowed. Full steps to the minimum led beside it, to 1.7 of them.
    rates = [3.5686522, 3.4916373, 3.9233880, 3.4428618, 3.7021077]
    found = fit((4, 13, 21, 27, 1818), rates)
    assert (found.kappa.low, found.kappa.high) == (0, math.inf)


@pytest.mark.parametrize(
    ("function", "inside", "outside", "root"),
    [
        (lambda x: x**3 - 2, 0.0, 2.0, 2 ** (1 / 3)),
        (lambda x: 2 - x, 1e6, 0.0, 2.0),  # downwards
        (lambda x: math.inf if x > 3 else -1.0, 0.0, 8.0, 3.0),
        (lambda x: x**9 - 1e-9, 0.0, 1e3, 0.1),
        (lambda x: x - 1e-30, -1.0, 1.0, 0.0),
        (lambda x: x - 5, 0.0, 4.0, 4.0),  # nowhere: the end
        (lambda x: x + 5, 0.0, 4.0, 0.0),  # from the start
        (lambda x: x, 2.0, 2.0, 2.0),
    ],
)
def test_where_a_function_changes_its_sign_is_found_in_few_steps(
    function: Callable[[float], float], inside: float, outside: float, root: float
) -> None:
    asked: list[float] = []

    def counted(x: float) -> float:
        asked.append(x)
        return function(x)

    found = sign_change(counted, inside, outside)
    assert found == pytest.approx(root, rel=2e-7, abs=1e-12)
    assert len(asked) <= 60

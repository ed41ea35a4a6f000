"""Knee, plateau, fall and noise of a curve of throughput against copies."""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rater.analysis.stats.curves import CurveShape, curve_shape
from rater.analysis.stats.intervals import ASSUMED_SD, Noise, noise_within_rounds, run_to_run_noise

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
    found = noise_within_rounds(
        [{1: 1.0, 2: 2.0, 3: 0.5}, {1: 2.0, 2: 4.0, 3: 1.0}, {1: 4.0, 2: 8.0, 3: 2.0 * 1.04}]
    )
    assert found is not None
    # One cell of 3 x 3 that is off by d leaves 4/9 of its square.
    assert found.sd == pytest.approx(math.sqrt(4 / 9 * math.log(1.04) ** 2 / 4))
    assert (found.degrees, found.in_rounds) == (4, True)


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
            medians = [statistics.median(one.values()) for one in rates]
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
    copies, found = GRIDS[grid], []
    for _ in range(trials):
        rates = [
            [truth(n) * factor for factor in np.exp(rng.normal(0, sd, runs)).tolist()]
            for n in copies
        ]
        medians = [statistics.median(one) for one in rates]
        found.append(curve_shape(copies, medians, [runs] * len(copies), run_to_run_noise(rates)))
    return found


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
    assert sum(one.plateau == 8 for one in shapes) >= 90
    assert sum(one.falls_at is not None for one in shapes) <= 2

"""Curves that the law does not describe: those that saturate, and lack of fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rater.analysis.stats.curves import CurveShape, NoLaw, Usl, curve_shape, fit_usl
from rater.analysis.stats.intervals import run_to_run_noise
from rater.analysis.stats.saturation import Saturation, choose_model, fit_saturation

COPIES = (1, 2, 4, 8, 16, 32, 64)


def usl(n: int) -> float:
    return 100 * n / (1 + 0.02 * (n - 1) + 0.0005 * n * (n - 1))


def judge(
    rate: Callable[[int], float], runs: int, noise: float, seed: int, copies: Sequence[int] = COPIES
) -> tuple[Usl | NoLaw, Saturation | None, CurveShape]:
    """What is said of a made curve of so many runs a point."""
    random = np.random.default_rng(seed)
    rates = [[rate(n) * math.exp(random.normal(0, noise)) for _ in range(runs)] for n in copies]
    means = [math.exp(np.log(of_point).mean()) for of_point in rates]
    counts, seen = [runs] * len(copies), run_to_run_noise(rates)
    law = fit_usl(copies, means, counts, seen)
    return (
        *choose_model(law, copies, means, counts, seen),
        curve_shape(copies, means, counts, seen),
    )


@pytest.mark.parametrize("limit", [4, 11, 16, 24])
@pytest.mark.parametrize(("runs", "noise"), [(1, 0.005), (2, 0.005), (4, 0.02)])
def test_a_curve_that_saturates_has_no_law_and_no_peak(limit: int, runs: int, noise: float) -> None:
    for seed in range(20):
        law, saturation, _ = judge(lambda n: 100 * min(n, limit), runs, noise, seed)
        assert isinstance(law, NoLaw)
        assert "the curve saturates at" in law.reason
        assert saturation is not None
        assert saturation.copies == pytest.approx(limit, rel=0.1)


@pytest.mark.parametrize("rate", [usl, lambda n: 100 * n / (1 + 0.05 * (n - 1))])
@pytest.mark.parametrize(("runs", "noise"), [(1, 0.01), (2, 0.005), (4, 0.05)])
def test_the_law_stays_where_it_holds(
    rate: Callable[[int], float], runs: int, noise: float
) -> None:
    laws = [judge(rate, runs, noise, seed)[:2] for seed in range(30)]
    refused = sum(isinstance(law, NoLaw) or saturation is not None for law, saturation in laws)
    assert refused <= 2  # one in a hundred, and chance


def test_a_curve_that_neither_describes_has_no_law() -> None:
    for seed in range(20):
        law, saturation, _ = judge(
            lambda n: 100 * min(n, 16) * (1 if n <= 16 else 0.7), 3, 0.01, seed
        )
        assert isinstance(law, NoLaw)
        assert law.reason.startswith("it does not describe the curve: it misses by")
        assert saturation is None


def test_a_straight_line_does_not_saturate() -> None:
    assert fit_saturation((1, 2, 4, 8), (100, 200, 400, 800)) is None
    judged = [judge(lambda n: 100.0 * n, 3, 0.02, seed) for seed in range(20)]
    assert all(saturation is None for _, saturation, _ in judged)
    assert sum(isinstance(law, Usl) for law, _, _ in judged) <= 3  # one in twenty bends by chance


def test_no_gain_is_said_where_a_gain_is_excluded() -> None:
    flat = [judge(lambda n: 100 * min(n, 8), 4, 0.005, seed)[2] for seed in range(20)]
    assert sum(shape.plateau == 8 for shape in flat) >= 16
    # One run a point: noise of 5 % is assumed, which could hide a gain.
    once = [judge(lambda n: 100 * min(n, 8), 1, 0.005, seed)[2] for seed in range(20)]
    assert sum((shape.plateau, shape.maybe_plateau) == (None, 8) for shape in once) >= 16


def test_points_that_are_better_together_are_a_gain() -> None:
    # Each lies within noise of 5 %, all four do not.
    rates = (4990, 9960, 14930, 18720, 31690, 35560, 35490, 35970, 35290)
    copies = (1, 2, 3, 4, 8, 16, 24, 32, 48)
    shape = curve_shape(copies, rates, [1] * 9, run_to_run_noise([[rate] for rate in rates]))
    assert (shape.plateau, shape.maybe_plateau) == (None, 16)

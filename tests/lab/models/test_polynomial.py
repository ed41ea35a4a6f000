"""Fits with exact answers, and the errors of leaving one out against fits that really do so."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rater.analysis.stats.robust import Floats
from rater.lab.fits import aicc, fit_polynomial

X = np.array([0.0, 12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 87.5, 100.0])
# Anscombe's first data set: y = 3.00 + 0.500 x, R2 = 0.667, in every textbook.
ANSCOMBE_X = np.array([10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0])
ANSCOMBE_Y = np.array([8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68])


def test_a_line_and_a_parabola_are_found_as_they_are() -> None:
    line = fit_polynomial(X, 3 - 0.01 * X, 1)
    parabola = fit_polynomial(X, 3 - 0.02 * X + 1e-4 * X**2, 2)
    assert line is not None
    assert parabola is not None
    assert line.coefficients == pytest.approx((3, -0.01))
    assert parabola.coefficients == pytest.approx((3, -0.02, 1e-4))
    assert parabola.quality.r2 == pytest.approx(1.0)


def test_a_data_set_of_the_textbooks() -> None:
    fit = fit_polynomial(ANSCOMBE_X, ANSCOMBE_Y, 1)
    assert fit is not None
    assert fit.coefficients == pytest.approx((3.0001, 0.50009), abs=1e-4)
    assert fit.quality.r2 == pytest.approx(0.66654, abs=1e-5)
    assert fit.quality.adjusted_r2 == pytest.approx(0.62949, abs=1e-5)
    assert fit.sigma == pytest.approx(1.2366, abs=1e-4)  # residual standard error
    band = fit.band(np.array([9.0]))  # at the mean of x: t(9) s / sqrt(n)
    assert band == pytest.approx([2.262157 * 1.2366 / math.sqrt(11)], rel=1e-4)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_errors_of_leaving_one_out_are_those_of_fits_without_it(degree: int) -> None:
    fit = fit_polynomial(ANSCOMBE_X, ANSCOMBE_Y, degree)
    assert fit is not None
    assert fit.quality.left_out == pytest.approx(_one_by_one(degree))


def _one_by_one(degree: int) -> list[float]:
    found = []
    for place in range(len(ANSCOMBE_X)):
        kept = np.arange(len(ANSCOMBE_X)) != place
        by_others = np.polynomial.Polynomial.fit(ANSCOMBE_X[kept], ANSCOMBE_Y[kept], degree)
        found.append(by_others(ANSCOMBE_X[place]) / ANSCOMBE_Y[place] - 1)
    return found


def test_large_counts_keep_their_digits() -> None:
    cycles = X * 1e9
    fit = fit_polynomial(cycles, 2e9 + 0.5 * cycles + 1e-12 * cycles**2, 3)
    assert fit is not None
    assert fit.coefficients[1] == pytest.approx(0.5, rel=1e-6)
    assert fit.coefficients[2] == pytest.approx(1e-12, rel=1e-6)


def test_aicc_as_hurvich_and_tsai_have_it_and_none_of_too_few() -> None:
    assert aicc(8.0, 8, 3) == pytest.approx(0 + 6 + 24 / 4)
    assert aicc(8.0, 4, 3) is None


def test_what_x_has_too_few_values_for_is_not_fitted() -> None:
    twice: Floats = np.array([0.0, 0.0, 1.0, 1.0])
    assert fit_polynomial(twice, np.array([1.0, 2.0, 3.0, 4.0]), 2) is None
    line = fit_polynomial(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 1)
    assert line is not None
    assert (line.quality.adjusted_r2, line.quality.aicc, line.quality.left_out) == (
        None,
        None,
        None,
    )
    assert line.band(twice) is None

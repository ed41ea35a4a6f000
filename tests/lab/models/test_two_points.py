"""Lines through two layouts: their errors worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rater.lab.fits import shown_pairs, two_point_models

# A parabola 1 + x^2 at 0, 1, 2: the chord of the ends is 1 + 2 x, 3 at x = 1 where y is 2.
X, Y = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 5.0])


def test_errors_of_all_pairs_the_ends_first() -> None:
    ends, low, high = two_point_models(X, Y)
    assert (ends.first, ends.second, ends.errors) == (0, 2, (None, 0.5, None))
    # 1 + x is 3 at 2 where y is 5; -1 + 3 x is -1 at 0 where y is 1.
    assert low.errors[:2] == high.errors[1:] == (None, None)
    assert [low.errors[2], high.errors[0]] == pytest.approx([-0.4, -2.0])
    assert (low.outside, high.outside) == ((False, False, True), (True, False, False))
    assert ends.mean_error == ends.maximum_error == 0.5


def test_pairs_of_one_x_make_no_line() -> None:
    x = np.array([0.0, 0.0, 1.0])
    pairs = two_point_models(x, np.array([1.0, 1.5, 2.0]))
    assert [(one.first, one.second) for one in pairs] == [(0, 2), (1, 2)]
    assert two_point_models(x[1:], Y[1:]) == ()


def test_a_table_of_nine_layouts_has_the_ends_the_middle_and_the_quarters() -> None:
    x = np.arange(9.0)
    shown = shown_pairs(two_point_models(x, x + 1), x)
    assert [(one.first, one.second) for one in shown][:3] == [(0, 8), (0, 6), (2, 8)]
    assert len(shown) == 10
    assert {place for one in shown for place in (one.first, one.second)} == {0, 2, 4, 6, 8}

"""Models fitted to layouts: polynomials, and lines through two points; pure numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.robust import Floats

# -- Polynomials by least squares, with the errors they make where they were not fitted; pure numpy
#
# x is moved and scaled to -1..1 before the fit, so that cubes of large counts keep their digits.

NAMES = ("constant", "linear", "quadratic", "cubic")  # by degree
_EXACT = 1e-9  # of y: no clock tells less, and sums of squares below are no difference
CONFIDENCE = 0.95


class Quality(Struct, frozen=True, kw_only=True):
    """How well a model describes n layouts, and how well it predicts each from the others."""

    parameters: int  # coefficients; the variance is one more in AICc
    rss: float  # sum of squared residuals, in the unit of y squared
    r2: float | None  # None: y does not vary
    adjusted_r2: float | None  # None too where no degree of freedom is left
    aicc: float | None  # None: too few layouts for it (Hurvich and Tsai 1989)
    # (prediction - y) / y of each layout by the model of all the others; None: cannot be fitted
    left_out: tuple[float, ...] | None

    @property
    def mean_error(self) -> float | None:
        """Mean size of these errors: 0.02 is 2 %."""
        return float(np.mean(np.abs(self.left_out))) if self.left_out else None

    @property
    def maximum_error(self) -> float | None:
        """Largest of them."""
        return float(np.max(np.abs(self.left_out))) if self.left_out else None


class PolynomialFit(Struct, frozen=True, kw_only=True):
    """y = c0 + c1 x + c2 x^2 ..."""

    degree: int
    coefficients: tuple[float, ...]  # in the units of y and x, ascending powers
    quality: Quality
    degrees_of_freedom: int
    sigma: float  # standard deviation of the residuals, in the unit of y; nan without freedom
    _centre: float
    _half: float
    _scaled: Floats  # coefficients of the scaled x
    _covariance: Floats  # of these, without sigma squared

    @property
    def name(self) -> str:
        """Its name: linear, quadratic, ..."""
        return NAMES[self.degree]

    def predict(self, x: Floats) -> Floats:
        """Return y at each x."""
        powers = _polynomial_powers((x - self._centre) / self._half, self.degree)
        curve: Floats = powers @ self._scaled
        return curve

    def band(self, x: Floats) -> Floats | None:
        """Return half the width of the 95 % confidence band of the curve at each x.

        None without a degree of freedom.
        """
        if self.degrees_of_freedom < 1:
            return None
        rows = _polynomial_powers((x - self._centre) / self._half, self.degree)
        spread = np.sqrt(np.einsum("ij,jk,ik->i", rows, self._covariance, rows))
        width: Floats = t_quantile(CONFIDENCE, self.degrees_of_freedom) * self.sigma * spread
        return width

    def highest_term(self) -> tuple[float, float]:
        """Return the last coefficient of the scaled x and its standard error, in the unit of y.

        Of a line, the change over half the range of x; of a parabola, how far its middle lies from
        the chord between its ends.
        """
        error = self.sigma * math.sqrt(float(self._covariance[-1, -1]))
        return float(self._scaled[-1]), error


def fit_polynomial(x: Floats, y: Floats, degree: int) -> PolynomialFit | None:
    """Fit y (n values) by a polynomial of x; None when x has too few values for the degree.

    With A = Q R, the powers of the scaled x, the coefficients solve R c = Q' y.
    """
    distinct = len(np.unique(x))
    if distinct < degree + 1 or len(x) < 2:
        return None
    low, high = float(x.min()), float(x.max())
    centre, half = (low + high) / 2, (high - low) / 2 or 1.0
    rows = _polynomial_powers((x - centre) / half, degree)
    orthogonal, triangular = np.linalg.qr(rows)
    scaled = np.linalg.solve(triangular, orthogonal.T @ y)
    inverse = np.linalg.inv(triangular)
    residuals = y - rows @ scaled
    freedom = len(y) - degree - 1
    quality = quality_of(y, residuals, np.sum(orthogonal * orthogonal, axis=1), degree + 1)
    sigma = math.sqrt(quality.rss / freedom) if freedom > 0 else math.nan
    return PolynomialFit(
        degree=degree,
        coefficients=_unscaled(scaled, centre, half),
        quality=quality,
        degrees_of_freedom=freedom,
        sigma=sigma,
        _centre=centre,
        _half=half,
        _scaled=scaled,
        _covariance=inverse @ inverse.T,
    )


def quality_of(y: Floats, residuals: Floats, leverages: Floats, parameters: int) -> Quality:
    """Return the quality of a fit of n values y.

    R2 = 1 - rss / sum((y - mean y)^2). `leverages`: diagonal of the hat matrix, of which the errors
    of leaving one out follow (residual / (1 - leverage), Allen's PRESS).
    """
    n = len(y)
    scale = float(np.max(np.abs(y))) or 1.0
    rss = max(float(residuals @ residuals), n * (_EXACT * scale) ** 2)
    total = float(np.sum((y - y.mean()) ** 2))
    varies = total > n * (_EXACT * scale) ** 2
    r2 = max(0.0, 1 - rss / total) if varies else None
    freedom = n - parameters
    adjusted = None if r2 is None or freedom < 1 else 1 - (1 - r2) * (n - 1) / freedom
    shares = None
    if np.all(leverages < 1 - 1e-9) and np.all(y != 0):
        shares = tuple((residuals / (leverages - 1) / y).tolist())
    return Quality(
        parameters=parameters,
        rss=rss,
        r2=r2,
        adjusted_r2=adjusted,
        aicc=aicc(rss, n, parameters + 1),
        left_out=shares,
    )


def aicc(rss: float, n: int, parameters: int) -> float | None:
    """Return Akaike's criterion for least squares, corrected for small samples; smaller is better.

    n ln(rss / n) + 2 k + 2 k (k + 1) / (n - k - 1), k with the variance (Hurvich and Tsai,
    Biometrika 76, 1989). None unless n - k - 1 is positive.
    """
    room = n - parameters - 1
    if room < 1:
        return None
    return n * math.log(rss / n) + 2 * parameters + 2 * parameters * (parameters + 1) / room


def _polynomial_powers(scaled_x: Floats, degree: int) -> Floats:
    powers: Floats = np.vander(scaled_x, degree + 1, increasing=True)
    return powers


def _unscaled(scaled: Floats, centre: float, half: float) -> tuple[float, ...]:
    in_z = np.polynomial.Polynomial(scaled)
    in_x = in_z(np.polynomial.Polynomial([-centre / half, 1 / half]))
    found = np.zeros(len(scaled))
    found[: len(in_x.coef)] = in_x.coef
    return tuple(found.tolist())


# -- Lines through two layouts, and how wrong they are about all the others ------------------------
#
# Studies of page sizes often measure 4 KB and large pages and draw a line between them. OPERA D5.5
# (Table 1) fits such lines to pairs of layouts and predicts the rest; so is it done here, for every
# pair.


_MOST_PAIRED = 50  # layouts with a line through each pair: 1,225 lines


class TwoPointModel(Struct, frozen=True):
    """The line through two layouts."""

    first: int  # places of its layouts, the smaller x first
    second: int
    errors: tuple[float | None, ...]  # (prediction - y) / y of each layout, None of its own two
    outside: tuple[bool, ...]  # whether a layout lies beyond both: extrapolated

    @property
    def _sizes(self) -> list[float]:
        return [abs(error) for error in self.errors if error is not None]

    @property
    def mean_error(self) -> float:
        """Mean size of the errors: 0.02 is 2 %."""
        return float(np.mean(self._sizes))

    @property
    def maximum_error(self) -> float:
        """Largest of them."""
        return max(self._sizes)


def two_point_models(x: Floats, y: Floats) -> tuple[TwoPointModel, ...]:
    """Return the lines through pairs of layouts (x, y) of different x; () for fewer than three.

    Of many layouts they are those between the marks of `_marks`: lines through all pairs grow with
    the square of their number, and their errors with its cube. The pair of the smallest and the
    largest x stands first, the others follow by how far they lie apart.
    """
    if len(x) < 3 or np.any(y == 0):
        return ()
    order = [int(place) for place in np.argsort(x, kind="stable")]
    places = order if len(order) <= _MOST_PAIRED else _marks(order)
    pairs = [(first, second) for first, second in combinations(places, 2) if x[first] < x[second]]
    pairs.sort(key=lambda pair: -abs(float(x[pair[1]] - x[pair[0]])))
    return tuple(_fit_line(x, y, first, second) for first, second in pairs)


def shown_pairs(models: Sequence[TwoPointModel], x: Floats) -> list[TwoPointModel]:
    """Return the pairs of a table: the ends of x, each end with the middle, quarters.

    As OPERA's Table 1 has its few layouts; JSON has all that were made.
    """
    if not models:
        return []
    marks = _marks([int(place) for place in np.argsort(x, kind="stable")])
    wanted = {frozenset(pair) for pair in combinations(marks, 2)}
    return [model for model in models if frozenset((model.first, model.second)) in wanted]


def _marks(order: Sequence[int]) -> list[int]:
    """Return the layouts at the ends of x, at its middle and its quarters, each once."""
    last = len(order) - 1
    return list(dict.fromkeys(order[round(share * last)] for share in (0, 0.25, 0.5, 0.75, 1)))


def _fit_line(x: Floats, y: Floats, first: int, second: int) -> TwoPointModel:
    """Return the line through two layouts, and its errors (prediction - y) / y at each x."""
    slope = (y[second] - y[first]) / (x[second] - x[first])
    errors = (y[first] + slope * (x - x[first]) - y) / y
    return TwoPointModel(
        first=first,
        second=second,
        errors=tuple(
            None if place in (first, second) else float(error) for place, error in enumerate(errors)
        ),
        outside=tuple(bool(value < x[first] or value > x[second]) for value in x),
    )

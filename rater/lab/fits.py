"""Models fitted to layouts: polynomials, several counters, lines through two points; pure numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement

import numpy as np

from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.robust import Bools, Floats

# -- Polynomials by least squares, with the errors they make where they were not fitted; pure numpy
#
# x is moved and scaled to -1..1 before the fit, so that cubes of large counts keep their digits.

NAMES = ("constant", "linear", "quadratic", "cubic")  # by degree
_EXACT = 1e-9  # of y: no clock tells less, and sums of squares below are no difference
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Quality:
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


@dataclass(frozen=True, slots=True)
class PolynomialFit:
    """y = c0 + c1 x + c2 x^2 ..."""

    degree: int
    coefficients: tuple[float, ...]  # in the units of y and x, ascending powers
    quality: Quality
    degrees_of_freedom: int
    sigma: float  # standard deviation of the residuals, in the unit of y; nan without freedom
    _centre: float = field(repr=False)
    _half: float = field(repr=False)
    _scaled: Floats = field(repr=False)  # coefficients of the scaled x
    _covariance: Floats = field(repr=False)  # of these, without sigma squared

    @property
    def name(self) -> str:
        """Its name: linear, quadratic, ..."""
        return NAMES[self.degree]

    def at(self, x: Floats) -> Floats:
        """Return y at each x."""
        found: Floats = (
            _polynomial_powers((x - self._centre) / self._half, self.degree) @ self._scaled
        )
        return found

    def band(self, x: Floats) -> Floats | None:
        """Return half the width of the 95 % confidence band of the curve at each x.

        None where no degree of freedom is left.
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
    """Fit y (n values) by a polynomial of x; None where x has too few values for the degree."""
    distinct = len(np.unique(x))
    if distinct < degree + 1 or len(x) < 2:
        return None
    low, high = float(x.min()), float(x.max())
    centre, half = (low + high) / 2, (high - low) / 2 or 1.0
    rows = _polynomial_powers((x - centre) / half, degree)
    q, r = np.linalg.qr(rows)
    scaled = np.linalg.solve(r, q.T @ y)
    inverse = np.linalg.inv(r)
    residuals = y - rows @ scaled
    freedom = len(y) - degree - 1
    quality = quality_of(y, residuals, np.sum(q * q, axis=1), degree + 1)
    sigma = math.sqrt(quality.rss / freedom) if freedom > 0 else math.nan
    return PolynomialFit(
        degree,
        _unscaled(scaled, centre, half),
        quality,
        freedom,
        sigma,
        centre,
        half,
        scaled,
        inverse @ inverse.T,
    )


def quality_of(
    y: Floats, residuals: Floats, leverages: Floats, parameters: int, left_out: Floats | None = None
) -> Quality:
    """Return the quality of a fit.

    `leverages`: diagonal of the hat matrix, of which the errors of leaving one out follow
    (residual / (1 - leverage), Allen's PRESS); `left_out`: these errors where the model is not
    linear in its data, in the unit of y.
    """
    n = len(y)
    scale = float(np.max(np.abs(y))) or 1.0
    rss = max(float(residuals @ residuals), n * (_EXACT * scale) ** 2)
    total = float(np.sum((y - y.mean()) ** 2))
    varies = total > n * (_EXACT * scale) ** 2
    r2 = max(0.0, 1 - rss / total) if varies else None
    freedom = n - parameters
    adjusted = None if r2 is None or freedom < 1 else 1 - (1 - r2) * (n - 1) / freedom
    if left_out is None and np.all(leverages < 1 - 1e-9):
        left_out = residuals / (1 - leverages)
    shares = None if left_out is None or np.any(y == 0) else tuple((-left_out / y).tolist())
    return Quality(parameters, rss, r2, adjusted, aicc(rss, n, parameters + 1), shares)


def aicc(rss: float, n: int, parameters: int) -> float | None:
    """Return Akaike's criterion for least squares, corrected for small samples; smaller is better.

    n ln(rss / n) + 2 k + 2 k (k + 1) / (n - k - 1), k with the variance (Hurvich and Tsai,
    Biometrika 76, 1989). None where n - k - 1 is not positive.
    """
    room = n - parameters - 1
    if room < 1:
        return None
    return n * math.log(rss / n) + 2 * parameters + 2 * parameters * (parameters + 1) / room


def _polynomial_powers(z: Floats, degree: int) -> Floats:
    found: Floats = np.vander(z, degree + 1, increasing=True)
    return found


def _unscaled(scaled: Floats, centre: float, half: float) -> tuple[float, ...]:
    """Return coefficients of x from those of z = (x - centre) / half."""
    in_z = np.polynomial.Polynomial(scaled)
    in_x = in_z(np.polynomial.Polynomial([-centre / half, 1 / half]))
    found = np.zeros(len(scaled))
    found[: len(in_x.coef)] = in_x.coef
    return tuple(found.tolist())


# -- A sparse polynomial of several counters, as Mosmodel has it; pure numpy -----------------------
#
# Mosmodel (Agbarya, Yaniv, Gandhi and Tsafrir, MICRO 2020) describes run time by a polynomial of
# third degree of walk cycles, TLB misses and hits, of whose 19 terms LASSO keeps few. LASSO
# minimises |y - X b|^2 / 2n + lambda |b|_1 over centred, standardised terms; it is solved by
# coordinate descent with soft thresholds (Friedman, Hastie and Tibshirani, J. Stat. Software 33,
# 2010), for all folds of the cross-validation at once.

LEAST_LAYOUTS = 30
DEGREE = 3
_FOLDS = 5
_LAMBDAS = 24
_LEAST_LAMBDA = 1e-4  # of the one from which on no term is left
_MOST_SWEEPS = 60
_ENOUGH = 1e-4  # change of a coefficient, of the standard deviation of y


@dataclass(frozen=True, slots=True)
class SparseFit:
    """y as a few of the terms of a cubic polynomial."""

    features: tuple[str, ...]  # the counters it is of
    intercept: float
    terms: tuple[tuple[str, float], ...]  # "walks^2 hits", with its coefficient in raw units
    penalty: float  # lambda of the standardised terms, y in its own unit
    predictions: tuple[float, ...]  # of the layouts
    quality: Quality  # its parameters: the terms that are left, and the intercept

    name = "sparse"


def fit_sparse(features: Sequence[tuple[str, Floats]], y: Floats) -> SparseFit | None:
    """Fit y (n layouts) by features (name, n values each).

    None below 30 layouts, or where the features do not vary. Lambda is the one of the least error
    in five folds; errors of leaving one out are those of fits whose lambda was chosen by folds of
    the other layouts alone.
    """
    if len(y) < LEAST_LAYOUTS:
        return None
    names, terms = _terms(features)
    if not names:
        return None
    everything = np.ones((1, len(y)), dtype=bool)
    penalty = _best_penalties(terms, y, everything)
    coefficients, intercept = _fitted(terms, y, everything, penalty)
    predictions = terms @ coefficients[0] + intercept[0]
    others = ~np.eye(len(y), dtype=bool)
    by_others, constants = _fitted(terms, y, others, _best_penalties(terms, y, others))
    left_out = y - (np.einsum("ij,ij->i", terms, by_others) + constants)
    kept = [i for i, value in enumerate(coefficients[0]) if value]
    quality = quality_of(y, y - predictions, np.zeros(len(y)), len(kept) + 1, left_out)
    scale = _scales(features)
    return SparseFit(
        tuple(name for name, _ in features),
        float(intercept[0]),
        tuple((names[i], float(coefficients[0][i] / scale[i])) for i in kept),
        float(penalty[0]),
        tuple(predictions.tolist()),
        quality,
    )


def _sparse_powers(count: int) -> list[tuple[int, ...]]:
    """Return the exponents of all terms of degree 1 to 3."""
    return [
        tuple(chosen.count(place) for place in range(count))
        for degree in range(1, DEGREE + 1)
        for chosen in combinations_with_replacement(range(count), degree)
    ]


def _terms(features: Sequence[tuple[str, Floats]]) -> tuple[list[str], Floats]:
    """Return names and values (n layouts x terms) of features scaled to at most 1."""
    scaled = [values / (np.max(np.abs(values)) or 1.0) for _, values in features]
    names, columns = [], []
    for powers in _sparse_powers(len(features)):
        column = np.prod([values**p for values, p in zip(scaled, powers, strict=True)], axis=0)
        if np.ptp(column) == 0:
            return [], np.empty(0)
        factors = [
            name if power == 1 else f"{name}^{power}"
            for (name, _), power in zip(features, powers, strict=True)
            if power
        ]
        names.append(" ".join(factors))
        columns.append(column)
    return names, np.stack(columns, axis=1)


def _scales(features: Sequence[tuple[str, Floats]]) -> list[float]:
    """Return what each term was divided by."""
    highest = [float(np.max(np.abs(values))) or 1.0 for _, values in features]
    return [
        float(np.prod([value**p for value, p in zip(highest, powers, strict=True)]))
        for powers in _sparse_powers(len(features))
    ]


def _best_penalties(terms: Floats, y: Floats, members: Bools) -> Floats:
    """Return for each set of layouts (sets x n) the lambda of the least error in five folds."""
    sets, n = members.shape
    fold = np.arange(n) % _FOLDS  # neighbours (layouts stand in order) lie in different ones
    inner = (
        members[:, None, :] & (fold[None, None, :] != np.arange(_FOLDS)[None, :, None])
    ).reshape(sets * _FOLDS, n)
    of_set = _highest(terms, y, members)
    shares = np.geomspace(1.0, _LEAST_LAMBDA, _LAMBDAS)
    errors = np.zeros((sets, _LAMBDAS))
    tested = members[:, None, :] & (fold[None, None, :] == np.arange(_FOLDS)[None, :, None])
    state = _State(terms, y, inner)
    for place, share in enumerate(shares):
        coefficients, intercept = state.at(np.repeat(share * of_set, _FOLDS))
        predicted = (coefficients @ terms.T + intercept[:, None]).reshape(sets, _FOLDS, n)
        errors[:, place] = np.sum(np.where(tested, (predicted - y) ** 2, 0.0), axis=(1, 2))
    best: Floats = shares[np.argmin(errors, axis=1)] * of_set
    return best


def _fitted(terms: Floats, y: Floats, members: Bools, penalty: Floats) -> tuple[Floats, Floats]:
    """Return coefficients (sets x terms) and intercepts of sets of layouts."""
    state = _State(terms, y, members)
    found = state.at(_highest(terms, y, members))
    for share in np.geomspace(1.0, _LEAST_LAMBDA, _LAMBDAS):
        found = state.at(np.maximum(penalty, share * _highest(terms, y, members)))
    return found


def _highest(terms: Floats, y: Floats, members: Bools) -> Floats:
    """Return for each set the least lambda at which no term is left."""
    state = _State(terms, y, members)
    found: Floats = np.max(np.abs(state.products), axis=1)
    return found


class _State:
    """Coordinate descent of several sets of layouts (B sets) at once; warm from call to call."""

    def __init__(self, terms: Floats, y: Floats, members: Bools) -> None:
        weights = members / members.sum(axis=1, keepdims=True)  # B x n
        self.means = weights @ terms  # B x p
        self.mean_y = weights @ y
        squares = np.einsum("bn,np,nq->bpq", weights, terms, terms)
        covariance = squares - self.means[:, :, None] * self.means[:, None, :]
        self.scales = np.sqrt(np.maximum(np.einsum("bpp->bp", covariance), 1e-300))
        self.gram = covariance / (self.scales[:, :, None] * self.scales[:, None, :])
        with_y = np.einsum("bn,np,n->bp", weights, terms, y) - self.means * self.mean_y[:, None]
        self.products = with_y / self.scales
        self.size = float(np.std(y)) or 1.0
        self.found = np.zeros_like(self.means)

    def at(self, penalty: Floats) -> tuple[Floats, Floats]:
        """Return coefficients of the unscaled terms and intercepts at a lambda of each set."""
        found = self.found
        for _ in range(_MOST_SWEEPS):
            largest = 0.0
            for j in range(found.shape[1]):
                before = found[:, j].copy()
                rest = self.products[:, j] - np.einsum("bp,bp->b", self.gram[:, j], found) + before
                found[:, j] = np.sign(rest) * np.maximum(np.abs(rest) - penalty, 0.0)
                largest = max(largest, float(np.max(np.abs(found[:, j] - before))))
            if largest < _ENOUGH * self.size:
                break
        raw = found / self.scales
        return raw, self.mean_y - np.einsum("bp,bp->b", raw, self.means)


# -- Lines through two layouts, and how wrong they are about all the others ------------------------
#
# Studies of page sizes often measure 4 KB and large pages and draw a line between them. OPERA D5.5
# (Table 1) fits such lines to pairs of layouts and predicts the rest; so is it done here, for every
# pair.


@dataclass(frozen=True, slots=True)
class TwoPointModel:
    """The line through two layouts."""

    first: int  # places of its layouts, the smaller x first
    second: int
    errors: tuple[float | None, ...]  # (prediction - y) / y of each layout; None: it is one of them
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
    """Return the lines through all pairs of layouts of different x; () for fewer than three.

    The pair of the smallest and the largest x stands first, the others follow by how far they lie
    apart.
    """
    if len(x) < 3 or np.any(y == 0):
        return ()
    order = np.argsort(x, kind="stable")
    pairs = [(int(a), int(b)) for a, b in combinations(order, 2) if x[a] < x[b]]
    pairs.sort(key=lambda pair: -abs(float(x[pair[1]] - x[pair[0]])))
    return tuple(_line(x, y, a, b) for a, b in pairs)


def shown_pairs(models: Sequence[TwoPointModel], x: Floats) -> list[TwoPointModel]:
    """Return the pairs that a table has room for: ends, each end with the middle, quarters.

    As OPERA's Table 1 has its few layouts; JSON has all of them.
    """
    if not models:
        return []
    order = [int(place) for place in np.argsort(x, kind="stable")]
    last = len(order) - 1
    marks = [order[round(share * last)] for share in (0, 0.25, 0.5, 0.75, 1)]
    wanted = {frozenset(pair) for pair in combinations(dict.fromkeys(marks), 2)}
    return [one for one in models if frozenset((one.first, one.second)) in wanted]


def _line(x: Floats, y: Floats, a: int, b: int) -> TwoPointModel:
    slope = (y[b] - y[a]) / (x[b] - x[a])
    errors = (y[a] + slope * (x - x[a]) - y) / y
    return TwoPointModel(
        a,
        b,
        tuple(None if i in (a, b) else float(error) for i, error in enumerate(errors)),
        tuple(bool(value < x[a] or value > x[b]) for value in x),
    )

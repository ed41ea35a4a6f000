"""A sparse polynomial of several counters, as Mosmodel has it; pure numpy.

Mosmodel (Agbarya, Yaniv, Gandhi and Tsafrir, MICRO 2020) describes run time by a polynomial of
third degree of walk cycles, TLB misses and hits, of whose 19 terms LASSO keeps few. LASSO minimises
|y - X b|^2 / 2n + lambda |b|_1 over centred, standardised terms; it is solved by coordinate descent
with soft thresholds (Friedman, Hastie and Tibshirani, J. Stat. Software 33, 2010), for all folds
of the cross-validation at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from rater.analysis.models.polynomial import Quality, quality_of
from rater.analysis.stats.robust import Bools, Floats

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


def _powers(count: int) -> list[tuple[int, ...]]:
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
    for powers in _powers(len(features)):
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
        for powers in _powers(len(features))
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

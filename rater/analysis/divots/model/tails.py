"""How often single values lie far out, learnt from the run itself; pure.

A normal distribution would call every late copy a fault. The tail here is a mixture of Student's
t, a logistic and a Laplace distribution at several scales, weighed by how well each fits the
values of the run.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import Final

import numpy as np

from rater.analysis.divots.model.nulls import evidence_of_t, log_sum_exp
from rater.analysis.stats.robust import Floats

_T_DF: Final = np.array([3.0, 4.0, 5.0, 7.0, 10.0, 16.0, 30.0, 1e5])
# Logistic and Laplace of unit variance: tails of what can only be late are exponential.
_LOGISTIC, _LAPLACE = math.pi / math.sqrt(3), math.sqrt(2)
# Prior of the eight t, the logistic and the Laplace. Chosen: half of all runs are about normal.
# Equal weights are simulated beside them.
_LN_PRIOR: Final = np.log(np.array([0.01, 0.03, 0.03, 0.05, 0.07, 0.10, 0.16, 0.35, 0.15, 0.05]))
# Values come in units of a robust sd, which misses the tail's own scale by about a quarter.
_SCALES: Final = np.exp(np.linspace(-0.7, 0.5, 13))
_SCALE_SD: Final = 0.25  # ln, of the prior of scales
# Values from which slow and fast have a tail each. Chosen (sensitivity simulated).
_SIDED_FROM: Final = 60
_MOST_POINTS: Final = 600  # values that are fitted one by one, for speed alone
# Prior weight of a benchmark's own tail. Chosen (sensitivity simulated).
_OWN_TAIL_WEIGHT: Final = 0.4
_OUTLYING_GAP: Final = 7.0  # nats of a gap that values beyond are left out for: 1 in 1,100
_PARETO_INDEX: Final = 3.0  # of the heaviest tail in the mixture, t with 3 degrees of freedom
_ONE_SD: Final = 0.6827  # share of normal values within one standard deviation
_LEAST_SIZE: Final = 1e-9  # sd, where a logarithm is taken
_NO_CUT: Final = 1e9  # sd, where all values are seen
_LARGEST_OUTLIERS: Final = 60  # values that may be left out, a fifth of them at most
_LEAST_OUTLYING: Final = (3.0, 4.0)  # sd, and times the typical size

_LN_T_FACTORS: Final = np.array(
    [
        math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        for df in _T_DF.tolist()
    ]
)
# Deviations, in sd, at which the evidence is tabulated.
_GRID: Final = np.concatenate((np.linspace(0, 12, 97), np.geomspace(12.2, 1e5, 150)))


class Tail:
    """The distribution of single values, and the evidence of one that lies far out.

    Values that stand apart are not part of their own null: the largest, and all above a gap.
    """

    def __init__(self, deviations: Floats, of_all: Tail | None = None) -> None:
        """Learn from standardised values about zero, of either sign.

        `of_all` is the tail of all benchmarks, from which that of one benchmark may differ.
        """
        size = np.sort(np.abs(deviations[~np.isnan(deviations)]).ravel())[::-1]
        outlying = _count_outlying(size)
        points = size[outlying:]
        if len(points):
            cut = math.sqrt(size[outlying - 1] * max(points[0], _LEAST_SIZE))
        else:
            cut = _NO_CUT
        ln_prior = _prior_of_components()
        if of_all is not None:
            ln_prior = np.logaddexp(of_all._ln_weight, ln_prior + math.log(_OWN_TAIL_WEIGHT))
        fit = _fit_mixture(points, cut)
        self._ln_weight: Floats = fit + ln_prior - log_sum_exp(fit + ln_prior, (0, 1))

    @cached_property
    def _evidence(self) -> Floats:
        """The evidence at points of the grid: many tails are only what others are learnt from."""
        by_component = self._ln_weight[..., None] - _evidence_on_grid()
        return -log_sum_exp(by_component, (0, 1))

    def evidence(self, deviations: Floats) -> Floats:
        """Return -ln of the two-sided probability of one value as far out, in nats."""
        return np.maximum(0.0, np.interp(np.abs(deviations), _GRID, self._evidence))


class SidedTail:
    """The tails of slow and of fast values, one for each side where there are many."""

    def __init__(self, deviations: Floats, of_all: SidedTail | None = None) -> None:
        """Learn from standardised values about zero."""
        if of_all is None:
            self.slow = self.fast = Tail(deviations)
        else:
            self.slow, self.fast = of_all.slow, of_all.fast
        if of_all is not None or np.sum(~np.isnan(deviations)) >= _SIDED_FROM:
            self.slow = Tail(deviations[deviations > 0], self.slow)
            self.fast = Tail(deviations[deviations < 0], self.fast)

    def evidence(self, deviations: Floats) -> Floats:
        """Return -ln of the two-sided probability of one value as far out, by its side."""
        return np.where(
            deviations > 0, self.slow.evidence(deviations), self.fast.evidence(deviations)
        )


def _fit_mixture(points: Floats, cut: float) -> Floats:
    """Return the ln likelihood (10 shapes, scales) of values (N,), the largest first.

    Values beyond `cut` were left out, so each component is truncated there.
    """
    count = np.ones(len(points))
    if len(points) > _MOST_POINTS:  # the outer half one by one, and every n-th of the others
        outer, inner = np.split(points, [_MOST_POINTS // 2])
        thinned = inner[:: -(-len(inner) // (_MOST_POINTS // 2))]
        points = np.concatenate((outer, thinned))
        count = np.repeat((1.0, len(inner) / len(thinned)), (len(outer), len(thinned)))
    scaled = points[None] / _SCALES[:, None]
    fit: Floats = np.sum(count * (_ln_densities(scaled) - np.log(_SCALES)[:, None]), axis=2)
    beyond = np.exp(-_evidence_by_shape(cut / _SCALES))
    fit -= float(np.sum(count)) * np.log1p(-np.minimum(beyond, 0.99))
    return fit


def _ln_densities(deviations: Floats) -> Floats:
    """Return ln of the densities of all shapes (10, ...)."""
    df = _T_DF.reshape(-1, *(1,) * deviations.ndim)
    factors = _LN_T_FACTORS.reshape(df.shape)
    student = factors - (df + 1) / 2 * np.log1p(deviations * deviations / df)
    scaled = _LOGISTIC * deviations
    logistic = math.log(_LOGISTIC) - scaled - 2 * np.log1p(np.exp(-_LOGISTIC * deviations))
    laplace = math.log(_LAPLACE / 2) - _LAPLACE * deviations
    return np.concatenate((student, logistic[None], laplace[None]))


def _evidence_by_shape(deviations: Floats) -> Floats:
    """Return -ln of the two-sided probability of deviations by each shape (10, ...)."""
    student = evidence_of_t(deviations, _T_DF.reshape(-1, *(1,) * deviations.ndim))
    scaled = _LOGISTIC * deviations
    logistic = scaled - math.log(2) + np.log1p(np.exp(-_LOGISTIC * deviations))
    return np.concatenate((student, logistic[None], (_LAPLACE * deviations)[None]))


@cache
def _prior_of_components() -> Floats:
    """Return ln of the prior (10 shapes, scales), whose sum is 1."""
    ln_prior = _LN_PRIOR[:, None] - 0.5 * np.square(np.log(_SCALES) / _SCALE_SD)
    prior: Floats = ln_prior - log_sum_exp(ln_prior, (0, 1))
    return prior


@cache
def _evidence_on_grid() -> Floats:
    """Return the evidence at points of the grid by each shape and scale (10, scales, points)."""
    return _evidence_by_shape(_GRID / _SCALES[:, None])


def _count_outlying(size: Floats) -> int:
    """Return how many of n sizes, the largest first, stand apart from the rest: at least one.

    Of a power law of index a, a * m * ln(x_m / x_(m+1)) between the m-th largest and the next is
    exponential of mean 1 (Renyi 1953, Acta Mathematica Hungarica 4). A gap counts that would be
    so wide once in exp(7), with m tries.
    """
    n = len(size)
    if n < 2:
        return n
    most = max(1, min(n // 5, _LARGEST_OUTLIERS, n - 1))
    m = np.arange(1, most + 1)
    typical = max(float(np.quantile(size, _ONE_SD)), _LEAST_SIZE)
    upper, lower = np.maximum(size[:most], _LEAST_SIZE), np.maximum(size[1 : most + 1], _LEAST_SIZE)
    gap = _PARETO_INDEX * m * np.log(upper / lower)
    least_sd, least_times = _LEAST_OUTLYING
    is_far = size[:most] > max(least_times * typical, least_sd)
    outlying = (gap > _OUTLYING_GAP + np.log(m)) & is_far
    return int(m[outlying].max()) if outlying.any() and n - most > 2 else 1

"""Robust means and variances, and how unlikely a difference is among healthy parts; pure.

*Evidence* is in nats: -ln of the probability that chance alone makes a difference as large. The
terms, and where each constant comes from, are in docs/develop/detector-terms.md; figures called
simulated are made again by `python -m benchmarks.divot_cases.constants`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, median, median_without_gaps

ABOUT_NORMAL: Final = 1e6  # degrees of freedom from which Student's t is a normal

# -- Probabilities ---------------------------------------------------------------------------------


def ln_normal_tail(deviate: Floats) -> Floats:
    """Return ln P(Z > z) of a normal Z, for z >= 0; of a negative z the value at 0.

    P(Z > z) < phi(z) * 4 / (3 z + sqrt(z^2 + 8)), a bound by Sampford (1953, Annals of Mathematical
    Statistics 24) that is 13 % too large at 0, 1.7 % at 1 and 0.3 % at 2.
    """
    z = np.maximum(deviate, 0.0)
    return -z * z / 2 - 0.5 * math.log(2 * math.pi) + np.log(4 / (3 * z + np.sqrt(z * z + 8)))


def normal_deviate_of_t(t_value: Floats, df: Floats | float) -> Floats:
    """Return the normal deviate z whose tail is that of Student's t with n degrees of freedom.

    z = (8 n + 1) / (8 n + 3) * sqrt(n * ln(1 + t^2 / n)), Wallace (1959, Annals of Mathematical
    Statistics 30).
    """
    n = np.maximum(df, 1.0)
    deviate: Floats = (8 * n + 1) / (8 * n + 3) * np.sqrt(n * np.log1p(np.square(t_value) / n))
    return deviate


def evidence_of_t(t_value: Floats, df: Floats | float) -> Floats:
    """Return the evidence, nats, of a value of Student's t: -ln of its two-sided probability."""
    deviate = normal_deviate_of_t(np.abs(t_value), df)
    return np.maximum(0.0, -ln_normal_tail(deviate) - math.log(2))


def log_sum_exp(ln_values: Floats, axis: int | tuple[int, ...], keepdims: bool = False) -> Floats:
    """Return ln of the sum, along axes, of values given by their logarithms."""
    top = ln_values.max(axis=axis, keepdims=True)
    total: Floats = top + np.log(np.sum(np.exp(ln_values - top), axis=axis, keepdims=True))
    return total if keepdims else total.squeeze(axis)


def ln_choose(n: int, k: int) -> float:
    """Return ln of the number of sets of k among n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def least_sufficient(
    suffices: Callable[[Floats], Bools], low: Floats, high: Floats, halvings: int = 10
) -> Floats:
    """Return the least values between `low` and `high` that suffice, by bisection."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = np.where(suffices(middle), (low, middle), (middle, high))
    return high


# -- Robust means and variances --------------------------------------------------------------------

HUBER_SD: Final = 1.5  # residuals count no more than this; 96 % efficient if normal (Huber 1964)
_CAP_SD: Final = 3.5  # residuals in a variance; one in 2,100 normal values is beyond
_CAPPED_FROM: Final = 6  # values: of fewer, none is capped
_LEAST_SCATTER: Final = 1e-9  # ln^2, against division by zero
_TRIMMED_SHARE: Final = 8  # of so many rows the one that differs most is left out


class PooledVariance(Struct, frozen=True):
    """The typical variance of rows, and the weight that it has in each row."""

    variance: float
    df: float  # prior degrees of freedom


class Variances(Struct, frozen=True, eq=False):
    """Variances of rows (R,) with their degrees of freedom (R,)."""

    variance: Floats
    df: Floats


class SumOfSquares(Struct, frozen=True, eq=False):
    """Sums of squares about zero, and how many values each is of."""

    squares: Floats
    count: Floats


def huber_mean(values: Floats, sd: Floats | float) -> Floats:
    """Return the mean along the last axis of values clipped about their median.

    One step of Huber's M-estimate (1964, Annals of Mathematical Statistics 35). Of one or two
    values the plain mean. `sd` is the standard deviation of one value, without the last axis.
    """
    if values.shape[-1] == 1:
        return values[..., 0]
    has_gaps = bool(np.isnan(values).any())
    if values.shape[-1] < 3 and not has_gaps:
        return values.mean(axis=-1)
    centre = median(values) if has_gaps else median_without_gaps(values, axis=-1)
    reach = HUBER_SD * np.broadcast_to(np.asarray(sd), centre.shape)[..., None]
    clipped = np.clip(values - centre[..., None], -reach, reach)
    if not has_gaps:
        return centre + clipped.mean(axis=-1)
    count = np.sum(~np.isnan(values), axis=-1)
    mean: Floats = centre + np.nansum(clipped, axis=-1) / np.maximum(count, 1)
    return mean


def capped_squares(
    values: Floats, axis: int | tuple[int, ...], clock_step: Floats | float = 0.0
) -> SumOfSquares:
    """Return sums of squares along axes; a value beyond 3.5 robust sd counts as 3.5 (winsorised).

    `clock_step`: ln, of each sum. A robust sd is at least half a step, since most values of a
    coarse clock are equal.
    """
    count = np.sum(~np.isnan(values), axis=axis)
    # Zero where all values are NaN, because numpy warns of the median of nothing.
    size = np.where(np.expand_dims(count, axis) > 0, np.abs(values), 0.0)
    median_of = np.nanmedian if np.isnan(size).any() else median_without_gaps
    middle = median_of(size, axis=axis, keepdims=True)
    few = np.expand_dims(count, axis) < _CAPPED_FROM
    step = np.expand_dims(np.broadcast_to(clock_step, count.shape), axis)
    cap = np.where(few, np.inf, _CAP_SD * np.maximum(MAD_TO_SD * middle, step / 2))
    squares = np.nansum(np.minimum(size, cap) ** 2, axis=axis)
    return SumOfSquares(squares, count.astype(float))


def pool_variance(squares: Floats, df: Floats, least_sd: Floats | float) -> PooledVariance:
    """Return the typical variance of rows and the prior degrees of freedom that it is worth.

    Empirical Bayes on ln variance, by moments. The logarithm of a sample variance with n degrees
    of freedom has variance of about 2 / n by chance; scatter beyond that is between rows. Rows
    that scatter no more than chance are taken for one population (Smyth 2004, Statistical
    Applications in Genetics and Molecular Biology 3, has the same with exact moments).
    """
    n = np.maximum(df, 0.5)
    ln_variance = np.log(np.maximum(squares / n, np.square(least_sd)))
    if len(ln_variance) > 2:
        centre = float(median_without_gaps(ln_variance))
    else:
        centre = float(np.sum(n * ln_variance) / np.sum(n))
    scatter = np.sort((ln_variance - centre) ** 2 - 2 / n)
    # Rows that stand out are not typical.
    trimmed = max(len(scatter) // _TRIMMED_SHARE, len(scatter) > 2)
    kept = scatter[: max(1, len(scatter) - trimmed)]
    prior_df = min(2 / max(float(np.mean(kept)), _LEAST_SCATTER), float(np.sum(n)))
    return PooledVariance(math.exp(centre), prior_df)


def shrink_variances(squares: Floats, df: Floats, least_sd: Floats | float) -> Variances:
    """Return the variance of each row, shrunk towards the typical one.

    Of a row with sum of squares S and n degrees of freedom: (S + n0 * s0) / (n + n0), where n0 and
    s0 are df and variance of `pool_variance`.
    """
    if len(squares) == 1:
        n = np.maximum(df, 1.0)
        return Variances(np.maximum(squares / n, np.square(least_sd)), n)
    pooled = pool_variance(squares, df, least_sd)
    n = np.maximum(df, 0.5)
    variance = (squares + pooled.df * pooled.variance) / (n + pooled.df)
    return Variances(np.maximum(variance, np.square(least_sd)), n + pooled.df)


# -- The prior of how much healthy parts differ ----------------------------------------------------

_GRID_POINTS: Final = 14  # ten times as many change no evidence by more than 1.3 % (simulated)
_LARGEST_SD: Final = 0.3  # ln: healthy parts do not differ by more
_SMALLEST_SD: Final = 8  # times less than the typical one, which no benchmark tells from none


class SpreadPrior:
    """The prior of tau, the standard deviation between healthy parts, as weights on a grid.

    ln tau is normal about ln `typical` (in ln of a time) with standard deviation ln `factor`.
    """

    def __init__(self, typical: float, factor: float) -> None:
        """Weigh the grid of tau, which reaches from an eighth of `typical` to 30 %."""
        self.sd = np.geomspace(typical / _SMALLEST_SD, _LARGEST_SD, _GRID_POINTS)
        away = np.log(self.sd / typical) / math.log(factor)
        self.ln_weight = -0.5 * away**2 - log_sum_exp(-0.5 * away**2, 0)
        self.typical = typical

    def evidence(
        self,
        difference: Floats,
        variance: Floats,
        df: Floats | float,
        *,
        variance_ratio: Floats | float = 1.0,
        other_squares: Floats | float = 0.0,
        other_df: Floats | float = 0.0,
    ) -> Floats:
        """Return the evidence, nats, of differences d between a part and the others.

        -ln of the posterior predictive probability, sum over tau of w(tau) * P(|t| > |d| / s(tau)),
        with s(tau)^2 = g * (tau^2 + v); `variance` is v, by chance in one part with `df`
        degrees of freedom; `variance_ratio` is g. The weights w are the prior times the likelihood
        of `other_squares`, the squares of the other parts with `other_df` degrees of freedom. t has
        df * ((tau^2 + v) / v)^2 degrees of freedom (Satterthwaite 1946, Biometrics 2), because
        only v is estimated: the doubt about tau is in the weights.
        """
        difference, variance = np.asarray(difference, float), np.asarray(variance, float)
        total = np.square(self.sd) + variance[..., None]
        squares, count = np.asarray(other_squares, float), np.asarray(other_df, float)
        ln_weight = self.ln_weight - 0.5 * (
            count[..., None] * np.log(total) + squares[..., None] / total
        )
        ln_weight = ln_weight - log_sum_exp(ln_weight, -1, keepdims=True)
        free = np.asarray(df, float)[..., None] * np.square(
            total / np.maximum(variance[..., None], 1e-30)
        )
        width = np.sqrt(total * np.asarray(variance_ratio, float)[..., None])
        t_value = difference[..., None] / width
        ln_probability = ln_weight - evidence_of_t(t_value, np.minimum(free, ABOUT_NORMAL))
        return np.maximum(0.0, -log_sum_exp(ln_probability, -1))

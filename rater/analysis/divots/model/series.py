"""Patterns of a series over the iterations and how unlikely they are by chance; pure.

A series is noise whose neighbours may be alike: y_t = rho * y_(t-1) + noise, a first-order
autoregressive process. rho is not known: six values are weighed by how well each fits. Each
pattern is estimated by generalised least squares under each of them (Prais and Winsten 1954).

Shapes: R rows (benchmarks, or the mean of all), I iterations, H patterns by number: I single
iterations, then steps from the third iteration on, the trend, and warm-ups that wear off. Windows
of several iterations, where they are searched, come last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.effects import EffectScope
from rater.analysis.divots.model.nulls import (
    ABOUT_NORMAL,
    SpreadPrior,
    evidence_of_t,
    log_sum_exp,
)
from rater.analysis.divots.model.tails import Tail
from rater.analysis.stats.robust import Floats, Ints, median_without_gaps

STEP_FROM: Final = 5  # iterations: fewer have no two sides of two
_TREND_FROM: Final = 4  # iterations: a line through three leaves one degree of freedom
_CORRELATED_FROM: Final = 4  # iterations: fewer say nothing of their neighbours
_CORRELATIONS: Final = np.array([0.0, 0.4, 0.7, 0.85, 0.93, 0.98])
# Prior. Chosen: half of all series are white (equal weights simulated).
_LN_PRIOR: Final = np.log(np.array([0.5, 0.15, 0.1, 0.1, 0.1, 0.05]))
# Degrees of freedom that a pattern found before has taken: one, and a half for its choice. Chosen
# (sensitivity simulated).
_TAKEN_DF: Final = 1.5
# Most degrees of freedom of other benchmarks' noise in that of one. Chosen (sensitivity simulated).
_MOST_PRIOR_DF: Final = 8.0
_MOST_JUDGED: Final = 60  # patterns of a sort that are judged in full, for speed
_TAIL_FROM: Final = 12  # values, of which a tail of single ones can be learnt
_MOST_ROWS: Final = 8  # with more, leaving one out hardly moves their median
_LONGEST_WITH_WINDOWS: Final = 60  # iterations, for speed: their number grows with the square
_LONGEST_FADING: Final = 512  # iterations, for speed: in a longer series a step says the same
_LEAST_INFORMATION: Final = 1e-12  # against division by zero


def pattern_weights(number: int, iterations: int) -> tuple[Floats, EffectScope]:
    """Return the weights (I,) of a pattern by its number, and its scope."""
    every = np.arange(iterations)
    if number < iterations:
        return (every == number).astype(np.float64), EffectScope.CELL
    trend = trend_number(iterations)
    if number < trend:
        return (every >= number - iterations + 2).astype(np.float64), EffectScope.STEP
    if number == trend:
        return every.astype(np.float64) / (iterations - 1) - 0.5, EffectScope.TREND
    first_window = trend + 1 + len(_all_fading_weights(iterations))
    if number < first_window:
        return _fading_weights(number - trend + 1, iterations), EffectScope.STEP
    starts, ends = _all_windows(iterations)
    place = number - first_window
    return ((every >= starts[place]) & (every < ends[place])).astype(np.float64), EffectScope.STEP


def trend_number(iterations: int) -> int:
    """Return the number of the trend among the patterns of so many iterations."""
    return 2 * iterations - 3 if iterations >= STEP_FROM else iterations


def _fading_weights(length: int, iterations: int) -> Floats:
    """Return the weights of a warm-up whose last iteration has about half of the first one's."""
    weights = np.zeros(iterations)
    weights[:length] = 1 - np.arange(length) / (2 * length)
    return weights


@lru_cache(maxsize=16)
def _all_fading_weights(iterations: int) -> Floats:
    """Return warm-ups of 2 to half of the iterations (K, I)."""
    longest = iterations // 2 if STEP_FROM <= iterations <= _LONGEST_FADING else 1
    fading = [_fading_weights(length, iterations) for length in range(2, longest + 1)]
    return np.array(fading).reshape(-1, iterations)


@lru_cache(maxsize=16)
def _all_windows(iterations: int) -> tuple[Ints, Ints]:
    """Return the first iteration, and that after the last, of windows of up to half of all.

    None starts with the first iteration or ends with the last: those are steps.
    """
    first, after = np.triu_indices(iterations, 2)
    inside = (first > 0) & (after < iterations) & (after - first <= iterations // 2)
    return first[inside], after[inside]


def windows_number(iterations: int) -> int:
    """Return how many windows there are among the patterns of so many iterations."""
    return len(_all_windows(iterations)[0]) if _has_windows(iterations) else 0


def _has_windows(iterations: int) -> bool:
    return STEP_FROM <= iterations <= _LONGEST_WITH_WINDOWS


# -- Generalised least squares ---------------------------------------------------------------------


class PatternEstimates(Struct, frozen=True, eq=False, kw_only=True):
    """Estimates of all patterns on rows, under one correlation of neighbours."""

    effect: Floats  # (R, H) size, ln
    information: Floats  # (H,) 1 / variance of the size, at unit variance of the noise
    squares_without: Floats  # (R, H) sum of squares that the pattern leaves
    squares: Floats  # (R,) sum of squares about the mean
    ln_evidence: float  # ln likelihood by the correlation alone, at equal squares


def estimate_patterns(rows: Floats, rho: float, *, with_windows: bool = False) -> PatternEstimates:
    """Estimate all patterns beside the mean on rows (R, I).

    Products with the inverse covariance V^-1 are V^-1 y = W' W y, with W the whitening. Of a
    pattern p, centred on the mean 1, size = p' V^-1 y / p' V^-1 p.
    """
    iterations = rows.shape[1]
    first = math.sqrt(1 - rho * rho)
    # The rows, and a constant row for the mean, by the inverse of their covariance.
    inverse = _times_inverse(np.concatenate((rows, np.ones((1, iterations)))), rho)
    products, own_products = _products_with_patterns(inverse, rho, with_windows=with_windows)
    mean = inverse.sum(axis=1)
    of_mean = products[-1]
    covariance = products[:-1] - of_mean * (mean[:-1] / mean[-1])[:, None]
    information = np.maximum(own_products - of_mean**2 / mean[-1], _LEAST_INFORMATION)
    squares = np.sum(rows * inverse[:-1], axis=1) - mean[:-1] ** 2 / mean[-1]
    return PatternEstimates(
        effect=covariance / information,
        information=information,
        squares_without=np.maximum(squares[:, None] - covariance**2 / information, 0.0),
        squares=squares,
        ln_evidence=math.log(first) - 0.5 * math.log(mean[-1]),
    )


def _whiten(rows: Floats, rho: float) -> Floats:
    """Return rows without the correlation of neighbours: y_t - rho * y_(t-1)."""
    white = rows.copy()
    white[..., 1:] -= rho * rows[..., :-1]
    white[..., 0] *= math.sqrt(1 - rho * rho)
    return white


def _times_inverse(rows: Floats, rho: float) -> Floats:
    """Return rows times the inverse covariance: whitened, and whitened backwards."""
    white = _whiten(rows, rho)
    inverse = white.copy()
    inverse[:, 0] *= math.sqrt(1 - rho * rho)
    inverse[:, :-1] -= rho * white[:, 1:]
    return inverse


def _products_with_patterns(
    inverse: Floats, rho: float, *, with_windows: bool
) -> tuple[Floats, Floats]:
    """Return p' V^-1 y of all patterns and rows (R, H), and p' V^-1 p (H,).

    A window of m iterations is whitened to 1, then 1 - rho in each further one, and -rho behind it.
    """
    iterations = inverse.shape[1]
    of_singles = np.full(iterations, 1 + rho**2)
    of_singles[[0, -1]] = 1.0
    products, own_products = [inverse], [of_singles]
    if iterations >= STEP_FROM:
        start = np.arange(2, iterations - 1)
        sums = np.cumsum(inverse[:, ::-1], axis=1)[:, ::-1]
        products.append(sums[:, start])
        own_products.append(1 + (1 - rho) ** 2 * (iterations - 1 - start))
    if iterations >= _TREND_FROM:
        trend = np.linspace(-0.5, 0.5, iterations)[None]
        slopes = np.concatenate((trend, _all_fading_weights(iterations)))
        products.append(inverse @ slopes.T)
        own_products.append(np.sum(_whiten(slopes, rho) ** 2, axis=1))
    if with_windows and _has_windows(iterations):
        first, after = _all_windows(iterations)
        total = np.concatenate((np.zeros((len(inverse), 1)), inverse.cumsum(axis=1)), axis=1)
        products.append(total[:, after] - total[:, first])
        own_products.append(1 + (after - first - 1) * (1 - rho) ** 2 + rho**2)
    return np.concatenate(products, axis=1), np.concatenate(own_products)


# -- The evidence of patterns ----------------------------------------------------------------------


class PatternTest(Struct, frozen=True, kw_only=True):
    """A pattern on one row."""

    row: int
    pattern: int
    size: float  # ln
    error: float  # standard error, ln
    evidence: float  # nats
    likelihood_gain: float  # nats against no pattern


class _Pairs(Struct, frozen=True, eq=False, kw_only=True):
    """N pairs of a row and a pattern that are judged, with the noise of each."""

    row: Ints  # (N,)
    pattern: Ints  # (N,)
    # Of each correlation (N,): squares that other rows add, and their df.
    other_squares: list[Floats]
    other_df: float
    variance: Floats  # (N, T) of the noise, for each standard deviation of the prior
    df: Floats  # (N, T)
    residual_df: float  # of the row itself


class _WeighedFit(Struct, frozen=True, eq=False, kw_only=True):
    """N pairs under one correlation and T standard deviations of the prior."""

    ln_weight: Floats  # (N, T) of the posterior, not normalised
    evidence: Floats  # (N, T) nats
    ln_with: Floats  # (N, T) ln likelihood with the pattern
    ln_without: Floats  # (N, T) and without
    size: Floats  # (N,)
    information: Floats  # (N,)


class _Posterior(Struct, frozen=True, eq=False, kw_only=True):
    """N pairs under K correlations and T standard deviations of the prior."""

    ln_weight: Floats  # (N, K, T)
    evidence: Floats  # (N, K, T) nats
    ln_with: Floats  # (N, K, T) ln likelihood with the pattern
    ln_without: Floats  # (N, K, T) and without
    size: Floats  # (N, K)
    information: Floats  # (N, K)


class SeriesRows(Struct, frozen=True, eq=False, kw_only=True):
    """Series that are judged together: the noise of each is a prior for the others."""

    rows: Floats  # (R, I) ln
    variance: Floats  # (R,) of each value by chance in its copies
    df: Floats  # (R,) degrees of freedom of the variance
    prior: SpreadPrior  # of how much more iterations differ
    patterns_before: int  # that were found before, and taken away
    with_windows: bool = False

    def test_patterns(self) -> list[PatternTest]:
        """Return all patterns that may pay, the clearest first."""
        iterations = self.rows.shape[1]
        correlations = _CORRELATIONS if iterations >= _CORRELATED_FROM else _CORRELATIONS[:1]
        fits = [
            estimate_patterns(self.rows, float(rho), with_windows=self.with_windows)
            for rho in correlations
        ]
        of_others = [_squares_of_others(fit, iterations) for fit in fits]
        pairs = self._choose_pairs(fits, of_others)
        posterior = self._weigh(fits, pairs)
        share = np.exp(posterior.ln_weight)
        evidence = -log_sum_exp(posterior.ln_weight - posterior.evidence, (1, 2))
        likeliest = share.sum(axis=2).argmax(axis=1)  # correlation
        if self.rows.size >= _TAIL_FROM:
            typical = int(np.bincount(likeliest).argmax())
            by_tail = self._tail_evidence(fits[typical], of_others[typical], pairs)
            evidence = np.minimum(evidence, by_tail)
        size = posterior.size[np.arange(len(likeliest)), likeliest]
        by_alternative = share * pairs.variance[:, None] / posterior.information[:, :, None]
        error = np.sqrt(np.sum(by_alternative, axis=(1, 2)))
        gain = posterior.ln_with.max(axis=(1, 2)) - posterior.ln_without.max(axis=(1, 2))
        return [
            PatternTest(
                row=int(pairs.row[pair]),
                pattern=int(pairs.pattern[pair]),
                size=float(size[pair]),
                error=float(error[pair]),
                evidence=float(evidence[pair]),
                likelihood_gain=float(gain[pair]),
            )
            for pair in np.argsort(-evidence).tolist()
        ]

    def _choose_pairs(
        self, fits: Sequence[PatternEstimates], of_others: Sequence[Floats]
    ) -> _Pairs:
        """Return the pairs of row and pattern that are judged, with the noise of each."""
        rows, iterations = self.rows.shape
        residual_df = max(0.5, iterations - 2 - _TAKEN_DF * self.patterns_before)
        # Half of the degrees of freedom of the other rows: rows share a part of their noise.
        other_df = min(_MOST_PRIOR_DF, (rows - 1) * (iterations - 1) / 2)
        chosen = self._most_promising(fits, residual_df)
        row, pattern = chosen[:, 0], chosen[:, 1]
        column = pattern if iterations > 2 else 0
        chance = self.variance[row][:, None]
        variance = np.square(self.prior.sd)[None] + chance
        # Satterthwaite 1946: only the variance by chance is estimated.
        df = np.minimum(ABOUT_NORMAL, self.df[row][:, None] * np.square(variance / chance))
        return _Pairs(
            row=row,
            pattern=pattern,
            other_squares=[squares[row, column] * other_df for squares in of_others],
            other_df=other_df,
            variance=variance,
            df=df,
            residual_df=residual_df,
        )

    def _weigh(self, fits: Sequence[PatternEstimates], pairs: _Pairs) -> _Posterior:
        """Return the posterior weights and the evidence under all alternatives."""
        several = len(fits) > 1
        weighed = [
            self._weigh_fit(fit, pairs, other_squares, ln_prior if several else 0.0)
            for fit, other_squares, ln_prior in zip(
                fits, pairs.other_squares, _LN_PRIOR[: len(fits)].tolist(), strict=True
            )
        ]
        ln_weight = np.stack([fit.ln_weight for fit in weighed], axis=1)
        return _Posterior(
            ln_weight=ln_weight - log_sum_exp(ln_weight, (1, 2), keepdims=True),
            evidence=np.stack([fit.evidence for fit in weighed], axis=1),
            ln_with=np.stack([fit.ln_with for fit in weighed], axis=1),
            ln_without=np.stack([fit.ln_without for fit in weighed], axis=1),
            size=np.stack([fit.size for fit in weighed], axis=1),
            information=np.stack([fit.information for fit in weighed], axis=1),
        )

    def _weigh_fit(
        self, fit: PatternEstimates, pairs: _Pairs, other_squares: Floats, ln_prior: float
    ) -> _WeighedFit:
        """Weigh the pairs under one correlation, whose prior is `ln_prior`.

        With S the sum of squares and n its degrees of freedom, ln likelihood of a variance v
        is -n / 2 * ln v - S / (2 v), the whitening's part beside it.
        """
        row, pattern, v = pairs.row, pairs.pattern, pairs.variance
        n = pairs.residual_df + pairs.other_df
        n_without = self.rows.shape[1] - 1 + pairs.other_df
        squares = (fit.squares_without[row, pattern] + other_squares)[:, None]
        squares_without = (fit.squares[row] + other_squares)[:, None]
        prior = self.prior.ln_weight + ln_prior
        size, information = fit.effect[row, pattern], fit.information[pattern]
        ln_likelihood = -0.5 * n * np.log(v) - squares / 2 / v
        ln_det = 0.5 * np.log(information)[:, None]
        of_variance = prior - 0.5 * n_without * np.log(v)
        t_value = np.abs(size[:, None]) * np.sqrt(information[:, None] / v)
        return _WeighedFit(
            ln_weight=prior + fit.ln_evidence - ln_det + ln_likelihood,
            evidence=evidence_of_t(t_value, pairs.df),
            ln_with=of_variance - squares / 2 / v,
            ln_without=of_variance - squares_without / 2 / v,
            size=size,
            information=information,
        )

    def _most_promising(self, fits: Sequence[PatternEstimates], residual_df: float) -> Ints:
        """Return rows and patterns (N, 2) of the largest estimates over their error."""
        iterations = self.rows.shape[1]
        chosen: set[tuple[int, int]] = set()
        for fit in fits:
            noise = fit.squares_without / max(1.0, residual_df) + self.variance[:, None]
            chi_squared = fit.effect**2 * fit.information / noise
            sorts = (chi_squared[:, :iterations], 0), (chi_squared[:, iterations:], iterations)
            for values, first in sorts:
                for place in np.argsort(-values, axis=None)[:_MOST_JUDGED].tolist():
                    row, column = divmod(place, values.shape[1])
                    chosen.add((row, column + first))
        return np.array(sorted(chosen))

    def _tail_evidence(self, fit: PatternEstimates, of_others: Floats, pairs: _Pairs) -> Floats:
        """Return the evidence (N,) of single iterations by the tail of all of them.

        Infinite for other patterns, which the tail does not limit. `of_others` is the typical
        variance of the other rows (R, H) or (R, 1).
        """
        deviations = self._single_deviations(fit, of_others * pairs.other_df, pairs)
        is_single = pairs.pattern < self.rows.shape[1]
        of_singles = deviations[pairs.row[is_single], pairs.pattern[is_single]]
        evidence = np.full(len(pairs.row), np.inf)
        evidence[is_single] = Tail(deviations).evidence(of_singles)
        return evidence

    def _single_deviations(
        self, fit: PatternEstimates, other_squares: Floats, pairs: _Pairs
    ) -> Floats:
        """Return single iterations in standard deviations of the others (R, I)."""
        singles = slice(self.rows.shape[1])
        # The variance by chance counts as two further values.
        squares = fit.squares_without[:, singles] + other_squares[:, singles]
        df = pairs.residual_df + pairs.other_df
        variance = (squares + 2 * self.variance[:, None]) / (df + 2)
        return fit.effect[:, singles] * np.sqrt(fit.information[singles] / variance)


def _squares_of_others(fit: PatternEstimates, iterations: int) -> Floats:
    """Return the typical variance of the other rows (R, H) or (R, 1), by their sums of squares.

    Without the same pattern in those rows, which is no noise. The median of n degrees of freedom
    over that of chi squared, about n * (1 - 2 / (9 n))^3 (Wilson and Hilferty 1931, Proceedings of
    the National Academy of Sciences 17).
    """
    squares = fit.squares_without if iterations > 2 else fit.squares[:, None]
    n = max(1, iterations - 2)
    rows, median_of_chi = len(squares), n * (1 - 2 / 9 / n) ** 3
    if rows < 2:
        return np.zeros(squares.shape)
    if rows > _MOST_ROWS:
        of_all = median_without_gaps(squares, axis=0, keepdims=True)
        return np.repeat(of_all / median_of_chi, rows, axis=0)
    of_others = [
        median_without_gaps(np.delete(squares, row, axis=0), axis=0) for row in range(rows)
    ]
    return np.stack(of_others) / median_of_chi

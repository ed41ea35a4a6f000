"""Patterns of a series over the iterations and how unlikely they are by chance; pure.

A series is noise whose neighbours may be alike (first-order autoregressive) by an amount that is
not known: a few are weighed by how well they fit. Each pattern is estimated by generalised least
squares under each of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.nulls import Nature, Tail, ln_sum, nats_of_t
from rater.analysis.stats.robust import Floats, Ints

STEP_FROM: Final = 5  # iterations: fewer have no two sides of two
_TREND_FROM: Final = 4
_ALIKE_FROM: Final = 4  # fewer say nothing of their neighbours
_ALIKE: Final = np.array([0.0, 0.4, 0.7, 0.85, 0.93, 0.98])
_ALIKE_WEIGHT: Final = np.log(np.array([0.5, 0.15, 0.1, 0.1, 0.1, 0.05]))
_TAKEN: Final = 1.5  # degrees of freedom that a pattern takes: it was chosen among many
_MOST_LENT: Final = 8.0  # degrees of freedom that other benchmarks lend to the size of one's noise
_MOST_TRIED: Final = 60  # patterns of a sort that are judged in full
_TAIL_FROM: Final = 12  # values that tell how far out single ones lie
_MOST_ROWS: Final = 8  # of more one makes no difference to their median
_LONGEST_FADING: Final = 512  # iterations: of more a step says the same


def pattern(h: int, i: int) -> tuple[Floats, str]:
    """Return the weights of a pattern by its number, and its scope.

    Single iterations, steps from 2 on, the trend, warm-ups of 2 and more that wear off by half.
    """
    if h < i:
        return (np.arange(i) == h).astype(np.float64), "cell"
    k = h - i + 2 if i >= STEP_FROM else i - 1
    if k < i - 1:
        return (np.arange(i) >= k).astype(np.float64), "step"
    if k == i - 1:
        return np.arange(i, dtype=np.float64) / (i - 1) - 0.5, "trend"
    return _fading(k - i + 2, i), "step"


def trend_of(i: int) -> int:
    """Return the number of the trend among the patterns of so many iterations."""
    return 2 * i - 3 if i >= STEP_FROM else i


def _fading(n: int, i: int) -> Floats:
    found = np.zeros(i)
    found[:n] = 1 - np.arange(n) / (2 * n)
    return found


@lru_cache(maxsize=16)
def _fades(i: int) -> Floats:
    """Return warm-ups of 2 to half of the iterations that wear off by half (K, I)."""
    longest = i // 2 if STEP_FROM <= i <= _LONGEST_FADING else 1
    return np.array([_fading(n, i) for n in range(2, longest + 1)]).reshape(-1, i)


def _whitened(y: Floats, rho: float) -> Floats:
    out = y.copy()
    out[..., 1:] -= rho * y[..., :-1]
    out[..., 0] *= math.sqrt(1 - rho * rho)
    return out


class PatternEstimates(Struct, frozen=True, eq=False, kw_only=True):
    """Generalised least squares of all patterns on rows, neighbours alike by one amount."""

    effect: Floats  # (R, H) estimated size, ln
    den: Floats  # (H,) its information at unit variance
    left: Floats  # (R, H) sum of squares without it
    whole: Floats  # (R,) and with it
    evidence: float  # ln of what the whitening alone is worth


def estimates(y: Floats, rho: float) -> PatternEstimates:
    """Estimate all patterns on rows (R, I)."""
    i = y.shape[1]
    first = math.sqrt(1 - rho * rho)
    # Rows, and what all have alike, by the inverse of their covariance.
    white = _whitened(np.concatenate((y, np.ones((1, i)))), rho)
    inverse = white.copy()
    inverse[:, 0] *= first
    inverse[:, :-1] -= rho * white[:, 1:]
    squares = np.full(i, 1 + rho**2)
    squares[[0, -1]] = 1.0
    products, own = [inverse], [squares]
    if i >= STEP_FROM:
        k = np.arange(2, i - 1)
        products.append(np.cumsum(inverse[:, ::-1], axis=1)[:, ::-1][:, k])
        own.append(1 + (1 - rho) ** 2 * (i - 1 - k))
    if i >= _TREND_FROM:
        more = np.concatenate((np.linspace(-0.5, 0.5, i)[None], _fades(i)))
        products.append(inverse @ more.T)
        own.append(np.sum(_whitened(more, rho) ** 2, axis=1))
    every, mean = np.concatenate(products, axis=1), inverse.sum(axis=1)
    num = every[:-1] - every[-1] * (mean[:-1] / mean[-1])[:, None]
    den = np.maximum(np.concatenate(own) - every[-1] ** 2 / mean[-1], 1e-12)
    whole = np.sum(y * inverse[:-1], axis=1) - mean[:-1] ** 2 / mean[-1]
    left = np.maximum(whole[:, None] - num**2 / den, 0.0)
    evidence = math.log(first) - 0.5 * math.log(mean[-1])
    return PatternEstimates(effect=num / den, den=den, left=left, whole=whole, evidence=evidence)


# Row, pattern, size, error, nats, and nats of likelihood against no pattern.
type Judged = tuple[int, int, float, float, float, float]


class Rows(Struct, frozen=True, eq=False, kw_only=True):
    """TimeSeries to be judged together: each may lend the others what it knows of noise."""

    y: Floats  # (R, I) ln
    chance: Floats  # (R,) what each value varies by at least
    df: Floats  # (R,) degrees of freedom of that
    nature: Nature  # how much more iterations differ by
    taken: int  # patterns that were taken away already

    def judged(self) -> list[Judged]:
        """Judge all patterns that are worth a look, the best first."""
        rows, i = self.y.shape
        alike = _ALIKE if i >= _ALIKE_FROM else _ALIKE[:1]
        tried = [estimates(self.y, float(rho)) for rho in alike]
        free = max(0.5, i - 2 - _TAKEN * self.taken)
        lent = min(_MOST_LENT, (rows - 1) * (i - 1) / 2)
        at = self._worth_a_look(tried, free)
        row, h = at[:, 0], at[:, 1]
        # What other rows have of the same pattern is no noise.
        lends = [
            _of_others(one.left if i > 2 else one.whole[:, None], max(1, i - 2)) for one in tried
        ]
        others = [lend[row, h if i > 2 else 0] * lent for lend in lends]
        chance = self.chance[row][:, None]
        var = np.square(self.nature.sd)[None] + chance  # (N, T)
        freedom = np.minimum(1e6, self.df[row][:, None] * np.square(var / chance))
        shape = (len(at), len(tried), len(self.nature.sd))
        weight, value, none, one_more = (np.empty(shape) for _ in range(4))
        sizes, dens = np.empty(shape[:2]), np.empty(shape[:2])
        for k, one in enumerate(tried):
            left = (one.left[row, h] + others[k])[:, None]
            whole = (one.whole[row] + others[k])[:, None]
            prior = self.nature.weight + (_ALIKE_WEIGHT[k] if len(tried) > 1 else 0.0)
            sizes[:, k], dens[:, k] = one.effect[row, h], one.den[h]
            fit = -0.5 * (free + lent) * np.log(var) - left / 2 / var
            weight[:, k] = prior + one.evidence - 0.5 * np.log(one.den[h])[:, None] + fit
            every = prior - 0.5 * (i - 1 + lent) * np.log(var)
            none[:, k], one_more[:, k] = every - whole / 2 / var, every - left / 2 / var
            t = np.abs(sizes[:, k, None]) * np.sqrt(dens[:, k, None] / var)
            value[:, k] = nats_of_t(t, freedom)
        weight -= ln_sum(weight, (1, 2), keep=True)
        nats, share = -ln_sum(weight - value, (1, 2)), np.exp(weight)
        mode = share.sum(axis=2).argmax(axis=1)
        if rows * i >= _TAIL_FROM:
            usual = int(np.bincount(mode).argmax())
            z = self._singles(tried[usual], lends[usual] * lent, free + lent)
            single = h < i
            nats[single] = np.minimum(nats[single], Tail(z).nats(z[row[single], h[single]]))
        size = sizes[np.arange(len(at)), mode]
        error = np.sqrt(np.sum(share * var[:, None] / dens[:, :, None], axis=(1, 2)))
        gain = one_more.max(axis=(1, 2)) - none.max(axis=(1, 2))
        columns = (row, h, size, error, nats, gain)
        order = np.argsort(-nats)
        return list(zip(*(column[order].tolist() for column in columns), strict=True))

    def _worth_a_look(self, tried: list[PatternEstimates], free: float) -> Ints:
        i = self.y.shape[1]
        some: set[tuple[int, int]] = set()
        for one in tried:
            z2 = one.effect**2 * one.den / (one.left / max(1.0, free) + self.chance[:, None])
            for part, first in ((z2[:, :i], 0), (z2[:, i:], i)):
                for q in np.argsort(-part, axis=None)[:_MOST_TRIED].tolist():
                    some.add((q // part.shape[1], q % part.shape[1] + first))
        return np.array(sorted(some))

    def _singles(self, one: PatternEstimates, others: Floats, free: float) -> Floats:
        """Return single iterations in standard deviations of the others (R, I)."""
        i = self.y.shape[1]
        var = (one.left[:, :i] + others[:, :i] + 2 * self.chance[:, None]) / (free + 2)
        return one.effect[:, :i] * np.sqrt(one.den[:i] / var)


def _of_others(squares: Floats, df: int) -> Floats:
    """Return the variance that the other rows' sums of squares usually show (R, H)."""
    rows = len(squares)
    middle = df * (1 - 2 / 9 / df) ** 3  # the median of chi squared
    if rows < 2:
        return np.zeros(squares.shape)
    if rows > _MOST_ROWS:
        return np.repeat(np.median(squares, axis=0, keepdims=True) / middle, rows, axis=0)
    kept = [np.median(np.delete(squares, k, axis=0), axis=0) for k in range(rows)]
    return np.stack(kept) / middle

"""How much times vary for no reason, by benchmark: between like copies, and from time to time; pure.

Every spread is that of the shortest half, which nothing disturbs that less than half of the
values have; benchmarks borrow from each other where values are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.table import Table
from rater.analysis.divots.model import limits
from rater.analysis.stats.robust import Floats, Ints, median, quantiles

_FLOOR = 3e-4  # a repeat of a benchmark never agrees better
_OWN_WEIGHT = 12  # so many values weigh as much as all the other benchmarks
_COARSEST_S = 1.0
_COARSE = 0.45  # of a clock's step, the floor of a spread
_HALF = 1.349  # the middle half of a normal distribution, in standard deviations
_SMALL, _SMALL_EVEN = 1.33, 1.62  # over sqrt(n): how much shorter the shortest half of few is
_FREEDOM = 0.39  # degrees of freedom of a shortest half for each value (simulated, n = 8 to 256)
# Tails begin at 90 %; a generalised Pareto is laid through what lies there, at 98 and at 99.7 %.
_TAIL_AT = (0.90, 0.95, 0.98, 0.997)
_MIDDLE, _FAR = (0.1 / (1 - at) for at in _TAIL_AT[2:])
_BEFORE = math.log(10)
_NORMAL_START, _NORMAL_SCALE = 1.2816, 0.5244  # of a normal distribution: (q95 - q90) / ln 2
_TAIL_WEIGHT = 300  # so many residuals weigh as much as the usual tail
_TAIL_READ = 800  # residuals that a shape is taken from at least
_SHAPES = tuple(limits.LEAST_TAIL + 0.025 * k for k in range(19))
_RATIOS = tuple((_FAR**x - 1) / (_MIDDLE**x - 1) for x in _SHAPES)


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Spreads of ln time as standard deviations, by benchmark."""

    between: Floats  # (B,) of copies' levels over the iterations, parts out
    repeat: Floats  # (B,) of one copy from iteration to iteration; one iteration: `between`
    freedom: float  # degrees of freedom of one of them
    steps: Floats  # (B,) of a coarse clock over the median time; 0: fine


def clock_steps(table: Table) -> Floats:
    """Return the step of a coarse clock over the median time, by benchmark; 0 for a fine one.

    A clock is called coarse where less than half of the times are distinct.
    """
    steps = np.zeros(table.shape[0])
    for b in range(table.shape[0]):
        seconds = np.exp(table.log_s[b][~np.isnan(table.log_s[b])])
        # exp(ln t) is not t to the last digit: nanoseconds are what was recorded.
        distinct = np.unique(np.round(seconds, 9))
        if len(distinct) > 1 and 2 * len(distinct) < len(seconds):
            gaps = np.diff(distinct)
            # No clock is coarser than a second: two times ten seconds apart are two times.
            step = float(gaps[gaps > 1e-8].min(initial=_COARSEST_S))
            steps[b] = step / float(np.median(seconds))
    return steps


def levels_of(values: Floats) -> Floats:
    """Return (B, S) each slot's level over the iterations of (B, I, S): their median."""
    return median(np.swapaxes(values, 1, 2))


def shortest_half(values: Floats) -> Floats:
    """Return the spread of each row (B, N): its shortest half as a standard deviation."""
    ordered = np.sort(values, axis=1)
    count = np.sum(~np.isnan(values), axis=1)
    spread = np.full(len(values), np.nan)
    for b, n in enumerate(count):
        if n >= 3:
            half = 3 if n == 4 else (n + 1) // 2
            x = ordered[b, :n]
            small = (_SMALL if n % 2 or n == 4 else _SMALL_EVEN) / math.sqrt(n)
            spread[b] = np.min(x[half - 1 :] - x[: n - half + 1]) / (_HALF * (1 - small))
    return spread


def group_centred(values: Floats, groups: Ints) -> Floats:
    """Return values with the median of each group of slots taken out of each cell."""
    centred = values.copy()
    for group in np.unique(groups):
        here = groups == group
        centred[..., here] -= median(values[..., here])[..., None]
    return centred


def noise_of(residuals: Floats, groups: Ints, steps: Floats) -> Noise:
    """Return the spreads of residuals (B, I, S); `groups`: inside of which copies are alike."""
    b, i, s = residuals.shape
    levels = levels_of(residuals)
    floor = np.maximum(_FLOOR, _COARSE * steps)
    repeat = None
    if i > 1:
        mean = np.nanmean(np.where(np.isnan(residuals).all(axis=1)[:, None], 0, residuals), axis=1)
        moves = (residuals - mean[:, None]) * math.sqrt(i / (i - 1))
        repeat = _shrunk(_spread_of_moves(moves), np.full(b, s * (i - 1)), floor)
    if s > 3:
        between = _shrunk(shortest_half(group_centred(levels, groups)), np.full(b, s), floor)
        if repeat is not None:
            between = np.maximum(between, repeat / math.sqrt(i))
    elif repeat is not None:
        between = repeat / math.sqrt(i)
    else:
        apart = levels - median(levels.T)[None]
        known = np.abs(apart[~np.isnan(apart)])
        own = 1.4826 * float(np.median(known)) * math.sqrt(2) if b >= 3 and len(known) else math.inf
        between = np.maximum(np.full(b, own), floor)
    many = s if s > 3 else s * b / 2
    freedom = _FREEDOM * (many + min(_OWN_WEIGHT, (b - 1) * many))
    if repeat is not None:
        freedom = _FREEDOM * (s * (i - 1) + min(_OWN_WEIGHT, (b - 1) * s)) if s <= 3 else freedom
    return Noise(between, between if repeat is None else repeat, max(1.5, freedom), steps)


def _spread_of_moves(moves: Floats) -> Floats:
    """Return the spread (B,) of deviations from a slot's own mean, symmetrical around 0."""
    return 1.4826 * median(np.abs(moves.reshape(len(moves), -1)))


def _shrunk(spread: Floats, count: Floats, floor: Floats) -> Floats:
    own = np.log(np.maximum(np.nan_to_num(spread), floor))
    weight = count / (count + _OWN_WEIGHT)
    return np.maximum(np.exp(weight * own + (1 - weight) * float(np.median(own))), floor)


def gain(z: Floats, freedom: Floats | float) -> Floats:
    """Return how many nats better a part with z standard errors of effect describes the times.

    How seldom Student's t is that far out: z squared over two where it is normal, and
    growing with the logarithm only where the tail is heavy.
    """
    return freedom / 2 * np.log1p(z * z / freedom)


@dataclass(frozen=True, slots=True)
class Tail:
    """One side of the distribution of standardised residuals: a generalised Pareto beyond 90 %.

    `shape` 0 falls exponentially, 1/3 as Student's t with three degrees of freedom does.
    """

    start: float
    scale: float
    shape: float

    def gain(self, z: Floats, freedom: float, times: int = 1) -> Floats:
        """Return how seldom a residual is that far out, in nats; 0 before the tail begins.

        `freedom`: of the standard deviation that z is told in, which is a guess itself;
        `times`: so many must be that far out together.
        """
        shape = self.shape / times + 0.2 / freedom
        beyond = np.maximum(z - self.start, 0) / self.scale
        nats: Floats = np.where(z > self.start, np.log1p(shape * beyond) / shape + _BEFORE, 0.0)
        return nats


def tail_of(values: Floats) -> Tail:
    """Return the upper tail of standardised residuals: the usual one and their own."""
    known = values[~np.isnan(values)]
    if len(known) < _OWN_WEIGHT:
        return Tail(_NORMAL_START, _NORMAL_SCALE, limits.TAIL)
    weight = len(known) / (len(known) + _TAIL_WEIGHT)
    start, early, middle, far = (float(one) for one in quantiles(known, *_TAIL_AT))
    shape = limits.TAIL
    if middle > start > 0 and len(known) > _TAIL_READ:
        # Of fewer the far quantile is the few that are judged by it.
        own = float(np.interp((far - start) / (middle - start), _RATIOS, _SHAPES))
        read = 1 - _TAIL_READ / len(known)
        shape = read * own + (1 - read) * limits.TAIL
    scale = (middle - start) * shape / (_MIDDLE**shape - 1)
    if len(known) <= _TAIL_READ:
        scale = (early - start) * shape / (2**shape - 1)
    return Tail(
        max(_NORMAL_START, start if weight > 0.5 else _NORMAL_START),
        max(_NORMAL_SCALE, weight * scale + (1 - weight) * _NORMAL_SCALE),
        shape,
    )

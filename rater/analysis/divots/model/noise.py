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
from rater.analysis.stats.student_t import quantile as t_quantile

_FLOOR = 3e-4  # a repeat of a benchmark never agrees better
_OWN_WEIGHT = 12  # so many values weigh as much as all the other benchmarks
_COARSEST_S = 1.0
_COARSE = 0.45  # of a clock's step, the floor of a spread
_HALF = 1.349  # the middle half of a normal distribution, in standard deviations
_SMALL, _SMALL_ODD = 0.9, 1.35  # over sqrt(n): how much shorter the shortest half of few is
_FREEDOM = 0.39  # degrees of freedom of a shortest half for each value (simulated, n = 8 to 256)
_UPPER, _TAIL_AT = 0.90, 0.98  # quantiles that a tail is read at


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
            half = n // 2 + 1
            x = ordered[b, :n]
            small = (_SMALL_ODD if n % 2 else _SMALL) / math.sqrt(n)
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
    """One side of the distribution of standardised residuals: scale and degrees of freedom."""

    scale: float
    freedom: float

    def gain(self, z: Floats) -> Floats:
        """Return nats of values on this side; nothing on the other."""
        return gain(np.maximum(z, 0) / self.scale, self.freedom)


def tail_of(values: Floats) -> Tail:
    """Return the upper tail of standardised residuals, their own as far as they are many."""
    known = values[~np.isnan(values)]
    weight = len(known) / (len(known) + 40 * _OWN_WEIGHT)
    if len(known) < _OWN_WEIGHT:
        return Tail(1.0, limits.TAIL / 2)
    upper, far = (float(one) for one in quantiles(known, _UPPER, _TAIL_AT))
    freedom = limits.TAIL
    if upper > 0:
        freedom = _freedom_at(far / upper)
        freedom = math.exp(weight * math.log(freedom) + (1 - weight) * math.log(limits.TAIL))
    scale = max(1.0, upper / t_quantile(2 * _UPPER - 1, freedom)) if upper > 0 else 1.0
    return Tail(scale**weight, freedom)


def _freedom_at(ratio: float) -> float:
    """Return the degrees of freedom of the t whose two quantiles have this ratio."""
    ratios = [
        t_quantile(2 * _TAIL_AT - 1, one) / t_quantile(2 * _UPPER - 1, one) for one in limits.TAILS
    ]
    logs = [math.log(one) for one in limits.TAILS]
    return math.exp(float(np.interp(-ratio, [-one for one in ratios], logs)))

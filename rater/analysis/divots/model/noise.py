"""How much times vary for no reason: between like copies, and from time to time; pure.

Every spread is that of the shortest half, which nothing disturbs that less than half of the
values have; benchmarks borrow from each other where values are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.table import Table
from rater.analysis.divots.model import limits
from rater.analysis.stats.robust import MAD_TO_SD, Floats, Ints, mean, median, quantiles

_UNKNOWN = 10.0  # ln: nothing is told from it
_FEW = 8  # copies, of which those that are alike cannot be told from the others
FLOOR = 3e-4  # a repeat of a benchmark never agrees better
_OWN_WEIGHT = 12  # so many values weigh as much as all the other benchmarks
_COARSEST_S = 1.0
_COARSE = 0.45  # of a clock's step, the floor of a spread
_HALF = 1.349  # the middle half of a normal distribution, in standard deviations
_SMALL, _SMALL_EVEN = 1.33, 1.62  # over sqrt(n): how much shorter the shortest half of few is
_LEAST_APART = 0.3  # that benchmarks' spreads differ by, as a standard deviation of their ln
_FREEDOM = 0.39  # degrees of freedom of a shortest half for each value (simulated, n = 8 to 256)
# Tails begin at 90 %; a generalised Pareto is laid through what lies there, at 98 % and beyond.
_BEFORE = math.log(10)
_NORMAL_START, _NORMAL_SCALE = 1.2816, 0.5244  # of a normal distribution: (q95 - q90) / ln 2
_TAIL_WEIGHT = 300  # so many residuals weigh as much as the usual tail
_LEAST_RATIO = 1.5  # of the next, beyond which values are no tail
_TAIL_COPIES = 16  # so many copies know their spread well enough to tell its tail
_TAIL_MANY = 800  # so many residuals show 98 % and beyond
_TAIL_LEFT = 6  # the farthest are left out: they are judged by it
_LIFTED = 1.2  # a tail read where there are values is lighter than further out (simulated)
_SHAPES = tuple(limits.LEAST_TAIL + 0.025 * k for k in range(19))


@dataclass(frozen=True, slots=True, eq=False)
class TimeNoise:
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


def noise_of(residuals: Floats, groups: Ints, steps: Floats) -> TimeNoise:
    """Return the spreads of residuals (B, I, S); `groups`: inside of which copies are alike."""
    b, i, s = residuals.shape
    levels = levels_of(residuals)
    floor = np.maximum(FLOOR, _COARSE * steps)
    repeat = None
    if i > 1:
        # Like copies move together with a part of the machine: that is no noise of theirs.
        inner = group_centred(residuals, groups) if s > _FEW else residuals
        moves = (inner - mean(inner, axis=1)[:, None]) * math.sqrt(i / (i - 1))
        repeat = _shrunk(_spread_of_moves(moves), np.full(b, s * (i - 1)), floor)
    if repeat is not None and s < _FEW:
        # Of so few copies the half may be slow: what one repeats to is all that is known.
        between = np.hypot(repeat / math.sqrt(i), limits.TAU)
    elif s > 3:
        between = _shrunk(shortest_half(group_centred(levels, groups)), np.full(b, s), floor)
        if repeat is not None:
            between = np.maximum(between, repeat / math.sqrt(i))
    else:
        apart = levels - median(levels.T)[None]
        known = np.abs(apart[~np.isnan(apart)])
        own = _UNKNOWN
        if b >= 3 and len(known):
            own = MAD_TO_SD * float(np.median(known)) * math.sqrt(2)
        between = np.maximum(np.full(b, own), floor)
    many = s if s > 3 else s * b / 2
    freedom = _FREEDOM * (many + min(_OWN_WEIGHT, (b - 1) * many))
    if repeat is not None:
        freedom = _FREEDOM * (s * (i - 1) + min(_OWN_WEIGHT, (b - 1) * s)) if s <= 3 else freedom
    return TimeNoise(between, between if repeat is None else repeat, max(1.5, freedom), steps)


def _spread_of_moves(moves: Floats) -> Floats:
    """Return the spread (B,) of deviations from a slot's own mean, symmetrical around 0."""
    return 1.4826 * median(np.abs(moves.reshape(len(moves), -1)))


def _shrunk(spread: Floats, count: Floats, floor: Floats) -> Floats:
    """Draw spreads to the usual one, by how badly they are known and how alike they are."""
    own = np.log(np.maximum(np.nan_to_num(spread), floor))
    if len(own) < 3:
        return np.maximum(np.exp(own), floor)
    usual = float(np.median(own))
    chance = 1 / (2 * _FREEDOM * count * np.maximum(0.1, 1 - 1.2 / np.sqrt(np.maximum(count, 2))))
    apart = max(_LEAST_APART, 1.4826 * float(np.median(np.abs(own - usual)))) ** 2
    apart = max(_LEAST_APART**2, apart - float(np.median(chance)))
    weight = apart / (apart + chance)
    return np.maximum(np.exp(weight * own + (1 - weight) * usual), floor)


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
        shape = self.shape / times + 0.15 / freedom
        beyond = np.maximum(z - self.start, 0) / self.scale
        nats: Floats = np.where(z > self.start, np.log1p(shape * beyond) / shape + _BEFORE, 0.0)
        return nats


def tail_of(values: Floats) -> Tail:
    """Return the upper tail of standardised residuals (..., S): the usual one and their own.

    Of few copies the standard deviations are so badly known that their own tail is of that.
    """
    known = values[~np.isnan(values)]
    if len(known) < _OWN_WEIGHT:
        return Tail(_NORMAL_START, _NORMAL_SCALE, limits.TAIL)
    known = _joined_to_rest(known)
    many = len(known)
    copies = values.shape[-1]
    weight = many / (many + _TAIL_WEIGHT) * copies / (copies + _TAIL_COPIES)
    near = 0.95 if many < _TAIL_MANY else 0.98
    far = max(0.975 if many < _TAIL_MANY else 0.99, min(0.999, 1 - _TAIL_LEFT / many))
    start, middle, end = (float(one) for one in quantiles(known, 0.9, near, far))
    shape = limits.TAIL
    if middle > start > 0:
        ratios = [((0.1 / (1 - far)) ** x - 1) / ((0.1 / (1 - near)) ** x - 1) for x in _SHAPES]
        own = float(np.interp((end - start) / (middle - start), ratios, _SHAPES))
        shape = weight * min(_SHAPES[-1], _LIFTED * own) + (1 - weight) * limits.TAIL
    scale = (middle - start) * shape / ((0.1 / (1 - near)) ** shape - 1)
    return Tail(
        max(_NORMAL_START, start if weight > 0.5 else _NORMAL_START),
        max(_NORMAL_SCALE, weight * scale + (1 - weight) * _NORMAL_SCALE),
        shape,
    )


def _joined_to_rest(values: Floats) -> Floats:
    """Leave out values far beyond a gap: so wide, the heaviest tail has it once in 10 000 runs.

    The ratio of the j-th largest to the next exceeds r with probability r^(-3 j) where the
    tail is that of Student's t with three degrees of freedom (Renyi's representation).
    """
    ordered = np.sort(values)[::-1]
    most = len(ordered) // 8
    if most < 1 or ordered[most] <= 0:
        return values
    place = np.arange(1, most + 1)
    apart = np.maximum(math.log(1e4) / (3 * place), math.log(_LEAST_RATIO))
    beyond = np.log(ordered[:most] / ordered[1 : most + 1]) >= apart
    last = int(np.max(np.flatnonzero(beyond) + 1, initial=0))
    return ordered[last:]

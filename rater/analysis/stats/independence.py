"""Whether values are as independent as intervals take them for, from the order they were made in.

An interval of Student's or Welch's knows the noise that values show of each other. It does not
know of what they have in common: a state that stays with a point for several rounds (where memory
lies, what is cached), a session (a boot, a night), a drift through runs of which one point's were
all made before the other's, a slow mode that few runs are in. Of equal points verdicts are then
wrong in up to 80 of 100 cases (`benchmarks/situations.py`). So each of these is looked for, and the
estimate gets another one beside it that minds it; a verdict must hold in both.

- **Rounds that hang together.** r1, the first autocorrelation of the differences, against its
  values in 399 random orders (a permutation test: exact whatever the noise is). Where one order
  in ten or fewer has as much, the differences are taken for an autoregression of first order: their
  mean has (1 + r) / (1 - r) times the variance and as much fewer degrees of freedom (G. E. P. Box,
  G. M. Jenkins, "Time Series Analysis", 1970; r1 of n values is too low by (1 + 4 r) / n, F. H. C.
  Marriott and J. A. Pope, Biometrika 41, 1954, and half a standard error is added to it). Up to
  three in ten, the verdict says that it may be so. Fewer than six rounds have too few orders to
  tell, and the verdict says how many there are.
- **Sessions** (parted by an hour in which no run was made): F test whether differences differ more
  between sessions than inside them; at 20 % the sessions' means are the values.
- **A drift**: the slope through all runs, each point from its own mean, by least squares; what it
  makes of the difference in time between the points is taken away, with the slope's own error.
- **A slow mode**: up to a fifth of the values, all below the others by more than those make likely
  (Student's t of the rest at 1 % over all values).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from rater.analysis.stats.estimate import (
    Basis,
    Estimate,
    SlowRuns,
    VarianceTerm,
    f_exceeded,
    paired_estimate,
    t_quantile,
    unpaired_estimate,
)
from rater.text.values import group_by_key

LEAST_TESTED = 6  # rounds: of five there are 60 orders that differ
DEPENDENT = 0.1
_PERHAPS = 0.3
_SESSIONS_DIFFER = 0.2  # few comparisons are of several: more of those may be widened for nothing
_ORDERS = 399
_MOST_CORRELATED = 0.9
_SLOW_CHANCE = 0.01
_SLOW_SHARE = 5  # one in so many at most: more are no exception
_LEAST_OTHERS = 4

_ROUNDS = "rounds not independent"
_RUNS = "runs not independent"
_SESSIONS = "sessions differ"
DRIFT = "a drift would look the same (make them in turn)"


@dataclass(frozen=True, slots=True)
class MeasuredLog:
    """The logarithm of one run's value, and when it was measured."""

    log: float
    place: float | None = None  # among the runs in the order they were made in; None: not known
    session: int = 0


def estimate_from_rounds(
    rounds: Sequence[tuple[MeasuredLog, MeasuredLog]], *, step: float = 0.0, correlated: float = 0.0
) -> Estimate:
    """Return how far the first of each pair lies above the second; rounds in order of time.

    `correlated`: what `autocorrelation` said of more than these values, 0 for nothing; `step`: see
    `stats.estimate.paired`.
    """
    differences = [here.log - there.log for here, there in rounds]
    estimate = paired_estimate(differences, step=step)
    many = len(differences)
    if many < 2:
        return estimate
    also: list[Estimate] = []
    doubts: list[str] = []
    if many < LEAST_TESTED:
        doubts.append(f"{many} rounds")
    else:
        r, p = autocorrelation([differences])
        if p <= DEPENDENT or correlated:
            also.append(_with_correlation(estimate, max(r, correlated)))
            doubts.append(_ROUNDS)
        elif p <= _PERHAPS:
            doubts.append("rounds perhaps not independent")
    by_session = group_by_key(
        (here.session, d) for (here, _), d in zip(rounds, differences, strict=True)
    )
    if 1 < len(by_session) < many:
        p = _sessions_alike(list(by_session.values()))
        if p <= _SESSIONS_DIFFER:
            means = [statistics.fmean(values) for values in by_session.values()]
            also.append(replace(paired_estimate(means, step=step), reason=_SESSIONS))
            doubts.append(_SESSIONS)
        elif p <= 2 * _SESSIONS_DIFFER:
            doubts.append("sessions perhaps differ")
    drift = _drift([one for one, _ in rounds], [other for _, other in rounds])
    if drift is not None:
        moved = replace(estimate, log_ratio=estimate.log_ratio - drift.shift, reason=DRIFT)
        also.append(moved)
    estimate = replace(estimate, also=tuple(also), doubts=tuple(doubts))
    turned = [-value for value in differences]
    mine, theirs = _slow(differences, step), _slow(turned, step)
    rest = [d for i, d in enumerate(differences) if i not in {*mine, *theirs}]
    slow = _slow_runs((differences, mine), (turned, theirs))
    return replace(estimate, slow=slow, rest=paired_estimate(rest, step=step)) if slow else estimate


def estimate_from_runs(
    here: Sequence[MeasuredLog], there: Sequence[MeasuredLog], *, step: float = 0.0
) -> Estimate:
    """Return how far runs that were not made in rounds lie above others; both have at least one."""
    sessions = [group_by_key((one.session, one.log) for one in side) for side in (here, there)]
    if sessions[0].keys() & sessions[1].keys() or all(
        len(of_it) == len(side) for of_it, side in zip(sessions, (here, there), strict=True)
    ):
        values = [[one.log for one in side] for side in (here, there)]
    else:  # each side in sessions of its own: those are the values
        values = [[statistics.fmean(logs) for logs in of_it.values()] for of_it in sessions]
        if min(map(len, values)) < 2:
            own = unpaired_estimate(
                [one.log for one in here], [one.log for one in there], Basis.RUNS
            )
            return replace(own, refused=own.refused or "each in a session of its own")
    estimate = unpaired_estimate(values[0], values[1], Basis.RUNS, step=step)
    if estimate.refused:
        return estimate
    also: list[Estimate] = []
    doubts = ["unblocked"]
    if len(values[0]) == len(here) and len(values[1]) == len(there):
        drift = _drift(here, there)
        if drift is not None:
            also.append(_without_drift(estimate, drift))
        parts = tuple(
            _side_correlated(part, side) for part, side in zip(estimate.parts, values, strict=True)
        )
        if parts != estimate.parts:
            also.append(replace(estimate, parts=parts, reason=_RUNS))
            doubts.append(_RUNS)
    estimate = replace(estimate, also=tuple(also), doubts=tuple(doubts))
    found = [(side, _slow(side, step)) for side in values]
    rest = [[value for i, value in enumerate(side) if i not in slow] for side, slow in found]
    slow = _slow_runs(*found)
    return (
        replace(
            estimate, slow=slow, rest=unpaired_estimate(rest[0], rest[1], Basis.RUNS, step=step)
        )
        if slow
        else estimate
    )


# -- rounds that hang together ------------------------------------------------------------------


def autocorrelation(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the first autocorrelation of values in order, and how often chance has as much.

    Of several series of equal length (benchmarks, points) in the same rounds together: all are put
    into the same random orders, so that what they have in common in a round does no harm.
    """
    many = len(series[0])
    products = [[0.0] * many for _ in range(many)]
    for values in series:
        mean = statistics.fmean(values)
        left = [value - mean for value in values]
        squares = math.fsum(value * value for value in left)
        if squares <= 0:
            continue
        for i, one in enumerate(left):
            row = products[i]
            for j, other in enumerate(left):
                row[j] += one * other / squares
    whole = math.fsum(products[i][i] for i in range(many))
    if not whole:
        return 0.0, 1.0

    def of_order(order: Sequence[int]) -> float:
        return sum(products[i][j] for i, j in pairwise(order))

    measured = of_order(range(many))
    as_much = sum(of_order(order) >= measured for order in _orders(many))
    return measured / whole, (1 + as_much) / (1 + _ORDERS)


@cache
def _orders(many: int) -> tuple[tuple[int, ...], ...]:
    choice = random.Random(many)
    places = range(many)
    return tuple(tuple(choice.sample(places, many)) for _ in range(_ORDERS))


def _correlated(part: VarianceTerm, r: float) -> VarianceTerm:
    """Return the term of values with this autocorrelation."""
    many = part.count
    rho = min(_MOST_CORRELATED, max(0.0, r + (1 + 4 * r) / many + 0.5 / math.sqrt(many)))
    factor = (1 + rho) / (1 - rho)
    # Such values show less of their variance than independent ones do.
    seen = max(1.0, many - factor) / (many - 1)
    return replace(
        part, variance=part.variance * factor / seen, degrees=max(1.0, many / factor - 1)
    )


def _with_correlation(estimate: Estimate, r: float) -> Estimate:
    parts = tuple(_correlated(part, r) for part in estimate.parts)
    return replace(estimate, parts=parts, reason=_ROUNDS)


def _side_correlated(part: VarianceTerm, values: Sequence[float]) -> VarianceTerm:
    if len(values) < LEAST_TESTED:
        return part
    r, p = autocorrelation([values])
    return _correlated(part, r) if p <= DEPENDENT else part


# -- sessions, drift ----------------------------------------------------------------------------


def _sessions_alike(sessions: Sequence[Sequence[float]]) -> float:
    """Return how often sessions differ so much by chance (one-way analysis of variance)."""
    every = [value for values in sessions for value in values]
    mean = statistics.fmean(every)
    means = [statistics.fmean(values) for values in sessions]
    between = sum(len(v) * (m - mean) ** 2 for v, m in zip(sessions, means, strict=True))
    inside = sum((value - m) ** 2 for v, m in zip(sessions, means, strict=True) for value in v)
    degrees = len(sessions) - 1, len(every) - len(sessions)
    if not inside:
        return 0.0 if between else 1.0
    return f_exceeded(between / degrees[0] / (inside / degrees[1]), *degrees)


@dataclass(frozen=True, slots=True)
class _Drift:
    shift: float  # what it makes of the difference between the sides
    variance: float  # of that
    degrees: int
    noise: tuple[float, float]  # variance of a value of each side beside it


def _drift(here: Sequence[MeasuredLog], there: Sequence[MeasuredLog]) -> _Drift | None:
    """Return the slope through all values, each side from its own mean; None: order not known."""
    sides: list[tuple[float, list[tuple[float, float]]]] = []
    for side in (here, there):
        places = [one.place for one in side if one.place is not None]
        if len(places) < len(side):
            return None
        mean, middle = statistics.fmean(one.log for one in side), statistics.fmean(places)
        points = [(at - middle, one.log - mean) for at, one in zip(places, side, strict=True)]
        sides.append((middle, points))
    squares = [math.fsum(x * x for x, _ in points) for _, points in sides]
    whole, degrees = math.fsum(squares), len(here) + len(there) - 3
    if not whole or degrees < 1:
        return None
    slope = math.fsum(x * y for _, points in sides for x, y in points) / whole
    one_less = (degrees + 1) / degrees  # the slope has taken one more
    noise = [
        math.fsum((y - slope * x) ** 2 for x, y in points) / max(1, len(points) - 1) * one_less
        for _, points in sides
    ]
    apart = sides[0][0] - sides[1][0]
    of_slope = sum(n * square for n, square in zip(noise, squares, strict=True)) / whole**2
    return _Drift(slope * apart, of_slope * apart**2, degrees, (noise[0], noise[1]))


def _without_drift(estimate: Estimate, drift: _Drift) -> Estimate:
    """Return what is left of a difference between runs; the slope has an error of its own."""
    parts = tuple(
        replace(part, variance=noise)
        for part, noise in zip(estimate.parts, drift.noise, strict=True)
    )
    return replace(
        estimate,
        log_ratio=estimate.log_ratio - drift.shift,
        parts=(*parts, VarianceTerm(drift.variance, 1, drift.degrees)),
        most_degrees=float(drift.degrees),
        reason=DRIFT,
    )


# -- slow runs ----------------------------------------------------------------------------------


def _slow(values: Sequence[float], step: float) -> tuple[int, ...]:
    """Return where the values are that lie far below all others."""
    order = sorted(range(len(values)), key=values.__getitem__)
    for many in range(len(order) // _SLOW_SHARE, 0, -1):
        others = [values[i] for i in order[many:]]
        if len(others) < _LEAST_OTHERS:
            continue
        mean, deviation = statistics.fmean(others), statistics.stdev(others)
        t = t_quantile(1 - _SLOW_CHANCE / len(values), len(others) - 1)
        least = t * deviation * math.sqrt(1 + 1 / len(others)) + 2 * step
        if mean - values[order[many - 1]] > least:
            return tuple(order[:many])
    return ()


def _slow_runs(*sides: tuple[Sequence[float], Sequence[int]]) -> tuple[SlowRuns, ...]:
    """Return the slow runs of both sides, the baseline second."""
    return tuple(
        SlowRuns(
            len(slow),
            len(values),
            math.expm1(
                statistics.median(value for i, value in enumerate(values) if i not in slow)
                - statistics.median(values[i] for i in slow)
            ),
            of_baseline=bool(place),
        )
        for place, (values, slow) in enumerate(sides)
        if slow
    )

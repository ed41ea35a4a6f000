"""Estimates from values in the order they were made in: what they may have in common; pure.

An interval of Student's or Welch's knows the noise that values show of each other. It does not
know of what they have in common: a state that stays with a point for several rounds (where memory
lies, what is cached), a session (a boot, a night), a drift or a step through runs of which one
point's were all made before the other's. Of equal points verdicts are then wrong in up to 80 of 100
cases (`benchmarks/situations.py`).

So values have not one model of their noise but a mixture (J. A. Hoeting et al., "Bayesian Model
Averaging", Statistical Science 14, 1999): that they are independent, and *alternatives*, each as
probable as the values make it. No test switches between them: an interval widens as they become
probable. Values of which no order is known are taken as independent.

- **Rounds that hang together**: an autoregression of first order with rho = 0.9, whose mean has
  1'R1 / n times the variance. How probable it is all benchmarks of the same rounds say together:
  the mean of their log likelihoods, times how many of them are not repetitions of each other.
- **Sessions** (parted by an hour in which no run was made): values share what their session is;
  the sessions' means are the values then.
- **A drift, or a step** at one of the places between runs, common to both points: another
  coefficient of the regression (A. Zellner's g prior with the unit information, g = n).

Dependence widens an interval to the range that the values lie in at most (where it is not wider
already): of no state that lasts more is known than that. Simulated (`benchmarks/situations.py`), of
equal points at most 5 in 100 are called apart where values are independent; 8 with a step or a
drift; of 10 benchmarks with states that last, 12 with 10 rounds and 1 with 20. Of five rounds of
one benchmark nobody can tell a state from noise: 40, and the verdict names how many there are.

**A slow mode**: up to a fifth of the values, all below the others by more than those make likely
(Student's t of the rest at 1 % over all values).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.stats.estimate import (
    NO_DIFFERENCE,
    Alternative,
    Estimate,
    SlowRuns,
    paired_estimate,
    t_quantile,
    unpaired_estimate,
)
from rater.analysis.stats.robust import Floats
from rater.text.values import group_by_key

LEAST_TESTED = 6  # rounds: fewer say little of whether they hang together
_RHO = 0.9
_SESSION_SHARE = 0.8  # of the variance, where sessions differ
# Odds of each before anything was measured, against independent values: rounds are made against it.
_IN_ROUNDS, _UNBLOCKED = 1 / 4, 4.0
_OUT_OF_TURN = 0.5  # places between the points of a round, on average
_FEWEST = 3  # values of which an order says anything
_MOST_STEPS = 30  # places at which a step is looked for
_SLOW_CHANCE = 0.01
_SLOW_SHARE = 5  # one in so many at most: more are no exception
_LEAST_OTHERS = 4

_ROUNDS = "rounds not independent"
_RUNS = "runs not independent"
_SESSIONS = "sessions differ"
DRIFT = "a drift would look the same (make them in turn)"
TOLD = 0.5  # an alternative as probable as that stands beside a verdict


class MeasuredLog(Struct, frozen=True):
    """The logarithm of one run's value, and when it was measured."""

    log: float
    place: float | None = None  # among the runs in the order they were made in; None: not known
    session: int = 0


def estimate_from_rounds(
    rounds: Sequence[tuple[MeasuredLog, MeasuredLog]],
    *,
    step: float = 0.0,
    evidence: float | None = None,
) -> Estimate:
    """Return how far the first of each pair lies above the second; rounds in order of time.

    `evidence`: what `serial_evidence` said of more than these values, None for nothing; `step`: see
    `stats.estimate.paired_estimate`.
    """
    differences = [here.log - there.log for here, there in rounds]
    many, estimate = len(differences), paired_estimate(differences, step=step)
    if many < 2:
        return estimate
    doubts = (f"{many} rounds",) if many < LEAST_TESTED else ()
    found: list[Alternative] = []
    y = np.array(differences)
    if _in_known_order([one for pair in rounds for one in pair]) and y.std() > NO_DIFFERENCE:
        one = np.ones((many, 1))
        alike = _correlation((0,) * many, serial=True)
        own = _dependent(*doubts or (_ROUNDS,), one, y, alike)
        found.append(own if evidence is None else replace(own, weight=evidence))
        by_session = group_by_key(
            (here.session, d) for (here, _), d in zip(rounds, differences, strict=True)
        )
        if 1 < len(by_session) < many:
            alike = _correlation(tuple(here.session for here, _ in rounds), serial=False)
            own = _dependent(_SESSIONS, one, y, alike)
            of_means = paired_estimate([*map(statistics.fmean, by_session.values())], step=step)
            widening = (of_means.error() or 0.0) / (estimate.error() or math.inf)
            # That sessions differ is not as rare as that rounds hang together.
            odds, degrees = own.weight - math.log(_IN_ROUNDS), of_means.degrees() - many + 1
            found.append(replace(own, weight=odds, widening=widening, degrees=degrees))
        found += _drift_of_rounds(rounds)
    width = max(differences) - min(differences)
    estimate = replace(_mixed(estimate, found, _IN_ROUNDS, width), doubts=doubts)
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
    values = [[one.log for one in side] for side in (here, there)]
    apart = not sessions[0].keys() & sessions[1].keys()
    if apart and any(len(of_it) < len(side) for of_it, side in zip(sessions, values, strict=True)):
        # Each side in sessions of its own: those are the values.
        values = [[statistics.fmean(logs) for logs in of_it.values()] for of_it in sessions]
        if min(map(len, values)) < 2:
            return replace(unpaired_estimate(*values), refused="each in a session of its own")
    estimate = replace(unpaired_estimate(*values, step=step), doubts=("unblocked",))
    if estimate.refused:
        return estimate
    if len(values[0]) == len(here) and len(values[1]) == len(there):
        width = sum(max(side) - min(side) for side in values) / 2
        estimate = _mixed(estimate, _common_causes(here, there), _UNBLOCKED, width)
    found = [(side, _slow(side, step)) for side in values]
    rest = [[value for i, value in enumerate(side) if i not in slow] for side, slow in found]
    slow = _slow_runs(*found)
    return (
        replace(estimate, slow=slow, rest=unpaired_estimate(rest[0], rest[1], step=step))
        if slow
        else estimate
    )


def _in_known_order(values: Sequence[MeasuredLog]) -> bool:
    return all(one.place is not None for one in values)


def _mixed(
    estimate: Estimate, found: Sequence[Alternative], prior: float, width: float
) -> Estimate:
    """Return the estimate with alternatives, each as probable as values and prior odds make it.

    None widens the interval of 95 % beyond `width` to each side, where it is not wider already.
    """
    error = estimate.error()
    if not found or not error:
        return estimate
    highest = max(0.0, *(one.weight for one in found))
    odds = [prior * math.exp(one.weight - highest) for one in found]
    whole = math.exp(-highest) + sum(odds)

    def within(one: Alternative) -> float:
        if one.reason == DRIFT:  # what it hides is not in the range of a side
            return one.widening
        degrees = max(1.0, estimate.degrees() + one.degrees)
        reach = t_quantile(0.95, estimate.degrees()) * error
        most = max(width, reach) / (t_quantile(0.95, degrees) * error)
        return min(one.widening, most)

    weighed = (
        replace(one, weight=odd / whole, widening=within(one))
        for one, odd in zip(found, odds, strict=True)
    )
    return replace(estimate, alternatives=tuple(weighed))


# -- models of values in their order -------------------------------------------------------------


class _Fit(Struct, frozen=True):
    effect: float  # the first coefficient
    error: float
    squares: float  # that are left
    log_likelihood: float  # coefficients and variance integrated out


type _Correlation = tuple[Floats, Floats, float]  # the matrix, its inverse, and the log of its det


def _fit(columns: Floats, y: Floats, alike: _Correlation | None = None) -> _Fit:
    """Return the regression of values, whose noise has these correlations (None: none)."""
    weighted = columns if alike is None else alike[1] @ columns
    normal = columns.T @ weighted
    at = np.linalg.solve(normal, weighted.T @ y)
    off, degrees = y - columns @ at, len(y) - columns.shape[1]
    squares = float(off @ (off if alike is None else alike[1] @ off))
    squares = max(squares, NO_DIFFERENCE**2)
    log_det = float(np.linalg.slogdet(normal)[1]) + (alike[2] if alike else 0.0)
    error = math.sqrt(squares / degrees * float(np.linalg.inv(normal)[0, 0]))
    return _Fit(float(at[0]), error, squares, -(log_det + degrees * math.log(squares)) / 2)


@lru_cache(maxsize=4)  # all benchmarks of a comparison have the same
def _correlation(groups: tuple[int, ...], *, serial: bool) -> _Correlation:
    """Return that of members of a group: neighbours in their order (`serial`), or all alike."""
    of_it = np.array(groups)
    same = of_it[:, None] == of_it
    if serial:
        order = np.array([groups[:place].count(group) for place, group in enumerate(groups)])
        alike = np.asarray(_RHO ** np.abs(order[:, None] - order) * same, dtype=np.float64)
    else:
        alike = _SESSION_SHARE * same + (1 - _SESSION_SHARE) * np.eye(len(groups))
    return alike, np.linalg.inv(alike), float(np.linalg.slogdet(alike)[1])


def _dependent(reason: str, columns: Floats, y: Floats, alike: _Correlation) -> Alternative:
    """Return that values are alike so: the log of its evidence, and the error of plain means."""
    free, bound = _fit(columns, y), _fit(columns, y, alike)
    mean = np.linalg.pinv(columns)[0]  # the weights of the values in the first coefficient
    ratio = bound.squares * float(mean @ alike[0] @ mean) / (free.squares * float(mean @ mean))
    odds = bound.log_likelihood - free.log_likelihood
    return Alternative(reason=reason, weight=odds, widening=math.sqrt(ratio))


def _caused(base: Floats, y: Floats, cause: Floats, prior: float = 1.0) -> Alternative:
    """Return that something in common moved the values: its evidence is that of a g prior."""
    free, it, many = _fit(base, y), _fit(np.column_stack([base, cause]), y), len(y)
    share = (1 + many * it.squares / free.squares) / (1 + many)
    odds = -(math.log(1 + many) + (many - base.shape[1]) * math.log(share)) / 2
    return Alternative(
        reason=DRIFT,
        weight=odds + math.log(prior),
        shift=it.effect - free.effect,
        widening=it.error / free.error,
        degrees=-1.0,
    )


def serial_evidence(series: Sequence[Sequence[float]]) -> float:
    """Return the log of how much better an autoregression makes values in their order likely.

    Of several series of equal length (benchmarks in the same rounds) the mean, times the effective
    number of series: the square of the trace of their correlations over that of its square (as
    principal components are counted).
    """
    rows = np.array(series, dtype=np.float64)
    rows = rows[rows.std(axis=1) > NO_DIFFERENCE]
    if not len(rows):
        return 0.0
    one, alike = np.ones((rows.shape[1], 1)), _correlation((0,) * rows.shape[1], serial=True)
    logs = [_dependent(_ROUNDS, one, row, alike).weight for row in rows]
    off = rows - rows.mean(axis=1, keepdims=True)
    off /= np.sqrt((off**2).sum(axis=1, keepdims=True))
    return statistics.fmean(logs) * len(rows) ** 2 / float(((off @ off.T) ** 2).sum())


def _common_causes(here: Sequence[MeasuredLog], there: Sequence[MeasuredLog]) -> list[Alternative]:
    """Return how else runs in their order may have come about; [] where it is not known."""
    runs = sorted(
        ((one.place, side, one.log) for side, of in ((1.0, here), (0.0, there)) for one in of),
        key=lambda it: it[0] or 0.0,
    )
    if not _in_known_order([*here, *there]) or len(runs) < 2 + _FEWEST:
        return []
    side, y = (np.array([run[i] for run in runs], dtype=np.float64) for i in (1, 2))
    base = np.stack([side, np.ones(len(y))], axis=1)
    if _fit(base, y).squares <= NO_DIFFERENCE**2:
        return []
    places = np.arange(len(y), dtype=np.float64)
    cuts = np.unique(np.linspace(1, len(y) - 1, _MOST_STEPS).astype(int))
    steps = [(places >= cut).astype(np.float64) for cut in cuts]
    steps = [step for step in steps if abs(np.corrcoef(step, side)[0, 1]) < 1 - NO_DIFFERENCE]
    found = [_caused(base, y, places), *(_caused(base, y, step, 1 / len(steps)) for step in steps)]
    if min(len(here), len(there)) >= _FEWEST:  # a state that stays with a side
        alike = _correlation(tuple(map(int, side)), serial=True)
        found.append(_dependent(_RUNS, base, y, alike))
    return found


def _drift_of_rounds(rounds: Sequence[tuple[MeasuredLog, MeasuredLog]]) -> list[Alternative]:
    """Return what a drift through the rounds does where the same point always goes first."""
    places = np.array([(here.place or 0.0, there.place or 0.0) for here, there in rounds])
    apart = float((places[:, 0] - places[:, 1]).mean())
    y = np.array([(here.log + there.log) / 2 for here, there in rounds])
    if abs(apart) < _OUT_OF_TURN or len(rounds) < _FEWEST or y.std() <= NO_DIFFERENCE:
        return []
    middle = places.mean(axis=1)
    drift = _caused(np.ones((len(y), 1)), y, middle)
    slope = _fit(np.stack([middle, np.ones(len(y))], axis=1), y).effect
    return [Alternative(reason=DRIFT, weight=drift.weight, shift=-slope * apart)]


# -- slow runs ----------------------------------------------------------------------------------


def _slow(values: Sequence[float], step: float) -> tuple[int, ...]:
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

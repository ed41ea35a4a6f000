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
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rater.analysis.stats.estimate import (
    NO_DIFFERENCE,
    Alternative,
    Estimate,
    SlowRuns,
    paired_estimate,
    t_quantile,
    unpaired_estimate,
)
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

type Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredLog:
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
    if _in_known_order([one for pair in rounds for one in pair]):
        log_odds = serial_evidence([differences]) if evidence is None else evidence
        widening = math.sqrt(_scale([differences]) * _of_mean(many))
        found.append(Alternative(*doubts or (_ROUNDS,), log_odds, widening=widening))
        by_session = group_by_key(
            (here.session, d) for (here, _), d in zip(rounds, differences, strict=True)
        )
        if 1 < len(by_session) < many:
            means = [statistics.fmean(values) for values in by_session.values()]
            of_means, error = paired_estimate(means, step=step), estimate.error() or math.inf
            # That sessions differ is not as rare as that rounds hang together.
            odds = _session_evidence(list(by_session.values())) - math.log(_IN_ROUNDS)
            widening = (of_means.error() or 0.0) / error
            found.append(Alternative(_SESSIONS, odds, 0.0, widening, of_means.degrees() - many + 1))
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

    weighed = zip(found, odds, strict=True)
    return replace(
        estimate,
        alternatives=tuple(
            replace(one, weight=odd / whole, widening=within(one)) for one, odd in weighed
        ),
    )


# -- values that hang together with their neighbours ---------------------------------------------


def serial_evidence(series: Sequence[Sequence[float]]) -> float:
    """Return the log of how much better an autoregression makes values in their order likely.

    Of several series of equal length (benchmarks in the same rounds) the mean, times the effective
    number of series: the square of the trace of their correlations over that of its square (as
    principal components are counted).
    """
    logs, left = [], []
    for values in series:
        x = np.asarray(values)
        off = x - x.mean()
        squares = float(off @ off)
        if squares > NO_DIFFERENCE**2:
            logs.append(_log_likelihood([values], _RHO) - _log_likelihood([values], 0.0))
            left.append(off / math.sqrt(squares))
    if not logs:
        return 0.0
    alike = np.stack(left) @ np.stack(left).T
    return statistics.fmean(logs) * len(logs) ** 2 / float((alike**2).sum())


def _whitened(values: Sequence[float], rho: float) -> tuple[Floats, Floats]:
    """Return values, and the constant 1, without what an autoregression carries on."""
    rows = np.stack([np.asarray(values, dtype=np.float64), np.ones(len(values))])
    rows[:, 1:] = (rows[:, 1:] - rho * rows[:, :-1]) / math.sqrt(1 - rho**2)
    return rows[0], rows[1]


def _squares(values: Sequence[float], rho: float) -> tuple[float, float]:
    """Return what is left beside the mean, and the square of the whitened constant."""
    y, one = _whitened(values, rho)
    weight = float(one @ one)
    off = y - one * (float(y @ one) / weight)
    return float(off @ off), weight


def _log_likelihood(sides: Sequence[Sequence[float]], rho: float) -> float:
    """Return that of sides in their order, means and the variance integrated out."""
    of = [_squares(side, rho) for side in sides]
    degrees = sum(map(len, sides)) - len(sides)
    bends = sum(len(side) - 1 for side in sides) * math.log(1 - rho**2)
    weights = sum(math.log(weight) for _, weight in of)
    return -(bends + weights + degrees * math.log(sum(left for left, _ in of))) / 2


def _scale(sides: Sequence[Sequence[float]]) -> float:
    """Return by how much the variance is larger, if it is one of an autoregression."""
    free, bound = (sum(_squares(side, rho)[0] for side in sides) for rho in (0.0, _RHO))
    return bound / free if free else 1.0


@cache
def _of_mean(many: int) -> float:
    """Return the variance of a mean of the autoregression over that of independent values."""
    return 1 + 2 * sum((many - lag) * _RHO**lag for lag in range(1, many)) / many


def _session_evidence(sessions: Sequence[Sequence[float]]) -> float:
    """Return the log of how much likelier values are if each session has a luck of its own."""
    every = [value for values in sessions for value in values]

    def log_likelihood(share: float) -> float:
        # The covariance (1 - share) I + share 11' of each session has few eigenvalues.
        log_det, weights, squares = 0.0, [], []
        for values in sessions:
            own = 1 - share + share * len(values)
            log_det += math.log(own) + (len(values) - 1) * math.log(1 - share)
            weights.append(len(values) / own)
            mean = statistics.fmean(values)
            squares.append(math.fsum((v - mean) ** 2 for v in values) / (1 - share))
        means = [statistics.fmean(values) for values in sessions]
        weight = math.fsum(weights)
        middle = math.sumprod(weights, means) / weight
        off = math.fsum(w * (m - middle) ** 2 for w, m in zip(weights, means, strict=True))
        left = max(off + math.fsum(squares), NO_DIFFERENCE**2)
        return -(log_det + math.log(weight) + (len(every) - 1) * math.log(left)) / 2

    return log_likelihood(_SESSION_SHARE) - log_likelihood(0.0)


# -- what runs of both sides have in common: a drift, a step, a state -----------------------------


def _common_causes(here: Sequence[MeasuredLog], there: Sequence[MeasuredLog]) -> list[Alternative]:
    """Return how else runs in their order may have come about; [] where it is not known."""
    runs = sorted(
        ((one.place, side, one.log) for side, of in ((1.0, here), (0.0, there)) for one in of),
        key=lambda it: it[0] or 0.0,
    )
    if not _in_known_order([*here, *there]) or len(runs) < 2 + _FEWEST:
        return []
    side, y = (np.array([run[i] for run in runs]) for i in (1, 2))
    base = np.stack([np.ones(len(y)), side], axis=1)
    free = _regression(base, y)
    if free.squares < NO_DIFFERENCE**2:
        return []
    places = np.arange(len(y), dtype=np.float64)
    cuts = np.unique(np.linspace(1, len(y) - 1, _MOST_STEPS).astype(int))
    steps = [(places >= cut).astype(np.float64) for cut in cuts]
    steps = [one for one in steps if abs(np.corrcoef(one, side)[0, 1]) < 1 - NO_DIFFERENCE]
    found = []
    for cause, prior in ((places, 1.0), *((one, 1 / len(steps)) for one in steps)):
        it = _regression(np.column_stack([base, cause]), y)
        odds = math.log(prior) + _coefficient_evidence(it.squares, free.squares, len(y), 2)
        found.append(Alternative(DRIFT, odds, it.effect - free.effect, it.error / free.error, -1.0))
    sides = [[log for _, which, log in runs if which == one] for one in (1.0, 0.0)]
    if min(map(len, sides)) >= _FEWEST:
        odds = _log_likelihood(sides, _RHO) - _log_likelihood(sides, 0.0)
        widening = math.sqrt(_scale(sides) * _of_mean(min(map(len, sides))))
        found.append(Alternative(_RUNS, odds, widening=widening))
    return found


def _drift_of_rounds(rounds: Sequence[tuple[MeasuredLog, MeasuredLog]]) -> list[Alternative]:
    """Return what a drift through the rounds does where the same point always goes first."""
    apart = statistics.fmean((here.place or 0.0) - (there.place or 0.0) for here, there in rounds)
    if abs(apart) < _OUT_OF_TURN or len(rounds) < _FEWEST:
        return []
    places, y = (
        np.array([sum(pair) / 2 for pair in pairs])
        for pairs in (
            [(here.place or 0.0, there.place or 0.0) for here, there in rounds],
            [(here.log, there.log) for here, there in rounds],
        )
    )
    free = float(((y - y.mean()) ** 2).sum())
    if free < NO_DIFFERENCE**2:
        return []
    it = _regression(np.stack([np.ones(len(y)), places], axis=1), y)
    odds = _coefficient_evidence(it.squares, free, len(y), 1)
    return [Alternative(DRIFT, odds, -it.effect * apart)]


def _coefficient_evidence(squares: float, without: float, many: int, base: int) -> float:
    """Return the log of how much likelier one more coefficient makes values, under the g prior."""
    share = (1 + many * squares / without) / (1 + many)
    return -(math.log(1 + many) + (many - base) * math.log(share)) / 2


@dataclass(frozen=True, slots=True)
class _Regression:
    effect: float  # of the second column
    error: float
    squares: float  # that are left


def _regression(columns: Floats, y: Floats) -> _Regression:
    inverse = np.linalg.inv(columns.T @ columns)
    at = inverse @ (columns.T @ y)
    off = y - columns @ at
    squares = float(off @ off)
    error = math.sqrt(squares / (len(y) - columns.shape[1]) * float(inverse[1, 1]))
    return _Regression(float(at[1]), error, squares)


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

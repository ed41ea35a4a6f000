"""Estimates from values in the order they were measured in, which may not be independent; pure.

An interval of Student's or Welch's knows the noise that values show of each other. It does not
know of causes that several values share: a state that stays with a point for several rounds (where
memory lies, which data is cached), a session (a boot, a night), a drift or a step through runs of
which one point's were all made before the other's. Of equal points verdicts are then wrong in up
to 80 of 100 cases (`benchmarks/situations.py`).

So values have not one model of their noise but a mixture (J. A. Hoeting et al., "Bayesian Model
Averaging", Statistical Science 14, 1999): that they are independent, and *alternatives*, each
weighted by its posterior probability. No test switches between them: an interval widens as they
become probable. Values of which no order is known are taken as independent.

- **Rounds that are correlated**: an autoregression of first order, R_ij = rho^|i - j| with
  rho = 0.9, whose mean of n values has the variance (1'R1 / n) / n of one. All benchmarks of the
  same rounds say together how probable it is: the mean of their log likelihoods, times the
  effective number of benchmarks.
- **Sessions** (an hour without a run parts two): values share the effect of their session;
  the sessions' means are the values then.
- **A drift, or a step** at one of the places between runs, common to both points: another
  coefficient of the regression (A. Zellner's g prior with the unit information, g = n).

Dependence widens an interval at most to the range that the values lie in (or leaves it, where it
is wider already): nothing is known of a state that lasts longer. Simulated
(`benchmarks/situations.py`), of equal points at most 5 in 100 are called apart where values are
independent; 8 with a step or a drift; of 10 benchmarks with states that last, 12 with 10 rounds
and 1 with 20. Of five rounds of one benchmark nobody can tell a state from noise: 40, and the
verdict names how many rounds there are.

**A slow mode**: up to a fifth of the values, all below the others by more than those make likely
(Student's t of the others at 1 % over all values).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

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

# Rounds: fewer say little of whether they are correlated. Simulated with a state that stays with a
# point for about ten rounds, equal points of one benchmark were called apart in 53 of 100 series of
# 6 rounds, 27 of 10 and 7 of 20.
LEAST_TESTED = 12
_LEAST_CORRELATED = 6  # rounds: of fewer the correlation says nothing
_RHO = 0.9  # correlation of neighbouring rounds, of states that last about ten rounds
_SESSION_SHARE = 0.8  # of the variance, where sessions differ
_OWN_SHARE = 1 - _SESSION_SHARE  # of the variance, what a value does not share with its session
# Prior odds of each alternative against independent values: rounds are made against dependence.
_IN_ROUNDS, _UNBLOCKED = 1 / 4, 4.0
_OUT_OF_TURN = 0.5  # places between the points of a round, on average
_FEWEST = 3  # values whose order says anything
_FEW_RUNS = 4  # of a side: Student's t reaches farther than any two of them lie apart
_MOST_STEPS = 30  # places at which a step is looked for
_SLOW_CHANCE = 0.01  # of calling any run of a side slow by chance
_SLOW_SHARE = 5  # one in so many at most: more are no exception
_LEAST_OTHERS = 4  # values that tell how far the usual ones vary
_CONFIDENCE = 0.95  # of the interval that dependence widens to the range at most

_ROUNDS = "rounds not independent"
_RUNS = "runs not independent"
_SESSIONS = "sessions differ"
DRIFT = "a drift would look the same (make them in turn)"
TOLD = 0.5  # an alternative at least as probable is told beside a verdict


class MeasuredLog(Struct, frozen=True):
    """The logarithm of one run's value, and when it was measured."""

    log: float
    place: float | None = None  # among the runs in order of time; None: not known
    session: int = 0


def estimate_from_rounds(
    rounds: Sequence[tuple[MeasuredLog, MeasuredLog]],
    *,
    step: float = 0.0,
    evidence: float | None = None,
) -> Estimate:
    """Return how far the first of each pair lies above the second; rounds in order of time.

    `evidence`: the `serial_evidence` of more values than these, None for none; `step`: see
    `stats.estimate.paired_estimate`.
    """
    differences = [first.log - second.log for first, second in rounds]
    estimate = paired_estimate(differences, step=step)
    if len(differences) < 2:
        return estimate
    doubts = (f"{len(differences)} rounds",) if len(differences) < LEAST_TESTED else ()
    alternatives: list[Alternative] = []
    is_ordered = _in_known_order([run for pair in rounds for run in pair])
    if is_ordered and np.std(differences) > NO_DIFFERENCE:
        few = len(differences) < _LEAST_CORRELATED
        reason = f"{len(differences)} rounds" if few else _ROUNDS
        serial = _serial_alternative(differences, reason)
        alternatives.append(serial if evidence is None else replace(serial, weight=evidence))
        alternatives += _session_alternatives(
            differences, [first.session for first, _ in rounds], estimate, step
        )
        alternatives += _drift_of_rounds(rounds)
    width = max(differences) - min(differences)
    estimate = replace(_mix(estimate, alternatives, _IN_ROUNDS, width), doubts=doubts)

    negated = [-difference for difference in differences]
    slow, slow_of_baseline = _slow_members(differences, step), _slow_members(negated, step)
    slow_runs = _slow_runs((differences, slow), (negated, slow_of_baseline))
    if not slow_runs:
        return estimate
    rest = _without(differences, {*slow, *slow_of_baseline})
    return replace(estimate, slow=slow_runs, rest=paired_estimate(rest, step=step))


def _serial_alternative(differences: Sequence[float], reason: str) -> Alternative:
    """Return that the differences of rounds are an autoregression; the weight is its log odds."""
    correlation = _correlation((0,) * len(differences), serial=True)
    ones = np.ones((len(differences), 1))
    return _dependent(reason, ones, np.array(differences), correlation)


def _session_alternatives(
    differences: Sequence[float], sessions: Sequence[int], estimate: Estimate, step: float
) -> list[Alternative]:
    """Return that sessions differ; the error is that of the means of several rounds each."""
    by_session = group_by_key(zip(sessions, differences, strict=True))
    rounds = len(differences)
    if not 1 < len(by_session) < rounds:
        return []
    correlation = _correlation(tuple(sessions), serial=False)
    ones = np.ones((rounds, 1))
    dependent = _dependent(_SESSIONS, ones, np.array(differences), correlation)
    of_means = paired_estimate([*map(statistics.fmean, by_session.values())], step=step)
    return [
        replace(
            dependent,
            # That sessions differ is not as rare as that rounds are correlated: even prior odds.
            weight=dependent.weight - math.log(_IN_ROUNDS),
            widening=(of_means.error() or 0.0) / (estimate.error() or math.inf),
            degrees=of_means.degrees() - rounds + 1,
        )
    ]


def estimate_from_runs(
    runs: Sequence[MeasuredLog], baseline: Sequence[MeasuredLog], *, step: float = 0.0
) -> Estimate:
    """Return how far runs that were not made in rounds lie above others; both have at least one."""
    sides = (runs, baseline)
    sessions = [group_by_key((run.session, run.log) for run in side) for side in sides]
    values = [[run.log for run in side] for side in sides]
    none_shared = not sessions[0].keys() & sessions[1].keys()
    is_session_repeated = any(
        len(of_side) < len(side) for of_side, side in zip(sessions, values, strict=True)
    )
    if none_shared and is_session_repeated:
        # Each side has sessions of its own: their means are the independent values.
        values = [[statistics.fmean(logs) for logs in of_side.values()] for of_side in sessions]
        if min(map(len, values)) < 2:
            return replace(unpaired_estimate(*values), refused="each in a session of its own")
    estimate = replace(unpaired_estimate(*values, step=step), doubts=("unblocked",))
    if estimate.refused:
        return estimate
    if len(values[0]) == len(runs) and len(values[1]) == len(baseline):
        width = sum(max(side) - min(side) for side in values) / 2
        ends = (max(values[0]) - min(values[1]), min(values[0]) - max(values[1]))
        widest = max(abs(end - estimate.log_ratio) for end in ends)
        if _FEWEST <= min(map(len, values)) <= _FEW_RUNS:
            estimate = replace(estimate, extremes=(ends[1], ends[0]))
        estimate = _mix(estimate, _common_causes(runs, baseline), _UNBLOCKED, width, widest)
    slow = [_slow_members(side, step) for side in values]
    slow_runs = _slow_runs(*zip(values, slow, strict=True))
    if not slow_runs:
        return estimate
    rest = [_without(side, members) for side, members in zip(values, slow, strict=True)]
    return replace(estimate, slow=slow_runs, rest=unpaired_estimate(rest[0], rest[1], step=step))


def _in_known_order(values: Sequence[MeasuredLog]) -> bool:
    return all(value.place is not None for value in values)


def _mix(
    estimate: Estimate,
    alternatives: Sequence[Alternative],
    prior: float,
    width: float,
    widest: float = math.inf,
) -> Estimate:
    """Return the estimate with alternatives, each weighted by its posterior probability.

    Given are logs of Bayes factors l_k against independent values, whose own is 0, and prior odds
    `prior` of each: weight_k = prior exp(l_k) / (1 + sum over j of prior exp(l_j)). None widens the
    interval of 95 % beyond `width` to each side, unless it is wider without it. A drift may have
    moved a side out of its range: it widens to `widest` at most, the ratio of the two values that
    lie farthest apart.
    """
    error = estimate.error()
    if not alternatives or not error:
        return estimate
    highest = max(0.0, *(alternative.weight for alternative in alternatives))  # against overflow
    odds = [prior * math.exp(alternative.weight - highest) for alternative in alternatives]
    total = math.exp(-highest) + sum(odds)

    def bounded_widening(alternative: Alternative) -> float:
        degrees = max(1.0, estimate.degrees() + alternative.degrees)
        reach = t_quantile(_CONFIDENCE, estimate.degrees()) * error
        range_width = widest if alternative.reason == DRIFT else width
        most = max(range_width, reach) / (t_quantile(_CONFIDENCE, degrees) * error)
        return min(alternative.widening, most)

    weighted = [
        replace(alternative, weight=odd / total, widening=bounded_widening(alternative))
        for alternative, odd in zip(alternatives, odds, strict=True)
    ]
    return replace(estimate, alternatives=tuple(weighted))


# -- models of values in their order -------------------------------------------------------------


class _Fit(Struct, frozen=True):
    effect: float  # the first coefficient
    error: float  # its standard error
    squares: float  # of the residuals, by the inverse of their correlations
    log_likelihood: float  # with coefficients and variance integrated out, but for a constant


class _Correlation(Struct, frozen=True):
    """Correlations R of values in groups, by what R and its inverse make of values.

    Values of different groups have none. `serial`: R_ij = rho^|i - j| in the order of the group's
    members, whose inverse has three diagonals. Else all members of a group have the same,
    R_ij = s, whose inverse takes their sum alone (J. Sherman, W. J. Morrison, 1950). So ten
    thousand values take as many steps, and no matrix of all pairs.
    """

    groups: tuple[Any, ...]  # of each the places of its members, an array of whole numbers
    serial: bool

    def times(self, values: Floats) -> Floats:
        """Return R y of values y (n,)."""
        product = np.empty_like(values)
        for members in self.groups:
            of_group = values[members]
            if self.serial:
                ahead = np.array([*accumulate(of_group, _decayed_sum)])
                behind = np.array([*accumulate(of_group[::-1], _decayed_sum)])[::-1]
                product[members] = ahead + behind - of_group
            else:
                product[members] = _SESSION_SHARE * of_group.sum() + _OWN_SHARE * of_group
        return product

    def solve(self, columns: Floats) -> Floats:
        """Return R^-1 X of columns X (n, p), or of values (n,)."""
        solved = np.empty_like(columns)
        for members in self.groups:
            of_group = columns[members]
            if self.serial:
                inner = of_group * (1 + _RHO**2)
                inner[[0, -1]] = of_group[[0, -1]]
                inner[1:] -= _RHO * of_group[:-1]
                inner[:-1] -= _RHO * of_group[1:]
                solved[members] = inner / (1 - _RHO**2) if len(members) > 1 else of_group
            else:
                common = _SESSION_SHARE / (_OWN_SHARE + _SESSION_SHARE * len(members))
                solved[members] = (of_group - common * of_group.sum(axis=0)) / _OWN_SHARE
        return solved

    @property
    def log_determinant(self) -> float:
        """ln |R|."""
        sizes = [len(members) for members in self.groups]
        if self.serial:
            return sum(size - 1 for size in sizes) * math.log(1 - _RHO**2)
        return sum(
            (size - 1) * math.log(_OWN_SHARE) + math.log(_OWN_SHARE + _SESSION_SHARE * size)
            for size in sizes
        )


def _decayed_sum(before: float, value: float) -> float:
    return _RHO * before + value


def _fit(columns: Floats, values: Floats, correlation: _Correlation | None = None) -> _Fit:
    """Return the regression of values y (n,) on columns X (n, p), with noise correlated by R.

    Generalised least squares: b = (X'R^-1 X)^-1 X'R^-1 y, with squares S = r'R^-1 r of the
    residuals r = y - X b; the variance of b is S / (n - p) (X'R^-1 X)^-1. The likelihood with b
    and the variance integrated out (D. A. Harville, Biometrika 61, 1974) has the log
    -(ln |R| + ln |X'R^-1 X| + (n - p) ln S) / 2. Without `correlation` R is the identity.
    """
    weighted = columns if correlation is None else correlation.solve(columns)
    normal = columns.T @ weighted
    coefficients = np.linalg.solve(normal, weighted.T @ values)
    residuals, degrees = values - columns @ coefficients, len(values) - columns.shape[1]
    squares = float(
        residuals @ (residuals if correlation is None else correlation.solve(residuals))
    )
    squares = max(squares, NO_DIFFERENCE**2)
    log_determinant = float(np.linalg.slogdet(normal)[1])
    log_determinant += correlation.log_determinant if correlation else 0.0
    return _Fit(
        effect=float(coefficients[0]),
        error=math.sqrt(squares / degrees * float(np.linalg.inv(normal)[0, 0])),
        squares=squares,
        log_likelihood=-(log_determinant + degrees * math.log(squares)) / 2,
    )


@lru_cache(maxsize=4)  # all benchmarks of a comparison have the same
def _correlation(groups: tuple[int, ...], *, serial: bool) -> _Correlation:
    """Return the correlations of values by their groups: see `_Correlation`."""
    members = group_by_key((group, place) for place, group in enumerate(groups))
    return _Correlation(tuple(np.array(places) for places in members.values()), serial)


def _dependent(
    reason: str, columns: Floats, values: Floats, correlation: _Correlation
) -> Alternative:
    """Return that noise is correlated so; the weight is the log of its Bayes factor.

    The estimate remains the mean with weights m for independent noise. Its variance is S_R m'R m
    with correlations R and S_1 m'm without, of the squares S of both fits.
    """
    independent, dependent = _fit(columns, values), _fit(columns, values, correlation)
    weights = np.linalg.pinv(columns)[0]  # of the values in the first coefficient
    variance = dependent.squares * float(weights @ correlation.times(weights))
    independent_variance = independent.squares * float(weights @ weights)
    return Alternative(
        reason=reason,
        weight=dependent.log_likelihood - independent.log_likelihood,
        widening=math.sqrt(variance / independent_variance),
    )


def _caused(base: Floats, values: Floats, cause: Floats, prior: float = 1.0) -> Alternative:
    """Return that a common cause moved the values; the weight is the log of its Bayes factor.

    With squares S_0 of the fit to `base` (n, p) and S_1 of that with the cause as well, under
    Zellner's g prior with g = n the factor is (1 + n)^((n - p - 1) / 2) / (1 + n S_1 / S_0)^((n -
    p) / 2) (F. Liang et al., JASA 103, 2008, equation 6). `prior`: of this cause among its kind.
    """
    without, caused = _fit(base, values), _fit(np.column_stack([base, cause]), values)
    n, p = base.shape
    share = (1 + n * caused.squares / without.squares) / (1 + n)
    log_odds = -(math.log(1 + n) + (n - p) * math.log(share)) / 2
    return Alternative(
        reason=DRIFT,
        weight=log_odds + math.log(prior),
        shift=caused.effect - without.effect,
        widening=caused.error / without.error,
        degrees=-1.0,
    )


def serial_evidence(series: Sequence[Sequence[float]]) -> float:
    """Return the log of the Bayes factor of an autoregression against independent values.

    Of K series of equal length (benchmarks in the same rounds) the mean, times their effective
    number: with the correlations C of the series, (trace C)^2 / trace(C^2) = K^2 / sum of C_ij^2
    (C. S. Bretherton et al., Journal of Climate 12, 1999).
    """
    rows = np.array(series, dtype=np.float64)
    rows = rows[rows.std(axis=1) > NO_DIFFERENCE]
    if not len(rows):
        return 0.0
    logs = [_serial_alternative(row, _ROUNDS).weight for row in rows]
    centred = rows - rows.mean(axis=1, keepdims=True)
    centred /= np.sqrt((centred**2).sum(axis=1, keepdims=True))
    effective = len(rows) ** 2 / float(((centred @ centred.T) ** 2).sum())
    return statistics.fmean(logs) * effective


def _common_causes(
    runs: Sequence[MeasuredLog], baseline: Sequence[MeasuredLog]
) -> list[Alternative]:
    """Return how else runs in their order may have come about; empty if it is not known."""
    if not _in_known_order([*runs, *baseline]) or len(runs) + len(baseline) < 2 + _FEWEST:
        return []
    sides = [(run, 1.0) for run in runs] + [(run, 0.0) for run in baseline]
    sides.sort(key=lambda member: (member[0].place or 0.0, member[1], member[0].log))
    side = np.array([is_of_runs for _, is_of_runs in sides])
    values = np.array([run.log for run, _ in sides])
    base = np.stack([side, np.ones(len(values))], axis=1)
    if _fit(base, values).squares <= NO_DIFFERENCE**2:
        return []
    places = np.arange(len(values), dtype=np.float64)
    cuts = np.unique(np.linspace(1, len(values) - 1, _MOST_STEPS).astype(int))
    steps = [(places >= cut).astype(np.float64) for cut in cuts]
    # A step between the two sides is their difference itself.
    steps = [step for step in steps if abs(np.corrcoef(step, side)[0, 1]) < 1 - NO_DIFFERENCE]
    alternatives = [_caused(base, values, places)]
    alternatives += [_caused(base, values, step, 1 / len(steps)) for step in steps]
    if min(len(runs), len(baseline)) >= _FEWEST:  # a state that stays with a side
        correlation = _correlation(tuple(map(int, side)), serial=True)
        alternatives.append(_dependent(_RUNS, base, values, correlation))
    return alternatives


def _drift_of_rounds(rounds: Sequence[tuple[MeasuredLog, MeasuredLog]]) -> list[Alternative]:
    """Return how a drift through the rounds moves the estimate if one point always goes first.

    The shift is the slope of the rounds' means over time, times the places between both points.
    """
    places = np.array([(first.place or 0.0, second.place or 0.0) for first, second in rounds])
    lead = float((places[:, 0] - places[:, 1]).mean())
    means = np.array([(first.log + second.log) / 2 for first, second in rounds])
    if abs(lead) < _OUT_OF_TURN or len(rounds) < _FEWEST or means.std() <= NO_DIFFERENCE:
        return []
    middle = places.mean(axis=1)
    drift = _caused(np.ones((len(means), 1)), means, middle)
    slope = _fit(np.stack([middle, np.ones(len(means))], axis=1), means).effect
    return [Alternative(reason=DRIFT, weight=drift.weight, shift=-slope * lead)]


# -- slow runs ----------------------------------------------------------------------------------


def _slow_members(values: Sequence[float], step: float) -> tuple[int, ...]:
    """Return the places of values that lie far below all others; as many as do, or none.

    A new value lies more than t s sqrt(1 + 1 / n) below the mean of n others, with standard
    deviation s, as often as Student's t with n - 1 degrees of freedom says (the prediction
    interval of a normal value). The level is divided by the number of values (Bonferroni). Two
    steps more are asked for: both times are rounded.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    ascending = [values[place] for place in order]
    most = len(ascending) // _SLOW_SHARE
    upper_means, upper_deviations = _upper_spreads(ascending, most)
    confidence = 1 - _SLOW_CHANCE / max(1, len(ascending))
    # t grows as degrees go: what lies within that of the most of them needs no other.
    least_t = t_quantile(confidence, len(ascending) - 2) if most else 0.0
    for count in range(most, 0, -1):
        n = len(ascending) - count
        if n < _LEAST_OTHERS:
            continue
        gap = upper_means[count] - ascending[count - 1] - 2 * step
        reach = upper_deviations[count] * math.sqrt(1 + 1 / n)
        if gap > least_t * reach and gap > t_quantile(confidence, n - 1) * reach:
            return tuple(order[:count])
    return ()


def _upper_spreads(ascending: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of the values from each place to the end, up to `most`.

    One value more at a time, from the largest (B. P. Welford, Technometrics 4, 1962).
    """
    means, deviations = [0.0] * (most + 1), [0.0] * (most + 1)
    mean = squares = 0.0
    for place in range(len(ascending) - 1, -1, -1):
        n = len(ascending) - place
        distance = ascending[place] - mean
        mean += distance / n
        squares += distance * (ascending[place] - mean)
        if place <= most and n > 1:
            means[place], deviations[place] = mean, math.sqrt(squares / (n - 1))
    return means, deviations


def _without(values: Sequence[float], places: Collection[int]) -> list[float]:
    left_out = set(places)
    return [value for place, value in enumerate(values) if place not in left_out]


def _slow_runs(*sides: tuple[Sequence[float], Sequence[int]]) -> tuple[SlowRuns, ...]:
    """Return the slow runs of both sides, given as values and the places of the slow ones."""
    slow_runs = []
    for side, (values, slow) in enumerate(sides):
        if not slow:
            continue
        usual = statistics.median(_without(values, slow))
        slower = math.expm1(usual - statistics.median(values[place] for place in slow))
        slow_runs.append(SlowRuns(len(slow), len(values), slower, of_baseline=bool(side)))
    return tuple(slow_runs)

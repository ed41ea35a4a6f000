"""Throughput against copies: the Universal Scalability Law, and where a curve bends; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.intervals import Noise
from rater.analysis.stats.robust import Floats
from rater.analysis.stats.roots import sign_change

# The knee is the smallest number of copies beyond which no measured number gives half of what a
# copy gave at the start, for each copy added: the rate from the knee to every later point rises by
# less than half of X(n0) / n0 a copy. That is a statement in the user's units, and its place
# depends little on how far the curve was measured. (Kneedle, Satopaa et al., "Finding a 'kneedle'
# in a haystack", ICDCS workshops 2011, was tried: it scales both axes to the range that was
# measured, so every bent curve has a knee, whose place moves with the range, and with 5 % noise it
# named one on 94 of 100 straight lines of 16 points.)
#
# Nothing is named that noise could have made: the rise to the last point must be below half by more
# than noise, the places that were tried considered (Bonferroni, 1 % in all). A plateau is a knee
# beyond which no point is better by more than noise, nor all of them together; the rise to the last
# point must also be below a quarter by more than noise. Noise that could hide a gain proves
# nothing: a plateau is named only where all later points together exclude a gain of more than 5 %
# (one-sided 97.5 % bound of the mean of their logarithms, as tests of equivalence do: D. J.
# Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). Else it stands with a question mark.
# A fall is a later point below the peak by more than noise, all pairs of points considered.

SHARE = 0.5  # of the rate a copy at the start; beyond the knee a copy adds less
LEAST_POINTS = 3
_KNEE_ALPHA = 0.01  # probability that a knee, or a fall, is named by chance
_FLAT = 0.25  # of the rate a copy at the start; a plateau rises by less, beyond noise
_BETTER_ALPHA = 0.025  # probability that a point on a plateau counts as better by chance
_NO_GAIN = 0.05  # chosen: a rate that rises by less, over all later points, is no gain


class CurveShape(Struct, frozen=True, kw_only=True):
    """Where a curve bends, as numbers of copies; a place that it does not have is None."""

    knee: int | None  # beyond it a copy adds less than half of the first copies' rate
    plateau: int | None  # beyond it a gain is excluded
    peak: int  # where the rate is highest, by however little
    falls_at: int | None  # the first beyond the peak that is lower by more than noise
    reason: str | None  # why knee and plateau are not known, in words
    # Without a knee: where one would be, by the means, if noise did not hide it. The numbers of
    # copies must at least double beyond it: over less, noise alone gives such means.
    maybe: int | None = None
    maybe_plateau: int | None = None  # below a plateau: none was seen beyond, noise could hide one


def curve_shape(
    copies: Sequence[int],
    rates: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
    fair: int | None = None,
) -> CurveShape:
    """Return the shape of a curve; `copies` ascend, `rates` are means over so many `runs`.

    In the first `fair` points (None: all) each copy has a core. What second threads, or more copies
    than CPUs, do says nothing of a bend among those, so it is looked for among them alone, and
    with the others only at the last of them and beyond.
    """
    curve = _Measured(copies, rates, [noise.of_mean(count) for count in runs])
    end = len(copies) - 1
    peak = max(range(end + 1), key=lambda point: (rates[point], -point))
    falls_at = _first_fall(curve, peak, noise)
    if end + 1 < LEAST_POINTS:
        reason = f"{end + 1} numbers of copies; a knee needs {LEAST_POINTS}"
        return CurveShape(
            knee=None, plateau=None, peak=copies[peak], falls_at=falls_at, reason=reason
        )
    level, better = noise.quantile(_KNEE_ALPHA / end), noise.quantile(_BETTER_ALPHA)
    border = end if fair is None else max(fair - 1, 0)
    # The last point has nothing behind it that could be less.
    reach = [border if point < border else end for point in range(end)]
    bent = [point for point in range(end) if curve.stays_below(SHARE, point, reach[point], level)]
    flat = [
        point
        for point in bent
        if curve.stays_below(_FLAT, point, reach[point], better)
        and all(curve.above(later, point) <= better for later in range(point + 1, end + 1))
        and curve.gain_beyond(point, -better) <= 0
    ]
    excluded = [point for point in flat if curve.gain_beyond(point, better) <= math.log1p(_NO_GAIN)]
    hidden = [
        point
        for point in range(end)
        if copies[reach[point]] >= 2 * copies[point]
        and curve.stays_below(SHARE, point, reach[point], 0.0)
    ]
    return CurveShape(
        knee=copies[bent[0]] if bent else None,
        plateau=copies[excluded[0]] if excluded else None,
        maybe_plateau=copies[flat[0]] if flat[:1] != excluded[:1] else None,
        peak=copies[peak],
        falls_at=falls_at,
        reason=None,
        maybe=copies[hidden[0]] if hidden and not bent else None,
    )


def _first_fall(curve: _Measured, peak: int, noise: Noise) -> int | None:
    """Return the first copies beyond the peak with a rate below it by more than noise.

    All pairs of points are considered (Bonferroni).
    """
    last = len(curve.copies) - 1
    pairs = max(1, last * (last + 1) // 2)
    least = noise.quantile(_KNEE_ALPHA / pairs)
    later = range(peak + 1, last + 1)
    return next((curve.copies[point] for point in later if curve.above(peak, point) > least), None)


class _Measured(Struct, frozen=True):
    copies: Sequence[int]
    rates: Sequence[float]
    errors: Sequence[float]  # standard errors of the logs of the rates

    def stays_below(self, share: float, start: int, last: int, level: float) -> bool:
        """Tell whether the rise from point `start` is below that share of the curve's start.

        To each later point as far as `last`, and to `last` by `level` standard errors. The error is
        propagated from three rates x with relative errors e: of a sum of w x it is the root of the
        sum of (w x e)^2.
        """
        if any(self._shortfall(share, start, later) <= 0 for later in range(start + 1, last + 1)):
            return False
        weights = [0.0] * len(self.copies)
        weights[0] += share * (self.copies[last] - self.copies[start]) / self.copies[0]
        weights[start] += 1
        weights[last] -= 1
        terms = zip(weights, self.rates, self.errors, strict=True)
        error = math.hypot(*(w * x * e for w, x, e in terms))
        return self._shortfall(share, start, last) > level * error

    def _shortfall(self, share: float, start: int, later: int) -> float:
        """Return the rate that a later point lacks to such a share of the curve's start."""
        a_copy = share * self.rates[0] / self.copies[0]
        added = self.copies[later] - self.copies[start]
        return self.rates[start] + a_copy * added - self.rates[later]

    def gain_beyond(self, point: int, level: float) -> float:
        """Return the mean gain (ln) of all later points over a point, plus `level` errors of it."""
        later = range(point + 1, len(self.copies))
        gains = [math.log(self.rates[other] / self.rates[point]) for other in later]
        of_later = math.hypot(*(self.errors[other] for other in later)) / len(later)
        return math.fsum(gains) / len(later) + level * math.hypot(of_later, self.errors[point])

    def above(self, point: int, other: int) -> float:
        """Return how many standard errors the log of a rate lies above that of another."""
        error = math.hypot(self.errors[point], self.errors[other])
        difference = math.log(self.rates[point] / self.rates[other])
        return difference / error if error else math.inf * difference if difference else 0.0


# -- The Universal Scalability Law, fitted to throughput against copies; pure, needs numpy ---------
#
# X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))
#
# Source: N. J. Gunther, "A General Theory of Computational Scalability Based on Rational
# Functions", arXiv:0808.1431 (2008), with the rate of one copy, lambda, as third coefficient (B.
# Schwartz, "Practical Scalability Analysis with the Universal Scalability Law", 2015). sigma is
# contention: the share of the work that has to wait for something shared; kappa is coherency: what
# each copy costs each other one. Both are at least 0 here. The peak is at sqrt((1 - sigma) /
# kappa).
#
# Least squares on log X, since noise of rates is a share of them; or, asked for, on X itself, by
# which the largest rates decide, as Gunther's examples are published (N. J. Gunther, "Guerrilla
# Capacity Planning", 2007; S. Moeding's R package usl). For given sigma and kappa the best lambda
# is a projection (G. H. Golub and V. Pereyra's variable projection, its derivatives as L. Kaufman,
# BIT 15, 1975, simplifies them); the two are found by Levenberg's and Marquardt's damped Gauss-
# Newton steps, begun from the linear form n / X = (1 + sigma (n - 1) + kappa n (n - 1)) / lambda. A
# coefficient that would fall below 0 is held at 0 and the others are fitted again: of all such
# choices the one with the least squares.
#
# The 95 % intervals of sigma and kappa are those of the profile likelihood: all values with which
# the squares, at the best of the other two (none below 0), are no more than t^2 s^2 above the
# least, s^2 by n - 3 degrees of freedom whatever is held (Bates and Watts, "Nonlinear Regression
# Analysis and Its Applications", 1988, chapter 6). So one that is held at 0 has an upper bound.
# Simulated, they hold the truth in 92 to 99 of 100 cases.

USL_LEAST_POINTS = 4  # three coefficients, and one to see whether they fit
LEAST_RANGE = 4  # the largest number of copies over the smallest
BAD_RMS = 0.10
_FAR = 4  # times the largest number of copies: a peak that may lie beyond is not told
_USL_ALPHA = 0.05  # probability that noise alone makes a straight line look bent
_CONFIDENCE = 0.95  # of all intervals of the law
_STEPS = 200  # of an iteration at most; tens are usual
_ROUNDING = 1e-12  # of a rate: what arithmetic leaves of it
_UNBOUNDED = 1e6  # of a coefficient, or of times the first step: it has no bound
# Levenberg and Marquardt's damping: by Marquardt's strategy it grows with a failed step (SIAM J.
# 11, 1963, with a factor of 10), and beyond the largest no step can help.
_DAMPING, _DAMPING_FACTOR, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 8, 1e-12, 1e12
# Which of sigma and kappa are free.
_CHOICES = ((False, False), (False, True), (True, False), (True, True))


class LawScale(StrEnum):
    """The quantity whose squared residuals a fit makes least."""

    LOG = "log X"
    RATE = "X"


class Coefficient(Struct, frozen=True):
    """A fitted value and its interval; one that is held at its bound 0 has no standard error."""

    value: float
    error: float | None
    low: float  # of the 95 % interval
    high: float  # infinite where nothing bounds it

    @property
    def symmetric(self) -> float | None:
        """The standard error, where it says all: the interval does not reach the bound 0."""
        return self.error if self.low > 0 else None


class Usl(Struct, frozen=True, kw_only=True):
    """The law with the coefficients that fit a curve."""

    rate: Coefficient  # lambda: of one copy, in the unit of the rates
    sigma: Coefficient
    kappa: Coefficient
    copies: tuple[int, ...]  # it was fitted to
    residuals: tuple[float, ...]  # measured / fitted - 1, by number of copies
    rms: float  # of the residuals; fitted to X: as a share of the mean rate
    degrees: int  # of freedom: numbers of copies less coefficients that were fitted
    peak: float | None  # copies; None: kappa is 0, or the interval of the peak is open
    extrapolated: bool  # the peak lies beyond the largest number of copies
    # Without a peak: if there is one it lies beyond so many copies (kappa at its upper bound, or
    # the lower end of the interval of the peak).
    none_before: float | None
    limit: float | None  # without kappa: lambda / sigma, which the rate never reaches
    scale: LawScale = LawScale.LOG
    peak_interval: tuple[float, float] | None = None  # of 95 %; None: no peak

    @property
    def bad(self) -> bool:
        """Whether it does not describe the curve: residuals of more than 10 %."""
        return self.rms > BAD_RMS

    def fitted_rate(self, copies: float) -> float:
        """Return the fitted rate of so many copies."""
        slowed = 1 + self.sigma.value * (copies - 1) + self.kappa.value * copies * (copies - 1)
        return self.rate.value * copies / slowed


class NoLaw(Struct, frozen=True):
    """Why the law is not fitted, in words."""

    reason: str


def fit_usl(
    copies: Sequence[int],
    rates: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
    scale: LawScale = LawScale.LOG,
) -> Usl | NoLaw:
    """Fit the law; `copies` ascend, each once, `rates` are means over so many `runs`.

    Refused: fewer than four numbers of copies; a largest below four times the smallest; a straight
    line that fits as well: the squares that the law explains beyond it on log X are within `noise`
    (an F test, a little strict as both coefficients are at least 0); and a curve that only falls,
    if sigma or kappa then have no end.
    """
    if len(copies) < USL_LEAST_POINTS:
        return NoLaw(
            f"three coefficients need {USL_LEAST_POINTS} numbers of copies, not {len(copies)}"
        )
    if copies[-1] < LEAST_RANGE * copies[0]:
        return NoLaw(
            f"{copies[0]} to {copies[-1]} copies cover too little; the largest must be "
            f"{LEAST_RANGE} times the smallest"
        )
    counts, measured = np.array(copies, dtype=np.float64), np.array(rates, dtype=np.float64)
    curve = _points(counts, measured, LawScale.LOG)
    coefficients, free = _least(curve)
    straight, bent = curve.law((0.0, 0.0)).squares, curve.law(coefficients).squares
    error = math.sqrt(sum(noise.of_mean(count) ** 2 for count in runs) / len(runs))
    if not any(free) or _by_chance(straight - bent, error, noise.degrees) > _USL_ALPHA:
        rms = math.sqrt(straight / len(copies))
        return NoLaw(f"a straight line fits as well (within {rms * 100:.1f} %)")
    if scale is LawScale.RATE:
        curve = _points(counts, measured, scale)
        coefficients, free = _least(curve)
    if max(coefficients) > _UNBOUNDED:
        return NoLaw(f"from {copies[0]} copies on rates only fall: any rate of one copy fits")
    return _result(curve, coefficients, free)


type _Coefficients = tuple[float, float]  # sigma, kappa


class _Points(Struct, frozen=True):
    """A measured curve."""

    copies: Floats
    rates: Floats
    scale: LawScale
    columns: Floats  # (points, 2): n - 1 and n (n - 1), with which sigma and kappa slow a copy

    def rounding(self) -> float:
        """Return the squares that arithmetic leaves of a law that goes through all points."""
        return self.copies.size * _ROUNDING**2

    def law(self, coefficients: _Coefficients) -> _Law:
        """Return the law with these coefficients and the best lambda, held against the curve."""
        slowed = 1 + self.columns @ coefficients
        weights = np.ones_like(slowed)
        if slowed.min() <= 0:  # rates would be below 0
            rate, residuals = math.nan, np.full_like(slowed, math.inf)
        elif self.scale is LawScale.LOG:
            logs = np.log(self.rates * slowed / self.copies)
            rate, residuals = math.exp(logs.mean()), logs - logs.mean()
        else:
            shape, mean = self.copies / slowed, self.rates.mean()
            rate = float(self.rates @ shape) / float(shape @ shape)
            weights = rate * shape / mean
            residuals = self.rates / mean - weights
        return _Law(
            slowed=slowed,
            rate=rate,
            residuals=residuals,
            weights=weights,
            squares=float(residuals @ residuals),
        )


def _points(copies: Floats, rates: Floats, scale: LawScale) -> _Points:
    return _Points(copies, rates, scale, np.stack([copies - 1, copies * (copies - 1)], axis=1))


class _Law(Struct, frozen=True, kw_only=True):
    """How the law with given coefficients fits a curve; arrays have a value a point."""

    slowed: Floats  # 1 + sigma (n - 1) + kappa n (n - 1)
    rate: float  # lambda
    residuals: Floats  # log of measured over fitted; on X the difference over the mean rate
    weights: Floats  # how a residual falls as log lambda grows
    squares: float  # of the residuals; infinite: such a law cannot be

    def slope(self, column: Floats) -> Floats:
        """Return how residuals grow with what slows a copy by `column`, at the best lambda."""
        held = self.weights / self.slowed * column  # if lambda is held
        return held - self.weights * (
            float(self.weights @ held) / float(self.weights @ self.weights)
        )


def _least(curve: _Points) -> tuple[_Coefficients, tuple[bool, bool]]:
    """Return sigma and kappa of the least squares, none below 0, and which of them are free."""
    start = _linear_form(curve)
    fits = [(_descend(curve, start, free), free) for free in _CHOICES]
    allowed = [(fit, free) for fit, free in fits if fit is not None and min(fit) >= 0]
    return min(allowed, key=lambda found: max(curve.law(found[0]).squares, curve.rounding()))


def _by_chance(explained: float, error: float, degrees: int | None) -> float:
    """Return how often noise alone would explain so much with two more coefficients.

    The ratio F = explained / 2 / error^2 has 2 and m degrees of freedom: P(larger) = (1 + 2 F /
    m)^(-m / 2), and exp(-F) if `error` is exact (Abramowitz and Stegun 26.6.4).
    """
    if not error:
        return 0.0 if explained > 0 else 1.0
    half_ratio = explained / error**2 / 2
    return (
        math.exp(-half_ratio)
        if degrees is None
        else (1 + 2 * half_ratio / degrees) ** (-degrees / 2)
    )


def _linear_form(curve: _Points) -> _Coefficients:
    """Return a first guess: n / X is linear in 1, n - 1 and n (n - 1); errors are relative."""
    n = curve.copies
    rows = (curve.rates / n)[:, None] * np.column_stack([np.ones_like(n), curve.columns])
    (whole, sigma, kappa), *_ = np.linalg.lstsq(rows, np.ones_like(n), rcond=None)
    if whole <= 0:
        return 0.0, 0.0
    return max(0.0, float(sigma / whole)), max(0.0, float(kappa / whole))


def _descend(curve: _Points, start: _Coefficients, free: tuple[bool, bool]) -> _Coefficients | None:
    """Return sigma and kappa with the least squares, negative ones too; None: not reached.

    A coefficient that is not `free` is 0. Steps are those of Levenberg and Marquardt, with J the
    slopes of the residuals r: (J'J + damping diag(J'J)) step = -J'r.
    """
    columns = np.flatnonzero(free)
    if not columns.size:
        return 0.0, 0.0
    coefficients = np.array(start) * free
    law, damping = curve.law((coefficients[0], coefficients[1])), _DAMPING
    for _ in range(_STEPS):
        slopes = np.stack([law.slope(curve.columns[:, column]) for column in columns], axis=1)
        normal = slopes.T @ slopes
        gradient = slopes.T @ law.residuals
        try:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
        except np.linalg.LinAlgError:  # flat, far out: the squares fall on and on
            break
        candidate = coefficients.copy()
        candidate[columns] += step
        candidate_law = curve.law((candidate[0], candidate[1]))
        if candidate_law.squares > law.squares:
            damping *= _DAMPING_FACTOR
            if damping > _MOST_DAMPING:
                break
            continue
        is_small = np.all(np.abs(step) <= 1e-10 * (np.abs(coefficients[columns]) + 1e-12))
        coefficients, law = candidate, candidate_law
        damping = max(damping / _DAMPING_FACTOR, _LEAST_DAMPING)
        if is_small:
            break
    else:
        return None
    return float(coefficients[0]), float(coefficients[1])


def _allowed(curve: _Points, coefficients: _Coefficients) -> float:
    """Return the squares that the true coefficients have at most (95 %): S (1 + t^2 / degrees)."""
    degrees = curve.copies.size - USL_LEAST_POINTS + 1
    squares = max(curve.law(coefficients).squares, curve.rounding())
    return squares * (1 + t_quantile(_CONFIDENCE, degrees) ** 2 / degrees)


def _interval(curve: _Points, coefficients: _Coefficients, index: int) -> tuple[float, float]:
    """Return the interval of sigma (index 0) or kappa (1) by its profile; infinite: no bound."""
    most_squares = _allowed(curve, coefficients)
    along = (0.0, 1.0) if index == 0 else (1.0, 0.0)

    def excess(value: float) -> float:
        fixed = (value, 0.0) if index == 0 else (0.0, value)
        return _profile(curve, fixed, along, coefficients[1 - index]) - most_squares

    value = coefficients[index]
    slopes = curve.law(coefficients).slope(curve.columns[:, index])
    step = math.sqrt(most_squares / float(slopes @ slopes))
    low = sign_change(excess, value, 0.0)
    high = value + step
    while excess(high) <= 0:
        high += high - value
        if high > _UNBOUNDED * (value + step):
            return low, math.inf
    return low, sign_change(excess, value, high)


def _peak_interval(curve: _Points, coefficients: _Coefficients, peak: float) -> tuple[float, float]:
    """Return the interval of the peak by its profile; infinite: it may lie far beyond."""
    most_squares = _allowed(curve, coefficients)

    def excess(copies: float) -> float:  # kappa = (1 - sigma) / copies^2
        bend = 1 / copies**2
        return _profile(curve, (0.0, bend), (1.0, -bend), coefficients[0], 1.0) - most_squares

    far = _FAR * float(curve.copies[-1])
    low = sign_change(excess, peak, 1.0)
    return low, math.inf if peak >= far or excess(far) <= 0 else sign_change(excess, peak, far)


def _profile(
    curve: _Points,
    base: _Coefficients,
    along: _Coefficients,
    start: float,
    most_times: float = math.inf,
) -> float:
    """Return the least squares at `base` and 0 to `most_times` times `along` (Gauss and Newton).

    A step that makes the squares larger is halved: far from the minimum it leads anywhere.
    """

    def law_at(times: float) -> _Law:
        return curve.law((base[0] + times * along[0], base[1] + times * along[1]))

    times, column = min(start, most_times), curve.columns @ along
    law, step = law_at(times), 0.0
    for _ in range(_STEPS):
        if not step:
            slope = law.slope(column)
            curvature = float(slope @ slope)
            if not curvature:  # so far out that the law is flat there: nothing changes any more
                break
            step = -float(slope @ law.residuals) / curvature
        moved = min(most_times, max(0.0, times + step))
        is_small = abs(moved - times) <= 1e-6 * (times + 1e-9)
        moved_law = law_at(moved)
        if moved_law.squares > law.squares and not is_small:
            step /= 2
            continue
        times, law, step = moved, moved_law, 0.0
        if is_small:
            break
    return law.squares


def _result(curve: _Points, coefficients: _Coefficients, free: tuple[bool, bool]) -> Usl:
    law = curve.law(coefficients)
    rate = law.rate
    errors = _standard_errors(curve, law, free)
    degrees = len(curve.copies) - len(errors)
    reach = t_quantile(_CONFIDENCE, degrees) * errors[0]
    of_free = iter(errors[1:])
    sigma, kappa = (
        _coefficient(curve, coefficients, index, next(of_free) if free[index] else None)
        for index in (0, 1)
    )
    peak = _peak(curve, coefficients, sigma, kappa)
    last = float(curve.copies[-1])
    return Usl(
        rate=Coefficient(
            value=rate,
            error=rate * errors[0],
            low=rate * math.exp(-reach),
            high=rate * math.exp(reach),
        ),
        sigma=sigma,
        kappa=kappa,
        copies=tuple(int(count) for count in curve.copies),
        residuals=tuple((curve.rates * law.slowed / curve.copies / rate - 1).tolist()),
        rms=math.sqrt(law.squares / len(curve.copies)),
        degrees=degrees,
        peak=peak.copies,
        extrapolated=peak.copies is not None and peak.copies > last,
        none_before=peak.none_before if peak.none_before and peak.none_before > last else None,
        limit=rate / sigma.value
        if not kappa.low and kappa.error is None and sigma.low > 0
        else None,
        scale=curve.scale,
        peak_interval=peak.interval,
    )


def _standard_errors(curve: _Points, law: _Law, free: tuple[bool, bool]) -> list[float]:
    """Return those of log lambda, and of the free ones of sigma and kappa.

    With the slopes J of the residuals r, n points and p coefficients: the covariance is
    (J'J)^-1 r'r / (n - p). J is scaled before it is inverted: kappa's slopes are n times sigma's.
    """
    held = curve.columns[:, np.flatnonzero(free)] * (law.weights / law.slowed)[:, None]
    slopes = np.hstack([-law.weights[:, None], held])
    degrees = len(curve.copies) - slopes.shape[1]
    variance = law.squares / degrees
    scale = np.abs(slopes).max(axis=0)
    covariance = np.linalg.inv((slopes / scale).T @ (slopes / scale)) / np.outer(scale, scale)
    errors: list[float] = np.sqrt(np.diag(covariance) * variance).tolist()
    return errors


def _coefficient(
    curve: _Points, coefficients: _Coefficients, index: int, error: float | None
) -> Coefficient:
    low, high = _interval(curve, coefficients, index)
    return Coefficient(value=coefficients[index], error=error, low=low, high=high)


class _Peak(Struct, frozen=True, kw_only=True):
    """Fields of `Usl`."""

    copies: float | None = None
    interval: tuple[float, float] | None = None
    none_before: float | None = None


def _peak(
    curve: _Points, coefficients: _Coefficients, sigma: Coefficient, kappa: Coefficient
) -> _Peak:
    """Return the peak, sqrt((1 - sigma) / kappa), or before how many copies there is none."""
    waits = max(0.0, 1 - sigma.value)
    if kappa.low > 0:
        copies = max(1.0, math.sqrt(waits / kappa.value))
        low, high = _peak_interval(curve, coefficients, copies)
        if math.isinf(high):
            return _Peak(none_before=low)
        return _Peak(copies=copies, interval=(low, high))
    if math.isfinite(kappa.high):
        return _Peak(none_before=math.sqrt(waits / kappa.high))
    return _Peak()

"""Throughput against copies: the Universal Scalability Law, and where a curve bends; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.intervals import Noise
from rater.analysis.stats.robust import Floats

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
# beyond which no point is better by more than noise; as noise can hide a rise, the rise to the last
# point must also be below a quarter by more than noise. A fall is a later point below the peak by
# more than noise, all pairs of points considered.

SHARE = 0.5  # of what a copy gave at the start; less is beyond the knee
LEAST_POINTS = 3
_KNEE_ALPHA = 0.01  # a knee, or a fall, is named by chance
_FLAT = 0.25  # of what a copy gave at the start; a plateau is below that by more than noise
_BETTER_ALPHA = 0.025  # a point on a plateau counts as better by chance


class CurveShape(Struct, frozen=True, kw_only=True):
    """What was found of a curve; numbers of copies, None where there is no such place."""

    knee: int | None  # beyond it a copy adds less than half of what it did at the start
    plateau: int | None  # beyond it no number of copies is better by more than noise
    peak: int  # where the rate is highest, by however little
    falls_at: int | None  # the first beyond the peak that is lower by more than noise
    reason: str | None  # why nothing can be said of knee and plateau, in words
    # Without a knee: where one would be, by the means, if noise did not hide it. The numbers of
    # copies must at least double beyond it: over less, noise alone gives such means.
    maybe: int | None = None


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
    curve = _Measured(copies, rates, [noise.of_mean(of_it) for of_it in runs])
    end = len(copies) - 1
    peak = max(range(end + 1), key=lambda i: (rates[i], -i))
    pairs = max(1, end * (end + 1) // 2)
    fallen = noise.quantile(_KNEE_ALPHA / pairs)
    falls_at = next(
        (copies[i] for i in range(peak + 1, end + 1) if curve.above(peak, i) > fallen), None
    )
    if end + 1 < LEAST_POINTS:
        reason = f"{end + 1} numbers of copies; a knee needs {LEAST_POINTS}"
        return CurveShape(
            knee=None, plateau=None, peak=copies[peak], falls_at=falls_at, reason=reason
        )
    level, better = noise.quantile(_KNEE_ALPHA / end), noise.quantile(_BETTER_ALPHA)
    border = end if fair is None else max(fair - 1, 0)
    # The last point has nothing behind it that could be less.
    reach = [border if i < border else end for i in range(end)]
    bent = [i for i in range(end) if curve.stays_below(SHARE, i, reach[i], level)]
    flat = [
        i
        for i in bent
        if curve.stays_below(_FLAT, i, reach[i], better)
        and all(curve.above(j, i) <= better for j in range(i + 1, end + 1))
    ]
    hidden = [
        i
        for i in range(end)
        if copies[reach[i]] >= 2 * copies[i] and curve.stays_below(SHARE, i, reach[i], 0.0)
    ]
    return CurveShape(
        knee=copies[bent[0]] if bent else None,
        plateau=copies[flat[0]] if flat else None,
        peak=copies[peak],
        falls_at=falls_at,
        reason=None,
        maybe=copies[hidden[0]] if hidden and not bent else None,
    )


class _Measured(Struct, frozen=True):
    copies: Sequence[int]
    rates: Sequence[float]
    errors: Sequence[float]  # standard errors of the logs of the rates

    def stays_below(self, share: float, i: int, last: int, level: float) -> bool:
        """Tell whether the rise from point i is below that share of the start's.

        To each later point as far as `last`, and to `last` by `level` standard errors.
        """
        if any(self._short(share, i, j) <= 0 for j in range(i + 1, last + 1)):
            return False
        # What it is short by is linear in three rates.
        weights = [0.0] * len(self.copies)
        weights[0] += share * (self.copies[last] - self.copies[i]) / self.copies[0]
        weights[i] += 1
        weights[last] -= 1
        parts = zip(weights, self.rates, self.errors, strict=True)
        return self._short(share, i, last) > level * math.hypot(*(w * x * e for w, x, e in parts))

    def _short(self, share: float, i: int, j: int) -> float:
        """Return by how much point j stays below so much of the start's rise from point i."""
        a_copy = share * self.rates[0] / self.copies[0]
        return self.rates[i] + a_copy * (self.copies[j] - self.copies[i]) - self.rates[j]

    def above(self, i: int, j: int) -> float:
        """Return how many standard errors the log of rate i lies above that of rate j."""
        error = math.hypot(self.errors[i], self.errors[j])
        difference = math.log(self.rates[i] / self.rates[j])
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
_FAR = 4  # times the largest number of copies: a peak that may lie beyond is none of this curve
_USL_ALPHA = 0.05  # that a straight line is not one, by chance
_STEPS = 200
_HALVES = 24
_LEAST_STEP = 1e-12  # where the law goes through all points
_UNBOUNDED = 1e6  # times the first step: what is not outside there has no bound
# Which of sigma and kappa are free.
_CHOICES = ((True, True), (True, False), (False, True), (False, False))


class LawScale(StrEnum):
    """What the squares of a fit are of."""

    LOG = "log X"
    RATE = "X"


class Coefficient(Struct, frozen=True):
    """A fitted value with its standard error; None: it is held at its bound 0."""

    value: float
    error: float | None
    low: float  # of the 95 % interval
    high: float  # infinite where nothing bounds it

    @property
    def symmetric(self) -> float | None:
        """The standard error, where it says all: the interval does not reach the bound 0."""
        return self.error if self.low > 0 else None


class Usl(Struct, frozen=True, kw_only=True):
    """The law as it fits a curve."""

    rate: Coefficient  # lambda: of one copy, in the unit of the rates
    sigma: Coefficient
    kappa: Coefficient
    copies: tuple[int, ...]  # it was fitted to
    residuals: tuple[float, ...]  # measured / fitted - 1, by number of copies
    rms: float  # of the residuals; fitted to X: as a share of the mean rate
    degrees: int  # of freedom: numbers of copies less coefficients that were fitted
    # Copies; None: none follows from the fit (kappa is 0), or its interval is open.
    peak: float | None
    extrapolated: bool  # the peak lies beyond the largest number of copies
    # Without a peak: it lies beyond so many copies, if there is one (kappa at its upper bound, or
    # where the interval of the peak begins).
    none_before: float | None
    limit: float | None  # without kappa: the rate that it comes near and never reaches
    scale: LawScale = LawScale.LOG
    peak_interval: tuple[float, float] | None = None  # of 95 %; None: no peak

    @property
    def bad(self) -> bool:
        """Whether it does not describe the curve: residuals of more than 10 %."""
        return self.rms > BAD_RMS

    def at(self, copies: float) -> float:
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

    Refused: fewer than four numbers of copies; a largest below four times the smallest; and
    where a straight line fits as well: what the law explains beyond it on log X is within `noise`
    (F with 2 degrees of freedom, whose tail has a closed form; with both coefficients at least 0 it
    is a little strict).
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
    n, x = np.array(copies, dtype=np.float64), np.array(rates, dtype=np.float64)
    curve = _Points(n, x, LawScale.LOG)
    at, free = _least(curve)
    straight, left = curve.squares((0.0, 0.0)), curve.squares(at)
    error = math.sqrt(sum(noise.of_mean(r) ** 2 for r in runs) / len(runs))
    if not any(free) or _by_chance(straight - left, error, noise.degrees) > _USL_ALPHA:
        rms = math.sqrt(straight / len(copies))
        return NoLaw(f"a straight line fits as well (within {rms * 100:.1f} %)")
    if scale is LawScale.RATE:
        curve = _Points(n, x, scale)
        at, free = _least(curve)
    return _result(curve, at, free)


type _At = tuple[float, float]  # sigma, kappa


class _Points(Struct, frozen=True):
    """What is fitted: with the best lambda, what is left of it and how that changes."""

    n: Floats
    x: Floats
    scale: LawScale

    def slowed(self, at: _At) -> Floats:
        return 1 + at[0] * (self.n - 1) + at[1] * self.n * (self.n - 1)

    def rate(self, at: _At) -> float:
        """Return the best lambda."""
        if self.scale is LawScale.LOG:
            return math.exp(float(np.log(self.x / self.n * self.slowed(at)).mean()))
        shape = self.n / self.slowed(at)
        return float(self.x @ shape) / float(shape @ shape)

    def residuals(self, at: _At) -> Floats:
        """Return log of measured over fitted; on X the difference over the mean rate."""
        fitted = self.rate(at) * self.n / self.slowed(at)
        if self.scale is LawScale.LOG:
            return np.asarray(np.log(self.x / fitted))
        return np.asarray((self.x - fitted) / self.x.mean())

    def squares(self, at: _At) -> float:
        if self.slowed(at).min() <= 0:
            return math.inf
        return float((self.residuals(at) ** 2).sum())

    def weights(self, at: _At) -> Floats:
        """Return how a residual falls as log lambda grows."""
        if self.scale is LawScale.LOG:
            return np.ones_like(self.n)
        return np.asarray(self.rate(at) * self.n / self.slowed(at) / self.x.mean())

    def slopes(self, at: _At) -> Floats:
        """Return how residuals grow with sigma and kappa, lambda as it is."""
        columns = np.stack([self.n - 1, self.n * (self.n - 1)], axis=1)
        return np.asarray(columns * (self.weights(at) / self.slowed(at))[:, None])

    def projected(self, at: _At) -> Floats:
        """Return the slopes with lambda at its best."""
        weights, slopes = self.weights(at), self.slopes(at)
        return np.asarray(slopes - np.outer(weights, weights @ slopes) / float(weights @ weights))


def _least(curve: _Points) -> tuple[_At, tuple[bool, bool]]:
    """Return sigma and kappa of the least squares, none below 0, and which of them are free."""
    begin = _linear_form(curve)
    fits = [(_descend(curve, begin, free), free) for free in _CHOICES]
    allowed = [(fit, free) for fit, free in fits if fit is not None and min(fit) >= 0]
    return min(allowed, key=lambda found: curve.squares(found[0]))


def _by_chance(explained: float, error: float, degrees: int | None) -> float:
    """Return how often noise alone would explain so much with two more coefficients."""
    if not error:
        return 0.0 if explained > 0 else 1.0
    half = explained / error**2 / 2
    return math.exp(-half) if degrees is None else (1 + 2 * half / degrees) ** (-degrees / 2)


def _linear_form(curve: _Points) -> _At:
    """Return where to begin: n / X is linear in three, weighted to relative errors."""
    n = curve.n
    rows = (curve.x / n)[:, None] * np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    (whole, sigma, kappa), *_ = np.linalg.lstsq(rows, np.ones_like(n), rcond=None)
    if whole <= 0:
        return 0.0, 0.0
    return max(0.0, float(sigma / whole)), max(0.0, float(kappa / whole))


def _descend(curve: _Points, begin: _At, free: tuple[bool, bool]) -> _At | None:
    """Return sigma and kappa of the least squares, below 0 where that is least.

    None: it was not reached. What is not free is 0.
    """
    columns = np.flatnonzero(free)
    if not columns.size:
        return 0.0, 0.0
    at = np.array(begin) * free
    squares, damping = curve.squares((at[0], at[1])), 1e-3
    for _ in range(_STEPS):
        slopes = curve.projected((at[0], at[1]))[:, columns]
        normal = slopes.T @ slopes
        gradient = slopes.T @ curve.residuals((at[0], at[1]))
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
        tried = at.copy()
        tried[columns] += step
        reached = curve.squares((tried[0], tried[1]))
        if reached > squares:
            damping *= 8
            if damping > 1e12:
                break
            continue
        small = np.all(np.abs(step) <= 1e-10 * (np.abs(at[columns]) + 1e-12))
        at, squares, damping = tried, reached, max(damping / 8, 1e-12)
        if small:
            break
    else:
        return None
    return float(at[0]), float(at[1])


def _allowed(curve: _Points, at: _At) -> float:
    """Return the squares up to which what is fitted may be the truth (95 %)."""
    degrees = curve.n.size - USL_LEAST_POINTS + 1
    return curve.squares(at) * (1 + t_quantile(0.95, degrees) ** 2 / degrees)


def _interval(curve: _Points, at: _At, which: int) -> tuple[float, float]:
    """Return the interval of sigma (0) or kappa (1) by its profile; infinite: without bound."""
    most = _allowed(curve, at)
    along = (0.0, 1.0) if which == 0 else (1.0, 0.0)

    def within(value: float) -> bool:
        fixed = (value, 0.0) if which == 0 else (0.0, value)
        return _profile(curve, fixed, along, at[1 - which]) <= most

    value = at[which]
    slopes = curve.projected(at)[:, which]
    step = max(_LEAST_STEP, math.sqrt(most / float((slopes**2).sum())))
    high = value + step
    while within(high):
        high += high - value
        if high > _UNBOUNDED * (value + step):
            return 0.0 if within(0.0) else _border(within, value, 0.0), math.inf
    low = 0.0 if not value or within(0.0) else _border(within, value, 0.0)
    return low, _border(within, value, high)


def _peak_interval(curve: _Points, at: _At, peak: float) -> tuple[float, float]:
    """Return the interval of the peak by its profile; infinite where it may lie far beyond."""
    most = _allowed(curve, at)

    def within(copies: float) -> bool:  # kappa = (1 - sigma) / copies^2
        square = copies**2
        return _profile(curve, (0.0, 1 / square), (1.0, -1 / square), at[0], 1.0) <= most

    far = _FAR * float(curve.n[-1])
    low = 1.0 if within(1.0) else _border(within, peak, 1.0)
    return low, math.inf if peak >= far or within(far) else _border(within, peak, far)


def _border(within: Callable[[float], bool], inside: float, outside: float) -> float:
    for _ in range(_HALVES):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if within(middle) else (inside, middle)
    return inside


def _profile(curve: _Points, fixed: _At, along: _At, start: float, most: float = math.inf) -> float:
    """Return the least squares at `fixed` and so many times `along`, from 0 to `most` times."""

    def at(times: float) -> _At:
        return fixed[0] + times * along[0], fixed[1] + times * along[1]

    times = start
    for _ in range(_STEPS):
        slope = curve.projected(at(times)) @ np.array(along)
        moved = times - float(slope @ curve.residuals(at(times))) / float(slope @ slope)
        moved = min(most, max(0.0, moved))
        small = abs(moved - times) <= 1e-6 * (times + 1e-9)
        times = moved
        if small:
            break
    return curve.squares(at(times))


def _result(curve: _Points, at: _At, free: tuple[bool, bool]) -> Usl:
    n, left, rate = curve.n, curve.residuals(at), curve.rate(at)
    columns = np.flatnonzero(free)
    slopes = np.hstack([-curve.weights(at)[:, None], curve.slopes(at)[:, columns]])
    degrees = n.size - slopes.shape[1]
    variance = float((left**2).sum()) / degrees
    scale = np.abs(slopes).max(axis=0)  # kappa's slopes are n times sigma's
    covariance = np.linalg.inv((slopes / scale).T @ (slopes / scale)) / np.outer(scale, scale)
    errors = np.sqrt(np.diag(covariance) * variance)
    reach = t_quantile(0.95, degrees)
    of_log = float(errors[0])
    known = {int(column): float(errors[place + 1]) for place, column in enumerate(columns)}
    sigma, kappa = (
        Coefficient(at[which], known.get(which), *_interval(curve, at, which)) for which in (0, 1)
    )
    peak = none_before = limit = None
    if not kappa.low and math.isfinite(kappa.high):
        none_before = math.sqrt(max(0.0, 1 - sigma.value) / kappa.high)
    interval = None
    if kappa.low > 0:
        peak = max(1.0, math.sqrt(max(0.0, 1 - sigma.value) / kappa.value))
        interval = _peak_interval(curve, at, peak)
        if math.isinf(interval[1]):
            none_before, peak, interval = interval[0], None, None
    elif kappa.error is None and sigma.low > 0:
        limit = rate / sigma.value
    return Usl(
        rate=Coefficient(
            rate, rate * of_log, rate * math.exp(-reach * of_log), rate * math.exp(reach * of_log)
        ),
        sigma=sigma,
        kappa=kappa,
        copies=tuple(int(count) for count in n),
        residuals=tuple((curve.x * curve.slowed(at) / n / rate - 1).tolist()),
        rms=math.sqrt(float((left**2).mean())),
        degrees=degrees,
        peak=peak,
        extrapolated=peak is not None and peak > float(n[-1]),
        none_before=none_before if none_before and none_before > float(n[-1]) else None,
        limit=limit,
        scale=curve.scale,
        peak_interval=interval,
    )

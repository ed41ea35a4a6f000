"""The Universal Scalability Law, fitted to throughput against copies; pure, needs numpy.

    X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))

Source: N. J. Gunther, "A General Theory of Computational Scalability Based on Rational Functions",
arXiv:0808.1431 (2008), with the rate of one copy, lambda, as third coefficient (B. Schwartz,
"Practical Scalability Analysis with the Universal Scalability Law", 2015). sigma is contention:
the share of the work that has to wait for something shared; kappa is coherency: what each copy
costs each other one. Both are at least 0 here. The peak is at sqrt((1 - sigma) / kappa).

Least squares on log X, since noise of rates is a share of them (R's package usl takes X itself,
by which the largest rates decide). For given sigma and kappa the best log lambda is a mean; the
two are found by Levenberg's and Marquardt's damped Gauss-Newton steps, begun from the linear form
n / X = (1 + sigma (n - 1) + kappa n (n - 1)) / lambda. A coefficient that would fall below 0 is
held at 0 and the others are fitted again: of all such choices the one with the least squares.

The 95 % intervals of sigma and kappa are those of the profile likelihood: all values with which the
squares, at the best of the other two (none below 0), are no more than t^2 s^2 above the least,
s^2 by n - 3 degrees of freedom whatever is held (Bates and Watts, "Nonlinear Regression Analysis
and Its Applications", 1988, chapter 6). So one that is held at 0 has an upper bound.
Simulated (`benchmarks/scaling.py`), they hold the truth in 92 to 99 of 100 cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rater.analysis.stats.noise import Noise
from rater.analysis.stats.student_t import quantile

type Floats = NDArray[np.float64]

LEAST_POINTS = 4  # three coefficients, and one to see whether they fit
LEAST_RANGE = 4  # the largest number of copies over the smallest
BAD_RMS = 0.10
_ALPHA = 0.05  # that a straight line is not one, by chance
_STEPS = 200
_HALVES = 24
_LEAST_STEP = 1e-12  # where the law goes through all points
_UNBOUNDED = 1e6  # times the first step: what is not outside there has no bound
# Which of sigma and kappa are free.
_CHOICES = ((True, True), (True, False), (False, True), (False, False))


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A fitted value with its standard error; None: it is held at its bound 0."""

    value: float
    error: float | None
    low: float  # of the 95 % interval
    high: float  # infinite where nothing bounds it


@dataclass(frozen=True, slots=True)
class Usl:
    """The law as it fits a curve."""

    rate: Coefficient  # lambda: of one copy, in the unit of the rates
    sigma: Coefficient
    kappa: Coefficient
    copies: tuple[int, ...]  # it was fitted to
    residuals: tuple[float, ...]  # measured / fitted - 1, by number of copies
    rms: float  # of the residuals
    degrees: int  # of freedom: numbers of copies less coefficients that were fitted
    peak: float | None  # copies; None: none follows from the fit (kappa is 0, or not told from 0)
    extrapolated: bool  # the peak lies beyond the largest number of copies
    # Without a peak: it lies beyond so many copies, if there is one (kappa at its upper bound).
    none_before: float | None
    limit: float | None  # without kappa: the rate that it comes near and never reaches

    @property
    def bad(self) -> bool:
        """Whether it does not describe the curve: residuals of more than 10 %."""
        return self.rms > BAD_RMS

    def at(self, copies: float) -> float:
        """Return the fitted rate of so many copies."""
        slowed = 1 + self.sigma.value * (copies - 1) + self.kappa.value * copies * (copies - 1)
        return self.rate.value * copies / slowed


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the law is not fitted, in words."""

    reason: str


def fit_usl(
    copies: Sequence[int], rates: Sequence[float], runs: Sequence[int], noise: Noise
) -> Usl | Refused:
    """Fit the law; `copies` ascend, each once, `rates` are medians over so many `runs`.

    Refused: fewer than four numbers of copies; a largest below four times the smallest; and
    where a straight line fits as well: what the law explains beyond it is within `noise` (F with
    2 degrees of freedom, whose tail has a closed form; with both coefficients at least 0 it is a
    little strict).
    """
    if len(copies) < LEAST_POINTS:
        return Refused(
            f"three coefficients need {LEAST_POINTS} numbers of copies, not {len(copies)}"
        )
    if copies[-1] < LEAST_RANGE * copies[0]:
        return Refused(
            f"{copies[0]} to {copies[-1]} copies cover too little; the largest must be "
            f"{LEAST_RANGE} times the smallest"
        )
    n = np.array(copies, dtype=np.float64)
    y = np.log(np.array(rates, dtype=np.float64) / n)
    begin = _linear_form(n, y)
    fits = [(_descend(n, y, begin, free), free) for free in _CHOICES]
    allowed = [(fit, free) for fit, free in fits if fit is not None and min(fit) >= 0]
    (sigma, kappa), free = min(allowed, key=lambda found: _squares(n, y, found[0]))
    straight, left = _squares(n, y, (0.0, 0.0)), _squares(n, y, (sigma, kappa))
    error = math.sqrt(sum(noise.of_median(r) ** 2 for r in runs) / len(runs))
    if not any(free) or _by_chance(straight - left, error, noise.degrees) > _ALPHA:
        rms = math.sqrt(straight / len(copies))
        return Refused(f"a straight line fits as well (within {rms * 100:.1f} %)")
    return _result(n, y, (sigma, kappa), free)


def _by_chance(explained: float, error: float, degrees: int | None) -> float:
    """Return how often noise alone would explain so much with two more coefficients."""
    if not error:
        return 0.0 if explained > 0 else 1.0
    half = explained / error**2 / 2
    return math.exp(-half) if degrees is None else (1 + 2 * half / degrees) ** (-degrees / 2)


def _linear_form(n: Floats, y: Floats) -> tuple[float, float]:
    """Return where to begin: n / X is linear in three, weighted to relative errors."""
    rows = np.exp(y)[:, None] * np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    (whole, sigma, kappa), *_ = np.linalg.lstsq(rows, np.ones_like(n), rcond=None)
    if whole <= 0:
        return 0.0, 0.0
    return max(0.0, float(sigma / whole)), max(0.0, float(kappa / whole))


def _slowed(n: Floats, at: tuple[float, float]) -> Floats:
    return 1 + at[0] * (n - 1) + at[1] * n * (n - 1)


def _residuals(n: Floats, y: Floats, at: tuple[float, float]) -> Floats:
    """Return log of measured over fitted, with the lambda that fits best."""
    left = y + np.log(_slowed(n, at))
    return np.asarray(left - left.mean())


def _squares(n: Floats, y: Floats, at: tuple[float, float]) -> float:
    if _slowed(n, at).min() <= 0:
        return math.inf
    return float((_residuals(n, y, at) ** 2).sum())


def _slopes(n: Floats, at: tuple[float, float]) -> Floats:
    """Return the derivatives of the log of what slows, by sigma and kappa."""
    return np.stack([n - 1, n * (n - 1)], axis=1) / _slowed(n, at)[:, None]


def _descend(
    n: Floats, y: Floats, begin: tuple[float, float], free: tuple[bool, bool]
) -> tuple[float, float] | None:
    """Return sigma and kappa of the least squares, below 0 where that is least.

    None: it was not reached. What is not free is 0.
    """
    columns = np.flatnonzero(free)
    if not columns.size:
        return 0.0, 0.0
    at = np.array(begin) * free
    squares, damping = _squares(n, y, (at[0], at[1])), 1e-3
    for _ in range(_STEPS):
        slopes = _slopes(n, (at[0], at[1]))[:, columns]
        slopes = slopes - slopes.mean(axis=0)
        normal = slopes.T @ slopes
        gradient = slopes.T @ _residuals(n, y, (at[0], at[1]))
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
        tried = at.copy()
        tried[columns] += step
        reached = _squares(n, y, (tried[0], tried[1]))
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


def _interval(n: Floats, y: Floats, at: tuple[float, float], which: int) -> tuple[float, float]:
    """Return the interval of sigma (0) or kappa (1) by its profile; infinite: without bound."""
    least, degrees = _squares(n, y, at), n.size - LEAST_POINTS + 1
    most = least * (1 + quantile(0.95, degrees) ** 2 / degrees)

    def within(value: float) -> bool:
        return _profile(n, y, at, which, value) <= most

    value = at[which]
    slopes = _slopes(n, at)[:, which]
    step = max(_LEAST_STEP, math.sqrt(most / float(((slopes - slopes.mean()) ** 2).sum())))
    high = value + step
    while within(high):
        high += high - value
        if high > _UNBOUNDED * (value + step):
            return 0.0 if within(0.0) else _border(within, value, 0.0), math.inf
    low = 0.0 if not value or within(0.0) else _border(within, value, 0.0)
    return low, _border(within, value, high)


def _border(within: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where what is inside ends, by halves."""
    for _ in range(_HALVES):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if within(middle) else (inside, middle)
    return inside


def _profile(n: Floats, y: Floats, at: tuple[float, float], which: int, value: float) -> float:
    """Return the least squares with sigma (0) or kappa (1) at a value, the other at least 0."""
    other = at[1 - which]
    for _ in range(_STEPS):
        point = (value, other) if which == 0 else (other, value)
        slope = _slopes(n, point)[:, 1 - which]
        slope = slope - slope.mean()
        moved = max(0.0, other - float(slope @ _residuals(n, y, point)) / float(slope @ slope))
        small = abs(moved - other) <= 1e-6 * (other + 1e-9)
        other = moved
        if small:
            break
    return _squares(n, y, (value, other) if which == 0 else (other, value))


def _result(n: Floats, y: Floats, at: tuple[float, float], free: tuple[bool, bool]) -> Usl:
    left = _residuals(n, y, at)
    rate = math.exp(float((y + np.log(_slowed(n, at))).mean()))
    columns = np.flatnonzero(free)
    slopes = np.hstack([-np.ones((n.size, 1)), _slopes(n, at)[:, columns]])
    degrees = n.size - slopes.shape[1]
    variance = float((left**2).sum()) / degrees
    scale = np.abs(slopes).max(axis=0)  # kappa's slopes are n times sigma's
    covariance = np.linalg.inv((slopes / scale).T @ (slopes / scale)) / np.outer(scale, scale)
    errors = np.sqrt(np.diag(covariance) * variance)
    reach = quantile(0.95, degrees)
    of_log = float(errors[0])
    known = {int(column): float(errors[place + 1]) for place, column in enumerate(columns)}
    sigma, kappa = (
        Coefficient(at[which], known.get(which), *_interval(n, y, at, which)) for which in (0, 1)
    )
    peak = none_before = limit = None
    if not kappa.low and math.isfinite(kappa.high):
        none_before = math.sqrt(max(0.0, 1 - sigma.value) / kappa.high)
    if kappa.low > 0:
        peak = max(1.0, math.sqrt(max(0.0, 1 - sigma.value) / kappa.value))
    elif kappa.error is None and sigma.low > 0:
        limit = rate / sigma.value
    return Usl(
        rate=Coefficient(
            rate, rate * of_log, rate * math.exp(-reach * of_log), rate * math.exp(reach * of_log)
        ),
        sigma=sigma,
        kappa=kappa,
        copies=tuple(int(count) for count in n),
        residuals=tuple(math.expm1(value) for value in left),
        rms=math.sqrt(float((left**2).mean())),
        degrees=degrees,
        peak=peak,
        extrapolated=peak is not None and peak > float(n[-1]),
        none_before=none_before if none_before and none_before > float(n[-1]) else None,
        limit=limit,
    )

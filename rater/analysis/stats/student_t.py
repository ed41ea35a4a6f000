"""Student's t for degrees of freedom that need not be whole, as Welch's are; pure.

How often |t| is exceeded is I_x(n / 2, 1 / 2) with x = n / (n + t^2) (Abramowitz and
Stegun 26.7.1 with 26.5.27), I the regularised incomplete beta function. That is
evaluated by its continued fraction (DLMF 8.17.22) with the method of Lentz as modified by
Thompson and Barnett (Press et al., Numerical Recipes in C, 2nd edition, 5.2 and 6.4).
"""

from __future__ import annotations

import math
from functools import cache

_TINY = 1e-300
_ENOUGH = 1e-16
_EXACT = 1e-14
_MOST_STEPS = 200
_MOST_TERMS = 10_000
_MANY_DEGREES = 1e7  # from here on the normal distribution, exact to eight digits


def exceeded(t: float, degrees: float) -> float:
    """Return how often a variable of Student's distribution lies outside +-t: the p value.

    Exact for small ones too: it is no difference from 1. Raises `ValueError` for no
    degrees of freedom.
    """
    if not degrees > 0:
        raise ValueError(f"{degrees} degrees of freedom")
    if math.isinf(t):
        return 0.0
    if degrees > _MANY_DEGREES:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(degrees / 2, 0.5, degrees, t * t)


def f_exceeded(ratio: float, above: int, below: int) -> float:
    """Return how often a ratio of variances of so many degrees of freedom is larger (F test)."""
    return _incomplete_beta(below / 2, above / 2, below, above * ratio)


@cache
def quantile(confidence: float, degrees: float) -> float:
    """Return t such that a variable of Student's distribution lies within +-t so often.

    `quantile(0.95, 10)` is 2.228. Raises `ValueError` for no degrees or a
    confidence outside 0 to 1.
    """
    if not (degrees > 0 and 0 < confidence < 1):
        raise ValueError(f"confidence {confidence}, {degrees} degrees of freedom")
    wanted = 1 - confidence
    low, high = 0.0, 1.0
    while exceeded(high, degrees) > wanted:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    # Newton's steps, of which the curve of p needs few, as long as they stay between the bounds.
    t = (low + high) / 2
    for _ in range(_MOST_STEPS):
        p = exceeded(t, degrees)
        low, high = (t, high) if p > wanted else (low, t)
        step = (p - wanted) / (2 * _density(t, degrees))
        following = t + step
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - t) <= _EXACT * t:
            return following
        t = following
    return t


def _density(t: float, degrees: float) -> float:
    log_front = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    log_rest = (degrees + 1) / 2 * math.log1p(t * t / degrees)
    return math.exp(log_front - log_rest) / math.sqrt(degrees * math.pi) or _TINY


def _incomplete_beta(a: float, b: float, rest: float, square: float) -> float:
    """Return I_x(a, b) for x = rest / (rest + square): 1 - x keeps its digits that way."""
    if square == 0:
        return 1.0
    x, other = rest / (rest + square), square / (rest + square)
    if x == 0:
        return 0.0
    log_x = math.log1p(-other) if other < 0.5 else math.log(x)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * math.log(other)
    )
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, other) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1 / _off_zero(1 + term * d)
            c = _off_zero(1 + term / c)
            change = d * c
            value *= change
        if abs(change - 1) < _ENOUGH:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

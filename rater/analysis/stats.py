"""Means, spreads and Student's t; pure, standard library only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_MANY_DEGREES = 200  # from here the expansion is exact to nine digits


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, None for no values or when one of them is not above zero."""
    if not values or min(values) <= 0:
        return None
    return statistics.geometric_mean(values)


def population_cv(values: Sequence[float]) -> float | None:
    """Return population SD / mean (divided by n, as SPEC CPU 2026 does), None without a mean."""
    if not values:
        return None
    mean = statistics.fmean(values)
    return statistics.pstdev(values, mean) / mean if mean else None


def lower_median_index(values: Sequence[float]) -> int:
    """Return where the median of `values` is, the lower one of two; the earliest among equals.

    The rule of SPEC's rate results when `values` are ratios: of three the
    median, of two the slower. Raises `ValueError` for no values.
    """
    return values.index(statistics.median_low(values))


@dataclass(frozen=True, slots=True)
class Spread:
    """How a population of numbers lies; the quartiles are interpolated between its members."""

    count: int
    mean: float
    cv: float | None  # population SD / mean
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float

    @property
    def fences(self) -> tuple[float, float]:
        """Tukey's fences: 1.5 interquartile ranges below and above the quartiles."""
        reach = 1.5 * (self.upper_quartile - self.lower_quartile)
        return self.lower_quartile - reach, self.upper_quartile + reach


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of `values`, None for no values."""
    if not values:
        return None
    if len(values) == 1:
        lower = median = upper = values[0]
    else:
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(
        count=len(values),
        mean=statistics.fmean(values),
        cv=population_cv(values),
        minimum=min(values),
        lower_quartile=lower,
        median=median,
        upper_quartile=upper,
        maximum=max(values),
    )


@cache
def student_quantile(confidence: float, degrees: int) -> float:
    """Return t such that a variable of Student's distribution lies within +-t so often.

    `student_quantile(0.95, 10)` is 2.228. Bisection on the exact sum for whole
    degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4); for many
    degrees the expansion from the normal quantile (26.7.5). Raises
    `ValueError` for no degrees or a confidence outside 0 to 1.
    """
    if degrees < 1 or not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}, {degrees} degrees of freedom")
    if degrees > _MANY_DEGREES:
        z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
        return (
            z
            + (z**3 + z) / (4 * degrees)
            + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
        )
    # t = sqrt(degrees) tan(angle): the angle has bounds, t has none.
    low, high = 0.0, math.pi / 2
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if _within(middle, degrees) > confidence else (middle, high)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _within(angle: float, degrees: int) -> float:
    """Return how often a variable of Student's distribution lies within +-sqrt(n) tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total

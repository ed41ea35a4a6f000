"""Means, spreads and groups; pure, standard library only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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

"""Which model the layouts warrant, and how many more would tell; pure.

A model with one more term is taken where all of this holds:

- the term's F test (extra sum of squares) is significant at 5 %,
- AICc is smaller (where n - k - 1 is 3 or more: with less its correction outweighs all data),
- the two models differ somewhere by more than the run-to-run noise of a layout's value.

The first model is the constant: where no other is better by these rules, nothing is chosen. A
sparse polynomial is taken where its errors of leaving one out, mean and maximum, are smaller than
those of the polynomial, and again the two differ by more than noise.

What was not taken is either too small to matter (the interval of the term lies within the margin)
or cannot be told: then `more_layouts` says how many layouts more, spread in the same way and with
the same scatter, make the interval so narrow that it excludes 0 at the size that is seen, or lies
within the margin, whichever takes fewer. Standard errors shrink with the root of the number of
layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from rater.analysis.models.polynomial import CONFIDENCE, PolynomialFit
from rater.analysis.models.sparse import SparseFit
from rater.analysis.stats.robust import Floats
from rater.analysis.stats.student_t import f_exceeded, quantile

_ALPHA = 0.05
MARGIN = 0.01  # of the mean of y: a term that changes less does not matter
_MOST_LAYOUTS = 1000
_LEAST_ROOM = 3  # n - k - 1


class TermState(StrEnum):
    """What is known of the term that a model has more than the one below it."""

    THERE = "there"
    NOISE = "below the noise of runs"  # significant, but smaller than runs differ
    SMALL = "too small to matter"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class TermVerdict:
    """The last term of a polynomial, judged."""

    degree: int
    state: TermState
    # Of the mean of y: of a line the change from the smallest to the largest x, of a parabola how
    # far its middle lies from the chord of its ends.
    effect: float
    low: float | None = None  # ends of its 95 % interval; None: no degree of freedom
    high: float | None = None
    p: float | None = None  # of the F test; None: no degree of freedom
    largest_difference: float = 0.0  # between this model and the best one below it, of y
    noise: float = 0.0  # standard error of a layout's value from runs alone, of y
    more_layouts: int | None = None  # to tell; None: it is told, or more than 1000


@dataclass(frozen=True, slots=True)
class Warranted:
    """The model that is warranted."""

    chosen: str | None  # "linear", "quadratic", "cubic", "sparse"; None: nothing
    terms: tuple[TermVerdict, ...]  # of degree 1, 2, ...


def choose(
    data: tuple[Floats, Floats],
    fits: Sequence[PolynomialFit],
    sparse: SparseFit | None,
    noise: float,
    margin: float = MARGIN,
) -> Warranted:
    """Return which of the fits (constant first, by degree) is warranted.

    `data`: x and y of the layouts; `noise`: standard error of a layout's y from run to run, as a
    share of y.
    """
    x, y = data
    best, *others = fits
    verdicts = []
    for fit in others:
        differs = float(np.max(np.abs(fit.at(x) - best.at(x)))) / (abs(float(y.mean())) or 1.0)
        verdict = replace(_judged(best, fit, y, margin), largest_difference=differs, noise=noise)
        if verdict.state is TermState.THERE and differs <= noise:
            verdict = replace(verdict, state=TermState.NOISE)
        verdicts.append(verdict)
        if verdict.state is TermState.THERE:
            best = fit
    chosen: str | None = best.name if best.degree else None
    if sparse is not None and _sparse_is_better(best, sparse, x, y, noise):
        chosen = sparse.name
    return Warranted(chosen, tuple(verdicts))


def _judged(best: PolynomialFit, fit: PolynomialFit, y: Floats, margin: float) -> TermVerdict:
    """Judge a fit's last term by tests alone; run-to-run noise is not in it yet."""
    mean = abs(float(y.mean())) or 1.0
    term, error = fit.highest_term()
    scale = (2 if fit.degree == 1 else 1) / mean
    effect = term * scale
    unknown = TermVerdict(fit.degree, TermState.UNKNOWN, effect)
    if fit.degrees_of_freedom < 1:
        return unknown
    half = quantile(CONFIDENCE, fit.degrees_of_freedom) * error * scale
    p = _p(best, fit)
    known = replace(unknown, low=effect - half, high=effect + half, p=p)
    if p < _ALPHA and _aicc_agrees(fit, best, len(y)):
        return replace(known, state=TermState.THERE)
    if abs(effect) + half <= margin:
        return replace(known, state=TermState.SMALL)
    more = _more_layouts(abs(effect), half, fit.degrees_of_freedom, len(y), margin)
    return replace(known, more_layouts=more)


def _p(small: PolynomialFit, large: PolynomialFit) -> float:
    """Return how often noise alone would make the larger model so much better."""
    more = large.quality.parameters - small.quality.parameters
    gain = max(0.0, small.quality.rss - large.quality.rss) / more
    return f_exceeded(
        gain / (large.quality.rss / large.degrees_of_freedom), more, large.degrees_of_freedom
    )


def _aicc_agrees(fit: PolynomialFit, best: PolynomialFit, n: int) -> bool:
    here, there = fit.quality.aicc, best.quality.aicc
    if here is None or there is None or n - fit.quality.parameters - 2 < _LEAST_ROOM:
        return True  # its correction would be all there is to it
    return here < there


def _more_layouts(effect: float, half: float, freedom: int, n: int, margin: float) -> int | None:
    """Return how many more than n layouts make half the interval as narrow as is needed."""
    goal = max(effect, margin - effect)
    parameters = n - freedom
    error = half / quantile(CONFIDENCE, freedom)
    for count in range(n + 1, n + _MOST_LAYOUTS + 1):
        if quantile(CONFIDENCE, count - parameters) * error * math.sqrt(n / count) <= goal:
            return count - n
    return None


def _sparse_is_better(
    best: PolynomialFit, sparse: SparseFit, x: Floats, y: Floats, noise: float
) -> bool:
    here, there = sparse.quality, best.quality
    errors = (here.mean_error, here.maximum_error, there.mean_error, there.maximum_error)
    mean, maximum, other_mean, other_maximum = errors
    if mean is None or maximum is None or other_mean is None or other_maximum is None:
        return False
    difference = np.max(np.abs((np.array(sparse.predictions) - best.at(x)) / y))
    return mean < other_mean and maximum < other_maximum and float(difference) > noise

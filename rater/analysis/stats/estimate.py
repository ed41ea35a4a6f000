"""Estimates of how far two sides lie apart: means, Student's t, and their error; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rater.text.values import group_by_key

# -- Means, spreads and groups ---------------------------------------------------------------------


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


class Spread(Struct, frozen=True, kw_only=True):
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


# -- Student's t for degrees of freedom that need not be whole, as Welch's are ---------------------
#
# The probability that |t| is exceeded is I_x(n / 2, 1 / 2) with n degrees of freedom and
# x = n / (n + t^2) (Abramowitz and Stegun 26.7.1 with 26.5.27); I is the regularised incomplete
# beta function, evaluated in `_incomplete_beta`.

_TINY = 1e-300
_ENOUGH = 1e-16
_EXACT = 1e-14
_MOST_STEPS = 200
_MOST_TERMS = 10_000
_MANY_DEGREES = 1e7  # from here on the normal distribution, exact to eight digits


def two_sided_p(t: float, degrees: float) -> float:
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


def f_exceeded(ratio: float, degrees_above: int, degrees_below: int) -> float:
    """Return how often a ratio of variances of so many degrees of freedom is larger (F test)."""
    return _incomplete_beta(
        degrees_below / 2, degrees_above / 2, degrees_below, degrees_above * ratio
    )


@cache
def t_quantile(confidence: float, degrees: float) -> float:
    """Return t such that a variable of Student's distribution lies within +-t so often.

    Solves p(t) = 1 - confidence for p = `two_sided_p`, whose derivative is -2 f(t) with the density
    f: by Newton's steps t + (p(t) - (1 - confidence)) / (2 f(t)), and by halving the bracket where
    such a step would leave it. `t_quantile(0.95, 10)` is 2.228. Raises `ValueError` for no degrees
    or a confidence outside 0 to 1.
    """
    if not (degrees > 0 and 0 < confidence < 1):
        raise ValueError(f"confidence {confidence}, {degrees} degrees of freedom")
    tail = 1 - confidence
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > tail:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    t = (low + high) / 2
    for _ in range(_MOST_STEPS):
        excess = two_sided_p(t, degrees) - tail
        low, high = (t, high) if excess > 0 else (low, t)
        step = excess / (2 * _density(t, degrees))
        next_t = t + step
        if not low < next_t < high:
            next_t = (low + high) / 2
        if abs(next_t - t) <= _EXACT * t:
            return next_t
        t = next_t
    return t


def _density(t: float, degrees: float) -> float:
    """Return the density of Student's distribution with n degrees of freedom, never 0.

    f(t) = Gamma((n + 1) / 2) / (Gamma(n / 2) sqrt(n pi)) (1 + t^2 / n)^(-(n + 1) / 2)
    """
    log_front = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    log_power = (degrees + 1) / 2 * math.log1p(t * t / degrees)
    return math.exp(log_front - log_power) / math.sqrt(degrees * math.pi) or _TINY


def _incomplete_beta(a: float, b: float, rest: float, square: float) -> float:
    """Return I_x(a, b), the regularised incomplete beta function, at x = rest / (rest + square).

    I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) F(a, b, x) with the beta function B(a, b) = Gamma(a)
    Gamma(b) / Gamma(a + b) and the continued fraction F of `_beta_fraction` (Abramowitz and Stegun
    26.5.8). F converges fast for x < (a + 1) / (a + b + 2); beyond, I_x(a, b) = 1 - I_(1-x)(b, a)
    (26.5.2). Given as `rest` and `square`, 1 - x keeps its digits where x is almost 1.
    """
    if square == 0:
        return 1.0
    x, complement = rest / (rest + square), square / (rest + square)
    if x == 0:
        return 0.0
    log_x = math.log1p(-complement) if complement < 0.5 else math.log(x)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * math.log(complement)
    )
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, complement) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return F(a, b, x) = 1 / (1 + d_1 / (1 + d_2 / (1 + ...))) of `_incomplete_beta`.

    d_2m = m (b - m) x / ((a + 2m - 1) (a + 2m)) and
    d_2m+1 = -(a + m) (a + b + m) x / ((a + 2m) (a + 2m + 1)) (Abramowitz and Stegun 26.5.8).

    Evaluated from the front (W. J. Lentz, Applied Optics 15, 1976): with A_k / B_k the fraction
    cut off after k terms, each term multiplies the value by (A_k / A_k-1) (B_k-1 / B_k). Here
    A_k / A_k-1 is `numerator_ratio`, B_k-1 / B_k is `denominator_ratio`; a 0 in either is replaced
    by a tiny number (Press et al., Numerical Recipes in C, 2nd edition, 5.2 and 6.4).
    """
    numerator_ratio, denominator_ratio = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1))
    value = denominator_ratio
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            denominator_ratio = 1 / _off_zero(1 + term * denominator_ratio)
            numerator_ratio = _off_zero(1 + term / numerator_ratio)
            change = denominator_ratio * numerator_ratio
            value *= change
        if abs(change - 1) < _ENOUGH:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# -- Estimates of how far two sides lie apart, and of the error of that ----------------------------
#
# All is computed on logarithms: a change by a factor is as large up as down, both signs have the
# same chance to be found, and ratios of ratios add.
#
# - Values that were measured next to each other (one of each in every round) are paired: Student's
#   t interval of their differences. A drift with time cancels.
# - Else Welch's interval (B. L. Welch, Biometrika 34, 1947: each side has a variance of its own;
#   degrees of freedom by F. E. Satterthwaite, Biometrics Bulletin 2, 1946, formula in
#   `Estimate.degrees`). The degrees are never more than those of two sides of the smaller size:
#   two or three values may lie close by chance, and many on the other side would make their
#   variance look well known. Without that bound, equal things of 2 against 20 values were called
#   apart in 12 of 100 cases.
# - Where one side has a single value, nobody knows its noise: there is no interval.
#
# Several such comparisons of the same two things under other conditions make one: their mean, with
# the variances added and the degrees of freedom by Satterthwaite.
#
# Times that are recorded in coarse steps (result files in whole seconds) are known no better than
# that: rounding adds the variance of a uniform distribution, step^2 / 12, to what values show of
# each other, and as it errs alike in all values of a side, no mean takes it out: a step is added to
# the reach of the interval.
#
# That values are independent is assumed here; `stats.independence` adds to estimates of values in
# the order they were measured in how else these may have come about.

# Logarithms of numbers that are equal differ by roundings.
NO_DIFFERENCE = 1e-12
ONE_RUN_EACH, ONE_RUN = "one run each", "one run of one side"
_UNIFORM = 12  # a step's square over this is the variance of what rounding takes off


class Basis(StrEnum):
    """What an interval stands on."""

    BLOCKS = "blocks"  # runs made next to each other, as pairs
    RUNS = "runs"  # several runs each, not next to each other
    NOTHING = "single values"


class VarianceTerm(Struct, frozen=True):
    """Independent values from which a mean was taken, as one source of its error."""

    variance: float  # of one value
    count: int  # the mean's variance is variance / count
    degrees: float  # that the variance stands on
    share: float = 1.0  # of this mean in what is estimated


class Alternative(Struct, frozen=True, kw_only=True):
    """Another model of how values came about, and what it makes of the estimate."""

    reason: str  # in words
    weight: float  # how probable it is; what is missing to 1: the values are independent
    shift: float = 0.0  # of the log ratio
    widening: float = 1.0  # of the standard error
    degrees: float = 0.0  # of freedom more than without it


class SlowRuns(Struct, frozen=True):
    """Runs that lie far below all others of their side: a slow mode of their own."""

    count: int
    of: int  # runs of that side
    slower: float  # 0.2: they take 20 % more time than its others
    of_baseline: bool


class Estimate(Struct, frozen=True, kw_only=True):
    """The logarithm of a ratio, and the sources of its error."""

    log_ratio: float
    parts: tuple[VarianceTerm, ...]  # (): nothing is known of the noise
    basis: Basis
    blur: float = 0.0  # how far the steps in which times are recorded may move it
    most_degrees: float = math.inf
    alternatives: tuple[Alternative, ...] = ()
    doubts: tuple[str, ...] = ()  # what a verdict is told with, in words
    refused: str | None = None  # why no verdict can stand on it, in words
    # Logarithms of the lowest and the highest ratio that two of the values give; None: not told.
    extremes: tuple[float, float] | None = None
    slow: tuple[SlowRuns, ...] = ()
    rest: Estimate | None = None  # without the slow runs

    @property
    def ratio(self) -> float:
        """The factor itself."""
        return math.exp(self.log_ratio)

    def error(self, more: int = 0) -> float | None:
        """Return the standard error, with `more` values than now in each part; None: not known.

        The root of the sum over parts of share^2 variance / (count + more).
        """
        if not self.parts:
            return None
        return math.sqrt(sum(part.share**2 * _of_mean(part, more) for part in self.parts))

    def degrees(self, more: int = 0) -> float:
        """Return the degrees of freedom, with `more` values than now in each part; 0: none.

        Satterthwaite (1946), with v_i the variance that part i adds to the estimate and n_i its
        degrees: (sum of v_i)^2 / sum of (v_i^2 / n_i), at most `most_degrees`. Where all values
        of each part are equal, the sum of n_i.
        """
        terms = [(part.share**2 * _of_mean(part, more), part.degrees + more) for part in self.parts]
        total = sum(variance for variance, _ in terms)
        most = self.most_degrees + more * len(terms)
        if not total:
            return float(min(most, sum(degrees for _, degrees in terms)))
        by_satterthwaite = 1 / sum((variance / total) ** 2 / degrees for variance, degrees in terms)
        return min(most, by_satterthwaite)


def paired_estimate(differences: Sequence[float], *, step: float = 0.0) -> Estimate:
    """Return the mean of differences of logarithms, one for each pair; at least one.

    `step`: how coarse the values are, as a logarithm: 0.1 where 10 s is recorded in whole seconds.
    """
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return Estimate(log_ratio=mean, parts=(), basis=Basis.NOTHING, refused=ONE_RUN_EACH)
    variance = max(_variance(differences), 2 * step**2 / _UNIFORM)
    part = VarianceTerm(variance, len(differences), len(differences) - 1)
    return Estimate(log_ratio=mean, parts=(part,), basis=Basis.BLOCKS, blur=step)


def unpaired_estimate(
    values: Sequence[float], baseline: Sequence[float], *, step: float = 0.0
) -> Estimate:
    """Return mean(here) - mean(there) of logarithms; both have at least one.

    `step`: see `paired_estimate`.
    """
    difference = statistics.fmean(values) - statistics.fmean(baseline)
    sizes = (len(values), len(baseline))
    if min(sizes) < 2:
        refused = ONE_RUN_EACH if max(sizes) < 2 else ONE_RUN
        return Estimate(log_ratio=difference, parts=(), basis=Basis.NOTHING, refused=refused)
    parts = tuple(
        VarianceTerm(max(_variance(side), step**2 / _UNIFORM), len(side), len(side) - 1)
        for side in (values, baseline)
    )
    return Estimate(
        log_ratio=difference,
        parts=parts,
        basis=Basis.RUNS,
        blur=step,
        most_degrees=2.0 * (min(sizes) - 1),
    )


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent estimates; of at least one.

    Where nothing is known of the noise of one of them, nothing is known of the mean's.
    """
    if len(estimates) == 1:
        return estimates[0]
    share = 1 / len(estimates)
    mean = statistics.fmean(estimate.log_ratio for estimate in estimates)
    refused = next((estimate.refused for estimate in estimates if estimate.refused), None)
    if refused:
        return Estimate(log_ratio=mean, parts=(), basis=Basis.NOTHING, refused=refused)
    parts = tuple(
        replace(part, share=part.share * share) for estimate in estimates for part in estimate.parts
    )
    # The weakest basis is what must be told: they stand in the order of their strength.
    basis = max((estimate.basis for estimate in estimates), key=list(Basis).index)
    slow = tuple(chain.from_iterable(estimate.slow for estimate in estimates))
    return Estimate(
        log_ratio=mean,
        parts=parts,
        basis=basis,
        blur=statistics.fmean(estimate.blur for estimate in estimates),
        most_degrees=sum(estimate.most_degrees for estimate in estimates),
        alternatives=_shared_alternatives(estimates),
        doubts=tuple(dict.fromkeys(chain.from_iterable(estimate.doubts for estimate in estimates))),
        slow=slow,
        rest=mean_estimate([estimate.rest or replace(estimate, slow=()) for estimate in estimates])
        if slow
        else None,
    )


def _shared_alternatives(estimates: Sequence[Estimate]) -> tuple[Alternative, ...]:
    """Return those of a mean, by reason: as probable as on average, as wide as the widest."""
    count = len(estimates)
    by_reason = group_by_key(
        (alternative.reason, alternative)
        for estimate in estimates
        for alternative in estimate.alternatives
    )
    return tuple(
        Alternative(
            reason=reason,
            weight=total / count,
            shift=math.fsum(member.weight * member.shift for member in members) / (total * count),
            widening=max(member.widening for member in members),
            degrees=min(member.degrees for member in members),
        )
        for reason, members in by_reason.items()
        if (total := math.fsum(member.weight for member in members))
    )


def _of_mean(part: VarianceTerm, more: int) -> float:
    return part.variance / (part.count + more)


def _variance(values: Sequence[float]) -> float:
    variance = statistics.variance(values)
    return variance if variance > NO_DIFFERENCE**2 else 0.0

"""Is one better than the other: ratios with confidence intervals, verdicts, how many more; pure.

All is computed on logarithms: a change by a factor is as large up as down, both signs
have the same chance to be found, and ratios of ratios add.

- Values that were measured next to each other (one of each in every round) are paired:
  Student's t interval of their differences. What drifts with time cancels.
- Else Welch's interval (B. L. Welch, Biometrika 34, 1947: each side has a variance of its
  own; degrees of freedom by F. E. Satterthwaite, Biometrics Bulletin 2, 1946, but never more
  than two sides of the smaller size would have: by chance two or three values lie close, and
  many on the other side would lend them their degrees. Equal things of 2 against 20 values were
  else called apart in 12 of 100 cases).
- Where one side has a single value, the noise of the other is taken for both (the classic
  interval for two samples with one variance).

Several such comparisons of the same two things under other conditions make one: their
mean, with the variances added and the degrees of freedom by Satterthwaite.

Of one run each, the iterations have an interval, which is shown; but iterations of a run
share its luck, and of two equal things the intervals of single runs exclude 1 far more
often than 5 % say: no verdict stands on them.

Times that are recorded in coarse steps (result files in whole seconds) are known no better than
that: rounding adds the variance of a uniform distribution, step^2 / 12, to what values show of
each other, and as it errs alike in all values of a side, no mean takes it out: a
step is added to the reach of the interval.

`better` and `worse` say that the interval excludes 1: of two equal things, 5 in 100
comparisons say so by chance. `same` says that the interval lies within the margin: with 95 %
intervals that is stricter than the two one-sided tests at 5 % of D. J. Schuirmann (Journal
of Pharmacokinetics and Biopharmaceutics 15, 1987).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rater.analysis.stats.student_t import exceeded, quantile

CONFIDENCE = 0.95
MOST_ROUNDS = 1000  # what is asked for beyond is no advice
# Logarithms of numbers that are equal differ by roundings.
_NO_DIFFERENCE = 1e-12
_UNIFORM = 12  # a step's square over this is the variance of what rounding takes off
_LARGEST_LOG = 700.0  # e to this is a number yet


class Decision(StrEnum):
    """What an interval says."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNKNOWN = "cannot tell"


class Basis(StrEnum):
    """What an interval stands on."""

    BLOCKS = "blocks"  # runs made next to each other, as pairs
    RUNS = "runs"  # several runs each, or of one side
    ITERATIONS = "iterations"  # of one run each: how runs differ is not in the interval
    NOTHING = "single values"


@dataclass(frozen=True, slots=True)
class VarianceTerm:
    """Independent values from which a mean was taken, as one source of its error."""

    variance: float  # of one value
    count: int  # the mean's variance is variance / count
    degrees: int  # that the variance stands on
    share: float = 1.0  # of this mean in what is estimated


@dataclass(frozen=True, slots=True)
class Estimate:
    """The logarithm of a ratio, with what is known of its error."""

    log_ratio: float
    parts: tuple[VarianceTerm, ...]  # (): nothing is known of the noise
    basis: Basis
    blur: float = 0.0  # how far the steps in which times are recorded may move it
    most_degrees: float = math.inf

    @property
    def ratio(self) -> float:
        """The factor itself."""
        return math.exp(self.log_ratio)

    def error(self, more: int = 0) -> float | None:
        """Return the standard error, or what it would be with `more` values in each part."""
        if not self.parts:
            return None
        return math.sqrt(sum(part.share**2 * _of_mean(part, more) for part in self.parts))

    def degrees(self, more: int = 0) -> float:
        """Return the degrees of freedom (Satterthwaite), or what they would be; 0: none."""
        terms = [(part.share**2 * _of_mean(part, more), part.degrees + more) for part in self.parts]
        whole = sum(variance for variance, _ in terms)
        most = self.most_degrees + more * len(terms)
        if not whole:
            return float(min(most, sum(degrees for _, degrees in terms)))
        found = 1 / sum((variance / whole) ** 2 / degrees for variance, degrees in terms)
        return min(most, found)


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """A ratio with its interval, and what that says."""

    ratio: float  # 1.02: 2 % more than the baseline
    margin: float  # 0.01: what `same` means
    basis: Basis
    count: int  # rounds, or runs (iterations) of the side that has fewer
    low: float | None = None  # None: nothing is known of the noise; so are the next three
    high: float | None = None
    degrees: float | None = None  # of freedom
    # How often equal things differ so much by chance; None: of one run each, not known either.
    p: float | None = None
    verdict: Decision = Decision.UNKNOWN
    within: bool = False  # the interval lies within the margin; may stand beside better or worse
    # UNKNOWN: how many more rounds (or runs of both) would tell, if noise and effect stay as
    # they are; 0: the noise of runs is not known; None: more than MOST_ROUNDS.
    more: int | None = 0
    blur: float = 0.0  # what the steps of the recorded times add to each side of the interval
    coarse: bool = False  # UNKNOWN: the steps of the recorded times are too coarse to tell

    @property
    def decided(self) -> bool:
        """Whether it is better, worse or the same."""
        return self.verdict is not Decision.UNKNOWN

    @property
    def words(self) -> str:
        """The verdict as it is shown."""
        margin = f"{self.margin * 100:g} %"
        if self.verdict is Decision.SAME:
            return f"same within {margin}"
        if self.verdict is not Decision.UNKNOWN:
            return f"{self.verdict} (less than {margin})" if self.within else str(self.verdict)
        reason = self._why_unknown()
        return f"{self.verdict}: {reason}" if reason else str(self.verdict)

    def _why_unknown(self) -> str | None:
        if self.coarse:
            return "times too coarse"
        if self.basis in (Basis.ITERATIONS, Basis.NOTHING):
            return "one run each"
        if self.more is None:
            return f"more than {MOST_ROUNDS} rounds would"
        return f"{self.more} more round{'s' * (self.more != 1)} would" if self.more else None


def paired(
    differences: Sequence[float], basis: Basis = Basis.BLOCKS, *, step: float = 0.0
) -> Estimate:
    """Return the mean of differences of logarithms, one for each pair; at least one.

    `step`: how coarse the values are, as a logarithm: 0.1 where 10 s is recorded in whole seconds.
    """
    if len(differences) < 2:
        return Estimate(statistics.fmean(differences), (), Basis.NOTHING)
    variance = max(_variance(differences), 2 * step**2 / _UNIFORM)
    part = VarianceTerm(variance, len(differences), len(differences) - 1)
    return Estimate(statistics.fmean(differences), (part,), basis, step)


def unpaired(
    here: Sequence[float], there: Sequence[float], basis: Basis, *, step: float = 0.0
) -> Estimate:
    """Return mean(here) - mean(there) of logarithms; both have at least one.

    `step`: see `paired`.
    """
    least = step**2 / _UNIFORM
    difference = statistics.fmean(here) - statistics.fmean(there)
    sizes = (len(here), len(there))
    if max(sizes) < 2:
        return Estimate(difference, (), Basis.NOTHING)
    variances = [max(_variance(side), least) if len(side) > 1 else None for side in (here, there)]
    if min(sizes) > 1:
        parts = [
            VarianceTerm(variance or 0.0, size, size - 1)
            for variance, size in zip(variances, sizes, strict=True)
        ]
        return Estimate(difference, tuple(parts), basis, step, 2.0 * (min(sizes) - 1))
    # One variance for both: of the side that has one, so its degrees of freedom stand alone.
    variance = next(it for it in variances if it is not None)
    many = max(sizes)
    return Estimate(
        difference, (VarianceTerm(variance * (1 + 1 / many), 1, many - 1),), basis, step
    )


def joined(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent estimates; of at least one.

    Where nothing is known of the noise of one of them, nothing is known of the mean's.
    """
    if len(estimates) == 1:
        return estimates[0]
    share = 1 / len(estimates)
    mean = statistics.fmean(one.log_ratio for one in estimates)
    if not all(one.parts for one in estimates):
        return Estimate(mean, (), Basis.NOTHING)
    parts = tuple(
        VarianceTerm(part.variance, part.count, part.degrees, part.share * share)
        for one in estimates
        for part in one.parts
    )
    # The weakest basis is what must be told: they stand in the order of their strength.
    order = list(Basis)
    basis = max((one.basis for one in estimates), key=order.index)
    blur = statistics.fmean(one.blur for one in estimates)
    return Estimate(mean, parts, basis, blur, sum(one.most_degrees for one in estimates))


def interval_of(
    estimate: Estimate,
    margin: float,
    confidence: float = CONFIDENCE,
    *,
    less_is_better: bool = False,
    next_confidence: float | None = None,
) -> RatioInterval:
    """Return what an estimate says; `margin`: 0.01 for `same within 1 %`.

    Values without any noise at all, of which no step is known either: no difference is
    `same`, a difference is `cannot tell`. Of one run each (`Basis.ITERATIONS`) there is an
    interval and no verdict. `next_confidence`: of the interval that is looked at when there are
    more values; None: the same.
    """
    count = min((part.count for part in estimate.parts), default=1)
    interval = RatioInterval(estimate.ratio, margin, estimate.basis, count, blur=estimate.blur)
    error = estimate.error()
    if error is None:
        return interval
    degrees, effect = estimate.degrees(), abs(estimate.log_ratio)
    # Without any noise there is no blur either.
    reach = quantile(confidence, degrees) * error + estimate.blur if error else 0.0
    interval = replace(
        interval,
        degrees=degrees,
        low=_exp(estimate.log_ratio - reach) if error else interval.ratio,
        high=_exp(estimate.log_ratio + reach) if error else interval.ratio,
    )
    if estimate.basis is Basis.ITERATIONS:
        return interval
    if not error:
        if effect > _NO_DIFFERENCE:
            return replace(interval, p=1.0)
        return replace(interval, p=1.0, verdict=Decision.SAME, within=True, more=None)
    edge = math.log1p(margin)
    within = effect + reach < edge
    verdict = Decision.SAME if within else Decision.UNKNOWN
    if effect > reach:
        better = (estimate.log_ratio > 0) is not less_is_better
        verdict = Decision.BETTER if better else Decision.WORSE
    unknown = verdict is Decision.UNKNOWN
    coarse = unknown and max(effect, edge - effect) <= estimate.blur
    return replace(
        interval,
        p=exceeded(max(0.0, effect - estimate.blur) / error, degrees),
        verdict=verdict,
        within=within,
        more=_more(estimate, edge, next_confidence or confidence)
        if unknown and not coarse
        else None,
        coarse=coarse,
    )


def _more(estimate: Estimate, edge: float, confidence: float) -> int | None:
    """Return how many more rounds make the interval narrow enough for the effect there is."""
    effect = abs(estimate.log_ratio)
    wanted = max(effect, edge - effect)

    def enough(more: int) -> bool:
        error = estimate.error(more) or 0.0
        return quantile(confidence, estimate.degrees(more)) * error + estimate.blur < wanted

    return _least(enough, 1, MOST_ROUNDS)


def _least(enough: Callable[[int], bool], first: int, last: int) -> int | None:
    """Return the least number from `first` to `last` that is enough, as all above it are."""
    if not enough(last):
        return None
    low = first - 1
    while last - low > 1:
        middle = (low + last) // 2
        low, last = (low, middle) if enough(middle) else (middle, last)
    return last


def _exp(log: float) -> float:
    return math.exp(min(max(log, -_LARGEST_LOG), _LARGEST_LOG))


def _of_mean(part: VarianceTerm, more: int) -> float:
    return part.variance / (part.count + more)


def _variance(values: Sequence[float]) -> float:
    variance = statistics.variance(values)
    return variance if variance > _NO_DIFFERENCE**2 else 0.0

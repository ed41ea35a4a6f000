"""Is one better than the other: ratios with confidence intervals, verdicts, how many more; pure.

All is computed on logarithms: a change by a factor is as large up as down, both signs
have the same chance to be found, and ratios of ratios add.

- Values that were measured next to each other (one of each in every round) are paired:
  Student's t interval of their differences. What drifts with time cancels.
- Else Welch's interval (B. L. Welch, Biometrika 34, 1947: each side has a variance of its
  own; degrees of freedom by F. E. Satterthwaite, Biometrics Bulletin 2, 1946).
- Where one side has a single value, the noise of the other is taken for both (the classic
  interval for two samples with one variance).

Several such comparisons of the same two things under other conditions make one: their
mean, with the variances added and the degrees of freedom by Satterthwaite.

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

from rater.analysis.student import exceeded, quantile

CONFIDENCE = 0.95
MOST_ROUNDS = 1000  # what is asked for beyond is no advice
# Logarithms of numbers that are equal differ by roundings.
_NO_DIFFERENCE = 1e-12
_LARGEST_LOG = 700.0  # e to this is a number yet


class Verdict(StrEnum):
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
class Part:
    """Independent values from which a mean was taken, as one source of its error."""

    variance: float  # of one value
    count: int  # the mean's variance is variance / count
    degrees: int  # that the variance stands on
    share: float = 1.0  # of this mean in what is estimated


@dataclass(frozen=True, slots=True)
class Estimate:
    """The logarithm of a ratio, with what is known of its error."""

    log_ratio: float
    parts: tuple[Part, ...]  # (): nothing is known of the noise
    basis: Basis

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
        if not whole:
            return float(sum(degrees for _, degrees in terms))
        return 1 / sum((variance / whole) ** 2 / degrees for variance, degrees in terms)


@dataclass(frozen=True, slots=True)
class Told:
    """A ratio with its interval, and what that says."""

    ratio: float  # 1.02: 2 % more than the baseline
    low: float | None  # None: nothing is known of the noise; so are the three below
    high: float | None
    degrees: float | None  # of freedom
    p: float | None  # how often equal things differ so much by chance
    verdict: Verdict
    within: bool  # whether the interval lies within the margin; may stand beside better or worse
    margin: float  # 0.01: what `same` means
    # UNKNOWN: how many more rounds (or runs of both, or iterations) would tell, if noise and
    # effect stay as they are; 0: the noise is not known; None: more than MOST_ROUNDS.
    more: int | None
    basis: Basis
    count: int  # rounds, or runs (iterations) of the side that has fewer

    @property
    def decided(self) -> bool:
        """Whether it is better, worse or the same."""
        return self.verdict is not Verdict.UNKNOWN

    @property
    def words(self) -> str:
        """The verdict as it is shown."""
        margin = f"{self.margin * 100:g} %"
        if self.verdict is Verdict.SAME:
            return f"same within {margin}"
        if self.verdict is not Verdict.UNKNOWN:
            return f"{self.verdict} (less than {margin})" if self.within else str(self.verdict)
        if self.more == 0:
            return str(self.verdict)
        if self.more is None:
            return f"{self.verdict}: more than {MOST_ROUNDS} rounds would"
        return f"{self.verdict}: {self.more} more round{'s' * (self.more != 1)} would"


def paired(differences: Sequence[float], basis: Basis = Basis.BLOCKS) -> Estimate:
    """Return the mean of differences of logarithms, one for each pair; at least one."""
    if len(differences) < 2:
        return Estimate(statistics.fmean(differences), (), Basis.NOTHING)
    part = Part(_variance(differences), len(differences), len(differences) - 1)
    return Estimate(statistics.fmean(differences), (part,), basis)


def unpaired(here: Sequence[float], there: Sequence[float], basis: Basis) -> Estimate:
    """Return mean(here) - mean(there) of logarithms; both have at least one."""
    difference = statistics.fmean(here) - statistics.fmean(there)
    sizes = (len(here), len(there))
    if max(sizes) < 2:
        return Estimate(difference, (), Basis.NOTHING)
    variances = [_variance(side) if len(side) > 1 else None for side in (here, there)]
    if min(sizes) > 1:
        parts = [
            Part(variance or 0.0, size, size - 1)
            for variance, size in zip(variances, sizes, strict=True)
        ]
        return Estimate(difference, tuple(parts), basis)
    # One variance for both: of the side that has one, so its degrees of freedom stand alone.
    variance = next(it for it in variances if it is not None)
    many = max(sizes)
    return Estimate(difference, (Part(variance * (1 + 1 / many), 1, many - 1),), basis)


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
        Part(part.variance, part.count, part.degrees, part.share * share)
        for one in estimates
        for part in one.parts
    )
    # The weakest basis is what must be told: they stand in the order of their strength.
    order = list(Basis)
    return Estimate(mean, parts, max((one.basis for one in estimates), key=order.index))


def tell(
    estimate: Estimate,
    margin: float,
    confidence: float = CONFIDENCE,
    *,
    less_is_better: bool = False,
) -> Told:
    """Return what an estimate says; `margin`: 0.01 for `same within 1 %`.

    Values without any noise at all (a clock too coarse to show it): no difference is
    `same`, a difference is not told from one step of the clock: `cannot tell`.
    """
    told = Told(
        ratio=estimate.ratio,
        low=None,
        high=None,
        degrees=None,
        p=None,
        verdict=Verdict.UNKNOWN,
        within=False,
        margin=margin,
        more=0,
        basis=estimate.basis,
        count=min((part.count for part in estimate.parts), default=1),
    )
    error = estimate.error()
    if error is None:
        return told
    told = replace(told, degrees=estimate.degrees())
    if not error:
        same = abs(estimate.log_ratio) <= _NO_DIFFERENCE
        told = replace(told, low=told.ratio, high=told.ratio, p=1.0)
        return replace(told, verdict=Verdict.SAME, within=True, more=None) if same else told
    degrees = estimate.degrees()
    reach = quantile(confidence, degrees) * error
    edge = math.log1p(margin)
    within = abs(estimate.log_ratio) + reach < edge
    verdict = Verdict.UNKNOWN
    if abs(estimate.log_ratio) > reach:
        more_is = Verdict.WORSE if less_is_better else Verdict.BETTER
        less_is = Verdict.BETTER if less_is_better else Verdict.WORSE
        verdict = more_is if estimate.log_ratio > 0 else less_is
    elif within:
        verdict = Verdict.SAME
    return replace(
        told,
        low=_exp(estimate.log_ratio - reach),
        high=_exp(estimate.log_ratio + reach),
        p=exceeded(estimate.log_ratio / error, degrees),
        verdict=verdict,
        within=within,
        more=_more(estimate, edge, confidence) if verdict is Verdict.UNKNOWN else None,
    )


def rounds_for_same(noise: float, margin: float, chance: float = 0.8) -> int | None:
    """Return how many rounds of pairs show that two equal things are the `same`.

    `noise`: standard deviation of one run (0.01: 1 %); `chance`: how often that many are
    enough. None: more than `MOST_ROUNDS`. By Student's t in both parts: rounds >=
    ((t(0.95) + t(chance)) x sqrt(2) x noise / log(1 + margin))^2, where half of the failures
    are on either side; simulations in `benchmarks/comparing.py` hold it.
    """
    edge = math.log1p(margin)

    def enough(rounds: int) -> bool:
        t = quantile(CONFIDENCE, rounds - 1) + quantile(chance, rounds - 1)
        return t * math.sqrt(2 / rounds) * noise <= edge

    return _least(enough, 2, MOST_ROUNDS)


def _more(estimate: Estimate, edge: float, confidence: float) -> int | None:
    """Return how many more rounds make the interval narrow enough for the effect there is."""
    effect = abs(estimate.log_ratio)
    wanted = max(effect, edge - effect)

    def enough(more: int) -> bool:
        error = estimate.error(more) or 0.0
        return quantile(confidence, estimate.degrees(more)) * error < wanted

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


def _of_mean(part: Part, more: int) -> float:
    return part.variance / (part.count + more)


def _variance(values: Sequence[float]) -> float:
    variance = statistics.variance(values)
    return variance if variance > _NO_DIFFERENCE**2 else 0.0

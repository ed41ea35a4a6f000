"""Ratios with confidence intervals and verdicts, how many more runs; noise of rates; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.stats.estimate import (
    NO_DIFFERENCE,
    Basis,
    Estimate,
    SlowRuns,
    t_quantile,
    two_sided_p,
)
from rater.analysis.stats.independence import DRIFT, TOLD
from rater.analysis.stats.roots import sign_change

# -- How much a rate varies from run to run, on the log scale --------------------------------------

ASSUMED_SD = 0.05  # of the log of a rate, where too few runs were repeated to know it
_LEAST_DEGREES = 3


class Noise(Struct, frozen=True):
    """Standard deviation of the log of one run's rate: 0.02 is 2 %."""

    sd: float
    degrees: int | None  # of freedom; None: assumed, too few runs were repeated
    in_rounds: bool = False  # what all runs of a round have in common is not in it

    def of_mean(self, runs: int) -> float:
        """Return the standard error of the log of the geometric mean over so many runs."""
        return self.sd / math.sqrt(runs)

    def of_median(self, runs: int) -> float:
        """Return the standard error of the log of the median over so many runs.

        Of three and more normal values the median's is sqrt(pi / 2 runs) of the single one's
        (asymptotic; a little too much for few), of one and two it is that of the mean.
        """
        return self.sd * math.sqrt((math.pi / 2 if runs > 2 else 1.0) / runs)

    def quantile(self, alpha: float) -> float:
        """Return how many standard errors noise exceeds with probability `alpha`, on one side."""
        if self.degrees is None:
            return statistics.NormalDist().inv_cdf(1 - alpha)
        return t_quantile(1 - 2 * alpha, self.degrees)


def run_to_run_noise(rates: Sequence[Sequence[float]]) -> Noise:
    """Return the noise of runs; `rates`: those of repeated runs of the same, group by group.

    Pooled over the groups. Below three degrees of freedom (runs less groups) it is no estimate:
    5 % is assumed, or what was seen where that is more.
    """
    squares, degrees = 0.0, 0
    for rates_of_group in rates:
        logs = [math.log(rate) for rate in rates_of_group]
        mean = statistics.fmean(logs)
        squares += sum((value - mean) ** 2 for value in logs)
        degrees += len(logs) - 1
    sd = math.sqrt(squares / degrees) if degrees > 0 else 0.0
    if degrees < _LEAST_DEGREES:
        return Noise(max(ASSUMED_SD, sd), None)
    return Noise(sd, degrees)


def noise_within_rounds(rates: Sequence[Mapping[int, float]]) -> Noise | None:
    """Return the noise of runs beside what their rounds have in common; `rates` by round.

    Where each group has one run in each of the same rounds, what drifts between rounds is in all
    medians alike and tells no two of them apart: what counts is the residual of log rate = group +
    round, with (groups - 1) (rounds - 1) degrees of freedom (the two-way layout without
    interaction of any textbook on experiments). None: not so, or below three degrees.
    """
    rounds = rates[0].keys() if rates else set()
    degrees = (len(rates) - 1) * (len(rounds) - 1)
    if degrees < _LEAST_DEGREES or any(group.keys() != rounds for group in rates):
        return None
    logs = [{block: math.log(rate) for block, rate in group.items()} for group in rates]
    of_round = {block: statistics.fmean(group[block] for group in logs) for block in rounds}
    overall = statistics.fmean(of_round.values())
    squares = 0.0
    for group in logs:
        mean = statistics.fmean(group.values())
        squares += sum(
            (value - mean - of_round[block] + overall) ** 2 for block, value in group.items()
        )
    return Noise(math.sqrt(squares / degrees), degrees, in_rounds=True)


# -- Is one better than the other: ratios with confidence intervals, verdicts, how many more -------
#
# The interval is Student's, of an estimate with its error and degrees of freedom
# (`stats.estimate`); where values may have come about otherwise than independently
# (`stats.independence`), of the mixture of Student's distributions that all of these make.
#
# No verdict stands on one run of a side, and there is no interval then. Iterations of a run share
# its luck: of two equal things the intervals of their iterations exclude 1 far more often than 5 %
# say. One run of 3 % noise against ten of 0.3 % was called apart in 82 of 100 cases.
#
# `better` and `worse` say that the interval excludes 1: of two equal things, 5 in 100 comparisons
# say so by chance. `same` says that the interval lies within the margin: with 95 % intervals that
# is stricter than the two one-sided tests at 5 % of D. J. Schuirmann (Journal of Pharmacokinetics
# and Biopharmaceutics 15, 1987). It is a statement on runs like those that were seen: of n without
# a slow one, as many as 1 - 0.05^(1/n) may be slow, and that stands beside it.

CONFIDENCE = 0.95
MOST_ROUNDS = 1000  # a need of more rounds than these is no advice
_LARGEST_LOG = 700.0  # e to this is a number yet
_NEGLIGIBLE = 5e-4  # weight of what cannot move an interval of 95 %


class Decision(StrEnum):
    """What an interval says."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    RARELY = "same, but rarely slow"  # the same but for a few runs that lie far below the others
    UNKNOWN = "inconclusive"
    CANNOT_TELL = "cannot tell"  # most runs were disturbed


class RatioInterval(Struct, frozen=True, kw_only=True):
    """A ratio with its interval, its p value and its verdict."""

    ratio: float  # 1.02: 2 % more than the baseline
    margin: float  # 0.01: what `same` means
    basis: Basis
    count: int  # rounds, or runs (iterations) of the side that has fewer
    low: float | None = None  # None: nothing is known of the noise; so are the next three
    high: float | None = None
    degrees: float | None = None  # of freedom
    # How often equal things differ so much by chance; None: one run each, so no p value is known.
    p: float | None = None
    verdict: Decision = Decision.UNKNOWN
    within: bool = False  # the interval lies within the margin; may stand beside better or worse
    # UNKNOWN: how many more rounds (or runs of both) would tell, if noise and effect stay as
    # they are; 0: not known, or no number would; None: more than MOST_ROUNDS.
    more: int | None = 0
    in_turn: bool = False  # `more` holds for runs of both made in turn: their order is the reason
    blur: float = 0.0  # what the steps of the recorded times add to each side of the interval
    coarse: bool = False  # UNKNOWN: the steps of the recorded times are too coarse to tell
    doubts: tuple[str, ...] = ()  # what is not as it takes for a verdict, in words
    refused: str | None = None  # why there can be no verdict, in words
    slow: tuple[SlowRuns, ...] = ()
    by_cpu: str | None = None  # why it is of CPU time, not of time

    @property
    def decided(self) -> bool:
        """Whether it is better, worse or the same."""
        return self.verdict in (Decision.BETTER, Decision.WORSE, Decision.SAME)

    @property
    def verdict_text(self) -> str:
        """The verdict in the words of the screen."""
        return f"{self._verdict()} (by CPU time: {self.by_cpu})" if self.by_cpu else self._verdict()

    def _verdict(self) -> str:
        slow = "; ".join(map(_slow_words, self.slow))
        if self.verdict is Decision.RARELY:
            return f"same median, but {slow}"
        if self.verdict in (Decision.UNKNOWN, Decision.CANNOT_TELL):
            reason = "; ".join(part for part in (slow, self._why_unknown()) if part)
            return f"{self.verdict}: {reason}" if reason else str(self.verdict)
        beside = [*self.doubts, *([slow] if slow else [])]
        if self.verdict is Decision.SAME:
            beside += self._unseen()
        elif self.within:
            beside.insert(0, f"less than {self.margin * 100:g} %")
        told = f" ({'; '.join(beside)})" if beside else ""
        return f"{self.short}{told}"

    @property
    def short(self) -> str:
        """The verdict without what it stands on."""
        same = self.verdict is Decision.SAME
        return f"same within {self.margin * 100:g} %" if same else str(self.verdict)

    def _unseen(self) -> list[str]:
        """Say how many runs may be slow though none was seen (95 %); of few runs nothing is known.

        n runs without one are as likely as 5 % where 1 - 0.05^(1/n) of all runs are slow.
        """
        one_in = math.floor(1 / (1 - (1 - CONFIDENCE) ** (1 / self.count)))
        return [f"slow runs: at most 1 in {one_in}"] if one_in > 1 else []

    def _why_unknown(self) -> str | None:
        if self.refused:
            return self.refused
        if self.coarse:
            return "times too coarse"
        more = None
        if self.more is None:
            more = f"more than {MOST_ROUNDS} rounds needed"
        elif self.more:
            in_turn = ", made in turn" if self.in_turn else ""
            more = f"about {self.more} more round{'s' * (self.more != 1)} needed{in_turn}"
        return "; ".join(part for part in (*self.doubts, more) if part) or None


def _slow_words(slow: SlowRuns) -> str:
    """Return `1 run in 10 is 20 % slower`."""
    whose = " of the baseline" if slow.of_baseline else ""
    runs = "1 run" if slow.count == 1 else f"{slow.count} runs"
    verb = "is" if slow.count == 1 else "are"
    return f"{runs} in {slow.of}{whose} {verb} {slow.slower * 100:.2g} % slower"


class _LogInterval(Struct, frozen=True):
    """An interval of logarithms."""

    low: float
    high: float

    def verdict(self, edge: float, *, less_is_better: bool) -> Decision:
        """Return the verdict; two sides whose logs differ by less than `edge` are the same."""
        if self.low > 0 or self.high < 0:
            better = (self.low > 0) is not less_is_better
            return Decision.BETTER if better else Decision.WORSE
        return Decision.SAME if self.within(edge) else Decision.UNKNOWN

    def within(self, edge: float) -> bool:
        return -edge < self.low and self.high < edge


class _Part(Struct, frozen=True):
    """One of the distributions that are mixed: Student's, about a place, of a scale."""

    weight: float
    middle: float
    error: float
    degrees: float

    def beyond(self, value: float, sign: int) -> float:
        """Return the part of its weight that lies above a value, with sign -1 below it."""
        score = sign * (value - self.middle) / self.error
        tail = two_sided_p(score, self.degrees) / 2
        return self.weight * (tail if score > 0 else 1 - tail)


def _mixture(estimate: Estimate, more: int = 0) -> list[_Part]:
    """Return the distributions that an estimate makes probable, or would with `more` values."""
    error, degrees = estimate.error(more) or 0.0, estimate.degrees(more)
    alternatives = [
        alternative for alternative in estimate.alternatives if alternative.weight > _NEGLIGIBLE
    ]
    independent = 1 - sum(alternative.weight for alternative in alternatives)
    parts = [
        _Part(
            alternative.weight,
            estimate.log_ratio + alternative.shift,
            error * alternative.widening,
            max(1.0, degrees + alternative.degrees),
        )
        for alternative in alternatives
    ]
    if independent > _NEGLIGIBLE:
        parts.insert(0, _Part(independent, estimate.log_ratio, error, degrees))
    return parts


def _reach_of(estimate: Estimate, confidence: float) -> _LogInterval:
    if not estimate.error():  # nor blur, then
        return _LogInterval(estimate.log_ratio, estimate.log_ratio)
    parts, measured = _mixture(estimate), estimate.log_ratio
    low, high = (_quantile(parts, confidence, sign) for sign in (-1, 1))
    # A drift moves what is probable, and may move it past what was measured: that widens.
    return _LogInterval(min(low, measured) - estimate.blur, max(high, measured) + estimate.blur)


def _quantile(parts: Sequence[_Part], confidence: float, sign: int) -> float:
    """Return an end of the interval that so much of the mixture lies in, with sign -1 the lower."""
    ends = [
        part.middle + sign * t_quantile(confidence, part.degrees) * part.error for part in parts
    ]
    near, far = sorted((min(ends), max(ends)), key=lambda end: sign * end)
    tail = (1 - confidence) / 2 * sum(part.weight for part in parts)
    return sign_change(lambda end: tail - sum(part.beyond(end, sign) for part in parts), near, far)


def _by_chance(estimate: Estimate) -> float:
    """Return how often chance goes so far to the side of 0 on which the estimate lies."""
    parts = _mixture(estimate)
    side = 1 if estimate.log_ratio > 0 else -1
    tail = sum(part.beyond(side * estimate.blur, -side) for part in parts)
    return min(1.0, 2 * tail / sum(part.weight for part in parts))


def ratio_interval(
    estimate: Estimate,
    margin: float,
    confidence: float = CONFIDENCE,
    *,
    less_is_better: bool = False,
    next_confidence: float | None = None,
) -> RatioInterval:
    """Return the interval and verdict of an estimate; `margin`: 0.01 for `same within 1 %`.

    Of values without any noise at all, of which no step is known either, no difference is
    `same`, a difference is `inconclusive`. A refused estimate has neither interval nor verdict.
    `next_confidence`: of the interval once there are more values; None: the same.
    """
    interval = RatioInterval(
        ratio=estimate.ratio,
        margin=margin,
        basis=estimate.basis,
        count=min((part.count for part in estimate.parts), default=1),
        blur=estimate.blur,
        refused=estimate.refused,
    )
    if estimate.error() is None or estimate.refused:
        return interval
    logs = _reach_of(estimate, confidence)
    interval = replace(
        interval, degrees=estimate.degrees(), low=_exp(logs.low), high=_exp(logs.high)
    )
    effect = abs(estimate.log_ratio)
    if not estimate.error():
        return _without_noise(interval, estimate)
    edge = math.log1p(margin)
    slow = () if less_is_better else _slow_beyond(estimate, margin)
    verdict = logs.verdict(edge, less_is_better=less_is_better)
    if slow and _is_rarely_slow(estimate, verdict, margin, confidence):
        verdict = Decision.RARELY
    is_coarse = verdict is Decision.UNKNOWN and max(effect, edge - effect) <= estimate.blur
    doubts = _doubts(estimate, verdict, edge, confidence)
    more, in_turn = None, False
    if verdict is Decision.UNKNOWN and not is_coarse and DRIFT in doubts:
        more = 0  # more runs of the same kind would drift as well
    elif verdict is Decision.UNKNOWN and not is_coarse:
        more, in_turn = _more_runs(estimate, edge, next_confidence or confidence)
    low, high = _within_extremes(logs, estimate)
    return replace(
        interval,
        low=_exp(low),
        high=_exp(high),
        p=_by_chance(estimate),
        verdict=verdict,
        within=logs.within(edge),
        more=more,
        in_turn=in_turn,
        coarse=is_coarse,
        doubts=doubts,
        slow=slow,
    )


def _within_extremes(logs: _LogInterval, estimate: Estimate) -> tuple[float, float]:
    """Return the ends of an interval, none beyond the ratios that two of the values give.

    Of three runs a side Student's t reaches farther than any two of them. The ends that decide the
    verdict stay: no end passes equality (0) by this.
    """
    if estimate.extremes is None:
        return logs.low, logs.high
    lowest, highest = estimate.extremes
    return max(logs.low, min(lowest, 0.0)), min(logs.high, max(highest, 0.0))


def _without_noise(interval: RatioInterval, estimate: Estimate) -> RatioInterval:
    """Return the interval of values that are all alike: noise is not known from them."""
    if abs(estimate.log_ratio) > NO_DIFFERENCE:
        return replace(interval, p=1.0)
    return replace(
        interval, p=1.0, verdict=Decision.SAME, within=True, more=None, doubts=estimate.doubts
    )


def _slow_beyond(estimate: Estimate, margin: float) -> tuple[SlowRuns, ...]:
    return tuple(slow for slow in estimate.slow if slow.slower > margin)


def _is_rarely_slow(
    estimate: Estimate, verdict: Decision, margin: float, confidence: float
) -> bool:
    """Tell whether sides differ in their slow runs alone: a slow mode is no noise of the others."""
    if estimate.rest is None or verdict not in (Decision.UNKNOWN, Decision.SAME):
        return False
    return ratio_interval(estimate.rest, margin, confidence).verdict is Decision.SAME


def _doubts(
    estimate: Estimate, verdict: Decision, edge: float, confidence: float
) -> tuple[str, ...]:
    """Return the doubts told beside a verdict; of an unknown one those that made it unknown."""
    weights: dict[str, float] = {}
    for alternative in estimate.alternatives:
        weights[alternative.reason] = weights.get(alternative.reason, 0.0) + alternative.weight
    likely = tuple(reason for reason, weight in weights.items() if weight >= TOLD)
    if verdict is not Decision.UNKNOWN:
        reasons = [*estimate.doubts, *(reason for reason in likely if reason != DRIFT)]
        return tuple(dict.fromkeys(reasons))
    alone = _reach_of(replace(estimate, alternatives=()), confidence)
    if weights and alone.verdict(edge, less_is_better=False) is not Decision.UNKNOWN:
        return likely or (max(weights, key=lambda reason: weights[reason]),)
    return tuple(reason for reason in likely if reason != DRIFT)


def _more_runs(estimate: Estimate, edge: float, confidence: float) -> tuple[int | None, bool]:
    """Return how many more runs would tell, and whether they have to be made in turn for that."""
    more = _more(estimate, edge, confidence)
    if more is not None or not estimate.alternatives:
        return more, False
    # What the order leaves open, runs in turn would tell.
    more = _more(replace(estimate, alternatives=()), edge, confidence)
    return more, more is not None


def _more(estimate: Estimate, edge: float, confidence: float) -> int | None:
    """Return how many more rounds make the interval narrow enough for the measured effect."""
    effect = abs(estimate.log_ratio)
    room = max(effect, edge - effect) - estimate.blur

    def enough(more: int) -> bool:
        ends = [(estimate.log_ratio + sign * room, sign) for sign in (-1, 1)]
        parts = _mixture(estimate, more)
        return sum(part.beyond(*end) for part in parts for end in ends) < 1 - confidence

    low, last = 0, MOST_ROUNDS
    if not enough(last):
        return None
    while last - low > 1:
        middle = (low + last) // 2
        low, last = (low, middle) if enough(middle) else (middle, last)
    return last


def _exp(log: float) -> float:
    return math.exp(min(max(log, -_LARGEST_LOG), _LARGEST_LOG))


# -- Looking at a comparison again and again until it is decided, without fooling oneself ----------
#
# Who tests two equal things at 5 % after every round, and stops when there is a difference,
# finds one far more often than 5 % of the time. With the same stricter level at every look
# all of them together err in 5 % (S. J. Pocock, Biometrika 64, 1977; his constants for equally
# spaced looks at normal values, here computed by the recursion of Armitage, McPherson and
# Rowe, JRSS A 132, 1969; they are those of table 2.1 of Jennison and Turnbull, Group
# Sequential Methods, 2000). Student's t is used at the same level, as Pocock proposes. That
# errs a little more than 5 %, looks that begin after the third round a little less: with the
# level of one look more it is below 5 % for all series of 4 to 52 rounds that were simulated
# (`benchmarks/comparing.py`).

# Number of looks, and the level of each at which all err in 5 % (constant 2.178 for two).
_LEVELS = (
    *((2, 0.02938), (3, 0.02205), (4, 0.01821), (5, 0.01581), (6, 0.01416)),
    *((7, 0.01294), (8, 0.01199), (9, 0.01124), (10, 0.01062), (12, 0.00965), (15, 0.00864)),
    *((18, 0.00792), (20, 0.00754), (30, 0.00631), (50, 0.00516), (100, 0.00404)),
    *((200, 0.00327), (500, 0.00257), (1000, 0.00219)),
)


def confidence_per_look(looks: int) -> float:
    """Return the confidence of the interval at each of so many looks: 0.95 for one.

    Between the tabulated numbers of looks that of the next one; beyond them 5 % is
    divided by their number (Bonferroni). Raises `ValueError` for none.
    """
    if looks < 1:
        raise ValueError(f"{looks} looks")
    if looks == 1:
        return CONFIDENCE
    level = next((level for many, level in _LEVELS if many > looks), (1 - CONFIDENCE) / looks)
    return 1 - level

"""Effects that all copies share over the iterations: single ones, steps, warm-ups, trends; pure.

Shapes: B benchmarks, R of them that ran each iteration, I iterations, H patterns (`series`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.comparison import FAST_TIMES
from rater.analysis.divots.model.effects import DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.noise import LEAST_SD
from rater.analysis.divots.model.nulls import SpreadPrior, least_sufficient, ln_choose
from rater.analysis.divots.model.series import (
    STEP_FROM,
    PatternTest,
    SeriesRows,
    estimate_patterns,
    pattern_weights,
    trend_number,
)
from rater.analysis.stats.robust import Bools, Floats, Ints, median_without_gaps

# Chosen: the share of healthy runs in which a pattern over the iterations may be named, half of
# that of places (`comparison.ALPHA`).
ALPHA_OVER_TIME: Final = 0.015
# Priors of how iterations differ, ln: all benchmarks together, and one benchmark by itself.
# Chosen (sensitivity simulated).
COMMON: Final = SpreadPrior(0.003, 2.2)
OF_ONE: Final = SpreadPrior(0.008, 2.8)
# Chosen, ln: smallest sizes that are reported, as of parts; one benchmark varies more by itself.
FLOOR_ALL: Final = 0.015
FLOOR_ONE: Final = 0.025
_SEARCHES: Final = 6  # singles, steps and trends, of all benchmarks and of one
_PRICE: Final = math.log(_SEARCHES / ALPHA_OVER_TIME)  # nats
_MOST_EFFECTS: Final = 12  # of a run, against endless search
_MOST_SPIKES: Final = 2  # iterations that may hide a step, for speed
_MANY_ITERATIONS: Final = 40  # several slow ones show by themselves among so many
_MOST_VISIBLE: Final = 0.5  # ln, of a promise
_VARIES: Final = 0.2  # of a size: benchmarks that differ by so much have one each
_SHOWS: Final = 0.4  # of a size: the median benchmark has it, and one beside the others
_PRIOR_DF: Final = 4.0  # weight of the median benchmark's variance in each
_STEPS: Final = 1.5  # steps of the clock: a smaller difference of one iteration is none
_STEPS_OF_MANY: Final = 0.75  # and of several iterations
_POWER_DEVIATE: Final = 0.84  # normal deviate of four in five


class TimeSeries(Struct, frozen=True, eq=False, kw_only=True):
    """Medians of the cells over the iterations."""

    middles: Floats  # (B, I) ln, NaN where not run
    variance: Floats  # (B,) of a middle by the noise of its copies
    df: Floats  # (B,) degrees of freedom of the variance
    clock_step: Floats  # (B,) ln

    def without(self, effects: Sequence[DivotEffect] = ()) -> tuple[Ints, TimeSeries]:
        """Return the benchmarks (R,) that ran every iteration, and their series less effects."""
        rows = np.flatnonzero(~np.isnan(self.middles).any(axis=1))
        values, clock_step = self.middles[rows], self.clock_step[rows]
        for effect in effects:
            values = values - effect.size[rows][:, None] * effect.iteration_weights
        # Two roundings to the clock add step^2 / 12 each: of the value and of the median.
        variance = self.variance[rows] + LEAST_SD**2 + clock_step**2 / 6
        series = TimeSeries(
            middles=values - median_without_gaps(values, axis=1, keepdims=True),
            variance=variance,
            df=self.df[rows],
            clock_step=clock_step,
        )
        return rows, series


class _Pattern(Struct, frozen=True, eq=False, kw_only=True):
    """A pattern that pays."""

    number: int
    size: Floats  # (R,), 0 in rows that do not have it
    net_evidence: float  # nats beyond the price
    likelihood_gain: float
    error: float


def search_times(series: TimeSeries, slots: int) -> list[DivotEffect]:
    """Find the patterns that all copies have over the iterations, one after the other."""
    benchmarks, iterations = series.middles.shape
    effects: list[DivotEffect] = []
    for earlier in range(_MOST_EFFECTS if iterations > 1 else 0):
        rows, rest = series.without(effects)
        if not len(rows):
            break
        pattern = (
            _find_pattern(rest, earlier)
            or _find_one_of_several(rest, earlier)
            or _find_beside_spike(rest, earlier)
        )
        if pattern is None:
            break
        size = np.zeros(benchmarks)
        size[rows] = pattern.size
        has_pattern = size != 0
        weights, scope = pattern_weights(pattern.number, iterations)
        is_fast_end = scope is EffectScope.STEP and pattern.size.sum() < 0 and weights[-1] > 0
        if is_fast_end:  # the slow side is reported
            weights, size = 1 - weights, -size
        effect = DivotEffect(
            kind=EffectKind.ITERATIONS,
            slot_weights=np.ones(slots),
            benchmarks=has_pattern,
            iteration_weights=weights,
            size=size,
            net_evidence=pattern.net_evidence,
            scope=scope,
            likelihood_gain=pattern.likelihood_gain,
        )
        effects.append(effect)
    return effects


def visible_iteration(series: TimeSeries, effects: Sequence[DivotEffect]) -> float | None:
    """Return the size (ln) from which four in five slow iterations of all benchmarks are found.

    No size if there are too few iterations to tell.
    """
    rows, rest = series.without(
        [effect for effect in effects if effect.kind is EffectKind.ITERATIONS]
    )
    middles = rest.middles
    if middles.shape[1] < 3 or not len(rows):
        return None
    # The iteration whose mean is of median size: neither lucky nor unlucky.
    planted_at = int(np.argsort(np.abs(middles.mean(axis=0)))[middles.shape[1] // 2])
    errors = [0.0]

    def is_found(size: Floats) -> Bools:
        planted = middles.copy()
        planted[:, planted_at] = size
        pattern = _find_pattern(replace(rest, middles=planted), 0, singly=len(middles) == 1)
        if pattern is None or pattern.number != planted_at or not pattern.size.all():
            return np.array([False])
        errors.append(pattern.error)
        return np.array([True])

    least = float(least_sufficient(is_found, np.zeros(1), np.array([_MOST_VISIBLE]), 8)[0])
    return least + _POWER_DEVIATE * errors[-1] if least < _MOST_VISIBLE else None


def _find_one_of_several(series: TimeSeries, before: int) -> _Pattern | None:
    """Return one of a few slow iterations that hide each other: the least of them.

    The others of them are held at the median. The choice of m of n iterations costs
    ln C(n, m) - ln n nats more.
    """
    middles, (rows, iterations) = series.middles, series.middles.shape
    for count in range(2, (iterations - 1) // 2 + 1 if iterations < _MANY_ITERATIONS else 0):
        slowest = np.argsort(-middles.mean(axis=0))[:count]
        others = np.delete(middles, slowest, axis=1)
        held = middles.copy()
        held[:, slowest[:-1]] = median_without_gaps(others, axis=1, keepdims=True)
        pattern = _find_pattern(replace(series, middles=held), before + count - 1, singly=rows == 1)
        price = ln_choose(iterations, count) - math.log(iterations)
        if (
            pattern is not None
            and pattern.number == slowest[-1]
            and pattern.size.max() > 0
            and pattern.net_evidence > price
        ):
            return pattern
    return None


def _find_beside_spike(series: TimeSeries, before: int) -> _Pattern | None:
    """Return a step, trend or warm-up that a single slow iteration hides; it is found next.

    The iteration that differs most from its neighbours is held at their mean. Its choice costs ln I
    nats more.
    """
    middles, (rows, iterations) = series.middles, series.middles.shape
    if iterations < STEP_FROM:
        return None
    padded = np.pad(middles.mean(axis=0), 1, mode="reflect")
    spike = np.abs(padded[1:-1] - (padded[:-2] + padded[2:]) / 2)
    patterns: list[_Pattern] = []
    for place in np.argsort(-spike)[:_MOST_SPIKES].tolist():
        if spike[place] < FLOOR_ALL:
            continue
        neighbours = [at for at in (place - 1, place + 1) if 0 <= at < iterations]
        held = middles.copy()
        held[:, place] = middles[:, neighbours].mean(axis=1)
        pattern = _find_pattern(replace(series, middles=held), before + 1, singly=rows == 1)
        if pattern and pattern.number >= iterations and pattern.net_evidence > math.log(iterations):
            patterns.append(pattern)
    return max(patterns, key=lambda pattern: pattern.likelihood_gain, default=None)


def _find_pattern(series: TimeSeries, before: int, *, singly: bool = True) -> _Pattern | None:
    """Return the pattern that gains most of those that pay: of all, or (`singly`) of one."""
    patterns: list[_Pattern] = []
    if len(series.middles) > 1:
        patterns += _patterns_of_all(series, before)
    if singly:
        patterns += _patterns_of_one(series, before)
    return max(patterns, key=lambda pattern: pattern.likelihood_gain, default=None)


def _patterns_of_all(series: TimeSeries, before: int) -> Iterator[_Pattern]:
    """Yield the patterns of the weighted mean of all benchmarks that pay.

    Weights are 1 / variance, of each benchmark about the mean of all. A variance that is small by
    chance would get too much weight, so the median one counts four degrees of freedom in each.
    """
    values, (rows, iterations) = series.middles, series.middles.shape
    squares = np.sum((values - values.mean(axis=0)) ** 2, axis=1) * rows / (rows - 1)
    variance = np.maximum(squares / (iterations - 1), series.variance)
    df, prior = iterations - 1, median_without_gaps(variance) * _PRIOR_DF
    weight = 1 / ((variance * df + prior) / (df + _PRIOR_DF))
    mean = (weight[:, None] * values).sum(axis=0, keepdims=True) / weight.sum()
    tests = SeriesRows(
        rows=mean,
        variance=np.array([1 / weight.sum()]),
        df=np.array([(rows - 1.0) * df]),
        prior=COMMON,
        patterns_before=before,
    ).test_patterns()
    sizes = estimate_patterns(values, 0.0).effect
    for test in _tests_that_pay(tests, iterations, series.clock_step * 0, FLOOR_ALL, 1):
        shown = median_without_gaps(sizes[:, test.pattern]) * math.copysign(1, test.size)
        if shown < _SHOWS * abs(test.size):
            continue
        # Benchmarks that differ by more than a part of the size have one each.
        varies = _vary(sizes[:, test.pattern], test.size)
        size = sizes[:, test.pattern] if varies else np.full(rows, test.size)
        yield _make_pattern(test, iterations, size, 1)


def _vary(sizes: Floats, size: float) -> bool:
    """Tell whether the median benchmark (R,) differs from a common size by much of it."""
    return float(median_without_gaps(np.abs(sizes - size))) > _VARIES * abs(size)


def _patterns_of_one(series: TimeSeries, before: int) -> Iterator[_Pattern]:
    """Yield the patterns of single benchmarks that pay.

    One of several benchmarks must show it by itself and beside the mean of the others.
    """
    values, (rows, iterations) = series.middles, series.middles.shape
    views = [values]
    if rows > 2:
        views.append(values - (values.sum(axis=0) - values) / (rows - 1))
    sizes = [estimate_patterns(view, 0.0).effect for view in views]
    same_sign = sizes[0] * sizes[-1] > 0
    shown = np.minimum(np.abs(sizes[0]), np.abs(sizes[-1])) * same_sign
    tried = len(views) * rows
    for view in views:
        tests = SeriesRows(
            rows=view, variance=series.variance, df=series.df, prior=OF_ONE, patterns_before=before
        ).test_patterns()
        for test in _tests_that_pay(tests, iterations, series.clock_step, FLOOR_ONE, tried):
            if abs(shown[test.row, test.pattern]) >= _SHOWS * abs(test.size):
                size = np.where(np.arange(rows) == test.row, test.size, 0.0)
                yield _make_pattern(test, iterations, size, tried)


def _tests_that_pay(
    tests: Sequence[PatternTest], iterations: int, clock_step: Floats, floor: float, tried: int
) -> Iterator[PatternTest]:
    """Yield the tests whose evidence exceeds the price and whose size exceeds `floor`."""
    for test in tests:
        is_single = test.pattern < iterations
        steps = _STEPS if is_single else _STEPS_OF_MANY
        # A fast iteration costs no score; a step that is fast on one side is slow on the other.
        least = floor * (FAST_TIMES if is_single and test.size < 0 else 1.0)
        large = abs(test.size) >= max(least, clock_step[test.row] * steps)
        is_fading = test.pattern > trend_number(iterations)
        if _net_evidence(test, iterations, tried) <= 0 or not large:
            continue
        if is_fading and test.size < 0:
            continue  # a warm-up is slow
        yield test


def _net_evidence(test: PatternTest, iterations: int, tried: int) -> float:
    """Return the evidence beyond the price: ln(searches * patterns of the sort * rows / ALPHA)."""
    if test.pattern < iterations:
        patterns = iterations
    elif test.pattern == trend_number(iterations):
        patterns = 1
    else:
        patterns = max(1, iterations - 3)
    return test.evidence - _PRICE - math.log(patterns) - math.log(tried)


def _make_pattern(test: PatternTest, iterations: int, size: Floats, tried: int) -> _Pattern:
    return _Pattern(
        number=test.pattern,
        size=size,
        net_evidence=_net_evidence(test, iterations, tried),
        likelihood_gain=test.likelihood_gain,
        error=test.error,
    )

"""Parts of the machine that become slow, or fast, in the course of a run; pure.

What a part has more than the other parts, iteration by iteration, is a series. Its steps, its
windows of several iterations and its slopes are found by the rules of `series`, as those of all
copies are: only such a series shows a package that throttles from some iteration on. What all
copies share is in no difference between parts, and is sought when the parts are done.

Shapes: B benchmarks, I iterations, S slots, P parts, R rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.comparison import FAST_PRICE
from rater.analysis.divots.model.effects import DivotEffect
from rater.analysis.divots.model.noise import LEAST_SD
from rater.analysis.divots.model.nulls import SpreadPrior, capped_squares, ln_normal_tail
from rater.analysis.divots.model.part_effects import ENTERS
from rater.analysis.divots.model.places import FamilyLevels
from rater.analysis.divots.model.series import (
    STEP_FROM,
    PatternTest,
    SeriesRows,
    estimate_patterns,
    pattern_weights,
    trend_number,
    windows_number,
)
from rater.analysis.divots.model.times import ALPHA_OVER_TIME
from rater.analysis.stats.robust import Bools, Floats, Ints, mean

# Priors of how the difference between healthy parts varies from one iteration to the next, ln:
# of all benchmarks together, and of one by itself. Chosen, between that of whole iterations
# (`times.COMMON`, `OF_ONE`) and that of lasting differences (`places.PARTS`).
_OF_ALL: Final = SpreadPrior(0.002, 2.2)
_OF_ONE: Final = SpreadPrior(0.004, 2.2)
_MOST_PARTS: Final = 64  # of a family, for speed
_SORTS: Final = 4  # of patterns that are sought: steps, the trend, warm-ups, windows
_SHOWS: Final = 0.4  # of a size: the median benchmark shows it, as in `times`
_MOST_OFFERED: Final = 8  # candidates of a family and a scope, for speed


class _Series(Struct, frozen=True, eq=False, kw_only=True):
    """What parts have more than the others: one row a part, or a part and benchmark."""

    values: Floats  # (R, I) ln
    variance: Floats  # (R,) of each value by chance
    df: Floats  # (R,) degrees of freedom of the variance
    part: Ints  # (R,)
    benchmark: Ints  # (R,) or -1: all of them together


def find_part_changes(
    levels: FamilyLevels, residuals: Floats, families: int
) -> Iterator[DivotEffect]:
    """Yield changes of the parts of a family over the iterations that pay.

    `residuals` (B, I, S) are what `levels` are made from. The evidence of a change exceeds the
    Bonferroni price, ln(searches * parts * patterns of its sort * rows / `ALPHA_OVER_TIME`).
    """
    sizes = levels.family.sizes
    iterations = residuals.shape[1]
    many = levels.parts > _MOST_PARTS or sizes.max() < 2
    if levels.are_copies or many or iterations < STEP_FROM:
        return
    rows = np.flatnonzero(~np.isnan(levels.cell_levels).any(axis=(1, 2)))
    if not len(rows):
        return
    contrast = _contrasts(levels, rows)
    variance, df = _chance(levels, residuals, rows)
    price = math.log(families * _SORTS * levels.parts / ALPHA_OVER_TIME)
    of_one = _series_of_benchmarks(contrast, variance, df)
    if len(rows) > 1:
        pooled = _series_of_all(contrast, variance, df)
        yield from _changes(levels, pooled, _OF_ALL, price, contrast=contrast, rows=rows)
    price += math.log(len(rows))
    yield from _changes(levels, of_one, _OF_ONE, price, contrast=contrast, rows=rows)


def _contrasts(levels: FamilyLevels, rows: Ints) -> Floats:
    """Return each part's level less the mean of the other copies (P, R, I); of two parts one."""
    values, sizes = levels.cell_levels[rows], levels.family.sizes
    total = (values * sizes).sum(axis=2, keepdims=True)
    others = (total - values * sizes) / (sizes.sum() - sizes)
    contrast: Floats = np.moveaxis(values - others, 2, 0)
    return contrast[:1] if levels.parts == 2 else contrast


def _chance(levels: FamilyLevels, residuals: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Return the variance of each contrast by chance (P, R), and its degrees of freedom (R,).

    Of copies about their part in each cell, and about themselves over the iterations: no effect
    of a part, at whatever time, is in it.
    """
    family, iterations = levels.family, residuals.shape[1]
    slots = np.flatnonzero(family.part_of_slot >= 0)
    in_cell = levels.cell_levels[rows][:, :, family.part_of_slot[slots]]
    rest = residuals[rows][:, :, slots] - in_cell
    rest = rest - np.nan_to_num(mean(rest, axis=1))[:, None]
    total = capped_squares(rest, (1, 2), levels.noise.clock_step[rows])
    free = max(1, len(slots) - levels.parts) * (iterations - 1)
    df = np.maximum(1.0, total.count * free / (len(slots) * iterations))
    one_copy = total.squares / df + levels.noise.clock_step[rows] ** 2 / 12 + LEAST_SD**2
    sizes = family.sizes
    share = levels.huber_loss * (1 / sizes + 1 / (sizes.sum() - sizes))
    return share[:, None] * one_copy[None], df


def _series_of_benchmarks(contrast: Floats, variance: Floats, df: Floats) -> _Series:
    parts, rows, iterations = contrast.shape
    return _Series(
        values=contrast.reshape(parts * rows, iterations),
        variance=variance[:parts].reshape(-1),
        df=np.tile(df, parts),
        part=np.repeat(np.arange(parts), rows),
        benchmark=np.tile(np.arange(rows), parts),
    )


def _series_of_all(contrast: Floats, variance: Floats, df: Floats) -> _Series:
    """Return the weighted mean over benchmarks; weights are 1 / variance of a value."""
    parts = len(contrast)
    weight = 1 / (variance[:parts] + _OF_ONE.typical**2)
    total = weight.sum(axis=1)
    return _Series(
        values=(weight[:, :, None] * contrast).sum(axis=1) / total[:, None],
        variance=(weight**2 * variance[:parts]).sum(axis=1) / total**2,
        df=np.full(parts, float(df.sum())),
        part=np.arange(parts),
        benchmark=np.full(parts, -1),
    )


def _changes(
    levels: FamilyLevels,
    series: _Series,
    prior: SpreadPrior,
    price: float,
    *,
    contrast: Floats,
    rows: Ints,
) -> Iterator[DivotEffect]:
    """Yield the likeliest change of each series, if it pays."""
    iterations = series.values.shape[1]
    of_all = bool((series.benchmark < 0).all())
    floor = ENTERS * (levels.floor_in_all if of_all else levels.floor)
    if not _may_pay(series, floor, price):
        return
    tests = SeriesRows(
        rows=series.values,
        variance=series.variance,
        df=series.df,
        prior=prior,
        patterns_before=0,
        with_windows=True,
    ).test_patterns()
    best: dict[int, tuple[PatternTest, float]] = {}  # of each row: test and net evidence
    for test in tests:
        net = test.evidence - price - math.log(_number_of_sort(test.pattern, iterations))
        if test.pattern < iterations or net <= 0 or abs(test.size) < floor:
            continue
        if levels.family.sizes[series.part[test.row]] < 2:
            continue  # a single copy is held against the tail of single ones (`part_effects`)
        if test.row not in best or test.likelihood_gain > best[test.row][0].likelihood_gain:
            best[test.row] = test, net
    for test, net in list(best.values())[:_MOST_OFFERED]:
        effect = _make_effect(levels, series, test, net, contrast=contrast, rows=rows)
        if effect is not None:
            yield effect


def _may_pay(series: _Series, floor: float, price: float) -> bool:
    """Tell whether any change could pay if chance alone made noise: quick, for the usual case."""
    iterations = series.values.shape[1]
    fit = estimate_patterns(series.values, 0.0, with_windows=True)
    size, information = np.abs(fit.effect[:, iterations:]), fit.information[iterations:]
    deviations = size * np.sqrt(information / series.variance[:, None])
    evidence = -ln_normal_tail(deviations) - math.log(2)
    return bool(((evidence > price) & (size >= floor)).any())


def _number_of_sort(pattern: int, iterations: int) -> int:
    """Return how many patterns of the sort of one there are."""
    trend = trend_number(iterations)
    if pattern < trend:
        return iterations - 3
    if pattern == trend:
        return 1
    fading = max(1, iterations // 2 - 1)
    return fading if pattern <= trend + fading else max(1, windows_number(iterations))


class _Change(Struct, frozen=True, eq=False, kw_only=True):
    """A change of a part: its size (B,) in some benchmarks, times the weight (I,) of iterations."""

    part: int  # index in its family
    benchmarks: Bools  # (B,)
    size: Floats  # (B,) ln
    weights: Floats  # (I,)

    @property
    def is_slow(self) -> bool:
        """Whether most benchmarks are slow."""
        return float(np.median(self.size[self.benchmarks])) > 0


def _make_effect(
    levels: FamilyLevels,
    series: _Series,
    test: PatternTest,
    net: float,
    *,
    contrast: Floats,
    rows: Ints,
) -> DivotEffect | None:
    """Return the effect of a change, none if the benchmarks do not show it.

    A change leaves one of its sides as fast as the other parts: the other side is the effect. Of
    two parts the slow one has it.
    """
    change = _read_change(levels, series, test, contrast=contrast, rows=rows)
    if change is None:
        return None
    before = series.values[test.row].mean() - test.size * change.weights.mean()
    is_trend = test.pattern == trend_number(levels.shape[1])
    if abs(before + test.size) < abs(before) and not is_trend:
        change = replace(change, weights=1.0 - change.weights, size=-change.size)
    if levels.parts == 2 and not change.is_slow:
        change = replace(change, part=1 - change.part, size=-change.size)
    net -= 0.0 if change.is_slow else FAST_PRICE
    if net <= 0:
        return None
    return levels.noise.make_effect(
        kind=levels.family.kind,
        slot_weights=levels.family.masks[change.part].astype(float),
        benchmarks=change.benchmarks,
        iteration_weights=change.weights,
        size=change.size,
        net_evidence=net,
        part=levels.family.names[change.part],
    )


def _read_change(
    levels: FamilyLevels, series: _Series, test: PatternTest, *, contrast: Floats, rows: Ints
) -> _Change | None:
    """Return a change with its size in each benchmark; none if the median one does not show it."""
    benchmarks, iterations, _ = levels.shape
    part, number = int(series.part[test.row]), int(series.benchmark[test.row])
    weights = pattern_weights(test.pattern, iterations)[0]
    if test.pattern == trend_number(iterations):
        weights = weights + 0.5  # from 0 at the first iteration to 1 at the last
    where, size = np.zeros(benchmarks, dtype=bool), np.zeros(benchmarks)
    if number >= 0:
        where[rows[number]], size[rows[number]] = True, test.size
    else:
        fit = estimate_patterns(contrast[part], 0.0, with_windows=True)
        sizes = fit.effect[:, test.pattern]
        if float(np.median(sizes)) * math.copysign(1.0, test.size) < _SHOWS * abs(test.size):
            return None
        where[rows], size[rows] = True, sizes
    return _Change(part=part, benchmarks=where, size=size, weights=weights)

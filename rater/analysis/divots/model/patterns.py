"""Candidate effects that are no part of the machine.

Three searches yield the `DivotEffect`s whose evidence exceeds its price:

- `find_slopes`: times that rise or fall with the order of start;
- `find_several`: several copies of one row, none of which is clear alone;
- `find_modes`: times of two sorts with a gap between them.

Shapes: B benchmarks, I iterations, S slots; a *cell* is one benchmark in one iteration; R rows are
benchmarks or cells. Times are natural logarithms, so a size of 0.02 is 2 %. *Net* evidence, in
nats, is evidence less its price, ln(number of tests / `ALPHA`). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.comparison import ALPHA, ComparisonScope, PartComparison
from rater.analysis.divots.model.effects import DivotEffect, EffectKind
from rater.analysis.divots.model.noise import LEAST_SD, CellNoise
from rater.analysis.divots.model.nulls import SpreadPrior, capped_squares
from rater.analysis.divots.model.part_effects import ENTERS
from rater.analysis.stats.robust import Bools, Floats, Ints


def price_of_search(searches: int, rows: int = 1) -> float:
    """Return the nats that evidence must exceed: `searches` of `rows` rows share ALPHA."""
    return math.log(searches / ALPHA) + math.log(rows)


# -- Slopes over the order of start ----------------------------------------------------------------

# Prior of slopes of healthy runs, ln from the first copy to the last. Chosen (sensitivity
# simulated).
SLOPE: Final = SpreadPrior(0.004, 1.6)
SLOPE_FLOOR: Final = 0.02  # ln from first to last. Chosen: smallest slope that is reported
_SLOPE_MIN_SLOTS: Final = 4
_SLOPE_MAX_BLOCKS: Final = 8  # of neighbours, for lack of fit
_SLOPE_CLIP_SD: Final = 2.5  # residuals count no more; one normal value in 80 is clipped
_SLOPE_PASSES: Final = 2  # of clipping and fitting again. Chosen (three simulated)
_SLOPE_MAX_REPEAT_DF: Final = 12.0  # most degrees of freedom of repeats in the residual variance
# Squares between blocks count so much more. Chosen: eight blocks say little of what neighbours
# share (sensitivity simulated).
_LACK_OF_FIT_WEIGHT: Final = 1.5
_AGREEMENT_DF: Final = 4.0  # prior degrees of freedom for agreement of benchmarks, as of parts


class _SlopeFit(Struct, frozen=True, eq=False):
    """Slopes of R rows."""

    slope: Floats  # (R,) ln, from the first slot to the last
    evidence: Floats  # (R,) nats
    error: Floats  # (R,) standard error by chance alone


class StartOrder(Struct, frozen=True, eq=False):
    """The order in which the copies started, and the parts of the machine that they are on."""

    position: Floats  # (S,) place of each slot, -0.5 to 0.5
    families: list[Bools]  # of each (P, S) its parts of several slots: nodes, packages, LLCs

    def is_line(self, rows: Floats) -> Bools:
        """Tell of rows (R, S) whether they rise along the order, rather than from part to part."""
        is_line = _slope_beats_step(rows, self.position, np.zeros((0, rows.shape[1]), dtype=bool))
        for parts in self.families:
            is_line &= _slope_beats_step(rows, self.position, parts)
            is_line &= self._rises_inside(rows, parts)
        return is_line

    def _rises_inside(self, rows: Floats, parts: Bools) -> Bools:
        """Tell of rows whether their slope inside of parts (P, S) may be that of all copies.

        It must not be less than half, by more than two standard errors. Of all parts it is pooled:
        the sum of x * y over that of x^2, about the mean of each part.
        """
        about_mean = rows - rows.mean(axis=1, keepdims=True)
        slope = about_mean @ self.position / (self.position @ self.position)
        sd = np.sqrt(np.mean((about_mean - slope[:, None] * self.position) ** 2, axis=1))
        inside = [self.position[part] - self.position[part].mean() for part in parts]
        squares = max(sum(float(x @ x) for x in inside), _LEAST_RANGE)
        products = [rows[:, part] @ x for part, x in zip(parts, inside, strict=True)]
        shortfall = (slope - np.sum(products, axis=0) / squares) * np.sign(slope)
        may_be: Bools = (shortfall <= np.abs(slope) / 2) | (
            shortfall <= 2 * sd / math.sqrt(squares)
        )
        return may_be


def find_slopes(
    residuals: Floats, slot_levels: Floats, order: StartOrder, noise: CellNoise, searches: int
) -> Iterator[DivotEffect]:
    """Yield slopes over the order of start: of all benchmarks, of one, and of one cell.

    `residuals` (B, I, S); `slot_levels` (B, S) are their means over iterations.
    """
    if residuals.shape[2] < _SLOPE_MIN_SLOTS:
        return
    repeat = noise.repeat
    chance = repeat.variance / noise.iterations_run
    fit = _fit_slopes(slot_levels, order.position, chance, repeat.df)
    always = np.ones(residuals.shape[1])
    yield from _slopes_of_all(slot_levels, order, fit, always, noise, searches=searches)
    yield from _slopes_of_benchmarks(slot_levels, order, fit, always, noise, searches=searches)
    yield from _slopes_of_cells(residuals, order, noise, searches)


def _slopes_of_all(
    slot_levels: Floats,
    order: StartOrder,
    fit: _SlopeFit,
    always: Floats,
    noise: CellNoise,
    *,
    searches: int,
) -> Iterator[DivotEffect]:
    """Yield the slope of all benchmarks together, where there are several.

    `fit` has the slope of each benchmark, which is its size in the effect; `always` is a weight of
    1 for each iteration (I,).
    """
    benchmarks = len(slot_levels)
    if benchmarks < 2:
        return
    position = order.position
    pooled, variance = _pool_slopes(slot_levels, fit, position)
    df = np.array([_AGREEMENT_DF - 1 + benchmarks])
    pooled_fit = _fit_slopes(pooled, position, variance, df)
    for _, net in _slopes_that_pay(pooled, order, pooled_fit, ENTERS * SLOPE_FLOOR, searches):
        yield noise.make_effect(
            kind=EffectKind.GRADIENT,
            slot_weights=position,
            benchmarks=np.ones(benchmarks, bool),
            iteration_weights=always,
            size=fit.slope,
            net_evidence=net,
        )


def _slopes_of_benchmarks(
    slot_levels: Floats,
    order: StartOrder,
    fit: _SlopeFit,
    always: Floats,
    noise: CellNoise,
    *,
    searches: int,
) -> Iterator[DivotEffect]:
    """Yield slopes of one benchmark in all iterations."""
    floor = ENTERS * SLOPE_FLOOR
    for row, net in _slopes_that_pay(slot_levels, order, fit, floor, searches):
        yield noise.make_effect(
            kind=EffectKind.GRADIENT,
            slot_weights=order.position,
            benchmarks=np.arange(len(slot_levels)) == row,
            iteration_weights=always,
            size=fit.slope,
            net_evidence=net,
        )


def _slopes_of_cells(
    residuals: Floats, order: StartOrder, noise: CellNoise, searches: int
) -> Iterator[DivotEffect]:
    """Yield slopes of single cells, where there are several iterations."""
    benchmarks, iterations, slots = residuals.shape
    if iterations < 2:
        return
    cells = np.nan_to_num(residuals).reshape(benchmarks * iterations, slots)
    variance = np.repeat(noise.repeat.variance, iterations)
    fit = _fit_slopes(cells, order.position, variance, np.repeat(noise.repeat.df, iterations))
    for row, net in _slopes_that_pay(cells, order, fit, SLOPE_FLOOR, searches):
        where, when = noise.locate_cell(row, iterations)
        yield noise.make_effect(
            kind=EffectKind.GRADIENT,
            slot_weights=order.position,
            benchmarks=where,
            iteration_weights=when,
            size=fit.slope[row] * where,
            net_evidence=net,
        )


def _pool_slopes(slot_levels: Floats, fit: _SlopeFit, position: Floats) -> tuple[Floats, Floats]:
    """Return the weighted mean of all benchmarks' levels (1, S), and its variance (1,).

    Weights are 1 / variance. Where benchmarks disagree by more than chance the variance is widened
    by their Birge ratio (1932, Physical Review 40): chi squared over its degrees of freedom.
    """
    weight = 1 / fit.error**2
    mean = (weight * fit.slope).sum() / weight.sum()
    chi_squared = float((weight * (fit.slope - mean) ** 2).sum())
    birge_ratio = max(1.0, (_AGREEMENT_DF + chi_squared) / (_AGREEMENT_DF - 1 + len(slot_levels)))
    pooled = (weight[:, None] * slot_levels).sum(axis=0, keepdims=True) / weight.sum()
    variance = birge_ratio / weight.sum() * float(position @ position)
    return pooled, np.array([variance])


def _slopes_that_pay(
    rows: Floats, order: StartOrder, fit: _SlopeFit, floor: float, searches: int
) -> Iterator[tuple[int, float]]:
    """Yield row and net evidence of slopes that pay, exceed `floor` and are no step."""
    net = fit.evidence - price_of_search(searches, len(rows))
    candidates = np.flatnonzero((net > 0) & (np.abs(fit.slope) > floor))
    for row in candidates[order.is_line(np.nan_to_num(rows[candidates]))].tolist():
        yield row, float(net[row])


def _slope_beats_step(rows: Floats, position: Floats, parts: Bools) -> Bools:
    """Tell of rows (R, S) whether a line explains more of their squares than any two levels.

    Two levels, of k of n values and of the others, explain n * (sum of the k)^2 / (k * (n - k)):
    the first k in the order of start, or those of a part (P, S).
    """
    n = len(position)
    about_mean = rows - rows.mean(axis=1, keepdims=True)
    k = np.arange(1, n)
    sums = about_mean[:, np.argsort(position)].cumsum(axis=1)[:, :-1]
    by_step = (sums**2 * n / (k * (n - k))).max(axis=1)
    if len(parts):
        k = parts.sum(axis=1)
        by_part = (about_mean @ parts.T) ** 2 * n / (k * (n - k))
        by_step = np.maximum(by_step, by_part.max(axis=1))
    is_line: Bools = (about_mean @ position) ** 2 / (position @ position) >= by_step
    return is_line


def _fit_slopes(rows: Floats, position: Floats, chance: Floats, df: Floats) -> _SlopeFit:
    """Fit a line to each row (R, S); `chance` (R,), with `df`: least variance of one value.

    Least squares, then passes with clipped residuals (an M-estimate, Huber 1964).
    """
    slots = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    position_squares = float(position @ position)
    slope = centred @ position / position_squares
    for _ in range(_SLOPE_PASSES):
        rest = centred - slope[:, None] * position
        variance = np.maximum(capped_squares(rest, 1).squares / max(1, slots - 2), chance)
        reach = _SLOPE_CLIP_SD * np.sqrt(variance)[:, None]
        slope = slope + np.clip(rest, -reach, reach) @ position / position_squares
    rest = centred - slope[:, None] * position
    total = capped_squares(rest, 1)
    repeat_df = np.minimum(df, _SLOPE_MAX_REPEAT_DF)
    free = repeat_df + total.count - 2
    variance = (repeat_df * np.maximum(chance, LEAST_SD**2) + total.squares) / free
    lack_of_fit, blocks = _lack_of_fit(rest, position, variance)
    evidence = SLOPE.evidence(
        slope,
        variance / position_squares,
        free,
        other_squares=_LACK_OF_FIT_WEIGHT * lack_of_fit,
        other_df=np.full(len(rows), float(max(0, blocks - 2))),
    )
    return _SlopeFit(slope, evidence, np.sqrt(variance / position_squares))


def _lack_of_fit(rest: Floats, position: Floats, variance: Floats) -> tuple[Floats, int]:
    """Return how much more blocks of neighbours vary than chance would (R,), and their number.

    Neighbours may share a cause that is no slope, which widens the prior of slopes.
    """
    slots = rest.shape[1]
    blocks = min(_SLOPE_MAX_BLOCKS, slots // 2)
    members = np.array_split(np.argsort(position), blocks)
    means = np.stack([rest[:, block].mean(axis=1) for block in members], axis=1)
    by_chance = variance * blocks * blocks / slots  # a mean of slots / blocks values, blocks times
    return np.maximum(0.0, np.sum(means**2, axis=1) - by_chance), blocks


# -- Several copies at once ------------------------------------------------------------------------

_SEVERAL_MIN_SLOTS: Final = 6
_SEVERAL_MIN_SD: Final = 3.0  # of each of the copies: one normal copy in 740 is so slow
_SEVERAL_MAX_SHARE: Final = 5  # at most one of so many copies; more are a sort
_MAX_CANDIDATES: Final = 40  # of one comparison, for speed
_CLOCK_STEPS: Final = 1.5  # steps of the clock: a smaller difference is none


def find_several(
    comparison: PartComparison, noise: CellNoise, searches: int, iterations: int
) -> Iterator[DivotEffect]:
    """Yield copies of one row that are slow at once where none of them would pay alone.

    Of n copies, the number beyond the m-th slowest is about Poisson by chance, with mean
    L = n * P(one is so slow); P(at least m) is at most L^m / m!.
    """
    rows, slots = comparison.difference.shape
    is_cell = comparison.scope is ComparisonScope.CELL
    by_benchmark = comparison.scope is ComparisonScope.BENCHMARK
    if comparison.tail is None or slots < _SEVERAL_MIN_SLOTS or not (is_cell or by_benchmark):
        return
    rows_per_benchmark = rows // len(noise.clock_step)
    net, count = _poisson_evidence(comparison)
    net = net - price_of_search(searches, rows)
    deviations = comparison.difference / comparison.sd
    for row in np.argsort(-net)[: int(np.sum(net > 0))][:_MAX_CANDIDATES].tolist():
        slowest = np.argsort(-deviations[row])[: count[row]]
        size = float(np.median(comparison.difference[row, slowest]))
        where, when = noise.locate_cell(row, rows_per_benchmark)
        if abs(size) >= max(comparison.floor, _CLOCK_STEPS * float(noise.clock_step[where][0])):
            yield from _smaller_side(
                np.isin(np.arange(slots), slowest),
                where,
                when if is_cell else np.ones(iterations),
                size=size,
                net=float(net[row]),
                noise=noise,
            )


def _poisson_evidence(comparison: PartComparison) -> tuple[Floats, Ints]:
    """Return for each row the evidence of its best number m of slow copies, and that m (R,)."""
    assert comparison.tail is not None
    slots = comparison.difference.shape[1]
    most = max(2, slots // _SEVERAL_MAX_SHARE)
    # Slow ones only: a fast minority is no divot.
    slowest = -np.sort(-(comparison.difference / comparison.sd), axis=1)[:, :most]
    m = np.arange(1, slowest.shape[1] + 1)
    ln_mean = math.log(slots / 2) - comparison.tail.evidence(slowest)  # one side: half of the tail
    ln_factorial = np.array([math.lgamma(count + 1) for count in m.tolist()])
    evidence = ln_factorial - m * ln_mean - math.log(2 * most)  # `most` numbers were tried
    none_alone = ~(comparison.net_evidence.max(axis=1, keepdims=True) > 0)
    allowed = (ln_mean < np.log(m)) & (m > 1) & (slowest > _SEVERAL_MIN_SD) & none_alone
    evidence = np.where(allowed, evidence, 0.0)
    best = evidence.argmax(axis=1)
    return evidence[np.arange(len(evidence)), best], best + 1


# -- Two sorts of times, with a gap between them ---------------------------------------------------

_MODES_FLOOR: Final = 0.02  # ln between the medians. Chosen: smallest distance that is reported
_MODES_MIN_SLOTS: Final = 4
_MODES_MIN_VALUES: Final = 12
_MODES_MIN_SHARE: Final = 0.12  # of the values are slow: fewer are single ones
_MODES_MAX_SHARE: Final = 0.92  # of the values are slow: more have a fast minority, no divot
_MINORITY: Final = 0.60  # of the copies at most: more slow ones are the usual sort
FEW_COPIES: Final = 0.2  # of all, at most: more are a sort
_SHOWN: Final = 0.4  # of the common size: benchmarks that have so much of it show it
_SHOWN_SD: Final = 2.0  # and so many standard errors: 1 in 40 by chance
_FIRM: Final = 0.2  # a copy is of one sort if at most so many of its iterations are of the other
_MAX_UNFIRM: Final = 0.1  # of the copies
_OUTERMOST: Final = 25  # of so many values one at each end does not count in a range
_MOST_OF_RANGE: Final = 0.98  # of the range, at most, is a gap: ln of 0 is not known
_LEAST_RANGE: Final = 1e-12  # ln, against division by zero


class _Gap(Struct, frozen=True, kw_only=True):
    """A gap between two sorts that pays."""

    row: int
    net: float  # nats
    size: float  # ln, median of the slow less that of the others
    slow_from: float  # the smallest value of the slow sort


def find_modes(
    residuals: Floats, slot_levels: Floats, noise: CellNoise, searches: int
) -> Iterator[DivotEffect]:
    """Yield sets of copies, or of copy runs, that a gap parts from the others."""
    if residuals.shape[2] >= _MODES_MIN_SLOTS:
        price = price_of_search(searches)
        yield from _modes_of_all(slot_levels, residuals.shape[1], noise, price)
        yield from _modes_of_benchmarks(residuals, noise, price)
        yield from _modes_of_cells(residuals, noise, price)


def _modes_of_all(
    slot_levels: Floats, iterations: int, noise: CellNoise, price: float
) -> Iterator[DivotEffect]:
    """Yield copies that are slow in all benchmarks together, in those that show it."""
    if len(slot_levels) < 2:
        return
    repeat = noise.repeat.variance
    weight = noise.iterations_run / repeat
    pooled = (weight[:, None] * slot_levels).sum(axis=0, keepdims=True) / weight.sum()
    for gap in _gaps(pooled, np.zeros(1), price):
        slow = pooled[0] >= gap.slow_from
        count = min(slow.sum(), (~slow).sum())
        sizes = np.median(slot_levels[:, slow], axis=1) - np.median(slot_levels[:, ~slow], axis=1)
        error = np.sqrt(repeat / noise.iterations_run / count)
        where = (sizes > _SHOWN * gap.size) & (sizes > _SHOWN_SD * error)
        if where.any():
            yield from _smaller_side(
                slow, where, np.ones(iterations), size=gap.size, net=gap.net, noise=noise
            )


def _modes_of_benchmarks(
    residuals: Floats, noise: CellNoise, price: float
) -> Iterator[DivotEffect]:
    """Yield the slow sort of one benchmark: the same copies throughout, or others each time."""
    benchmarks, iterations, slots = residuals.shape
    always = np.ones(iterations)
    values = residuals.reshape(benchmarks, iterations * slots)
    for gap in _gaps(values, noise.clock_step, price + math.log(benchmarks)):
        of_benchmark = residuals[gap.row]
        slow = np.where(np.isnan(of_benchmark), False, of_benchmark >= gap.slow_from)
        where = np.arange(benchmarks) == gap.row
        how_often = slow.mean(axis=0)
        unfirm = float(((how_often > _FIRM) & (how_often < 1 - _FIRM)).mean())
        if iterations == 1 or (iterations > 2 and unfirm < _MAX_UNFIRM):
            yield from _smaller_side(
                how_often > 0.5, where, always, size=gap.size, net=gap.net, noise=noise
            )
        elif slow.mean() <= _MINORITY and slow.any(axis=1).all():
            yield noise.make_effect(
                kind=EffectKind.MODES,
                slot_weights=slow.astype(float),
                benchmarks=where,
                iteration_weights=always,
                size=gap.size * where,
                net_evidence=gap.net,
            )


def _modes_of_cells(residuals: Floats, noise: CellNoise, price: float) -> Iterator[DivotEffect]:
    """Yield the slow sort of single cells, where there are several iterations."""
    benchmarks, iterations, slots = residuals.shape
    if iterations < 2:
        return
    cells = residuals.reshape(benchmarks * iterations, slots)
    clock_steps = np.repeat(noise.clock_step, iterations)
    for gap in _gaps(cells, clock_steps, price + math.log(len(cells))):
        slow = np.nan_to_num(cells[gap.row], nan=-np.inf) >= gap.slow_from
        where, when = noise.locate_cell(gap.row, iterations)
        yield from _smaller_side(slow, where, when, size=gap.size, net=gap.net, noise=noise)


def _smaller_side(
    slow: Bools, where: Bools, when: Floats, *, size: float, net: float, noise: CellNoise
) -> Iterator[DivotEffect]:
    """Yield the effect of the smaller side: some copies slow, or (of most) the others fast.

    No effect of a single copy, and none of copies that are fast in one iteration.
    """
    slow_is_minority = bool(slow.mean() <= _MINORITY)
    members = (slow if slow_is_minority else ~slow).astype(float)
    several = 1 < members.sum() < len(slow)
    if several and (slow_is_minority or when.sum() > 1):
        few = members.sum() <= FEW_COPIES * len(members)
        yield noise.make_effect(
            kind=EffectKind.COPIES if few else EffectKind.MODES,
            slot_weights=members,
            benchmarks=where,
            iteration_weights=when,
            size=np.where(where, size if slow_is_minority else -size, 0.0),
            net_evidence=net,
        )


def _gaps(rows: Floats, clock_steps: Floats, price: float) -> Iterator[_Gap]:
    """Yield the widest gap of each row (R, N) whose evidence exceeds `price`.

    The null is the single mode that is likelier to have such a gap, of two: a uniform one, and an
    exponential tail. The price adds ln n for n places of a gap.
    """
    complete = np.flatnonzero(~np.isnan(rows).any(axis=1))
    n = rows.shape[1]
    cuts = _possible_cuts(n)
    if n < _MODES_MIN_VALUES or not len(complete) or not len(cuts):
        return
    ordered = np.sort(rows[complete], axis=1)
    # A distance of one step of the clock is no gap.
    gaps = ordered[:, cuts] - ordered[:, cuts - 1] - clock_steps[complete, None]
    gaps = np.maximum(gaps, 0.0)
    best = gaps.argmax(axis=1)
    cut, gap = cuts[best], gaps[np.arange(len(complete)), best]
    evidence = np.minimum(
        _evidence_if_uniform(ordered, gap), _evidence_if_exponential(ordered, gap, cut)
    )
    for place in np.flatnonzero(evidence > price + math.log(n)).tolist():
        values, below = ordered[place], cut[place]
        size = float(np.median(values[below:]) - np.median(values[:below]))
        row = int(complete[place])
        if size >= _MODES_FLOOR + 2 * clock_steps[row]:
            net = float(evidence[place] - price - math.log(n))
            yield _Gap(row=row, net=net, size=size, slow_from=float(values[below]))


def _possible_cuts(n: int) -> Ints:
    """Return how many of n values may lie below a gap."""
    fewest, most = max(2, math.ceil(_MODES_MIN_SHARE * n)), int(_MODES_MAX_SHARE * n)
    return np.arange(max(1, n - most), n - fewest + 1)


def _evidence_if_uniform(ordered: Floats, gap: Floats) -> Floats:
    """Return the evidence of gaps (R,) if ordered rows (R, N) were uniform.

    P(one gap >= g) = (1 - g / w)^n for n values of range w (exact for one of n + 1 spacings of a
    uniform sample). The range leaves out the outermost values.
    """
    n = ordered.shape[1]
    edge = max(1, n // _OUTERMOST)
    w = np.maximum(ordered[:, -1 - edge // 2] - ordered[:, edge], _LEAST_RANGE)
    evidence: Floats = -n * np.log1p(-np.minimum(gap / w, _MOST_OF_RANGE))
    return evidence


def _evidence_if_exponential(ordered: Floats, gap: Floats, cut: Ints) -> Floats:
    """Return the evidence of gaps above `cut` values if the upper tail were exponential.

    The gap below the m largest is exponential of mean s / m, so P(>= g) = exp(-m * g / s) (Renyi
    1953, Acta Mathematica Hungarica 4). The scale s is the distance from the median to the gap,
    over ln(n / 2 / m), where such a tail has m of n values left. Infinite where a third or more
    lies above the gap: that is no tail.
    """
    n = ordered.shape[1]
    m = n - cut
    body = ordered[np.arange(len(ordered)), cut - 1] - ordered[:, n // 2]
    s = np.maximum(body, _LEAST_RANGE) / np.log(np.maximum(2.0, n / 2 / m))
    return np.where(m < n / 3, m * gap / s, np.inf)

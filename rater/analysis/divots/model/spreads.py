"""Copies, nodes and iterations that vary more than healthy ones, and have no lasting place; pure.

Three searches of which none names a slow part:

- `find_unsettled`: a first iteration whose copies lie much further apart than later ones;
- `find_turns`: a benchmark in which nodes take turns at being slow;
- `variance_ratios`: copies whose times vary far more than those of others, about the same mean.

Shapes: B benchmarks, I iterations, S slots, P parts, R benchmarks that ran as a whole, T standard
deviations of a prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.comparison import ALPHA
from rater.analysis.divots.model.effects import DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.noise import CellNoise
from rater.analysis.divots.model.nulls import (
    ABOUT_NORMAL,
    SpreadPrior,
    ln_normal_tail,
    log_sum_exp,
)
from rater.analysis.divots.model.patterns import price_of_search
from rater.analysis.divots.model.places import FLOOR_PART, PARTS_IN_CELL, FamilyLevels
from rater.analysis.stats.robust import Bools, Floats, Ints, mean, median_without_gaps, quantiles

# -- A first iteration whose copies lie far apart --------------------------------------------------

# Prior of how the width of a cell differs between healthy iterations, ln. Chosen (sensitivity
# simulated).
WIDTH: Final = SpreadPrior(0.15, 1.8)
_UNSETTLED_MIN_SLOTS: Final = 8
_UNSETTLED_MIN_RATIO: Final = math.log(2.5)  # of its width to that of other iterations. Chosen
_UNSETTLED_MIN_WIDTH: Final = 0.02  # ln. Chosen: as wide as two modes must lie apart
_ONE_SD: Final = 0.6827  # share of normal values within one standard deviation
# 1 / (variance of ln width * slots). 0.9 of 8 normal copies to 1.08 of many (simulated); chosen
# larger, as the widths of other iterations widen the prior.
_WIDTH_INFORMATION: Final = 1.2
_LEAST_WIDTH: Final = 1e-8  # ln^2, against the logarithm of zero


def find_unsettled(residuals: Floats, noise: CellNoise, searches: int) -> Iterator[DivotEffect]:
    """Yield first iterations whose copies lie much further apart than in later ones.

    Only the first, since a later one has no start-up.
    """
    benchmarks, iterations, slots = residuals.shape
    complete = np.flatnonzero(~np.isnan(residuals).any(axis=(1, 2)))
    if slots < _UNSETTLED_MIN_SLOTS or iterations < 2 or not len(complete):
        return
    values = residuals[complete]
    distance = np.abs(values - median_without_gaps(values, axis=2, keepdims=True))
    width = np.quantile(distance, _ONE_SD, axis=2)
    excess, evidence = _width_evidence(width, noise.clock_step[complete], slots)
    net = evidence - price_of_search(searches) - math.log(excess.size)
    is_wide = (excess[:, 0] > _UNSETTLED_MIN_RATIO) & (width[:, 0] > _UNSETTLED_MIN_WIDTH)
    for row in np.flatnonzero((net[:, 0] > 0) & is_wide).tolist():
        slot_weights = np.zeros((iterations, slots))
        slot_weights[0] = values[row, 0] * (1 - math.exp(-excess[row, 0]))
        where = np.arange(benchmarks) == complete[row]
        yield noise.make_effect(
            kind=EffectKind.UNSETTLED,
            slot_weights=slot_weights,
            benchmarks=where,
            iteration_weights=1.0 * (np.arange(iterations) == 0),
            size=1.0 * where,
            net_evidence=float(net[row, 0]),
        )


def _width_evidence(width: Floats, clock_steps: Floats, slots: int) -> tuple[Floats, Floats]:
    """Return by how much, ln, each cell is wider than its benchmark's others (R, I), and evidence.

    The width is a quantile of the distances from the median, 1 sd if normal.
    """
    iterations = width.shape[1]
    ln_width = 0.5 * np.log(width**2 + _LEAST_WIDTH + clock_steps[:, None] ** 2 / 3)
    others = (ln_width.sum(axis=1, keepdims=True) - ln_width) / (iterations - 1)
    excess = ln_width - others
    about_mean = ln_width - ln_width.mean(axis=1, keepdims=True)
    total = np.sum(about_mean**2, axis=1, keepdims=True)
    squares = np.maximum(0.0, total - excess**2 * (iterations - 1) / iterations)
    evidence = WIDTH.evidence(
        excess,
        np.full(excess.shape, 1 / (_WIDTH_INFORMATION * slots)),
        ABOUT_NORMAL,  # this variance is known from theory
        variance_ratio=iterations / (iterations - 1),
        other_squares=squares,
        other_df=np.full(excess.shape, iterations - 2.0),
    )
    return excess, evidence


# -- Nodes that take turns -------------------------------------------------------------------------

# A benchmark may have another slow node in each iteration, as gcc and soplex have on real servers:
# where its shared data came to lie decides. That is one finding, of the benchmark.
_TURNING: Final = (EffectKind.NODE, EffectKind.PACKAGE)
_SLOW: Final = 0.5  # of an iteration's largest difference: a part with so much of it is slow
_LEAST_TURNS: Final = 0.5  # of the iterations, at least: some part is slow in them
_LEAST_ITERATIONS: Final = 2
_TURNING_MIN_COPIES: Final = 3  # of each part: a mean of fewer is a single copy's
_OTHERS_WEIGHT: Final = 0.5  # of one benchmark. Chosen: benchmarks differ in how parts differ


def find_turns(levels: FamilyLevels, searches: int) -> Iterator[DivotEffect]:
    """Yield benchmarks in which nodes, or packages, take turns.

    The parts of a benchmark differ more from one iteration to the next than healthy ones do, and
    of two parts each is slow where the other is not. The evidence exceeds ln(searches * B / ALPHA).
    """
    benchmarks, iterations, _ = levels.shape
    few = levels.family.sizes.min() < _TURNING_MIN_COPIES or iterations < _LEAST_ITERATIONS
    if levels.family.kind not in _TURNING or few:
        return
    whole = np.flatnonzero(~np.isnan(levels.cell_levels).any(axis=(1, 2)))
    spread = _spread(levels, whole)
    price = math.log(searches * benchmarks / ALPHA)
    for place, benchmark in enumerate(whole.tolist()):
        slow, size = _slow_parts(levels.cell_levels[benchmark])
        net = _evidence(spread, place) - price
        if size < FLOOR_PART or net <= 0 or not _take_turns(slow):
            continue
        mask = slow @ levels.family.masks > 0
        yield levels.noise.make_effect(
            kind=levels.family.kind,
            slot_weights=mask.astype(float),
            benchmarks=np.arange(benchmarks) == benchmark,
            iteration_weights=slow.any(axis=1).astype(float),
            size=np.where(np.arange(benchmarks) == benchmark, size, 0.0),
            net_evidence=net,
        )


def _slow_parts(level: Floats) -> tuple[Bools, float]:
    """Return which parts (I, P) are slow in which iterations, and their typical size, ln.

    In each iteration the fastest half of the parts is what others are held against.
    """
    parts = level.shape[1]
    usual = np.sort(level, axis=1)[:, : (parts + 1) // 2].mean(axis=1, keepdims=True)
    above = level - usual
    largest = float(median_without_gaps(above.max(axis=1)))
    slow: Bools = above > _SLOW * max(largest, FLOOR_PART)
    size = float(median_without_gaps(above[slow])) if slow.any() else 0.0
    return slow, size


def _take_turns(slow: Bools) -> bool:
    """Tell whether some part is slow most of the time, and parts (I, P) are so without each other.

    Two parts that become slow one after the other, and stay so, take no turns.
    """
    if slow.any(axis=1).mean() < _LEAST_TURNS:
        return False
    without = slow.T.astype(float) @ (~slow).astype(float)  # iterations with p, without q
    return bool(((without > 0) & (without.T > 0)).any())


class _Spread(Struct, frozen=True, eq=False):
    """How much the parts of R benchmarks differ, for each of T tau of `PARTS_IN_CELL`."""

    chi_squared: Floats  # (R, T)
    ln_likelihood: Floats  # (R, T)
    df: int


def _spread(levels: FamilyLevels, whole: Ints) -> _Spread:
    """Return the spread of parts in each cell of benchmarks.

    With x the levels about the mean of their iteration, n copies in a part, v the variance of a
    copy by chance and tau the standard deviation between healthy parts in one iteration, the sum of
    x^2 / (tau^2 + v / n) is chi squared with (P - 1) * I degrees of freedom.
    """
    level = levels.cell_levels[whole]
    about_mean = level - level.mean(axis=2, keepdims=True)
    chance = levels.noise.repeat.variance[whole, None] / levels.family.sizes  # (R, P)
    variance = np.square(PARTS_IN_CELL.sd)[:, None, None] + chance  # (T, R, P)
    chi_squared = np.sum(np.sum(about_mean**2, axis=1) / variance, axis=2).T
    df = (levels.parts - 1) * level.shape[1]
    ln_det = df * np.log(variance).mean(axis=2).T
    return _Spread(chi_squared, -0.5 * (ln_det + chi_squared), df)


def _evidence(spread: _Spread, place: int) -> float:
    """Return the evidence, nats, that parts of a benchmark differ more than healthy ones.

    The probability of its chi squared, weighed by the prior of tau and by what the other
    benchmarks say of it: together as much as half of one benchmark.
    """
    ln_weight = PARTS_IN_CELL.ln_weight
    if len(spread.chi_squared) > 1:
        others = np.delete(spread.ln_likelihood, place, axis=0)
        ln_weight = ln_weight + _OTHERS_WEIGHT * median_without_gaps(others, axis=0)
        ln_weight = ln_weight - log_sum_exp(ln_weight, 0)
    ln_tail = _ln_chi_squared_tail(spread.chi_squared[place], spread.df)
    return max(0.0, -float(log_sum_exp(ln_weight + ln_tail, 0)))


def _ln_chi_squared_tail(chi_squared: Floats, df: float) -> Floats:
    """Return ln P(X > x) of chi squared: (X / n)^(1/3) is about normal (Wilson and Hilferty 1931).

    Of a value below the mean 0, which is too much by ln 2 at most.
    """
    spread = 2 / 9 / df
    deviate = (np.cbrt(chi_squared / df) - 1 + spread) / math.sqrt(spread)
    return np.where(deviate > 0, ln_normal_tail(deviate), 0.0)


# -- Copies that vary more than others -------------------------------------------------------------

# A CPU that is busy with something else now and then is unsteady, not slow: where it happened to be
# slow says nothing of the next run. Its mean is judged by its own variance.
# Chosen, all.
_UNSTEADY_MIN_RATIO: Final = math.log(2.5)  # of the width of a copy to that of the others
_UNSTEADY_MIN_WIDTH: Final = 0.01  # ln, of its values: less is nobody's trouble
_STEADY_MIN_SLOTS: Final = 6
_STEADY_MIN_VALUES: Final = 8  # differences of neighbours that a width is of
_UNSTEADY_MOST_SLOTS: Final = 0.2  # of all: more are no exception
_SMALLEST_WIDTH: Final = 1e-9  # ln, against the logarithm of zero


def variance_ratios(residuals: Floats, noise: CellNoise) -> Floats:
    """Return the variance of each unsteady slot over that of the others (S,); 1 of steady ones.

    The width of a slot is that of the differences between its neighbouring iterations, over the
    noise of the benchmark: a step of its level is in one of them, and lasting levels are in none.
    """
    benchmarks, iterations, slots = residuals.shape
    steady = np.ones(slots)
    values = benchmarks * (iterations - 1)
    if iterations < 3 or slots < _STEADY_MIN_SLOTS or values < _STEADY_MIN_VALUES:
        return steady
    width = _widths(residuals, noise)
    excess = np.log(width) - median_without_gaps(np.log(width))
    candidates = np.flatnonzero(excess > _UNSTEADY_MIN_RATIO)
    if not len(candidates) or len(candidates) > _UNSTEADY_MOST_SLOTS * slots:
        return steady
    others = np.delete(excess, candidates)
    others = others - others.mean()
    evidence = WIDTH.evidence(
        excess[candidates],
        np.full(len(candidates), 1 / (_WIDTH_INFORMATION * values)),
        ABOUT_NORMAL,  # this variance is known from theory
        other_squares=np.full(len(candidates), float(others @ others)),
        other_df=np.full(len(candidates), len(others) - 1.0),
    )
    typical_sd = float(median_without_gaps(np.sqrt(noise.repeat.variance)))
    found = candidates[
        (evidence > math.log(slots / ALPHA))
        & (width[candidates] * typical_sd >= _UNSTEADY_MIN_WIDTH)
    ]
    steady[found] = np.exp(2 * excess[found])
    return steady


def _widths(residuals: Floats, noise: CellNoise) -> Floats:
    """Return the width of each slot (S,), in standard deviations of its benchmarks' noise.

    Rounding to the clock's step adds step^2 / 12 to the variance of each of the two values of a
    difference: where most of them are equal, that is all there is.
    """
    variance = 2 * noise.repeat.variance[:, None, None]
    rounding = noise.clock_step[:, None, None] ** 2 / 6
    differences = np.sqrt((np.diff(residuals, axis=1) ** 2 + rounding) / variance)
    [width] = quantiles(differences.reshape(-1, residuals.shape[2]).T, _ONE_SD)
    widths: Floats = np.maximum(np.nan_to_num(width, nan=1.0), _SMALLEST_WIDTH)
    return widths


def unsteady_effects(residuals: Floats, ratios: Floats) -> list[DivotEffect]:
    """Return one effect for all unsteady slots (`variance_ratios`): what makes them wider.

    Its weights (B, I, S) are the part of their residuals beyond the width of other copies.
    """
    if not (ratios > 1).any():
        return []
    benchmarks, iterations, _ = residuals.shape
    about_level = residuals - np.nan_to_num(mean(residuals, axis=1))[:, None]
    beyond = np.nan_to_num(about_level) * (1 - 1 / np.sqrt(ratios))
    return [
        DivotEffect(
            kind=EffectKind.UNSTEADY,
            slot_weights=beyond,
            benchmarks=np.ones(benchmarks, dtype=bool),
            iteration_weights=np.ones(iterations),
            size=np.ones(benchmarks),
            net_evidence=0.0,
            scope=EffectScope.ALL,
        )
    ]

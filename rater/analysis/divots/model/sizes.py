"""The sizes of all effects together, and which of them are large enough; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.comparison import FAST_TIMES
from rater.analysis.divots.model.effects import DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.nulls import huber_mean
from rater.analysis.divots.model.patterns import SLOPE_FLOOR
from rater.analysis.divots.model.places import (
    FLOOR_COPY,
    FLOOR_COPY_IN_ALL,
    FLOOR_PART,
    FLOOR_PART_IN_ALL,
)
from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, median, median_without_gaps

_PASSES: Final = 2  # over all effects. Chosen (three simulated)
# Share of the floor. Chosen: below half of its floor an effect leaves the model. That is less than
# the share to enter (`part_effects.ENTERS`), so that no effect comes and goes.
_LEAVES: Final = 0.5
_LEAST_SD: Final = 1e-6  # ln, of values that are all equal
_OF_COPIES: Final = (EffectKind.COPY, EffectKind.COPIES, EffectKind.MODES, EffectKind.MOVING)


class Fit(Struct, frozen=True, eq=False):
    """Effects with their sizes, and the ln times (B, I, S) without them."""

    effects: list[DivotEffect]
    remaining: Floats


def cell_medians(values: Floats) -> Floats:
    """Return the median of each cell (B, I, 1), NaN where nothing ran."""
    if values.shape[2] == 1:
        return values
    has_gaps = bool(np.isnan(values).any())
    return (
        median(values)[..., None]
        if has_gaps
        else median_without_gaps(values, axis=2, keepdims=True)
    )


def refit(effects: Sequence[DivotEffect], remaining: Floats) -> Fit:
    """Estimate each size again beside all others (backfitting), and leave out what became small.

    Each effect in turn is fitted to what the others leave of the times (Friedman and Stuetzle
    1981, Journal of the American Statistical Association 76).
    """
    remaining, fitted = remaining.copy(), list(effects)
    for _ in range(_PASSES):
        for place, effect in enumerate(fitted):
            effect.add_to(remaining)
            fitted[place] = replace(effect, size=_estimate_size(effect, remaining))
            fitted[place].add_to(remaining, -1.0)
    kept = []
    for effect in fitted:
        if abs(effect.typical) >= _LEAVES * floor_of(effect):
            kept.append(effect)
        else:
            effect.add_to(remaining)
    return Fit(kept, remaining)


def floor_of(effect: DivotEffect) -> float:
    """Return the smallest size, ln, from which an effect is reported."""
    if effect.kind is EffectKind.GRADIENT:
        return SLOPE_FLOOR
    if effect.kind is EffectKind.UNSETTLED:
        return 0.0
    in_most = effect.scope is EffectScope.ALL or (
        effect.scope is EffectScope.SOME and effect.benchmarks.mean() > 0.5
    )
    in_most = in_most and len(effect.benchmarks) > 1
    if effect.kind in _OF_COPIES:
        return FLOOR_COPY_IN_ALL if in_most else FLOOR_COPY
    return FLOOR_PART_IN_ALL if in_most else FLOOR_PART


def is_reported(effect: DivotEffect, thresholds: Thresholds) -> bool:
    """Tell whether an effect is large enough to be reported; a fast one must be twice as large.

    By default an effect in all benchmarks is reported from a smaller size. A user's threshold above
    the default holds for each effect; a lower one changes nothing, since smaller effects are not in
    the model.
    """
    if effect.kind in (EffectKind.ITERATIONS, EffectKind.UNSTEADY):
        return True
    default = Thresholds()
    if effect.kind in _OF_COPIES and effect.benchmarks.sum() < 2:
        threshold, usual = thresholds.copy, default.copy
    else:
        threshold, usual = thresholds.group, default.group
    if threshold > usual:
        return float(np.max(np.abs(np.expm1(effect.size)))) >= threshold
    largest = float(np.max(np.abs(effect.size)))
    size = largest if effect.scope is EffectScope.SOME else abs(effect.typical)
    is_fast = effect.typical < 0 and effect.kind is not EffectKind.GRADIENT
    return size >= floor_of(effect) * (FAST_TIMES if is_fast else 1.0)


def _estimate_size(effect: DivotEffect, remaining: Floats) -> Floats:
    """Return the sizes (B,) of an effect from the ln times with the effect, but without others."""
    rows = np.flatnonzero(effect.benchmarks)
    iterations = np.flatnonzero(effect.iteration_weights)
    values = remaining[np.ix_(rows, iterations)]
    size = effect.size.copy()
    if effect.kind is EffectKind.UNSETTLED:
        return size
    if effect.kind is EffectKind.GRADIENT:
        size[rows] = _slopes(values, effect.slot_weights)
    elif effect.has_fixed_slots:
        by_iteration = _differences(values, effect.slot_weights > 0)
        size[rows] = _size_over_time(by_iteration, effect.iteration_weights[iterations])
    else:
        weights = effect.slot_weights
        chosen = weights[iterations] if weights.ndim == 2 else weights[rows][:, iterations]
        others = median(np.where(chosen > 0, np.nan, values))[..., None]
        differences = np.where(chosen > 0, values - others, np.nan).reshape(len(rows), -1)
        size[rows] = np.nan_to_num(median(differences))
    return size


def _slopes(values: Floats, position: Floats) -> Floats:
    """Return the least-squares slope over positions (S,) of values (R, I, S), their mean over I."""
    about_median = values - cell_medians(values)
    levels = np.nan_to_num(huber_mean(np.swapaxes(about_median, 1, 2), np.inf))
    levels -= levels.mean(axis=1, keepdims=True)
    slopes: Floats = levels @ position / (position @ position)
    return slopes


class _Differences(Struct, frozen=True, eq=False):
    """How much slots differ from the others in each iteration."""

    by_iteration: Floats  # (R, I) ln
    sd: Floats  # (R,) ln, of each by chance


def _differences(values: Floats, inside: Bools) -> _Differences:
    """Return the mean of slots (S,) less that of the others, of values (R, I, S)."""
    distance = np.abs(values - cell_medians(values)).reshape(len(values), -1)
    sd = np.maximum(MAD_TO_SD * median(distance), _LEAST_SD)[:, None]
    others = values[:, :, ~inside]
    # A single copy is held against the median of the others, which another fault does not move.
    of_others = median(others) if inside.sum() == 1 else huber_mean(others, sd)
    by_iteration = huber_mean(values[:, :, inside], sd) - of_others
    fewer = max(1, min(int(inside.sum()), int((~inside).sum())))
    return _Differences(by_iteration, sd[:, 0] / np.sqrt(fewer))


def _size_over_time(differences: _Differences, weights: Floats) -> Floats:
    """Return the size (R,) of an effect with these weights (I,): a mean, or a line through 0."""
    if (weights == weights[0]).all():
        return np.nan_to_num(huber_mean(differences.by_iteration, differences.sd))
    by_iteration = np.nan_to_num(differences.by_iteration)
    sizes: Floats = by_iteration @ weights / (weights @ weights)
    return sizes

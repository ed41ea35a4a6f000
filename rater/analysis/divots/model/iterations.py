"""Whole iterations that are slow, for all benchmarks or one, and drift over them; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.noise import TimeNoise
from rater.analysis.stats.robust import MEDIAN_ERROR, Bools, Floats, mad, mean, median

_OF_TWO = 2
ALL = -1


@dataclass(frozen=True, slots=True)
class SlowIteration:
    """One iteration; `benchmark` ALL: nearly all. `size` is ln slowdown, below 0: fast."""

    iteration: int  # index
    benchmark: int
    size: float
    agreeing: int  # benchmarks that show it, of
    of: int
    z: float
    sizes: tuple[float, ...] = ()  # of all: that of each benchmark, NaN: has no part in it


@dataclass(frozen=True, slots=True)
class Drift:
    """A steady rise, or fall, of all times over the iterations; `size` is ln of it, in all."""

    size: float
    fit: float  # R squared
    benchmark: int | None = None  # index; None: all benchmarks alike


def find_iterations(
    medians: Floats, scales: TimeNoise, copies: Floats, left_out: Bools
) -> tuple[list[SlowIteration], list[Drift]]:
    """Return slow iterations and drift of cell medians of ln time (B, I).

    `copies` (B, I) is how many copies each median stands for; cells of `left_out`
    are not judged.
    """
    b, i = medians.shape
    if i < 2:
        return [], []
    usable = np.where(left_out, np.nan, medians)
    change = _against_others(usable)
    common = _common(change)
    error = _common_error(scales, copies)
    drift = _drift(usable) if i >= limits.SEVERAL and b >= 2 else None
    if drift is not None and abs(drift.size) < limits.SURE * error.max():
        drift = None
    if drift is not None:
        line = drift.size / (i - 1) * (np.arange(i) - (i - 1) / 2)
        rest = _against_others(usable - line)
        alone, own = _of_one(usable - line, rest, _common(rest), scales, copies)
        return alone, [drift, *own]
    found = []
    for k in range(i):
        known = ~np.isnan(change[:, k])
        if b < 2 or not known.any() or not _counts(common[k], i):
            continue
        if abs(common[k]) < limits.SURE * error[k]:
            continue
        sign = np.sign(common[k])
        agreeing = int(np.sum(sign * change[known, k] > limits.SHOWS * abs(common[k])))
        if agreeing >= limits.MOST * known.sum():
            found.append(
                SlowIteration(k, ALL, float(common[k]), agreeing, int(known.sum()), math.inf)
            )
    if i == 2 and len(found) == 2:  # of two, only one can be the slower
        found = [max(found, key=lambda one: one.size)]
    alone, drifts = _of_one(usable, change, np.where(b < 2, 0.0, common), scales, copies)
    return _with_sizes(found, alone, change), drifts


def _with_sizes(
    whole: list[SlowIteration], alone: list[SlowIteration], change: Floats
) -> list[SlowIteration]:
    """Return both with their sizes: in a slow iteration each benchmark that shows it has its own.

    One that is slower than the iteration is for all is told besides; of several that is the
    iteration's range. What has no part in it is measured by itself.
    """
    told: list[SlowIteration] = []
    for it in whole:
        own, size = change[:, it.iteration], it.size
        least = min(limits.SHOWS * abs(size), limits.OF_ONE)
        shows = own * np.sign(size) > least  # unknown: no
        here = [one for one in alone if one.iteration == it.iteration]
        alone = [one for one in alone if one.iteration != it.iteration]
        more = [one for one in here if shows[one.benchmark] and one.size * size > 0]
        if len(more) > max(1, (1 - limits.MOST) * it.of):
            more = []
        sizes = np.where(shows, own, np.nan)
        sizes[[one.benchmark for one in more]] = size
        told.append(replace(it, sizes=tuple(sizes.tolist())))
        told += more
        alone += [
            one
            for one in here
            if not shows[one.benchmark] and abs(own[one.benchmark]) >= limits.OF_ONE
        ]
    return told + [replace(one, size=float(change[one.benchmark, one.iteration])) for one in alone]


def _common_error(scales: TimeNoise, copies: Floats) -> Floats:
    """Return (I,) the standard error of what all benchmarks have in common in an iteration."""
    error = MEDIAN_ERROR * scales.within_copy_sd[:, None] * np.sqrt(1.5 / np.maximum(copies, 1))
    if len(error) <= _OF_TWO:  # both show it
        return np.asarray(np.max(error, axis=0) / math.sqrt(_OF_TWO))
    return np.asarray(MEDIAN_ERROR * np.sqrt(mean(error.T**2) / len(error)))


def _counts(common: float, iterations: int) -> bool:
    """Tell whether an iteration is slow for all benchmarks; of three or more also fast."""
    return bool(
        common >= limits.OF_MANY or (iterations >= limits.SEVERAL and common <= -limits.OF_MANY)
    )


def _against_others(medians: Floats) -> Floats:
    if medians.shape[1] > _OF_TWO:
        return medians - _usual(medians)[:, None]
    return medians - medians[:, ::-1]


def _usual(medians: Floats) -> Floats:
    """Return (B,) the level of most iterations; where two halves differ, the faster half's.

    Not the middle of the others of each: that lies between two levels or at the other one, and
    beside some slow iterations the usual ones were told as fast.
    """
    ordered = np.sort(medians, axis=1)  # unknown ones last
    known = np.sum(~np.isnan(medians), axis=1)
    rows = np.arange(len(medians))
    low, high = ordered[rows, (known - 1) // 2], ordered[rows, known // 2 % medians.shape[1]]
    level: Floats = np.where(high - low > limits.OF_MANY, low, (low + high) / 2)
    return level


def _common(change: Floats) -> Floats:
    """Return (I,) what all benchmarks (B, I) show of an iteration; of two, both."""
    if len(change) != 2:
        return median(change.T)
    least = change[
        np.argmin(np.abs(np.nan_to_num(change, nan=np.inf)), axis=0), range(change.shape[1])
    ]
    return np.where(np.sign(change[0]) == -np.sign(change[1]), 0.0, least)


def _of_one(
    medians: Floats, change: Floats, common: Floats, scales: TimeNoise, copies: Floats
) -> tuple[list[SlowIteration], list[Drift]]:
    """Return iterations in which one benchmark was slower than the iteration was for all.

    And benchmarks that drift alone: their slow iterations are not told as such.
    """
    excess = change - np.nan_to_num(common)
    usual = float(np.nan_to_num(mad(excess.ravel()))) if len(excess) >= 3 else 0.0
    error = MEDIAN_ERROR * scales.within_copy_sd[:, None] * np.sqrt(1.5 / np.maximum(copies, 1))
    noise = np.hypot(max(limits.TAU, usual), error)
    z = excess / noise
    sizes = np.abs(excess) if change.shape[1] >= limits.SEVERAL else excess
    flagged = (sizes >= limits.OF_ONE + scales.steps[:, None]) & (np.abs(z) >= limits.SURE)
    drifts = []
    for b in range(len(change)) if change.shape[1] >= limits.SEVERAL else ():
        own = _drift((medians[b] - np.nan_to_num(common))[None])
        least = max(
            limits.OF_ONE + float(scales.steps[b]), limits.SURE * float(np.nanmax(noise[b]))
        )
        if own is not None and own.size >= least:
            drifts.append(replace(own, benchmark=b))
            flagged[b] = False
    found = []
    for b, k in np.argwhere(flagged):
        found.append(SlowIteration(int(k), int(b), float(excess[b, k]), 1, 1, float(z[b, k])))
    return found, drifts


def _drift(medians: Floats) -> Drift | None:
    medians = medians[~np.isnan(medians).all(axis=1)]
    if not len(medians):
        return None
    level = median((medians - np.nanmean(medians, axis=1, keepdims=True)).T)
    if np.isnan(level).any():
        return None
    n = len(level)
    x = np.arange(n) - (n - 1) / 2
    slope = float(x @ level) / float(x @ x)
    rise = slope * (n - 1)
    line = slope * x + level.mean()
    total = float(np.sum((level - level.mean()) ** 2))
    if abs(rise) < limits.OF_MANY or total == 0:
        return None
    fit = 1 - float(np.sum((level - line) ** 2)) / total
    steps = np.sign(rise) * np.diff(level)
    whole = abs(rise)
    if (
        fit < limits.SAME
        or steps.min() < -(1 - limits.SAME) * whole
        or steps.max() > limits.SAME * whole
    ):
        return None
    return Drift(rise, fit)


def unaffected_copies(own: Floats, size: float, spread: float) -> Bools:
    """Return which copies did not take part in a slow iteration.

    `own` (S,) is each copy's ln time in it over its own median of the other
    iterations; `size` how much slower the iteration was.
    """
    sign = 1.0 if size > 0 else -1.0
    stayed: Bools = sign * own < min(0.25 * abs(size), abs(size) - 4 * spread)
    return stayed


def typical_change(log_s: Floats, b: int, k: int) -> Floats:
    """Return (S,) how a copy's time in iteration k compares with its other iterations'."""
    others = median(np.delete(log_s[b], k, axis=0).T)
    change: Floats = log_s[b, k] - others
    return change

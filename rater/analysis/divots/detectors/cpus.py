"""CPUs and cores that are slow in benchmark after benchmark; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.noise_scales import Scales
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.stats.robust import (
    MEDIAN_ERROR,
    Bools,
    Floats,
    Ints,
    binomial_tail,
    mad,
    median,
    middle,
)

_SIZE = 0.015
_FLOOR = 0.003
_Z = 5.0
_FEW = 16
_AGREE = 0.7
_AGREE_SHARE = 0.4
_LEAST_UNITS = 4
_CHANCE = 1e-3
_CLEARLY = 0.7  # of its typical slowness, what a cell shows to be counted
_LEAST_BENCHMARKS = 3  # what shows in fewer is the copies' or their modes
LEAST_CELLS = 3
FEWEST = 2
MAD_OF_NORMAL = 0.6745
FEW_Z = 5.0  # times 1 + 4 / cells: a spread of few values is easily too small


@dataclass(frozen=True, slots=True, eq=False)
class SlowCpu:
    """A CPU (or core, or copy where CPUs are not known) that is slow."""

    slots: Bools
    size: float  # ln slowdown
    each: Floats  # (B,) ln slowdown by benchmark
    benchmarks: Bools  # (B,) those that show it
    z: float


def units(cpu: Ints) -> Ints:
    """Return the unit of each slot: its CPU; where no CPU is known, the slot is its own."""
    if (cpu != UNKNOWN).any():
        return np.where(cpu != UNKNOWN, cpu, -2 - np.arange(len(cpu)))
    return np.arange(len(cpu))


def find_cpus(
    residuals: Floats, of_unit: Ints, core: Ints, scales: Scales, left_out: Bools
) -> list[SlowCpu]:
    """Return CPUs that are slow in nearly all benchmarks; those of one core as one."""
    b, i, _ = residuals.shape
    names, place = np.unique(of_unit, return_inverse=True)
    cells = int(np.sum(~left_out))
    if b < _LEAST_BENCHMARKS or cells < LEAST_CELLS or len(names) < _LEAST_UNITS:
        return []
    usable = np.where(left_out[:, :, None], np.nan, residuals)
    over_time = median(np.swapaxes(usable, 1, 2))  # (B, S)
    each = (
        np.stack([median(over_time[:, place == u]) for u in range(len(names))], axis=-1)
        if len(names) < len(of_unit)
        else over_time[:, np.argsort(place, kind="stable")]
    )
    whole = median(each.T)
    spread = max(_FLOOR, float(np.nan_to_num(mad(whole))) * (1 + 4 / len(names)))
    if len(names) < _FEW:
        spread = math.hypot(spread, MEDIAN_ERROR * middle(scales.both) / math.sqrt(b * i))
    least = _SIZE + middle(scales.step)
    found = []
    for u in np.flatnonzero((whole >= least) & (whole / spread >= _Z)):
        known = ~np.isnan(each[:, u])
        shows = each[:, u] > _AGREE_SHARE * whole[u]
        if known.any() and np.sum(shows & known) >= _AGREE * known.sum():
            slots = place == u
            if _chance(usable, slots, float(whole[u]), scales) * len(names) > _CHANCE:
                continue
            found.append(
                SlowCpu(slots, float(whole[u]), each[:, u], shows, float(whole[u] / spread))
            )
    return _by_core(found, core)


def _chance(usable: Floats, slots: Bools, size: float, scales: Scales) -> float:
    """Return how often a healthy CPU would be off in as many cells as this one.

    From how often the other CPUs are, and at least from an exponential tail of the
    run's spread: in three cells two long tails make a median.
    """
    line = _CLEARLY * size
    inside, outside = usable[:, :, slots], usable[:, :, ~slots]
    cells = median(inside)
    known = int(np.sum(~np.isnan(cells)))
    off = int(np.sum(cells >= line))
    others = float(np.sum(outside >= line)) / max(1, int(np.sum(~np.isnan(outside))))
    often = max(others, 0.5 * math.exp(-line / middle(scales.right)))
    return binomial_tail(off, known, min(often, 1.0))


def find_among_few(
    residuals: Floats, of_unit: Ints, threshold: float, steps: Floats, left_out: Bools
) -> SlowCpu | None:
    """Return the slow one of two or three CPUs, from what they differ by in every cell.

    Where there are so few, a spread over CPUs is the effect itself: a CPU is slow when it
    is slower than each of the others in every cell, by `threshold` (ln) or more
    typically, and more than those differences vary over the cells.
    """
    usable = np.where(left_out[:, :, None], np.nan, residuals)
    for slots, over in _over_others(usable, of_unit):
        size, error = middle(over), few_error(over)
        least = max(threshold + middle(steps), _by_chance(over))
        if size < least or np.nanmin(over) < 0:
            continue
        each = median(over)
        return SlowCpu(slots, size, each, each > _AGREE_SHARE * size, size / error)
    return None


def find_in_pair(over: Floats, threshold: float, steps: Floats) -> list[tuple[int, float]]:
    """Return benchmarks in which two copies differ more than in the others, and by how much.

    `over` (B, I) is ln time of one over the other's; the least that counts is
    `threshold` (ln), and many times what the other benchmarks show.
    """
    each = median(over)
    found = []
    for b in np.flatnonzero(np.abs(each) >= threshold + steps):
        size = float(each[b])
        others = np.delete(each, b)
        others = others[~np.isnan(others)]
        own = over[b, ~np.isnan(over[b])]
        if len(others) < FEWEST or np.min(np.sign(size) * own) < 0.5 * abs(size):
            continue
        usual = float(np.median(np.abs(others))) / MAD_OF_NORMAL
        spread = math.hypot(_FLOOR, usual)
        if abs(size) >= FEW_Z * (1 + 4 / len(others)) * spread:
            found.append((int(b), size))
    return found


def visible_among_few(residuals: Floats, of_unit: Ints, threshold: float) -> float | None:
    """Return the smallest ln slowdown of one of two or three CPUs that is told; None: of more."""
    chances = [_by_chance(over) for _, over in _over_others(residuals, of_unit)]
    return max(threshold, *chances) if chances else None


def _over_others(residuals: Floats, of_unit: Ints) -> Iterator[tuple[Bools, Floats]]:
    """Yield each of two or three CPUs: its slots, and what it is slower by than each other one.

    That is (B, I), ln, without values in cells that one of them lacks. Nothing of more
    CPUs, or where too few cells have them all.
    """
    names, place = np.unique(of_unit, return_inverse=True)
    if not FEWEST <= len(names) < _LEAST_UNITS:
        return
    times = np.stack([median(residuals[:, :, place == u]) for u in range(len(names))], axis=-1)
    if np.sum(~np.isnan(times).any(axis=2)) < LEAST_CELLS:
        return
    for u in range(len(names)):
        yield place == u, times[..., u] - np.max(np.delete(times, u, axis=2), axis=2)


def _by_chance(change: Floats) -> float:
    """Return what a typical difference of two CPUs or copies (B, I) can be by chance."""
    return FEW_Z * (1 + 4 / int(np.sum(~np.isnan(change)))) * few_error(change)


def few_error(change: Floats) -> float:
    """Return the standard error of what two CPUs or copies differ by (B, I), over the cells."""
    change = change[~np.isnan(change)]
    return math.hypot(_FLOOR, float(np.std(change, ddof=1)) / math.sqrt(len(change)))


def _by_core(found: list[SlowCpu], core: Ints) -> list[SlowCpu]:
    """Return the CPUs of one core as one finding."""
    joined: dict[int, SlowCpu] = {}
    alone = []
    for one in found:
        cores = np.unique(core[one.slots])
        if len(cores) != 1 or cores[0] == UNKNOWN:
            alone.append(one)
            continue
        known = joined.get(int(cores[0]))
        if known is None:
            joined[int(cores[0])] = one
        else:
            each = (known.each + one.each) / 2
            joined[int(cores[0])] = SlowCpu(
                known.slots | one.slots,
                (known.size + one.size) / 2,
                each,
                known.benchmarks | one.benchmarks,
                max(known.z, one.z),
            )
    return sorted([*joined.values(), *alone], key=lambda one: -one.size)

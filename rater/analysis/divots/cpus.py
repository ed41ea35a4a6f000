"""CPUs and cores that are slow in benchmark after benchmark, or in those of one sort; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.robust import Bools, Floats, Ints, mad, median, middle
from rater.analysis.divots.scales import Scales
from rater.analysis.divots.table import UNKNOWN

_SIZE = 0.015
_FLOOR = 0.003
_Z = 5.0
_FEW = 16
_AGREE = 0.7
_AGREE_SHARE = 0.4
_LEAST_UNITS = 4
_LEAST_BENCHMARKS = 3  # what shows in fewer is the copies' or their modes
LEAST_CELLS = 3
FEWEST = 2
FEW_Z = 5.0  # times 1 + 4 / cells: a spread of few values is easily too small


@dataclass(frozen=True, slots=True, eq=False)
class SlowCpu:
    """A CPU (or core, or copy where CPUs are not known): slow in all, or in some benchmarks."""

    slots: Bools
    size: float  # ln slowdown
    each: Floats  # (B,) ln slowdown by benchmark
    benchmarks: Bools  # (B,) those that show it
    z: float
    some: bool  # in some benchmarks only


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
        spread = math.hypot(spread, 1.2533 * middle(scales.both) / math.sqrt(b * i))
    least = _SIZE + middle(scales.step)
    found = []
    for u in np.flatnonzero((whole >= least) & (whole / spread >= _Z)):
        known = ~np.isnan(each[:, u])
        shows = each[:, u] > _AGREE_SHARE * whole[u]
        if known.any() and np.sum(shows & known) >= _AGREE * known.sum():
            slots = place == u
            found.append(
                SlowCpu(slots, float(whole[u]), each[:, u], shows, float(whole[u] / spread), False)
            )
    return _by_core(found, core)


def find_among_few(
    residuals: Floats, of_unit: Ints, threshold: float, steps: Floats, left_out: Bools
) -> SlowCpu | None:
    """Return the slow one of two or three CPUs, from what they differ by in every cell.

    Where there are so few, a spread over CPUs is the effect itself: a CPU is slow when it
    is slower than each of the others in every cell, by `threshold` (ln) or more
    typically, and more than those differences vary over the cells.
    """
    names, place = np.unique(of_unit, return_inverse=True)
    usable = np.where(left_out[:, :, None], np.nan, residuals)
    if not FEWEST <= len(names) < _LEAST_UNITS:
        return None
    times = np.stack([median(usable[:, :, place == u]) for u in range(len(names))], axis=-1)
    known = ~np.isnan(times).any(axis=2)
    cells = int(known.sum())
    if cells < LEAST_CELLS:
        return None
    for u in range(len(names)):
        over = times[..., u] - np.max(np.delete(times, u, axis=2), axis=2)  # (B, I)
        size = middle(over[known])
        error = few_error(np.stack((np.zeros_like(over), over), axis=-1))
        least = threshold + middle(steps)
        if size < least or np.min(over[known]) < 0 or size < FEW_Z * (1 + 4 / cells) * error:
            continue
        each = median(np.where(known, over, np.nan))
        slots = place == u
        return SlowCpu(slots, size, each, each > _AGREE_SHARE * size, size / error, False)
    return None


def visible_among_few(residuals: Floats, of_unit: Ints, threshold: float) -> float | None:
    """Return the smallest ln slowdown of one of two or three CPUs that is told; None: of more."""
    names, place = np.unique(of_unit, return_inverse=True)
    if not FEWEST <= len(names) < _LEAST_UNITS:
        return None
    times = np.stack([median(residuals[:, :, place == u]) for u in range(len(names))], axis=-1)
    cells = int((~np.isnan(times).any(axis=2)).sum())
    if cells < LEAST_CELLS:
        return None
    errors = []
    for u in range(len(names)):
        over = times[..., u] - np.max(np.delete(times, u, axis=2), axis=2)
        errors.append(few_error(np.stack((np.zeros_like(over), over), axis=-1)))
    return max(threshold, FEW_Z * (1 + 4 / cells) * max(errors))


def few_error(times: Floats) -> float:
    """Return the standard error of what two copies (B, I, 2) differ by, over the cells."""
    change = times[..., 1] - times[..., 0]
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
                known.some,
            )
    return sorted([*joined.values(), *alone], key=lambda one: -one.size)

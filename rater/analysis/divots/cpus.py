"""CPUs and cores that are slow in benchmark after benchmark, or in those of one sort; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
_LEAST_CELLS = 3
_FEW_SIZE = 0.03  # of two or three CPUs nobody knows how much such CPUs differ by nature
_FEW_AGREE = 0.8  # of all cells


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
    if cells < _LEAST_CELLS or len(names) < _LEAST_UNITS:
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
    residuals: Floats, of_unit: Ints, core: Ints, scales: Scales, left_out: Bools
) -> list[SlowCpu]:
    """Return CPUs of two or three that are slower than the other, or the two others.

    Too few for a spread over CPUs: the yardstick is how far the difference repeats over
    benchmarks and iterations.
    """
    place = np.unique(of_unit, return_inverse=True)[1]
    usable = np.where(left_out[:, :, None], np.nan, residuals)
    found = []
    for u, apart, error in _among_few(usable, place):
        known = ~np.isnan(apart)
        each = median(apart)
        size = float(np.nan_to_num(middle(each)))
        if size < _FEW_SIZE + middle(scales.step):
            continue
        z = size / error
        shows = each > _AGREE_SHARE * size
        agree = np.mean(apart[known] > _AGREE_SHARE * size)
        if z >= _Z and agree >= _FEW_AGREE:
            found.append(SlowCpu(place == u, size, each, shows, z, False))
    return _by_core(found, core)


def visible_among_few(residuals: Floats, of_unit: Ints) -> float | None:
    """Return the smallest ln slowdown of one of two or three CPUs that can be seen."""
    errors = [
        error for _, _, error in _among_few(residuals, np.unique(of_unit, return_inverse=True)[1])
    ]
    return max(_FEW_SIZE, _Z * max(errors)) if errors else None


def _among_few(usable: Floats, place: Ints) -> Iterator[tuple[int, Floats, float]]:
    """Yield each CPU of two or three, its distance from the others (B, I) and the error of that."""
    count = int(place.max()) + 1
    if not 2 <= count < _LEAST_UNITS:
        return
    of_cpu = np.stack([median(usable[:, :, place == u]) for u in range(count)], axis=-1)
    for u in range(count):
        apart = of_cpu[:, :, u] - median(np.delete(of_cpu, u, axis=2))
        known = ~np.isnan(apart)
        if known.sum() < _LEAST_CELLS:
            continue
        several = apart.shape[1] > 1  # iterations; else the benchmarks are the yardstick
        noise = mad((apart - median(apart)[:, None] if several else apart)[known])
        error = 1.2533 * float(np.nan_to_num(noise)) / math.sqrt(known.sum())
        yield u, apart, max(_FLOOR, error)


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

"""Reference times of benchmarks, worked out from the ratios of a log, which has no others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.speccpu import keys
from rater.speccpu.results.result import SpecFile, SpecIteration

_STEP = {"cpu2000": 100, "cpu2006": 10}  # seconds


def derive_references(file: SpecFile) -> None:
    """Set the reference times of a log: the one number that all ratios of a benchmark allow.

    Ratios have two decimals. CPU2000 counts reference times in hundreds of seconds,
    CPU2006 in tens, later suites in seconds.
    """
    step = _STEP.get(file.suite or "", 1)
    factor = keys.RATE_FACTOR.get(file.suite or "", 1.0)
    groups: dict[str, list[SpecIteration]] = {}
    for one in file.iterations:
        groups.setdefault(one.benchmark, []).append(one)
    for members in groups.values():
        reference = _reference(members, step, factor)
        if reference:
            for one in members:
                one.reference_s, one.reference_derived = reference, True


def _reference(members: Sequence[SpecIteration], step: int, factor: float) -> float | None:
    """Return seconds; where ratios contradict each other, what the first one says."""
    first = None
    low, high = 0.0, math.inf
    for one in members:
        if one.ratio is None or not one.reported_s or not one.planned:
            continue
        unit = one.reported_s / (one.planned * factor)
        reach = one.ratio.half_unit * 1.01
        low = max(low, (one.ratio.value - reach) * unit)
        high = min(high, (one.ratio.value + reach) * unit)
        if first is None:
            first = one.ratio.value * unit
    if first is None or low > high:
        return first
    whole = math.ceil(low / step) * step
    return float(whole) if whole <= high < whole + step else (low + high) / 2

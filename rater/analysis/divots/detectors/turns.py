"""Benchmarks whose lgroups take turns at being slow, another one each iteration; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.noise_scales import Scales
from rater.analysis.divots.detectors.groups import LEAST, ONCE_SHARE, Level, measure
from rater.analysis.stats.robust import MEDIAN_ERROR, Floats, Ints

_Z = 6.0
_APART = 4 / 3  # of the threshold, in each of two iterations some group's effect ...
_SLOW = 2 / 3  # ... and some group's slowness


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A benchmark in which the groups of a level take turns at being slow."""

    level: Level
    benchmark: int
    names: Ints  # (G,) the groups
    once: Floats  # (I, G) ln slowdown of each group in each iteration


def find_turns(residuals: Floats, level: Level, scales: Scales, threshold: float) -> list[Turns]:
    """Return benchmarks whose groups differ, but differently in each iteration.

    Two groups at least change by five thirds of the threshold, beyond what their
    copies' noise makes of a median, and in two iterations groups lie far apart.
    """
    effects = measure(residuals, level)
    if effects is None or residuals.shape[1] < 2 or level.least < LEAST:
        return []
    found = []
    large = ONCE_SHARE * threshold
    for b in range(len(residuals)):
        once = effects.once[b]
        usable = ~np.isnan(once).any(axis=1)
        if usable.sum() < 2:
            continue
        change = np.ptp(once[usable], axis=0)
        error = MEDIAN_ERROR * math.sqrt(2) * scales.both[b] / np.sqrt(effects.sizes)
        error = np.hypot(error, scales.step[b])
        moved = (change >= large + scales.step[b]) & (change >= _Z * error)
        apart = np.max(np.abs(once[usable]), axis=1) >= _APART * threshold
        apart &= np.max(once[usable], axis=1) >= _SLOW * threshold
        if moved.sum() >= 2 and apart.sum() >= 2:
            found.append(Turns(level, b, effects.names, once))
    return found

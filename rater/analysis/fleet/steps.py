"""Steps in a series: when it changed its level and by how much; pure numpy.

A robust scan: of every place to cut, the difference of the medians before and after over its
standard error, with the spread of what is left around both medians; the greatest one counts where
Student's t says that no series of so many points shows it by chance (Bonferroni over the places),
and where it is large enough to matter. Where none does, a window that differs from what is before
and after it is looked for. Then each part in the same way. A part has three points or more: what
happened once is no step. `benchmarks/history_steps.py` counts false ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rater.analysis.stats.robust import MAD_TO_SD, MEDIAN_ERROR, Floats
from rater.analysis.stats.student_t import exceeded

FEWEST_POINTS = 6  # that show a step
_PART = 3  # points on each side of one
_LONGEST = 52  # points of a window: beyond a year, its two ends are steps of their own
_LEAST_SCALE = 0.002  # ln: no series is quieter
_ALPHA = 0.005  # false steps in a series without any


@dataclass(frozen=True, slots=True)
class LevelStep:
    """A change of level: values are ln."""

    first: int  # the first point after it
    before: float  # levels: medians of the parts
    after: float
    by_chance: float  # how often a series without steps shows so great a one

    @property
    def size(self) -> float:
        """By how much it goes up."""
        return self.after - self.before


def steps_in(
    values: Sequence[float] | Floats, least: float, alpha: float = _ALPHA
) -> tuple[LevelStep, ...]:
    """Return the steps of `least` or more in a series without gaps, in their order."""
    cuts = sorted(_cuts(np.asarray(values, dtype=float), 0, least, alpha))
    edges = [0, *(first for first, _ in cuts), len(values)]
    levels = [float(np.median(values[a:b])) for a, b in pairwise(edges)]
    return tuple(
        LevelStep(first, levels[place], levels[place + 1], chance)
        for place, (first, chance) in enumerate(cuts)
    )


def _cuts(values: Floats, offset: int, least: float, alpha: float) -> list[tuple[int, float]]:
    """Return where a part is to be cut, and by what chance."""
    count = len(values)
    if count < FEWEST_POINTS:
        return []
    ends = range(_PART, count - _PART + 1)
    cuts, chance = _best(values, [(end, count) for end in ends], least)
    if chance > alpha / 2:  # up and down again is no single step
        windows = [
            (first, last)
            for first in ends
            for last in range(first + _PART, min(count - _PART, first + _LONGEST) + 1)
        ]
        cuts, chance = _best(values, windows, least)
    if chance > alpha / 2:
        return []
    found = []
    for first, last in pairwise([0, *cuts, count]):
        found += [(offset + first, chance)] * (first > 0)
        found += _cuts(values[first:last], offset + first, least, alpha)
    return found


def _best(
    values: Floats, windows: Sequence[tuple[int, int]], least: float
) -> tuple[list[int], float]:
    """Return the ends of the window that differs most from the rest, and by what chance."""
    count = len(values)
    best, cuts = 0.0, []
    for first, last in windows:
        t, size = _differ(values[first:last], np.concatenate([values[:first], values[last:]]))
        if t > best and abs(size) >= least:
            best, cuts = t, [first, last]
    chance = min(1.0, len(windows) * exceeded(best, count - 2)) if best else 1.0
    return [cut for cut in cuts if cut < count], chance


def _differ(inside: Floats, outside: Floats) -> tuple[float, float]:
    """Return t and size of the difference of two parts' medians."""
    size = float(np.median(inside) - np.median(outside))
    rest = np.abs(np.concatenate([inside - np.median(inside), outside - np.median(outside)]))
    # Two medians were taken out, which few points follow: the spread is wider than it looks.
    count = len(rest)
    robust = MAD_TO_SD * float(np.median(rest)) * math.sqrt(count / (count - 3))
    clipped = np.minimum(rest, 3 * max(robust, 1e-9))
    scale = max(robust, math.sqrt(float(np.sum(clipped**2)) / (count - 2)), _LEAST_SCALE)
    error = MEDIAN_ERROR * scale * math.sqrt(1 / len(inside) + 1 / len(outside))
    return abs(size) / error, size

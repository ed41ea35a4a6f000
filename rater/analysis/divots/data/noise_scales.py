"""How much times of one benchmark vary for no reason, on the slow and on the fast side; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.table import Table
from rater.analysis.stats.robust import Floats, Ints, median, quantiles, untied

_FLOOR = 3e-4  # a repeat of a benchmark never agrees better
_FEW = 24
_MOSTLY = 0.5
OWN_WEIGHT = 12  # so many values weigh as much as all the other benchmarks
_COARSEST_S = 1.0
_COARSE = 0.45  # of a clock's step, the floor of a spread


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Spreads as standard deviations of ln time, by benchmark."""

    left: Floats
    right: Floats
    step: Floats  # smallest step of the clock over the median time; 0: fine

    @property
    def both(self) -> Floats:
        """The larger of the two sides."""
        return np.maximum(self.left, self.right)


def group_centred(values: Floats, groups: Ints) -> Floats:
    """Return values with the median of each group of slots taken out of each cell."""
    centred = values.copy()
    for group in np.unique(groups):
        here = groups == group
        centred[:, :, here] -= median(values[:, :, here])[..., None]
    return centred


def clock_steps(table: Table) -> Floats:
    """Return the step of a coarse clock over the median time, by benchmark; 0 for a fine one.

    A clock is called coarse where less than half of the times are distinct.
    """
    steps = np.zeros(table.shape[0])
    for b in range(table.shape[0]):
        seconds = np.exp(table.log_s[b][~np.isnan(table.log_s[b])])
        # exp(ln t) is not t to the last digit: nanoseconds are what was recorded.
        distinct = np.unique(np.round(seconds, 9))
        if len(distinct) > 1 and 2 * len(distinct) < len(seconds):
            gaps = np.diff(distinct)
            # No clock is coarser than a second: two times ten seconds apart are two times.
            step = float(gaps[gaps > 1e-8].min(initial=_COARSEST_S))
            steps[b] = step / float(np.median(seconds))
    return steps


def scales_of(residuals: Floats, groups: Ints, steps: Floats) -> Scales:
    """Return the spreads of residuals (B, I, S), group medians out, shrunk over benchmarks.

    Each side from its own quantiles; with few values the largest is left out, else
    an outlier sets its own yardstick.
    """
    centred = group_centred(residuals, groups)
    names, sizes = np.unique(groups, return_counts=True)
    # The middle of two takes half of what they differ by with it.
    in_pairs = np.isin(groups, names[sizes == 2])
    centred[:, :, in_pairs] *= math.sqrt(2)
    values = centred.reshape(len(residuals), -1)
    for b in np.flatnonzero(steps > 0):
        # A third of the copies a step later is no spread of a step.
        known = ~np.isnan(values[b])
        values[b, known] = untied(values[b, known], float(steps[b]))
    count = np.sum(~np.isnan(values), axis=1)
    few = (count >= 4) & (count <= _FEW)
    if few.any():
        values = values.copy()
        for b in np.flatnonzero(few):
            values[b, np.nanargmax(np.abs(values[b]))] = np.nan
    q16, q25, q50, q75, q84, q90 = quantiles(values, 0.16, 0.25, 0.5, 0.75, 0.84, 0.9)
    left = np.maximum(q50 - q16, (q50 - q25) / 0.6745)
    right = np.maximum(np.maximum(q84 - q50, (q75 - q50) / 0.6745), (q90 - q50) / 1.2816)
    if in_pairs.mean() > _MOSTLY:
        # One slow copy of eight is a quarter of what pairs differ by.
        left, right = (q50 - q25) / 0.6745, (q75 - q50) / 0.6745
    right = np.where(few, right * (1 + 2.5 / np.maximum(count, 1)), right)
    left = np.where(few, left * (1 + 2.5 / np.maximum(count, 1)), left)
    floor = least_spread(steps)
    return Scales(_shrunk(left, count, floor), _shrunk(right, count, floor), steps)


def least_spread(steps: Floats) -> Floats:
    """Return the spread below which nothing repeats, by the steps of the clock (B,)."""
    return np.maximum(_FLOOR, _COARSE * steps)


def _shrunk(spread: Floats, count: Floats, floor: Floats) -> Floats:
    own = np.log(np.maximum(np.nan_to_num(spread), floor))
    weight = count / (count + OWN_WEIGHT)
    return np.maximum(np.exp(weight * own + (1 - weight) * float(np.median(own))), floor)

"""Runs of consecutive CPUs (or copies) that differ from the others, found in the times; pure.

Groups of copies are not always what the machine's description calls a group: eight
that share a memory node, four on a cluster of cores, one half of every lgroup. What
repeats from iteration to iteration is cut where it changes, over all benchmarks at
once: least squares with a penalty for each cut, the exact optimum by dynamic
programming (Jackson et al. 2005, "optimal partitioning").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rater.analysis.divots.data.noise_scales import least_spread
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.divots.detectors.groups import Level
from rater.analysis.stats.robust import MAD_TO_SD, Floats, Ints, median

_LEAST = 3  # slots of a run; fewer are single copies
_LEAST_SLOTS = 8
_MOST_SLOTS = 4096
_MOST_Z = 20.0
_PENALTY = 1.5
_COVERED = 0.85
_ALONE = 2.0  # cut where the times change, a run must show more without a second iteration
_EQUALLY_LONG = 0.7
_APART = 4.0  # spreads inside of the sorts; evenly spread numbers cut in two have 3.5
_SCARCE = 0.3  # slots beyond this share missing: the benchmark has no profile


def profiles(residuals: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return (B, S) what repeats over the iterations, single slots smoothed, and its noise (B,).

    The noise is that of neighbours: a pattern of runs leaves most neighbours alike.
    """
    whole = median(np.swapaxes(residuals, 1, 2))
    filled = np.where(np.isnan(whole), median(whole)[:, None], whole)
    noise = MAD_TO_SD * median(np.abs(np.diff(filled, axis=1))) / math.sqrt(2)
    padded = np.concatenate((filled[:, :1], filled, filled[:, -1:]), axis=1)
    smooth = median(np.stack((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), axis=-1))
    return smooth, np.maximum(noise, least_spread(steps))


def cut(z: Floats) -> Ints:
    """Return the run (from 0) of each slot of standardised profiles (channels, S)."""
    channels, slots = z.shape
    reach = 3 * math.log(max(slots, 2)) + math.log(max(channels, 1))
    penalty = _PENALTY * (channels + 2 * math.sqrt(channels * reach) + 2 * reach)
    z = np.clip(z, -_MOST_Z, _MOST_Z)
    zero = np.zeros((channels, 1))
    sums = np.concatenate((zero, np.cumsum(z, axis=1)), axis=1)
    squares = np.concatenate(([0.0], np.cumsum(np.sum(z * z, axis=0))))
    best = np.full(slots + 1, np.inf)
    best[0] = -penalty
    came = np.zeros(slots + 1, dtype=np.int64)
    for end in range(_LEAST, slots + 1):
        begin = np.arange(0, end - _LEAST + 1)
        between = sums[:, end : end + 1] - sums[:, begin]
        cost = squares[end] - squares[begin] - np.sum(between * between, axis=0) / (end - begin)
        total = best[begin] + cost + penalty
        at = int(np.argmin(total))
        best[end], came[end] = total[at], begin[at]
    of_run = np.zeros(slots, dtype=np.int64)
    end, number = slots, 0
    while end > 0:
        of_run[came[end] : end] = number
        end, number = int(came[end]), number + 1
    return number - 1 - of_run


def run_levels(residuals: Floats, steps: Floats, known: Sequence[Level]) -> list[Level]:
    """Return the runs that the times show, as one way to divide the slots; none for no cuts."""
    slots = residuals.shape[2]
    if not _LEAST_SLOTS <= slots <= _MOST_SLOTS:
        return []
    enough = np.mean(np.isnan(residuals).all(axis=1), axis=1) <= _SCARCE
    if not enough.any():
        return []
    smooth, noise = profiles(residuals[enough], steps[enough])
    of_run = _at_borders(cut(smooth / noise[:, None]), known)
    count = int(of_run.max()) + 1
    if count < 2 or count > slots // 4:
        return []
    if any(_nested(of_run, level.groups) for level in known):
        return []
    return [Level("run", of_run, _LEAST, weighted=True, covered=_COVERED, alone=_ALONE)]


def _at_borders(of_run: Ints, known: Sequence[Level]) -> Ints:
    """Return runs with what ends beside a border of the machine ending there.

    Noise moves a cut by a slot; parts of a machine are the likelier ones.
    """
    borders: set[int] = set()
    for level in known:
        borders.update((1 + np.flatnonzero(np.diff(level.groups))).tolist())
    cuts = (1 + np.flatnonzero(np.diff(of_run))).tolist()
    moved = {
        next((at for at in (place, place - 1, place + 1) if at in borders), place) for place in cuts
    }
    starts = np.zeros(len(of_run), dtype=np.int64)
    starts[sorted(moved)] = 1
    return np.cumsum(starts)


def _nested(of_run: Ints, groups: Ints) -> bool:
    """Tell whether the runs are exactly the groups of a level, which has been judged."""
    pairs = len(np.unique(np.stack((of_run, groups)), axis=1).T)
    return pairs == len(np.unique(of_run)) == len(np.unique(groups[groups != UNKNOWN]))


def two_classes(residuals: Floats, of_run: Ints) -> Ints | None:
    """Return the slower (1) and the faster (0) of runs that are of two sorts; None: of one.

    The typical profile over the benchmarks decides. Each sort has two runs or more,
    so that it is a pattern and not one odd run; most runs are equally long, as parts of
    a machine are, and the sorts lie apart: cut in two, numbers of one sort differ too.
    """
    whole = median(median(np.swapaxes(residuals, 1, 2)).T)
    slots = len(whole)
    count = int(of_run.max()) + 1
    if count < 4:
        return None
    sizes = np.bincount(of_run)
    if np.mean(sizes == np.median(sizes)) < _EQUALLY_LONG:
        return None
    levels = np.array([float(median(whole[of_run == k])) for k in range(count)])
    order = np.argsort(levels, kind="stable")
    weights = sizes[order].astype(np.float64)
    ordered = levels[order]
    best, at = math.inf, 0
    for k in range(2, count - 1):
        inside = 0.0
        for part in (slice(0, k), slice(k, count)):
            mean = float(np.average(ordered[part], weights=weights[part]))
            inside += float(np.sum(weights[part] * (ordered[part] - mean) ** 2))
        if inside < best:
            best, at = inside, k
    gap = float(np.average(ordered[at:], weights=weights[at:]))
    gap -= float(np.average(ordered[:at], weights=weights[:at]))
    if not at or gap < _APART * math.sqrt(best / slots):
        return None
    slow = np.zeros(count, dtype=np.int64)
    slow[order[at:]] = 1
    return slow[of_run]

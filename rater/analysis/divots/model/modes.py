"""Benchmarks whose copies fall into two groups, fast and slow; pure.

The statistic is that of Hartigan's dip without the joining condition: sqrt(n) x min
over the mode of the larger of two half distances, the points up to the mode from their greatest
convex minorant, those from it on from their least concave majorant. Under a uniform
distribution, the worst case of one mode, it exceeds .455 / .50 / .53 / .60 with at
most 5 / 2 / 1 / .1 %, whatever n is (measured: 5 % .44 for 8 values to .445 for 1000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.divots.model import limits
from rater.analysis.stats.robust import Bools, Floats, Ints, untied


@dataclass(frozen=True, slots=True, eq=False)
class TwoModes:
    """A benchmark in two modes; `slow` marks the copies of the slow one."""

    benchmark: int
    cells: Bools  # (I,)
    slow: Bools  # (I, S)
    size: float  # ln of the distance between the modes
    share: float  # of copies in the slow mode
    dip: float
    same: bool  # the same copies in every iteration


@dataclass(frozen=True, slots=True)
class _Cut:
    at: float
    gap: float
    sd: float
    slow: float
    few: bool  # slow ones apart from all others, fewer than a side: single copies


def find_modes(residuals: Floats, groups: Ints, steps: Floats, *, fixed: bool) -> list[TwoModes]:
    """Return the benchmarks in two modes that do not follow the groups of slots."""
    found = []
    for b in range(len(residuals)):
        one = _of_benchmark(residuals[b], groups, float(steps[b]), b, fixed=fixed)
        if one is not None:
            found.append(one)
        elif len(residuals[b]) > 1:
            found += _of_iterations(residuals[b], groups, float(steps[b]), b)
    return found


def _of_iterations(values: Floats, groups: Ints, step: float, b: int) -> list[TwoModes]:
    """Return single iterations in two modes that lie far apart, the other ones in one mode."""
    found = []
    for k, row in enumerate(values):
        known = row[~np.isnan(row)]
        if len(known) < limits.SEVERAL * limits.MANY:
            continue
        cut = _best_cut(known)
        apart = cut.gap >= max(limits.MODES_SD * cut.sd, limits.FAR + step)
        # A mode smaller than the least side is filled up from the other: those are single copies.
        if not apart or cut.few or cut.slow > limits.BIGGEST:
            continue
        found_dip = dip(untied(known, step))
        if found_dip < limits.DIP_ONCE:
            continue
        slow = np.zeros(values.shape, dtype=bool)
        slow[k] = row > cut.at
        bare = _bare(b, cut.gap, cut.slow, found_dip)
        one = _unless_groups(values, slow, groups, [k], found=bare)
        if one is not None:
            found.append(one)
    return found


def follows_groups(slow: Bools, known: Bools, groups: Ints) -> bool:
    """Tell whether nearly all copies are on the side that their group is on.

    `slow` and `known` are (I, S). With one group for all it is no.
    """
    names = [g for g in np.unique(groups) if g != UNKNOWN]
    if len(names) < 2:
        return False
    sided = whole = 0
    sides = set()
    for g in names:
        here = (groups == g)[None, :] & known
        for row, of in zip(slow, here, strict=True):
            n, k = int(of.sum()), int((row & of).sum())
            if n:
                sided += max(k, n - k)
                whole += n
                sides.add(2 * k > n)
    return whole > 0 and sided >= limits.SAME * whole and len(sides) == 2


def _of_benchmark(
    values: Floats, groups: Ints, step: float, b: int, *, fixed: bool
) -> TwoModes | None:
    rows = [k for k in range(len(values)) if np.sum(~np.isnan(values[k])) >= limits.MANY]
    if not rows:
        return None
    cuts = {k: _best_cut(values[k][~np.isnan(values[k])]) for k in rows}
    gap = float(np.median([c.gap for c in cuts.values()]))
    sd = float(np.median([c.sd for c in cuts.values()]))
    share = float(np.median([c.slow for c in cuts.values()]))
    if np.mean([c.few for c in cuts.values()]) > limits.HALF:
        return None
    if gap < limits.OF_ONE + step or gap < limits.MODES_SD * sd or share > 1 - limits.SIDE:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    dips = [dip(untied(values[k][~np.isnan(values[k])], step)) for k in rows]
    # One iteration in two modes is no benchmark in two modes: most show it.
    usual = sorted(dips)[(len(dips) - 1) // 2]
    if usual < limits.DIPS[min(len(rows), 3) - 1]:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    slow = np.zeros(values.shape, dtype=bool)
    for k in rows:
        slow[k] = values[k] > cuts[k].at
    return _unless_groups(values, slow, groups, rows, found=_bare(b, gap, share, usual))


def _of_means(
    values: Floats, groups: Ints, step: float, rows: list[int], b: int
) -> TwoModes | None:
    """Judge the copies' means over the iterations: a mode that each copy keeps."""
    means = np.mean(values[rows], axis=0)  # NaN where one is missing
    known = ~np.isnan(means)
    if known.sum() < limits.MANY:
        return None
    cut = _best_cut(means[known])
    apart = cut.gap >= max(limits.OF_ONE + step, limits.MODES_SD * cut.sd)
    if not apart or cut.few or cut.slow > 1 - limits.SIDE:
        return None
    found = dip(untied(means[known], step))
    if found < limits.DIPS[0] or _stays(values[rows], means, cut) < limits.SAME:
        return None
    slow = np.zeros(values.shape, dtype=bool)
    slow[rows] = (means > cut.at)[None, :]
    return _unless_groups(values, slow, groups, rows, found=_bare(b, cut.gap, cut.slow, found))


def _stays(values: Floats, means: Floats, cut: _Cut) -> float:
    """Return how often a copy is on the side of the cut in an iteration that its mean is on."""
    known = ~np.isnan(values) & ~np.isnan(means)
    side = (values > cut.at) == (means > cut.at)
    return float(np.mean(side[known])) if known.any() else 0.0


def _bare(b: int, gap: float, share: float, statistic: float) -> TwoModes:
    nothing = np.zeros(0, dtype=bool)
    return TwoModes(b, nothing, nothing[None], gap, share, statistic, same=False)


def _unless_groups(
    values: Floats, slow: Bools, groups: Ints, rows: list[int], *, found: TwoModes
) -> TwoModes | None:
    """Return what was found with its cells and copies; None where the modes are groups."""
    known = ~np.isnan(values[rows])
    if follows_groups(slow[rows], known, groups):
        return None
    cells = np.zeros(len(values), dtype=bool)
    cells[rows] = True
    often = np.sum(slow[rows] & known, axis=0) / np.maximum(1, np.sum(known, axis=0))
    same = len(rows) > 1 and float(np.mean((often < 0.01) | (often > 0.99))) >= 0.8
    return replace(found, cells=cells, slow=slow & ~np.isnan(values), same=same)


def _best_cut(values: Floats) -> _Cut:
    """Return the cut in two with the least spread inside, each side at least 18 %.

    `few` tells that fewer stand apart on the slow side: the cut has filled them up with
    others, which are not fast ones of a slow mode.
    """
    x = np.sort(values)
    n = len(x)
    low, high = max(1, math.ceil(limits.SIDE * n)), n - max(1, math.ceil(limits.SIDE * n))
    sums, squares = np.cumsum(x), np.cumsum(x * x)
    k = np.arange(low, high + 1)
    left = squares[k - 1] - sums[k - 1] ** 2 / k
    right = (squares[-1] - squares[k - 1]) - (sums[-1] - sums[k - 1]) ** 2 / (n - k)
    inside = np.maximum(left + right, 0.0)
    best = int(np.argmin(inside))
    cut = int(k[best])
    fast, slow = float(np.median(x[:cut])), float(np.median(x[cut:]))
    gap = slow - fast
    sd = math.sqrt(float(inside[best]) / max(1, n - 2))
    tail = x[n - low :]
    widest = int(np.argmax(np.diff(tail))) if low > 1 else 0
    beyond = float(tail[widest + 1] - tail[widest]) if low > 1 else 0.0
    few = (
        beyond >= limits.HALF * max(gap, float(np.median(tail[widest + 1 :])) - fast)
        if low > 1
        else False
    )
    return _Cut(
        at=float(x[cut - 1] + x[cut]) / 2,
        gap=gap,
        sd=sd,
        slow=1 - cut / n,
        few=few,
    )


def dip(values: Floats) -> float:
    """Return sqrt(n) x the statistic of the module's head."""
    x = np.sort(values)
    n = len(x)
    low, high, best = 0, n - 1, math.inf
    # The left distance grows with the mode, the right one falls: they meet where the larger is
    # least. Both hold the mode itself, else a gap between two groups would be in neither.
    while low <= high:
        mode = (low + high) // 2
        left, right = _from_minorant(x[: mode + 1], n), _from_minorant(-x[mode:][::-1], n)
        best = min(best, max(left, right))
        if left < right:
            low = mode + 1
        else:
            high = mode - 1
    return math.sqrt(n) * best


def _from_minorant(x: Floats, n: int) -> float:
    """Return half the largest distance of a distribution (steps of 1/n) from its minorant."""
    points, counts = np.unique(x, return_counts=True)
    above = np.cumsum(counts)
    xs: list[float] = points.tolist()
    ys: list[int] = (above - counts).tolist()
    hull: list[int] = []
    for j in range(len(xs)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (ys[b] - ys[a]) * (xs[j] - xs[a]) < (ys[j] - ys[a]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(j)
    line = np.interp(points, points[hull], np.array(ys, dtype=np.float64)[hull])
    return float(np.max(above - line)) / n / 2

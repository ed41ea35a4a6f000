"""Benchmarks whose copies fall into two groups, fast and slow; pure.

The statistic is that of Hartigan's dip without the joining condition: sqrt(n) x min
over m of the larger of two half distances, the first m points from their greatest
convex minorant, the others from their least concave majorant. Under a uniform
distribution, the worst case of one mode, it exceeds .455 / .50 / .53 / .60 with at
most 5 / 2 / 1 / .1 %, whatever n is (measured: 5 % .42 for 64 values, .45 for 1000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.stats.robust import Bools, Floats, Ints, untied

_LEAST_COPIES = 8
_LEAST_ONCE = 24  # without other iterations to bear it out
_ONCE_SD = 6.0
_MOST_SLOW_ONCE = 0.6  # of more, the iteration is slow, or a few are fast
_SIDE = 0.18
_MOST_SLOW = 0.78
_GAP = 0.02
_GAP_SD = 2.2
_DIP_BY_ITERATIONS = (0.53, 0.48, 0.46)
_DIP_CLEAR = 0.38
_CLEAR_SD = 3.4
_FOLLOWS = 0.88
_ALWAYS_SD = 4.5  # modes so far apart that copies never change sides need no dip
_ALWAYS_GAP = 0.03
_LEAST_SIDE = 4
_MOSTLY_FEW = 0.5  # of the iterations
_JUMP = 0.5  # of the gap, between the modes of a single iteration
_MOSTLY = 0.9  # of the iterations, a copy is on its own side where copies keep their mode


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
    middle: float  # share of values in the middle of the gap
    jump: float  # from the last of the fast side to the first of the slow one
    side: int  # values on the smaller side
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
        if len(known) < _LEAST_ONCE:
            continue
        cut = _best_cut(known)
        apart = cut.gap >= _ONCE_SD * cut.sd and cut.gap >= _ALWAYS_GAP + step
        # A mode smaller than the least side is filled up from the other: those are single copies.
        if not apart or cut.few or cut.slow > _MOST_SLOW_ONCE or cut.jump < _JUMP * cut.gap:
            continue
        slow = np.zeros(values.shape, dtype=bool)
        slow[k] = row > cut.at
        # So wide an empty gap needs no dip.
        bare = _bare(b, cut.gap, cut.slow, dip(untied(known, step)))
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
    return whole > 0 and sided >= _FOLLOWS * whole and len(sides) == 2


def _of_benchmark(
    values: Floats, groups: Ints, step: float, b: int, *, fixed: bool
) -> TwoModes | None:
    rows = [k for k in range(len(values)) if np.sum(~np.isnan(values[k])) >= _LEAST_COPIES]
    if not rows:
        return None
    cuts = {k: _best_cut(values[k][~np.isnan(values[k])]) for k in rows}
    gap = float(np.median([c.gap for c in cuts.values()]))
    sd = float(np.median([c.sd for c in cuts.values()]))
    share = float(np.median([c.slow for c in cuts.values()]))
    if np.mean([c.few for c in cuts.values()]) > _MOSTLY_FEW:
        return None
    if gap < _GAP + step or gap < _GAP_SD * sd or share > _MOST_SLOW:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    dips = [dip(untied(values[k][~np.isnan(values[k])], step)) for k in rows]
    mean = float(np.mean(dips))
    n = float(np.median([np.sum(~np.isnan(values[k])) for k in rows]))
    between = float(np.median([c.middle for c in cuts.values()]))
    clear = mean >= _DIP_CLEAR and gap >= _CLEAR_SD * sd
    clear = clear and between <= 0.28 - 3.2 * math.sqrt(0.2016 / n)
    # Of few copies the dip is small, however far apart two modes are with nothing between.
    clear |= gap >= max(_ONCE_SD * sd, _ALWAYS_GAP + step) and all(
        c.jump >= _JUMP * c.gap and c.side >= _LEAST_SIDE for c in cuts.values()
    )
    if mean < _DIP_BY_ITERATIONS[min(len(rows), 3) - 1] and not clear:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    slow = np.zeros(values.shape, dtype=bool)
    for k in rows:
        slow[k] = values[k] > cuts[k].at
    return _unless_groups(values, slow, groups, rows, found=_bare(b, gap, share, mean))


def _of_means(
    values: Floats, groups: Ints, step: float, rows: list[int], b: int
) -> TwoModes | None:
    """Judge the copies' means over the iterations: a mode that each copy keeps."""
    means = np.mean(values[rows], axis=0)  # NaN where one is missing
    known = ~np.isnan(means)
    if known.sum() < _LEAST_COPIES:
        return None
    cut = _best_cut(means[known])
    apart = cut.gap >= max(_GAP + step, _GAP_SD * cut.sd)
    if not apart or cut.few or cut.slow > _MOST_SLOW:
        return None
    found = dip(untied(means[known], step))
    apart = cut.gap >= _ALWAYS_SD * cut.sd and cut.gap >= _ALWAYS_GAP
    stays = _stays(values[rows], means, cut)
    if stays < _MOSTLY or (found < _DIP_BY_ITERATIONS[0] and not (apart and stays == 1)):
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
    low, high = max(1, math.ceil(_SIDE * n)), n - max(1, math.ceil(_SIDE * n))
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
        beyond >= _JUMP * max(gap, float(np.median(tail[widest + 1 :])) - fast)
        if low > 1
        else False
    )
    between = (x > fast + 0.3 * gap) & (x < fast + 0.7 * gap)
    return _Cut(
        at=float(x[cut - 1] + x[cut]) / 2,
        gap=gap,
        sd=sd,
        slow=1 - cut / n,
        middle=float(np.mean(between)),
        jump=float(x[cut] - x[cut - 1]),
        side=min(cut, n - cut),
        few=few,
    )


def dip(values: Floats) -> float:
    """Return sqrt(n) x the statistic of the module's head."""
    x = np.sort(values)
    n = len(x)
    low, high = 1, n - 1
    best = min(_larger(x, low), _larger(x, high))
    # The left distance grows with m, the right one falls: they meet where the larger is least.
    while low < high:
        m = (low + high) // 2
        left, right = _from_minorant(x[:m], n), _from_minorant(-x[m:][::-1], n)
        best = min(best, max(left, right))
        if left < right:
            low = m + 1
        else:
            high = m
    return math.sqrt(n) * best


def _larger(x: Floats, m: int) -> float:
    return max(_from_minorant(x[:m], len(x)), _from_minorant(-x[m:][::-1], len(x)))


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

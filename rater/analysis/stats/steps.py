"""Steps in a series of values: where its level changes, and never by noise alone; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rater.analysis.stats.estimate import two_sided_p
from rater.analysis.stats.robust import MAD_TO_SD, MEDIAN_ERROR, Floats

# A robust scan: of every place to cut, the difference of the medians before and after over its
# standard error, with the spread of what is left around both medians; the greatest one counts where
# Student's t says that no series of so many points shows it by chance (Bonferroni over the places),
# and where it is large enough to matter. Where none does, a window that differs from what is before
# and after it is looked for. Then each part in the same way. A part has three points or more: what
# happened once is no step.
#
# Times may have two modes, between which runs change at random. Medians of parts then differ by a
# whole mode, and half of the points lie at the median of theirs. Hence the spread counts four
# fifths of the points, and ranks have to tell the parts apart as well (Wilcoxon, Mann, Whitney).

FEWEST_POINTS = 6  # that show a step
_PART = 3  # points on each side of one
_LONGEST = 52  # points of a window: beyond a year, its two ends are steps of their own
QUIETEST_TIMES = 0.002  # ln, standard deviation: no series of times is quieter
ALPHA = 0.005  # false steps in a series without any
_MOST_APART = 0.8  # quantile of the distances from the medians, and that of a normal distribution
_MOST_APART_SD = 1.2816
_SAME_FIT = 6.0  # twice the logarithm of how much likelier a place is than another: 20 times
_MOST_EXACT = 12  # points of the smaller part, up to which ranks have their exact distribution


class LevelStep(Struct, frozen=True, kw_only=True):
    """A change of level: values are ln."""

    first: int  # the first point after it
    before: float  # levels: medians of the parts
    after: float
    by_chance: float  # how often a series without steps shows so great a one
    earliest: int  # what else may be the first point after it, as noise hides where it is
    latest: int

    @property
    def size(self) -> float:
        """By how much it goes up."""
        return self.after - self.before


def find_steps(
    values: Sequence[float] | Floats,
    least: float,
    alpha: float = ALPHA,
    quietest: float = QUIETEST_TIMES,
) -> tuple[LevelStep, ...]:
    """Return the steps of `least` or more in a series without gaps, in their order.

    `quietest`: the standard deviation that no series of its kind is below, however alike the few
    values of this one are.
    """
    if len(values) < FEWEST_POINTS:
        return ()
    scan = _Scan(least=least, alpha=alpha, quietest=quietest)
    cuts = sorted(scan.cuts(np.asarray(values, dtype=float), 0))
    edges = [0, *(first for first, _ in cuts), len(values)]
    levels = [float(np.median(values[begin:end])) for begin, end in pairwise(edges)]
    return tuple(
        scan.step(values, edges[place : place + 3], levels[place : place + 2], chance)
        for place, (_, chance) in enumerate(cuts)
    )


class _Scan(Struct, frozen=True, kw_only=True):
    """How small a step is found, and how sure it has to be."""

    least: float
    alpha: float
    quietest: float

    def cuts(self, values: Floats, offset: int) -> list[tuple[int, float]]:
        """Return where a part is to be cut, and by what chance."""
        count = len(values)
        if count < FEWEST_POINTS:
            return []
        ends = range(_PART, count - _PART + 1)
        cuts, chance = self._best(values, [(end, count) for end in ends])
        if chance > self.alpha / 2:  # up and down again is no single step
            windows = [
                (first, last)
                for first in ends
                for last in range(first + _PART, min(count - _PART, first + _LONGEST) + 1)
            ]
            cuts, chance = self._best(values, windows)
        if chance > self.alpha / 2:
            return []
        places = []
        for first, last in pairwise([0, *cuts, count]):
            places += [(offset + first, chance)] * (first > 0)
            places += self.cuts(values[first:last], offset + first)
        return places

    def _best(self, values: Floats, windows: Sequence[tuple[int, int]]) -> tuple[list[int], float]:
        """Return the ends of the window that differs most from the rest, and by what chance."""
        count = len(values)
        best, cuts = 0.0, []
        for first, last in windows:
            outside = np.concatenate([values[:first], values[last:]])
            t_value, size = self._differ(values[first:last], outside)
            if t_value > best and abs(size) >= self.least:
                best, cuts = t_value, [first, last]
        chance = min(1.0, len(windows) * two_sided_p(best, count - 2)) if best else 1.0
        if chance <= self.alpha / 2 and not _ranks_differ(
            values, cuts[0], cuts[1], self.alpha / 2 / len(windows)
        ):
            chance = 1.0
        return [cut for cut in cuts if cut < count], chance

    def _differ(self, inside: Floats, outside: Floats) -> tuple[float, float]:
        """Return t and size of the difference of two parts' medians."""
        size = float(np.median(inside) - np.median(outside))
        rest = np.abs(np.concatenate([inside - np.median(inside), outside - np.median(outside)]))
        # Two medians were taken out, which few points follow: the spread is wider than it looks.
        rest.sort()
        count = len(rest)
        middle = (rest[(count - 1) // 2] + rest[count // 2]) / 2
        robust = MAD_TO_SD * float(middle) * math.sqrt(count / (count - 3))
        clipped = np.minimum(rest, 3 * max(robust, 1e-9))
        spread = math.sqrt(float(np.sum(clipped**2)) / (count - 2))
        most = float(rest[math.ceil(_MOST_APART * count) - 1]) / _MOST_APART_SD
        scale = max(robust, spread, most, self.quietest)
        error = MEDIAN_ERROR * scale * math.sqrt(1 / len(inside) + 1 / len(outside))
        return abs(size) / error, size

    def step(
        self,
        values: Sequence[float] | Floats,
        edges: Sequence[int],
        levels: Sequence[float],
        chance: float,
    ) -> LevelStep:
        """Return a step from where its two parts begin and end, with the places that fit as well.

        A place fits as well where it is not 20 times less likely, with normal noise around the two
        levels.
        """
        (begin, first, end), (before, after) = edges, levels
        part = np.asarray(values[begin:end], dtype=float)
        of_before = (part - before) ** 2
        of_after = (part - after) ** 2
        own = np.concatenate([of_before[: first - begin], of_after[first - begin :]])
        variance = max(float(np.mean(own)), self.quietest**2)
        # By how much the fit gets worse where the points from `first` on are taken to be before it,
        # and those before it to be after it.
        later = np.cumsum((of_before - of_after)[first - begin :]) / variance
        earlier = np.cumsum((of_after - of_before)[: first - begin][::-1]) / variance
        return LevelStep(
            first=first,
            before=before,
            after=after,
            by_chance=chance,
            earliest=max(begin + 1, first - _steps_below(earlier)),
            latest=min(end - 1, first + _steps_below(later)),
        )


def _steps_below(losses: Floats) -> int:
    """Return how far one may go: up to the last place that fits as well."""
    fitting = np.flatnonzero(losses < _SAME_FIT)
    return int(fitting[-1]) + 1 if len(fitting) else 0


def _ranks_differ(values: Floats, first: int, last: int, alpha: float) -> bool:
    """Tell whether a part has other ranks than the rest: beyond chance, or as far as can be."""
    ranks = _doubled_ranks(values)
    inside, outside = ranks[first:last], np.concatenate([ranks[:first], ranks[last:]])
    smaller = min(inside, outside, key=len)
    # Of few points no order is rare: then every point has to be above, or below, all others.
    rarest = 2 / math.comb(len(ranks), len(smaller))
    chance = _chance_of_sum(ranks, len(smaller), int(smaller.sum()))
    return chance <= max(alpha, 1.000001 * rarest)


def _doubled_ranks(values: Floats) -> npt.NDArray[np.int64]:
    """Return twice the rank of each value from 1 on; equal ones share the mean of theirs."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values, side="left")
    up_to = np.searchsorted(ordered, values, side="right")
    return below + up_to + 1


def _chance_of_sum(ranks: npt.NDArray[np.int64], how_many: int, total: int) -> float:
    """Return how often so many ranks, drawn at random, have a sum as far from the middle; 0 to 1.

    Of few ranks the number of drawings with each sum is counted; of more it is taken as normal.
    """
    if how_many > _MOST_EXACT:
        count = len(ranks)
        variance = how_many * (count - how_many) / (count - 1) * float(np.var(ranks))
        apart = abs(total - how_many * float(np.mean(ranks)))
        return math.erfc(apart / math.sqrt(2 * variance)) if variance else 1.0
    largest = int(np.sort(ranks)[-how_many:].sum())
    drawings = np.zeros((how_many + 1, largest + 1))  # by how many are drawn, and their sum
    drawings[0, 0] = 1.0
    for rank in ranks:
        drawings[1:, rank:] += drawings[:-1, : largest + 1 - rank]
    of_sum = drawings[how_many] / math.comb(len(ranks), how_many)
    return min(1.0, 2 * float(min(of_sum[: total + 1].sum(), of_sum[total:].sum())))

"""Which parts pay for their description: nats won, less what it takes to say so; pure numpy.

In all iterations or one, in all benchmarks or those that show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.effects import PartScope
from rater.analysis.divots.model.noise import Tail, TimeNoise, gain, tail_of
from rater.analysis.divots.model.parts import Part, PartArrays
from rater.analysis.stats.robust import Bools, Floats, median, quantiles

_TAIL_OF_ONE = 4.0  # degrees of freedom of a single copy's level in what a part explains


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A part with the benchmarks and iterations in which it differs."""

    part: Part
    benchmarks: Bools  # (B,)
    iterations: Bools  # (I,)
    sign: int
    won: float  # nats beyond the cost of saying so
    explained: float  # nats of single copies' levels that it explains
    everywhere: bool  # nearly all benchmarks alike, no list


def choices(scopes: list[PartScope], parts: PartArrays, noise: TimeNoise) -> list[Choice]:
    """Return every part that pays for its description, in the iterations where it does."""
    tails = _tails(scopes[0])
    return [
        one
        for scope in scopes
        for sign, tail in ((1, tails[0]), (-1, tails[1]))
        for one in _chosen(scope, parts, noise, sign, tail)
    ]


def to_name(benchmarks: int) -> float:
    """Return the nats that it takes to name one of so many benchmarks."""
    return math.log(benchmarks) + 1 if benchmarks > 1 else 0.0


def cost_of(part: Part, scope: PartScope) -> float:
    """Return the nats that a part must win: to name it, its iteration, and to be sure."""
    extra = math.log(len(scope.iterations)) if scope.once else 0.0
    return part.cost + extra - math.log(limits.ALPHA)


def freedom_of(scope: PartScope, count: Floats, noise: TimeNoise, tail: Tail) -> Floats:
    """Return the degrees of freedom of parts of so many copies: most must be far out together."""
    many = np.where(count == 2, 2, np.ceil(count / 2)) * scope.times
    found: Floats = 1 / (tail.shape / many + 1 / noise.freedom)
    return found


def _tails(scope: PartScope) -> tuple[Tail, Tail]:
    z = scope.levels / scope.scale[:, None]
    if len(z) >= 3:  # what a slot is slow by in all benchmarks is no tail
        z = z - median(z.T)
        # Nor is what one benchmark has, if it is in two modes.
        z = np.delete(z, int(np.argmax(np.nan_to_num(quantiles(np.abs(z), 0.9)[0]))), axis=0)
    return tail_of(z), tail_of(-z)


def _chosen(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, sign: int, tail: Tail
) -> list[Choice]:
    b, slots = scope.levels.shape
    effect, count = sign * scope.effect, parts.sizes
    single = count == 1
    is_set = np.array([kind == "set" for kind in parts.kinds])
    cost = np.array([cost_of(part, scope) for part in parts.parts])
    freedom = freedom_of(scope, count, noise, tail)
    z = effect / scope.error
    nats = gain(np.maximum(z, 0), freedom)
    nats = np.where(single, tail.gain(z, noise.freedom, 1 if scope.times == 1 else 2), nats)
    usable = scope.shows & (effect >= np.log1p(scope.least) + noise.steps[:, None])
    usable &= (count > 1) | (b * len(scope.iterations) > 1)
    if sign > 0:
        usable &= count <= limits.BIGGEST * slots
    else:  # of two halves of a machine the slower one is named
        usable &= count <= np.where(is_set, 0.5, limits.HALF) * slots
        nats = np.maximum(0, nats + math.log(limits.FAST_ALPHA))
        for place in np.flatnonzero((usable.sum(axis=0) == 1) & (is_set | single)):
            if not _few_apart(scope.levels[usable[:, place]], parts.parts[place]):
                usable[:, place] = False
    naming = to_name(b)
    of_sets = _of_sets(scope, parts, noise, tail, usable & is_set & (nats > naming))
    nats = np.where(is_set, of_sets, nats)
    each = np.where(usable, np.maximum(nats - naming, 0), 0)
    some = np.where((each > 0).sum(axis=0) >= scope.need, each.sum(axis=0), 0)
    whole, common = np.zeros(len(count)), np.zeros(len(count))
    if b >= 3:
        common = median(effect.T)
        fine = np.mean(effect > limits.SHOWS * np.abs(common), axis=0) >= limits.MOST
        fine &= np.mean(scope.shows & (effect > 0), axis=0) >= limits.MOST
        fine &= (common >= scope.everywhere) & (~is_set | of_sets.any(axis=0))
        far = np.maximum(common, 0) / scope.all_error
        of_all = np.where(is_set, of_sets.sum(axis=0), gain(far, freedom * math.ceil(b / 2)))
        whole = np.where(fine, of_all, 0)
    won = np.maximum(some, whole) - cost
    found = []
    for place in np.flatnonzero(won > 0):
        part = parts.parts[place]
        is_all = whole[place] > 0 and (
            whole[place] >= some[place] or np.mean(each[:, place] > 0) >= limits.MOST
        )
        if is_all:
            benchmarks = effect[:, place] + 2 * scope.error[:, place] > limits.SHOWS * common[place]
        else:
            also = usable[:, place] & (nats[:, place] > -math.log(limits.ALPHA))
            benchmarks = (each[:, place] > 0) | also
        own = _by_copies(scope, part, noise, tail)
        explained = float(own[benchmarks].sum()) - part.cost
        if explained > 0:
            found.append(
                Choice(
                    part,
                    benchmarks,
                    scope.iterations,
                    sign,
                    float(won[place]),
                    explained,
                    bool(is_all),
                )
            )
    return found


def _of_sets(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, tail: Tail, usable: Bools
) -> Floats:
    """Return the nats (B, P) of sets of copies that the times name, copy by copy."""
    slots = scope.levels.shape[1]
    found = np.zeros(usable.shape)
    for place in np.flatnonzero(usable.any(axis=0)):
        part = parts.parts[place]
        found[:, place] = _by_copies(scope, part, noise, tail)
        lone = (usable & (found > to_name(len(found))))[:, place]
        # A few copies of a single cell are judged by the tail of the times.
        one_cell = scope.once or len(scope.iterations) == 1
        few = one_cell and part.size <= limits.MOST_SINGLE * slots
        if lone.sum() <= 1 and (few or not _apart(scope.levels[lone], part.slots)):
            found[:, place] = 0
    return found


def _by_copies(scope: PartScope, part: Part, noise: TimeNoise, tail: Tail) -> Floats:
    """Return by how many nats (B,) the part describes single copies better than no part."""
    levels, scale = scope.levels, scope.scale[:, None]
    freedom = min(_TAIL_OF_ONE, 1 / tail.shape)
    inner, outer = levels[:, part.slots], levels[:, ~part.slots]
    won: Floats = np.nansum(gain((levels - median(levels)[:, None]) / scale, freedom), axis=1)
    for side in (inner, outer):
        won -= np.nansum(gain((side - median(side)[:, None]) / scale, freedom), axis=1)
    if part.kind != "set":
        return won
    # A long tail is no second sort of copies: most of the set must lie beyond it.
    apart = (inner - median(outer)[:, None]) / scale
    low, high = quantiles(apart, 0.25, 0.75)
    least = np.maximum(np.nan_to_num(low), -np.nan_to_num(high))
    return np.minimum(won, part.size * tail.gain(least, noise.freedom))


def _apart(levels: Floats, slots: Bools) -> bool:
    """Tell whether an empty gap lies between a set of copies and the rest, in one benchmark."""
    if not len(levels):
        return False
    known = ~np.isnan(levels[0])
    inner, outer = levels[0, slots & known], levels[0, ~slots & known]
    if not (len(inner) and len(outer)):
        return False
    sign = 1 if np.median(inner) > np.median(outer) else -1
    gap = np.min(sign * inner) - np.max(sign * outer)
    return bool(gap >= limits.GAP * sign * (np.median(inner) - np.median(outer)))


def _few_apart(levels: Floats, part: Part) -> bool:
    """Tell whether fast copies of a benchmark are few and apart: else it has a fast tail."""
    few = max(1, limits.MOST_FAST * len(part.slots))
    return part.size <= few and _apart(levels, part.slots)

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
from rater.analysis.divots.model.parts import SETS, Part, PartArrays
from rater.analysis.stats.robust import Bools, Floats, mean, median, quantiles


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
    tails = tails_of(scopes[0], noise)
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
    """Return the degrees of freedom (B, P) of parts of so many copies.

    Most copies must be far out together; the noise is a guess, what parts differ by anyway
    is a bound (Satterthwaite's rule for a sum of variances).
    """
    many = np.where(count == 2, 2, np.ceil(count / 2)) * scope.times
    found: Floats = 1 / (tail.shape / many + scope.chance**2 / noise.freedom)
    return found


def tails_of(scope: PartScope, noise: TimeNoise) -> tuple[Tail, Tail]:
    """Return the upper and the lower tail of single copies' levels."""
    z = scope.levels / scope.scale[:, None]
    if len(z) >= 3:  # what a slot is slow by in all benchmarks is no tail
        z = z - median(z.T)
        # Nor is what one benchmark has, if it is in two modes.
        z = np.delete(z, int(np.argmax(np.nan_to_num(quantiles(np.abs(z), 0.9)[0]))), axis=0)
    return tail_of(z, noise.freedom), tail_of(-z, noise.freedom)


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What parts win, P of them; by benchmark where it says so."""

    won: Floats  # (P,) nats beyond the cost of saying so
    benchmarks: Bools  # (B, P) those that show it
    everywhere: Bools  # (P,) nearly all benchmarks alike


def worth_of(scope: PartScope, parts: PartArrays, noise: TimeNoise, sign: int, tail: Tail) -> Worth:
    """Return what parts win: in each benchmark that shows it, or in nearly all together."""
    b, slots = scope.levels.shape
    effect, count = sign * scope.effect, parts.sizes
    single = count == 1
    is_set = np.array([kind in SETS for kind in parts.kinds])
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
        usable &= count <= np.where(is_set, 0.5, 1 - limits.BIGGEST) * slots
        for place in np.flatnonzero((usable.sum(axis=0) == 1) & (is_set | single)):
            if not _few_apart(scope.levels[usable[:, place]], parts.parts[place]):
                usable[:, place] = False
    naming = to_name(b)
    of_sets = _of_sets(scope, parts, noise, tail, usable & is_set & (nats > naming))
    nats = np.where(is_set, of_sets, nats)
    each = np.where(usable, np.maximum(nats - naming, 0), 0)
    # Where several must show it, one that shows it well says nothing of the others.
    some = each.sum(axis=0) - np.where(scope.need > 1, each.max(axis=0), 0)
    some = np.where((each > 0).sum(axis=0) >= scope.need, some, 0)
    benchmarks = (each > 0) | (usable & (nats > -math.log(limits.ALPHA)))
    whole, is_all = np.zeros(len(count)), np.zeros(len(count), dtype=bool)
    if b >= 3:
        common = median(effect.T)
        fine = np.mean(effect > limits.SHOWS * np.abs(common), axis=0) >= limits.MOST
        fine &= np.mean(scope.shows & (effect > 0), axis=0) >= limits.MOST
        fine &= (common >= scope.everywhere) & (~is_set | of_sets.any(axis=0))
        far = np.maximum(common, 0) / scope.all_error
        of_all = gain(far, mean(freedom.T) * math.ceil(b / 2))
        whole = np.where(fine, np.where(is_set, of_sets.sum(axis=0), of_all), 0)
        is_all = (whole >= some) | (np.mean(each > 0, axis=0) >= limits.MOST)
        is_all &= whole > 0
        alike = effect + 2 * scope.error > limits.SHOWS * common
        benchmarks = np.where(is_all, alike, benchmarks)
    return Worth(np.maximum(some, whole) - cost, benchmarks, is_all)


def _chosen(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, sign: int, tail: Tail
) -> list[Choice]:
    worth = worth_of(scope, parts, noise, sign, tail)
    found = []
    for place in np.flatnonzero(worth.won > 0):
        part, benchmarks = parts.parts[place], worth.benchmarks[:, place]
        explained = float(_by_copies(scope, part, tail)[benchmarks].sum()) - part.cost
        if explained > 0:
            won, every = float(worth.won[place]), bool(worth.everywhere[place])
            found.append(Choice(part, benchmarks, scope.iterations, sign, won, explained, every))
    return found


def _of_sets(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, tail: Tail, usable: Bools
) -> Floats:
    """Return the nats (B, P) of sets of copies that the times name, copy by copy."""
    slots = scope.levels.shape[1]
    found = np.zeros(usable.shape)
    for place in np.flatnonzero(usable.any(axis=0)):
        part = parts.parts[place]
        # A long tail is no second sort of copies: most of the set must lie beyond it.
        inner, outer = scope.levels[:, part.slots], scope.levels[:, ~part.slots]
        low, high = quantiles((inner - median(outer)[:, None]) / scope.scale[:, None], 0.25, 0.75)
        least = np.maximum(np.nan_to_num(low), -np.nan_to_num(high))
        beyond = part.size * tail.gain(least, noise.freedom)
        found[:, place] = np.minimum(_by_copies(scope, part, tail), beyond)
        lone = (usable & (found > to_name(len(found))))[:, place]
        # A few copies of a single cell are judged by the tail of the times.
        one_cell = scope.once or len(scope.iterations) == 1
        few = one_cell and part.size <= limits.SIDE * slots
        if lone.sum() <= 1 and (few or not _apart(scope.levels[lone], part.slots)):
            found[:, place] = 0
    return found


def _by_copies(scope: PartScope, part: Part, tail: Tail) -> Floats:
    """Return by how many nats (B,) the part describes single copies better than no part."""
    levels, scale = scope.levels, scope.scale[:, None]
    freedom = min(limits.FREEDOM_OF_ONE, 1 / tail.shape)
    inner, outer = levels[:, part.slots], levels[:, ~part.slots]
    won: Floats = np.nansum(gain((levels - median(levels)[:, None]) / scale, freedom), axis=1)
    for side in (inner, outer):
        won -= np.nansum(gain((side - median(side)[:, None]) / scale, freedom), axis=1)
    return won


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
    return bool(gap >= limits.HALF * sign * (np.median(inner) - np.median(outer)))


def _few_apart(levels: Floats, part: Part) -> bool:
    """Tell whether fast copies of a benchmark are few and apart: else it has a fast tail."""
    few = max(1, limits.SIDE * len(part.slots))
    return part.size <= few and _apart(levels, part.slots)

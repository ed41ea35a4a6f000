"""What each part differs by from the others, how sure that is, and which pay; pure numpy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.noise import (
    Tail,
    TimeNoise,
    fit_tail,
    log_evidence,
    shorth_spread,
    slot_medians,
)
from rater.analysis.divots.model.parts import SETS, Part, PartArrays
from rater.analysis.stats.robust import (
    MAD_TO_SD,
    MEDIAN_ERROR,
    Bools,
    Floats,
    Ints,
    mean,
    median,
    quantiles,
)

# ln time = benchmark and iteration + effects of parts + noise. Of every part at once: the
# difference of its copies' median from the others' in each cell (B, I, P), and its standard
# error, to which what parts of that kind differ by anyway adds.


@dataclass(frozen=True, slots=True, eq=False)
class PartScope:
    """All parts in all iterations, or in one against the others; ln, B benchmarks, P parts."""

    iterations: Bools  # (I,) those that it is about
    once: bool  # one against the others
    effect: Floats  # (B, P)
    error: Floats  # (B, P) standard error
    chance: Floats  # (B, P) share of its square that is noise, not what parts differ by
    all_error: Floats  # (P,) standard error of the median over the benchmarks
    consistent: Bools  # (B, P) most iterations and most of the part's copies have it
    slot_medians: Floats  # (B, S) single copies
    scale: Floats  # (B,) standard deviation of those
    least: Floats  # (P,) smallest effect in one benchmark, as a share
    everywhere: Floats  # (P,) in all, as ln
    need: Floats  # (P,) benchmarks that must show it

    @property
    def times(self) -> int:
        """Iterations that must agree by chance."""
        return 1 if self.once else math.ceil(int(self.iterations.sum()) / 2)


def part_scopes(
    values: Floats, parts: PartArrays, noise: TimeNoise, thresholds: Thresholds
) -> Iterator[PartScope]:
    """Yield what parts do in all iterations, then in each of several."""
    b, i, s = values.shape
    each, count = effects_of(values, parts), parts.sizes
    levels = slot_medians(values)
    typical = mean(each, axis=1) if i <= 2 else slot_medians(each)  # (B, P)
    weight = _error(count) + _error(np.maximum(1.0, s - count))  # (P,)
    sampling = noise.between_copy_sd[:, None] ** 2 * weight
    again = noise.within_copy_sd[:, None] ** 2 * weight
    kinds = np.array(parts.kinds)
    natural = {
        kind: natural_of(typical[:, here], each[:, :, here], sampling[:, here], again[:, here])
        for kind in dict.fromkeys(parts.kinds)
        if kind not in SETS and (here := kinds == kind).any()
    }
    tau, tau_all, turns = _natural_of_parts(natural, parts, b)
    single = count == 1
    few = single | ((kinds == "set") & (count <= limits.SIDE * s))
    least = np.where(few, thresholds.copy, thresholds.group)
    everywhere = np.where(few, limits.OF_MANY, limits.EVERYWHERE)
    inside, most = _inside(levels, parts, typical, noise.between_copy_sd)
    # Of a single copy `between_copy_sd` is what copies differ by: natural differences are in it.
    inner = np.maximum(sampling, inside**2 * weight)
    error = np.sqrt(inner + np.where(single, 0.0, tau**2) + turns**2 / i)
    yield PartScope(
        iterations=np.ones(i, dtype=bool),
        once=False,
        effect=np.nan_to_num(typical),
        error=error,
        chance=inner / error**2,
        all_error=_of_all(tau_all, error),
        consistent=_repeat(each, typical) & most,
        slot_medians=levels,
        scale=noise.between_copy_sd,
        least=least,
        everywhere=everywhere,
        need=np.where(single & (i == 1), limits.SEVERAL, 1),
    )
    for k in range(i) if i > 1 else ():
        others = np.delete(each, k, axis=1)
        moved = each[:, k] - (mean(others, axis=1) if i <= 3 else slot_medians(others))
        turned = turns**2
        if i > 2:  # what the other iterations do among themselves
            own = np.nan_to_num(_variance(others) - again)
            own = np.where(single, 0.0, np.maximum(0.0, own))
            turned = (turned + (i - 2) * own) / (i - 1)
        # The level of the others is known as badly.
        swing = np.sqrt((again + turned) * (1 + 1 / (i - 1)) + limits.TAU_FEW**2)
        _, most = _inside(values[:, k], parts, moved, noise.within_copy_sd)
        most &= np.sign(each[:, k]) == np.sign(moved)
        most &= np.abs(each[:, k]) >= limits.SHOWS * np.abs(moved)
        yield PartScope(
            iterations=np.arange(i) == k,
            once=True,
            effect=np.nan_to_num(moved),
            error=swing,
            chance=1 - limits.TAU_FEW**2 / swing**2,
            all_error=_of_all(np.full(len(count), limits.TAU), swing),
            consistent=most,
            slot_medians=values[:, k],
            scale=noise.within_copy_sd,
            least=np.maximum(least, limits.FAR),
            everywhere=np.maximum(everywhere, limits.OF_MANY),
            need=np.where(single, limits.SEVERAL, 1),
        )


def _of_all(tau: Floats, error: Floats) -> Floats:
    """Return the standard error (P,) of the median over benchmarks of errors (B, P)."""
    found: Floats = np.sqrt(tau**2 + MEDIAN_ERROR**2 / len(error) * mean(error**2, axis=0))
    return found


def _variance(values: Floats) -> Floats:
    """Return the variance over the iterations (second axis) of (B, I, P)."""
    around = (values - mean(values, axis=1)[:, None]) ** 2
    many: Floats = mean(around, axis=1) * values.shape[1] / (values.shape[1] - 1)
    return many


def effects_of(values: Floats, parts: PartArrays) -> Floats:
    """Return the difference of each part's median from that of the others, cell by cell."""
    b, i, s = values.shape
    padded = np.concatenate((values, np.full((b, i, 1), np.nan)), axis=2)
    order = np.argsort(values, axis=2)  # NaN last
    known = np.sum(~np.isnan(values), axis=2)
    ordered = np.take_along_axis(values, order, axis=2)
    ranks = np.full((b, i, s + 1), 2 * s)
    np.put_along_axis(ranks, order, np.arange(s)[None, None], axis=2)
    ranks[np.isnan(padded)] = 2 * s
    each = np.empty((b, i, len(parts.parts)))
    buckets = np.ceil(np.log2(np.maximum(parts.sizes, 1)))
    for bucket in np.unique(buckets):
        here = np.flatnonzero(buckets == bucket)
        index = parts.index[here, : int(parts.sizes[here].max())]
        members = padded[:, :, index]
        others = _without(ordered, known, np.sort(ranks[:, :, index], axis=-1))
        each[:, :, here] = median(members) - others
        pairs = np.flatnonzero(parts.sizes[here] == 2)
        if len(pairs):
            # Both must show it: the middle of two is half of what one of them does.
            both = members[:, :, pairs, :2] - others[:, :, pairs, None]
            one, two = both[..., 0], both[..., 1]
            nearer = np.where(np.abs(one) <= np.abs(two), one, two)
            shown = np.where(one * two > 0, nearer, 0.0)
            single = np.isnan(both).any(axis=-1)
            each[:, :, here[pairs]] = np.where(single, each[:, :, here[pairs]], shown)
    return each


def _without(ordered: Floats, known: Ints, members: Ints) -> Floats:
    """Return the medians (B, I, P) of ordered values (B, I, S) without members of parts.

    `members` (B, I, P, longest) are their ascending ranks: the t-th of the others stands as
    many places later as members lie before it.
    """
    inside = np.sum(members < ordered.shape[-1], axis=-1)
    left = known[..., None] - inside
    before = members - np.arange(members.shape[-1])
    found = np.zeros(inside.shape)
    for middle in ((left - 1) // 2, left // 2):
        at = middle + np.sum(before <= middle[..., None], axis=-1)
        last = np.minimum(np.maximum(at, 0), ordered.shape[-1] - 1)
        found += np.take_along_axis(ordered, last, axis=2) / 2
    return np.where(left > 0, found, np.nan)


def _error(count: Floats) -> Floats:
    """Return the variance of a median of so many values over that of one."""
    return np.where(count <= 2, 1.0, MEDIAN_ERROR**2) / count


@dataclass(frozen=True, slots=True, eq=False)
class NaturalSpread:
    """What parts of one kind differ by in a healthy run: standard deviations of ln."""

    of_benchmark: Floats  # (B,) from part to part in one benchmark
    of_all: float  # from part to part in all benchmarks
    turns: Floats  # (B,) of one part from iteration to iteration


def natural_of(typical: Floats, each: Floats, sampling: Floats, again: Floats) -> NaturalSpread:
    """Return what parts of one kind differ by: (B, P) and (B, I, P), beyond chance.

    `sampling`, `again` (B, P): variances of a part's level and of one iteration of it.
    """
    b, i, many = each.shape
    common = median(typical.T)  # (P,)
    floor = limits.TAU if many >= limits.MANY_PARTS or i > 1 else limits.TAU_FEW
    own = np.zeros(b)
    if many >= limits.MANY_PARTS:
        own = MAD_TO_SD * median(np.abs(typical - median(typical)[:, None]))
    elif b >= limits.MANY_PARTS:
        # Of few parts all benchmarks together tell; up to half of those may have an effect.
        own = np.full(b, float(median(shorth_spread(typical.T))))
    of_all = 0.0
    if many >= limits.MANY_PARTS:
        of_all = MAD_TO_SD * float(median(np.abs(common - median(common))))
    turns = np.zeros(b)
    if i > 1:
        moves = np.abs(each - mean(each, axis=1)[:, None]) * math.sqrt(i / (i - 1))
        turns = MAD_TO_SD * median(moves.reshape(b, -1))
        if many * (i - 1) < 2 * limits.MANY_PARTS:
            turns = np.full(b, float(median(turns)) if b >= limits.MANY_PARTS else 0.0)
        turns = _beyond(turns, median(again))
    of_all = float(_beyond(np.array(of_all), MEDIAN_ERROR**2 / b * median(median(sampling))))
    return NaturalSpread(
        np.maximum(floor, _beyond(own, median(sampling))), max(floor, of_all), turns
    )


def _beyond(spread: Floats, variance: Floats) -> Floats:
    """Return what of a spread is more than chance gives."""
    return np.sqrt(np.maximum(0.0, np.nan_to_num(spread) ** 2 - np.nan_to_num(variance)))


def _natural_of_parts(
    natural: dict[str, NaturalSpread], parts: PartArrays, b: int
) -> tuple[Floats, Floats, Floats]:
    tau = np.full((b, len(parts.parts)), limits.TAU)
    tau_all = np.full(len(parts.parts), limits.TAU)
    turns = np.zeros((b, len(parts.parts)))
    shared = [natural[kind] for kind in ("node", "llc", "package") if kind in natural]
    for place, kind in enumerate(parts.kinds):
        own = [natural[kind]] if kind in natural else shared if parts.sizes[place] > 1 else []
        for it in own:
            tau[:, place] = np.maximum(tau[:, place], it.of_benchmark)
            tau_all[place] = max(tau_all[place], it.of_all)
            if parts.sizes[place] > 1:
                turns[:, place] = np.maximum(turns[:, place], it.turns)
    return tau, tau_all, turns


def _inside(
    levels: Floats, parts: PartArrays, effect: Floats, scale: Floats
) -> tuple[Floats, Bools]:
    """Return (B, P) how much copies of parts differ, of four or more, and whether most show it.

    Most: all but 30 % of them have a share of the effect, as far as their noise lets them.
    """
    b = len(levels)
    padded = np.concatenate((levels, np.full((b, 1), np.nan)), axis=1)
    inside, low, high = (np.zeros((b, len(parts.parts))) for _ in range(3))
    buckets = np.ceil(np.log2(np.maximum(parts.sizes, 1)))
    for bucket in np.unique(buckets[parts.sizes >= 4]):
        here = np.flatnonzero((buckets == bucket) & (parts.sizes >= 4))
        members = padded[:, parts.index[here, : int(parts.sizes[here].max())]]
        below, middle, above = quantiles(members, 1 - limits.MOST, 0.5, limits.MOST)
        low[:, here], high[:, here] = below - middle, above - middle
        inside[:, here] = MAD_TO_SD * np.nan_to_num(median(np.abs(members - middle[..., None])))
    sign = np.sign(effect)
    nearer = np.where(effect > 0, effect + low, -effect - high) + scale[:, None]
    return inside, np.asarray(nearer >= limits.SHOWS * sign * effect)


def _repeat(each: Floats, typical: Floats) -> Bools:
    """Return (B, P) whether most iterations show the effect."""
    sign = np.sign(typical)[:, None]
    shows = sign * each >= limits.SHOWS * np.abs(typical)[:, None]
    known = ~np.isnan(each)
    many = np.maximum(1, known.sum(axis=1))
    need = limits.BIGGEST if each.shape[1] > 2 else 1.0
    return np.asarray((shows & known).sum(axis=1) >= need * many)


# -- Which parts pay for their description: nats won, less what it takes to say so; pure numpy -----
#
# In all iterations or one, in all benchmarks or those that show it.


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A part with the benchmarks and iterations in which it differs."""

    part: Part
    benchmarks: Bools  # (B,)
    iterations: Bools  # (I,)
    sign: int
    won: float  # nats beyond the cost of saying so
    explained: float  # nats of single copies' levels that it explains
    everywhere: bool  # nearly all benchmarks alike, no list


def choices(scopes: list[PartScope], parts: PartArrays, noise: TimeNoise) -> list[Candidate]:
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
    found: Floats = 1 / (tail.shape / many + scope.chance**2 / noise.dof)
    return found


def tails_of(scope: PartScope, noise: TimeNoise) -> tuple[Tail, Tail]:
    """Return the upper and the lower tail of single copies' levels."""
    z = scope.slot_medians / scope.scale[:, None]
    if len(z) >= 3:  # what a slot is slow by in all benchmarks is no tail
        z = z - median(z.T)
        # Nor is what one benchmark has, if it is in two modes.
        z = np.delete(z, int(np.argmax(np.nan_to_num(quantiles(np.abs(z), 0.9)[0]))), axis=0)
    return fit_tail(z, noise.dof), fit_tail(-z, noise.dof)


@dataclass(frozen=True, slots=True, eq=False)
class NetEvidence:
    """What parts win, P of them; by benchmark where it says so."""

    won: Floats  # (P,) nats beyond the cost of saying so
    benchmarks: Bools  # (B, P) those that show it
    everywhere: Bools  # (P,) nearly all benchmarks alike


def worth_of(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, sign: int, tail: Tail
) -> NetEvidence:
    """Return what parts win: in each benchmark that shows it, or in nearly all together."""
    b, slots = scope.slot_medians.shape
    effect, count = sign * scope.effect, parts.sizes
    single = count == 1
    is_set = np.array([kind in SETS for kind in parts.kinds])
    cost = np.array([cost_of(part, scope) for part in parts.parts])
    freedom = freedom_of(scope, count, noise, tail)
    z = effect / scope.error
    nats = log_evidence(np.maximum(z, 0), freedom)
    nats = np.where(single, tail.log_evidence(z, noise.dof, 1 if scope.times == 1 else 2), nats)
    usable = scope.consistent & (effect >= np.log1p(scope.least) + noise.steps[:, None])
    usable &= (count > 1) | (b * len(scope.iterations) > 1)
    if sign > 0:
        usable &= count <= limits.BIGGEST * slots
    else:  # of two halves of a machine the slower one is named
        usable &= count <= np.where(is_set, 0.5, 1 - limits.BIGGEST) * slots
        for place in np.flatnonzero((usable.sum(axis=0) == 1) & (is_set | single)):
            if not _few_apart(scope.slot_medians[usable[:, place]], parts.parts[place]):
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
        fine &= np.mean(scope.consistent & (effect > 0), axis=0) >= limits.MOST
        fine &= (common >= scope.everywhere) & (~is_set | of_sets.any(axis=0))
        far = np.maximum(common, 0) / scope.all_error
        of_all = log_evidence(far, mean(freedom.T) * math.ceil(b / 2))
        whole = np.where(fine, np.where(is_set, of_sets.sum(axis=0), of_all), 0)
        is_all = (whole >= some) | (np.mean(each > 0, axis=0) >= limits.MOST)
        is_all &= whole > 0
        alike = effect + 2 * scope.error > limits.SHOWS * common
        benchmarks = np.where(is_all, alike, benchmarks)
    return NetEvidence(np.maximum(some, whole) - cost, benchmarks, is_all)


def _chosen(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, sign: int, tail: Tail
) -> list[Candidate]:
    worth = worth_of(scope, parts, noise, sign, tail)
    found = []
    for place in np.flatnonzero(worth.won > 0):
        part, benchmarks = parts.parts[place], worth.benchmarks[:, place]
        explained = float(_by_copies(scope, part, tail)[benchmarks].sum()) - part.cost
        if explained > 0:
            won, every = float(worth.won[place]), bool(worth.everywhere[place])
            found.append(Candidate(part, benchmarks, scope.iterations, sign, won, explained, every))
    return found


def _of_sets(
    scope: PartScope, parts: PartArrays, noise: TimeNoise, tail: Tail, usable: Bools
) -> Floats:
    """Return the nats (B, P) of sets of copies that the times name, copy by copy."""
    slots = scope.slot_medians.shape[1]
    found = np.zeros(usable.shape)
    for place in np.flatnonzero(usable.any(axis=0)):
        part = parts.parts[place]
        # A long tail is no second sort of copies: most of the set must lie beyond it.
        inner, outer = scope.slot_medians[:, part.slots], scope.slot_medians[:, ~part.slots]
        low, high = quantiles((inner - median(outer)[:, None]) / scope.scale[:, None], 0.25, 0.75)
        least = np.maximum(np.nan_to_num(low), -np.nan_to_num(high))
        beyond = part.size * tail.log_evidence(least, noise.dof)
        found[:, place] = np.minimum(_by_copies(scope, part, tail), beyond)
        lone = (usable & (found > to_name(len(found))))[:, place]
        # A few copies of a single cell are judged by the tail of the times.
        one_cell = scope.once or len(scope.iterations) == 1
        few = one_cell and part.size <= limits.SIDE * slots
        if lone.sum() <= 1 and (few or not _apart(scope.slot_medians[lone], part.slots)):
            found[:, place] = 0
    return found


def _by_copies(scope: PartScope, part: Part, tail: Tail) -> Floats:
    """Return by how many nats (B,) the part describes single copies better than no part."""
    levels, scale = scope.slot_medians, scope.scale[:, None]
    freedom = min(limits.FREEDOM_OF_ONE, 1 / tail.shape)
    inner, outer = levels[:, part.slots], levels[:, ~part.slots]
    won: Floats = np.nansum(
        log_evidence((levels - median(levels)[:, None]) / scale, freedom), axis=1
    )
    for side in (inner, outer):
        won -= np.nansum(log_evidence((side - median(side)[:, None]) / scale, freedom), axis=1)
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

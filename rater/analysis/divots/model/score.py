"""What each part would explain of the times: effects, their errors, nats won; pure numpy.

ln time = benchmark and iteration + effects of parts + noise. Of every part at once: the
difference of its copies' median from the others', in each cell (B, I, P); what that is in
standard errors, among them what parts of that kind differ by anyway; and how many nats it wins
in all iterations or one, in all benchmarks or those that show it, less what it takes to say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.noise import Noise, Tail, gain, levels_of, tail_of
from rater.analysis.divots.model.parts import SETS, Part, Parts
from rater.analysis.stats.robust import MAD_TO_SD, MEDIAN_ERROR, Bools, Floats, median, quantiles

_PRIOR_TURNS = 2  # iterations that what a kind of part does otherwise weighs as much as
_TAIL_OF_ONE = 4.0  # of a single copy's level in what a part explains


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """What parts differ by from the other copies, (B, I, P) in ln; NaN: nothing known."""

    each: Floats
    count: Floats  # (P,) copies that the median is of
    rest: Floats  # (P,) copies it is compared with


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


def effects_of(values: Floats, parts: Parts) -> Effects:
    """Return the difference of each part's median from that of the others, cell by cell."""
    b, i, s = values.shape
    padded = np.concatenate((values, np.full((b, i, 1), np.nan)), axis=2)
    each = np.empty((b, i, len(parts.parts)))
    buckets = np.ceil(np.log2(np.maximum(parts.sizes, 1)))
    for bucket in np.unique(buckets):
        here = np.flatnonzero(buckets == bucket)
        longest = int(parts.sizes[here].max())
        each[:, :, here] = median(padded[:, :, parts.index[here, :longest]])
    pairs = np.flatnonzero(parts.sizes == 2)
    if len(pairs):
        # Both must show it: the middle of two is half of what one of them does.
        both = padded[:, :, parts.index[pairs, :2]] - median(values)[..., None, None]
        nearer = np.where(np.abs(both[..., 0]) <= np.abs(both[..., 1]), both[..., 0], both[..., 1])
        same = np.sign(both[..., 0]) * np.sign(both[..., 1]) > 0
        known = np.where(np.isnan(both).any(axis=-1), each[:, :, pairs], median(values)[..., None])
        known = np.where(np.isnan(both).any(axis=-1), known, known + np.where(same, nearer, 0.0))
        each[:, :, pairs] = known
    whole = median(values)
    for place, part in enumerate(parts.parts):
        if parts.sizes[place] >= limits.BALANCED * s or s <= _FEW_SLOTS:
            each[:, :, place] -= median(values[:, :, ~part.slots])
        else:
            each[:, :, place] -= whole
    return Effects(each, parts.sizes, np.maximum(1.0, s - parts.sizes))


_FEW_SLOTS = 16  # of which each is a notable share of the median


def _error(count: Floats) -> Floats:
    """Return the variance of a median of so many values over that of one."""
    return np.where(count <= 2, 1.0, MEDIAN_ERROR**2) / count


@dataclass(frozen=True, slots=True, eq=False)
class Natural:
    """What parts of one kind differ by in a healthy run: standard deviations of ln."""

    of_benchmark: Floats  # (B,) from part to part in one benchmark
    of_all: float  # from part to part in all benchmarks
    turns: Floats  # (B,) of one part from iteration to iteration


def natural_of(typical: Floats, each: Floats, sampling: Floats, again: Floats) -> Natural:
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
        # Of few parts all benchmarks together tell; what they share is no natural difference.
        own = np.full(b, MAD_TO_SD * float(median(np.abs(typical - common).ravel())))
    of_all = 0.0
    if many >= limits.MANY_PARTS:
        of_all = MAD_TO_SD * float(median(np.abs(common - median(common))))
    turns = np.zeros(b)
    if i > 1:
        moves = np.abs(each - np.nanmean(each, axis=1, keepdims=True)) * math.sqrt(i / (i - 1))
        turns = MAD_TO_SD * median(moves.reshape(b, -1))
        if many * (i - 1) < 2 * limits.MANY_PARTS:
            turns = np.full(b, float(median(turns)) if b >= limits.MANY_PARTS else 0.0)
        turns = _beyond(turns, median(again))
    of_all = float(_beyond(np.array(of_all), MEDIAN_ERROR**2 / b * median(median(sampling))))
    return Natural(np.maximum(floor, _beyond(own, median(sampling))), max(floor, of_all), turns)


def _beyond(spread: Floats, variance: Floats) -> Floats:
    """Return what of a spread is more than chance gives."""
    return np.sqrt(np.maximum(0.0, np.nan_to_num(spread) ** 2 - np.nan_to_num(variance)))


def choices(
    values: Floats, parts: Parts, noise: Noise, least_group: float, least_copy: float
) -> list[Choice]:
    """Return every part that pays for its description, in the iterations where it does."""
    b, i, s = values.shape
    effects = effects_of(values, parts)
    each, count, rest = effects.each, effects.count, effects.rest
    levels = levels_of(values)
    typical = np.nanmean(each, axis=1) if i <= 2 else levels_of(each)  # (B, P)
    kinds = np.array(parts.kinds)
    weight = _error(count) + _error(rest)  # (P,)
    sampling = noise.between[:, None] ** 2 * weight
    again = noise.repeat[:, None] ** 2 * weight
    natural = {
        kind: natural_of(typical[:, here], each[:, :, here], sampling[:, here], again[:, here])
        for kind in dict.fromkeys(parts.kinds)
        if kind not in SETS and (here := kinds == kind).any()
    }
    tau, tau_all, turns = _natural_of_parts(natural, parts, b)
    inside, low, high = _inside(levels, parts)
    single = count == 1
    sampling = np.maximum(noise.between[:, None] ** 2, inside**2) * weight
    # Of a single copy `between` is what copies differ by: natural differences are in it.
    error = np.sqrt(sampling + np.where(single, 0.0, tau**2) + turns**2 / i)
    tails = _tails(levels, noise)
    found: list[Choice] = []
    few = single | (
        np.array([kind == "set" for kind in parts.kinds]) & (count <= limits.FEW_COPIES * s)
    )
    least = np.where(few, least_copy, least_group)
    # Most of its copies show it, as far as their noise lets them.
    most = np.where(
        typical > 0,
        typical + low + noise.between[:, None] >= limits.SHOWS * typical,
        typical + high - noise.between[:, None] <= limits.SHOWS * typical,
    )
    repeats = _repeat(each, typical) & most
    one = typical / error
    all_error = np.sqrt(tau_all**2 + MEDIAN_ERROR**2 / b * np.nanmean(error**2, axis=0))
    everywhere = np.where(few, limits.COPY_ALWAYS, limits.EVERYWHERE)
    several = (count > 1) | (b * i > 1)
    found += _chosen(
        parts,
        typical,
        one,
        all_error,
        least,
        everywhere,
        repeats,
        noise,
        tails,
        np.ones(i, dtype=bool),
        levels,
        iterations=i,
        need=np.where(single & (i == 1), limits.MANY_ONCE, 1),
        extra=0.0,
        allowed=several,
    )
    if i > 1:
        for k in range(i):
            others = np.delete(each, k, axis=1)
            moved = each[:, k] - (np.nanmean(others, axis=1) if i <= 3 else levels_of(others))
            again = 1 + 1 / (i - 1)  # the level of the others is known as badly
            turned = turns**2
            if i > 2:  # what the other iterations do among themselves
                apart = np.nanvar(others, axis=1, ddof=1) - noise.repeat[:, None] ** 2 * weight
                own = np.where(single, 0.0, np.maximum(0.0, np.nan_to_num(apart)))
                turned = (_PRIOR_TURNS * turned + (i - 2) * own) / (_PRIOR_TURNS + i - 2)
            swing = np.sqrt(
                noise.repeat[:, None] ** 2 * weight * again + turned * again + limits.TAU**2
            )
            all_once = np.sqrt(limits.TAU**2 + MEDIAN_ERROR**2 / b * np.nanmean(swing**2, axis=0))
            _, low, high = _inside(values[:, k], parts)
            most = np.where(
                moved > 0,
                moved + low + noise.repeat[:, None] >= limits.SHOWS * moved,
                moved + high - noise.repeat[:, None] <= limits.SHOWS * moved,
            )
            shown = (
                most
                & (np.sign(each[:, k]) == np.sign(moved))
                & (np.abs(each[:, k]) >= 0.4 * np.abs(moved))
            )
            only = np.zeros(i, dtype=bool)
            only[k] = True
            found += _chosen(
                parts,
                moved,
                moved / swing,
                all_once,
                np.maximum(least, limits.ONCE),
                np.maximum(everywhere, limits.ITERATION),
                shown,
                noise,
                tails,
                only,
                values[:, k],
                iterations=1,
                need=np.where(single, limits.MANY_ONCE, 1),
                extra=math.log(i),
                allowed=several,
                once=True,
            )
    return found


def _natural_of_parts(
    natural: dict[str, Natural], parts: Parts, b: int
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


def _inside(levels: Floats, parts: Parts) -> tuple[Floats, Floats, Floats]:
    """Return (B, P) how much the copies of a part differ, of four or more, and its quantiles.

    Those that 30 % of its copies are below, and above, from its median.
    """
    b = len(levels)
    padded = np.concatenate((levels, np.full((b, 1), np.nan)), axis=1)
    inside, low, high = (np.zeros((b, len(parts.parts))) for _ in range(3))
    buckets = np.ceil(np.log2(np.maximum(parts.sizes, 1)))
    for bucket in np.unique(buckets[parts.sizes >= 4]):
        here = np.flatnonzero((buckets == bucket) & (parts.sizes >= 4))
        if len(here):
            members = padded[:, parts.index[here, : int(parts.sizes[here].max())]]
            below, middle, above = quantiles(members, limits.MOST_SHOW, 0.5, 1 - limits.MOST_SHOW)
            low[:, here], high[:, here] = below - middle, above - middle
            inside[:, here] = MAD_TO_SD * np.nan_to_num(median(np.abs(members - middle[..., None])))
    return inside, low, high


def _tails(levels: Floats, noise: Noise) -> tuple[Tail, Tail]:
    z = levels / noise.between[:, None]
    if len(z) >= 3:  # what a slot is slow by in all benchmarks is no tail
        z = z - median(z.T)
        # Nor is what one benchmark has, if it is in two modes.
        z = np.delete(z, int(np.nanargmax(quantiles(np.abs(z), 0.9)[0])), axis=0)
    return tail_of(z), tail_of(-z)


def _repeat(each: Floats, typical: Floats) -> Bools:
    """Return (B, P) whether most iterations show the effect."""
    sign = np.sign(typical)[:, None]
    shows = sign * each >= limits.SHOWS * np.abs(typical)[:, None]
    known = ~np.isnan(each)
    many = np.maximum(1, known.sum(axis=1))
    need = limits.MOST_ITERATIONS if each.shape[1] > 2 else 1.0
    return np.asarray((shows & known).sum(axis=1) >= need * many)


def _chosen(
    parts: Parts,
    effect: Floats,  # (B, P)
    z: Floats,
    all_error: Floats,  # (P,)
    least: Floats,
    everywhere: Floats,
    shows: Bools,
    noise: Noise,
    tails: tuple[Tail, Tail],
    iterations_mask: Bools,
    levels: Floats,  # (B, S) what single copies show there
    *,
    iterations: int,
    need: Floats,
    extra: float,
    allowed: Bools,
    once: bool = False,
) -> list[Choice]:
    b = len(effect)
    effect, z = np.nan_to_num(effect), np.nan_to_num(z)
    count = parts.sizes
    many = np.where(count == 2, 2, np.ceil(count / 2)) * (
        1 if iterations < 2 else math.ceil(iterations / 2)
    )
    single = count == 1
    costs = np.array([part.cost for part in parts.parts])
    to_name = math.log(b) + 1 if b > 1 else 0.0
    sure = -math.log(limits.ALPHA)
    slots = levels.shape[1]
    once_only = iterations == 1
    is_set = np.array([kind == "set" for kind in parts.kinds])
    by_times = is_set | single
    # Of two halves of a machine the slower one is named.
    small = count <= np.where(is_set, 0.5, limits.HALF) * slots
    found = []
    for sign, tail in ((1, tails[0]), (-1, tails[1])):
        freedom = 1 / (tail.shape / many + 1 / noise.freedom)
        nats = gain(np.maximum(sign * z, 0), freedom)
        nats = np.where(
            single, tail.gain(sign * z, noise.freedom, 1 if iterations == 1 else 2), nats
        )
        if sign < 0:
            nats = np.maximum(0, nats + math.log(limits.FAST_ALPHA))
        usable = shows & (sign * effect >= np.log1p(least) + noise.steps[:, None]) & allowed
        usable &= (count <= limits.BIGGEST * slots) if sign > 0 else small
        if sign < 0:
            for place in np.flatnonzero(usable.sum(axis=0) == 1):
                if by_times[place] and not _few_apart(levels[usable[:, place]], parts.parts[place]):
                    usable[:, place] = False
        of_sets = np.zeros_like(nats)
        for place in np.flatnonzero(is_set & (usable & (nats > to_name)).any(axis=0)):
            of_sets[:, place] = _by_copies(levels, parts.parts[place], noise, tail, once=once)
            lone = (usable & (of_sets > to_name))[:, place]
            if lone.sum() <= 1:
                # A few copies of a single cell are judged by the tail of the times.
                few = once_only and count[place] <= limits.MOST_SINGLE * slots
                if few or not _apart(levels[lone], parts.parts[place].slots):
                    of_sets[:, place] = 0
        nats = np.where(is_set, of_sets, nats)
        each = np.where(usable, np.maximum(nats - to_name, 0), 0)
        enough = (each > 0).sum(axis=0) >= need
        some = np.where(enough, each.sum(axis=0), 0)
        whole = np.zeros(len(count))
        common = np.zeros(len(count))
        if b >= 3:
            common = median(effect.T)
            agree = np.mean(sign * effect > limits.SHOWS * np.abs(common), axis=0)
            often = np.mean(shows & (sign * effect > 0), axis=0)
            fine = (
                (~is_set | (of_sets.any(axis=0)))
                & (agree >= limits.MOST)
                & (often >= limits.MOST)
                & (sign * common >= everywhere)
            )
            whole = np.where(
                fine, gain(np.maximum(sign * common, 0) / all_error, freedom * math.ceil(b / 2)), 0
            )
            whole = np.where(is_set & fine, of_sets.sum(axis=0), whole)
        cost = costs + sure + extra
        won = np.maximum(some, whole) - cost
        for place in np.flatnonzero(won > 0):
            is_all = bool(
                whole[place] > 0
                and (whole[place] >= some[place] or np.mean(each[:, place] > 0) >= limits.MOST)
            )
            if is_all:
                slack = 2 * np.abs(effect[:, place] / np.where(z[:, place] == 0, 1, z[:, place]))
                benchmarks = sign * effect[:, place] + slack > limits.SHOWS * abs(common[place])
            else:
                benchmarks = (each[:, place] > 0) | (usable[:, place] & (nats[:, place] > sure))
            own = _by_copies(levels, parts.parts[place], noise, tail, once=once)
            explained = float(own[benchmarks].sum())
            if explained <= costs[place] + extra:
                continue
            found.append(
                Choice(
                    parts.parts[place],
                    benchmarks,
                    iterations_mask,
                    sign,
                    float(won[place]),
                    explained - costs[place] - extra,
                    is_all,
                )
            )
    return found


def _by_copies(levels: Floats, part: Part, noise: Noise, tail: Tail, *, once: bool) -> Floats:
    """Return by how many nats (B,) the part describes single copies better than no part."""
    scale = (noise.repeat if once else noise.between)[:, None]
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
    inner, outer = levels[0, slots], levels[0, ~slots]
    sign = 1 if np.nanmedian(inner) > np.nanmedian(outer) else -1
    gap = np.nanmin(sign * inner) - np.nanmax(sign * outer)
    return bool(gap >= limits.GAP * sign * (np.nanmedian(inner) - np.nanmedian(outer)))


def _few_apart(levels: Floats, part: Part) -> bool:
    """Tell whether fast copies of one benchmark are few and stand apart: else it has a fast tail."""
    few = max(1, limits.MOST_FAST * len(part.slots))
    return part.size <= few and _apart(levels, part.slots)

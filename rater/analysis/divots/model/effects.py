"""What each part differs by from the other copies, and how sure that is; pure numpy.

ln time = benchmark and iteration + effects of parts + noise. Of every part at once: the
difference of its copies' median from the others' in each cell (B, I, P), and its standard
error, to which what parts of that kind differ by anyway adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.noise import TimeNoise, levels_of, shortest
from rater.analysis.divots.model.parts import SETS, PartArrays
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


@dataclass(frozen=True, slots=True, eq=False)
class PartScope:
    """All parts in all iterations, or in one against the others; ln, B benchmarks, P parts."""

    iterations: Bools  # (I,) those that it is about
    once: bool  # one against the others
    effect: Floats  # (B, P)
    error: Floats  # (B, P) standard error
    chance: Floats  # (B, P) share of its square that is noise, not what parts differ by
    all_error: Floats  # (P,) standard error of the median over the benchmarks
    shows: Bools  # (B, P) most iterations and most of the part's copies have it
    levels: Floats  # (B, S) single copies
    scale: Floats  # (B,) standard deviation of those
    least: Floats  # (P,) smallest effect in one benchmark, as a share
    everywhere: Floats  # (P,) in all, as ln
    need: Floats  # (P,) benchmarks that must show it

    @property
    def times(self) -> int:
        """Iterations that must agree by chance."""
        return 1 if self.once else math.ceil(int(self.iterations.sum()) / 2)


def scopes_of(
    values: Floats, parts: PartArrays, noise: TimeNoise, thresholds: Thresholds
) -> Iterator[PartScope]:
    """Yield what parts do in all iterations, then in each of several."""
    b, i, s = values.shape
    each, count = effects_of(values, parts), parts.sizes
    levels = levels_of(values)
    typical = mean(each, axis=1) if i <= 2 else levels_of(each)  # (B, P)
    weight = _error(count) + _error(np.maximum(1.0, s - count))  # (P,)
    sampling = noise.between[:, None] ** 2 * weight
    again = noise.repeat[:, None] ** 2 * weight
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
    inside, most = _inside(levels, parts, typical, noise.between)
    # Of a single copy `between` is what copies differ by: natural differences are in it.
    inner = np.maximum(sampling, inside**2 * weight)
    error = np.sqrt(inner + np.where(single, 0.0, tau**2) + turns**2 / i)
    yield PartScope(
        iterations=np.ones(i, dtype=bool),
        once=False,
        effect=np.nan_to_num(typical),
        error=error,
        chance=inner / error**2,
        all_error=_of_all(tau_all, error),
        shows=_repeat(each, typical) & most,
        levels=levels,
        scale=noise.between,
        least=least,
        everywhere=everywhere,
        need=np.where(single & (i == 1), limits.SEVERAL, 1),
    )
    for k in range(i) if i > 1 else ():
        others = np.delete(each, k, axis=1)
        moved = each[:, k] - (mean(others, axis=1) if i <= 3 else levels_of(others))
        turned = turns**2
        if i > 2:  # what the other iterations do among themselves
            own = np.nan_to_num(_variance(others) - again)
            own = np.where(single, 0.0, np.maximum(0.0, own))
            turned = (turned + (i - 2) * own) / (i - 1)
        # The level of the others is known as badly.
        swing = np.sqrt((again + turned) * (1 + 1 / (i - 1)) + limits.TAU_FEW**2)
        _, most = _inside(values[:, k], parts, moved, noise.repeat)
        most &= np.sign(each[:, k]) == np.sign(moved)
        most &= np.abs(each[:, k]) >= limits.SHOWS * np.abs(moved)
        yield PartScope(
            iterations=np.arange(i) == k,
            once=True,
            effect=np.nan_to_num(moved),
            error=swing,
            chance=1 - limits.TAU_FEW**2 / swing**2,
            all_error=_of_all(np.full(len(count), limits.TAU), swing),
            shows=most,
            levels=values[:, k],
            scale=noise.repeat,
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
        # Of few parts all benchmarks together tell; up to half of those may have an effect.
        own = np.full(b, float(median(shortest(typical.T))))
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
    return Natural(np.maximum(floor, _beyond(own, median(sampling))), max(floor, of_all), turns)


def _beyond(spread: Floats, variance: Floats) -> Floats:
    """Return what of a spread is more than chance gives."""
    return np.sqrt(np.maximum(0.0, np.nan_to_num(spread) ** 2 - np.nan_to_num(variance)))


def _natural_of_parts(
    natural: dict[str, Natural], parts: PartArrays, b: int
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

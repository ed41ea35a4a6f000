"""Candidates of places: parts of the machine and copies, in benchmarks and iterations; pure.

A part is held against the others of its family. How much healthy parts differ by is a prior
(`nulls.Nature`) that the other parts update; how much chance makes is told by the copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.nulls import (
    Nature,
    SidedTail,
    capped_squares,
    lent_variance,
    ln_tail,
    location,
    nats_of_t,
    pooled_variances,
)
from rater.analysis.stats.robust import Bools, Floats, Ints

ALPHA: Final = 0.05  # healthy runs with a place named, were all bounds met; a fifth of it is
LEAST_NOISE: Final = 3e-4  # no repeat agrees better; published, 0.1 % at best
# What healthy parts differ by: 0.2 to 0.4 % between lgroups of healthy servers (published).
PARTS_ALL: Final = Nature(0.002, 1.5)
PARTS_ONE: Final = Nature(0.002, 1.5)
PARTS_CELL: Final = Nature(0.0025, 1.8)
COPIES: Final = Nature(0.003, 1.8)
COPIES_CELL: Final = Nature(0.0005, 2.0)
SLOPE: Final = Nature(0.004, 1.6)

FAST: Final = math.log(20)  # nats: what is fast is named in one healthy run of twenty times as many
_BEYOND, _NOISY = 0.65, 0.03  # ln: half the time, or nearly twice; and the noise of single values
PARTS: Final = (
    "node",
    "package",
    "llc",
    "memory",
    "node+memory",
    "remote",
    "thread",
    "half",
    "core",
)
_CARRIED: Final = 0.7  # of what a shift of all copies would show in this noise
_UNKNOWN_NOISE: Final = 0.01  # of copies that ran once, in one benchmark: worth one value
_OWN_TAIL_FROM: Final = 20  # values of a benchmark: fewer tell no tail
FLOORS: Final = {"part-all": 0.010, "part": 0.015, "copy-all": 0.015, "copy": 0.030}


@dataclass(slots=True, eq=False)
class Effect:
    """One cause: ln time = size of the benchmark x weight of the iteration x weight of the slot."""

    kind: str  # the family's, or gradient, modes, copies, iterations
    slots: Floats  # (S,), or (I, S) where other slots each iteration: 0 or 1, or a slope
    benchmarks: Bools  # (B,)
    when: Floats  # (I,)
    size: Floats  # (B,) ln
    scope: str  # all, some, cell, step, trend
    nats: float = 0.0  # of evidence beyond its price
    gain: float = 0.0  # nats of likelihood: which of those that pay comes first
    error: float = 0.0  # standard error of its size
    name: int = -1  # of the part

    @property
    def typical(self) -> float:
        """The middle size of its benchmarks, ln."""
        return float(np.median(self.size[self.benchmarks]))

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """What tells it from other effects."""
        return self.slots.tobytes(), self.benchmarks.tobytes(), self.when.tobytes()

    def add_to(self, cube: Floats, sign: float = 1.0) -> None:
        """Add its field to ln times (B, I, S) in place."""
        rows = np.flatnonzero(self.benchmarks)
        field = self.size[rows][:, None, None] * self.when[None, :, None] * sign
        cube[rows] += field * (self.slots if self.slots.ndim < 3 else self.slots[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """What chance makes of single values, each benchmark (B,)."""

    again: Floats  # variance of one slot from iteration to iteration
    again_df: Floats
    one: Floats  # variance of one value about its cell
    one_df: Floats
    count: Floats  # iterations that it has
    step: Floats  # of the clock, ln


def noise_of(r: Floats, step: Floats) -> tuple[Noise, Floats]:
    """Return the noise of residuals (B, I, S), and each slot's lasting level (B, S)."""
    _, i, s = r.shape
    rough = np.sqrt(np.maximum(capped_squares(r, (1, 2))[0], 0) / max(1, i * s))
    level = np.nan_to_num(location(np.swapaxes(r, 1, 2), (rough + step)[:, None]))
    least = np.sqrt(LEAST_NOISE**2 + step**2 / 12)
    squares, n = capped_squares(r, (1, 2), step)
    count = np.maximum(np.sum(~np.isnan(r).all(axis=2), axis=1), 1).astype(float)
    one, one_df = pooled_variances(squares, n * (s - 1) / s, least)
    if i < 2:
        return Noise(one, one_df, one, one_df, count, step), level
    squares, n = capped_squares(r - level[:, None], (1, 2), step)
    again, df = pooled_variances(squares, n * (s - 1) / s * (count - 1) / count, least)
    return Noise(again, df, one, one_df, count, step), level


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Parts against the others of their row: R rows, P parts."""

    d: Floats  # (R, P) ln difference from the others' mean
    squares: Floats  # (R, P) of the others about their mean
    others: float  # their degrees of freedom
    grow: Floats | float  # variance of d over that of one part


def contrast(x: Floats, chance: Floats, grain: Floats | float) -> Contrast:
    """Hold each part of rows (R, P) against the others, which count no more than they may."""
    parts = x.shape[1]
    centre = np.median(x, axis=1, keepdims=True)
    off = x - centre
    wide = np.maximum(
        1.4826 * np.median(np.abs(off), axis=1, keepdims=True),
        np.maximum(np.sqrt(np.median(chance, axis=1, keepdims=True)), np.asarray(grain) / 2),
    )
    held = np.clip(off, -3 * wide, 3 * wide)
    others = parts - 1
    total, squares = held.sum(axis=1, keepdims=True), np.square(held).sum(axis=1, keepdims=True)
    mean = (total - held) / others
    spread = np.maximum(0.0, squares - held**2 - others * mean**2)
    unequal = (chance.sum(axis=1, keepdims=True) - chance) / others**2
    return Contrast(off - mean, spread, float(parts - 2), 1 + unequal / chance)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """All that one family shows in one scope: differences with what they are judged by."""

    family: Family
    name: str  # all, one, cell, cells-all
    d: Floats  # (R, P)
    sd: Floats  # (R, P) about what d varies by, for a first look
    worth: Floats  # (R, P) nats before any price
    price: float  # nats
    tail: SidedTail | None
    floor: float
    evidence: Callable[[Floats, tuple[Ints, Ints]], Floats]  # nats of other differences there
    error: Floats  # (R, P) standard error of d by chance alone

    @property
    def net(self) -> Floats:
        """Nats beyond the price."""
        return self.worth - self.price


def judged(
    family: Family,
    name: str,
    x: Floats,
    chance: Floats,
    df: Floats | float,
    nature: Nature | None,
    *,
    price: float,
    floor: float,
    rows_tell: bool = False,
    tailed: bool = False,
    tick: Floats | float = 0.0,
    singles: SidedTail | None = None,
    of_row: Ints | None = None,
) -> Scope:
    """Judge parts of rows (R, P) whose chance has the variance (R, P)."""
    found = contrast(x, chance, tick)
    df = np.broadcast_to(np.asarray(df, float).reshape(-1, 1) if np.ndim(df) else df, x.shape)
    # What the prior is worth in the first look; the second has the grid.
    nu = df if nature is None else np.full(x.shape, 8.0)
    typical = (0.0 if nature is None else np.square(nature.typical)) + chance
    var = (nu * typical + found.squares) / (nu + found.others)
    sd = np.sqrt(np.maximum(var, typical / 4) * found.grow)
    squares, others = found.squares, np.full(x.shape, found.others)
    if rows_tell and len(x) > 2:  # what the other rows say of how parts differ: half of them do not
        size = np.sort(found.d**2 / found.grow, axis=0)
        half = size[: (len(x) + 1) // 2].sum(axis=0) / 0.0713  # of all, were they normal
        share = (len(x) - 1) / 4  # a half tells as much as a quarter would
        squares = squares + share * half / len(x)
        others = others + share
    z = found.d / sd
    within = np.minimum(np.abs(found.d), np.asarray(tick) / 2)
    apart = (found.d - np.copysign(within, found.d)) / sd
    tail = None
    if tailed and z.size >= 8:
        # Half a tick of a coarse clock is not the tail of anything.
        tail = SidedTail(apart)
    grow = np.broadcast_to(found.grow, x.shape)
    least = 1.5 * np.asarray(tick) / np.sqrt(family.sizes) + np.zeros(x.shape)
    own: dict[int, SidedTail] = {}  # a benchmark's tail, where something stands out of it

    def evidence(d: Floats, at: tuple[Ints, Ints]) -> Floats:
        """Return the nats of differences d of parts `at` (row, part), before any price."""
        away = d / sd[at]
        if nature is None:  # all that copies differ by is chance
            nats = nats_of_t(away, nu[at] + found.others)
        else:
            nats = nature.nats(
                d, chance[at], df[at], grow=grow[at], squares=squares[at], others=others[at]
            )
        if tail is not None:
            # No noise of a few per cent halves or doubles a time.
            usual = (np.abs(d) < _BEYOND) | (sd[at] > _NOISY)
            nats = np.where(usual, np.minimum(nats, tail.nats(away)), nats)
            for row in np.unique(of_row[at[0]]) if of_row is not None else ():
                here = of_row == row
                mine = of_row[at[0]] == row
                mine &= usual
                if here.sum() * x.shape[1] >= _OWN_TAIL_FROM and (nats[mine] > price).any():
                    if row not in own:
                        own[row] = SidedTail(apart[here], tail)
                    nats[mine] = np.minimum(nats[mine], own[row].nats(away[mine]))
        if singles is not None:  # of one or two copies one value makes the difference: of either
            few = family.sizes[at[1]] if x.shape[1] > 2 else np.full(len(d), family.sizes.min())
            jump = np.maximum(0.0, singles.nats(away * np.sqrt(few)) - np.log(few))
            nats = np.where(few < 3, np.minimum(nats, jump), nats)
        return np.where(np.abs(d) < least[at], 0.0, nats)

    worth = np.zeros(x.shape)
    at = np.nonzero(nats_of_t(found.d / np.sqrt(0.25 * typical * grow), 1e6) > price)
    if len(at[0]) > 4000:  # those that may be worth most
        order = np.argsort(-np.abs(z[at]))[:4000]
        at = (at[0][order], at[1][order])
    worth[at] = evidence(found.d[at], at)
    worth[found.d < 0] -= FAST  # few are, and none costs
    if x.shape[1] == 2:
        worth[found.d < 0] = 0.0  # of two the slow one is told
    error = np.sqrt(chance * grow)
    return Scope(family, name, found.d, sd, worth, price, tail, floor, evidence, error)


def part_values(r: Floats, family: Family, sd: Floats) -> Floats:
    """Return the middle of each part's slots in each cell: (B, I, S) to (B, I, P)."""
    if family.single:
        return r
    found = np.empty((*r.shape[:2], len(family.names)))
    for parts, slots in family.members:
        found[:, :, parts] = location(r[:, :, slots], sd[:, None, None])
    return found


def scopes_of(
    r: Floats,
    level: Floats,
    family: Family,
    noise: Noise,
    kinds: int,
    tails: dict[str, SidedTail | None],
) -> Iterator[Scope]:
    """Judge a family in all scopes: all benchmarks, one, one cell, one iteration of all."""
    b, i, s = r.shape
    parts, single = len(family.names), family.single
    base = math.log(kinds / ALPHA) + math.log(parts)
    size = family.sizes[None]
    wide = np.sqrt(noise.one) + noise.step
    x = part_values(r, family, wide)
    once = np.where(family.sizes == 1, 1.0, 1.1)  # a Huber mean's, of normal values
    repeat = noise.again / noise.count
    if single:
        lasting, chance, df = level, np.repeat(repeat[:, None], s, 1), noise.again_df
        nature: Nature | None = COPIES
        if i == 1:  # each is held against the others there, and what other benchmarks show
            usual, lent = lent_variance(noise.one * noise.one_df, noise.one_df, LEAST_NOISE)
            if b == 1:
                usual, lent = _UNKNOWN_NOISE**2, 1.0
            chance, df = chance * 0 + usual, np.full(b, lent)
            nature = None
    else:
        lasting = np.nan_to_num(location(np.swapaxes(x, 1, 2), wide[:, None] / np.sqrt(size)))
        inside = family.part >= 0
        rest = level[:, inside] - lasting[:, family.part[inside]]
        squares = capped_squares(rest, 1)[0]
        free = max(0, int(inside.sum()) - parts)
        if i == 1 and free > 2:  # what parts differ by is not in it
            slot, df = pooled_variances(squares, np.full(b, float(free)), LEAST_NOISE)
        elif i == 1:
            slot, df = noise.one, noise.one_df
        else:
            usual = repeat + 0.002**2
            # Copies of a part that differ lastingly are fewer than their values.
            weight = np.minimum(noise.again_df, 12.0)
            slot, df = (weight * usual + squares) / (weight + free), weight + free
        chance = slot[:, None] / size * once
        nature = PARTS_ONE
    chance = chance + LEAST_NOISE**2
    kind = "copy" if single else "part"
    one = judged(
        family,
        "one",
        lasting,
        chance,
        df,
        nature,
        price=base + math.log(b),
        floor=FLOORS[kind],
        rows_tell=not single,
        tailed=single,
        tick=(noise.step / np.sqrt(noise.count))[:, None],
        singles=tails.get("one") if i < 3 else None,
        of_row=np.arange(b) if b > 1 else None,
    )
    yield one
    if b > 1:
        # Of copies that ran once only the benchmarks' agreement tells.
        known = chance if i > 1 or not single else np.full_like(chance, LEAST_NOISE**2)
        yield _of_all(family, one, lasting, known, base, single)
    if i > 1:
        yield from _of_cells(x, lasting, family, noise, base, tails.get("cell"))


def _of_all(
    family: Family, one: Scope, lasting: Floats, chance: Floats, base: float, single: bool
) -> Scope:
    """Judge parts by all benchmarks together: their mean, and how benchmarks differ in it."""
    b = len(lasting)
    nature = COPIES if single else PARTS_ONE
    weight = 1 / (chance + nature.typical**2)
    total = weight.sum(axis=0)
    mean = (weight * one.d).sum(axis=0) / total
    spread = (weight * (one.d - mean) ** 2).sum(axis=0)
    grow = one.d.shape[1] / (one.d.shape[1] - 1)
    lent = 4.0
    birge = np.maximum(1.0, (lent + spread / grow) / (lent + b - 1))
    var = (birge / total)[None]
    centred = (weight * (lasting - np.median(lasting, axis=1, keepdims=True))).sum(axis=0) / total
    found = judged(
        family,
        "all",
        centred[None],
        var,
        np.array([lent + b - 1.0]),
        COPIES if single else PARTS_ALL,
        price=base,
        floor=FLOORS["copy-all" if single else "part-all"],
        tailed=single and len(mean) > 7,
    )
    return found


def _of_cells(
    x: Floats, lasting: Floats, family: Family, noise: Noise, base: float, tail: SidedTail | None
) -> Iterator[Scope]:
    b, i, parts = x.shape
    single = family.single
    n = noise.count[:, None, None]
    # What lasts is taken from each value as far as it is more than chance.
    middle = lasting - np.median(lasting, axis=1, keepdims=True)
    between = capped_squares(middle, 1)[0] / max(1, parts - 1)
    drawn = (noise.again / noise.count)[:, None] / family.sizes[None]
    shrink = between / np.maximum(between + drawn.mean(axis=1), 1e-12)
    shrink = np.where(between > 2 * drawn.mean(axis=1), shrink, 0.0)[:, None, None]
    rest = (n * lasting[:, None] - np.nan_to_num(x)) / np.maximum(n - 1, 1)
    off = np.nan_to_num(x - shrink * rest)
    here = ~np.isnan(x).all(axis=2)
    again = np.where(shrink[:, 0, 0] > 0, noise.again, noise.one)
    var = again[:, None, None] / family.sizes * (1 + shrink**2 / np.maximum(n - 1, 1))
    var = np.broadcast_to(var * np.where(family.sizes == 1, 1.0, 1.1), x.shape)
    var = var + noise.step[:, None, None] ** 2 / 12 / family.sizes
    rows = here.ravel()
    df = np.repeat(noise.again_df, i)[rows]
    cells = judged(
        family,
        "cell",
        off.reshape(b * i, parts)[rows],
        var.reshape(b * i, parts)[rows],
        df,
        COPIES_CELL if single else PARTS_CELL,
        price=base + math.log(max(1, rows.sum())),
        floor=FLOORS["copy" if single else "part"],
        tailed=single,
        tick=np.repeat(noise.step, i)[rows, None],
        singles=tail,
        of_row=np.repeat(np.arange(b), i)[rows] if b > 1 else None,
    )
    if not here.all():
        whole = [np.zeros((b * i, parts)) for _ in range(3)]
        for cube, values in zip(whole, (cells.d, cells.sd, cells.worth), strict=True):
            cube[rows] = values
        whole[1][~rows] = 1.0
        cells = replace(cells, d=whole[0], sd=whole[1], worth=whole[2])
    yield cells
    if b > 1 and here.all():
        d, sd = cells.d.reshape(b, i, parts), cells.sd.reshape(b, i, parts)
        weight = 1 / sd**2
        total = weight.sum(axis=0)
        mean = (weight * d).sum(axis=0) / total
        spread = (weight * (d - mean) ** 2).sum(axis=0)
        birge = np.maximum(1.0, (4 + spread) / (4 + b - 1))
        chance = birge / total * (parts - 1) / parts
        yield judged(
            family,
            "cells-all",
            mean * (parts - 1) / parts,
            chance,
            4.0 + b - 1,
            PARTS_CELL if not single else COPIES_CELL,
            price=base + math.log(i),
            floor=FLOORS["copy" if single else "part"],
        )


def offered(scope: Scope, r: Floats, noise: Noise, one: Scope | None) -> Iterator[Effect]:
    """Return the effects of a scope that pay."""
    b, i, s = r.shape
    family = scope.family
    every = np.ones(i)
    floor = 0.6 * scope.floor
    pays = (scope.net > 0) & (np.abs(scope.d) > floor)

    def effect(
        p: int, rows: Bools, when: Floats, size: Floats, name: str, nats: float, sd: float
    ) -> Effect:
        k = int(family.sizes[p])
        times = float(np.sum(when**2))
        gain = 0.5 * k * (1 - k / s) * times * float(np.sum(size[rows] ** 2 / noise.again[rows]))
        return Effect(
            family.kind,
            family.masks[p].astype(float),
            rows,
            when,
            np.where(rows, size, 0.0),
            name,
            nats,
            gain - float(rows.sum()),
            sd,
            family.names[p],
        )

    if scope.name == "all" and one is not None:
        for p in np.flatnonzero(pays[0]):
            yield effect(
                p, np.ones(b, bool), every, one.d[:, p], "all", scope.net[0, p], scope.sd[0, p]
            )
    elif scope.name == "one":
        yield from _of_some(scope, b, effect, every, pays)
    elif scope.name == "cell":
        at = np.argwhere(pays)
        order = np.argsort(-scope.net[tuple(at.T)])[:60]
        for row, p in at[order].tolist():
            k, j = divmod(row, i)
            rows = np.arange(b) == k
            yield effect(
                p,
                rows,
                (np.arange(i) == j) * 1.0,
                np.where(rows, scope.d[row, p], 0.0),
                "cell",
                scope.net[row, p],
                scope.sd[row, p],
            )
    elif scope.name == "cells-all":
        for j, p in np.argwhere(pays).tolist():
            yield effect(
                p,
                np.ones(b, bool),
                (np.arange(i) == j) * 1.0,
                np.full(b, scope.d[j, p]),
                "cell",
                scope.net[j, p],
                scope.sd[j, p],
            )


def carried(one: Effect, r: Floats, noise: Noise) -> bool:
    """Tell whether a part's copies carry its difference, or a few that happen to be there."""
    mine = one.slots > 0
    if one.slots.ndim > 1 or mine.sum() < 3 or one.kind not in PARTS:
        return True
    rows, its = np.flatnonzero(one.benchmarks), np.flatnonzero(one.when)
    x = r[np.ix_(rows, its)]
    size = one.size[rows]
    half = np.nanmedian(x[:, :, ~mine], axis=2, keepdims=True) + size[:, None, None] / 2
    beyond = (x - half) * np.sign(one.typical) > 0
    z = np.abs(size) / 2 / np.sqrt(noise.one[rows])
    expected = float(np.mean(1 - 2 * np.exp(ln_tail(z))))
    return bool(beyond[..., mine].mean() - beyond[..., ~mine].mean() > _CARRIED * expected)


def _of_some(scope: Scope, b: int, effect, every: Floats, pays) -> Iterator[Effect]:
    """Return parts in the benchmarks that show them: the clearest m of all, for each m."""
    parts = scope.d.shape[1]
    base = scope.price - math.log(b)
    m = np.arange(1, b + 1)
    ways = np.array(
        [math.lgamma(b + 1) - math.lgamma(k + 1) - math.lgamma(b - k + 1) for k in m.tolist()]
    )
    if b > 1:  # as likely one as several; each further one must be clear by itself
        ways = ways + np.where(m == 1, math.log(2), math.log(2 * (b - 1))) + (m - 1)
    ways = ways[:, None]
    z = scope.d / scope.sd
    for sign in (1, -1):
        worth = np.where(scope.d * sign > 0, scope.worth, 0.0)
        if not worth.any():
            continue
        order = np.argsort(-worth, axis=0)
        ranked = np.take_along_axis(worth, order, axis=0)
        sizes = np.take_along_axis(scope.d * sign, order, axis=0)
        large = sizes > np.maximum(0.5 * scope.floor, 0.1 * np.maximum.accumulate(sizes, axis=0))
        clear = np.take_along_axis(z * sign, order, axis=0) > 2.0
        net = np.where(large & clear, np.cumsum(ranked, axis=0) - ways - base, -1.0)
        net[1:][~(large & clear)[:-1]] = -1.0
        best = net.argmax(axis=0)
        for p in np.flatnonzero(net.max(axis=0) > 0):
            rows = np.isin(np.arange(b), order[: best[p] + 1, p])
            if np.abs(scope.d[rows, p]).max() < 0.6 * scope.floor or (
                rows.sum() == 1 and not pays[rows, p]
            ):
                continue
            yield effect(
                int(p),
                rows,
                every,
                scope.d[:, p],
                "some",
                float(net[best[p], p]),
                float(np.sqrt(np.mean(scope.sd[rows, p] ** 2) / rows.sum())),
            )

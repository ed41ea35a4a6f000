"""Candidates of places: parts of the machine and copies, in benchmarks and iterations; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from rater.analysis.divots.model.effects import (
    ALPHA,
    ENTERS,
    FLOORS,
    LEAST_NOISE,
    CellNoise,
    PartScope,
    ln_choose,
)
from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.nulls import (
    Nature,
    SidedTail,
    capped_squares,
    lent_variance,
    ln_tail,
    location,
    pooled_variances,
)
from rater.analysis.divots.model.table import DivotEffect
from rater.analysis.stats.robust import Bools, Floats

# What healthy parts differ by: 0.2 to 0.4 % between lgroups of healthy servers (published).
PARTS: Final = Nature(0.002, 1.5)
PARTS_CELL: Final = Nature(0.005, 1.6)  # and in one iteration: 0.6 % where memory-bound
COPIES: Final = Nature(0.003, 1.8)
COPIES_CELL: Final = Nature(0.0005, 2.0)
_UNKNOWN_NOISE: Final = 0.01  # of copies that ran once, in one benchmark: worth one value
_HUBER_LOSS: Final = 1.1  # times the variance of a mean, of normal values
_LENT: Final = 4.0  # degrees of freedom that say that benchmarks agree
_LASTING: Final = 12.0  # most values that say how copies of a part differ lastingly
_CARRIED: Final = 0.7  # of what a shift of all copies would show in this noise
_CLEAR: Final = 2.0  # standard deviations of a benchmark that shows a part
_MOST_OFFERED: Final = 60
_LEAST_TIMED: Final = 3  # iterations in which a part may differ from some time on
_SURELY: Final = 2.0  # nats by which it must fit better than throughout, beyond how many there are
_FEW_PARTS: Final = 64


class Places:
    """A family of parts, held against each other in all scopes."""

    def __init__(
        self, r: Floats, level: Floats, family: Family, noise: CellNoise, kinds: int
    ) -> None:
        """Take residuals (B, I, S), slots' lasting levels (B, S) and the number of kinds."""
        self.shape, self.family, self.noise = r.shape, family, noise
        self.single, self.parts = family.kind in ("copy", "moving"), len(family.names)
        self.kind = "copy" if self.single else "part"
        self.base = math.log(kinds / ALPHA) + math.log(self.parts)
        self.loss = np.where(family.sizes == 1, 1.0, _HUBER_LOSS)
        self.wide = np.sqrt(noise.one) + noise.step
        self.x = self._values(r)
        self.level = level

    def _values(self, r: Floats) -> Floats:
        """Return the middle of each part's slots in each cell (B, I, P)."""
        if self.single:
            return r
        found = np.empty((*r.shape[:2], self.parts))
        for parts, slots in self.family.members:
            found[:, :, parts] = location(r[:, :, slots], self.wide[:, None, None])
        return found

    def scopes(self, tails: dict[str, SidedTail | None]) -> Iterator[PartScope]:
        """Judge the family: one benchmark, all, one cell, one iteration of all."""
        b, i, _ = self.shape
        lasting, chance, df, nature = self._copies() if self.single else self._lasting()
        chance = chance + LEAST_NOISE**2
        floors = FLOORS[self.kind], FLOORS[f"{self.kind}-all"]
        one = PartScope(
            family=self.family,
            name="one",
            x=lasting,
            chance=chance,
            df=np.repeat(df[:, None], self.parts, 1),
            nature=nature,
            price=self.base + math.log(b),
            floor=floors[0],
            tick=(self.noise.step / np.sqrt(self.noise.count))[:, None],
            tailed=self.single,
            singles=tails.get("one") if i < 3 else None,
            benchmark=np.arange(b) if b > 1 else np.zeros(0, dtype=np.int64),
        )
        yield one
        if b > 1:
            # Of copies that ran once only the benchmarks' agreement tells.
            known = chance if i > 1 or not self.single else np.full_like(chance, LEAST_NOISE**2)
            of_all = COPIES if self.single else PARTS
            weight = 1 / (known + of_all.typical**2)
            var = _agreed(weight, one.d, self.parts / (self.parts - 1))
            centred = lasting - np.median(lasting, axis=1, keepdims=True)
            mean = (weight * centred).sum(axis=0) / weight.sum(axis=0)
            free = np.full((1, self.parts), _LENT + b - 1)
            yield PartScope(
                family=self.family,
                name="all",
                x=mean[None],
                chance=var[None],
                df=free,
                nature=of_all,
                price=self.base,
                floor=floors[1],
                tick=np.zeros((1, 1)),
                tailed=self.single,
            )
        if i > 1:
            yield from self._cells(lasting, tails.get("cell"))

    def _copies(self) -> tuple[Floats, Floats, Floats, Nature | None]:
        """Return lasting levels of copies, their variance by chance, its freedom, their nature."""
        (b, i, s), noise = self.shape, self.noise
        if i > 1:
            repeat = noise.again / noise.count
            return self.level, np.repeat(repeat[:, None], s, 1), noise.again_df, COPIES
        # Each is held against the others there, and what other benchmarks show.
        usual, lent = lent_variance(noise.one * noise.one_df, noise.one_df, LEAST_NOISE)
        if b == 1:
            usual, lent = _UNKNOWN_NOISE**2, 1.0
        return self.level, np.full((b, s), usual), np.full(b, lent), None

    def _lasting(self) -> tuple[Floats, Floats, Floats, Nature]:
        """Return the same of parts of several copies."""
        (b, i, _), noise, part = self.shape, self.noise, self.family.part
        sd = self.wide[:, None] / np.sqrt(self.family.sizes)
        lasting = np.nan_to_num(location(np.swapaxes(self.x, 1, 2), sd))
        inside = part >= 0
        squares = capped_squares(self.level[:, inside] - lasting[:, part[inside]], 1)[0]
        free = max(0, int(inside.sum()) - self.parts)
        if i > 1:
            usual = noise.again / noise.count + PARTS.typical**2
            weight = np.minimum(noise.again_df, _LASTING)
            slot, df = (weight * usual + squares) / (weight + free), weight + free
        elif free > 2:  # what parts differ by is not in it
            slot, df = pooled_variances(squares, np.full(b, float(free)), LEAST_NOISE)
        else:
            slot, df = noise.one, noise.one_df
        return lasting, slot[:, None] / self.family.sizes * self.loss, df, PARTS

    def _cells(self, lasting: Floats, singles: SidedTail | None) -> Iterator[PartScope]:
        (b, i, _), noise, sizes = self.shape, self.noise, self.family.sizes
        n = noise.count[:, None, None]
        # What lasts is taken from each value as far as it is more than chance.
        middle = lasting - np.median(lasting, axis=1, keepdims=True)
        between = capped_squares(middle, 1)[0] / max(1, self.parts - 1)
        drawn = noise.again / noise.count * float(np.mean(1 / sizes))
        lasts = between > 2 * drawn
        shrink = np.where(lasts, between / np.maximum(between + drawn, 1e-12), 0.0)[:, None, None]
        rest = (n * lasting[:, None] - np.nan_to_num(self.x)) / np.maximum(n - 1, 1)
        off = np.nan_to_num(self.x - shrink * rest)
        again = np.where(lasts, noise.again, noise.one)[:, None, None]
        var = again / sizes * (1 + shrink**2 / np.maximum(n - 1, 1)) * self.loss
        var = var + noise.step[:, None, None] ** 2 / 12 / sizes
        rows = b * i
        nature = COPIES_CELL if self.single else PARTS_CELL
        var = np.broadcast_to(var, off.shape).reshape(rows, -1)
        df = np.repeat(np.repeat(noise.again_df, i)[:, None], self.parts, 1)
        cells = PartScope(
            family=self.family,
            name="cell",
            x=off.reshape(rows, -1),
            chance=var,
            df=df,
            nature=nature,
            price=self.base + math.log(rows),
            floor=FLOORS[self.kind],
            tick=np.repeat(noise.step, i)[:, None],
            tailed=self.single,
            singles=singles,
            benchmark=np.repeat(np.arange(b), i) if b > 1 else np.zeros(0, dtype=np.int64),
        )
        yield cells
        if b > 1 and not np.isnan(self.x).all(axis=2).any():
            d, weight = cells.d.reshape(b, i, -1), 1 / cells.sd.reshape(b, i, -1) ** 2
            share = (self.parts - 1) / self.parts  # of a difference that is in the part's own level
            mean = (weight * d).sum(axis=0) / weight.sum(axis=0) * share
            yield PartScope(
                family=self.family,
                name="cells-all",
                x=mean,
                chance=_agreed(weight, d, 1.0) * share,
                df=np.full(mean.shape, _LENT + b - 1),
                nature=nature,
                price=self.base + math.log(i),
                floor=FLOORS[self.kind],
                tick=np.zeros((1, 1)),
            )

    def offered(self, scope: PartScope, one: PartScope) -> Iterator[DivotEffect]:
        """Return the effects of a scope that pay; `one` has the sizes of each benchmark."""
        b, i, _ = self.shape
        every, all_of = np.ones(i), np.ones(b, dtype=bool)
        pays = (scope.net > 0) & (np.abs(scope.d) > ENTERS * scope.floor)
        if scope.name == "one":
            yield from self._of_some(scope, pays)
            return
        at = np.argwhere(pays)
        for row, p in at[np.argsort(-scope.net[tuple(at.T)])[:_MOST_OFFERED]].tolist():
            net, size = float(scope.net[row, p]), scope.d[row, p]
            if scope.name == "all":
                yield self._effect(p, all_of, every, one.d[:, p], net)
            elif scope.name == "cells-all":
                yield self._effect(p, all_of, (np.arange(i) == row) * 1.0, size, net)
            else:
                yield self._effect(p, *self.noise.cell(row, i), size, net)

    def _effect(self, p: int, rows: Bools, when: Floats, size: Floats, net: float) -> DivotEffect:
        size = np.where(rows, size, 0.0)
        if when.all():
            when, size[rows] = self._timed(p, rows, size[rows])
        slots, name = self.family.masks[p].astype(float), self.family.names[p]
        kind = self.family.kind
        return self.noise.weighed(
            DivotEffect(
                kind=kind, slots=slots, benchmarks=rows, when=when, size=size, nats=net, name=name
            )
        )

    def _timed(self, p: int, rows: Bools, size: Floats) -> tuple[Floats, Floats]:
        """Return when a part differs, if not throughout: from k on, to k, or once; and by what."""
        i, x = self.shape[1], self.x[rows]
        y = x[:, :, p]  # of many parts the cell's middle is that of the others
        if self.parts < _FEW_PARTS:
            y = y - np.median(np.delete(x, p, axis=2), axis=2)
        if i < _LEAST_TIMED or np.isnan(y).any():
            return np.ones(i), size
        nature = (COPIES_CELL if self.single else PARTS_CELL).typical
        var = self.noise.again[rows, None] / self.family.sizes[p] * self.loss[p] + nature**2
        k, later = np.arange(i), np.cumsum(y[:, ::-1], axis=1)[:, ::-1]  # sums from each k on
        total = np.concatenate((later, later[:, :1] - later[:, 1:], y[:, 1:-1]), axis=1)
        many = np.concatenate((i - k, k[1:], np.ones(i - 2)))
        worth = (total**2 / many / var).sum(axis=0)
        best = int(worth.argmax())
        rest = ((y**2 / var).sum() - worth[best]) / (i - 1) / len(y)
        if worth[best] - worth[0] < 2 * max(1.0, rest) * (math.log(3 * i) + _SURELY):
            return np.ones(i), size
        start = best if best < i else 0 if best < 2 * i - 1 else best - 2 * i + 2
        return 1.0 * ((k >= start) & (k < start + many[best])), total[:, best] / many[best]

    def _of_some(self, scope: PartScope, pays: Bools) -> Iterator[DivotEffect]:
        """Return parts in the benchmarks that show them: the clearest m of all, for each m."""
        b, i, _ = self.shape
        m = np.arange(1, b + 1)
        ways = np.array([ln_choose(b, k) for k in m.tolist()])
        if b > 1:  # as likely one as several; each further one must be clear by itself
            ways += np.where(m == 1, math.log(2), math.log(2 * (b - 1))) + (m - 1)
        worth = scope.net + scope.price
        for sign in (1, -1):
            own = np.where(scope.d * sign > 0, worth, 0.0)
            if not own.any():
                continue
            order = np.argsort(-own, axis=0)
            sizes = np.take_along_axis(scope.d * sign, order, axis=0)
            z = np.take_along_axis(scope.d / scope.sd * sign, order, axis=0)
            least = np.maximum(0.5 * scope.floor, 0.1 * np.maximum.accumulate(sizes, axis=0))
            clear = np.cumprod((sizes > least) & (z > _CLEAR), axis=0) > 0
            total = np.cumsum(np.take_along_axis(own, order, axis=0), axis=0)
            net = np.where(clear, total - ways[:, None] - self.base, -1.0)
            best = net.argmax(axis=0)
            for p in np.flatnonzero(net.max(axis=0) > 0).tolist():
                rows = np.isin(np.arange(b), order[: best[p] + 1, p])
                size = float(np.abs(scope.d[rows, p]).max())
                if size >= ENTERS * scope.floor and (rows.sum() > 1 or pays[rows, p].all()):
                    value = float(net[best[p], p])
                    yield self._effect(p, rows, np.ones(i), scope.d[:, p], value)


def _agreed(weight: Floats, d: Floats, grow: float) -> Floats:
    """Return the variance of a weighted mean over benchmarks, by how they agree (Birge)."""
    total = weight.sum(axis=0)
    mean = (weight * d).sum(axis=0) / total
    spread = (weight * (d - mean) ** 2).sum(axis=0) / grow
    return np.maximum(1.0, (_LENT + spread) / (_LENT + len(d) - 1)) / total


def carried(one: DivotEffect, r: Floats, noise: CellNoise) -> bool:
    """Tell whether a part's copies carry its difference, or a few that happen to be there."""
    mine = one.slots > 0
    if one.kind == "sharing" and mine.mean() > 0.5:
        return False  # what most share is the usual way
    if one.slots.ndim > 1 or mine.sum() < 3 or one.name < 0:
        return True
    rows, its = np.flatnonzero(one.benchmarks), np.flatnonzero(one.when)
    x, size = r[np.ix_(rows, its)], one.size[rows]
    half = np.nanmedian(x[:, :, ~mine], axis=2, keepdims=True) + size[:, None, None] / 2
    beyond = (x - half) * np.sign(one.typical) > 0
    z = np.abs(size) / 2 / np.sqrt(noise.one[rows])
    expected = float(np.mean(1 - 2 * np.exp(ln_tail(z))))
    return bool(beyond[..., mine].mean() - beyond[..., ~mine].mean() > _CARRIED * expected)

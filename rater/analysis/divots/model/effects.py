"""One cause as an effect on ln times, what chance makes of values, and parts held against others.

How much healthy parts differ by is a prior (`nulls.Nature`) that the other parts update; how much
chance makes is told by the copies.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.nulls import (
    Nature,
    SidedTail,
    capped_squares,
    location,
    nats_of_t,
    pooled_variances,
)
from rater.analysis.divots.model.table import DivotEffect
from rater.analysis.stats.robust import Bools, Floats, Ints

ALPHA: Final = 0.03  # healthy runs with a place named, were all bounds met; a fifth of it is
LEAST_NOISE: Final = 3e-4  # no repeat agrees better; published, 0.1 % at best
# The smallest sizes (ln) that are told: the user's thresholds, and less where all benchmarks agree.
FLOORS: Final = {"part-all": 0.010, "part": 0.015, "copy-all": 0.015, "copy": 0.030}
ENTERS: Final = 0.6  # of that: smaller effects are in the model, where they blur nothing else
FAST: Final = math.log(20)  # nats that what is fast costs: few are, and none costs the score
_BEYOND, _NOISY = 0.65, 0.03  # ln: half the time, or nearly twice; and the noise of single values
_OWN_TAIL_FROM: Final = 20  # values of a benchmark: fewer tell no tail
_TAIL_FROM: Final = 8  # values of all
_MOST_JUDGED: Final = 4000  # differences that are looked at closely
_WORTH: Final = 8.0  # degrees of freedom of the prior in the first look; the second has the grid
_HALF_OF_NORMAL: Final = 0.0713  # of the squares that the half nearest to zero has
_TICKS: Final = 1.5  # of the clock: a smaller difference is none


class CellNoise(Struct, frozen=True, eq=False, kw_only=True):
    """What chance makes of single values, each benchmark (B,)."""

    again: Floats  # variance of one slot from iteration to iteration
    again_df: Floats
    one: Floats  # variance of one value about its cell
    one_df: Floats
    count: Floats  # iterations that it has
    step: Floats  # of the clock, ln

    def weighed(self, one: DivotEffect) -> DivotEffect:
        """Complete an effect: sizes where it is, scope, and nats of likelihood."""
        rows, when = one.benchmarks, one.when
        one.size = np.where(rows, one.size, 0.0)
        weights = one.slots if one.slots.ndim > 1 else np.outer(when, one.slots)
        spread = float(np.sum(weights**2) - np.sum(weights.sum(axis=1) ** 2) / weights.shape[1])
        variance = self.one if one.slots.ndim > 1 else self.again
        one.gain = 0.5 * spread * float(np.sum(one.size**2 / variance)) - float(rows.sum())
        if not rows.all() or len(rows) == 1:
            one.scope = "some"
        if when.sum() == 1 < len(when):
            one.scope = "cell"
        return one

    def cell(self, at: int, iterations: int) -> tuple[Bools, Floats]:
        """Return the benchmark and the iteration of a cell by its number."""
        k, j = divmod(at, iterations)
        return np.arange(len(self.again)) == k, 1.0 * (np.arange(iterations) == j)


def noise_of(r: Floats, step: Floats) -> tuple[CellNoise, Floats]:
    """Return the noise of residuals (B, I, S), and each slot's lasting level (B, S)."""
    _, i, s = r.shape
    least = np.sqrt(LEAST_NOISE**2 + step**2 / 12)
    squares, n = capped_squares(r, (1, 2), step)
    rough = np.sqrt(squares / max(1, i * s)) + step
    level = np.nan_to_num(location(np.swapaxes(r, 1, 2), rough[:, None]))
    count = np.maximum(np.sum(~np.isnan(r).all(axis=2), axis=1), 1).astype(float)
    one, one_df = pooled_variances(squares, n * (s - 1) / s, least)
    if i < 2:
        return CellNoise(
            again=one, again_df=one_df, one=one, one_df=one_df, count=count, step=step
        ), level
    squares, n = capped_squares(r - level[:, None], (1, 2), step)
    again, df = pooled_variances(squares, n * (s - 1) / s * (count - 1) / count, least)
    return CellNoise(
        again=again, again_df=df, one=one, one_df=one_df, count=count, step=step
    ), level


def ln_choose(n: int, k: int) -> float:
    """Return ln of how many ways there are to choose k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# -- parts against the others of their family ------------------------------------------------------


class PartScope(Struct, eq=False, dict=True, kw_only=True):
    """What one family shows in one scope: R rows (benchmarks or cells), P parts."""

    family: Family
    name: str  # all, one, cell, cells-all
    x: Floats  # (R, P) ln levels
    chance: Floats  # (R, P) variance of each by chance
    df: Floats  # (R, P) degrees of freedom of that
    nature: Nature | None  # None: all that parts differ by is chance
    price: float  # nats that evidence must be worth: how many such differences there are
    floor: float  # smallest size, ln
    tick: Floats  # (R, 1) of the clock, of one slot
    tailed: bool = False  # single copies: a tail learnt from them
    singles: SidedTail | None = None  # of them, for parts of one or two
    benchmark: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of each row

    def __post_init__(self) -> None:
        """Hold each part against the others, which count no more than they may."""
        off = self.x - np.median(self.x, axis=1, keepdims=True)
        middle = np.median(np.abs(off), axis=1, keepdims=True)
        chance = np.sqrt(np.median(self.chance, axis=1, keepdims=True))
        reach = 3 * np.maximum(np.maximum(1.4826 * middle, chance), self.tick / 2)
        held, others = np.clip(off, -reach, reach), self.x.shape[1] - 1
        mean = (held.sum(axis=1, keepdims=True) - held) / others
        whole = np.square(held).sum(axis=1, keepdims=True)
        self.squares = np.maximum(0.0, whole - held**2 - others * mean**2)
        self.others = np.full(self.x.shape, float(others - 1))
        self.d: Floats = off - mean
        unequal = (self.chance.sum(axis=1, keepdims=True) - self.chance) / others**2
        self.grow: Floats = 1 + unequal / self.chance
        usual = 0.0 if self.nature is None else self.nature.typical**2
        self.usual: Floats = usual + self.chance
        worth = self.df if self.nature is None else _WORTH
        var = (worth * self.usual + self.squares) / (worth + self.others)
        # About what d varies by, for a first look.
        self.sd: Floats = np.sqrt(np.maximum(var, self.usual / 4) * self.grow)
        rows = len(self.x)
        if self.nature is not None and not self.tailed and rows > 2:
            # What other rows say of how parts differ: the half that lies together, as a quarter.
            size = np.sort(self.d**2 / self.grow, axis=0)[: (rows + 1) // 2].sum(axis=0)
            share = (rows - 1) / 4
            self.squares = self.squares + share * size / _HALF_OF_NORMAL / rows
            self.others = self.others + share
        self._own: dict[int, SidedTail] = {}

    @property
    def error(self) -> Floats:
        """Standard error of each difference by chance alone (R, P)."""
        return np.sqrt(self.chance * self.grow)

    @cached_property
    def apart(self) -> Floats:
        """Differences in standard deviations, without half a tick, which is no tail (R, P)."""
        tick = np.minimum(np.abs(self.d), self.tick / 2)
        found: Floats = (self.d - np.copysign(tick, self.d)) / self.sd
        return found

    @cached_property
    def tail(self) -> SidedTail | None:
        """How far out single copies lie."""
        least = _TAIL_FROM * (2 if self.name == "all" else 1)
        return SidedTail(self.apart) if self.tailed and self.d.size >= least else None

    def evidence(self, d: Floats, at: tuple[Ints, Ints]) -> Floats:
        """Return the nats of differences d of parts `at` (row, part), before any price."""
        away = d / self.sd[at]
        if self.nature is None:
            nats = nats_of_t(away, self.df[at] + self.others[at])
        else:
            told = {"squares": self.squares[at], "others": self.others[at]}
            nats = self.nature.nats(d, self.chance[at], self.df[at], grow=self.grow[at], **told)
        # No noise of a few per cent halves or doubles a time.
        usual = (np.abs(d) < _BEYOND) | (self.sd[at] > _NOISY)
        if self.tail is not None:
            nats = np.where(usual, np.minimum(nats, self.tail.nats(away)), nats)
            self._hold_to_own_tail(nats, away, at[0], usual)
        if self.singles is not None:  # of one or two copies one value makes it: of either
            sizes = self.family.sizes
            few = sizes[at[1]] if len(sizes) > 2 else np.full(len(d), sizes.min())
            jump = np.maximum(0.0, self.singles.nats(away * np.sqrt(few)) - np.log(few))
            nats = np.where(few < 3, np.minimum(nats, jump), nats)
        ticks = _TICKS * np.broadcast_to(self.tick / np.sqrt(self.family.sizes), self.x.shape)
        return np.where(np.abs(d) < ticks[at], 0.0, nats)

    def _hold_to_own_tail(self, nats: Floats, away: Floats, row: Ints, usual: Bools) -> None:
        """Lower nats, in place, to what a benchmark's own tail says where something pays."""
        for one in np.unique(self.benchmark[row]).tolist() if len(self.benchmark) else ():
            mine = (self.benchmark[row] == one) & usual
            here = self.benchmark == one
            if here.sum() * self.x.shape[1] < _OWN_TAIL_FROM or not (nats[mine] > self.price).any():
                continue
            if one not in self._own:
                self._own[one] = SidedTail(self.apart[here], self.tail)
            nats[mine] = np.minimum(nats[mine], self._own[one].nats(away[mine]))

    @cached_property
    def net(self) -> Floats:
        """Nats beyond the price (R, P); of two parts the slow one is told."""
        worth = np.zeros(self.x.shape)
        far = nats_of_t(2 * self.d / np.sqrt(self.usual * self.grow), 1e6) > self.price
        row, part = np.nonzero(far)
        order = np.argsort(-np.abs(self.apart[row, part]))[:_MOST_JUDGED]
        at: tuple[Ints, Ints] = (row[order], part[order])
        worth[at] = self.evidence(self.d[at], at)
        worth[self.d < 0] = 0.0 if self.x.shape[1] == 2 else worth[self.d < 0] - FAST
        return worth - self.price

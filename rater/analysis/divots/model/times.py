"""What all copies share over the iterations: single ones, steps, warm-ups, trends; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.effects import LEAST_NOISE, ln_choose
from rater.analysis.divots.model.nulls import Nature, least_that
from rater.analysis.divots.model.series import Judged, Rows, estimates, pattern, trend_of
from rater.analysis.divots.model.table import DivotEffect
from rater.analysis.stats.robust import Bools, Floats, Ints

ALPHA: Final = 0.015  # healthy runs with an iteration, step or trend named, were all bounds met
COMMON: Final = Nature(0.003, 2.2)  # how iterations differ in what all benchmarks share
OWN: Final = Nature(0.008, 2.8)  # and one benchmark by itself
FLOOR_ALL: Final = 0.015
FLOOR_ONE: Final = 0.025
_PRICE: Final = math.log(6 / ALPHA)  # single, step, trend; of all benchmarks or one
_MOST_FOUND: Final = 12
_MANY: Final = 40  # iterations: so many stand several slow ones among them
_MOST_TOLD = 0.5  # of what is visible, ln
_VARIES: Final = 0.2  # of a size: benchmarks that differ by so much have one each
_SHOWS: Final = 0.4  # of a size: the middle benchmark has it, and one beside the others
_TICKS, _TICKS_OF_MANY = 1.5, 0.75  # of the clock, in one iteration and in several


class TimeSeries(Struct, frozen=True, eq=False):
    """Middles of the cells over the iterations."""

    middles: Floats  # (B, I) ln, NaN where not run
    chance: Floats  # (B,) variance of one by the noise of its copies
    df: Floats  # (B,) degrees of freedom of that
    step: Floats  # (B,) tick of the clock, ln

    def whole(self, effects: Sequence[DivotEffect] = ()) -> tuple[Ints, TimeSeries]:
        """Return the benchmarks that ran every iteration, and their series without effects."""
        rows = np.flatnonzero(~np.isnan(self.middles).any(axis=1))
        y, step = self.middles[rows], self.step[rows]
        for one in effects:
            y = y - one.size[rows][:, None] * one.when
        chance = self.chance[rows] + LEAST_NOISE**2 + step**2 / 6
        return rows, TimeSeries(_levelled(y), chance, self.df[rows], step)


class _Best(Struct, frozen=True, eq=False, kw_only=True):
    """A pattern that pays."""

    h: int
    size: Floats  # (R,), 0 in rows that do not have it
    nats: float  # beyond the price
    gain: float
    error: float


def search_times(series: TimeSeries, slots: int) -> list[DivotEffect]:
    """Find what all copies have over the iterations."""
    b, i = series.middles.shape
    found: list[DivotEffect] = []
    for taken in range(_MOST_FOUND if i > 1 else 0):
        rows, whole = series.whole(found)
        best = _best(whole, taken) or _of_several(whole, taken) if len(rows) else None
        if best is None:
            break
        when, scope = pattern(best.h, i)
        size = np.zeros(b)
        size[rows] = best.size
        here = size != 0
        if scope == "step" and best.size.sum() < 0 and when[-1] > 0:
            when, size = 1 - when, -size  # the slow side is told
        kind, every = "iterations", np.ones(slots)
        found.append(
            DivotEffect(
                kind=kind,
                slots=every,
                benchmarks=here,
                when=when,
                size=size,
                nats=best.nats,
                scope=scope,
                gain=best.gain,
            )
        )
    return found


def visible_iteration(series: TimeSeries, effects: Sequence[DivotEffect]) -> float | None:
    """Return the size (ln) from which four in five slow iterations of all benchmarks are found.

    None where there are too few to tell.
    """
    rows, whole = series.whole([effect for effect in effects if effect.kind == "iterations"])
    y = whole.middles
    if y.shape[1] < 3 or not len(rows):
        return None
    at = int(np.argsort(np.abs(y.mean(axis=0)))[y.shape[1] // 2])
    errors = [0.0]

    def seen(size: Floats) -> Bools:
        planted = y.copy()
        planted[:, at] = size
        best = _best(replace(whole, middles=planted), 0, alone=len(y) == 1)
        found = best is not None and best.h == at and bool(best.size.all())
        errors.extend([best.error] if best and found else [])
        return np.array([found])

    least = float(least_that(seen, np.zeros(1), np.array([_MOST_TOLD]), 8)[0])
    return least + 0.84 * errors[-1] if least < _MOST_TOLD else None


def _of_several(whole: TimeSeries, taken: int) -> _Best | None:
    """Return the least of a few iterations that only show where the others of them are left out."""
    y, (rows, i) = whole.middles, whole.middles.shape
    for m in range(2, (i - 1) // 2 + 1 if i < _MANY else 0):
        at = np.argsort(-y.mean(axis=0))[:m]
        held = y.copy()
        held[:, at[:-1]] = np.median(np.delete(y, at, axis=1), axis=1, keepdims=True)
        best = _best(replace(whole, middles=held), taken + m - 1, alone=rows == 1)
        ways = ln_choose(i, m) - math.log(i)
        if best is not None and best.h == at[-1] and best.size.max() > 0 and best.nats > ways:
            return best
    return None


def _levelled(y: Floats) -> Floats:
    return y - np.median(y, axis=1, keepdims=True)


def _best(whole: TimeSeries, taken: int, *, alone: bool = True) -> _Best | None:
    """Return the pattern that gains most of those that pay, of all benchmarks or (`alone`) one."""
    y, chance, (rows, i) = whole.middles, whole.chance, whole.middles.shape
    found: list[_Best] = []
    if rows > 1:
        apart = np.sum((y - y.mean(axis=0)) ** 2, axis=1) * rows / (rows - 1) / (i - 1)
        var = np.maximum(apart, chance)
        # A benchmark that varies little for once is not believed to: the others lend.
        weight = 1 / ((var * (i - 1) + np.median(var) * 4) / (i + 3))
        together = (weight[:, None] * y).sum(axis=0, keepdims=True) / weight.sum()
        known, free = np.array([1 / weight.sum()]), np.array([(rows - 1.0) * (i - 1)])
        judged = Rows(y=together, chance=known, df=free, nature=COMMON, taken=taken).judged()
        found += _paying(judged, estimates(y, 0.0).effect, whole.step * 0, None, i)
    if alone:
        views = [y]
        if rows > 2:  # one benchmark's own shows by itself and beside the others
            views.append(y - (y.sum(axis=0) - y) / (rows - 1))
        sizes = [estimates(view, 0.0).effect for view in views]
        least = np.minimum(np.abs(sizes[0]), np.abs(sizes[-1])) * (sizes[0] * sizes[-1] > 0)
        for view in views:
            judged = Rows(y=view, chance=chance, df=whole.df, nature=OWN, taken=taken).judged()
            found += _paying(judged, least, whole.step, len(views), i)
    return max(found, key=lambda it: it.gain, default=None)


def _paying(
    judged: Sequence[Judged], each: Floats, step: Floats, views: int | None, i: int
) -> Iterator[_Best]:
    """Return the patterns over i iterations that pay.

    `each` has all sizes by row (R, H); `views` of one row, None: of all together.
    """
    rows = len(each)
    for row, h, size, error, nats, gain in judged:
        ways = i if h < i else 1 if h == trend_of(i) else max(1, i - 3)
        net = nats - _PRICE - math.log(ways) - (math.log(views * rows) if views else 0.0)
        floor = FLOOR_ONE if views else FLOOR_ALL
        tick = step[row] * (_TICKS if h < i else _TICKS_OF_MANY)
        if net <= 0 or abs(size) < max(floor, tick) or (h > trend_of(i) and size < 0):
            continue  # what wears off was slow
        shown = abs(each[row, h]) if views else np.median(each[:, h]) * math.copysign(1, size)
        if shown >= _SHOWS * abs(size):
            own = (np.arange(rows) == row) | (views is None)
            # Rows that differ by more than a part of the size have their own.
            apart = float(np.median(np.abs(each[:, h] - size)))
            varies = own.all() and rows > 1 and apart > _VARIES * abs(size)
            yield _Best(
                h=h,
                size=np.where(own, each[:, h] if varies else size, 0.0),
                nats=net,
                gain=gain,
                error=error,
            )

"""The search: candidates enter one by one while they pay, and all sizes are estimated anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model import spread
from rater.analysis.divots.model.effects import FLOORS, CellNoise, DivotEffect, PartScope, noise_of
from rater.analysis.divots.model.families import Family, families_of, start_order
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.layout import LayoutEffect, fit_layout
from rater.analysis.divots.model.nulls import SidedTail, location
from rater.analysis.divots.model.places import Places, carried
from rater.analysis.divots.model.table import Table, clock_steps
from rater.analysis.divots.model.times import TimeSeries, search_times
from rater.analysis.stats.robust import Floats, Ints, median

_ROUNDS: Final = 40
_FEW: Final = 3  # times of a run that say nothing of each other
_LEAVES: Final = 0.5  # of the smallest size that is told: what is less is in the model no more
_OF_COPIES: Final = ("copy", "copies", "modes", "moving")


class Found(Struct, eq=False):
    """All that was found in a run, with what words and promises are made from."""

    table: Table
    effects: list[DivotEffect]
    predicted: list[LayoutEffect]
    rest: Floats  # (B, I, S) what nothing explains, about the cells' middles
    scopes: list[PartScope]  # of the last look, for promises
    over_time: TimeSeries
    parts: dict[bytes, tuple[str, tuple[int, ...]]]  # kind and name, by their slots


class _Look(Struct, eq=False):
    """One look at what is left of the times: what pays there."""

    table: Table
    families: list[Family]
    order: Floats
    step: Floats
    parts: dict[bytes, tuple[str, tuple[int, ...]]]

    @property
    def kinds(self) -> int:
        """Sorts of candidates, which share what may be named in healthy runs."""
        return 4 * len(self.families) + 4

    def candidates(self, r: Floats) -> tuple[list[DivotEffect], list[PartScope], CellNoise]:
        """Return all that pays in residuals (B, I, S), and what it was judged by."""
        noise, level = noise_of(r, self.step)
        found: list[DivotEffect] = []
        scopes: list[PartScope] = []
        tails: dict[str, SidedTail | None] = {}
        for family in reversed(self.families):  # single copies first: parts of few have their tails
            places = Places(r, level, family, noise, self.kinds)
            own: list[PartScope] = []
            for scope in places.scopes(tails):
                own.append(scope)
                found += places.offered(scope, own[0])
                if places.single:
                    tails[scope.name] = scope.tail
                    found += spread.together(scope, noise, self.kinds, r.shape[1])
            scopes += own
        found += spread.slopes(r, level, self.order, noise, self.kinds)
        found += spread.two_sorts(r, level, noise, self.kinds)
        if not self.table.fixed and r.shape[1] > 1:
            found += self._moving(r)
        taken = np.zeros(r.shape[:2], bool)
        for one in found:  # what is in a cell for another reason is no start-up
            taken |= one.cells
        wide = spread.unsettled(r, noise, self.kinds)
        found += [one for one in wide if not taken[one.benchmarks, 0].any()]
        for one in found:  # sets of copies that are just a part by its name
            if one.kind in ("modes", "copies") and one.slots.ndim == 1:
                usual = one.kind, (one.name,)
                one.kind, (one.name,) = self.parts.get((one.slots > 0).tobytes(), usual)
        found = _spelt_out(found)
        return [one for one in found if carried(one, r, noise)], scopes, noise

    def _moving(self, r: Floats) -> Iterator[DivotEffect]:
        names, by_copy = values_by_copy(self.table, r)
        copies = Family("copy", np.arange(len(names)), tuple(int(name) for name in names))
        noise, level = noise_of(by_copy, self.step)
        places = Places(by_copy, level, copies, noise, self.kinds)
        own: list[PartScope] = []
        for scope in places.scopes({}):
            own.append(scope)
            for one in places.offered(scope, own[0]) if scope.name in ("one", "all") else ():
                one.slots, one.kind = (self.table.copy == one.name).astype(float), "moving"
                yield one


def search(table: Table, thresholds: Thresholds) -> Found:
    """Find what is slow, or fast, in a run."""
    layout, predicted = fit_layout(table)
    families = families_of(table)
    parts: dict[bytes, tuple[str, tuple[int, ...]]] = {
        mask.tobytes(): (family.kind, (name,))
        for family in reversed(families)  # the first name stands
        if family.kind != "copy"
        for mask, name in zip(family.masks, family.names, strict=True)
    }
    look = _Look(table, families, start_order(table), clock_steps(table), parts)
    ran = ~np.isnan(table.log_s)
    most = 2 * ran.sum(axis=2, keepdims=True) > ran.any(axis=(0, 1)).sum()
    left = np.where(most, table.log_s - layout[:, None], np.nan)  # less all effects
    b, _, s = table.shape
    effects: list[DivotEffect] = []
    scopes: list[PartScope] = []
    chance, df, wide = np.zeros(b), np.full(b, 1e6), np.ones(b)
    alone = s == 1 or table.log_s.size <= _FEW  # nothing to compare with
    for _ in range(0 if alone else _ROUNDS):
        found, scopes, noise = look.candidates(left - centre(left))
        chance, df, wide = noise.one / s, noise.one_df, np.sqrt(noise.one)
        known = {one.key for one in effects}
        entered = _entering([one for one in found if one.key not in known], table.shape[:2])
        if not entered:
            break
        for one in entered:
            one.add_to(left, -1.0)
        effects = _refitted(effects + entered, left)
    over_time = TimeSeries(location(left, wide[:, None]), chance, df, look.step)
    rest = left - centre(left)
    effects += search_times(over_time, s)
    effects = [one for one in effects if _told(one, thresholds)]
    return Found(table, effects, predicted, rest, scopes, over_time, look.parts)


def values_by_copy(table: Table, values: Floats) -> tuple[Ints, Floats]:
    """Return copies' numbers (C,) ascending, and values (B, I, S) by copy: (B, I, C)."""
    names = np.unique(table.copy[table.copy >= 0])
    by_copy = np.full((*table.shape[:2], len(names)), np.nan)
    where = np.argwhere((table.copy >= 0) & ~np.isnan(values))
    column = np.searchsorted(names, table.copy[tuple(where.T)])
    by_copy[where[:, 0], where[:, 1], column] = values[tuple(where.T)]
    return names, by_copy


def centre(values: Floats) -> Floats:
    """Return the middle of each cell (B, I, 1), NaN where there is none."""
    if values.shape[2] == 1:
        return values
    gaps = bool(np.isnan(values).any())
    return median(values)[..., None] if gaps else np.median(values, axis=2, keepdims=True)


# -- which enter -----------------------------------------------------------------------------------


def _spelt_out(found: list[DivotEffect]) -> list[DivotEffect]:
    """Return candidates that say no other in other words, and no set of copies that are ones."""
    alone: dict[tuple[bytes, bytes], set[int]] = {}
    for one in found:
        if one.kind == "copy":
            alone.setdefault(one.key[1:], set()).add(one.name)
    slow = {one.key for one in found if one.slots.ndim == 1 and one.typical > 0}
    found = [  # of a part and all others the slow side is told
        one
        for one in found
        if one.typical > 0
        or one.slots.ndim > 1
        or ((1.0 - one.slots).tobytes(), *one.key[1:]) not in slow
    ]
    return [
        one
        for one in found
        if one.kind not in ("copies", "modes")
        or one.slots.ndim > 1
        or not set(np.flatnonzero(one.slots).tolist()) <= alone.get(one.key[1:], set())
    ]


def _entering(found: list[DivotEffect], shape: tuple[int, ...]) -> list[DivotEffect]:
    """Return those that enter at once: the one that gains most, and others in untouched cells."""
    entered: list[DivotEffect] = []
    taken = np.zeros(shape, bool)
    for one in sorted(found, key=lambda one: -one.gain):
        at = np.outer(one.benchmarks, (one.when != 0) | (one.scope != "cell"))
        if not (taken & at).any():
            entered.append(one)
            taken |= at
        if one.scope == "all" or taken.all():
            break
    return entered


# -- their sizes -----------------------------------------------------------------------------------


def _refitted(effects: list[DivotEffect], left: Floats) -> list[DivotEffect]:
    """Estimate all sizes anew, in place of `left` too; what has become too small leaves."""
    for _ in range(2):
        for one in effects:
            one.add_to(left)
            _resize(one, left)
            one.add_to(left, -1.0)
    kept = [one for one in effects if abs(one.typical) >= _LEAVES * _floor(one)]
    for one in effects:
        if one not in kept:
            one.add_to(left)
    return kept


def _floor(one: DivotEffect) -> float:
    """Return the smallest size, ln, that an effect is told from."""
    if one.kind in ("gradient", "unsettled"):
        return spread.SLOPE_FLOOR if one.kind == "gradient" else 0.0
    kind = "copy" if one.kind in _OF_COPIES else "part"
    most = one.scope == "all" or (one.scope == "some" and one.benchmarks.mean() > 0.5)
    return FLOORS[f"{kind}-all" if most and len(one.benchmarks) > 1 else kind]


def _told(one: DivotEffect, thresholds: Thresholds) -> bool:
    """Tell whether an effect is large enough for a word; a fast one must be twice as large.

    By default what is slow in all benchmarks counts from less; a larger threshold is meant as it
    is said.
    """
    if one.kind == "iterations":
        return True
    usual, copies = Thresholds(), one.kind in _OF_COPIES and one.benchmarks.sum() < 2
    least, by_default = (thresholds.copy, usual.copy) if copies else (thresholds.group, usual.group)
    if least > by_default:
        return float(np.max(np.abs(np.expm1(one.size)))) >= least
    size = float(np.max(np.abs(one.size))) if one.scope == "some" else abs(one.typical)
    return size >= _floor(one) * (2.0 if one.typical < 0 and one.kind != "gradient" else 1.0)


def _resize(one: DivotEffect, left: Floats) -> None:
    """Set the sizes of an effect: its slots' middle less that of the others, in its iterations."""
    rows, its = np.flatnonzero(one.benchmarks), np.flatnonzero(one.when)
    here = left[np.ix_(rows, its)]
    if one.kind == "unsettled":
        return
    if one.kind == "gradient":
        y = here - np.nanmedian(here, axis=2, keepdims=True)
        flat = np.nan_to_num(location(np.swapaxes(y, 1, 2), np.inf))
        flat -= flat.mean(axis=1, keepdims=True)
        one.size[rows] = flat @ one.slots / (one.slots @ one.slots)
        return
    if one.slots.ndim == 1:
        mine = one.slots > 0
        off = np.abs(here - centre(here)).reshape(len(rows), -1)
        rough = np.maximum(1.4826 * median(off), 1e-6)[:, None]
        inside, others = location(here[:, :, mine], rough), here[:, :, ~mine]
        d = inside - (median(others) if mine.sum() == 1 else location(others, rough))
        few = max(1, min(int(mine.sum()), int((~mine).sum())))
        one.size[rows] = np.nan_to_num(location(d, rough[:, 0] / np.sqrt(few)))
        return
    mask = one.slots[its] > 0 if one.slots.ndim == 2 else one.slots[rows][:, its] > 0
    x = here - np.nanmedian(np.where(mask, np.nan, here), axis=2, keepdims=True)
    one.size[rows] = np.nanmedian(np.where(mask, x, np.nan).reshape(len(rows), -1), axis=1)

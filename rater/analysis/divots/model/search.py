"""The search: candidates enter one by one while they pay, and all sizes are estimated anew."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model import spread
from rater.analysis.divots.model.effects import FLOORS, CellNoise, PartScope, noise_of
from rater.analysis.divots.model.families import Family, families_of, start_order
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.layout import fit_layout
from rater.analysis.divots.model.nulls import SidedTail, location
from rater.analysis.divots.model.places import Places, carried
from rater.analysis.divots.model.table import DivotEffect, Table, clock_steps
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
    predicted: list[DivotEffect]
    rest: Floats  # (B, I, S) what nothing explains, about the cells' middles
    scopes: list[PartScope]  # of the last look, for promises
    over_time: TimeSeries
    parts: dict[bytes, tuple[str, tuple[int, ...]]]  # kind and name, by their slots


class _Look(Struct, eq=False, kw_only=True):
    """One look at what is left of the times: what pays there, and what it was judged by."""

    table: Table
    families: list[Family]
    order: Floats
    step: Floats
    parts: dict[bytes, tuple[str, tuple[int, ...]]]
    noise: CellNoise | None = None
    scopes: list[PartScope] = field(default_factory=list)

    def candidates(self, r: Floats) -> list[DivotEffect]:
        """Return all that pays in residuals (B, I, S)."""
        kinds = 4 * len(self.families) + 4  # they share what may be named in healthy runs
        self.noise, level = noise_of(r, self.step)
        noise, self.scopes = self.noise, []
        found: list[DivotEffect] = []
        tails: dict[str, SidedTail | None] = {}
        # Single copies first: parts of few have their tails.
        looks = [(r, level, family, noise) for family in reversed(self.families)]
        if not self.table.fixed and r.shape[1] > 1:
            names, by_copy = values_by_copy(self.table, r)
            moving = Family("moving", np.arange(len(names)), tuple(names.tolist()))
            own_noise, own_level = noise_of(by_copy, self.step)
            looks.append((by_copy, own_level, moving, own_noise))
        for values, its_level, family, its_noise in looks:
            moves = family.kind == "moving"
            own: list[PartScope] = []
            places = Places(values, its_level, family, its_noise, kinds)
            for scope in places.scopes({} if moves else tails):
                own.append(scope)
                found += (
                    places.offered(scope, own[0]) if not moves or "cell" not in scope.name else ()
                )
                if family.kind == "copy":
                    tails[scope.name] = scope.tail
                    found += spread.together(scope, noise, kinds, r.shape[1])
            self.scopes += own
        for one in found:
            if one.kind == "moving":
                one.slots = (self.table.copy == one.name).astype(float)
        found += spread.slopes(r, level, self.order, noise, kinds)
        found += spread.two_sorts(r, level, noise, kinds)
        taken = np.any([one.cells[:, 0] for one in found], axis=0) if found else np.zeros(1, bool)
        for one in spread.unsettled(r, noise, kinds):
            if not (taken & one.benchmarks).any():  # for no other reason
                found.append(one)
        for one in found:  # sets of copies that are just a part by its name
            if one.kind in ("modes", "copies") and one.slots.ndim == 1:
                usual = one.kind, (one.name,)
                one.kind, (one.name,) = self.parts.get((one.slots > 0).tobytes(), usual)
        return [one for one in _spelt_out(found) if carried(one, r, noise)]


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
    look = _Look(
        table=table,
        families=families,
        order=start_order(table),
        step=clock_steps(table),
        parts=parts,
    )
    ran = ~np.isnan(table.log_s)
    most = 2 * ran.sum(axis=2, keepdims=True) > ran.any(axis=(0, 1)).sum()
    left = np.where(most, table.log_s - layout[:, None], np.nan)  # less all effects
    effects: list[DivotEffect] = []
    b, _, s = table.shape
    alone = s == 1 or table.log_s.size <= _FEW  # nothing to compare with
    for _ in range(0 if alone else _ROUNDS):
        known = {effect.key for effect in effects}
        found = [
            candidate
            for candidate in look.candidates(left - centre(left))
            if candidate.key not in known
        ]
        entered = _entering(found, table.shape[:2])
        if not entered:
            break
        for one in entered:
            one.add_to(left, -1.0)
        effects = _refitted(effects + entered, left)
    if look.noise is None:
        over_time = TimeSeries(centre(left)[..., 0], np.zeros(b), np.full(b, 1e6), look.step)
    else:
        chance, df = look.noise.one / s, look.noise.one_df
        middles = location(left, np.sqrt(look.noise.one)[:, None])
        over_time = TimeSeries(middles, chance, df, look.step)
    rest = left - centre(left)
    effects += search_times(over_time, s)
    effects = [effect for effect in effects if _told(effect, thresholds)]
    return Found(table, effects, predicted, rest, look.scopes, over_time, parts)


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

    def in_other_words(one: DivotEffect) -> bool:
        if one.slots.ndim > 1:
            return False
        singles = one.kind in ("copies", "modes") and (
            {*np.flatnonzero(one.slots).tolist()} <= alone.get(one.key[1:], set())
        )  # and of a part and all others the slow side is told
        return singles or (one.typical <= 0 and ((1.0 - one.slots).tobytes(), *one.key[1:]) in slow)

    return [one for one in found if not in_other_words(one)]


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
    kept = [effect for effect in effects if abs(effect.typical) >= _LEAVES * _floor(effect)]
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
    copies = one.kind in _OF_COPIES and one.benchmarks.sum() < 2
    least, usual = ((it.copy if copies else it.group) for it in (thresholds, Thresholds()))
    size = float(np.max(np.abs(one.size))) if one.scope == "some" else abs(one.typical)
    if one.kind == "iterations":
        return True
    if least > usual:
        return float(np.max(np.abs(np.expm1(one.size)))) >= least
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

"""The search: candidates enter one by one while they pay, and all sizes are estimated anew; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rater.analysis.divots.model import spread
from rater.analysis.divots.model.families import Family, families_of, start_order
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.layout import LayoutEffect, fit_layout
from rater.analysis.divots.model.nulls import SidedTail, location
from rater.analysis.divots.model.places import (
    FLOORS,
    Effect,
    Noise,
    Scope,
    carried,
    noise_of,
    offered,
    scopes_of,
)
from rater.analysis.divots.model.table import Table, clock_steps
from rater.analysis.divots.model.times import Series, search_times
from rater.analysis.stats.robust import Floats, Ints, median

_ROUNDS: Final = 40


@dataclass(slots=True, eq=False)
class Found:
    """All that was found in a run, with what words and promises are made from."""

    table: Table
    families: list[Family]
    effects: list[Effect]
    predicted: list[LayoutEffect]
    rest: Floats  # (B, I, S) what nothing explains, about the cells' middles
    noise: Noise | None
    scopes: list[Scope]  # of the last look, for promises
    over_time: Series


def values_by_copy(table: Table, values: Floats) -> tuple[Ints, Floats]:
    """Return copies' numbers (C,) ascending, and values (B, I, S) by copy: (B, I, C)."""
    names = np.unique(table.copy[table.copy >= 0])
    by_copy = np.full((*table.shape[:2], len(names)), np.nan)
    where = np.argwhere((table.copy >= 0) & ~np.isnan(values))
    column = np.searchsorted(names, table.copy[tuple(where.T)])
    by_copy[where[:, 0], where[:, 1], column] = values[tuple(where.T)]
    return names, by_copy


def _moving(table: Table, r: Floats, step: Floats, kinds: int) -> list[Effect]:
    """Return copies that are slow, or fast, wherever they run."""
    names, by_copy = values_by_copy(table, r)
    copies = Family("copy", np.arange(len(names)), tuple(int(name) for name in names))
    noise, level = noise_of(by_copy, step)
    found: list[Effect] = []
    one: Scope | None = None
    for scope in scopes_of(by_copy, level, copies, noise, kinds, {}):
        one = scope if scope.name == "one" else one
        if scope.name in ("one", "all"):
            found += offered(scope, by_copy, noise, one)
    for it in found:
        it.slots = (table.copy == it.name).astype(float)
        it.kind = "moving"
    return found


def centre(values: Floats) -> Floats:
    """Return the middle of each cell (B, I, 1), NaN where there is none."""
    if values.shape[2] == 1:
        return values
    if np.isnan(values).any():
        return median(values)[..., None]
    return np.median(values, axis=2, keepdims=True)


def total(effects: list[Effect], shape: tuple[int, int, int]) -> Floats:
    """Return the sum of effects (B, I, S)."""
    cube = np.zeros(shape)
    for one in effects:
        one.add_to(cube)
    return cube


def search(table: Table, thresholds: Thresholds) -> Found:
    """Find what is slow, or fast, in a run."""
    layout, predicted = fit_layout(table)
    step = clock_steps(table)
    y = table.log_s - layout[:, None]
    shape = table.shape
    families = families_of(table)
    kinds = 4 * len(families) + 4
    order = start_order(table)
    effects: list[Effect] = []
    scopes: list[Scope] = []
    noise: Noise | None = None
    r = np.zeros(shape)
    alive = ~np.isnan(y)
    half = alive.sum(axis=2, keepdims=True) * 2 > alive.any(axis=(0, 1)).sum()
    y = np.where(half, y, np.nan)
    left = y.copy()  # less all effects
    if shape[2] > 1:
        for _ in range(_ROUNDS):
            r = left - centre(left)
            noise, level = noise_of(r, step)
            scopes = []
            found: list[Effect] = []
            tails: dict[str, SidedTail | None] = {}
            for family in reversed(families):  # single copies first: parts of few have their tails
                lasting: Scope | None = None
                for scope in scopes_of(r, level, family, noise, kinds, tails):
                    lasting = scope if scope.name == "one" else lasting
                    scopes.append(scope)
                    found += offered(scope, r, noise, lasting)
                    if family.single:
                        tails[scope.name] = scope.tail
                    if family.single and scope.name in ("one", "cell"):
                        found += spread.together(scope, r, noise, kinds)
            found += spread.slopes(r, level, order, noise, kinds)
            found += spread.two_sorts(r, noise, kinds)
            taken = np.zeros(shape[:2], bool)
            for one in found:  # what is in a cell for another reason is no start-up
                taken |= np.outer(one.benchmarks, one.when != 0)
            wide = spread.unsettled(r, noise, kinds)
            found += [one for one in wide if not taken[one.benchmarks, 0].any()]
            if not table.fixed and shape[1] > 1:
                found += _moving(table, r, step, kinds)
            found = _spelt_out(_named(found, families))
            have = {one.key for one in effects}
            found = [one for one in found if one.key not in have and carried(one, r, noise)]
            if not found:
                break
            entered = _entering(found, shape)
            for one in entered:
                one.add_to(left, -1.0)
            effects += entered
            effects = refit(effects, left)
    r = left - centre(left)
    if noise is not None:
        noise, _ = noise_of(r, step)
    if noise is None:
        chance, df = np.zeros(shape[0]), np.full(shape[0], 1e6)
    else:
        chance, df = noise.one / shape[2], noise.one_df
    middles = location(left, np.sqrt(noise.one)[:, None] if noise is not None else 1.0)
    over_time = Series(middles, chance, df, step)
    effects += search_times(over_time, shape[2])
    effects = [one for one in effects if told(one, thresholds)]
    return Found(table, families, effects, predicted, r, noise, scopes, over_time)


def told(one: Effect, thresholds: Thresholds) -> bool:
    """Tell whether an effect is large enough for a word; a fast one must be twice as large.

    By default what is slow in all benchmarks counts from less; a larger threshold is meant as it
    is said.
    """
    usual = Thresholds()
    copies = one.kind in ("copy", "copies", "modes", "moving") and one.benchmarks.sum() < 2
    least, by_default = (thresholds.copy, usual.copy) if copies else (thresholds.group, usual.group)
    if one.kind != "iterations" and least > by_default:
        return float(np.max(np.abs(np.expm1(one.size)))) >= least
    if one.kind == "iterations":
        return True
    size = float(np.max(np.abs(one.size))) if one.scope == "some" else abs(one.typical)
    return size >= _floor(one) * (2.0 if one.typical < 0 and one.kind != "gradient" else 1.0)


def _named(found: list[Effect], families: list[Family]) -> list[Effect]:
    """Return candidates, sets of copies that are just a part by its name."""
    parts = {
        mask.tobytes(): (family.kind, name)
        for family in reversed(families)
        if not family.single
        for mask, name in zip(family.masks, family.names, strict=True)
    }
    for one in found:
        if one.kind in ("modes", "copies") and one.slots.ndim == 1:
            one.kind, one.name = parts.get((one.slots > 0).tobytes(), (one.kind, one.name))
    return found


def _spelt_out(found: list[Effect]) -> list[Effect]:
    """Return candidates without sets of copies each of which is one by itself: sizes differ."""
    alone: dict[tuple[bytes, bytes], set[int]] = {}
    for one in found:
        if one.kind == "copy":
            alone.setdefault((one.benchmarks.tobytes(), one.when.tobytes()), set()).add(one.name)
    return [
        one
        for one in found
        if one.kind not in ("copies", "modes")
        or one.slots.ndim > 1
        or not set(np.flatnonzero(one.slots).tolist())
        <= alone.get((one.benchmarks.tobytes(), one.when.tobytes()), set())
    ]


def _entering(found: list[Effect], shape: tuple[int, int, int]) -> list[Effect]:
    """Return those that enter at once: the one that gains most, and others in untouched cells."""
    found.sort(key=lambda one: -one.gain)
    entered: list[Effect] = []
    taken = np.zeros(shape[:2], bool)
    for one in found:
        always = one.scope != "cell"
        at = np.outer(one.benchmarks, np.ones(shape[1], bool) if always else one.when != 0)
        if not (taken & at).any():
            entered.append(one)
            taken |= at
        if one.scope == "all" or taken.all():
            break
    return entered


def refit(effects: list[Effect], left: Floats) -> list[Effect]:
    """Estimate all sizes anew, in place of `left` too; what has become too small leaves."""
    for _ in range(2):
        for one in effects:
            one.add_to(left)
            resize(one, left)
            one.add_to(left, -1.0)
    kept = []
    for one in effects:
        if abs(one.typical) < 0.5 * _floor(one):
            one.add_to(left)
        else:
            kept.append(one)
    return kept


def _floor(one: Effect) -> float:
    """Return the smallest size, ln, that an effect is told from."""
    if one.kind == "gradient":
        return spread.SLOPE_FLOOR
    if one.kind in ("unsettled",):
        return 0.0
    kind = "copy" if one.kind in ("copy", "copies", "modes") else "part"
    most = one.scope == "all" or (one.scope == "some" and one.benchmarks.mean() > 0.5)
    return FLOORS[f"{kind}-all" if most and len(one.benchmarks) > 1 else kind]


def resize(one: Effect, left: Floats) -> None:
    """Set the sizes of an effect: its slots' middle less that of the others, in its iterations."""
    rows = np.flatnonzero(one.benchmarks)
    its = np.flatnonzero(one.when)
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
        rough = _rough(here)
        inside = location(here[:, :, mine], rough[:, None])
        others = here[:, :, ~mine]
        outside = median(others) if mine.sum() == 1 else location(others, rough[:, None])
        d = inside - outside
        if d.shape[1] > 1:
            d = d[:, :, None].swapaxes(1, 2)
            sd = rough / np.sqrt(max(1, min(mine.sum(), (~mine).sum())))
            one.size[rows] = np.nan_to_num(location(d, sd[:, None])[:, 0])
        else:
            one.size[rows] = np.nan_to_num(d[:, 0])
        return
    mask = one.slots[its] > 0 if one.slots.ndim == 2 else one.slots[rows][:, its] > 0
    for k, row in enumerate(rows):
        own = mask if mask.ndim == 2 else mask[k]
        x = here[k] - np.nanmedian(np.where(own, np.nan, here[k]), axis=1, keepdims=True)
        one.size[row] = float(np.nanmedian(x[own]))


def _rough(here: Floats) -> Floats:
    """Return a rough spread of values about their cells (B,)."""
    off = np.abs(here - centre(here))
    return np.maximum(1.4826 * median(off.reshape(len(off), -1)), 1e-6)

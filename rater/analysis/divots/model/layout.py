"""What the layout makes of times: shared CPUs and cores, kinds of cores, fuller lgroups; pure.

Only what can be told from a fault is taken out: classes of sharing that many cores hold, and the
load of lgroups where several have each count. Sharing costs at most in proportion to the load and
never gains. Where the count and the place are one thing, `could_make` says how much it could make.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from rater.analysis.divots.model.table import UNKNOWN, DivotEffect, Table
from rater.analysis.stats.robust import Bools, Floats, Ints, median, theil_sen

_SLACK: Final = 0.01  # ln: what a class may be beyond its bounds
_TOLD: Final = 0.005  # ln: what is explained is told from here
_KINDS_APART: Final = math.log(4.0)  # a small core against a large one
_KIND_HELD_BY: Final = 3  # cores of another kind
_HELD_BY: Final = 2  # cores of a class, lgroups of a count: one is a place, not a class
_FOLLOWS: Final = 0.25  # of the lgroups' variance at most is not by their counts


def copies_on(table: Table, part: Ints) -> Floats:
    """Return how many copies each slot's part runs at a time; 1 where the part is not known."""
    counts, known = np.ones(len(part)), part != UNKNOWN
    names, of_part = np.unique(part[known], return_inverse=True)
    if len(names):
        ran = table.ran.reshape(-1, len(part))[:, known].astype(np.float64)
        each = ran @ (of_part[:, None] == np.arange(len(names))).astype(np.float64)
        typical = np.nan_to_num(median(np.where(each > 0, each, np.nan).T), nan=1.0)
        counts[known] = np.maximum(1.0, np.round(typical))[of_part]
    return counts


def sharing_classes(table: Table) -> tuple[Floats, Ints]:
    """Return classes (G, 3): copies on the CPU, busy threads of the core, kind; and each slot's."""
    on_cpu = copies_on(table, table.cpu)
    on_core = np.maximum(copies_on(table, table.core), on_cpu)
    key = np.stack((on_cpu, np.round(on_core / on_cpu, 2), _kinds(table)), axis=1)
    classes, of_class = np.unique(key, axis=0, return_inverse=True)
    return classes, of_class.reshape(-1).astype(np.int64)


def _kinds(table: Table) -> Floats:
    """Return the hardware threads of each slot's core where they tell kinds of cores apart.

    0 where they only repeat which CPUs had copies, as in a topology made from the placement.
    """
    known = (table.core != UNKNOWN) & (table.core_width > 0)
    if not known.any() or len(np.unique(table.core_width[known])) < 2:
        return np.zeros(len(table.core))
    pairs = np.unique(np.stack((table.core[known], table.cpu[known]), axis=1), axis=0)
    cores, used = np.unique(pairs[:, 0], return_counts=True)
    width = dict(zip(table.core[known].tolist(), table.core_width[known].tolist(), strict=True))
    several = len(np.unique(table.node)) > 1
    if several and all(width[int(c)] == n for c, n in zip(cores, used, strict=True)):
        return np.zeros(len(table.core))
    return np.where(known, table.core_width, 0).astype(np.float64)


def fit_layout(table: Table) -> tuple[Floats, list[DivotEffect]]:
    """Return what the layout explains of each slot (B, S), ln, and what of it is worth a word."""
    b, _, s = table.shape
    explained = np.zeros((b, s))
    told: list[DivotEffect] = []
    if s < 2:
        return explained, told
    y = table.log_s - median(table.log_s)[..., None]
    level = np.nan_to_num(median(np.swapaxes(y, 1, 2)))
    classes, of_class = sharing_classes(table)
    main = int(np.argmax(np.bincount(of_class)))
    for g in range(len(classes)):
        if g != main:
            one = _class_effect(table, level, of_class == g, of_class == main, classes[[g, main]])
            if one is not None:
                explained += np.outer(one.size, one.slots)
                told.append(one)
    told += _load(table, level, explained)
    return explained, [one for one in told if one.benchmarks.any()]


def _made(table: Table, kind: str, here: Bools, size: Floats, *counts: float) -> DivotEffect:
    """Return what the layout makes of slots, with their copies and those of most others."""
    when, told = np.ones(table.shape[1]), np.abs(size) >= _TOLD
    return DivotEffect(
        kind=kind,
        slots=here.astype(float),
        benchmarks=told,
        when=when,
        size=size,
        nats=0.0,
        counts=(counts[0], counts[1]),
    )


def _class_effect(
    table: Table, level: Floats, own: Bools, main: Bools, keys: Floats
) -> DivotEffect | None:
    mine, usual = keys
    kind = bool(mine[2] != usual[2] and mine[2] and usual[2])
    part = table.core if (table.core[own] != UNKNOWN).all() else table.cpu
    # Sharing a core is known physics, of one core too where the others are many of one sort.
    if len(np.unique(part[main])) < _HELD_BY or (
        kind and len(np.unique(part[own])) < _KIND_HELD_BY
    ):
        return None
    both = [n for n in np.unique(table.node[own]) if (main & (table.node == n)).any()]
    sides = [table.node == n for n in both] or [np.ones(len(own), dtype=bool)]
    apart = [
        np.median(level[:, own & at], axis=1) - np.median(level[:, main & at], axis=1)
        for at in sides
    ]
    ratios = np.log(mine[:2] / usual[:2])
    room = _SLACK + (_KINDS_APART if kind else 0.0)
    low, high = np.minimum(ratios, 0).sum() - room, np.maximum(ratios, 0).sum() + room
    what = "core-kind" if kind else "sharing-cpu" if mine[0] != usual[0] else "sharing-core"
    each = (float(it[0] * it[1] if what == "sharing-core" else it[0]) for it in (mine, usual))
    return _made(table, what, own, np.clip(np.median(apart, axis=0), low, high), *each)


def node_counts(table: Table) -> Floats:
    """Return how many CPUs with copies each slot's lgroup has: of one CPU one runs at a time."""
    found = np.ones(len(table.node))
    for node in np.unique(table.node[table.node != UNKNOWN]):
        here = table.node == node
        cpus = table.cpu[here]
        found[here] = here.sum() if (cpus == UNKNOWN).any() else len(np.unique(cpus))
    return found


def _load(table: Table, level: Floats, explained: Floats) -> list[DivotEffect]:
    """Add what fuller lgroups cost where several lgroups have each count and follow it."""
    away = (table.memory >= 0) & (table.node >= 0) & (table.memory != table.node)
    nodes = [n for n in np.unique(table.node[~away]) if n != UNKNOWN]
    counts = node_counts(table)
    load = np.array([counts[table.node == n][0] for n in nodes])
    _, held = np.unique(load, return_counts=True)
    if len(nodes) < 4 or len(held) < 2 or (np.sum(held >= _HELD_BY) < 2 and len(held) < 3):
        return []
    rest = level - explained
    members = [(table.node == n) & ~away for n in nodes]
    each = np.stack([np.median(rest[:, here], axis=1) for here in members], axis=1)  # (B, N)
    x = np.log(load)
    slope = np.clip([theil_sen(x, row) for row in each], 0.0, 1.0)
    whole = each.mean(axis=0) - each.mean()
    by_count = (x - x.mean()) * slope.mean()
    if np.sum((whole - by_count) ** 2) > _FOLLOWS * np.sum(whole**2):
        return []
    usual = float(np.median(load))
    found = []
    for count in dict.fromkeys(load.tolist()):
        here = np.any([of for of, its in zip(members, load, strict=True) if its == count], axis=0)
        one = _made(table, "load", here, slope * math.log(count / usual), count, usual)
        explained += np.outer(one.size, one.slots)
        found += [one] if count != usual else []
    return found


def could_make(table: Table, slots: Bools, *, fast: bool = False) -> tuple[float, str]:
    """Return how much of a difference (ln) of whole cores or lgroups their counts could make.

    With words; 0 where a part of the same count is among the others: then it is not the count.
    What is fast is held against what most have.
    """
    busy = np.maximum(copies_on(table, table.core), copies_on(table, table.cpu))
    for part, counts, name in (
        (table.node, node_counts(table), ""),
        (table.core, busy, " on a core"),
    ):
        inside, outside = np.unique(part[slots]), np.unique(part[~slots])
        if UNKNOWN in inside or np.isin(inside, outside).any() or not len(outside):
            continue
        own, others = counts[slots], counts[~slots]
        others = others if not fast else np.full(1, np.median(others))
        fuller = own.min() > others.max()
        if fuller or own.max() < others.min():
            mine, theirs = (own.min(), others.max()) if fuller else (own.max(), others.min())
            words = f"its {mine:g} copies{name} where the others have {theirs:g}"
            return math.log(mine / theirs), words
    return 0.0, ""

"""What the layout predicts: shared CPUs and cores, kinds of cores, fuller lgroups; pure.

Taken out of the residuals before anything is looked for, within physical bounds:
sharing costs at most in proportion to the load and never gains, so a class of
copies that is *slower* with fewer neighbours stays unexplained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import (
    MAD_TO_SD,
    Bools,
    Floats,
    Ints,
    median,
    overall_median,
    quantiles,
    subtract_median,
    theil_sen,
)

_PLACES = (1 - limits.SAME, 0.5, limits.SAME)  # quantiles that a layout moves alike


@dataclass(frozen=True, slots=True, eq=False)
class LayoutEffect:
    """One thing the layout explains: which slots, and how much slower than the main ones."""

    what: str  # sharing-cpu, sharing-core, core-kind, load, lighter
    slots: Bools
    effect: Floats  # (B,) ln slowdown of these slots, by benchmark
    load: float  # copies on the CPU, busy threads on the core, copies on the lgroup ...
    baseline: float  # ... and of the main class


@dataclass(frozen=True, slots=True, eq=False)
class LayoutFit:
    """Times without what the layout predicts, and what it may have done beyond that.

    Where a slow part is the only one of its sort, what the layout gave it cannot be told: that
    copies of one lgroup that share alike are all fast is no divot, as far as that goes.
    """

    residuals: Floats  # (B, I, S), cell medians out
    predicted: list[LayoutEffect]


def remove_layout_effects(table: Table) -> LayoutFit:
    """Return ln times with what the layout predicts taken out."""
    y = table.log_s.copy()
    allowed = np.zeros((table.shape[0], table.shape[2]))
    classes, of_class = sharing_classes(table)
    main = int(np.argmax(np.bincount(of_class)))
    predicted: list[LayoutEffect] = []
    for g in range(len(classes)):
        if g != main:
            found = _class_offset(table, y, (of_class == g, of_class == main), classes[[g, main]])
            y[:, :, of_class == g] -= found.effect[:, None, None]
            predicted.append(found)
            fastest = np.minimum(np.log(classes[g, :2] / classes[main, :2]), 0.0).sum()
            if classes[g, 2] != classes[main, 2]:
                fastest -= limits.SLOWEST_KIND
            allowed[:, of_class == g] += np.minimum(fastest - found.effect, 0.0)[:, None]
    y = subtract_median(y)
    predicted += _load(table, y, allowed)
    told = [
        one
        for one in predicted
        if overall_median(np.abs(one.effect)) >= 2 * limits.TAU
        or np.abs(one.effect).max() >= limits.FAR
    ]
    return LayoutFit(_without_gain(subtract_median(y), allowed, of_class, table.node), told)


def _without_gain(values: Floats, allowed: Floats, of_class: Ints, node: Ints) -> Floats:
    """Return residuals (B, I, S) without what whole classes on an lgroup gain as `allowed` (B, S).

    A layout makes no single copy fast: those like it would be so as well.
    """
    values = values.copy()
    for of in np.unique(np.stack((of_class, node), axis=1), axis=0):
        like = (of_class == of[0]) & (node == of[1])
        if allowed[:, like].any():
            whole = median(values[:, :, like].reshape(len(values), -1))
            gain = np.minimum(np.maximum(-np.nan_to_num(whole), 0.0)[:, None], -allowed[:, like])
            values[:, :, like] += gain[:, None]
    return values


def sharing_classes(table: Table) -> tuple[Floats, Ints]:
    """Return classes (G, 3): copies on the CPU, busy threads of the core, kind; and each slot's."""
    on_cpu = copies_on(table, table.cpu)
    on_core = np.maximum(copies_on(table, table.core), on_cpu)
    key = np.stack((on_cpu, np.round(on_core / on_cpu, 2), _kinds(table)), axis=1)
    classes, of_class = np.unique(key, axis=0, return_inverse=True)
    return classes, of_class.reshape(-1).astype(np.int64)


def _kinds(table: Table) -> Floats:
    """Return the hardware threads of each slot's core where they tell kinds of cores apart.

    0 where they only repeat which CPUs had copies, as in a topology made from the
    placement itself.
    """
    known = (table.core != UNKNOWN) & (table.core_width > 0)
    if not known.any() or len(np.unique(table.core_width[known])) < 2:
        return np.zeros(len(table.core))
    pairs = np.unique(np.stack((table.core[known], table.cpu[known]), axis=1), axis=0)
    cores, used = np.unique(pairs[:, 0], return_counts=True)
    width = dict(zip(table.core[known].tolist(), table.core_width[known].tolist(), strict=True))
    if all(width[int(c)] == n for c, n in zip(cores, used, strict=True)):
        return np.zeros(len(table.core))
    return np.where(known, table.core_width, 0).astype(np.float64)


def copies_on(table: Table, part: Ints) -> Floats:
    """Return how many copies each slot's part runs at a time; 1 where the part is not known."""
    ran = table.ran.reshape(-1, table.ran.shape[2])
    counts = np.ones(len(part))
    known = part != UNKNOWN
    if known.any():
        names, of_part = np.unique(part[known], return_inverse=True)
        per_cell = np.zeros((len(ran), len(names)))
        np.add.at(per_cell.T, of_part, ran[:, known].T.astype(np.float64))
        typical = np.nan_to_num(median(np.where(per_cell > 0, per_cell, np.nan).T), nan=1.0)
        counts[known] = np.maximum(1.0, np.round(typical))[of_part]
    return counts


def _class_offset(
    table: Table, y: Floats, members: tuple[Bools, Bools], keys: Floats
) -> LayoutEffect:
    """Return what a class of slots differs from the main one by, within physical bounds.

    `members` are the slots of the class and of the main one, `keys` (2, 3) their
    copies on the CPU, busy threads of the core, and kind of core.
    """
    (of_it, of_main), (own, main) = members, keys
    differences = []
    for node in np.unique(table.node):
        here = table.node == node
        if (here & of_it).any() and (here & of_main).any():
            differences.append(_shift(y[:, :, here & of_it], y[:, :, here & of_main]))
    if not differences:
        differences.append(_shift(y[:, :, of_it], y[:, :, of_main]))
    offset = np.nan_to_num(_always(median(np.stack(differences, axis=-1))))
    of_cpu, of_core = math.log(own[0] / main[0]), math.log(own[1] / main[1])
    low = min(0.0, of_cpu) + min(0.0, of_core)
    high = max(0.0, of_cpu) + max(0.0, of_core)
    what = "sharing-cpu" if own[0] != main[0] else "sharing-core"
    if own[1] < main[1] and own[0] == main[0] and _other_cores(table, of_it, of_main, offset):
        what = "core-kind"
        low, high = -limits.SLOWEST_KIND, limits.SLOWEST_KIND
    elif own[2] != main[2] and own[2] and main[2]:
        # Cores with fewer threads beside cores with more are another kind (hybrid machines).
        what = "core-kind"
        low, high = low - limits.SLOWEST_KIND, high + limits.SLOWEST_KIND
        wrong = np.sign(offset) != np.sign(overall_median(offset))
        if _contradicted(np.abs(offset) > limits.OF_MANY, wrong):
            low = high = 0.0
    return LayoutEffect(
        what=what,
        slots=of_it,
        effect=np.clip(offset, low - limits.EVERYWHERE, high + limits.EVERYWHERE),
        load=float(own[1] * own[0] if what == "sharing-core" else own[0]),
        baseline=float(main[1] * main[0] if what == "sharing-core" else main[0]),
    )


def _other_cores(table: Table, of_it: Bools, of_main: Bools, offset: Floats) -> bool:
    """Tell whether copies with a core of one thread are on another kind of core.

    Sharing less never slows: where they are slower beside cores of more threads, on one
    lgroup, the machine is a hybrid one, though each CPU it has ran a copy.
    """
    alone, wide = table.core_width[of_it], table.core_width[of_main]
    several = int(of_it.sum()) >= limits.SEVERAL and len(np.unique(table.node)) == 1
    slower = float(np.mean(offset <= limits.OF_MANY)) < limits.SAME
    return several and slower and bool((alone == 1).all() and (wide > 1).all())


def _shift(inside: Floats, outside: Floats) -> Floats:
    """Return by how much a class of copies is slower (B, I), with all its copies alike."""
    low, typical, high = quantiles(inside, *_PLACES)
    below, usual, above = quantiles(outside, *_PLACES)
    return _agreeing(np.stack((low - below, typical - usual, high - above)))


def _slopes(x: Floats, each: Floats) -> Floats:
    return np.array([[theil_sen(x, of_nodes) for of_nodes in iteration] for iteration in each])


def _agreeing(shifts: Floats, unit: float = 1.0) -> Floats:
    """Return the shift of the middle (3, ...), or the least where the others are far from it.

    A layout moves all copies. Where a benchmark has two modes, the medians of two parts
    of the machine lie apart by which mode has a copy more.
    """
    typical = shifts[1]
    range_ = np.ptp(shifts, axis=0)
    apart = (range_ * unit > limits.FAR) & (range_ > 0.5 * np.abs(typical))
    nearest = np.take_along_axis(shifts, np.argmin(np.abs(shifts), axis=0)[None], axis=0)[0]
    same = np.all(np.sign(shifts) == np.sign(typical), axis=0)
    return np.where(apart, np.where(same, nearest, 0.0), typical)


def _load(table: Table, y: Floats, allowed: Floats) -> list[LayoutEffect]:
    """Take the effect of fuller lgroups out of `y`, in place, and return it.

    What lighter ones may gain beyond that is added to `allowed`, in place.
    """
    # Copies with memory elsewhere say nothing of how full their own lgroup is.
    away = (table.memory >= 0) & (table.node >= 0) & (table.memory != table.node)
    nodes = [int(n) for n in np.unique(table.node[~away]) if n != UNKNOWN]
    if len(nodes) < 2:
        return []
    # Of copies on one CPU one runs at a time.
    places = np.where(table.cpu == UNKNOWN, -2 - np.arange(len(away)), table.cpu)
    first = np.isin(np.arange(len(away)), np.unique(places, return_index=True)[1])
    running = replace(table, copy=np.where(first, table.copy, UNKNOWN))
    copies = copies_on(running, table.node)
    loads = np.array([copies[table.node == n][0] for n in nodes])
    log_load = np.log(loads)
    if log_load.max() == log_load.min():
        return []
    # (low, middle, high) of each node: (B, I)
    spreads = [quantiles(y[:, :, (table.node == n) & ~away], *_PLACES) for n in nodes]
    each = np.stack([of_node[1] for of_node in spreads], axis=-1)
    medians = _always(np.swapaxes(each, 1, 2))  # (B, N)
    spread_of_load = float(log_load.max() - log_load.min())
    raw = _always(
        _agreeing(
            np.stack(
                [
                    _slopes(log_load, np.stack([of_node[k] for of_node in spreads], axis=-1))
                    for k in range(3)
                ]
            ),
            spread_of_load,
        )
    )
    strong = np.abs(raw) * spread_of_load >= limits.OF_MANY
    if _contradicted(strong, raw < 0):
        return []  # no load makes one benchmark slower and another faster
    if _alike_in_all(raw, spread_of_load):
        return []  # what is busy computing does not mind how full its lgroup is
    slope = np.clip(raw, 0.0, 1.0)
    scatter = _same_load_mad(medians, loads)
    slope[slope * spread_of_load < 2 * scatter] = 0.0
    usual_log = float(np.median(log_load))
    light = log_load < usual_log
    members = [(table.node == n) & ~away for n in nodes]
    slots = len(table.node)
    few = sum(int(m.sum()) for m, low in zip(members, light, strict=True) if low)
    predicted = []
    for j in range(len(nodes)):
        bound = log_load[j] - usual_log
        effect = slope * bound
        if light[j] and few <= limits.SIDE * slots:
            # Raising them by what fuller lgroups show would make them look slow.
            fuller = loads > loads[j]
            # Faster than all fuller ones: else something else makes those slow.
            own = medians[:, j] - np.nanmin(medians[:, fuller], axis=1)
            effect = _gained(own, float(log_load[j] - log_load[fuller].min()))
        allowed[:, members[j]] += np.minimum(bound - effect, 0.0)[:, None]
        if not effect.any():
            continue
        y[:, :, members[j]] -= effect[:, None, None]
        predicted.append(
            LayoutEffect("load", members[j], effect, float(loads[j]), float(math.exp(usual_log)))
        )
    return predicted


def _contradicted(strong: Bools, wrong: Bools) -> bool:
    """Tell whether several benchmarks, of those with a strong effect (B,), have the wrong sign."""
    against = int((strong & wrong).sum())
    return against >= 2 and int(strong.sum()) - against < limits.SAME * int(strong.sum())


def _alike_in_all(slopes: Floats, spread_of_load: float) -> bool:
    """Tell whether all of many benchmarks depend on the load alike (B,): no load does that."""
    if len(slopes) < limits.MANY:
        return False
    least, typical = quantiles(slopes, 0.1, 0.5)
    return bool(typical * spread_of_load >= limits.OF_MANY and least >= limits.BIGGEST * typical)


def _always(values: Floats) -> Floats:
    """Return what all iterations (last axis) show: their median, of two the one nearer to none.

    A layout is there in every iteration; what only one of two shows is something else.
    """
    if values.shape[-1] != 2:
        return median(values)
    first, second = values[..., 0], values[..., 1]
    least = np.where(np.abs(first) < np.abs(second), first, second)
    found = np.where(np.sign(first) == np.sign(second), least, 0.0)
    return np.where(np.isnan(first), second, np.where(np.isnan(second), first, found))


def _gained(own: Floats, bound: float) -> Floats:
    """Return how much faster a light lgroup is than others, as far as its load explains it.

    `own` (B,) are its medians, `bound` what having its memory to fewer copies can
    gain at most. Nothing where it is slower in some benchmarks: load has one sign.
    """
    strong = np.abs(np.nan_to_num(own)) >= limits.OF_MANY
    if _contradicted(strong, own > 0):
        return np.zeros(len(own))
    return np.clip(np.nan_to_num(own), bound - limits.EVERYWHERE, 0.0)


def _same_load_mad(medians: Floats, loads: Floats) -> Floats:
    """Return by benchmark how much lgroups with equally many copies differ (1.4826 MAD)."""
    parts = []
    for load in np.unique(loads):
        same = loads == load
        if same.sum() > 1:
            parts.append(medians[:, same] - median(medians[:, same])[:, None])
    if not parts:
        return np.zeros(len(medians))
    together = np.concatenate(parts, axis=1)
    if together.shape[1] < limits.MANY_PARTS:
        # Of three or four, one that is off hides behind a median: their range tells.
        return np.nan_to_num(np.ptp(together, axis=1)) / limits.RANGE_TO_SD
    return MAD_TO_SD * np.nan_to_num(median(np.abs(together)))

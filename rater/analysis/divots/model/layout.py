"""What the layout makes of times: shared CPUs and cores, kinds of cores, fuller nodes; pure.

Only differences that can be told from a fault are taken out: classes of sharing that many cores
hold, and the load of nodes where several have each count. Sharing costs at most in proportion to
the load and never gains. Where count and place cannot be separated, `could_make` says how much
the count could make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.effects import DivotEffect, EffectKind
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import Bools, Floats, Ints, median, theil_sen

_SLACK: Final = 0.01  # ln. Chosen: a class may exceed the bounds of its load by so much noise
_LEAST_EXPLAINED: Final = (
    0.005  # ln, from which an explained difference is reported; a third of 1.5 %
)
# ln. Chosen: a small core takes at most four times as long as a large one; hybrid processors take
# about twice as long.
_MOST_BETWEEN_CORE_KINDS: Final = math.log(4.0)
_LEAST_CORES_OF_KIND: Final = 3  # one or two slow cores of another kind may be faulty
_LEAST_OF_CLASS: Final = 2  # cores of a class, nodes of a count: one alone is a place
_LEAST_NODES: Final = 4  # with fewer, count and place cannot be separated
# Share of the variance between nodes. Chosen: nodes follow their counts if these explain three
# quarters of it.
_MOST_UNEXPLAINED: Final = 0.25


class SharingClasses(Struct, frozen=True, eq=False):
    """How copies share their CPU and core, as classes of slots."""

    keys: Floats  # (G, 3) copies on the CPU, busy threads of the core, kind of core
    of_slot: Ints  # (S,) number of its class


def copies_on(table: Table, part: Ints) -> Floats:
    """Return how many copies each slot's part runs at a time; 1 where the part is not known."""
    counts, is_known = np.ones(len(part)), part != UNKNOWN
    names, part_of_slot = np.unique(part[is_known], return_inverse=True)
    if len(names):
        ran = table.ran.reshape(-1, len(part))[:, is_known].astype(np.float64)
        per_cell = ran @ (part_of_slot[:, None] == np.arange(len(names))).astype(np.float64)
        when_any = np.where(per_cell > 0, per_cell, np.nan)
        typical = np.nan_to_num(median(when_any.T), nan=1.0)
        counts[is_known] = np.maximum(1.0, np.round(typical))[part_of_slot]
    return counts


def sharing_classes(table: Table) -> SharingClasses:
    """Return the classes of sharing and kinds of cores that a run has."""
    on_cpu = copies_on(table, table.cpu)
    on_core = np.maximum(copies_on(table, table.core), on_cpu)
    key = np.stack((on_cpu, np.round(on_core / on_cpu, 2), _core_kinds(table)), axis=1)
    keys, of_slot = np.unique(key, axis=0, return_inverse=True)
    return SharingClasses(keys, of_slot.reshape(-1).astype(np.int64))


def _core_kinds(table: Table) -> Floats:
    """Return the hardware threads of each slot's core where they tell kinds of cores apart.

    0 where they only repeat which CPUs had copies, as in a topology made from the placement.
    """
    is_known = (table.core != UNKNOWN) & (table.core_width > 0)
    if not is_known.any() or len(np.unique(table.core_width[is_known])) < 2:
        return np.zeros(len(table.core))
    pairs = np.unique(np.stack((table.core[is_known], table.cpu[is_known]), axis=1), axis=0)
    cores, used = np.unique(pairs[:, 0], return_counts=True)
    width = dict(
        zip(table.core[is_known].tolist(), table.core_width[is_known].tolist(), strict=True)
    )
    several_nodes = len(np.unique(table.node)) > 1
    if several_nodes and all(
        width[int(core)] == cpus for core, cpus in zip(cores, used, strict=True)
    ):
        return np.zeros(len(table.core))
    return np.where(is_known, table.core_width, 0).astype(np.float64)


def fit_layout(table: Table) -> tuple[Floats, list[DivotEffect]]:
    """Return the ln time that the layout explains of each slot (B, S), and its reported effects."""
    benchmarks, _, slots = table.shape
    explained = np.zeros((benchmarks, slots))
    effects: list[DivotEffect] = []
    if slots < 2:
        return explained, effects
    about_median = table.log_s - median(table.log_s)[..., None]
    levels = np.nan_to_num(median(np.swapaxes(about_median, 1, 2)))
    classes = sharing_classes(table)
    main = int(np.argmax(np.bincount(classes.of_slot)))
    for number in range(len(classes.keys)):
        effect = None if number == main else _fit_class(table, levels, classes, number, main)
        if effect is not None:
            explained += np.outer(effect.size, effect.slot_weights)
            effects.append(effect)
    load_effects, load_explained = _fit_load(table, levels - explained)
    explained += load_explained
    effects += load_effects
    return explained, [effect for effect in effects if effect.benchmarks.any()]


def _layout_effect(
    table: Table, kind: EffectKind, slots: Bools, size: Floats, counts: tuple[float, float]
) -> DivotEffect:
    """Return an effect of the layout; `counts`: copies on these parts, and on most others."""
    return DivotEffect(
        kind=kind,
        slot_weights=slots.astype(float),
        benchmarks=np.abs(size) >= _LEAST_EXPLAINED,
        iteration_weights=np.ones(table.shape[1]),
        size=size,
        net_evidence=0.0,
        counts=counts,
    )


def _fit_class(
    table: Table, levels: Floats, classes: SharingClasses, number: int, main: int
) -> DivotEffect | None:
    """Return how a class of slots differs from the main class, within what sharing can cost."""
    slots, main_slots = classes.of_slot == number, classes.of_slot == main
    key, main_key = classes.keys[number], classes.keys[main]
    other_kind = bool(key[2] != main_key[2] and key[2] and main_key[2])
    part = table.core if (table.core[slots] != UNKNOWN).all() else table.cpu
    # Sharing a core is known physics: one core is enough if the others are many of one sort.
    if len(np.unique(part[main_slots])) < _LEAST_OF_CLASS or (
        other_kind and len(np.unique(part[slots])) < _LEAST_CORES_OF_KIND
    ):
        return None
    # Within a node that has both classes, if any has: nodes may differ by themselves.
    nodes = [
        node for node in np.unique(table.node[slots]) if (main_slots & (table.node == node)).any()
    ]
    sides = [table.node == node for node in nodes] or [np.ones(len(slots), dtype=bool)]
    differences = [
        np.median(levels[:, slots & side], axis=1) - np.median(levels[:, main_slots & side], axis=1)
        for side in sides
    ]
    low, high = _bounds_of_sharing(key, main_key, other_kind)
    if other_kind:
        kind = EffectKind.CORE_KIND
    else:
        same_cpu = key[0] == main_key[0]
        kind = EffectKind.SHARING_CORE if same_cpu else EffectKind.SHARING_CPU
    size = np.clip(np.median(differences, axis=0), low, high)
    counts = _count_copies(kind, key), _count_copies(kind, main_key)
    return _layout_effect(table, kind, slots, size, counts)


def _bounds_of_sharing(key: Floats, main_key: Floats, other_kind: bool) -> tuple[float, float]:
    """Return the smallest and largest difference (ln) that sharing or the kind of core can make."""
    ln_ratios = np.log(key[:2] / main_key[:2])
    slack = _SLACK + (_MOST_BETWEEN_CORE_KINDS if other_kind else 0.0)
    return np.minimum(ln_ratios, 0).sum() - slack, np.maximum(ln_ratios, 0).sum() + slack


def _count_copies(kind: EffectKind, key: Floats) -> float:
    """Return the copies on a core, or on a CPU, of a class of sharing."""
    return float(key[0] * key[1] if kind is EffectKind.SHARING_CORE else key[0])


def node_counts(table: Table) -> Floats:
    """Return how many CPUs with copies each slot's node has: of one CPU one copy runs at a time."""
    counts = np.ones(len(table.node))
    for node in np.unique(table.node[table.node != UNKNOWN]):
        on_node = table.node == node
        cpus = table.cpu[on_node]
        counts[on_node] = on_node.sum() if (cpus == UNKNOWN).any() else len(np.unique(cpus))
    return counts


def _fit_load(table: Table, levels: Floats) -> tuple[list[DivotEffect], Floats]:
    """Return what fuller nodes cost, and the ln time that this explains of each slot (B, S).

    Only where several nodes have each count and follow it.
    """
    explained = np.zeros(levels.shape)
    is_remote = (table.memory >= 0) & (table.node >= 0) & (table.memory != table.node)
    nodes = [node for node in np.unique(table.node[~is_remote]) if node != UNKNOWN]
    counts_of_slots = node_counts(table)
    counts = np.array([counts_of_slots[table.node == node][0] for node in nodes])
    if not _are_counts_separable(counts):
        return [], explained
    members = [(table.node == node) & ~is_remote for node in nodes]
    slope = _load_slope(levels, members, counts)
    if slope is None:
        return [], explained
    typical = float(np.median(counts))
    effects = []
    for count in dict.fromkeys(counts.tolist()):
        with_count = [
            slots for slots, node_count in zip(members, counts, strict=True) if node_count == count
        ]
        size = slope * math.log(count / typical)
        slots = np.any(with_count, axis=0)
        effect = _layout_effect(table, EffectKind.LOAD, slots, size, (count, typical))
        explained += np.outer(effect.size, effect.slot_weights)
        effects += [effect] if count != typical else []
    return effects, explained


def _load_slope(levels: Floats, members: Sequence[Bools], counts: Floats) -> Floats | None:
    """Return the slope of ln time over ln count of each benchmark (B,), from N nodes' slots.

    The slope is Theil and Sen's (1968), between 0 and 1: fuller nodes are not faster, and n copies
    take at most n times as long. Without a slope (None), mean times do not follow the counts.
    """
    by_node = np.stack([np.median(levels[:, slots], axis=1) for slots in members], axis=1)  # (B, N)
    ln_count = np.log(counts)
    slope: Floats = np.clip([theil_sen(ln_count, row) for row in by_node], 0.0, 1.0)
    differs = by_node.mean(axis=0) - by_node.mean()
    by_count = (ln_count - ln_count.mean()) * slope.mean()
    unexplained = np.sum((differs - by_count) ** 2)
    return None if unexplained > _MOST_UNEXPLAINED * np.sum(differs**2) else slope


def _are_counts_separable(counts: Floats) -> bool:
    """Tell whether nodes (N,) have different counts, and no single node is all of a count."""
    _, nodes_with = np.unique(counts, return_counts=True)
    if len(counts) < _LEAST_NODES or len(nodes_with) < 2:
        return False
    return bool(np.sum(nodes_with >= _LEAST_OF_CLASS) >= 2 or len(nodes_with) >= 3)


def could_make(table: Table, slots: Bools, *, fast: bool = False) -> tuple[float, str]:
    """Return how much of a difference (ln) of whole cores or nodes their counts could make.

    With words; 0 where a part of the same count is among the others, since the count does not
    explain it. A fast part is compared with what most others have.
    """
    busy = np.maximum(copies_on(table, table.core), copies_on(table, table.cpu))
    for part, counts, place in (
        (table.node, node_counts(table), ""),
        (table.core, busy, " on a core"),
    ):
        inside, outside = np.unique(part[slots]), np.unique(part[~slots])
        if UNKNOWN in inside or np.isin(inside, outside).any() or not len(outside):
            continue
        part_counts, others = counts[slots], counts[~slots]
        others = others if not fast else np.full(1, np.median(others))
        is_fuller = part_counts.min() > others.max()
        if is_fuller or part_counts.max() < others.min():
            count, other = (
                (part_counts.min(), others.max())
                if is_fuller
                else (part_counts.max(), others.min())
            )
            words = f"its {count:g} copies{place} where the others have {other:g}"
            return math.log(count / other), words
    return 0.0, ""

"""Effects of the model joined to groups of one cause each; pure.

The model has an effect for each part, benchmark and time by itself: a slow node may enter once for
most benchmarks and once for another. docs/develop/detector-terms.md has the tests that fail
without each threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rater.analysis.divots.model.effects import DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import Bools

_ALIKE: Final = 1.25  # times at most: two sizes of one cause
_UNDONE: Final = 0.25  # of a size, at most, is left where something kept its speed
_MOST_BENCHMARKS: Final = 0.7  # share from which an iteration is slow as a whole
_SAME_CELLS: Final = 0.6  # of the cells of two effects together
_FEW_OF_CORE: Final = 2  # copies of a core: its copies, as others are
_LONE_SHARE: Final = 5  # a copy with more than one in so many of the lone cells is at fault itself
RANDOM_CELLS: Final = 4  # cells with a slow copy, another one each time: no place is at fault

type EffectGroup = list[DivotEffect]  # of one cause


def cells_of(group: EffectGroup) -> Bools:
    """Return the cells (B, I) of a group."""
    cells: Bools = np.any([effect.cells for effect in group], axis=0)
    return cells


def slots_of(group: EffectGroup) -> Bools:
    """Return the slots (S,) of a group, in any cell."""
    weights = [effect.slot_weights for effect in group]
    in_any_cell = [values.reshape(-1, values.shape[-1]).any(axis=0) for values in weights]
    slots: Bools = np.any(in_any_cell, axis=0)
    return slots


def join_effects(effects: Sequence[DivotEffect]) -> list[EffectGroup]:
    """Return effects by cause: of the same copies, then of others in the same cells by as much."""
    of_parts: list[EffectGroup] = []
    for effect in effects:
        same = [group for group in of_parts if _is_same_part(group[0], effect, effects)]
        if same:
            same[0].append(effect)
        else:
            of_parts.append([effect])
    joined: list[EffectGroup] = []
    for group in of_parts:
        same = [other for other in joined if _is_same_cause(group, other)]
        if same:
            same[0] += group
        else:
            joined.append(group)
    return joined


def is_exception(group: EffectGroup, whole: EffectGroup) -> bool:
    """Tell whether a group only undoes another one, in some of its copies or iterations.

    Such a group kept its speed in a slow part or iteration, and is no cause.
    """
    effect, other = group[0], whole[0]
    if not effect.has_fixed_slots or not other.has_fixed_slots:
        return False
    if EffectKind.GRADIENT in (effect.kind, other.kind) or effect.kind is EffectKind.ITERATIONS:
        return False
    cells, slots, all_cells, all_slots = *_extent(group), *_extent(whole)
    if (slots & ~all_slots).any() or (cells & ~all_cells).any():
        return False
    at_most_half = 2 * cells.sum() * slots.sum() <= all_cells.sum() * all_slots.sum()
    rest = abs(effect.typical + other.typical)
    return bool(at_most_half and rest < _UNDONE * abs(other.typical))


def _extent(group: EffectGroup) -> tuple[Bools, Bools]:
    return cells_of(group), slots_of(group)


def _typical_size(group: EffectGroup) -> float:
    """Return the median size of its benchmarks, of each the mean over different copies."""
    total = np.sum([effect.size for effect in group], axis=0)
    different = {effect.slot_weights.tobytes() for effect in group}
    return float(np.median(total[total != 0])) / len(different)


def _sort_of_parts(effect: DivotEffect) -> EffectKind:
    """Return the kind of an effect, where a set of copies and a small core count as copies."""
    of_core = effect.kind in (EffectKind.CORE, EffectKind.CPU)
    few = of_core and effect.slot_weights.sum() <= _FEW_OF_CORE
    return EffectKind.COPY if few or effect.kind is EffectKind.COPIES else effect.kind


def _time_key(effect: DivotEffect) -> tuple[EffectKind, EffectScope, bytes, bool]:
    """Return the iterations of an effect, and whether it is slow there."""
    has_effect = (effect.iteration_weights != 0).tobytes()
    return effect.kind, effect.scope, has_effect, effect.typical > 0


def _is_same_part(first: DivotEffect, effect: DivotEffect, effects: Sequence[DivotEffect]) -> bool:
    """Tell whether two effects are of the same copies, or iterations, and go one way."""
    if _sort_of_parts(first) != _sort_of_parts(effect):
        return False
    if effect.kind is EffectKind.ITERATIONS:
        return _is_same_time(first, effect, effects)
    if not np.array_equal(first.slot_weights, effect.slot_weights):
        return False
    if first.typical * effect.typical > 0:
        return True
    # Of two signs, the second may only make the first less, in one of its cells.
    in_cell = effect.scope is EffectScope.CELL and first.scope is not EffectScope.CELL
    inside = in_cell and not (effect.benchmarks & ~first.benchmarks).any()
    rest, least = abs(first.typical + effect.typical), _UNDONE * abs(first.typical)
    is_smaller = abs(effect.typical) < abs(first.typical)
    return inside and is_smaller and rest >= least


def _is_same_time(first: DivotEffect, effect: DivotEffect, effects: Sequence[DivotEffect]) -> bool:
    """Tell whether two effects of all copies are one: a slow iteration of several benchmarks.

    A cold start, or a slow iteration of most benchmarks, costs each of them something else.
    """
    if _time_key(first) != _time_key(effect):
        return False
    same_time = [other for other in effects if _time_key(other) == _time_key(effect)]
    share = np.any([other.benchmarks for other in same_time], axis=0).mean()
    alike = 1 / _ALIKE < first.typical / effect.typical < _ALIKE
    return bool(effect.iteration_weights[0] > 0 or share >= _MOST_BENCHMARKS or alike)


def _is_same_cause(group: EffectGroup, other: EffectGroup) -> bool:
    """Tell whether other parts of a sort in the same cells, slow by as much, are one cause."""
    effect, other_effect = group[0], other[0]
    by_itself = (EffectKind.ITERATIONS, EffectKind.GRADIENT, EffectKind.MOVING, EffectKind.UNSTEADY)
    if _sort_of_parts(effect) != _sort_of_parts(other_effect) or effect.kind in by_itself:
        return False
    if not effect.has_fixed_slots or not other_effect.has_fixed_slots:
        return False
    (cells, slots), (other_cells, other_slots) = _extent(group), _extent(other)
    size, other_size = _typical_size(group), _typical_size(other)
    common, together = (cells & other_cells).sum(), (cells | other_cells).sum()
    if common < _SAME_CELLS * together or size * other_size <= 0:
        return False
    apart = effect.scope is EffectScope.CELL or not (slots & other_slots).any()
    return bool(max(size / other_size, other_size / size) <= _ALIKE and apart)


# -- Effects that have no place --------------------------------------------------------------------


def node_of(table: Table, group: EffectGroup) -> int:
    """Return the node whose copies a group is of, all of them and no others; else UNKNOWN."""
    slots = slots_of(group)
    nodes = np.unique(table.node[slots])
    if len(nodes) != 1 or slots.sum() <= 1 or (table.node[~slots] == nodes[0]).any():
        return UNKNOWN
    return int(nodes[0])


def unite_without_place(table: Table, groups: list[EffectGroup]) -> list[EffectGroup]:
    """Return groups with those that have no place as one: nodes in turn, random copies in cells."""
    slow = [
        group
        for group in groups
        if group[0].typical > 0 and all(effect.scope is EffectScope.CELL for effect in group)
    ]
    for benchmark in range(table.shape[0]):
        turns = [
            group
            for group in slow
            if node_of(table, group) != UNKNOWN
            and all(np.flatnonzero(effect.benchmarks).tolist() == [benchmark] for effect in group)
        ]
        times = {int(effect.iteration_weights.argmax()) for turn in turns for effect in turn}
        if len({node_of(table, turn) for turn in turns}) > 1 < len(times):
            groups = _unite(groups, turns)
    lone = [group for group in slow if group[0].kind in (EffectKind.COPY, EffectKind.COPIES)]
    count = sum(int(cells_of(group).sum()) for group in lone)
    most = max(2, count // _LONE_SHARE)
    lone = [group for group in lone if cells_of(group).sum() <= most]
    if len(lone) < RANDOM_CELLS - 1:
        return groups
    cells = np.any([cells_of(group) for group in lone], axis=0).sum()
    return _unite(groups, lone) if cells >= RANDOM_CELLS else groups


def _unite(groups: list[EffectGroup], some: list[EffectGroup]) -> list[EffectGroup]:
    """Return groups with some of them as one, which comes last."""
    others = [group for group in groups if not any(group is member for member in some)]
    return [*others, [effect for group in some for effect in group]]

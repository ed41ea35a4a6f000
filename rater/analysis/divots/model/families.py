"""The parts of the machine that copies share: partitions of the slots; pure."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.effects import EffectKind
from rater.analysis.divots.model.layout import sharing_classes
from rater.analysis.divots.model.table import SEVERAL, Table
from rater.analysis.stats.robust import Bools, Floats, Ints, median

NODE_SHIFT: Final = 1000  # part of "node+memory": 1000 * node + node of the memory
LOCAL: Final = 0  # part of "remote": memory on the node of the copy's CPU
_LEAST_HALVED: Final = 16  # CPUs of a node: a smaller one has no halves of eight
_NO_PART: Final = -1  # of a slot that is in no part of a family


class Family(Struct, frozen=True, eq=False, dict=True):
    """One way to divide the slots: each is in one part, or in none."""

    kind: EffectKind
    part_of_slot: Ints  # (S,) index of its part, or -1
    names: tuple[int, ...]  # number of each part in the machine

    @cached_property
    def sizes(self) -> Ints:
        """Slots of each part (P,)."""
        in_part = self.part_of_slot[self.part_of_slot >= 0]
        return np.bincount(in_part, minlength=len(self.names))

    @cached_property
    def masks(self) -> Bools:
        """Slots of each part (P, S)."""
        masks: Bools = self.part_of_slot[None] == np.arange(len(self.names))[:, None]
        return masks

    @cached_property
    def members(self) -> list[tuple[Ints, Ints]]:
        """Parts (p,) of each size with their slots (p, size)."""
        members = []
        for size in np.unique(self.sizes):
            parts = np.flatnonzero(self.sizes == size)
            slots = [np.flatnonzero(self.part_of_slot == part) for part in parts]
            members.append((parts, np.stack(slots)))
        return members


def list_families(table: Table) -> list[Family]:
    """Return the partitions that differ, the largest parts first; single slots last.

    A set of slots that several partitions have keeps the first one's name.
    """
    families: list[Family] = []
    seen: set[bytes] = set()
    for kind, label in _labels(table).items():
        names, part = np.unique(label[label >= 0], return_inverse=True)
        only_slots = len(names) == len(part)
        as_copies = (EffectKind.CORE, EffectKind.CPU, EffectKind.LLC, EffectKind.HALF)
        if len(names) < 2 or (only_slots and kind in as_copies):
            continue
        part_of_slot = np.full(len(label), _NO_PART)
        part_of_slot[label >= 0] = part
        family = Family(kind, part_of_slot, tuple(names.tolist()))
        masks = {mask.tobytes() for mask in family.masks}
        if masks - seen:
            seen |= masks
            families.append(family)
    slots = table.shape[2]
    copies = Family(EffectKind.COPY, np.arange(slots), tuple(range(slots)))
    return [*families, copies] if slots > 1 else families


def _labels(table: Table) -> dict[EffectKind, Ints]:
    """Return the number of each slot's part (S,) in all partitions; negative where it has none."""
    node, memory, halves = table.node, table.memory, _number_halves(table)
    both_known = (node >= 0) & (memory >= 0)
    spread_out = np.where(memory == SEVERAL, 1, _NO_PART)
    return {
        EffectKind.NODE: node,
        EffectKind.PACKAGE: table.package,
        EffectKind.LLC: table.llc,
        EffectKind.MEMORY: memory,
        EffectKind.NODE_AND_MEMORY: np.where(both_known, node * NODE_SHIFT + memory, _NO_PART),
        EffectKind.REMOTE: np.where(both_known, node != memory, spread_out),
        EffectKind.THREAD: _number_threads(table),
        EffectKind.HALF: halves,
        EffectKind.HALF_OF_NODE: np.where(halves >= 0, 2 * node + halves, _NO_PART),
        EffectKind.SHARING: _number_sharing(table),
        EffectKind.CORE: table.core,
        EffectKind.CPU: table.cpu,
    }


def _number_threads(table: Table) -> Ints:
    """Return which of its core's CPUs a slot's is (S,), in ascending order."""
    threads = np.full(table.shape[2], _NO_PART)
    for core in np.unique(table.core[table.core >= 0]):
        slots = np.flatnonzero(table.core == core)
        threads[slots] = np.searchsorted(np.unique(table.cpu[slots]), table.cpu[slots])
    return threads


def _number_sharing(table: Table) -> Ints:
    """Return the class of sharing of each slot (S,), where several cores have that class."""
    classes = sharing_classes(table).of_slot
    cores = [
        len(np.unique(table.core[classes == number])) for number in range(int(classes.max()) + 1)
    ]
    return np.where(np.array(cores)[classes] > 1, classes, _NO_PART)


def _number_halves(table: Table) -> Ints:
    """Return the half of its node's CPUs that a slot is in (S,), 0 or 1."""
    halves = np.full(table.shape[2], _NO_PART)
    for node in np.unique(table.node[table.node >= 0]):
        slots = np.flatnonzero(table.node == node)
        cpus, place = np.unique(table.cpu[slots], return_inverse=True)
        if len(cpus) >= _LEAST_HALVED:
            halves[slots] = place >= (len(cpus) + 1) // 2
    return halves


def order_of_start(table: Table) -> Floats:
    """Return each slot's place in the order of start (S,), 0 to 1; by copy number if not known."""
    slots, start = table.shape[2], table.start_s
    first = np.where(np.isnan(start), np.inf, start).min(axis=2, keepdims=True)
    late_s = (start - np.where(np.isfinite(first), first, np.nan)).reshape(-1, slots)
    numbers = median(np.where(table.copy >= 0, table.copy, np.nan).reshape(-1, slots).T)
    order = np.lexsort((np.nan_to_num(numbers), np.nan_to_num(median(late_s.T))))
    place = np.empty(slots)
    place[order] = np.arange(slots)
    return place / max(1, slots - 1)

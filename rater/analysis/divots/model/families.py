"""What copies of a run share: partitions of the slots that the machine's structure names; pure."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.layout import sharing_classes
from rater.analysis.divots.model.table import SEVERAL, Table
from rater.analysis.stats.robust import Bools, Floats, Ints, median

NODE_SHIFT = 1000  # a node and its memory's node as one number
_LEAST_HALVED = 16  # CPUs of an lgroup that may have parts which nobody describes
LOCAL = 0  # remote memory: 0 is on the copy's own node


class Family(Struct, frozen=True, eq=False, dict=True):
    """One way to divide the slots: each is in one part, or in none."""

    kind: str  # node, package, llc, memory, node+memory, remote, thread, half, core, cpu, copy
    part: Ints  # (S,) index of its part, -1: in none
    names: tuple[int, ...]  # what each part is called

    @cached_property
    def sizes(self) -> Ints:
        """Slots of each part (P,)."""
        return np.bincount(self.part[self.part >= 0], minlength=len(self.names))

    @cached_property
    def masks(self) -> Bools:
        """Slots of each part (P, S)."""
        found: Bools = self.part[None] == np.arange(len(self.names))[:, None]
        return found

    @cached_property
    def members(self) -> list[tuple[Ints, Ints]]:
        """Parts of one size with their slots: indices (p,), slots (p, k)."""
        found = []
        for size in np.unique(self.sizes):
            parts = np.flatnonzero(self.sizes == size)
            found.append((parts, np.stack([np.flatnonzero(self.part == p) for p in parts])))
        return found


def families_of(table: Table) -> list[Family]:
    """Return the partitions that differ, the largest parts first; single slots last.

    Sets of slots that two kinds name keep the first name.
    """
    node, memory, halves = table.node, table.memory, _halves(table)
    bound = (node >= 0) & (memory >= 0)
    elsewhere = np.where(bound, node != memory, np.where(memory == SEVERAL, 1, -1))
    labels = {
        "node": node,
        "package": table.package,
        "llc": table.llc,
        "memory": memory,
        "node+memory": np.where(bound, node * NODE_SHIFT + memory, -1),
        "remote": elsewhere,
        "thread": _threads(table),
        "half": halves,
        "half of lgroup": np.where(halves >= 0, 2 * node + halves, -1),
        "sharing": _shared(table),
        "core": table.core,
        "cpu": table.cpu,
    }
    found: list[Family] = []
    seen: set[bytes] = set()
    for kind, label in labels.items():
        names, part = np.unique(label[label >= 0], return_inverse=True)
        single = len(names) == len(part)  # slots, which are a family of their own
        if len(names) < 2 or (single and kind in ("core", "cpu", "llc", "half")):
            continue
        whole = np.full(len(label), -1)
        whole[label >= 0] = part
        one = Family(kind, whole, tuple(names.tolist()))
        masks = {mask.tobytes() for mask in one.masks}
        if masks - seen:
            seen |= masks
            found.append(one)
    slots = table.shape[2]
    copies = Family("copy", np.arange(slots), tuple(range(slots)))
    return [*found, copies] if slots > 1 else found


def _threads(table: Table) -> Ints:
    """Return which of its core's CPUs a slot's is, in ascending order; -1: not known."""
    found = np.full(table.shape[2], -1)
    for core in np.unique(table.core[table.core >= 0]):
        here = np.flatnonzero(table.core == core)
        found[here] = np.searchsorted(np.unique(table.cpu[here]), table.cpu[here])
    return found


def _shared(table: Table) -> Ints:
    """Return the way in which a slot shares its core, of those that several cores have; else -1."""
    found = sharing_classes(table)[1]
    cores = [len(np.unique(table.core[found == one])) for one in range(int(found.max()) + 1)]
    return np.where(np.array(cores)[found] > 1, found, -1)


def _halves(table: Table) -> Ints:
    """Return which half of its lgroup's CPUs a slot's is in, 0 or 1, where there are eight."""
    found = np.full(table.shape[2], -1)
    for node in np.unique(table.node[table.node >= 0]):
        here = np.flatnonzero(table.node == node)
        cpus, place = np.unique(table.cpu[here], return_inverse=True)
        if len(cpus) >= _LEAST_HALVED:
            found[here] = place >= (len(cpus) + 1) // 2
    return found


def start_order(table: Table) -> Floats:
    """Return each slot's place in the order of start, 0 to 1; by number where that is not known."""
    slots, start = table.shape[2], table.start_s
    first = np.where(np.isnan(start), np.inf, start).min(axis=2, keepdims=True)
    late = (start - np.where(np.isfinite(first), first, np.nan)).reshape(-1, slots)
    numbers = median(np.where(table.copy >= 0, table.copy, np.nan).reshape(-1, slots).T)
    order = np.lexsort((np.nan_to_num(numbers), np.nan_to_num(median(late.T))))
    place = np.empty(slots)
    place[order] = np.arange(slots)
    return place / max(1, slots - 1)

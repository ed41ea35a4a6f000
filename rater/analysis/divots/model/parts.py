"""The parts of a run that can be slow, named as simply as it is true; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import Bools, Floats, Ints

# A part is a set of slots. To name one among all that there are takes ln(kinds) + ln(parts of its
# kind) nats: the simpler the machine, the less a finding must explain to be told.

LOCAL, REMOTE = 0, 1
_PAIR = 100_000  # node and memory as one number
SETS = ("run", "set")  # parts that the times name, not the machine


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Slots that share something that the others do not."""

    kind: str
    name: int
    slots: Bools
    cost: float  # nats

    @property
    def size(self) -> int:
        """Slots in it."""
        return int(self.slots.sum())


@dataclass(frozen=True, slots=True, eq=False)
class PartArrays:
    """Parts with their members as one array, padded."""

    parts: tuple[Part, ...]
    index: Ints  # (P, longest) slots, the padding points at slot S
    sizes: Floats  # (P,)
    kinds: tuple[str, ...] = field(default=())


def machine_parts(table: Table, classes: Ints) -> list[Part]:
    """Return all parts of the machine that the copies ran on, each set of slots once.

    `classes` (S,) are the ways in which slots share CPUs and cores.
    """
    slots = len(table.cpu)
    known = (table.node >= 0) & (table.memory >= 0)
    remote = np.where(known, np.where(table.memory == table.node, LOCAL, REMOTE), UNKNOWN)
    pair = np.where(known, table.node * _PAIR + table.memory, UNKNOWN)
    half = _halves(table.node, table.core, table.cpu)
    named = {
        "node": table.node,
        "package": table.package,
        "llc": table.llc,
        "core": table.core,
        "cpu": table.cpu,
        "node+memory": pair,
        "memory": np.where(table.memory >= 0, table.memory, UNKNOWN),
        "remote": remote,
        "thread": _threads(table),
        "half": np.where(half >= 0, half % 2, UNKNOWN),
        "half of lgroup": half,
        "sharing": classes,
        "copy": np.arange(slots),
    }
    found: list[tuple[str, int, Bools]] = []
    seen: set[bytes] = set()
    for kind, numbers in named.items():
        for name in np.unique(numbers[numbers != UNKNOWN]):
            members = numbers == name
            if not 0 < members.sum() < slots or members.tobytes() in seen:
                continue
            seen.add(members.tobytes())
            found.append((kind, int(name), members))
    kinds = [kind for kind, _, _ in found]
    many = math.log(max(1, len(set(kinds))))
    return [
        Part(kind, name, members, many + math.log(kinds.count(kind)))
        for kind, name, members in found
    ]


def _threads(table: Table) -> Ints:
    """Return the place of each slot's CPU among those of its core, where cores have several."""
    rank = np.full(len(table.cpu), UNKNOWN)
    known = (table.core != UNKNOWN) & (table.cpu != UNKNOWN)
    for core in np.unique(table.core[known]):
        here = known & (table.core == core)
        rank[here] = np.searchsorted(np.unique(table.cpu[here]), table.cpu[here])
    return rank if rank.max(initial=0) > 0 else np.full(len(rank), UNKNOWN)


def _halves(node: Ints, core: Ints, cpu: Ints) -> Ints:
    """Return 2 x lgroup, and one more for the upper half of its CPUs (of four slots or more)."""
    half = np.full(len(node), UNKNOWN)
    for name in np.unique(node[node != UNKNOWN]):
        here = np.flatnonzero(node == name)
        if len(here) >= 4 and len(np.unique(cpu[here])) > 1:
            pairs = np.stack((core[here], cpu[here]), axis=1)
            cpus, place = np.unique(pairs, axis=0, return_inverse=True)
            half[here] = 2 * name + (place.reshape(-1) >= (len(cpus) + 1) // 2)
    return half


def to_part_arrays(parts: list[Part]) -> PartArrays:
    """Return parts with their members as one index array."""
    slots = len(parts[0].slots) if parts else 0
    sizes = np.array([part.size for part in parts], dtype=np.int64)
    index = np.full((len(parts), int(sizes.max(initial=0))), slots)
    for place, part in enumerate(parts):
        index[place, : sizes[place]] = np.flatnonzero(part.slots)
    return PartArrays(tuple(parts), index, sizes.astype(np.float64), tuple(p.kind for p in parts))


def part_from_set(slots: Bools, kind: str = "set") -> Part:
    """Return a set of copies that only the times name: which m of S costs ln (S over m) nats."""
    s, m = len(slots), int(slots.sum())
    which = math.log(s) if kind == "run" else ln_choose(s, m)  # of a run: where it ends
    return Part(kind, UNKNOWN, slots, math.log(s) + which)


def split_sets(profiles: Floats) -> list[Bools]:
    """Return for each row (N, S) the copies above and below its best cuts in two.

    The cut with the least squares inside of both sides, by sums over the sorted row.
    """
    found: dict[bytes, Bools] = {}
    for row in profiles:
        known = np.flatnonzero(~np.isnan(row))
        n = len(known)
        if n < 3:
            continue
        order = known[np.argsort(row[known], kind="stable")]
        x = row[order]
        sums = np.cumsum(x)
        k = np.arange(1, n)
        between = sums[:-1] ** 2 / k + (sums[-1] - sums[:-1]) ** 2 / (n - k)
        cut = int(np.argmax(between)) + 1
        wide = int(np.argmax(np.diff(x))) + 1  # the widest gap: few far out pull no others in
        for at in {cut, wide}:
            few = order[:at] if at * 2 < n else order[at:]
            mask = np.zeros(len(row), dtype=bool)
            mask[few] = True
            found[mask.tobytes()] = mask
    return list(found.values())


def run_sets(profiles: Floats) -> list[Bools]:
    """Return for each row (N, S) the neighbours whose sum stands out most for their number."""
    rows = np.nan_to_num(profiles)
    n, s = rows.shape
    sums = np.concatenate((np.zeros((n, 1)), np.cumsum(rows, axis=1)), axis=1)
    best = np.zeros(n)
    where = np.zeros((n, 2), dtype=np.int64)
    for length in range(2, s // 2 + 1):
        part = np.abs(sums[:, length:] - sums[:, :-length]) / np.sqrt(length * (1 - length / s))
        at = np.argmax(part, axis=1)
        value = part[np.arange(n), at]
        better = value > best
        best[better] = value[better]
        where[better] = np.stack((at, at + length), axis=1)[better]
    found: dict[tuple[int, int], Bools] = {}
    for first, end in where:
        if end > first:
            mask = np.zeros(s, dtype=bool)
            mask[first:end] = True
            found[int(first), int(end)] = mask
    return list(found.values())


def like_groups(table: Table, classes: Ints) -> Ints:
    """Return groups (S,) inside of which copies should be alike.

    Copies that share lgroup, LLC, memory and the sharing of CPUs, where they are six or
    more; else those of three or more that share lgroup and memory.
    """
    parts = (table.node, table.llc, table.memory, classes)
    _, fine, members = np.unique(
        np.stack(parts, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    fine = fine.reshape(-1)
    _, coarse, on_node = np.unique(
        np.stack((table.node, table.memory), axis=1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    coarse = coarse.reshape(-1)
    usual = np.where(on_node[coarse] >= limits.SEVERAL, coarse, UNKNOWN)
    found = np.where(members[fine] >= limits.MANY_PARTS, len(on_node) + fine, usual)
    # Whom the finer groups leave alone of a coarse one has nobody like it.
    _, of_found, left = np.unique(found, return_inverse=True, return_counts=True)
    return np.where(left[of_found.reshape(-1)] >= limits.SEVERAL, found, UNKNOWN)


def ln_choose(n: int, m: int) -> float:
    """Return the logarithm of in how many ways m of n can be chosen."""
    return math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)


# -- Which part of the machine a set of copies is, said as simply as it is true --------------------

_WHOLE = ("node", "package", "llc", "core", "cpu")


def place_of(table: Table, machine: list[Part], slots: Bools) -> tuple[str, tuple[int, ...]]:
    """Return the level and the groups of it that the slots are; `("set", ())` for none.

    One part, or several of a level together, that shares at least four of five copies
    with them, the one that fits best; of equal ones the first in `machine_parts`.
    """
    best = limits.SAME
    found: tuple[str, tuple[int, ...]] = ("set", ())
    for part in machine:
        if part.kind == "copy":
            continue
        fit = _alike(part.slots, slots)
        if fit > best or (fit == best == 1.0 and found[0] == "set"):
            best, found = fit, (part.kind, (part.name,))
    several: tuple[str, tuple[int, ...]] = ("set", ())
    for level in _WHOLE:
        numbers = getattr(table, level)
        names = [
            int(name)
            for name in np.unique(numbers[slots])
            if name != UNKNOWN and np.mean(slots[numbers == name]) >= limits.SAME
        ]
        fit = _alike(np.isin(numbers, names), slots) if names else 0.0
        if fit > best and len(names) > 1 and (numbers == names[0]).sum() > 1:
            best, several = fit, (level, tuple(names))
    return several if several[1] else found


def _alike(left: Bools, right: Bools) -> float:
    both, either = int((left & right).sum()), int((left | right).sum())
    return both / max(1, either)

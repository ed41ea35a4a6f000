"""The machine cut into parts as hwloc's `hwloc_distrib` cuts it: wide, disjoint, all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from rater.plan.topology.model import PU, Topology

type _Span = tuple[int, int]  # positions among the usable PUs, the second one exclusive


@dataclass(slots=True)
class _Object:
    """An object of the machine and what lies in it; a PU has no children."""

    first: int
    end: int
    children: list[_Object] = field(default_factory=list)


def distrib(topology: Topology, sets: int) -> tuple[tuple[PU, ...], ...]:
    """Cut the usable PUs into `sets` (1 to their number) sets, each in logical order.

    From the top down, each object hands its sets to its children in proportion to
    their usable PUs, rounded so that earlier ones come first; a child that gets one
    keeps it whole, and one that gets none joins the set before it (hwloc 2.x,
    `include/hwloc/helper.h`). Objects are packages, groups, caches and cores, as in
    hwloc: lgroups count where they hold CPUs of their own.
    """
    found: list[list[PU]] = []

    def cut(objects: list[_Object], sets: int) -> None:
        total = sum(part.end - part.first for part in objects)
        passed = 0
        for part in objects:
            weight = part.end - part.first
            share = _ceil((passed + weight) * sets, total) - _ceil(passed * sets, total)
            passed += weight
            pus = topology.pus[part.first : part.end]
            if share > 1:
                cut(part.children, share)
            elif share == 1:
                found.append(list(pus))
            else:
                found[-1] += pus

    cut([_tree(topology)], sets)
    return tuple(tuple(pus) for pus in found)


def _tree(topology: Topology) -> _Object:
    """Return the usable part of the machine as nested objects with PUs at the leaves."""
    root = _Object(0, len(topology.pus))
    open_: list[_Object] = [root]
    for first, end in sorted(_spans(topology), key=lambda span: (span[0], -span[1])):
        while open_[-1].end <= first:
            _fill(open_.pop())
        part = _Object(first, end)
        open_[-1].children.append(part)
        open_.append(part)
    while open_:
        _fill(open_.pop())
    return root


def _fill(part: _Object) -> None:
    """Give an object the PUs that lie in none of its children as children of their own."""
    filled: list[_Object] = []
    position = part.first
    for child in (*part.children, _Object(part.end, part.end)):
        filled += [_Object(pu, pu + 1) for pu in range(position, child.first)]
        if child.end > child.first:
            filled.append(child)
        position = child.end
    if part.end - part.first > 1:
        part.children = filled


def _spans(topology: Topology) -> set[_Span]:
    """Return what lies between the machine and its PUs; of two that cross, the lgroup goes."""
    machine = topology.machine_pus
    before = [0, *accumulate(pu.os in topology.by_cpu for pu in machine)]
    details = topology.details
    whole = (0, len(topology.pus))

    def usable(spans: Iterable[_Span]) -> set[_Span]:
        found = {(before[first], before[end]) for first, end in spans}
        return {(first, end) for first, end in found if end - first > 1 and (first, end) != whole}

    objects = usable((part.first, part.first + part.count) for part in details.groups)
    objects |= usable((part.first, part.first + part.count) for part in details.caches)
    objects |= usable(_runs([pu.package for pu in machine]))
    objects |= usable(_runs([pu.llc for pu in machine]))
    objects |= usable(_runs([pu.core for pu in machine]))
    # hwloc puts a group around the CPUs of a lgroup where no other object has just these.
    position = {pu.os: place for place, pu in enumerate(machine)}
    lgroups = []
    for node in topology.nodes:
        places = sorted(position[cpu] for cpu in node.cpus)
        if places and places[-1] - places[0] == len(places) - 1:
            lgroups.append((places[0], places[-1] + 1))
    new = usable(lgroups) - objects
    if _nested(objects | new):
        return objects | new
    return objects | _fitting(objects, new, len(topology.pus)) if _nested(objects) else objects


def _fitting(nested: set[_Span], new: set[_Span], pus: int) -> set[_Span]:
    """Return the new spans that cross no nested one, and no new one before them.

    Of the spans around the gap between two PUs it is enough to know the innermost one,
    so that thousands of lgroups that cross each other cost no more than their CPUs.
    """
    inner: list[_Span] = [(0, pus)] * (pus + 1)  # by the gap before each PU
    for first, end in sorted(nested, key=lambda span: span[0] - span[1]):  # the widest first
        inner[first + 1 : end] = [(first, end)] * (end - first - 1)
    found: set[_Span] = set()
    for first, end in sorted(new):
        if inner[first][1] < end or inner[end][0] > first:
            continue
        found.add((first, end))
        for gap in range(first + 1, end):
            if inner[gap][1] - inner[gap][0] > end - first:
                inner[gap] = (first, end)
    return found


def _runs(numbers: Sequence[int | None]) -> list[_Span]:
    """Return where the same number stands side by side."""
    starts = [i for i in range(len(numbers)) if i == 0 or numbers[i] != numbers[i - 1]]
    spans = zip(starts, [*starts[1:], len(numbers)], strict=True)
    return [span for span in spans if numbers[span[0]] is not None]


def _nested(spans: Iterable[_Span]) -> bool:
    """Tell whether no two spans cross."""
    open_: list[int] = []  # ends
    for first, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ and open_[-1] <= first:
            open_.pop()
        if open_ and open_[-1] < end:
            return False
        open_.append(end)
    return True


def _ceil(number: int, by: int) -> int:
    return -(-number // by)

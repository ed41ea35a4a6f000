"""A layout's PUs, copy by copy, and a machine cut into parts as `hwloc_distrib` cuts it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, zip_longest

from msgspec import Struct, field

from rater.errors import InputError
from rater.plan.placement.layout import EXPLICIT, Counts, CpuOrder, Layout, options
from rater.plan.placement.order import (
    PERMUTATIONS,
    FilteredMachine,
    Slot,
    Tiers,
    apply_filters,
    balanced,
    compact,
    cpus_of,
    evaluate_expression,
    restrict_to,
    scatter,
    singles,
    slots_of,
    spread_slots,
    whole_first,
)
from rater.plan.topology import PU, Domain, Topology
from rater.record.run import MOST_COPIES
from rater.text import cpuset
from rater.text.values import group_by_key

type _Span = tuple[int, int]  # positions among the usable PUs, the second one exclusive


class _Object(Struct):
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
    machine = topology.machine_pus
    before = [0, *accumulate(pu.os in topology.by_cpu for pu in machine)]
    details = topology.details
    whole = (0, len(topology.pus))

    def usable(spans: Iterable[_Span]) -> set[_Span]:
        found = {(before[first], before[end]) for first, end in spans}
        return {(first, end) for first, end in found if end - first > 1 and (first, end) != whole}

    objects = usable((part.first, part.first + part.count) for part in details.groups)
    objects |= usable((part.first, part.first + part.count) for part in details.caches)
    objects |= usable(_distrib_runs([pu.package for pu in machine]))
    objects |= usable(_distrib_runs([pu.llc for pu in machine]))
    objects |= usable(_distrib_runs([pu.core for pu in machine]))
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


def _distrib_runs(numbers: Sequence[int | None]) -> list[_Span]:
    starts = [i for i in range(len(numbers)) if i == 0 or numbers[i] != numbers[i - 1]]
    spans = zip(starts, [*starts[1:], len(numbers)], strict=True)
    return [span for span in spans if numbers[span[0]] is not None]


def _nested(spans: Iterable[_Span]) -> bool:
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


# -- A layout's PUs, copy by copy: the order on what the layout leaves of the machine, its counts --


class CpuAssignment(Struct, frozen=True):
    """Which PUs each copy has of a machine that a layout has filtered."""

    topology: Topology  # what the layout leaves to copies
    slots: tuple[Slot, ...]  # by copy
    reserved: tuple[PU, ...]  # cores kept for the system and the supervisor, in logical order
    most: int  # copies that there is room for before a PU gets a second one
    warnings: tuple[str, ...] = ()  # CPUs that the user wrote down and no copy gets
    full: tuple[OverfullNode, ...] = ()  # lgroups whose count is more than there is room for


def assign_cpus(topology: Topology, layout: Layout, copies: int, threads: int = 1) -> CpuAssignment:
    """Give each of `copies` (at least 1) its PUs, `threads` of them; more copies go round.

    The layout's order must not be `none`. Raises `InputError` for what the machine
    does not have, and for a number of copies that the layout's counts do not add up to.
    """
    filtered = apply_filters(topology, layout)
    usable = filtered.topology
    if layout.counts is not None:
        shares = _shares(usable, layout, layout.counts, copies)
        slots = _counted(usable, layout.order, shares, threads)
        rooms = [
            _room(restrict_to(usable, domain.pus), layout.order, threads) if share else 0
            for domain, share in shares
        ]
        room = sum(min(share, has) for (_, share), has in zip(shares, rooms, strict=True))
        full = tuple(
            OverfullNode(domain.node, share, has)
            for (domain, share), has in zip(shares, rooms, strict=True)
            if share > has
        )
        return CpuAssignment(usable, tuple(slots), filtered.reserved, room, full=full)
    slots = _slots(filtered, layout, copies, threads)
    room = _disjoint(slots)
    if layout.order not in EXPLICIT:  # slots of whole cores are fewer than there is room for
        room = max(1, _room(usable, layout.order, threads))
    given = tuple(slots[copy % len(slots)] for copy in range(copies))
    return CpuAssignment(usable, given, filtered.reserved, room, _dropped(filtered, layout, slots))


def _dropped(filtered: FilteredMachine, layout: Layout, slots: Sequence[Slot]) -> tuple[str, ...]:
    """Tell which CPUs of an explicit order no copy gets however many there are, and why."""
    if layout.order not in EXPLICIT:
        return ()
    left = filtered.topology.by_cpu
    named = [pu.os for pu in named_by(filtered, layout)]
    gone = [cpu for cpu in named if cpu not in left]
    over = [cpu for cpu in named if cpu in left][sum(map(len, slots)) :]
    found = []
    if gone:
        found.append(
            f"{_cpus(gone)} of the list {'are' if len(gone) > 1 else 'is'} left out: the "
            f"layout's filters ({', '.join(options(layout))}) take "
            f"{'them' if len(gone) > 1 else 'it'} away"
        )
    if over:
        found.append(
            f"{_cpus(over)} at the end of the list {'are' if len(over) > 1 else 'is'} left over: "
            f"each copy uses {len(slots[0])}"
        )
    return tuple(found)


def named_by(filtered: FilteredMachine, layout: Layout) -> tuple[PU, ...]:
    """Return the PUs that `list:` or `expr:` names, in its order.

    Filters take CPUs out of a list afterwards; an expression is of what they leave.
    """
    if layout.order is CpuOrder.LIST:
        return cpus_of(filtered.open, layout.text)
    return evaluate_expression(filtered.topology, layout.text)


def _cpus(numbers: Sequence[int]) -> str:
    return f"CPU{'s' if len(set(numbers)) > 1 else ''} {cpuset.format_list(numbers)}"


def _room(topology: Topology, order: CpuOrder, threads: int) -> int:
    most = len(topology.pus) // threads
    if order is CpuOrder.DISTRIB and threads > 1:  # its sets are not all of one size
        while most > 1 and min(map(len, distrib(topology, most))) < threads:
            most -= 1
    return most


def _disjoint(slots: Sequence[Slot]) -> int:
    taken: set[int] = set()
    found = 0
    for slot in slots:
        cpus = {pu.os for pu in slot}
        if not taken & cpus:
            taken |= cpus
            found += 1
    return found


def _slots(filtered: FilteredMachine, layout: Layout, copies: int, threads: int) -> Sequence[Slot]:
    usable = filtered.topology
    if layout.order is CpuOrder.DISTRIB:
        return distrib(usable, max(1, min(copies, len(usable.pus) // threads)))
    if layout.order is CpuOrder.LIST:
        return _assign_runs(_listed(filtered, layout), layout, threads)
    if layout.order is CpuOrder.EXPR:
        return _assign_runs(named_by(filtered, layout), layout, threads)
    if threads > 1 and layout.order in (CpuOrder.BALANCED, CpuOrder.SCATTER):
        slots = spread_slots(usable, copies, threads)
        return compact([slots]) if layout.order is CpuOrder.BALANCED else slots
    tiers = slots_of(usable, copies, threads)
    if layout.order is CpuOrder.BALANCED:
        return balanced(tiers, copies)
    return [
        slot for part in whole_first(tiers, copies) for slot in PERMUTATIONS[layout.order](part)
    ]


def _assign_runs(pus: Sequence[PU], layout: Layout, threads: int) -> list[Slot]:
    whole = len(pus) // threads * threads
    if not whole:
        raise InputError(
            f"layout {layout.name}: {len(pus)} CPUs, and one copy uses {threads}: name more"
        )
    slots = [tuple(pus[begin : begin + threads]) for begin in range(0, whole, threads)]
    for copy, slot in enumerate(slots):
        if len({pu.os for pu in slot}) < threads:
            cpus = ",".join(str(pu.os) for pu in slot)
            raise InputError(
                f"layout {layout.name}: copy {copy} of {threads} threads would have a CPU twice "
                f"({cpus}): name {threads} different CPUs for each copy"
            )
    return slots


def _listed(filtered: FilteredMachine, layout: Layout) -> list[PU]:
    left = filtered.topology.by_cpu
    named = named_by(filtered, layout)
    pus = [left[pu.os] for pu in named if pu.os in left]
    if not pus:
        raise InputError(
            f"layout {layout.name}: none of its CPUs is among those that its filters leave "
            f"({cpuset.format_list(left)})"
        )
    return pus


def _shares(
    topology: Topology, layout: Layout, counts: Counts, copies: int
) -> list[tuple[Domain, int]]:
    shares = counted(topology, layout, counts)
    total = sum(share for _, share in shares)
    if total != copies:
        detail = ", ".join(
            f"{share} on {'CPUs without a node' if d.node is None else f'node {d.node}'}"
            for d, share in shares[:8]
        )
        more = ", ..." if len(shares) > 8 else ""
        raise InputError(
            f"layout {layout.name} has counts for {total} copies on {topology.source} "
            f"({detail}{more}), not for {copies}: use --copies {total}"
        )
    return shares


def _counted(
    topology: Topology, order: CpuOrder, shares: Sequence[tuple[Domain, int]], threads: int
) -> Sequence[Slot]:
    """Give each domain its share, in the order that the layout has on the whole machine.

    A domain with more copies than PUs is gone through again.
    """
    if order is CpuOrder.DISTRIB:
        slots: list[Slot] = []
        for domain, share in shares:
            if share:
                part = restrict_to(topology, domain.pus)
                sets = distrib(part, max(1, min(share, len(part.pus) // threads)))
                slots += [sets[copy % len(sets)] for copy in range(share)]
        return slots
    spread = order is CpuOrder.BALANCED
    lacking = [domain for domain, share in shares if share and len(domain.pus) < threads]
    if lacking:
        raise InputError(
            f"node {lacking[0].node} has {len(lacking[0].pus)} usable CPUs, and one copy uses "
            f"{threads}: leave it out of the counts"
        )
    tiers = _tiers_by_domain(topology, shares, threads) if threads > 1 else singles(topology)
    whole = (scatter if spread else PERMUTATIONS[order])(tiers)
    given = list(_rounds(whole, {d.pus[0].domain: share for d, share in shares}))
    return compact([given]) if spread else given


def _tiers_by_domain(
    topology: Topology, shares: Sequence[tuple[Domain, int]], threads: int
) -> Tiers:
    cut = [
        slots_of(restrict_to(topology, domain.pus), share, threads)
        for domain, share in shares
        if share
    ]
    return [[slot for tier in tiers for slot in tier] for tiers in zip_longest(*cut, fillvalue=())]


def _rounds(slots: Sequence[Slot], left: dict[object, int]) -> Iterator[Slot]:
    while any(left.values()):
        for slot in slots:
            domain = slot[0].domain
            if left[domain]:
                left[domain] -= 1
                yield slot


# -- What a layout's counts give to each lgroup, and what is wrong with counts for another machine -


class OverfullNode(Struct, frozen=True):
    """Lgroup that a layout's count gives more copies than it has CPUs for."""

    node: int | None  # OS number; None: CPUs that no lgroup holds
    copies: int
    room: int


def counted(topology: Topology, layout: Layout, counts: Counts) -> list[tuple[Domain, int]]:
    """Return the copies on each domain, in logical order.

    `topology` is what the layout leaves of the machine. Raises `InputError` for counts
    of lgroups where no copy can run, and when there is no copy, or more than can be.
    """
    by_node = dict(counts.by_node)
    absent = [node for node in by_node if node not in {domain.node for domain in topology.domains}]
    if absent:
        _refuse(topology, layout, absent)
    shares = [
        (domain, counts.rest if domain.node is None else by_node.get(domain.node, counts.rest))
        for domain in topology.domains
    ]
    total = sum(share for _, share in shares)
    if not 0 < total <= MOST_COPIES:
        raise InputError(
            f"layout {layout.name}: its counts add up to {total} copies on {topology.source}, "
            f"expected 1 to {MOST_COPIES}: change its counts"
        )
    return shares


def _refuse(topology: Topology, layout: Layout, absent: list[int]) -> None:
    machine = {pu.node for pu in topology.machine_pus}

    def reason(number: int) -> str:
        node = topology.by_node.get(number)
        if node is None:
            return "not there"
        if number in machine:
            return "without a CPU that the layout may give to copies"
        if not node.allowed:
            return "not allowed as memory here, so home of no CPU"
        return "extra memory of CPUs that have another home" if node.cpus else "without CPUs"

    reasons = group_by_key((reason(number), number) for number in absent)
    text = " and ".join(
        f"node{'s' if len(nodes) > 1 else ''} {cpuset.format_list(nodes)} "
        f"{'are' if len(nodes) > 1 else 'is'} {why}"
        for why, nodes in reasons.items()
    )
    there = cpuset.format_list(d.node for d in topology.domains if d.node is not None)
    raise InputError(
        f"layout {layout.name}: its counts name NUMA nodes where no copy can run: {text}; on "
        f"{topology.source} copies can run on node {there or 'none'}: change its counts"
    )

"""A layout's PUs, copy by copy: the order on what the layout leaves of the machine, its counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rater.errors import InputError
from rater.plan.placement.counts import Full, counted
from rater.plan.placement.cpu_order import cpus_of, evaluate
from rater.plan.placement.distrib import distrib
from rater.plan.placement.filter import Filtered, apply_filters, keep
from rater.plan.placement.layout import EXPLICIT, Counts, CpuOrder, Layout
from rater.plan.placement.layout_options import options
from rater.plan.placement.orders import (
    PERMUTATIONS,
    Slot,
    Tiers,
    balanced,
    compact,
    scatter,
    singles,
)
from rater.plan.placement.slots import slots_of, spread_slots, whole_first
from rater.plan.topology.model import PU, Domain, Topology
from rater.text import cpuset


@dataclass(frozen=True, slots=True)
class Assigned:
    """Which PUs each copy has of a machine that a layout has filtered."""

    topology: Topology  # what the layout leaves to copies
    slots: tuple[Slot, ...]  # by copy
    reserved: tuple[PU, ...]  # cores kept for the system and the supervisor, in logical order
    most: int  # copies that there is room for before a PU gets a second one
    warnings: tuple[str, ...] = ()  # CPUs that the user wrote down and no copy gets
    full: tuple[Full, ...] = ()  # lgroups whose count is more than there is room for


def assign(topology: Topology, layout: Layout, copies: int, threads: int = 1) -> Assigned:
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
            _room(keep(usable, domain.pus), layout.order, threads) if share else 0
            for domain, share in shares
        ]
        room = sum(min(share, has) for (_, share), has in zip(shares, rooms, strict=True))
        full = tuple(
            Full(domain.node, share, has)
            for (domain, share), has in zip(shares, rooms, strict=True)
            if share > has
        )
        return Assigned(usable, tuple(slots), filtered.reserved, room, full=full)
    slots = _slots(filtered, layout, copies, threads)
    room = _disjoint(slots)
    if layout.order not in EXPLICIT:  # slots of whole cores are fewer than there is room for
        room = max(1, _room(usable, layout.order, threads))
    given = tuple(slots[copy % len(slots)] for copy in range(copies))
    return Assigned(usable, given, filtered.reserved, room, _dropped(filtered, layout, slots))


def _dropped(filtered: Filtered, layout: Layout, slots: Sequence[Slot]) -> tuple[str, ...]:
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


def named_by(filtered: Filtered, layout: Layout) -> tuple[PU, ...]:
    """Return the PUs that `list:` or `expr:` names, in its order.

    Filters take CPUs out of a list afterwards; an expression is of what they leave.
    """
    if layout.order is CpuOrder.LIST:
        return cpus_of(filtered.open, layout.text)
    return evaluate(filtered.topology, layout.text)


def _cpus(numbers: Sequence[int]) -> str:
    return f"CPU{'s' if len(set(numbers)) > 1 else ''} {cpuset.format_list(numbers)}"


def _room(topology: Topology, order: CpuOrder, threads: int) -> int:
    """Return how many copies can have PUs enough of their own; not for written orders."""
    most = len(topology.pus) // threads
    if order is CpuOrder.DISTRIB and threads > 1:  # its sets are not all of one size
        while most > 1 and min(map(len, distrib(topology, most))) < threads:
            most -= 1
    return most


def _disjoint(slots: Sequence[Slot]) -> int:
    """Count the slots that share no PU with one counted before."""
    taken: set[int] = set()
    found = 0
    for slot in slots:
        cpus = {pu.os for pu in slot}
        if not taken & cpus:
            taken |= cpus
            found += 1
    return found


def _slots(filtered: Filtered, layout: Layout, copies: int, threads: int) -> Sequence[Slot]:
    """Return slots in the order in which copies get them, until all are used."""
    usable = filtered.topology
    if layout.order is CpuOrder.DISTRIB:
        return distrib(usable, max(1, min(copies, len(usable.pus) // threads)))
    if layout.order is CpuOrder.LIST:
        return _runs(_listed(filtered, layout), layout, threads)
    if layout.order is CpuOrder.EXPR:
        return _runs(named_by(filtered, layout), layout, threads)
    if threads > 1 and layout.order in (CpuOrder.BALANCED, CpuOrder.SCATTER):
        slots = spread_slots(usable, copies, threads)
        return compact([slots]) if layout.order is CpuOrder.BALANCED else slots
    tiers = slots_of(usable, copies, threads)
    if layout.order is CpuOrder.BALANCED:
        return balanced(tiers, copies)
    return [
        slot for part in whole_first(tiers, copies) for slot in PERMUTATIONS[layout.order](part)
    ]


def _runs(pus: Sequence[PU], layout: Layout, threads: int) -> list[Slot]:
    """Cut what the user wrote down into one slot after the other."""
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


def _listed(filtered: Filtered, layout: Layout) -> list[PU]:
    """Return the PUs of a list; those that filters take away are left out."""
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
    """Return the copies on each domain, in logical order; their sum must be `copies`."""
    shares = counted(topology, layout, counts)
    total = sum(share for _, share in shares)
    if total != copies:
        detail = ", ".join(
            f"{share} on {'CPUs without a node' if d.node is None else f'lgroup {d.node}'}"
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
                part = keep(topology, domain.pus)
                sets = distrib(part, max(1, min(share, len(part.pus) // threads)))
                slots += [sets[copy % len(sets)] for copy in range(share)]
        return slots
    spread = order is CpuOrder.BALANCED
    lacking = [domain for domain, share in shares if share and len(domain.pus) < threads]
    if lacking:
        raise InputError(
            f"lgroup {lacking[0].node} has {len(lacking[0].pus)} usable CPUs, and one copy uses "
            f"{threads}: leave it out of the counts"
        )
    tiers = _tiers_by_domain(topology, shares, threads) if threads > 1 else singles(topology)
    whole = (scatter if spread else PERMUTATIONS[order])(tiers)
    given = list(_rounds(whole, {d.pus[0].domain: share for d, share in shares}))
    return compact([given]) if spread else given


def _tiers_by_domain(
    topology: Topology, shares: Sequence[tuple[Domain, int]], threads: int
) -> Tiers:
    """Cut the PUs of each domain by its own share: a full one must not crowd the others."""
    cut = [
        slots_of(keep(topology, domain.pus), share, threads) for domain, share in shares if share
    ]
    return [[slot for tier in tiers for slot in tier] for tiers in zip_longest(*cut, fillvalue=())]


def _rounds(slots: Sequence[Slot], left: dict[object, int]) -> Iterator[Slot]:
    """Go through the slots again and again, until no domain has copies left."""
    while any(left.values()):
        for slot in slots:
            domain = slot[0].domain
            if left[domain]:
                left[domain] -= 1
                yield slot

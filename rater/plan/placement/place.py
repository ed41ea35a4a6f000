"""Topology, layout and number of copies in; one `Placement` per copy out; pure.

The way is a straight one: `offer_cpus` (`rater.plan.placement.offer`) says what a layout leaves of
a machine, `implied_copies` or `resolve_copies` how many copies that makes, `assign` which PUs each
has, `place` where each runs and where its memory is from, with what a person should know of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.layout import EXPLICIT, BindLevel, CpuOrder, Layout, options
from rater.plan.placement.memory_policy import AT_HOME, Memory, home_nodes, named_nodes
from rater.plan.placement.offer import CpuOffer, offer_cpus, restrict_to
from rater.plan.placement.slots import (
    PERMUTATIONS,
    Key,
    Slot,
    along,
    distrib,
    ordered_slots,
    scatter,
    singles,
    slots_of,
    spread_slots,
)
from rater.plan.placement.warnings import placement_warnings, unbound_warnings
from rater.plan.topology import Topology
from rater.record.run import MOST_COPIES, MemoryPolicy, Placement
from rater.system.errors import InputError
from rater.text import cpuset
from rater.text.values import group_by_key

# -- How many copies there are: given, counted on the machine, or implied by the layout ------------


def implied_copies(offer: CpuOffer, threads: int = 1) -> int | None:
    """Return the copies that a layout's counts add up to, or that an expression lists CPUs for.

    A CPU that is listed twice is to have two copies. None for all other layouts.
    """
    if offer.shares:
        return sum(share.copies for share in offer.shares)
    if offer.layout.order is CpuOrder.EXPR:
        return max(1, len(offer.named) // threads)
    return None


def resolve_copies(text: str, topology: Topology, threads: int = 1) -> int:
    """Return the number that `--copies N|pus|cores|nodes` means on a machine.

    `pus` and `cores` give each copy as many as it has threads, `cores` of one NUMA node
    where any has so many; `nodes` counts NUMA nodes with usable CPUs. Raises `InputError`
    for anything else and for numbers outside 1 to `MOST_COPIES`.
    """
    check_copies(text)
    word = text.strip()
    if word == "pus":
        return max(1, len(topology.pus) // threads)
    if word == "cores":
        cores = Counter(core[0].domain for core in topology.cores)
        inside_domains = sum(count // threads for count in cores.values())
        return max(1, inside_domains or len(topology.cores) // threads)
    if word == "nodes":
        nodes = sum(domain.node is not None for domain in topology.domains)
        if not nodes:
            raise InputError(
                f"--copies nodes: no NUMA node of {topology.source} has usable CPUs, "
                "expected a number, pus or cores"
            )
        return nodes
    return int(word)


def check_copies(text: str) -> None:
    """Raise `InputError` for a value of `--copies` that is wrong on every machine."""
    word = text.strip()
    digits = word.lstrip("0")
    is_number = word.isascii() and word.isdigit() and 0 < len(digits) <= len(str(MOST_COPIES))
    if not is_number and word not in ("pus", "cores", "nodes"):
        raise InputError(
            f"--copies {text!r}: expected a number from 1 to {MOST_COPIES}, pus, cores or nodes"
        )


# -- Which PUs each copy has -----------------------------------------------------------------------


class Assignment(Struct, frozen=True):
    """The PUs of copies."""

    slots: tuple[Slot, ...]  # by copy
    room: int  # copies, before a PU gets a second one
    full: tuple[str, ...] = ()  # in words: domains whose count in the layout exceeds their room


def assign(offer: CpuOffer, copies: int, threads: int = 1) -> Assignment:
    """Give each of `copies` (at least 1) its PUs, `threads` of them; more copies go round.

    The layout's order must not be `none`. Raises `InputError` for what the machine
    does not have, and for a number of copies that the layout's counts do not add up to.
    """
    usable, order = offer.topology, offer.layout.order
    if offer.shares:
        return _assign_counts(offer, copies, threads)
    if order in EXPLICIT:
        listed = _listed_slots(offer, threads)
        return _go_round(listed, copies, _count_disjoint(listed))
    if order is CpuOrder.DISTRIB:
        sets = distrib(usable, max(1, min(copies, len(usable.pus) // threads)))
        return _go_round(sets, copies, max(1, _room(usable, order, threads)))
    if order is CpuOrder.SCATTER:
        slots = spread_slots(usable, copies, threads)
    elif order is CpuOrder.BALANCED:
        slots = along(spread_slots(usable, copies, threads))
    else:
        slots = ordered_slots(usable, order, copies, threads)
    return _go_round(slots, copies, max(1, _room(usable, order, threads)))


def _go_round(slots: Sequence[Slot], copies: int, room: int) -> Assignment:
    return Assignment(tuple(slots[copy % len(slots)] for copy in range(copies)), room)


def _room(topology: Topology, order: CpuOrder, threads: int) -> int:
    """Return the most copies for which no PU gets a second one; 0 where not even one fits."""
    room = len(topology.pus) // threads
    if order is CpuOrder.DISTRIB and threads > 1:  # its sets differ in size: the smallest counts
        while room > 1 and min(map(len, distrib(topology, room))) < threads:
            room -= 1
    return room


def _count_disjoint(slots: Sequence[Slot]) -> int:
    """Return how many slots have only CPUs that no counted slot before them has."""
    taken: set[int] = set()
    disjoint = 0
    for slot in slots:
        cpus = {pu.os for pu in slot}
        if not taken & cpus:
            taken |= cpus
            disjoint += 1
    return disjoint


def _listed_slots(offer: CpuOffer, threads: int) -> list[Slot]:
    """Cut the CPUs of `list:` or `expr:`, in their order, into slots of `threads`."""
    layout, usable = offer.layout, offer.topology.by_cpu
    pus = [usable[pu.os] for pu in offer.named if pu.os in usable]
    if not pus:
        raise InputError(
            f"layout {layout.name}: none of its CPUs is among those that its filters leave "
            f"({cpuset.format_list(usable)})"
        )
    end = len(pus) // threads * threads
    if not end:
        raise InputError(
            f"layout {layout.name}: {len(pus)} CPUs, and one copy uses {threads}: name more"
        )
    slots = [tuple(pus[begin : begin + threads]) for begin in range(0, end, threads)]
    for copy, slot in enumerate(slots):
        if len({pu.os for pu in slot}) < threads:
            cpus = ",".join(str(pu.os) for pu in slot)
            raise InputError(
                f"layout {layout.name}: copy {copy} of {threads} threads would have a CPU twice "
                f"({cpus}): name {threads} different CPUs for each copy"
            )
    return slots


def _unused_cpus(offer: CpuOffer, threads: int) -> Iterator[str]:
    """Yield which CPUs of an explicit order no copy gets, whatever their number, and why."""
    usable = offer.topology.by_cpu
    filtered = [pu.os for pu in offer.named if pu.os not in usable]
    remaining = [pu.os for pu in offer.named if pu.os in usable]
    surplus = remaining[len(remaining) // threads * threads :]
    if filtered:
        are, them = ("are", "them") if len(filtered) > 1 else ("is", "it")
        yield (
            f"{cpuset.cpus_text(filtered)} of the list {are} left out: the layout's filters "
            f"({', '.join(options(offer.layout))}) take {them} away"
        )
    if surplus:
        are = "are" if len(surplus) > 1 else "is"
        yield (
            f"{cpuset.cpus_text(surplus)} at the end of the list {are} left over: "
            f"each copy uses {threads}"
        )


# -- Which PUs each copy has where the layout counts the copies of each domain ---------------------


class _CountedPart(Struct, frozen=True):
    """The part of a machine that one domain is, and its copies."""

    topology: Topology  # with the PUs of this domain only
    copies: int
    place: str  # the domain as people call it

    @property
    def domain(self) -> object:
        return self.topology.pus[0].domain


def _assign_counts(offer: CpuOffer, copies: int, threads: int) -> Assignment:
    """Give each domain its share of copies; one with more copies than PUs is gone through again."""
    order = offer.layout.order
    _check_counts(offer, copies, threads)
    parts = [
        _CountedPart(restrict_to(offer.topology, share.domain.pus), share.copies, share.place)
        for share in offer.shares
        if share.copies
    ]
    if order is CpuOrder.DISTRIB:
        slots = [slot for part in parts for slot in _distributed(part, threads)]
    else:
        slots = _in_order_of_machine(offer.topology, parts, order, threads)
    rooms = [_room(part.topology, order, threads) for part in parts]
    return Assignment(
        tuple(slots),
        sum(min(part.copies, room) for part, room in zip(parts, rooms, strict=True)),
        tuple(
            f"{part.place} has {part.copies} and room for {room}"
            for part, room in zip(parts, rooms, strict=True)
            if part.copies > room
        ),
    )


_SHARES_SHOWN = 8  # domains in a message


def _check_counts(offer: CpuOffer, copies: int, threads: int) -> None:
    """Refuse another number of copies than that of the counts, and domains with too few PUs."""
    layout = offer.layout
    shares = [share for share in offer.shares if share.copies]
    total = sum(share.copies for share in shares)
    if total != copies:
        detail = ", ".join(f"{share.copies} on {share.place}" for share in shares[:_SHARES_SHOWN])
        more = ", ..." if len(shares) > _SHARES_SHOWN else ""
        raise InputError(
            f"layout {layout.name} has counts for {total} copies on {offer.topology.source} "
            f"({detail}{more}), not for {copies}: use --copies {total}"
        )
    if layout.order is CpuOrder.DISTRIB:  # it gives a copy fewer PUs where there are no more
        return
    for share in shares:
        pus = len(share.domain.pus)
        if pus < threads:
            raise InputError(
                f"node {share.domain.node} has {pus} usable CPUs, and one copy uses "
                f"{threads}: leave it out of the counts"
            )


def _distributed(part: _CountedPart, threads: int) -> list[Slot]:
    pus = len(part.topology.pus)
    sets = distrib(part.topology, max(1, min(part.copies, pus // threads)))
    return [sets[copy % len(sets)] for copy in range(part.copies)]


def _in_order_of_machine(
    topology: Topology, parts: Sequence[_CountedPart], order: CpuOrder, threads: int
) -> list[Slot]:
    """Return as many slots of each part as it has copies, in the layout's order of all slots."""
    if threads == 1:
        tiers = singles(topology)
    else:
        tiers_by_part = [slots_of(part.topology, part.copies, threads) for part in parts]
        tiers = [[*chain(*tier)] for tier in zip_longest(*tiers_by_part, fillvalue=())]
    is_balanced = order is CpuOrder.BALANCED
    ordered = scatter(tiers) if is_balanced else PERMUTATIONS[order](tiers)
    missing = Counter({part.domain: part.copies for part in parts})
    slots: list[Slot] = []
    while any(missing.values()):  # a second round for parts with more copies than slots
        for slot in ordered:
            if missing[slot[0].domain]:
                missing[slot[0].domain] -= 1
                slots.append(slot)
    return along(slots) if is_balanced else slots


# -- Where each copy runs, and where its memory comes from -----------------------------------------


def default_memory(layout: Layout) -> MemoryPolicy:
    """Return the memory policy of a layout when the user asks for none: local, if it binds."""
    return MemoryPolicy.NONE if layout.order is CpuOrder.NONE else MemoryPolicy.LOCAL


class PlacementPlan(Struct, frozen=True, kw_only=True):
    """A placement per copy, in the order of copies, and what a person should know of it."""

    placements: tuple[Placement, ...]
    warnings: tuple[str, ...]
    reserved: tuple[int, ...] = ()  # OS numbers of the PUs kept for the system, ascending
    most: int = 0  # copies that there is room for before a PU gets a second one
    full: tuple[str, ...] = ()  # in words: domains whose count in the layout exceeds their room


def plan_placements(
    topology: Topology,
    layout: Layout,
    copies: int,
    memory: Memory | MemoryPolicy,
    threads: int = 1,
) -> PlacementPlan:
    """Return where each of `copies` (at least 1) copies goes; raises as `offer_cpus`, `place`."""
    asked_memory = memory if isinstance(memory, Memory) else Memory(memory)
    return place(offer_cpus(topology, layout), copies, asked_memory, threads)


def place(offer: CpuOffer, copies: int, memory: Memory, threads: int = 1) -> PlacementPlan:
    """Return where each of `copies` (at least 1) copies goes; same input, same answer.

    A copy of several `threads` gets as many neighbouring PUs; of them the first is its `cpu`.
    Raises `InputError` when memory is to come from the home node and a copy has none,
    when nodes are named that the machine does not have, when the layout widens masks
    to an object that the machine does not have, and when the machine does not fit the
    layout in another way.
    """
    topology = offer.topology
    memory_nodes = named_nodes(topology, memory)
    is_at_home = memory.policy in AT_HOME and not memory_nodes
    if offer.layout.order is CpuOrder.NONE:
        if is_at_home:
            raise InputError(
                f"layout {offer.layout.name} does not bind copies to CPUs, so there is no home "
                f"node for --mem {memory.policy}: use --mem local, name nodes as in "
                f"{memory.policy}:nodes=0, or use another layout"
            )
        if memory.each:
            raise InputError(
                f"--mem {memory}: layout {offer.layout.name} does not bind copies to CPUs, so none "
                f"share one: use another layout, or --mem {memory.policy}:nodes="
            )
        return _leave_unbound(topology, copies, memory.policy, memory_nodes, threads)
    assigned = assign(offer, copies, threads)
    homes = home_nodes(topology, chain(*assigned.slots), memory) if is_at_home else None
    nodes_by_copy = _memory_by_copy(assigned.slots, memory, memory_nodes, homes)
    placements = tuple(
        replace(placement, memory_policy=memory.policy, memory_nodes=nodes)
        for placement, nodes in zip(bound(offer, assigned.slots), nodes_by_copy, strict=True)
    )
    return PlacementPlan(
        placements=placements,
        warnings=(
            *_unused_cpus(offer, threads),
            *placement_warnings(topology, assigned.slots, placements, threads, homes),
        ),
        reserved=tuple(sorted(pu.os for pu in offer.reserved)),
        most=assigned.room,
        full=assigned.full,
    )


def _memory_by_copy(
    slots: Sequence[Slot],
    memory: Memory,
    memory_nodes: tuple[int, ...],
    homes: Mapping[int, int] | None,
) -> Iterator[tuple[int, ...]]:
    """Yield the nodes of each copy's memory: at home, those named, or one of these in turn."""
    before = Counter[int]()  # copies so far on a CPU
    for slot in slots:
        if homes:
            yield tuple(sorted({homes[pu.os] for pu in slot}))
        elif memory.each:
            cpu = slot[0].os
            yield (memory_nodes[before[cpu] % len(memory_nodes)],)
            before[cpu] += 1
        else:
            yield memory_nodes


def _leave_unbound(
    topology: Topology,
    copies: int,
    policy: MemoryPolicy,
    memory_nodes: tuple[int, ...],
    threads: int,
) -> PlacementPlan:
    """Return copies that the kernel puts on any CPU."""
    pus = len(topology.pus)
    return PlacementPlan(
        placements=tuple(
            Placement.unbound(copy=copy, memory_policy=policy, memory_nodes=memory_nodes)
            for copy in range(copies)
        ),
        warnings=unbound_warnings(pus, copies, threads),
        most=max(1, pus // threads),
    )


def bound(offer: CpuOffer, slots: Sequence[Slot]) -> Iterator[Placement]:
    """Yield where copies with these slots are, memory left aside.

    Raises `InputError` for a mask as wide as an object that the machine does not have.
    """
    masks = _Masks(offer)
    for copy, slot in enumerate(slots):
        first = slot[0]
        yield Placement(
            copy=copy,
            cpus=masks.of_slot(slot),
            cpu=first.os,
            core=first.core,
            llc=first.llc,
            node=first.node,
            package=first.package,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )


_OBJECT_OF: dict[BindLevel, Key] = {  # the object of a level that a PU lies in
    BindLevel.PU: lambda pu: pu.os,
    BindLevel.CORE: lambda pu: pu.core,
    BindLevel.LLC: lambda pu: pu.llc,
    BindLevel.NODE: lambda pu: pu.domain,
    BindLevel.PACKAGE: lambda pu: pu.package,
}


class _Masks:
    """The CPUs that copies may run on: all usable ones of the objects that their PUs lie in."""

    def __init__(self, offer: CpuOffer) -> None:
        level, topology = offer.layout.bind, offer.topology
        self._object_of = _OBJECT_OF[level]
        cpus_by_object = group_by_key((self._object_of(pu), pu.os) for pu in topology.pus)
        if None in cpus_by_object:
            raise InputError(
                f"layout {offer.layout.name}: bind = {level.value!r}, but {topology.source} names "
                f"no {level.value} for CPUs {cpuset.format_list(cpus_by_object[None])}: use --bind "
                'core, or bind = "core" in the layout'
            )
        self._cpus = {key: tuple(sorted(cpus)) for key, cpus in cpus_by_object.items()}

    def of_slot(self, slot: Slot) -> tuple[int, ...]:
        """Return the mask of a copy (OS numbers, ascending).

        Copies with the same mask get one tuple, by identity: `placement_warnings` computes once
        for each tuple what is true of thousands of copies.
        """
        objects = {self._object_of(pu) for pu in slot}
        if len(objects) == 1:
            return self._cpus[objects.pop()]
        return tuple(sorted(chain(*(self._cpus[key] for key in objects))))

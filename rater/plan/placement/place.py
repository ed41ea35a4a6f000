"""Topology, layout and number of copies in; one `Placement` per copy out; pure.

The way is a straight one: `offer_cpus` says what a layout leaves of a machine, `implied_copies` or
`resolve_copies` how many copies that makes, `assign` which PUs each has, `place` where each runs
and where its memory is from, with what a person should know of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, zip_longest

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.expression import cpus_of, evaluate_expression, parse_cpus
from rater.plan.placement.layout import (
    EXPLICIT,
    BindLevel,
    CpuOrder,
    Layout,
    MachineParts,
    options,
)
from rater.plan.placement.memory_policy import AT_HOME, Memory, home_nodes, named_nodes
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
from rater.plan.topology import PU, Domain, Topology, ranked
from rater.record.run import MOST_COPIES, MemoryPolicy, Placement
from rater.system.errors import InputError
from rater.text import cpuset
from rater.text.values import group_by_key, interleave

# -- What a layout leaves of a machine to its copies: exclusions, reserved cores, filters ----------


class CpuOffer(Struct, frozen=True, kw_only=True):
    """A layout, and what it leaves of a machine to copies."""

    layout: Layout
    topology: Topology  # with the PUs that copies are given, ranks counted among these
    reserved: tuple[PU, ...] = ()  # for the system and the supervisor, in logical order
    named: tuple[PU, ...] = ()  # by `list:` or `expr:`, in its order; filters may take some away
    shares: tuple[tuple[Domain, int], ...] = ()  # copies by domain, by the layout's own counts

    @property
    def counted(self) -> Topology:
        """What `--copies pus`, `cores` and `nodes` count: no more than what is named."""
        named = {pu.os for pu in self.named}
        pus = [pu for pu in self.topology.pus if pu.os in named]
        return restrict_to(self.topology, pus) if pus else self.topology

    def of_nodes(self) -> CpuOffer:
        """Return it without CPUs that no lgroup holds, for `--copies nodes`.

        Layouts that say themselves which CPUs are for copies stay as they are.
        """
        pus = [pu for pu in self.topology.pus if pu.node is not None]
        if self.layout.order in (CpuOrder.NONE, *EXPLICIT) or self.layout.counts or not pus:
            return self
        return replace(self, topology=restrict_to(self.topology, pus))


def offer_cpus(topology: Topology, layout: Layout) -> CpuOffer:
    """Return what a layout leaves of a machine.

    In this order: CPUs that it names are usable; excluded CPUs go; the reserved cores are taken
    from the rest of the machine (so `--reserve` costs copies nothing where they do not run); `only`
    and `kind` choose among what is left; `smt` keeps the first threads of each core.
    Raises `InputError` for CPUs, lgroups, cores and kinds that the machine does not
    have, and when nothing is left.
    """
    if layout.order is CpuOrder.NONE:
        return CpuOffer(layout=layout, topology=topology)
    named = parse_cpus(layout.text) if layout.order is CpuOrder.LIST else ()
    topology = topology.with_cpus((*named, *layout.only.cpus))
    only, exclude = layout.only, layout.exclude
    _check_parts(topology, only, f"layout {layout.name}")
    _check_parts(topology, exclude, f"layout {layout.name}: exclude")
    may = [
        pu
        for pu in topology.pus
        if not (pu.os in exclude.cpus or pu.node in exclude.nodes or pu.core in exclude.cores)
    ]
    reserved = reserve(restrict_to(topology, may), layout.reserve) if layout.reserve else ()
    taken = {pu.os for pu in reserved}
    wanted = kind_number(topology, layout.kind) if layout.kind else None
    cpus = frozenset(only.cpus)
    pus = [
        pu
        for pu in may
        if pu.os not in taken
        and (not cpus or pu.os in cpus)
        and (not only.nodes or pu.node in only.nodes)
        and wanted in (None, pu.kind)
    ]
    left = restrict_to(topology, pus)
    if layout.smt is not None:
        left = restrict_to(topology, [pu for pu in left.pus if pu.rank < layout.smt])
    if not left.pus:
        raise InputError(
            f"layout {layout.name} ({', '.join(options(layout))}) leaves none of the "
            f"{len(topology.pus)} usable CPUs of {topology.source} to copies: ask for less"
        )
    offer = CpuOffer(layout=layout, topology=left, reserved=reserved, shares=_shares(left, layout))
    if layout.order is CpuOrder.LIST:  # filters take CPUs out of a list afterwards
        free = restrict_to(topology, [pu for pu in topology.pus if pu.os not in taken])
        return replace(offer, named=cpus_of(free, layout.text))
    if layout.order is CpuOrder.EXPR:
        return replace(offer, named=evaluate_expression(left, layout.text))
    return offer


def restrict_to(topology: Topology, pus: Collection[PU]) -> Topology:
    """Return the machine with these of its usable PUs (in logical order) as the only ones.

    A PU's rank is counted anew among those of its core that are left.
    """
    if len(pus) == len(topology.pus):
        return topology
    return replace(topology, pus=ranked(pus), whole=topology.machine_pus)


def reserve(topology: Topology, cores: int) -> tuple[PU, ...]:
    """Return the PUs of `cores` whole cores to keep free of copies, in logical order.

    First the core of the lowest OS number, where interrupts arrive, then one of
    each other lgroup, and so on in turn; in each the cores of the lowest OS numbers.
    Raises `InputError` when that would leave no core.
    """
    if cores >= len(topology.cores):
        raise InputError(
            f"reserve {cores}: {topology.source} has {len(topology.cores)} usable cores "
            "that are not excluded: reserve fewer, so that one is left for copies"
        )
    by_number = sorted(topology.cores, key=lambda core: min(pu.os for pu in core))
    lgroups = group_by_key((core[0].domain, core) for core in by_number)
    taken = chain(*interleave(lgroups.values())[:cores])
    return tuple(sorted(taken, key=lambda pu: pu.logical))


def kind_number(topology: Topology, kind: str) -> int:
    """Return the number (0 the slowest) of `fast`, `slow` or a number as text.

    Raises `InputError` for one that the usable CPUs are not of, and where nothing tells
    which of several kinds is faster.
    """
    unranked = topology.unranked_kinds
    if unranked:
        kinds = ", ".join(f"CPUs {cpuset.format_list(cpus)}" for cpus in unranked)
        raise InputError(
            f"kind {kind}: {topology.source} has CPUs of {len(unranked)} kinds ({kinds}) and does "
            "not tell which is faster: name the CPUs, as in --layout "
            f"list:{cpuset.format_list(unranked[0])}"
        )
    by_kind = group_by_key((pu.kind, pu.os) for pu in topology.pus)
    number = {"fast": max(by_kind), "slow": min(by_kind)}.get(kind)
    if number is None:
        number = int(kind)
    if number not in by_kind:
        kinds = ", ".join(f"{k} (CPUs {cpuset.format_list(by_kind[k])})" for k in sorted(by_kind))
        raise InputError(f"kind {kind}: the usable CPUs of {topology.source} are of kind {kinds}")
    return number


def check_asked(topology: Topology, *, smt: int | None, kind: str | None) -> None:
    """Refuse `--smt` and `--kind` where the machine has nothing for them to choose from.

    A layout's own are not held to it: it is for any machine. Raises `InputError`.
    """
    threads = max(Counter(pu.core for pu in topology.machine_pus).values())
    if smt is not None and smt > threads:
        has = "one thread" if threads == 1 else f"{threads} threads at most"
        most = "" if threads == 1 else f"use --smt {threads}, --smt 1, or "
        raise InputError(f"--smt {smt}: a core of {topology.source} has {has}: {most}leave it out")
    one_kind = len({pu.kind for pu in topology.machine_pus}) == 1 and not topology.unranked_kinds
    if kind in ("fast", "slow") and one_kind:
        raise InputError(
            f"--kind {kind}: all CPUs of {topology.source} are of one kind: leave it out"
        )


def _check_parts(topology: Topology, parts: MachineParts, where: str) -> None:
    """Refuse a layout made for another machine; CPUs that are only offline may be named."""
    there = {
        "CPUs": {pu.os for pu in topology.machine_pus} | set(topology.details.offline),
        "NUMA nodes": set(topology.by_node),
        "cores": {pu.core for pu in topology.machine_pus},
    }
    for name, wanted in parts.named().items():
        absent = set(wanted) - there[name]
        if absent:
            raise InputError(
                f"{where}: {topology.source} has no {name} {cpuset.format_list(absent)}; "
                f"it has {cpuset.format_list(there[name])}"
            )


# -- How many copies there are: said, counted on the machine, or implied by the layout -------------


def implied_copies(offer: CpuOffer, threads: int = 1) -> int | None:
    """Return the copies that a layout's counts add up to, or that an expression lists CPUs for.

    A CPU that is listed twice is to have two copies. None for all other layouts.
    """
    if offer.shares:
        return sum(share for _, share in offer.shares)
    if offer.layout.order is CpuOrder.EXPR:
        return max(1, len(offer.named) // threads)
    return None


def resolve_copies(text: str, topology: Topology, threads: int = 1) -> int:
    """Return the number that `--copies N|pus|cores|nodes` means on a machine.

    `pus` and `cores` give each copy as many as it has threads, `cores` of one lgroup
    where any has so many; `nodes` counts lgroups with usable CPUs. Raises `InputError`
    for anything else and for numbers outside 1 to `MOST_COPIES`.
    """
    check_copies(text)
    word = text.strip()
    if word == "pus":
        return max(1, len(topology.pus) // threads)
    if word == "cores":
        cores = Counter(core[0].domain for core in topology.cores)
        inside = sum(many // threads for many in cores.values())
        return max(1, inside or len(topology.cores) // threads)
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
    """Raise `InputError` for what `--copies` can mean on no machine."""
    word = text.strip()
    digits = word.lstrip("0")
    number = word.isascii() and word.isdigit() and 0 < len(digits) <= len(str(MOST_COPIES))
    if not number and word not in ("pus", "cores", "nodes"):
        raise InputError(
            f"--copies {text!r}: expected a number from 1 to {MOST_COPIES}, pus, cores or nodes"
        )


# -- Which PUs each copy has -----------------------------------------------------------------------


class Assignment(Struct, frozen=True):
    """The PUs of copies."""

    slots: tuple[Slot, ...]  # by copy
    most: int  # copies that there is room for before a PU gets a second one
    full: tuple[str, ...] = ()  # lgroups whose count in the layout is more than they have room for


def assign(offer: CpuOffer, copies: int, threads: int = 1) -> Assignment:
    """Give each of `copies` (at least 1) its PUs, `threads` of them; more copies go round.

    The layout's order must not be `none`. Raises `InputError` for what the machine
    does not have, and for a number of copies that the layout's counts do not add up to.
    """
    usable, order = offer.topology, offer.layout.order
    if offer.shares:
        return _assign_counts(offer, copies, threads)
    room = max(1, _room(usable, order, threads))
    if order in EXPLICIT:
        slots: Sequence[Slot] = _written_slots(offer, threads)
        room = _disjoint(slots)
    elif order is CpuOrder.DISTRIB:
        slots = distrib(usable, max(1, min(copies, len(usable.pus) // threads)))
    elif order in (CpuOrder.SCATTER, CpuOrder.BALANCED):
        slots = spread_slots(usable, copies, threads)
        slots = along(slots) if order is CpuOrder.BALANCED else slots
    else:
        slots = ordered_slots(usable, order, copies, threads)
    return Assignment(tuple(slots[copy % len(slots)] for copy in range(copies)), room)


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


def _written_slots(offer: CpuOffer, threads: int) -> list[Slot]:
    layout, left = offer.layout, offer.topology.by_cpu
    pus = [left[pu.os] for pu in offer.named if pu.os in left]
    if not pus:
        raise InputError(
            f"layout {layout.name}: none of its CPUs is among those that its filters leave "
            f"({cpuset.format_list(left)})"
        )
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


def _left_out(offer: CpuOffer, threads: int) -> Iterator[str]:
    """Yield which CPUs of an explicit order no copy gets however many there are, and why."""
    left = offer.topology.by_cpu
    gone = [pu.os for pu in offer.named if pu.os not in left]
    some = [pu.os for pu in offer.named if pu.os in left]
    over = some[len(some) // threads * threads :]
    if gone:
        are, them = ("are", "them") if len(gone) > 1 else ("is", "it")
        yield (
            f"{cpuset.cpus_text(gone)} of the list {are} left out: the layout's filters "
            f"({', '.join(options(offer.layout))}) take {them} away"
        )
    if over:
        yield (
            f"{cpuset.cpus_text(over)} at the end of the list {'are' if len(over) > 1 else 'is'} "
            f"left over: each copy uses {threads}"
        )


# -- What a layout's counts give to each lgroup, and what is wrong with counts for another machine -


def _shares(topology: Topology, layout: Layout) -> tuple[tuple[Domain, int], ...]:
    """Return the copies on each domain by the layout's counts, in logical order; () without.

    Raises `InputError` for counts of lgroups where no copy can run, and when there is no
    copy, or more than can be.
    """
    counts = layout.counts
    if counts is None:
        return ()
    by_node = dict(counts.by_node)
    absent = by_node.keys() - {domain.node for domain in topology.domains}
    if absent:
        reasons = group_by_key(
            (_absence(topology, node), node) for node in by_node if node in absent
        )
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
    return tuple(shares)


def _absence(topology: Topology, number: int) -> str:
    node = topology.by_node.get(number)
    if node is None:
        return "not there"
    if any(pu.node == number for pu in topology.machine_pus):
        return "without a CPU that the layout may give to copies"
    if not node.allowed:
        return "not allowed as memory here, so home of no CPU"
    return "extra memory of CPUs that have another home" if node.cpus else "without CPUs"


def _assign_counts(offer: CpuOffer, copies: int, threads: int) -> Assignment:
    """Give each domain its share, in the order that the layout has on the whole machine.

    A domain with more copies than PUs is gone through again.
    """
    layout, order = offer.layout, offer.layout.order
    shares = [(domain, share) for domain, share in offer.shares if share]
    total = sum(share for _, share in shares)
    named = {domain.pus[0].domain: _domain_text(domain) for domain, _ in shares}
    if total != copies:
        detail = ", ".join(f"{share} on {_domain_text(it)}" for it, share in shares[:8])
        more = ", ..." if len(shares) > 8 else ""
        raise InputError(
            f"layout {layout.name} has counts for {total} copies on {offer.topology.source} "
            f"({detail}{more}), not for {copies}: use --copies {total}"
        )
    for domain, _ in shares:
        if len(domain.pus) < threads and order is not CpuOrder.DISTRIB:
            raise InputError(
                f"node {domain.node} has {len(domain.pus)} usable CPUs, and one copy uses "
                f"{threads}: leave it out of the counts"
            )
    parts = [(restrict_to(offer.topology, domain.pus), share) for domain, share in shares]
    slots: list[Slot] = []
    if order is CpuOrder.DISTRIB:
        for part, share in parts:
            sets = distrib(part, max(1, min(share, len(part.pus) // threads)))
            slots += [sets[copy % len(sets)] for copy in range(share)]
    else:
        cut = [slots_of(part, share, threads) for part, share in parts]
        several = [[*chain(*tier)] for tier in zip_longest(*cut, fillvalue=())]
        tiers = singles(offer.topology) if threads == 1 else several
        whole = (scatter if order is CpuOrder.BALANCED else PERMUTATIONS[order])(tiers)
        left = Counter({part.pus[0].domain: share for part, share in parts})
        while any(left.values()):
            for slot in whole:
                if left[slot[0].domain]:
                    left[slot[0].domain] -= 1
                    slots.append(slot)
        slots = along(slots) if order is CpuOrder.BALANCED else slots
    rooms = [(part, share, _room(part, order, threads)) for part, share in parts]
    return Assignment(
        tuple(slots),
        sum(min(share, room) for _, share, room in rooms),
        tuple(
            f"{named[part.pus[0].domain]} has {share} and room for {room}"
            for part, share, room in rooms
            if share > room
        ),
    )


def _domain_text(domain: Domain) -> str:
    return "CPUs without a node" if domain.node is None else f"node {domain.node}"


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
    full: tuple[str, ...] = ()  # lgroups whose count in the layout is more than they have room for


def plan_placements(
    topology: Topology,
    layout: Layout,
    copies: int,
    memory: Memory | MemoryPolicy,
    threads: int = 1,
) -> PlacementPlan:
    """Return where each of `copies` (at least 1) copies goes; raises as `offer_cpus`, `place`."""
    asked = memory if isinstance(memory, Memory) else Memory(memory)
    return place(offer_cpus(topology, layout), copies, asked, threads)


def place(offer: CpuOffer, copies: int, memory: Memory, threads: int = 1) -> PlacementPlan:
    """Return where each of `copies` (at least 1) copies goes; same input, same answer.

    A copy of several `threads` gets as many neighbouring PUs; of them the first is its `cpu`.
    Raises `InputError` when memory is to come from the home node and a copy has none,
    when nodes are named that the machine does not have, when the layout widens masks
    to an object that the machine does not have, and when the machine does not fit the
    layout in another way.
    """
    topology, layout, policy = offer.topology, offer.layout, memory.policy
    named = named_nodes(topology, memory)
    at_home = policy in AT_HOME and not named
    if layout.order is CpuOrder.NONE:
        if at_home:
            raise InputError(
                f"layout {layout.name} does not bind copies to CPUs, so there is no home node "
                f"for --mem {policy}: use --mem local, name nodes as in {policy}:nodes=0, or use "
                "another layout"
            )
        return PlacementPlan(
            placements=tuple(
                Placement.unbound(copy=copy, memory_policy=policy, memory_nodes=named)
                for copy in range(copies)
            ),
            warnings=unbound_warnings(len(topology.pus), copies, threads),
            most=max(1, len(topology.pus) // threads),
        )
    assigned = assign(offer, copies, threads)
    homes = home_nodes(topology, chain(*assigned.slots), memory) if at_home else None
    placements = tuple(
        replace(
            placement,
            memory_policy=policy,
            memory_nodes=tuple(sorted({homes[pu.os] for pu in slot})) if homes else named,
        )
        for placement, slot in zip(bound(offer, assigned.slots), assigned.slots, strict=True)
    )
    return PlacementPlan(
        placements=placements,
        warnings=(
            *_left_out(offer, threads),
            *placement_warnings(topology, assigned.slots, placements, threads, homes),
        ),
        reserved=tuple(sorted(pu.os for pu in offer.reserved)),
        most=assigned.most,
        full=assigned.full,
    )


def bound(offer: CpuOffer, slots: Sequence[Slot]) -> Iterator[Placement]:
    """Yield where copies with these slots are, memory left aside.

    Raises `InputError` for a mask as wide as an object that the machine does not have.
    """
    bind, topology = offer.layout.bind, offer.topology
    key: dict[BindLevel, Key] = {
        BindLevel.PU: lambda pu: pu.os,
        BindLevel.CORE: lambda pu: pu.core,
        BindLevel.LLC: lambda pu: pu.llc,
        BindLevel.NODE: lambda pu: pu.domain,
        BindLevel.PACKAGE: lambda pu: pu.package,
    }
    of = key[bind]
    groups = group_by_key((of(pu), pu.os) for pu in topology.pus)
    if None in groups:
        raise InputError(
            f"layout {offer.layout.name}: bind = {bind.value!r}, but {topology.source} names no "
            f"{bind.value} for CPUs {cpuset.format_list(groups[None])}: use --bind core, or "
            'bind = "core" in the layout'
        )
    masks = {group: tuple(sorted(cpus)) for group, cpus in groups.items()}
    for copy, slot in enumerate(slots):
        first, own = slot[0], {of(pu): masks[of(pu)] for pu in slot}
        yield Placement(
            copy=copy,
            # One tuple for all copies with the same mask: what is said of it is computed once.
            cpus=own.popitem()[1] if len(own) == 1 else tuple(sorted(chain(*own.values()))),
            cpu=first.os,
            core=first.core,
            llc=first.llc,
            node=first.node,
            package=first.package,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )

"""Topology, layout and number of copies in; one `Placement` per copy out; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.errors import InputError
from rater.plan.placement.assign import CpuAssignment, OverfullNode, assign_cpus, counted, named_by
from rater.plan.placement.layout import EXPLICIT, BindLevel, CpuOrder, Layout
from rater.plan.placement.memory_policy import (
    AT_HOME,
    Memory,
    MemorySupport,
    home_nodes,
    named_nodes,
    settled,
)
from rater.plan.placement.order import Key, apply_filters, restrict_to
from rater.plan.placement.warnings import placement_warnings, unbound_warnings
from rater.plan.topology import Topology
from rater.record.run import MOST_COPIES, MemoryPolicy, Placement
from rater.text import cpuset
from rater.text.values import group_by_key


class PlacementPlan(Struct, frozen=True):
    """A placement per copy, in the order of copies, and what a person should know of it."""

    placements: tuple[Placement, ...]
    warnings: tuple[str, ...]
    reserved: tuple[int, ...] = ()  # OS numbers of the PUs kept for the system, ascending
    most: int = 0  # copies that there is room for before a PU gets a second one
    full: tuple[
        OverfullNode, ...
    ] = ()  # lgroups whose count in the layout is more than they have room for


def plan_placements(
    topology: Topology,
    layout: Layout,
    copies: int,
    memory: Memory | MemoryPolicy,
    threads: int = 1,
) -> PlacementPlan:
    """Return where each of `copies` (at least 1) copies goes; same input, same answer.

    A copy of several `threads` gets as many neighbouring PUs; of them the first is its `cpu`.
    A bare policy has the nodes that it has by itself.
    Raises `InputError` when memory is to come from the home node and a copy has none,
    when nodes are named that the machine does not have, when the layout widens masks
    to an object that the machine does not have, and when the machine does not fit the
    layout in another way.
    """
    asked = memory if isinstance(memory, Memory) else Memory(memory)
    policy = asked.policy
    named = named_nodes(topology, asked)
    at_home = policy in AT_HOME and not named
    if layout.order is CpuOrder.NONE:
        if at_home:
            raise InputError(
                f"layout {layout.name} does not bind copies to CPUs, so there is no home node "
                f"for --mem {policy}: use --mem local, name nodes as in {policy}:nodes=0, or use "
                "another layout"
            )
        return PlacementPlan(
            tuple(
                Placement(copy, None, None, None, None, None, None, policy, named)
                for copy in range(copies)
            ),
            unbound_warnings(len(topology.pus), copies, threads),
            most=max(1, len(topology.pus) // threads),
        )
    assigned = assign_cpus(topology, layout, copies, threads)
    pus = (pu for slot in assigned.slots for pu in slot)
    homes = home_nodes(topology, pus, asked) if at_home else None
    placements = _bound(assigned, layout, policy, named, homes)
    return PlacementPlan(
        placements,
        (
            *assigned.warnings,
            *placement_warnings(
                assigned.topology,
                assigned.slots,
                [p.cpus or () for p in placements],
                threads=threads,
                policy=policy,
                homes=homes,
            ),
        ),
        reserved=tuple(sorted(pu.os for pu in assigned.reserved)),
        most=assigned.most,
        full=assigned.full,
    )


def trial_placements(
    topology: Topology, layout: Layout, copies: int, threads: int = 1
) -> tuple[Placement, ...]:
    """Return where copies would be, without a word of what is wrong with it or of memory.

    The layout must bind. Raises `InputError` as `plan_placements` does.
    """
    return _bound(
        assign_cpus(topology, layout, copies, threads), layout, MemoryPolicy.NONE, (), None
    )


def apply_memory_support(
    placements: Sequence[Placement], support: MemorySupport
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return the placements with memory policies that this kernel has, and warnings of the change.

    Raises `InputError` for a policy that it does not have and that nothing stands in for.
    """
    found, warnings = [], []
    for placement in placements:
        policy, nodes, warning = settled(placement.memory_policy, placement.memory_nodes, support)
        found.append(replace(placement, memory_policy=policy, memory_nodes=nodes))
        warnings += [warning] if warning else []
    return tuple(found), tuple(dict.fromkeys(warnings))


def default_memory(layout: Layout) -> MemoryPolicy:
    """Return the memory policy of a layout when the user asks for none: local, if it binds."""
    return MemoryPolicy.NONE if layout.order is CpuOrder.NONE else MemoryPolicy.LOCAL


def resolve_copies(text: str, topology: Topology, threads: int = 1) -> int:
    """Return the number that `--copies N|pus|cores|nodes` means on a machine.

    `pus` and `cores` give each copy as many as it has threads, `cores` of one lgroup
    where any has so many; `nodes` counts lgroups with usable CPUs. Raises `InputError`
    for anything else and for numbers outside 1 to `MOST_COPIES`.
    """
    word = text.strip()
    if word == "pus":
        return max(1, len(topology.pus) // threads)
    if word == "cores":
        cores = Counter(core[0].domain for core in topology.cores)
        inside = sum(count // threads for count in cores.values())
        return max(1, inside or len(topology.cores) // threads)
    if word == "nodes":
        nodes = sum(domain.node is not None for domain in topology.domains)
        if not nodes:
            raise InputError(
                f"--copies nodes: no NUMA node of {topology.source} has usable CPUs, "
                "expected a number, pus or cores"
            )
        return nodes
    check_copies(text)
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


def _bound(
    assigned: CpuAssignment,
    layout: Layout,
    policy: MemoryPolicy,
    nodes: tuple[int, ...],
    homes: Mapping[int, int] | None,
) -> tuple[Placement, ...]:
    masks = _masks(assigned.topology, layout)
    return tuple(
        Placement(
            copy=copy,
            cpus=_united([masks[pu.os] for pu in slot]),
            cpu=slot[0].os,
            core=slot[0].core,
            llc=slot[0].llc,
            node=slot[0].node,
            package=slot[0].package,
            memory_policy=policy,
            memory_nodes=nodes if homes is None else tuple(sorted({homes[pu.os] for pu in slot})),
        )
        for copy, slot in enumerate(assigned.slots)
    )


def _masks(topology: Topology, layout: Layout) -> dict[int, tuple[int, ...]]:
    key: dict[BindLevel, Key] = {
        BindLevel.PU: lambda pu: pu.os,
        BindLevel.CORE: lambda pu: pu.core,
        BindLevel.LLC: lambda pu: pu.llc,
        BindLevel.NODE: lambda pu: pu.domain,
        BindLevel.PACKAGE: lambda pu: pu.package,
    }
    of = key[layout.bind]
    groups = group_by_key((of(pu), pu.os) for pu in topology.pus)
    if None in groups:
        raise InputError(
            f"layout {layout.name}: bind = {layout.bind.value!r}, but {topology.source} names no "
            f"{layout.bind.value} for CPUs {cpuset.format_list(groups[None])}: use --bind core, or "
            'bind = "core" in the layout'
        )
    masks = {group: tuple(sorted(cpus)) for group, cpus in groups.items()}
    return {pu.os: masks[of(pu)] for pu in topology.pus}


def _united(masks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return masks[0] if len(masks) == 1 else tuple(sorted({cpu for mask in masks for cpu in mask}))


# -- How many copies a layout means by itself, and what `--copies pus`, `cores` and `nodes` count --


def pus_offered(topology: Topology, layout: Layout) -> Topology:
    """Return the machine with only the PUs that the layout gives to copies.

    What `list:` and `expr:` do not name is not among them. Raises `InputError` as
    `rater.plan.placement.order.apply_filters` does, and for CPUs that are not there.
    """
    if layout.order is CpuOrder.NONE:
        return topology
    filtered = apply_filters(topology, layout)
    left = filtered.topology
    if layout.order not in EXPLICIT:
        return left
    named = {pu.os for pu in named_by(filtered, layout)}
    pus = [pu for pu in left.pus if pu.os in named]
    return restrict_to(left, pus) if pus else left  # without any, placing says what is wrong


def copies_counted(layout: Layout, topology: Topology) -> int | None:
    """Return the copies that a layout's own counts add up to, None when it has none.

    `topology` is what the layout leaves of the machine. Raises `InputError` when the
    lgroups that are to get copies are not among it.
    """
    if layout.counts is None:
        return None
    return sum(share for _, share in counted(topology, layout, layout.counts))


def explicit_cpus(layout: Layout, topology: Topology) -> int | None:
    """Return how many CPUs an expression lists, None for other layouts.

    A CPU that stands there twice counts twice: it is to have two copies.
    """
    if layout.order is not CpuOrder.EXPR:
        return None
    return len(named_by(apply_filters(topology, layout), layout))


def one_a_lgroup(layout: Layout, usable: Topology) -> Layout:
    """Return the layout without CPUs that no lgroup holds, for `--copies nodes`.

    `usable` is what the layout leaves of the machine. Layouts that say themselves
    which CPUs are for copies stay as they are.
    """
    if layout.order in (CpuOrder.NONE, *EXPLICIT) or layout.counts is not None:
        return layout
    nodes = tuple(sorted({pu.node for pu in usable.pus if pu.node is not None}))
    if not nodes or all(pu.node is not None for pu in usable.pus):
        return layout
    return replace(layout, only=replace(layout.only, nodes=nodes))

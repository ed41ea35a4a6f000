"""Placements seen from the machine: each NUMA node's part, remarks, limits of the kernel; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.plan.placement.warnings import pools
from rater.plan.topology import Topology
from rater.record.run import MemoryPolicy, Placement
from rater.text.cpuset import format_list
from rater.text.values import count, group_by_key

if TYPE_CHECKING:
    from rater.record.events import GateFacts


# -- The kernel's limits of a waiting copy, held against its plan ----------------------------------


def gate_mismatches(
    facts: GateFacts, cpus: Sequence[int] | None, memory_nodes: Sequence[int]
) -> tuple[str, ...]:
    """Return in words where the kernel's limits for a copy differ from its plan.

    `cpus` is the planned mask, None for a copy that is not bound. `memory_nodes` are the nodes that
    its memory is to come from, empty where the plan names none.
    """
    mismatches = []
    if cpus is not None and facts.cpus is not None and set(cpus) != set(facts.cpus):
        planned, actual = format_list(cpus), format_list(facts.cpus) or "none"
        if set(facts.cpus) < set(cpus):
            mismatches.append(
                f"may use CPUs {actual} only of the planned {planned}: a cpuset (container, batch "
                "system) or an offline CPU narrows them"
            )
        else:
            mismatches.append(f"bound to CPUs {actual}, planned {planned}")
    if facts.mems is not None:
        missing = set(memory_nodes) - set(facts.mems)
        if missing:
            mismatches.append(
                f"may not take memory of node {format_list(missing)} as planned: its cpuset "
                f"allows {format_list(facts.mems) or 'none'}"
            )
    return tuple(mismatches)


# -- Each NUMA node's part of a plan, and what a person should think over --------------------------


class NodeShare(Struct, frozen=True, kw_only=True):
    """One NUMA node's part of a plan."""

    node: int | None  # OS number; None stands for all CPUs that no node holds
    packages: tuple[int, ...]  # of its usable PUs
    copies: tuple[int, ...]  # ascending
    cpus: tuple[int, ...]  # OS numbers of its PUs that copies may run on, ascending
    pus: int  # usable ones
    cores_used: int  # cores with a PU that copies may run on
    cores: int  # cores with a usable PU
    memory_bytes: int | None  # installed, 0: it has none; None when unknown
    need_bytes: int | None  # of its copies, None when no benchmark states its need
    allowed: bool = True  # whether a cpuset allows its memory; else its CPUs have remote memory


def shares(
    topology: Topology,
    placements: Sequence[Placement],
    installed_bytes: Mapping[int, int],
    need_bytes: Mapping[int, int] | None,
) -> tuple[NodeShare, ...]:
    """Return each NUMA node's part of a plan by OS number, then that of CPUs without a node.

    `installed_bytes` and `need_bytes` (of copies, None when no benchmark states it) are by node.
    A node whose memory is forbidden, or that has none, is home of no PU, but its CPUs count as
    its part.
    """
    giving_none = {
        cpu: node.os for node in topology.nodes if not node.gives_memory for cpu in node.cpus
    }

    def home(cpu: int, node: int | None) -> int | None:
        return giving_none.get(cpu) if node is None else node

    pus_by_node = group_by_key((home(pu.os, pu.node), pu) for pu in topology.pus)
    copies_by_node = group_by_key(
        (home(placement.cpu, placement.node), placement.copy)
        for placement in placements
        if placement.cpu is not None
    )
    open_cpus = set().union(*_masks(placements))
    nodes: list[int | None] = [*sorted(topology.by_node)]
    if None in pus_by_node:
        nodes.append(None)
    parts = []
    for node in nodes:
        pus = pus_by_node.get(node, [])
        used = [pu for pu in pus if pu.os in open_cpus]
        parts.append(
            NodeShare(
                node=node,
                packages=tuple(sorted({pu.package for pu in pus if pu.package is not None})),
                copies=tuple(sorted(copies_by_node.get(node, ()))),
                cpus=tuple(sorted(pu.os for pu in used)),
                pus=len(pus),
                cores_used=len({pu.core for pu in used}),
                cores=len({pu.core for pu in pus}),
                memory_bytes=None if node is None else installed_bytes.get(node),
                need_bytes=(
                    None if need_bytes is None or node is None else need_bytes.get(node, 0)
                ),
                allowed=node is None
                or topology.by_node[node].allowed
                or topology.by_node[node].lacks_memory,
            )
        )
    return tuple(parts)


def _masks(placements: Sequence[Placement]) -> set[tuple[int, ...]]:
    return {placement.cpus for placement in placements if placement.cpus is not None}


def nodes_of_memory(placement: Placement, topology: Topology) -> tuple[int, ...]:
    """Return the NUMA nodes (OS numbers) that a copy's memory comes from first, ascending.

    For local memory those of the CPUs it may run on; empty when nothing is planned.
    """
    if placement.memory_policy is not MemoryPolicy.LOCAL or placement.cpus is None:
        return placement.memory_nodes
    homes = {topology.by_cpu[cpu].node for cpu in placement.cpus}
    return tuple(sorted(node for node in homes if node is not None))


def remarks(topology: Topology, placements: Sequence[Placement], threads: int = 1) -> Iterator[str]:
    """Yield what is worth a thought before a run though every run of its kind is like that.

    What makes copies unequal is among the warnings of `rater.plan.placement.place.place`.
    """
    if threads == 1:
        yield from _remark_shared_cores(topology, placements)
    yield from _remark_idle_memory(topology, placements)


def _remark_shared_cores(topology: Topology, placements: Sequence[Placement]) -> Iterator[str]:
    masks = [placement.cpus for placement in placements if placement.cpus is not None]
    shared = pools(topology, masks)
    loads = {pool.copies / pool.cores for pool in shared}
    is_equal = len(loads) == 1 and max(loads) > 1
    if not is_equal or any(pool.copies > pool.pus for pool in shared):
        return
    load = loads.pop()
    on_each = f", {load:.0f} on each" if load.is_integer() else ""
    yield (
        f"{len(placements)} copies share {count(sum(pool.cores for pool in shared), 'core')}"
        f"{on_each}, a thread for every copy: --smt 1 and fewer copies give each a core of its "
        "own"
    )


def _remark_idle_memory(topology: Topology, placements: Sequence[Placement]) -> Iterator[str]:
    """Remark nodes without CPUs (HBM, PMEM) that no copy's memory policy names."""
    named = {node for placement in placements for node in placement.memory_nodes}
    idle = [
        node
        for node in topology.nodes
        if node.gives_memory and not (node.cpus and node.default) and node.os not in named
    ]
    if not idle:
        return
    numbers = sorted(node.os for node in idle)
    kinds = sorted({node.subtype for node in idle if node.subtype})
    suffix = f" ({', '.join(kinds)})" if kinds else ""
    nodes, have, their = ("nodes", "have", "their") if len(idle) > 1 else ("node", "has", "its")
    yield (
        f"no copy runs on {nodes} {format_list(numbers)}{suffix}, which {have} no CPUs of {their} "
        "own: such memory is used when local memory is full, or when it is named, as in "
        f"--mem bind:nodes={numbers[0]}"
    )

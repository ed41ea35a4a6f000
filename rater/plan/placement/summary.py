"""What placements come to: each lgroup's part of a plan, and what a person should think over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rater.groups import grouped
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.placement.warnings import pools
from rater.plan.topology.model import Topology
from rater.text.cpuset import format_list
from rater.text.words import count


@dataclass(frozen=True, slots=True)
class LgroupShare:
    """One lgroup's part of a plan."""

    node: int | None  # OS number; None: the CPUs that no lgroup holds
    packages: tuple[int, ...]  # that its usable PUs lie in
    copies: tuple[int, ...]  # ascending
    cpus: tuple[int, ...]  # OS numbers of its PUs that copies may run on, ascending
    pus: int  # usable ones
    cores_used: int  # with a PU that copies may run on
    cores: int  # with a usable PU
    memory_bytes: int | None  # installed, None when unknown
    need_bytes: int | None  # that copies want of it, None when no benchmark says
    allowed: bool = True  # False: a cpuset forbids its memory, so it is remote for its CPUs


def shares(
    topology: Topology,
    placements: Sequence[Placement],
    installed_bytes: Mapping[int, int],
    need_bytes: Mapping[int, int] | None,
) -> tuple[LgroupShare, ...]:
    """Return each lgroup's part of a plan by OS number, then that of CPUs without a lgroup.

    Bytes are by lgroup: of memory, and of what copies want of it, None when no
    benchmark says. An lgroup whose memory is forbidden is nobody's home but still has its CPUs.
    """
    forbidden = {cpu: node.os for node in topology.nodes if not node.allowed for cpu in node.cpus}

    def home(cpu: int, node: int | None) -> int | None:
        return forbidden.get(cpu) if node is None else node

    pus = grouped((home(pu.os, pu.node), pu) for pu in topology.pus)
    copies = grouped((home(p.cpu, p.node), p.copy) for p in placements if p.cpu is not None)
    open_cpus = set().union(*{p.cpus for p in placements if p.cpus is not None})
    nodes: list[int | None] = [*sorted(topology.by_node), *([None] if None in pus else [])]
    found = []
    for node in nodes:
        own = pus.get(node, [])
        used = [pu for pu in own if pu.os in open_cpus]
        found.append(
            LgroupShare(
                node=node,
                packages=tuple(sorted({pu.package for pu in own if pu.package is not None})),
                copies=tuple(sorted(copies.get(node, ()))),
                cpus=tuple(sorted(pu.os for pu in used)),
                pus=len(own),
                cores_used=len({pu.core for pu in used}),
                cores=len({pu.core for pu in own}),
                memory_bytes=None if node is None else installed_bytes.get(node) or None,
                need_bytes=(
                    None if need_bytes is None or node is None else need_bytes.get(node, 0)
                ),
                allowed=node is None or topology.by_node[node].allowed,
            )
        )
    return tuple(found)


def nodes_of_memory(placement: Placement, topology: Topology) -> tuple[int, ...]:
    """Return the lgroups (OS numbers) a copy's memory comes from first, ascending.

    For local memory those of the CPUs it may run on; empty when nothing is planned.
    """
    if placement.policy is not MemoryPolicy.LOCAL or placement.cpus is None:
        return placement.memory_nodes
    homes = {topology.by_cpu[cpu].node for cpu in placement.cpus}
    return tuple(sorted(node for node in homes if node is not None))


def remarks(
    topology: Topology, placements: Sequence[Placement], threads: int = 1
) -> tuple[str, ...]:
    """Return what is worth a thought before a run though every run of its kind is like that.

    What makes copies unequal is among the warnings of `rater.plan.placement.place.place`.
    """
    return (
        *_all_sharing(topology, placements, threads),
        *_without_cpus(topology, placements),
    )


def _all_sharing(topology: Topology, placements: Sequence[Placement], threads: int) -> list[str]:
    masks = [p.cpus for p in placements if p.cpus is not None]
    shared = [] if threads > 1 else pools(topology, masks)
    each = {pool.copies / pool.cores for pool in shared}
    if len(each) != 1 or max(each) <= 1 or any(pool.copies > pool.pus for pool in shared):
        return []
    load = each.pop()
    on_each = f", {load:.0f} on each" if load.is_integer() else ""
    return [
        f"{len(placements)} copies share {count(sum(pool.cores for pool in shared), 'core')}"
        f"{on_each}, a thread for every copy: --smt 1 and fewer copies give each a core of its own"
    ]


def _without_cpus(topology: Topology, placements: Sequence[Placement]) -> list[str]:
    named = {node for p in placements for node in p.memory_nodes}
    bare = [n for n in topology.nodes if n.allowed and not (n.cpus and n.default)]
    lone = [node for node in bare if node.os not in named]
    if not lone:
        return []
    kinds = sorted({node.subtype for node in lone if node.subtype})
    numbers = sorted(node.os for node in lone)
    several = len(lone) > 1
    return [
        f"no copy runs on {'lgroups' if several else 'lgroup'} {format_list(numbers)}"
        f"{f' ({", ".join(kinds)})' if kinds else ''}, which {'have' if several else 'has'} no "
        "CPUs of their own: such memory is used when local memory is full, or when it is named, as "
        f"in --mem bind:nodes={numbers[0]}"
    ]

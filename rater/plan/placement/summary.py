"""What placements come to: each lgroup's part and memory, the kernel's limits of a copy; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.plan.placement.warnings import pools
from rater.plan.topology import NodeMemory, Topology
from rater.record.run import MemoryPolicy, Placement
from rater.text.cpuset import format_list
from rater.text.values import count, group_by_key, truncate_list

if TYPE_CHECKING:
    from rater.record.events import GateFacts


# -- The kernel's limits of a waiting copy, held against its plan ----------------------------------


def gate_mismatches(
    facts: GateFacts, cpus: Sequence[int] | None, memory_nodes: Sequence[int]
) -> tuple[str, ...]:
    """Say in words where the kernel's limits for a copy differ from its plan.

    `cpus` is the planned mask (None: not bound), `memory_nodes` the nodes its
    memory is to come from (empty: none in particular).
    """
    mismatches = []
    if cpus is not None and facts.cpus is not None and set(cpus) != set(facts.cpus):
        planned, seen = format_list(cpus), format_list(facts.cpus) or "none"
        if set(facts.cpus) < set(cpus):
            mismatches.append(
                f"may use CPUs {seen} only of the planned {planned}: a cpuset (container, batch "
                "system) or an offline CPU narrows them"
            )
        else:
            mismatches.append(f"bound to CPUs {seen}, planned {planned}")
    if facts.mems is not None:
        missing = set(memory_nodes) - set(facts.mems)
        if missing:
            mismatches.append(
                f"may not take memory of node {format_list(missing)} as planned: its cpuset "
                f"allows {format_list(facts.mems) or 'none'}"
            )
    return tuple(mismatches)


# -- What placements come to: each lgroup's part of a plan, and what a person should think over ----


class NodeShare(Struct, frozen=True, kw_only=True):
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
) -> tuple[NodeShare, ...]:
    """Return each lgroup's part of a plan by OS number, then that of CPUs without a lgroup.

    Bytes are by lgroup: of memory, and of what copies want of it, None when no
    benchmark says. An lgroup whose memory is forbidden is nobody's home but still has its CPUs.
    """
    forbidden = {cpu: node.os for node in topology.nodes if not node.allowed for cpu in node.cpus}

    def home(cpu: int, node: int | None) -> int | None:
        return forbidden.get(cpu) if node is None else node

    pus = group_by_key((home(pu.os, pu.node), pu) for pu in topology.pus)
    copies = group_by_key((home(p.cpu, p.node), p.copy) for p in placements if p.cpu is not None)
    open_cpus = set().union(*{p.cpus for p in placements if p.cpus is not None})
    nodes: list[int | None] = [*sorted(topology.by_node), *([None] if None in pus else [])]
    found = []
    for node in nodes:
        own = pus.get(node, [])
        used = [pu for pu in own if pu.os in open_cpus]
        found.append(
            NodeShare(
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
    if placement.memory_policy is not MemoryPolicy.LOCAL or placement.cpus is None:
        return placement.memory_nodes
    homes = {topology.by_cpu[cpu].node for cpu in placement.cpus}
    return tuple(sorted(node for node in homes if node is not None))


def remarks(topology: Topology, placements: Sequence[Placement], threads: int = 1) -> Iterator[str]:
    """Yield what is worth a thought before a run though every run of its kind is like that.

    What makes copies unequal is among the warnings of `rater.plan.placement.place.place`.
    """
    masks = [p.cpus for p in placements if p.cpus is not None]
    shared = [] if threads > 1 else pools(topology, masks)
    each = {pool.copies / pool.cores for pool in shared}
    if len(each) == 1 and max(each) > 1 and all(pool.copies <= pool.pus for pool in shared):
        load = each.pop()
        on_each = f", {load:.0f} on each" if load.is_integer() else ""
        yield (
            f"{len(placements)} copies share {count(sum(pool.cores for pool in shared), 'core')}"
            f"{on_each}, a thread for every copy: --smt 1 and fewer copies give each a core of its "
            "own"
        )
    named = {node for p in placements for node in p.memory_nodes}
    bare = [n for n in topology.nodes if n.allowed and not (n.cpus and n.default)]
    lone = sorted(node.os for node in bare if node.os not in named)
    if lone:
        kinds = sorted({node.subtype for node in bare if node.subtype and node.os in lone})
        nodes, have, their = ("nodes", "have", "their") if len(lone) > 1 else ("node", "has", "its")
        what = f"{nodes} {format_list(lone)}{f' ({", ".join(kinds)})' if kinds else ''}"
        yield (
            f"no copy runs on {what}, which {have} no CPUs of {their} own: such memory is used "
            "when local memory is full, or when it is named, as in "
            f"--mem bind:nodes={lone[0]}"
        )


# -- Memory that copies need of each lgroup, held against what it has installed, or has now --------

_LEAST_LEFT_BYTES = 64_000_000  # page cache that a set-up may leave without a word


class Preflight(Struct, frozen=True):
    """What was found: warnings with the numbers and the cure."""

    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]  # what could not be compared, for who relies on it

    def refusal(self) -> str | None:
        """Return why `--preflight strict` refuses the run, None when it does not."""
        if not self.warnings:
            return None
        return "\n".join([*self.warnings, "--preflight strict refuses the run for that"])


def needs_by_node(
    placements: Sequence[Placement], bytes_by_copy: Mapping[int, int]
) -> dict[int, int]:
    """Return the bytes that copies want of each lgroup by OS number.

    A copy bound to several nodes wants an equal part of each; one that is not
    bound to a CPU wants nothing of any lgroup in particular.
    """
    needs: dict[int, int] = {}
    for placement in placements:
        home = () if placement.node is None else (placement.node,)
        nodes = placement.memory_nodes or home
        for node in nodes:
            part = bytes_by_copy.get(placement.copy, 0) // len(nodes)
            needs[node] = needs.get(node, 0) + part
    return needs


def bound_to_memory(placements: Sequence[Placement]) -> bool:
    """Tell whether copies may take memory of their nodes only."""
    return bool(placements) and placements[0].memory_policy is MemoryPolicy.BIND


def memory_warnings(
    needs_bytes: Mapping[int, int], memory: Mapping[int, NodeMemory], *, strict: bool = False
) -> tuple[str, ...]:
    """Say which lgroups have less free than their copies need, and the way out.

    `needs_bytes` is by lgroup; those without a reading in `memory` are passed over.
    `strict`: copies may take memory of these lgroups only.
    """
    cached: list[str] = []
    short: list[str] = []
    for node in sorted(needs_bytes.keys() & memory.keys()):
        need, has = needs_bytes[node], memory[node]
        if need <= has.free_bytes:
            continue
        text = (
            f"node {node} (its copies need {gb(need)}; {gb(has.free_bytes)} free, "
            f"{gb(has.page_cache_bytes)} page cache)"
        )
        (cached if need <= has.free_bytes + has.page_cache_bytes else short).append(text)
    warnings = []
    several = len(memory) > 1
    if cached:
        remote = " or takes memory of another NUMA node" if several and not strict else ""
        spread = (
            "; what a set-up reads under `numactl --interleave=all` spreads over all NUMA nodes"
        )
        warnings.append(
            f"page cache fills {truncate_list(cached)}: the kernel drops it while copies are timed"
            f"{remote}; `sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it"
            f"{spread if several else ''}"
        )
    if short:
        warnings.append(
            f"too little memory in {truncate_list(short)}: {_otherwise(several, strict)}"
        )
    return tuple(warnings)


def _otherwise(several: bool, strict: bool) -> str:
    if strict:
        rest = "they are bound to it: what it lacks is swapped, or the kernel kills a copy"
    else:
        rest = (
            f"the rest comes from {'other NUMA nodes, from ' if several else ''}swap, or not at all"
        )
    if several:
        return f"{rest}; fewer copies, a smaller size or a layout that spreads them avoids it"
    return f"{rest}; fewer copies or a smaller size avoid it"


def capacity_warnings(
    needs_bytes: Mapping[int, int], installed_bytes: Mapping[int, int], *, strict: bool = False
) -> tuple[str, ...]:
    """Say which lgroups have less memory installed than their copies need.

    Both are by lgroup; those whose memory is not known (absent, or 0) are passed over.
    `strict`: copies may take memory of these lgroups only.
    """
    short = [
        f"node {node} ({gb(installed)} installed, its copies need {gb(need)})"
        for node, need in sorted(needs_bytes.items())
        if need > (installed := installed_bytes.get(node, 0)) > 0
    ]
    if not short:
        return ()
    several = len(installed_bytes) > 1
    return (
        f"memory cannot hold the copies of {truncate_list(short)}: {_otherwise(several, strict)}",
    )


def preflight(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    now: Mapping[int, NodeMemory],
    *,
    before: Mapping[int, NodeMemory] | None = None,
    huge_pages_always: bool = False,
    unstated: Sequence[str] = (),
) -> Preflight:
    """Compare what copies need with what their lgroups have (pure).

    `now` is the memory of each lgroup, `before` what it was when the set-up began.
    Copies that are not bound to an lgroup want nothing of any in particular: whether
    the machine can hold them all is asked elsewhere (`run.host.requirements`). With
    `huge_pages_always` every program's memory is to come in transparent huge pages,
    so it matters what is free in large blocks. `unstated`: benchmarks that do not say
    what their copies need.
    """
    needs = dict(sorted(needs_by_node(placements, bytes_by_copy).items()))
    known = [(need, now[node]) for node, need in needs.items() if node in now]
    lacking = [has for need, has in known if need > has.free_bytes]
    warnings = [
        *memory_warnings(needs, now, strict=bound_to_memory(placements)),
        *_set_up_warnings(lacking, before or {}),
        *_pool_warnings(lacking),
        *(_block_warnings(known) if huge_pages_always else ()),
    ]
    way = "`memory_mb` in a benchmark's size states it (`rater suites new` writes a suite)"
    unread = [f"{node}" for node, need in needs.items() if need and node not in now]
    unbound = any(placed.node is None and not placed.memory_nodes for placed in placements)
    unchecked = {
        f"memory need of {truncate_list(unstated)} not stated: only the other benchmarks are "
        f"checked; {way}": unstated,
        "copies are bound to no NUMA node: memory not checked; a layout binds them": unbound,
        f"the kernel does not tell what is free on node {truncate_list(unread)}: not checked": (
            unread
        ),
    }
    if not any(bytes_by_copy.values()):
        unchecked = {f"memory need not stated: memory not checked; {way}": True}
    return Preflight(tuple(warnings), tuple(text for text, is_so in unchecked.items() if is_so))


def _set_up_warnings(
    lacking: Sequence[NodeMemory], before: Mapping[int, NodeMemory]
) -> Iterator[str]:
    came = [
        (it.page_cache_bytes - before[it.node].page_cache_bytes, it.node)
        for it in lacking
        if it.node in before
    ]
    lines = [f"{gb(left)} on node {node}" for left, node in came if left >= _LEAST_LEFT_BYTES]
    if lines:
        yield (
            f"page cache that came during the set-up (builds, inputs): {truncate_list(lines)}; "
            "once inputs are made, a second run has less of it"
        )


def _pool_warnings(lacking: Sequence[NodeMemory]) -> Iterator[str]:
    for has in lacking:
        cures = "; ".join(
            f"`echo {pool.total - pool.free} > /sys/devices/system/node/node{has.node}"
            f"/hugepages/hugepages-{pool.size_bytes >> 10}kB/nr_hugepages`"
            for pool in has.huge_pages
            if pool.free
        )
        if cures:
            yield (
                f"{gb(has.pooled_bytes)} of node {has.node} lie in huge pages that are set "
                "aside and free: only programs that ask for them get that memory; as root "
                f"{cures} gives it back"
            )


def _block_warnings(known: Sequence[tuple[int, NodeMemory]]) -> Iterator[str]:
    broken = [
        f"node {has.node} (its copies need {gb(need)}; {gb(has.free_huge_order_bytes)} free in "
        "such blocks)"
        for need, has in known
        if has.free_huge_order_bytes is not None
        and has.free_huge_order_bytes < need <= has.free_bytes
    ]
    if broken:
        yield (
            f"too few free blocks of the size of a huge page in {truncate_list(broken)}: part of "
            "the copies' memory comes in small pages, or is compacted while copies are timed; "
            "`echo 1 > /proc/sys/vm/compact_memory` as root makes larger blocks"
        )


def gb(count: int) -> str:
    """Return bytes as `1.23 GB` or `216 MB`: three digits, `4.0 GB` where the third is a zero."""
    unit, value = ("GB", count / 1e9) if count >= 999_500_000 else ("MB", count / 1e6)
    if value >= 99.95:
        return f"{value:.0f} {unit}"
    text = f"{value:.2f}".removesuffix("0") if value < 9.995 else f"{value:.1f}"
    return f"{text} {unit}"

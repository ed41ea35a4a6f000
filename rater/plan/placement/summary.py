"""What placements come to: each lgroup's part and memory, the kernel's limits of a copy; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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


class NodeShare(Struct, frozen=True):
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


def remarks(
    topology: Topology, placements: Sequence[Placement], threads: int = 1
) -> tuple[str, ...]:
    """Return what is worth a thought before a run though every run of its kind is like that.

    What makes copies unequal is among the warnings of `rater.plan.placement.place.plan_placements`.
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
        f"no copy runs on {'nodes' if several else 'node'} {format_list(numbers)}"
        f"{f' ({", ".join(kinds)})' if kinds else ''}, which {'have' if several else 'has'} no "
        f"CPUs of {'their' if several else 'its'} own: such memory is used when local memory is "
        f"full, or when it is named, as in --mem bind:nodes={numbers[0]}"
    ]


# -- Memory that copies need of each lgroup, held against what it has installed, or has now --------

_LEAST_LEFT_BYTES = 64_000_000  # page cache that a set-up may leave without a word


class NodeMemoryCheck(Struct, frozen=True):
    """One lgroup before a run; bytes, None for what is not known."""

    node: int  # OS number
    copies: int  # whose home it is
    need_bytes: int  # that copies want of its memory
    free_bytes: int | None
    page_cache_bytes: int | None
    set_up_cache_bytes: int | None  # page cache that came since the set-up began
    free_huge_order_bytes: int | None  # free in blocks of a transparent huge page
    huge_pages_bytes: int | None  # in free huge pages set aside (hugetlb): for who asks only
    verdict: str  # "enough", "page-cache" (enough when it is dropped), "short", "unknown"


class Preflight(Struct, frozen=True):
    """What was found: warnings with the numbers and the cure, and a row for each lgroup."""

    warnings: tuple[str, ...]
    rows: tuple[NodeMemoryCheck, ...]
    unchecked: tuple[str, ...] = ()  # what could not be compared, for who relies on it

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
            if several
            else ""
        )
        warnings.append(
            f"page cache fills {truncate_list(cached)}: the kernel drops it while copies are timed"
            f"{remote}; `sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it{spread}"
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
    needs = needs_by_node(placements, bytes_by_copy)
    copies = Counter(placed.node for placed in placements if placed.node is not None)
    rows = tuple(
        _row(node, copies[node], needs.get(node, 0), now.get(node), (before or {}).get(node))
        for node in sorted(copies.keys() | needs.keys() | now.keys())
    )
    warnings = [
        *memory_warnings(needs, now, strict=bound_to_memory(placements)),
        *_set_up_warnings(rows),
        *_pool_warnings(rows, now),
        *(_block_warnings(rows) if huge_pages_always else ()),
    ]
    return Preflight(tuple(warnings), rows, _unchecked(placements, bytes_by_copy, rows, unstated))


def _row(
    node: int, copies: int, need: int, now: NodeMemory | None, before: NodeMemory | None
) -> NodeMemoryCheck:
    if now is None:
        return NodeMemoryCheck(node, copies, need, None, None, None, None, None, "unknown")
    if need <= now.free_bytes:
        verdict = "enough"
    else:
        reachable = now.free_bytes + now.page_cache_bytes
        verdict = "page-cache" if need <= reachable else "short"
    return NodeMemoryCheck(
        node=node,
        copies=copies,
        need_bytes=need,
        free_bytes=now.free_bytes,
        page_cache_bytes=now.page_cache_bytes,
        set_up_cache_bytes=(
            None if before is None else max(0, now.page_cache_bytes - before.page_cache_bytes)
        ),
        free_huge_order_bytes=now.free_huge_order_bytes,
        huge_pages_bytes=now.pooled_bytes,
        verdict=verdict,
    )


def _unchecked(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    rows: Sequence[NodeMemoryCheck],
    unstated: Sequence[str],
) -> tuple[str, ...]:
    way = "`memory_mb` in a benchmark's size states it (`rater suites new` writes a suite)"
    if not any(bytes_by_copy.values()):
        return (f"memory need not stated: memory not checked; {way}",)
    lines = []
    if unstated:
        lines.append(
            f"memory need of {truncate_list(unstated)} not stated: only the other "
            f"benchmarks are checked; {way}"
        )
    if any(placed.node is None and not placed.memory_nodes for placed in placements):
        lines.append("copies are bound to no NUMA node: memory not checked; a layout binds them")
    unread = [f"{row.node}" for row in rows if row.verdict == "unknown" and row.need_bytes]
    if unread:
        lines.append(
            f"the kernel does not tell what is free on node {truncate_list(unread)}: not checked"
        )
    return tuple(lines)


def _set_up_warnings(rows: Sequence[NodeMemoryCheck]) -> list[str]:
    lines = [
        f"{gb(row.set_up_cache_bytes)} on node {row.node}"
        for row in rows
        if row.verdict in ("page-cache", "short")
        and row.set_up_cache_bytes is not None
        and row.set_up_cache_bytes >= _LEAST_LEFT_BYTES
    ]
    if not lines:
        return []
    return [
        f"page cache that came during the set-up (builds, inputs): {truncate_list(lines)}; once "
        "inputs are "
        "made, a second run has less of it"
    ]


def _pool_warnings(rows: Sequence[NodeMemoryCheck], now: Mapping[int, NodeMemory]) -> list[str]:
    warnings = []
    for row in rows:
        if row.verdict in ("page-cache", "short") and row.huge_pages_bytes:
            pools = [pool for pool in now[row.node].huge_pages if pool.free]
            cures = "; ".join(
                f"`echo {pool.total - pool.free} > /sys/devices/system/node/node{row.node}"
                f"/hugepages/hugepages-{pool.size_bytes >> 10}kB/nr_hugepages`"
                for pool in pools
            )
            warnings.append(
                f"{gb(row.huge_pages_bytes)} of node {row.node} lie in huge pages that are set "
                "aside and free: only programs that ask for them get that memory; as root "
                f"{cures} gives it back"
            )
    return warnings


def _block_warnings(rows: Sequence[NodeMemoryCheck]) -> list[str]:
    broken = [
        f"node {row.node} (its copies need {gb(row.need_bytes)}; {gb(row.free_huge_order_bytes)} "
        "free in such blocks)"
        for row in rows
        if row.verdict == "enough"
        and row.free_huge_order_bytes is not None
        and row.need_bytes > row.free_huge_order_bytes
    ]
    if not broken:
        return []
    return [
        f"too few free blocks of the size of a huge page in {truncate_list(broken)}: part of the "
        "copies' "
        "memory comes in small pages, or is compacted while copies are timed; "
        "`echo 1 > /proc/sys/vm/compact_memory` as root makes larger blocks"
    ]


def gb(count: int) -> str:
    """Return bytes as `1.23 GB` or `216 MB`: three digits, `4.0 GB` where the third is a zero."""
    unit, value = ("GB", count / 1e9) if count >= 999_500_000 else ("MB", count / 1e6)
    if value >= 99.95:
        return f"{value:.0f} {unit}"
    text = f"{value:.2f}".removesuffix("0") if value < 9.995 else f"{value:.1f}"
    return f"{text} {unit}"

"""Memory that copies need of each NUMA node, held against the installed and the free; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from rater.plan.topology import NodeMemory
from rater.record.run import MemoryPolicy, Placement
from rater.text.values import truncate_list

# Page cache that a set-up may add to a node without a warning: little beside any node's memory.
_LEAST_CACHE_BYTES = 64_000_000


class Preflight(Struct, frozen=True):
    """Whether NUMA nodes have the memory that their copies need."""

    warnings: tuple[str, ...]  # with the numbers and the cure
    unchecked: tuple[str, ...]  # comparisons that were not possible, and why

    def refusal(self) -> str | None:
        """Return why `--preflight strict` refuses the run; None for a run that it allows."""
        if not self.warnings:
            return None
        return "\n".join([*self.warnings, "--preflight strict refuses the run for that"])


def needs_by_node(
    placements: Sequence[Placement], bytes_by_copy: Mapping[int, int]
) -> dict[int, int]:
    """Return the bytes that copies need of each NUMA node, by OS number.

    A copy bound to several nodes needs an equal part of each; one that is not bound to a CPU
    needs nothing of any node in particular.
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
    """Return which NUMA nodes have less free than their copies need, and the way out.

    `needs_bytes` is by node; those without a reading in `memory` are passed over.
    With `strict` copies may take memory of these nodes only.
    """
    cached: list[str] = []
    short: list[str] = []
    for node in sorted(needs_bytes.keys() & memory.keys()):
        need_bytes, reading = needs_bytes[node], memory[node]
        if need_bytes <= reading.free_bytes:
            continue
        lacking = (
            f"node {node} (its copies need {gb(need_bytes)}; {gb(reading.free_bytes)} free, "
            f"{gb(reading.page_cache_bytes)} page cache)"
        )
        is_cached = need_bytes <= reading.free_bytes + reading.page_cache_bytes
        (cached if is_cached else short).append(lacking)
    warnings = []
    several = len(memory) > 1
    if cached:
        remote = spread = ""
        if several and not strict:
            remote = " or takes memory of another NUMA node"
        if several:
            spread = (
                "; what a set-up reads under `numactl --interleave=all` spreads over all NUMA nodes"
            )
        warnings.append(
            f"page cache fills {truncate_list(cached)}: the kernel drops it while copies are timed"
            f"{remote}; `sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it{spread}"
        )
    if short:
        warnings.append(
            f"too little memory in {truncate_list(short)}: {_describe_lack(several, strict=strict)}"
        )
    return tuple(warnings)


def _describe_lack(several: bool, *, strict: bool) -> str:
    """Return what happens where memory of a node is short, and what avoids it."""
    if strict:
        effect = "they are bound to it: what it lacks is swapped, or the kernel kills a copy"
    else:
        others = "other NUMA nodes, from " if several else ""
        effect = f"the rest comes from {others}swap, or not at all"
    if several:
        return f"{effect}; fewer copies, a smaller size or a layout that spreads them avoids it"
    return f"{effect}; fewer copies or a smaller size avoid it"


def capacity_warnings(
    needs_bytes: Mapping[int, int], installed_bytes: Mapping[int, int], *, strict: bool = False
) -> tuple[str, ...]:
    """Return which NUMA nodes have less memory installed than their copies need.

    Both are by node; those whose memory is not known (absent) are passed over.
    With `strict` copies may take memory of these nodes only.
    """
    short = [
        f"node {node} ({gb(installed)} installed, its copies need {gb(need)})"
        for node, need in sorted(needs_bytes.items())
        if (installed := installed_bytes.get(node)) is not None and need > installed
    ]
    if not short:
        return ()
    lack = _describe_lack(len(installed_bytes) > 1, strict=strict)
    return (f"memory cannot hold the copies of {truncate_list(short)}: {lack}",)


def preflight(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    now: Mapping[int, NodeMemory],
    *,
    before: Mapping[int, NodeMemory] | None = None,
    huge_pages_always: bool = False,
    unstated: Sequence[str] = (),
) -> Preflight:
    """Compare the memory that copies need with that of their NUMA nodes.

    `now` is the memory of each node, `before` that at the begin of the set-up. Copies that are not
    bound to a node need nothing of any in particular: `rater.run.host.admission` asks whether the
    machine can hold them all. With `huge_pages_always` the kernel gives every program transparent
    huge pages, so it matters how much is free in large blocks. `unstated` are benchmarks that do
    not state the need of their copies.
    """
    needs_bytes = dict(sorted(needs_by_node(placements, bytes_by_copy).items()))
    readings = [(need, now[node]) for node, need in needs_bytes.items() if node in now]
    lacking = [reading for need, reading in readings if need > reading.free_bytes]
    warnings = [
        *memory_warnings(needs_bytes, now, strict=bound_to_memory(placements)),
        *_warn_of_set_up(lacking, before or {}),
        *_warn_of_pools(lacking),
        *(_warn_of_small_blocks(readings) if huge_pages_always else ()),
    ]
    if any(bytes_by_copy.values()):
        unread = [str(node) for node, need in needs_bytes.items() if need and node not in now]
        unchecked = tuple(_describe_unchecked(placements, unread, unstated))
    else:
        unchecked = (f"memory need not stated: memory not checked; {_HOW_TO_STATE}",)
    return Preflight(tuple(warnings), unchecked)


_HOW_TO_STATE = "`memory_mb` in a benchmark's size states it (`rater suites new` writes a suite)"


def _describe_unchecked(
    placements: Sequence[Placement], unread: Sequence[str], unstated: Sequence[str]
) -> Iterator[str]:
    if unstated:
        yield (
            f"memory need of {truncate_list(unstated)} not stated: only the other benchmarks are "
            f"checked; {_HOW_TO_STATE}"
        )
    if any(placement.node is None and not placement.memory_nodes for placement in placements):
        yield "copies are bound to no NUMA node: memory not checked; a layout binds them"
    if unread:
        yield f"the kernel does not tell what is free on node {truncate_list(unread)}: not checked"


def _warn_of_set_up(
    lacking: Sequence[NodeMemory], before: Mapping[int, NodeMemory]
) -> Iterator[str]:
    grown = []
    for reading in lacking:
        if reading.node not in before:
            continue
        grown_bytes = reading.page_cache_bytes - before[reading.node].page_cache_bytes
        if grown_bytes >= _LEAST_CACHE_BYTES:
            grown.append(f"{gb(grown_bytes)} on node {reading.node}")
    if grown:
        yield (
            f"page cache that came during the set-up (builds, inputs): {truncate_list(grown)}; "
            "once inputs are made, a second run has less of it"
        )


def _warn_of_pools(lacking: Sequence[NodeMemory]) -> Iterator[str]:
    for reading in lacking:
        cures = "; ".join(
            f"`echo {pool.total - pool.free} > /sys/devices/system/node/node{reading.node}"
            f"/hugepages/hugepages-{pool.size_bytes >> 10}kB/nr_hugepages`"
            for pool in reading.huge_pages
            if pool.free
        )
        if cures:
            yield (
                f"{gb(reading.pooled_bytes)} of node {reading.node} lie in huge pages that are set "
                "aside and free: only programs that ask for them get that memory; as root "
                f"{cures} gives it back"
            )


def _warn_of_small_blocks(readings: Sequence[tuple[int, NodeMemory]]) -> Iterator[str]:
    """Warn of nodes (bytes needed, memory) with enough free memory in too small blocks."""
    broken = [
        f"node {reading.node} (its copies need {gb(need)}; {gb(reading.free_huge_order_bytes)} "
        "free in such blocks)"
        for need, reading in readings
        if reading.free_huge_order_bytes is not None
        and reading.free_huge_order_bytes < need <= reading.free_bytes
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

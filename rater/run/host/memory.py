"""Memory as a run finds it: per lgroup what is free, page cache, or free in huge blocks.

Page cache is the usual reason why one lgroup of equals is slow: what a set-up read
or wrote fills the node it ran on, and copies there get remote memory, or small
pages where their neighbours get huge ones.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.run.host.sysfiles import listed, meminfo, read_number, read_text
from rater.text.words import some

_PROC, _SYS = Path("/proc"), Path("/sys")
_BUDDY = re.compile(r"^Node +(\d+), +zone +\S+ +([\d ]+)$", re.MULTILINE)
_MACHINE = (
    ("free", "MemFree"),
    ("available", "MemAvailable"),
    ("cached", "Cached"),
    ("swap_free", "SwapFree"),
    ("dirty", "Dirty"),
    ("writeback", "Writeback"),
    ("anon_huge", "AnonHugePages"),
)
_NODE = (
    ("free", "MemFree"),
    ("page_cache", "FilePages"),
    ("shmem", "Shmem"),
    ("anon_huge", "AnonHugePages"),
    ("dirty", "Dirty"),
    ("writeback", "Writeback"),
)
# Of the default huge page size; sizes and nodes one by one are in /sys (see `facts`).
_HUGE = (
    ("total", "HugePages_Total"),
    ("free", "HugePages_Free"),
    ("reserved", "HugePages_Rsvd"),
    ("surplus", "HugePages_Surp"),
)


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What one lgroup has for the copies of a run."""

    free_bytes: int
    droppable_bytes: int  # page cache that can be dropped: file pages without shared memory


def memory_readings(proc: Path = _PROC, sys: Path = _SYS) -> Iterator[tuple[str, str]]:
    """Yield the state of memory as settings: `memory.*` in bytes, `hugepages.*` in pages.

    `memory.nodeN.free_huge_order_bytes` is what lies free in blocks of at least one
    transparent huge page: so much of them is to be had without compaction.
    """
    machine = meminfo(proc / "meminfo")
    yield from _named("memory", "_bytes", _MACHINE, machine)
    yield from _named("hugepages", "", _HUGE, machine)
    for path in listed(sys / "devices/system/node", "node[0-9]*"):
        yield from _named(f"memory.{path.name}", "_bytes", _NODE, meminfo(path / "meminfo"))
    for node, free_bytes in free_in_huge_blocks(proc, sys).items():
        yield f"memory.node{node}.free_huge_order_bytes", str(free_bytes)


def free_in_huge_blocks(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, int]:
    """Return the bytes free by node in blocks of at least one transparent huge page."""
    transparent = sys / "kernel/mm/transparent_hugepage/hpage_pmd_size"
    huge_bytes = read_number(transparent) or meminfo(proc / "meminfo").get("Hugepagesize")
    return _free_in_blocks(proc, huge_bytes) if huge_bytes else {}


def node_memory(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, NodeMemory]:
    """Return the memory of each lgroup by OS number; empty where the kernel knows no nodes."""
    return {
        node: NodeMemory(entries["MemFree"], max(0, entries["FilePages"] - entries.get("Shmem", 0)))
        for node, entries in node_entries(proc, sys).items()
        if {"MemFree", "FilePages"} <= entries.keys()
    }


def node_entries(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, dict[str, int]]:
    """Return what each lgroup's meminfo says, in bytes, by OS number.

    A single lgroup has what the machine has: under some hypervisors its own file
    leaves out the memory that is plugged in when it is wanted.
    """
    paths = listed(sys / "devices/system/node", "node[0-9]*")
    found = {}
    for path in paths:
        entries = meminfo(path / "meminfo")
        if len(paths) == 1:
            machine = meminfo(proc / "meminfo")
            if {"MemFree", "Cached"} <= machine.keys():
                files = machine["Cached"] + machine.get("Buffers", 0)
                entries = machine | {"FilePages": files}
        number = path.name.removeprefix("node")
        if number.isdecimal():
            found[int(number)] = entries
    return found


def needs_by_node(
    placements: Sequence[Placement], bytes_by_copy: Mapping[int, int]
) -> dict[int, int]:
    """Return the bytes that copies want of each lgroup by OS number (pure).

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
    """Tell whether copies may take memory of their nodes only (pure)."""
    return bool(placements) and placements[0].policy is MemoryPolicy.BIND


def memory_warnings(
    needs_bytes: Mapping[int, int], memory: Mapping[int, NodeMemory], *, strict: bool = False
) -> tuple[str, ...]:
    """Say which lgroups have less free than their copies need, and the way out (pure).

    `needs_bytes` is by lgroup; those without a reading in `memory` are passed over.
    `strict`: copies may take memory of these lgroups only.
    """
    cached: list[str] = []
    short: list[str] = []
    for node in sorted(needs_bytes.keys() & memory.keys()):
        need, has = needs_bytes[node], memory[node]
        if need <= has.free_bytes:
            continue
        told = (
            f"lgroup {node} (its copies need {gb(need)}; {gb(has.free_bytes)} free, "
            f"{gb(has.droppable_bytes)} page cache)"
        )
        (cached if need <= has.free_bytes + has.droppable_bytes else short).append(told)
    warnings = []
    several = len(memory) > 1
    if cached:
        remote = " or takes memory of another lgroup" if several and not strict else ""
        spread = (
            "; what a set-up reads under `numactl --interleave=all` spreads over all lgroups"
            if several
            else ""
        )
        warnings.append(
            f"page cache fills {some(cached)}: the kernel drops it while copies are timed"
            f"{remote}; `sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it{spread}"
        )
    if short:
        warnings.append(f"too little memory in {some(short)}: {_otherwise(several, strict)}")
    return tuple(warnings)


def _otherwise(several: bool, strict: bool) -> str:
    """Say where memory comes from that an lgroup does not have, and how to need less of it."""
    if strict:
        rest = "they are bound to it: what it lacks is swapped, or the kernel kills a copy"
    else:
        rest = f"the rest comes from {'other lgroups, from ' if several else ''}swap, or not at all"
    if several:
        return f"{rest}; fewer copies, a smaller size or a layout that spreads them avoids it"
    return f"{rest}; fewer copies or a smaller size avoid it"


def capacity_warnings(
    needs_bytes: Mapping[int, int], installed_bytes: Mapping[int, int], *, strict: bool = False
) -> tuple[str, ...]:
    """Say which lgroups have less memory installed than their copies need (pure).

    Both are by lgroup; those whose memory is not known (absent, or 0) are passed over.
    `strict`: copies may take memory of these lgroups only.
    """
    short = [
        f"lgroup {node} ({gb(installed)} installed, its copies need {gb(need)})"
        for node, need in sorted(needs_bytes.items())
        if need > (installed := installed_bytes.get(node, 0)) > 0
    ]
    if not short:
        return ()
    several = len(installed_bytes) > 1
    return (f"memory cannot hold the copies of {some(short)}: {_otherwise(several, strict)}",)


def _named(
    prefix: str, unit: str, names: Sequence[tuple[str, str]], entries: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    for name, key in names:
        if key in entries:
            yield f"{prefix}.{name}{unit}", str(entries[key])


def _free_in_blocks(proc: Path, least_bytes: int) -> dict[int, int]:
    """Return the free bytes by node in blocks of at least `least_bytes`, from buddyinfo.

    Column k counts free blocks of 2^k pages (proc(5)).
    """
    found: dict[int, int] = {}
    for node, columns in _BUDDY.findall(read_text(proc / "buddyinfo") or ""):
        blocks = ((mmap.PAGESIZE << order, int(n)) for order, n in enumerate(columns.split()))
        free_bytes = sum(size * count for size, count in blocks if size >= least_bytes)
        found[int(node)] = found.get(int(node), 0) + free_bytes
    return found


def gb(count: int) -> str:
    """Return bytes as `1.23 GB` or `216 MB`: three digits, `4.0 GB` where the third is a zero."""
    unit, value = ("GB", count / 1e9) if count >= 999_500_000 else ("MB", count / 1e6)
    if value >= 99.95:
        return f"{value:.0f} {unit}"
    text = f"{value:.2f}".removesuffix("0") if value < 9.995 else f"{value:.1f}"
    return f"{text} {unit}"

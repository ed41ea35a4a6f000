"""Memory of this machine: free in each lgroup, and files dropped from the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rater.plan.placement.preflight import Preflight, preflight
from rater.plan.topology import HugePages, NodeMemory, PoolCapacity
from rater.record.run import Placement
from rater.run.host.procfs import list_folder, meminfo, read_number, read_text
from rater.system.patterns import compile_later

# Page cache is the usual reason why one lgroup of equals is slow: what a set-up read
# or wrote fills the node it ran on, and copies there get remote memory, or small
# pages where their neighbours get huge ones.

_NODES = "sys/devices/system/node"
_POOL = compile_later(r"hugepages-([0-9]+)kB")
_BUDDY = compile_later(r"^Node +(\d+), +zone +\S+ +(\d[\d ]*)$", re.MULTILINE)
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


def memory_readings(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield the state of memory as settings: `memory.*` in bytes, `hugepages.*` in pages.

    `memory.nodeN.free_huge_order_bytes` is what lies free in blocks of at least one
    transparent huge page: so much of them is to be had without compaction.
    """
    machine = meminfo(root / "proc/meminfo")
    yield from _named("memory", "_bytes", _MACHINE, machine)
    yield from _named("hugepages", "", _HUGE, machine)
    for path in list_folder(root / _NODES, "node[0-9]*"):
        yield from _named(f"memory.{path.name}", "_bytes", _NODE, meminfo(path / "meminfo"))
    for node, free_bytes in _free_in_huge_blocks(root).items():
        yield f"memory.node{node}.free_huge_order_bytes", str(free_bytes)


def _free_in_huge_blocks(root: Path) -> dict[int, int]:
    """Return the bytes free by node in blocks of at least one transparent huge page."""
    transparent = root / "sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
    least_bytes = read_number(transparent) or meminfo(root / "proc/meminfo").get("Hugepagesize")
    return {
        node: sum(
            block_bytes * count
            for block_bytes, count in blocks.items()
            if block_bytes >= least_bytes
        )
        for node, blocks in _free_blocks(root).items()
        if least_bytes
    }


def read_node_memory(root: Path = Path("/")) -> dict[int, NodeMemory]:
    """Return the memory of each lgroup by OS number, ascending; empty where there are none.

    About a millisecond a node: the kernel adds up its counters for each file. A single lgroup has
    what the machine has: under some hypervisors its own file leaves out the memory that is
    plugged in when it is wanted.
    """
    huge_blocks = _free_in_huge_blocks(root)
    paths = list_folder(root / _NODES, "node[0-9]*")
    memory_by_node = {}
    for path in paths:
        entries, node_number = meminfo(path / "meminfo"), path.name.removeprefix("node")
        machine = meminfo(root / "proc/meminfo") if len(paths) == 1 else {}
        if {"MemFree", "Cached"} <= machine.keys():
            entries = machine | {"FilePages": machine["Cached"] + machine.get("Buffers", 0)}
        if (
            not node_number.isdecimal()
            or not {"MemTotal", "MemFree", "FilePages"} <= entries.keys()
        ):
            continue
        memory_by_node[int(node_number)] = NodeMemory(
            node=int(node_number),
            total_bytes=entries["MemTotal"],
            free_bytes=entries["MemFree"],
            page_cache_bytes=max(0, entries["FilePages"] - entries.get("Shmem", 0)),
            dirty_bytes=entries.get("Dirty", 0) + entries.get("Writeback", 0),
            free_huge_order_bytes=huge_blocks.get(int(node_number)),
            huge_pages=_pools(path / "hugepages"),
        )
    return dict(sorted(memory_by_node.items()))


def pool_rooms(root: Path = Path("/")) -> tuple[PoolCapacity, ...]:
    """Return what the pools of huge pages have and could have, by lgroup, then by size."""
    blocks_by_node = _free_blocks(root)
    capacities = []
    for memory in read_node_memory(root).values():
        node_blocks = blocks_by_node.get(memory.node, {})
        largest_bytes = max(node_blocks, default=0)
        for pool in memory.huge_pages:
            page_bytes = pool.size_bytes
            pieces = sum(
                block_bytes // page_bytes * count
                for block_bytes, count in node_blocks.items()
                if block_bytes >= page_bytes
            )
            capacities.append(
                PoolCapacity(
                    node=memory.node,
                    size_bytes=page_bytes,
                    total=pool.total,
                    free=pool.free,
                    ready=pieces if largest_bytes >= page_bytes else None,
                    most=(memory.free_bytes + memory.droppable_bytes) // page_bytes,
                )
            )
    return tuple(capacities)


def preflight_now(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    before: Mapping[int, NodeMemory] | None = None,
    *,
    root: Path = Path("/"),
    unstated: Sequence[str] = (),
) -> Preflight:
    """Return the preflight of this machine now; `before` is an earlier `read_node_memory`."""
    enabled = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return preflight(
        placements,
        bytes_by_copy,
        read_node_memory(root),
        before=before,
        huge_pages_always="[always]" in enabled,
        unstated=unstated,
    )


def _pools(folder: Path) -> tuple[HugePages, ...]:
    pools = []
    for path in list_folder(folder, "hugepages-*kB"):
        size_match = _POOL.fullmatch(path.name)
        total, free = read_number(path / "nr_hugepages"), read_number(path / "free_hugepages")
        if size_match is not None and total is not None and free is not None:
            pools.append(HugePages(int(size_match[1]) << 10, total, free))
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def _named(
    prefix: str, unit: str, names: Sequence[tuple[str, str]], entries: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    for name, key in names:
        if key in entries:
            yield f"{prefix}.{name}{unit}", str(entries[key])


def _free_blocks(root: Path) -> dict[int, dict[int, int]]:
    """Return by node how many free blocks there are of each size in bytes, from buddyinfo.

    Column k counts free blocks of 2^k pages (proc(5)).
    """
    blocks_by_node: dict[int, dict[int, int]] = {}
    for node, columns in _BUDDY.findall(read_text(root / "proc/buddyinfo") or ""):
        node_blocks = blocks_by_node.setdefault(int(node), {})
        for order, count in enumerate(columns.split()):
            block_bytes = mmap.PAGESIZE << order
            node_blocks[block_bytes] = node_blocks.get(block_bytes, 0) + int(count)
    return blocks_by_node


# -- Dropping files from the page cache ------------------------------------------------------------
#
# What a set-up reads and writes stays in memory, on the lgroup it ran on. Copies there
# find less free memory than their neighbours: the set-up becomes the slow part of the
# machine that the run is to find.

_NR_CACHESTAT = 451  # on every architecture but alpha; Linux 6.5


def drop_page_cache(path: Path) -> None:
    """Write a file, or all files of a tree, to disk and drop them from the page cache.

    `fsync` where pages are dirty, which cannot be dropped, then POSIX_FADV_DONTNEED, which needs no
    privileges. Pages that a process has mapped or locked stay, and so does
    all of tmpfs and ramfs. All names of a file share its
    pages: to drop a run directory drops the inputs it is linked to, and its copy
    reads them from disk. What cannot be opened or flushed stays, too; links are not followed.
    """
    seen_files: set[tuple[int, int]] = set()
    waiting = [str(path)]
    while waiting:
        file_name = waiting.pop()
        with suppress(OSError):  # the disk is full or broken, or the name has gone
            file_status = os.lstat(file_name)
            if stat.S_ISDIR(file_status.st_mode):
                with os.scandir(file_name) as entries:
                    waiting += [entry.path for entry in entries]
            elif (
                stat.S_ISREG(file_status.st_mode)
                and (file_status.st_dev, file_status.st_ino) not in seen_files
            ):
                seen_files.add((file_status.st_dev, file_status.st_ino))
                _drop(file_name)


def _drop(file_name: str) -> None:
    # Not blocking: the name may have become a pipe.
    descriptor = os.open(file_name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if _may_be_dirty(descriptor):  # a flush of the disk each, even of a clean file
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _may_be_dirty(descriptor: int) -> bool:
    whole_file = (ctypes.c_uint64 * 2)(0, 0)  # offset and length; length 0 is up to the end
    counts = (ctypes.c_uint64 * 5)()  # cached, dirty, written back, ...
    arguments = (ctypes.c_uint(descriptor), ctypes.byref(whole_file), ctypes.byref(counts))
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.syscall(ctypes.c_long(_NR_CACHESTAT), *arguments, ctypes.c_uint(0))
    return bool(refused or counts[1] or counts[2])

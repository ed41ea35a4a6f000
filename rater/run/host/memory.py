"""Memory of this machine: free in each lgroup, and files in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rater.plan.placement.place import Placement
from rater.plan.placement.summary import Preflight, preflight
from rater.plan.topology import HugePages, NodeMemory, PoolCapacity
from rater.run.host.procfs import list_folder, meminfo, read_number, read_text

# -- Memory as a run finds it: per lgroup what is free, page cache, or free in huge blocks ---------
#
# Page cache is the usual reason why one lgroup of equals is slow: what a set-up read
# or wrote fills the node it ran on, and copies there get remote memory, or small
# pages where their neighbours get huge ones.

_PROC, _SYS = Path("/proc"), Path("/sys")
_POOL = re.compile(r"hugepages-([0-9]+)kB")
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


def memory_readings(proc: Path = _PROC, sys: Path = _SYS) -> Iterator[tuple[str, str]]:
    """Yield the state of memory as settings: `memory.*` in bytes, `hugepages.*` in pages.

    `memory.nodeN.free_huge_order_bytes` is what lies free in blocks of at least one
    transparent huge page: so much of them is to be had without compaction.
    """
    machine = meminfo(proc / "meminfo")
    yield from _named("memory", "_bytes", _MACHINE, machine)
    yield from _named("hugepages", "", _HUGE, machine)
    for path in list_folder(sys / "devices/system/node", "node[0-9]*"):
        yield from _named(f"memory.{path.name}", "_bytes", _NODE, meminfo(path / "meminfo"))
    for node, free_bytes in free_in_huge_blocks(proc, sys).items():
        yield f"memory.node{node}.free_huge_order_bytes", str(free_bytes)


def free_in_huge_blocks(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, int]:
    """Return the bytes free by node in blocks of at least one transparent huge page."""
    transparent = sys / "kernel/mm/transparent_hugepage/hpage_pmd_size"
    huge_bytes = read_number(transparent) or meminfo(proc / "meminfo").get("Hugepagesize")
    return _free_in_blocks(proc, huge_bytes) if huge_bytes else {}


def read_node_memory(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, NodeMemory]:
    """Return the memory of each lgroup by OS number, ascending; empty where there are none.

    About a millisecond a node: the kernel adds up its counters for each file.
    """
    huge_blocks = free_in_huge_blocks(proc, sys)
    found = {}
    for node, entries in _node_entries(proc, sys).items():
        if not {"MemTotal", "MemFree", "FilePages"} <= entries.keys():
            continue
        found[node] = NodeMemory(
            node=node,
            total_bytes=entries["MemTotal"],
            free_bytes=entries["MemFree"],
            page_cache_bytes=max(0, entries["FilePages"] - entries.get("Shmem", 0)),
            dirty_bytes=entries.get("Dirty", 0) + entries.get("Writeback", 0),
            free_huge_order_bytes=huge_blocks.get(node),
            huge_pages=_pools(sys / f"devices/system/node/node{node}/hugepages"),
        )
    return dict(sorted(found.items()))


def pool_rooms(proc: Path = _PROC, sys: Path = _SYS) -> tuple[PoolCapacity, ...]:
    """Return what the pools of huge pages have and could have, by lgroup, then by size."""
    blocks = _free_blocks(proc)
    found = []
    for memory in read_node_memory(proc, sys).values():
        own = blocks.get(memory.node, {})
        largest = max(own, default=0)
        for pool in memory.huge_pages:
            size = pool.size_bytes
            pieces = sum(block // size * count for block, count in own.items() if block >= size)
            found.append(
                PoolCapacity(
                    *(memory.node, size, pool.total, pool.free),
                    ready=pieces if largest >= size else None,
                    most=(memory.free_bytes + memory.droppable_bytes) // size,
                )
            )
    return tuple(found)


def preflight_now(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    before: Mapping[int, NodeMemory] | None = None,
    proc: Path = _PROC,
    sys: Path = _SYS,
    *,
    unstated: Sequence[str] = (),
) -> Preflight:
    """Return the preflight of this machine now; `before` as `read_node_memory` gave it."""
    enabled = read_text(sys / "kernel/mm/transparent_hugepage/enabled") or ""
    return preflight(
        placements,
        bytes_by_copy,
        read_node_memory(proc, sys),
        before=before,
        huge_pages_always="[always]" in enabled,
        unstated=unstated,
    )


def _node_entries(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, dict[str, int]]:
    """Return what each lgroup's meminfo says, in bytes, by OS number.

    A single lgroup has what the machine has: under some hypervisors its own file
    leaves out the memory that is plugged in when it is wanted.
    """
    paths = list_folder(sys / "devices/system/node", "node[0-9]*")
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


def _pools(folder: Path) -> tuple[HugePages, ...]:
    pools = []
    for path in list_folder(folder, "hugepages-*kB"):
        size = _POOL.fullmatch(path.name)
        total, free = read_number(path / "nr_hugepages"), read_number(path / "free_hugepages")
        if size is not None and total is not None and free is not None:
            pools.append(HugePages(int(size[1]) << 10, total, free))
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def _named(
    prefix: str, unit: str, names: Sequence[tuple[str, str]], entries: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    for name, key in names:
        if key in entries:
            yield f"{prefix}.{name}{unit}", str(entries[key])


def _free_in_blocks(proc: Path, least_bytes: int) -> dict[int, int]:
    """Return the free bytes by node in blocks of at least `least_bytes`."""
    return {
        node: sum(size * count for size, count in blocks.items() if size >= least_bytes)
        for node, blocks in _free_blocks(proc).items()
    }


def _free_blocks(proc: Path) -> dict[int, dict[int, int]]:
    """Return by node how many free blocks there are of each size in bytes, from buddyinfo.

    Column k counts free blocks of 2^k pages (proc(5)).
    """
    found: dict[int, dict[int, int]] = {}
    for node, columns in _BUDDY.findall(read_text(proc / "buddyinfo") or ""):
        own = found.setdefault(int(node), {})
        for order, count in enumerate(columns.split()):
            size = mmap.PAGESIZE << order
            own[size] = own.get(size, 0) + int(count)
    return found


# -- How much of a file or a tree lies in the page cache, and dropping it --------------------------
#
# What a set-up reads and writes stays in memory, on the lgroup it ran on. Copies there
# find less free memory than their neighbours: the set-up becomes the slow part of the
# machine that the run is to find.

_NR_CACHESTAT = 451  # on every architecture but alpha; Linux 6.5
_MOST_REASONS = 8
_LOWEST_BIT = bytes(state & 1 for state in range(256))  # the others have no meaning yet


@dataclass(frozen=True, slots=True)
class PageCacheUse:
    """What of some files the page cache holds. Files with several names count once."""

    files: int = 0
    size_bytes: int = 0
    cached_bytes: int = 0
    dirty_bytes: int | None = None  # not on disk yet, or on its way; None: Linux before 6.5


@dataclass(frozen=True, slots=True)
class PageCacheDrop:
    """What dropping the page cache of some files did."""

    files: int
    dropped_bytes: int
    left_bytes: int  # in use: mapped by a process, locked, or of a file system in memory
    problems: tuple[str, ...]  # files that could not be opened or flushed, the first few


def measure_page_cache(path: Path) -> PageCacheUse:
    """Measure how much of a file, or of all files of a tree, is in the page cache.

    Files that cannot be opened are left out; symbolic links are not followed. Where
    `cachestat` is missing, `mincore` answers, which shows a file that we may not
    write as cached whole. Some 20 us a file.
    """
    total = PageCacheUse(dirty_bytes=0)
    for file in _files(path, []):
        with suppress(OSError), _opened(file) as handle:
            total = _sum(total, _measured(handle))
    return total


def drop_page_cache(path: Path) -> PageCacheDrop:
    """Write a file, or all files of a tree, to disk and drop them from the page cache.

    `fsync` where pages are dirty, which cannot be dropped, then POSIX_FADV_DONTNEED, which needs no
    privileges. Pages that a process has mapped or locked stay, and so does
    all of tmpfs and ramfs: `left_bytes` says how much. All names of a file share its
    pages: to drop a run directory drops the inputs it is linked to, and its copy
    reads them from disk. What cannot be opened or flushed is told, not raised.
    """
    problems: list[str] = []
    before = after = PageCacheUse()
    for file in _files(path, problems):
        try:
            with _opened(file) as handle:
                was = _measured(handle)
                if was.dirty_bytes != 0:  # a flush of the disk each, even of a clean file
                    os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                before, after = _sum(before, was), _sum(after, _measured(handle))
        except OSError as error:  # the disk is full or broken
            problems.append(f"{file}: {error.strerror}")
    dropped = max(0, before.cached_bytes - after.cached_bytes)
    return PageCacheDrop(before.files, dropped, after.cached_bytes, tuple(problems[:_MOST_REASONS]))


def _files(path: Path, problems: list[str]) -> Iterator[str]:
    """Yield the regular files that can be opened of a tree, each inode once."""
    seen: set[tuple[int, int]] = set()
    waiting = [str(path)]
    while waiting:
        name = waiting.pop()
        try:
            found = os.lstat(name)
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(name) as entries:
                    waiting += [entry.path for entry in entries]
            elif stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                with _opened(name):
                    pass
                yield name
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")


@contextmanager
def _opened(name: str) -> Iterator[int]:
    # Not blocking: the name may have become a pipe.
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _sum(one: PageCacheUse, other: PageCacheUse) -> PageCacheUse:
    known = one.dirty_bytes is not None and other.dirty_bytes is not None
    return PageCacheUse(
        one.files + other.files,
        one.size_bytes + other.size_bytes,
        one.cached_bytes + other.cached_bytes,
        (one.dirty_bytes or 0) + (other.dirty_bytes or 0) if known else None,
    )


def _measured(handle: int) -> PageCacheUse:
    size = os.fstat(handle).st_size
    counts = _cachestat(handle)
    if counts is not None:
        pages, dirty, writeback = counts
        page = mmap.PAGESIZE
        return PageCacheUse(1, size, pages * page, (dirty + writeback) * page)
    if not size:
        return PageCacheUse(1, 0, 0)
    with _Mapping(handle, size) as mapped:
        return PageCacheUse(1, size, sum(mapped.resident()) * mmap.PAGESIZE)


def _cachestat(handle: int) -> tuple[int, int, int] | None:
    """Return cached, dirty and written-back pages (cachestat(2)), None when it is refused."""
    whole = (ctypes.c_uint64 * 2)(0, 0)  # offset and length; length 0 is up to the end
    counts = (ctypes.c_uint64 * 5)()
    arguments = (ctypes.c_uint(handle), ctypes.byref(whole), ctypes.byref(counts))
    if _libc().syscall(ctypes.c_long(_NR_CACHESTAT), *arguments, ctypes.c_uint(0)):
        return None
    return counts[0], counts[1], counts[2]


class _Mapping:
    """A file in our address space, nothing of it read ahead."""

    def __init__(self, handle: int, size: int) -> None:
        self.size = size
        # Copy on write: the only way to an address from Python that needs no right to write.
        self._map = mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
        self._map.madvise(mmap.MADV_RANDOM)

    def __enter__(self) -> _Mapping:
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        return self

    def __exit__(self, *_: object) -> None:
        del self._anchor
        self._map.close()

    def resident(self) -> bytes:
        """Return 1 for each page that is cached, else 0 (mincore(2))."""
        pages = -(-self.size // mmap.PAGESIZE)
        answer = (ctypes.c_ubyte * pages)()
        start, length = ctypes.c_void_p(self.address), ctypes.c_size_t(self.size)
        if _libc().mincore(start, length, answer):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return bytes(answer).translate(_LOWEST_BIT)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

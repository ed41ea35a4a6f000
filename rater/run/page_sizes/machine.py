"""What this machine can give of page sizes, and why not."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rater.plan.pages.layout import BASE_BYTES, Category, PageLayout, size_text
from rater.plan.pages.windows import EVERYTHING, page_windows
from rater.plan.pools.pools import PoolNeed, PoolShortage, pool_shortages
from rater.run.host.memory import pool_rooms
from rater.run.host.sysfiles import listed, meminfo, read_number, read_text
from rater.settings.catalog import present_settings

_THP = Path("sys/kernel/mm/transparent_hugepage")
_POOLS = Path("sys/kernel/mm/hugepages")
_GIVEN = ("always", "madvise")
_KEPT_FREE = 1 << 30  # address space that a program needs besides
_LEAST_HEAP = 64 << 20


def huge_page_bytes(root: Path) -> int:
    """Return the size of the machine's transparent huge pages, else of its pool's; 2 MB unknown."""
    found = read_number(root / _THP / "hpage_pmd_size")
    return found or meminfo(root / "proc/meminfo").get("Hugepagesize") or 2 << 20


def pool_sizes(root: Path) -> list[int]:
    """Return the page sizes that this kernel has pools of, in bytes."""
    return sorted(_kilobytes(it.name) << 10 for it in listed(root / _POOLS, "hugepages-*kB"))


def transparent_sizes(root: Path) -> list[int]:
    """Return the sizes that transparent pages can have here, in bytes."""
    found = {_kilobytes(it.name) << 10 for it in listed(root / _THP, "hugepages-*kB")}
    if (root / _THP / "enabled").exists():
        found.add(huge_page_bytes(root))
    return sorted(found)


def _kilobytes(name: str) -> int:
    return int(name.removeprefix("hugepages-").removesuffix("kB"))


def machine_problems(
    layout: PageLayout, *, pooled: bool, root: Path, planned: Mapping[str, str]
) -> list[str]:
    """Return why this machine cannot give a layout, each with the way out.

    `planned`: kernel settings, by name, that will be set before.
    """
    page_bytes = resource.getpagesize()
    if page_bytes != BASE_BYTES:
        return [f"base pages are of {size_text(page_bytes)} here, and --pages is for 4k"]
    huge = huge_page_bytes(root)
    some = dict.fromkeys(Category, EVERYTHING >> 12)
    sizes = {it.page_bytes for it in page_windows(layout, some, huge)}
    of_pool = {size for size in sizes if pooled or size > huge}
    return [*_pool_problems(of_pool, root), *_thp_problems(sizes - of_pool, huge, root, planned)]


def _pool_problems(sizes: Iterable[int], root: Path) -> Iterator[str]:
    have = pool_sizes(root)
    for size in sorted(sizes):
        if size not in have:
            known = ", ".join(map(size_text, have)) or "none"
            more = "; add hugepagesz=1G to the kernel's command line" if size == 1 << 30 else ""
            yield f"this kernel has no pool of pages of {size_text(size)} (it has: {known}){more}"


def _thp_problems(
    sizes: Iterable[int], huge: int, root: Path, planned: Mapping[str, str]
) -> Iterator[str]:
    wanted = sorted(sizes)
    if not wanted:
        return
    have = transparent_sizes(root)
    for size in wanted:
        if size not in have:
            known = ", ".join(map(size_text, have)) or "none"
            yield f"this kernel has no transparent pages of {size_text(size)} (it has: {known})"
            return
    if len(wanted) > 1:
        yield (
            f"transparent pages of {' and '.join(map(size_text, wanted))} at once: the kernel "
            "takes the largest that fits; choose one size, or --pages-backing hugetlb"
        )
        return
    now = {it.name: it.read().text for it in present_settings(root)} | dict(planned)
    thp = now.get("thp", "always")
    [size] = wanted
    # A size that is not in the list of single ones follows the whole.
    of_size = now.get(f"thp.{size >> 10}kB", "inherit" if size == huge else "never")
    if (thp if of_size == "inherit" else of_size) not in _GIVEN:
        name = f"thp.{size >> 10}kB" if of_size != "inherit" else "thp"
        value = now.get(name, thp)
        file = f"hugepages-{size >> 10}kB/enabled" if name != "thp" else "enabled"
        yield (
            f"the machine's setting {name} is {value}; as root: rater sweep --axis {name}=madvise, "
            f"or echo madvise > /{_THP}/{file}"
        )
        return
    larger = [
        it
        for it in have
        if it > size
        and (thp if (own := now.get(f"thp.{it >> 10}kB", "never")) == "inherit" else own) in _GIVEN
    ]
    if larger:
        name = f"thp.{larger[-1] >> 10}kB"
        yield (
            f"transparent pages of {size_text(larger[-1])} are on, and where they fit the kernel "
            f"takes them rather than {size_text(size)}; as root: rater sweep --axis {name}=never, "
            f"or echo never > /{_THP}/hugepages-{larger[-1] >> 10}kB/enabled"
        )


def lacking_pages(needs: Iterable[PoolNeed], root: Path) -> tuple[PoolShortage, ...]:
    """Return the pools that have too few free pages for what copies need."""
    promised, on_demand = {}, {}
    for size in pool_sizes(root):
        pool = root / _POOLS / f"hugepages-{size >> 10}kB"
        promised[size] = read_number(pool / "resv_hugepages") or 0
        surplus = read_number(pool / "surplus_hugepages") or 0
        on_demand[size] = (read_number(pool / "nr_overcommit_hugepages") or 0) - surplus
    rooms = pool_rooms(root / "proc", root / "sys")
    return pool_shortages(needs, rooms, promised=promised, on_demand=on_demand)


def reserves(
    heap_given: int | None, extents: Mapping[Category, int], root: Path
) -> tuple[int, int]:
    """Return how much address space to reserve for the heap, and for mappings.

    Nothing of it is memory until it is used. `heap_given` is what the user says that the heap
    needs; else it is three quarters of the machine's memory, or a quarter more than was seen where
    the kernel does not let programs reserve more than there is.
    """
    memory = meminfo(root / "proc/meminfo")
    strict = read_text(root / "proc/sys/vm/overcommit_memory") == "2"
    heap = memory.get("MemTotal", 8 << 30) // 4 * 3
    mmap = 2 * heap
    if heap_given is not None or strict:
        heap = (heap_given or extents.get(Category.HEAP, 0)) * 5 // 4 + _LEAST_HEAP
        mmap = max(heap, extents.get(Category.MMAP, 0) * 5 // 4 + _LEAST_HEAP)
    huge = huge_page_bytes(root)
    return -(-heap // huge) * huge, -(-mmap // huge) * huge


def limit_problem(heap: int, mmap: int) -> str | None:
    """Return why limits of this process, which copies inherit, do not let them reserve so much."""
    for limit, what, option in (
        (resource.RLIMIT_AS, "address space", "-v"),
        (resource.RLIMIT_DATA, "data", "-d"),
    ):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY and soft < heap + mmap + _KEPT_FREE:
            return (
                f"the limit of {what} is {size_text(soft >> 20 << 20)} here (ulimit {option}), and "
                f"the heap and mappings are reserved with {(heap + mmap) / 1e9:.3g} GB: raise it "
                f"(ulimit -S{option[1]} unlimited), or say how large the heap becomes "
                "(--pages-heap 512M)"
            )
    return None


def gains_rights(program: Path) -> str | None:
    """Return why the loader takes no library for a program from the user who starts it."""
    try:
        found = program.stat()
    except OSError:
        return None
    if found.st_mode & 0o4000 and found.st_uid != os.getuid():
        return "is setuid"
    if found.st_mode & 0o2000 and found.st_gid != os.getgid():
        return "is setgid"
    if os.getuid() and _has_capabilities(program):
        return "has capabilities of its own (setcap)"
    return None


def _has_capabilities(program: Path) -> bool:
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False

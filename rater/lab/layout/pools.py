"""Page sizes that this machine has: pools of huge pages, their needs and how they are filled."""

from __future__ import annotations

import os
import resource
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rater.lab.layout.layout import (
    BASE_BYTES,
    EVERYTHING,
    Category,
    PageLayout,
    page_windows,
    size_text,
)
from rater.plan.topology import PoolCapacity
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.memory import pool_rooms
from rater.run.host.procfs import list_folder, meminfo, read_number, read_text
from rater.settings.tuner import available_settings, find_setting
from rater.system.errors import RaterError
from rater.text.values import truncate_list

# A pool is of one node and one page size. What it lacks comes from another node's pool, far
# away; a copy that is bound to its node's memory gets a SIGBUS instead (mm/hugetlb.c:
# reservations are of the machine, pages of a node).


class PoolNeed(Struct, frozen=True):
    """Free pages that copies need of one node's pool."""

    node: int | None  # OS number; None: of any node
    page_bytes: int
    pages: int


def pool_needs(
    placements: Iterable[Placement], programs: Iterable[Mapping[int, int]]
) -> tuple[PoolNeed, ...]:
    """Return what copies need of each pool, by page size and node, those of any last.

    `programs`: pages by size in bytes that a copy takes, of each program; they run one after the
    other. A copy takes the pages of its node, or an even part (rounded up) of those of the nodes
    that its memory is bound to or interleaved over; one that is bound nowhere takes them of any.
    """
    needs = Counter[tuple[int, int | None]]()
    for pages_by_size in programs:
        program_needs = Counter[tuple[int, int | None]]()
        for placed in placements:
            nodes = placed.memory_nodes or (placed.node,)
            if placed.memory_policy is MemoryPolicy.PREFERRED:
                nodes = nodes[:1]
            for page_bytes, pages in pages_by_size.items():
                program_needs.update(
                    {(page_bytes, node): -(-pages // len(nodes)) for node in nodes}
                )
        needs |= program_needs
    order = sorted(
        needs,
        key=lambda size_and_node: (
            size_and_node[0],
            size_and_node[1] is None,
            size_and_node[1] or 0,
        ),
    )
    return tuple(PoolNeed(node, page_bytes, needs[page_bytes, node]) for page_bytes, node in order)


class PoolShortage(Struct, frozen=True):
    """A pool that has fewer free pages than copies need."""

    room: PoolCapacity
    needed: int  # free pages

    @property
    def total(self) -> int:
        """How many pages the pool must have, those in use included."""
        return self.room.total - self.room.free + self.needed

    @property
    def is_hopeless(self) -> bool:
        """Tell whether the node has not the memory for them."""
        return self.needed - self.room.free > self.room.most


def pool_shortages(
    needs: Iterable[PoolNeed],
    rooms: Sequence[PoolCapacity],
    *,
    promised: Mapping[int, int] | None = None,
    on_demand: Mapping[int, int] | None = None,
) -> tuple[PoolShortage, ...]:
    """Return the pools that have too few free pages, by page size and node.

    By page size in bytes: `promised` are free pages that other programs have reserved, on whatever
    node; `on_demand` those that the kernel may make when asked (overcommit), also wherever. What
    is needed of any node, and lacks, is to come from all alike. Sizes without a pool are passed
    over.
    """
    needs = list(needs)
    shortages = []
    for size in sorted({need.page_bytes for need in needs}):
        pools = {room.node: room for room in rooms if room.size_bytes == size}
        pages_by_node = {need.node: need.pages for need in needs if need.page_bytes == size}
        needed_by_node = {node: pages_by_node.get(node, 0) for node in pools}
        spare_pages = sum(max(0, room.free - needed_by_node[node]) for node, room in pools.items())
        unbound_pages = pages_by_node.get(None, 0) + (promised or {}).get(size, 0)
        lacking = unbound_pages - spare_pages - (on_demand or {}).get(size, 0)
        share = -(-lacking // len(pools)) if pools and lacking > 0 else 0
        for node, room in sorted(pools.items()):
            needed = (
                needed_by_node[node] if not share else max(needed_by_node[node], room.free) + share
            )
            if room.free < needed:
                shortages.append(PoolShortage(room, needed))
    return tuple(shortages)


def pool_settings(shortages: Iterable[PoolShortage]) -> dict[str, str]:
    """Return the settings that mend them, by name: `hugepages.2048kB.node1` and how many pages.

    Where a node has not the memory nothing is to be set: the kernel would take all there is.
    """
    return {
        shortage.room.setting: str(shortage.total)
        for shortage in shortages
        if not shortage.is_hopeless
    }


def shortage_text(shortages: Sequence[PoolShortage]) -> str:
    """Say which pools are too small, and the commands that enlarge them."""
    lines = [
        f"the pool of {size_text(shortage.room.size_bytes)} pages on node {shortage.room.node} has "
        f"{shortage.room.free} free, copies need {shortage.needed}"
        + (f" (memory for {shortage.room.most} more at most)" if shortage.is_hopeless else "")
        for shortage in shortages
    ]
    commands = [
        f"echo {shortage.total} > {shortage.room.path}"
        for shortage in shortages
        if not shortage.is_hopeless
    ]
    remedy = f"; as root: {truncate_list(commands)}" if commands else ""
    return f"{truncate_list(lines)}{remedy}"


# -- What this machine can give of page sizes, and why not -----------------------------------------

_THP = Path("sys/kernel/mm/transparent_hugepage")
_POOLS = Path("sys/kernel/mm/hugepages")
_GIVEN = ("always", "madvise")
_KEPT_FREE = 1 << 30  # address space that a program needs besides
_LEAST_HEAP = 64 << 20


def huge_page_bytes(root: Path) -> int:
    """Return the size of the machine's transparent huge pages, else of its pool's; 2 MB unknown."""
    page_bytes = read_number(root / _THP / "hpage_pmd_size")
    return page_bytes or meminfo(root / "proc/meminfo").get("Hugepagesize") or 2 << 20


def pool_sizes(root: Path) -> list[int]:
    """Return the page sizes that this kernel has pools of, in bytes."""
    return sorted(
        _kilobytes(folder.name) << 10 for folder in list_folder(root / _POOLS, "hugepages-*kB")
    )


def transparent_sizes(root: Path) -> list[int]:
    """Return the sizes that transparent pages can have here, in bytes."""
    sizes = {_kilobytes(folder.name) << 10 for folder in list_folder(root / _THP, "hugepages-*kB")}
    if (root / _THP / "enabled").exists():
        sizes.add(huge_page_bytes(root))
    return sorted(sizes)


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
    pool_sizes_wanted, transparent = _wanted_sizes(layout, pooled=pooled, root=root)
    return [
        *_pool_problems(pool_sizes_wanted, root),
        *_thp_problems(layout, transparent, root, planned),
    ]


def settings_for(layout: PageLayout, *, pooled: bool, root: Path) -> dict[str, str]:
    """Return the kernel settings that give a layout its transparent pages: its size and no larger.

    They belong together: where a larger size is on and fits, the kernel takes that. Of what the
    machine has already there is nothing; nor of layouts that want several sizes, or none.
    """
    _, transparent = _wanted_sizes(layout, pooled=pooled, root=root)
    now = {setting.name: setting.read().description for setting in available_settings(root)}
    if len(transparent) != 1:
        return {}
    [size] = transparent
    name = f"thp.{size >> 10}kB"
    found = {} if name not in now or _is_on(size, now) else {name: "madvise"}
    larger = [larger_size for larger_size in transparent_sizes(root) if larger_size > size]
    return found | {f"thp.{one >> 10}kB": "never" for one in larger if _is_on(one, now)}


def _wanted_sizes(layout: PageLayout, *, pooled: bool, root: Path) -> tuple[set[int], set[int]]:
    """Return the page sizes that a layout wants of pools, and of transparent pages."""
    huge_bytes = huge_page_bytes(root)
    any_extents = dict.fromkeys(Category, EVERYTHING >> 12)
    sizes = {window.page_bytes for window in page_windows(layout, any_extents, huge_bytes)}
    pool_sizes_wanted = {size for size in sizes if pooled or size > huge_bytes}
    return pool_sizes_wanted, sizes - pool_sizes_wanted


def _pool_problems(sizes: Iterable[int], root: Path) -> Iterator[str]:
    kernel_sizes = pool_sizes(root)
    for size in sorted(sizes):
        if size not in kernel_sizes:
            known_sizes = ", ".join(map(size_text, kernel_sizes)) or "none"
            remedy = "; add hugepagesz=1G to the kernel's command line" if size == 1 << 30 else ""
            yield (
                f"this kernel has no pool of pages of {size_text(size)} (it has: {known_sizes})"
                f"{remedy}"
            )


def _thp_problems(
    layout: PageLayout, sizes: Iterable[int], root: Path, planned: Mapping[str, str]
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
    now = {setting.name: setting.read().description for setting in available_settings(root)} | dict(
        planned
    )
    thp = now.get("thp", "always")
    [size] = wanted
    # A size that is not in the list of single ones follows the whole.
    follows = "inherit" if size == huge_page_bytes(root) else "never"
    of_size = now.get(f"thp.{size >> 10}kB", follows)
    # An axis of layouts sets all that belongs to a size together (`settings_for`).
    sweep_of_layouts = f"`rater sweep --axis {shlex.quote(f'pages=0%,{layout}')}`"
    if (thp if of_size == "inherit" else of_size) not in _GIVEN:
        name = f"thp.{size >> 10}kB" if of_size != "inherit" else "thp"
        value = now.get(name, thp)
        file = f"hugepages-{size >> 10}kB/enabled" if name != "thp" else "enabled"
        sweep = "`rater sweep --axis thp=madvise`" if name == "thp" else sweep_of_layouts
        yield (
            f"the machine's setting {name} is {value}; as root: {sweep}, or echo madvise > "
            f"/{_THP}/{file}"
        )
        return
    larger = [size_on for size_on in have if size_on > size and _is_on(size_on, now)]
    if larger:
        name = f"thp.{larger[-1] >> 10}kB"
        yield (
            f"transparent pages of {size_text(larger[-1])} are on, and where they fit the kernel "
            f"takes them rather than {size_text(size)}; as root: {sweep_of_layouts}, or echo never "
            f"> /{_THP}/hugepages-{larger[-1] >> 10}kB/enabled"
        )


def _is_on(page_bytes: int, settings: Mapping[str, str]) -> bool:
    """Tell whether the kernel gives transparent pages of a size that is not the machine's own."""
    value = settings.get(f"thp.{page_bytes >> 10}kB", "never")
    return (settings.get("thp", "always") if value == "inherit" else value) in _GIVEN


def lacking_pages(needs: Iterable[PoolNeed], root: Path) -> tuple[PoolShortage, ...]:
    """Return the pools that have too few free pages for what copies need."""
    promised, on_demand = {}, {}
    for size in pool_sizes(root):
        pool = root / _POOLS / f"hugepages-{size >> 10}kB"
        promised[size] = read_number(pool / "resv_hugepages") or 0
        surplus = read_number(pool / "surplus_hugepages") or 0
        on_demand[size] = (read_number(pool / "nr_overcommit_hugepages") or 0) - surplus
    rooms = pool_rooms(root)
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
    is_strict = read_text(root / "proc/sys/vm/overcommit_memory") == "2"
    heap_bytes = memory.get("MemTotal", 8 << 30) // 4 * 3
    mmap_bytes = 2 * heap_bytes
    if heap_given is not None or is_strict:
        heap_bytes = (heap_given or extents.get(Category.HEAP, 0)) * 5 // 4 + _LEAST_HEAP
        mmap_bytes = max(heap_bytes, extents.get(Category.MMAP, 0) * 5 // 4 + _LEAST_HEAP)
    huge_bytes = huge_page_bytes(root)
    return -(-heap_bytes // huge_bytes) * huge_bytes, -(-mmap_bytes // huge_bytes) * huge_bytes


def limit_problem(heap_bytes: int, mmap_bytes: int) -> str | None:
    """Return why limits of this process, which copies inherit, do not let them reserve so much."""
    for limit, limit_name, option in (
        (resource.RLIMIT_AS, "address space", "-v"),
        (resource.RLIMIT_DATA, "data", "-d"),
    ):
        soft_limit, _ = resource.getrlimit(limit)
        if (
            soft_limit != resource.RLIM_INFINITY
            and soft_limit < heap_bytes + mmap_bytes + _KEPT_FREE
        ):
            return (
                f"the limit of {limit_name} is {size_text(soft_limit >> 20 << 20)} here (ulimit "
                f"{option}), and the heap and mappings are reserved with "
                f"{(heap_bytes + mmap_bytes) / 1e9:.3g} GB: raise it "
                f"(ulimit -S{option[1]} unlimited), or say how large the heap becomes "
                "(--pages-heap 512M)"
            )
    return None


def gains_rights(program: Path) -> str | None:
    """Return why the loader ignores LD_PRELOAD for a program; None when it does not."""
    try:
        status = program.stat()
    except OSError:
        return None
    if status.st_mode & 0o4000 and status.st_uid != os.getuid():
        return "is setuid"
    if status.st_mode & 0o2000 and status.st_gid != os.getgid():
        return "is setgid"
    if os.getuid() and _has_capabilities(program):
        return "has capabilities of its own (setcap)"
    return None


def _has_capabilities(program: Path) -> bool:
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


# -- Pools of huge pages that copies take from, set to the pages that copies need ------------------


def fill_pools(
    needs: Sequence[PoolNeed], fill: Callable[[Mapping[str, str]], None], root: Path
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Set pools so that they have the pages that copies need.

    Return their settings, by the names that runs record, and texts about pages that are lacking.
    """
    shortages = lacking_pages(needs, root)
    settings = (
        {} if any(shortage.is_hopeless for shortage in shortages) else pool_settings(shortages)
    )
    reason = ""
    if settings:
        try:
            fill(settings)
        except RaterError as error:
            reason = f" ({error})"
        shortages = lacking_pages(needs, root)
    pools = (find_setting(name, root) for name in settings)
    settings_now = tuple((pool.also, pool.read().description) for pool in pools)
    return settings_now, [shortage_text(shortages) + reason] if shortages else []

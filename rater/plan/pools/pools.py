"""What the pools of huge pages (hugetlb) must hold for copies whose layout takes from them; pure.

A pool is of one lgroup and one page size. What it lacks comes from another lgroup's pool, far
away; a copy that is bound to its lgroup's memory gets a SIGBUS instead (mm/hugetlb.c: reservations
are of the machine, pages of a node).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.plan.pages.layout import BASE_BYTES, Category, PageLayout
from rater.plan.pages.windows import Extents, page_windows
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.topology.lgroup_memory import PoolRoom
from rater.text.words import some


@dataclass(frozen=True, slots=True, order=True)
class PoolNeed:
    """Free pages that copies need of one lgroup's pool."""

    node: int  # OS number
    page_bytes: int
    pages: int


def pages_of_copy(layout: PageLayout, extents: Extents, huge_bytes: int) -> dict[int, int]:
    """Return how many pages of each size (bytes) a copy takes whose data is so large.

    `extents` are in bytes; a window that ends within a page has the whole of it.
    """
    found: dict[int, int] = {}
    for window in page_windows(layout, extents, huge_bytes):
        extent = extents.get(Category(window.category), 0)
        covered = min(window.end, extent) - window.start
        if covered > 0 and window.page_bytes > BASE_BYTES:
            pages = -(-covered // window.page_bytes)
            found[window.page_bytes] = found.get(window.page_bytes, 0) + pages
    return found


def pool_needs(
    placements: Iterable[Placement],
    pages_by_copy: Mapping[int, Mapping[int, int]],
    nodes: Sequence[int],
) -> tuple[PoolNeed, ...]:
    """Return what copies need of each pool, by lgroup and page size.

    `pages_by_copy`: pages by size in bytes, of each copy by its number; `nodes`: the lgroups of
    the machine that have memory. A copy takes the pages of its lgroup, or an even part (rounded
    up) of those of the nodes that its memory is bound to or interleaved over; one that is bound
    nowhere may be anywhere: an even part of all.
    """
    needs: dict[tuple[int, int], int] = {}
    for placed in placements:
        of = _nodes_of(placed, nodes)
        for size, pages in pages_by_copy.get(placed.copy, {}).items():
            for node in of:
                part = -(-pages // len(of))
                needs[node, size] = needs.get((node, size), 0) + part
    return tuple(PoolNeed(node, size, pages) for (node, size), pages in sorted(needs.items()))


def _nodes_of(placed: Placement, nodes: Sequence[int]) -> Sequence[int]:
    if placed.policy is MemoryPolicy.PREFERRED and placed.memory_nodes:
        return placed.memory_nodes[:1]
    if placed.memory_nodes:
        return placed.memory_nodes
    return nodes if placed.node is None else (placed.node,)


@dataclass(frozen=True, slots=True)
class PoolShortage:
    """A pool that has fewer free pages than copies need."""

    need: PoolNeed
    room: PoolRoom | None  # None: this lgroup has no pool of such pages

    @property
    def total(self) -> int:
        """How many pages the pool must have, those in use included."""
        in_use = self.room.total - self.room.free if self.room else 0
        return in_use + self.need.pages

    @property
    def is_hopeless(self) -> bool:
        """Tell whether the lgroup has no such pages, or not the memory for them."""
        return self.room is None or self.need.pages - self.room.free > self.room.most


def pool_shortages(
    needs: Iterable[PoolNeed], rooms: Iterable[PoolRoom]
) -> tuple[PoolShortage, ...]:
    """Return the pools that have too few free pages, in the order of the needs."""
    by_pool = {(room.node, room.size_bytes): room for room in rooms}
    found = []
    for need in needs:
        room = by_pool.get((need.node, need.page_bytes))
        if room is None or room.free < need.pages:
            found.append(PoolShortage(need, room))
    return tuple(found)


def pool_settings(shortages: Iterable[PoolShortage]) -> dict[str, str]:
    """Return the settings that mend them, by name: `hugepages.2048kB.node1` and how many pages."""
    return {it.room.setting: str(it.total) for it in shortages if it.room is not None}


def shortage_text(shortages: Sequence[PoolShortage]) -> str:
    """Say which pools are too small, and the commands that enlarge them."""
    lines = [
        f"lgroup {it.need.node} has {it.room.free if it.room else 0} free pages of "
        f"{_size(it.need.page_bytes)}, its copies need {it.need.pages}"
        + (
            ": this kernel or CPU has no such pages"
            if it.room is None
            else f" (memory for {it.room.most} more at most)"
            if it.is_hopeless
            else ""
        )
        for it in shortages
    ]
    ways = [
        f"echo {it.total} > {it.room.path}"
        for it in shortages
        if it.room is not None and not it.is_hopeless
    ]
    way = f"; as root: {some(ways, 4)}" if ways else ""
    return f"{some(lines, 4)}{way}"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes >> 10} kB"

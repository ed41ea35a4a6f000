"""What the pools of huge pages (hugetlb) must hold for copies whose layout takes from them; pure.

A pool is of one lgroup and one page size. What it lacks comes from another lgroup's pool, far
away; a copy that is bound to its lgroup's memory gets a SIGBUS instead (mm/hugetlb.c: reservations
are of the machine, pages of a node).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.plan.pages.layout import size_text
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.topology.lgroup_memory import PoolRoom
from rater.text.words import some


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """Free pages that copies need of one lgroup's pool."""

    node: int | None  # OS number; None: of any lgroup
    page_bytes: int
    pages: int


def pool_needs(
    placements: Iterable[Placement], pages_by_copy: Mapping[int, Mapping[int, int]]
) -> tuple[PoolNeed, ...]:
    """Return what copies need of each pool, by page size and lgroup, those of any last.

    `pages_by_copy`: pages by size in bytes, of each copy by its number. A copy takes the pages of
    its lgroup, or an even part (rounded up) of those of the nodes that its memory is bound to or
    interleaved over; one that is bound nowhere takes them of any.
    """
    needs: dict[tuple[int, int | None], int] = {}
    for placed in placements:
        of = _nodes_of(placed)
        for size, pages in pages_by_copy.get(placed.copy, {}).items():
            for node in of:
                part = -(-pages // len(of))
                needs[size, node] = needs.get((size, node), 0) + part
    order = sorted(needs.items(), key=lambda it: (it[0][0], it[0][1] is None, it[0][1] or 0))
    return tuple(PoolNeed(node, size, pages) for (size, node), pages in order)


def largest_needs(several: Iterable[Iterable[PoolNeed]]) -> tuple[PoolNeed, ...]:
    """Return what does for each of several programs that run one after the other."""
    found: dict[tuple[int | None, int], PoolNeed] = {}
    for needs in several:
        for need in needs:
            key = need.node, need.page_bytes
            found[key] = max(found.get(key, need), need, key=lambda it: it.pages)
    return tuple(found.values())


def _nodes_of(placed: Placement) -> tuple[int | None, ...]:
    if placed.policy is MemoryPolicy.PREFERRED and placed.memory_nodes:
        return placed.memory_nodes[:1]
    return placed.memory_nodes or (placed.node,)


@dataclass(frozen=True, slots=True)
class PoolShortage:
    """A pool that has fewer free pages than copies need."""

    room: PoolRoom
    needed: int  # free pages

    @property
    def total(self) -> int:
        """How many pages the pool must have, those in use included."""
        return self.room.total - self.room.free + self.needed

    @property
    def is_hopeless(self) -> bool:
        """Tell whether the lgroup has not the memory for them."""
        return self.needed - self.room.free > self.room.most


def pool_shortages(
    needs: Iterable[PoolNeed],
    rooms: Sequence[PoolRoom],
    *,
    promised: Mapping[int, int] | None = None,
    on_demand: Mapping[int, int] | None = None,
) -> tuple[PoolShortage, ...]:
    """Return the pools that have too few free pages, by page size and lgroup.

    By page size in bytes: `promised` are free pages that other programs have reserved, on whatever
    lgroup; `on_demand` those that the kernel may make when asked (overcommit), also wherever. What
    is needed of any lgroup, and lacks, is to come from all alike. Sizes without a pool are passed
    over.
    """
    needs = list(needs)
    found = []
    for size in sorted({need.page_bytes for need in needs}):
        pools = {room.node: room for room in rooms if room.size_bytes == size}
        of = {need.node: need.pages for need in needs if need.page_bytes == size}
        own = {node: of.get(node, 0) for node in pools}
        left = sum(max(0, room.free - own[node]) for node, room in pools.items())
        anywhere = of.get(None, 0) + (promised or {}).get(size, 0)
        lacking = anywhere - left - (on_demand or {}).get(size, 0)
        part = -(-lacking // len(pools)) if pools and lacking > 0 else 0
        for node, room in sorted(pools.items()):
            needed = own[node] if not part else max(own[node], room.free) + part
            if room.free < needed:
                found.append(PoolShortage(room, needed))
    return tuple(found)


def pool_settings(shortages: Iterable[PoolShortage]) -> dict[str, str]:
    """Return the settings that mend them, by name: `hugepages.2048kB.node1` and how many pages.

    Where an lgroup has not the memory nothing is to be set: the kernel would take all there is.
    """
    return {it.room.setting: str(it.total) for it in shortages if not it.is_hopeless}


def shortage_text(shortages: Sequence[PoolShortage]) -> str:
    """Say which pools are too small, and the commands that enlarge them."""
    lines = [
        f"the pool of {size_text(it.room.size_bytes)} pages on lgroup {it.room.node} has "
        f"{it.room.free} free, copies need {it.needed}"
        + (f" (memory for {it.room.most} more at most)" if it.is_hopeless else "")
        for it in shortages
    ]
    ways = [f"echo {it.total} > {it.room.path}" for it in shortages if not it.is_hopeless]
    way = f"; as root: {some(ways)}" if ways else ""
    return f"{some(lines)}{way}"

"""Which data deserves large pages: each mapping of categories to page sizes, by what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub

from rater.analysis.pages.costs import Loads, PageCosts
from rater.record.pages import BASE_PAGE, CATEGORIES, CHOSEN, PageMapping, PageTrace


@dataclass(frozen=True, slots=True)
class RankedMapping:
    """A mapping against all in base pages; times in ns, by how loads depend on each other."""

    mapping: PageMapping
    large_pages: int  # that it needs, of all sizes above base pages
    large_bytes: int
    walks_saved: int
    l1_misses_saved: int
    misses_saved_ns: dict[Loads, float]
    faults_saved_ns: float

    def saved_ns(self, loads: Loads) -> float:
        """Return what the mapping saves, less than 0 where it costs."""
        return self.misses_saved_ns[loads] + self.faults_saved_ns


def rank(trace: PageTrace, costs: PageCosts, *, faults: bool = True) -> tuple[RankedMapping, ...]:
    """Return all mappings in the order of the trace, the first being all in base pages.

    What a mapping saves is misses x cost + faults x cost (without `faults`: misses alone).
    """
    touched = sum(trace.of_size(BASE_PAGE).pages)
    base = trace.mappings[0]
    before = {it: _misses_ns(base, touched, costs, it) for it in Loads}
    found = []
    for mapping in trace.mappings:
        pages, size = _large(trace, mapping)
        found.append(
            RankedMapping(
                mapping,
                pages,
                size,
                sum(base.walks) - sum(mapping.walks),
                sum(base.l1_misses) - sum(mapping.l1_misses),
                {it: before[it] - _misses_ns(mapping, touched, costs, it) for it in Loads},
                _faults_saved_ns(trace, mapping, costs) if faults else 0.0,
            )
        )
    return tuple(found)


def by_saving(ranked: Sequence[RankedMapping], loads: Loads) -> list[RankedMapping]:
    """Return mappings, what saves most first; of what saves the same, the fewest large pages."""
    return sorted(ranked, key=lambda it: (-it.saved_ns(loads), it.large_bytes))


def benefits(ranked: Sequence[RankedMapping], loads: Loads) -> list[float]:
    """Return what each saves as a share of what the best one does; 0 where none saves."""
    best = max(it.saved_ns(loads) for it in ranked)
    return [it.saved_ns(loads) / best if best > 0 else 0.0 for it in ranked]


def best_within(ranked: Sequence[RankedMapping], pages: int, loads: Loads) -> RankedMapping:
    """Return the mapping that saves most with at most so many large pages."""
    return by_saving([it for it in ranked if it.large_pages <= pages], loads)[0]


def different_mappings(trace: PageTrace, ranked: Sequence[RankedMapping]) -> list[int]:
    """Return the places of mappings that differ, the first of those that are alike.

    Mappings are alike where they differ only in data of which the program has none.
    """

    def sizes(one: RankedMapping) -> tuple[int, ...]:
        chosen = enumerate(one.mapping.sizes)
        return tuple(size if trace.references[place] else 0 for place, size in chosen)

    found: dict[tuple[int, ...], int] = {}
    for place, one in enumerate(ranked):
        found.setdefault(sizes(one), place)
    return list(found.values())


def frontier(ranked: Sequence[RankedMapping], loads: Loads) -> list[RankedMapping]:
    """Return mappings that save more than all with as few large bytes, ascending by these."""
    found: list[RankedMapping] = []
    for one in sorted(ranked, key=lambda it: (it.large_bytes, -it.saved_ns(loads))):
        if not found or one.saved_ns(loads) > found[-1].saved_ns(loads):
            found.append(one)
    return found


def _misses_ns(mapping: PageMapping, touched: int, costs: PageCosts, loads: Loads) -> float:
    """Return what a mapping's misses cost: those of loads, and those of stores, which wait less.

    A walk for a base page costs by the program's footprint, one for a larger page as in the
    smallest footprint: its part of the page table is small.
    """
    sizes = (*mapping.sizes, *(BASE_PAGE,) * (len(CATEGORIES) - len(CHOSEN)))

    def cost(kind: Loads | None, l1: Sequence[int], walks: Sequence[int]) -> float:
        base, large = costs.walk_ns(touched, kind), costs.walk_ns(0, kind)
        of_walks = sum(
            count * (base if size == BASE_PAGE else large)
            for count, size in zip(walks, sizes, strict=True)
        )
        return sum(l1) * costs.l1_miss_ns(kind) + of_walks

    of_loads = tuple(map(sub, mapping.l1_misses, mapping.store_l1_misses))
    walks_of_loads = tuple(map(sub, mapping.walks, mapping.store_walks))
    return cost(loads, of_loads, walks_of_loads) + cost(
        None, mapping.store_l1_misses, mapping.store_walks
    )


def _faults_saved_ns(trace: PageTrace, mapping: PageMapping, costs: PageCosts) -> float:
    def cost(category: int, size: int) -> float:
        return trace.of_size(size).faults[category] * costs.fault_ns(size)

    return sum(
        cost(category, BASE_PAGE) - cost(category, size)
        for category, size in enumerate(mapping.sizes)
    )


def _large(trace: PageTrace, mapping: PageMapping) -> tuple[int, int]:
    """Return how many large pages a mapping needs, and their bytes."""
    pages = [
        (trace.of_size(size).pages[category], size)
        for category, size in enumerate(mapping.sizes)
        if size != BASE_PAGE
    ]
    return sum(count for count, _ in pages), sum(count * size for count, size in pages)


def shown_categories(trace: PageTrace) -> list[int]:
    """Return the categories that were referred to, by their place in CATEGORIES."""
    return [i for i in range(len(CATEGORIES)) if trace.references[i]]

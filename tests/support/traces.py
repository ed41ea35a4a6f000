"""A trace to rank, predict and store, small enough to count by hand."""

from __future__ import annotations

from rater.lab.trace.tlb import PageMapping, PageReuse, PageTrace, RegionMisses
from rater.plan.tlb import PAGE_SIZES

NONE = (0, 0, 0, 0, 0, 0)
SMALL, HUGE = PAGE_SIZES[0], PAGE_SIZES[2]
# What CPUID of no processor says: 64 entries, then 512.
TLB = "64x4,512x8"
COSTS = {
    "cpuid": {},
    "cycle_ns": 0.5,
    "faults": {"small_ns": 1000.0, "huge_ns": 52_100.0},
    "loads": [
        {
            "pages": pages,
            "huge_bytes": pages * SMALL,
            "dependent_small_ns": 10.0 + more,
            "dependent_huge_ns": 10.0,
            "independent_small_ns": 2.0 + more / 4,
            "independent_huge_ns": 2.0,
        }
        for pages, more in ((16, 0.0), (256, 4.0), (1024, 24.0), (4096, 44.0))
    ],
}


def a_mapping(heap: int, mmap: int, static: int = SMALL) -> PageMapping:
    """The heap misses 1000 (400 walks) in small pages, mappings 5000 (3000), the stack 7 (7)."""
    l1 = [1000 if heap == SMALL else 10, 5000 if mmap == SMALL else 50, 0, 0, 7, 0]
    walks = [400 if heap == SMALL else 0, 3000 if mmap == SMALL else 2, 0, 0, 7, 0]
    return PageMapping(
        heap_bytes=heap,
        mmap_bytes=mmap,
        static_bytes=static,
        l1_misses=tuple(l1),
        walks=tuple(walks),
    )


def a_trace(rate: float = 1.0) -> PageTrace:
    """600 pages of heap in two huge pages, 1400 of mappings in three, 4 of stack."""
    pages = {SMALL: (600, 1400, 0, 0, 4, 0), HUGE: (2, 3, 0, 0, 1, 0)}
    return PageTrace(
        name="made",
        command=("made", "--up"),
        suite=None,
        size=None,
        engine="by hand",
        tlb=TLB,
        rate=rate,
        elapsed_s=2.0,
        native_s=0.25,
        native_cpu_s=0.25,
        page_changes=20_000,
        programs=1,
        processes=0,
        references=(30_000, 50_000, 0, 0, 100, 0),
        stores=(10, 20, 0, 0, 5, 0),
        reuse=tuple(
            PageReuse(
                page_bytes=size,
                faults=pages.get(size, pages[HUGE]),
                pages=pages.get(size, pages[HUGE]),
                histogram=(((0, 20_000), (64, 9_400)), ((0, 40_000), (576, 8_600)), (), (), (), ()),
                error=None if rate == 1 else 0.125,
                error_from=512,
            )
            for size in PAGE_SIZES
        ),
        mappings=tuple(a_mapping(heap, mmap) for mmap in (SMALL, HUGE) for heap in (SMALL, HUGE)),
        regions=(
            RegionMisses(
                category="heap", region=0, l1_base=900, walks_base=350, l1_huge=10, walks_huge=0
            ),
            RegionMisses(
                category="heap", region=1, l1_base=100, walks_base=50, l1_huge=0, walks_huge=0
            ),
            RegionMisses(
                category="mmap", region=0, l1_base=1000, walks_base=1000, l1_huge=20, walks_huge=1
            ),
            RegionMisses(
                category="mmap", region=1, l1_base=2000, walks_base=1000, l1_huge=20, walks_huge=1
            ),
            RegionMisses(
                category="mmap", region=2, l1_base=2000, walks_base=1000, l1_huge=10, walks_huge=0
            ),
        ),
        notes=("a note",),
    )

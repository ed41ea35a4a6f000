"""What the pages of a traced program say: references by category, reuse, misses of a TLB."""

from __future__ import annotations

from dataclasses import dataclass

# What data of a program is; the first three are those whose page size can be chosen. Static data
# is small where no huge page lies wholly in it.
CATEGORIES = ("heap", "mmap", "static", "small static", "stack", "other")
CHOSEN = CATEGORIES[:3]
BASE_PAGE = 4096
PAGE_SIZES = (4096, 64 << 10, 2 << 20, 1 << 30)  # whose reuse distances are told apart
REGION_BYTES = 2 << 20  # of addresses, of which misses are told one by one

type PerCategory = tuple[int, ...]  # in the order of CATEGORIES


@dataclass(frozen=True, slots=True)
class PageReuse:
    """References to pages of one size, by how many other pages came between two to one page."""

    page_bytes: int
    faults: PerCategory  # first touches, those of memory that was given back and had again too
    pages: PerCategory  # different pages touched
    # By category, pairs of a distance and how many references had it, ascending. Exact below 32,
    # then the least of a bin: 16 bins for every doubling.
    histogram: tuple[tuple[tuple[int, int], ...], ...]
    # Of a sample: how far the misses behind `error_from` may be off, one standard error, as a
    # share of them; None: exact, or too few pages to tell.
    error: float | None = None
    error_from: int = 0

    def references(self, category: int) -> int:
        """Return how many references had a distance, first touches left out."""
        return sum(count for _, count in self.histogram[category])


@dataclass(frozen=True, slots=True)
class PageMapping:
    """A page size for each category that has a choice, and what the TLB misses then."""

    heap_bytes: int
    mmap_bytes: int
    static_bytes: int
    l1_misses: PerCategory  # of the first level, those of the last one included
    walks: PerCategory  # misses of the last level: the page table is walked
    # Of these by stores, which nothing waits for; none of a trace that did not tell them apart.
    store_l1_misses: PerCategory = (0,) * len(CATEGORIES)
    store_walks: PerCategory = (0,) * len(CATEGORIES)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The page sizes in the order of CHOSEN."""
        return self.heap_bytes, self.mmap_bytes, self.static_bytes


@dataclass(frozen=True, slots=True)
class RegionMisses:
    """What 2 MiB of addresses of one category miss when all lies in one page size."""

    category: str
    region: int  # counted from the start of the category
    l1_base: int  # all in base pages
    walks_base: int
    l1_huge: int  # heap, mmap and static in huge pages
    walks_huge: int


@dataclass(frozen=True, slots=True)
class PageTrace:
    """One traced run of a program."""

    name: str
    command: tuple[str, ...]
    suite: str | None
    size: str | None
    engine: str
    tlb: str
    rate: float  # the share of all pages in the sample; 1: all, exact
    elapsed_s: float  # traced
    native_s: float | None  # one run before that, not traced
    page_changes: int
    programs: int  # that followed each other (exec, commands of a benchmark)
    processes: int  # started and not traced
    references: PerCategory
    stores: PerCategory  # page changes that a store makes
    reuse: tuple[PageReuse, ...]  # by page size, ascending
    mappings: tuple[PageMapping, ...]  # all in base pages first
    regions: tuple[RegionMisses, ...]
    notes: tuple[str, ...] = ()

    def of_size(self, page_bytes: int) -> PageReuse:
        """Return the references to pages of one of PAGE_SIZES."""
        return next(it for it in self.reuse if it.page_bytes == page_bytes)


@dataclass(frozen=True, slots=True)
class TraceHead:
    """A trace in a list."""

    number: int
    uuid: str
    traced_at: str
    host: str
    name: str
    suite: str | None
    size: str | None
    engine: str
    rate: float
    elapsed_s: float

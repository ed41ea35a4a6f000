"""Page sizes for categories of data, and what the pages of a traced program say; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import product

from msgspec import Struct

from rater.lab.layout.layout import size_text
from rater.plan.tlb import known_page_sizes
from rater.system.errors import InputError

# What data of a program is; the first three are those whose page size can be chosen. Static data
# is small where no huge page lies wholly in it.
CATEGORIES = ("heap", "mmap", "static", "small static", "stack", "other")
CHOSEN = CATEGORIES[:3]
BASE_PAGE = 4096
REGION_BYTES = 2 << 20  # of addresses, of which misses are told one by one

type PerCategory = tuple[int, ...]  # in the order of CATEGORIES


class PageReuse(Struct, frozen=True, kw_only=True):
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


class WalkOrder(IntEnum):
    """How the walk of a base page follows the walks before it; numbers as the analyser's."""

    FAR = 0  # anyhow
    BESIDE = 1  # a few pages from one of the latest four
    NEAR = 2  # in a line of the page table that was walked just before
    ALONE = 3  # anyhow or beside, so long after the walk before that none overlaps with it
    NEAR_ALONE = 4  # in such a line, as long after the walk before


class WalkGap(Struct, frozen=True, kw_only=True):
    """Walks of base pages, by how many lines caches took in since the page was walked last."""

    order: WalkOrder
    octave: int  # of that number; 0: the page's first walk
    loads: int
    stores: int

    @property
    def lines_ago(self) -> int:
        """The geometric middle of the octave; 0: the page's first walk."""
        return round(2 ** (self.octave - 0.5)) if self.octave else 0


class PageMapping(Struct, frozen=True, kw_only=True):
    """A page size for each category that has a choice, and what the TLB misses then."""

    heap_bytes: int
    mmap_bytes: int
    static_bytes: int
    l1_misses: PerCategory  # of the first level, those of the last one included
    walks: PerCategory  # misses of the last level: the page table is walked
    # Of these by stores, which nothing waits for; none of a trace that did not tell them apart.
    store_l1_misses: PerCategory = (0,) * len(CATEGORIES)
    store_walks: PerCategory = (0,) * len(CATEGORIES)
    gaps: tuple[WalkGap, ...] = ()  # of all walks of base pages; () of a sample, of an older rater

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The page sizes in the order of CHOSEN."""
        return self.heap_bytes, self.mmap_bytes, self.static_bytes


class RegionMisses(Struct, frozen=True, kw_only=True):
    """What 2 MiB of addresses of one category miss when all lies in one page size."""

    category: str
    region: int  # counted from the start of the category
    l1_base: int  # all in base pages
    walks_base: int
    l1_huge: int  # heap, mmap and static in huge pages
    walks_huge: int


class PageTrace(Struct, frozen=True, kw_only=True):
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
    native_cpu_s: float | None  # and its CPU time; None: an older rater did not keep it
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
        return next(reuse for reuse in self.reuse if reuse.page_bytes == page_bytes)


class CheckTimes(Struct, frozen=True, kw_only=True):
    """Times of the runs of a check in s, by layout and round."""

    cpu_s: Mapping[str, Sequence[float]]
    # Where the host of a virtual machine takes memory back, else none: what its return costs is in
    # the kernel's part of CPU time, and large pages change it too.
    user_s: Mapping[str, Sequence[float]]

    @property
    def of_user_time(self) -> bool:
        """Tell whether user time judges."""
        return bool(self.user_s)

    @property
    def times_s(self) -> Mapping[str, Sequence[float]]:
        """The times that judge."""
        return self.user_s or self.cpu_s


class TraceHead(Struct, frozen=True, kw_only=True):
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


# -- All ways to give each category of data a page size --------------------------------------------

type MappingSizes = tuple[int, int, int]  # bytes of a page of heap, mmap, static


def page_mappings(sizes: Sequence[int]) -> tuple[MappingSizes, ...]:
    """Return each mapping of the categories to `sizes`, all in the first of them first."""
    return tuple((heap, mmap, static) for static, mmap, heap in product(sizes, sizes, sizes))


def mapping_layout(sizes: MappingSizes) -> str:
    """Return a mapping as `rater run --pages` takes it: `heap:2M;mmap:4k;static:4k`."""
    return ";".join(f"{name}:{size_text(size)}" for name, size in zip(CHOSEN, sizes, strict=True))


def mapping_name(sizes: MappingSizes) -> str:
    """Return a mapping for people, the categories in larger pages: `heap 2M + static 2M`."""
    large = [
        f"{name} {size_text(size)}"
        for name, size in zip(CHOSEN, sizes, strict=True)
        if size != BASE_PAGE
    ]
    return " + ".join(large) or f"all {size_text(BASE_PAGE)}"


def mapping_argument(sizes: MappingSizes) -> str:
    """Return a mapping as the analyser takes it: shifts by category, those without choice too."""
    rest = (BASE_PAGE,) * (len(CATEGORIES) - len(CHOSEN))
    return ",".join(str(size.bit_length() - 1) for size in (*sizes, *rest))


def parse_page_sizes(text: str) -> tuple[int, ...]:
    """Return the page sizes of `--sizes 4k,2M`, ascending; raises `InputError`."""
    try:
        sizes = known_page_sizes(text.split(","))
    except ValueError as error:
        raise InputError(f"--sizes {text}: {error}") from None
    if sizes[0] != BASE_PAGE or len(sizes) < 2:
        raise InputError(f"--sizes {text}: expected 4k and a larger page size, as in 4k,2M")
    return sizes

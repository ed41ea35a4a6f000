"""TLBs for data, mappings of categories, and what the pages of a traced program say; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from rater.lab.layout.layout import size_text
from rater.system.errors import InputError
from rater.text.values import size_bytes

# What data of a program is; the first three are those whose page size can be chosen. Static data
# is small where no huge page lies wholly in it.
CATEGORIES = ("heap", "mmap", "static", "small static", "stack", "other")
CHOSEN = CATEGORIES[:3]
BASE_PAGE = 4096
PAGE_SIZES = (4096, 64 << 10, 2 << 20, 1 << 30)  # whose reuse distances are told apart
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


# -- TLBs for data: what a processor says of its own, or `--tlb` -----------------------------------
#
# TLB       LEVEL,LEVEL    one or two levels
# LEVEL     ARRAY+ARRAY    arrays side by side, each for page sizes of its own
# ARRAY     64x4           entries x ways, of all page sizes
#           4k/64k:64x4    of these page sizes; entries x entries: fully associative

_ARRAY = re.compile(r"(?:([^:]+):)?(\d+)x(\d+)")
_MOST_WAYS = 1024
_ALL = PAGE_SIZES
# AMD's codes for ways (APM volume 3, CPUID Fn8000_0006).
_AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}
_FULL, _ELSEWHERE = 15, 9
_AMD_ALL = 0xFF
# Intel's descriptors of data and shared TLBs in leaf 2 (SDM volume 2, table 3-12): level, sizes,
# entries, ways; ways 0: fully associative.
_SMALL, _HUGE, _GIGA = PAGE_SIZES[0], PAGE_SIZES[2], PAGE_SIZES[3]
_INTEL: Mapping[int, tuple[tuple[int, tuple[int, ...], int, int], ...]] = {
    0x03: ((1, (_SMALL,), 64, 4),),
    0x57: ((1, (_SMALL,), 16, 0),),
    0x59: ((1, (_SMALL,), 16, 0),),
    0x5A: ((1, (_HUGE,), 32, 4),),
    0x5B: ((1, (_SMALL, _HUGE), 64, 0),),
    0x5C: ((1, (_SMALL, _HUGE), 128, 0),),
    0x5D: ((1, (_SMALL, _HUGE), 256, 0),),
    0x63: ((1, (_HUGE,), 32, 4), (1, (_GIGA,), 4, 4)),
    0x64: ((1, (_SMALL,), 512, 4),),
    0xA0: ((1, (_SMALL,), 32, 0),),
    0xB3: ((1, (_SMALL,), 128, 4),),
    0xB4: ((1, (_SMALL,), 256, 4),),
    0xBA: ((1, (_SMALL,), 64, 4),),
    0xC0: ((1, (_SMALL, _HUGE), 8, 4),),
    0xC1: ((2, (_SMALL, _HUGE), 1024, 8),),
    0xC2: ((1, (_SMALL, _HUGE), 16, 4),),
    0xC3: ((2, (_SMALL, _HUGE), 1536, 6), (2, (_GIGA,), 16, 4)),
    0xC4: ((1, (_HUGE,), 32, 4),),
    0xCA: ((2, (_SMALL,), 512, 4),),
}

type CpuidLeaves = Mapping[str, Sequence[int]]  # eax, ebx, ecx, edx; "18.1": leaf 0x18, subleaf 1


class TlbArray(Struct, frozen=True):
    """Entries for pages of some sizes, replaced by least recent use within a set."""

    level: int  # 1 or 2
    sizes: tuple[int, ...]  # of PAGE_SIZES, in bytes
    entries: int
    ways: int

    def __str__(self) -> str:
        sizes_text = "" if self.sizes == _ALL else "/".join(map(size_text, self.sizes)) + ":"
        return f"{sizes_text}{self.entries}x{self.ways}"

    @property
    def argument(self) -> str:
        """The array as the analyser takes it."""
        bits = sum(1 << PAGE_SIZES.index(size) for size in self.sizes)
        return f"{self.level}:{bits}:{self.entries}:{self.ways}"


class Tlb(Struct, frozen=True):
    """The arrays of a data TLB; what no array of a level takes, misses there."""

    arrays: tuple[TlbArray, ...]

    def __str__(self) -> str:
        levels = sorted({array.level for array in self.arrays})
        return ",".join(
            "+".join(str(each_array) for each_array in self.arrays if each_array.level == level)
            for level in levels
        )

    def entries(self, page_bytes: int) -> tuple[int, int]:
        """Return how many pages of a size the first level holds, and the largest."""
        arrays = [array for array in self.arrays if page_bytes in array.sizes]
        first_entries = sum(each_array.entries for each_array in arrays if each_array.level == 1)
        return first_entries, max((each_array.entries for each_array in arrays), default=0)


def parse_tlb(text: str) -> Tlb:
    """Return the TLB that `--tlb` describes; raises `InputError`."""
    try:
        return _tlb(text.replace(" ", "").split(","))
    except ValueError as error:
        raise InputError(
            f"--tlb {text}: {error}; expected ENTRIESxWAYS for each level, as 64x4,1536x12, or by "
            "page size, as 4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12+1G:16x4"
        ) from None


def _tlb(levels: Sequence[str]) -> Tlb:
    arrays = []
    if len(levels) > 2:
        raise ValueError("more than two levels")
    for level, part in enumerate(levels, 1):
        for word in part.split("+"):
            match = _ARRAY.fullmatch(word)
            if match is None:
                raise ValueError(f"{word!r} is no array of entries x ways")
            entries, ways = int(match[2]), int(match[3])
            if not 0 < ways <= min(entries, _MOST_WAYS) or entries % ways or entries >= 1 << 24:
                raise ValueError(f"{word!r}: entries are no multiple of 1 to {_MOST_WAYS} ways")
            sizes = _ALL if match[1] is None else _known_sizes(match[1].split("/"))
            arrays.append(TlbArray(level, sizes, entries, ways))
        sizes_of_level = [size for array in arrays if array.level == level for size in array.sizes]
        if len(sizes_of_level) != len(set(sizes_of_level)):
            raise ValueError(f"level {level} has two arrays for one page size")
    return Tlb(tuple(arrays))


def tlb_of_cpuid(leaves: CpuidLeaves) -> Tlb | None:
    """Return the data TLB that CPUID describes; None when it describes none.

    AMD: leaves 0x80000005, 6 and 19. Intel: leaf 0x18, else the descriptors of leaf 2. Pages of
    64 KB stand where those of 4 KB do: a processor that joins neighbours is not modelled. Where
    nothing is told of 1 GB pages, they are taken to stand where the first level has 2 MB ones.
    """
    arrays = _amd(leaves) or _intel_leaf_18(leaves) or _intel_leaf_2(leaves)
    if not any(_SMALL in array.sizes for array in arrays):
        return None
    if not any(_GIGA in array.sizes for array in arrays):  # hidden by many hypervisors
        arrays = [
            replace(array, sizes=(*array.sizes, _GIGA))
            if array.level == 1 and _HUGE in array.sizes
            else array
            for array in arrays
        ]
    return Tlb(tuple(sorted(arrays, key=lambda each_array: (each_array.level, each_array.sizes))))


def _amd(leaves: CpuidLeaves) -> list[TlbArray]:
    first, second = leaves.get("80000005"), leaves.get("80000006")
    if first is None or second is None or not first[1] >> 16:
        return []
    arrays = []
    for size, register in ((_SMALL, first[1]), (_HUGE, first[0])):
        entries, ways = register >> 16 & 0xFF, register >> 24
        if entries:
            arrays.append((1, size, entries, entries if ways == _AMD_ALL else ways))
    giga = leaves.get("80000019", (0, 0, 0, 0))
    for level, size, register in (
        *((2, _SMALL, second[1]), (2, _HUGE, second[0])),
        *((1, _GIGA, giga[0]), (2, _GIGA, giga[1])),
    ):
        entries, code = register >> 16 & 0xFFF, register >> 28
        ways = entries if code == _FULL else 8 if code == _ELSEWHERE else _AMD_WAYS.get(code, 0)
        if entries and ways and entries % ways == 0:
            arrays.append((level, size, entries, ways))
    return _joined(arrays)


def _joined(arrays: Sequence[tuple[int, int, int, int]]) -> list[TlbArray]:
    """Make one of arrays of as many entries at one level: AMD tells shared ones once a size.

    Where ways differ by size, those of the smallest pages are taken.
    """
    array_by_place: dict[tuple[int, int], TlbArray] = {}
    for level, size, entries, ways in sorted(arrays):
        joined_array = array_by_place.setdefault(
            (level, entries), TlbArray(level, (), entries, ways)
        )
        array_by_place[level, entries] = replace(
            joined_array, sizes=(*joined_array.sizes, *_with_64k((size,)))
        )
    return list(array_by_place.values())


def _intel_leaf_18(leaves: CpuidLeaves) -> list[TlbArray]:
    arrays = []
    for name, (_, ebx, ecx, edx) in leaves.items():
        kind = edx & 0x1F
        if not name.startswith("18.") or kind not in (1, 3, 4):  # data, shared, load only
            continue
        bits = ((0, _SMALL), (1, _HUGE), (3, _GIGA))
        sizes = tuple(size for bit, size in bits if ebx >> bit & 1)
        ways, sets, level = ebx >> 16, ecx, edx >> 5 & 7
        if sizes and ways and sets and level in (1, 2):
            arrays.append(TlbArray(level, _with_64k(sizes), ways * sets, ways))
    return _without_twins(arrays)


def _intel_leaf_2(leaves: CpuidLeaves) -> list[TlbArray]:
    registers = [each_register for each_register in leaves.get("2", ()) if not each_register >> 31]
    codes = [register >> shift & 0xFF for register in registers for shift in (0, 8, 16, 24)]
    return _without_twins(
        TlbArray(level, _with_64k(sizes), entries, ways or entries)
        for code in codes
        for level, sizes, entries, ways in _INTEL.get(code, ())
    )


def _with_64k(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({*sizes, *(PAGE_SIZES[:2] if _SMALL in sizes else ())}))


def _without_twins(arrays: Iterable[TlbArray]) -> list[TlbArray]:
    kept: list[TlbArray] = []
    for array in sorted(arrays, key=lambda it: -it.entries):
        taken = {size for it in kept if it.level == array.level for size in it.sizes}
        left = tuple(size for size in array.sizes if size not in taken)
        if left:
            kept.append(TlbArray(array.level, left, array.entries, array.ways))
    return kept


def _known_sizes(words: Iterable[str]) -> tuple[int, ...]:
    """Return page sizes, ascending; raises `ValueError`."""
    sizes = {size_bytes(word) for word in words}
    if not sizes <= set(PAGE_SIZES):
        raise ValueError(f"page sizes are {', '.join(map(size_text, PAGE_SIZES))}")
    return tuple(sorted(sizes))


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
        sizes = _known_sizes(text.split(","))
    except ValueError as error:
        raise InputError(f"--sizes {text}: {error}") from None
    if sizes[0] != BASE_PAGE or len(sizes) < 2:
        raise InputError(f"--sizes {text}: expected 4k and a larger page size, as in 4k,2M")
    return sizes

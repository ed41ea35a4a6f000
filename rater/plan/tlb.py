"""TLBs for data: what a processor says of its own, or a user describes; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.values import count, size_bytes

PAGE_SIZES = (4096, 64 << 10, 2 << 20, 1 << 30)  # that an array of a TLB may be for
_SIZE_NAMES = dict(zip(PAGE_SIZES, ("4k", "64k", "2M", "1G"), strict=True))

# How a TLB is written, for people and for `--tlb` of the lab:
#
# TLB       LEVEL,LEVEL    one or two levels
# LEVEL     ARRAY+ARRAY    arrays side by side, each for page sizes of its own
# ARRAY     64x4           entries x ways, of all page sizes
#           4k/64k:64x4    of these page sizes; entries x entries: fully associative

_ARRAY = compile_later(r"(?:([^:]+):)?(\d+)x(\d+)")
_MOST_WAYS = 1024
_ALL = PAGE_SIZES
# AMD's codes for ways (APM volume 3, CPUID Fn8000_0006).
_AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}
_FULL, _ELSEWHERE = 15, 9
_AMD_ALL = 0xFF
_USUAL_WAYS = 8  # in models, of a TLB of AMD that does not tell them
# Intel's descriptors of data and shared TLBs in leaf 2 (SDM volume 2, table 3-12): level, sizes,
# entries, ways; ways 0: fully associative.
_SMALL, _OF_OTHERS, _HUGE, _GIGA = PAGE_SIZES  # x86 has no pages of 64 KB
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


def _sizes_text(sizes: Sequence[int]) -> str:
    return "/".join(_SIZE_NAMES[size] for size in sizes)


class TlbArray(Struct, frozen=True):
    """Entries for pages of some sizes, replaced by least recent use within a set."""

    level: int  # 1 or 2
    sizes: tuple[int, ...]  # of PAGE_SIZES, in bytes
    entries: int
    ways: int

    def __str__(self) -> str:
        sizes_text = "" if self.sizes == _ALL else f"{_sizes_text(self.sizes)}:"
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
            sizes = _ALL if match[1] is None else known_page_sizes(match[1].split("/"))
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
    arrays = []
    for level, size, entries, told_ways in _told_by_amd(leaves):
        ways = told_ways or _USUAL_WAYS
        if entries % ways == 0:
            arrays.append((level, size, entries, ways))
    return _joined(arrays)


def _told_by_amd(leaves: CpuidLeaves) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield level, page size, entries and ways; None: the ways are told in no leaf of TLBs."""
    first, second = leaves.get("80000005"), leaves.get("80000006")
    if first is None or second is None or not first[1] >> 16:
        return
    for size, register in ((_SMALL, first[1]), (_HUGE, first[0])):
        entries, ways = register >> 16 & 0xFF, register >> 24
        if entries and ways:
            yield 1, size, entries, entries if ways == _AMD_ALL else ways
    giga = leaves.get("80000019", (0, 0, 0, 0))
    for level, size, register in (
        *((2, _SMALL, second[1]), (2, _HUGE, second[0])),
        *((1, _GIGA, giga[0]), (2, _GIGA, giga[1])),
    ):
        entries, code = register >> 16 & 0xFFF, register >> 28
        if entries and code == _ELSEWHERE:
            yield level, size, entries, None
        elif entries and (code == _FULL or code in _AMD_WAYS):
            yield level, size, entries, _AMD_WAYS.get(code, entries)


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


def known_page_sizes(words: Iterable[str]) -> tuple[int, ...]:
    """Return page sizes, ascending; raises `ValueError`."""
    sizes = {size_bytes(word) for word in words}
    if not sizes <= set(PAGE_SIZES):
        raise ValueError(f"page sizes are {', '.join(_SIZE_NAMES.values())}")
    return tuple(sorted(sizes))


def tlb_facts(leaves: CpuidLeaves) -> Iterator[tuple[str, str]]:
    """Yield what CPUID tells of data TLBs, and no more: `tlb.level1 4k`, `72 entries, 72 ways`.

    AMD tells a shared array once for each size of pages; whether it is shared is not told.
    """
    told = [*_told_by_amd(leaves)]
    for level, size, entries, ways in told:
        ways_text = "" if ways is None else f", {count(ways, 'way')}"
        yield f"tlb.level{level} {_SIZE_NAMES[size]}", f"{entries} entries{ways_text}"
    for array in [] if told else _intel_leaf_18(leaves) or _intel_leaf_2(leaves):
        sizes = [size for size in array.sizes if size != _OF_OTHERS]
        yield (
            f"tlb.level{array.level} {_sizes_text(sizes)}",
            f"{array.entries} entries, {count(array.ways, 'way')}",
        )

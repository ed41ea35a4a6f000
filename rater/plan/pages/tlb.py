"""TLBs for data: what a processor says of its own, or `--tlb`; pure.

TLB       LEVEL,LEVEL    one or two levels
LEVEL     ARRAY+ARRAY    arrays side by side, each for page sizes of its own
ARRAY     64x4           entries x ways, of all page sizes
          4k/64k:64x4    of these page sizes; entries x entries: fully associative
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rater.errors import InputError
from rater.plan.pages.layout import size_text
from rater.record.pages import PAGE_SIZES
from rater.text.units import size_bytes

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


@dataclass(frozen=True, slots=True)
class TlbArray:
    """Entries for pages of some sizes, replaced by least recent use within a set."""

    level: int  # 1 or 2
    sizes: tuple[int, ...]  # of PAGE_SIZES, in bytes
    entries: int
    ways: int

    def __str__(self) -> str:
        of = "" if self.sizes == _ALL else "/".join(map(size_text, self.sizes)) + ":"
        return f"{of}{self.entries}x{self.ways}"

    @property
    def argument(self) -> str:
        """The array as the analyser takes it."""
        bits = sum(1 << PAGE_SIZES.index(size) for size in self.sizes)
        return f"{self.level}:{bits}:{self.entries}:{self.ways}"


@dataclass(frozen=True, slots=True)
class Tlb:
    """The arrays of a data TLB; what no array of a level takes, misses there."""

    arrays: tuple[TlbArray, ...]

    def __str__(self) -> str:
        levels = sorted({it.level for it in self.arrays})
        return ",".join("+".join(str(a) for a in self.arrays if a.level == n) for n in levels)

    def entries(self, page_bytes: int) -> tuple[int, int]:
        """Return how many pages of a size the first level holds, and the largest."""
        of = [it for it in self.arrays if page_bytes in it.sizes]
        first = sum(it.entries for it in of if it.level == 1)
        return first, max((it.entries for it in of), default=0)


def parse_tlb(text: str) -> Tlb:
    """Return the TLB that `--tlb` describes; raises `InputError`."""
    arrays = []
    levels = text.replace(" ", "").split(",")
    if len(levels) > 2:
        raise _wrong(text, "more than two levels")
    for level, part in enumerate(levels, 1):
        for word in part.split("+"):
            match = _ARRAY.fullmatch(word)
            if match is None:
                raise _wrong(text, f"{word!r} is no array of entries x ways")
            entries, ways = int(match[2]), int(match[3])
            if not 0 < ways <= min(entries, _MOST_WAYS) or entries % ways or entries >= 1 << 24:
                raise _wrong(text, f"{word!r}: entries are no multiple of 1 to {_MOST_WAYS} ways")
            arrays.append(TlbArray(level, _sizes(match[1], text), entries, ways))
        found = [size for it in arrays if it.level == level for size in it.sizes]
        if len(found) != len(set(found)):
            raise _wrong(text, f"level {level} has two arrays for one page size")
    return Tlb(tuple(arrays))


def tlb_of_cpuid(leaves: CpuidLeaves) -> Tlb | None:
    """Return the data TLB that CPUID describes, None where it tells none.

    AMD: leaves 0x80000005, 6 and 19. Intel: leaf 0x18, else the descriptors of leaf 2. Pages of
    64 KB stand where those of 4 KB do: a processor that joins neighbours is not modelled. Where
    nothing is told of 1 GB pages, they are taken to stand where the first level has 2 MB ones.
    """
    arrays = _amd(leaves) or _intel_leaf_18(leaves) or _intel_leaf_2(leaves)
    if not any(_SMALL in it.sizes for it in arrays):
        return None
    if not any(_GIGA in it.sizes for it in arrays):  # hidden by many hypervisors
        arrays = [
            replace(it, sizes=(*it.sizes, _GIGA)) if it.level == 1 and _HUGE in it.sizes else it
            for it in arrays
        ]
    return Tlb(tuple(sorted(arrays, key=lambda it: (it.level, it.sizes))))


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
    found: dict[tuple[int, int], TlbArray] = {}
    for level, size, entries, ways in sorted(arrays):
        sizes = (size, *((PAGE_SIZES[1],) if size == _SMALL else ()))
        before = found.get((level, entries))
        found[level, entries] = (
            TlbArray(level, sizes, entries, ways)
            if before is None
            else TlbArray(level, (*before.sizes, *sizes), entries, before.ways)
        )
    return list(found.values())


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
    registers = [it for it in leaves.get("2", ()) if not it >> 31]
    codes = [register >> shift & 0xFF for register in registers for shift in (0, 8, 16, 24)]
    return _without_twins(
        TlbArray(level, _with_64k(sizes), entries, ways or entries)
        for code in codes
        for level, sizes, entries, ways in _INTEL.get(code, ())
    )


def _with_64k(sizes: Sequence[int]) -> tuple[int, ...]:
    more = {PAGE_SIZES[1]} if _SMALL in sizes else set()
    return tuple(sorted({*sizes} | more))


def _without_twins(arrays: Iterable[TlbArray]) -> list[TlbArray]:
    """Keep one array a level and page size, the largest."""
    kept: list[TlbArray] = []
    for array in sorted(arrays, key=lambda it: -it.entries):
        taken = {size for it in kept if it.level == array.level for size in it.sizes}
        left = tuple(size for size in array.sizes if size not in taken)
        if left:
            kept.append(TlbArray(array.level, left, array.entries, array.ways))
    return kept


def _sizes(text: str | None, whole: str) -> tuple[int, ...]:
    if text is None:
        return _ALL
    try:
        found = {size_bytes(word) for word in text.split("/")}
    except ValueError as error:
        raise _wrong(whole, str(error)) from None
    if not found <= set(PAGE_SIZES):
        raise _wrong(whole, f"page sizes are {', '.join(map(size_text, PAGE_SIZES))}")
    return tuple(sorted(found))


def _wrong(text: str, why: str) -> InputError:
    return InputError(
        f"--tlb {text}: {why}; expected ENTRIESxWAYS for each level, as 64x4,1536x12, or by page "
        "size, as 4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12+1G:16x4"
    )

"""All ways to give each category of data a page size; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rater.errors import InputError
from rater.plan.pages.layout import size_text
from rater.record.pages import BASE_PAGE, CATEGORIES, CHOSEN, PAGE_SIZES
from rater.text.units import size_bytes

type MappingSizes = tuple[int, int, int]  # bytes of a page of heap, mmap, static


def page_mappings(sizes: Sequence[int]) -> tuple[MappingSizes, ...]:
    """Return each mapping of the categories to `sizes`, all in the first of them first."""
    found = [(heap, mmap, static) for static, mmap, heap in product(sizes, repeat=len(CHOSEN))]
    return tuple(found)


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
        found = {size_bytes(word) for word in text.split(",")}
    except ValueError as error:
        raise InputError(f"--sizes {text}: {error}") from None
    if not found <= set(PAGE_SIZES) or BASE_PAGE not in found or len(found) < 2:
        known = ", ".join(map(size_text, PAGE_SIZES))
        raise InputError(f"--sizes {text}: expected 4k and more of {known}, as in 4k,2M")
    return tuple(sorted(found))

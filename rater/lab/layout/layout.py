"""The layout of data in page sizes: its text, its windows, what the library is told; pure."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.values import size_bytes

# LAYOUT    FORM, for all categories, or CATEGORY:FORM;CATEGORY:FORM (others: base); `:best` behind
# CATEGORY  heap (glibc's heap: small blocks), mmap (the program's own anonymous mappings, and
#           blocks of 128 KB and more where the layout tells the two apart), static (.data, .bss)
# FORM      base, huge      all in base pages, all in the machine's huge pages (2 MB on x86)
#           4k, 64k, 2M, 1G     all in pages of that size
#           50%             from the start on: that share in huge pages
#           50%@20%         that share, beginning behind the first 20 %
#           spread:50%      that share, evenly
#           random:50%:7    that share, chosen at random; the seed stands behind it
#           2M@64M-128M     these addresses, counted from the start; several with a +

BASE_BYTES = 4096
LARGE_BYTES = 128 << 10  # blocks of malloc that lie with the mappings, where categories are named
BEST = ":best"
EXPECTED = (
    "base, huge, a size (2M), 50%, 50%@20%, spread:50%, random:50%:SEED or 2M@64M-128M, for all "
    "or by category (heap:huge;mmap:base;static:huge)"
)
_SHARE = compile_later(r"(\d+(?:\.\d*)?|\.\d+)%")
_SIZE = compile_later(r"\d+[kKmMgG]?(?:i?[bB])?")
_UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k"))


REST = "rest"  # of a process: shared, files, text, stacks, reserved heaps; no layout reaches it


class Category(StrEnum):
    """What data of a program is, as far as its page size can be chosen."""

    HEAP = "heap"
    MMAP = "mmap"
    STATIC = "static"


class PageSpread(StrEnum):
    """Which parts of the data a share takes."""

    GROWING = "growing"  # from one place on
    EVEN = "even"
    RANDOM = "random"


class PageShare(Struct, frozen=True):
    """A share of a category in huge pages."""

    percent: float  # 0 to 100
    spread: PageSpread = PageSpread.GROWING
    at_percent: float = 0.0  # growing: what lies in front of it
    seed: int = 0  # random

    def __str__(self) -> str:
        share = f"{self.percent:.12g}%"
        if self.spread is PageSpread.EVEN:
            return f"spread:{share}"
        if self.spread is PageSpread.RANDOM:
            return f"random:{share}:{self.seed}"
        return f"{share}@{self.at_percent:.12g}%" if self.at_percent else share


EVERYTHING = 1 << 46  # an end behind all data


class PageRange(Struct, frozen=True):
    """Addresses of a category, in bytes from its start, in pages of one size."""

    page_bytes: int
    start: int
    end: int

    def __str__(self) -> str:
        start, end = (size_text(position) for position in (self.start, self.end))
        place_text = "" if self.end == EVERYTHING else f"@{start}-{end}"
        return f"{size_text(self.page_bytes)}{place_text}"


class PageRanges(Struct, frozen=True):
    """Some addresses of a category, the rest in base pages."""

    ranges: tuple[PageRange, ...]  # in order, not overlapping

    def __str__(self) -> str:
        return "+".join(str(page_range) for page_range in self.ranges)


type PageForm = PageShare | PageRanges
NO_HUGE, ALL_HUGE = PageShare(0.0), PageShare(100.0)
_WORDS: dict[str, PageForm] = {"base": NO_HUGE, "huge": ALL_HUGE}


class PageLayout(Struct, frozen=True, kw_only=True):
    """Which part of each category lies in which page size."""

    heap: PageForm = NO_HUGE
    mmap: PageForm = NO_HUGE
    static: PageForm = NO_HUGE
    split: bool = False  # categories were told apart: large blocks lie with the mappings
    best: bool = False  # run with what can be had, rather than refuse

    def form_of(self, category: Category) -> PageForm:
        """Return the form of one category."""
        form: PageForm = getattr(self, category)
        return form

    @property
    def forms(self) -> tuple[PageForm, ...]:
        """The forms of all categories, in their order."""
        return (self.heap, self.mmap, self.static)

    @property
    def is_base(self) -> bool:
        """Tell whether all lies in base pages: what other layouts are compared with."""
        return all(form == NO_HUGE for form in self.forms)

    @property
    def needs_extent(self) -> bool:
        """Tell whether what it asks for depends on how large the data is."""
        return any(
            isinstance(form, PageShare) and form not in (NO_HUGE, ALL_HUGE) for form in self.forms
        )

    def __str__(self) -> str:
        """Return the one text of it: `parse_pages` of it gives the same layout."""
        text = str(self.heap)
        if self.split:
            words = {form: word for word, form in _WORDS.items()}
            text = ";".join(
                f"{category}:{words.get(form, form)}"
                for category, form in zip(Category, self.forms, strict=True)
                if form != NO_HUGE
            )
            text = text or f"{Category.HEAP}:base"
        return text + (BEST if self.best else "")


def size_text(size: int) -> str:
    """Return bytes as layouts have them: `4k`, `2M`, `0`."""
    for unit, letter in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_pages(text: str) -> PageLayout:
    """Return the layout that a text is; raises `InputError`."""
    try:
        return _layout(text.strip())
    except ValueError as error:
        raise InputError(f"--pages {text!r}: {error}; expected {EXPECTED}") from None


def _layout(word: str) -> PageLayout:
    best = word.endswith(BEST)
    word = word.removesuffix(BEST).strip()
    if not word:
        raise ValueError("it is empty")
    if ";" not in word and word.partition(":")[0].strip() not in list(Category):
        form = _form(word)
        return PageLayout(heap=form, mmap=form, static=form, best=best)
    forms: dict[str, PageForm] = {}
    for part in word.split(";"):
        name, colon, form_text = (piece.strip() for piece in part.partition(":"))
        if not colon or name not in list(Category):
            categories = ", ".join(Category)
            raise ValueError(
                f"{part.strip()!r} does not begin with a category ({categories}) and a :"
            )
        if name in forms:
            raise ValueError(f"{name} is given twice")
        forms[name] = _form(form_text)
    return PageLayout(**forms, split=True, best=best)


def _form(word: str) -> PageForm:
    if word in _WORDS:
        return _WORDS[word]
    if word.startswith("spread:"):
        return _plain(PageShare(_percent(word.removeprefix("spread:")), PageSpread.EVEN))
    if word.startswith("random:"):
        share, _, seed = word.removeprefix("random:").partition(":")
        if not (seed.isascii() and seed.isdigit()):
            raise ValueError(f"{word!r} has no seed; write random:{share or '50%'}:1")
        return _plain(PageShare(_percent(share), PageSpread.RANDOM, seed=int(seed)))
    if "%" in word:
        share, at_sign, place = word.partition("@")
        percent, at_percent = _percent(share), _percent(place) if at_sign else 0.0
        if percent + at_percent > 100:
            raise ValueError(f"{word!r} ends behind 100 %: {percent + at_percent:g} %")
        return _plain(PageShare(percent, at_percent=at_percent))
    if "@" in word:
        return _ranges(word)
    size = _page_bytes(word, "")
    return NO_HUGE if size == BASE_BYTES else PageRanges((PageRange(size, 0, EVERYTHING),))


def _plain(share: PageShare) -> PageShare:
    return {0.0: NO_HUGE, 100.0: ALL_HUGE}.get(share.percent, share)


def _ranges(word: str) -> PageRanges:
    ranges = []
    for part in map(str.strip, word.split("+")):
        page, at_sign, place = part.partition("@")
        start, dash, end = place.partition("-")
        if not (at_sign and dash):
            raise ValueError(f"{part!r} is no range of addresses as in 2M@64M-128M")
        page_range = PageRange(_page_bytes(page, " of pages"), _bytes(start), _bytes(end))
        if page_range.start >= page_range.end:
            raise ValueError(f"{part!r} ends where it begins, or in front of it")
        if page_range.start % page_range.page_bytes or page_range.end % page_range.page_bytes:
            size = size_text(page_range.page_bytes)
            raise ValueError(f"{part!r} does not begin and end at multiples of {size}")
        if page_range.page_bytes != BASE_BYTES:
            ranges.append(page_range)
    ranges.sort(key=lambda page_range: page_range.start)
    for before, after in pairwise(ranges):
        if after.start < before.end:
            raise ValueError(f"{before} and {after} overlap")
    if not ranges:
        raise ValueError("ranges in base pages alone; write base")
    return PageRanges(tuple(ranges))


def _page_bytes(word: str, meaning: str) -> int:
    size = _bytes(word, meaning)
    if size < BASE_BYTES or size & (size - 1):
        raise ValueError(f"{size_text(size)} is no page size: they are 4k, 64k, 2M, 1G and such")
    return size


def _bytes(word: str, meaning: str = "") -> int:
    if not _SIZE.fullmatch(word.strip()):
        raise ValueError(f"{word.strip()!r} is no size{meaning}")
    return 0 if int(re.findall(r"\d+", word)[0]) == 0 else size_bytes(word)


def _percent(word: str) -> float:
    match = _SHARE.fullmatch(word.strip())
    if match is None or float(match[1]) > 100:
        raise ValueError(f"{word.strip()!r} is no share from 0% to 100%")
    return float(match[1])


# -- What a layout asks of data of known size: windows of addresses with their page size -----------

MOST_WINDOWS = 1024  # of a category: each is two mappings, and 8192 of them take 19 ms to make


class PageWindow(Struct, frozen=True, order=True):
    """Addresses of one category, in bytes from its start, in pages of one size.

    What no window covers lies in base pages. `end` is `EVERYTHING` where all that comes is meant.
    """

    category: Category
    start: int
    end: int
    page_bytes: int

    @property
    def pages(self) -> int:
        """How many pages it is."""
        return (self.end - self.start) // self.page_bytes


type Extents = Mapping[Category, int]  # bytes from the start of a category to its last page


def page_windows(layout: PageLayout, extents: Extents, huge_bytes: int) -> tuple[PageWindow, ...]:
    """Return the windows that a layout asks for, by category and address, none adjacent.

    `extents` are what shares are of (a category without one has none); `huge_bytes` is the size of
    the machine's huge pages. A share is of whole huge pages: as many as come nearest. Parts of it
    are of several huge pages where there would be more than `MOST_WINDOWS`.
    """
    return tuple(
        PageWindow(category, start, end, page)
        for category in Category
        for start, end, page in _form_windows(
            layout.form_of(category), extents.get(category, 0), huge_bytes
        )
    )


HUGETLB, THP = "hugetlb", "thp"


def backing_of(layout: PageLayout, *, pooled: bool, huge_bytes: int) -> str:
    """Return where a layout's large pages come from: `thp`, `hugetlb` or, of several sizes, both.

    Pages larger than the machine's transparent ones (1 GB) are always of a pool.
    """
    any_extents = dict.fromkeys(Category, EVERYTHING >> 12)
    sizes = {window.page_bytes for window in page_windows(layout, any_extents, huge_bytes)}
    kinds = {HUGETLB if pooled or size > huge_bytes else THP for size in sizes}
    return ", ".join(sorted(kinds or {HUGETLB if pooled else THP}))


def planned_bytes(windows: Iterable[PageWindow], category: Category, extent: int) -> int:
    """Return how many of the first `extent` bytes of a category the windows cover."""
    return sum(
        max(0, min(window.end, extent) - window.start)
        for window in windows
        if window.category is category
    )


def huge_share(layout: PageLayout, extents: Extents, huge_bytes: int) -> float:
    """Return which part (0 to 1) of all data a layout has in pages larger than base pages."""
    windows = page_windows(layout, extents, huge_bytes)
    whole_bytes = sum(extents.values())
    covered_bytes = sum(
        planned_bytes(windows, category, extent) for category, extent in extents.items()
    )
    return covered_bytes / whole_bytes if whole_bytes else 0.0


def _form_windows(form: PageForm, extent_bytes: int, huge_bytes: int) -> list[tuple[int, int, int]]:
    if isinstance(form, PageRanges):
        return _merged(
            (page_range.start, page_range.end, page_range.page_bytes) for page_range in form.ranges
        )
    if form in (NO_HUGE, ALL_HUGE):
        return [(0, EVERYTHING, huge_bytes)] if form == ALL_HUGE else []
    return _merged(
        (start * huge_bytes, end * huge_bytes, huge_bytes)
        for start, end in _slots(form, -(-extent_bytes // huge_bytes))
    )


def _slots(share: PageShare, slots: int) -> list[tuple[int, int]]:
    fraction = share.percent / 100
    if share.spread is PageSpread.GROWING:
        count = round(slots * fraction)
        start = min(round(slots * share.at_percent / 100), slots - count)
        return [(start, start + count)] if count else []
    step = max(1, -(-slots // (2 * MOST_WINDOWS)))  # at most every second one begins a window
    units = -(-slots // step)
    if share.spread is PageSpread.EVEN:
        # floor((i + 1) f) > floor(i f): of any first part, the share too; from a half on, so that
        # the whole is nearest to it.
        chosen: Iterable[int] = (
            unit
            for unit in range(units)
            if int((unit + 1) * fraction + 0.5) > int(unit * fraction + 0.5)
        )
    else:
        chosen = sorted(random.Random(share.seed).sample(range(units), round(units * fraction)))
    return [(unit * step, min(slots, (unit + 1) * step)) for unit in chosen]


def _merged(windows: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    merged: list[tuple[int, int, int]] = []
    for start, end, page in windows:
        adjacent = merged and merged[-1][1:] == (start, page)
        merged.append((merged.pop()[0] if adjacent else start, end, page))
    return merged


# -- What the preloaded library is told: the value of RATER_PAGES ----------------------------------

VARIABLE = "RATER_PAGES"


class PageDirective(Struct, frozen=True, kw_only=True):
    """What one program is to have."""

    windows: tuple[PageWindow, ...]
    heap_bytes: int  # that are reserved
    mmap_bytes: int
    split: bool  # large blocks lie with the mappings
    pooled: bool  # windows are of the pool of huge pages
    strict: bool  # a window that cannot be had ends the program
    extents: tuple[tuple[Category, int], ...] = ()  # what shares are of

    def windows_of(self, category: Category) -> tuple[PageWindow, ...]:
        """Return the windows of one category."""
        return tuple(window for window in self.windows if window.category is category)

    def library_text(self, reports: str | None) -> str:
        """Return the text for the library, which is to write below the folder `reports`, if any."""
        parts = [f"heap={self.heap_bytes}", f"mmap={self.mmap_bytes}"]
        parts += [f"large={LARGE_BYTES}"] if self.split else []
        parts += ["hugetlb"] if self.pooled else []
        parts += ["strict"] if self.strict else []
        parts += [f"process={0:010}"]
        for category in Category:
            pages_by_size: dict[int, list[str]] = {}
            for window in self.windows_of(category):
                first_page, end_page = (
                    window.start // window.page_bytes,
                    window.end // window.page_bytes,
                )
                pages_by_size.setdefault(window.page_bytes, []).append(
                    f"{first_page}+{end_page - first_page}"
                )
            parts += [
                f"{category[0]}{size.bit_length() - 1}={','.join(page_texts)}"
                for size, page_texts in pages_by_size.items()
            ]
        return " ".join((*parts, *([] if reports is None else [f"report={reports}"])))


def clip_windows(
    windows: Iterable[PageWindow], limits: Extents | Mapping[Category, int], huge_bytes: int
) -> Iterator[PageWindow]:
    """Yield windows without end as long as there is data: what lies in a pool is taken at once.

    A category that `limits` does not have keeps its windows. Data that is static ends where .bss
    does: of pages larger than the machine's huge ones it has as many as fit into it.
    """
    for window in windows:
        limit_bytes = limits.get(window.category)
        if window.end < EVERYTHING or limit_bytes is None:
            yield window
            continue
        only_whole = window.category is Category.STATIC and window.page_bytes > huge_bytes
        end = (
            (limit_bytes if only_whole else limit_bytes + window.page_bytes - 1)
            // window.page_bytes
            * window.page_bytes
        )
        if end > window.start:
            yield replace(window, end=end)


def pool_pages(windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool) -> dict[int, int]:
    """Return how many pages of each pool (by bytes of a page) one copy takes with its windows.

    Pages larger than the machine's transparent ones (1 GB) are always of a pool.
    """
    pages_by_size: dict[int, int] = {}
    for window in _of_pool(windows, huge_bytes, pooled=pooled):
        pages_by_size[window.page_bytes] = pages_by_size.get(window.page_bytes, 0) + window.pages
    return pages_by_size


def pool_pages_text(windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool) -> str:
    """Say which data takes how many pages of pools: `heap 1, mmap 1`; nothing where one does."""
    pages_by_category: dict[Category, int] = {}
    for window in _of_pool(windows, huge_bytes, pooled=pooled):
        pages_by_category[window.category] = (
            pages_by_category.get(window.category, 0) + window.pages
        )
    if len(pages_by_category) < 2:
        return ""
    return ", ".join(f"{category} {pages}" for category, pages in pages_by_category.items())


def _of_pool(
    windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool
) -> Iterator[PageWindow]:
    return (window for window in windows if pooled or window.page_bytes > huge_bytes)

"""The layout of a program's data in page sizes: the text of `--pages`, as a value; pure.

LAYOUT    FORM, for all categories, or CATEGORY:FORM;CATEGORY:FORM (others: base); `:best` behind
CATEGORY  heap (glibc's heap: small blocks), mmap (the program's own anonymous mappings, and
          blocks of 128 KB and more where the layout tells the two apart), static (.data, .bss)
FORM      base, huge      all in base pages, all in the machine's huge pages (2 MB on x86)
          4k, 64k, 2M, 1G     all in pages of that size
          50%             from the start on: that share in huge pages
          50%@20%         that share, beginning behind the first 20 %
          spread:50%      that share, evenly
          random:50%:7    that share, chosen at random; the seed stands behind it
          2M@64M-128M     these addresses, counted from the start; several with a +
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from rater.errors import InputError
from rater.text.units import size_bytes

BASE_BYTES = 4096
LARGE_BYTES = 128 << 10  # blocks of malloc that lie with the mappings, where categories are named
BEST = ":best"
EXPECTED = (
    "base, huge, a size (2M), 50%, 50%@20%, spread:50%, random:50%:SEED or 2M@64M-128M, for all "
    "or by category (heap:huge;mmap:base;static:huge)"
)
_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)%")
_SIZE = re.compile(r"\d+[kKmMgG]?(?:i?[bB])?")
_UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k"))


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


@dataclass(frozen=True, slots=True)
class PageShare:
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


@dataclass(frozen=True, slots=True)
class Sized:
    """All of a category in pages of one size."""

    page_bytes: int

    def __str__(self) -> str:
        return size_text(self.page_bytes)


@dataclass(frozen=True, slots=True)
class PageRange:
    """Addresses of a category, in bytes from its start, in pages of one size."""

    page_bytes: int
    start: int
    end: int

    def __str__(self) -> str:
        start, end = (size_text(it) for it in (self.start, self.end))
        return f"{size_text(self.page_bytes)}@{start}-{end}"


@dataclass(frozen=True, slots=True)
class PageRanges:
    """Some addresses of a category, the rest in base pages."""

    ranges: tuple[PageRange, ...]  # in order, not overlapping

    def __str__(self) -> str:
        return "+".join(str(it) for it in self.ranges)


type PageForm = PageShare | Sized | PageRanges
NO_HUGE, ALL_HUGE = PageShare(0.0), PageShare(100.0)
_WORDS: dict[str, PageForm] = {"base": NO_HUGE, "huge": ALL_HUGE}


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Which part of each category lies in which page size."""

    heap: PageForm = NO_HUGE
    mmap: PageForm = NO_HUGE
    static: PageForm = NO_HUGE
    split: bool = False  # categories were told apart: large blocks lie with the mappings
    best: bool = False  # run with what can be had, rather than refuse

    def of(self, category: Category) -> PageForm:
        """Return the form of one category."""
        forms = {
            Category.HEAP: self.heap,
            Category.MMAP: self.mmap,
            Category.STATIC: self.static,
        }
        return forms[category]

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
        return any(isinstance(it, PageShare) and it not in (NO_HUGE, ALL_HUGE) for it in self.forms)

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
    word = text.strip()
    best = word.endswith(BEST)
    word = word.removesuffix(BEST).strip()
    if not word:
        raise _wrong(text, "nothing stands there")
    first = word.partition(":")[0].strip()
    if ";" not in word and first not in list(Category):
        form = _form(word, text)
        return PageLayout(form, form, form, best=best)
    forms: dict[str, PageForm] = {}
    for part in word.split(";"):
        name, colon, rest = (it.strip() for it in part.partition(":"))
        if not colon or name not in list(Category):
            known = ", ".join(Category)
            raise _wrong(text, f"{part.strip()!r} does not begin with a category ({known}) and a :")
        if name in forms:
            raise _wrong(text, f"{name} stands there twice")
        forms[name] = _form(rest, text)
    return PageLayout(**forms, split=True, best=best)


def _form(word: str, text: str) -> PageForm:
    if word in _WORDS:
        return _WORDS[word]
    if word.startswith("spread:"):
        percent = _percent(word.removeprefix("spread:"), text)
        return _plain(PageShare(percent, PageSpread.EVEN))
    if word.startswith("random:"):
        share, _, seed = word.removeprefix("random:").partition(":")
        if not (seed.isascii() and seed.isdigit()):
            raise _wrong(text, f"{word!r} has no seed; write random:{share or '50%'}:1")
        return _plain(PageShare(_percent(share, text), PageSpread.RANDOM, seed=int(seed)))
    if "%" in word:
        share, at, place = word.partition("@")
        percent, at_percent = _percent(share, text), _percent(place, text) if at else 0.0
        if percent + at_percent > 100:
            raise _wrong(text, f"{word!r} ends behind 100 %: {percent + at_percent:g} %")
        return _plain(PageShare(percent, at_percent=at_percent))
    if "@" in word:
        return _ranges(word, text)
    size = _bytes(word, text, "")
    _check_page(size, text)
    return NO_HUGE if size == BASE_BYTES else Sized(size)


def _plain(share: PageShare) -> PageShare:
    """Return it in the one way in which nothing, and all, are written."""
    return {0.0: NO_HUGE, 100.0: ALL_HUGE}.get(share.percent, share)


def _ranges(word: str, text: str) -> PageRanges:
    ranges = []
    for part in word.split("+"):
        page, at, place = part.strip().partition("@")
        start, dash, end = place.partition("-")
        if not (at and dash):
            raise _wrong(text, f"{part.strip()!r} is no range of addresses as in 2M@64M-128M")
        one = PageRange(
            _bytes(page, text, " of pages"), _bytes(start, text, ""), _bytes(end, text, "")
        )
        _check_page(one.page_bytes, text)
        if one.start >= one.end:
            raise _wrong(text, f"{part.strip()!r} ends where it begins, or in front of it")
        if one.start % one.page_bytes or one.end % one.page_bytes:
            size = size_text(one.page_bytes)
            raise _wrong(text, f"{part.strip()!r} does not begin and end at multiples of {size}")
        if one.page_bytes != BASE_BYTES:
            ranges.append(one)
    ranges.sort(key=lambda it: it.start)
    for before, after in pairwise(ranges):
        if after.start < before.end:
            raise _wrong(text, f"{before} and {after} overlap")
    if not ranges:
        raise _wrong(text, "ranges in base pages alone; write base")
    return PageRanges(tuple(ranges))


def _check_page(size: int, text: str) -> None:
    if size < BASE_BYTES or size & (size - 1):
        raise _wrong(text, f"{size_text(size)} is no page size: they are 4k, 64k, 2M, 1G and such")


def _bytes(word: str, text: str, what: str) -> int:
    if not _SIZE.fullmatch(word.strip()):
        raise _wrong(text, f"{word.strip()!r} is no size{what}")
    return 0 if int(re.findall(r"\d+", word)[0]) == 0 else size_bytes(word)


def _percent(word: str, text: str) -> float:
    match = _SHARE.fullmatch(word.strip())
    if match is None or float(match[1]) > 100:
        raise _wrong(text, f"{word.strip()!r} is no share from 0% to 100%")
    return float(match[1])


def _wrong(text: str, why: str) -> InputError:
    return InputError(f"--pages {text!r}: {why}; expected {EXPECTED}")

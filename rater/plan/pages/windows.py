"""What a layout asks of data of known size: windows of addresses with their page size; pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rater.plan.pages.layout import (
    ALL_HUGE,
    NO_HUGE,
    Category,
    PageForm,
    PageLayout,
    PageRanges,
    PageShare,
    PageSpread,
    Sized,
)

EVERYTHING = 1 << 46  # an end behind all data
MOST_WINDOWS = 1024  # of a category: each is two mappings, and 8192 of them take 19 ms to make


@dataclass(frozen=True, slots=True, order=True)
class PageWindow:
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
        for start, end, page in _of(layout.of(category), extents.get(category, 0), huge_bytes)
    )


def planned_bytes(windows: Iterable[PageWindow], category: Category, extent: int) -> int:
    """Return how many of the first `extent` bytes of a category the windows cover."""
    return sum(max(0, min(it.end, extent) - it.start) for it in windows if it.category is category)


def huge_share(layout: PageLayout, extents: Extents, huge_bytes: int) -> float:
    """Return which part (0 to 1) of all data a layout has in pages larger than base pages."""
    windows = page_windows(layout, extents, huge_bytes)
    whole = sum(extents.values())
    covered = sum(planned_bytes(windows, it, extent) for it, extent in extents.items())
    return covered / whole if whole else 0.0


def _of(form: PageForm, extent: int, huge: int) -> list[tuple[int, int, int]]:
    if isinstance(form, Sized):
        return [(0, EVERYTHING, form.page_bytes)]
    if isinstance(form, PageRanges):
        return _merged((it.start, it.end, it.page_bytes) for it in form.ranges)
    if form in (NO_HUGE, ALL_HUGE):
        return [(0, EVERYTHING, huge)] if form == ALL_HUGE else []
    return _merged(
        (start * huge, end * huge, huge) for start, end in _slots(form, -(-extent // huge))
    )


def _slots(share: PageShare, slots: int) -> list[tuple[int, int]]:
    """Return which of so many huge pages a share takes, as first and one behind the last."""
    part = share.percent / 100
    if share.spread is PageSpread.GROWING:
        count = round(slots * part)
        start = min(round(slots * share.at_percent / 100), slots - count)
        return [(start, start + count)] if count else []
    step = max(1, -(-slots // (2 * MOST_WINDOWS)))  # at most every second one begins a window
    units = -(-slots // step)
    if share.spread is PageSpread.EVEN:
        # floor((i + 1) f) > floor(i f): of any first part, the share too; from a half on, so that
        # the whole is nearest to it.
        chosen: Iterable[int] = (
            i for i in range(units) if int((i + 1) * part + 0.5) > int(i * part + 0.5)
        )
    else:
        chosen = sorted(random.Random(share.seed).sample(range(units), round(units * part)))
    return [(i * step, min(slots, (i + 1) * step)) for i in chosen]


def _merged(windows: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return windows in order with adjacent ones of one size made one."""
    out: list[tuple[int, int, int]] = []
    for start, end, page in windows:
        adjacent = out and out[-1][1:] == (start, page)
        out.append((out.pop()[0] if adjacent else start, end, page))
    return out

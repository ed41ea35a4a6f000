"""Reuse distances summed up: what a TLB of some entries misses, working sets, memory; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rater.record.pages import CATEGORIES, PageReuse, PageTrace


def distances(reuse: PageReuse, categories: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Return (distance, references) of some categories together (None: all), ascending."""
    total: Counter[int] = Counter()
    for category in range(len(CATEGORIES)) if categories is None else categories:
        for distance, count in reuse.histogram[category]:
            total[distance] += count
    return sorted(total.items())


def far_references(reuse: PageReuse, entries: int, category: int | None = None) -> int:
    """Return how many references an LRU set of `entries` pages misses, first touches included.

    Exact where `entries` begins a bin: up to 32, and all of 16 places between powers of two.
    """
    chosen = range(len(CATEGORIES)) if category is None else (category,)
    far = sum(
        count for c in chosen for distance, count in reuse.histogram[c] if distance >= entries
    )
    return far + sum(reuse.pages[c] for c in chosen)


def working_set(reuse: PageReuse, share: float) -> int:
    """Return the fewest pages, kept by least recent use, that answer a share of all references.

    First touches are never answered; all pages where the share is not to be had.
    """
    rows = distances(reuse)
    wanted = share * (sum(count for _, count in rows) + sum(reuse.pages))
    answered = 0
    for distance, count in rows:
        answered += count
        if answered >= wanted:
            return distance + 1
    return sum(reuse.pages)


@dataclass(frozen=True, slots=True)
class PageMemory:
    """What a program touches in pages of one size."""

    page_bytes: int
    pages: int
    faults: int
    working_set_99: int  # pages that answer 99 % of references
    working_set_999: int

    @property
    def memory_bytes(self) -> int:
        """Memory that the touched pages take."""
        return self.pages * self.page_bytes


def page_memory(trace: PageTrace) -> tuple[PageMemory, ...]:
    """Return what a program takes and needs at once, by page size."""
    return tuple(
        PageMemory(
            it.page_bytes,
            sum(it.pages),
            sum(it.faults),
            working_set(it, 0.99),
            working_set(it, 0.999),
        )
        for it in trace.reuse
    )

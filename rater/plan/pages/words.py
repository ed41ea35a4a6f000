"""What the preloaded library is told: the value of RATER_PAGES; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rater.plan.pages.layout import BASE_BYTES, LARGE_BYTES, Category
from rater.plan.pages.windows import EVERYTHING, Extents, PageWindow

VARIABLE = "RATER_PAGES"


@dataclass(frozen=True, slots=True)
class PageOrder:
    """What one program is to have."""

    windows: tuple[PageWindow, ...]
    heap_bytes: int  # that are reserved
    mmap_bytes: int
    split: bool  # large blocks lie with the mappings
    pooled: bool  # windows are of the pool of huge pages
    strict: bool  # a window that cannot be had ends the program
    extents: tuple[tuple[Category, int], ...] = ()  # what shares are of

    @property
    def largest_page(self) -> int:
        """The largest page of all windows."""
        return max((it.page_bytes for it in self.windows), default=BASE_BYTES)

    def of(self, category: Category) -> tuple[PageWindow, ...]:
        """Return the windows of one category."""
        return tuple(it for it in self.windows if it.category is category)

    def words(self, reports: str | None) -> str:
        """Return the text for the library, which is to write below the folder `reports`, if any."""
        parts = [f"heap={self.heap_bytes}", f"mmap={self.mmap_bytes}"]
        parts += [f"large={LARGE_BYTES}"] if self.split else []
        parts += ["hugetlb"] if self.pooled else []
        parts += ["strict"] if self.strict else []
        parts += [f"process={0:010}"]
        for category in Category:
            sizes: dict[int, list[str]] = {}
            for it in self.of(category):
                first, behind = it.start // it.page_bytes, it.end // it.page_bytes
                sizes.setdefault(it.page_bytes, []).append(f"{first}+{behind - first}")
            parts += [
                f"{category[0]}{size.bit_length() - 1}={','.join(them)}"
                for size, them in sizes.items()
            ]
        return " ".join((*parts, *([] if reports is None else [f"report={reports}"])))


def capped(
    windows: Iterable[PageWindow], limits: Extents | Mapping[Category, int], huge_bytes: int
) -> Iterator[PageWindow]:
    """Yield windows without end as long as there is data: what lies in a pool is taken at once.

    A category that `limits` does not have keeps its windows. Data that is static ends where .bss
    does: of pages larger than the machine's huge ones it has as many as fit into it.
    """
    for it in windows:
        limit = limits.get(it.category)
        if it.end < EVERYTHING or limit is None:
            yield it
            continue
        only_whole = it.category is Category.STATIC and it.page_bytes > huge_bytes
        end = (limit if only_whole else limit + it.page_bytes - 1) // it.page_bytes * it.page_bytes
        if end > it.start:
            yield replace(it, end=end)


def pool_pages(windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool) -> dict[int, int]:
    """Return how many pages of each pool (by bytes of a page) one copy takes with its windows.

    Pages larger than the machine's transparent ones (1 GB) are always of a pool.
    """
    found: dict[int, int] = {}
    for it in _of_pool(windows, huge_bytes, pooled=pooled):
        found[it.page_bytes] = found.get(it.page_bytes, 0) + it.pages
    return found


def pool_pages_text(windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool) -> str:
    """Say which data takes how many pages of pools: `heap 1, mmap 1`; nothing where one does."""
    found: dict[Category, int] = {}
    for it in _of_pool(windows, huge_bytes, pooled=pooled):
        found[it.category] = found.get(it.category, 0) + it.pages
    if len(found) < 2:
        return ""
    return ", ".join(f"{category} {pages}" for category, pages in found.items())


def _of_pool(
    windows: Iterable[PageWindow], huge_bytes: int, *, pooled: bool
) -> Iterator[PageWindow]:
    return (it for it in windows if pooled or it.page_bytes > huge_bytes)

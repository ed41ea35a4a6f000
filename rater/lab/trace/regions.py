"""Where in a program's data large pages save most: 2 MiB of addresses each, as a layout; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from rater.lab.trace.costs import Loads, PageCosts, mean_walk_ns
from rater.lab.trace.tlb import CHOSEN, REGION_BYTES, PageTrace, RegionMisses
from rater.text.values import group_by_key

_MOST_OF_SAVING = 0.9  # that the hot regions have together
_MOST_WINDOWS = 12  # a layout that people still read


class HotWindow(Struct, frozen=True, kw_only=True):
    """Regions side by side in one category: the program's largest data structures lie so."""

    category: str
    start: int  # bytes from the start of the category
    end: int
    walks: int  # with all in base pages
    saved_ns: float  # misses that huge pages save; page faults are not among them

    @property
    def regions(self) -> int:
        """How many huge pages it takes."""
        return (self.end - self.start) // REGION_BYTES

    @property
    def range_text(self) -> str:
        """Its part of a layout, as `2M@64M-128M`."""
        start, end = (place >> 20 for place in (self.start, self.end))
        return f"2M@{f'{start}M' if start else '0'}-{end}M"


class HotRegions(Struct, frozen=True, kw_only=True):
    """The fewest regions that have most of what large pages save."""

    windows: tuple[HotWindow, ...]  # what saves most first
    share: float  # of all that large pages save in misses
    touched: int  # regions that the program refers to

    @property
    def layout(self) -> str:
        """The layout of `--pages` that has them in huge pages, all else in base pages."""
        by_category = group_by_key((window.category, window) for window in self.windows)
        return ";".join(
            f"{category}:{'+'.join(window.range_text for window in sorted(of_it, key=_start))}"
            for category in CHOSEN
            if (of_it := by_category.get(category))
        )


def _start(window: HotWindow) -> int:
    return window.start


def hot_regions(trace: PageTrace, costs: PageCosts, loads: Loads) -> HotRegions | None:
    """Return where misses are that large pages save, nine tenths of them where a few windows do.

    None: large pages save none.
    """
    walk_ns, l1_miss_ns = mean_walk_ns(trace, costs, loads), costs.l1_miss_ns(loads)

    def saved_ns(region: RegionMisses) -> float:
        walks_ns = (region.walks_base - region.walks_huge) * walk_ns
        return walks_ns + (region.l1_base - region.l1_huge) * l1_miss_ns

    in_order = sorted(trace.regions, key=saved_ns, reverse=True)
    total_ns = sum(max(0.0, saved_ns(region)) for region in in_order)
    if total_ns <= 0:
        return None
    chosen: list[RegionMisses] = []
    share = 0.0
    for region in in_order:
        wider = [*chosen, region]
        if share >= _MOST_OF_SAVING or saved_ns(region) <= 0:
            break
        if len([*_neighbours(wider)]) <= _MOST_WINDOWS:
            chosen = wider
            share += saved_ns(region) / total_ns
    windows = [
        HotWindow(
            category=members[0].category,
            start=members[0].region * REGION_BYTES,
            end=(members[-1].region + 1) * REGION_BYTES,
            walks=sum(region.walks_base for region in members),
            saved_ns=sum(map(saved_ns, members)),
        )
        for members in _neighbours(chosen)
    ]
    return HotRegions(
        windows=tuple(sorted(windows, key=lambda window: -window.saved_ns)),
        share=share,
        touched=len(trace.regions),
    )


def _neighbours(regions: Sequence[RegionMisses]) -> Iterator[list[RegionMisses]]:
    """Yield regions that lie side by side in one category, each group in the order of addresses."""
    for of_category in group_by_key((region.category, region) for region in regions).values():
        ordered = sorted(of_category, key=lambda region: region.region)
        group = [ordered[0]]
        for region in ordered[1:]:
            if region.region > group[-1].region + 1:
                yield group
                group = []
            group.append(region)
        yield group

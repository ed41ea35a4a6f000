"""What a TLB would miss with any page layout, from one trace; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rater.plan.pages.layout import Category, PageLayout, parse_pages
from rater.plan.pages.windows import PageWindow, page_windows
from rater.record.pages import CHOSEN, REGION_BYTES, PageTrace, RegionMisses


@dataclass(frozen=True, slots=True)
class PredictedMisses:
    """Misses of a whole run."""

    l1_misses: float
    walks: float


def predicted_misses(trace: PageTrace, layout: str | PageLayout) -> PredictedMisses:
    """Return the misses of a traced program with a layout of `--pages`.

    Each 2 MiB of addresses misses what it missed with all in base pages, or with all in huge
    pages, by its share in larger pages. An estimate: entries that one region frees for others are
    not seen; exact for all in base pages and all in huge pages. What has no choice of a page size
    (stack, files, small static data) misses as in base pages.
    """
    chosen = parse_pages(layout) if isinstance(layout, str) else layout
    windows = page_windows(chosen, extents(trace), REGION_BYTES)
    of: defaultdict[str, list[PageWindow]] = defaultdict(list)
    for window in windows:
        of[window.category].append(window)
    base = trace.mappings[0]
    l1: float = sum(base.l1_misses[len(CHOSEN) :])
    walks: float = sum(base.walks[len(CHOSEN) :])
    for region in trace.regions:
        share = _share(region, of[region.category])
        l1 += region.l1_base + share * (region.l1_huge - region.l1_base)
        walks += region.walks_base + share * (region.walks_huge - region.walks_base)
    return PredictedMisses(l1, walks)


def extents(trace: PageTrace) -> dict[Category, int]:
    """Return how far each category reaches from its start, in bytes: what shares are of."""
    found = dict.fromkeys(Category, 0)
    for region in trace.regions:
        category = Category(region.category)
        found[category] = max(found[category], (region.region + 1) * REGION_BYTES)
    return found


def _share(region: RegionMisses, windows: Sequence[PageWindow]) -> float:
    """Return which part of a region lies in windows of larger pages."""
    start = region.region * REGION_BYTES
    end = start + REGION_BYTES
    covered = sum(max(0, min(it.end, end) - max(it.start, start)) for it in windows)
    return min(1.0, covered / REGION_BYTES)

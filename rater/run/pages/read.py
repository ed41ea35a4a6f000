"""What the analyser printed as a `PageTrace`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rater.plan.pages.mappings import MappingSizes
from rater.record.pages import (
    CATEGORIES,
    CHOSEN,
    REGION_BYTES,
    PageMapping,
    PageReuse,
    PageTrace,
    PerCategory,
    RegionMisses,
)

_LEAST_GROUPS = 8  # of a sample's 16, with references in them: fewer tell no error


def read_trace(
    document: Mapping[str, Any],
    *,
    huge_bytes: int,
    told: bool,
    elapsed_s: float,
    native_s: float | None,
    tlb: str,
    engine: str,
    **names: Any,
) -> PageTrace:
    """Return a trace; `names` are name, command, suite and size of what ran.

    `told`: the library of --pages was in it, which has one range for each category.
    Counts of a sample are those of all pages by estimate: divided by the sample's share.
    """
    rate = float(document["rate"])
    return PageTrace(
        **names,
        engine=engine,
        tlb=tlb,
        rate=rate,
        elapsed_s=elapsed_s,
        native_s=native_s,
        page_changes=int(document["page_changes"]),
        programs=int(document["programs"]),
        processes=int(document["forks"]),
        references=tuple(document["references"]),
        stores=tuple(document["stores"]),
        reuse=tuple(_reuse(it, rate) for it in document["sizes"]),
        mappings=tuple(_mapping(it, rate) for it in document["mappings"]),
        regions=_regions(document, huge_bytes, rate, told=told),
    )


def _scaled(counts: Sequence[int], rate: float) -> PerCategory:
    return tuple(counts) if rate == 1 else tuple(round(it / rate) for it in counts)


def _reuse(size: Mapping[str, Any], rate: float) -> PageReuse:
    histogram = []
    for name, near in zip(CATEGORIES, size["near"], strict=True):
        rows = {int(distance): count for distance, count in size["histogram"][name]}
        if rate < 1:
            rows = {distance: round(count / rate) for distance, count in rows.items()}
        rows[0] = rows.get(0, 0) + near  # to the page before: counted, not sampled
        histogram.append(tuple(sorted(it for it in rows.items() if it[1])))
    return PageReuse(
        page_bytes=1 << size["shift"],
        faults=tuple(size["faults"]),
        pages=tuple(size["pages"]),  # counted as they come, whatever the sample
        histogram=tuple(histogram),
        error=None if rate == 1 else _error(size["far"], size["sampled"]),
        error_from=size["far_from"],
    )


def _error(far: Sequence[int], sampled: Sequence[int]) -> float | None:
    """Return the standard error of a sample's far references, as a share of them.

    The sample's pages fall into groups by hash; each group is a smaller sample, and how much the
    groups differ tells how much samples do: sqrt(n var) / sum.
    """
    groups = [count for count, all_of in zip(far, sampled, strict=True) if all_of]
    total = sum(groups)
    if len(groups) < _LEAST_GROUPS or not total:
        return None
    mean = total / len(far)
    variance = sum((it - mean) ** 2 for it in far) / (len(far) - 1)
    return math.sqrt(len(far) * variance) / total


def _sizes(mapping: Mapping[str, Any]) -> MappingSizes:
    heap, mmap, static = (1 << shift for shift in mapping["shifts"][: len(CHOSEN)])
    return heap, mmap, static


def _mapping(mapping: Mapping[str, Any], rate: float) -> PageMapping:
    kinds = ("l1", "l2", "store_l1", "store_l2")
    return PageMapping(*_sizes(mapping), *(_scaled(mapping[kind], rate) for kind in kinds))


def _regions(
    document: Mapping[str, Any], huge_bytes: int, rate: float, *, told: bool
) -> tuple[RegionMisses, ...]:
    """Return misses by region for all in base pages and all in huge pages, where both are there."""
    by_sizes = {_sizes(it): it["regions"] for it in document["mappings"]}
    base, huge = (by_sizes.get((size,) * 3) for size in (4096, huge_bytes))
    if base is None or huge is None:
        return ()
    found: dict[tuple[int, int], list[int]] = {}
    for place, rows in ((0, base), (2, huge)):
        for category, region, l1, walks in rows:
            row = found.setdefault((category, region), [0, 0, 0, 0])
            row[place], row[place + 1] = l1, walks
    begins = document["begins"]
    rows = []
    for place, name in enumerate(CHOSEN):
        regions = sorted(region for category, region in found if category == place)
        for number, region in enumerate(regions):
            # The library of --pages has one range for the heap, one for mappings; without it
            # mappings lie apart, and count one behind the other.
            ranged = told and place < len(begins) and begins[place]
            at = region - begins[place] // REGION_BYTES if ranged else number
            if at >= 0:
                rows.append(RegionMisses(name, at, *_scaled(found[place, region], rate)))
    return tuple(rows)

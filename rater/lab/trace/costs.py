"""What TLB misses and first touches cost, from measurements of one machine; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from operator import sub
from typing import Any

import numpy as np
from msgspec import Struct

from rater.lab.trace.tlb import (
    BASE_PAGE,
    CATEGORIES,
    CHOSEN,
    PageMapping,
    PageTrace,
    WalkGap,
    WalkOrder,
)
from rater.plan.tlb import PAGE_SIZES, Tlb

_HUGE = PAGE_SIZES[2]
_LINE_BYTES = 64
_COSTS_SURE = (
    2.0  # times the entries of the last level: from here on every access of a cycle misses
)
_FOOTPRINT = 4  # times these entries: what misses of a program are taken to be of that counted them
_NEAR = 0.75  # of them: up to here none of the last level
_FIRST_CACHE_LINES = 256  # that any first cache of data holds
_LEAST_STEP_NS = 0.5  # what a miss of the first level has to cost, to tell one from none


class Loads(StrEnum):
    """How much of a miss other work hides."""

    DEPENDENT = "dependent"  # nothing: the next address comes from the load
    INDEPENDENT = "independent"  # as much as the processor can
    BETWEEN = "between"  # the geometric mean of the two


class MissPoint(Struct, frozen=True, kw_only=True):
    """One access to one of so many pages in turn: in base pages less in huge ones, in ns."""

    pages: int
    lines_a_page: int = 1  # that are read at each access
    dependent_ns: float
    independent_ns: float
    store_ns: float

    @property
    def lines(self) -> int:
        """How many lines the caches take in until a page is accessed again."""
        return self.pages * self.lines_a_page

    def base_page_cost_ns(self, loads: Loads | None) -> float:
        """Return what base pages cost a load more, None: a store; 0 where that is noise."""
        if loads is None:
            return max(0.0, self.store_ns)
        dependent, independent = max(0.0, self.dependent_ns), max(0.0, self.independent_ns)
        if loads is Loads.BETWEEN:
            return math.sqrt(dependent * independent)
        return dependent if loads is Loads.DEPENDENT else independent


class StreamPoint(Struct, frozen=True):
    """A stream through all lines of so many pages: base page less as much of a huge one, in ns."""

    pages: int
    load_ns: float
    store_ns: float

    @property
    def lines(self) -> int:
        """How many lines the caches take in until a page is streamed through again."""
        return self.pages * (BASE_PAGE // _LINE_BYTES)


class PageCosts(Struct, frozen=True, kw_only=True):
    """What was measured on a machine."""

    points: tuple[MissPoint, ...]  # pages in random order; by lines, ascending
    # The same with eight neighbours one after the other; () of an older rater.
    near_points: tuple[MissPoint, ...] = ()
    stream_points: tuple[StreamPoint, ...] = ()  # by pages, ascending; () of an older rater
    fault_base_ns: float | None  # of a first touch, and of giving the page back
    fault_huge_ns: float | None  # None: the kernel gave no huge pages
    cycle_ns: float
    tlb: Tlb
    splits_huge: bool | None = None  # the TLB holds huge pages in parts; None: not known

    def l1_miss_ns(self, loads: Loads | None) -> float:
        """Return what a miss of the first level costs that the last level answers; None: a store's.

        The median over footprints larger than the first level and well within the last.
        """
        first, last = self.tlb.entries(BASE_PAGE)
        within = [
            point.base_page_cost_ns(loads)
            for point in self.points
            if first * _COSTS_SURE <= point.pages <= last * _NEAR and point.lines_a_page == 1
        ]
        return statistics.median(within) if within else 0.0

    def walk_ns(self, lines: int, loads: Loads | None, *, near: bool = False) -> float:
        """Return what the walk of a page costs that was walked so many lines of data ago.

        None: the walk of a store, which a buffer takes while the program goes on. `near`: a line
        of the page table serves eight walks.
        After more lines the page's part of the table lies in larger, slower caches, so that a walk
        never gets cheaper. Between those measured by the logarithm of lines. Of a walk alone: what
        the miss of the first level costs is taken off.
        """
        _, last = self.tlb.entries(BASE_PAGE)
        points = (near and self.near_points) or self.points
        beyond = [point for point in points if point.pages >= last * _COSTS_SURE] or list(
            points[-1:]
        )
        if not beyond:
            return 0.0
        smooth_ns = _smooth_costs_ns(beyond, loads)
        log_lines = [math.log2(beyond_point.lines) for beyond_point in beyond]
        walk_ns = float(np.interp(math.log2(max(1, lines)), log_lines, smooth_ns))
        return max(0.0, walk_ns - self.l1_miss_ns(loads))

    def miss_cycles(self, loads: Loads = Loads.BETWEEN) -> float | None:
        """Return what a miss of the last level costs; None: large pages were not had.

        Of pages in random order, four times as many as its entries.
        """
        if not self.points:
            return None
        pages = _FOOTPRINT * self.tlb.entries(BASE_PAGE)[1]
        return (self.l1_miss_ns(loads) + self.walk_ns(pages, loads)) / self.cycle_ns

    def stream_ns(self, lines: int, loads: Loads | None) -> float:
        """Return what a base page of a stream costs, of so many lines in all; None: of stores.

        With each page prefetching begins anew and a walk comes first. Of that alone, without what
        the miss of the first level costs; nothing hides it, so that it is the same for all loads.
        """
        costs_ns = _costs_of_noise(
            point.store_ns if loads is None else point.load_ns for point in self.stream_points
        )
        log_lines = [math.log2(point.lines) for point in self.stream_points]
        page_ns = float(np.interp(math.log2(max(1, lines)), log_lines, costs_ns))
        return max(0.0, page_ns - self.l1_miss_ns(loads))

    def fault_ns(self, page_bytes: int) -> float:
        """Return what the first touch of a page costs: a part for the fault, a part for its bytes.

        The two measured sizes give both; where huge pages were not had, a larger page is taken to
        cost as much a byte as a base page.
        """
        base_ns = self.fault_base_ns or 0.0
        if self.fault_huge_ns is None:
            return base_ns * page_bytes / BASE_PAGE
        ns_per_byte = max(0.0, self.fault_huge_ns - base_ns) / (_HUGE - BASE_PAGE)
        return base_ns + ns_per_byte * (page_bytes - BASE_PAGE)


def _smooth_costs_ns(points: Sequence[MissPoint], loads: Loads | None) -> list[float]:
    """Return what base pages cost more at each footprint, never less than at a smaller one."""
    if loads is None:
        return _costs_of_noise(point.store_ns for point in points)
    dependent_ns = _costs_of_noise(point.dependent_ns for point in points)
    if loads is Loads.DEPENDENT:
        return dependent_ns
    independent_ns = _costs_of_noise(point.independent_ns for point in points)
    if loads is Loads.INDEPENDENT:
        return independent_ns
    return [
        math.sqrt(first * second)
        for first, second in zip(dependent_ns, independent_ns, strict=True)
    ]


def _costs_of_noise(differences_ns: Iterable[float]) -> list[float]:
    """Return costs that never fall and are not below 0.

    What was measured less than 0 goes into the means: else noise would only add.
    """
    return [max(0.0, cost_ns) for cost_ns in _ascending(list(differences_ns))]


def _ascending(values: Sequence[float]) -> list[float]:
    """Return the values that never fall and are nearest by least squares.

    By pooling adjacent violators: Ayer et al., Annals of Mathematical Statistics 26 (1955).
    """
    pools: list[tuple[float, int]] = []  # mean, members
    for value in values:
        mean, members = value, 1
        while pools and pools[-1][0] > mean:
            before, earlier = pools.pop()
            mean = (before * earlier + mean * members) / (earlier + members)
            members += earlier
        pools.append((mean, members))
    return [mean for mean, members in pools for _ in range(members)]


def page_costs(document: Mapping[str, Any], tlb: Tlb) -> PageCosts:
    """Return the costs that the program of `cost.c` printed; huge pages half had do not count."""
    measured = [
        load_point
        for load_point in document["loads"]
        if load_point["huge_bytes"] >= load_point["pages"] * BASE_PAGE
    ]
    faults = document["faults"] or {}

    def fault_ns(size: str) -> float | None:
        touched_ns = faults.get(f"{size}_ns")
        # An older rater did not measure what giving back costs.
        return None if touched_ns is None else touched_ns + faults.get(f"{size}_free_ns", 0.0)

    return PageCosts(
        points=tuple(_miss_point(load_point, "") for load_point in measured),
        near_points=tuple(
            _miss_point(load_point, "near_")
            for load_point in measured
            if "near_dependent_small_ns" in load_point
        ),
        stream_points=tuple(
            StreamPoint(
                load_point["pages"],
                load_point["stream_load_small_ns"] - load_point["stream_load_huge_ns"],
                load_point["stream_store_small_ns"] - load_point["stream_store_huge_ns"],
            )
            for load_point in measured
            if "stream_load_small_ns" in load_point
        ),
        fault_base_ns=fault_ns("small"),
        fault_huge_ns=fault_ns("huge"),
        cycle_ns=document["cycle_ns"],
        tlb=tlb,
        splits_huge=_splits_huge(measured, tlb),
    )


def _splits_huge(load_points: Sequence[Mapping[str, Any]], tlb: Tlb) -> bool | None:
    """Tell whether the TLB holds huge pages in parts; None: too few points, or misses cost nothing.

    One line of each of more base pages than the first level holds costs a look at the next level.
    The same lines lie in one or two huge pages. They cost as much only where these are split: the
    TLB holds the smaller of a guest's page and its host's (Intel SDM volume 3, combined mappings).
    """
    first, last = tlb.entries(BASE_PAGE)
    most_pages = min(last * _NEAR, _FIRST_CACHE_LINES)

    def median_ns(size: str, least_pages: float, most_pages: float) -> float | None:
        times_ns = [
            load_point[f"dependent_{size}_ns"]
            for load_point in load_points
            if least_pages <= load_point["pages"] <= most_pages and load_point.get("lines", 1) == 1
        ]
        return statistics.median(times_ns) if times_ns else None

    def step_ns(size: str) -> float | None:
        held_ns = median_ns(size, 1, first * _NEAR)
        missed_ns = median_ns(size, first * _COSTS_SURE, most_pages)
        return None if held_ns is None or missed_ns is None else missed_ns - held_ns

    base_ns, huge_ns = step_ns("small"), step_ns("huge")
    if base_ns is None or huge_ns is None or base_ns < _LEAST_STEP_NS:
        return None
    return huge_ns > base_ns / 2


def _miss_point(load_point: Mapping[str, Any], order: str) -> MissPoint:
    def more_ns(kind: str) -> float:
        # Stores were not measured by an older rater, whose traces do not tell them apart either.
        small_ns = load_point.get(f"{order}{kind}_small_ns", 0.0)
        huge_ns = load_point.get(f"{order}{kind}_huge_ns", 0.0)
        return float(small_ns - huge_ns)

    return MissPoint(
        pages=load_point["pages"],
        lines_a_page=load_point.get("lines", 1),
        dependent_ns=more_ns("dependent"),
        independent_ns=more_ns("independent"),
        store_ns=more_ns("store"),
    )


def mean_costs(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of what `cost.c` printed several times, of the same footprints each time."""
    first, *_ = documents

    def mean(values: Sequence[Any]) -> Any:
        if any(value is None for value in values):
            return None
        if isinstance(values[0], Mapping):
            return {name: mean([value[name] for value in values]) for name in values[0]}
        if isinstance(values[0], list):
            return [mean(items) for items in zip(*values, strict=False)]
        if isinstance(values[0], int):  # pages, bytes: the least, so that huge pages half had tell
            return min(values)
        return statistics.fmean(values)

    return {name: mean([document[name] for document in documents]) for name in first}


_MEASURED = "measured"  # in a document of mean costs: those that it is the mean of


def costs_beside_runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what costs were before and after runs: their mean, and both."""
    return mean_costs([before, after]) | {_MEASURED: [before, after]}


def each_page_costs(document: Mapping[str, Any], tlb: Tlb) -> list[PageCosts]:
    """Return the costs of each time they were measured: once, or before and after runs."""
    return [page_costs(measured, tlb) for measured in document.get(_MEASURED) or [document]]


# -- What the misses of a mapping cost -------------------------------------------------------------


def misses_ns(trace: PageTrace, mapping: PageMapping, costs: PageCosts, loads: Loads) -> float:
    """Return what a mapping's misses cost: those of loads, and those of stores, which wait less.

    A walk for a larger page costs as in the smallest footprint: its part of the page table is
    small.
    """
    l1_of_loads = sum(mapping.l1_misses) - sum(mapping.store_l1_misses)
    l1_ns: float = l1_of_loads * costs.l1_miss_ns(loads)
    l1_ns += sum(mapping.store_l1_misses) * costs.l1_miss_ns(None)
    sizes = (*mapping.sizes, *(BASE_PAGE,) * (len(CATEGORIES) - len(CHOSEN)))
    of_loads = map(sub, mapping.walks, mapping.store_walks)
    large_ns: float = sum(
        load_walks * costs.walk_ns(0, loads) + store_walks * costs.walk_ns(0, None)
        for size, load_walks, store_walks in zip(sizes, of_loads, mapping.store_walks, strict=True)
        if size != BASE_PAGE
    )
    return l1_ns + large_ns + _base_walks_ns(trace, mapping, costs, loads)


def _base_walks_ns(trace: PageTrace, mapping: PageMapping, costs: PageCosts, loads: Loads) -> float:
    """Return what the walks for base pages cost, each by how long ago its page was walked.

    Caches that took in many lines of data since then have lost its part of the page table. The
    benchmark of `cost.c` walks each of its pages once in turn and touches one line or more of each,
    so that it has the same number of lines in between. Where one page follows another nearby, as
    in a loop over a column, addresses come from arithmetic: such loads wait for no other unless all
    are taken to. A walk that is alone overlaps with no other, so that all of it counts; one that is
    also near is of a stream. Without gaps (a sample, an older rater) all cost as at the program's
    footprint.
    """
    if not mapping.gaps:
        touched_pages = sum(trace.of_size(BASE_PAGE).pages)
        sizes = (*mapping.sizes, *(BASE_PAGE,) * (len(CATEGORIES) - len(CHOSEN)))
        base = [place for place, size in enumerate(sizes) if size == BASE_PAGE]
        stores = sum(mapping.store_walks[place] for place in base)
        of_loads = sum(mapping.walks[place] for place in base) - stores
        return of_loads * costs.walk_ns(touched_pages, loads) + stores * costs.walk_ns(
            touched_pages, None
        )
    return sum(
        gap.loads * _walk_ns(gap, costs, loads) + gap.stores * _walk_ns(gap, costs, None)
        for gap in mapping.gaps
    )


_BY_ARITHMETIC = (WalkOrder.BESIDE, WalkOrder.NEAR)
_ALONE = (WalkOrder.ALONE, WalkOrder.NEAR_ALONE)
_IN_LINE = (WalkOrder.NEAR, WalkOrder.NEAR_ALONE)


def _walk_ns(gap: WalkGap, costs: PageCosts, loads: Loads | None) -> float:
    if gap.order is WalkOrder.NEAR_ALONE and costs.stream_points:
        return costs.stream_ns(gap.lines_ago, loads)
    kind = loads
    if loads is Loads.BETWEEN and gap.order in _ALONE:
        kind = Loads.DEPENDENT
    elif loads is Loads.BETWEEN and gap.order in _BY_ARITHMETIC:
        kind = Loads.INDEPENDENT
    is_near = gap.order in _IN_LINE or not gap.lines_ago
    return costs.walk_ns(gap.lines_ago, kind, near=is_near)


def mean_walk_ns(trace: PageTrace, costs: PageCosts, loads: Loads | None) -> float:
    """Return what a walk costs this program in the mean, with all in base pages.

    None: the walk of a store. As at its footprint where it has no walks, or no gaps are known.
    """
    counts = [(gap, 0 if loads is None else gap.loads) for gap in trace.mappings[0].gaps]
    walks = sum(loads_of + gap.stores for gap, loads_of in counts)
    if not walks:
        return costs.walk_ns(sum(trace.of_size(BASE_PAGE).pages), loads)
    total_ns = sum(
        loads_of * _walk_ns(gap, costs, loads) + gap.stores * _walk_ns(gap, costs, None)
        for gap, loads_of in counts
    )
    return total_ns / walks

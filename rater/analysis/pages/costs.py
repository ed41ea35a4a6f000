"""What TLB misses and first touches cost, from measurements of one machine; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rater.plan.pages.tlb import Tlb
from rater.record.pages import BASE_PAGE, PAGE_SIZES

_HUGE = PAGE_SIZES[2]
_SURE = 2.0  # times the entries of the last level: from here on every access of a cycle misses
_NEAR = 0.75  # of them: up to here none of the last level


class Loads(StrEnum):
    """How much of a miss other work hides."""

    DEPENDENT = "dependent"  # nothing: the next address comes from the load
    INDEPENDENT = "independent"  # as much as the processor can
    BETWEEN = "between"  # the geometric mean of the two


@dataclass(frozen=True, slots=True)
class MissPoint:
    """One access to one of so many pages in turn: in base pages less in huge ones, in ns."""

    pages: int
    dependent_ns: float
    independent_ns: float
    store_ns: float

    def of(self, loads: Loads | None) -> float:
        """Return what base pages cost a load more, None: a store; 0 where that is noise."""
        if loads is None:
            return max(0.0, self.store_ns)
        dependent, independent = max(0.0, self.dependent_ns), max(0.0, self.independent_ns)
        if loads is Loads.BETWEEN:
            return math.sqrt(dependent * independent)
        return dependent if loads is Loads.DEPENDENT else independent


@dataclass(frozen=True, slots=True)
class PageCosts:
    """What was measured on a machine."""

    points: tuple[MissPoint, ...]  # by pages, ascending
    fault_base_ns: float | None
    fault_huge_ns: float | None  # None: the kernel gave no huge pages
    cycle_ns: float
    tlb: Tlb

    def l1_miss_ns(self, loads: Loads | None) -> float:
        """Return what a miss of the first level costs that the last level answers; None: a store's.

        The median over footprints larger than the first level and well within the last.
        """
        first, last = self.tlb.entries(BASE_PAGE)
        within = [it.of(loads) for it in self.points if first * _SURE <= it.pages <= last * _NEAR]
        return statistics.median(within) if within else 0.0

    def walk_ns(self, pages: int, loads: Loads | None) -> float:
        """Return what a walk of the page table costs a program that touches so many base pages.

        None: the walk of a store, which a buffer takes while the program goes on.
        The table of a larger footprint lies in larger, slower caches. Between footprints by the
        logarithm of pages; at each the median of it and its neighbours. Of a walk alone: what the
        miss of the first level costs is taken off.
        """
        _, last = self.tlb.entries(BASE_PAGE)
        beyond = [it for it in self.points if it.pages >= last * _SURE] or list(self.points[-1:])
        if not beyond:
            return 0.0
        costs = [it.of(loads) for it in beyond]
        smooth = [statistics.median(costs[max(0, i - 1) : i + 2]) for i in range(len(costs))]
        at = [math.log2(it.pages) for it in beyond]
        return max(0.0, _between(math.log2(max(1, pages)), at, smooth) - self.l1_miss_ns(loads))

    def fault_ns(self, page_bytes: int) -> float:
        """Return what the first touch of a page costs: a part for the fault, a part for its bytes.

        The two measured sizes give both; where huge pages were not had, a larger page is taken to
        cost as much a byte as a base page.
        """
        base = self.fault_base_ns or 0.0
        if self.fault_huge_ns is None:
            return base * page_bytes / BASE_PAGE
        a_byte = max(0.0, self.fault_huge_ns - base) / (_HUGE - BASE_PAGE)
        return base + a_byte * (page_bytes - BASE_PAGE)


def page_costs(document: Mapping[str, Any], tlb: Tlb) -> PageCosts:
    """Return the costs that the program of `cost.c` printed; huge pages half had do not count."""
    points = tuple(
        MissPoint(
            it["pages"],
            it["dependent_small_ns"] - it["dependent_huge_ns"],
            it["independent_small_ns"] - it["independent_huge_ns"],
            # Not measured by an older rater, whose traces do not tell stores apart either.
            it.get("store_small_ns", 0.0) - it.get("store_huge_ns", 0.0),
        )
        for it in document["loads"]
        if it["huge_bytes"] >= it["pages"] * BASE_PAGE
    )
    faults = document["faults"] or {}
    return PageCosts(
        points, faults.get("small_ns"), faults.get("huge_ns"), document["cycle_ns"], tlb
    )


def _between(x: float, at: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at x of straight lines between points, flat outside."""
    for i in range(1, len(at)):
        if x <= at[i]:
            part = max(0.0, (x - at[i - 1]) / (at[i] - at[i - 1]))
            return values[i - 1] + part * (values[i] - values[i - 1])
    return values[-1]

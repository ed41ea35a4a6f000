"""What TLB misses and page faults cost on this machine, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rater.lab.trace.costs import Loads, PageCosts
from rater.show.screen.document import Field, Line, Part, ViewTable, decimals
from rater.text.values import JsonFields

_POINT = JsonFields("pages lines_a_page dependent_ns independent_ns store_ns")
SPLIT = (
    "Huge pages are split here: the TLB holds them in parts of 4 KB, as where the host of a "
    "virtual machine has small pages. It covers no more in them: walks get shorter, and no rarer."
)


def costs_document(costs: PageCosts) -> dict[str, Any]:
    """Return the document of `rater lab trace --measure --json`."""
    return {
        "rater": 1,
        "tlb": str(costs.tlb),
        "miss_cycles": {str(loads): costs.miss_cycles(loads) for loads in Loads},
        **JsonFields("cycle_ns fault_base_ns fault_huge_ns splits_huge").read(costs),
        "points": [_POINT.read(point) for point in costs.points],
    }


def costs_parts(costs: PageCosts) -> Iterator[Part]:
    """Yield the cost of a miss, and a table of all footprints that were measured."""
    between = costs.miss_cycles()
    if between is None:
        yield Line("Large pages were not to be had: what a TLB miss costs is not known.", "yellow")
        return
    least, most = costs.miss_cycles(Loads.INDEPENDENT), costs.miss_cycles(Loads.DEPENDENT)
    yield Line(f"A TLB miss costs {between:.1f} cycles ({least:.1f} to {most:.1f})", "bold")
    yield (
        f"TLB {costs.tlb}. The range is from loads that wait for no other to loads that each wait "
        "for the one before. `rater run --counters cpi` takes the value between them where a "
        "processor counts misses and not their time."
    )
    if costs.splits_huge:
        yield Line(SPLIT, "yellow")
    fields = (
        Field(heading="pages of|4 KB", value=lambda point: point.pages),
        Field(heading="lines|a page", value=lambda point: point.lines_a_page),
        Field(heading="ns if de-|pendent", value=lambda point: point.dependent_ns, form=_NS),
        Field(heading="ns if in-|dependent", value=lambda point: point.independent_ns, form=_NS),
        Field(heading="ns of|a store", value=lambda point: point.store_ns, form=_NS),
    )
    yield ViewTable(title="", rows=costs.points, fields=fields)
    yield "Nanoseconds are those that an access takes more in pages of 4 KB than in those of 2 MB."


_NS = decimals(2)

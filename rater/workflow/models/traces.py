"""Stored traces (`rater pages`) of the benchmarks of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.models.ranking import BenchmarkTrace
from rater.analysis.pages.costs import page_costs
from rater.analysis.results.points import Point
from rater.plan.pages.tlb import parse_tlb
from rater.store.pages import load_trace, trace_heads
from rater.store.store import Store


def traces_of(store: Store, points: Sequence[Point]) -> dict[str, BenchmarkTrace]:
    """Return the latest trace of each benchmark, of the same suite and size as the runs."""
    head = points[0].runs[0].run.head
    suites = set((head.suite or "").split(", ")) if head.suite else {None}
    latest = {
        it.name: it.number
        for it in trace_heads(store)
        if it.name in head.benchmarks
        and (it.suite in suites)
        and (it.suite is None or it.size == head.size)
    }
    found = {}
    for name, number in latest.items():
        stored = load_trace(store, number)
        costs = page_costs(stored.costs, parse_tlb(stored.trace.tlb))
        found[name] = BenchmarkTrace(number, stored.trace, costs)
    return found

"""A trace, its ranking and its check as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.pages.check import BenefitCheck
from rater.analysis.pages.costs import Loads, PageCosts
from rater.analysis.pages.ranking import RankedMapping, benefits, best_within
from rater.analysis.pages.reuse import page_memory
from rater.plan.pages.mappings import mapping_layout
from rater.record.pages import BASE_PAGE, CATEGORIES, PageReuse, PageTrace, PerCategory

_KINDS: dict[str, Loads | None] = {**{it.value: it for it in Loads}, "store": None}


def pages_document(
    trace: PageTrace,
    ranked: Sequence[RankedMapping],
    costs: PageCosts,
    *,
    loads: Loads,
    budget: int | None,
    number: int | None,
    check: BenefitCheck | None,
) -> dict[str, Any]:
    """Return the document of `rater pages --json`; times in ns where names end so, else in s."""
    touched = sum(trace.of_size(BASE_PAGE).pages)
    document: dict[str, Any] = {
        "rater": 1,
        "trace": number,
        "name": trace.name,
        "suite": trace.suite,
        "size": trace.size,
        "command": list(trace.command),
        "engine": trace.engine,
        "tlb": trace.tlb,
        "sample": trace.rate,
        "elapsed_s": trace.elapsed_s,
        "native_s": trace.native_s,
        "page_changes": trace.page_changes,
        "programs": trace.programs,
        "processes_not_traced": trace.processes,
        "notes": list(trace.notes),
        "references": _by_category(trace.references),
        "stores": _by_category(trace.stores),
        "pages": [
            _reuse(it) | {"working_set_99": m.working_set_99, "working_set_999": m.working_set_999}
            for it, m in zip(trace.reuse, page_memory(trace), strict=True)
        ],
        "costs": {
            "cycle_ns": costs.cycle_ns,
            "fault_base_ns": costs.fault_base_ns,
            "fault_huge_ns": costs.fault_huge_ns,
            "l1_miss_ns": {name: costs.l1_miss_ns(it) for name, it in _KINDS.items()},
            "walk_ns": {name: costs.walk_ns(touched, it) for name, it in _KINDS.items()},
        },
        "loads": loads,
        "mappings": [
            _mapping(one, benefit, costs)
            for one, benefit in zip(ranked, benefits(ranked, loads), strict=True)
        ],
        "best": mapping_layout(best_within(ranked, 1 << 62, loads).mapping.sizes),
    }
    if budget is not None:
        best = best_within(ranked, budget, loads)
        document["budget"] = {"pages": budget, "best": mapping_layout(best.mapping.sizes)}
    if check is not None:
        document["check"] = {
            "told": check.told,
            "predicted_s": check.predicted_s,
            "most_saved_s": check.most_saved_s,
            "most_saved_noise_s": check.most_saved_noise_s,
            "mean_error": check.mean_error,
            "max_error": check.max_error,
            "mappings": [
                {
                    "layout": it.name,
                    "times_s": list(it.times_s),
                    "median_s": it.median_s,
                    "predicted": it.predicted,
                    "measured": it.measured,
                    "noise": it.noise,
                    "error": it.error,
                }
                for it in check.mappings
            ],
        }
    return document


def _by_category(counts: PerCategory) -> dict[str, int]:
    return dict(zip(CATEGORIES, counts, strict=True))


def _reuse(reuse: PageReuse) -> dict[str, Any]:
    return {
        "page_bytes": reuse.page_bytes,
        "pages": _by_category(reuse.pages),
        "faults": _by_category(reuse.faults),
        "sampling_error": reuse.error,
        "histogram": {
            name: [list(row) for row in rows]
            for name, rows in zip(CATEGORIES, reuse.histogram, strict=True)
            if rows
        },
    }


def _mapping(one: RankedMapping, benefit: float, costs: PageCosts) -> dict[str, Any]:
    saved = {it: one.saved_ns(it) for it in Loads}
    return {
        "layout": mapping_layout(one.mapping.sizes),
        "large_pages": one.large_pages,
        "large_bytes": one.large_bytes,
        "l1_misses": sum(one.mapping.l1_misses),
        "walks": sum(one.mapping.walks),
        "store_walks": sum(one.mapping.store_walks),
        "faults_saved_ns": one.faults_saved_ns,
        "saved_ns": saved,
        "saved_cycles": {it: ns / costs.cycle_ns for it, ns in saved.items()},
        "benefit": benefit,
    }

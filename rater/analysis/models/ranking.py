"""What a stored trace predicts of page layouts, held against a sweep's own runs; pure.

The benefit of a layout is what it saves over all in base pages, by the cost model of
`analysis.pages.ranking` (misses x cost + faults x cost); the error is IBM CPO's, in per cent of the
largest benefit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.pages.check import BenefitCheck, check_benefits
from rater.analysis.pages.costs import Loads, PageCosts
from rater.analysis.pages.predict import extents, predicted_misses
from rater.analysis.pages.ranking import RankedMapping, by_saving, rank
from rater.plan.pages.layout import parse_pages
from rater.plan.pages.windows import huge_share
from rater.record.pages import BASE_PAGE, PAGE_SIZES, PageTrace

_HUGE = PAGE_SIZES[2]


@dataclass(frozen=True, slots=True)
class BenchmarkTrace:
    """A stored trace of a benchmark, and what a miss costs on the machine it was made on."""

    number: int
    trace: PageTrace
    costs: PageCosts


@dataclass(frozen=True, slots=True)
class RankingCheck:
    """Which data of a benchmark deserves large pages, and how its layouts bore the trace out."""

    benchmark: str
    trace: int  # its number
    best: RankedMapping  # of categories to page sizes
    saved_ns: float  # by the best one, as predicted
    check: BenefitCheck | None  # None: fewer than two layouts


def misses_of(traces: Mapping[str, BenchmarkTrace]) -> Callable[[str, str], float | None] | None:
    """Return what tells page walks by benchmark and text of --pages; None: there is no trace."""
    if not traces:
        return None

    def predicted(benchmark: str, text: str) -> float | None:
        found = traces.get(benchmark)
        return None if found is None else predicted_misses(found.trace, text).walks

    return predicted


def ranking_check(
    benchmark: str,
    traced: BenchmarkTrace,
    layouts: Sequence[tuple[str, Sequence[float]]],
    loads: Loads = Loads.BETWEEN,
) -> RankingCheck:
    """Return the best mapping, and predictions against `layouts`: texts of --pages and times in s.

    The first of them is all in base pages.
    """
    ranked = rank(traced.trace, traced.costs)
    best = by_saving(ranked, loads)[0]
    saved = [_saved_ns(traced, ranked, text, loads) for text, _ in layouts]
    check = None
    if len(layouts) > 1:
        check = check_benefits([text for text, _ in layouts], saved, [it for _, it in layouts])
    return RankingCheck(benchmark, traced.number, best, best.saved_ns(loads), check)


def _saved_ns(
    traced: BenchmarkTrace, ranked: Sequence[RankedMapping], text: str, loads: Loads
) -> float:
    """Return what a layout saves: walks and first-level misses, and its share of the faults."""
    trace, costs = traced.trace, traced.costs
    base, here = (predicted_misses(trace, it) for it in ("0%", text))
    touched = sum(trace.of_size(BASE_PAGE).pages)
    everything = next((it for it in ranked if set(it.mapping.sizes) == {_HUGE}), None)
    share = huge_share(parse_pages(text), extents(trace), _HUGE)
    faults = share * everything.faults_saved_ns if everything else 0.0
    walks = (base.walks - here.walks) * costs.walk_ns(touched, loads)
    return walks + (base.l1_misses - here.l1_misses) * costs.l1_miss_ns(loads) + faults

"""A trace and its ranking for people."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.pages.check import BenefitCheck, CheckedMapping
from rater.analysis.pages.costs import Loads, PageCosts
from rater.analysis.pages.ranking import (
    RankedMapping,
    best_within,
    by_saving,
    different_mappings,
    shown_categories,
)
from rater.analysis.pages.reuse import PageMemory, far_references, page_memory
from rater.plan.pages.mappings import mapping_layout, mapping_name
from rater.plan.pages.tlb import Tlb
from rater.record.pages import BASE_PAGE, CATEGORIES, PAGE_SIZES, PageReuse, PageTrace, TraceHead
from rater.show.console.format import duration
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns
from rater.show.pages.picture import reuse_lines
from rater.show.pages.texts import many, megabytes, milliseconds, page_name
from rater.text.words import count, percent

_MOST_ROWS = 16


def print_trace(
    trace: PageTrace,
    tlb: Tlb,
    printer: Printer,
    number: int,
    pictured: int | None = BASE_PAGE,
) -> None:
    """Print what a program refers to, by page size and category; `pictured`: the histogram's."""
    size = f", {trace.size}" if trace.size else ""
    native = f", {duration(trace.native_s)} by itself" if trace.native_s is not None else ""
    what = f"trace {number}, {trace.name}{size}"
    printer.line(f"{what}: {many(sum(trace.references))} references", "bold")
    printer.prose(
        f"traced by {trace.engine} in {duration(trace.elapsed_s)}{native}; "
        f"{'exact' if trace.rate == 1 else f'from {percent(trace.rate)} % of all pages'}; "
        f"TLB {tlb}"
    )
    printer.some(trace.notes, "yellow")
    printer.line()
    printer.table(_size_columns(trace, tlb))
    if trace.rate < 1:
        printer.prose(_sampling(trace))
    printer.line()
    printer.table(_category_columns(trace, tlb))
    if pictured is not None:
        printer.line()
        legend, *lines = reuse_lines(trace, pictured, printer.width)
        printer.prose(legend)
        for line in lines:
            printer.line(line)


def _size_columns(trace: PageTrace, tlb: Tlb) -> list[Column]:
    rows: list[tuple[PageMemory, PageReuse]] = list(
        zip(page_memory(trace), trace.reuse, strict=True)
    )
    of = Columns(rows)
    return [
        of.left("page|size", lambda it: page_name(it[0].page_bytes)),
        of.right("pages|touched", lambda it: many(it[0].pages)),
        of.right("memory|MB", lambda it: megabytes(it[0].memory_bytes)),
        of.right("page|faults", lambda it: many(it[0].faults)),
        of.right("pages for|99 %", lambda it: many(it[0].working_set_99)),
        of.right("pages for|99.9 %", lambda it: many(it[0].working_set_999), optional=1),
        of.right("L1 misses|if LRU", lambda it: many(_far(it[1], tlb, 0)), optional=2),
        of.right("walks|if LRU", lambda it: many(_far(it[1], tlb, 1))),
    ]


def _far(reuse: PageReuse, tlb: Tlb, level: int) -> int:
    return far_references(reuse, tlb.entries(reuse.page_bytes)[level])


def _sampling(trace: PageTrace) -> str:
    told = [
        f"{page_name(it.page_bytes)} "
        + ("too few pages to tell" if it.error is None else f"+-{percent(it.error)} %")
        for it in trace.reuse
    ]
    return f"standard error of sampled walks: {', '.join(told)}"


def _category_columns(trace: PageTrace, tlb: Tlb) -> list[Column]:
    base, huge = trace.of_size(BASE_PAGE), trace.of_size(PAGE_SIZES[2])
    rows = shown_categories(trace)
    of = Columns(rows)
    entries = tlb.entries(BASE_PAGE)[1]
    mapping = trace.mappings[0]
    return [
        of.left("data|", lambda it: CATEGORIES[it]),
        of.right("refer-|ences", lambda it: many(trace.references[it])),
        of.right("4 KB|pages", lambda it: many(base.pages[it])),
        of.right("2 MB|pages", lambda it: many(huge.pages[it])),
        of.right("faults|4 KB", lambda it: many(base.faults[it])),
        of.right(f"farther|than {entries}", lambda it: many(far_references(base, entries, it))),
        of.right("L1 misses|4 KB", lambda it: many(mapping.l1_misses[it]), optional=1),
        of.right("walks|4 KB", lambda it: many(mapping.walks[it])),
    ]


def print_ranking(
    trace: PageTrace,
    ranked: Sequence[RankedMapping],
    costs: PageCosts,
    printer: Printer,
    *,
    loads: Loads,
    budget: int | None,
) -> None:
    """Print mappings, the best first, what they need and save, and the best for `budget` pages."""
    rows = by_saving([ranked[place] for place in different_mappings(trace, ranked)], loads)
    best = rows[0].saved_ns(loads)
    of = Columns(rows[:_MOST_ROWS])
    native_ns = trace.native_s * 1e9 if trace.native_s else None
    saved = f"{Loads.INDEPENDENT}..{Loads.DEPENDENT}"
    columns = [
        of.left("page sizes|", lambda it: mapping_name(it.mapping.sizes), flexible=True),
        of.right("large|pages", lambda it: it.large_pages),
        of.right("L1 misses|saved", lambda it: many(it.l1_misses_saved), optional=2),
        of.right("walks|saved", lambda it: many(it.walks_saved), optional=1),
        of.right("faults|ms", lambda it: milliseconds(it.faults_saved_ns)),
        of.right(("ms saved", saved), _range, optional=3),
        of.right("saved|ms", lambda it: milliseconds(it.saved_ns(loads))),
        *(
            [of.percent("of the|run %", lambda it: it.saved_ns(loads) / native_ns)]
            if native_ns
            else []
        ),
        of.percent("of the|most %", lambda it: it.saved_ns(loads) / best if best > 0 else None),
    ]
    printer.table(columns)
    if len(rows) > _MOST_ROWS:
        printer.line(f"and {len(rows) - _MOST_ROWS} more (--json has them all)")
    printer.line()
    printer.prose(_best_text(rows[0], loads))
    if budget is not None:
        within = best_within(ranked, budget, loads)
        printer.prose(
            f"with {count(budget, 'large page')}: {mapping_name(within.mapping.sizes)} "
            f"({count(within.large_pages, 'page')}, {milliseconds(within.saved_ns(loads))} ms)"
        )
    printer.prose(costs_text(trace, costs))


def _range(one: RankedMapping) -> str:
    ends = (one.saved_ns(it) for it in (Loads.INDEPENDENT, Loads.DEPENDENT))
    return "..".join(milliseconds(it) for it in ends)


def _best_text(best: RankedMapping, loads: Loads) -> str:
    if best.large_pages == 0 or best.saved_ns(loads) <= 0:
        return "no mapping to larger pages saves anything here"
    layout = mapping_layout(best.mapping.sizes)
    return (
        f"best: --pages '{layout}', {count(best.large_pages, 'large page')}, saves "
        f"{milliseconds(best.saved_ns(loads))} ms by the model"
    )


def costs_text(trace: PageTrace, costs: PageCosts) -> str:
    """Say what the model is made of."""
    touched = sum(trace.of_size(BASE_PAGE).pages)

    def both(of: Sequence[float]) -> str:
        return "..".join(f"{it:.2f}" for it in of)

    ends = (Loads.INDEPENDENT, Loads.DEPENDENT)
    huge = (
        f"{costs.fault_huge_ns / 1e3:.0f} us (2 MB)"
        if costs.fault_huge_ns is not None
        else "not measured (no huge pages here)"
    )
    return (
        "costs measured here, independent..dependent loads: an L1 miss "
        f"{both([costs.l1_miss_ns(it) for it in ends])} ns, a walk "
        f"{both([costs.walk_ns(touched, it) for it in ends])} ns at {many(touched)} pages; a fault "
        f"{(costs.fault_base_ns or 0) / 1e3:.2f} us (4 KB), {huge}"
    )


def print_heads(heads: Sequence[TraceHead], printer: Printer) -> None:
    """Print which traces there are."""
    if not heads:
        printer.line("no traces stored yet; `rater pages SUITE/BENCHMARK` makes one")
        return
    of = Columns(heads)
    printer.table(
        [
            of.right("trace|", lambda it: it.number),
            of.left("when|UTC", lambda it: it.traced_at.replace("T", " ").removesuffix("Z")),
            of.left("host|", lambda it: it.host, flexible=True, optional=1),
            of.left("what|", lambda it: f"{it.suite}/{it.name}" if it.suite else it.name),
            of.left("size|", lambda it: it.size),
            of.percent("% of all|pages", lambda it: it.rate, optional=2),
            of.numbers("traced|s", lambda it: it.elapsed_s),
        ]
    )


def print_check(check: BenefitCheck, printer: Printer) -> None:
    """Print predicted against measured benefits."""
    of: Columns[CheckedMapping] = Columns(check.mappings)
    printer.table(
        [
            of.left("page sizes|", lambda it: it.name, flexible=True),
            of.right("runs|", lambda it: len(it.times_s), optional=1),
            of.numbers("median|s", lambda it: it.median_s, 4),
            of.percent("predicted|% of most", lambda it: it.predicted),
            of.percent("measured|% of most", lambda it: it.measured),
            of.right("noise|+- %", lambda it: percent(it.noise)),
            of.change("error|%", lambda it: it.error),
        ]
    )
    printer.line()
    saved = (
        f"{check.most_saved_s * 1e3:.1f} ms +-{check.most_saved_noise_s * 1e3:.1f}, predicted "
        f"{check.predicted_s * 1e3:.1f} ms"
    )
    if not check.told:
        printer.prose(
            f"the most that any mapping saves, {saved}, does not stand out of the noise: "
            "predictions cannot be judged by these runs"
        )
        return
    printer.prose(
        f"error in per cent of the maximum benefit ({saved}): "
        f"mean {percent(check.mean_error)} %, largest {percent(check.max_error)} %"
    )

"""A trace, its ranking and its check for people, as pictures and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from rater.lab.trace.costs import Loads, PageCosts, mean_walk_ns
from rater.lab.trace.ranking import (
    BenefitCheck,
    RankedMapping,
    benefits,
    best_within,
    by_saving,
    different_mappings,
    far_references,
    shown_categories,
    tlb_coverage,
    working_set,
)
from rater.lab.trace.regions import hot_regions
from rater.lab.trace.show_check import (
    CHECK,
    MILLISECONDS,
    USER_TIME,
    check_parts,
    milliseconds,
    range_text,
)
from rater.lab.trace.show_costs import SPLIT
from rater.lab.trace.tlb import (
    BASE_PAGE,
    CATEGORIES,
    PageReuse,
    PageTrace,
    PerCategory,
    TraceHead,
    mapping_layout,
    mapping_name,
)
from rater.plan.tlb import PAGE_SIZES, Tlb
from rater.show.charts.comparison import StackedRow, stacked_chart
from rater.show.charts.vega import PlacedChart, sheet_svg
from rater.show.screen.document import (
    NUMBER,
    PERCENT,
    TEXT,
    Field,
    Form,
    Line,
    Part,
    ViewTable,
)
from rater.show.screen.format import format_duration, format_gigabytes, format_number, sanitize
from rater.text.values import JsonFields, count, percent, to_json

# -- A trace, its ranking and its check as JSON ----------------------------------------------------

_HUGE = PAGE_SIZES[2]
_KINDS: dict[str, Loads | None] = {**{it.value: it for it in Loads}, "store": None}
_TRACE = JsonFields(
    "name suite size command engine tlb sample=rate elapsed_s native_s native_cpu_s"
    " page_changes programs"
    " processes_not_traced=processes notes"
)


class TraceView(Struct, frozen=True, kw_only=True):
    """A trace with its ranking, its check and the options of the view."""

    number: int
    trace: PageTrace
    tlb: Tlb
    costs: PageCosts
    ranked: Sequence[RankedMapping]
    loads: Loads
    budget: int | None  # large pages
    check: BenefitCheck | None
    of_user_time: bool = False  # the check is


def pages_document(view: TraceView) -> dict[str, Any]:
    """Return the document of `rater lab trace --json`; times in ns where names say so, else s."""
    trace, costs, ranked = view.trace, view.costs, view.ranked
    document: dict[str, Any] = {
        "rater": 1,
        "trace": view.number,
        **to_json(_TRACE.read(trace)),
        "references": _by_category(trace.references),
        "stores": _by_category(trace.stores),
        "pages": [
            _reuse(reuse)
            | {
                "working_set_99": working_set(reuse, 0.99),
                "working_set_999": working_set(reuse, 0.999),
                "tlb_covers_bytes": tlb_coverage(view.tlb, reuse)[0],
                "tlb_covers_share": tlb_coverage(view.tlb, reuse)[1],
            }
            for reuse in trace.reuse
        ],
        "costs": {
            **JsonFields("cycle_ns fault_base_ns fault_huge_ns splits_huge").read(costs),
            "l1_miss_ns": {name: costs.l1_miss_ns(loads) for name, loads in _KINDS.items()},
            "walk_ns": {name: mean_walk_ns(trace, costs, loads) for name, loads in _KINDS.items()},
        },
        "loads": view.loads,
        "mappings": [
            _mapping(mapping, benefit, costs)
            for mapping, benefit in zip(ranked, benefits(ranked, view.loads), strict=True)
        ],
        "best": mapping_layout(best_within(ranked, 1 << 62, view.loads).mapping.sizes),
    }
    hot = hot_regions(trace, costs, view.loads)
    if hot is not None:
        document["hot"] = {
            "layout": hot.layout,
            "share": hot.share,
            "regions_touched": hot.touched,
            "windows": to_json(list(hot.windows)),
        }
    if view.budget is not None:
        best = best_within(ranked, view.budget, view.loads)
        document["budget"] = {"pages": view.budget, "best": mapping_layout(best.mapping.sizes)}
    if view.check is not None:
        effort = "user" if view.of_user_time else "cpu"
        document["check"] = {"time": effort} | to_json(view.check, CHECK)
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


def _mapping(ranked: RankedMapping, benefit: float, costs: PageCosts) -> dict[str, Any]:
    saved = {loads: ranked.saved_ns(loads) for loads in Loads}
    misses = ("l1_misses", "walks", "store_walks")
    return {
        "layout": mapping_layout(ranked.mapping.sizes),
        **JsonFields("large_pages large_bytes faults_saved_ns").read(ranked),
        **{name: sum(getattr(ranked.mapping, name)) for name in misses},
        "saved_ns": saved,
        "saved_cycles": {loads: saved_ns / costs.cycle_ns for loads, saved_ns in saved.items()},
        "benefit": benefit,
    }


# -- The same as tables and sentences --------------------------------------------------------------

_MOST_ROWS = 16
COUNT = Form(lambda values: [format_count(it) for it in values])


def trace_parts(view: TraceView) -> Iterator[Part]:
    """Yield what a program refers to, by page size, category and reuse distance; mappings."""
    trace = view.trace
    size = f", {trace.size}" if trace.size else ""
    native = f", {format_duration(trace.native_s)} by itself" if trace.native_s is not None else ""
    title = f"trace {view.number}, {trace.name}{size}"
    exact = "exact" + " for the one process that was traced" * bool(trace.processes)
    yield Line(f"{title}: {format_count(sum(trace.references))} references", "bold")
    yield (
        f"traced by {trace.engine} in {format_duration(trace.elapsed_s)}{native}; "
        f"{exact if trace.rate == 1 else f'from {percent(trace.rate)} % of all pages'}; "
        f"TLB {view.tlb}"
    )
    yield from (Line(note, "yellow") for note in trace.notes)
    yield _page_sizes_table(view)
    yield _coverage_text(view)
    if view.costs.splits_huge:
        yield Line(SPLIT, "yellow")
    yield _categories_table(view)
    yield _distances_table(trace)
    yield from _ranking_parts(view)
    if view.check is not None:
        yield from check_parts(view.check)
        yield USER_TIME if view.of_user_time else "Times are CPU times of a copy."


def _page_sizes_table(view: TraceView) -> ViewTable:
    def misses(level: int) -> Callable[[PageReuse], int]:
        return lambda reuse: far_references(reuse, view.tlb.entries(reuse.page_bytes)[level])

    fields = (
        Field(heading="page|size", value=lambda reuse: page_name(reuse.page_bytes), form=TEXT),
        Field(heading="pages|touched", value=lambda reuse: sum(reuse.pages), form=COUNT),
        Field(
            heading="memory|MB",
            value=lambda reuse: sum(reuse.pages) * reuse.page_bytes / 1e6,
            form=NUMBER,
        ),
        Field(heading="page|faults", value=lambda reuse: sum(reuse.faults), form=COUNT),
        Field(heading="pages for|99 %", value=lambda reuse: working_set(reuse, 0.99), form=COUNT),
        Field(
            heading="pages for|99.9 %",
            value=lambda reuse: working_set(reuse, 0.999),
            form=COUNT,
            optional=1,
        ),
        Field(heading="L1 misses|if LRU", value=misses(0), form=COUNT, optional=2),
        Field(heading="walks|if LRU", value=misses(1), form=COUNT),
        Field(heading="sampling|+- %", value=lambda reuse: reuse.error, form=PERCENT),
    )
    return ViewTable(title="", rows=view.trace.reuse, fields=fields)


def _coverage_text(view: TraceView) -> str:
    """Say how much memory the largest level of the TLB covers, of what the program touches.

    Where it splits huge pages it covers no more in them.
    """
    texts = []
    for reuse in view.trace.reuse[: 1 if view.costs.splits_huge else None]:
        covered_bytes, share = tlb_coverage(view.tlb, reuse)
        if share is not None:
            of_touched = "all" if share == 1 else f"{percent(share, 2)} %"
            size = f"{format_number(covered_bytes / 1e6)} MB"
            size = size if covered_bytes < 1e10 else format_gigabytes(covered_bytes)
            texts.append(f"{size} in {page_name(reuse.page_bytes)} pages ({of_touched})")
    return f"The TLB covers {', '.join(texts)} of what is touched."


def _categories_table(view: TraceView) -> ViewTable:
    """Return a row for each category, a place in CATEGORIES."""
    trace = view.trace
    base, huge, mapping = trace.of_size(BASE_PAGE), trace.of_size(_HUGE), trace.mappings[0]
    entries = view.tlb.entries(BASE_PAGE)[1]
    fields = (
        Field(heading="data|", value=lambda place: CATEGORIES[place], form=TEXT),
        Field(heading="refer-|ences", value=lambda place: trace.references[place], form=COUNT),
        Field(heading="4 KB|pages", value=lambda place: base.pages[place], form=COUNT),
        Field(heading="2 MB|pages", value=lambda place: huge.pages[place], form=COUNT),
        Field(heading="faults|4 KB", value=lambda place: base.faults[place], form=COUNT),
        Field(
            heading=f"farther|than {entries}",
            value=lambda place: far_references(base, entries, place),
            form=COUNT,
        ),
        Field(
            heading="L1 misses|4 KB",
            value=lambda place: mapping.l1_misses[place],
            form=COUNT,
            optional=1,
        ),
        Field(heading="walks|4 KB", value=lambda place: mapping.walks[place], form=COUNT),
    )
    return ViewTable(title="", rows=shown_categories(trace), fields=fields)


def _distances_table(trace: PageTrace) -> ViewTable:
    def share(category: int) -> Callable[[tuple[str, list[float]]], float | None]:
        return lambda row: row[1][category] or None

    fields = (
        Field(heading="reuse distance|in 4 KB pages", value=lambda row: row[0]),
        Field(heading="references|%", value=lambda row: sum(row[1]), form=PERCENT),
        *(
            Field(heading=f"{CATEGORIES[category]}|%", value=share(category), form=PERCENT)
            for category in shown_categories(trace)
        ),
    )
    return ViewTable(title="", rows=octave_bars(trace.of_size(BASE_PAGE)), fields=fields)


def _ranking_parts(view: TraceView) -> Iterator[Part]:
    """Yield mappings, the best first, with their pages and savings, and the best in the budget."""
    trace, ranked, loads, budget = view.trace, view.ranked, view.loads, view.budget
    rows = by_saving([ranked[place] for place in different_mappings(trace, ranked)], loads)
    most_ns = rows[0].saved_ns(loads)
    # Savings are CPU time, so that they are a share of CPU time, however busy the machine was.
    native_ns = trace.native_cpu_s * 1e9 if trace.native_cpu_s else None

    def share(whole_ns: float | None) -> Callable[[RankedMapping], float | None]:
        return lambda mapping: (
            mapping.saved_ns(loads) / whole_ns if whole_ns and whole_ns > 0 else None
        )

    fields = (
        Field(
            heading="page sizes|",
            value=lambda mapping: mapping_name(mapping.mapping.sizes),
            form=TEXT,
            flexible=True,
        ),
        Field(heading="large|pages", value=lambda mapping: mapping.large_pages),
        Field(
            heading="L1 misses|saved",
            value=lambda mapping: mapping.l1_misses_saved,
            form=COUNT,
            optional=2,
        ),
        Field(
            heading="walks|saved", value=lambda mapping: mapping.walks_saved, form=COUNT, optional=1
        ),
        Field(
            heading="faults|ms", value=lambda mapping: mapping.faults_saved_ns, form=MILLISECONDS
        ),
        Field(
            heading="ms if in-|dependent",
            value=lambda mapping: mapping.saved_ns(_LOADS[0]),
            form=MILLISECONDS,
            optional=3,
        ),
        Field(
            heading="ms if de-|pendent",
            value=lambda mapping: mapping.saved_ns(_LOADS[1]),
            form=MILLISECONDS,
            optional=3,
        ),
        Field(heading="saved|ms", value=lambda mapping: mapping.saved_ns(loads), form=MILLISECONDS),
        Field(heading="of the|run %", value=share(native_ns), form=PERCENT),
        Field(heading="of the|most %", value=share(most_ns), form=PERCENT),
    )
    yield ViewTable(title="", rows=rows, fields=fields, most=_MOST_ROWS)
    yield _best_text(rows[0], most_ns)
    if budget is not None:
        within = best_within(ranked, budget, loads)
        yield (
            f"with {count(budget, 'large page')}: {mapping_name(within.mapping.sizes)} "
            f"({count(within.large_pages, 'page')}, {milliseconds(within.saved_ns(loads))} ms)"
        )
    yield from _hot_parts(view)
    yield _costs_text(trace, view.costs)


_MOST_HOT = 8  # windows in the table


def _hot_parts(view: TraceView) -> Iterator[Part]:
    """Yield where in the data the misses are that large pages save, and that as a layout."""
    hot = hot_regions(view.trace, view.costs, view.loads)
    if hot is None:
        return
    fields = (
        Field(heading="hot data", value=lambda window: window.category, form=TEXT),
        Field(heading="from|MB", value=lambda window: window.start >> 20),
        Field(heading="to|MB", value=lambda window: window.end >> 20),
        Field(heading="walks|4 KB", value=lambda window: window.walks, form=COUNT),
        Field(heading="misses|saved ms", value=lambda window: window.saved_ns, form=MILLISECONDS),
    )
    yield ViewTable(title="", rows=hot.windows, fields=fields, most=_MOST_HOT)
    pages = sum(window.regions for window in hot.windows)
    yield (
        f"{pages} of {count(hot.touched, 'region')} of 2 MB have {percent(hot.share)} % of what "
        f"large pages save in misses: --pages '{hot.layout}'"
    )


_LOADS = (Loads.INDEPENDENT, Loads.DEPENDENT)


def _best_text(best: RankedMapping, saved_ns: float) -> str:
    if best.large_pages == 0 or saved_ns <= 0:
        return "No mapping to larger pages saves anything here."
    layout = mapping_layout(best.mapping.sizes)
    pages = count(best.large_pages, "large page")
    between = range_text([best.saved_ns(loads) * 1e-9 for loads in Loads])
    saved = f"{milliseconds(saved_ns)} ms{between}"
    return f"best: --pages '{layout}', {pages}, saves {saved} by the model"


def _costs_text(trace: PageTrace, costs: PageCosts) -> str:
    l1_miss_text, walk_text = (
        "..".join(f"{cost(loads):.2f}" for loads in _LOADS)
        for cost in (costs.l1_miss_ns, partial(mean_walk_ns, trace, costs))
    )
    huge_ns = costs.fault_huge_ns
    huge_text = f"{huge_ns / 1e3:.0f} us" if huge_ns else "not measured (no huge pages here)"
    return (
        f"costs measured here, independent..dependent loads: an L1 miss {l1_miss_text} ns, a walk "
        f"{walk_text} ns in the mean; a fault "
        f"{(costs.fault_base_ns or 0) / 1e3:.2f} us (4 KB), {huge_text} (2 MB)"
    )


def heads_parts(heads: Sequence[TraceHead]) -> Iterator[Part]:
    """Yield a table of the stored traces."""
    if not heads:
        yield Line("no traces stored yet; `rater lab trace SUITE/BENCHMARK` makes one")
    fields = (
        Field(heading="trace|", value=lambda head: head.number),
        Field(
            heading="when|UTC",
            value=lambda head: head.traced_at.replace("T", " ").removesuffix("Z"),
            form=TEXT,
        ),
        Field(heading="host|", value=lambda head: head.host, form=TEXT, flexible=True, optional=1),
        Field(
            heading="what|",
            value=lambda head: f"{head.suite}/{head.name}" if head.suite else head.name,
            form=TEXT,
        ),
        Field(heading="size|", value=lambda head: head.size, form=TEXT),
        Field(heading="% of all|pages", value=lambda head: head.rate, form=PERCENT, optional=2),
        Field(heading="traced|s", value=lambda head: head.elapsed_s, form=NUMBER),
    )
    yield ViewTable(title="", rows=heads, fields=fields)


# -- Reuse distances as a picture: a bar for every doubling of the distance, by category -----------

# Okabe and Ito: told apart by those who do not see red and green.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#b8e186", "#cc79a7", "#9aa0a6")
_LINE = 16.0  # of a bar, as in cpi.vega.json
_WIDTH = 320.0

type Bars = list[tuple[str, list[float]]]  # a title, shares of references by category


def octave_bars(reuse: PageReuse) -> Bars:
    """Return shares of all references by distance: 0, 1, 2-3, 4-7 and so on, then first touches."""
    octaves: Counter[tuple[int, int]] = Counter()
    for category, rows in enumerate(reuse.histogram):
        for distance, references in rows:
            octaves[distance.bit_length(), category] += references
    everything = octaves.total() + sum(reuse.pages)
    if not everything:
        return []
    last = max((octave for octave, _ in octaves), default=0)
    bars: Bars = [
        (
            _octave_name(octave_number),
            [
                octaves[octave_number, category_number] / everything
                for category_number in range(len(CATEGORIES))
            ],
        )
        for octave_number in range(last + 1)
    ]
    return [*bars, ("first touch", [count / everything for count in reuse.pages])]


def _octave_name(octave: int) -> str:
    if octave < 2:
        return str(octave)
    return f"{_short(1 << (octave - 1))}-{_short((1 << octave) - 1)}"


def _short(value: int) -> str:
    return f"{value}" if value < 1 << 14 else f"{(value + 1) >> 10}k"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.05 %"


def reuse_svg(trace: PageTrace) -> str:
    """Return all page sizes as an SVG, a panel each."""
    all_bars = [(reuse.page_bytes, octave_bars(reuse)) for reuse in trace.reuse]
    # Rows of all panels are alike, so that they are compared along a line.
    titles = [title for title, _ in max((bars for _, bars in all_bars), key=len)]
    figures = []
    for page_bytes, bars in all_bars:
        shares_by_title = dict(bars)
        chart = _chart(
            [(title, shares_by_title.get(title, [0.0] * len(CATEGORIES))) for title in titles],
            trace,
        )
        chart["signals"]["title"] = f"{page_name(page_bytes)} pages"
        figures.append(
            PlacedChart(kind="cpi", chart=chart, width=_WIDTH, height=len(titles) * _LINE, above=20)
        )
    trace_title = sanitize(
        f"{trace.name}: page reuse distances, % of {format_count(sum(trace.references))}"
    )
    return sheet_svg(f"{trace_title} references", figures, columns=2)


def _chart(rows: Sequence[tuple[str, list[float]]], trace: PageTrace) -> dict[str, Any]:
    categories = shown_categories(trace)
    bars = []
    for title, shares in rows:
        percent_by_name = (
            (CATEGORIES[category], 100 * shares[category]) for category in categories
        )
        parts = [
            (name, size, [name, f"{size:.3g} % of all references"])
            for name, size in percent_by_name
        ]
        total = sum(shares[category] for category in categories)
        bars.append(StackedRow(title, True, parts, _percent(total) if total else ""))
    return stacked_chart(
        bars, {CATEGORIES[category]: _COLOURS[category] for category in categories}
    )


# -- Words for pages: counts, sizes and costs; what stands in tables and JSON alike ----------------

_NAMES = dict(zip(PAGE_SIZES, ("4 KB", "64 KB", "2 MB", "1 GB"), strict=True))
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def page_name(page_bytes: int) -> str:
    """Return a page size for people: `2 MB`."""
    return _NAMES[page_bytes]


def format_count(count: float) -> str:
    """Return a count with three digits: `24.4 M`, `812`."""
    for step, letter in _STEPS:
        if abs(count) >= step:
            value = count / step
            return f"{value:.{max(0, 2 - len(str(int(abs(value)))) + 1)}f} {letter}"
    return f"{count:.0f}"

"""A trace, its ranking and its check for people, as pictures and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from rater.lab.trace.ranking import (
    BenefitCheck,
    CheckedMapping,
    Loads,
    PageCosts,
    RankedMapping,
    benefits,
    best_within,
    by_saving,
    different_mappings,
    far_references,
    shown_categories,
    working_set,
)
from rater.lab.trace.tlb import (
    BASE_PAGE,
    CATEGORIES,
    PAGE_SIZES,
    PageReuse,
    PageTrace,
    PerCategory,
    Tlb,
    TraceHead,
    mapping_layout,
    mapping_name,
)
from rater.show.charts.comparison import StackedRow, stacked_chart
from rater.show.charts.vega import PlacedChart, sheet_svg
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
    TEXT,
    Field,
    Form,
    Line,
    Part,
    ViewTable,
)
from rater.show.screen.format import format_duration, sanitize
from rater.text.values import JsonFields, count, percent, to_json

# -- A trace, its ranking and its check as JSON ----------------------------------------------------

_HUGE = PAGE_SIZES[2]
_KINDS: dict[str, Loads | None] = {**{it.value: it for it in Loads}, "store": None}
_TRACE = JsonFields(
    "name suite size command engine tlb sample=rate elapsed_s native_s page_changes programs"
    " processes_not_traced=processes notes"
)
_CHECK = {
    BenefitCheck: JsonFields(
        "told predicted_s most_saved_s most_saved_noise_s mean_error max_error mappings"
    ),
    CheckedMapping: JsonFields("layout=name times_s median_s predicted measured noise error"),
}


class TraceView(Struct, frozen=True, kw_only=True):
    """A trace with what is told of it."""

    number: int
    trace: PageTrace
    tlb: Tlb
    costs: PageCosts
    ranked: Sequence[RankedMapping]
    loads: Loads
    budget: int | None  # large pages
    check: BenefitCheck | None


def pages_document(view: TraceView) -> dict[str, Any]:
    """Return the document of `rater lab trace --json`; times in ns where names say so, else s."""
    trace, costs, ranked = view.trace, view.costs, view.ranked
    touched = sum(trace.of_size(BASE_PAGE).pages)
    document: dict[str, Any] = {
        "rater": 1,
        "trace": view.number,
        **to_json(_TRACE.read(trace)),
        "references": _by_category(trace.references),
        "stores": _by_category(trace.stores),
        "pages": [
            _reuse(it)
            | {"working_set_99": working_set(it, 0.99), "working_set_999": working_set(it, 0.999)}
            for it in trace.reuse
        ],
        "costs": {
            **JsonFields("cycle_ns fault_base_ns fault_huge_ns").read(costs),
            "l1_miss_ns": {name: costs.l1_miss_ns(it) for name, it in _KINDS.items()},
            "walk_ns": {name: costs.walk_ns(touched, it) for name, it in _KINDS.items()},
        },
        "loads": view.loads,
        "mappings": [
            _mapping(one, benefit, costs)
            for one, benefit in zip(ranked, benefits(ranked, view.loads), strict=True)
        ],
        "best": mapping_layout(best_within(ranked, 1 << 62, view.loads).mapping.sizes),
    }
    if view.budget is not None:
        best = best_within(ranked, view.budget, view.loads)
        document["budget"] = {"pages": view.budget, "best": mapping_layout(best.mapping.sizes)}
    if view.check is not None:
        document["check"] = to_json(view.check, _CHECK)
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
    misses = ("l1_misses", "walks", "store_walks")
    return {
        "layout": mapping_layout(one.mapping.sizes),
        **JsonFields("large_pages large_bytes faults_saved_ns").read(one),
        **{name: sum(getattr(one.mapping, name)) for name in misses},
        "saved_ns": saved,
        "saved_cycles": {it: ns / costs.cycle_ns for it, ns in saved.items()},
        "benefit": benefit,
    }


# -- The same as tables and sentences --------------------------------------------------------------

_MOST_ROWS = 16
COUNT = Form(lambda values: [format_count(it) for it in values])
MILLISECONDS = Form(lambda values: [milliseconds(it) for it in values])  # of ns


def trace_parts(view: TraceView) -> Iterator[Part]:
    """Yield what a program refers to, by page size, category and reuse distance; mappings."""
    trace, tlb = view.trace, view.tlb
    size = f", {trace.size}" if trace.size else ""
    native = f", {format_duration(trace.native_s)} by itself" if trace.native_s is not None else ""
    what = f"trace {view.number}, {trace.name}{size}"
    yield Line(f"{what}: {format_count(sum(trace.references))} references", "bold")
    yield (
        f"traced by {trace.engine} in {format_duration(trace.elapsed_s)}{native}; "
        f"{'exact' if trace.rate == 1 else f'from {percent(trace.rate)} % of all pages'}; "
        f"TLB {tlb}"
    )
    yield from (Line(note, "yellow") for note in trace.notes)

    def far(of: PageReuse, level: int, category: int | None = None) -> int:
        return far_references(of, tlb.entries(of.page_bytes)[level], category)

    yield ViewTable(
        title="",
        rows=trace.reuse,
        fields=(
            Field(heading="page|size", value=lambda it: page_name(it.page_bytes), form=TEXT),
            Field(heading="pages|touched", value=lambda it: sum(it.pages), form=COUNT),
            Field(
                heading="memory|MB",
                value=lambda it: sum(it.pages) * it.page_bytes / 1e6,
                form=NUMBER,
            ),
            Field(heading="page|faults", value=lambda it: sum(it.faults), form=COUNT),
            Field(heading="pages for|99 %", value=lambda it: working_set(it, 0.99), form=COUNT),
            Field(
                heading="pages for|99.9 %",
                value=lambda it: working_set(it, 0.999),
                form=COUNT,
                optional=1,
            ),
            Field(heading="L1 misses|if LRU", value=lambda it: far(it, 0), form=COUNT, optional=2),
            Field(heading="walks|if LRU", value=lambda it: far(it, 1), form=COUNT),
            Field(heading="sampling|+- %", value=lambda it: it.error, form=PERCENT),
        ),
    )
    base, huge, mapping = trace.of_size(BASE_PAGE), trace.of_size(_HUGE), trace.mappings[0]
    used = shown_categories(trace)
    yield ViewTable(
        title="",
        rows=used,
        fields=(
            Field(heading="data|", value=lambda it: CATEGORIES[it], form=TEXT),
            Field(heading="refer-|ences", value=lambda it: trace.references[it], form=COUNT),
            Field(heading="4 KB|pages", value=lambda it: base.pages[it], form=COUNT),
            Field(heading="2 MB|pages", value=lambda it: huge.pages[it], form=COUNT),
            Field(heading="faults|4 KB", value=lambda it: base.faults[it], form=COUNT),
            Field(
                heading=f"farther|than {tlb.entries(BASE_PAGE)[1]}",
                value=lambda it: far(base, 1, it),
                form=COUNT,
            ),
            Field(
                heading="L1 misses|4 KB",
                value=lambda it: mapping.l1_misses[it],
                form=COUNT,
                optional=1,
            ),
            Field(heading="walks|4 KB", value=lambda it: mapping.walks[it], form=COUNT),
        ),
    )
    shares = (
        Field(
            heading=f"{CATEGORIES[i]}|%",
            value=partial(lambda i, row: row[1][i] or None, i),
            form=PERCENT,
        )
        for i in used
    )
    columns = (
        Field(heading="reuse distance|in 4 KB pages", value=lambda row: row[0]),
        Field(heading="references|%", value=lambda row: sum(row[1]), form=PERCENT),
        *shares,
    )
    yield ViewTable(title="", rows=octave_bars(base), fields=columns)
    yield from _ranking_parts(view)
    if view.check is not None:
        yield from check_parts(view.check)


def _ranking_parts(view: TraceView) -> Iterator[Part]:
    """Yield mappings, the best first, what they need and save, and the best within the budget."""
    trace, ranked, loads, budget = view.trace, view.ranked, view.loads, view.budget
    rows = by_saving([ranked[place] for place in different_mappings(trace, ranked)], loads)
    most_ns = rows[0].saved_ns(loads)
    native_ns = trace.native_s * 1e9 if trace.native_s else None

    def share(of: float | None) -> Callable[[RankedMapping], float | None]:
        return lambda it: it.saved_ns(loads) / of if of and of > 0 else None

    fields = (
        Field(
            heading="page sizes|",
            value=lambda it: mapping_name(it.mapping.sizes),
            form=TEXT,
            flexible=True,
        ),
        Field(heading="large|pages", value=lambda it: it.large_pages),
        Field(
            heading="L1 misses|saved", value=lambda it: it.l1_misses_saved, form=COUNT, optional=2
        ),
        Field(heading="walks|saved", value=lambda it: it.walks_saved, form=COUNT, optional=1),
        Field(heading="faults|ms", value=lambda it: it.faults_saved_ns, form=MILLISECONDS),
        Field(
            heading="ms if in-|dependent",
            value=lambda it: it.saved_ns(_LOADS[0]),
            form=MILLISECONDS,
            optional=3,
        ),
        Field(
            heading="ms if de-|pendent",
            value=lambda it: it.saved_ns(_LOADS[1]),
            form=MILLISECONDS,
            optional=3,
        ),
        Field(heading="saved|ms", value=lambda it: it.saved_ns(loads), form=MILLISECONDS),
        Field(heading="of the|run %", value=share(native_ns), form=PERCENT),
        Field(heading="of the|most %", value=share(most_ns), form=PERCENT),
    )
    yield ViewTable(title="", rows=rows, fields=fields, most=_MOST_ROWS)
    if rows[0].large_pages == 0 or most_ns <= 0:
        yield "No mapping to larger pages saves anything here."
    else:
        layout = mapping_layout(rows[0].mapping.sizes)
        pages = count(rows[0].large_pages, "large page")
        yield f"best: --pages '{layout}', {pages}, saves {milliseconds(most_ns)} ms by the model"
    if budget is not None:
        within = best_within(ranked, budget, loads)
        yield (
            f"with {count(budget, 'large page')}: {mapping_name(within.mapping.sizes)} "
            f"({count(within.large_pages, 'page')}, {milliseconds(within.saved_ns(loads))} ms)"
        )
    yield _costs_text(trace, view.costs)


_LOADS = (Loads.INDEPENDENT, Loads.DEPENDENT)


def _costs_text(trace: PageTrace, costs: PageCosts) -> str:
    touched = sum(trace.of_size(BASE_PAGE).pages)
    l1_miss, walk = (
        "..".join(f"{cost(it):.2f}" for it in _LOADS)
        for cost in (costs.l1_miss_ns, partial(costs.walk_ns, touched))
    )
    huge_ns = costs.fault_huge_ns
    huge = "not measured (no huge pages here)" if huge_ns is None else f"{huge_ns / 1e3:.0f} us"
    return (
        f"costs measured here, independent..dependent loads: an L1 miss {l1_miss} ns, a walk "
        f"{walk} ns at {format_count(touched)} pages; a fault "
        f"{(costs.fault_base_ns or 0) / 1e3:.2f} us (4 KB), {huge} (2 MB)"
    )


def heads_parts(heads: Sequence[TraceHead]) -> Iterator[Part]:
    """Yield which traces there are."""
    if not heads:
        yield Line("no traces stored yet; `rater lab trace SUITE/BENCHMARK` makes one")
    fields = (
        Field(heading="trace|", value=lambda it: it.number),
        Field(
            heading="when|UTC",
            value=lambda it: it.traced_at.replace("T", " ").removesuffix("Z"),
            form=TEXT,
        ),
        Field(heading="host|", value=lambda it: it.host, form=TEXT, flexible=True, optional=1),
        Field(
            heading="what|",
            value=lambda it: f"{it.suite}/{it.name}" if it.suite else it.name,
            form=TEXT,
        ),
        Field(heading="size|", value=lambda it: it.size, form=TEXT),
        Field(heading="% of all|pages", value=lambda it: it.rate, form=PERCENT, optional=2),
        Field(heading="traced|s", value=lambda it: it.elapsed_s, form=NUMBER),
    )
    yield ViewTable(title="", rows=heads, fields=fields)


def check_parts(check: BenefitCheck) -> Iterator[Part]:
    """Yield predicted against measured benefits."""
    fields = (
        Field(heading="page sizes|", value=lambda it: it.name, form=TEXT, flexible=True),
        Field(heading="runs|", value=lambda it: len(it.times_s), optional=1),
        Field(heading="median|s", value=lambda it: f"{it.median_s:.4f}"),
        Field(heading="predicted|% of most", value=lambda it: it.predicted, form=PERCENT),
        Field(heading="measured|% of most", value=lambda it: it.measured, form=PERCENT),
        Field(heading="noise|+- %", value=lambda it: it.noise, form=PERCENT),
        Field(heading="error|%", value=lambda it: it.error, form=CHANGE),
    )
    yield ViewTable(title="", rows=check.mappings, fields=fields)
    saved = (
        f"{check.most_saved_s * 1e3:.1f} ms +-{check.most_saved_noise_s * 1e3:.1f}, predicted "
        f"{check.predicted_s * 1e3:.1f} ms"
    )
    if check.told:
        yield (
            f"error in per cent of the maximum benefit ({saved}): "
            f"mean {percent(check.mean_error)} %, largest {percent(check.max_error)} %"
        )
    else:
        yield (
            f"Noise hides the largest saving of any mapping ({saved}): these runs cannot judge "
            "the predictions."
        )


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
        for distance, this_count in rows:
            octaves[distance.bit_length(), category] += this_count
    everything = octaves.total() + sum(reuse.pages)
    if not everything:
        return []
    last = max((octave for octave, _ in octaves), default=0)
    bars: Bars = [
        (_octave_name(n), [octaves[n, c] / everything for c in range(len(CATEGORIES))])
        for n in range(last + 1)
    ]
    return [*bars, ("first touch", [count / everything for count in reuse.pages])]


def _octave_name(n: int) -> str:
    if n < 2:
        return str(n)
    low, high = 1 << (n - 1), (1 << n) - 1
    return f"{_short(low)}-{_short(high)}"


def _short(value: int) -> str:
    return f"{value}" if value < 1 << 14 else f"{(value + 1) >> 10}k"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.05 %"


def reuse_svg(trace: PageTrace) -> str:
    """Return all page sizes as an SVG, a panel each."""
    all_bars = [(it.page_bytes, octave_bars(it)) for it in trace.reuse]
    # Rows of all panels are alike, so that they are compared along a line.
    titles = [title for title, _ in max((bars for _, bars in all_bars), key=len)]
    figures = []
    for page_bytes, bars in all_bars:
        known = dict(bars)
        chart = _chart(
            [(title, known.get(title, [0.0] * len(CATEGORIES))) for title in titles], trace
        )
        chart["signals"]["title"] = f"{page_name(page_bytes)} pages"
        figures.append(
            PlacedChart(kind="cpi", chart=chart, width=_WIDTH, height=len(titles) * _LINE, above=20)
        )
    what = sanitize(
        f"{trace.name}: page reuse distances, % of {format_count(sum(trace.references))}"
    )
    return sheet_svg(f"{what} references", figures, columns=2)


def _chart(rows: Sequence[tuple[str, list[float]]], trace: PageTrace) -> dict[str, Any]:
    used = shown_categories(trace)
    bars = []
    for title, shares in rows:
        known = ((CATEGORIES[i], 100 * shares[i]) for i in used)
        parts = [(name, size, [name, f"{size:.3g} % of all references"]) for name, size in known]
        total = sum(shares[i] for i in used)
        bars.append(StackedRow(title, True, parts, _percent(total) if total else ""))
    return stacked_chart(bars, {CATEGORIES[i]: _COLOURS[i] for i in used})


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


def milliseconds(ns: float) -> str:
    """Return nanoseconds as ms with three digits."""
    value = ns / 1e6
    places = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}"

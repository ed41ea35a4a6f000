"""A trace, its ranking and its check for people, as pictures and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rater.lab.trace.ranking import (
    BenefitCheck,
    CheckedMapping,
    Loads,
    PageCosts,
    PageMemory,
    RankedMapping,
    benefits,
    best_within,
    by_saving,
    different_mappings,
    far_references,
    page_memory,
    shown_categories,
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
from rater.show.charts.vega import PlacedChart, PlacedText, sheet_svg
from rater.show.console import Column, Columns, Printer
from rater.show.format import format_duration, sanitize
from rater.text.values import JsonFields, count, percent, to_json

# -- A trace, its ranking and its check as JSON ----------------------------------------------------

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
    """Return the document of `rater lab trace --json`; times in ns where names say so, else s."""
    touched = sum(trace.of_size(BASE_PAGE).pages)
    document: dict[str, Any] = {
        "rater": 1,
        "trace": number,
        **to_json(_TRACE.of(trace)),
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
        document["check"] = to_json(check, _CHECK)
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
        **JsonFields("large_pages large_bytes faults_saved_ns").of(one),
        **{name: sum(getattr(one.mapping, name)) for name in misses},
        "saved_ns": saved,
        "saved_cycles": {it: ns / costs.cycle_ns for it, ns in saved.items()},
        "benefit": benefit,
    }


# -- A trace and its ranking for people ------------------------------------------------------------

_MOST_ROWS = 16


def print_trace(
    trace: PageTrace,
    tlb: Tlb,
    printer: Printer,
    number: int,
) -> None:
    """Print what a program refers to, by page size and category."""
    size = f", {trace.size}" if trace.size else ""
    native = f", {format_duration(trace.native_s)} by itself" if trace.native_s is not None else ""
    what = f"trace {number}, {trace.name}{size}"
    printer.line(f"{what}: {format_count(sum(trace.references))} references", "bold")
    printer.prose(
        f"traced by {trace.engine} in {format_duration(trace.elapsed_s)}{native}; "
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
    printer.line()
    legend, *lines = reuse_lines(trace, BASE_PAGE, printer.width)
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
        of.right("pages|touched", lambda it: format_count(it[0].pages)),
        of.right("memory|MB", lambda it: megabytes(it[0].memory_bytes)),
        of.right("page|faults", lambda it: format_count(it[0].faults)),
        of.right("pages for|99 %", lambda it: format_count(it[0].working_set_99)),
        of.right("pages for|99.9 %", lambda it: format_count(it[0].working_set_999), optional=1),
        of.right("L1 misses|if LRU", lambda it: format_count(_far(it[1], tlb, 0)), optional=2),
        of.right("walks|if LRU", lambda it: format_count(_far(it[1], tlb, 1))),
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
        of.right("refer-|ences", lambda it: format_count(trace.references[it])),
        of.right("4 KB|pages", lambda it: format_count(base.pages[it])),
        of.right("2 MB|pages", lambda it: format_count(huge.pages[it])),
        of.right("faults|4 KB", lambda it: format_count(base.faults[it])),
        of.right(
            f"farther|than {entries}", lambda it: format_count(far_references(base, entries, it))
        ),
        of.right("L1 misses|4 KB", lambda it: format_count(mapping.l1_misses[it]), optional=1),
        of.right("walks|4 KB", lambda it: format_count(mapping.walks[it])),
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
        of.right("L1 misses|saved", lambda it: format_count(it.l1_misses_saved), optional=2),
        of.right("walks|saved", lambda it: format_count(it.walks_saved), optional=1),
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
        f"{both([costs.walk_ns(touched, it) for it in ends])} ns at {format_count(touched)} "
        "pages; a fault "
        f"{(costs.fault_base_ns or 0) / 1e3:.2f} us (4 KB), {huge}"
    )


def print_heads(heads: Sequence[TraceHead], printer: Printer) -> None:
    """Print which traces there are."""
    if not heads:
        printer.line("no traces stored yet; `rater lab trace SUITE/BENCHMARK` makes one")
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


# -- Reuse distances as a picture: a bar for every doubling of the distance, by category -----------

# Okabe and Ito: told apart by those who do not see red and green.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#b8e186", "#cc79a7", "#9aa0a6")
_SIGNS = ("h", "m", "s", "d", "k", "o")  # in the terminal, where there are no colours
_LINE = 16.0  # of a bar, as in cpi.vega.json
_LEAST_WIDTH = 10
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


def reuse_lines(trace: PageTrace, page_bytes: int, width: int) -> list[str]:
    """Return one page size for a terminal: a letter for each category."""
    bars = octave_bars(trace.of_size(page_bytes))
    used = [i for i in range(len(CATEGORIES)) if trace.references[i]]
    legend = ", ".join(f"{_SIGNS[i]} {CATEGORIES[i]}" for i in used)
    lines = [f"reuse distance in {page_name(page_bytes)} pages, share of references: {legend}"]
    margin = max((len(title) for title, _ in bars), default=0)
    room = max(_LEAST_WIDTH, width - margin - 10)
    high = max((sum(shares) for _, shares in bars), default=0.0) or 1.0
    for title, shares in bars:
        bar, at = "", 0.0
        for category, share in enumerate(shares):
            at += share
            bar += _SIGNS[category] * (round(at / high * room) - len(bar))
        total = sum(shares)
        if total:
            lines.append(f"{title:>{margin}} {bar}{' ' if bar else ''}{_percent(total)}")
        else:
            lines.append(f"{title:>{margin}} -")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.05 %"


def reuse_svg(trace: PageTrace) -> str:
    """Return all page sizes as an SVG, a panel each."""
    all_bars = [(it.page_bytes, octave_bars(it)) for it in trace.reuse]
    longest = max(all_bars, key=lambda it: len(it[1]))[1]
    # Rows of all panels are alike, so that they are compared along a line.
    titles = [title for title, _ in longest]
    figures = []
    for page_bytes, bars in all_bars:
        known = dict(bars)
        rows = [(title, known.get(title, [0.0] * len(CATEGORIES))) for title in titles]
        figures.append(
            PlacedChart(
                "cpi",
                _chart(rows, trace),
                _WIDTH,
                len(rows) * _LINE,
                [PlacedText(0, -40, f"{page_name(page_bytes)} pages", weight="bold")],
                above=20,
            )
        )
    what = sanitize(
        f"{trace.name}: page reuse distances, % of {format_count(sum(trace.references))}"
    )
    return sheet_svg(f"{what} references", figures, columns=2)


def _chart(rows: Sequence[tuple[str, list[float]]], trace: PageTrace) -> dict[str, Any]:
    used = [i for i in range(len(CATEGORIES)) if trace.references[i]]
    data: dict[str, list[dict[str, Any]]] = {"titles": [], "bars": [], "totals": []}
    for row, (title, shares) in enumerate(rows):
        data["titles"].append({"row": row, "text": title, "lead": True})
        at = 0.0
        for category in used:
            to = at + 100 * shares[category]
            if to > at:
                name = CATEGORIES[category]
                data["bars"].append(
                    {
                        "row": row,
                        "from": round(at, 6),
                        "to": round(to, 6),
                        "part": name,
                        "colour": _COLOURS[category],
                        "card": [name, f"{to - at:.3g} % of all references"],
                    }
                )
            at = to
        data["totals"].append(
            {"row": row, "at": round(at, 6), "text": _percent(at / 100) if at else ""}
        )
    legend, x = [], 0.0
    for category in used:
        legend.append({"x": x, "text": CATEGORIES[category], "colour": _COLOURS[category]})
        x += 22 + 6.2 * len(CATEGORIES[category])
    return {
        "signals": {
            "rows": len(rows),
            "high": max((bar["to"] for bar in data["bars"]), default=1.0),
            "longest": max(len(title) for title, _ in rows),
        },
        "data": data | {"legend": legend},
    }


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


def megabytes(size: float) -> str:
    """Return bytes as MB (10^6), with decimals where they are few."""
    value = size / 1e6
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(ns: float) -> str:
    """Return nanoseconds as ms with three digits."""
    value = ns / 1e6
    places = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}"

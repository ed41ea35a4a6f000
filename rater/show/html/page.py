"""The page that tells a run, or several beside each other, to someone who was not there."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from rater.analysis.compare.barrier import compare_with_barrier
from rater.analysis.compare.model import Comparison
from rater.analysis.compare.scaling import Scaling
from rater.analysis.compare.scaling_samples import orders, smt_yields
from rater.analysis.divots.model.finding import RecurringDivot
from rater.analysis.results.copies import median_copy_times, normalise
from rater.analysis.results.copy_table import copy_rows
from rater.analysis.results.counters import run_counts
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.show.charts.comparison import comparison_chart, cpi_chart, scaling_charts
from rater.show.charts.machine import colour_span, machine_html, machine_rows
from rater.show.charts.measured import DrawnMeasure
from rater.show.charts.pairs import RunPair, changed_places, pair_charts, pair_parts
from rater.show.charts.vega import Chart, Html, element, joined
from rater.show.compare.comparison import comparison_parts
from rater.show.compare.scaling import scaling_parts
from rater.show.html.shell import asset, html_parts, own_script, page_html, template
from rater.show.html.story import ReportRun, machine_words, run_data, run_texts, story
from rater.show.results.copies import (
    copies_document,
    copy_parts,
    copy_rows_document,
    copy_rows_parts,
)
from rater.show.results.cpu_use import (
    account_parts,
    counter_parts,
    cpu_parts,
    disturbance_facts,
    energy_parts,
)
from rater.show.results.placement import memory_parts, metric_parts, placement_facts
from rater.show.results.run import failed_facts, results_parts
from rater.show.results.run_document import summary_document
from rater.show.results.windows import barrier_parts
from rater.show.screen.document import NUMBER, TEXT, Field, Line, ViewTable, facts
from rater.show.screen.format import format_duration, format_gigabytes, run_title, sanitize
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, group_by_key, to_json

# -- The page that tells a run, or several, to someone who was not there: one HTML file ------------
#
# Words and tables are those of the terminal: parts of the same documents (`html_parts`);
# pictures are drawn by Vega in the reader's browser, from the data of `page_data`. The
# page asks the network for nothing, and its Content-Security-Policy would not let it.

_SCRIPTS = (
    *("state", "cards", "charts", "panels", "machine", "timeline", "tables"),
    *("paper", "start"),
)
_SKIP = {"pictures": "to the pictures", "when": "to who ran when", "results": "to the tables"}
_MOST_ROWS = 40  # of a table that is there at once
_MOST_PAIRED = 12  # benchmarks of two runs that have pictures of their own
_SPECS = ("panel", "brackets", "timeline", "tracks", "comparison", "scaling", "cpi", "model")


def report_html(runs: Sequence[ReportRun], library: str, together: RunSet | None = None) -> str:
    """Return the page of one run or several; `library` is Vega as a script (`charts.vega`).

    `together`: what several come to beside each other.
    """
    several = len(runs) > 1
    ranges = common_ranges(runs)
    drawn = [run_data(page_run, ranges) for page_run in runs]
    body = joined(
        *(compared(runs, together) if together else ()),
        element(
            "div",
            *(
                story(
                    page_run,
                    machine_html(data["machine"], data["slowdowns"][0]),
                    several=several,
                    first=page_run is runs[0],
                )
                for page_run, data in zip(runs, drawn, strict=True)
            ),
            class_="stories",
        ),
    )
    # Of a run at least it is known on which NUMA nodes its copies were on.
    placed = any(page_run.picture.groups for page_run in runs)
    cpi = cpi_chart([(f"run {it.run.head.run}", run_counts(it.run).benchmarks) for it in runs])
    scaling, study = (together.scaling, together.study) if together else (None, None)
    data = {
        "runs": drawn,
        "spans": _spans(drawn),
        "comparison": comparison_chart(together.comparison) if together else None,
        "scaling": scaling_charts(scaling.curves) if scaling else None,
        "models": study.models if study else None,
        "pair": _pair_data(together.pair) if together and together.pair else None,
        "cpi": cpi,
        "differing": _differing(together.comparison) if together else [],
        "measure": _measure_data(runs[0].picture.measure),
        "specs": {name: json.loads(asset(f"{name}.vega.json")) for name in _SPECS},
    }
    main = template(
        "page.html",
        body=joined(body, _cpi(cpi)) if cpi else body,
        **_picture_words(runs[0].picture.measure),
        order="Copies are grouped by NUMA node; its number is below. " if placed else "",
        several=' class="several"' if several else "",
        details=joined(*(_details(page_run, several=several) for page_run in runs)),
    )
    return page_html(
        _page_title(runs),
        main,
        data,
        skip=_SKIP,
        styles=["page.css"],
        scripts=[library, own_script(*_SCRIPTS)],
    )


def _measure_data(measure: DrawnMeasure) -> dict[str, Any] | None:
    """Return what the pictures are of for their cards and colours; None: of times."""
    if measure.is_time:
        return None
    unit = sanitize(measure.unit)
    return {"name": sanitize(measure.name), "unit": unit, "rises": not measure.highest_is_worst}


def _picture_words(measure: DrawnMeasure) -> dict[str, str]:
    """Return the words of the page's template that say what a dot stands for."""
    if measure.is_time:
        return {"heading": "The time of every copy", "dot": "time", "values": "Times"}
    dot = html.escape(sanitize(f"{measure.quantity}{measure.direction}"))
    name = html.escape(sanitize(measure.name))
    return {"heading": f"{name} of every copy", "dot": dot, "values": "Values"}


def _differing(comparison: Comparison) -> list[tuple[str, str | None]]:
    """Return the benchmarks, with their tunes, in which a point differs from the first.

    By its verdict; where one run each has none, by as much as `same` allows.
    """

    def differs(speedup: RatioInterval) -> bool:
        if speedup.p is None:
            return abs(speedup.ratio - 1) > speedup.margin
        return speedup.verdict in (Decision.BETTER, Decision.WORSE, Decision.RARELY)

    return [
        (sanitize(row.name), row.tune)
        for row in comparison.benchmarks
        if any(cell.speedup is None or differs(cell.speedup) for cell in row.cells)
    ]


def _pair_data(pair: RunPair) -> dict[str, Any]:
    """Return what is drawn of two runs; `spans`: how far the colours of each of its maps reach."""
    charts = pair_charts(pair, _MOST_PAIRED)
    titles = ("", *(panel["title"] for panel in charts["panels"]))
    maps = zip(titles, charts["maps"], strict=True) if charts["maps"] else ()
    return charts | {"spans": {title: colour_span(one["cpus"].values()) for title, one in maps}}


def _cpi(chart: Chart) -> Html:
    """Return the room of the CPI's bars."""
    return element(
        "section",
        element("h2", "Where the cycles go"),
        element("p", f"{chart['unit']}; counted by the hardware (--counters)", class_="how"),
        element("div", id="cpi"),
        class_="tables",
    )


def _spans(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how far the colours of the machines reach, by the title of a panel; "" is of all.

    One scale for all runs of the page: the same colour is the same slowdown.
    """
    shares: dict[str, list[float]] = {}
    for run in runs:
        titles = ("", *(panel["title"] for panel in run["panels"]))
        for title, slow in zip(titles, run["slowdowns"], strict=True):
            shares.setdefault(title, []).extend(slow["cpus"].values())
    return {title: colour_span(of) for title, of in shares.items()}


def _page_title(runs: Sequence[ReportRun]) -> str:
    names = []
    for page_run in runs:
        head = page_run.run.head
        what_ran = ", ".join(part for part in run_title(head.suite, head.benchmarks) if part)
        names.append(
            f"run {head.run}: {what_ran}" + (f" on {head.hostname}" if head.hostname else "")
        )
    return " | ".join(names)


def _details(page_run: ReportRun, *, several: bool) -> Html:
    """Return the tables of a run, its warnings, how it was measured, and its settings.

    Of several, how each was measured waits to be opened: it is much the same of all.
    """
    name = f", run {page_run.run.head.run}" if several else ""
    results = element("h2", f"Results{name}")
    kind, title = ("details", "summary") if several else ("section", "h2")
    measured = element(title, f"How it was measured{name}")
    parts = (
        element("section", results, *_results(page_run), class_="tables"),
        element(kind, measured, *_how_measured(page_run), class_="tables"),
    )
    return element("div", *parts) if several else joined(*parts)


_MOST_COPIES = 512  # rows of the table; `rater export` has all
_MOST_PRINTED = 60  # of them on paper, as `page.css` has it: the others would be ten pages


def _results(page_run: ReportRun) -> Iterator[Html]:
    summary = page_run.summary
    pair = compare_with_barrier(summary, page_run.barrier) if page_run.barrier else None
    document = summary_document(summary, pair)
    notes = (("note", remark) for remark in document["remarks"])
    yield html_parts(
        results_parts(document),
        barrier_parts(document["comparison"]) if pair else (),
        metric_parts(document["metrics"]),
        energy_parts(document),
        account_parts(document),
        [facts([*failed_facts(document["failed"]), *notes])],
    )
    times = normalise(page_run.cells, median_copy_times(page_run.cells))
    copy_times = copies_document(summary.head, times, summary.head)
    yield element("h3", "Copies")
    copies = html_parts(copy_parts(copy_times, summary.head))
    if len(times) <= _MOST_ROWS:
        yield copies
    else:
        words = f"the statistics of {len(times)} brackets"
        yield element("details", element("summary", words), copies)
    rows = copy_rows_document(copy_rows(page_run.run, counters=page_run.readings), None)
    table = html_parts(copy_rows_parts(rows[:_MOST_COPIES], is_terminal=False))
    which = f"the {_MOST_COPIES} slowest of {len(rows)}" if len(rows) > _MOST_COPIES else "all"
    is_long = len(rows) > _MOST_PRINTED
    printed = element("p", f"On paper the first {_MOST_PRINTED}.", class_="printed")
    summary_words = element("summary", f"a row a copy ({which})")
    yield element("details", summary_words, printed if is_long else "", table, class_="rows")


def _how_measured(page_run: ReportRun) -> Iterator[Html]:
    summary = page_run.summary
    counts = run_counts(page_run.run)
    notable = disturbance_facts(to_json(page_run.readings.notable))
    yield html_parts(
        [facts([*placement_facts(summary.proof), *notable])],
        memory_parts(summary.proof),
        cpu_parts(page_run.readings) if page_run.readings.cpus else (),
        counter_parts(counts) if counts.benchmarks else (),
    )
    yield element("h3", "The run")
    yield html_parts([facts(_run_facts(page_run))])
    if any(used.command for used in summary.run.benchmarks):
        yield element("h3", "Benchmarks as they were run")
        yield html_parts([ViewTable(title="", rows=summary.run.benchmarks, fields=_USED)])
    if summary.run.settings:
        yield element("h3", "Settings of the machine")
        words = f"{len(summary.run.settings)} settings"
        settings = html_parts([facts(summary.run.settings)])
        yield element("details", element("summary", words), settings, class_="settings")


_USED = (
    Field(heading="benchmark", value=attrgetter("name"), form=TEXT),
    Field(heading="reference|s", value=attrgetter("reference_s"), form=NUMBER),
    Field(heading="command", value=attrgetter("command"), form=TEXT),
    Field(heading="compiler", value=attrgetter("compiler"), form=TEXT),
    Field(heading="flags", value=attrgetter("flags"), form=TEXT),
)


_FACTS = JsonFields(
    "head.uuid started=head.started_at host=head.hostname machine=host.product"
    " processor=host.cpu_model host.packages NUMA_nodes=host.nodes host.cores CPUs=host.pus"
    " host.microcode head.suite head.size head.tune head.mode head.order head.copies head.layout"
    " head.directory"
)


def _run_facts(page_run: ReportRun) -> list[tuple[str, str]]:
    """Return the facts of a run and its machine by name, in the words of the record."""
    run, head = page_run.run, page_run.run.head
    host, file, observed = run.host, run.imported, run.observed
    bound = sorted({cpu for placed in run.placements for cpu in placed.cpus or ()})
    discarded = f", the first {head.discard} not counted" if head.discard else ""
    values = {
        **_FACTS.read(run),
        "memory": None if host.memory_bytes is None else format_gigabytes(host.memory_bytes),
        "iterations": f"{head.iterations}{discarded}",
        "stagger": f"{head.stagger_ms:g} ms" if head.stagger_ms else None,
        "memory policy": head.memory,
        "timeout": None if head.timeout_s is None else format_duration(head.timeout_s),
        "wrapped in": head.wrap,
        "command line": head.command_line,
        "tags": _assignments(head.tags),
        "environment": _assignments(run.environment),
        "redacted": f"{', '.join(run.redacted)}: secrets by name or form; the database has their "
        "values"
        if run.redacted
        else None,
        "read from": file and f"{file.name} ({file.format}, sha256 {file.sha256})",
        "rater": head.rater_version,
        "looking at copies": observed
        and f"{observed.samples} samples, {observed.share * 100:.2g} % of one CPU",
        "CPUs used": format_list(bound),
    }
    shown = ((name.replace("_", " "), value) for name, value in values.items())
    return [(name, str(value)) for name, value in shown if value not in (None, "")]


def _assignments(pairs: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs)


# -- What a page of several runs says of them beside each other: results, divots, differences ------


class PagePart(Struct, frozen=True):
    """What a study adds to the page of its runs."""

    title: str
    first: Html  # above the comparison
    sections: tuple[Html, ...]  # below it
    models: list[dict[str, Any]]  # what model.vega.json draws


class RunSet(Struct, frozen=True, kw_only=True):
    """Several runs beside each other."""

    comparison: Comparison
    scaling: Scaling | None  # None: all have the same number of copies
    notes: tuple[str, ...] = ()  # points that have no runs, runs whose pictures are left out
    between: tuple[RecurringDivot, ...] = ()  # divots that come back, or do not
    study: PagePart | None = None  # that the points are of
    pair: RunPair | None = None  # two runs over one axis; None: others, or they do not fit


def common_ranges(runs: Sequence[ReportRun]) -> dict[tuple[str, str | None], tuple[float, float]]:
    """Return one axis in seconds for each benchmark of several runs, so that they compare."""
    if len(runs) < 2:
        return {}
    ends_by_panel = group_by_key(
        ((panel.benchmark, panel.tune), end)
        for page_run in runs
        for panel in page_run.picture.panels
        if panel.dots
        for end in (panel.low, panel.high)
    )
    return {key: (min(ends), max(ends)) for key, ends in ends_by_panel.items()}


def compared(runs: Sequence[ReportRun], together: RunSet) -> Iterator[Html]:
    """Yield what several runs come to beside the first of them; nothing of one run.

    What else they differ in than what is compared stands first: it may be why.
    """
    comparison = together.comparison
    ran = [
        element("p", line)
        for line in (_shared_words(runs, run_texts), _shared_words(runs, _where))
        if line
    ]
    notes = [Line(note, "yellow") for note in together.notes]
    yield element(
        "section",
        element("header", element("h1", _several_title(together)), *ran),
        *([together.study.first] if together.study else []),
        element("h2", "Beside each other"),
        element(
            "p",
            f"Speedup over {comparison.sides[0].label}: right of the line is faster, the bar is "
            "the interval. \u25b6 better, \u25c0 worse, \u25cf the same, \u25c7 inconclusive.",
            class_="how",
        ),
        element(
            "div",
            element("div", id="comparison"),
            element("div", html_parts([*notes, *comparison_parts(comparison)])),
            class_="beside",
        ),
        class_="tables",
    )
    if together.study is not None:
        yield from together.study.sections
    if together.pair is not None:
        yield _pair(together.pair, runs[-1])
    if together.scaling is not None:
        yield _scaling(together.scaling)
    differences = [f"{one.kind}: {one.summary}" for one in together.between]
    none = "no CPU, NUMA node or copy stands out in more than one run"
    yield element("section", element("h2", "What comes back"), html_parts(differences or [none]))


def _pair(pair: RunPair, after: ReportRun) -> Html:
    """Return two runs copy by copy, over one axis of places, and on the machine of the second."""
    first, second = pair.runs
    several, name = len(pair.benchmarks), pair.measure.quantity
    of_several = (
        f": the {_MOST_PAIRED} benchmarks of {several} that changed most"
        if several > _MOST_PAIRED
        else ""
    )
    rooms = [
        (
            "pair-places",
            f"Copies of run {first} are grey, those of run {second} black, by {pair.axis}"
            f"{of_several}.",
        ),
        (
            "pair-scatter",
            f"A dot is a copy: across its {name} in run {first}, up that in run {second}; on the "
            "dashed line both are the same.",
        ),
    ]
    if any(row.has_order for row in pair.benchmarks):
        order = "times" if pair.measure.is_time else pair.measure.quantity
        rooms.append(("pair-ranks", f"All copies in the order of their {order}."))
    return element(
        "section",
        element("h2", "Copy by copy"),
        element(
            "div",
            element("div", html_parts(pair_parts(pair))),
            *([_changed_machine(pair, after)] if pair.axis == "CPU" else []),
            class_="beside",
        ),
        *(
            joined(
                element("p", words, class_="how"),
                element("div", id=name, class_="scaling"),
            )
            for name, words in rooms
        ),
        class_="tables",
    )


def _changed_machine(pair: RunPair, after: ReportRun) -> Html:
    """Return the map of differences: each CPU by how its copies changed."""
    first, second = pair.runs
    measure = pair.measure
    what = (
        f"their times in run {second} over those in {first}"
        if measure.is_time
        else f"their {measure.name} in run {second} over that in {first}{measure.direction}"
    )
    words = f"Each CPU by how its copies changed: {what}."
    drawing = machine_html(machine_rows(after.run), changed_places(pair.benchmarks))
    room = element("div", drawing, class_="map", data_run="pair")
    return element("div", element("p", words, class_="how"), room)


def _several_title(together: RunSet) -> str:
    if together.study is not None:
        return together.study.title
    return "; ".join(side.label for side in together.comparison.sides)


def _where(page_run: ReportRun) -> list[str]:
    host = page_run.run.head.hostname
    return [*([f"on {host}"] if host else []), *machine_words(page_run)]


def _shared_words(
    runs: Sequence[ReportRun], words_of_run: Callable[[ReportRun], Sequence[str]]
) -> str:
    """Return the words that all runs share, then those of single runs behind their numbers."""
    words = {page_run.run.head.run: words_of_run(page_run) for page_run in runs}
    first, *others = words.values()
    shared = [word for word in first if all(word in other for other in others)]
    names_by_words = group_by_key(
        (", ".join(word for word in of_run if word not in shared), run)
        for run, of_run in words.items()
    )
    distinct = [
        f"{'run' if len(of) == 1 else 'runs'} {', '.join(map(str, of))}: {left}"
        for left, of in names_by_words.items()
        if left
    ]
    return "; ".join(([", ".join(shared)] if shared else []) + distinct)


def _scaling(scaling: Scaling) -> Html:
    smt, rotated = smt_yields(scaling.samples), orders(scaling.samples)
    parts = html_parts(scaling_parts(scaling, smt, rotated))
    return element(
        "section",
        element("h2", "More copies"),
        element(
            "p",
            "Throughput against the number of copies: dots are geometric means of runs, as in the "
            "table, with a line from the lowest to the highest. Dashed: linear from the smallest "
            "number; the curve: the Universal Scalability Law where it fits. In a ring: the knee. "
            "Shaded: copies share cores, darker: CPUs.",
            class_="how",
        ),
        element("div", id="scaling", class_="scaling"),
        element("details", element("summary", "in numbers"), parts),
        class_="tables",
    )

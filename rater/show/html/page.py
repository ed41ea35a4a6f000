"""The page that tells a run, or several, to someone who was not there: one HTML file.

Words and tables are those of the terminal (`PagePrinter` takes what is printed there);
pictures are drawn by Vega in the reader's browser, from the data of `page_data`. The
page asks the network for nothing, and its Content-Security-Policy would not let it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rater.analysis.compare.barrier import can_compare, compare_with_barrier
from rater.analysis.counters.counted import run_counts
from rater.analysis.results.copies import normalise, yardsticks
from rater.analysis.results.model import Summary
from rater.show.charts.comparison import comparison_chart
from rater.show.charts.cpi import cpi_chart
from rater.show.charts.machine import colour_span, machine_html
from rater.show.charts.markup import Html, element, joined
from rater.show.charts.model import model_charts
from rater.show.charts.scaling import scaling_charts
from rater.show.charts.vega import Chart
from rater.show.console.format import duration, gigabytes, what_ran
from rater.show.console.table import Column, Columns
from rater.show.html.data import PageRun, run_data
from rater.show.html.html import PagePrinter
from rater.show.html.several import Together, common_ranges, compared
from rater.show.html.shell import asset, own_script, page_html, template
from rater.show.html.story import story
from rater.show.results.barrier import print_beside
from rater.show.results.copies import CopiesView, print_copies
from rater.show.results.counters import print_counters
from rater.show.results.cpu_use import notable_text, print_cpus
from rater.show.results.energy import print_energy
from rater.show.results.metrics import print_metrics
from rater.show.results.placement import print_memory, print_placement
from rater.show.results.run import print_failed, print_results
from rater.text.cpuset import format_list

_SCRIPTS = ("state", "cards", "charts", "panels", "machine", "timeline", "tables", "start")
_SKIP = {"pictures": "to the pictures", "when": "to who ran when", "results": "to the tables"}
_MOST_ROWS = 40  # of a table that is there at once
_SPECS = ("panel", "brackets", "timeline", "comparison", "scaling", "cpi", "model")


def page_of(runs: Sequence[PageRun], library: str, together: Together | None = None) -> str:
    """Return the page of one run or several; `library` is Vega as a script (`charts.vega`).

    `together`: what several come to beside each other.
    """
    several = len(runs) > 1
    ranges = common_ranges(runs)
    drawn = [run_data(page_run, ranges) for page_run in runs]
    body = joined(
        *(compared(runs, together) if together else ()),
        *(
            story(
                page_run,
                machine_html(data["machine"], data["slowdowns"][0]["failed"]),
                several=several,
                first=page_run is runs[0],
            )
            for page_run, data in zip(runs, drawn, strict=True)
        ),
    )
    # Of a run at least it is known which lgroups its copies were on.
    lgroups = any(page_run.picture.groups for page_run in runs)
    cpi = cpi_chart([(f"run {it.run.head.run}", run_counts(it.run).benchmarks) for it in runs])
    scaling, lab = (together.scaling, together.lab) if together else (None, None)
    data = {
        "runs": drawn,
        "spans": _spans(drawn),
        "comparison": comparison_chart(together.comparison) if together else None,
        "scaling": scaling_charts(scaling.curves) if scaling else None,
        "models": model_charts((*lab.models, *lab.energy)) if lab else None,
        "cpi": cpi,
        "specs": {name: json.loads(asset(f"{name}.vega.json")) for name in _SPECS},
    }
    main = template(
        "page.html",
        body=joined(body, _cpi(cpi)) if cpi else body,
        order="Copies stand lgroup beside lgroup, with its number below. " if lgroups else "",
        several=' class="several"' if several else "",
        details=joined(*(_details(page_run, several=several) for page_run in runs)),
    )
    return page_html(
        _title(runs),
        main,
        data,
        skip=_SKIP,
        styles=["page.css"],
        scripts=[library, own_script(*_SCRIPTS)],
    )


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


def _title(runs: Sequence[PageRun]) -> str:
    names = []
    for page_run in runs:
        head = page_run.run.head
        what = ", ".join(part for part in what_ran(head.suite, head.benchmarks) if part)
        names.append(f"run {head.run}: {what}" + (f" on {head.hostname}" if head.hostname else ""))
    return " | ".join(names)


def _details(page_run: PageRun, *, several: bool) -> Html:
    """Return the tables of a run, its warnings, how it was measured, and its settings.

    Of several, how each was measured waits to be opened: it is much the same of all.
    """
    name = f", run {page_run.run.head.run}" if several else ""
    results = element("h2", f"Results{name}")
    kind, title = ("details", "summary") if several else ("section", "h2")
    measured = element(title, f"How it was measured{name}")
    return joined(
        element("section", results, *_results(page_run), class_="tables"),
        element(kind, measured, *_how_measured(page_run), class_="tables"),
    )


def _results(page_run: PageRun) -> Iterator[Html]:
    summary, printer = page_run.summary, PagePrinter()
    print_results(summary, printer)
    if page_run.barrier is not None and can_compare(summary.head, page_run.barrier.head):
        print_beside(compare_with_barrier(summary, page_run.barrier), printer)
    if summary.metrics:
        print_metrics(summary.metrics, printer)
    print_energy(summary, printer)
    print_failed(summary.failed, printer)
    printer.some([f"note: {remark}" for remark in summary.remarks], "yellow")
    yield printer.take()
    view = CopiesView(
        head=summary.head,
        baseline=summary.head,
        baseline_iteration=None,
        drop=0,
        times=normalise(page_run.cells, yardsticks(page_run.cells)),
        pairs=(),
    )
    print_copies(view, printer)
    yield element("h3", "Copies")
    copies = printer.take()
    if len(view.times) <= _MOST_ROWS:
        yield copies
    else:
        words = f"the statistics of {len(view.times)} brackets, and the slowest copies"
        yield element("details", element("summary", words), copies)


def _how_measured(page_run: PageRun) -> Iterator[Html]:
    summary, head, printer = page_run.summary, page_run.run.head, PagePrinter()
    print_placement(summary.proof, printer)
    notable = notable_text(page_run.readings.notable, head.run)
    if notable is not None:
        printer.prose(notable, "yellow")
    print_memory(summary.proof, printer)
    if page_run.readings.cpus:
        print_cpus(page_run.readings, printer)
    counts = run_counts(page_run.run)
    if counts.benchmarks:
        print_counters(counts, printer)
    yield printer.take()
    yield element("h3", "The run")
    yield _pairs(_run_facts(page_run))
    if summary.used and any(used.command for used in summary.used):
        yield element("h3", "Benchmarks as they were run")
        printer.table(_used_columns(summary))
        yield printer.take()
    if summary.settings:
        yield element("h3", "Settings of the machine")
        yield element(
            "details",
            element("summary", f"{len(summary.settings)} settings"),
            _pairs(summary.settings),
        )


def _pairs(pairs: Sequence[tuple[str, str]]) -> Html:
    rows = [element("tr", element("th", k, scope="row"), element("td", v)) for k, v in pairs]
    return element(
        "div",
        element("table", element("tbody", *rows), class_="pairs"),
        class_="scroll",
        tabindex=0,
    )


def _run_facts(page_run: PageRun) -> list[tuple[str, str]]:
    """Return what is known of a run and its machine by name, in the words of the record."""
    run, head = page_run.run, page_run.run.head
    host, file, observed = run.host, run.imported, run.observed
    bound = sorted({cpu for placed in run.placements for cpu in placed.cpus or ()})
    discarded = f", the first {head.discard} not counted" if head.discard else ""
    facts: dict[str, object] = {
        "uuid": head.uuid,
        "started": head.started_at,
        "host": head.hostname,
        "machine": host.product,
        "processor": host.cpu_model,
        "packages": host.packages,
        "lgroups": host.nodes,
        "cores": host.cores,
        "CPUs": host.pus,
        "memory": None if host.memory_bytes is None else gigabytes(host.memory_bytes),
        "microcode": host.microcode,
        "suite": head.suite,
        "size": head.size,
        "tune": head.tune,
        "mode": head.mode,
        "order": head.order,
        "copies": head.copies,
        "iterations": f"{head.iterations}{discarded}",
        "stagger": f"{head.stagger_ms:g} ms" if head.stagger_ms else None,
        "layout": head.layout,
        "memory policy": head.memory,
        "timeout": None if head.timeout_s is None else duration(head.timeout_s),
        "wrapped in": head.wrap,
        "command line": head.command_line,
        "directory": head.directory,
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
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _assignments(pairs: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs)


def _used_columns(summary: Summary) -> list[Column]:
    of = Columns(summary.used)
    return [
        of.left("benchmark", lambda one: one.name),
        of.right(
            "reference|s", lambda one: None if one.reference_s is None else f"{one.reference_s:g}"
        ),
        of.left("command", lambda one: one.command),
        of.left("compiler", lambda one: one.compiler or None),
        of.left("flags", lambda one: one.flags or None),
    ]

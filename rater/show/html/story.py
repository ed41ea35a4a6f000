"""The top of a page: what ran and what is slow, in words that lead to pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rater.analysis.divots.model.finding import PLACED, Analysis, Finding, Kind
from rater.analysis.results.copies import Cell
from rater.analysis.results.copy_table import CopyRow, copy_rows
from rater.analysis.results.cpu_use import RunCounters
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.score import Summary
from rater.analysis.results.series import phase_times
from rater.record.run import CopyStatus
from rater.record.stored import PER_HOUR, StoredRun, is_good
from rater.show.charts.machine import machine_rows, slowdowns
from rater.show.charts.panels import dot_kinds, drawn_number, group_values, panel_values
from rater.show.charts.picture import Dot, Picture
from rater.show.charts.timeline import RunKey, timeline
from rater.show.charts.vega import Html, element
from rater.show.html.shell import html_parts, template
from rater.show.results.divots import (
    can_judge,
    period_lines,
    remark_parts,
    verdict_lines,
    visible_line,
)
from rater.show.results.run import head_parts, run_words
from rater.show.results.to_json import evidence_line
from rater.show.screen.document import Line
from rater.show.screen.format import (
    format_clock,
    format_duration,
    format_gigabytes,
    format_number,
    format_together,
    sanitize,
)
from rater.system.process import typed_command
from rater.text.cpuset import format_list
from rater.text.values import count, group_by_key, percent, truncate_list

# -- The top of a page: what ran, its results, and what is slow in words that lead to pictures ----

_OPEN = 5  # divots whose words are there at once; the others unfold
# What firmware and SPEC's tools write where nobody has said it better.
_NAMELESS = ("could not determine", "system vendor system model name", "unknown")
_KERNEL = "kernel.release"  # among the settings of the machine
_LONG = 60  # letters
_MOST_METRICS = 3  # among the large figures


def story(page_run: ReportRun, machine: Html, *, several: bool, first: bool = True) -> Html:
    """Return what stands above the pictures of a run; `several`: there are other runs as well.

    `first`: its words are explained here. `machine`: drawn (`machine_html`).
    """
    _, *facts = head_parts(page_run.run.head)
    title = f"run {page_run.run.head.run}: {', '.join(run_texts(page_run))}"
    machine_line = ", ".join(machine_words(page_run))
    return element(
        "section",
        element(
            "header",
            element("h2" if several else "h1", title),
            html_parts(facts),
            element("p", machine_line) if machine_line else "",
            _figures(page_run),
            template("glossary.html") if first else "",
        ),
        element(
            "div",
            element("div", *_slow(page_run, several=several), class_="divots"),
            element(
                "div",
                element("h3" if several else "h2", "The machine"),
                element("div", machine, class_="map", data_run=page_run.run.head.run),
                class_="machine",
            ),
            class_="columns",
        ),
        class_="story",
        id=f"run-{page_run.run.head.run}",
    )


def run_texts(page_run: ReportRun) -> list[str]:
    """Return what ran as the terminal has it; of many benchmarks without a suite their number."""
    head = page_run.run.head
    what_ran, *more = run_words(head)
    if head.suite is None and len(what_ran) > _LONG:
        what_ran = count(len(head.benchmarks), "benchmark")
    return [what_ran, *more]


def score_lost(summary: Summary) -> float | None:
    """Return the share of the suite's score that slow copies cost, or None without such a share.

    As the suite's ratio is the geometric mean of the benchmarks' ratios, so is what is left
    of it: 1 less the geometric mean of 1 - (score lost) over the selected iterations.
    """
    kept_shares = [
        1 - iteration.score_lost
        for benchmark in summary.benchmarks
        for iteration in benchmark.iterations
        if iteration.selected and iteration.score_lost is not None
    ]
    if not kept_shares or min(kept_shares) <= 0:
        return None
    return 1 - math.exp(math.fsum(map(math.log, kept_shares)) / len(kept_shares))


class _Figure(Struct, frozen=True):
    """One large number at the head of a run, and the words below it."""

    value: str
    words: str
    is_lesser: bool = False  # it is no answer: it stands smaller than the verdict beside it


def _figures(page_run: ReportRun) -> Html:
    """Return the numbers at the head of a run; of a disturbed one its verdict is the first."""
    summary, head, divots = page_run.summary, page_run.run.head, page_run.divots
    is_disturbed = divots is not None and bool(divots.disturbed_times)
    verdict = _verdict_figure(page_run)
    lost = score_lost(summary)
    lost_words = f"of the score lost to slow copies{_without(summary)}"
    figures = [
        *([verdict] if is_disturbed else []),
        *_scores(summary),
        *_throughput(summary),
        *([] if lost is None else [_Figure(f"{percent(lost)} %", lost_words, is_disturbed)]),
        *([] if is_disturbed else [verdict]),
    ]
    stopped = sum(one.status is CopyStatus.INTERRUPTED for one in summary.failed)
    for many, how in ((len(summary.failed) - stopped, "failed"), (stopped, "interrupted")):
        if many:
            figures.append(_Figure(str(many), f"copy {'run' if many == 1 else 'runs'} {how}"))
    if head.elapsed_s:
        figures.append(_Figure(_lasted(head.elapsed_s), "from first start to last finish"))
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", figure.words),
                element("dd", figure.value),
                class_="figure lesser" if figure.is_lesser else "figure",
            )
            for figure in figures
        ),
        class_="figures",
    )


def _verdict_figure(page_run: ReportRun) -> _Figure:
    """Return how many divots a run has, or that nothing can be said of it."""
    findings, divots = _divots(page_run), page_run.divots
    if divots is not None and divots.disturbed:
        return _Figure("too disturbed", "to judge what is slow")
    if divots is None or not (can_judge(divots) or (divots.sure and findings)):
        return _Figure("not known", "divots")
    by_cpu = "" if divots.by_cpu is None else ", by CPU time"
    return _Figure(str(len(findings)), f"{'divot' if len(findings) == 1 else 'divots'}{by_cpu}")


def _scores(summary: Summary) -> Iterator[_Figure]:
    """Yield the results of the suite, or of the window of a mix."""
    for score in summary.suites:
        if score.kind == "all" and score.ratio is not None:
            tune = f"suite ratio, {score.tune}" if score.tune else "suite ratio"
            yield _Figure(format_number(score.ratio), tune)
    if summary.rotated is not None and summary.rotated.score is not None:
        yield _Figure(format_number(summary.rotated.score), f"score, {summary.rotated.unit}")
    if summary.mix is not None and summary.mix.selected and summary.mix.selected.ratio is not None:
        yield _Figure(format_number(summary.mix.selected.ratio), "ratio of the window")


def _throughput(summary: Summary) -> list[_Figure]:
    """Return what one benchmark did: its copies an hour, and the numbers that it reports.

    A staggered run has no rate to show: how far apart its copies start makes it.
    """
    if len(summary.scores) != 1:
        return []
    overall = summary.overall
    has_rate = overall is not None and overall.unit == PER_HOUR and not summary.staggered
    rate = [_Figure(format_number(overall.value), overall.unit)] if overall and has_rate else []
    reported = [
        _Figure(format_together([metric.value])[0], _metric_words(metric))
        for metric in summary.metrics
        if metric.value is not None
    ]
    return [*rate, *reported[:_MOST_METRICS]]


def _metric_words(metric: MetricResult) -> str:
    unit = f", {metric.unit}" if metric.unit else ""
    if metric.copies == 1:
        return f"{metric.name}{unit}"
    return f"{metric.name}{unit}: {metric.combine} of {metric.copies} copies"


def _lasted(elapsed_s: float) -> str:
    """Return how long a run took: on a clock, below a second in words (`0.12 s`, `3.1 ms`)."""
    if elapsed_s >= 1:
        return format_clock(elapsed_s)
    return f"{elapsed_s:.2f} s" if elapsed_s >= 0.1 else format_duration(elapsed_s)


def machine_words(page_run: ReportRun) -> list[str]:
    """Return the facts of the machine in words: its name, its processor, its parts."""
    host = page_run.run.host
    settings = dict(page_run.run.settings)
    names = (host.product, host.cpu_model)
    parts = [name for name in names if name and name.lower() not in _NAMELESS]
    sizes = {"package": host.packages, "NUMA node": host.nodes, "core": host.cores, "CPU": host.pus}
    parts += [count(number, word) for word, number in sizes.items() if number]
    parts += (
        [] if host.memory_bytes is None else [f"{format_gigabytes(host.memory_bytes)} of memory"]
    )
    parts += [f"Linux {settings[_KERNEL]}"] if _KERNEL in settings else []
    return parts


def _divots(page_run: ReportRun) -> list[Finding]:
    findings = page_run.divots.findings if page_run.divots else ()
    return [finding for finding in findings if not finding.explained]


def _without(summary: Summary) -> str:
    """Name the benchmarks that have no part in the score lost: copies of them failed."""
    names = [
        benchmark.benchmark
        for benchmark in summary.benchmarks
        if not any(
            iteration.selected and iteration.score_lost is not None
            for iteration in benchmark.iterations
        )
    ]
    return f" ({truncate_list(names, 3)} left out: no valid result)" if names else ""


def _slow(page_run: ReportRun, *, several: bool) -> Iterator[Html]:
    head, analysis = page_run.run.head, page_run.divots
    findings = _divots(page_run)
    title = (
        "What stands out, slow or fast"
        if any(finding.fast for finding in findings)
        else "What is slow"
    )
    yield element("h3" if several else "h2", title)
    if analysis is None:
        again = f"`rater divots {head.run}` makes it once more"
        yield html_parts([f"The search for divots failed; {again}."])
        return
    yield html_parts(verdict_lines(head, analysis, findings))
    # One list: the numbers are those of `rater divots`, which commands name.
    items = [_divot(place, finding, page_run) for place, finding in enumerate(findings, 1)]
    most = 0 if analysis.disturbed else _OPEN
    if items[:most]:
        yield element("ol", *items[:most])
    if items[most:]:
        rest = "smaller ones" if most else "found in a disturbed run: it may have caused them"
        words = element("summary", f"{len(items) - most} {rest}")
        yield element("details", words, element("ol", *items[most:], start=most + 1))
    yield html_parts(period_lines(analysis, findings))
    yield html_parts(remark_parts(analysis, analysis.findings))
    if findings:
        yield html_parts(
            [Line(visible_line(analysis.visible, by_cpu=analysis.by_cpu is not None), "dim")]
        )


def _divot(place: int, finding: Finding, page_run: ReportRun) -> Html:
    # Place first, and bold: what a reader looks for. Nothing is said that a terminal does not say.
    line = evidence_line(finding)
    lead, rest = (
        (finding.place, line[len(finding.place) :])
        if line.startswith(finding.place)
        else ("", line)
    )
    analysis = page_run.divots
    command = analysis.confirm[place - 1] if analysis and analysis.confirm else None
    return element(
        "li",
        element("b", lead) if lead else "",
        rest,
        " ",
        links_of(finding, page_run),
        element("code", typed_command(command), class_="next") if command else "",
        class_="dim" if finding.cost < 0.002 and not finding.fast else None,
    )


# -- Links from a divot's words to its pictures, with what of them a reader then sees chosen -------

_MOST_LINKED = 6


def links_of(finding: Finding, page_run: ReportRun) -> Html:
    """Return links to the panels of the benchmarks that it slows most; they choose its copies."""
    sizes: dict[tuple[str, str | None], float] = {}
    for cell in finding.cells:
        key = (cell.benchmark, cell.tune)
        sizes[key] = max(sizes.get(key, 0.0), abs(cell.slowdown - 1))
    places = {
        (panel.benchmark, panel.tune): place for place, panel in enumerate(page_run.picture.panels)
    }
    panel_keys = sorted((key for key in sizes if key in places), key=lambda key: -sizes[key])
    if not panel_keys:
        panel_keys = [
            key for key in places if not finding.benchmarks or key[0] in finding.benchmarks
        ][:1]
    by_cpu = page_run.picture.axis == "CPU" and bool(finding.cpus)
    chosen: dict[str, object] = {
        "field": "cpu" if by_cpu else "copy",
        "values": list(finding.cpus if by_cpu else finding.copies),
        "text": f"divot: {_name(finding)}",
        "run": page_run.run.head.run,
    }
    if finding.kind not in PLACED:
        chosen |= _part(finding, page_run)
    elif finding.benchmarks or finding.iterations:
        # Its copies are chosen everywhere: the same slow part shows in other benchmarks, or not.
        chosen["own"] = _part(finding, page_run)
    links = [
        element(
            "a",
            page_run.picture.panels[places[key]].title,
            href=f"#{panel_id(page_run.run.head.run, places[key])}",
            data_pick=json.dumps(chosen),
        )
        for key in panel_keys[:_MOST_LINKED]
    ]
    if not links:
        return Html("")
    more = f" and {len(panel_keys) - len(links)} more" if len(panel_keys) > len(links) else ""
    spaced = [part for link in links for part in (" ", link)]
    return element(
        "span", "picture:" if len(links) == 1 else "pictures:", *spaced, more, class_="links"
    )


def _name(finding: Finding) -> str:
    """Return what a divot is called where it stands alone: what is of all copies has no place."""
    if finding.kind in PLACED:
        return finding.place
    benchmarks = (
        ", ".join(finding.benchmarks[:2]) if 0 < len(finding.benchmarks) <= 2 else "benchmarks"
    )
    kind = (
        "NUMA nodes that take turns"
        if finding.kind is Kind.WANDERING
        else finding.kind.replace("-", " ")
    )
    name = f"{kind} of {finding.place}" if finding.has_place else f"{kind} in {benchmarks}"
    return f"{name}, {_iterations(finding.iterations)}" if finding.iterations else name


def _iterations(numbers: Sequence[int]) -> str:
    return f"iteration{'' if len(numbers) == 1 else 's'} {format_list(numbers)}"


def _part(finding: Finding, page_run: ReportRun) -> dict[str, object]:
    """Return of what a divot that is of no part of the machine is: benchmarks and iterations.

    `turns`: by iteration the NUMA nodes that were slow in it, where they take turns.
    """
    part: dict[str, object] = {}
    if finding.benchmarks:
        part["benchmarks"] = [sanitize(name) for name in finding.benchmarks]
    if finding.tune is not None:
        part["tune"] = finding.tune
    turns: dict[int, list[int]] = {}
    for word in str(dict(finding.details).get("turns", "")).split():
        place, node, _ = word.split(":")
        if int(place) < len(page_run.picture.iterations):
            turns.setdefault(page_run.picture.iterations[int(place)], []).append(int(node))
    if turns:
        return part | {"turns": turns}
    iterations = finding.iterations or sorted({cell.iteration for cell in finding.cells})
    return part | ({"its": list(iterations)} if iterations else {})


def panel_id(run: int, place: int) -> str:
    """Return the name of a panel as a place of the page."""
    return f"panel-{run}-{place}"


# -- What the pictures of a page are drawn from: dots, bars and the machine, as JSON values --------


class ReportRun(Struct, frozen=True, kw_only=True):
    """A run with all that a page says of it."""

    run: StoredRun
    summary: Summary
    cells: tuple[Cell, ...]
    picture: Picture
    divots: Analysis | None  # None: there was no search
    readings: RunCounters
    barrier: Summary | None = None  # what a steady run is compared with


def run_data(
    shown: ReportRun, ranges: Mapping[tuple[str, str | None], tuple[float, float]]
) -> dict[str, Any]:
    """Return what the pictures of one run are drawn from.

    `ranges`: the ends of each benchmark's axis in seconds, where it is that of several runs.
    """
    picture, run = shown.picture, shown.run.without_torn()
    lost, local_shares, starts = _lost(shown.summary), _local_shares(shown.summary), _starts(run)
    units = {
        used.name: {metric.name: metric.unit for metric in used.metrics} for used in run.benchmarks
    }
    more = {
        (row.benchmark, row.tune, row.iteration, row.copy): copy_words(
            row, units.get(row.benchmark, {})
        )
        for row in copy_rows(run, each=True, counters=shown.readings)
    }
    kinds: dict[RunKey, int] = {}
    panels: list[dict[str, Any]] = []
    for panel in picture.panels:
        key = (panel.benchmark, panel.tune)
        of_dots = dot_kinds(panel)
        kinds |= {_run_key(*key, dot): kind for dot, kind in of_dots.items()}
        values = panel_values(panel, of_dots, repeated=picture.repeated, ends=ranges.get(key))
        values["dots"] |= {
            "start": [starts.get(_run_key(*key, dot)) for dot in panel.dots],
            "local": [
                local_shares.get((panel.benchmark, dot.iteration, dot.copy)) for dot in panel.dots
            ],
            "more": [more.get(_run_key(*key, dot), "") for dot in panel.dots],
        }
        names = {"benchmark": sanitize(panel.benchmark), "tune": panel.tune, "lost": lost.get(key)}
        panels.append(values | names)
    return {
        "run": run.head.run,
        "axis": picture.axis,
        "names": list(picture.names),
        "groups": group_values(picture),
        "iterations": list(picture.iterations),
        "repeated": picture.repeated,
        "panels": panels,
        "timeline": timeline(shown.summary, run, kinds, phase_times(run)),
        "machine": machine_rows(run),
        "slowdowns": [slowdowns(panels), *(slowdowns([panel]) for panel in panels)],
    }


def copy_words(row: CopyRow, units: Mapping[str, str]) -> str:
    """Return where the time of a copy went, its memory and its metrics, those that are known.

    `units` are those of the metrics, by name.
    """
    shares = (
        ("waited for other copies", row.waited_own),
        ("for other processes", row.waited_others),
        ("waited for a CPU", row.waited if row.waited_own is None else None),
        ("slept", row.slept),
    )
    parts = [] if row.cpu_s is None else [f"CPU time {row.cpu_s:.4g} s"]
    parts += [f"{words} {percent(share, 0)} %" for words, share in shares if share is not None]
    parts += [] if row.memory_bytes is None else [f"{row.memory_bytes / 1e6:.4g} MB"]
    parts += [f"{name} {value:.4g} {units.get(name, '')}".rstrip() for name, value in row.metrics]
    parts += [] if row.exit == "ok" else [row.exit]
    return sanitize(", ".join(parts))


def _run_key(benchmark: str, tune: str | None, dot: Dot) -> RunKey:
    return benchmark, tune, dot.iteration, dot.copy


def _starts(run: StoredRun) -> dict[RunKey, float]:
    """Return when each copy's first good run began, in seconds of the run."""
    return {
        (row.benchmark, row.tune, row.iteration, row.copy): drawn_number(row.start_ns / 1e9)
        for row in reversed(run.copies)
        if row.start_ns is not None and is_good(row)
    }


def _local_shares(summary: Summary) -> dict[tuple[str, int, int], float]:
    """Return how local each copy's memory was, by benchmark, iteration and copy."""
    shares = group_by_key(
        ((proof.benchmark, proof.iteration, proof.copy), proof.local_share)
        for proof in summary.proof.copies
        if proof.local_share is not None
    )
    return {key: round(sum(of) / len(of), 4) for key, of in shares.items()}


def _lost(summary: Summary) -> dict[tuple[str, str | None], float]:
    """Return the most that slow copies cost each benchmark in a counted iteration."""
    lost_by_panel: dict[tuple[str, str | None], float] = {}
    for benchmark in summary.benchmarks:
        shares = [
            iteration.score_lost
            for iteration in benchmark.iterations
            if iteration.counted and iteration.score_lost
        ]
        if shares:
            lost_by_panel[benchmark.benchmark, benchmark.tune] = round(max(shares), 5)
    return lost_by_panel

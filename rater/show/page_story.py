"""The top of a page: what ran, what it came to, and what is slow in words that lead to pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from rater.analysis.confirm import next_command
from rater.analysis.divots.document import evidence_line
from rater.analysis.finding import Finding
from rater.analysis.score import Summary
from rater.show.divots import print_findings, visible_line
from rater.show.format import clock, count, number, percent, what_ran
from rater.show.page_data import Told
from rater.show.page_html import Html, PagePrinter, element
from rater.show.terminal import print_head

_OPEN = 5  # divots whose words are there at once; the others unfold
_MOST_LINKED = 6
_LONG = 60  # letters


def story(told: Told, *, several: bool) -> Html:
    """Return what stands above the pictures of a run; `several`: there are other runs as well."""
    printer = PagePrinter()
    print_head(told.run.head, printer)
    _, *facts = printer.parts
    name = element("h2" if several else "h1", _heading(told))
    return element(
        "section",
        element("header", name, *facts, _figures(told)),
        element(
            "div",
            element("div", *_slow(told, several=several), class_="divots"),
            element(
                "div",
                element("h3" if several else "h2", "The machine"),
                element("div", class_="map", data_run=told.run.head.run),
                class_="machine",
            ),
            class_="beside",
        ),
        class_="story",
        id=f"run-{told.run.head.run}",
    )


def _heading(told: Told) -> str:
    """Return what ran as the terminal has it; of many benchmarks without a suite their number."""
    head = told.run.head
    what, more = what_ran(head.suite, head.benchmarks)
    if head.suite is None and len(what) > _LONG:
        what = count(len(head.benchmarks), "benchmark")
    details = ", ".join(detail for detail in (head.size, head.tune) if detail)
    words = [f"{what} ({details})" if details else what, *([more] if more else [])]
    rotated = head.mode == "steady" and head.order == "rotated"
    words += [f"{head.mode} in rotated order" if rotated else head.mode]
    words += [count(head.copies, "copy", "copies")]
    words += [count(head.iterations, "iteration")] if head.iterations > 1 else []
    return f"run {head.run}: {', '.join(words)}"


def score_lost(summary: Summary) -> float | None:
    """Return the share of the suite's score that slow copies cost; None where that is not given.

    As the suite's ratio is the geometric mean of the benchmarks' ratios, so is what is left
    of it: 1 less the geometric mean of 1 - (score lost) over the selected iterations.
    """
    left = [
        1 - it.score_lost
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
        if it.selected and it.score_lost is not None
    ]
    if not left or min(left) <= 0:
        return None
    return 1 - math.exp(math.fsum(map(math.log, left)) / len(left))


def _figures(told: Told) -> Html:
    summary, head = told.summary, told.run.head
    figures: list[tuple[str, str]] = []
    for score in summary.suites:
        if score.kind == "all" and score.ratio is not None:
            tune = f"suite ratio, {score.tune}" if score.tune else "suite ratio"
            figures.append((number(score.ratio), tune))
    if summary.rotated is not None and summary.rotated.score is not None:
        figures.append((number(summary.rotated.score), f"score, {summary.rotated.unit}"))
    if summary.mix is not None and summary.mix.selected and summary.mix.selected.ratio is not None:
        figures.append((number(summary.mix.selected.ratio), "ratio of the window"))
    lost = score_lost(summary)
    if lost is not None:
        figures.append((f"{percent(lost)} %", "of the score lost to slow copies"))
    if told.divots is not None:
        found = sum(not one.explained for one in told.divots.findings)
        figures.append((str(found), "divot" if found == 1 else "divots"))
    if summary.failed:
        figures.append((str(len(summary.failed)), "copy runs failed"))
    if head.elapsed_s:
        figures.append((clock(head.elapsed_s), "from first start to last finish"))
    return element(
        "dl",
        *(
            element("div", element("dt", words), element("dd", value), class_="figure")
            for value, words in figures
        ),
        class_="figures",
    )


def _slow(told: Told, *, several: bool) -> Iterator[Html]:
    heading = "h3" if several else "h2"
    head, analysis = told.run.head, told.divots
    yield element(heading, "What is slow")
    if analysis is None:
        yield element("p", f"There was no search for divots: rater divots {head.run} makes one.")
        return
    found = [one for one in analysis.findings if not one.explained]
    printer = PagePrinter()
    if not found:
        print_findings(head, analysis, printer)
        yield printer.take()
        return
    items = [_divot(place, one, told) for place, one in enumerate(found, 1)]
    yield element("ol", *items[:_OPEN])
    if len(items) > _OPEN:
        yield element(
            "details",
            element("summary", f"{len(items) - _OPEN} smaller ones"),
            element("ol", *items[_OPEN:], start=_OPEN + 1),
        )
    explained = [one for one in analysis.findings if one.explained]
    if explained:
        yield element(
            "details",
            element("summary", f"{len(explained)} explained by the layout, no divots"),
            element("ul", *(element("li", evidence_line(one)) for one in explained)),
        )
    if analysis.failed:
        runs = count(analysis.failed, "copy run")
        printer.prose(f"{runs} that failed {'is' if analysis.failed == 1 else 'are'} left out.")
    printer.prose(visible_line(analysis.visible), "dim")
    yield printer.take()


def _divot(place: int, one: Finding, told: Told) -> Html:
    head = told.run.head
    # Place first, and bold: what a reader looks for. Nothing is said that a terminal does not say.
    line = evidence_line(one)
    lead, rest = (one.place, line[len(one.place) :]) if line.startswith(one.place) else ("", line)
    command = next_command(place, one, head)
    return element(
        "li",
        element("b", lead) if lead else "",
        rest,
        " ",
        _links(one, told),
        element("code", command, class_="next") if command else "",
        class_="dim" if one.cost < 0.002 and not one.fast else None,
    )


def _links(one: Finding, told: Told) -> Html:
    """Return links to the panels of the benchmarks that it slows most; they choose its copies."""
    sizes: dict[tuple[str, str | None], float] = {}
    for cell in one.cells:
        key = (cell.benchmark, cell.tune)
        sizes[key] = max(sizes.get(key, 0.0), abs(cell.slowdown - 1))
    places = {(p.benchmark, p.tune): n for n, p in enumerate(told.picture.panels)}
    wanted = sorted((key for key in sizes if key in places), key=lambda key: -sizes[key])
    if not wanted:
        wanted = [key for key in places if not one.benchmarks or key[0] in one.benchmarks][:1]
    by_cpu = told.picture.axis == "CPU" and bool(one.cpus)
    pick = {
        "field": "cpu" if by_cpu else "copy",
        "values": list(one.cpus if by_cpu else one.copies),
        "text": f"divot: {one.place}",
        "run": told.run.head.run,
    }
    links = [
        element(
            "a",
            told.picture.panels[places[key]].title,
            href=f"#{panel_id(told.run.head.run, places[key])}",
            data_pick=json.dumps(pick),
        )
        for key in wanted[:_MOST_LINKED]
    ]
    if not links:
        return Html("")
    more = f" and {len(wanted) - len(links)} more" if len(wanted) > len(links) else ""
    spaced = [part for link in links for part in (" ", link)]
    return element(
        "span", "picture:" if len(links) == 1 else "pictures:", *spaced, more, class_="links"
    )


def panel_id(run: int, place: int) -> str:
    """Return the name of a panel as a place of the page."""
    return f"panel-{run}-{place}"

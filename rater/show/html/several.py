"""What a page of several runs says of them beside each other: results, divots, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rater.analysis.compare.model import Comparison
from rater.analysis.divots.data.between import Between
from rater.analysis.models.lab import PageLab
from rater.analysis.scaling.curve import Scaling
from rater.analysis.scaling.pairs import orders, smt_yields
from rater.groups import grouped
from rater.show.charts.markup import Html, element
from rater.show.compare.table import print_comparison
from rater.show.html.data import PageRun
from rater.show.html.html import PagePrinter
from rater.show.html.lab import lab_gains, lab_sections
from rater.show.html.story import machine_words, words_of
from rater.show.scaling.table import print_scaling


@dataclass(frozen=True, slots=True)
class Together:
    """Several runs beside each other."""

    comparison: Comparison
    scaling: Scaling | None  # None: all have the same number of copies
    notes: tuple[str, ...] = ()  # points that have no runs, runs whose pictures are left out
    between: tuple[Between, ...] = ()  # divots that come back, or do not
    lab: PageLab | None = None  # the points are page layouts


def common_ranges(runs: Sequence[PageRun]) -> dict[tuple[str, str | None], tuple[float, float]]:
    """Return one axis in seconds for each benchmark of several runs, so that they compare."""
    if len(runs) < 2:
        return {}
    found = grouped(
        ((panel.benchmark, panel.tune), end)
        for page_run in runs
        for panel in page_run.picture.panels
        if panel.dots
        for end in (panel.low_s, panel.high_s)
    )
    return {key: (min(ends), max(ends)) for key, ends in found.items()}


def compared(runs: Sequence[PageRun], together: Together) -> Iterator[Html]:
    """Yield what several runs come to beside the first of them; nothing of one run.

    What else they differ in than what is compared stands first: it may be why.
    """
    comparison = together.comparison
    printer = PagePrinter()
    ran = [
        element("p", line)
        for line in (_shared_words(runs, words_of), _shared_words(runs, _where))
        if line
    ]
    printer.some(together.notes, "yellow")
    print_comparison(comparison, printer)
    yield element(
        "section",
        element("header", element("h1", _title(together)), *ran),
        *([lab_gains(together.lab)] if together.lab else []),
        element("h2", "Beside each other"),
        element(
            "p",
            f"Speedup over {comparison.sides[0].label}: right of the line is faster, the bar is "
            "the interval. \u25b6 better, \u25c0 worse, \u25cf the same, \u25c7 inconclusive.",
            class_="how",
        ),
        element("div", id="comparison"),
        printer.take(),
        class_="tables",
    )
    if together.lab is not None:
        yield from lab_sections(together.lab)
    if together.scaling is not None:
        yield _scaling(together.scaling)
    for one in together.between:
        printer.prose(f"{one.kind}: {one.summary}")
    if not together.between:
        printer.prose("no place has divots in any of the runs")
    yield element("section", element("h2", "What comes back"), printer.take())


def _title(together: Together) -> str:
    if together.lab is not None:
        return f"Page sizes, sweep {together.lab.sweep}"
    return "; ".join(side.label for side in together.comparison.sides)


def _where(page_run: PageRun) -> list[str]:
    host = page_run.run.head.hostname
    return [*([f"on {host}"] if host else []), *machine_words(page_run)]


def _shared_words(runs: Sequence[PageRun], words_of_run: Callable[[PageRun], Sequence[str]]) -> str:
    """Return the words that all runs share, then those of single runs behind their numbers."""
    words = {page_run.run.head.run: words_of_run(page_run) for page_run in runs}
    first, *others = words.values()
    shared = [word for word in first if all(word in other for other in others)]
    own = grouped(
        (", ".join(word for word in of_run if word not in shared), run)
        for run, of_run in words.items()
    )
    distinct = [
        f"{'run' if len(of) == 1 else 'runs'} {', '.join(map(str, of))}: {left}"
        for left, of in own.items()
        if left
    ]
    return "; ".join(([", ".join(shared)] if shared else []) + distinct)


def _scaling(scaling: Scaling) -> Html:
    printer = PagePrinter()
    print_scaling(scaling, smt_yields(scaling.samples), orders(scaling.samples), printer)
    return element(
        "section",
        element("h2", "More copies"),
        element(
            "p",
            "Throughput against the number of copies: dots are medians of runs, the dashed line "
            "is linear from the smallest number, the curve the Universal Scalability Law where it "
            "fits. In a ring: the knee. Shaded: copies share cores, darker: CPUs.",
            class_="how",
        ),
        element("div", id="scaling", class_="scaling"),
        element("details", element("summary", "in numbers"), printer.take()),
        class_="tables",
    )

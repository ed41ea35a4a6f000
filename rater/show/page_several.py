"""What a page of several runs says of them beside each other: results, divots, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rater.analysis.changes import differences, stored_conditions
from rater.analysis.copies import RatioPair, ratio_pairs
from rater.analysis.divots.between import between_runs
from rater.show.format import decimals, number
from rater.show.page_data import Told
from rater.show.page_html import Html, PagePrinter, element
from rater.show.table import Column

_PAD = 0.04  # of the span of the times, above and below


def common_ranges(runs: Sequence[Told]) -> dict[tuple[str, str | None], tuple[float, float]]:
    """Return one axis in seconds for each benchmark of several runs, so that they compare."""
    if len(runs) < 2:
        return {}
    found: dict[tuple[str, str | None], list[float]] = {}
    for told in runs:
        for panel in told.picture.panels:
            extent = panel.extent()
            if extent is not None and panel.median_s is not None:
                ends = found.setdefault((panel.benchmark, panel.tune), [])
                ends += [panel.low * panel.median_s, panel.high * panel.median_s]
    return {key: (min(ends), max(ends)) for key, ends in found.items()}


def compared(runs: Sequence[Told], volatile: Callable[[str], bool]) -> Iterator[Html]:
    """Yield what several runs come to beside the first of them; nothing of one run."""
    if len(runs) < 2:
        return
    first = runs[0]
    numbers = ", ".join(str(told.run.head.run) for told in runs)
    printer = PagePrinter()
    printer.table(_columns(runs))
    printer.prose(f"per cent: to run {first.run.head.run}; more is faster", "dim")
    parts = [element("h1", f"runs {numbers}"), printer.take()]
    between = between_runs(
        [(told.run.head.run, told.divots.findings) for told in runs if told.divots is not None]
    )
    for one in between:
        printer.prose(f"{one.kind}: {one.summary}")
    if not between:
        printer.prose("no place has divots in two of the runs")
    parts += [element("h2", "What comes back"), printer.take()]
    yield element("section", *parts, class_="tables")
    yield element(
        "section",
        element("h2", "What was different"),
        *(_differences(first, told, volatile) for told in runs[1:]),
        class_="tables",
    )


def _columns(runs: Sequence[Told]) -> list[Column]:
    first = runs[0]
    pairs = [ratio_pairs(told.summary, first.summary) for told in runs]
    rows: dict[tuple[str, str | None, str], dict[int, RatioPair]] = {}
    for place, found in enumerate(pairs):
        for pair in found:
            rows.setdefault((pair.name, pair.tune, pair.unit), {})[place] = pair
    names = [f"{name} {tune}" if tune else name for name, tune, _ in rows]
    columns = [
        Column(("benchmark", ""), names, right=False),
        Column(("unit", ""), [unit for *_, unit in rows], right=False),
    ]
    for place, told in enumerate(runs):
        of_run = [of.get(place) for of in rows.values()]
        values = [pair.value if pair else None for pair in of_run]
        places = decimals(values)
        run = f"run {told.run.head.run}"
        columns.append(Column((run, ""), [number(value, places) for value in values]))
        if place:
            changes = [pair.change if pair else None for pair in of_run]
            told_changes = ["-" if c is None else f"{c * 100:+.1f}" for c in changes]
            columns.append(Column((run, "%"), told_changes))
    return columns


def _differences(first: Told, other: Told, volatile: Callable[[str], bool]) -> Html:
    found = differences(stored_conditions(first.run), stored_conditions(other.run), volatile)
    numbers = f"run {first.run.head.run}", f"run {other.run.head.run}"
    if not found:
        return element("p", f"{numbers[1]} was run under the conditions of {numbers[0]}")
    printer = PagePrinter()
    printer.table(
        [
            Column(("what", ""), [one.what for one in found], right=False),
            Column((numbers[0], ""), [str(one.before) for one in found], right=False),
            Column((numbers[1], ""), [str(one.now) for one in found], right=False),
        ]
    )
    return printer.take()

"""The picture of the copies' times: panels with the names of slow parts beside their dots."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import Finding, Kind
from rater.analysis.results.result import failure_text
from rater.record.run import CopyStatus
from rater.show.charts.measured import DrawnMeasure, distance_text
from rater.show.charts.picture import Dot, Label, Panel, Picture, evenly
from rater.show.charts.vega import PlacedChart, placed_text, sheet_svg
from rater.show.screen.format import sanitize
from rater.text.cpuset import copy_numbers_text, format_list
from rater.text.values import copies_text, group_by_key, objects

# -- The picture of the copies' times as an SVG: a panel for each benchmark, as a report has them --
#
# Nothing but the data has ink: a line only where one NUMA node ends and the next begins, numbers at
# the ends of the data instead of a scale of round ones. Slow parts have a colour and their names
# above them; everything else is grey, later iterations darker.

_LINE = 1.3  # height of one, of the size of its letters
_MOST_NAMED = 6, 3  # lines of names above a panel of its own, and above one of several
_MOST_COPY_TICKS = 32  # copies that each have their number on the axis


class _SheetSize(Struct, frozen=True, kw_only=True):
    """Measures of a page in pixels."""

    columns: int
    width: float  # of a panel
    height: float
    letters: float
    dot: float  # diameter


def picture_svg(picture: Picture) -> str:
    """Return the picture as an SVG. Raises `InputError` where vl-convert is missing."""
    sheet = _sheet(picture)
    last = len(picture.panels) - sheet.columns
    gap = 0.95 * sheet.letters * _LINE / sheet.height
    drawn = [
        panel_values(panel, dot_kinds(panel), repeated=picture.repeated, tick_gap=gap)
        for panel in picture.panels
    ]
    named = [_written_above(values, _MOST_NAMED[len(drawn) > 1]) for values in drawn]
    lines = max(map(len, named))
    figures = [
        _figure(values, words, picture, sheet, lines, with_axis=number >= last)
        for number, (values, words) in enumerate(zip(drawn, named, strict=True))
    ]
    return sheet_svg(
        picture.title,
        figures,
        columns=sheet.columns,
        notes=[*_key(picture, sheet)],
    )


def _sheet(picture: Picture) -> _SheetSize:
    panels, places = len(picture.panels), max(1, len(picture.names))
    if panels == 1:
        return _SheetSize(
            columns=1, width=826, height=420, letters=12, dot=min(6.6, max(3.2, 640 / places))
        )
    columns = 2 if panels <= 4 else 3 if panels <= 36 else 4
    width = {2: 404, 3: 250, 4: 215}[columns]
    dot = min(4.3, max(2.2, 1.4 * width / places))
    return _SheetSize(
        columns=columns, width=width, height=192 if columns == 2 else 104, letters=10, dot=dot
    )


def _key(picture: Picture, sheet: _SheetSize) -> Iterator[dict[str, Any]]:
    """Write at the right of the title how iterations are told apart, each in its own grey."""
    words = [
        (picture.series[iteration - 1] if picture.series else str(iteration), shade)
        for iteration in reversed(picture.iterations)
        for shade in (f"dot{picture.shade(iteration)}",)
    ]
    if not picture.series:
        words = [*words, ("iteration", "faint")] if len(words) > 1 else []
    if picture.repeated:
        words.insert(0, ("dot: median run of a copy, line: all its runs   ", "faint"))
    right = -60.0
    for text, colour in words:
        weight = "bold" if text.isdigit() or text in picture.series else "normal"
        yield placed_text(right, 18, text, colour, align="right", size=sheet.letters, weight=weight)
        right -= (len(text) + 1) * sheet.letters * 0.62


def _written_above(values: Mapping[str, Any], most: int) -> list[dict[str, object]]:
    """Return what is written above a panel, with its colour: the same words as on a page."""
    labels = [
        (label["text"], "explained" if label["explained"] else "slow-text")
        for label in values["labels"]
    ]
    more = [(f"and {len(labels) - most} more", "faint")] if len(labels) > most else []
    others = [*values["outside"], *([f"× {values['failedText']}"] if values["failedText"] else [])]
    none = [] if values["dots"]["s"] or values["notKnown"] else [("no copy ran well", "faint")]
    none += [(values["notKnown"], "faint")] if values["notKnown"] else []
    words = [*none, *labels[:most], *more, *((text, "slow-text") for text in others)]
    rows = ((line, text, f"var(--{colour})") for line, (text, colour) in enumerate(words))
    return objects("line text colour", rows)


def _figure(
    values: Mapping[str, Any],
    words: Sequence[dict[str, object]],
    picture: Picture,
    sheet: _SheetSize,
    lines: int,
    *,
    with_axis: bool,
) -> PlacedChart:
    """Return a panel with `lines` of words above; `with_axis`: and the copies' numbers below."""
    dots = values["dots"]
    numbers = [*_numbers(picture, sheet)] if with_axis else []
    axis = ["NUMA node" if with_axis and picture.groups else "", picture.axis if numbers else ""]
    shades = [picture.shade(iteration) for iteration in dots["it"]]
    chart = {
        "signals": {
            "title": values["title"],
            "unit": "" if picture.measure.unit == "s" else sanitize(picture.measure.unit),
            "lines": lines,
            "axis": axis if picture.groups else axis[1:],
            "places": max(1, len(picture.names)),
            "low": values["low"],
            "high": values["high"],
            "median": values["median"] if dots["s"] else None,
            "dot": sheet.dot**2,
            "letters": sheet.letters,
            "numbered": with_axis,
        },
        "data": {
            "words": words,
            "numbers": objects("place text", numbers),
            "groups": group_rows(group_values(picture)),
            "ticks": objects("value seconds share", values["ticks"]),
            "rows": objects(" ".join((*dots, "shade")), zip(*dots.values(), shades, strict=True)),
            "failed": [{"place": place} for place, *_ in values["failed"]],
        },
    }
    line = sheet.letters * _LINE
    above = (lines + 1.5) * line
    return PlacedChart(
        kind="panel",
        chart=chart,
        width=sheet.width,
        height=sheet.height,
        below=line * 2.4,
        above=above,
    )


def _numbers(picture: Picture, sheet: _SheetSize) -> Sequence[tuple[float, str]]:
    """Return the numbers of the copies that have room, each with its place."""
    marks: Sequence[int] = range(len(picture.names))
    if len(marks) > _MOST_COPY_TICKS or len(picture.panels) > 1:
        marks = picture.marks() if picture.ascending else ()
    letter = sheet.letters * 0.64 * max(1, len(picture.names)) / sheet.width
    return evenly([(place, str(picture.names[place])) for place in marks], letter)


# -- What is written into a picture of the copies' times: names of slow parts, times, sizes --------

_LEAST_EXPLAINED = 0.01  # of a time; less than the layout does is hardly to be seen
_MOST_LETTERS = 20  # of a list of copies
# Findings whose place is no name: it is all copies.
_NAMES = {
    Kind.STARTUP: "start-up",
    Kind.DRIFT: "drift",
    Kind.STEP: "step",
    Kind.WARM_UP: "warm-up",
    Kind.GRADIENT: "gradient",
    Kind.BIMODAL: "two speeds",
    Kind.NO_PLACE: "a copy each time",
    Kind.UNSTEADY: "unsteady",
    Kind.WANDERING: "NUMA nodes take turns",
}


def labels_from(findings: Iterable[Finding]) -> tuple[Label, ...]:
    """Return labels for what the search for divots found, benchmark by benchmark.

    Copies that were judged singly are one label where they are the same in each iteration.
    What the layout explains has one where it is large enough to be seen.
    """
    labels: list[Label] = []
    for finding in findings:
        if finding.explained and abs(finding.slowdown - 1) < _LEAST_EXPLAINED:
            continue
        if finding.singles:
            labels += _single_labels(finding)
            continue
        part_name = finding.place if finding.has_place else _NAMES.get(finding.kind, finding.place)
        effects = group_by_key((cell.benchmark, cell.slowdown) for cell in finding.cells)
        for benchmark in tuple(effects) or finding.benchmarks or (None,):
            # These are told from end to end, whatever a single cell has of it.
            is_told_from_end_to_end = finding.kind in (Kind.DRIFT, Kind.GRADIENT, Kind.STARTUP)
            slowdowns = [] if is_told_from_end_to_end else effects.get(benchmark or "", [])
            slowdown = statistics.median(slowdowns or [finding.slowdown])
            # What a layout does differs from benchmark to benchmark: one size would be wrong.
            size = formatting.format_slowdown(slowdown)
            if finding.longer_s is not None:
                size = f"{formatting.format_seconds(finding.longer_s)}, {size}"
            labels.append(
                Label(
                    copies=finding.copies,
                    text=f"{part_name}: {'by the layout' if finding.explained else size}",
                    iterations=finding.iterations,
                    benchmark=benchmark,
                    tune=finding.tune,
                    cpus=finding.cpus,
                    explained=finding.explained,
                    fast=slowdown < 1,
                )
            )
    return tuple(labels)


def _single_labels(finding: Finding) -> Iterator[Label]:
    cells = group_by_key(
        ((single.benchmark, single.tune, single.iteration), single) for single in finding.singles
    )
    groups = group_by_key(
        ((benchmark, tune, tuple(sorted({single.copy for single in members}))), iteration)
        for (benchmark, tune, iteration), members in cells.items()
    )
    for (benchmark, tune, copies), iterations in groups.items():
        members = [
            single for iteration in iterations for single in cells[benchmark, tune, iteration]
        ]
        sizes = [single.slowdown for single in members]
        part_name = f"copy {copies[0]}" if len(copies) == 1 else f"{len(copies)} copies"
        node = members[0].node
        part_name += f" (NUMA node {node})" if len(copies) == 1 and node is not None else ""
        cpus = {single.cpu for single in members if single.cpu is not None}
        yield Label(
            copies=copies,
            text=f"{part_name}: {formatting.sizes(sizes)}",
            iterations=tuple(sorted(iterations)),
            benchmark=benchmark,
            tune=tune,
            cpus=tuple(sorted(cpus)),
            explained=finding.explained,
            fast=sizes[0] < 1,
        )


def ticks(panel: Panel, gap: float = 0.0) -> list[tuple[float, str, str]]:
    """Return the ends of the dots and their median: values, their text, and per cent.

    The axis begins and ends with what was measured; no round numbers that were not. `gap`: between
    them at least.
    """
    extent, median = panel.extent(), panel.median
    if median is None or extent is None:
        return []
    shown = [median] if extent[0] <= median <= extent[1] else []
    for value in reversed(extent):
        if all(abs(value - other) >= gap for other in shown):
            shown.append(value)
    return [
        (
            value,
            panel.measure.value_text(value),
            "median" if value == median else distance_text(value, median),
        )
        for value in shown
    ]


def label_text(label: Label, panel: Panel) -> str:
    """Return a label's words, with its iterations where the panel shows others as well."""
    if panel.series:
        return label.text
    return with_iterations(label, {dot.iteration for dot in panel.dots})


def with_iterations(label: Label, shown: set[int]) -> str:
    """Return a label's words, with its iterations where others of those `shown` are not its own."""
    labelled = sorted(shown.intersection(label.iterations))
    if not labelled or len(labelled) == len(shown) or "iteration" in label.text:
        return label.text
    word = "iteration" if len(labelled) == 1 else "iterations"
    return f"{label.text} ({word} {format_list(labelled)})"


def outside_text(dots: Sequence[Dot], measure: DrawnMeasure, most: int = 3) -> str:
    """Say how far out the dots are that lie beyond an end of the axis."""
    if len(dots) > most:
        values = [dot.value for dot in dots]
        low, high = (measure.value_text(end(values)) for end in (min, max))
        return f"{len(dots)} copies: {low} to {high}"
    return ", ".join(f"copy {dot.copy}: {measure.value_text(dot.value)}" for dot in dots)


def not_known_text(panel: Panel) -> str | None:
    """Say which copies ran well and have no value of what is drawn; None: all have one."""
    by_run = group_by_key(
        (_run_name(panel, lacking.iteration), lacking.copy) for lacking in panel.not_known
    )
    if not by_run:
        return None
    if not panel.dots:
        return f"{panel.measure.name} is not known"
    named = [f"{run}{_copies_named(copies)}" for run, copies in sorted(by_run.items())]
    return f"{', '.join(named)}: {panel.measure.name} is not known"


def failed_text(panel: Panel) -> str | None:
    """Say which copies failed, and which rater stopped, which is no fault of theirs; None: none."""
    by_cause = group_by_key(
        (
            (
                _run_name(panel, copy_ended.iteration),
                copy_ended.status is CopyStatus.INTERRUPTED,
            ),
            copy_ended.copy,
        )
        for _, copy_ended in panel.failed
    )
    parts = [
        f"{run}{_copies_named(copies)} {'interrupted' if is_interrupted else 'failed'}"
        for (run, is_interrupted), copies in sorted(by_cause.items())
    ]
    return "; ".join(parts) or None


def _run_name(panel: Panel, iteration: int) -> str:
    """Return whose copies those of an iteration are, where they are of several runs."""
    return f"{panel.series[iteration - 1]}: " if panel.series else ""


def _copies_named(numbers: Iterable[int]) -> str:
    copies = sorted(set(numbers))
    is_long = len(format_list(copies)) > _MOST_LETTERS
    return copies_text(len(copies)) if is_long else copy_numbers_text(copies)


# -- One panel of the copies' times as JSON values, the same for a page and a file -----------------
#
# Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
# are less than a megabyte so. Times are seconds; all values are rounded to seven digits.

_TICK_GAP = 0.14  # of a panel's height: nearer numbers would touch
SLOW, EXPLAINED = 1, 2  # kinds of dots; all others are 0
PLACE = ("copy", "cpu", "core", "node")


def drawn_number(value: float) -> float:
    """Return a time or another value with the digits that a picture can show."""
    return float(f"{value:.7g}")


def value_lists(rows: Sequence[object], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return what rows have under these names, a list for each."""
    return {name: [getattr(row, name) for row in rows] for name in names}


def group_values(picture: Picture) -> list[list[str | int]]:
    """Return the NUMA nodes of a picture: name, first place, places."""
    return [[group.name, group.first, group.size] for group in picture.groups]


def group_rows(groups: Sequence[Sequence[str | int]]) -> list[dict[str, object]]:
    """Return the same as what a specification draws."""
    return objects(
        "name first size place", ((*group, number) for number, group in enumerate(groups))
    )


def panel_values(
    panel: Panel,
    kinds: Mapping[Dot, int],
    *,
    repeated: bool,
    ends: tuple[float, float] | None = None,
    tick_gap: float = _TICK_GAP,
) -> dict[str, Any]:
    """Return a panel's axis, numbers, names and dots.

    `kinds` are those of `dot_kinds`. `repeated`: copies ran several times. `ends`: of the axis,
    where they are not the panel's own; ticks are at least `tick_gap` of it from each other.
    """
    low, high = ends or (panel.low, panel.high)
    named = [(label, ()) for label in panel.overall()] + list(panel.parts())
    beyond = [panel.outside(above=above) for above in (True, False)]
    dots = value_lists(panel.dots, ("place", *PLACE)) | {
        "it": [dot.iteration for dot in panel.dots],
        "s": [drawn_number(dot.value) for dot in panel.dots],
        "kind": [kinds.get(dot, 0) for dot in panel.dots],
    }
    if repeated:
        dots["fastest"] = [drawn_number(dot.lowest) for dot in panel.dots]
        dots["slowest"] = [drawn_number(dot.highest) for dot in panel.dots]
    return {
        "title": panel.title,
        "median": drawn_number(panel.median) if panel.median else None,
        "low": drawn_number(low),
        "high": drawn_number(high),
        "ticks": [
            [drawn_number(value), text, share]
            for value, text, share in ticks(panel, tick_gap * (high - low))
        ],
        "labels": [_label(label, label_dots, panel) for label, label_dots in named],
        "outside": [outside_text(far_dots, panel.measure) for far_dots in beyond if far_dots],
        "failed": [
            [
                *(place, copy_ended.copy, copy_ended.iteration, copy_ended.cpu, copy_ended.node),
                *(drawn_number(copy_ended.elapsed_s), sanitize(failure_text(copy_ended))),
            ]
            for place, copy_ended in panel.failed
        ],
        "failedText": failed_text(panel),
        "notKnown": not_known_text(panel),
        "dots": dots,
    }


def dot_kinds(panel: Panel) -> dict[Dot, int]:
    """Return the dots that have names: parts of the picture, and iterations that stand out."""
    shown = {dot.iteration for dot in panel.dots}
    whole = [
        (label, panel.covered(label))
        for label in panel.overall()
        if label.iterations and not shown.issubset(label.iterations)
    ]
    return {
        dot: EXPLAINED if label.explained else SLOW
        for label, dots in reversed([*panel.parts(), *whole])
        for dot in dots
    }


def _label(label: Label, dots: Sequence[Dot], panel: Panel) -> dict[str, Any]:
    return {
        "text": sanitize(label_text(label, panel)),
        "explained": label.explained,
        "copies": sorted({dot.copy for dot in dots}),
        "its": [] if dots else sorted(label.iterations),  # of all copies: iterations alone
    }

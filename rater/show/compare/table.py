"""Points compared, their times and their resident memory, as tables and as JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TextIO

from rater.analysis.compare.differences import DoctorDifference, PointDifference
from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.results.copies import MemoryCell, MemoryRow, PointRun
from rater.analysis.results.rates import MEAN
from rater.analysis.stats.estimate import SlowRuns
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.show.compare.notes import (
    TROUBLES,
    level,
    print_differences,
    print_foot,
    print_troubles,
    rate_heading,
    size,
    top_changes,
)
from rater.show.console import Column, Columns, Printer, names_with_tunes
from rater.show.format import column_letters, format_number, needed_decimals
from rater.text.values import (
    JsonFields,
    count,
    objects,
    runs_text,
    signed_percent,
    to_json,
    truncate_list,
)

# -- A comparison as the JSON document of `rater compare --json` -----------------------------------


def _points(comparison: Comparison) -> list[dict[str, object]]:
    return [
        {
            "label": side.label,
            "baseline": place == 0,
            "values": [dict(point.values) for point in side.points],
            "runs": side.runs,
        }
        for place, side in enumerate(comparison.sides)
    ]


TABLE = {
    Comparison: JsonFields(
        "by margin confidence looks comparisons=compared by_chance",
        {"points": _points},
        "differences copies mixed_copies mixed_kinds",
        {"kinds": lambda comparison: objects("rates runs", comparison.kinds)},
        "left_out",
        {"lost": lambda comparison: objects("benchmark point", comparison.lost)},
        "disturbed=troubles doctor page_sizes=pages",
        {
            "benchmarks": lambda it: [_row(row, it) for row in it.benchmarks],
            "suite": lambda it: {row.name: _row(row, it) for row in it.suites},
        },
    ),
    PointRun: JsonFields("run.head.run run.head.uuid block"),
    PointDifference: JsonFields(
        "what weighs=significant differs_within=inside",
        {"values": lambda one: objects("value runs", one.values)},
    ),
    DoctorDifference: JsonFields(
        "check why", {"values": lambda one: objects("verdict seen runs", one.values)}
    ),
    **TROUBLES,
    Effect: JsonFields(
        "baseline value speedup p_holm holds improvement reduction"
        " median_copy_speedup=median_copy slowest_over_median joules_per_copy reason"
    ),
    RatioInterval: JsonFields(
        "ratio",
        {"interval": lambda told: None if told.low is None else [told.low, told.high]},
        "verdict words within_margin=within more_rounds=more p recorded_step=blur"
        " degrees_of_freedom=degrees basis values=count doubts refused slow_runs=slow"
        " by_cpu_time=by_cpu",
    ),
    SlowRuns: JsonFields("count of slower of_baseline"),
}


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """Return all of it: shares and factors as numbers, verdicts in the words of the table."""
    document: dict[str, object] = to_json(comparison, TABLE)
    return document


def _row(row: EffectRow, comparison: Comparison) -> dict[str, object]:
    cells = zip(comparison.sides[1:], row.cells, strict=True)
    return {
        "name" if row.over else "benchmark": row.name,
        "tune": row.tune,
        "category": row.category,
        "unit": row.unit,
        **({"over": row.over} if row.over else {}),
        "baseline": row.cells[0].baseline,
        "points": [{"label": side.label} | TABLE[Effect].of(cell) for side, cell in cells],
    }


# -- `rater compare --memory`: average and maximum resident memory, a column pair for each point ---

_MB = 1e6
_MEMORY_LONGEST_HEADING = 12


def print_memory_rows(rows: Sequence[MemoryRow], labels: Sequence[str], printer: Printer) -> None:
    """Print a line for each benchmark, as many points beside each other as there is room for."""
    headings = [*labels]
    if max(map(len, labels)) > _MEMORY_LONGEST_HEADING:
        headings = [column_letters(place) for place in range(len(labels))]
        for heading, label in zip(headings, labels, strict=True):
            printer.prose(f"{heading}  {label}")
    names = Column("MB a copy", names_with_tunes(rows), right=False, flexible=True)
    pairs = [_pair(heading, [row.cells[i] for row in rows]) for i, heading in enumerate(headings)]
    while pairs:
        room, taken = printer.width - names.width, 0
        while taken < len(pairs) and (
            not taken or room >= sum(it.width + 2 for it in pairs[taken])
        ):
            room -= sum(it.width + 2 for it in pairs[taken])
            taken += 1
        printer.table([names, *(column for pair in pairs[:taken] for column in pair)])
        pairs = pairs[taken:]
        if pairs:
            printer.line()
    printer.prose(
        "resident memory, hugetlb pages included: average of looks once a second, over copies; "
        "most of any copy. Copies of less than a second have a maximum only."
    )


def _pair(heading: str, cells: Sequence[MemoryCell | None]) -> list[Column]:
    of = Columns(cells)
    return [
        of.numbers((heading, "average"), lambda it: _megabytes(it.average_bytes)),
        of.numbers(("", "most"), lambda it: _megabytes(it.max_bytes)),
    ]


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / _MB


def memory_document(rows: Sequence[MemoryRow], labels: Sequence[str]) -> dict[str, object]:
    """Return the rows for programs, bytes as they are."""
    return {
        "memory": [
            {
                "benchmark": row.benchmark,
                "tune": row.tune,
                "points": [
                    {"label": label, **(to_json(cell) if cell else {})}
                    for label, cell in zip(labels, row.cells, strict=True)
                ],
            }
            for row in rows
        ]
    }


def write_memory_csv(rows: Sequence[MemoryRow], labels: Sequence[str], out: TextIO) -> None:
    """Write a line for each benchmark, a pair of columns in bytes for each point."""
    writer = csv.writer(out, lineterminator="\n")
    pairs = [f"{label} {what} (bytes)" for label in labels for what in ("average", "max")]
    writer.writerow(["benchmark", "tune", *pairs])
    for row in rows:
        sizes = [
            None if size is None else round(size)
            for cell in row.cells
            for size in ((cell.average_bytes, cell.max_bytes) if cell else (None, None))
        ]
        writer.writerow([row.benchmark, row.tune, *sizes])


# -- Points compared, as tables: every difference that is no axis first, then benchmarks and suite -

_MARKS = {
    Decision.BETTER: "+",
    Decision.WORSE: "-",
    Decision.SAME: "=",
    Decision.RARELY: "~",
    Decision.UNKNOWN: "?",
    Decision.CANNOT_TELL: "?",
}
_STYLES = {Decision.BETTER: "green", Decision.WORSE: "red", Decision.RARELY: "yellow"}
_VERDICT = "verdict"
_MOST_BELOW = 40  # of verdicts
_MOST_BRIEF = 7  # rows
_MOST_REASONS = 6  # why there is nothing to compare
_TABLE_LONGEST_HEADING = 16
_LEAST_FACTOR, _MOST_FACTOR = 0.001, 1000  # beyond, a number says no more
_FEW_DECIMALS = 10
_MUCH, _MOST_SHARE = 10, 1000  # shares: from 1000 % without decimals, up to 100,000 %
_PAIR_HEADING = 7  # beside all that a pair has columns for
_SUITE_NAMES = {"all": "suite", "int": "suite, int", "fp": "suite, fp"}


def print_comparison(comparison: Comparison, printer: Printer, *, brief: bool = False) -> None:
    """Print what differs beside the axes, who is compared, the table and what it stands on.

    `brief`: below the table of their sweep, which has named the points, on what is left of a
    screen of 24 lines. Where there is nothing to compare, that alone and why.
    """
    if comparison.is_empty:
        _print_empty(comparison, printer)
        return
    print_differences(comparison, printer, brief=brief)
    print_troubles(comparison.troubles, printer, brief=brief)
    printer.some(comparison.pages, "yellow")
    if not brief:
        _print_sides(comparison, printer)
    _print_kinds(comparison, printer)
    printer.some(comparison.left_out, "yellow")
    if not brief:
        printer.line()
    rows = _compared_rows(comparison)
    shown = top_changes(rows, _MOST_BRIEF) if brief else rows
    by_points = len(comparison.sides) == 2 or len(rows) == 1
    if len(comparison.sides) == 2:
        _print_pair(shown, comparison, printer, brief=brief)
    elif by_points:
        _print_points(rows[0], comparison, printer, brief=brief)
    else:
        _print_many(shown, comparison, printer)
    if len(shown) < len(rows):
        printer.prose(f"and {count(len(rows) - len(shown), 'benchmark')} that changed less")
    inside = list(_inside(comparison))
    if inside and not brief:
        printer.line()
        printer.some(inside)
    if not brief:
        printer.line()
    print_foot(comparison, printer, in_lines=by_points, brief=brief)


def _print_empty(comparison: Comparison, printer: Printer) -> None:
    where = "both points" if len(comparison.sides) == 2 else "the baseline and another point"
    printer.prose(f"No benchmark has a valid result in {where}: nothing to compare.", "bold")
    printer.some(comparison.left_out, most=_MOST_REASONS, indent="  ")
    runs = [side.runs[0].run.head.run for side in comparison.sides[:2] if side.runs]
    printer.prose(f"What they ran: {', '.join(f'`rater show {run}`' for run in runs)}")


def _print_sides(comparison: Comparison, printer: Printer) -> None:
    labels = _headings(comparison, printer)
    by = f" by {comparison.by}, the other axes held" if comparison.by else ""
    printer.prose(f"Compared{by}:", "bold")
    for place, side in enumerate(comparison.sides):
        blocks = {one.block for one in side.runs} - {None}
        in_blocks = f" in {count(len(blocks), 'block')}" if blocks else ""
        lines = (side.label, side.label.partition("=")[2])
        name = side.label if labels[place] in lines else f"{labels[place]}  {side.label}"
        runs = runs_text([one.run.head.run for one in side.runs])
        members = "" if side.label == runs else f": {runs}"
        baseline = " (baseline)" if place == 0 else ""
        printer.prose(f"  {name}{baseline}{members}{in_blocks}")
    if comparison.mixed_copies:
        copies = truncate_list([str(many) for many in comparison.copies], 8)
        printer.prose(
            f"Numbers of copies differ ({copies}): what is compared is throughput, copies an hour."
        )


def _print_kinds(comparison: Comparison, printer: Printer) -> None:
    if comparison.mixed_kinds:
        kinds = "; ".join(f"{runs_text(runs)}: {kind}" for kind, runs in comparison.kinds)
        printer.prose(
            f"The scores are not of one kind ({kinds}): part of what differs is what is measured, "
            "not how fast it is.",
            "bold yellow",
        )


def _print_pair(
    rows: Sequence[EffectRow], comparison: Comparison, printer: Printer, *, brief: bool
) -> None:
    """Print two points: a line for each benchmark."""
    cells = [row.cells[0] for row in rows]
    places = needed_decimals([value for cell in cells for value in (cell.baseline, cell.value)])
    units = {row.unit for row in rows if row.cells[0].baseline is not None}
    unit = f"({units.pop()})" if len(units) == 1 else ""
    labels = _headings(comparison, printer)
    of = Columns(cells)
    columns = [
        Column(("benchmark", unit), _names(rows), right=False, flexible=True),
        of.numbers((labels[0], MEAN), lambda cell: cell.baseline, places, optional=3),
        of.numbers((labels[1], MEAN), _value, places, optional=3),
        *_speedup_columns(cells, comparison),
    ]
    _print_with_verdicts(columns, cells, _names(rows), printer, brief=brief)


def _print_points(row: EffectRow, comparison: Comparison, printer: Printer, *, brief: bool) -> None:
    """Print many points of one benchmark: a line for each point."""
    baseline = row.cells[0].baseline
    places = needed_decimals([baseline, *(cell.value for cell in row.cells)])
    first = comparison.sides[0]
    speedups = _speedup_columns(row.cells, comparison)
    beside = sum(column.width + 1 for column in speedups)
    labels = [side.label for side in comparison.sides]
    if max(map(len, labels)) > printer.width - beside:  # cut, they would look alike
        labels = _headings(comparison, printer)
    printer.line(
        f"{_names([row])[0]}: {first.label} is {format_number(baseline, places)} "
        f"{row.unit} ({MEAN})"
    )
    columns = [
        Column("", labels[1:], right=False, flexible=True),
        Columns(row.cells).numbers(rate_heading(row.unit), _value, places, optional=3),
        *speedups,
    ]
    _print_with_verdicts(columns, row.cells, labels[1:], printer, brief=brief)


def _print_with_verdicts(
    columns: Sequence[Column],
    cells: Sequence[Effect],
    names: Sequence[str],
    printer: Printer,
    *,
    brief: bool,
) -> None:
    """Print a table; verdicts that have no room in it stand whole below it.

    `brief`: in the table without the words beside them.
    """
    fixed = sum(
        (min(it.width, _TABLE_LONGEST_HEADING) if it.flexible else it.width) + 1
        for it in columns
        if not it.optional and it.heading != _VERDICT
    )
    room, below = printer.width - fixed, []
    made = []
    for column in columns:
        if column.heading == _VERDICT:
            texts = []
            for name, text, cell in zip(names, column.cells, cells, strict=True):
                if len(text) <= room or cell.speedup is None:
                    texts.append(text)
                elif brief:
                    texts.append(cell.speedup.short)
                else:
                    below.append(f"{name}: {text}")
                    texts.append(f"{cell.speedup.verdict}: see below")
            made.append(replace(column, cells=texts))
        else:
            made.append(column)
    printer.table(made, [_style(cell) for cell in cells])
    if below:
        printer.line()
        printer.some(below, most=_MOST_BELOW)


def _speedup_columns(cells: Sequence[Effect], comparison: Comparison) -> list[Column]:
    of = Columns(cells)
    columns = [
        of.right("speed-|up", lambda cell: _factor(cell.speedup)),
        of.right(f"{level(comparison)} %|interval", lambda cell: _interval(cell.speedup)),
        of.left(_VERDICT, lambda cell: _verdict(cell, comparison)),
        of.right("improve-|ment %", lambda cell: _signed(cell.improvement), optional=2),
        of.right("reduc-|tion %", lambda cell: _signed(cell.reduction), optional=4),
    ]
    if any(cell.slowest_over_median for cell in cells):
        slowest = of.right(
            "slowest|copy %", lambda it: _in_brackets(it.slowest_over_median), optional=1
        )
        columns.append(slowest)
    if any(cell.joules_per_copy for cell in cells):
        columns.append(of.right("J/copy|%", lambda it: _in_brackets(it.joules_per_copy)))
    return columns


def _print_many(rows: Sequence[EffectRow], comparison: Comparison, printer: Printer) -> None:
    labels = _headings(comparison, printer)
    units = {row.unit for row in rows}
    unit = f"({units.pop()})" if len(units) == 1 else ""
    of = Columns(rows)
    fixed = [
        Column(("benchmark", unit), _names(rows), right=False, flexible=True),
        of.numbers((labels[0], MEAN), lambda row: row.cells[0].baseline, optional=1),
        of.left((labels[0], "speedup"), lambda _: "1.000"),
    ]
    others = [
        Column((label, "speedup"), [_marked(row.cells[place]) for row in rows], right=False)
        for place, label in enumerate(labels[1:])
    ]
    width = min(24, fixed[0].width) + fixed[1].width + fixed[2].width + 4
    while others:
        taken, room = 0, width
        while taken < len(others) and (
            not taken or room + others[taken].width + 2 <= printer.width
        ):
            room += others[taken].width + 2
            taken += 1
        printer.table([*fixed, *others[:taken]])
        others = others[taken:]
        if others:
            printer.line()


def _compared_rows(comparison: Comparison) -> list[EffectRow]:
    """Return the rows that have something to show; which have not stands above the table."""
    whole = comparison.suites[:1]
    parts = [row for row in comparison.suites[1:] if row.over != whole[0].over]
    rows = (*comparison.benchmarks, *whole, *parts)
    return [row for row in rows if any(cell.speedup for cell in row.cells)]


def _inside(comparison: Comparison) -> Iterator[str]:
    """Say where the slow copies changed: a rate alone does not tell it from all copies changing."""
    several = len(comparison.sides) > 2
    for row, side, cell in comparison.verdicts():
        slowest, median, speedup = cell.slowest_over_median, cell.median_copy, cell.speedup
        if row.over or not (slowest and median and speedup) or not slowest.decided:
            continue
        if slowest.verdict is Decision.SAME or slowest.within:
            continue
        name = f"{row.name}, {side.label}" if several else row.name
        yield (
            f"{name}: {speedup.short}: median copy {_copy_words(median)}, "
            f"slowest copy {_signed(slowest.ratio - 1)} % against the median copy"
        )


def _copy_words(told: RatioInterval) -> str:
    if told.verdict is Decision.SAME:
        return told.short
    words = f"{size(told.ratio - 1)} {'faster' if told.ratio > 1 else 'slower'}"
    return words if told.decided else f"{words} (inconclusive)"


def _headings(comparison: Comparison, printer: Printer) -> list[str]:
    """Return what stands over columns: labels, values, or letters where both take much room."""
    sides = comparison.sides
    room = (printer.width - 30) // len(sides) if len(sides) > 2 else _PAIR_HEADING
    labels = [side.label for side in sides]
    values = [side.label.partition("=")[2] for side in sides]
    axes = {tuple(axis for axis, _ in point.values) for side in sides for point in side.points}
    of_one_axis = comparison.by is not None or (len(axes) == 1 and len(axes.pop()) == 1)
    for found in (labels, values) if of_one_axis else (labels,):
        if max(map(len, found)) <= min(room, _TABLE_LONGEST_HEADING):
            return found
    return [column_letters(place) for place in range(len(sides))]


def _names(rows: Sequence[EffectRow]) -> list[str]:
    return [
        f"{_SUITE_NAMES[row.name]} ({len(row.over)})"
        if row.over
        else f"{row.name} {row.tune}"
        if row.tune
        else row.name
        for row in rows
    ]


def _value(cell: Effect) -> float | None:
    return cell.value


def _factor(told: RatioInterval | None) -> str:
    if told is None or told.verdict is Decision.CANNOT_TELL:
        return "-"
    return _figures(told.ratio)


def _interval(told: RatioInterval | None) -> str:
    if told is None or told.low is None or told.high is None:
        return "-"
    return f"{_figures(told.low)}-{_figures(told.high)}"


def _figures(ratio: float) -> str:
    """Return a factor with three decimals, or three digits; beyond 1000 only that it is so."""
    if not _LEAST_FACTOR <= ratio <= _MOST_FACTOR:
        return f"<{_LEAST_FACTOR}" if ratio < 1 else f">{_MOST_FACTOR}"
    places = 3 if ratio < _FEW_DECIMALS else 1 if ratio < 10 * _FEW_DECIMALS else 0
    return f"{ratio:.{places}f}"


def _verdict(cell: Effect, comparison: Comparison) -> str:
    if cell.speedup is None:
        return cell.reason or "-"
    return cell.speedup.words + (" *" if cell.holds and comparison.compared > 1 else "")


def _marked(cell: Effect) -> str:
    if cell.speedup is None:
        return "-"
    mark = _MARKS[cell.speedup.verdict] * (2 if cell.holds else 1)
    doubted = cell.speedup.decided and cell.speedup.doubts
    return f"{_factor(cell.speedup)}{f'({mark})' if doubted else mark}"


def _in_brackets(told: RatioInterval | None) -> str:
    """Return a change, in brackets where it may be chance."""
    if told is None:
        return "-"
    change = _signed(told.ratio - 1)
    return change if told.verdict in (Decision.BETTER, Decision.WORSE) else f"({change})"


def _signed(share: float | None) -> str:
    if share is None:
        return "-"
    if abs(share) > _MOST_SHARE:
        return f"{'>+' if share > 0 else '<-'}{_MOST_SHARE * 100}"
    return signed_percent(share, 1 if abs(share) < _MUCH else 0)


def _style(cell: Effect) -> str:
    return _STYLES.get(cell.speedup.verdict, "") if cell.speedup else ""

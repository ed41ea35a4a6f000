"""Points compared, as tables: every difference that is no axis first, then benchmarks and suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.analysis.comparison import Cell, Comparison, Row
from rater.analysis.interval import Basis, Told, Verdict
from rater.show.apart import print_apart, runs_text
from rater.show.format import count, decimals, number
from rater.show.printer import Printer
from rater.show.table import Column
from rater.words import some

_MARKS = {Verdict.BETTER: "+", Verdict.WORSE: "-", Verdict.SAME: "=", Verdict.UNKNOWN: "?"}
_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red"}
_LONGEST_HEADING = 16
_PAIR_HEADING = 7  # beside all that a pair has columns for
_SUITE_NAMES = {"all": "suite", "int": "suite, int", "fp": "suite, fp"}


def print_comparison(comparison: Comparison, printer: Printer) -> None:
    """Print what differs beside the axes, who is compared, the table and what it stands on."""
    print_apart(comparison, printer)
    _print_sides(comparison, printer)
    printer.some(comparison.left_out, "yellow")
    printer.line()
    if not _compared_rows(comparison):
        printer.prose("No benchmark has a valid result on both sides: nothing to compare.", "bold")
        return
    if len(comparison.sides) == 2:
        _print_pair(comparison, printer)
    elif _by_points(comparison):
        _print_points(_compared_rows(comparison)[0], comparison, printer)
    else:
        _print_many(comparison, printer)
    told = list(_inside(comparison))
    if told:
        printer.line()
        printer.some(told)
    printer.line()
    _print_foot(comparison, printer)


def _by_points(comparison: Comparison) -> bool:
    """Tell whether a line is a point: one benchmark has room for all there is to say of each."""
    return len(comparison.sides) == 2 or len(_compared_rows(comparison)) == 1


def _print_sides(comparison: Comparison, printer: Printer) -> None:
    labels = _headings(comparison, printer)
    by = f" by {comparison.by}, the other axes held" if comparison.by else ""
    printer.prose(f"Compared{by}:", "bold")
    for place, side in enumerate(comparison.sides):
        blocks = {one.block for one in side.runs} - {None}
        in_blocks = f" in {count(len(blocks), 'block')}" if blocks else ""
        told = (side.label, side.label.partition("=")[2])
        name = side.label if labels[place] in told else f"{labels[place]}  {side.label}"
        runs = runs_text([one.run.head.run for one in side.runs])
        members = "" if side.label == runs else f": {runs}"
        baseline = " (baseline)" if place == 0 else ""
        printer.prose(f"  {name}{baseline}{members}{in_blocks}")
    if comparison.mixed_copies:
        copies = some([str(many) for many in comparison.copies], 8)
        printer.prose(
            f"Numbers of copies differ ({copies}): what is compared is throughput, copies an hour."
        )


def _print_pair(comparison: Comparison, printer: Printer) -> None:
    """Print two points: a line for each benchmark."""
    rows = _compared_rows(comparison)
    cells = [row.cells[0] for row in rows]
    places = decimals([value for cell in cells for value in (cell.baseline, cell.value)])
    units = {row.unit for row in rows}
    unit = units.pop() if len(units) == 1 else ""
    labels = _headings(comparison, printer)
    columns = [
        Column(("benchmark", ""), _names(rows), right=False, flexible=True),
        Column((labels[0], unit), [number(c.baseline, places) for c in cells], optional=3),
        Column((labels[1], unit), [number(c.value, places) for c in cells], optional=3),
        *_told_columns(cells, comparison),
    ]
    printer.table(columns, [_style(cell) for cell in cells])


def _print_points(row: Row, comparison: Comparison, printer: Printer) -> None:
    """Print many points of one benchmark: a line for each point."""
    values = [row.cells[0].baseline, *(cell.value for cell in row.cells)]
    places = decimals(values)
    first = comparison.sides[0]
    printer.line(f"{_names([row])[0]}: {first.label} is {number(values[0], places)} {row.unit}")
    columns = [
        Column(("", ""), [s.label for s in comparison.sides[1:]], right=False, flexible=True),
        Column((row.unit, ""), [number(value, places) for value in values[1:]], optional=3),
        *_told_columns(row.cells, comparison),
    ]
    printer.table(columns, [_style(cell) for cell in row.cells])


def _told_columns(cells: Sequence[Cell], comparison: Comparison) -> list[Column]:
    changes = [cell.slowest_over_median for cell in cells]
    columns = [
        Column(("speed-", "up"), [_factor(cell.speedup) for cell in cells]),
        Column((f"{_level(comparison)} %", "interval"), [_interval(c.speedup) for c in cells]),
        Column(("verdict", ""), [_verdict(c, comparison) for c in cells], right=False),
        Column(("improve-", "ment %"), [_signed(c.improvement) for c in cells], optional=2),
        Column(("reduc-", "tion %"), [_signed(c.reduction) for c in cells], optional=4),
    ]
    if any(changes):
        slowest = [_slowest(told) for told in changes]
        columns.append(Column(("slowest", "copy %"), slowest, optional=1))
    return columns


def _print_many(comparison: Comparison, printer: Printer) -> None:
    rows = _compared_rows(comparison)
    labels = _headings(comparison, printer)
    names = _names(rows)
    values = [row.cells[0].baseline for row in rows]
    places = decimals(values)
    units = {row.unit for row in rows}
    unit = units.pop() if len(units) == 1 else ""
    fixed = [
        Column(("benchmark", ""), names, right=False, flexible=True),
        Column((labels[0], unit), [number(value, places) for value in values], optional=1),
        Column((labels[0], "speedup"), ["1.000" for _ in rows], right=False),
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


def _compared_rows(comparison: Comparison) -> list[Row]:
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
        if slowest.verdict is Verdict.SAME or slowest.within:
            continue
        name = f"{row.name}, {side.label}" if several else row.name
        yield (
            f"{name}: {speedup.words}: median copy {_copy_words(median)}, "
            f"slowest copy {_percent(slowest.ratio - 1)} against the median copy"
        )


def _copy_words(told: Told) -> str:
    if told.verdict is Verdict.SAME:
        return told.words
    words = f"{_size(told.ratio - 1)} {'faster' if told.ratio > 1 else 'slower'}"
    return words if told.decided else f"{words} (cannot tell)"


def _print_foot(comparison: Comparison, printer: Printer) -> None:
    cells = [cell for row in comparison.benchmarks for cell in row.cells]
    told = [cell.speedup for cell in cells if cell.speedup]
    level = _level(comparison)
    in_lines = _by_points(comparison)
    if not in_lines:
        printer.prose(
            f"+ better, - worse, = same within {comparison.margin * 100:g} %, ? cannot tell; ++ "
            f"and -- hold up with all {comparison.compared} comparisons considered (Holm)"
        )
    printer.some(_stands_on(told))
    if comparison.looks > 1:
        printer.prose(
            f"The sweep looked at its results up to {count(comparison.looks, 'time')} to stop when "
            f"they were decided: intervals of {level} % keep all looks together right in 95 %."
        )
    if comparison.compared > 1:
        text = (
            f"Of {comparison.compared} comparisons of equal things, {comparison.by_chance:.2g} "
            "would say better or worse by chance"
        )
        text += "; the baseline's own luck is in all." if len(comparison.sides) > 2 else "."
        if in_lines and any(cell.holds for _, _, cell in comparison.verdicts()):
            text += " * holds up with all of them considered (Holm)."
        printer.prose(text)
    unknown = [one for one in told if one.verdict is Verdict.UNKNOWN and one.more != 0]
    if unknown and not in_lines:
        most = [one.more for one in unknown]
        known = [more for more in most if more is not None]
        rounds = "more than 1000 rounds" if None in most else _rounds(max(known))
        printer.prose(f"? cannot tell: {rounds} would tell for all of them, at this noise.")


def _rounds(many: int) -> str:
    return f"{many} more round{'s' * (many != 1)}"


def _stands_on(told: Sequence[Told]) -> Iterator[str]:
    """Say what the intervals are from, the strongest first."""
    for basis in Basis:
        own = [one for one in told if one.basis is basis]
        if not own:
            continue
        some_of = "" if len(own) == len(told) else f" ({len(own)} of {len(told)})"
        least, most = min(one.count for one in own), max(one.count for one in own)
        many = str(least) if least == most else f"{least} to {most}"
        freedom = _freedom(own)
        if basis is Basis.BLOCKS:
            yield f"intervals{some_of}: paired within {many} blocks, Student's t{freedom}"
        elif basis is Basis.RUNS:
            how = f"Welch's over runs ({many} of the side that has fewer)"
            if most == 1:
                how = "one run of one side, its noise taken to be that of the other side's runs"
            yield (
                f"intervals{some_of}: {how}{freedom}; they are not in blocks: a drift between "
                "them counts as effect"
            )
        elif basis is Basis.ITERATIONS:
            yield (
                f"intervals{some_of}: Welch's over the iterations of one run each ({many} or more)"
                f"{freedom}; how runs differ from each other is NOT in them: make several runs "
                "of each, in turn (`rater sweep --rounds 5`)"
            )
        else:
            yield (
                f"no interval{some_of}: one value each says nothing of the noise; make several "
                "runs of each, in turn (`rater sweep --rounds 5`)"
            )


def _freedom(told: Sequence[Told]) -> str:
    degrees = [one.degrees for one in told if one.degrees is not None]
    if not degrees:
        return ""
    least = f"{min(degrees):.3g}"
    return f", {least} degree{'s' * (least != '1')} of freedom"


def _headings(comparison: Comparison, printer: Printer) -> list[str]:
    """Return what stands over columns: labels, values, or letters where both take much room."""
    sides = comparison.sides
    room = (printer.width - 30) // len(sides) if len(sides) > 2 else _PAIR_HEADING
    labels = [side.label for side in sides]
    values = [side.label.partition("=")[2] for side in sides]
    axes = {tuple(axis for axis, _ in point.values) for side in sides for point in side.points}
    of_one_axis = comparison.by is not None or (len(axes) == 1 and len(axes.pop()) == 1)
    for found in (labels, values) if of_one_axis else (labels,):
        if max(map(len, found)) <= min(room, _LONGEST_HEADING):
            return found
    return [_letters(place) for place in range(len(sides))]


def _letters(place: int) -> str:
    first, last = divmod(place, 26)
    return (_letters(first - 1) if first else "") + chr(ord("A") + last)


def _names(rows: Sequence[Row]) -> list[str]:
    return [
        f"{_SUITE_NAMES[row.name]} ({len(row.over)})"
        if row.over
        else f"{row.name} {row.tune}"
        if row.tune
        else row.name
        for row in rows
    ]


def _level(comparison: Comparison) -> str:
    return f"{comparison.confidence * 100:.4g}"


def _factor(told: Told | None) -> str:
    return "-" if told is None else f"{told.ratio:.3f}"


def _interval(told: Told | None) -> str:
    if told is None or told.low is None or told.high is None:
        return "-"
    return f"{told.low:.3f}-{told.high:.3f}"


def _verdict(cell: Cell, comparison: Comparison) -> str:
    if cell.speedup is None:
        return cell.reason or "-"
    return cell.speedup.words + (" *" if cell.holds and comparison.compared > 1 else "")


def _marked(cell: Cell) -> str:
    if cell.speedup is None:
        return "-"
    mark = _MARKS[cell.speedup.verdict]
    return f"{cell.speedup.ratio:.3f}{mark * 2 if cell.holds else mark}"


def _slowest(told: Told | None) -> str:
    """Return the change of slowest over median copy, in brackets where it may be chance."""
    if told is None:
        return "-"
    change = _signed(told.ratio - 1)
    return change if told.verdict in (Verdict.BETTER, Verdict.WORSE) else f"({change})"


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{round(share * 100, 1) + 0.0:+.1f}"


def _percent(share: float) -> str:
    return f"{_signed(share)} %"


def _size(share: float) -> str:
    return f"{abs(share) * 100:.1f} %"


def _style(cell: Cell) -> str:
    return _STYLES.get(cell.speedup.verdict, "") if cell.speedup else ""

"""Sweeps: what is to be run, what is there, what the points came to, in full and on a screen."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rater.analysis.compare.model import Comparison
from rater.analysis.results.rates import MEAN, Overall, mean_rate
from rater.plan.sweep import ENVIRONMENT, NONE_SHOWN, SweepMeasure, SweepSlot, Values, point_label
from rater.record.stored import RATIO
from rater.show.compare.comparison import comparison_parts, rate_heading
from rater.show.console import Column, Columns, Printer
from rater.show.document import print_parts
from rater.show.format import column_letters, format_duration, format_number, needed_decimals
from rater.text.values import JsonFields, count, signed_percent, to_json

_ORDERS_SHOWN = 3
_LABELS_SHOWN = 8
_MOST_REASONS = 6  # why no point has a result
_ROOM_BESIDE = 44  # cells of a table that what points come to takes


class AxisView(Struct, frozen=True):
    """One tunable."""

    name: str
    kind: str
    values: tuple[str, ...]
    present: str | None = None  # of a setting of the machine, before the sweep


class PointView(Struct, frozen=True):
    """One combination of values, and its runs."""

    point: int
    label: str
    values: Values
    left_out: str | None  # why it cannot run
    runs: tuple[int, ...] = ()  # those that are done
    failed: int = 0  # of them, those in which copies failed
    results: tuple[Overall, ...] = ()  # of those that have one
    copies: int | None = None  # as they will run; None: not resolved
    expected_s: float | None = None  # of one run

    @property
    def mean(self) -> float | None:
        """Its one rate; None: no run has a result, or not all in the same unit."""
        alike = len({result.unit for result in self.results}) == 1
        return mean_rate([result.value for result in self.results]) if alike else None


class SlotView(Struct, frozen=True):
    """One run of the plan."""

    slot: SweepSlot
    run: int | None
    status: str | None
    done: bool
    elapsed_s: float | None


class SweepView(Struct, frozen=True):
    """A sweep; without number, uuid and status where it is not stored."""

    number: int | None
    uuid: str | None
    status: str | None
    reason: str | None
    started_at: str | None
    what: str  # suites or command
    axes: tuple[AxisView, ...]
    points: tuple[PointView, ...]
    rounds: int
    order: str
    seed: int
    until: float | None
    until_of: SweepMeasure
    slots: tuple[SlotView, ...]
    file: str | None = None
    file_sha256: str | None = None
    total_s: float | None = None  # all runs, as expected
    obstacles: tuple[str, ...] = ()  # why no point can run, one by one

    @property
    def done(self) -> int:
        """Runs that are done."""
        return sum(it.done for it in self.slots)

    @property
    def running(self) -> tuple[PointView, ...]:
        """The points that are not left out."""
        return tuple(point for point in self.points if point.left_out is None)


def print_sweeps(views: Sequence[SweepView], printer: Printer) -> None:
    """Print a line for each sweep."""
    if not views:
        printer.prose("no sweeps stored yet; `rater sweep` makes one")
        return
    of = Columns(views)
    printer.table(
        [
            of.right("sweep", lambda view: view.number),
            of.left("started (UTC)", _when),
            of.left("what", lambda view: view.what, flexible=True),
            of.left("axes", lambda view: " ".join(axis.name for axis in view.axes), flexible=True),
            of.right("points", lambda view: len(view.running), optional=1),
            of.right("runs", lambda view: f"{view.done}/{len(view.slots)}"),
            of.left("status", lambda view: view.status or None),
        ]
    )


def print_sweep(view: SweepView, comparison: Comparison | None, printer: Printer) -> None:
    """Print a sweep's head, and every point with the results of its rounds.

    How far points are from the first is what `comparison` says: rounds in pairs.
    Where no point has a result: what failed, and what to do.
    """
    print_head(view, printer)
    if not any(point.results for point in view.points):
        _print_without_results(view, comparison, printer)
        return
    printer.line()
    results = [[result.value for result in point.results] for point in view.points]
    known = [value for values in results for value in values]
    places = needed_decimals(known)
    units = {result.unit for point in view.points for result in point.results}
    unit = next(iter(units)) if len(units) == 1 else RATIO
    means = [point.mean for point in view.points]
    first, changes = _changes(comparison)
    of, of_results = Columns(view.points), Columns(results)
    columns = [
        *_point_columns([p.values for p in view.points], printer),
        of.right("runs", lambda point: _runs_of(view, point)),
    ]
    if any(point.failed for point in view.points):
        columns.append(of.right("failed|runs", lambda point: point.failed or None))
    columns += [
        Column(rate_heading(unit), [format_number(mean, places) for mean in means]),
        of_results.numbers("lowest", lambda v: min(v, default=None), places, optional=1),
        of_results.numbers("highest", lambda v: max(v, default=None), places, optional=1),
        Column(
            "vs first|%" if view.points[0].label == first else "vs base|%",
            [_signed(changes.get(point.label)) for point in view.points],
        ),
    ]
    printer.table(columns)
    _print_left_out(view, printer)
    without = [p.label for p in view.running if p.runs and not p.results]
    if without:
        shown = ", ".join(without[:_LABELS_SHOWN])
        printer.prose(f"no result (a copy failed in every run): {shown}", "yellow")


def _print_without_results(
    view: SweepView, comparison: Comparison | None, printer: Printer
) -> None:
    failed = [run for point in view.points if point.failed for run in point.runs]
    why = "copies failed in every run" if failed else "no run was made to its end"
    printer.prose(f"No point has a result: {why}.", "bold")
    reasons = comparison.left_out if comparison is not None else ()
    printer.some(reasons, "red", most=_MOST_REASONS, indent="  ")
    _print_left_out(view, printer)
    if failed:
        printer.prose(
            f"How the copies ended: `rater show {min(failed)}`. Once that is mended, sweep anew: "
            "runs in which copies failed are not made again."
        )
    elif view.number is not None:
        printer.prose(f"What is missing of it: `rater sweep --resume {view.number}`")


def print_dry(view: SweepView, printer: Printer) -> None:
    """Print what would be swept, in which order, how long it takes and what is in the way."""
    print_head(view, printer)
    printer.line()
    of = Columns(view.points)
    columns = [
        of.right("no.", lambda point: point.point + 1),
        *_point_columns([p.values for p in view.points], printer),
        of.right("in all|copies", lambda point: point.copies),
        of.right(
            "one run", lambda it: None if it.expected_s is None else format_duration(it.expected_s)
        ),
        Column("", _marks(view), right=False),
    ]
    printer.table(columns)
    printer.line()
    by_block: dict[int, list[int]] = {}
    for it in view.slots:
        by_block.setdefault(it.slot.block, []).append(it.slot.point)
    for block, points in list(by_block.items())[:_ORDERS_SHOWN]:
        printer.prose(f"block {block}: {' '.join(str(point + 1) for point in points)}")
    if len(by_block) > _ORDERS_SHOWN:
        printer.prose(f"and {count(len(by_block) - _ORDERS_SHOWN, 'more block')}")
    total = "" if view.total_s is None else f", about {format_duration(view.total_s)} (a guess)"
    printer.prose(f"{count(len(view.slots), 'run')}{total}")
    for axis in view.axes:
        if axis.present is not None:
            printer.prose(f"{axis.name} is {axis.present} now, and will be put back to that")
    _print_left_out(view, printer, "REFUSED")
    for text in view.obstacles:
        printer.prose(f"REFUSED: {text}", "bold red")


def print_missing(view: SweepView, printer: Printer) -> None:
    """Print what is still to be run of a stored sweep."""
    print_head(view, printer)
    values = {point.point: point.values for point in view.points}
    missing = [it for it in view.slots if not it.done]
    printer.line()
    if not missing:
        printer.line("nothing is missing", "bold")
        printer.line()
        return
    of = Columns(missing)
    printer.table(
        [
            of.right("block", lambda it: it.slot.block),
            *_point_columns([values[it.slot.point] for it in missing], printer),
            of.left("", lambda it: f"run {it.run} is kept, made again" if it.run else ""),
        ]
    )


_HEAD = JsonFields(
    "sweep=number uuid status reason started_at what axes rounds order seed",
    {
        "until_percent": lambda view: None if view.until is None else view.until * 100,
        "until_of": lambda view: None if view.until is None else view.until_of,
        "runs_planned": lambda view: len(view.slots),
    },
    "runs_done=done file file_sha256",
)
_TABLE = {
    SweepView: JsonFields({"*": _HEAD.of}, "points runs=slots"),
    AxisView: JsonFields("name kind values"),
    PointView: JsonFields(
        "point label values{} left_out runs runs_with_failed_copies=failed results",
        {MEAN: lambda point: point.mean},
    ),
    Overall: JsonFields("value unit"),
    SlotView: JsonFields("slot.block slot.position slot.point run status done elapsed_s"),
}


def sweeps_document(views: Sequence[SweepView]) -> list[dict[str, object]]:
    """Return the list for programs."""
    return [to_json(_HEAD.of(view), _TABLE) for view in views]


def sweep_document(view: SweepView) -> dict[str, object]:
    """Return a sweep for programs."""
    document: dict[str, object] = to_json(view, _TABLE)
    return document


def dry_document(view: SweepView) -> dict[str, object]:
    """Return a sweep that is not made, for programs."""
    return sweep_document(view) | {
        "dry_run": True,
        "expected_s": view.total_s,
        "refused": [*view.obstacles, *(p.left_out for p in view.points if p.left_out)],
    }


def print_head(view: SweepView, printer: Printer) -> None:
    """Print what was swept, every axis with its values, and how far it came."""
    points = count(len(view.running), "point")
    name = "sweep" if view.number is None else f"sweep {view.number}"
    printer.prose(f"{name} of {view.what}: {points}, {count(view.rounds, 'round')}", "bold")
    for axis in view.axes:
        values = ", ".join(value or NONE_SHOWN for value in axis.values)
        printer.prose(f"  {axis.name} ({axis.kind}): {values}")
    by = " by energy" if view.until_of is SweepMeasure.ENERGY else ""
    until = "" if view.until is None else f", until decided{by} within {view.until * 100:g} %"
    seed = f", seed {view.seed}" if view.order == "shuffled" else ""
    status = ""
    if view.status is not None:
        reason = f" ({view.reason})" if view.reason else ""
        status = f"{view.status}{reason}: {view.done} of {count(len(view.slots), 'run')} done; "
    printer.prose(f"  {status}order {view.order}{seed}{until}")


def _point_columns(points: Sequence[Values], printer: Printer) -> list[Column]:
    """Return a column for each axis; letters, told above the table, where those take much room."""
    columns = [
        Column(_heading(axis), [values[place][1] or NONE_SHOWN for values in points], right=False)
        for place, (axis, _) in enumerate(points[0])
    ]
    if sum(column.width + 2 for column in columns) <= printer.width - _ROOM_BESIDE:
        return columns
    kinds = {values: column_letters(place) for place, values in enumerate(dict.fromkeys(points))}
    for values, letter in kinds.items():
        printer.prose(f"{letter}  {point_label(values)}")
    printer.line()
    return [Column("point", [kinds[values] for values in points], right=False)]


def _heading(axis: str) -> tuple[str, str]:
    """Return the name of an axis for two lines."""
    if axis.startswith(ENVIRONMENT):
        return ENVIRONMENT, axis.removeprefix(ENVIRONMENT)
    return axis, ""


def _print_left_out(view: SweepView, printer: Printer, word: str = "left out") -> None:
    printer.some((f"{word}: {p.label}: {p.left_out}" for p in view.points if p.left_out), "yellow")


def _runs_of(view: SweepView, point: PointView) -> str:
    if point.left_out is not None:
        return "-"
    return f"{len(point.runs)}/{view.rounds}"


def _changes(comparison: Comparison | None) -> tuple[str | None, dict[str, float | None]]:
    """Return the baseline's label, and each point's improvement over it; it has none itself."""
    if comparison is None or comparison.overall is None:
        return None, {}
    base, *others = [side.label for side in comparison.sides]
    cells = comparison.overall.cells
    improved = {side: cell.improvement for side, cell in zip(others, cells, strict=True)}
    return base, {base: 0.0, **improved}


def _signed(share: float | None) -> str:
    return "-" if share is None else signed_percent(share) if share else "0.0"


def _when(view: SweepView) -> str:
    return (view.started_at or "-").replace("T", " ").removesuffix("Z")[:16]


def _marks(view: SweepView) -> list[str]:
    """Return what is to be said of each point of a sweep that is not made."""
    baseline = view.running[0].point if view.running else None
    return [
        "REFUSED" if it.left_out else "baseline" if it.point == baseline else ""
        for it in view.points
    ]


# -- What a sweep came to, on a screen of 24 lines: points, changes, and what speaks against them --


def print_brief(view: SweepView, comparison: Comparison | None, printer: Printer) -> None:
    """Print a sweep that has ended, and where the rest is said.

    The table of one benchmark's comparison has every point's value, so that their own has
    nothing to add where all runs were made.
    """
    if comparison is None or comparison.is_empty:
        print_sweep(view, comparison, printer)
        return
    if len(comparison.benchmarks) == 1 and _whole(view):
        print_head(view, printer)
    else:
        print_sweep(view, comparison, printer)
    printer.line()
    print_parts(comparison_parts(comparison, detailed=False), printer)
    if view.number is not None:
        printer.prose(f"Points, noise and all benchmarks: `rater sweep --show {view.number}`")


def _whole(view: SweepView) -> bool:
    """Tell whether every point has all its results."""
    return all(len(point.results) == view.rounds for point in view.points)

"""Sweeps: the planned runs, those that are stored, and the results of the points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rater.analysis.compare.model import Comparison
from rater.analysis.results.rates import mean_rate
from rater.analysis.results.score import Overall
from rater.plan.sweep import (
    ENVIRONMENT,
    NONE_SHOWN,
    AxisKind,
    SlotRun,
    StoredSweep,
    SweepMeasure,
    SweepSpec,
    Values,
)
from rater.record.stored import RATIO
from rater.show.compare.comparison import comparison_parts
from rater.show.compare.effects import rate_heading
from rater.show.results.listing import started_text
from rater.show.screen.document import TEXT, Field, Form, Line, Part, ViewTable, decimals
from rater.show.screen.format import format_duration, format_number, needed_decimals
from rater.text.values import count, group_by_key, truncate_list

if TYPE_CHECKING:
    from rater.show.documents.sweep import (
        SlotRunJson,
        SweepDocument,
        SweepDryRunDocument,
        SweepHeadJson,
        SweepPointJson,
    )

_ORDERS_SHOWN = 3
_LABELS_SHOWN = 8
_MOST_REASONS = 6  # why no point has a result


class AxisView(Struct, frozen=True):
    """One tunable."""

    name: str
    kind: str
    values: tuple[str, ...]
    present: str | None = None  # of a setting of the machine, before the sweep


class PointView(Struct, frozen=True, kw_only=True):
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


class SweepView(Struct, frozen=True, kw_only=True):
    """A sweep, and what its points came to, or will."""

    sweep: StoredSweep  # number 0: it is not made
    what: str  # suites or command
    axes: tuple[AxisView, ...]
    points: tuple[PointView, ...]
    total_s: float | None = None  # all runs, as expected
    obstacles: tuple[str, ...] = ()  # why no point can run, one by one
    tied: tuple[str, ...] = ()  # what values set of the machine beside their axes

    @property
    def asked(self) -> SweepSpec:
        """The request of the sweep."""
        return self.sweep.asked

    @property
    def done(self) -> int:
        """Runs that are done."""
        return sum(slot.done for slot in self.sweep.slots)

    @property
    def running(self) -> tuple[PointView, ...]:
        """The points that are not left out."""
        return tuple(point for point in self.points if point.left_out is None)


def sweeps_parts(views: Sequence[SweepView]) -> Iterator[Part]:
    """Yield a line for each sweep."""
    if not views:
        yield "no sweeps stored yet; `rater sweep` makes one"
    columns = (
        Field(heading="sweep", value=lambda view: view.sweep.number),
        Field(
            heading="started (UTC)",
            value=lambda view: started_text(view.asked.started_at),
            form=TEXT,
        ),
        Field(heading="what", value=lambda view: view.what, form=TEXT, flexible=True),
        Field(
            heading="axes",
            value=lambda view: " ".join(axis.name for axis in view.axes),
            form=TEXT,
            flexible=True,
        ),
        Field(heading="points", value=lambda view: len(view.running), optional=1),
        Field(heading="runs", value=lambda view: f"{view.done}/{len(view.sweep.slots)}"),
        Field(heading="status", value=lambda view: view.sweep.status, form=TEXT),
    )
    yield ViewTable(title="", rows=views, fields=columns)


def sweep_parts(
    view: SweepView, comparison: Comparison | None, *, detailed: bool
) -> Iterator[Part]:
    """Yield a sweep's head, every point with the results of its rounds, and their comparison.

    Not `detailed`: as much as fits a screen, and where the rest is. The comparison of one
    benchmark has every point's value, so that their own have nothing to add where all runs were
    made. How far points are from the first is what `comparison` says: rounds in pairs.
    """
    yield from _head(view)
    compared = comparison is not None and not comparison.is_empty
    has_results = any(point.results for point in view.points)
    whole = all(len(point.results) == view.asked.rounds for point in view.points)
    if not has_results:
        yield from _without_results(view, comparison)
    elif detailed or not (comparison and compared and len(comparison.benchmarks) == 1 and whole):
        yield from _results(view, comparison)
    if comparison is not None and has_results and (detailed or compared):
        yield from comparison_parts(comparison, detailed=detailed)
    if not detailed and compared and view.sweep.number:
        yield f"Points, noise and all benchmarks: `rater sweep --show {view.sweep.number}`"


def _results(view: SweepView, comparison: Comparison | None) -> Iterator[Part]:
    """Yield what the runs of every point came to."""
    units = {result.unit for point in view.points for result in point.results}
    unit = next(iter(units)) if len(units) == 1 else RATIO
    places = needed_decimals([result.value for point in view.points for result in point.results])
    form = Form(lambda values: [format_number(value, places) for value in values])
    base, speedups, is_by_cpu = None, dict[str, float | None](), False
    if comparison is not None and comparison.overall is not None:
        base, *others = [side.label for side in comparison.sides]
        cells = zip(others, comparison.overall.cells, strict=True)
        is_by_cpu = any(cell.by_cpu for cell in comparison.overall.cells)
        speedups = {base: 1.0}
        speedups |= {
            side: cell.speedup.ratio
            for side, cell in cells
            if cell.speedup and cell.improvement is not None and not cell.by_cpu
        }

    def extreme(extremum: Callable[..., float]) -> Callable[[PointView], float | None]:
        return lambda it: extremum((result.value for result in it.results), default=None)

    def runs(point: PointView) -> str | None:
        return None if point.left_out is not None else f"{len(point.runs)}/{view.asked.rounds}"

    columns = (
        *_axes(view, lambda point: point.values),
        Field(heading="runs", value=runs),
        Field(heading="failed|runs", value=lambda point: point.failed or None),
        Field(heading=rate_heading(unit), value=lambda point: point.mean, form=form),
        Field(heading="lowest", value=extreme(min), form=form, optional=1),
        Field(heading="highest", value=extreme(max), form=form, optional=1),
        Field(heading="speed-|up", value=lambda point: speedups.get(point.label), form=decimals(3)),
    )
    over = f"speed-up: over {base}" if base else ""
    note = f"{over}; those by CPU time stand in the comparison" if is_by_cpu else over
    yield ViewTable(title="", rows=view.points, fields=columns, note=note)
    yield from _left_out(view)
    without = [point.label for point in view.running if point.runs and not point.results]
    if without:
        yield Line(
            f"no result (a copy failed in every run): {truncate_list(without, _LABELS_SHOWN)}",
            "yellow",
        )


def _without_results(view: SweepView, comparison: Comparison | None) -> Iterator[Part]:
    """Yield what failed, and what to do."""
    failed = [run for point in view.points if point.failed for run in point.runs]
    why = "copies failed in every run" if failed else "no run was made to its end"
    yield Line(f"No point has a result: {why}.", "bold")
    reasons = comparison.left_out if comparison is not None else ()
    yield from (Line(f"  {text}", "red") for text in reasons[:_MOST_REASONS])
    yield from _left_out(view)
    if failed:
        yield (
            f"How the copies ended: `rater show {min(failed)}`. Once that is mended, sweep anew: "
            "runs in which copies failed are not made again."
        )
    elif view.sweep.number:
        yield f"What is missing of it: `rater sweep --resume {view.sweep.number}`"


def dry_parts(view: SweepView) -> Iterator[Part]:
    """Yield what would be swept, in which order, how long it takes and what is in the way."""
    yield from _head(view)
    baseline = view.running[0].point if view.running else None

    def mark(point: PointView) -> str:
        return "REFUSED" if point.left_out else "baseline" if point.point == baseline else ""

    columns = (
        Field(heading="no.", value=lambda point: point.point + 1),
        *_axes(view, lambda point: point.values),
        Field(heading="in all|copies", value=lambda point: point.copies),
        Field(heading="one run", value=lambda it: it.expected_s and format_duration(it.expected_s)),
        Field(heading="", value=mark, form=TEXT),
    )
    yield ViewTable(title="", rows=view.points, fields=columns)
    blocks = group_by_key((slot.slot.block, str(slot.slot.point + 1)) for slot in view.sweep.slots)
    for block, points in list(blocks.items())[:_ORDERS_SHOWN]:
        yield f"block {block}: {' '.join(points)}"
    if len(blocks) > _ORDERS_SHOWN:
        yield f"and {count(len(blocks) - _ORDERS_SHOWN, 'more block')}"
    total = "" if view.total_s is None else f", about {format_duration(view.total_s)} (a guess)"
    yield f"{count(len(view.sweep.slots), 'run')}{total}"
    for axis in view.axes:
        if axis.present is not None:
            yield f"{axis.name} is {axis.present} now, and will be restored to that"
    yield from view.tied
    if view.tied:
        yield "all settings will be restored to what they are now"
    yield from _left_out(view, "REFUSED")
    yield from (Line(f"REFUSED: {text}", "bold red") for text in view.obstacles)


def missing_parts(view: SweepView) -> Iterator[Part]:
    """Yield what is still to be run of a stored sweep."""
    yield from _head(view)
    values = {point.point: point.values for point in view.points}
    missing = [slot for slot in view.sweep.slots if not slot.done]
    if not missing:
        yield Line("nothing is missing", "bold")
    columns = (
        Field(heading="block", value=lambda it: it.slot.block),
        *_axes(view, lambda it: values[it.slot.point]),
        Field(
            heading="",
            value=lambda it: f"run {it.run} is kept, made again" if it.run else "",
            form=TEXT,
        ),
    )
    yield ViewTable(title="", rows=missing, fields=columns)


def sweeps_document(views: Sequence[SweepView]) -> list[SweepHeadJson]:
    """Return the list for programs."""
    return [_head_document(view) for view in views]


def sweep_document(view: SweepView) -> SweepDocument:
    """Return a sweep for programs."""
    return {
        **_head_document(view),
        "points": [_point_document(point) for point in view.points],
        "runs": [_slot_document(slot_run) for slot_run in view.sweep.slots],
    }


def dry_document(view: SweepView) -> SweepDryRunDocument:
    """Return a sweep that is not made, for programs."""
    left_out = [point.left_out for point in view.points if point.left_out]
    return {
        **sweep_document(view),
        "sweep": None,
        "uuid": None,
        "status": None,
        "started_at": None,
        "dry_run": True,
        "expected_s": view.total_s,
        "refused": [*view.obstacles, *left_out],
    }


def _head_document(view: SweepView) -> SweepHeadJson:
    sweep, asked = view.sweep, view.asked
    return {
        "sweep": sweep.number,
        "uuid": asked.uuid,
        "status": sweep.status,
        "reason": sweep.reason,
        "started_at": asked.started_at,
        "what": view.what,
        "axes": [
            {"name": axis.name, "kind": AxisKind(axis.kind), "values": list(axis.values)}
            for axis in view.axes
        ],
        "rounds": asked.rounds,
        "order": asked.block_order,
        "seed": asked.seed,
        "until_percent": None if asked.until is None else asked.until * 100,
        "until_of": None if asked.until is None else asked.until_of,
        "runs_planned": len(sweep.slots),
        "runs_done": view.done,
        "file": asked.file,
        "file_sha256": asked.file_sha256,
    }


def _point_document(point: PointView) -> SweepPointJson:
    return {
        "point": point.point,
        "label": point.label,
        "values": dict(point.values),
        "left_out": point.left_out,
        "runs": list(point.runs),
        "runs_with_failed_copies": point.failed,
        "results": [{"value": result.value, "unit": result.unit} for result in point.results],
        "geomean": point.mean,
    }


def _slot_document(slot_run: SlotRun) -> SlotRunJson:
    return {
        "block": slot_run.slot.block,
        "position": slot_run.slot.position,
        "point": slot_run.slot.point,
        "run": slot_run.run,
        "status": slot_run.status,
        "done": slot_run.done,
        "elapsed_s": slot_run.elapsed_s,
    }


def _head(view: SweepView) -> Iterator[Part]:
    """Yield what was swept, every axis with its values, and how far it came."""
    points = count(len(view.running), "point")
    sweep, asked = view.sweep, view.asked
    name = f"sweep {sweep.number}" if sweep.number else "sweep"
    yield Line(f"{name} of {view.what}: {points}, {count(asked.rounds, 'round')}", "bold")
    for axis in view.axes:
        values = ", ".join(value or NONE_SHOWN for value in axis.values)
        yield f"  {axis.name} ({axis.kind}): {values}"
    by = " by energy" if asked.until_of is SweepMeasure.ENERGY else ""
    until = "" if asked.until is None else f", until decided{by} within {asked.until * 100:g} %"
    seed = f", seed {asked.seed}" if asked.block_order == "shuffled" else ""
    status = ""
    if sweep.number:
        reason = f" ({sweep.reason})" if sweep.reason else ""
        status = f"{sweep.status}{reason}: {view.done} of {count(len(sweep.slots), 'run')} done; "
    yield f"  {status}order {asked.block_order}{seed}{until}"


def _axes(view: SweepView, values: Callable[[Any], Values]) -> Iterator[Field]:
    """Yield a column for each axis, the value that a row has of it."""

    def value(row: object, place: int) -> str:
        return values(row)[place][1] or NONE_SHOWN

    for place, (axis, _) in enumerate(view.points[0].values):
        variable = axis.startswith(ENVIRONMENT)
        heading = (ENVIRONMENT, axis.removeprefix(ENVIRONMENT)) if variable else (axis, "")
        yield Field(heading=heading, value=partial(value, place=place), form=TEXT, flexible=True)


def _left_out(view: SweepView, word: str = "left out") -> Iterator[Part]:
    for point in view.points:
        if point.left_out:
            yield Line(f"{word}: {point.label}: {point.left_out}", "yellow")

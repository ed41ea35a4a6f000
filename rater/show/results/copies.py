"""`rater show --copies`: how the copies of each benchmark lie beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.results.copies import CellTimes, RatioPair, TimeStatistics, slowest_points
from rater.record.stored import RunHead
from rater.show.console.format import decimals
from rater.show.console.printer import Printer
from rater.show.console.rows import with_tunes
from rater.show.console.table import Column, Columns, seconds_columns
from rater.text.to_json import Json, Members, to_json

_LEAST_WORST = 10  # slowest copies that are listed whatever is dropped
_MOST_WORST = 40
_PLACES = 4  # decimals of normalised times, as in the paper


@dataclass(frozen=True, slots=True)
class CopiesView:
    """What `--copies` shows of a run."""

    head: RunHead
    baseline: RunHead  # whose medians are 1; the run's own head where none was named
    baseline_iteration: int | None  # None: over all its counted iterations
    drop: int
    times: tuple[CellTimes, ...]
    pairs: tuple[RatioPair, ...]  # empty without a baseline

    @property
    def worst_shown(self) -> int:
        """How many of the slowest copies are listed."""
        return min(max(_LEAST_WORST, self.drop), _MOST_WORST)


def print_copies(view: CopiesView, printer: Printer) -> None:
    """Print the ratios beside the baseline's, the copies' statistics, and the slowest copies."""
    if view.pairs:
        printer.line()
        _print_pairs(view, printer)
    printer.line()
    printer.prose(f"times of the copies over {_yardstick(view)}:", "bold")
    if not view.times:
        printer.line("no copy has ended")
        return
    printer.table(_shape_columns(view), ["" if t.cell.counted else "dim" for t in view.times])
    printer.prose("s.d.: of the sample (n - 1)" + (_dropped_words(view) if view.drop else ""))
    missing = list(dict.fromkeys(t.cell.benchmark for t in view.times if t.yardstick_s is None))
    if missing:
        alone = view.baseline_iteration is not None
        where = f"iteration {view.baseline_iteration} of " if alone else ""
        printer.prose(f"not in {where}run {view.baseline.run}: {', '.join(missing)}", "yellow")
    _print_worst(view, printer)


_TABLE = {
    CellTimes: Members(
        "cell.benchmark cell.tune cell.iteration cell.counted baseline_median_s=yardstick_s"
        " all=every kept",
        {
            "dropped": lambda one: [
                to_json(point) | {"normalised": one.normalised(point)} for point in one.dropped
            ],
            "failed_copies": lambda one: len({failed.copy for failed in one.cell.failed}),
        },
    ),
    RatioPair: Members("* change"),
}
_PLACE = Members("cell.benchmark cell.tune cell.iteration")


def copies_document(view: CopiesView) -> dict[str, Json]:
    """Return what `--copies` adds to the JSON of `rater show`: the key `copy_times`."""
    times = {
        "baseline": view.baseline.run,
        "baseline_iteration": view.baseline_iteration,
        "drop": view.drop,
        "cells": view.times,
        "slowest": [
            _PLACE.of(one) | to_json(point) | {"normalised": normalised}
            for one, point, normalised in slowest_points(view.times, view.worst_shown)
        ],
        "ratios": view.pairs,
    }
    return {"copy_times": to_json(times, _TABLE)}


def _yardstick(view: CopiesView) -> str:
    own = view.baseline.run == view.head.run
    whose = "of this run" if own else f"of run {view.baseline.run}"
    if view.baseline_iteration is not None:
        whose = f"of iteration {view.baseline_iteration} {whose}"
    return f"the median copy {whose} (benchmark by benchmark)"


def _dropped_words(view: CopiesView) -> str:
    which = "slowest copy" if view.drop == 1 else f"{view.drop} slowest copies"
    return f"; last columns: without the {which}"


def _print_pairs(view: CopiesView, printer: Printer) -> None:
    pairs = view.pairs
    several = len({pair.tune for pair in pairs if pair.tune}) > 1
    names = [f"{p.name} {p.tune}" if several and p.tune else p.name for p in pairs]
    values = [value for pair in pairs for value in (pair.baseline, pair.value)]
    places = decimals(values, significant=4)
    same = len({pair.unit for pair in pairs}) == 1
    unit = {"ratio": "ratio", "copies/hour": "copies/h"}[pairs[0].unit] if same else ""
    of = Columns(pairs)
    printer.table(
        [
            Column("benchmark", names, right=False, flexible=True),
            *([] if same else [of.left("unit", lambda pair: pair.unit)]),
            of.numbers((f"run {view.baseline.run}", unit), lambda pair: pair.baseline, places),
            of.numbers((f"run {view.head.run}", unit), lambda pair: pair.value, places),
            of.change("change|%", lambda pair: pair.change),
        ],
        ["bold" if pair.name.startswith("suite") else "" for pair in pairs],
    )
    if view.head.copies != view.baseline.copies:
        printer.prose(
            f"note: run {view.baseline.run} has {view.baseline.copies} copies, "
            f"run {view.head.run} has {view.head.copies}",
            "yellow",
        )


def _shape_columns(view: CopiesView) -> list[Column]:
    times = view.times
    labels = with_tunes([one.cell for one in times])
    first = [i == 0 or label != labels[i - 1] for i, label in enumerate(labels)]
    (medians_s,) = seconds_columns([one.yardstick_s for one in times])

    def once(cells: Sequence[str]) -> list[str]:
        return [text if new else "" for text, new in zip(cells, first, strict=True)]

    of = Columns(times)
    columns = [
        Column("benchmark", once(labels), right=False, flexible=True),
        of.right("iter", _iteration),
        of.right("copies", lambda one: len(one.cell.points), optional=2),
        Column("1 =|s", once(medians_s), optional=1),
        *_shape_parts([one.every for one in times], "all"),
    ]
    if view.drop:
        columns += _shape_parts([one.kept for one in times], f"-{view.drop}")
    return columns


def _shape_parts(shapes: Sequence[TimeStatistics | None], label: str) -> list[Column]:
    of = Columns(shapes)
    return [
        of.numbers(f"{label}|median", lambda shape: shape.median, _PLACES),
        of.numbers(f"{label}|mean", lambda shape: shape.mean, _PLACES),
        of.numbers(f"{label}|s.d.", lambda shape: shape.sd, _PLACES),
        of.numbers(f"{label}|max", lambda shape: shape.maximum, _PLACES),
    ]


def _iteration(one: CellTimes) -> str:
    return str(one.cell.iteration) if one.cell.counted else f"({one.cell.iteration})"


def _print_worst(view: CopiesView, printer: Printer) -> None:
    worst = slowest_points(view.times, view.worst_shown)
    if not worst:
        return
    printer.line()
    printer.prose(f"the slowest of {sum(len(t.cell.points) for t in view.times)}:", "bold")
    (seconds,) = seconds_columns([point.elapsed_s for _, point, _ in worst])
    named = dict(zip(view.times, with_tunes([one.cell for one in view.times]), strict=True))
    of, points = Columns(worst), Columns([point for _, point, _ in worst])
    joules = [points.numbers("J|estimate", lambda point: point.joules_estimate, optional=1)]
    printer.table(
        [
            of.left("benchmark", lambda row: named[row[0]], flexible=True),
            of.right("iter", lambda row: _iteration(row[0])),
            points.right("copy", lambda point: point.copy),
            points.right("CPU", lambda point: point.cpu),
            points.right("core", lambda point: point.core),
            points.right("lgroup", lambda point: point.node),
            Column("time|s", seconds),
            of.numbers("over the|median", lambda row: row[2], _PLACES),
            *(joules if any(point.joules_estimate for _, point, _ in worst) else ()),
        ]
    )

"""Copies of a run: beside each other, where they ran, every run, what they report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rater.analysis.results.copies import CellTimes, RatioPair, TimeStatistics, slowest_points
from rater.record.events import WorkloadTime
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredCopy, StoredRun
from rater.show.console import Column, Columns, Printer, names_with_tunes, seconds_columns
from rater.show.format import (
    needed_decimals,
)
from rater.text.values import Json, JsonFields, to_json

_LEAST_WORST = 10  # slowest copies that are listed whatever is dropped
_MOST_WORST = 40
_PLACES = 4  # decimals of normalised times, as in the paper


class CopiesView(Struct, frozen=True):
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


_COPIES_TABLE = {
    CellTimes: JsonFields(
        "cell.benchmark cell.tune cell.iteration cell.counted baseline_median_s=yardstick_s"
        " all=every kept",
        {
            "dropped": lambda one: [
                to_json(point) | {"normalised": one.normalised(point)} for point in one.dropped
            ],
            "failed_copies": lambda one: len({failed.copy for failed in one.cell.failed}),
        },
    ),
    RatioPair: JsonFields("* change"),
}
_PLACE = JsonFields("cell.benchmark cell.tune cell.iteration")


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
    return {"copy_times": to_json(times, _COPIES_TABLE)}


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
    places = needed_decimals(values, significant=4)
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
    labels = names_with_tunes([one.cell for one in times])
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
    # By identity: a cell's hash is that of all its points.
    names = names_with_tunes([one.cell for one in view.times])
    named = {id(one): name for one, name in zip(view.times, names, strict=True)}
    of, points = Columns(worst), Columns([point for _, point, _ in worst])
    joules = [points.numbers("J|estimate", lambda point: point.joules_estimate, optional=1)]
    printer.table(
        [
            of.left("benchmark", lambda row: named[id(row[0])], flexible=True),
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


# -- Every copy run of a run, with the times of its workloads where it had several -----------------

_CHECKED = {
    Validity.VALID: "valid",
    Validity.INVALID: "wrong",
    Validity.NOT_CHECKED: "not validated",
    Validity.UNCHECKED: "not looked at",
}


def print_copy_runs(run: StoredRun, printer: Printer) -> None:
    """Print a line for every copy run; torn attempts left out."""
    copies = run.without_torn().copies
    if not copies:
        return
    [times] = seconds_columns([it.elapsed_s for it in copies])
    of = Columns(copies)
    printer.line()
    printer.table(
        [
            of.left("benchmark", lambda it: it.benchmark, flexible=True),
            of.right("iter", lambda it: it.iteration),
            of.right("copy", lambda it: it.copy),
            of.right("CPU", lambda it: it.cpu),
            of.right("lgroup", lambda it: it.node, optional=90),
            of.numbers("start|s", lambda it: _seconds(it.start_ns), 3, optional=99),
            Column("time|s", times),
            *_workload_columns(copies),
            of.left("ended", _ended),
            of.left("output", _output, optional=98),
        ],
        ["" if it.status is CopyStatus.OK else "red" for it in copies],
    )
    if any(len(it.workloads) > 1 for it in copies):
        printer.prose("w1, w2, ...: the copy's workloads, one after the other; !: it failed")


_COPY_RUNS_TABLE = {
    StoredCopy: JsonFields(
        "benchmark iteration copy step cpu node",
        {"start_s": lambda copy: _seconds(copy.start_ns)},
        "elapsed_s status validity validity_detail workloads",
    ),
    WorkloadTime: JsonFields(
        "workload",
        {
            "start_s": lambda it: _seconds(it.start_ns),
            "elapsed_s": lambda it: it.elapsed_ns / 1e9,
        },
        "exit_code signal pid",
    ),
}


def copy_runs_document(run: StoredRun) -> list[Json]:
    """Return the same as JSON values; seconds are floats."""
    document: list[Json] = to_json(run.without_torn().copies, _COPY_RUNS_TABLE)
    return document


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _workload_columns(copies: tuple[StoredCopy, ...]) -> list[Column]:
    most = max(len(it.workloads) for it in copies)
    if most < 2:
        return []
    columns = []
    for this_place in range(most):
        cells = [
            it.workloads[this_place] if this_place < len(it.workloads) else None for it in copies
        ]
        [times] = seconds_columns([None if it is None else it.elapsed_ns / 1e9 for it in cells])
        marked = [
            f"{time}!" if _failed(it) and copy.status is CopyStatus.FAILED else time
            for time, it, copy in zip(times, cells, copies, strict=True)
        ]
        columns.append(Column((f"w{this_place + 1}", "s"), marked, optional=1 + this_place))
    return columns


def _failed(it: WorkloadTime | None) -> bool:
    return it is not None and (it.signal is not None or bool(it.exit_code))


def _ended(copy: StoredCopy) -> str:
    if copy.status is not CopyStatus.FAILED:
        return copy.status.value
    return f"signal {copy.signal}" if copy.signal is not None else f"exit code {copy.exit_code}"


def _output(copy: StoredCopy) -> str:
    bad = copy.status not in (CopyStatus.OK, CopyStatus.WRONG_OUTPUT)
    return "-" if bad and copy.validity is Validity.UNCHECKED else _CHECKED[copy.validity]

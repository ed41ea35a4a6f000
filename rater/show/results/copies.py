"""`rater show --copies`: how the copies of each benchmark lie beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.results.copies import CellTimes, RatioPair, TimeStatistics, slowest_points
from rater.record.stored import RunHead
from rater.show.console.format import decimals, number, percent
from rater.show.console.printer import Printer
from rater.show.console.table import Column, seconds_columns
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
    alike = len({pair.unit for pair in pairs}) == 1
    unit = {"ratio": "ratio", "copies/hour": "copies/h"}[pairs[0].unit] if alike else ""
    units = [] if alike else [Column(("unit", ""), [pair.unit for pair in pairs], right=False)]
    printer.table(
        [
            Column(("benchmark", ""), names, right=False, flexible=True),
            *units,
            Column((f"run {view.baseline.run}", unit), [number(p.baseline, places) for p in pairs]),
            Column((f"run {view.head.run}", unit), [number(p.value, places) for p in pairs]),
            Column(("change", "%"), [_signed(p.change) for p in pairs]),
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
    several = len({one.cell.tune for one in times}) > 1
    labels = [
        f"{one.cell.benchmark} {one.cell.tune or ''}" if several else one.cell.benchmark
        for one in times
    ]
    first = [i == 0 or labels[i] != labels[i - 1] for i in range(len(labels))]
    (medians_s,) = seconds_columns([one.yardstick_s for one in times])
    columns = [
        Column(
            ("benchmark", ""),
            [label if new else "" for label, new in zip(labels, first, strict=True)],
            right=False,
            flexible=True,
        ),
        Column(("iter", ""), [_iteration(one) for one in times]),
        Column(("copies", ""), [str(len(one.cell.points)) for one in times], optional=2),
        Column(
            ("1 =", "s"),
            [text if new else "" for text, new in zip(medians_s, first, strict=True)],
            optional=1,
        ),
        *_shape_parts([one.every for one in times], "all"),
    ]
    if view.drop:
        columns += _shape_parts([one.kept for one in times], f"-{view.drop}")
    return columns


def _shape_parts(shapes: Sequence[TimeStatistics | None], label: str) -> list[Column]:
    values = {
        "median": [shape.median if shape else None for shape in shapes],
        "mean": [shape.mean if shape else None for shape in shapes],
        "s.d.": [shape.sd if shape else None for shape in shapes],
        "max": [shape.maximum if shape else None for shape in shapes],
    }
    return [
        Column((label, name), [number(value, _PLACES) for value in column])
        for name, column in values.items()
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
    several = len({one.cell.tune for one in view.times}) > 1

    def place(values: Sequence[int | None]) -> list[str]:
        return ["-" if value is None else str(value) for value in values]

    printer.table(
        [
            Column(
                ("benchmark", ""),
                [
                    f"{one.cell.benchmark} {one.cell.tune or ''}" if several else one.cell.benchmark
                    for one, _, _ in worst
                ],
                right=False,
                flexible=True,
            ),
            Column(("iter", ""), [_iteration(one) for one, _, _ in worst]),
            Column(("copy", ""), [str(point.copy) for _, point, _ in worst]),
            Column(("CPU", ""), place([point.cpu for _, point, _ in worst])),
            Column(("core", ""), place([point.core for _, point, _ in worst])),
            Column(("lgroup", ""), place([point.node for _, point, _ in worst])),
            Column(("time", "s"), seconds),
            Column(("over the", "median"), [number(value, _PLACES) for _, _, value in worst]),
        ]
    )


def _signed(change: float | None) -> str:
    return "-" if change is None else f"{'+' if change >= 0 else ''}{percent(change)}"

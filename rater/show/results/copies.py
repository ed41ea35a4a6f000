"""Copies of a run: beside each other, where they ran, every run, what they report."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from rater.analysis.results.copies import CellTimes, RatioPair, slowest_points
from rater.record.events import WorkloadTime
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredCopy, StoredRun
from rater.show.document import (
    CHANGE,
    NUMBER,
    SECONDS,
    TEXT,
    Field,
    Line,
    Part,
    Row,
    ViewTable,
    benchmark_fields,
    decimals,
)
from rater.show.format import format_number, needed_decimals
from rater.text.values import Json, JsonFields, struct_fields, to_json

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


def copy_parts(view: CopiesView) -> Iterator[Part]:
    """Yield the ratios beside the baseline's, the copies' statistics, and the slowest copies."""
    yield _pairs(view)
    if view.pairs and view.head.copies != view.baseline.copies:
        yield Line(
            f"note: run {view.baseline.run} has {view.baseline.copies} copies, "
            f"run {view.head.run} has {view.head.copies}",
            "yellow",
        )
    own = view.baseline.run == view.head.run
    whose = "of this run" if own else f"of run {view.baseline.run}"
    if view.baseline_iteration is not None:
        whose = f"of iteration {view.baseline_iteration} {whose}"
    if not view.times:
        yield "no copy has ended"
        return
    columns = (
        *benchmark_fields([_CELL.of(one) for one in view.times]),
        Field("copies", lambda one: len(one["cell"].points), optional=2),
        Field("1 =|s", lambda one: one["yardstick_s"], SECONDS, optional=1),
        *_shape("all", "every"),
        *(_shape(f"-{view.drop}", "kept") if view.drop else ()),
    )
    rows = [struct_fields(one) | _CELL.of(one) for one in view.times]
    title = f"Times of copies relative to the median copy {whose} of the same benchmark"
    which = "slowest copy" if view.drop == 1 else f"{view.drop} slowest copies"
    note = f"-{view.drop}: without the {which}" if view.drop else ""
    yield ViewTable(title, rows, columns, lambda one: "" if one["counted"] else "dim", note=note)
    missing = list(dict.fromkeys(t.cell.benchmark for t in view.times if t.yardstick_s is None))
    if missing:
        alone = view.baseline_iteration is not None
        where = f"iteration {view.baseline_iteration} of " if alone else ""
        yield Line(f"not in {where}run {view.baseline.run}: {', '.join(missing)}", "yellow")
    yield _worst(view)


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
_CELL = JsonFields("cell.benchmark cell.tune cell.iteration cell.counted")


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


def _pairs(view: CopiesView) -> ViewTable:
    pairs = view.pairs
    several = len({pair.tune for pair in pairs if pair.tune}) > 1
    values = [value for pair in pairs for value in (pair.baseline, pair.value)]
    form = decimals(needed_decimals(values, significant=4))
    columns = (
        Field("benchmark", lambda pair: pair.name, TEXT, flexible=True),
        Field("tune", lambda pair: pair.tune if several else None, TEXT),
        Field("unit", lambda pair: pair.unit, TEXT),
        Field(f"run {view.baseline.run}", lambda pair: pair.baseline, form),
        Field(f"run {view.head.run}", lambda pair: pair.value, form),
        Field("change|%", lambda pair: pair.change, CHANGE),
    )
    return ViewTable("", pairs, columns, lambda it: "bold" if it.name.startswith("suite") else "")


def _shape(label: str, of: str) -> list[Field]:
    def value(name: str, one: Row) -> float | None:
        found: float | None = getattr(one[of], name, None)
        return found

    parts = {"median": "median", "mean": "mean", "s.d.": "sd", "max": "maximum"}
    return [
        Field(f"{label}|{words}", partial(value, name), decimals(_PLACES))
        for words, name in parts.items()
    ]


def _worst(view: CopiesView) -> ViewTable:
    rows = [
        struct_fields(point) | _CELL.of(one) | {"normalised": normalised}
        for one, point, normalised in slowest_points(view.times, view.worst_shown)
    ]
    columns = (
        *benchmark_fields(rows),
        Field("copy", "copy"),
        Field("CPU", "cpu"),
        Field("core", "core"),
        Field("node", "node"),
        Field("time|s", "elapsed_s", SECONDS),
        Field("over the|median", "normalised", decimals(_PLACES)),
        Field("J|estimate", "joules_estimate", NUMBER, optional=1),
    )
    return ViewTable(f"The slowest of {sum(len(t.cell.points) for t in view.times)}", rows, columns)


# -- Every copy run of a run, with the times of its workloads where it had several -----------------

_CHECKED = {
    Validity.VALID: "valid",
    Validity.INVALID: "wrong",
    Validity.NOT_CHECKED: "not validated",
    Validity.UNCHECKED: "not looked at",
}


def copy_run_parts(run: StoredRun) -> Iterator[Part]:
    """Yield a row for every copy run; torn attempts left out."""
    copies = run.without_torn().copies
    most = max((len(it.workloads) for it in copies), default=0)
    columns = (
        Field("benchmark", lambda it: it.benchmark, TEXT, flexible=True),
        Field("iter", lambda it: it.iteration),
        Field("copy", lambda it: it.copy),
        Field("CPU", lambda it: it.cpu),
        Field("node", lambda it: it.node, optional=90),
        Field("start|s", lambda it: _seconds(it.start_ns), decimals(3), optional=99),
        Field("time|s", lambda it: it.elapsed_s, SECONDS),
        *(_workload(place) for place in range(most if most > 1 else 0)),
        Field("ended", _ended, TEXT),
        Field("output", _output, TEXT, optional=98),
    )
    note = "w1, w2, ...: the copy's workloads, one after the other; !: it failed"
    yield ViewTable(
        "",
        copies,
        columns,
        lambda it: "" if it.status is CopyStatus.OK else "red",
        note=note if most > 1 else "",
    )


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


def _workload(place: int) -> Field:
    def value(copy: StoredCopy) -> str | None:
        it = copy.workloads[place] if place < len(copy.workloads) else None
        failed = _failed(it) and copy.status is CopyStatus.FAILED
        return f"{format_number(it.elapsed_ns / 1e9)}{'!' * failed}" if it else None

    return Field((f"w{place + 1}", "s"), value, optional=1 + place)


def _failed(it: WorkloadTime | None) -> bool:
    return it is not None and (it.signal is not None or bool(it.exit_code))


def _ended(copy: StoredCopy) -> str:
    if copy.status is not CopyStatus.FAILED:
        return copy.status.value
    return f"signal {copy.signal}" if copy.signal is not None else f"exit code {copy.exit_code}"


def _output(copy: StoredCopy) -> str:
    bad = copy.status not in (CopyStatus.OK, CopyStatus.WRONG_OUTPUT)
    return "-" if bad and copy.validity is Validity.UNCHECKED else _CHECKED[copy.validity]

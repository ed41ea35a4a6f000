"""Copies of a run beside each other, and every run of them: JSON documents and tables over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rater.analysis.results.copies import CellTimes, CopyPoint, RatioPair, slowest_points
from rater.record.events import CopyEnded, WorkloadTime
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredRun
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    SECONDS,
    TEXT,
    Field,
    Line,
    Part,
    ViewTable,
    benchmark_fields,
    decimals,
)
from rater.show.screen.format import format_number, needed_decimals
from rater.text.values import to_json

if TYPE_CHECKING:
    from rater.show.documents.copies import (
        CellTimesJson,
        CellWhereJson,
        CopyPointJson,
        CopyRunJson,
        CopyTimesJson,
        RatioPairJson,
        WorkloadJson,
    )

_LEAST_WORST = 10  # slowest copies that are listed whatever is dropped
_MOST_WORST = 40
_SHARES = decimals(4)  # of normalised times, as in the paper


def copies_document(
    head: RunHead,
    times: Sequence[CellTimes],
    baseline: RunHead,
    pairs: Sequence[RatioPair] = (),
    *,
    iteration: int | None = None,
    drop: int = 0,
) -> CopyTimesJson:
    """Return the times of a run's copies, `copy_times` of `rater show --copies --json`.

    `baseline` is the run whose medians are 1, by default the run itself, and `iteration` the one
    iteration that its medians are of. `drop` of the slowest copies are left out of `kept`.
    `pairs` are results beside those of the baseline.
    """
    slowest = slowest_points(times, min(max(_LEAST_WORST, drop), _MOST_WORST))
    return {
        "baseline": baseline.run,
        "baseline_copies": baseline.copies,
        "baseline_iteration": iteration,
        "drop": drop,
        "cells": [_cell_json(cell_times) for cell_times in times],
        "slowest": [
            {**_where_json(cell_times), **_point_json(point, normalised)}
            for cell_times, point, normalised in slowest
        ],
        "ratios": [_pair_json(pair) for pair in pairs],
    }


def _where_json(cell_times: CellTimes) -> CellWhereJson:
    cell = cell_times.cell
    return {"benchmark": cell.benchmark, "tune": cell.tune, "iteration": cell.iteration}


def _cell_json(cell_times: CellTimes) -> CellTimesJson:
    cell = cell_times.cell
    return {
        **_where_json(cell_times),
        "counted": cell.counted,
        "baseline_median_s": cell_times.yardstick_s,
        "all": to_json(cell_times.every),
        "kept": to_json(cell_times.kept),
        "dropped": [
            _point_json(point, cell_times.normalised(point)) for point in cell_times.dropped
        ],
        "failed_copies": len({failed.copy for failed in cell.failed}),
        "copies": len(cell.points),
    }


def _point_json(point: CopyPoint, normalised: float | None) -> CopyPointJson:
    fields: CopyPointJson = to_json(point)
    fields["normalised"] = normalised
    return fields


def _pair_json(pair: RatioPair) -> RatioPairJson:
    fields: RatioPairJson = to_json(pair)
    fields["change"] = pair.change
    return fields


def copy_parts(times: CopyTimesJson, head: RunHead) -> Iterator[Part]:
    """Yield the ratios beside the baseline's, the copies' statistics, and the slowest copies."""
    base, run = times["baseline"], head.run
    yield _ratios_table(times["ratios"], base, run)
    if times["ratios"] and head.copies != times["baseline_copies"]:
        copies = f"run {base} has {times['baseline_copies']} copies, run {run} has {head.copies}"
        yield Line(f"note: {copies}", "yellow")
    cells = times["cells"]
    if not cells:
        yield "no copy has ended"
        return
    yield _times_table(times, run)
    missing = [cell["benchmark"] for cell in cells if cell["baseline_median_s"] is None]
    if missing:
        iteration = times["baseline_iteration"]
        where = "" if iteration is None else f"iteration {iteration} of "
        text = f"not in {where}run {base}: {', '.join(dict.fromkeys(missing))}"
        yield Line(text, "yellow")
    yield _slowest_table(times)


def _times_table(times: CopyTimesJson, run: int) -> ViewTable:
    cells, base, drop = times["cells"], times["baseline"], times["drop"]
    owner = "of this run" if base == run else f"of run {base}"
    if times["baseline_iteration"] is not None:
        owner = f"of iteration {times['baseline_iteration']} {owner}"
    shapes = {"all": "all", **({f"-{drop}": "kept"} if drop else {})}
    statistics = {"median": "median", "mean": "mean", "s.d.": "sd", "max": "maximum"}
    columns = (
        *benchmark_fields(cells),
        Field(heading="copies", value="copies", optional=2),
        Field(heading="1 =|s", value="baseline_median_s", form=SECONDS, optional=1),
        *(
            Field(heading=f"{label}|{words}", value=f"{shape}.{key}", form=_SHARES)
            for label, shape in shapes.items()
            for words, key in statistics.items()
        ),
    )
    dropped = "slowest copy" if drop == 1 else f"{drop} slowest copies"
    return ViewTable(
        title=f"Times of copies relative to the median copy {owner} of the same benchmark",
        rows=cells,
        fields=columns,
        style=lambda cell: "" if cell["counted"] else "dim",
        note=f"-{drop}: without the {dropped}" if drop else "",
    )


def _slowest_table(times: CopyTimesJson) -> ViewTable:
    slowest = times["slowest"]
    columns = (
        *benchmark_fields(slowest),
        *(Field(heading=heading, value=key) for heading, key in _PLACES.items()),
        Field(heading="time|s", value="elapsed_s", form=SECONDS),
        Field(heading="over the|median", value="normalised", form=_SHARES),
        Field(heading="J|estimate", value="joules_estimate", form=NUMBER, optional=1),
    )
    copies = sum(cell["copies"] for cell in times["cells"])
    return ViewTable(title=f"The slowest of {copies}", rows=slowest, fields=columns)


_PLACES = {"copy": "copy", "CPU": "cpu", "core": "core", "node": "node"}


def _ratios_table(pairs: Sequence[RatioPairJson], base: int, run: int) -> ViewTable:
    several = len({pair["tune"] for pair in pairs if pair["tune"]}) > 1
    values = [value for pair in pairs for value in (pair["baseline"], pair["value"])]
    form = decimals(needed_decimals(values, significant=4))
    columns = (
        Field(heading="benchmark", value="name", form=TEXT, flexible=True),
        Field(heading="tune", value=lambda pair: pair["tune"] if several else None, form=TEXT),
        Field(heading="unit", value="unit", form=TEXT),
        Field(heading=f"run {base}", value="baseline", form=form),
        Field(heading=f"run {run}", value="value", form=form),
        Field(heading="change|%", value="change", form=CHANGE),
    )

    def style(pair: RatioPairJson) -> str:
        return "bold" if pair["name"].startswith("suite") else ""

    return ViewTable(title="", rows=pairs, fields=columns, style=style)


# -- Every copy run of a run, with the times of its workloads where it had several -----------------

_CHECKED = {
    Validity.VALID: "valid",
    Validity.INVALID: "wrong",
    Validity.NOT_CHECKED: "not validated",
    Validity.UNCHECKED: "not looked at",
}


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def copy_runs_document(run: StoredRun) -> list[CopyRunJson]:
    """Return every copy run as JSON values, torn attempts left out; seconds are floats."""
    return [_copy_run_json(copy) for copy in run.without_torn().copies]


def _copy_run_json(copy: CopyEnded) -> CopyRunJson:
    return {
        "benchmark": copy.benchmark,
        "iteration": copy.iteration,
        "copy": copy.copy,
        "step": copy.step,
        "cpu": copy.cpu,
        "node": copy.node,
        "start_s": _seconds(copy.start_ns),
        "elapsed_s": copy.elapsed_s,
        "status": copy.status,
        "validity": copy.validity,
        "validity_detail": copy.validity_detail,
        "workloads": [_workload_json(workload) for workload in copy.workloads],
        "exit_code": copy.exit_code,
        "signal": copy.signal,
    }


def _workload_json(workload: WorkloadTime) -> WorkloadJson:
    return {
        "workload": workload.workload,
        "start_s": _seconds(workload.start_ns),
        "elapsed_s": workload.elapsed_ns / 1e9,
        "exit_code": workload.exit_code,
        "signal": workload.signal,
        "pid": workload.pid,
    }


def copy_run_parts(rows: Sequence[CopyRunJson]) -> Iterator[Part]:
    """Yield a row for every copy run."""
    most = max((len(row["workloads"]) for row in rows), default=0)
    columns = (
        Field(heading="benchmark", value="benchmark", form=TEXT, flexible=True),
        Field(heading="iter", value="iteration"),
        Field(heading="copy", value="copy"),
        Field(heading="CPU", value="cpu"),
        Field(heading="node", value="node", optional=90),
        Field(heading="start|s", value="start_s", form=decimals(3), optional=99),
        Field(heading="time|s", value="elapsed_s", form=SECONDS),
        *(
            Field(
                heading=(f"w{place + 1}", "s"), value=partial(_workload, place), optional=1 + place
            )
            for place in range(most if most > 1 else 0)
        ),
        Field(heading="ended", value=_ended, form=TEXT),
        Field(heading="output", value=_output, form=TEXT, optional=98),
    )
    note = "w1, w2, ...: the copy's workloads, one after the other; !: it failed"
    yield ViewTable(
        title="",
        rows=rows,
        fields=columns,
        style=lambda row: "" if row["status"] == CopyStatus.OK else "red",
        note=note if most > 1 else "",
    )


def _workload(place: int, copy: CopyRunJson) -> str | None:
    if place >= len(copy["workloads"]):
        return None
    workload = copy["workloads"][place]
    failed = workload["signal"] is not None or bool(workload["exit_code"])
    mark = "!" * (failed and copy["status"] == CopyStatus.FAILED)
    return f"{format_number(workload['elapsed_s'])}{mark}"


def _ended(copy: CopyRunJson) -> str:
    if copy["status"] != CopyStatus.FAILED:
        return str(copy["status"])
    signal = copy["signal"]
    return f"signal {signal}" if signal is not None else f"exit code {copy['exit_code']}"


def _output(copy: CopyRunJson) -> str:
    bad = copy["status"] not in (CopyStatus.OK, CopyStatus.WRONG_OUTPUT)
    validity = Validity(copy["validity"])
    return "-" if bad and validity is Validity.UNCHECKED else _CHECKED[validity]

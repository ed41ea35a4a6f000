"""Copies of a run beside each other, and every run of them: JSON documents and tables over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rater.analysis.results.copies import CellTimes, CopyPoint, RatioPair, slowest_points
from rater.analysis.results.copy_table import CopyRow
from rater.record.events import CopyEnded, WorkloadTime
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredRun
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
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
from rater.system.errors import InputError
from rater.text.values import count, to_json

if TYPE_CHECKING:
    from rater.show.documents.copies import (
        CellTimesJson,
        CellWhereJson,
        CopyPointJson,
        CopyRowJson,
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


# -- A row a copy ----------------------------------------------------------------------------------

_MOST_ON_A_TERMINAL = 40  # rows; a pipe, CSV and JSON have all
# Words of --sort, and the keys of rows that they sort by.
SORT_KEYS = {
    "copy": "copy",
    "cpu": "cpu",
    "node": "node",
    "time": "elapsed_s",
    "median": "over_median",
    "cpu-time": "cpu_s",
    "waited": "waited",
    "own": "waited_own",
    "others": "waited_others",
    "slept": "slept",
    "memory": "memory_bytes",
    "faults": "faults",
    "exit": "exit",
    "benchmark": "benchmark",
    "iteration": "iteration",
}
_ASCENDING = ("copy", "cpu", "node", "exit", "benchmark", "iteration")
_DEFAULT_SORT = "median"


def copy_rows_document(rows: Sequence[CopyRow], sort: str | None) -> list[CopyRowJson]:
    """Return a row for each copy as JSON values, sorted; raises `InputError` for no column.

    `sort`: a word of `SORT_KEYS` or a metric; numbers fall, places and words rise; `-` before it
    turns that round. What is not known stands last.
    """
    word = (sort or _DEFAULT_SORT).removeprefix("-")
    metrics = list(dict.fromkeys(name for row in rows for name, _ in row.metrics))
    if word not in SORT_KEYS and word not in metrics:
        raise InputError(f"--sort {sort}: expected one of {', '.join([*SORT_KEYS, *metrics])}")
    documents = [_copy_row_json(row) for row in rows]
    is_turned = bool(sort) and sort is not None and sort.startswith("-")
    is_falling = (word not in _ASCENDING) is not is_turned

    def value(document: CopyRowJson) -> Any:
        if word in SORT_KEYS:
            return document[SORT_KEYS[word]]  # type: ignore[literal-required]
        return document["metrics"].get(word)

    known = [document for document in documents if value(document) is not None]
    unknown = [document for document in documents if value(document) is None]
    return [*sorted(known, key=value, reverse=is_falling), *unknown]


def _copy_row_json(row: CopyRow) -> CopyRowJson:
    return {
        "benchmark": row.benchmark,
        "tune": row.tune,
        "iteration": row.iteration,
        "counted": row.counted,
        "copy": row.copy,
        "cpu": row.cpu,
        "node": row.node,
        "elapsed_s": row.elapsed_s,
        "over_median": row.over_median,
        "cpu_s": row.cpu_s,
        "waited": row.waited,
        "waited_own": row.waited_own,
        "waited_others": row.waited_others,
        "slept": row.slept,
        "memory_bytes": row.memory_bytes,
        "faults": row.faults,
        "exit": row.exit,
        "metrics": dict(row.metrics),
    }


def copy_rows_parts(rows: Sequence[CopyRowJson], *, is_terminal: bool) -> Iterator[Part]:
    """Yield the table of copies; on a terminal the first of them, and how many more there are."""
    several = len({(row["benchmark"], row["tune"]) for row in rows}) > 1
    is_split = any(row["waited_own"] is not None for row in rows)
    metrics = dict.fromkeys(name for row in rows for name in row["metrics"])
    columns = (
        *(benchmark_fields(rows)[:-1] if several else ()),
        Field(heading="iter", value="iteration"),
        Field(heading="copy", value="copy"),
        Field(heading="CPU", value="cpu"),
        Field(heading="node", value="node", optional=5),
        Field(heading="time|s", value="elapsed_s", form=SECONDS),
        Field(heading="/|median", value="over_median", form=decimals(3)),
        Field(heading="CPU|s", value="cpu_s", form=SECONDS, optional=1),
        Field(
            heading="waited|%", value=lambda row: None if is_split else row["waited"], form=PERCENT
        ),
        Field(heading="waited %|own", value="waited_own", form=PERCENT),
        Field(heading="waited %|others", value="waited_others", form=PERCENT),
        Field(heading="slept|%", value="slept", form=PERCENT, optional=2),
        Field(heading="memory|MB", value=_megabytes, form=NUMBER, optional=3),
        Field(heading="page|faults", value="faults", optional=6),
        *(
            Field(
                heading=name,
                value=partial(_metric, name),
                form=NUMBER,
                optional=7 + place,
            )
            for place, name in enumerate(metrics)
        ),
        Field(heading="exit", value="exit", form=TEXT),
    )
    most = _MOST_ON_A_TERMINAL if is_terminal else 0
    more = len(rows) - most if most else 0
    hint = f"and {count(more, 'more row')}: `rater show RUN --copies | cat` or --json has all"
    yield ViewTable(
        title="Copies",
        rows=rows,
        fields=columns,
        style=lambda row: "" if row["exit"] == "ok" else "red",
        most=most,
        note=hint if more > 0 else "",
    )


def _megabytes(row: CopyRowJson) -> float | None:
    size = row["memory_bytes"]
    return None if size is None else size / 1e6


def _metric(name: str, row: CopyRowJson) -> float | None:
    return row["metrics"].get(name)


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

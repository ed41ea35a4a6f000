"""Copies of a run beside each other, and every run of them: JSON documents and tables over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rater.analysis.results.copies import CellTimes, RatioPair, slowest_points
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
    Row,
    ViewTable,
    benchmark_fields,
    decimals,
)
from rater.show.screen.format import format_number, needed_decimals
from rater.text.values import Json, JsonFields, to_json

_LEAST_WORST = 10  # slowest copies that are listed whatever is dropped
_MOST_WORST = 40
_SHARES = decimals(4)  # of normalised times, as in the paper
_WHERE = JsonFields("cell.benchmark cell.tune cell.iteration")
_TABLE = {
    CellTimes: JsonFields(
        {"*": _WHERE.read},
        "cell.counted baseline_median_s=yardstick_s all=every kept",
        {
            "dropped": lambda one: [
                to_json(point) | {"normalised": one.normalised(point)} for point in one.dropped
            ],
            "failed_copies": lambda one: len({failed.copy for failed in one.cell.failed}),
            "copies": lambda one: len(one.cell.points),
        },
    ),
    RatioPair: JsonFields("* change"),
}


def copies_document(
    head: RunHead,
    times: Sequence[CellTimes],
    baseline: RunHead,
    pairs: Sequence[RatioPair] = (),
    *,
    iteration: int | None = None,
    drop: int = 0,
) -> dict[str, Json]:
    """Return what `--copies` adds to the JSON of `rater show`: the key `copy_times`.

    `baseline`: the run whose medians are 1, its own where none was named; `iteration` of it, None:
    over all that count; `drop`: so many of the slowest are left out; `pairs`: results beside its.
    """
    worst = slowest_points(times, min(max(_LEAST_WORST, drop), _MOST_WORST))
    found = {
        "baseline": baseline.run,
        "baseline_copies": baseline.copies,
        "baseline_iteration": iteration,
        "drop": drop,
        "cells": times,
        "slowest": [
            _WHERE.read(one) | to_json(point) | {"normalised": normalised}
            for one, point, normalised in worst
        ],
        "ratios": pairs,
    }
    return {"copy_times": to_json(found, _TABLE)}


def copy_parts(document: Row) -> Iterator[Part]:
    """Yield the ratios beside the baseline's, the copies' statistics, and the slowest copies."""
    times, run, copies = document["copy_times"], document["run"], document["copies"]
    base, alone, drop = times["baseline"], times["baseline_iteration"], times["drop"]
    yield _pairs(times["ratios"], base, run)
    if times["ratios"] and copies != times["baseline_copies"]:
        note = f"note: run {base} has {times['baseline_copies']} copies, run {run} has {copies}"
        yield Line(note, "yellow")
    cells = times["cells"]
    if not cells:
        yield "no copy has ended"
        return
    whose = "of this run" if base == run else f"of run {base}"
    if alone is not None:
        whose = f"of iteration {alone} {whose}"
    shapes = {"all": "all", **({f"-{drop}": "kept"} if drop else {})}
    parts = {"median": "median", "mean": "mean", "s.d.": "sd", "max": "maximum"}
    columns = (
        *benchmark_fields(cells),
        Field(heading="copies", value="copies", optional=2),
        Field(heading="1 =|s", value="baseline_median_s", form=SECONDS, optional=1),
        *(
            Field(heading=f"{label}|{words}", value=f"{of}.{name}", form=_SHARES)
            for label, of in shapes.items()
            for words, name in parts.items()
        ),
    )
    title = f"Times of copies relative to the median copy {whose} of the same benchmark"
    which = "slowest copy" if drop == 1 else f"{drop} slowest copies"
    note = f"-{drop}: without the {which}" if drop else ""
    yield ViewTable(
        title=title,
        rows=cells,
        fields=columns,
        style=lambda one: "" if one["counted"] else "dim",
        note=note,
    )
    missing = [cell["benchmark"] for cell in cells if cell["baseline_median_s"] is None]
    if missing:
        where = "" if alone is None else f"iteration {alone} of "
        text = f"not in {where}run {base}: {', '.join(dict.fromkeys(missing))}"
        yield Line(text, "yellow")
    slowest = times["slowest"]
    worst = (
        *benchmark_fields(slowest),
        *(Field(heading=name, value=key) for name, key in _PLACES.items()),
        Field(heading="time|s", value="elapsed_s", form=SECONDS),
        Field(heading="over the|median", value="normalised", form=_SHARES),
        Field(heading="J|estimate", value="joules_estimate", form=NUMBER, optional=1),
    )
    yield ViewTable(
        title=f"The slowest of {sum(cell['copies'] for cell in cells)}", rows=slowest, fields=worst
    )


_PLACES = {"copy": "copy", "CPU": "cpu", "core": "core", "node": "node"}


def _pairs(pairs: Sequence[Row], base: int, run: int) -> ViewTable:
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

    def style(it: Row) -> str:
        return "bold" if it["name"].startswith("suite") else ""

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


_START = {"start_s": lambda it: _seconds(it.start_ns)}
_RUNS_TABLE = {
    CopyEnded: JsonFields(
        "benchmark iteration copy step cpu node",
        _START,
        "elapsed_s status validity validity_detail workloads exit_code signal",
    ),
    WorkloadTime: JsonFields(
        "workload", _START, {"elapsed_s": lambda it: it.elapsed_ns / 1e9}, "exit_code signal pid"
    ),
}


def copy_runs_document(run: StoredRun) -> list[Row]:
    """Return every copy run as JSON values, torn attempts left out; seconds are floats."""
    document: list[Row] = to_json(run.without_torn().copies, _RUNS_TABLE)
    return document


def copy_run_parts(rows: Sequence[Row]) -> Iterator[Part]:
    """Yield a row for every copy run."""
    most = max((len(it["workloads"]) for it in rows), default=0)
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
        style=lambda it: "" if it["status"] == CopyStatus.OK else "red",
        note=note if most > 1 else "",
    )


def _workload(place: int, copy: Row) -> str | None:
    if place >= len(copy["workloads"]):
        return None
    it = copy["workloads"][place]
    failed = it["signal"] is not None or bool(it["exit_code"])
    mark = "!" * (failed and copy["status"] == CopyStatus.FAILED)
    return f"{format_number(it['elapsed_s'])}{mark}"


def _ended(copy: Row) -> str:
    if copy["status"] != CopyStatus.FAILED:
        return str(copy["status"])
    signal = copy["signal"]
    return f"signal {signal}" if signal is not None else f"exit code {copy['exit_code']}"


def _output(copy: Row) -> str:
    bad = copy["status"] not in (CopyStatus.OK, CopyStatus.WRONG_OUTPUT)
    validity = Validity(copy["validity"])
    return "-" if bad and validity is Validity.UNCHECKED else _CHECKED[validity]

"""Every copy run of a run, with the times of its workloads where it had several."""

from __future__ import annotations

from rater.record.events import WorkloadTime
from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy, StoredRun
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns, seconds_columns
from rater.text.to_json import Json, Members, to_json

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


_TABLE = {
    StoredCopy: Members(
        "benchmark iteration copy step cpu node",
        {"start_s": lambda copy: _seconds(copy.start_ns)},
        "elapsed_s status validity validity_detail workloads",
    ),
    WorkloadTime: Members(
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
    document: list[Json] = to_json(run.without_torn().copies, _TABLE)
    return document


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _workload_columns(copies: tuple[StoredCopy, ...]) -> list[Column]:
    most = max(len(it.workloads) for it in copies)
    if most < 2:
        return []
    columns = []
    for place in range(most):
        cells = [it.workloads[place] if place < len(it.workloads) else None for it in copies]
        [times] = seconds_columns([None if it is None else it.elapsed_ns / 1e9 for it in cells])
        marked = [
            f"{time}!" if _failed(it) else time for time, it in zip(times, cells, strict=True)
        ]
        columns.append(Column((f"w{place + 1}", "s"), marked, optional=1 + place))
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

"""Rows in: heads of runs, and one row for what happened at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from itertools import batched, groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from rater.process import ProcessId
from rater.record.events import (
    CopyCounted,
    CopyEnded,
    CopyStarted,
    CpuReadings,
    Event,
    MachineReadings,
    Noted,
    Observed,
    OutputChecked,
    PagesHad,
    PhaseCounted,
    PhaseEnded,
    PhaseStarted,
    PhaseTorn,
    Resting,
    RunEnded,
    Sampled,
)
from rater.record.run import (
    BenchmarkUsed,
    CopyStatus,
    Host,
    MachinePU,
    Placement,
    Run,
    RunStatus,
    Validity,
)
from rater.record.stored import RunHead, StoredCopy, StoredRun
from rater.store.rows import insert_row, insert_rows, refuse_drifted

_COPIES_AT_ONCE = 1000  # of an imported run, which may be too large to hold
_OF_COPY = "run_id = :run_id AND phase = :phase AND copy = :copy AND step = :step"
JUDGED = f"UPDATE copy SET placement = :placement, placement_note = :note WHERE {_OF_COPY}"
# A resumed run is observed once more: its attempts count together.
_OBSERVED = """
INSERT INTO observed
  (run_id, cadence, samples, interval_s, cpu_s, share, longest_read_s, unknown)
VALUES
  (:run_id, :cadence, :samples, :interval_s, :cpu_s, :share, :longest_read_s, :unknown)
ON CONFLICT (run_id) DO UPDATE SET
  cadence = excluded.cadence,
  samples = samples + excluded.samples,
  interval_s = coalesce(
    (interval_s * samples + excluded.interval_s * excluded.samples)
      / nullif(samples + excluded.samples, 0),
    interval_s, excluded.interval_s
  ),
  cpu_s = cpu_s + excluded.cpu_s,
  share = coalesce(
    (cpu_s + excluded.cpu_s)
      / (cpu_s / nullif(share, 0) + excluded.cpu_s / nullif(excluded.share, 0)),
    max(share, excluded.share)
  ),
  longest_read_s = max(longest_read_s, excluded.longest_read_s),
  unknown = excluded.unknown
"""
_END_BRACKET = """
UPDATE bracket SET
  start_ns = :start_ns, finish_ns = :finish_ns, last_start_ns = :last_start_ns,
  first_finish_ns = :first_finish_ns, complete = :complete,
  window_start_ns = :window_start_ns, window_finish_ns = :window_finish_ns
WHERE run_id = :run_id AND phase = :phase
"""
_NOT_COMPLETE = "UPDATE bracket SET complete = 0 WHERE run_id = ? AND phase = ?"
_CHECKED = f"""
UPDATE copy SET
  validity = :validity, validity_detail = :detail, run_dir = coalesce(:run_dir, run_dir),
  status = iif(:validity = '{Validity.INVALID}' AND status = 'ok',
    '{CopyStatus.WRONG_OUTPUT}', status)
WHERE {_OF_COPY}
"""
_END_RUN = "UPDATE run SET status = ?, reason = ? WHERE id = ?"
_PLACES = (
    "SELECT copy, cpu, core, llc, node, package, nullif(memory_nodes, '') AS mem_nodes "
    "FROM placement WHERE run_id = ?"
)
_NOWHERE = dict.fromkeys(("cpu", "core", "llc", "node", "package", "mem_nodes"))


class InsertContext(Struct, frozen=True):
    """What a run's head says of every copy."""

    discard: int  # the first iterations, not counted
    places: dict[int, dict[str, Any]]  # by copy: columns of `copy` that say where it is


def insert_run(
    connection: sqlite3.Connection,
    run: Run,
    host: Host,
    *,
    settings: Iterable[tuple[str, str]],
    pus: Iterable[MachinePU],
    owner: ProcessId,
) -> int:
    """Insert a run that begins now, inside the caller's transaction; return its number."""
    refuse_drifted(connection)
    head = {"source": "run", "status": RunStatus.RUNNING, **owner._asdict()}
    number = _insert_head(connection, run, host, **head)
    _pairs(connection, number, "setting", settings)
    _pairs(connection, number, "environment", run.environment)
    _pairs(connection, number, "tag", run.tags)
    _benchmarks(connection, number, run.benchmarks)
    place_copies(connection, number, run.placements, pus)
    for text in run.warnings:
        insert_row(connection, "note", run_id=number, kind="warning", text=text)
    return number


def insert_imported(
    connection: sqlite3.Connection, stored: StoredRun, copies: Iterable[StoredCopy]
) -> int:
    """Insert a run read from a document, inside the caller's transaction; return its number.

    `copies` may be too many to hold.
    """
    refuse_drifted(connection)
    number = _insert_head(connection, stored.head, stored.host)
    _pairs(connection, number, "tag", stored.head.tags)
    _pairs(connection, number, "setting", stored.settings)
    _benchmarks(connection, number, stored.benchmarks)
    place_copies(connection, number, stored.placements, stored.pus)
    insert_rows(connection, "bracket", stored.brackets, run_id=number)
    for some in batched(copies, _COPIES_AT_ONCE):
        insert_rows(connection, "copy", some, run_id=number)
        for copy in some:
            _workloads(connection, number, copy)
            _counts(connection, number, copy)
    insert_rows(connection, "counted", stored.counted, run_id=number)
    if stored.imported is not None:
        insert_row(connection, "spec_file", stored.imported, run_id=number)
    for it in stored.brackets:
        if it.reported is not None:
            insert_row(connection, "spec_result", it.reported, run_id=number, phase=it.phase)
    for readings in stored.machine_readings:
        _machine_readings(connection, number, readings)
    for text in stored.notes:
        insert_row(connection, "note", run_id=number, kind="note", text=text)
    return number


def _machine_readings(
    connection: sqlite3.Connection, run_id: int, readings: MachineReadings
) -> None:
    key = {"run_id": run_id, "phase": readings.phase}
    for name, value in readings.values:
        insert_row(connection, "phase_reading", replace=True, **key, name=name, value=value)


def place_copies(
    connection: sqlite3.Connection,
    run_id: int,
    placements: Iterable[Placement],
    pus: Iterable[MachinePU],
) -> None:
    """Store where copies are from now on, and on which hardware threads, instead of before."""
    rows: dict[str, Iterable[object]] = {"placement": placements, "pu": pus}
    for table, them in rows.items():
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        insert_rows(connection, table, them, run_id=run_id)


def context_of(connection: sqlite3.Connection, run_id: int) -> InsertContext:
    """Return what `append_events` has to know of a run."""
    (discard,) = connection.execute("SELECT discard FROM run WHERE id = ?", (run_id,)).fetchone()
    rows = connection.execute(_PLACES, (run_id,))
    return InsertContext(
        discard, {copy: dict(zip(_NOWHERE, place, strict=True)) for copy, *place in rows}
    )


def append_events(
    connection: sqlite3.Connection, run_id: int, events: Iterable[Event], context: InsertContext
) -> None:
    """Write events in order, those that follow one of their kind with it in one statement.

    A copy's start comes along with its end, and `Resting` is for the screen: neither is a row.
    """

    def more(copy: CopyEnded) -> dict[str, Any]:
        counted = copy.iteration > context.discard
        return {"counted": counted, **context.places.get(copy.copy, _NOWHERE)}

    rows: Iterable[Any] = (it for it in events if not isinstance(it, CopyStarted | Resting))
    for kind, same in groupby(rows, type):
        if kind is CopyEnded:
            copies = tuple(same)
            insert_rows(connection, "copy", copies, each=more, run_id=run_id)
            for copy in copies:
                _workloads(connection, run_id, copy)
        elif kind is Sampled:  # replacing: after an error events may be tried again
            insert_rows(connection, "sample", same, replace=True, run_id=run_id)
        else:
            for event in same:
                _append(connection, run_id, event)


def _append(connection: sqlite3.Connection, run_id: int, event: Event) -> None:
    match event:
        case Observed():
            unknown = json.dumps(event.unknown)
            connection.execute(_OBSERVED, {**asdict(event), "run_id": run_id, "unknown": unknown})
        case OutputChecked():
            key = _key(run_id, event)
            found = {"validity": event.validity, "detail": event.detail, "run_dir": event.run_dir}
            connection.execute(_CHECKED, key | found)
            for name, value in event.metrics:
                insert_row(connection, "copy_metric", replace=True, **key, name=name, value=value)
        case CpuReadings():
            same: dict[str, Any] = {"run_id": run_id, "phase": event.phase}
            insert_rows(connection, "cpu_reading", event.rows, replace=True, **same)
        case MachineReadings():
            _machine_readings(connection, run_id, event)
        case CopyCounted() | PagesHad():
            _of_copy(connection, run_id, event)
        case PhaseCounted():
            insert_row(connection, "counted", event, replace=True, run_id=run_id)
        case PhaseStarted():
            insert_row(connection, "bracket", event, run_id=run_id, complete=False)
        case PhaseEnded():
            connection.execute(_END_BRACKET, {**asdict(event), "run_id": run_id})
        case PhaseTorn():
            connection.execute(_NOT_COMPLETE, (run_id, event.phase))
        case Noted():
            insert_row(connection, "note", run_id=run_id, kind="note", text=event.text)
        case RunEnded():
            connection.execute(_END_RUN, (event.status, event.reason, run_id))


def _key(
    run_id: int, of: CopyCounted | CopyEnded | OutputChecked | PagesHad | StoredCopy
) -> dict[str, Any]:
    return {"run_id": run_id, "phase": of.phase, "copy": of.copy, "step": of.step}


def _workloads(connection: sqlite3.Connection, run_id: int, copy: CopyEnded | StoredCopy) -> None:
    if copy.workloads:
        insert_rows(connection, "workload", copy.workloads, **_key(run_id, copy))


def _counts(connection: sqlite3.Connection, run_id: int, of: CopyCounted | StoredCopy) -> None:
    if of.counts:  # replacing: after an error events may be tried again
        insert_rows(connection, "copy_count", of.counts, replace=True, **_key(run_id, of))


def _of_copy(connection: sqlite3.Connection, run_id: int, of: CopyCounted | PagesHad) -> None:
    if isinstance(of, CopyCounted):
        _counts(connection, run_id, of)
    elif of.regions:
        insert_rows(connection, "page_region", of.regions, replace=True, **_key(run_id, of))


def _insert_head(
    connection: sqlite3.Connection, run: Run | RunHead, host: Host, **more: Any
) -> int:
    known = asdict(host)
    same = " AND ".join(f"{name} IS :{name}" for name in known)
    found = connection.execute(f"SELECT id FROM host WHERE {same}", known).fetchone()
    more["host_id"] = found[0] if found else insert_row(connection, "host", host)
    return insert_row(connection, "run", run, run_order=run.order, **more)


def _pairs(
    connection: sqlite3.Connection, run_id: int, table: str, pairs: Iterable[tuple[str, str]]
) -> None:
    for name, value in pairs:  # said twice: the last one holds
        insert_row(connection, table, replace=True, run_id=run_id, name=name, value=value)


def _benchmarks(connection: sqlite3.Connection, run_id: int, used: Iterable[BenchmarkUsed]) -> None:
    for place, it in enumerate(used):
        command = it.command or None  # of an imported run it is not known
        insert_row(connection, "benchmark", it, run_id=run_id, position=place, command=command)
        of: dict[str, Any] = {"run_id": run_id, "benchmark": it.name}
        for position, metric in enumerate(it.metrics):
            insert_row(connection, "metric", metric, **of, position=position)

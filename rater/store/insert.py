"""Rows in: heads of runs, and one row for what happened at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import batched, groupby
from typing import Any

from msgspec.structs import asdict

from rater.record.events import (
    CopyCounted,
    CopyEnded,
    CopyStarted,
    CpuReadings,
    Event,
    ForeignProcess,
    MachineReadings,
    Noted,
    Observed,
    OutputChecked,
    PagesHad,
    PhaseCounted,
    PhaseEnded,
    PhaseSeries,
    PhaseStarted,
    PhaseTorn,
    Resting,
    RunEnded,
    Sampled,
    instructions_counted,
)
from rater.record.run import (
    INSTRUCTIONS,
    BenchmarkUsed,
    CopyStatus,
    Host,
    MachinePU,
    Placement,
    Validity,
)
from rater.record.stored import RunHead, StoredRun
from rater.store.rows import Database, refuse_drifted
from rater.system.process import ProcessId

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
_END_RUN = (
    "UPDATE run SET status = ?, reason = ?, iterations = coalesce(?, iterations) WHERE id = ?"
)


def insert_run(
    database: Database,
    run: StoredRun,
    copies: Iterable[CopyEnded] | None = None,
    owner: ProcessId | None = None,
) -> int:
    """Insert a run inside the caller's transaction; return its number.

    With an `owner`, the process that makes it, the run begins now. `copies` instead of the run's
    own: they may be too many to hold.
    """
    refuse_drifted(database)
    owner_columns: dict[str, Any] = {**owner._asdict()} if owner else {}
    number = _insert_head(database, run.head, run.host, **owner_columns)
    pairs = {"setting": run.settings, "tag": run.head.tags, "environment": run.environment}
    for table, named in pairs.items():
        for name, value in named:  # said twice: the last one holds
            database.insert(table, replace=True, run_id=number, name=name, value=value)
    _benchmarks(database, number, run.benchmarks)
    place_copies(database, number, run.placements, run.pus)
    database.insert_all("bracket", run.brackets, run_id=number)
    for batch in batched(run.copies if copies is None else copies, _COPIES_AT_ONCE):
        _insert_copies(database, number, batch)
        for copy in batch:
            _counts(database, number, copy)
            _metrics(database, number, copy)
    database.insert_all("counted", run.counted, run_id=number)
    if run.imported is not None:
        database.insert("spec_file", run.imported, run_id=number)
    for bracket in run.brackets:
        if bracket.reported is not None:
            database.insert("spec_result", bracket.reported, run_id=number, phase=bracket.phase)
    for readings in run.machine_readings:
        _machine_readings(database, number, readings)
    database.insert_all("foreign_process", run.foreign_processes, run_id=number)
    database.insert_all("series", run.series, run_id=number)
    for kind, texts in {"warning": run.warnings, "note": run.notes}.items():
        for text in texts:
            database.insert("note", run_id=number, kind=kind, text=text)
    return number


def _insert_copies(database: Database, run_id: int, copies: Sequence[CopyEnded]) -> None:
    database.insert_all("copy", copies, run_id=run_id)
    for copy in copies:
        if copy.workloads:
            database.insert_all("workload", copy.workloads, **_copy_key(run_id, copy))


_PHASE_READING = (
    "INSERT OR REPLACE INTO phase_reading (run_id, phase, name, value) VALUES (?, ?, ?, ?)"
)


def _machine_readings(database: Database, run_id: int, readings: MachineReadings) -> None:
    database.executemany(
        _PHASE_READING, ((run_id, readings.phase, name, value) for name, value in readings.values)
    )


def place_copies(
    database: Database,
    run_id: int,
    placements: Iterable[Placement],
    pus: Iterable[MachinePU],
) -> None:
    """Store where copies are from now on, and on which hardware threads, instead of before."""
    rows: dict[str, Iterable[object]] = {"placement": placements, "pu": pus}
    for table, table_rows in rows.items():
        database.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        database.insert_all(table, table_rows, run_id=run_id)


def append_events(database: Database, run_id: int, events: Iterable[Event]) -> None:
    """Write events in order, those that follow one of their kind with it in one statement.

    A copy's start comes along with its end, and `Resting` is for the screen: neither is a row.
    """
    rows: Iterable[Any] = (
        event for event in events if not isinstance(event, CopyStarted | Resting)
    )
    for kind, events_of_kind in groupby(rows, type):
        if kind is CopyEnded:
            _insert_copies(database, run_id, tuple(events_of_kind))
        elif kind is Sampled:  # replacing: after an error events may be tried again
            database.insert_all("sample", events_of_kind, replace=True, run_id=run_id)
        else:
            for event in events_of_kind:
                _append(database, run_id, event)


def _append(database: Database, run_id: int, event: Event) -> None:
    match event:
        case Observed():
            unknown = json.dumps(event.unknown)
            database.execute(_OBSERVED, {**asdict(event), "run_id": run_id, "unknown": unknown})
        case OutputChecked():
            key = _copy_key(run_id, event)
            checked = {"validity": event.validity, "detail": event.detail, "run_dir": event.run_dir}
            database.execute(_CHECKED, key | checked)
            _metrics(database, run_id, event)
        case CpuReadings():
            phase_key: dict[str, Any] = {"run_id": run_id, "phase": event.phase}
            database.insert_all("cpu_reading", event.rows, replace=True, **phase_key)
        case MachineReadings():
            _machine_readings(database, run_id, event)
        case CopyCounted() | PagesHad():
            _append_copy_rows(database, run_id, event)
        case PhaseCounted() | ForeignProcess() | PhaseSeries():
            database.insert(_TABLES[type(event)], event, replace=True, run_id=run_id)
        case PhaseStarted():
            database.insert("bracket", event, run_id=run_id, complete=False)
        case PhaseEnded():
            database.execute(_END_BRACKET, {**asdict(event), "run_id": run_id})
        case PhaseTorn():
            database.execute(_NOT_COMPLETE, (run_id, event.phase))
        case Noted():
            database.insert("note", run_id=run_id, kind="note", text=event.text)
        case RunEnded():
            database.execute(_END_RUN, (event.status, event.reason, event.iterations, run_id))


_TABLES = {PhaseCounted: "counted", ForeignProcess: "foreign_process", PhaseSeries: "series"}


def _copy_key(
    run_id: int, event: CopyCounted | CopyEnded | OutputChecked | PagesHad
) -> dict[str, Any]:
    return {"run_id": run_id, "phase": event.phase, "copy": event.copy, "step": event.step}


def _counts(database: Database, run_id: int, event: CopyCounted | CopyEnded) -> None:
    if event.counts:  # replacing: after an error events may be tried again
        database.insert_all("copy_count", event.counts, replace=True, **_copy_key(run_id, event))


def _metrics(database: Database, run_id: int, event: CopyEnded | OutputChecked) -> None:
    key = _copy_key(run_id, event)
    for name, value in event.metrics:
        database.insert("copy_metric", replace=True, **key, name=name, value=value)


def _append_copy_rows(database: Database, run_id: int, event: CopyCounted | PagesHad) -> None:
    if isinstance(event, CopyCounted):
        _counts(database, run_id, event)
        for value in instructions_counted(event.counts):
            key = _copy_key(run_id, event)
            database.insert("copy_metric", replace=True, **key, name=INSTRUCTIONS, value=value)
    elif event.regions:
        database.insert_all("page_region", event.regions, replace=True, **_copy_key(run_id, event))


def _insert_head(database: Database, run: RunHead, host: Host, **columns: Any) -> int:
    facts = asdict(host)
    same_host = " AND ".join(f"{name} IS :{name}" for name in facts)
    stored_host = database.execute(f"SELECT id FROM host WHERE {same_host}", facts).fetchone()
    columns["host_id"] = stored_host[0] if stored_host else database.insert("host", host)
    return database.insert("run", run, run_order=run.order, **columns)


def _benchmarks(database: Database, run_id: int, used: Iterable[BenchmarkUsed]) -> None:
    for place, benchmark in enumerate(used):
        command = benchmark.command or None  # not known of an imported run
        database.insert("benchmark", benchmark, run_id=run_id, position=place, command=command)
        benchmark_key: dict[str, Any] = {"run_id": run_id, "benchmark": benchmark.name}
        for position, metric in enumerate(benchmark.metrics):
            database.insert("metric", metric, **benchmark_key, position=position)

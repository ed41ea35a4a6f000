"""Rows in: heads of runs, and one row for what happened at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import batched
from operator import attrgetter

from rater.process_id import Owner
from rater.record.events import (
    CopyEnded,
    CopyStarted,
    CpuReadings,
    Event,
    GateFacts,
    MachineReadings,
    Noted,
    Observed,
    OutputChecked,
    PhaseEnded,
    PhaseStarted,
    Resting,
    RunEnded,
    Sampled,
)
from rater.record.run import BenchmarkUsed, Host, MachinePU, PlacedCopy, Run
from rater.record.status import CopyStatus, RunStatus, Validity
from rater.record.stored import Judged, StoredCopy, StoredRun
from rater.text.cpuset import format_list

type _Value = str | int | float | None

_COPIES_AT_ONCE = 1000  # of an imported run, which may be too large to hold


def _insert(table: str, columns: str, *, replace: bool = False) -> str:
    """Return an INSERT with a parameter per column: one text per table, prepared once."""
    marks = ", ".join("?" for _ in columns.split())
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns.split())}) VALUES ({marks})"


# Columns that are called as the fields of their dataclass.
_HOST_COLUMNS = (
    "fingerprint hostname machine_id_hash cpu_model microcode vendor memory_bytes pus cores nodes "
    "packages architecture product"
)
_REQUEST_COLUMNS = (
    "copies iterations discard stagger_ms increment suite size tune layout memory timeout_s wrap "
    "command_line rater_version warmup_s window_s directory request suite_path suite_sha256"
)
_BENCHMARK_COLUMNS = "name category reference_s binary_sha256 compiler flags inputs_sha256 threads"
_METRIC_COLUMNS = "name unit better combine"
_PLACE_COLUMNS = "cpu core llc node package"
_BRACKET_COLUMNS = (
    "phase benchmark tune iteration counted start_ns finish_ns last_start_ns first_finish_ns "
    "complete torn window_start_ns window_finish_ns"
)
_COPY_COLUMNS = (
    "phase copy step benchmark tune iteration counted planned_start_ns start_ns finish_ns "
    "elapsed_ns status exit_code signal validity validity_detail cpu_ns user_ns system_ns "
    "gate_cpu_ns max_rss_bytes minor_faults major_faults voluntary_switches "
    f"involuntary_switches pid note run_dir {_PLACE_COLUMNS}"
)
_WORKLOAD_COLUMNS = "workload start_ns finish_ns elapsed_ns exit_code signal pid"
_SAMPLE_COLUMNS = (
    "phase copy step age_ns processes unread migrations pages_migrated policy rss_bytes peak_bytes "
    "swap_bytes read_ns looks"
)
_CPU_READING_COLUMNS = (
    "cpu user_ns system_ns iowait_ns irq_ns steal_ns idle_ns mean_khz throttles interrupts "
    "filler_ns"
)
_SPEC_FILE_COLUMNS = "name sha256 format suite metric base_mean peak_mean problems disagreements"
_SPEC_RESULT_COLUMNS = "copies reported_s reference_s ratio selected valid errors"

_host_fields = attrgetter(*_HOST_COLUMNS.split())
_request_fields = attrgetter("mode", "order", *_REQUEST_COLUMNS.split())
_benchmark_fields = attrgetter(*_BENCHMARK_COLUMNS.split())
_metric_fields = attrgetter(*_METRIC_COLUMNS.split())
_place_fields = attrgetter(*_PLACE_COLUMNS.split())
_bracket_fields = attrgetter(*_BRACKET_COLUMNS.split())
_copy_fields = attrgetter(*_COPY_COLUMNS.split())
_workload_fields = attrgetter(*_WORKLOAD_COLUMNS.split())
_sample_fields = attrgetter(*_SAMPLE_COLUMNS.split())
_cpu_reading_fields = attrgetter(*_CPU_READING_COLUMNS.split())
_spec_file_fields = attrgetter(*_SPEC_FILE_COLUMNS.split())
_spec_result_fields = attrgetter(*_SPEC_RESULT_COLUMNS.split())

_HOST = _insert("host", _HOST_COLUMNS)
_SAME_HOST = "SELECT id FROM host WHERE " + " AND ".join(
    f"{column} IS ?" for column in _HOST_COLUMNS.split()
)
_RUN = _insert(
    "run",
    "host_id uuid source status reason started_at pid pid_start boot_id mode run_order "
    f"{_REQUEST_COLUMNS}",
)
_BENCHMARK = _insert("benchmark", f"run_id position command {_BENCHMARK_COLUMNS}")
_METRIC = _insert("metric", f"run_id benchmark position {_METRIC_COLUMNS}")
_COPY_METRIC = _insert("copy_metric", "run_id phase copy step name value", replace=True)
_PLACEMENT = _insert("placement", f"run_id copy cpus memory_policy memory_nodes {_PLACE_COLUMNS}")
_PU = _insert("pu", f"run_id {_PLACE_COLUMNS}")
_NOTE = _insert("note", "run_id kind text")
_BRACKET = _insert("bracket", f"run_id {_BRACKET_COLUMNS}")
_COPY = _insert(
    "copy",
    f"run_id {_COPY_COLUMNS} mem_nodes gate_cpus gate_mems last_cpu placement placement_note",
)
_JUDGED = (
    "UPDATE copy SET placement = ?, placement_note = ? "
    "WHERE run_id = ? AND phase = ? AND copy = ? AND step = ?"
)
_SPEC_FILE = _insert("spec_file", f"run_id {_SPEC_FILE_COLUMNS}")
_SPEC_RESULT = _insert("spec_result", f"run_id phase {_SPEC_RESULT_COLUMNS}")
_WORKLOAD = _insert("workload", f"run_id phase copy step {_WORKLOAD_COLUMNS}")
_SAMPLE = _insert(
    "sample",
    f"run_id {_SAMPLE_COLUMNS} cpus allowed node_bytes page_bytes astray_bytes",
    replace=True,  # after an error events may be tried again
)
_CPU_READING = _insert("cpu_reading", f"run_id phase {_CPU_READING_COLUMNS}", replace=True)
_PHASE_READING = _insert("phase_reading", "run_id phase name value", replace=True)
# A resumed run is observed once more: its attempts count together.
_OBSERVED = """
INSERT INTO observed
  (run_id, cadence, samples, interval_s, cpu_s, share, longest_read_s, unknown)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
_END_BRACKET = (
    "UPDATE bracket SET start_ns = ?, finish_ns = ?, last_start_ns = ?, first_finish_ns = ?, "
    "complete = ?, window_start_ns = ?, window_finish_ns = ? WHERE run_id = ? AND phase = ?"
)
_CHECKED = (
    "UPDATE copy SET validity = ?, validity_detail = ?, run_dir = coalesce(?, run_dir), "
    "status = CASE WHEN ? AND status = 'ok' "
    f"THEN '{CopyStatus.WRONG_OUTPUT}' ELSE status END "
    "WHERE run_id = ? AND phase = ? AND copy = ? AND step = ?"
)
_END_RUN = "UPDATE run SET status = ?, reason = ? WHERE id = ?"
# Where a copy is placed: the last columns of `_COPY`.
_PLACES = (
    "SELECT copy, cpu, core, llc, node, package, nullif(memory_nodes, '') "
    "FROM placement WHERE run_id = ?"
)

# Times, completeness, torn and window of a phase that has just begun.
_NOT_YET: tuple[_Value, ...] = (None, None, None, None, False, False, None, None)
_NOWHERE: tuple[_Value, ...] = (None,) * 6


@dataclass(frozen=True, slots=True)
class Context:
    """What a run's head says of every copy."""

    discard: int  # the first iterations, not counted
    places: dict[int, tuple[_Value, ...]]  # by copy


def insert_run(
    connection: sqlite3.Connection,
    run: Run,
    host: Host,
    *,
    settings: Iterable[tuple[str, str]],
    pus: Iterable[MachinePU],
    owner: Owner,
) -> int:
    """Insert a run that begins now, inside the caller's transaction; return its number."""
    head = (run.uuid, "run", RunStatus.RUNNING, None, run.started_at)
    made_by = (owner.pid, owner.pid_start, owner.boot_id)
    number = _insert_head(connection, host, (*head, *made_by, *_request_fields(run)))
    _pairs(connection, number, "setting", settings)
    _pairs(connection, number, "environment", run.environment)
    _pairs(connection, number, "tag", run.tags)
    _benchmarks(connection, number, run.benchmarks)
    place_copies(connection, number, run.placements, pus)
    connection.executemany(_NOTE, ((number, "warning", text) for text in run.warnings))
    return number


def insert_imported(
    connection: sqlite3.Connection, stored: StoredRun, copies: Iterable[StoredCopy]
) -> int:
    """Insert a run read from a document, inside the caller's transaction; return its number."""
    head = stored.head
    first = (head.uuid, head.source, head.status, head.reason, head.started_at)
    made_by = (None, None, None)
    number = _insert_head(connection, stored.host, (*first, *made_by, *_request_fields(head)))
    _pairs(connection, number, "setting", stored.settings)
    _benchmarks(connection, number, stored.benchmarks)
    place_copies(connection, number, stored.placements, stored.pus)
    connection.executemany(_BRACKET, ((number, *_bracket_fields(it)) for it in stored.brackets))
    for some in batched(copies, _COPIES_AT_ONCE):
        connection.executemany(_COPY, (_copy_row(number, it) for it in some))
        connection.executemany(
            _WORKLOAD,
            (
                (number, copy.phase, copy.copy, copy.step, *_workload_fields(it))
                for copy in some
                for it in copy.workloads
            ),
        )
    if stored.imported is not None:
        connection.execute(_SPEC_FILE, (number, *_spec_file_fields(stored.imported)))
    connection.executemany(
        _SPEC_RESULT,
        (
            (number, it.phase, *_spec_result_fields(it.reported))
            for it in stored.brackets
            if it.reported is not None
        ),
    )
    connection.executemany(_NOTE, ((number, "note", text) for text in stored.notes))
    return number


def _copy_rows(
    number: int, copies: Iterable[StoredCopy], with_workloads: list[StoredCopy]
) -> Iterator[tuple[_Value, ...]]:
    """Yield the rows of copies; those whose workloads are to be stored go into the list."""
    for it in copies:
        if it.workloads:
            with_workloads.append(it)
        yield _copy_row(number, it)


def place_copies(
    connection: sqlite3.Connection,
    run_id: int,
    placements: Iterable[PlacedCopy],
    pus: Iterable[MachinePU],
) -> None:
    """Store where copies are from now on, and on which hardware threads, instead of before."""
    for table in ("placement", "pu"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    connection.executemany(_PLACEMENT, (_placement_row(run_id, it) for it in placements))
    _pus(connection, run_id, pus)


def context_of(connection: sqlite3.Connection, run_id: int) -> Context:
    """Return what `append_event` has to know of a run."""
    (discard,) = connection.execute("SELECT discard FROM run WHERE id = ?", (run_id,)).fetchone()
    rows = connection.execute(_PLACES, (run_id,))
    return Context(discard, {row[0]: tuple(row[1:]) for row in rows})


def append_event(
    connection: sqlite3.Connection, run_id: int, event: Event, context: Context
) -> None:
    """Write one event, as its own transaction where the caller began none.

    One that is several rows (`has_several_rows`) wants a transaction of the caller.
    """
    match event:
        case CopyEnded():
            connection.execute(_COPY, _ended_row(run_id, event, context))
            _workloads(connection, run_id, event)
        case Resting():
            pass  # for the screen only
        case CopyStarted():
            pass  # its end brings the start along; a row for both would double the writes
        case Sampled():
            connection.execute(_SAMPLE, _sample_row(run_id, event))
        case Observed():
            connection.execute(_OBSERVED, _observed_row(run_id, event))
        case OutputChecked():
            wrong = event.validity is Validity.INVALID
            key = (run_id, event.phase, event.copy, event.step)
            found = (event.validity, event.detail, event.run_dir)
            connection.execute(_CHECKED, (*found, wrong, *key))
            connection.executemany(
                _COPY_METRIC,
                ((*key, name, value) for name, value in event.metrics),
            )
        case CpuReadings():
            connection.executemany(
                _CPU_READING,
                ((run_id, event.phase, *_cpu_reading_fields(row)) for row in event.rows),
            )
        case MachineReadings():
            connection.executemany(
                _PHASE_READING, ((run_id, event.phase, *pair) for pair in event.values)
            )
        case PhaseStarted():
            what = (event.phase, event.benchmark, None, event.iteration, event.counted)
            connection.execute(_BRACKET, (run_id, *what, *_NOT_YET))
        case PhaseEnded():
            times = (event.start_ns, event.finish_ns, event.last_start_ns, event.first_finish_ns)
            window = (event.window_start_ns, event.window_finish_ns)
            connection.execute(_END_BRACKET, (*times, event.complete, *window, run_id, event.phase))
        case Noted():
            connection.execute(_NOTE, (run_id, "note", event.text))
        case RunEnded():
            connection.execute(_END_RUN, (event.status, event.reason, run_id))


def store_judgements(connection: sqlite3.Connection, run_id: int, judged: Iterable[Judged]) -> None:
    """Store whether the placement of copy runs was as planned."""
    connection.executemany(
        _JUDGED,
        ((it.verdict, it.note, run_id, it.phase, it.copy, it.step) for it in judged),
    )


def has_several_rows(event: Event) -> bool:
    """Tell whether an event must be all there or not at all."""
    if isinstance(event, CpuReadings | MachineReadings):
        return True
    return isinstance(event, CopyEnded) and bool(event.workloads)


def _workloads(connection: sqlite3.Connection, run_id: int, copy: CopyEnded | StoredCopy) -> None:
    if copy.workloads:
        key = (run_id, copy.phase, copy.copy, copy.step)
        connection.executemany(_WORKLOAD, ((*key, *_workload_fields(it)) for it in copy.workloads))


def _insert_head(connection: sqlite3.Connection, host: Host, values: tuple[_Value, ...]) -> int:
    number = connection.execute(_RUN, (_host_id(connection, host), *values)).lastrowid
    assert number is not None
    return number


def _host_id(connection: sqlite3.Connection, host: Host) -> int:
    values = _host_fields(host)
    known = connection.execute(_SAME_HOST, values).fetchone()
    number: int | None = known[0] if known else connection.execute(_HOST, values).lastrowid
    assert number is not None
    return number


def _pairs(
    connection: sqlite3.Connection, run_id: int, table: str, pairs: Iterable[tuple[str, str]]
) -> None:
    statement = _insert(table, "run_id name value", replace=True)  # said twice: the last one holds
    connection.executemany(statement, ((run_id, name, value) for name, value in pairs))


def _benchmarks(connection: sqlite3.Connection, run_id: int, used: Iterable[BenchmarkUsed]) -> None:
    benchmarks = tuple(used)
    connection.executemany(
        _BENCHMARK,
        (
            (run_id, position, it.command or None, *_benchmark_fields(it))
            for position, it in enumerate(benchmarks)
        ),
    )
    connection.executemany(
        _METRIC,
        (
            (run_id, it.name, position, *_metric_fields(metric))
            for it in benchmarks
            for position, metric in enumerate(it.metrics)
        ),
    )


def _pus(connection: sqlite3.Connection, run_id: int, pus: Iterable[MachinePU]) -> None:
    connection.executemany(_PU, ((run_id, *_place_fields(pu)) for pu in pus))


def _placement_row(run_id: int, it: PlacedCopy) -> tuple[_Value, ...]:
    cpus = None if it.cpus is None else format_list(it.cpus)
    memory = (it.memory_policy, format_list(it.memory_nodes))
    return (run_id, it.copy, cpus, *memory, *_place_fields(it))


def _copy_row(run_id: int, it: StoredCopy) -> tuple[_Value, ...]:
    return (
        run_id,
        *_copy_fields(it),
        format_list(it.mem_nodes) or None,
        *_gate(it.gate),
        it.last_cpu,
        it.placement,
        it.placement_note,
    )


def _gate(gate: GateFacts | None) -> tuple[_Value, _Value]:
    return (None, None) if gate is None else (_list(gate.cpus), _list(gate.mems))


@cache
def _list(numbers: tuple[int, ...] | None) -> str | None:
    """Return it as text: the same few lists, copy after copy."""
    return None if numbers is None else format_list(numbers)


def _sample_row(run_id: int, it: Sampled) -> tuple[_Value, ...]:
    places = (_list(it.cpus), _list(it.allowed))
    return (
        run_id,
        *_sample_fields(it),
        *places,
        _table(it.node_bytes),
        _table(it.page_bytes),
        _table(it.astray_bytes),
    )


def _table(pairs: tuple[tuple[int, int], ...] | None) -> str | None:
    return None if pairs is None else json.dumps(dict(pairs))


def _observed_row(run_id: int, it: Observed) -> tuple[_Value, ...]:
    times = (it.interval_s, it.cpu_s, it.share, it.longest_read_s)
    return (run_id, it.cadence, it.samples, *times, json.dumps(it.unknown))


def _ended_row(run_id: int, it: CopyEnded, context: Context) -> tuple[_Value, ...]:
    """Return the same for a copy that has just ended: the one row whose cost counts."""
    # Sampled before the release, the gate's share can exceed what the kernel rounds the whole to.
    cpu_ns = max(0, it.user_ns + it.system_ns - it.gate_cpu_ns)
    return (
        run_id,
        it.phase,
        it.copy,
        it.step,
        it.benchmark,
        None,
        it.iteration,
        it.iteration > context.discard,
        it.planned_start_ns,
        it.start_ns,
        it.finish_ns,
        it.finish_ns - it.start_ns,
        it.status,
        it.exit_code,
        it.signal,
        it.validity,
        None,
        cpu_ns,
        it.user_ns,
        it.system_ns,
        it.gate_cpu_ns,
        it.max_rss_bytes,
        it.minor_faults,
        it.major_faults,
        it.voluntary_switches,
        it.involuntary_switches,
        it.pid,
        it.note,
        it.run_dir,
        *context.places.get(it.copy, _NOWHERE),
        *_gate(it.gate),
        it.last_cpu,
        None,
        None,
    )

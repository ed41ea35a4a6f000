"""Rows out: the named queries of `db/queries/` and the dataclasses they fill."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from functools import cache
from typing import Any

from rater.errors import InputError
from rater.process_id import Owner, is_alive
from rater.record.events import (
    CpuReading,
    CpuReadings,
    GateFacts,
    MachineReadings,
    Observed,
    Sampled,
    WorkloadTime,
)
from rater.record.run import BenchmarkUsed, Host, MachinePU, MetricUsed, PlacedCopy
from rater.record.status import CopyStatus, RunStatus, Validity
from rater.record.stored import (
    ImportedFile,
    Reported,
    RunHead,
    StoredBracket,
    StoredCopy,
    StoredRun,
)
from rater.resources import folder
from rater.text.cpuset import parse_list

type _Row = tuple[Any, ...]  # of a query whose columns stand in the order of the dataclass

_STATUS = {str(status): status for status in CopyStatus}
_VALIDITY = {str(validity): validity for validity in Validity}


def run_heads(connection: sqlite3.Connection, run_id: int | None = None) -> tuple[RunHead, ...]:
    """Return the heads of all runs by number, or the one of `run_id`."""
    names = _lists(
        connection, "SELECT run_id, name FROM benchmark", "ORDER BY run_id, position", run_id
    )
    tags = _lists(connection, "SELECT run_id, name, value FROM tag", "ORDER BY name", run_id)
    return tuple(
        _head(row, tuple(name for (name,) in names[row[0]]), tuple(tags[row[0]]))
        for row in connection.execute(named("runs"), {"run": run_id})
    )


def owner_of(connection: sqlite3.Connection, run_id: int) -> Owner | None:
    """Return the process that made a run, None for imported ones."""
    row = connection.execute(
        "SELECT pid, pid_start, boot_id FROM run WHERE id = ?", (run_id,)
    ).fetchone()
    return _owner(row)


def load_run(connection: sqlite3.Connection, run_id: int) -> StoredRun:
    """Return a run with all its rows; raises `InputError` when there is none of this number."""
    heads = run_heads(connection, run_id)
    if not heads:
        raise InputError(f"there is no run {run_id} any more; `rater list` shows what there is")
    key = (run_id,)

    def rows(columns: str, table: str, order: str) -> list[_Row]:
        statement = f"SELECT {columns} FROM {table} WHERE run_id = ? ORDER BY {order}"
        return connection.execute(statement, key).fetchall()

    notes = rows("kind, text", "note", "id")
    declared: defaultdict[str, list[MetricUsed]] = defaultdict(list)
    for benchmark, *metric in rows(
        "benchmark, name, unit, better, combine", "metric", "benchmark, position"
    ):
        declared[benchmark].append(MetricUsed(*metric))
    reported = _reported(connection, run_id)
    workloads = _workloads(connection, run_id)
    return StoredRun(
        head=heads[0],
        host=Host(
            *connection.execute(
                "SELECT fingerprint, hostname, machine_id_hash, cpu_model, microcode, vendor, "
                "memory_bytes, pus, cores, nodes, packages, architecture, product "
                "FROM host WHERE id = (SELECT host_id FROM run WHERE id = ?)",
                key,
            ).fetchone()
        ),
        settings=tuple(rows("name, value", "setting", "name")),
        environment=tuple(rows("name, value", "environment", "name")),
        benchmarks=tuple(
            BenchmarkUsed(*(*row, tuple(declared[row[0]])))
            for row in rows(
                "name, category, coalesce(command, ''), reference_s, binary_sha256, compiler, "
                "flags, inputs_sha256, threads",
                "benchmark",
                "position",
            )
        ),
        placements=tuple(
            _placed(row)
            for row in rows(
                "copy, cpus, cpu, core, llc, node, package, memory_policy, memory_nodes",
                "placement",
                "copy",
            )
        ),
        pus=tuple(MachinePU(*row) for row in rows("cpu, core, llc, node, package", "pu", "cpu")),
        brackets=tuple(
            _bracket(row) for row in connection.execute(named("brackets"), {"run": run_id})
        ),
        copies=tuple(
            _copy(row, reported, workloads)
            for row in connection.execute(named("copies"), {"run": run_id})
        ),
        warnings=tuple(text for kind, text in notes if kind == "warning"),
        notes=tuple(text for kind, text in notes if kind == "note"),
        samples=tuple(
            _sample(row) for row in connection.execute(named("samples"), {"run": run_id})
        ),
        imported=_imported(
            rows(
                "name, sha256, format, suite, metric, base_mean, peak_mean, problems, "
                "disagreements",
                "spec_file",
                "run_id",
            )
        ),
        observed=_observed(
            rows(
                "cadence, samples, interval_s, cpu_s, share, longest_read_s, unknown",
                "observed",
                "run_id",
            )
        ),
        cpu_readings=_cpu_readings(connection, run_id),
        machine_readings=_machine_readings(connection, run_id),
    )


@cache
def named(query: str) -> str:
    """Return the text of `db/queries/QUERY.sql`."""
    return (folder("db") / "queries" / f"{query}.sql").read_text(encoding="utf-8")


def _lists(
    connection: sqlite3.Connection, select: str, order: str, run_id: int | None
) -> defaultdict[int, list[_Row]]:
    """Return by run what `select` finds behind its first column, the run's number."""
    found: defaultdict[int, list[_Row]] = defaultdict(list)
    statement = f"{select} WHERE :run IS NULL OR run_id = :run {order}"
    for number, *values in connection.execute(statement, {"run": run_id}):
        found[number].append(tuple(values))
    return found


_LATER = 10  # columns of `runs.sql` from warmup_s on
_KILLED = "rater was killed or the machine went down; what had finished is here"


def _head(row: _Row, names: tuple[str, ...], tags: tuple[_Row, ...]) -> RunHead:
    status = RunStatus(row[3])
    if status is RunStatus.RUNNING:
        owner = _owner(row[-3:])
        if owner is None or not is_alive(owner):
            status = RunStatus.KILLED
            row = (*row[:4], _KILLED, *row[5:])
    # Behind what every run has: what is asked of steady mode, rerun and resume; then the owner.
    values = [*row[:3], status, *row[4:-_LATER], names, tags, *row[-_LATER:-3]]
    return RunHead(*values)


def _owner(row: _Row) -> Owner | None:
    return None if None in row else Owner(*row)


def _placed(row: _Row) -> PlacedCopy:
    values = list(row)
    values[1] = None if row[1] is None else parse_list(row[1])
    values[-1] = parse_list(row[-1])
    return PlacedCopy(*values)


def _bracket(row: _Row) -> StoredBracket:
    values = list(row[:13])
    values[4] = bool(row[4])
    values[9] = bool(row[9])
    values[10] = bool(row[10])
    values.append(_reported_of(row[14:]) if row[13] else None)
    return StoredBracket(*values)


def _reported_of(row: _Row) -> Reported:
    values = list(row)
    values[4] = None if row[4] is None else bool(row[4])
    return Reported(*values)


def _imported(found: list[_Row]) -> ImportedFile | None:
    return ImportedFile(*found[0]) if found else None


type _Reported = dict[tuple[int, int, int], tuple[tuple[str, float], ...]]


def _reported(connection: sqlite3.Connection, run_id: int) -> _Reported:
    """Return the metrics of every copy run by (phase, copy, step), in the suite's order."""
    found: dict[tuple[int, int, int], tuple[tuple[str, float], ...]] = {}
    rows = connection.execute(named("metrics"), {"run": run_id})
    for phase, copy, step, name, value in rows:
        key = (phase, copy, step)
        found[key] = (*found.get(key, ()), (name, value))
    return found


def _cpu_readings(connection: sqlite3.Connection, run_id: int) -> tuple[CpuReadings, ...]:
    """Return what the CPUs did, a phase each."""
    found: defaultdict[int, list[CpuReading]] = defaultdict(list)
    for phase, *values in connection.execute(named("cpu_readings"), {"run": run_id}):
        found[phase].append(CpuReading(*values))
    return tuple(CpuReadings(phase, tuple(rows)) for phase, rows in found.items())


def _machine_readings(connection: sqlite3.Connection, run_id: int) -> tuple[MachineReadings, ...]:
    """Return the machine's counters, a phase each."""
    found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for phase, name, value in connection.execute(named("phase_readings"), {"run": run_id}):
        found[phase].append((name, value))
    return tuple(MachineReadings(phase, tuple(values)) for phase, values in found.items())


type _Workloads = dict[tuple[int, int, int], tuple[WorkloadTime, ...]]


def _workloads(connection: sqlite3.Connection, run_id: int) -> _Workloads:
    """Return the commands of every copy run that had several, by (phase, copy, step)."""
    found: defaultdict[tuple[int, int, int], list[WorkloadTime]] = defaultdict(list)
    for phase, copy, step, *values in connection.execute(named("workloads"), {"run": run_id}):
        found[phase, copy, step].append(WorkloadTime(*values))
    return {key: tuple(times) for key, times in found.items()}


def _copy(row: _Row, reported: _Reported, workloads: _Workloads) -> StoredCopy:
    *values, last_cpu, placement, why, cpus, mems = row
    values[6] = bool(row[6])
    values[12] = _list(row[12]) or ()
    values[17] = _STATUS[row[17]]
    values[20] = _VALIDITY[row[20]]
    key = (row[0], row[4], row[5])
    values.append(reported.get(key, ()))
    values += (_gate(cpus, mems), last_cpu, placement, why, workloads.get(key, ()))
    return StoredCopy(*values)


@cache
def _gate(cpus: str | None, mems: str | None) -> GateFacts | None:
    return None if cpus is None and mems is None else GateFacts(_list(cpus), _list(mems))


@cache
def _list(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a list: the same few, copy after copy."""
    return None if text is None else parse_list(text)


def _sample(row: _Row) -> Sampled:
    values = list(row)
    values[6], values[7] = _list(row[6]), _list(row[7])
    values[10], values[12], values[18] = _table(row[10]), _table(row[12]), _table(row[18])
    return Sampled(*values)


def _table(text: str | None) -> tuple[tuple[int, int], ...] | None:
    if text is None:
        return None
    return tuple((int(key), value) for key, value in json.loads(text).items())


def _observed(found: list[_Row]) -> Observed | None:
    if not found:
        return None
    *values, unknown = found[0]
    return Observed(*(*values, tuple(json.loads(unknown))))

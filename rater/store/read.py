"""Rows out: the named queries of `db/queries/` and the dataclasses they fill."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from rater.errors import InputError
from rater.plan.placement.counts import MOST_COPIES
from rater.process_id import ProcessId, is_alive
from rater.record.events import (
    CpuReading,
    CpuReadings,
    EventCount,
    GateFacts,
    MachineReadings,
    Observed,
    PhaseCounted,
    Sampled,
    WorkloadTime,
)
from rater.record.page_sizes import PageRegion
from rater.record.run import BenchmarkUsed, Host, MachinePU, MetricUsed, PlacedCopy
from rater.record.status import RunStatus
from rater.record.stored import (
    ImportedFile,
    Reported,
    RunHead,
    StoredBracket,
    StoredCopy,
    StoredRun,
)
from rater.resources import folder
from rater.store.rows import read, read_by, read_table

_KILLED = "rater was killed or the machine went down; what had finished is here"
_HOST = "SELECT host.* FROM host JOIN run ON run.host_id = host.id WHERE run.id = :run"
_COPY_RUN = ("phase", "copy", "step")

_gate = cache(GateFacts)  # the same few, copy after copy


def run_heads(
    connection: sqlite3.Connection, numbers: Iterable[int] | None = None
) -> tuple[RunHead, ...]:
    """Return the heads of all runs by number, or those of `numbers` that are there, as given."""
    if numbers is None:
        return _heads(connection, None)
    return tuple(head for number in numbers for head in _heads(connection, number))


def _heads(connection: sqlite3.Connection, run_id: int | None) -> tuple[RunHead, ...]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    tags: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    of_run = {"run": run_id}
    where = "WHERE run_id = :run" if run_id is not None else ""
    for run, name in connection.execute(
        f"SELECT run_id, name FROM benchmark {where} ORDER BY run_id, position", of_run
    ):
        names[run].append(name)
    for run, name, value in connection.execute(
        f"SELECT run_id, name, value FROM tag {where} ORDER BY run_id, name", of_run
    ):
        tags[run].append((name, value))

    def finish(values: dict[str, Any]) -> None:
        owner = _owner(values.pop("pid"), values.pop("pid_start"), values.pop("boot_id"))
        if values["status"] is RunStatus.RUNNING and not (owner and is_alive(owner)):
            values |= {"status": RunStatus.KILLED, "reason": _KILLED}
        run = values["run"]
        values |= {"benchmarks": tuple(names[run]), "tags": tuple(tags[run])}

    return tuple(read(connection, RunHead, named("runs"), finish=finish, run=run_id))


def owner_of(connection: sqlite3.Connection, run_id: int) -> ProcessId | None:
    """Return the process that made a run, None for imported ones."""
    row = connection.execute(
        "SELECT pid, pid_start, boot_id FROM run WHERE id = ?", (run_id,)
    ).fetchone()
    return _owner(*row)


def _owner(pid: int | None, pid_start: int | None, boot_id: str | None) -> ProcessId | None:
    if pid is None or pid_start is None or boot_id is None:
        return None
    return ProcessId(pid, pid_start, boot_id)


def load_run(connection: sqlite3.Connection, run_id: int) -> StoredRun:
    """Return a run with all its rows; raises `InputError` when there is none of this number."""
    heads = _heads(connection, run_id)
    if not heads:
        raise InputError(f"there is no run {run_id} any more; `rater list` shows what there is")
    if heads[0].copies > MOST_COPIES:  # a number that pages and pictures would make room for
        raise InputError(
            f"run {run_id} says that it had {heads[0].copies} copies, and no run has more than "
            f"{MOST_COPIES}: its row in the database is damaged"
        )

    def table[T](kind: type[T], name: str, **how: Any) -> tuple[T, ...]:
        return read_table(connection, kind, name, run_id=run_id, **how)

    def query[T](kind: type[T], text: str, **how: Any) -> tuple[T, ...]:
        return tuple(read(connection, kind, text, run=run_id, **how))

    def query_by[T](kind: type[T], text: str, *keys: str) -> dict[tuple[Any, ...], list[T]]:
        return read_by(connection, kind, text, keys, run=run_id)

    def plain(text: str) -> list[Any]:
        return connection.execute(text, {"run": run_id}).fetchall()

    pairs = "SELECT name, value FROM {} WHERE run_id = :run ORDER BY name"
    notes = plain("SELECT kind, text FROM note WHERE run_id = :run ORDER BY id")
    metrics = query_by(
        MetricUsed,
        "SELECT benchmark, name, unit, better, combine FROM metric "
        "WHERE run_id = :run ORDER BY position",
        "benchmark",
    )
    reported = query_by(
        Reported,
        "SELECT phase, copies, reported_s, reference_s, ratio, selected, valid, errors "
        "FROM spec_result WHERE run_id = :run",
        "phase",
    )
    cpu_readings = query_by(CpuReading, named("cpu_readings"), "phase")
    machine_readings: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for phase, name, value in plain(named("phase_readings")):
        machine_readings[phase].append((name, value))

    def benchmark(values: dict[str, Any]) -> None:
        values["command"] = values["command"] or ""
        values["metrics"] = tuple(metrics[values["name"],])

    def bracket(values: dict[str, Any]) -> None:
        (values["reported"],) = reported.get((values["phase"],), (None,))

    return StoredRun(
        head=heads[0],
        host=query(Host, _HOST, finish=lambda values: values.pop("id"))[0],
        settings=tuple(plain(pairs.format("setting"))),
        environment=tuple(plain(pairs.format("environment"))),
        benchmarks=table(BenchmarkUsed, "benchmark", order="position", finish=benchmark),
        placements=table(PlacedCopy, "placement", order="copy"),
        pus=table(MachinePU, "pu", order="cpu"),
        brackets=query(StoredBracket, named("brackets"), finish=bracket),
        copies=_copies(connection, run_id),
        warnings=tuple(text for kind, text in notes if kind == "warning"),
        notes=tuple(text for kind, text in notes if kind == "note"),
        samples=query(Sampled, named("samples")),
        imported=next(iter(table(ImportedFile, "spec_file")), None),
        counted=table(PhaseCounted, "counted", order="phase"),
        observed=next(iter(table(Observed, "observed")), None),
        cpu_readings=tuple(
            CpuReadings(phase, tuple(found)) for (phase,), found in cpu_readings.items()
        ),
        machine_readings=tuple(
            MachineReadings(phase, tuple(values)) for phase, values in machine_readings.items()
        ),
    )


@cache
def named(query: str) -> str:
    """Return the text of `db/queries/QUERY.sql`."""
    return (folder("db") / "queries" / f"{query}.sql").read_text(encoding="utf-8")


def _copies(connection: sqlite3.Connection, run_id: int) -> tuple[StoredCopy, ...]:
    metrics: defaultdict[tuple[int, ...], list[tuple[str, float]]] = defaultdict(list)
    for *key, name, value in connection.execute(named("metrics"), {"run": run_id}):
        metrics[tuple(key)].append((name, value))
    workloads = read_by(connection, WorkloadTime, named("workloads"), _COPY_RUN, run=run_id)
    counts = read_by(connection, EventCount, named("copy_counts"), _COPY_RUN, run=run_id)
    pages = read_by(connection, PageRegion, named("page_regions"), _COPY_RUN, run=run_id)

    def finish(values: dict[str, Any]) -> None:
        cpus, mems = values.pop("gate_cpus"), values.pop("gate_mems")
        if cpus is not None or mems is not None:
            values["gate"] = _gate(cpus, mems)
        key = (values["phase"], values["copy"], values["step"])
        if key in metrics:
            values["metrics"] = tuple(metrics[key])
        if key in workloads:
            values["workloads"] = tuple(workloads[key])
        if key in counts:
            values["counts"] = tuple(counts[key])
        if key in pages:
            values["pages"] = tuple(pages[key])

    return tuple(read(connection, StoredCopy, named("copies"), finish=finish, run=run_id))


def page_extents(
    connection: sqlite3.Connection, used: BenchmarkUsed, *, split: bool
) -> dict[str, int]:
    """Return how large each category of a program's data was in its last run with `--pages`."""
    rows = connection.execute(
        named("page_extents"),
        {
            "command": used.command,
            "binary": used.binary_sha256,
            "inputs": used.inputs_sha256,
            "split": int(split),
        },
    )
    return {category: extent for category, extent, _ in rows}

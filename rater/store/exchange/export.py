"""A stored run as text for others: observations document, CSV, everything as JSON; pure."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TextIO

from rater.record.events import Sampled
from rater.record.run import MachinePU
from rater.record.status import CopyStatus, Validity
from rater.record.stored import RunHead, StoredCopy, StoredRun
from rater.store.exchange.read_observations import SHARED_BY_PU, VERSION
from rater.text.cpuset import format_list


def observations_document(stored: StoredRun) -> dict[str, Any]:
    """Return the observations document of a run; `read_observations` takes it back."""
    stored = stored.without_torn()
    head = stored.head
    run: dict[str, Any] = {
        "uuid": head.uuid,
        "host": head.hostname,
        "mode": head.mode,
        "copies": head.copies,
        "started_at": head.started_at,
    }
    if head.stagger_ms:
        run["stagger_ms"] = head.stagger_ms
    rotated = head.order == "rotated"
    steady = head.mode == "steady"
    if steady:
        run |= {"order": head.order, "warmup_s": head.warmup_s, "window_s": head.window_s}
        run["windows"] = [
            {
                "benchmark": bracket.benchmark,
                "iteration": bracket.iteration,
                "start_s": bracket.window_start_ns / 1e9,
                "finish_s": bracket.window_finish_ns / 1e9,
            }
            for bracket in stored.brackets
            if bracket.window_start_ns is not None and bracket.window_finish_ns is not None
        ]
    if rotated:
        run["increment"] = head.increment
    return {
        "rater": VERSION,
        "run": run,
        "topology": {key: _shared(stored.pus, name) for key, name in SHARED_BY_PU.items()},
        "observations": [
            _observation(copy, head.source, rotated or steady) for copy in stored.copies
        ],
    }


def _observation(copy: StoredCopy, source: str, queued: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "benchmark": copy.benchmark,
        "iteration": copy.iteration,
        "copy": copy.copy,
        "cpu": copy.cpu,
        "core": copy.core,
        "node": copy.node,
        "package": copy.package,
        "start_s": None if copy.start_ns is None else copy.start_ns / 1e9,
        "elapsed_s": copy.elapsed_s,
    }
    if queued:  # else a copy has one step a phase, and it says nothing
        values["step"] = copy.step
    if copy.tune is not None:
        values["tune"] = copy.tune
    if copy.mem_nodes:
        values["mem_nodes"] = list(copy.mem_nodes)
    if copy.cpu_s is not None:
        values["cpu_s"] = copy.cpu_s
    # Imported, `ok` and `unchecked`: nothing said how the copy ended.
    told = copy.status is not CopyStatus.OK or copy.validity is not Validity.UNCHECKED
    if source == "run" or told:
        values["status"] = str(copy.status)
    if copy.placement is not None:
        values["placement"] = copy.placement
    if copy.placement_note is not None:
        values["placement_note"] = copy.placement_note
    if not copy.counted:
        values["counted"] = False
    return values


def _shared(pus: Sequence[MachinePU], name: str) -> dict[str, list[int]]:
    """Return the CPUs by node, core or package."""
    groups: dict[int, list[int]] = {}
    for pu in pus:
        number = getattr(pu, name)
        if number is not None:
            groups.setdefault(number, []).append(pu.cpu)
    return {str(number): groups[number] for number in sorted(groups)}


def write_document(document: dict[str, Any], out: TextIO) -> None:
    """Write a JSON object, the members of its lists a line each, so that two can be compared."""
    comma = ""
    for key, value in document.items():
        out.write(f"{comma or '{'}\n{json.dumps(key)}: ")
        comma = ","
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(member, allow_nan=False) for member in value)
            out.write(f"[\n{lines}\n]" if lines else "[]")
        else:
            out.write(json.dumps(value, allow_nan=False))
    out.write("\n}\n")


def write_csv(stored: StoredRun, out: TextIO) -> None:
    """Write one line per copy run under a heading that has the units."""
    stored = stored.without_torn()
    metrics = dict.fromkeys(
        (metric.name, metric.unit) for used in stored.benchmarks for metric in used.metrics
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "uuid", *_CSV, *(f"{name} ({unit})" for name, unit in metrics)])
    head = (stored.head.run, stored.head.uuid)
    units = {used.name: {m.name: m.unit for m in used.metrics} for used in stored.benchmarks}
    for copy in stored.copies:
        # One benchmark's metric may have the name of another's in another unit.
        own = {(name, units[copy.benchmark].get(name)): value for name, value in copy.metrics}
        cells = [value(copy) for value in _CSV.values()]
        writer.writerow([*head, *cells, *(own.get(metric) for metric in metrics)])


def head_document(head: RunHead) -> dict[str, Any]:
    """Return the head of a run as JSON values: one of `rater list --json`."""
    return {
        **_flat(head),
        "status": head.status.reported,
        "benchmarks": list(head.benchmarks),
        "tags": dict(head.tags),
    }


def full_document(stored: StoredRun) -> dict[str, Any]:
    """Return everything that is stored of a run as JSON values, named as in the database."""
    return {
        "rater": VERSION,
        "run": head_document(stored.head),
        "host": _flat(stored.host),
        "settings": dict(stored.settings),
        "environment": dict(stored.environment),
        "benchmarks": [
            _flat(row) | {"metrics": [_flat(metric) for metric in row.metrics]}
            for row in stored.benchmarks
        ],
        "placements": [_flat(row) for row in stored.placements],
        "pus": [_flat(row) for row in stored.pus],
        "imported": None if stored.imported is None else _flat(stored.imported),
        "brackets": [
            _flat(row) | {"reported": None if row.reported is None else _flat(row.reported)}
            for row in stored.brackets
        ],
        "copies": [_copy(row) for row in stored.copies],
        "samples": [_sample(row) for row in stored.samples],
        "observed": None if stored.observed is None else _flat(stored.observed),
        "cpu_readings": [
            {"phase": it.phase, **_flat(row)} for it in stored.cpu_readings for row in it.rows
        ],
        "phase_readings": [
            {"phase": it.phase, **dict(it.values)} for it in stored.machine_readings
        ],
        "warnings": list(stored.warnings),
        "notes": list(stored.notes),
    }


def _copy(row: StoredCopy) -> dict[str, Any]:
    values = _flat(row) | {
        "metrics": dict(row.metrics),
        "workloads": [_flat(it) for it in row.workloads],
    }
    gate = values.pop("gate")
    return values | {
        "gate_cpus": gate.cpus if gate else None,
        "gate_mems": gate.mems if gate else None,
    }


def _sample(row: Sampled) -> dict[str, Any]:
    tables = {
        "node_bytes": row.node_bytes,
        "page_bytes": row.page_bytes,
        "astray_bytes": row.astray_bytes,
    }
    return _flat(row) | {
        name: None if table is None else {str(key): value for key, value in table}
        for name, table in tables.items()
    }


def _flat(row: Any) -> dict[str, Any]:
    """Return a dataclass of plain values as a dict (asdict would copy every value deeply)."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _seconds(name: str) -> Callable[[StoredCopy], str]:
    """Return a column that is `name`, in nanoseconds, as exact seconds."""

    def cell(copy: StoredCopy) -> str:
        value: int | None = getattr(copy, name)
        if value is None:
            return ""
        # Of the absolute value: a remainder is never negative, so -5618 ns would be -1.999994382.
        seconds, rest = divmod(abs(value), 10**9)
        return f"{'-' if value < 0 else ''}{seconds}.{rest:09d}"

    return cell


def _plain(name: str) -> Callable[[StoredCopy], Any]:
    return lambda copy: getattr(copy, name)


_CSV: dict[str, Callable[[StoredCopy], Any]] = {
    "benchmark": _plain("benchmark"),
    "tune": _plain("tune"),
    "iteration": _plain("iteration"),
    "copy": _plain("copy"),
    "step": _plain("step"),
    "phase": _plain("phase"),
    "counted": lambda copy: int(copy.counted),
    "cpu": _plain("cpu"),
    "core": _plain("core"),
    "llc": _plain("llc"),
    "node": _plain("node"),
    "package": _plain("package"),
    "mem_nodes": lambda copy: format_list(copy.mem_nodes),
    "planned_start_s": _seconds("planned_start_ns"),
    "start_s": _seconds("start_ns"),
    "elapsed_s": _seconds("elapsed_ns"),
    "cpu_s": _seconds("cpu_ns"),
    "user_s": _seconds("user_ns"),
    "system_s": _seconds("system_ns"),
    "gate_cpu_s": _seconds("gate_cpu_ns"),
    "max_rss_bytes": _plain("max_rss_bytes"),
    "minor_faults": _plain("minor_faults"),
    "major_faults": _plain("major_faults"),
    "voluntary_switches": _plain("voluntary_switches"),
    "involuntary_switches": _plain("involuntary_switches"),
    "status": _plain("status"),
    "exit_code": _plain("exit_code"),
    "signal": _plain("signal"),
    "validity": _plain("validity"),
    "validity_detail": _plain("validity_detail"),
    "note": _plain("note"),
    "placement": _plain("placement"),
    "placement_note": _plain("placement_note"),
}

"""A stored run as text for others, secrets left out; pure."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct
from msgspec.structs import asdict

from rater.plan.counter_tables import counter_tables
from rater.record.events import CopyEnded, PhaseSeries, Sampled
from rater.record.run import BenchmarkUsed, CopyStatus, RunStatus, Validity
from rater.record.series import unpack_stored
from rater.record.stored import RunHead, StoredRun
from rater.store.observations import ENERGY, VERSION, status_of_rows
from rater.store.observed_places import SHARED_BY_PU
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, Table, group_by_key, to_json

if TYPE_CHECKING:
    from rater.record.documents import HeadJson


def observations_document(stored: StoredRun) -> dict[str, Any]:
    """Return the observations document of a run; `read_observations` takes it back."""
    stored = stored.without_torn()
    head = stored.head
    run = JsonFields("uuid host=hostname mode copies started_at").read(head)
    run |= _status_members(stored) | ({"tags": dict(head.tags)} if head.tags else {})
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
    if any(copy.counts for copy in stored.copies):
        run["counter_tables"] = counter_tables(stored.settings)
    energy = _energy(stored)
    if energy:
        run["energy"] = energy
    metrics = _metrics(stored)
    if metrics:
        run["metrics"] = metrics
    used = {benchmark.name: benchmark for benchmark in stored.benchmarks}
    return {
        "rater": VERSION,
        "run": run,
        "topology": {
            key: {str(number): cpus[number] for number in sorted(cpus.keys() - {None})}
            for key, name in SHARED_BY_PU.items()
            for cpus in [group_by_key((getattr(pu, name), pu.cpu) for pu in stored.pus)]
        },
        "observations": [
            _observation(copy, used.get(copy.benchmark), head.source, queued=rotated or steady)
            for copy in stored.copies
        ],
    }


def _metrics(stored: StoredRun) -> list[dict[str, Any]]:
    """Return the declared metrics, each with its benchmark."""
    return [
        {"benchmark": used.name}
        | {key: value for key, value in asdict(metric).items() if value not in (None, "")}
        for used in stored.benchmarks
        for metric in used.metrics
    ]


def _status_members(stored: StoredRun) -> dict[str, Any]:
    """Return status and reason of a run when its observations alone would say something else."""
    head = stored.head
    ended = head.status in (RunStatus.COMPLETE, RunStatus.FAILED, RunStatus.INTERRUPTED)
    status = head.status if ended else RunStatus.INTERRUPTED  # killed, or it still runs
    reason = head.reason if ended else head.reason or "it had not ended when it was exported"
    if (status, reason) == status_of_rows(stored.copies):
        return {}
    members: dict[str, Any] = {"status": str(status)}
    return members | ({"reason": " ".join(reason.split())} if reason else {})


def _energy(stored: StoredRun) -> list[dict[str, Any]]:
    """Return joules by phase and domain; empty when others may have drawn part of them.

    A document has no place to say so, and its reader could not leave them out.
    """
    if stored.host.pus not in (None, len(stored.pus)) or '"share": true' in (
        stored.head.request or ""
    ):
        return []
    brackets = {bracket.phase: bracket for bracket in stored.brackets}
    return [
        {
            "benchmark": brackets[reading.phase].benchmark,
            "iteration": brackets[reading.phase].iteration,
            "elapsed_s": dict(reading.values)["elapsed_ns"] / 1e9,
            "joules": joules,
        }
        for reading in stored.machine_readings
        if (
            joules := {
                match[1]: microjoules / 1e6
                for name, microjoules in reading.values
                if (match := ENERGY.fullmatch(name))
            }
        )
    ]


def _observation(
    copy: CopyEnded, used: BenchmarkUsed | None, source: str, *, queued: bool
) -> dict[str, Any]:
    # Imported, `ok` and `unchecked`: nothing said how the copy ended.
    ended = copy.status is not CopyStatus.OK or copy.validity is not Validity.UNCHECKED
    optional = {
        "step": copy.step if queued else None,  # else a copy has one step a phase
        "tune": copy.tune,
        "mem_nodes": list(copy.mem_nodes) or None,
        "cpu_s": copy.cpu_s,
        "status": str(copy.status) if source == "run" or ended else None,
        "placement": copy.placement,
        "placement_note": copy.placement_note,
        "mean_rss_bytes": copy.mean_rss_bytes,
        "peak_rss_bytes": copy.peak_rss_bytes,
        "counted": None if copy.counted else False,
        "counts": [asdict(count) for count in copy.counts] or None,
        "metrics": dict(copy.metrics) or None,
        "category": used.category if used else None,
        "reference_s": used.reference_s if used else None,
    }
    return {
        "benchmark": copy.benchmark,
        "iteration": copy.iteration,
        "copy": copy.copy,
        "cpu": copy.cpu,
        "core": copy.core,
        "llc": copy.llc,
        "node": copy.node,
        "package": copy.package,
        "start_s": None if copy.start_ns is None else copy.start_ns / 1e9,
        "elapsed_s": copy.elapsed_s,
    } | {key: value for key, value in optional.items() if value is not None}


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


class CopyTable(Struct, frozen=True):
    """A line per copy run under headings that have the units; times in nanoseconds.

    `timed`: which columns are such times. Names of metrics and events are a user's own, and may
    end like theirs.
    """

    headings: tuple[str, ...]
    timed: tuple[bool, ...]
    lines: tuple[tuple[Any, ...], ...]


def copy_table(stored: StoredRun) -> CopyTable:
    """Return a run's copies as a table: places, times, how they ended, metrics, counts.

    Timed columns hold nanoseconds: who writes them as seconds chooses how. Counts are scaled where
    their group had the counters for a part of the time, which its column of shares says.
    """
    stored = stored.without_torn()
    metrics = dict.fromkeys(
        (metric.name, metric.unit) for used in stored.benchmarks for metric in used.metrics
    )
    counts = [dict(_counts(copy)) for copy in stored.copies]
    counted = dict.fromkeys(name for count in counts for name in count)
    units = {
        used.name: {metric.name: metric.unit for metric in used.metrics}
        for used in stored.benchmarks
    }
    lines = []
    for copy, copy_counts in zip(stored.copies, counts, strict=True):
        # One benchmark's metric may have the name of another's in another unit.
        copy_metrics = {
            (name, units[copy.benchmark].get(name)): value for name, value in copy.metrics
        }
        cells = [_cell(copy, column) for column in _CSV]
        cells += [copy_metrics.get(metric) for metric in metrics]
        cells += [copy_counts.get(name) for name in counted]
        lines.append((stored.head.run, stored.head.uuid, *cells))
    metric_headings = (f"{name} ({unit})" for name, unit in metrics)
    headings = ("run", "uuid", *_CSV, *metric_headings, *counted)
    copy_columns = range(2, 2 + len(_CSV))
    timed = tuple(
        position in copy_columns and _is_timed(name) for position, name in enumerate(headings)
    )
    return CopyTable(headings, timed, tuple(lines))


def join_tables(tables: Sequence[tuple[str, CopyTable]]) -> CopyTable:
    """Return the tables of several runs as one, with a first column for the point of each.

    Columns are those of any run, in the order of the first that has them; what a run does not have
    is empty.
    """
    timed = {
        heading: is_timed
        for _, table in tables
        for heading, is_timed in zip(table.headings, table.timed, strict=True)
    }
    lines = []
    for label, table in tables:
        for line in table.lines:
            cells = dict(zip(table.headings, line, strict=True))
            lines.append((label, *(cells.get(heading) for heading in timed)))
    return CopyTable(("point", *timed), (False, *timed.values()), tuple(lines))


def add_times(
    table: CopyTable, headings: Sequence[str], times_ns: Sequence[Sequence[int | None]]
) -> CopyTable:
    """Return a table with further columns of nanoseconds; `times_ns` has a row a line."""
    lines = tuple((*line, *times) for line, times in zip(table.lines, times_ns, strict=True))
    timed = (*table.timed, *(True for _ in headings))
    return CopyTable((*table.headings, *headings), timed, lines)


def write_csv(stored: StoredRun, out: TextIO) -> None:
    """Write one line per copy run under a heading that has the units (`copy_table`)."""
    write_table(copy_table(stored), out)


def write_table(table: CopyTable, out: TextIO) -> None:
    """Write one line per copy run under a heading that has the units."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_no_formula, table.headings))
    for line in table.lines:
        cells = zip(line, table.timed, strict=True)
        writer.writerow(
            [_seconds(value) if is_timed else _no_formula(value) for value, is_timed in cells]
        )


def _counts(copy: CopyEnded) -> Iterator[tuple[str, float | None]]:
    for count in copy.counts:
        share = count.running_ns / count.enabled_ns if count.enabled_ns else 0.0
        yield f"{count.group_name} share_counted", share
        yield f"{count.group_name} {count.event}", count.value if count.in_full else count.estimate


_TABLE: Table = {
    RunHead: JsonFields("*", {"status": lambda head: head.status.reported}, "tags{}"),
    CopyEnded: JsonFields(
        " ".join(name for name in CopyEnded.__struct_fields__ if name != "gate"),
        "metrics{} gate_cpus gate_mems",
    ),
    Sampled: JsonFields("* node_bytes{} page_bytes{} astray_bytes{}"),
    StoredRun: JsonFields(
        "run=head host settings{} environment{} redacted benchmarks placements pus imported"
        " brackets copies samples observed counted foreign_processes",
        {
            "cpu_readings": lambda run: [
                {"phase": reading.phase, **asdict(row)}
                for reading in run.cpu_readings
                for row in reading.rows
            ],
            "phase_readings": lambda run: [
                {"phase": reading.phase, **dict(reading.values)} for reading in run.machine_readings
            ],
            "series": lambda run: [_series(packed, run.head.run) for packed in run.series],
        },
        "warnings notes",
    ),
}


def _series(packed: PhaseSeries, run: int) -> dict[str, Any]:
    """Return the samples of a family. Raises `InputError` where they are damaged."""
    series = unpack_stored(packed, run)
    return {
        "phase": series.phase,
        "family": series.family,
        "times_s": [at_ns / 1e9 for at_ns in series.times_ns],
        "values": {
            column: {str(place): [*values] for place, values in by_place.items()}
            for column, by_place in series.values.items()
        },
    }


def head_document(head: RunHead) -> HeadJson:
    """Return the head of a run as JSON values: one of `rater list --json`."""
    document: HeadJson = to_json(head, _TABLE)
    return document


def full_document(stored: StoredRun) -> dict[str, Any]:
    """Return everything that is stored of a run as JSON values, named as in the database."""
    return {"rater": VERSION, **to_json(stored, _TABLE)}


# Columns of the table: fields of `CopyEnded`, those in nanoseconds as exact seconds.
_CSV = """
    benchmark tune iteration copy step phase counted cpu core llc node package mem_nodes
    planned_start_s start_s elapsed_s cpu_s user_s system_s gate_cpu_s max_rss_bytes minor_faults
    major_faults voluntary_switches involuntary_switches status exit_code signal validity
    validity_detail note placement placement_note late_s mean_rss_bytes peak_rss_bytes
""".split()  # noqa: SIM905 - a list to read


def _no_formula(value: Any) -> Any:
    """Return a cell that no spreadsheet computes: a text that begins like a formula gets a `'`."""
    formula = isinstance(value, str) and re.match(r"[=+@\t\r]|-(?![\d.]+$)", value)
    return f"'{value}" if formula else value


def _is_timed(column: str) -> bool:
    return column.endswith("_s")


def _cell(copy: CopyEnded, column: str) -> Any:
    if _is_timed(column):
        return getattr(copy, f"{column.removesuffix('_s')}_ns")
    value = getattr(copy, column)
    if column == "mem_nodes":
        return format_list(value)
    return int(value) if column == "counted" else value


def _seconds(value_ns: int | None) -> str:
    if value_ns is None:
        return ""
    # Of the absolute value: a remainder is never negative, so -5618 ns would be -1.999994382.
    seconds, nanoseconds = divmod(abs(value_ns), 10**9)
    return f"{'-' if value_ns < 0 else ''}{seconds}.{nanoseconds:09d}"

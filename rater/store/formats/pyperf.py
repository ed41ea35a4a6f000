"""What pyperf writes (`-o FILE`): a benchmark each, an iteration a value; pure."""

from __future__ import annotations

from typing import Any

from rater.store.formats.document import (
    ForeignRun,
    document_of,
    name_of_many,
    operations_for,
    printable_name,
)
from rater.text.documents import Document, TableReader
from rater.text.kinds import LINE, STRING, number, whole
from rater.text.values import truncate_list

_SECONDS = number(1e9, positive=True, unit="seconds")
_BYTES = whole(0, 2**60)
_MEMORY = ("command_max_rss", "mem_max_rss")  # of the command, else of the worker


def is_pyperf(data: Any) -> bool:
    """Tell whether parsed JSON is a file of pyperf."""
    benchmarks = data.get("benchmarks") if isinstance(data, dict) else None
    return isinstance(benchmarks, list) and any(
        isinstance(benchmark, dict) and "runs" in benchmark for benchmark in benchmarks
    )


def read_pyperf(data: bytes, document: Document) -> list[ForeignRun]:
    """Return the run of a file: every value of every process is an iteration of its benchmark.

    Warm-ups and calibrations are left out, as pyperf leaves them out.
    """
    root = document.root()
    common = root.table("metadata")
    observations: list[dict[str, Any]] = []
    other_units = []
    scaled = []
    for place, benchmark in enumerate(root.tables("benchmarks")):
        metadata = benchmark.table("metadata")
        name = metadata.get("name", STRING, None) or common.get("name", STRING, None)
        name = printable_name(name or f"benchmark {place + 1}")
        unit = metadata.get("unit", STRING, None) or common.get("unit", STRING, None)
        if unit not in (None, "second"):
            other_units.append(f"{name} ({unit})")
            continue
        rows = _values(benchmark)
        operations = operations_for(min((row["elapsed_s"] for row in rows), default=1.0))
        if operations > 1:
            scaled.append(name)
        for row in rows:
            row["benchmark"] = name_of_many(name, operations)
            row["elapsed_s"] *= operations
        observations += rows
    host = common.get("hostname", LINE, None)
    document.raise_mistakes()
    notes = []
    if other_units:
        notes.append(f"left out, as their values are no times: {truncate_list(other_units)}")
    if scaled:
        notes.append(f"stored as the time of more operations: {truncate_list(scaled)}")
    return [ForeignRun(document_of(data, observations, {"host": host}), tuple(notes))]


def _values(benchmark: TableReader) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for run in benchmark.tables("runs"):
        metadata = run.table("metadata")
        memory = [metadata.get(name, _BYTES, None) for name in _MEMORY]
        peak = next((value for value in memory if value is not None), None)
        for elapsed_s in run.items("values", _SECONDS, "a list of seconds"):
            row = {"iteration": len(rows) + 1, "copy": 0, "elapsed_s": elapsed_s}
            rows.append(row | ({} if peak is None else {"peak_rss_bytes": peak}))
    return rows

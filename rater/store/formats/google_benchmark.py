"""What Google benchmark writes (`--benchmark_out_format=json`): an iteration a repetition; pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rater.store.formats.document import (
    ForeignRun,
    document_of,
    moment,
    name_of_many,
    operations_for,
    printable_name,
)
from rater.system.errors import InputError
from rater.text.documents import Document, TableReader
from rater.text.kinds import FLAG, LINE, STRING, is_number, meaning, number
from rater.text.values import group_by_key

_UNIT = meaning({"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0})
_TIME = number()
# Keys that are not counters of the user.
_KNOWN = frozenset(
    """
    name family_index per_family_instance_index run_name run_type repetitions repetition_index
    threads iterations real_time cpu_time time_unit label error_occurred error_message skipped
    skip_message aggregate_name aggregate_unit
    """.split()  # noqa: SIM905 - a list to read
)
_RATES = {
    "bytes_per_second": {"unit": "B/s", "better": "higher", "combine": "sum"},
    "items_per_second": {"unit": "1/s", "better": "higher", "combine": "sum"},
}


def is_google_benchmark(data: Any) -> bool:
    """Tell whether parsed JSON is a file of Google benchmark."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("context"), dict)
        and isinstance(data.get("benchmarks"), list)
    )


def read_google_benchmark(data: bytes, document: Document) -> list[ForeignRun]:
    """Return the run of a file: the time of one operation, or of thousands of a short one.

    Aggregates are left out. Raises `InputError` where there is nothing else.
    """
    root = document.root()
    context = root.table("context")
    benchmarks = root.tables("benchmarks")
    repetitions = [row for row in benchmarks if row.get("run_type", STRING, "") != "aggregate"]
    if benchmarks and not repetitions:
        raise InputError(
            f"{document.path}: aggregates alone, without the times of repetitions; write it "
            "without --benchmark_report_aggregates_only"
        )
    failed = [row for row in repetitions if row.get("error_occurred", FLAG, default=False)]
    rows = [_observation(row) for row in repetitions if row not in failed]
    document.raise_mistakes()
    seen: Counter[str] = Counter()
    scaled = 0
    for name, members in group_by_key((row["benchmark"], row) for row in rows).items():
        operations = operations_for(min(row["elapsed_s"] for row in members))
        scaled += operations > 1
        for row in members:
            seen[name] += 1
            row["iteration"] = seen[name]
            row["benchmark"] = name_of_many(name, operations)
            row["elapsed_s"] *= operations
            row["cpu_s"] *= operations
    used = {name for row in rows for name in row["metrics"]}
    head = {
        "host": context.get("host_name", LINE, None),
        "started_at": moment(context.get("date", LINE, None)),
        "metrics": [{"name": name} | _RATES[name] for name in _RATES if name in used] or None,
    }
    notes = [
        f"{len(failed)} of {len(repetitions)} repetitions with an error left out" if failed else "",
        "short operations are stored as the time of thousands" if scaled else "",
    ]
    return [ForeignRun(document_of(data, rows, head), tuple(filter(None, notes)))]


def _observation(repetition: TableReader) -> dict[str, Any]:
    run_name = repetition.get("run_name", STRING, None) or repetition.get("name", STRING)
    unit_s = repetition.get("time_unit", _UNIT, 1e-9)
    counters = {
        name: value
        for name in repetition.key_names()
        if name not in _KNOWN and is_number(value := repetition.value(name))
    }
    return {
        "benchmark": printable_name(run_name),
        "copy": 0,
        "elapsed_s": repetition.get("real_time", _TIME) * unit_s,
        "cpu_s": repetition.get("cpu_time", _TIME) * unit_s,
        "metrics": counters,
    }

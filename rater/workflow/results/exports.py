"""`rater export`: a run as a document, and the copies of runs as a table."""

from __future__ import annotations

import sys

from rater.record.stored import StoredRun
from rater.store.export import (
    full_document,
    join_tables,
    observations_document,
    write_document,
    write_table,
)
from rater.store.read import TAG
from rater.store.sweeps import PREFIX
from rater.system.errors import InputError
from rater.workflow.arguments import Output, open_store_for_reading
from rater.workflow.results.copies_table import table_of_copies
from rater.workflow.results.points import load_points


def export_runs(output: Output, words: tuple[str, ...]) -> int:
    """Write runs on standard output in the format that was asked for; several as CSV alone."""
    form = output.format
    if output.json and form in ("csv", "parquet"):  # a trace is JSON
        raise InputError(
            f"--format {form} is no JSON document: leave out --json, or --format {form}"
        )
    if len(words) > 1 and form != "csv":
        raise InputError(
            f"{' '.join(words)}: several runs are one table: --format csv; of the other formats a "
            "document has one run"
        )
    is_of_several = form == "csv" and (len(words) > 1 or _may_be_several(words[0]))
    with open_store_for_reading(output, words) as store:
        points = load_points(store, words) if is_of_several else []
        stored = store.load(store.find(words[0])) if not points else points[0].runs[0].run
    if points:
        tables = [
            (point.label, table_of_copies(point_run.run))
            for point in points
            for point_run in point.runs
        ]
        write_table(join_tables(tables), sys.stdout)
    elif form == "csv":
        write_table(table_of_copies(stored), sys.stdout)
    elif form == "parquet":
        _write_parquet(stored)
    elif form == "trace":
        from rater.analysis.results.series import phase_times
        from rater.show.charts.trace import trace_document

        document = trace_document(stored, phase_times(stored))
        if not document["traceEvents"]:
            raise InputError(
                f"run {stored.head.run}: when its copies started is not known: none ran, or their "
                "times are imported; a trace would be empty"
            )
        write_document(document, sys.stdout)
    else:
        make = full_document if form == "json" else observations_document
        write_document(make(stored), sys.stdout)
    return 0


def _may_be_several(word: str) -> bool:
    """Tell whether a word may mean several runs."""
    return word.startswith((TAG, PREFIX)) or "," in word


def _write_parquet(stored: StoredRun) -> None:
    from rater.workflow.results.columns import columns_of_copies, library

    if sys.stdout.isatty():
        raise InputError("--format parquet is no text for a terminal: > run.parquet")
    parquet = library("pyarrow.parquet")
    parquet.write_table(columns_of_copies(stored).to_arrow(), sys.stdout.buffer)

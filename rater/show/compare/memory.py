"""`rater compare --memory`: average and maximum resident memory, a column pair for each point."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TextIO

from rater.analysis.results.memory import MemoryCell, MemoryRow
from rater.show.console.letters import letters
from rater.show.console.printer import Printer
from rater.show.console.rows import with_tunes
from rater.show.console.table import Column, Columns
from rater.text.to_json import to_json

_MB = 1e6
_LONGEST_HEADING = 12


def print_memory_rows(rows: Sequence[MemoryRow], labels: Sequence[str], printer: Printer) -> None:
    """Print a line for each benchmark, as many points beside each other as there is room for."""
    headings = [*labels]
    if max(map(len, labels)) > _LONGEST_HEADING:
        headings = [letters(place) for place in range(len(labels))]
        for heading, label in zip(headings, labels, strict=True):
            printer.prose(f"{heading}  {label}")
    names = Column("MB a copy", with_tunes(rows), right=False, flexible=True)
    pairs = [_pair(heading, [row.cells[i] for row in rows]) for i, heading in enumerate(headings)]
    while pairs:
        room, taken = printer.width - names.width, 0
        while taken < len(pairs) and (
            not taken or room >= sum(it.width + 2 for it in pairs[taken])
        ):
            room -= sum(it.width + 2 for it in pairs[taken])
            taken += 1
        printer.table([names, *(column for pair in pairs[:taken] for column in pair)])
        pairs = pairs[taken:]
        if pairs:
            printer.line()
    printer.prose(
        "resident memory, hugetlb pages included: average of looks once a second, over copies; "
        "most of any copy. Copies of less than a second have a maximum only."
    )


def _pair(heading: str, cells: Sequence[MemoryCell | None]) -> list[Column]:
    of = Columns(cells)
    return [
        of.numbers((heading, "average"), lambda it: _megabytes(it.average_bytes)),
        of.numbers(("", "most"), lambda it: _megabytes(it.max_bytes)),
    ]


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / _MB


def memory_document(rows: Sequence[MemoryRow], labels: Sequence[str]) -> dict[str, object]:
    """Return the rows for programs, bytes as they are."""
    return {
        "memory": [
            {
                "benchmark": row.benchmark,
                "tune": row.tune,
                "points": [
                    {"label": label, **(to_json(cell) if cell else {})}
                    for label, cell in zip(labels, row.cells, strict=True)
                ],
            }
            for row in rows
        ]
    }


def write_memory_csv(rows: Sequence[MemoryRow], labels: Sequence[str], out: TextIO) -> None:
    """Write a line for each benchmark, a pair of columns in bytes for each point."""
    writer = csv.writer(out, lineterminator="\n")
    pairs = [f"{label} {what} (bytes)" for label in labels for what in ("average", "max")]
    writer.writerow(["benchmark", "tune", *pairs])
    for row in rows:
        sizes = [
            None if size is None else round(size)
            for cell in row.cells
            for size in ((cell.average_bytes, cell.max_bytes) if cell else (None, None))
        ]
        writer.writerow([row.benchmark, row.tune, *sizes])

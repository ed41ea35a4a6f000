"""`rater compare --memory`: average and maximum resident memory, two columns for each point."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TextIO

from rater.analysis.results.copies import MemoryCell, MemoryRow
from rater.show.screen.document import NUMBER, TEXT, Field, Part, ViewTable
from rater.show.screen.format import LONGEST_HEADING, column_letters

if TYPE_CHECKING:
    from rater.show.documents.compare import MemoryDocument, MemoryPointJson


def memory_parts(rows: Sequence[MemoryRow], labels: Sequence[str]) -> Iterator[Part]:
    """Yield a line for each benchmark, as many points beside each other as there is room for."""
    letters = max(map(len, labels)) > LONGEST_HEADING
    headings = [column_letters(number) for number in range(len(labels))] if letters else labels
    if letters:
        yield from (f"{heading}  {label}" for heading, label in zip(headings, labels, strict=True))

    def megabytes(row: MemoryRow, place: int, key: str) -> float | None:
        cell: MemoryCell | None = row.cells[place]
        size = None if cell is None else getattr(cell, key)
        return None if size is None else size / 1e6

    pairs = [
        Field(heading=(heading, word), value=partial(megabytes, place=place, key=key), form=NUMBER)
        for place, heading in enumerate(headings)
        for word, key in (("average", "average_bytes"), ("most", "max_bytes"))
    ]
    first = Field(
        heading="MB a copy",
        value=lambda row: f"{row.benchmark} {row.tune or ''}".strip(),
        form=TEXT,
    )
    yield ViewTable(title="", rows=rows, fields=(first, *pairs), repeated=1)
    yield (
        "Resident memory, hugetlb pages included: average over time, over copies; "
        "most of any copy. Copies of less than a second have a maximum only."
    )


def memory_document(rows: Sequence[MemoryRow], labels: Sequence[str]) -> MemoryDocument:
    """Return the rows for programs, bytes as they are."""
    return {
        "memory": [
            {
                "benchmark": row.benchmark,
                "tune": row.tune,
                "points": [
                    _memory_point(label, cell)
                    for label, cell in zip(labels, row.cells, strict=True)
                ],
            }
            for row in rows
        ]
    }


def _memory_point(label: str, cell: MemoryCell | None) -> MemoryPointJson:
    if cell is None:
        return {"label": label}
    return {
        "label": label,
        "average_bytes": cell.average_bytes,
        "max_bytes": cell.max_bytes,
        "looks": cell.looks,
        "copy_runs": cell.copy_runs,
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

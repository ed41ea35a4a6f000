"""What became of each part of the cycles per instruction, below a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from rater.analysis.compare.model import CpiChange, Side
from rater.show.screen.document import CHANGE, TEXT, Field, Form, Part, ViewTable
from rater.show.screen.format import format_number
from rater.text.values import JsonFields, to_json

if TYPE_CHECKING:
    from rater.show.documents.compare import CpiChangeJson


def cpi_parts(changes: Sequence[CpiChange], sides: Sequence[Side]) -> Iterator[Part]:
    """Yield a table for each benchmark; nothing where nothing was counted on two sides."""

    def cycles(cpi_change: CpiChange, place: int) -> float | None:
        return cpi_change.cycles[place]

    def change(cpi_change: CpiChange, place: int) -> float | None:
        return cpi_change.changes[place]

    three = Form(lambda values: [format_number(value, 3) for value in values])
    for (benchmark, tune), rows in groupby(changes, key=lambda it: (it.benchmark, it.tune)):
        name = f"{benchmark} {tune}" if tune else benchmark
        columns = [
            Field(heading=f"CPI of {name}", value=lambda it: it.part.replace("_", " "), form=TEXT)
        ]
        for place, side in enumerate(sides):
            columns.append(
                Field(heading=(side.label, ""), value=partial(cycles, place=place), form=three)
            )
            if place:
                columns.append(
                    Field(
                        heading=("change,", "% of CPI"),
                        value=partial(change, place=place - 1),
                        form=CHANGE,
                    )
                )
        yield ViewTable(title="", rows=list(rows), fields=columns)


def cpi_document(changes: Sequence[CpiChange]) -> list[CpiChangeJson]:
    """Return the same as JSON values."""
    rows: list[CpiChangeJson] = to_json(
        list(changes), {CpiChange: JsonFields("benchmark tune part cycles changes")}
    )
    return rows

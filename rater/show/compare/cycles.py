"""What became of each part of the cycles per instruction, below a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from rater.analysis.compare.model import CountedChange, CpiChange, Side
from rater.show.screen.document import CHANGE, TEXT, Field, Form, Part, ViewTable
from rater.show.screen.format import format_number
from rater.text.values import JsonFields, to_json

if TYPE_CHECKING:
    from rater.show.documents.compare import CountedChangeJson, CpiChangeJson


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


def counted_parts(changes: Sequence[CountedChange], sides: Sequence[Side]) -> Iterator[Part]:
    """Yield IPC as improvement and misses as reduction, in one table for each other side."""

    def name_of(change: CountedChange) -> str:
        benchmark = f"{change.benchmark} {change.tune}" if change.tune else change.benchmark
        words = change.name.replace("_mpki", " / 1000 instructions").replace("_", " ")
        return f"{benchmark}: {words}"

    def value_of(place: int) -> Callable[[CountedChange], str]:
        return lambda change: format_number(change.values[place])

    def change_of(values: str, place: int) -> Callable[[CountedChange], float | None]:
        return lambda change: getattr(change, values)[place]

    for place, side in enumerate(sides[1:]):
        fields = (
            Field(heading="counted", value=name_of, form=TEXT, flexible=True),
            Field(heading=(sides[0].label, ""), value=value_of(0)),
            Field(
                heading=(side.label, ""),
                value=value_of(place + 1),
            ),
            Field(heading="improve-|ment %", value=change_of("improvements", place), form=CHANGE),
            Field(heading="reduc-|tion %", value=change_of("reductions", place), form=CHANGE),
        )
        rows = [change for change in changes if change.values[place + 1] is not None]
        yield ViewTable(title="", rows=rows, fields=fields)


def counted_document(changes: Sequence[CountedChange]) -> list[CountedChangeJson]:
    """Return the same as JSON values."""
    rows: list[CountedChangeJson] = to_json(
        list(changes),
        {CountedChange: JsonFields("benchmark tune name values improvements reductions")},
    )
    return rows


def cpi_document(changes: Sequence[CpiChange]) -> list[CpiChangeJson]:
    """Return the same as JSON values."""
    rows: list[CpiChangeJson] = to_json(
        list(changes), {CpiChange: JsonFields("benchmark tune part cycles changes")}
    )
    return rows

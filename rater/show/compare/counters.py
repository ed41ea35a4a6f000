"""What became of each part of the cycles per instruction, below a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from rater.analysis.compare.cpi import CpiChange
from rater.analysis.compare.model import Side
from rater.show.console.printer import Printer
from rater.show.console.table import Columns
from rater.text.to_json import Members, to_json


def print_cpi_changes(
    changes: Sequence[CpiChange], sides: Sequence[Side], printer: Printer
) -> None:
    """Print a table for each benchmark; nothing where nothing was counted on two sides."""
    for (benchmark, tune), rows in groupby(changes, key=lambda it: (it.benchmark, it.tune)):
        of = Columns(list(rows))
        name = f"{benchmark} {tune}" if tune else benchmark
        printer.line()
        columns = [
            of.left(f"CPI of {name}", lambda it: it.part.replace("_", " ")),
            of.numbers((sides[0].label, ""), lambda it: it.cycles[0], 3),
        ]
        for place, side in enumerate(sides[1:]):
            columns += [
                of.numbers((side.label, ""), partial(_cycles, place + 1), 3),
                of.change(("change,", "% of CPI"), partial(_change, place)),
            ]
        printer.table(columns)


def _cycles(place: int, it: CpiChange) -> float | None:
    return it.cycles[place]


def _change(place: int, it: CpiChange) -> float | None:
    return it.changes[place]


def cpi_document(changes: Sequence[CpiChange]) -> list[object]:
    """Return the same as JSON values."""
    rows: list[object] = to_json(
        list(changes), {CpiChange: Members("benchmark tune part cycles changes")}
    )
    return rows

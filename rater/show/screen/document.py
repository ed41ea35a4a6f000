"""A view: tables and sentences over a JSON document, for a terminal, in Markdown or as CSV.

A view is a sequence of parts. A table (`ViewTable`) has rows of the document and columns
(`Field`), each with a heading, a getter that takes a value out of a row, and a form that writes
all values of the column as text. A sentence is a string or a `Line`. `print_parts` prints parts on
a terminal or, with `MarkdownPrinter`, as Markdown; `write_csv` writes the tables alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from msgspec import Struct
from msgspec.structs import replace

from rater.show.screen.console import Column, Heading, Printer, TextScreen, heading_text
from rater.show.screen.format import (
    format_number,
    gigabytes_column,
    needed_decimals,
    or_dash,
    sanitize,
)
from rater.system.process import as_typed
from rater.text.values import percent, signed_percent

_UNBROKEN_WIDTH = 10_000  # cells of the console behind Markdown, whose readers break lines

type Row = Mapping[str, Any]  # an object of a JSON document
type Getter = str | Callable[[Any], object]


def cell_text(value: object) -> str:
    """Return a value of a document as a person reads it: lists with commas, `-` for None."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={member}" for key, member in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _value(row: Any, getter: Getter) -> Any:
    """Return the value of a row; the getter `slowest.cpu` names a member of a member.

    A row, or a member, without the key has the value None.
    """
    if not isinstance(getter, str):
        return getter(row)
    member = row
    for key in getter.split("."):
        member = None if member is None else member.get(key)
    return member


class Form(Struct, frozen=True):
    """How the values of a column are written; all at once, because numbers share decimals."""

    cells: Callable[[Sequence[Any]], list[str]]
    right: bool = True


def _numbers(values: Sequence[float | None]) -> list[str]:
    places = needed_decimals(values)
    return [format_number(value, places) for value in values]


def _seconds(values: Sequence[float | None]) -> list[str]:
    """Write times with common decimals, and with more where a time had fewer than three digits.

    Times of one table can lie four powers of ten apart.
    """
    common = needed_decimals(values)
    return [
        format_number(value, max(common, needed_decimals([value])) if value else common)
        for value in values
    ]


def decimals(places: int) -> Form:
    """Return the form of numbers with `places` decimals."""
    return Form(lambda values: [format_number(value, places) for value in values])


def copy_place(copy: Row) -> str:
    """Return `3, 3, 0`: a copy, its CPU and NUMA node; `-` stands for an unknown number."""
    return ", ".join(or_dash(copy[key]) for key in ("copy", "cpu", "node"))


TEXT = Form(lambda values: [*map(cell_text, values)], right=False)
WORD = Form(lambda values: [*map(cell_text, values)])  # a count, a CPU: aligned to the right
NUMBER = Form(_numbers)
SECONDS = Form(_seconds)
PERCENT = Form(lambda values: [*map(percent, values)])  # of a share
CHANGE = Form(lambda values: [*map(signed_percent, values)])
GIGABYTES = Form(gigabytes_column)  # of bytes
PLACE = Form(lambda values: ["-" if it is None else copy_place(it) for it in values])


class Field(Struct, frozen=True, kw_only=True):
    """A column of a table: its heading (`memory|GB`), the getter of its values, and their form.

    A column without a known value is left out. A narrow terminal also leaves out `optional`
    columns, those with the highest number first, and cuts `flexible` text. `wrap` is for the last
    column, whose text goes on in further lines: each text of a list begins a line, and a text that
    begins with `COMMAND` stays whole. CSV, which has no sentences below a table, takes
    `whole_value` where there is one.
    """

    heading: Heading
    value: Getter
    form: Form = WORD
    optional: int = 0
    flexible: bool = False
    wrap: bool = False
    whole_value: Getter | None = None  # what CSV has in its place; None: the same

    def values(self, rows: Iterable[Any]) -> list[Any]:
        """Return the value of each row."""
        return [_value(row, self.value) for row in rows]

    def column(self, rows: Sequence[Any]) -> Column:
        """Return the column as text."""
        values = self.values(rows)
        if self.wrap:
            cells = [
                "\n".join(value) if isinstance(value, list) else cell_text(value)
                for value in values
            ]
            cells = ["" if cell == "-" else cell for cell in cells]
        else:
            cells = self.form.cells(values)
        right = self.form.right and not self.wrap
        return Column(
            heading=self.heading,
            cells=cells,
            right=right,
            flexible=self.flexible,
            optional=self.optional,
            wrap=self.wrap,
        )


class ViewTable(Struct, frozen=True, kw_only=True):
    """Rows of a document, below a title; a table without rows is not printed."""

    title: str
    rows: Sequence[Any]
    fields: Sequence[Field]
    style: Callable[[Any], str] = lambda _: ""
    most: int = 0  # rows shown; 0: all
    group: Getter | None = None  # what neighbouring rows share: a line above them, unless ""
    repeated: int = 0  # columns with which further tables begin that hold what had no room
    tight: bool = False  # no blank line before it: the sentence above is its title
    note: str = ""  # what its columns mean, below it
    csv: ViewTable | None = None  # the table that CSV has in its place; None: this one

    @property
    def shown(self) -> Sequence[Any]:
        """The rows that have room."""
        return self.rows[: self.most] if self.most else self.rows

    @property
    def groups(self) -> dict[int, str]:
        """The lines above rows, by the place of the row."""
        if self.group is None:
            return {}
        names = [cell_text(_value(row, self.group)) for row in self.shown]
        return {
            place: name
            for place, name in enumerate(names)
            if name and (not place or name != names[place - 1])
        }

    def whole(self) -> ViewTable:
        """Return the table for CSV: all rows, their groups as a column, texts in full."""
        if self.csv is not None:
            return self.csv.whole()
        fields = [
            replace(field, value=field.whole_value) if field.whole_value else field
            for field in self.fields
        ]
        first = [Field(heading="group", value=self.group, form=TEXT)] if self.group else []
        return replace(self, most=0, group=None, fields=(*first, *fields))

    def columns(self) -> list[Column]:
        """Return the columns that have a known value in a row that is shown."""
        columns = [field.column(self.shown) for field in self.fields]
        return [column for column in columns if any(cell not in ("", "-") for cell in column.cells)]


class Line(Struct, frozen=True):
    """A sentence; `whole`: a command or path that is never broken."""

    text: str
    style: str = ""
    whole: bool = False


type Part = str | Line | ViewTable | None  # None: nothing to say


def benchmark_fields(rows: Sequence[Row]) -> list[Field]:
    """Return the columns for benchmark, tune (where rows differ in it) and iteration.

    `2*`: the iteration that counts, of several; `(1)`: one that does not count.
    """

    keys = Counter((row["benchmark"], row.get("tune")) for row in rows if "benchmark" in row)
    marked = any(many > 1 for many in keys.values())

    def iteration(row: Row) -> str | None:
        if row.get("iteration") is None:
            return None
        mark = "*" if row.get("selected") and marked else ""
        return (
            f"({row['iteration']})" if row.get("counted") is False else f"{row['iteration']}{mark}"
        )

    several = len({row.get("tune") for row in rows}) > 1
    tune = [Field(heading="tune", value="tune", form=TEXT)] if several else []
    first = Field(heading="benchmark", value="benchmark", form=TEXT, flexible=True)
    return [first, *tune, Field(heading="iter", value=iteration)]


type Fact = tuple[str, object] | tuple[str, object, str]  # label, value, style


def facts(rows: Iterable[Fact], title: str = "", most: int = 0) -> ViewTable:
    """Return a table of labels and values without headings; a fact without a value has no row."""
    label, value = (lambda row: row[0]), (lambda row: row[1])
    return ViewTable(
        title=title,
        rows=[row for row in rows if row[1]],
        fields=(
            Field(heading="", value=label, form=TEXT),
            Field(heading="", value=value, wrap=True),
        ),
        style=lambda row: "".join(row[2:]),
        most=most,
    )


def print_parts(parts: Iterable[Part], printer: Printer) -> None:
    """Print tables and sentences on a terminal, a blank line around each table."""
    # `begun`: something is printed; `apart`: a blank line is due before the next sentence.
    begun = apart = False
    for part in parts:
        if isinstance(part, ViewTable):
            table = part.whole() if printer.whole else part
            columns = table.columns()
            if table.rows and columns:
                if begun and not table.tight:
                    printer.line()
                _print_table(table, columns, printer)
                begun = apart = True
            continue
        line = Line(part or "") if not isinstance(part, Line) else part
        if part is None or not (line.text or begun):
            continue
        if apart and line.text:
            printer.line()
        begun, apart = True, False
        (printer.line if line.whole else printer.prose)(line.text, line.style)


def _print_table(table: ViewTable, columns: Sequence[Column], printer: Printer) -> None:
    if table.title:
        printer.prose(table.title, "bold")
    for number, some in enumerate(_side_by_side(columns, table.repeated, printer.table_width)):
        if number:
            printer.line()
        printer.table(some, [table.style(row) for row in table.shown], table.groups)
    if len(table.rows) > len(table.shown):
        printer.prose(f"and {len(table.rows) - len(table.shown)} more (--json has all)")
    if table.note:
        printer.prose(table.note, "dim")


def _side_by_side(
    columns: Sequence[Column], repeated: int, width: int
) -> Iterator[Sequence[Column]]:
    """Yield the columns of one table, or of several that have room, each with the first ones."""
    first, rest = columns[:repeated], columns[repeated:]
    while repeated and rest:
        room = width - sum(min(column.width, width // 3) + 2 for column in first)
        taken = 0
        while taken < len(rest) and (not taken or room >= rest[taken].width):
            room -= rest[taken].width + 2
            taken += 1
        yield [*first, *rest[:taken]]
        rest = rest[taken:]
    if not repeated:
        yield columns


class MarkdownPrinter(Printer):
    """Writes what is printed on a terminal as Markdown: GitHub's tables, paragraphs."""

    whole = True

    def __init__(self, out: TextIO) -> None:
        super().__init__(TextScreen(io.StringIO(), width=_UNBROKEN_WIDTH))
        self.ascii_only = False
        self._out = out

    def line(self, text: str = "", style: str = "") -> None:
        """Write a paragraph; what only sets things apart on a terminal is left out."""
        if text := re.sub(r"^(?=[*+#>-] )", r"\\", _markdown(text.strip())):  # no list, no heading
            self._out.write(f"**{text}**\n\n" if "bold" in style else f"{text}\n\n")

    def table(
        self,
        columns: Sequence[Column],
        styles: Sequence[str] = (),
        groups: Mapping[int, str] | None = None,
    ) -> None:
        """Write a table."""
        heading = [heading_text(column.heading) for column in columns]
        rules = ["--:" if column.right else ":--" for column in columns]
        cells = [map(_markdown, column.cells) for column in columns]
        for row in (map(_markdown, heading), rules, *zip(*cells, strict=True)):
            self._out.write(f"| {' | '.join(row)} |\n")
        self._out.write("\n")


def _markdown(text: str) -> str:
    return sanitize(as_typed(text).replace("\n", "; ")).replace("|", r"\|").replace("<", "&lt;")


def write_csv(parts: Iterable[Part], out: TextIO) -> None:
    """Write the tables that have headings, numbers as they are; an empty line between two."""
    writer = csv.writer(out, lineterminator="\n")
    tables = [
        part.whole()
        for part in parts
        if isinstance(part, ViewTable)
        and part.rows
        and any(heading_text(field.heading) for field in part.fields)
    ]
    for place, table in enumerate(tables):
        if place:
            writer.writerow([])
        fields = [
            field
            for field in table.fields
            if any(value is not None for value in field.values(table.rows))
        ]
        writer.writerow([heading_text(field.heading) for field in fields])
        values = [field.values(table.rows) for field in fields]
        for row in zip(*values, strict=True):
            writer.writerow([cell_text(one) if isinstance(one, list) else one for one in row])

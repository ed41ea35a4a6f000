"""Lines, sentences and tables that fill the width of a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from rater.show.screen.format import (
    align_columns,
    crop,
    crop_apart,
    sanitize,
    wrap_text,
)
from rater.system.process import as_typed
from rater.text.secrets import raw_stream
from rater.text.values import printable_lines

# -- Tables of text that never wrap: columns give way in a fixed order when there is little room ---

_LEAST_TEXT = 8  # cells that a flexible column keeps
COMMAND = "-> "  # before what is to be copied: never broken
_LEAST_WRAPPED = 20  # what a column that goes on below has
_GOOD_TEXT = 16  # below this, optional columns go first


type Heading = str | tuple[str, str]  # two lines: `median|copy s`, or each for itself


def heading_lines(heading: Heading) -> tuple[str, str]:
    """Return the two lines of a heading."""
    if isinstance(heading, tuple):
        return heading
    first, _, second = heading.partition("|")
    return first, second


def heading_text(heading: Heading) -> str:
    """Return both lines of a heading as one; a word that a terminal breaks is whole again."""
    first, second = heading_lines(heading)
    return first[:-1] + second if first.endswith("-") else f"{first} {second}".strip()


class Column(Struct, frozen=True, kw_only=True):
    """One column: a heading of one or two lines (`median|copy s`), then a cell for each row."""

    heading: Heading
    cells: Sequence[str]
    right: bool = True
    flexible: bool = False  # its cells are cut where there is too little room
    optional: int = 0  # left out where there is too little room, the highest number first
    wrap: bool = False  # the last one: its cells go on in further lines, and have several

    @property
    def lines(self) -> tuple[str, str]:
        """The two lines of the heading."""
        return heading_lines(self.heading)

    @property
    def width(self) -> int:
        """Cells of its widest line."""
        return max(cell_len(text) for text in (*self.lines, *self.cells))


def table_lines(
    columns: Sequence[Column], width: int, *, ascii_only: bool
) -> tuple[list[str], list[list[str]]]:
    """Return the lines of the heading, and those of each row: several where a column wraps.

    The heading has two, or one when no column has a unit. `width` at most, in this order: gaps of
    two characters become one, flexible columns are cut (where that leaves different cells
    different), optional columns are left out, flexible columns are cut further.
    """
    if len(columns) > 1 and columns[-1].wrap:
        return _with_wrapped(columns[:-1], columns[-1], width, ascii_only=ascii_only)
    kept, gap, shares = _arranged(columns, width)
    rows = [tuple(column.lines[line] for column in kept) for line in (0, 1)]
    heading = [
        [
            crop(text, shares[place], ascii_only=ascii_only) if place in shares else text
            for place, text in enumerate(row)
        ]
        for row in (rows if any(rows[1]) else rows[:1] if any(rows[0]) else [])
    ]
    cells = [
        crop_apart(column.cells, shares[place], ascii_only=ascii_only)
        if place in shares
        else column.cells
        for place, column in enumerate(kept)
    ]
    cut = [*heading, *zip(*cells, strict=True)]
    lines = align_columns(cut, [column.right for column in kept], gap)
    lines = [crop(line, width, ascii_only=ascii_only) for line in lines]
    return lines[: len(heading)], [[line] for line in lines[len(heading) :]]


def _with_wrapped(
    columns: Sequence[Column], last: Column, width: int, *, ascii_only: bool
) -> tuple[list[str], list[list[str]]]:
    """Give the last column what room the others leave; its text goes on below."""
    texts = [cell.split("\n") for cell in last.cells]
    least = min(_LEAST_WRAPPED, max(cell_len(line) for cell in texts for line in cell))
    fixed = [
        min(column.width, _GOOD_TEXT if column.flexible else width)
        for column in columns
        if not column.optional
    ]
    least = max(_LEAST_TEXT, min(least, width - 2 - sum(fixed) - len(fixed)))
    head, rows = table_lines(columns, width - least - 2, ascii_only=ascii_only)
    margin = max(map(cell_len, [*head, *(row[0] for row in rows)])) + 2
    room = max(least, width - margin)
    broken = [
        [
            line
            for text in cell
            for line in ([text] if text.startswith(COMMAND) else wrap_text(text, room, ""))
        ]
        for cell in texts
    ]
    titles = with_margin(head[0], margin, [last.lines[0]]) + head[1:] if head else []
    return titles, [
        with_margin(begin, margin, lines) for (begin,), lines in zip(rows, broken, strict=True)
    ]


def _arranged(columns: Sequence[Column], width: int) -> tuple[list[Column], int, dict[int, int]]:
    """Return the columns that stay, the gap, and the width of each flexible one (by place)."""
    kept = list(columns)
    for least in (_GOOD_TEXT, _LEAST_TEXT):
        while True:
            gap = 2 if _needed(kept, 2) <= width else 1
            shares = _shares(kept, width, gap, least)
            given_up = sum(kept[place].width - share for place, share in shares.items())
            out = max((column.optional for column in kept), default=0)
            if _needed(kept, gap) - given_up <= width:
                return kept, gap, shares
            if not out:
                break
            kept = [column for column in kept if column.optional != out]
    return kept, gap, shares


def _needed(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _shares(columns: Sequence[Column], width: int, gap: int, least: int) -> dict[int, int]:
    """Cut flexible columns, the widest first, until all fits or each is down to `least`."""
    shares = {place: column.width for place, column in enumerate(columns) if column.flexible}
    for _ in range(max(0, _needed(columns, gap) - width)):
        widest = max(shares, key=lambda place: shares[place], default=None)
        if widest is None or shares[widest] <= least:
            break
        shares[widest] -= 1
    return shares


# -- The console on standard output or error: colours and cursor are ours, text is cleaned ---------


UNLIMITED = 100_000  # cells


class Terminal(Console):
    """Everything that is drawn goes through `render`: control codes come from rich alone."""

    @property
    def is_piped(self) -> bool:
        """Tell whether no screen, and no COLUMNS, says how wide it is."""
        return not self.is_terminal and "COLUMNS" not in os.environ

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is drawn; text of others cannot move the cursor."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


def terminal(*, stderr: bool = False) -> Console:
    """Return the console that standard output, or error, is now."""
    return Terminal(file=raw_stream(sys.stderr if stderr else sys.stdout))


# -- Text on a page as wide as the terminal: sentences, and what stands at the left of them --------


def is_ascii(encoding: str | None) -> bool:
    """Tell whether what is written in an encoding has to be plain ASCII."""
    return not (encoding or "ascii").lower().startswith("utf")


def with_margin(begin: str, margin: int, lines: Sequence[str]) -> list[str]:
    """Return the lines behind a margin, with `begin` in it before the first."""
    first, *more = lines or [""]
    return [f"{begin:<{margin}}{first}".rstrip(), *(" " * margin + line for line in more)]


# -- Lines, sentences and tables on a console ------------------------------------------------------


class Printer:
    """Lines of text on a console, none of it read as rich's markup, none of it wrapped there."""

    whole = False  # tables with all their rows, as nothing limits the page

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width
        # What a pipe or a file gets of a table is not cut: programs read it, and nothing breaks it.
        self.table_width = UNLIMITED if getattr(console, "is_piped", False) else console.width
        self.ascii_only = is_ascii(console.encoding)

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line without breaking it."""
        text = sanitize(as_typed(text), ascii_only=self.ascii_only)
        self.console.print(Text(text, style), soft_wrap=True, highlight=False)

    def prose(self, text: str, style: str = "") -> None:
        """Print a sentence, broken between words where the console ends."""
        clean = sanitize(as_typed(text), ascii_only=self.ascii_only)
        for line in wrap_text(clean, max(20, self.width)):
            self.line(line, style)

    def table(
        self,
        columns: Sequence[Column],
        styles: Sequence[str] = (),
        groups: Mapping[int, str] | None = None,
    ) -> None:
        """Print a table; `styles` are those of its rows, `groups` lines above rows, by place."""
        clean = [
            replace(column, cells=[self._clean(cell, column.wrap) for cell in column.cells])
            for column in columns
        ]
        heading, rows = table_lines(clean, self.table_width, ascii_only=self.ascii_only)
        for line in heading:
            self.line(line, "bold")
        for place, lines in enumerate(rows):
            if groups and place in groups:
                self.line()
                self.line(groups[place], "bold")
            for line in lines:
                self.line(line, styles[place] if place < len(styles) else "")

    def _clean(self, cell: str, wrap: bool) -> str:
        lines = cell.split("\n") if wrap else [cell]
        return "\n".join(sanitize(as_typed(line), ascii_only=self.ascii_only) for line in lines)

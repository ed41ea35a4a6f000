"""Lines, sentences and tables that fill the width of a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len  # of all rich this module alone starts fast

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


# -- The screen behind standard output or error: colours are ours, text of others is cleaned -------

UNLIMITED = 100_000  # cells
_USUAL_WIDTH = 80  # of what says nothing else
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
_COLOURS = ("red", "green", "yellow", "blue")

type Span = tuple[str, str]  # a text and its style: words such as "bold red", or none


class TextScreen:
    """A stream of text with its width and encoding, and with colours where it has them."""

    def __init__(
        self, file: IO[str], *, width: int | None = None, is_terminal: bool | None = None
    ) -> None:
        """Take a stream, which is asked for its width and kind where they are not given."""
        self.file = file
        self.is_terminal = _is_terminal(file) if is_terminal is None else is_terminal
        self.is_dumb = self.is_terminal and os.environ.get("TERM", "").lower() in (
            "dumb",
            "unknown",
        )
        self.width = width or _columns() or (_USUAL_WIDTH if self.is_dumb else _window_width())
        self.encoding = (getattr(file, "encoding", None) or "utf-8").lower()
        # Tables are cut where a screen, or COLUMNS, says how wide it is.
        self.is_piped = not self.is_terminal and width is None and "COLUMNS" not in os.environ
        self._words = set[str]()
        if self.is_terminal and not self.is_dumb:
            self._words = _CODES.keys() - (_COLOURS if os.environ.get("NO_COLOR") else ())

    def write_line(self, spans: Iterable[Span]) -> None:
        """Write one line, however long; control codes of its texts are shown as `?`."""
        text = "".join(self._styled(printable_lines(text), style) for text, style in spans)
        self.file.write(f"{text}\n")
        self.file.flush()

    def _styled(self, text: str, style: str) -> str:
        codes = ";".join(_CODES[word] for word in style.split() if word in self._words)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def without_end(spans: Sequence[Span]) -> list[Span]:
    """Return the spans of a line without the blanks at its end."""
    kept = list(spans)
    while kept and not kept[-1][0].rstrip():
        kept.pop()
    return [*kept[:-1], (kept[-1][0].rstrip(), kept[-1][1])] if kept else []


def _is_terminal(file: IO[str]) -> bool:
    """Tell whether a stream is a terminal, unless TTY_COMPATIBLE or FORCE_COLOR says it."""
    compatible, forced = (os.environ.get(name) for name in ("TTY_COMPATIBLE", "FORCE_COLOR"))
    if compatible in ("0", "1"):
        return compatible == "1"
    if forced is not None:
        return forced != ""
    try:
        return file.isatty()
    except (AttributeError, ValueError):  # it is closed
        return False


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() else 0


def _window_width() -> int:
    """Return how wide the window is that any of the standard streams is in."""
    for number in (0, 1, 2):
        with suppress(OSError, ValueError):
            return os.get_terminal_size(number).columns or _USUAL_WIDTH
    return _USUAL_WIDTH


def screen(*, stderr: bool = False) -> TextScreen:
    """Return the screen that standard output, or error, is now."""
    return TextScreen(raw_stream(sys.stderr if stderr else sys.stdout))


# -- Text on a page as wide as the terminal: sentences, and what stands at the left of them --------


def is_ascii(encoding: str | None) -> bool:
    """Tell whether what is written in an encoding has to be plain ASCII."""
    return not (encoding or "ascii").lower().startswith("utf")


def with_margin(begin: str, margin: int, lines: Sequence[str]) -> list[str]:
    """Return the lines behind a margin, with `begin` in it before the first."""
    first, *more = lines or [""]
    return [f"{begin:<{margin}}{first}".rstrip(), *(" " * margin + line for line in more)]


# -- Lines, sentences and tables on a screen -------------------------------------------------------


class Printer:
    """Lines of text on a screen, none of it wrapped there."""

    whole = False  # tables with all their rows, as nothing limits the page

    def __init__(self, screen: TextScreen) -> None:
        self.screen = screen
        self.width = screen.width
        # What a pipe or a file gets of a table is not cut: programs read it, and nothing breaks it.
        self.table_width = UNLIMITED if screen.is_piped else screen.width
        self.ascii_only = is_ascii(screen.encoding)

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line without breaking it."""
        self.screen.write_line([(sanitize(as_typed(text), ascii_only=self.ascii_only), style)])

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

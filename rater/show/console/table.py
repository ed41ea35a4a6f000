"""Tables of text that never wrap: columns give way in a fixed order when there is little room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rich.cells import cell_len

from rater.show.console.format import aligned, crop, crop_apart, decimals, number, or_dash
from rater.text.words import percent, signed_percent

_LEAST_TEXT = 8  # cells that a flexible column keeps
_GOOD_TEXT = 16  # below this, optional columns go first


type Heading = str | tuple[str, str]  # two lines: `median|copy s`, or each for itself


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a heading of one or two lines (`median|copy s`), then a cell for each row."""

    heading: Heading
    cells: Sequence[str]
    right: bool = True
    flexible: bool = False  # its cells are cut where there is too little room
    optional: int = 0  # left out where there is too little room, the highest number first

    @property
    def lines(self) -> tuple[str, str]:
        """The two lines of the heading."""
        if isinstance(self.heading, tuple):
            return self.heading
        first, _, second = self.heading.partition("|")
        return first, second

    @property
    def width(self) -> int:
        """Cells of its widest line."""
        return max(cell_len(text) for text in (*self.lines, *self.cells))


class _OfCopy(Protocol):
    @property
    def copy(self) -> int: ...
    @property
    def cpu(self) -> int | None: ...
    @property
    def node(self) -> int | None: ...


class Columns[T]:
    """Makes the columns of a table from what its rows are of; None, as a row too, is `-`."""

    def __init__(self, rows: Sequence[T | None]) -> None:
        self._rows = rows

    def _values[V](self, value: Callable[[T], V]) -> list[V | None]:
        return [None if row is None else value(row) for row in self._rows]

    def right(
        self,
        heading: Heading,
        value: Callable[[T], object],
        *,
        flexible: bool = False,
        optional: int = 0,
    ) -> Column:
        """Return a column of values as they are."""
        cells = [or_dash(one) for one in self._values(value)]
        return Column(heading, cells, True, flexible, optional)

    def left(
        self,
        heading: Heading,
        value: Callable[[T], object],
        *,
        flexible: bool = False,
        optional: int = 0,
    ) -> Column:
        """Return a column of text, aligned to the left."""
        return replace(
            self.right(heading, value, flexible=flexible, optional=optional), right=False
        )

    def numbers(
        self,
        heading: Heading,
        value: Callable[[T], float | None],
        places: int | None = None,
        optional: int = 0,
    ) -> Column:
        """Return a column of numbers, with the decimals they need together without `places`."""
        values = self._values(value)
        shown = decimals(values) if places is None else places
        return Column(heading, [number(one, shown) for one in values], optional=optional)

    def percent(
        self,
        heading: Heading,
        share: Callable[[T], float | None],
        places: int = 1,
        optional: int = 0,
    ) -> Column:
        """Return a column of shares in per cent."""
        cells = [percent(one, places) for one in self._values(share)]
        return Column(heading, cells, optional=optional)

    def place(self, of: Callable[[T], _OfCopy | None], which: str = "which copy") -> Column:
        """Return a column with a copy, its CPU and lgroup, `-` for what is not known."""
        cells = [
            ", ".join(map(or_dash, (one.copy, one.cpu, one.node))) if one else "-"
            for one in self._values(of)
        ]
        return Column((f"{which},", "CPU, lgroup"), cells)

    def change(
        self, heading: Heading, share: Callable[[T], float | None], optional: int = 0
    ) -> Column:
        """Return a column of changes in per cent, with their sign."""
        cells = [signed_percent(one) for one in self._values(share)]
        return Column(heading, cells, optional=optional)


def table_lines(columns: Sequence[Column], width: int, *, ascii_only: bool) -> list[str]:
    """Return heading lines (two, or one when no column has a unit) and rows, `width` at most.

    In this order: gaps of two characters become one, flexible columns are cut (where that leaves
    different cells different),
    optional columns are left out, flexible columns are cut further.
    """
    kept, gap, shares = _arranged(columns, width)
    rows = [tuple(column.lines[place] for column in kept) for place in (0, 1)]
    heading = [
        [
            crop(text, shares[i], ascii_only=ascii_only) if i in shares else text
            for i, text in enumerate(row)
        ]
        for row in (rows if any(rows[1]) else rows[:1])
    ]
    cells = [
        crop_apart(column.cells, shares[i], ascii_only=ascii_only) if i in shares else column.cells
        for i, column in enumerate(kept)
    ]
    cut = [*heading, *zip(*cells, strict=True)]
    lines = aligned(cut, [column.right for column in kept], gap)
    return [crop(line, width, ascii_only=ascii_only) for line in lines]


def _arranged(columns: Sequence[Column], width: int) -> tuple[list[Column], int, dict[int, int]]:
    """Return the columns that stay, the gap, and the width of each flexible one (by place)."""
    kept = list(columns)
    for least in (_GOOD_TEXT, _LEAST_TEXT):
        while True:
            gap = 2 if _needed(kept, 2) <= width else 1
            shares = _shares(kept, width, gap, least)
            given_up = sum(kept[i].width - share for i, share in shares.items())
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
    shares = {i: column.width for i, column in enumerate(columns) if column.flexible}
    for _ in range(max(0, _needed(columns, gap) - width)):
        widest = max(shares, key=lambda i: shares[i], default=None)
        if widest is None or shares[widest] <= least:
            break
        shares[widest] -= 1
    return shares


def seconds_columns(*columns: Sequence[float | None]) -> list[list[str]]:
    """Return columns of times as cells with the decimals that they need together.

    A row whose smallest time would be left with fewer than three digits has more
    of them: rows of one table can lie four powers of ten apart.
    """
    common = decimals([value for column in columns for value in column])
    rows = [
        max(common, decimals(row)) if any(row) else common for row in zip(*columns, strict=True)
    ]
    return [
        [number(value, places) for value, places in zip(column, rows, strict=True)]
        for column in columns
    ]

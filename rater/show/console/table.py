"""Tables of text that never wrap: columns give way in a fixed order when there is little room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from rater.analysis.results.copy_outcome import CopyTime
from rater.show.console.format import aligned, crop, decimals, number

_LEAST_TEXT = 8  # cells that a flexible column keeps
_GOOD_TEXT = 16  # below this, optional columns go first


@dataclass(frozen=True, slots=True)
class Column:
    """One column: two lines of heading (the second for the unit), then a cell for each row."""

    heading: tuple[str, str]
    cells: Sequence[str]
    right: bool = True
    flexible: bool = False  # its cells are cut where there is too little room
    optional: int = 0  # left out where there is too little room, the highest number first

    @property
    def width(self) -> int:
        """Cells of its widest line."""
        return max(cell_len(text) for text in (*self.heading, *self.cells))


def table_lines(columns: Sequence[Column], width: int, *, ascii_only: bool) -> list[str]:
    """Return heading lines (two, or one when no column has a unit) and rows, `width` at most.

    In this order: gaps of two characters become one, flexible columns are cut,
    optional columns are left out, flexible columns are cut further.
    """
    kept, gap, shares = _arranged(columns, width)
    rows = [[column.heading[0] for column in kept]]
    if any(column.heading[1] for column in kept):
        rows.append([column.heading[1] for column in kept])
    rows += [list(cells) for cells in zip(*(column.cells for column in kept), strict=True)]
    cut = [
        [
            crop(cell, shares[i], ascii_only=ascii_only) if i in shares else cell
            for i, cell in enumerate(row)
        ]
        for row in rows
    ]
    lines = aligned(cut, [column.right for column in kept], gap)
    return [crop(line, width, ascii_only=ascii_only) for line in lines]


def _arranged(columns: Sequence[Column], width: int) -> tuple[list[Column], int, dict[int, int]]:
    """Return the columns that stay, the gap, and the width of each flexible one (by place)."""
    kept = list(columns)
    for least in (_GOOD_TEXT, _LEAST_TEXT):
        while True:
            gap = 2 if _needed(kept, 2) <= width else 1
            shares = _shares(kept, width, gap, least)
            out = max((column.optional for column in kept), default=0)
            if _needed(kept, gap) - sum(_given_up(kept, shares)) <= width:
                return kept, gap, shares
            if not out:
                break
            kept = [column for column in kept if column.optional != out]
    return kept, gap, shares


def _needed(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _given_up(columns: Sequence[Column], shares: dict[int, int]) -> list[int]:
    return [columns[i].width - share for i, share in shares.items()]


def _shares(columns: Sequence[Column], width: int, gap: int, least: int) -> dict[int, int]:
    """Cut flexible columns, the widest first, until all fits or each is down to `least`."""
    shares = {i: column.width for i, column in enumerate(columns) if column.flexible}
    for _ in range(max(0, _needed(columns, gap) - width)):
        widest = max(shares, key=lambda i: shares[i], default=None)
        if widest is None or shares[widest] <= least:
            break
        shares[widest] -= 1
    return shares


def place_text(time: CopyTime | None) -> str:
    """Return `17/3/0`: copy, CPU and lgroup, `-` for what is not known."""
    if time is None:
        return "-"
    parts = (time.copy, time.cpu, time.node)
    return "/".join("-" if part is None else str(part) for part in parts)


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

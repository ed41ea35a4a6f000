"""What a campaign hands back, and the one table made of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.bench import Bench


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: so many attempts, so many of them that lost or broke something."""

    name: str
    tried: int
    lost: int
    note: str = ""  # what was lost first; why it was left out

    @property
    def survived(self) -> int:
        return self.tried - self.lost


# Called with the share of its full length that it is to take; hands back one row or several.
type Campaign = Callable[[Bench, float], Iterable[Row]]


def scaled_number(share: float, number: int) -> int:
    """Return that share of a campaign's full number of attempts, at least one."""
    return max(1, round(share * number))


def row_of(name: str, wrong: list[str | None]) -> Row:
    """Make a line of what each attempt said was wrong (None: nothing was)."""
    lost = [it for it in wrong if it is not None]
    return Row(name, len(wrong), len(lost), lost[0] if lost else "")


def table(rows: Iterable[Row]) -> str:
    """Return the table as text."""
    rows = list(rows)
    width = max(len(row.name) for row in rows)
    head = f"{'campaign':{width}}  {'tried':>8}  {'survived':>8}  {'lost':>5}"
    return "\n".join(
        [head]
        + [
            (
                f"{row.name:{width}}  {row.tried:8}  {row.survived:8}  {row.lost:5}  {row.note}"
            ).rstrip()
            for row in rows
        ]
    )

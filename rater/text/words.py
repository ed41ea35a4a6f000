"""Numbers and lists in sentences; pure."""

from __future__ import annotations

from collections.abc import Sequence


def count(how_many: int, singular: str, plural: str | None = None) -> str:
    """Return `1 copy`, `2 copies`."""
    return f"{how_many} {singular if how_many == 1 else plural or singular + 's'}"


def some(told: Sequence[str], most: int = 4) -> str:
    """Return the first `most` of what is told, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more


def per_cent(text: str, below: float = 100) -> float | None:
    """Read `1%` or `1` as 0.01; None for what is no number from 0 to `below`."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if 0 <= value < below else None

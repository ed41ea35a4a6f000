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

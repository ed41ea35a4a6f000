"""Letters in the place of points' labels, where those take too much room."""

from __future__ import annotations


def letters(place: int) -> str:
    """Return A for the first (place 0), Z for the 26th, then AA, AB."""
    first, last = divmod(place, 26)
    return (letters(first - 1) if first else "") + chr(ord("A") + last)

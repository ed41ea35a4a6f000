"""Words for pages: counts, sizes and costs; what stands in tables and JSON alike."""

from __future__ import annotations

from rater.record.pages import PAGE_SIZES

_NAMES = dict(zip(PAGE_SIZES, ("4 KB", "64 KB", "2 MB", "1 GB"), strict=True))
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def page_name(page_bytes: int) -> str:
    """Return a page size for people: `2 MB`."""
    return _NAMES[page_bytes]


def many(count: float) -> str:
    """Return a count with three digits: `24.4 M`, `812`."""
    for step, letter in _STEPS:
        if abs(count) >= step:
            value = count / step
            return f"{value:.{max(0, 2 - len(str(int(abs(value)))) + 1)}f} {letter}"
    return f"{count:.0f}"


def megabytes(size: float) -> str:
    """Return bytes as MB (10^6), with decimals where they are few."""
    value = size / 1e6
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(ns: float) -> str:
    """Return nanoseconds as ms with three digits."""
    value = ns / 1e6
    places = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}"

"""Numbers, times and other people's text as a person reads them; pure, no colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def clock(seconds: float) -> str:
    """Return a duration as `0:07`, `12:05` or `1:02:03` (whole seconds, rounded down)."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def decimals(values: Iterable[float | None], *, significant: int = 3, widest: int = 7) -> int:
    """Return how many decimals a column of numbers needs.

    Enough for `significant` digits of the smallest number above zero, but no
    more than keep the largest within `widest` characters.
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    positive = [value for value in known if value > 0]
    if not positive:
        return 1
    wanted = significant - 1 - math.floor(math.log10(min(positive)))
    digits_before_point = max(1, math.floor(math.log10(max(positive))) + 1)
    return max(0, min(wanted, 4, widest - 1 - digits_before_point))


def number(value: float | None, places: int | None = None) -> str:
    """Return `value` with `places` decimals (as many as it needs when None), `-` for None."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{decimals([value]) if places is None else places}f}"


def percent(share: float | None, places: int = 1) -> str:
    """Return a share (0.123) as the number of per cent (`12.3`), without the sign."""
    return "-" if share is None else f"{share * 100:.{places}f}"


def duration(seconds: float) -> str:
    """Return a duration in words that fit its length: `0.4 s`, `42 s`, `12 min`, `3 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def gigabytes(byte_count: float) -> str:
    """Return bytes as `12.3 GB` (10^9), with decimals enough that little is not nothing."""
    places = decimals([byte_count / 1e9], significant=2)
    return f"{byte_count / 1e9:.{places}f} GB"


def count(how_many: int, singular: str, plural: str | None = None) -> str:
    """Return `1 copy`, `2 copies`."""
    return f"{how_many} {singular if how_many == 1 else plural or singular + 's'}"


def plain(text: str, *, ascii_only: bool = False) -> str:
    """Return other people's text without control characters, which would move the cursor."""
    clean = "".join(sign if sign.isprintable() else "?" for sign in text)
    return clean.encode("ascii", "replace").decode() if ascii_only else clean


def crop(text: str, width: int, *, ascii_only: bool = False) -> str:
    """Return `text` in at most `width` characters, the cut marked with one sign."""
    if len(text) <= width:
        return text
    return text[: max(0, width - 1)] + ("~" if ascii_only else "…") if width > 0 else ""


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool], gap: int = 2) -> list[str]:
    """Return the rows as lines of equally wide columns, `right[i]` for right-aligned ones."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(right))]
    return [
        (" " * gap)
        .join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        .rstrip()
        for row in rows
    ]

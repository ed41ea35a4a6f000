"""Numbers and lists in sentences, and per cent as people write it; pure."""

from __future__ import annotations

from collections.abc import Sequence


def count(how_many: int, singular: str, plural: str | None = None) -> str:
    """Return `1 copy`, `2 copies`."""
    return f"{how_many} {singular if how_many == 1 else plural or singular + 's'}"


def copies_text(how_many: int) -> str:
    """Return `1 copy`, `2 copies`."""
    return count(how_many, "copy", "copies")


def some(told: Sequence[str], most: int = 4) -> str:
    """Return the first `most` of what is told, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more


def series(texts: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def printable(text: str, most: int | None = None, instead: str = "?") -> str:
    """Return text of others for one line of a message, cut to `most` characters."""
    clean = "".join(sign if sign.isprintable() else instead for sign in text)
    return clean if most is None or len(clean) <= most else f"{clean[: most - 3]}..."


def printable_lines(text: str) -> str:
    """Return lines of text without what moves the cursor, or turns the direction of writing.

    Tabulators stay, and half surrogate pairs, which streams escape.
    """
    return text if text.isprintable() else text.translate(_LINES)


class _Lines(dict[int, str]):
    """What each character becomes, filled as they come: large exports go through it."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        clean = sign.isprintable() or sign in "\n\t" or "\ud800" <= sign <= "\udfff"
        return self.setdefault(code, sign if clean else "?")


_LINES = _Lines()


def runs_text(numbers: Sequence[int], most: int = 6) -> str:
    """Return `run 7`, or `runs 7, 8 and 9 more`."""
    return f"run{'s' * (len(numbers) > 1)} {some([str(number) for number in numbers], most)}"


def percent(share: float | None, places: int = 1) -> str:
    """Return a share (0.123) as the number of per cent (`12.3`), without the sign of per cent."""
    return "-" if share is None else f"{share * 100:.{places}f}"


def signed_percent(share: float | None, places: int = 1) -> str:
    """Return a change (0.123) as `+12.3`; what is rounded to nothing has no sign of less."""
    return "-" if share is None else f"{round(share * 100, places) + 0.0:+.{places}f}"


def parse_percent(text: str, below: float = 100) -> float | None:
    """Read `1%` or `1` as 0.01; None for what is no number from 0 to `below`."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if 0 <= value < below else None

"""Numbers, times and other people's text as a person reads them; pure, no colours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

from rater.system.patterns import compile_later
from rater.text.values import count, group_by_key, printable

# -- Letters in the place of points' labels, where those take too much room ------------------------

LONGEST_HEADING = 16  # characters; of longer labels a letter stands above the column


def column_letters(place: int) -> str:
    """Return A for the first (place 0), Z for the 26th, then AA, AB."""
    first, last = divmod(place, 26)
    return (column_letters(first - 1) if first else "") + chr(ord("A") + last)


# -- Numbers, times and other people's text as a person reads them; pure, no colours ---------------


def format_clock(seconds: float) -> str:
    """Return a duration as `0:07`, `12:05` or `1:02:03` (whole seconds, rounded down)."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def needed_decimals(
    values: Iterable[float | None], *, significant: int = 3, widest: int = 7
) -> int:
    """Return how many decimals a column of numbers needs.

    Enough for `significant` digits of the smallest number above zero (down to
    a millionth), but no more than keep the largest within `widest` characters
    when it is ten or more.
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    positive = [value for value in known if value > 0]
    if not positive:
        return 1
    wanted = significant - 1 - math.floor(math.log10(min(positive)))
    digits_before_point = max(1, math.floor(math.log10(max(positive))) + 1)
    room = widest - 1 - digits_before_point if digits_before_point > 1 else 6
    return max(0, min(wanted, 6, room))


def format_number(value: float | None, places: int | None = None) -> str:
    """Return `value` with `places` decimals (as many as it needs when None), `-` for None."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{needed_decimals([value]) if places is None else places}f}"


def format_together(values: Sequence[float | None]) -> list[str]:
    """Return numbers that are read beside each other, all written alike.

    With decimals as `needed_decimals` has them while that is short and keeps digits of
    each, else as `3.200e-09`: below 1e-4, from 1e9 on, and six powers of ten apart.
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    positive = [value for value in known if value > 0]
    if not positive:
        return ["-" if value is None else format_number(value, 0) for value in values]
    least, most = min(positive), max(positive)
    if least >= 1e-4 and most < 1e9 and most / least < 1e6:
        places = needed_decimals(values)
        return [format_number(value, places) for value in values]
    return ["0" if value == 0 else f"{value:.3e}" if value is not None else "-" for value in values]


def or_dash(value: object) -> str:
    """Return `value` as text, `-` for None."""
    return "-" if value is None else str(value)


def place_texts(cpu: int | None, node: int | None) -> list[str]:
    """Return `CPU 3` and `node 1`, as far as they are known."""
    known = [] if cpu is None else [f"CPU {cpu}"]
    return known if node is None else [*known, f"node {node}"]


def format_duration(seconds: float) -> str:
    """Return a duration in words that fit its length: `6.2 ms`, `0.4 s`, `42 s`, `3 h 05 min`."""
    if 0 < seconds < 0.1:
        return f"{format_number(seconds * 1e3, needed_decimals([seconds * 1e3], significant=2))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def format_gigabytes(byte_count: float) -> str:
    """Return bytes as `12.3 GB` (10^9), with decimals enough that little is not nothing."""
    places = needed_decimals([byte_count / 1e9], significant=2)
    return f"{byte_count / 1e9:.{places}f} GB"


def gigabytes_column(sizes: Sequence[int | None], significant: int = 3) -> list[str]:
    """Return bytes as GB (10^9) with the decimals they need together, two at most."""
    known = [size / 1e9 for size in sizes if size is not None]
    places = min(2, needed_decimals(known, significant=significant))
    return ["-" if size is None else format_number(size / 1e9, places) for size in sizes]


def sanitize(text: str, *, ascii_only: bool = False) -> str:
    """Return other people's text on one line, without control characters, which move the cursor.

    Its lines are joined by ` | `, empty ones left out.
    """
    if "\n" in text:
        text = " | ".join(line.rstrip("\r") for line in text.split("\n") if line.strip())
    clean = printable(text)
    return clean.encode("ascii", "replace").decode() if ascii_only else clean


def crop(text: str, width: int, *, ascii_only: bool = False) -> str:
    """Return `text` in at most `width` cells of a terminal, the cut marked with one sign."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    kept = text[: width - 1]
    while cell_len(kept) > width - 1:
        kept = kept[:-1]
    return kept + ("~" if ascii_only else "…")


_WORDS = compile_later(r"(?<! )( *)((?:`[^`]*`|[^ ]|(?<=\d) (?=(?:%|s|ms|min|MB|GB)(?!\w)))+)")


def wrap_text(text: str, width: int, indent: str = "    ") -> list[str]:
    """Break `text` between words into lines of at most `width` cells, later ones indented.

    A word longer than a line stands whole on a line of its own: a path can be copied, and so can
    a command between ``, and a number and its unit. A list of numbers (0-3,8,9) breaks behind a
    comma.
    """
    lines = [""]
    for blanks, word in _pieces(text, width):
        longer = lines[-1] + blanks + word
        if cell_len(longer) <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(indent + word)
    return lines


def _pieces(text: str, width: int) -> Iterator[tuple[str, str]]:
    for blanks, word in _WORDS.findall(text):
        if cell_len(word) > width and re.fullmatch(r"[\d,-]+", word):
            first, *more = re.findall(r"[^,]+,?", word)
            yield blanks, first
            yield from (("", piece) for piece in more)
        else:
            yield blanks, word


def align_columns(rows: Sequence[Sequence[str]], right: Sequence[bool], gap: int = 2) -> list[str]:
    """Return the rows as lines of equally wide columns, `right[i]` for right-aligned ones."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(right))]
    lines = []
    for row in rows:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            blank + cell if to_right else cell + blank
            for cell, blank, to_right in zip(row, blanks, right, strict=True)
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def run_title(suite: str | None, benchmarks: Sequence[str]) -> tuple[str, str]:
    """Return what ran in two parts: `mini/lu` and nothing, or `mini` and `3 benchmarks`.

    A run can be of some of its suite's benchmarks only, so their number always stands there.
    """
    if suite is None:
        return ", ".join(benchmarks) or "-", ""
    name = ", ".join(dict.fromkeys(suite.split(", ")))  # two selections of one suite are one
    if len(benchmarks) == 1:
        return f"{name}/{benchmarks[0]}", ""
    return name, count(len(benchmarks), "benchmark")


def crop_apart(texts: Sequence[str], width: int, *, ascii_only: bool = False) -> list[str]:
    """Return texts of one column in at most `width` cells, so that different ones look different.

    They are cut at their ends, else in the middle, else at their beginnings, else so after what
    all have in common has gone. Where no cut tells all apart, it is the one that tells most, with
    what differs in the place of its end.
    """
    sign = "~" if ascii_only else "…"
    long = dict.fromkeys(text for text in texts if cell_len(text) > width)
    short = _differing(list(long), sign)
    cuts = [
        [_cut(text, width, share, ascii_only=ascii_only) for text in written]
        for written in (texts, [short.get(text, text) for text in texts])
        for share in (1.0, 0.5, 0.0)
    ]
    best = max(cuts, key=lambda cut: len(set(cut)))  # of equal ones the first
    groups = group_by_key(dict.fromkeys(zip(best, texts, strict=True)))
    apart = list(best)
    for place, (cut, text) in enumerate(zip(best, texts, strict=True)):
        if len(groups[cut]) > 1 and width > 5:
            head = crop(cut, width // 2, ascii_only=ascii_only).removesuffix(sign)
            rest = text[_alike(groups[cut]) :]
            apart[place] = crop(f"{head}{sign}{rest}", width, ascii_only=ascii_only)
    return max(best, apart, key=lambda cut: len(set(cut)))


def _differing(names: Sequence[str], sign: str) -> dict[str, str]:
    """Return names with a sign for what all have in common: words, else beginnings and ends."""
    parts = [re.findall(r"[^\W_]+|[\W_]+", name) for name in names]
    if len({len(name_parts) for name_parts in parts}) > 1:
        begin = _alike(names)
        end = _alike([name[begin:][::-1] for name in names])
        parts = [
            [name[:begin], name[begin : len(name) - end], name[len(name) - end :]] for name in names
        ]
    common = [len(set(column)) == 1 for column in zip(*parts, strict=True)]
    shortened = {}
    for name, own_parts in zip(names, parts, strict=True):
        kept = [
            "\0" if same and part else part for same, part in zip(common, own_parts, strict=True)
        ]
        shortened[name] = re.sub("\0+", sign, "".join(kept))
    return shortened


def _alike(texts: Sequence[str]) -> int:
    """Return with how many characters all begin."""
    # In sorted order the first and the last text share the fewest characters of all pairs.
    pairs = list(zip(min(texts), max(texts), strict=False))
    differs = (place for place, (first, last) in enumerate(pairs) if first != last)
    return next(differs, len(pairs))


def _cut(text: str, width: int, share: float, *, ascii_only: bool) -> str:
    """Return text of at most `width` cells; `share` of what is kept is its beginning."""
    if share == 1.0 or cell_len(text) <= width or width <= 1:
        return crop(text, width, ascii_only=ascii_only)
    head = round((width - 1) * share)
    tail = text[-(width - 1 - head) :]
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return crop(text, head + 1, ascii_only=ascii_only) + tail

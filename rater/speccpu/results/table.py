"""The table of results in a CSV report: no times of copies, and no reference times; pure."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rater.speccpu.config import keys
from rater.speccpu.results.log import TUNES, copies_of, derive_references, timed_only
from rater.speccpu.results.result import (
    LONGEST_S,
    Lines,
    ReportedNumber,
    SpecFile,
    SpecIteration,
    as_text,
)

_TABLE = re.compile(rb'^"?Benchmark"?,.*Base', re.MULTILINE)
_ROW = re.compile(r"\d{3}\.\w[\w.-]*")
_COLUMN = re.compile(
    r"(?:Est\. )?(Base|Peak) (# Copies|# Threads|Run Time|Rate|Ratio|Selected|Status)"
)
_DESCRIBED = re.compile(r"(?<!\w)(\w+)\(\w+\) iteration #(\d{1,9})")


def is_table(head: bytes) -> bool:
    """Tell whether a file that begins so is a CSV report."""
    return _TABLE.search(head) is not None and b" started at " not in head[:200]


def read_table(lines: Lines, name: str) -> SpecFile:
    """Read the full table of results of a CSV report: a row an iteration, base beside peak."""
    file = lines.file(name, "csv")
    columns: list[tuple[str, str] | None] = []
    found: dict[tuple[str, str, int], SpecIteration] = {}
    seen: Counter[tuple[str, str]] = Counter()
    closed = False  # the tables behind the full one repeat what was selected
    for number, raw in lines:
        cells = next(csv.reader([as_text(raw)]), [])
        if not closed and cells and cells[0] == "Benchmark":
            named = (_COLUMN.match(cell) for cell in cells)
            columns = [(it[1].lower(), it[2]) if it else None for it in named]
        elif columns and cells and _ROW.fullmatch(cells[0]):
            size, of_row = _described(cells)
            for tune in TUNES:
                cells_of = zip(columns, cells, strict=False)
                values = {at[1]: cell for at, cell in cells_of if at and cell and at[0] == tune}
                if not values:
                    continue
                seen[cells[0], tune] += 1
                key = (cells[0], tune, of_row or seen[cells[0], tune])
                one = SpecIteration(*key, number, size=size)
                _take(values, one, number)
                if not closed and found.setdefault(key, one) is not one:
                    file.problems.add(number, f"a second row of {one.name}; the first is kept")
        elif columns and not cells:
            closed = bool(found)
    file.iterations = timed_only(list(found.values()), file.notes)
    file.suite = next(filter(None, (keys.suite_of(it.benchmark) for it in file.iterations)), None)
    file.size = next((it.size for it in file.iterations), None)
    derive_references(file)
    return file


def _described(cells: Sequence[str]) -> tuple[str | None, int | None]:
    found = next(filter(None, map(_DESCRIBED.search, cells)), None)
    return (found[1], int(found[2])) if found else (None, None)


def _take(values: Mapping[str, str], one: SpecIteration, number: int) -> None:

    def figure(*columns: str) -> ReportedNumber | None:
        text = next((values[it] for it in columns if it in values), "")
        found = re.fullmatch(r"\d{1,12}(?:\.(\d{1,12}))?", text)
        return ReportedNumber(float(text), len(found[1] or ""), number) if found else None

    seconds, ratio = figure("Run Time"), figure("Rate", "Ratio")
    if seconds is not None and 0 < seconds.value <= LONGEST_S:
        one.reported_s, one.reported_places = seconds.value, seconds.places
    one.ratio = ratio if ratio and ratio.value > 0 else None
    threads, copies = figure("# Threads"), values.get("# Copies", "1")
    one.threads = int(threads.value) if threads else None
    one.rate = not one.benchmark.endswith("_s")
    one.copies = copies_of(copies if re.fullmatch(r"\d{1,9}", copies, re.ASCII) else None)
    one.selected = values["Selected"] in ("1", "*") if "Selected" in values else None
    one.valid = values.get("Status", "S" if one.ratio else "NR")[:20]

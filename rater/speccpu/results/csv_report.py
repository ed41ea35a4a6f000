"""A CSV report of SPEC CPU: its table of results, and its facts about the machine; pure.

It has no times of copies, and no reference times.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rater.speccpu.config import keys
from rater.speccpu.results.log import TUNES, copies_of, derive_references, timed_only
from rater.speccpu.results.result import (
    LONGEST_FACT,
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
# Facts of the machine and the tools by their label, as the raw file of the same run calls them.
# CPU2006 and CPU2017 write the labels differently: with a colon or without, in other words.
_FACTS = {
    "hardware vendor": "hw_vendor",
    "hardware model": "hw_model",
    "model name": "hw_model",
    "cpu name": "hw_cpu_name",
    "cpu": "hw_cpu_name",
    "test date": "test_date",
    "date tested": "test_date",
    "compiler": "sw_compiler",
}
_EMPTY = re.compile(r"(?:-|--|n/?a|unknown|not applicable)?", re.IGNORECASE)
_DESCRIBED = re.compile(r"(?<!\w)(\w+)\(\w+\) iteration #(\d{1,9})")


def is_table(head: bytes) -> bool:
    """Tell whether a file that begins so is a CSV report."""
    return _TABLE.search(head) is not None and b" started at " not in head[:200]


def read_table(lines: Lines, name: str) -> SpecFile:
    """Read a CSV report: the full table of results, a row an iteration, and facts of the machine.

    Base stands beside peak.
    """
    file = lines.file(name, "csv")
    columns: list[tuple[str, str] | None] = []
    iterations: dict[tuple[str, str, int], SpecIteration] = {}
    rows_seen: Counter[tuple[str, str]] = Counter()
    closed = False  # the tables behind the full one repeat what was selected
    facts = _Facts(file)
    for number, raw in lines:
        cells = [cell.strip() for cell in next(csv.reader([as_text(raw)]), [])]
        facts.take(cells)
        if not closed and cells and cells[0] == "Benchmark":
            columns = [
                (match[1].lower(), match[2]) if (match := _COLUMN.match(cell)) else None
                for cell in cells
            ]
        elif columns and cells and _ROW.fullmatch(cells[0]):
            size, of_row = _described(cells)
            for tune in TUNES:
                values = {
                    column[1]: cell
                    for column, cell in zip(columns, cells, strict=False)
                    if column and cell and column[0] == tune
                }
                if not values:
                    continue
                rows_seen[cells[0], tune] += 1
                key = (cells[0], tune, of_row or rows_seen[cells[0], tune])
                iteration = SpecIteration(
                    benchmark=key[0], tune=key[1], iteration=key[2], line=number, size=size
                )
                _take(values, iteration, number)
                if not closed and iterations.setdefault(key, iteration) is not iteration:
                    file.problems.add(
                        number, f"a second row of {iteration.name}; the first is kept"
                    )
        elif columns and not cells:
            closed = bool(iterations)
    file.iterations = timed_only(list(iterations.values()), file.notes)
    file.suite = next(
        filter(None, (keys.suite_of(iteration.benchmark) for iteration in file.iterations)), None
    )
    file.size = next((iteration.size for iteration in file.iterations), None)
    derive_references(file)
    return file


class _Facts:
    """Takes the rows that name the machine and the tools; a text may go on in more rows."""

    def __init__(self, file: SpecFile) -> None:
        self._facts = file.facts
        self._open: str | None = None  # the fact that rows without a label go on with

    def take(self, cells: Sequence[str]) -> None:
        """Take a row; the first of equal labels holds."""
        label = cells[0].rstrip(":").rstrip().lower() if cells else ""
        value = next(filter(None, cells[1:]), "")
        if not label and value and self._open is not None:
            self._facts[self._open] = f"{self._facts[self._open]} {value}"[:LONGEST_FACT]
            return
        fact = _FACTS.get(label)
        self._open = None
        if fact is not None and fact not in self._facts and not _EMPTY.fullmatch(value):
            self._facts[fact] = value[:LONGEST_FACT]
            self._open = fact


def _described(cells: Sequence[str]) -> tuple[str | None, int | None]:
    found = next(filter(None, map(_DESCRIBED.search, cells)), None)
    return (found[1], int(found[2])) if found else (None, None)


def _take(values: Mapping[str, str], iteration: SpecIteration, number: int) -> None:

    def figure(*columns: str) -> ReportedNumber | None:
        text = next((values[column] for column in columns if column in values), "")
        found = re.fullmatch(r"\d{1,12}(?:\.(\d{1,12}))?", text)
        return ReportedNumber(float(text), len(found[1] or ""), number) if found else None

    seconds, ratio = figure("Run Time"), figure("Rate", "Ratio")
    if seconds is not None and 0 < seconds.value <= LONGEST_S:
        iteration.reported_s, iteration.reported_places = seconds.value, seconds.places
    iteration.ratio = ratio if ratio and ratio.value > 0 else None
    threads, copies = figure("# Threads"), values.get("# Copies", "1")
    iteration.threads = int(threads.value) if threads else None
    iteration.rate = not iteration.benchmark.endswith("_s")
    iteration.copies = copies_of(copies if re.fullmatch(r"\d{1,9}", copies, re.ASCII) else None)
    iteration.selected = values["Selected"] in ("1", "*") if "Selected" in values else None
    iteration.valid = values.get("Status", "S" if iteration.ratio else "NR")[:20]

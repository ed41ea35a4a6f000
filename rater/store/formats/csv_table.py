"""A table as text (CSV, TSV) with a line for each copy run; pure.

The user gives words to its columns: `benchmark=name,time=seconds,tag:pages=page size`.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rater.store.formats.csv_columns import NUMBERS, OF_RUNS, TEXTS, WHOLE, place_columns
from rater.store.formats.document import ForeignRun, document_of
from rater.system.errors import InputError
from rater.text.documents import Mistake, MistakesError
from rater.text.values import delimiter_of, group_by_key, truncate_list

_MOST_MISTAKES: Final = 20


def read_csv(data: bytes, file: str, columns: Mapping[str, str]) -> list[ForeignRun]:
    """Return the runs of a table: lines with other tags, host or `run` belong to other runs.

    `columns` has names of columns by their words. A heading that is such a word needs none.
    Without iterations the lines of a benchmark and copy are iterations in their order. Raises
    `InputError` naming each line that is wrong.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text (byte {error.start}); expected CSV") from None
    delimiter = delimiter_of(text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    heading = [cell.strip() for cell in next(reader, [])]
    places = place_columns(heading, columns, file)
    mistakes: list[Mistake] = []
    rows: list[tuple[tuple[tuple[str, str], ...], dict[str, Any]]] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            named = {
                word: cells[place].strip() for word, place in places.items() if place < len(cells)
            }
            at = Mistake(file, reader.line_num, "", "")
            if any(cell.strip() for cell in cells[len(heading) :]):
                text = f"expected {len(heading)} cells, as in the heading, got {len(cells)}"
                mistakes.append(at._replace(text=text))
            rows.append((_head_of(named), _observation(named, at, mistakes, delimiter == ";")))
            if len(mistakes) >= _MOST_MISTAKES:
                break
    except csv.Error as error:
        mistakes.append(Mistake(file, reader.line_num, "", f"not CSV: {error}"))
    if mistakes:
        raise MistakesError(mistakes)
    if not rows:
        raise InputError(f"{file}: a heading without a line below it: nothing to import")
    settings = ",".join(f"{word}={column}" for word, column in sorted(columns.items()))
    unused = [title for place, title in enumerate(heading) if place not in places.values()]
    notes = (f"columns left out: {truncate_list(unused, 12)}",) if unused else ()
    return [
        ForeignRun(_document(data, dict(head), members, settings), notes)
        for head, members in group_by_key(rows).items()
    ]


def _head_of(named: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    of_run = (word for word in named if word in OF_RUNS or word.startswith("tag:"))
    return tuple((word, named[word]) for word in of_run)


def _observation(
    named: Mapping[str, str], at: Mistake, mistakes: list[Mistake], has_commas: bool
) -> dict[str, Any]:
    """Return an observation; a cell without a number is noted as a mistake."""
    row: dict[str, Any] = {}
    for word, cell in named.items():
        kind, _, name = word.partition(":")
        if not cell:
            continue
        if word in TEXTS:
            row[word] = cell
            continue
        if word in OF_RUNS or kind == "tag":
            continue
        try:
            value = float(cell.replace(",", ".") if has_commas else cell)
        except ValueError:
            mistakes.append(at._replace(key=word, text=f"expected a number, got {cell[:40]!r}"))
            continue
        if kind in ("metric", "count"):
            row.setdefault(f"{kind}s", {})[name] = value
        elif word in WHOLE:
            row[word] = int(value) if value.is_integer() else value
        else:
            key, factor = NUMBERS[word]
            row[key] = value * factor
    for key in ("benchmark", "elapsed_s"):
        lacks_it = key not in row and not any(mistake.line == at.line for mistake in mistakes)
        if lacks_it:
            missing = "benchmark" if key == "benchmark" else "time"
            mistakes.append(at._replace(key=missing, text="expected a value, the cell is empty"))
    return row


def _document(
    data: bytes, head: Mapping[str, str], rows: Sequence[dict[str, Any]], settings: str
) -> dict[str, Any]:
    seen: Counter[object] = Counter()
    for row in rows:
        row.setdefault("copy", 0)
        key = (row["benchmark"], row.get("tune"), row["copy"])
        seen[key] += 1
        row.setdefault("iteration", seen[key])
    tags = {word[len("tag:") :]: value for word, value in head.items() if word.startswith("tag:")}
    if head.get("run"):
        tags["run"] = head["run"]
    part = settings + "".join(f"\n{word}={value}" for word, value in head.items())
    run_head = {"host": head.get("host") or None, "tags": tags or None}
    return document_of(data, rows, run_head, part)

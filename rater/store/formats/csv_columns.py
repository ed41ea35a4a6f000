"""Which column of a table has which word: the words of `rater import --column`; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rater.system.errors import InputError
from rater.text.documents import did_you_mean
from rater.text.values import truncate_list

# The word of a column: the key of an observation, and the factor of its numbers.
NUMBERS: Final = {
    "time": ("elapsed_s", 1.0),
    "time_ms": ("elapsed_s", 1e-3),
    "time_us": ("elapsed_s", 1e-6),
    "time_ns": ("elapsed_s", 1e-9),
    "elapsed_s": ("elapsed_s", 1.0),
    "start": ("start_s", 1.0),
    "start_s": ("start_s", 1.0),
    "cpu_time": ("cpu_s", 1.0),
    "cpu_s": ("cpu_s", 1.0),
    "reference": ("reference_s", 1.0),
    "reference_s": ("reference_s", 1.0),
    "joules": ("joules", 1.0),
}
WHOLE: Final = ("iteration", "copy", "cpu", "core", "llc", "node", "package", "peak_rss_bytes")
TEXTS: Final = ("benchmark", "tune", "status", "category")
OF_RUNS: Final = ("run", "host")  # lines with other values are of another run
_NAMED: Final = ("tag", "metric", "count")  # tag:NAME=COLUMN
COLUMNS: Final = (*TEXTS, *NUMBERS, *WHOLE, *OF_RUNS, *(f"{kind}:NAME" for kind in _NAMED))


def place_columns(heading: Sequence[str], columns: Mapping[str, str], file: str) -> dict[str, int]:
    """Return the place of each word in a line.

    Raises `InputError` for a column that is missing, or whose heading stands there twice.
    """
    places = {title: place for place, title in enumerate(heading) if _is_word(title)}
    for column in (*places, *columns.values()):
        if heading.count(column) > 1:
            raise InputError(f"{file}: the heading {column!r} stands there twice; rename one")
    for word, column in columns.items():
        if not _is_word(word):
            raise InputError(f"--column {word}=: {did_you_mean(word, COLUMNS, list_all=True)}")
        if column not in heading:
            raise InputError(
                f"{file}: no column {column!r} (--column {word}={column}); "
                f"{did_you_mean(column, heading)}"
            )
        if word in NUMBERS:  # of time and time_ms one is meant
            key = NUMBERS[word][0]
            places = {
                other: place
                for other, place in places.items()
                if other not in NUMBERS or NUMBERS[other][0] != key
            }
        places[word] = heading.index(column)
    has_time = any(key == "elapsed_s" for word in places for key, _ in [NUMBERS.get(word, ("", 0))])
    if "benchmark" not in places or not has_time:
        lacking = "time" if "benchmark" in places else "benchmark"
        raise InputError(
            f"{file}: which column is the {lacking}? `--column benchmark=NAME,time=SECONDS` with "
            f"its columns: {truncate_list(list(heading), 12)}"
        )
    return places


def _is_word(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return kind in _NAMED and bool(name) if colon else text in COLUMNS

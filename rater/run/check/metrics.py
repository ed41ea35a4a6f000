"""Numbers that a benchmark reports of itself, read from what a copy wrote."""

from __future__ import annotations

import os
import re
from io import BufferedReader
from math import isfinite
from pathlib import Path

from rater.plan.suite.model import Metric
from rater.run.check.compare_output import WrongOutputError, number_of, open_regular
from rater.text.words import printable

_WINDOW = 4 << 20  # bytes searched together; a line may not be longer
_OVERLAP = 1 << 16  # bytes, and the rest of a line, that a match may go on beyond its window
LARGEST = 1e290  # of a value: the sum over all copies is finite too


def read_metric(path: Path, metric: Metric) -> float:
    """Return the value of a metric, read from what a copy wrote.

    Of several matches of a pattern the last counts: files are read from their end,
    a window of bounded size at a time. Raises `WrongOutputError` where a pattern matches
    nothing, a line is too long, or what is found is not a finite number up to 1e290.
    """
    try:
        return _value(path, metric)
    except WrongOutputError as error:
        raise WrongOutputError(f"metric {metric.name}: {error}") from error


def _value(path: Path, metric: Metric) -> float:
    name = metric.file
    with open_regular(path, name) as file:
        try:
            match = last_match(file, re.compile(metric.pattern, re.MULTILINE))
        except _LongLineError:
            raise WrongOutputError(f"{name}: a line is longer than {_WINDOW} bytes") from None
    if match is None:
        raise WrongOutputError(f"no line of {name} matches {metric.pattern}")
    found = (match[1] or "").strip()
    number = number_of(found.encode())
    try:
        value = float("nan") if number is None else float(number) * metric.scale
    except OverflowError:
        value = float("inf")
    shown = printable(found[:60])
    if not isfinite(value):
        raise WrongOutputError(f"{name} has {shown!r} there, expected a finite number")
    if abs(value) > LARGEST:
        raise WrongOutputError(
            f"{name} has {shown!r} there, which makes {value:.3g}: "
            f"beyond {LARGEST:g} nothing can be reckoned with it"
        )
    return value


class _LongLineError(Exception):
    """A line is longer than a window."""


def last_match(file: BufferedReader, pattern: re.Pattern[str]) -> re.Match[str] | None:
    r"""Return the last match in a file, searched from its end.

    Windows begin and end at line breaks, so that what `^`, `$` and `\b` say of their
    edges holds in the whole file. A match belongs to the window that it begins in and
    may go on for a while behind it. Raises `_LongLineError` where a line is too long.
    """
    end = os.fstat(file.fileno()).st_size
    whole = end
    while end > 0:
        begin = max(0, end - _WINDOW)
        file.seek(begin)
        data = file.read(end - begin)
        if begin:
            cut = data.find(b"\n", 0, len(data) - 1) + 1
            if not cut:
                raise _LongLineError
            data, begin = data[cut:], begin + cut
        # The line break before it makes clear to `\A` that this is not where the file begins.
        text = "\n" * bool(begin) + data.decode(errors="replace")
        limit = len(text)
        if end < whole:
            text += _behind(file, end).decode(errors="replace")
        last = None
        for match in pattern.finditer(text, bool(begin)):
            if match.start() >= limit and end < whole:
                break
            last = match
        if last is not None:
            return last
        end = begin
    return None


def _behind(file: BufferedReader, end: int) -> bytes:
    """Return the lines behind a window."""
    file.seek(end)
    return file.read(_OVERLAP) + file.readline(_WINDOW)

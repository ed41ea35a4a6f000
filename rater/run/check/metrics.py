"""Numbers that a benchmark reports of itself, read from what a copy wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from io import BufferedReader
from math import isfinite
from pathlib import Path

from rater.plan.suite.model import Metric
from rater.run.check.compare_output import number_of, open_regular

_WINDOW = 4 << 20  # bytes looked at together; a line may not be longer
_OVERLAP = 1 << 16  # bytes, and the rest of a line, that a match may go on beyond its window
LARGEST = 1e290  # of a value: the sum over all copies is finite too


class NoMetricError(Exception):
    """A copy did not report what its suite says it does; the text is for people."""


class LongLineError(Exception):
    """A line is longer than what is looked at together."""

    def __str__(self) -> str:
        return f"a line is longer than {_WINDOW} bytes"


def read_metrics(
    run_dir: Path, stdout: Path, stderr: Path, metrics: Sequence[Metric]
) -> tuple[tuple[str, float], ...]:
    """Return name and value of every metric, in the order of `metrics`.

    Of several matches of a pattern the last counts: files are read from their end,
    a window of bounded size at a time. Raises `NoMetricError` where a pattern matches
    nothing, a line is too long, or what is found is not a finite number up to 1e290.
    """
    own = {"stdout": stdout, "stderr": stderr}
    return tuple(
        (metric.name, _value(own.get(metric.file, run_dir / metric.file), metric))
        for metric in metrics
    )


def _value(path: Path, metric: Metric) -> float:
    file = open_regular(path)
    if isinstance(file, str):
        raise NoMetricError(f"metric {metric.name}: {metric.file} {file}")
    with file:
        try:
            match = last_match(file, re.compile(metric.pattern, re.MULTILINE))
        except LongLineError as error:
            raise NoMetricError(f"metric {metric.name}: {metric.file}: {error}") from error
    if match is None:
        raise NoMetricError(
            f"metric {metric.name}: no line of {metric.file} matches {metric.pattern}"
        )
    found = (match[1] or "").strip()
    number = number_of(found.encode())
    try:
        value = float("nan") if number is None else float(number) * metric.scale
    except OverflowError:
        value = float("inf")
    said = "".join(sign if sign.isprintable() else "?" for sign in found[:60])
    if not isfinite(value):
        raise NoMetricError(
            f"metric {metric.name}: {metric.file} has {said!r} there, expected a finite number"
        )
    if abs(value) > LARGEST:
        raise NoMetricError(
            f"metric {metric.name}: {metric.file} has {said!r} there, which makes {value:.3g}: "
            f"beyond {LARGEST:g} nothing can be reckoned with it"
        )
    return value


def last_match(file: BufferedReader, pattern: re.Pattern[str]) -> re.Match[str] | None:
    r"""Return the last match in a file, looking from its end.

    Windows begin and end at line breaks, so that what `^`, `$` and `\b` say of their
    edges holds in the whole file. A match belongs to the window that it begins in and
    may go on for a while behind it. Raises `LongLineError` where a line is too long.
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
                raise LongLineError
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

"""Numbers that a benchmark reports of itself, read from what a copy wrote."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Sequence
from io import BufferedReader
from math import isfinite
from pathlib import Path

from rater.plan.suite import Metric
from rater.run.output import number_of, open_regular

_WINDOW = 4 << 20  # bytes looked at together; a longer line is cut
_OVERLAP = 1 << 16  # bytes that a match may go on beyond its window


class NoMetricError(Exception):
    """A copy did not report what its suite says it does; the text is for people."""


def read_metrics(
    run_dir: Path, stdout: Path, stderr: Path, metrics: Sequence[Metric]
) -> tuple[tuple[str, float], ...]:
    """Return name and value of every metric, in the order of `metrics`.

    Of several matches of a pattern the last counts: files are read from their end,
    a window of bounded size at a time. Raises `NoMetricError` where a pattern matches
    nothing, or what it finds is not a finite number.
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
        match = last_match(file, re.compile(metric.pattern, re.MULTILINE))
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
    if not isfinite(value):
        said = "".join(sign if sign.isprintable() else "?" for sign in found[:60])
        raise NoMetricError(
            f"metric {metric.name}: {metric.file} has {said!r} there, expected a finite number"
        )
    return value


def last_match(file: BufferedReader, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the last match in a file, looking from its end.

    Windows begin behind a line break, so that `^` and what a match may begin with
    are as in the whole file; only in a line longer than a window they may not be.
    """
    end = os.fstat(file.fileno()).st_size
    more = 0
    while end > 0:
        begin = max(0, end - _WINDOW)
        file.seek(begin)
        data = file.read(end - begin + more)
        if begin:
            cut = data.find(b"\n", 0, end - begin - 1) + 1
            data, begin = data[cut:], begin + cut
        found = deque(pattern.finditer(data.decode(errors="replace")), maxlen=1)
        if found:
            return found[0]
        end, more = begin, _OVERLAP
    return None

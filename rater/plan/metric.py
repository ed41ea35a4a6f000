"""Numbers that programs report of themselves, as a suite or `--metric` declares them; pure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import PurePosixPath

from msgspec import Struct

from rater.system.patterns import compile_later
from rater.text.values import printable

LONGEST_METRIC_NAME = 60
NUMBER_PATTERN = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"  # in hints: what most programs print


class Metric(Struct, frozen=True, kw_only=True):
    """A number that a benchmark reports of itself, read from what a copy wrote."""

    name: str
    pattern: str  # a regex (re.MULTILINE) with one group, the number; the last match counts
    unit: str
    better: str | None  # "higher", "lower" or None
    combine: str  # over copies: "sum" or "mean"
    file: str  # "stdout", "stderr" or a path relative to the run directory
    scale: float  # the value is the number found x scale
    is_sum: bool = False  # the sum of all matches counts, with or without commas in numbers
    program: str | None = None  # of several programs the one that reports it; None: all do


def compile_pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression; raises `ValueError`, which says what is expected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "possible nested set": it means something else
            return re.compile(text, re.MULTILINE)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        message = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise ValueError(
            f"expected a regular expression of Python, got {text!r}: {message}"
        ) from None


def check_groups(pattern: re.Pattern[str]) -> str | None:
    """Return what is wrong with the groups of a metric's pattern, or None."""
    if pattern.groups == 1:
        return None
    hint = "; write (?:...) for groups that are not the number" if pattern.groups else ""
    return f"expected exactly one group (...), the number, got {pattern.groups}{hint}"


def local_path(name: str) -> str | None:
    """Return a path inside the run directory; None: the name leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path == PurePosixPath():
        return None
    return str(path)


# -- The text of `--metric` ------------------------------------------------------------------------
#
# Three forms, from the shortest to the whole:
#
#   Triad: ([0-9.]+) MB/s                            a pattern; name and unit are the words around
#   bandwidth MB/s higher: Triad: ([0-9.]+)          NAME [UNIT] higher|lower [WORD ...]: PATTERN
#   Triad MB/s higher of stream: Triad: ([0-9.]+)    ... of PROGRAM: of several, of this one alone
#   name=bandwidth,unit=MB/s,file=out.txt,pattern=([0-9.]+)   the keys of a suite's file
#
# `higher` or `lower` makes a head of what stands before the first colon, so that a pattern with a
# colon of its own needs no escape.

_BETTER = ("higher", "lower")
_COMBINE = ("sum", "mean")
_STREAMS = ("stdout", "stderr")
_HEAD = compile_later(r"([^:()\\\[\]]+):[ \t]+(.+)", re.DOTALL)
_KEYS = compile_later(r"\s*name\s*=(?P<keys>.*?)[\s,;]pattern\s*=\s*(?P<pattern>.+)", re.DOTALL)
_OF = "of"  # before the name of a program
_KNOWN_KEYS = ("name", "unit", "better", "combine", "file", "scale", "program", "pattern")
_GROUP = compile_later(r"(?<!\\)\((?!\?)")
_GAP = compile_later(r"\\[sS][*+?]?|\\[bBdDwW][*+?]?|\.[*+]\??|\^|\$")
_WORDS_BEFORE = compile_later(r"[A-Za-z][A-Za-z0-9_ /-]*")
_UNIT_BEHIND = compile_later(r"\s{0,3}\[?([A-Za-z%][A-Za-z0-9%/]{0,11})(?![A-Za-z0-9%/({*+?])")
_RATE_UNIT = compile_later(r".+/(?:s|sec|second|min|h|hour)|[KMGT]?FLOPS|[KMGT]?flops|[A-Z]?IPS")
_TIME_UNITS = {"s", "sec", "secs", "seconds", "ms", "us", "ns", "min", "h", "J"}
_EXPECTED = (
    "expected 'PATTERN', 'NAME UNIT higher|lower: PATTERN' or 'name=NAME,...,pattern=PATTERN', "
    f"with one group (...) for the number, as in 'bandwidth MB/s higher: Triad: ({NUMBER_PATTERN})'"
)


def parse_metric(text: str) -> Metric:
    """Return the metric that a text of `--metric` declares; raises `ValueError`.

    What is not said follows from the unit: rates (MB/s) are better higher and are added up over
    copies, times are better lower; of others the mean is taken, and neither direction is better.
    """
    if not text.strip() or "\0" in text:
        raise ValueError(_EXPECTED)
    keyed = _KEYS.fullmatch(text)
    if keyed is not None:
        return _from_keys(keyed["keys"], keyed["pattern"])
    head = _HEAD.fullmatch(text)
    words = head[1].split() if head else []
    marks = [place for place, word in enumerate(words) if word in _BETTER]
    if head is not None and marks and marks[-1] > 0:
        return _from_head(words[: marks[-1]], words[marks[-1] :], head[2])
    pattern = _checked_pattern(text)
    name, unit = _words_around(text)
    return _metric(name or "metric", pattern, unit=unit)


def _from_head(names: list[str], marks: list[str], pattern: str) -> Metric:
    """Return the metric of `NAME [UNIT] higher|lower [sum|mean] [stdout|stderr] [of PROGRAM]`."""
    marks, program = _without_program(marks)
    unknown = [word for word in marks if word not in (*_BETTER, *_COMBINE, *_STREAMS)]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} behind {marks[0]}: expected sum, mean, stdout, stderr or of"
        )
    unit = names.pop() if len(names) > 1 else ""
    combine = next((word for word in marks if word in _COMBINE), None)
    return _metric(
        " ".join(names),
        _checked_pattern(pattern),
        unit=unit,
        better=marks[0],
        combine=combine,
        file=next((word for word in marks if word in _STREAMS), "stdout"),
        program=program,
    )


def _without_program(marks: list[str]) -> tuple[list[str], str | None]:
    """Return the words before `of`, and the name behind it; raises `ValueError` for none."""
    if _OF not in marks:
        return marks, None
    place = marks.index(_OF)
    program = " ".join(marks[place + 1 :])
    if not program:
        raise ValueError(f"{marks[0]} of: expected the name of a program behind it")
    return marks[:place], program


def _from_keys(text: str, pattern: str) -> Metric:
    """Return the metric of `NAME,unit=...,better=...`, what stands between `name=` and `pattern=`.

    The keys are those of `[metrics]` in a suite's file.
    """
    name, *others = [word.strip() for word in re.split(r"[,;]", text)]
    values: dict[str, str] = {}
    for word in filter(None, others):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or key not in _KNOWN_KEYS:
            raise ValueError(f"{word!r}: expected a key of {', '.join(_KNOWN_KEYS)}")
        if key in values:
            raise ValueError(f"{key} stands there twice")
        values[key] = value
    for key, words in (("better", _BETTER), ("combine", _COMBINE)):
        if values.get(key, words[0]) not in words:
            raise ValueError(f"{key}={values[key]}: expected {' or '.join(words)}")
    file = local_path(values.get("file", "stdout"))
    if file is None:
        raise ValueError(f"file={values['file']}: expected a path inside the run directory")
    try:
        scale = float(values.get("scale", "1"))
    except ValueError:
        scale = 0.0
    if not 0 < scale < float("inf"):
        raise ValueError(f"scale={values['scale']}: expected a number above 0")
    return _metric(
        name,
        _checked_pattern(pattern),
        unit=values.get("unit", ""),
        better=values.get("better"),
        combine=values.get("combine"),
        file=file,
        scale=scale,
        program=values.get("program") or None,
    )


def _metric(
    name: str,
    pattern: str,
    *,
    unit: str = "",
    better: str | None = None,
    combine: str | None = None,
    file: str = "stdout",
    scale: float = 1.0,
    program: str | None = None,
) -> Metric:
    if not name or len(name) > LONGEST_METRIC_NAME or printable(name) != name:
        raise ValueError(f"{name!r}: expected a name of 1 to {LONGEST_METRIC_NAME} characters")
    is_rate = _RATE_UNIT.fullmatch(unit) is not None
    by_unit = "higher" if is_rate else "lower" if unit in _TIME_UNITS else None
    better = better or by_unit
    return Metric(
        name=name,
        pattern=pattern,
        unit=unit,
        better=better,
        combine=combine or ("sum" if is_rate and better == "higher" else "mean"),
        file=file,
        scale=scale,
        program=program,
    )


def _checked_pattern(text: str) -> str:
    """Return a pattern that compiles and has one group; raises `ValueError`."""
    problem = check_groups(compile_pattern(text))
    if problem is not None:
        raise ValueError(f"{problem}; {_EXPECTED}")
    return text


def _words_around(pattern: str) -> tuple[str, str]:
    """Return name and unit from the plain words before and behind the group of a pattern."""
    group = _GROUP.search(pattern)
    if group is None:
        return "", ""
    before = _WORDS_BEFORE.findall(_GAP.sub(" ", pattern[: group.start()]).replace("\\", ""))
    closing = _closing_place(pattern, group.end())
    behind = _UNIT_BEHIND.match(_GAP.sub(" ", pattern[closing:]))
    name = " ".join(before[-1].split()) if before else ""
    return name[-LONGEST_METRIC_NAME:].strip(" -/"), behind[1] if behind else ""


def _closing_place(pattern: str, start: int) -> int:
    """Return where a group that begins before `start` has ended."""
    depth, place, is_in_set = 1, start, False
    while place < len(pattern) and depth:
        letter = pattern[place]
        if letter == "\\":
            place += 1
        elif is_in_set:
            is_in_set = letter != "]"
        else:
            is_in_set = letter == "["
            depth += {"(": 1, ")": -1}.get(letter, 0)
        place += 1
    return place


def parse_metrics(texts: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics of several texts; raises `ValueError` for two of one name and program."""
    metrics = tuple(map(parse_metric, texts))
    for place, metric in enumerate(metrics):
        if any(_are_of_one_program(metric, other) for other in metrics[:place]):
            example = "'NAME MB/s higher: PATTERN'"
            raise ValueError(f"two metrics are called {metric.name}: name each, as in {example}")
    return metrics


def _are_of_one_program(metric: Metric, other: Metric) -> bool:
    """Tell whether a program may have both, under one name."""
    programs = {metric.program, other.program}
    return metric.name == other.name and (len(programs) == 1 or None in programs)

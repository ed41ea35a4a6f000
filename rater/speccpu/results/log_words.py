"""The lines that SPEC's tools write into a log: how they begin, and all they say.

In both dialects: CPU2006 counts copies and workloads as `(2:1)`, CPU2017 as `(copy 2 workload
1)`; dates are those of ctime and of ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

_SECONDS = r"(\d{1,12}(?:\.(\d{0,12}))?)"

RUNNING = re.compile(r"\s*Running (?:\(#(\d{1,9})\) )?(\d{3}\.\S{1,100}) (.*)$")
COPIES = re.compile(r"\((\d{1,6}) cop(?:y|ies)\b")
FOR_COPY = re.compile(r" for copy (\d{1,6})\b")
WORKLOAD = re.compile(
    r"Workload elapsed time \((?:copy )?(\d{1,6})(?::| workload )(\d{1,6})\) = "
    + _SECONDS
    + r" seconds$"
)
COPY = re.compile(
    r"\s*Copy (\d{1,6}) of (\S{1,100}) \((\w{1,40}) (\w{1,40})\) run (\d{1,9}) finished at "
    r"(.{1,40}?)\.  Total elapsed time: " + _SECONDS + "$"
)
OLD_COPY = re.compile(
    r"copy (\d{1,6}) finished @ (.{1,40}?)\.  Total elapsed time: " + _SECONDS + "$", re.IGNORECASE
)
RETURNED = re.compile(
    r"(\d{3}\.\S{1,100}): copy (\d{1,6}) non-zero return code "
    r"\(exit code=(-?\d{1,6}), signal=(\d{1,4})\)$"
)
ENDED = re.compile(
    r"\s*(Success|Error|Run) (\d{3}\.\S{1,100}) (\w{1,40}) (\w{1,40}) "
    r"ratio=(-?\d{1,15}(?:\.(\d{1,12}))?), runtime="
    + _SECONDS
    + r", (?:copies=(\d{1,6}), )?(.{0,300})$"
)
ERROR_END = re.compile(r"errorcode=[A-Z]{2}$")
ERROR_CODE = re.compile(r"errorcode=([A-Z]{2})\b")
REPORTED = re.compile(
    r"\s*(?:Run )?Reported:\s+(?:\d+:\d\d:\d\d )?\(?(\d{1,10}) (\d{1,10}) " + _SECONDS + r"\)?$"
)
BEGAN = re.compile(r"\s*(?:Rate )?Start:\s+.{1,60}\((\d{9,11}(?:\.\d{1,9})?)\)$")
HEADER = re.compile(r'run(?:spec|cpu) v?(\S{1,20}) started at (.{1,60}) on "([^"]{1,200})"$')
SIZE = re.compile(r"(?:test|train|ref)(?:rate|speed)?$")
NOT_RUN = re.compile(r"(?:Build errors for|Setup errors)\b.{0,40}?: (?!None$)(.{1,2000})$")
MISCOMPARE = re.compile(r"\*{3} Miscompare of ([^\s;]{1,200})")
DIRECTIVE = re.compile(r"\s{2,}-([A-Za-z])(?: (.*))?$", re.DOTALL)
TUNES = ("base", "peak")
NUMERIC = tuple("0123456789.")
DIGITS = re.compile(r"^\d{0,12}(?:\.\d{1,12})?\)?$", re.ASCII)


class RecordKind(Struct, frozen=True):
    """What begins with certain letters; `fits` says of what follows whether it is a record."""

    beginning: bytes
    pattern: re.Pattern[str] | None = None  # None: nothing is read from the line itself
    fits: Callable[[bytes], bool] = lambda line: True


def _number(at: int) -> Callable[[bytes], bool]:
    """`Copy 3 of`, not `Copy constructor`."""
    return lambda line: line[at : at + 1].isdigit()


def _starts(line: bytes) -> bool:
    return b" started at " in line[:60]


def _not_none(line: bytes) -> bool:
    return not line.rstrip().endswith(b"None")


COMMANDS = RecordKind(b"Commands to run")
_FAILED = RecordKind(b"", RETURNED)
_KINDS: tuple[RecordKind, ...] = (
    RecordKind(b"Workload elapsed time (", WORKLOAD),
    RecordKind(b"Copy ", COPY, _number(5)),
    RecordKind(b"copy ", OLD_COPY, _number(5)),
    RecordKind(b"Benchmark Times"),
    RecordKind(b"*** Miscompare", MISCOMPARE),
    RecordKind(b"runspec ", HEADER, _starts),
    RecordKind(b"runcpu ", HEADER, _starts),
    COMMANDS,
    RecordKind(b"Specinvoke:"),
    RecordKind(b"Build errors for ", NOT_RUN, _not_none),
    RecordKind(b"Setup errors: ", NOT_RUN, _not_none),
)
_INDENTED: tuple[RecordKind, ...] = (
    RecordKind(
        b"Running ", RUNNING, lambda line: line[8:9].isdigit() or line.startswith(b"Running (#")
    ),
    RecordKind(b"Copy ", COPY, _number(5)),
    RecordKind(b"Success ", ENDED, _number(8)),
    RecordKind(b"Error ", ENDED, _number(6)),
    RecordKind(b"Run Reported:", REPORTED),
    RecordKind(b"Run ", ENDED, _number(4)),
    RecordKind(b"Reported:", REPORTED),
    RecordKind(b"Rate Start:", BEGAN),
    RecordKind(b"Start:", BEGAN),
)
_BEGINNINGS = tuple(kind.beginning for kind in _KINDS)
_INDENTED_BEGINNINGS = tuple(kind.beginning for kind in _INDENTED)


def kind_of(raw: bytes) -> RecordKind | None:
    """Return what kind of record a line begins, None for most lines."""
    kinds, beginnings = _KINDS, _BEGINNINGS
    if raw.startswith((b" ", b"\t")):
        raw, kinds, beginnings = raw.lstrip(), _INDENTED, _INDENTED_BEGINNINGS
    elif raw[:3].isdigit():
        return _FAILED if b": copy " in raw[:110] else None
    if not raw.startswith(beginnings):
        return None
    return next((it for it in kinds if raw.startswith(it.beginning) and it.fits(raw)), None)


def begins(raw: bytes) -> bool:
    """Tell whether a line begins a record of its own: nothing to join to the one before."""
    return kind_of(raw) is not None or raw.startswith(b"-----")

"""The lines that SPEC's tools write into a log: how they begin, and all they say.

In both dialects: CPU2006 counts copies and workloads as `(2:1)`, CPU2017 as `(copy 2 workload
1)`; dates are those of ctime and of ISO 8601.
"""

from __future__ import annotations

import re

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
    r"Copy (\d{1,6}) of (\S{1,100}) \((\w{1,40}) (\w{1,40})\) run (\d{1,9}) finished at "
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

# How records begin: only such lines are looked at more closely.
BEGINNINGS = (
    b"Workload elapsed time (",
    b"Copy ",
    b"copy ",
    b"Benchmark Times",
    b"*** Miscompare",
    b"runspec ",
    b"runcpu ",
    b"Commands to run",
    b"Specinvoke:",
    b"Build errors for ",
    b"Setup errors: ",
)
INDENTED = (
    b"Running ",
    b"Success ",
    b"Error ",
    b"Run ",
    b"Reported:",
    b"Start:",
    b"Rate Start:",
)
FAILED = b": copy "
NUMERIC = tuple("0123456789.")
DIGITS = re.compile(r"^\d{0,12}(?:\.\d{1,12})?\)?$", re.ASCII)


def is_record(stripped: bytes, beginning: bytes) -> bool:
    """Tell apart what begins with a common word: `Copy 3 of`, not `Copy constructor`."""
    rest = stripped[len(beginning) : len(beginning) + 1]
    if beginning in (b"Copy ", b"copy ", b"Success ", b"Error ", b"Run "):
        return rest.isdigit() or (beginning == b"Run " and stripped.startswith(b"Run Reported:"))
    if beginning in (b"runspec ", b"runcpu "):
        return b" started at " in stripped[:60]
    if beginning in (b"Build errors for ", b"Setup errors: "):
        return not stripped.rstrip().endswith(b"None")
    if beginning == b"Running ":
        return rest.isdigit() or stripped.startswith(b"Running (#")
    return True


def begins(raw: bytes) -> bool:
    """Tell whether a line begins a record of its own: nothing to join to the one before."""
    if raw.startswith((b" ", b"\t")):
        stripped = raw.lstrip()
        return any(stripped.startswith(word) and is_record(stripped, word) for word in INDENTED)
    if raw[:3].isdigit() and FAILED in raw[:110]:
        return True
    return any(
        raw.startswith(word) and is_record(raw, word) for word in BEGINNINGS
    ) or raw.startswith(b"-----")

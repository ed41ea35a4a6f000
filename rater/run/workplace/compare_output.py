"""What a copy wrote against what is expected, and what it reports; the checker's process has it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader
from math import inf, isfinite, isinf, isnan
from pathlib import Path

from msgspec import Struct

from rater.plan.suite import Expected, Metric
from rater.record.run import Validity
from rater.text.values import printable

# -- What is asked of the process that checks, and what is found -----------------------------------


class CheckRules(Struct, frozen=True):
    """What a benchmark's copies are held to."""

    expected: tuple[Expected, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.expected or self.metrics)


class CheckRequest(Struct, frozen=True):
    """What one copy wrote, and the rules for it."""

    rules: CheckRules
    directory: str
    stdout: str
    stderr: str

    def path_of(self, name: str) -> Path:
        """Return where a file lies that the rules name."""
        own = {"stdout": self.stdout, "stderr": self.stderr}
        return Path(own.get(name) or f"{self.directory}/{name}")


class CheckResult(Struct, frozen=True):
    """What is known of a copy's output once it was checked."""

    validity: Validity
    detail: str | None = None  # the first difference, in words
    metrics: tuple[tuple[str, float], ...] = ()  # what the copy reported: name, value


# -- Numbers that a benchmark reports of itself, read from what a copy wrote -----------------------

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

    A carriage return ends a line, as where a program draws over its last one. Windows begin
    and end at line breaks, so that what `^`, `$` and `\b` say of edges holds in the file. A
    match belongs to the window that it begins in and may go on for a while behind it. Raises
    `_LongLineError` where a line is too long.
    """
    end = os.fstat(file.fileno()).st_size
    whole = end
    while end > 0:
        begin = max(0, end - _WINDOW)
        file.seek(begin)
        data = file.read(end - begin).replace(b"\r", b"\n")
        if begin:
            cut = data.find(b"\n", 0, len(data) - 1) + 1
            if not cut:
                raise _LongLineError
            data, begin = data[cut:], begin + cut
        # The line break before it makes clear to `\A` that this is not where the file begins.
        text = "\n" * bool(begin) + data.decode(errors="replace")
        limit = len(text)
        if end < whole:
            text += _behind(file, end).replace(b"\r", b"\n").decode(errors="replace")
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
    file.seek(end)
    return file.read(_OVERLAP) + file.readline(_WINDOW)


# -- Compare what a copy wrote with what is expected, without reading more than is needed ----------

_LONGEST_LINE = 65536  # bytes, beyond four times the longest expected line
_BLOCK = 65536  # bytes
# A file larger than this whose written part is less than one in so many is none that a program
# wrote: to read 8 TB of holes takes hours. (File systems that compress save less than that.)
_LARGE, _MOST_HOLES = 1 << 30, 100
_LONGEST_NUMBER = 200  # characters; a longer token is text, so that all sums stay doubles
_DECIMAL = re.compile(rb"[+-]?(?:\d++\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?")
_INTEGER = re.compile(rb"[+-]?\d+")
_HEX = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?")
_HEX_INTEGER = re.compile(rb"[+-]?0[xX][0-9a-fA-F]+")
_SPECIAL = re.compile(rb"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)


class WrongOutputError(Exception):
    """What a copy wrote is not what its suite wants; the text is for people."""


def check_file(path: Path, want: Expected) -> None:
    """Compare a file with what is expected; raises `WrongOutputError` at the first difference.

    Reads line by line and stops at the first difference; no more than a line of
    bounded length is in memory. White space at the end of a line, empty lines at
    the end of the file and the width of gaps between words do not count. Lines that
    are to be ignored are left out on both sides: an expected text may be a recorded
    output as it is.
    """
    with open_regular(path, want.file) as file:
        if want.sha256 is None:
            _compare(file, want)
            return
        got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != want.sha256:
            raise WrongOutputError(f"{want.file} has SHA-256 {got}, expected {want.sha256}")


def same_token(got: bytes, want: bytes, absolute: float, relative: float) -> bool:
    """Tell whether two words agree: equal, or both numbers within a tolerance.

    |got - want| <= absolute, or <= relative * |want|. Integers are compared
    exactly, whatever their size; decimals (`1.5`, `1e3`, `1.0D+3`) and C hex
    (`0x1f`, `0x1p-3`) by value; infinities only with themselves; nan only when
    both texts are identical.
    """
    if got == want:
        return True
    a, b = number_of(got), number_of(want)
    if a is None or b is None or isnan(a) or isnan(b):
        return False
    if isinf(a) or isinf(b):
        return a == b
    gap = abs(a - b)
    return gap <= absolute or gap <= relative * abs(b)


def open_regular(path: Path, name: str) -> BufferedReader:
    """Open a file that a copy wrote; raises `WrongOutputError` where there is none to be read."""
    try:
        # A copy may have left a pipe by that name: opening it must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WrongOutputError(f"{name} was not written") from None
    except OSError as error:
        raise WrongOutputError(f"{name} cannot be read: {error.strerror}") from error
    found = os.fstat(handle)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_size > _LARGE and written_bytes(found) < found.st_size // _MOST_HOLES:
        problem = f"is {found.st_size / 1e9:.0f} GB long and nearly all of it holes, not read"
    if problem is not None or not found.st_size:
        os.close(handle)
    if problem is not None:
        raise WrongOutputError(f"{name} {problem}")
    # What has no size is not read: a link to a file of /proc may wait for ever (kmsg), or have no
    # end (pagemap).
    return os.fdopen(handle, "rb") if found.st_size else Path(os.devnull).open("rb")


def written_bytes(found: os.stat_result) -> int:
    """Return how much of a file is there to be read, holes left out."""
    return min(found.st_size, found.st_blocks * 512)


def _compare(file: BufferedReader, want: Expected) -> None:
    lines, longest = _wanted(want.text, want.ignore)
    limit = 4 * longest + _LONGEST_LINE
    number = 0  # of the last line that was read, ignored ones counted
    written = _lines(file, limit, want.ignore)
    for wanted in lines:
        number, line = next(written, (number + 1, b""))
        if len(line) == limit and not line.endswith(b"\n"):
            text: str | None = f"got over {limit} bytes in one line, expected {_line(wanted)}"
        else:
            text = _difference(line, wanted, want)
        if text is not None:
            raise WrongOutputError(f"{want.file} line {number}: {text}")
    blocks = _blocks(file, len(lines) + 1) if want.ignore is None else written
    for number, block in blocks:
        rest = block.lstrip()
        if rest:
            number += block[: len(block) - len(rest)].count(b"\n")  # noqa: PLW2901 - where it is
            text = f"got {_line(rest.split(maxsplit=8)[:8])}, expected the end of the file"
            raise WrongOutputError(f"{want.file} line {number}: {text}")


def _difference(line: bytes, wanted: list[bytes], want: Expected) -> str | None:
    if not line:
        return f"got the end of the file, expected {_line(wanted)}"
    got = line.split()
    for a, b in zip(got, wanted, strict=False):
        if not same_token(a, b, want.absolute_tolerance, want.relative_tolerance):
            return f"got {_word(a)}, expected {_word(b)}{_allowed(a, b, want)}"
    if len(got) > len(wanted):
        return f"got {_word(got[len(wanted)])} where the line should end"
    if len(got) < len(wanted):
        return f"got the end of the line, expected {_word(wanted[len(got)])}"
    return None


def _lines(file: BufferedReader, limit: int, ignore: str | None) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of the lines that count; of longer ones the first `limit` bytes.

    Without `ignore` the file is never read beyond what was yielded.
    """
    ignored = None if ignore is None else re.compile(ignore, re.MULTILINE)
    number = 0
    while line := file.readline(limit):
        number += 1
        if ignored is None:
            yield number, line
            continue
        kept = not ignored.search(_text(line))
        if kept:
            yield number, line
        while len(line) == limit and not line.endswith(b"\n"):
            line = file.readline(limit)
            if kept and line.strip():
                yield number, line


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")


def _blocks(file: BufferedReader, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield what is left of a file, with the number of the line that each block begins in."""
    while block := file.read(_BLOCK):
        yield number, block
        number += block.count(b"\n")


@lru_cache(maxsize=256)  # the same text for every copy
def _wanted(text: str, ignore: str | None) -> tuple[list[list[bytes]], int]:
    raw = text.encode().rstrip().split(b"\n")
    if ignore is not None:
        ignored = re.compile(ignore, re.MULTILINE)
        raw = [line for line in raw if not ignored.search(_text(line))]
        while raw and not raw[-1].strip():
            raw.pop()
    lines = [line.split() for line in raw] if raw != [b""] else []
    return lines, max((len(line) for line in raw), default=0)


def number_of(token: bytes) -> float | int | None:
    """Return the value of a number, None for text and for numbers beyond a double."""
    if len(token) > _LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(token):
        return int(token)
    if _HEX_INTEGER.fullmatch(token):
        return int(token, 16)
    text = token.decode("latin-1")
    if _SPECIAL.fullmatch(token):
        return float(text)
    value = inf
    with suppress(OverflowError):
        if _DECIMAL.fullmatch(token):
            value = float(text.lower().replace("d", "e"))
        elif _HEX.fullmatch(token):
            value = float.fromhex(text)
    # Digests such as 12e999 look like numbers; two different ones must not both be "infinite".
    return None if isinf(value) else value


def _allowed(got: bytes, want: bytes, expected: Expected) -> str:
    if number_of(got[:_LONGEST_NUMBER]) is None or number_of(want[:_LONGEST_NUMBER]) is None:
        return ""
    parts = []
    if expected.absolute_tolerance:
        parts.append(f"absolute tolerance {expected.absolute_tolerance:g}")
    if expected.relative_tolerance:
        parts.append(f"relative tolerance {expected.relative_tolerance:g}")
    return f" ({', '.join(parts)})" if parts else ""


def _word(token: bytes) -> str:
    text = token[:60].decode(errors="backslashreplace")
    if number_of(token) is not None and len(token) <= 60:
        return text
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return f'"{clean}{"..." if len(token) > 60 else ""}"'


def _line(words: list[bytes]) -> str:
    return _word(b" ".join(words)) if words else "an empty line"

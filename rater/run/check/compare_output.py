"""Compare what a copy wrote with what is expected, without reading more than is needed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from math import inf, isinf, isnan
from pathlib import Path

from rater.plan.suite.model import Expected

_LONGEST_LINE = 65536  # bytes, beyond four times the longest expected line
_BLOCK = 65536  # bytes
_LONGEST_NUMBER = 200  # characters; a longer token is text, so that all sums stay doubles
_DECIMAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?")
_INTEGER = re.compile(rb"[+-]?\d+")
_HEX = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?")
_HEX_INTEGER = re.compile(rb"[+-]?0[xX][0-9a-fA-F]+")
_SPECIAL = re.compile(rb"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an output is not as expected."""

    file: str
    line: int | None  # of the output, from 1; None when the file itself is missing
    detail: str  # in words, one line without control characters

    def __str__(self) -> str:
        return self.detail


def check_output(
    run_dir: Path, stdout_path: Path, expected: Sequence[Expected]
) -> Difference | None:
    """Return the first difference between a copy's output and what is expected, else None.

    Reads line by line and stops at the first difference; no more than a line of
    bounded length is in memory. White space at the end of a line, empty lines at
    the end of the file and the width of gaps between words do not count. Lines that
    are to be ignored are left out on both sides: an expected text may be a recorded
    output as it is.
    """
    for want in expected:
        path = stdout_path if want.file == "stdout" else run_dir / want.file
        difference = _check_file(path, want)
        if difference:
            return difference
    return None


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


def open_regular(path: Path) -> BufferedReader | str:
    """Open a file that a copy wrote; return what is wrong, behind its name, when there is none."""
    try:
        # A copy may have left a pipe by that name: opening it must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "was not written"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return "is not a regular file"
    return os.fdopen(handle, "rb")


def _check_file(path: Path, want: Expected) -> Difference | None:
    file = open_regular(path)
    if isinstance(file, str):
        return Difference(want.file, None, f"{want.file} {file}")
    with file:
        return _compare(file, want) if want.sha256 is None else _compare_digest(file, want)


def _compare_digest(file: BufferedReader, want: Expected) -> Difference | None:
    got = hashlib.file_digest(file, "sha256").hexdigest()
    if got == want.sha256:
        return None
    said = f"{want.file} has SHA-256 {got}, expected {want.sha256}"
    return Difference(want.file, None, said)


def _compare(file: BufferedReader, want: Expected) -> Difference | None:
    lines, longest = _wanted(want.text, want.ignore)
    limit = 4 * longest + _LONGEST_LINE
    number = 0  # of the last line that was read, ignored ones counted

    def differs(text: str) -> Difference:
        return Difference(want.file, number, f"{want.file} line {number}: {text}")

    written = _lines(file, limit, want.ignore)
    for wanted in lines:
        number, line = next(written, (number + 1, b""))
        if len(line) == limit and not line.endswith(b"\n"):
            return differs(f"got over {limit} bytes in one line, expected {_line(wanted)}")
        said = _difference(line, wanted, want)
        if said is not None:
            return differs(said)
    if want.ignore is None:
        return _check_rest(file, want, len(lines))
    for number, line in written:  # noqa: B007 (`differs` says it)
        if line.strip():
            said = _line(line.split(maxsplit=8)[:8])
            return differs(f"got {said}, expected the end of the file")
    return None


def _difference(line: bytes, wanted: list[bytes], want: Expected) -> str | None:
    """Compare one line, empty at the end of the file."""
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


def _check_rest(file: BufferedReader, want: Expected, lines_before: int) -> Difference | None:
    """Only white space may follow the last expected line."""
    number = lines_before + 1
    while block := file.read(_BLOCK):
        rest = block.lstrip()
        if rest:
            number += block[: len(block) - len(rest)].count(b"\n")
            said = f"{want.file} line {number}: got {_line(rest.split(maxsplit=8)[:8])}, "
            return Difference(want.file, number, said + "expected the end of the file")
        number += block.count(b"\n")
    return None


@lru_cache(maxsize=256)  # the same text for every copy
def _wanted(text: str, ignore: str | None) -> tuple[list[list[bytes]], int]:
    """Return the words of each expected line, and the length of the longest line."""
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
    """Return a word for a message: numbers bare, text quoted and cut, nothing unprintable."""
    text = token[:60].decode(errors="backslashreplace")
    if number_of(token) is not None and len(token) <= 60:
        return text
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return f'"{clean}{"..." if len(token) > 60 else ""}"'


def _line(words: list[bytes]) -> str:
    return _word(b" ".join(words)) if words else "an empty line"

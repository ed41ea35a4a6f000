"""Compare what a copy wrote with what is expected, without reading more than is needed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isinf, isnan
from pathlib import Path
from typing import BinaryIO

from rater.plan.suite import Expected

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
    the end of the file and the width of gaps between words do not count.
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
    if len(got) > _LONGEST_NUMBER or len(want) > _LONGEST_NUMBER:
        return False
    a, b = _number(got), _number(want)
    if a is None or b is None or isnan(a) or isnan(b):
        return False
    if isinf(a) or isinf(b):
        return a == b
    gap = abs(a - b)
    return gap <= absolute or gap <= relative * abs(b)


def _check_file(path: Path, want: Expected) -> Difference | None:
    try:
        # A copy may have left a pipe by that name: opening it must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Difference(want.file, None, f"{want.file} was not written")
    except OSError as error:
        return Difference(want.file, None, f"{want.file} cannot be read: {error.strerror}")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return Difference(want.file, None, f"{want.file} is not a regular file")
    with os.fdopen(handle, "rb") as file:
        return _compare(file, want)


def _compare(file: BinaryIO, want: Expected) -> Difference | None:
    lines, longest = _wanted(want.text)
    limit = 4 * longest + _LONGEST_LINE

    def differs(number: int, text: str) -> Difference:
        return Difference(want.file, number, f"{want.file} line {number}: {text}")

    for number, wanted in enumerate(lines, start=1):
        line = file.readline(limit)
        if not line:
            return differs(number, f"got the end of the file, expected {_line(wanted)}")
        if len(line) == limit and not line.endswith(b"\n"):
            return differs(number, f"got over {limit} bytes in one line, expected {_line(wanted)}")
        got = line.split()
        for a, b in zip(got, wanted, strict=False):
            if not same_token(a, b, want.absolute_tolerance, want.relative_tolerance):
                return differs(number, f"got {_word(a)}, expected {_word(b)}{_allowed(a, b, want)}")
        if len(got) > len(wanted):
            wrong = _word(got[len(wanted)])
            return differs(number, f"got {wrong} where the line should end")
        if len(got) < len(wanted):
            return differs(number, f"got the end of the line, expected {_word(wanted[len(got)])}")
    return _check_rest(file, want, len(lines))


def _check_rest(file: BinaryIO, want: Expected, lines_before: int) -> Difference | None:
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
def _wanted(text: str) -> tuple[list[list[bytes]], int]:
    """Return the words of each expected line, and the length of the longest line."""
    raw = text.encode().rstrip().split(b"\n")
    lines = [line.split() for line in raw] if raw != [b""] else []
    return lines, max(len(line) for line in raw)


def _number(token: bytes) -> float | int | None:
    """Return the value of a number, None for text and for numbers beyond a double."""
    if _INTEGER.fullmatch(token):
        return int(token)
    if _HEX_INTEGER.fullmatch(token):
        return int(token, 16)
    text = token.decode("latin-1")
    if _SPECIAL.fullmatch(token):
        return float(text)
    try:
        if _DECIMAL.fullmatch(token):
            value = float(text.lower().replace("d", "e"))
        elif _HEX.fullmatch(token):
            value = float.fromhex(text)
        else:
            return None
    except OverflowError:
        return None
    # Digests such as 12e999 look like numbers; two different ones must not both be "infinite".
    return None if isinf(value) else value


def _allowed(got: bytes, want: bytes, expected: Expected) -> str:
    if _number(got[:_LONGEST_NUMBER]) is None or _number(want[:_LONGEST_NUMBER]) is None:
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
    if _number(token) is not None and len(token) <= 60:
        return text
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return f'"{clean}{"..." if len(token) > 60 else ""}"'


def _line(words: list[bytes]) -> str:
    return _word(b" ".join(words)) if words else "an empty line"

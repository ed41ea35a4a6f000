"""Output of a copy compared with the expected one, and the numbers it reports (checker's side)."""

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

from rater.plan.metric import Metric
from rater.plan.suite import Expected
from rater.record.run import Validity
from rater.system.patterns import compile_later
from rater.text.values import printable

# -- Requests to the process that checks, and its results ------------------------------------------


class CheckRules(Struct, frozen=True):
    """The outputs that a benchmark's copies must have, and the numbers to be read from them."""

    expected: tuple[Expected, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.expected or self.metrics)


class CheckRequest(Struct, frozen=True):
    """The places of one copy's outputs, and the rules for them."""

    rules: CheckRules
    directory: str
    stdout: str
    stderr: str

    def path_of(self, name: str) -> Path:
        """Return where a file lies that the rules name."""
        stream_files = {"stdout": self.stdout, "stderr": self.stderr}
        return Path(stream_files.get(name) or f"{self.directory}/{name}")


class CheckResult(Struct, frozen=True):
    """The judgement of a copy's output."""

    validity: Validity
    detail: str | None = None  # the first difference, in words
    metrics: tuple[tuple[str, float], ...] = ()  # what the copy reported: name, value


# -- Numbers that a benchmark reports of itself, read from a copy's outputs ------------------------

_WINDOW = 4 << 20  # bytes searched together; a line may not be longer
_OVERLAP = 1 << 16  # bytes, and the rest of a line, that a match may go on beyond its window
_END = 4096  # bytes of a file's end that are looked at for its last lines
_LINES_SHOWN, _LONGEST_SHOWN = 3, 100  # of an output without the number; characters of a line
LARGEST = 1e290  # of a value: the sum over all copies is finite too


def read_metric(path: Path, metric: Metric) -> float:
    """Return the value of a metric, read from an output of a copy.

    Of several matches of a pattern the last counts: files are read from their end,
    a window of bounded size at a time. Raises `WrongOutputError` when the pattern matches
    nothing, a line is too long, or the match is not a finite number up to 1e290.
    """
    try:
        return _read_value(path, metric)
    except WrongOutputError as error:
        raise WrongOutputError(f"metric {metric.name}: {error}") from error


def _sum_of_matches(path: Path, metric: Metric) -> float:
    """Return the sum of all matches of a pattern, of a file that is read line by line."""
    pattern = re.compile(metric.pattern.encode())
    numbers = []
    with open_regular(path, metric.file) as file:
        while line := file.readline(_WINDOW):
            if match := pattern.match(line.rstrip(b"\r\n")):
                numbers.append(int(match[1].replace(b",", b"")))
        if not numbers:
            raise WrongOutputError(f"{metric.file} has no line of the count; {_last_lines(file)}")
    return float(sum(numbers)) * metric.scale


def _read_value(path: Path, metric: Metric) -> float:
    if metric.is_sum:
        return _sum_of_matches(path, metric)
    file_name = metric.file
    with open_regular(path, file_name) as file:
        try:
            match = last_match(file, re.compile(metric.pattern, re.MULTILINE))
        except _LongLineError:
            raise WrongOutputError(f"{file_name}: a line is longer than {_WINDOW} bytes") from None
        if match is None:
            end = _last_lines(file)
            raise WrongOutputError(f"no line of {file_name} matches {metric.pattern}; {end}")
    matched_text = (match[1] or "").strip()
    number = number_of(matched_text.encode())
    try:
        value = float("nan") if number is None else float(number) * metric.scale
    except OverflowError:
        value = float("inf")
    shown_text = printable(matched_text[:60])
    if not isfinite(value):
        raise WrongOutputError(f"{file_name} has {shown_text!r} there, expected a finite number")
    if abs(value) > LARGEST:
        raise WrongOutputError(
            f"{file_name} has {shown_text!r} there, which makes {value:.3g}: "
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
    window_end = os.fstat(file.fileno()).st_size
    file_end = window_end
    while window_end > 0:
        window_begin = max(0, window_end - _WINDOW)
        file.seek(window_begin)
        data = file.read(window_end - window_begin).replace(b"\r", b"\n")
        if window_begin:
            line_begin = data.find(b"\n", 0, len(data) - 1) + 1
            if not line_begin:
                raise _LongLineError
            data, window_begin = data[line_begin:], window_begin + line_begin
        # The line break before it makes clear to `\A` that this is not where the file begins.
        text = "\n" * bool(window_begin) + data.decode(errors="replace")
        window_chars = len(text)
        if window_end < file_end:
            text += _read_behind(file, window_end).replace(b"\r", b"\n").decode(errors="replace")
        latest = None
        for match in pattern.finditer(text, bool(window_begin)):
            if match.start() >= window_chars and window_end < file_end:
                break
            latest = match
        if latest is not None:
            return latest
        window_end = window_begin
    return None


def _last_lines(file: BufferedReader) -> str:
    """Return in words how a file ends: what a program printed in place of the number."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
    lines = [line for line in file.read(_END).decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "it is empty"
    shown = [printable(line.strip())[:_LONGEST_SHOWN] for line in lines[-_LINES_SHOWN:]]
    return f"it ends: {' | '.join(shown)}"


def _read_behind(file: BufferedReader, end: int) -> bytes:
    file.seek(end)
    return file.read(_OVERLAP) + file.readline(_WINDOW)


# -- Compare an output with the expected one, without reading more than is needed ------------------

_LONGEST_LINE = 65536  # bytes, beyond four times the longest expected line
_BLOCK = 65536  # bytes
# A file larger than this whose written part is less than one in so many is none that a program
# wrote: to read 8 TB of holes takes hours. (File systems that compress save less than that.)
_LARGE, _MOST_HOLES = 1 << 30, 100
_LONGEST_NUMBER = 200  # characters; a longer token is text, so that all sums stay doubles
_DECIMAL = compile_later(rb"[+-]?(?:\d++\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?")
_INTEGER = compile_later(rb"[+-]?\d+")
_HEX = compile_later(rb"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?")
_HEX_INTEGER = compile_later(rb"[+-]?0[xX][0-9a-fA-F]+")
_SPECIAL = compile_later(rb"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)


class WrongOutputError(Exception):
    """An output differs from the one that its suite expects; the text is for people."""


def check_file(path: Path, expected: Expected) -> None:
    """Compare a file with the expected one; raises `WrongOutputError` at the first difference.

    Reads line by line and stops at the first difference; no more than a line of
    bounded length is in memory. White space at the end of a line, empty lines at
    the end of the file and the width of gaps between words do not count. Lines that
    are to be ignored are left out on both sides: an expected text may be a recorded
    output, unchanged.
    """
    with open_regular(path, expected.file) as file:
        if expected.sha256 is None:
            _compare(file, expected)
            return
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected.sha256:
            raise WrongOutputError(
                f"{expected.file} has SHA-256 {digest}, expected {expected.sha256}"
            )


def same_token(got: bytes, want: bytes, absolute: float, relative: float) -> bool:
    """Tell whether two words agree: equal, or both numbers within a tolerance.

    |got - want| <= absolute, or <= relative * |want|. Integers are compared
    exactly, whatever their size; decimals (`1.5`, `1e3`, `1.0D+3`) and C hex
    (`0x1f`, `0x1p-3`) by value; infinities only with themselves; nan only when
    both texts are identical.
    """
    if got == want:
        return True
    got_value, want_value = number_of(got), number_of(want)
    if got_value is None or want_value is None or isnan(got_value) or isnan(want_value):
        return False
    if isinf(got_value) or isinf(want_value):
        return got_value == want_value
    gap = abs(got_value - want_value)
    return gap <= absolute or gap <= relative * abs(want_value)


def open_regular(path: Path, name: str) -> BufferedReader:
    """Open a file that a copy wrote; raises `WrongOutputError` where there is none to be read."""
    try:
        # A copy may have left a pipe by that name: opening it must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WrongOutputError(f"{name} was not written") from None
    except OSError as error:
        raise WrongOutputError(f"{name} cannot be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a regular file"
    elif status.st_size > _LARGE and written_bytes(status) < status.st_size // _MOST_HOLES:
        problem = f"is {status.st_size / 1e9:.0f} GB long and nearly all of it holes, not read"
    if problem is not None or not status.st_size:
        os.close(descriptor)
    if problem is not None:
        raise WrongOutputError(f"{name} {problem}")
    # What has no size is not read: a link to a file of /proc may wait for ever (kmsg), or have no
    # end (pagemap).
    return os.fdopen(descriptor, "rb") if status.st_size else Path(os.devnull).open("rb")


def written_bytes(status: os.stat_result) -> int:
    """Return how many bytes of a file were written, holes left out."""
    return min(status.st_size, status.st_blocks * 512)


def _compare(file: BufferedReader, expected: Expected) -> None:
    expected_lines, longest_bytes = _split_expected(expected.text, expected.ignore)
    limit_bytes = 4 * longest_bytes + _LONGEST_LINE
    number = 0  # of the last line that was read, ignored ones counted
    written_lines = _counted_lines(file, limit_bytes, expected.ignore)
    for expected_words in expected_lines:
        number, line = next(written_lines, (number + 1, b""))
        if len(line) == limit_bytes and not line.endswith(b"\n"):
            difference: str | None = (
                f"got over {limit_bytes} bytes in one line, expected {_quote_words(expected_words)}"
            )
        else:
            difference = _difference(line, expected_words, expected)
        if difference is not None:
            raise WrongOutputError(f"{expected.file} line {number}: {difference}")
    blocks = (
        _rest_blocks(file, len(expected_lines) + 1) if expected.ignore is None else written_lines
    )
    for number, block in blocks:
        rest = block.lstrip()
        if rest:
            number += block[: len(block) - len(rest)].count(b"\n")  # noqa: PLW2901 - where it is
            difference = (
                f"got {_quote_words(rest.split(maxsplit=8)[:8])}, expected the end of the file"
            )
            raise WrongOutputError(f"{expected.file} line {number}: {difference}")


def _difference(line: bytes, expected_words: list[bytes], expected: Expected) -> str | None:
    if not line:
        return f"got the end of the file, expected {_quote_words(expected_words)}"
    got_words = line.split()
    tolerances = (expected.absolute_tolerance, expected.relative_tolerance)
    for got_word, expected_word in zip(got_words, expected_words, strict=False):
        if not same_token(got_word, expected_word, *tolerances):
            allowed = _describe_tolerances(got_word, expected_word, expected)
            return f"got {_quote_word(got_word)}, expected {_quote_word(expected_word)}{allowed}"
    if len(got_words) > len(expected_words):
        return f"got {_quote_word(got_words[len(expected_words)])} where the line should end"
    if len(got_words) < len(expected_words):
        return f"got the end of the line, expected {_quote_word(expected_words[len(got_words)])}"
    return None


def _counted_lines(
    file: BufferedReader, limit_bytes: int, ignore: str | None
) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of the lines that count; of longer ones the first `limit` bytes.

    Without `ignore` the file is never read beyond what was yielded.
    """
    ignored = None if ignore is None else re.compile(ignore, re.MULTILINE)
    number = 0
    while line := file.readline(limit_bytes):
        number += 1
        if ignored is None:
            yield number, line
            continue
        is_kept = not ignored.search(_decode_line(line))
        if is_kept:
            yield number, line
        while len(line) == limit_bytes and not line.endswith(b"\n"):
            line = file.readline(limit_bytes)
            if is_kept and line.strip():
                yield number, line


def _decode_line(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")


def _rest_blocks(file: BufferedReader, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield what is left of a file, with the number of the line that each block begins in."""
    while block := file.read(_BLOCK):
        yield number, block
        number += block.count(b"\n")


@lru_cache(maxsize=256)  # the same text for every copy
def _split_expected(text: str, ignore: str | None) -> tuple[list[list[bytes]], int]:
    raw_lines = text.encode().rstrip().split(b"\n")
    if ignore is not None:
        ignored = re.compile(ignore, re.MULTILINE)
        raw_lines = [line for line in raw_lines if not ignored.search(_decode_line(line))]
        while raw_lines and not raw_lines[-1].strip():
            raw_lines.pop()
    lines = [line.split() for line in raw_lines] if raw_lines != [b""] else []
    return lines, max((len(line) for line in raw_lines), default=0)


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


def _describe_tolerances(got: bytes, want: bytes, expected: Expected) -> str:
    if number_of(got[:_LONGEST_NUMBER]) is None or number_of(want[:_LONGEST_NUMBER]) is None:
        return ""
    parts = []
    if expected.absolute_tolerance:
        parts.append(f"absolute tolerance {expected.absolute_tolerance:g}")
    if expected.relative_tolerance:
        parts.append(f"relative tolerance {expected.relative_tolerance:g}")
    return f" ({', '.join(parts)})" if parts else ""


def _quote_word(token: bytes) -> str:
    text = token[:60].decode(errors="backslashreplace")
    if number_of(token) is not None and len(token) <= 60:
        return text
    clean = "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )
    return f'"{clean}{"..." if len(token) > 60 else ""}"'


def _quote_words(words: list[bytes]) -> str:
    return _quote_word(b" ".join(words)) if words else "an empty line"

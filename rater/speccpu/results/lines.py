"""The lines of a file of any size, in pieces of bounded memory, with its SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

from rater.speccpu.results.result import SpecFile

LONGEST_LINE = 1 << 20  # bytes; packed configurations have 78, logs wrap at a few hundred
_PIECE_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"  # of byte order, which editors put before UTF-8


def as_text(raw: bytes) -> str:
    """Return a line as text: UTF-8 where it is that, else Latin-1, which everything is."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class Readable(Protocol):
    """What lines are read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, about as many, none at the end."""
        ...


class Lines:
    """Iterate over (number, line without its end); `cut` and `finish` give the rest.

    A line longer than `LONGEST_LINE` is left out and its number kept. Line ends are
    LF and CR LF, mixed as hand-edited files have them, and a lone CR is none.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.count = 0
        self.too_long: list[int] = []  # the first hundred of them
        self.cut = False  # the last line has no end

    def finish(self, file: SpecFile) -> None:
        """Write into a file that was read to its end how long it is, and what was not read."""
        file.sha256, file.lines = self._hash.hexdigest(), self.count
        for number in self.too_long:
            file.problems.add(number, f"longer than {LONGEST_LINE >> 20} MiB, not read")

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        rest = b""
        skipping = False
        number = 0
        while piece := self._stream.read(_PIECE_BYTES):
            self._hash.update(piece)
            pieces = piece.split(b"\n")
            if skipping:
                if len(pieces) == 1:
                    continue
                pieces[0] = b""
                skipping = False
            else:
                pieces[0] = rest + pieces[0]
            rest = pieces.pop()
            for line in pieces:
                number += 1
                if len(line) <= LONGEST_LINE:
                    plain = line if number > 1 else line.removeprefix(_MARK)
                    yield number, plain.removesuffix(b"\r")
                else:
                    self._leave_out(number)
            if len(rest) > LONGEST_LINE:
                self._leave_out(number + 1)
                rest = b""
                skipping = True
            self.count = number
        self.cut = bool(rest) or skipping
        if self.cut:
            self.count = number + 1
        if rest:
            yield number + 1, (rest if number else rest.removeprefix(_MARK)).removesuffix(b"\r")

    def _leave_out(self, number: int) -> None:
        if len(self.too_long) < 100:
            self.too_long.append(number)

"""A result file of SPEC CPU of either kind, read."""

from __future__ import annotations

import bz2
import lzma
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from rater.errors import InputError
from rater.speccpu.results.lines import Readable
from rater.speccpu.results.log import read_log
from rater.speccpu.results.result import SpecFile
from rater.speccpu.results.rsf import HEAD_BYTES, is_raw, read_rsf
from rater.text.textfile import file_problem


class _Unpacker(Protocol):
    """What zlib, bz2 and lzma unpack with."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


MOST_BYTES = 128_000_000  # less than a minute; what is packed or comes by pipe may have no end
_PIECE_BYTES = 1 << 20
_STANDARD_INPUT = ("-", "/dev/stdin")
_FEED_BYTES = 1 << 16
_MOST_XZ_BYTES = 128 << 20  # of memory that unpacking takes
_UNPACKERS: dict[bytes, tuple[str, Callable[[], _Unpacker]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ": ("xz", lambda: lzma.LZMADecompressor(memlimit=_MOST_XZ_BYTES)),
}
_PACKED = {b"(\xb5/\xfd": "zstd"}


def _nobody(_: int) -> None:
    pass


def read_spec(path: Path, told: Callable[[int], None] = _nobody) -> SpecFile:
    """Read a raw file or a log, what of it can be read; `problems` names the rest by line.

    gzip, bzip2 and xz are unpacked, and `-` and pipes read to their end; what is stored is
    the same as of the plain file. `told` is called with the bytes that are read so far. Raises
    `InputError` when there is no file, too large a one, or no result of SPEC CPU in it.
    """
    with _opened(path) as stream:
        magic = stream.read(8)
        stream.seek(0)
        unpacker = next((it for key, it in _UNPACKERS.items() if magic.startswith(key)), None)
        if unpacker is None:
            whole = _Bounded(stream, None, told)
        else:
            whole = _Bounded(_Unpacked(stream, unpacker[1]), unpacker[0], told)
        head = whole.head()
        reader = read_rsf if is_raw(head) else read_log
        file = reader(whole, _name(path))
        if whole.problem is not None:
            file.problems.add(file.lines, whole.problem)
    if not file.iterations:
        raise InputError(_nothing(path, head, file, whole.problem))
    return file


def _name(path: Path) -> str:
    return "standard input" if str(path) in _STANDARD_INPUT else path.name


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file; what cannot be read twice is spooled."""
    if str(path) in _STANDARD_INPUT:
        with _spooled(sys.stdin.buffer) as spooled:
            yield spooled
    elif path.is_fifo():  # `<(zcat result.rsf.gz)`
        with path.open("rb") as pipe, _spooled(pipe) as spooled:
            yield spooled
    else:
        problem = file_problem(path)
        size = 0 if problem else path.stat().st_size
        if size > MOST_BYTES:
            problem = (
                f"{path} has {size / 1e6:.0f} MB; expected a result file of at most "
                f"{MOST_BYTES // 10**6} MB (parts of a log can be imported one by one)"
            )
        if problem is not None:
            raise InputError(problem)
        with path.open("rb") as stream:
            yield stream


@contextmanager
def _spooled(stream: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        left = MOST_BYTES + 1  # one more than is read, so that more is noticed
        while left > 0 and (piece := stream.read(min(left, _PIECE_BYTES))):
            file.write(piece)
            left -= len(piece)
        file.seek(0)
        yield file


class _Unpacked:
    """What a packed stream has in it, all of it up to where it is torn."""

    def __init__(self, stream: Readable, make: Callable[[], _Unpacker]) -> None:
        self._stream = stream
        self._make = make
        self._unpacker = make()
        self._fed = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end; raises `EOFError` where it is torn."""
        while True:
            if self._unpacker.eof:
                self._fed = self._unpacker.unused_data or self._stream.read(_FEED_BYTES)
                if not self._fed:
                    return b""
                self._unpacker = self._make()  # one packed file behind the other
            waits = not getattr(self._unpacker, "needs_input", True)
            if not self._fed and not waits:
                self._fed = self._stream.read(_FEED_BYTES)
                if not self._fed:
                    raise EOFError("it ends early")
            piece = self._unpacker.decompress(self._fed, size)
            # zlib hands back what it did not use, the others keep it.
            self._fed = getattr(self._unpacker, "unconsumed_tail", b"")
            if piece:
                return piece


class _Bounded:
    """What the readers read: it ends where unpacking fails, or at the limit, and says so."""

    def __init__(self, stream: Readable, kind: str | None, told: Callable[[int], None]) -> None:
        self._stream = stream
        self._kind = kind
        self._told = told
        self._left = MOST_BYTES
        self._head = b""
        self.problem: str | None = None

    def head(self) -> bytes:
        """Return the beginning, which is read again."""
        pieces = []
        wanted = HEAD_BYTES
        while wanted > 0 and (piece := self.read(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
        self._head = b"".join(pieces)
        return self._head

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes (the head whole), none at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        if self.problem is not None:
            return b""
        try:
            piece = self._stream.read(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            self.problem = f"cannot be read further ({self._kind or 'file'}): {error}"
            return b""
        self._left -= len(piece)
        if self._left < 0:
            self.problem = f"more than {MOST_BYTES // 10**6} MB: read up to here"
            return b""
        self._told(MOST_BYTES - self._left)
        return piece


def _nothing(path: Path, head: bytes, file: SpecFile, problem: str | None) -> str:
    wanted = "expected a raw file (.rsf) or a log of runspec or runcpu"
    if problem is not None:
        return f"{path}: {problem}; no results of SPEC CPU in what comes before"
    for magic, kind in _PACKED.items():
        if head.startswith(magic):
            return f"{path}: packed with {kind}; unpack it first ({wanted})"
    if file.format == "rsf":
        return f"{path}: a raw file without a result of any benchmark; nothing to import"
    if b"runspec" in head or b"runcpu" in head:
        return (
            f"{path}: a log in which no benchmark was run to its end; nothing to import "
            "(the times of copies are in logs of verbosity 5 and more)"
        )
    return f"{path}: no results of SPEC CPU in it; {wanted}"

"""Unpack streams of gzip, bzip2 and xz piece by piece with bounded memory."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

TORN = (EOFError, zlib.error, lzma.LZMAError)  # what unpacking raises, beside OSError (bzip2)
_FEED_BYTES = 1 << 16
_MOST_XZ_BYTES = 128 << 20  # of memory that unpacking takes


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...


_UNPACKERS: dict[str, tuple[bytes, Callable[[], Any]]] = {
    "gzip": (b"\x1f\x8b", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    "bzip2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ", lambda: lzma.LZMADecompressor(memlimit=_MOST_XZ_BYTES)),
}


def detect_packing(head: bytes) -> str | None:
    """Return which program packed a file that begins with `head`; None: not packed."""
    return next((kind for kind, (magic, _) in _UNPACKERS.items() if head.startswith(magic)), None)


class UnpackedStream:
    """The content of a packed stream, up to the place where the stream is torn."""

    def __init__(self, stream: Readable, kind: str) -> None:
        self._stream = stream
        self._make = _UNPACKERS[kind][1]
        self._unpacker = self._make()
        self._fed = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end; raises `TORN` and `OSError`."""
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
            piece: bytes = self._unpacker.decompress(self._fed, size)
            # zlib hands back the input that it did not use; the other two keep it themselves.
            self._fed = getattr(self._unpacker, "unconsumed_tail", b"")
            if piece:
                return piece

    def read_all(self, most_bytes: int) -> bytes:
        """Return at most `most_bytes` of the content; raises `TORN` and `OSError`."""
        pieces: list[bytes] = []
        while most_bytes > 0 and (piece := self.read(most_bytes)):
            pieces.append(piece)
            most_bytes -= len(piece)
        return b"".join(pieces)

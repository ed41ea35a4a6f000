"""Streams on which text of others is no order to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

from rater.text.words import printable_lines


class _Cleaned:
    """A stream whose text has no control characters but ends of lines and tabulators."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text of anybody."""
        return self.stream.write(printable_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts of anybody."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def cleaned(stream: IO[str]) -> TextIO:
    """Return a stream that cleans what is written into this one."""
    return cast(TextIO, _Cleaned(stream))


def uncleaned(stream: TextIO) -> IO[str]:
    """Return the stream itself, for who cleans what he writes and has colours of his own."""
    return stream.stream if isinstance(stream, _Cleaned) else stream


@contextmanager
def cleaned_streams() -> Iterator[None]:
    """Keep what names, databases, files and programs say from being read as orders by a terminal.

    The one place for standard output and error; a `Terminal` does the same for what it draws.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(cleaned, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before

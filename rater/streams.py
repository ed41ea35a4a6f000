"""Standard output and error of a process whose reader may leave before it has read all."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from typing import Any, BinaryIO, cast

_LEAST_WIDTH = 20  # of a terminal that text is broken for


class _Leaving(io.FileIO):
    """A descriptor that goes on as /dev/null where nobody reads it any more."""

    def write(self, data: Any, /) -> int:
        """Write what can be written; raises `OSError` where standard output cannot be."""
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return super().write(data)
        except OSError as error:
            if self.fileno() == 2:  # nobody can be told; the exit status has to do
                return len(memoryview(data).cast("B"))
            raise OSError(error.errno, error.strerror, "standard output") from None


def outlive_readers() -> None:
    """Let the command go on to its end, and to its own exit status, in `rater list | head`.

    A name that the terminal's encoding lacks is shown escaped, it is no reason to fail either.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        buffer: Any = stream.buffer
        raw = getattr(buffer, "raw", buffer)  # itself where Python buffers nothing (`python -u`)
        if type(raw) is io.FileIO:  # not what a test has put there
            stream.flush()
            leaving = _Leaving(raw.fileno(), "w", closefd=False)
            stream = io.TextIOWrapper(
                cast(BinaryIO, leaving) if buffer is raw else io.BufferedWriter(leaving),
                encoding=stream.encoding,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, stream)
        stream.reconfigure(errors="backslashreplace")


def say(text: object) -> None:
    """Print lines on standard error as rater's; on a terminal none is broken within a word."""
    lines = f"rater: {text}".split("\n")
    if sys.stderr.isatty():
        width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns - 1)
        lines = [part for line in lines for part in _wrapped(line, width)]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _wrapped(line: str, width: int) -> list[str]:
    """Break a line between words; a path longer than the terminal stays whole, to be copied."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(line) or [""]

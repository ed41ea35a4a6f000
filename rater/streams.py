"""Standard output and error of a process whose reader may leave before it has read all."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, BinaryIO, cast


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

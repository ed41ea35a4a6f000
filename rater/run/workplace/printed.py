"""What copies print, as people read it: the ends of files of output."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rater.text.values import count, printable, printable_lines

_MOST_BYTES = 4096  # of either end of a long file
_MOST_SHOWN_BYTES = 1 << 15  # the same, where all of an output is asked for


def stderr_ends(files: str, lines: int = 3) -> list[str]:
    """Return the first and last `lines` lines, `...` between; none of a missing or empty file.

    `files` is a directory or a pattern of names, as in `CopySpec.files`.
    """
    path = f"{files[:-1]}stderr" if files.endswith("*") else f"{files}/stderr"
    begin, between_bytes, end = _ends_of_file(path, _MOST_BYTES)
    content = begin + (b"\n...\n" if between_bytes else b"") + end
    shown_lines = [
        printable(line, 200)
        for line in content.decode(errors="replace").splitlines()
        if line.strip()
    ]
    return (
        shown_lines
        if len(shown_lines) <= 2 * lines
        else [*shown_lines[:lines], "...", *shown_lines[-lines:]]
    )


def shown_output(prefix: str, paths: Iterable[str]) -> str:
    """Return the lines of files of output, one after the other, each line behind `prefix`.

    Of a long file its two ends, and how much lies between; nothing of a missing one.
    """
    shown_lines = []
    for path in paths:
        begin, between_bytes, end = _ends_of_file(path, _MOST_SHOWN_BYTES)
        note = f"\n... {count(between_bytes, 'byte')} ...\n" if between_bytes else ""
        text = f"{begin.decode(errors='replace')}{note}{end.decode(errors='replace')}"
        shown_lines += text.split("\n") if text else []
        if text.endswith("\n"):
            shown_lines.pop()
    return printable_lines("".join(f"{prefix}{line}\n" for line in shown_lines))


def _ends_of_file(path: str, most_bytes: int) -> tuple[bytes, int, bytes]:
    """Return the first bytes of a file, how many are between, and the last ones."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            begin = file.read(most_bytes)
            behind_bytes = os.fstat(file.fileno()).st_size - len(begin)
            between_bytes = max(0, behind_bytes - most_bytes)
            file.seek(between_bytes + len(begin))
            return begin, between_bytes, file.read(most_bytes)
    except OSError:
        return b"", 0, b""

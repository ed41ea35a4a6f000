"""The last lines that a failed copy wrote on its standard error."""

from __future__ import annotations

import os

from rater.text.words import printable

_MOST_BYTES = 4096


def stderr_tail(files: str, lines: int = 5) -> list[str]:
    """Return at most so many lines; none where the file is gone or empty.

    `files`: as `CopySpec.files` has it, a directory or a pattern of names.
    """
    path = f"{files[:-1]}stderr" if files.endswith("*") else f"{files}/stderr"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [printable(line, 200) for line in text.splitlines() if line.strip()][-lines:]

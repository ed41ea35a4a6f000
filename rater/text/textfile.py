"""Read the files of suites and layouts: never blocked by a pipe, never flooded by a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MOST_BYTES = 10_000_000  # of a suite, a layout or an expected output


def file_problem(path: Path, typed: str = "") -> str | None:
    """Say why `path`, which the user may have `typed` otherwise, is not a file to read."""
    text = typed or str(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        return f"no such file: {text}"
    except OSError as error:
        return f"{text}: {error.strerror}"
    if stat.S_ISDIR(mode):
        return f"{text} is a directory, expected a file"
    if not stat.S_ISREG(mode):
        return f"{text} is not a regular file but a pipe or a device"
    if not os.access(path, os.R_OK):
        return f"no permission to read {text}"
    return None


def is_file(path: str | Path) -> bool:
    """Tell whether there is a regular file; False also for a path that nothing can have."""
    try:
        return Path(path).is_file()
    except OSError:  # no permission on the way to it, or too long a name
        return False


def read_text(path: Path, too_large_for: str = "a suite or a layout") -> str:
    """Return the text of a small regular file, without the mark that editors of Windows add.

    Raises `OSError` with a reason in words, `UnicodeDecodeError` when it is not
    UTF-8, and `ValueError` for a path with a NUL.
    """
    # Not blocking: to open a pipe that nobody writes to would wait for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file but a pipe or a device", str(path))
        with open(handle, "rb", closefd=False) as file:
            data: bytes | None = file.read(_MOST_BYTES + 1)
    finally:
        os.close(handle)
    if data is None:  # /proc/kmsg: a regular file, they say, that has nothing to be read yet
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
    if len(data) > _MOST_BYTES:
        most = f"larger than {_MOST_BYTES // 10**6} MB, too large for {too_large_for}"
        raise OSError(errno.EFBIG, most, str(path))
    return data.decode("utf-8-sig")

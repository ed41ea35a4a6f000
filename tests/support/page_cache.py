"""What of files the page cache holds, by mincore(2)."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from rater.run.host.memory import drop_page_cache

LIBC = ctypes.CDLL(None, use_errno=True)


def cached_bytes(path: Path) -> int:
    """Return the bytes in whole pages of a file, or of all files of a tree, each inode once."""
    files = [path] if path.is_file() else [it for it in path.rglob("*") if it.is_file()]
    files = [file for file in files if not file.is_symlink()]
    return sum(map(_cached, {file.stat().st_ino: file for file in files}.values()))


def _cached(file: Path) -> int:
    size = file.stat().st_size
    if not size:
        return 0
    with file.open("rb") as handle:
        # Copy on write: the only way to an address from Python that needs no right to write.
        mapped = mmap.mmap(handle.fileno(), size, access=mmap.ACCESS_COPY)
        mapped.madvise(mmap.MADV_RANDOM)
        anchor = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        failed = LIBC.mincore(
            ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size), pages
        )
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        del anchor
        mapped.close()
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def is_droppable(folder: Path) -> bool:
    """Tell whether the page cache of files here can be dropped (not on tmpfs)."""
    probe = folder / "probe"
    probe.write_bytes(b"x")
    drop_page_cache(probe)
    left = cached_bytes(probe)
    probe.unlink()
    return left == 0

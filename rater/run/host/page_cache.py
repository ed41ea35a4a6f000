"""How much of a file or a tree lies in the page cache, and dropping it.

What a set-up reads and writes stays in memory, on the lgroup it ran on. Copies there
find less free memory than their neighbours: the set-up becomes the slow part of the
machine that the run is to find.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NR_CACHESTAT = 451  # on every architecture but alpha; Linux 6.5
_MOST_REASONS = 8
_LOWEST_BIT = bytes(state & 1 for state in range(256))  # the others have no meaning yet


@dataclass(frozen=True, slots=True)
class Cached:
    """What of some files the page cache holds. Files with several names count once."""

    files: int = 0
    size_bytes: int = 0
    cached_bytes: int = 0
    dirty_bytes: int | None = None  # not on disk yet, or on its way; None: Linux before 6.5


@dataclass(frozen=True, slots=True)
class Dropped:
    """What dropping the page cache of some files did."""

    files: int
    dropped_bytes: int
    left_bytes: int  # in use: mapped by a process, locked, or of a file system in memory
    problems: tuple[str, ...]  # files that could not be opened or flushed, the first few


def cached(path: Path) -> Cached:
    """Measure how much of a file, or of all files of a tree, is in the page cache.

    Files that cannot be opened are left out; symbolic links are not followed. Where
    `cachestat` is missing, `mincore` answers, which shows a file that we may not
    write as cached whole. Some 20 us a file.
    """
    total = Cached(dirty_bytes=0)
    for file in _files(path, []):
        with suppress(OSError), _opened(file) as handle:
            total = _sum(total, _measured(handle))
    return total


def drop_cached(path: Path) -> Dropped:
    """Write a file, or all files of a tree, to disk and drop them from the page cache.

    `fsync` where pages are dirty, which cannot be dropped, then POSIX_FADV_DONTNEED, which needs no
    privileges. Pages that a process has mapped or locked stay, and so does
    all of tmpfs and ramfs: `left_bytes` says how much. All names of a file share its
    pages: to drop a run directory drops the inputs it is linked to, and its copy
    reads them from disk. What cannot be opened or flushed is told, not raised.
    """
    problems: list[str] = []
    before = after = Cached()
    for file in _files(path, problems):
        try:
            with _opened(file) as handle:
                was = _measured(handle)
                if was.dirty_bytes != 0:  # a flush of the disk each, even of a clean file
                    os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                before, after = _sum(before, was), _sum(after, _measured(handle))
        except OSError as error:  # the disk is full or broken
            problems.append(f"{file}: {error.strerror}")
    dropped = max(0, before.cached_bytes - after.cached_bytes)
    return Dropped(before.files, dropped, after.cached_bytes, tuple(problems[:_MOST_REASONS]))


def _files(path: Path, problems: list[str]) -> Iterator[str]:
    """Yield the regular files that can be opened of a tree, each inode once."""
    seen: set[tuple[int, int]] = set()
    waiting = [str(path)]
    while waiting:
        name = waiting.pop()
        try:
            found = os.lstat(name)
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(name) as entries:
                    waiting += [entry.path for entry in entries]
            elif stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                with _opened(name):
                    pass
                yield name
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")


@contextmanager
def _opened(name: str) -> Iterator[int]:
    # Not blocking: the name may have become a pipe.
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _sum(one: Cached, other: Cached) -> Cached:
    known = one.dirty_bytes is not None and other.dirty_bytes is not None
    return Cached(
        one.files + other.files,
        one.size_bytes + other.size_bytes,
        one.cached_bytes + other.cached_bytes,
        (one.dirty_bytes or 0) + (other.dirty_bytes or 0) if known else None,
    )


def _measured(handle: int) -> Cached:
    size = os.fstat(handle).st_size
    counts = _cachestat(handle)
    if counts is not None:
        pages, dirty, writeback = counts
        page = mmap.PAGESIZE
        return Cached(1, size, pages * page, (dirty + writeback) * page)
    if not size:
        return Cached(1, 0, 0)
    with _Mapping(handle, size) as mapped:
        return Cached(1, size, sum(mapped.resident()) * mmap.PAGESIZE)


def _cachestat(handle: int) -> tuple[int, int, int] | None:
    """Return cached, dirty and written-back pages (cachestat(2)), None when it is refused."""
    whole = (ctypes.c_uint64 * 2)(0, 0)  # offset and length; length 0 is up to the end
    counts = (ctypes.c_uint64 * 5)()
    arguments = (ctypes.c_uint(handle), ctypes.byref(whole), ctypes.byref(counts))
    if _libc().syscall(ctypes.c_long(_NR_CACHESTAT), *arguments, ctypes.c_uint(0)):
        return None
    return counts[0], counts[1], counts[2]


class _Mapping:
    """A file in our address space, nothing of it read ahead."""

    def __init__(self, handle: int, size: int) -> None:
        self.size = size
        # Copy on write: the only way to an address from Python that needs no right to write.
        self._map = mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
        self._map.madvise(mmap.MADV_RANDOM)

    def __enter__(self) -> _Mapping:
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        return self

    def __exit__(self, *_: object) -> None:
        del self._anchor
        self._map.close()

    def resident(self) -> bytes:
        """Return 1 for each page that is cached, else 0 (mincore(2))."""
        pages = -(-self.size // mmap.PAGESIZE)
        answer = (ctypes.c_ubyte * pages)()
        start, length = ctypes.c_void_p(self.address), ctypes.c_size_t(self.size)
        if _libc().mincore(start, length, answer):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return bytes(answer).translate(_LOWEST_BIT)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

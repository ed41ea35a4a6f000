"""The open directory of a process in /proc, and what is read through it.

A descriptor of /proc/PID belongs to that process as a pidfd does: once the
process is gone it reads nothing, and never a later process of the same number.
It must be opened while the process can not be reaped by somebody else.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from rater.record.events import GateFacts
from rater.run.host.proc_text import parse_allowed, parse_last_cpu
from rater.run.host.sysfiles import read_number, read_text

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 16
_TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage")


def open_process(pid: int) -> int:
    """Return a descriptor of /proc/PID; raises `FileNotFoundError` when there is none."""
    return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)


def read_file(name: str, directory: int) -> bytes:
    """Return all of a file of the process; raises `OSError` when it is gone or hidden."""
    file = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        found = b""
        while chunk := os.read(file, _CHUNK):
            found += chunk
        return found
    finally:
        os.close(file)


def read_piece(name: str, directory: int | None = None) -> bytes:
    """Return the same of a file that the kernel hands out in one piece: stat, status, sched."""
    file = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        return os.read(file, _CHUNK)
    finally:
        os.close(file)


def last_cpu(pid: int) -> int | None:
    """Return the CPU that a process ran on last; one that has ended must not be reaped yet."""
    try:
        return parse_last_cpu(read_piece(f"/proc/{pid}/stat"))
    except OSError:
        return None


def threads(directory: int) -> list[int]:
    """Return the threads of the process."""
    folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        names = os.listdir(folder)  # noqa: PTH208 (a descriptor, not a path)
    finally:
        os.close(folder)
    return [int(name) for name in names]


def gate_facts(pid: int) -> GateFacts:
    """Return what the kernel allows a copy that waits at its gate; it must not be reaped yet."""
    try:
        return GateFacts(*parse_allowed(read_piece(f"/proc/{pid}/status")))
    except OSError:
        return GateFacts(None, None)


def transparent_huge_page_bytes() -> int | None:
    """Return the size of transparent huge pages, None where the kernel gives out none.

    Since Linux 6.8 a size of its own setting can be on while the general one is off.
    """
    size = read_number(_TRANSPARENT / "hpage_pmd_size")
    if size is None:
        return None
    own = read_text(_TRANSPARENT / f"hugepages-{size // 1024}kB/enabled")
    general = read_text(_TRANSPARENT / "enabled")
    off = re.search(r"\[never\]", general or "") and not re.search(
        r"\[(always|madvise)\]", own or ""
    )
    return None if off else size


class OnCPU:
    """Runs the calling thread on one CPU if that is allowed, and lets it go again."""

    def __init__(self, cpu: int | None) -> None:
        self._cpu = cpu
        self._before: set[int] | None = None

    def __enter__(self) -> None:
        if self._cpu is not None:
            before = os.sched_getaffinity(0)
            with suppress(OSError):  # not one of ours
                os.sched_setaffinity(0, {self._cpu})
                self._before = before

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            with suppress(OSError):  # its CPUs went offline meanwhile: the kernel has seen to it
                os.sched_setaffinity(0, self._before)

"""Regions of a running process, read from outside: for copies that are killed or pass exits by."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from rater.plan.pages.layout import BASE_BYTES, Category
from rater.plan.pages.windows import PageWindow
from rater.plan.pages.words import PageOrder
from rater.run.page_sizes.report import LOOK, ProcessSeen, RegionSeen

# <linux/fs.h> of Linux 6.7: PAGEMAP_SCAN
_PRESENT, _SWAPPED, _ZERO, _LARGE = 1 << 3, 1 << 4, 1 << 5, 1 << 6
_RUNS = 4096


class _Scan(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages"),
            *("inverted", "mask", "any_of", "returned"),
        )
    )


_SCAN = 3 << 30 | ctypes.sizeof(_Scan) << 16 | ord("f") << 8 | 16  # _IOWR('f', 16, struct)

type PageRun = tuple[int, int, bool]  # from address, to address, in larger pages


def look_at(process: ProcessSeen, order: PageOrder, huge_bytes: int) -> ProcessSeen | None:
    """Return what a process has now; `process` says where. None: it ended, or cannot be read."""
    try:
        pagemap = os.open(f"/proc/{process.pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        regions = tuple(
            measured(
                _runs(pagemap, it.base, it.end) if it.base else (),
                it.base,
                it.end,
                order.of(category),
                huge_bytes,
            )
            for category, it in zip(Category, process.regions, strict=True)
        )
    except OSError:  # before Linux 6.7, or it ended
        return None
    finally:
        os.close(pagemap)
    return replace(process, event=LOOK, regions=regions)


def _runs(pagemap: int, start: int, end: int) -> Iterable[PageRun]:
    vector = (ctypes.c_uint64 * (3 * _RUNS))()
    scan = _Scan(
        size=ctypes.sizeof(_Scan),
        start=start,
        end=end,
        vec=ctypes.addressof(vector),
        vec_len=_RUNS,
        inverted=_ZERO,
        mask=_ZERO,
        any_of=_PRESENT | _SWAPPED,
        returned=_LARGE,
    )
    while scan.start < scan.end:
        number = fcntl.ioctl(pagemap, _SCAN, scan)
        for at in range(0, 3 * number, 3):
            yield vector[at], vector[at + 1], bool(vector[at + 2] & _LARGE)
        if scan.walk_end <= scan.start:
            return
        scan.start = scan.walk_end


def measured(
    runs: Iterable[PageRun], base: int, end: int, windows: Sequence[PageWindow], huge_bytes: int
) -> RegionSeen:
    """Return what a region has, of the runs of pages that are there (in order); pure."""
    extent = there = touched = large = stray = giant = 0
    behind = base  # of the last page that was counted as touched
    ahead = 0  # the first window that may still be reached
    for first, last, is_large in runs:
        while ahead < len(windows) and base + windows[ahead].end <= first:
            ahead += 1
        there += last - first
        extent = max(extent, last - base)
        covered = 0
        for window in islice(windows, ahead, None):
            start, stop = max(first, base + window.start), min(last, base + window.end)
            if start >= stop:
                break
            covered += stop - start
            page = window.page_bytes
            low = max(base + (start - base) // page * page, behind)
            high = base + -(-(stop - base) // page) * page
            if high > low:
                touched += high - low
                behind = high
            giant += stop - start if is_large and page > huge_bytes else 0
        if is_large:
            large += covered
            stray += last - first - covered
    assert there % BASE_BYTES == 0
    return RegionSeen(base, end, extent, there, touched, large, stray, giant)

"""What the library in a copy reports: lines of one file a copy, read with no trust in them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rater.plan.pages.layout import BASE_BYTES, Category
from rater.plan.pages.windows import PageWindow, planned_bytes
from rater.plan.pages.words import PageOrder
from rater.record.page_sizes import PageRegion

_VERSION = "1"
_MOST_BYTES = 32 << 20  # of one copy's reports in a phase
_WORDS = 14
_NUMBERS = 8
_MOST = 1 << 62
BEGIN, LOOK = "begin", "look"


@dataclass(frozen=True, slots=True)
class RegionSeen:
    """One region of a process; sizes in bytes."""

    base: int  # address; 0: there is none
    end: int
    extent: int
    there: int
    touched: int
    large: int  # in larger pages, inside windows
    stray: int  # and outside
    giant: int  # of `large`, in windows of larger pages than transparent ones


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """One report of one process."""

    event: str
    pid: int
    group: int
    began_ns: int  # of CLOCK_MONOTONIC
    forked: bool  # the child of a fork that went on with its parent's program
    forks: int
    moved_break: int
    foreign_malloc: bool
    troubles: str
    regions: tuple[RegionSeen, ...]  # heap, mmap, static

    @property
    def there(self) -> int:
        """Bytes of all regions that are there."""
        return sum(it.there for it in self.regions)


def read_reports(path: Path) -> Iterator[ProcessSeen]:
    """Yield the reports of one copy, in order; what is no report is passed by.

    The file was written by the copy, which may be anybody's.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
            return
        raise
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return
        text = file.read(_MOST_BYTES).decode("ascii", "replace")
    for line in text.splitlines():
        found = parse_report(line)
        if found is not None:
            yield found


def parse_report(line: str) -> ProcessSeen | None:
    """Return the report that a line is; None where it is none."""
    words = line.split(" ")
    if len(words) != _WORDS or words[0] != _VERSION:
        return None
    _, event, *numbers, troubles, heap, mmap, static = words
    try:
        pid, group, began_ns, _, forked, forks, moved, foreign = map(_number, numbers)
        regions = tuple(
            _region(name, word) for name, word in zip(Category, (heap, mmap, static), strict=True)
        )
    except ValueError:
        return None
    troubles = "" if troubles == "-" else troubles
    return ProcessSeen(
        event, pid, group, began_ns, bool(forked), forks, moved, bool(foreign), troubles, regions
    )


def _number(text: str, base: int = 10) -> int:
    if not text.isascii() or not text.isalnum():
        raise ValueError(text)
    value = int(text, base)
    if value > _MOST:
        raise ValueError(text)
    return value


def _region(name: str, word: str) -> RegionSeen:
    key, _, rest = word.partition("=")
    numbers = rest.split(",")
    if key != name or len(numbers) != _NUMBERS:
        raise ValueError(word)
    return RegionSeen(*(_number(it, 16) for it in numbers[:2]), *map(_number, numbers[2:]))


def last_of_each(reports: Iterable[ProcessSeen]) -> list[ProcessSeen]:
    """Return the last report of every process: each has what was most so far."""
    found: dict[tuple[int, int], ProcessSeen] = {}
    for one in reports:
        found[one.pid, one.began_ns] = one
    return list(found.values())


def page_regions(
    processes: Iterable[ProcessSeen], order: PageOrder, huge_bytes: int
) -> tuple[PageRegion, ...]:
    """Return what a copy had: of the process that had most; nothing where none was seen."""
    every = list(processes)
    if not every:
        return ()
    main = max(every, key=lambda it: (it.there, not it.forked))
    note = _note(main)
    shares = dict(order.extents)
    found = []
    for category, seen in zip(Category, main.regions, strict=True):
        windows = order.of(category)
        if not seen.base:
            continue
        found.append(
            PageRegion(
                category=category,
                split=order.split,
                share_of_bytes=shares.get(category),
                extent_bytes=seen.extent,
                resident_bytes=seen.there,
                planned_bytes=planned_bytes(_reachable(windows, seen), category, seen.extent),
                touched_bytes=seen.touched,
                huge_bytes=None if _hidden(windows, huge_bytes) else seen.large,
                stray_bytes=seen.stray,
                page_bytes=_by_size(seen, windows, huge_bytes),
                largest_page_bytes=max((it.page_bytes for it in windows), default=BASE_BYTES),
                seen=main.event,
                processes=len(every),
                forks=main.forks,
                note=note,
            )
        )
    return tuple(found)


def _reachable(windows: Iterable[PageWindow], seen: RegionSeen) -> list[PageWindow]:
    """Leave out what lies behind the region's end."""
    return [it for it in windows if it.start < seen.end - seen.base]


def _hidden(windows: Iterable[PageWindow], huge_bytes: int) -> bool:
    """Tell whether the kernel does not say which memory lies in pages of these sizes."""
    return any(it.page_bytes < huge_bytes for it in windows)


def _by_size(
    seen: RegionSeen, windows: Iterable[PageWindow], huge_bytes: int
) -> tuple[tuple[int, int], ...]:
    sizes = [it.page_bytes for it in windows]
    pooled = [size for size in sizes if size > huge_bytes]
    found = {BASE_BYTES: max(0, seen.there - seen.large - seen.stray)}
    for size, amount in (
        (huge_bytes, seen.large - seen.giant + seen.stray),
        (max(pooled, default=huge_bytes), seen.giant),
    ):
        found[size] = found.get(size, 0) + max(0, amount)
    return tuple(sorted((size, amount) for size, amount in found.items() if amount))


def _note(main: ProcessSeen) -> str | None:
    """Say what a person should know of the largest process, in words."""
    found = []
    if main.event == BEGIN:
        found.append("it ended before anything could be seen of it")
    if main.foreign_malloc:
        found.append("it has a malloc of its own: only its mappings have the layout")
    if main.moved_break:
        found.append(
            f"it moved the break itself ({main.moved_break} times): that is in no category"
        )
    for trouble in main.troubles.split(",") if main.troubles else ():
        what, _, number = trouble.rpartition(":")
        why = os.strerror(int(number)) if number.isdigit() and len(number) < 5 else number
        found.append(f"{what.replace('_', ' ')[:80]}: {why[:80]}")
    return "; ".join(found) or None

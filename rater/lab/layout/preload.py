"""The preloaded library: built, what it reports, and what page sizes copies are seen to have."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from rater.lab.layout.layout import BASE_BYTES, REST, Category, PageDirective
from rater.record.events import PageRegion, PagesHad
from rater.run.launcher.copies import Child
from rater.run.programs.compile import BuiltProgram, compile_program
from rater.system.errors import InputError
from rater.system.files import read_file

_SOURCES = Path(__file__).parent / "native"
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin-malloc")
_LIBRARIES = ("-ldl", "-lpthread")


def build_library(cache: Path, *, split: bool) -> BuiltProgram:
    """Build the library; `split`: the one that keeps large blocks apart.

    Raises `InputError` with the compiler's message, or the way out.
    """
    sources = tuple(sorted(_SOURCES.glob("*.c")))
    name = "rater-pages.so"
    flags: tuple[str, ...] = _FLAGS
    if split:
        name, flags = "rater-pages-split.so", (*_FLAGS, "-DSPLIT")
    library = compile_program(name, sources, flags, _LIBRARIES, cache)
    if any(sign in str(library.executable) for sign in " :"):
        raise InputError(
            f"--pages: the library lies in {library.executable.parent}, and LD_PRELOAD takes no "
            "path with blanks or colons: set RATER_CACHE to another folder"
        )
    return library


# -- What the library in a copy reports: lines of one file a copy, read with no trust in them ------

_MOST_BYTES = 32 << 20  # of one copy's reports in a phase
_SIZES = r"\d{1,18}(?:,\d{1,18})"
_REPORT = re.compile(  # of version 2
    r"2 (\S*)((?: \d{1,18}){8}) (\S*)"
    + "".join(rf" {it}=([0-9a-f]{{1,15}},[0-9a-f]{{1,15}},{_SIZES}{{5}})" for it in Category)
    + rf" {REST}=({_SIZES}{{4}})",
    re.ASCII,
)
BEGIN, LOOK = "begin", "look"


class RegionSeen(Struct, frozen=True, kw_only=True):
    """One region of a process; sizes in bytes."""

    base: int  # address, 0 of an absent region
    end: int
    extent: int
    there: int
    touched: int
    large: int  # in larger pages, inside windows
    stray: int  # in larger pages, outside windows
    giant: int  # of `large`, in windows of larger pages than transparent ones


class RestSeen(Struct, frozen=True, kw_only=True):
    """The memory of a process in no region; sizes in bytes."""

    there: int = 0
    large: int = 0  # in larger pages
    files: int = 0  # text, and other private mappings of files
    shared: int = 0
    kept: int = 0  # of the heap: free when it ended, and there

    @property
    def note(self) -> str:
        """Describe the kinds of this memory."""
        other_bytes = max(0, self.there - self.files - self.shared)
        kinds = (("files", self.files), ("shared", self.shared), ("stacks, reserves", other_bytes))
        text = ", ".join(f"{kind} {size / 1e6:.3g} MB" for kind, size in kinds if size)
        kept_text = f"of the heap {self.kept / 1e6:.3g} MB were free and kept at the end"
        return "; ".join((*([text] if text else []), *([kept_text] if self.kept else [])))


class ProcessSeen(Struct, frozen=True, kw_only=True):
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
    rest: RestSeen

    @property
    def there(self) -> int:
        """Bytes of the process that are there."""
        return sum(region.there for region in self.regions) + self.rest.there


def read_reports(path: Path) -> Iterator[ProcessSeen]:
    """Yield the reports of one copy, in order; what is no report is passed by.

    The file was written by the copy, which may be anybody's.
    """
    try:
        text = read_file(path, _MOST_BYTES, follow=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM):
            return
        raise
    for line in text.decode("ascii", "replace").splitlines():
        report = parse_report(line)
        if report is not None:
            yield report


def parse_report(line: str) -> ProcessSeen | None:
    """Return the report of a line; None for any other text."""
    match = _REPORT.fullmatch(line)
    if match is None:
        return None
    event, numbers, troubles, *region_texts, rest_text = match.groups()
    pid, group, began_ns, _, forked, forks, moved_break, foreign_malloc = map(int, numbers.split())
    regions = tuple(map(_parse_region, region_texts))
    return ProcessSeen(
        event=event,
        pid=pid,
        group=group,
        began_ns=began_ns,
        forked=bool(forked),
        forks=forks,
        moved_break=moved_break,
        foreign_malloc=bool(foreign_malloc),
        troubles="" if troubles == "-" else troubles,
        regions=regions,
        rest=_parse_rest(rest_text),
    )


def _parse_rest(text: str) -> RestSeen:
    there, large, files, shared, kept = map(int, text.split(","))
    return RestSeen(there=there, large=large, files=files, shared=shared, kept=kept)


def _parse_region(text: str) -> RegionSeen:
    base, end, *sizes = text.split(",")
    extent, there, touched, large, stray, giant = map(int, sizes)
    return RegionSeen(
        base=int(base, 16),
        end=int(end, 16),
        extent=extent,
        there=there,
        touched=touched,
        large=large,
        stray=stray,
        giant=giant,
    )


def latest_reports(reports: Iterable[ProcessSeen]) -> list[ProcessSeen]:
    """Return the last report of every process: each has what was most so far."""
    latest: dict[tuple[int, int], ProcessSeen] = {}
    for report in reports:
        latest[report.pid, report.began_ns] = report
    return list(latest.values())


def page_regions(
    processes: Iterable[ProcessSeen], order: PageDirective, huge_bytes: int
) -> tuple[PageRegion, ...]:
    """Return what a copy had: of the process that had most; nothing where none was seen.

    By category, and what no layout reaches last.
    """
    seen_processes = list(processes)
    if not seen_processes:
        return ()
    main = max(seen_processes, key=lambda process: (process.there, not process.forked))
    note = _describe_troubles(main)
    extent_by_category = dict(order.extents)
    regions = []
    rest = RegionSeen(
        base=0,
        end=0,
        extent=0,
        there=main.rest.there,
        touched=0,
        large=0,
        stray=main.rest.large,
        giant=0,
    )
    for category, region in zip((*Category, REST), (*main.regions, rest), strict=True):
        if not (region.base or region.there):
            continue
        windows = [window for window in order.windows if window.category == category]
        sizes = [window.page_bytes for window in windows]
        largest_bytes, reach_bytes = max(sizes, default=BASE_BYTES), region.end - region.base
        extent_bytes, share_of_bytes = region.extent, extent_by_category.get(category)
        if (
            share_of_bytes is not None and largest_bytes > huge_bytes
        ):  # too large to tell how far data goes in it
            extent_bytes = min(extent_bytes, max(share_of_bytes, extent_bytes - largest_bytes))
        regions.append(
            PageRegion(
                category=category,
                split=order.split,
                share_of_bytes=share_of_bytes,
                extent_bytes=extent_bytes,
                resident_bytes=region.there,
                planned_bytes=sum(
                    max(0, min(window.end, region.extent) - window.start)
                    for window in windows
                    if window.start < reach_bytes
                ),
                touched_bytes=region.touched,
                huge_bytes=None if any(size < huge_bytes for size in sizes) else region.large,
                stray_bytes=region.stray,
                page_bytes=_by_size(region, max(largest_bytes, huge_bytes), huge_bytes),
                largest_page_bytes=largest_bytes,
                seen=main.event,
                processes=len(seen_processes),
                forks=main.forks,
                note=main.rest.note if category == REST else note,
            )
        )
    return tuple(regions)


def _by_size(region: RegionSeen, giant_bytes: int, huge_bytes: int) -> tuple[tuple[int, int], ...]:
    bytes_by_size = Counter({BASE_BYTES: max(0, region.there - region.large - region.stray)})
    bytes_by_size[huge_bytes] += max(0, region.large - region.giant + region.stray)
    bytes_by_size[giant_bytes] += max(0, region.giant)
    return tuple(sorted((size, amount) for size, amount in bytes_by_size.items() if amount))


def _describe_troubles(main: ProcessSeen) -> str | None:
    notes = []
    if main.event == BEGIN:
        notes.append("it ended before anything could be seen of it")
    if main.foreign_malloc:
        notes.append("it has a malloc of its own: only its mappings have the layout")
    if main.moved_break:
        notes.append(
            f"it moved the break itself ({main.moved_break} times): that is in no category"
        )
    for trouble in main.troubles.split(",") if main.troubles else ():
        trouble_text, _, number = trouble.rpartition(":")
        reason = os.strerror(int(number)) if number.isdigit() and len(number) < 5 else number
        trouble_text = trouble_text.replace("_", " ")[:120]
        notes.append(trouble_text if number == "0" else f"{trouble_text}: {reason[:80]}")
    return "; ".join(notes) or None


# -- Regions of a running process, read from outside: for copies that are killed or pass exits by --

_LOOKED_AT = ("extent", "there", "touched", "large", "stray", "giant")  # as rater_look writes them
_LOOKING = threading.Lock()  # the library has one place for what it sees


def look_at(process: ProcessSeen, order: PageDirective, setup: PageSetup) -> ProcessSeen | None:
    """Return a report of a process now, of the regions that `process` names.

    None when it has ended, or cannot be read.
    """
    ends = [end for region in process.regions for end in (region.base, region.end)]
    sizes = (ctypes.c_uint64 * (6 * len(process.regions) + 4))()
    addresses = (ctypes.c_uint64 * len(ends))(*ends)
    huge, order_text = ctypes.c_uint64(setup.huge_bytes), order.library_text(None).encode()
    with _LOOKING, suppress(OSError):
        if ctypes.CDLL(str(setup.library)).rater_look(
            process.pid, order_text, huge, addresses, sizes
        ):
            numbers = list(sizes)
            regions = tuple(
                replace(
                    region,
                    **dict(zip(_LOOKED_AT, numbers[start : start + 6], strict=True)),
                )
                for region, start in zip(process.regions, range(0, len(numbers), 6), strict=False)
            )
            there, large, files, shared = numbers[-4:]
            rest = RestSeen(
                there=there, large=large, files=files, shared=shared, kept=process.rest.kept
            )
            return replace(process, event=LOOK, regions=regions, rest=rest)
    return None


# -- What page sizes the copies of a phase had: looked at while they run, put together after it ----

_EVERY_S = 0.25
_FIRST_NS = 500_000_000  # age of a copy at its first look; the next is at twice the age


class PageSetup(Struct, frozen=True):
    """What a run's copies are to have, and where they report."""

    orders: Mapping[str, PageDirective]  # by benchmark
    huge_bytes: int
    reports: Path  # a folder of this run, with a file for each copy
    library: Path  # that copies have preloaded

    def proof(self, phase: int) -> PageProof:
        """Return what looks at the copies of one phase."""
        return PageProof(self, phase)


class PageProof:
    """The copies of one phase; on the trio thread. `spent_ns`: CPU time of all looks."""

    def __init__(self, setup: PageSetup, phase: int) -> None:
        self._setup = setup
        self._phase = phase
        self._ran: dict[int, list[tuple[Child, int]]] = {}  # by copy, with its end
        self._looked: dict[tuple[int, int], list[ProcessSeen]] = {}  # by copy and step
        self._next_ns: dict[int, int] = {}  # by pid: age at its next look
        self.spent_ns = 0

    async def watch(self, alive: Mapping[int, Child]) -> None:
        """Look at copies until cancelled, each ever more seldom, in a thread."""
        while True:
            await trio.sleep(_EVERY_S)
            now_ns = time.monotonic_ns()
            due = [
                each_child
                for each_child in alive.values()
                if each_child.start_ns is not None
                and not each_child.is_filler
                and now_ns - each_child.start_ns >= self._next_ns.get(each_child.pid, _FIRST_NS)
            ]
            if not due:
                continue
            for child in due:
                self._next_ns[child.pid] = 2 * (now_ns - (child.start_ns or now_ns))
            copies = [
                (each_child.copy, each_child.pid, each_child.step.benchmark) for each_child in due
            ]
            looks, spent_ns = await trio.to_thread.run_sync(
                partial(self._look_at_copies, copies), abandon_on_cancel=True
            )
            self.spent_ns += spent_ns
            for child, seen in zip(due, looks, strict=True):
                if seen:
                    self._looked[child.copy, child.position] = seen

    def _look_at_copies(
        self, copies: list[tuple[int, int, str]]
    ) -> tuple[list[list[ProcessSeen]], int]:
        begin_ns = time.thread_time_ns()
        seen_by_copy = []
        for copy, pid, benchmark in copies:
            order = self._setup.orders[benchmark]
            seen = []
            for process in latest_reports(read_reports(self._setup.reports / str(copy))):
                # A report says which process it is of: only those of this copy are looked at.
                if process.group == pid and _process_group(process.pid) == pid:
                    process_now = look_at(process, order, self._setup)
                    if process_now is not None:
                        seen.append(process_now)
            seen_by_copy.append(seen)
        return seen_by_copy, time.thread_time_ns() - begin_ns

    def ended(self, child: Child, now_ns: int) -> None:
        """Take note of a copy that ended and counts."""
        if child.start_ns is not None:
            self._ran.setdefault(child.copy, []).append((child, now_ns))

    def close(self) -> Iterator[PagesHad]:
        """Yield what each copy had; nothing is timed any more."""
        for copy, runs in sorted(self._ran.items()):
            path = self._setup.reports / str(copy)
            reports = latest_reports(read_reports(path))
            with suppress(OSError):
                path.unlink()
            for child, end_ns in runs:
                child_reports = [
                    report
                    for report in reports
                    if (child.start_ns or 0) <= report.began_ns <= end_ns
                ]
                regions = page_regions(
                    _merge_looks(child_reports, self._looked.get((copy, child.position), [])),
                    self._setup.orders[child.step.benchmark],
                    self._setup.huge_bytes,
                )
                yield PagesHad(self._phase, copy, child.position, regions)


def _merge_looks(reports: list[ProcessSeen], looked: list[ProcessSeen]) -> list[ProcessSeen]:
    process_by_id = {(report.pid, report.began_ns): report for report in reports}
    for look in looked:
        key = (look.pid, look.began_ns)
        report_before = process_by_id.get(key)
        if report_before is not None and look.there > report_before.there:
            rest = replace(look.rest, kept=report_before.rest.kept)
            process_by_id[key] = replace(
                look, forks=report_before.forks, troubles=report_before.troubles, rest=rest
            )
    return list(process_by_id.values())


def _process_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None

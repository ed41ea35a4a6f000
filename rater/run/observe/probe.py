"""One sample of a running copy, and of one that waits at its gate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum

from msgspec import Struct, field
from msgspec.structs import replace

from rater.plan.placement.summary import gate_mismatches
from rater.record.events import GateFacts, Noted, Sampled
from rater.record.run import Placement
from rater.run.host.procfs import (
    PAGE_BYTES,
    NumaMaps,
    Stat,
    gate_facts,
    open_process,
    parse_numa_maps,
    parse_sched,
    parse_sizes,
    parse_stat,
    parse_status,
    read_file,
    read_piece,
    threads,
    transparent_huge_page_bytes,
)
from rater.run.host.thread_binding import on_cpu
from rater.run.launcher.copies import Child
from rater.run.launcher.launcher import NAME

# -- Waiting copies checked against the plan before they are let go --------------------------------

_NAMED = 3  # copies of one note


class GateCheck:
    """Compares the CPUs and nodes of waiting copies with the plan; reports each copy once.

    The launcher starts none whose CPUs or memory policy the kernel did not take as they are
    planned. Nodes are those of its cpuset, alike for all, and so are CPUs of those not bound.
    """

    def __init__(self, placements: tuple[Placement, ...], report: Callable[[Noted], None]) -> None:
        self._placements = placements
        self._report = report
        self._reported: set[int] = set()
        self._facts: dict[tuple[int, ...] | None, GateFacts] = {}  # by CPUs

    def check(self, children: Iterable[Child]) -> None:
        """Check copies that wait or have just begun; none of them may be reaped yet."""
        complaints: list[str] = []
        for child in children:
            plan = self._placements[child.copy]
            child.gate_facts = gate_facts = self._facts.get(plan.cpus) or self._read_facts(
                child, plan
            )
            if child.copy in self._reported:
                continue
            for complaint in gate_mismatches(gate_facts, plan.cpus, plan.planned_nodes):
                self._reported.add(child.copy)
                complaints.append(f"copy {child.copy} {complaint}")
        if complaints:
            more_text = f"; and {len(complaints) - _NAMED} more" if len(complaints) > _NAMED else ""
            self._report(
                Noted(f"not placed as planned: {'; '.join(complaints[:_NAMED])}{more_text}")
            )

    def _read_facts(self, child: Child, plan: Placement) -> GateFacts:
        """Read the facts of one copy; those of others differ in their CPUs alone."""
        if plan.cpus is not None and self._facts:
            alike_facts = next(
                (known_facts for cpus, known_facts in self._facts.items() if cpus is not None), None
            )
            if alike_facts is not None:
                self._facts[plan.cpus] = replace(alike_facts, cpus=plan.cpus)
                return self._facts[plan.cpus]
        facts = gate_facts(child.pid)
        if plan.cpus in (None, facts.cpus) and facts.mems is not None:
            self._facts[plan.cpus] = facts
        return facts


# -- One sample of a running copy: the files of its processes in /proc, read by open directories ---

# A sample is bounded whatever a copy starts; the number of what was left out is in the sample.
MOST_PROCESSES = 16
MOST_THREADS = 1024
_MOVES_OF_THREADS = 64  # moves between CPUs are counted for so many of them
_AT_GATE = f"{NAME}\0".encode()  # of a command line: a fork of the launcher
_STAYS_BYTES = 64 << 20  # a smaller copy is read where this thread is: moving costs more
NO_NUMA_MAPS = (
    "this kernel has no /proc/PID/numa_maps (CONFIG_NUMA, CONFIG_PROC_PAGE_MONITOR): on "
    "which NUMA node memory lay is not known"
)
NO_ROLLUP = (
    "this kernel has no /proc/PID/smaps_rollup (Linux 4.14): transparent huge pages are not known"
)
NOT_PERMITTED = (
    "memory of some processes may not be read (they run as another user, or set-uid): as root it "
    "can be"
)
NO_SCHED = "this kernel has no /proc/PID/sched: migrations between CPUs are not known"
NO_CHILDREN = (
    "this kernel has no /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN): processes that a copy "
    "starts are not looked at"
)


class NoSample(Enum):
    """Why there is no sample."""

    AT_GATE = "at gate"  # released, but its exec has not happened yet
    ENDED = "ended"  # or hidden from us


class _Sum(Struct, kw_only=True):
    """Over the processes of one copy."""

    processes: int = 0
    unread: int = 0
    cpus: set[int] = field(default_factory=set)
    allowed: tuple[int, ...] | None = None
    migrations: int | None = None
    pages_migrated: int | None = None
    maps: list[NumaMaps] = field(default_factory=list)
    rollups: list[dict[str, int]] = field(default_factory=list)
    transparent_bytes: int | None = 0
    resident_bytes: list[int] = field(default_factory=list)  # a process each
    # The same with pages of several processes in equal parts, where that was read.
    proportional_bytes: list[int] = field(default_factory=list)
    peak_bytes: int | None = None
    swap_bytes: int | None = None

    def by[Key](self, part: Callable[[NumaMaps], Mapping[Key, int]]) -> dict[Key, int]:
        """Return one of the tables of memory, added up."""
        total_by_key: dict[Key, int] = {}
        for maps in self.maps:
            for key, size_bytes in part(maps).items():
                total_by_key[key] = total_by_key.get(key, 0) + size_bytes
        return total_by_key

    def resident(self) -> int | None:
        """Return the resident memory of all processes; shared pages count once if that was read.

        For processes too small for a huge page it is not read how much they share.
        """
        whole_bytes, shared_bytes = self.resident_bytes, self.proportional_bytes
        if not whole_bytes:
            return None
        if len(whole_bytes) == 1 or not shared_bytes:
            return sum(whole_bytes)
        return sum(shared_bytes) + sum(sorted(whole_bytes)[: len(whole_bytes) - len(shared_bytes)])

    def page_bytes(self, transparent_size: int | None) -> tuple[tuple[int, int], ...] | None:
        """Return all private memory by page size, transparent huge pages with their own."""
        transparent_bytes = self.transparent_bytes
        if transparent_bytes is None or not (self.maps or self.rollups):
            return None
        if self.maps:
            bytes_by_size = self.by(lambda maps: maps.page_bytes)
        elif any(
            rollup.get("Private_Hugetlb") or rollup.get("Shared_Hugetlb") for rollup in self.rollups
        ):
            return None  # of which size is not to be read there
        else:
            bytes_by_size = {PAGE_BYTES: sum(rollup.get("Anonymous", 0) for rollup in self.rollups)}
        if transparent_bytes and transparent_size:
            bytes_by_size[PAGE_BYTES] = max(0, bytes_by_size.get(PAGE_BYTES, 0) - transparent_bytes)
            bytes_by_size[transparent_size] = (
                bytes_by_size.get(transparent_size, 0) + transparent_bytes
            )
        for page_size, size_bytes in self.by(lambda maps: maps.huge_bytes).items():
            bytes_by_size[page_size] = bytes_by_size.get(page_size, 0) + size_bytes
        return tuple(
            sorted(
                (page_size, size_bytes)
                for page_size, size_bytes in bytes_by_size.items()
                if size_bytes
            )
        )


class Probe:
    """Reads copies, on one thread at a time; `unknown` collects what this machine hides.

    `spread`: a big copy is read on the CPU it runs on. Reading takes CPU time from
    somebody where every CPU is busy, and so each copy bears its own instead of one
    bearing all. `adopter` has the processes that lost their parents; None: this process.
    """

    def __init__(self, spread: bool, adopter: int | None = None) -> None:
        self._adopter = adopter or os.getpid()
        self.unknown: dict[str, None] = {}  # a set that keeps the order
        self._spread = spread
        self._has_maps = self._present("numa_maps", NO_NUMA_MAPS)
        self._has_rollup = self._present("smaps_rollup", NO_ROLLUP)
        self._has_sched = self._present("sched", NO_SCHED)
        own_pid = os.getpid()
        self._has_children = self._present(f"task/{own_pid}/children", NO_CHILDREN)
        self._transparent_bytes = transparent_huge_page_bytes()

    def sample(
        self, copy: Child, directory: int, past_gate: bool, orphans: tuple[int, ...] = ()
    ) -> Sampled | NoSample:
        """Return a sample of a copy and of the processes below it.

        `directory` is a descriptor of its /proc/PID. `past_gate` says that an earlier sample
        saw the copy's own program. Children are found through their living parents;
        `orphans` are those of the copy that lost theirs, children of the adopter now.
        """
        begin_ns = time.monotonic_ns()
        total = _Sum()
        try:
            if not past_gate and read_piece("cmdline", directory).startswith(_AT_GATE):
                return NoSample.AT_GATE
            self._add_process(copy.pid, directory, None, total)
            for orphan in orphans:
                self._add_child(orphan, self._adopter, total)
        except OSError as error:
            if isinstance(error, PermissionError):
                self.unknown[NOT_PERMITTED] = None
            return NoSample.ENDED
        if not total.processes:
            return NoSample.ENDED
        nodes = total.by(lambda maps: maps.node_bytes)
        policies = total.by(lambda maps: maps.policy_bytes)
        return Sampled(
            phase=copy.phase,
            copy=copy.copy,
            step=copy.position,
            age_ns=begin_ns - (copy.start_ns or begin_ns),
            processes=total.processes,
            unread=total.unread,
            cpus=tuple(sorted(total.cpus)),
            allowed=total.allowed,
            migrations=total.migrations,
            pages_migrated=total.pages_migrated,
            node_bytes=tuple(sorted(nodes.items())) if total.maps else None,
            policy=max(policies, key=policies.__getitem__, default=None),
            page_bytes=total.page_bytes(self._transparent_bytes),
            rss_bytes=total.resident(),
            peak_bytes=None if total.processes > 1 else total.peak_bytes,
            swap_bytes=total.swap_bytes,
            read_ns=time.monotonic_ns() - begin_ns,
        )

    def _add_process(self, pid: int, directory: int, parent: int | None, total: _Sum) -> None:
        """Add one process, then those below it; those that end meanwhile are no error."""
        stat = parse_stat(read_piece("stat", directory))
        if stat is None or (parent is not None and stat.parent != parent):
            return
        # The first thread may have ended while others go on.
        if stat.dead and stat.threads < 2:
            return
        if total.processes == MOST_PROCESSES:
            total.unread += 1
            return
        total.processes += 1
        if stat.threads == 1:
            tasks = [pid]
            total.cpus.add(stat.cpu)
            self._add_moves(directory, total)
            self._add_status(directory, total)
            self._add_memory(directory, stat, total)
        else:
            tasks = threads(directory)
            total.unread += len(tasks) > MOST_THREADS
            del tasks[MOST_THREADS:]
            self._add_threads(tasks, directory, stat, total)
        for thread in tasks:
            self._add_children(pid, thread, directory, total)

    def _add_threads(self, tasks: list[int], directory: int, stat: Stat, total: _Sum) -> None:
        """Add the threads of a process, and its memory through one that lives."""
        memory_read = False
        for position, thread in enumerate(tasks):
            with suppress(FileNotFoundError, ProcessLookupError):
                thread_directory = os.open(
                    f"task/{thread}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory
                )
                try:
                    thread_stat = parse_stat(read_piece("stat", thread_directory))
                    if thread_stat is None or thread_stat.dead:
                        continue
                    total.cpus.add(thread_stat.cpu)
                    if position < _MOVES_OF_THREADS:
                        self._add_moves(thread_directory, total)
                    if not memory_read:
                        self._add_status(thread_directory, total)
                        self._add_memory(thread_directory, stat, total)
                        memory_read = True
                finally:
                    os.close(thread_directory)

    def _add_moves(self, directory: int, total: _Sum) -> None:
        if self._has_sched:
            moves, pages = parse_sched(read_piece("sched", directory))
            total.migrations = _add_known(total.migrations, moves)
            total.pages_migrated = _add_known(total.pages_migrated, pages)

    def _add_status(self, directory: int, total: _Sum) -> None:
        status = parse_status(read_piece("status", directory))
        if total.processes == 1:
            total.allowed = status.cpus
            total.peak_bytes = status.peak_bytes
        total.swap_bytes = _add_known(total.swap_bytes, status.swap_bytes)

    def _add_memory(self, directory: int, stat: Stat, total: _Sum) -> None:
        is_big = stat.rss_pages * PAGE_BYTES >= _STAYS_BYTES
        with on_cpu(stat.cpu if self._spread and is_big else None):
            try:
                resident_bytes = stat.rss_pages * PAGE_BYTES
                if self._has_maps:
                    maps = parse_numa_maps(read_file("numa_maps", directory))
                    if not maps.resident_bytes:  # a process that ended since has no memory
                        raise ProcessLookupError
                    total.maps.append(maps)
                    resident_bytes = maps.resident_bytes
                    small_page_bytes = sum(maps.page_bytes.values())
                    is_possible = (
                        self._transparent_bytes and small_page_bytes >= self._transparent_bytes
                    )
                else:
                    is_possible = True
                if is_possible:
                    self._add_rollup(directory, total)
            except PermissionError:
                self.unknown[NOT_PERMITTED] = None
                total.unread += 1
            total.resident_bytes.append(resident_bytes)
            if total.processes == 1 and total.peak_bytes is not None and total.maps:
                # VmHWM leaves out hugetlb pages; at their peak or not, they are there now.
                total.peak_bytes += sum(total.maps[-1].huge_bytes.values())

    def _add_rollup(self, directory: int, total: _Sum) -> None:
        if not self._has_rollup:
            total.transparent_bytes = None
            return
        sizes = parse_sizes(read_file("smaps_rollup", directory))
        total.rollups.append(sizes)
        total.transparent_bytes = _add_known(total.transparent_bytes, sizes.get("AnonHugePages"))
        if "Pss" in sizes:
            # Pss leaves out hugetlb pages.
            pool_bytes = sum(total.maps[-1].huge_bytes.values()) if self._has_maps else 0
            total.proportional_bytes.append(sizes["Pss"] + pool_bytes)

    def _add_children(self, pid: int, thread: int, directory: int, total: _Sum) -> None:
        if not self._has_children:
            return
        with suppress(FileNotFoundError, ProcessLookupError):
            for name in read_file(f"task/{thread}/children", directory).split():
                if total.processes + total.unread >= 2 * MOST_PROCESSES:
                    return
                self._add_child(int(name), pid, total)

    def _add_child(self, pid: int, parent: int, total: _Sum) -> None:
        """Add a child of a process, if it is one still."""
        with suppress(FileNotFoundError, ProcessLookupError):
            directory = open_process(pid)
            try:
                self._add_process(pid, directory, parent, total)
            finally:
                os.close(directory)

    def _present(self, name: str, consequence: str) -> bool:
        if os.path.exists(f"/proc/self/{name}"):  # noqa: PTH110 (as the names below it)
            return True
        self.unknown[consequence] = None
        return False


def _add_known(total: int | None, more: int | None) -> int | None:
    return total if more is None else (total or 0) + more

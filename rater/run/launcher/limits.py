"""Limits of this process that are too low for a run, and why the kernel ended a copy."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGBUS, SIGKILL, SIGXCPU, SIGXFSZ

from msgspec import Struct

from rater.plan.schedule import Order, Plan
from rater.run.host.admission import LimitingGroup, limiting_groups
from rater.run.host.procfs import (
    capabilities,
    counted,
    find_count,
    read_if_there,
    read_number,
    stalls_of,
)
from rater.system.errors import InputError

# -- Open files: limits that counters need, and pipes above the descriptors of programs ------------

FIRST_FREE_FD = 10  # below lie the numbers that a spawned program gets its descriptors on
_FDS_OTHER = 64  # files opened while copies run: pipes, trio, outputs that are judged


def _count_open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number
    except OSError:
        return 0


def _count_needed_files(copies: int, events: int) -> int:
    # A copy that is repeated has another run that waits behind the one that goes on.
    return 2 * copies * events + _FDS_OTHER + _count_open_files()


def open_files_problem(copies: int, *, events: int = 0, coming_files: int = 0) -> str | None:
    """Return why so many copies cannot open the files that they need; None: they can.

    `events` are counted of each copy, with a file for each. `coming_files` are those that rater
    itself will have opened until then.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _count_needed_files(copies, events) + coming_files
    if hard == resource.RLIM_INFINITY or needed <= hard:
        return None
    counters, smaller = (
        (f" with {events} counters each", ", or count smaller groups") if events else ("", "")
    )
    return (
        f"{copies} copies{counters} need {needed} open files, the hard limit here is {hard}: raise "
        f"it (`ulimit -Hn`, limits.conf, LimitNOFILE=) or run fewer copies{smaller}"
    )


def raise_limit(copies: int, events: int) -> None:
    """Raise our soft limit of open files to what counters of the copies need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    problem = open_files_problem(copies, events=events)
    if problem:
        raise InputError(problem)
    needed = _count_needed_files(copies, events)
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def pipe_above_gate_descriptors() -> tuple[int, int]:
    """Return a pipe whose ends lie above the descriptors that programs are given."""
    ends = os.pipe()
    if min(ends) >= FIRST_FREE_FD:
        return ends
    try:
        read_end, write_end = (
            fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD) for end in ends
        )
    finally:
        for end in ends:
            os.close(end)
    return read_end, write_end


# -- Limits of this process (`ulimit`) that are too small for a run, refused before it begins ------

# Needs of rater itself until it starts copies, with a margin.
_LEAST_FILES = 32
_LEAST_MEMORY_BYTES = 128 << 20  # of address space: libraries, stacks of threads
_TASKS_OTHER = 6  # processes and threads: launcher, checker, threads of rater
_LEAST_FILE_BYTES = 16 << 20  # the database and its log
_UNLIMITED = resource.RLIM_INFINITY
# CAP_SYS_ADMIN and CAP_SYS_RESOURCE: the limit of processes does not hold for their owners.
_EXEMPT_CAPABILITIES = 1 << 21 | 1 << 24


def refuse_small_limits() -> None:
    """Raise `InputError` where rater could not even begin a run; takes less than a millisecond."""
    files, size = (
        resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)
    )
    problems = []
    if files != _UNLIMITED and files < _LEAST_FILES:
        problems.append(
            f"{files} files may be open (`ulimit -n`), rater itself needs {_LEAST_FILES}"
        )
    if size != _UNLIMITED and size < _LEAST_FILE_BYTES:
        problems.append(
            f"a file may have {size} bytes (`ulimit -f`), the database needs "
            f"{_LEAST_FILE_BYTES >> 20} MB"
        )
    try:
        mmap.mmap(-1, _LEAST_MEMORY_BYTES, mmap.MAP_PRIVATE).close()
    except OSError:
        problems.append(
            f"no {_LEAST_MEMORY_BYTES >> 20} MB of memory are to be had (`ulimit -v`, `ulimit "
            "-d`), which rater itself needs"
        )
    _raise_problems(problems, 1)


def refuse_copies(plan: Plan, events: int = 0) -> None:
    """Raise `InputError` where copies of a plan could not start; `events` are counted of each."""
    files_problem = open_files_problem(plan.copies, events=events, coming_files=_LEAST_FILES)
    follows = plan.order is Order.ROTATED or plan.window is not None
    _raise_problems([files_problem] if files_problem else [], plan.copies * (2 if follows else 1))


def _raise_problems(problems: list[str], copies: int) -> None:
    tasks_problems = (_tasks_problem(copies), tasks_of_groups_problem(copies))
    problems += [problem for problem in tasks_problems if problem]
    if problems:
        raise InputError("limits are too small: " + "; ".join(problems))


def _tasks_problem(copies: int) -> str | None:
    """Return why so many processes cannot start; others of the same user count too."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    needed = copies + _TASKS_OTHER
    if limit == _UNLIMITED or os.getuid() == 0 or _EXEMPT_CAPABILITIES & capabilities():
        return None
    existing = _count_tasks_of_user() if limit < 100 * needed else 0  # counting takes a while
    if existing + needed <= limit:
        return None
    return (
        f"this user may have {limit} processes and threads (`ulimit -u`) and has {existing}; "
        f"{needed} more are needed"
    )


def tasks_of_groups_problem(copies: int, root: Path = Path("/")) -> str | None:
    """Return why our cgroups, or those above them, have no room for so many processes."""
    needed = copies + _TASKS_OTHER
    for folder, _, name in limiting_groups(root, "pids"):
        limit, existing = read_number(folder / "pids.max"), read_number(folder / "pids.current")
        if limit is not None and existing is not None and existing + needed > limit:
            return (
                f"cgroup {name} may have {limit} processes and threads (pids.max) and has "
                f"{existing}; {needed} more are needed"
            )
    return None


def _count_tasks_of_user() -> int:
    task_count = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    task_count += sum(1 for _ in (process / "task").iterdir())
    return task_count


# -- Why the kernel ended a copy: its limits, and counts of the kernel before and after ------------

_LIMIT_BY_SIGNAL: Mapping[int, str] = {
    SIGKILL: "cpu time",
    SIGXCPU: "cpu time",
    SIGXFSZ: "file size",
}
# For its limits the kernel counts CPU time by ticks, which can be somewhat more than it reports: so
# much of a limit counts as all of it.
_NEAR_SHARE = 0.9
_NEAR_S = 0.2
type ProcessLimits = Mapping[str, tuple[int, int]]  # soft, hard; -1: unlimited


def limits_at_end(pid: int) -> ProcessLimits:
    """Return the limits of a child of ours that has ended and was not reaped."""
    return {
        "cpu time": resource.prlimit(pid, resource.RLIMIT_CPU),
        "file size": resource.prlimit(pid, resource.RLIMIT_FSIZE),
    }


_MACHINE_WAS_FULL = ": the machine's memory was used up"
_HIDDEN_LIMIT = (
    " for want of memory: neither the machine nor a cgroup that rater sees counted a shortage, so "
    "it was a limit above this container"
)
# A copy may have gone into another cgroup by itself: a container, cgexec.
_KILLED_ELSEWHERE = (
    "the kernel killed it or a process did: meanwhile the kernel killed for want of memory in a "
    "cgroup other than rater's"
)
# The kernel gives out memory of a cgroup by so much: what does not fit is never counted as used.
_BATCH_BYTES = 64 * mmap.PAGESIZE


class _MemoryCounts(Struct, frozen=True, kw_only=True):
    """What the kernel has counted of memory that was not to be had, with None for the unknown."""

    kills: int | None  # in our cgroup and below it, else on the machine
    machine_kills: int | None  # wherever the limit was
    machine_waits: int | None  # allocations that found the machine itself, no cgroup, full
    limit_hits: dict[str, int]  # by words about a cgroup and its limit, ours before those above
    at_limit: tuple[str, ...]  # words about those whose most use reached the limit, whenever it was
    huge_pages: dict[str, int]  # by words about a cgroup and a size of pages

    def were_kills_elsewhere(self, earlier: _MemoryCounts) -> bool:
        """Tell whether it is known of a kill since then in a cgroup that is not ours."""
        on_machine = _rise(earlier.machine_kills, self.machine_kills)
        in_group = _rise(earlier.kills, self.kills)
        return on_machine is not None and in_group is not None and on_machine > in_group

    def machine_ran_out(self, earlier: _MemoryCounts) -> bool | None:
        """Tell whether the machine's own memory was used up since an earlier reading.

        The count of kills rises for limits of cgroups too, the waits for the machine alone; None
        where only the first is counted.
        """
        if not _rose(earlier.machine_kills, self.machine_kills):
            return False
        return _rose(earlier.machine_waits, self.machine_waits)


def _rise(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else later - earlier


def _rose(earlier: int | None, later: int | None) -> bool | None:
    rise = _rise(earlier, later)
    return None if rise is None else rise > 0


def _risen(earlier: Mapping[str, int], later: Mapping[str, int]) -> list[str]:
    return [text for text, count in later.items() if count > earlier.get(text, count)]


class KernelKills:
    """Counts of the kernel when it kills for want of memory or refuses memory, from now on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._earlier = self._read_counts()
        self._explained = 0  # kills that a copy was told of
        self._is_stale = False  # a copy was killed since the counts were read

    def begin_phase(self, vmstat: bytes | None = None) -> None:
        """Count from now on. `vmstat` is the text of /proc/vmstat, which is read without one.

        Most phases end without a kill: to see that the kernel counted none is a hundredth of
        reading what all groups count.
        """
        killed = find_count(self._read_vmstat() if vmstat is None else vmstat, b"oom_kill")
        if self._is_stale or killed is None or killed != self._earlier.machine_kills:
            self._earlier, self._explained, self._is_stale = self._read_counts(), 0, False

    def cause(
        self, signal_number: int, cpu_s: float, limits: ProcessLimits, *, handed_on: bool = False
    ) -> str | None:
        """Return in words why a signal that rater did not send ended a copy, if that is known.

        `handed_on`: the signal ended a command of the copy, and its shell handed it on. Each kill
        that the kernel counts explains one copy.
        """
        if signal_number != SIGBUS and signal_number not in _LIMIT_BY_SIGNAL:
            return None
        if limit_text := _explain_by_limit(signal_number, cpu_s, limits):
            return limit_text
        counts, self._is_stale = self._read_counts(), True
        if signal_number == SIGBUS:
            return next(iter(_risen(self._earlier.huge_pages, counts.huge_pages)), None)
        return self._killer(counts, handed_on=handed_on) if signal_number == SIGKILL else None

    def _killer(self, counts: _MemoryCounts, *, handed_on: bool) -> str | None:
        if counts.kills is not None and self._earlier.kills is not None:
            if counts.kills > self._earlier.kills + self._explained:
                self._explained += 1
                return f"the kernel killed it{self._describe_shortage(counts)}"
            if counts.were_kills_elsewhere(self._earlier):
                return _KILLED_ELSEWHERE
            if not handed_on:
                return "a process sent it: the kernel counted no kill for want of memory"
        return None if handed_on else "killed from outside"

    def _describe_shortage(self, counts: _MemoryCounts) -> str:
        machine_ran_out = counts.machine_ran_out(self._earlier)
        hit = _risen(self._earlier.limit_hits, counts.limit_hits)
        # Linux 6.18 kills at limits of version 1 and counts no hit: their use has reached them.
        if not hit and not machine_ran_out:
            hit = [*counts.at_limit]
        if hit:
            return f": {hit[0]}"
        return _HIDDEN_LIMIT if machine_ran_out is False else _MACHINE_WAS_FULL

    def _read_vmstat(self) -> bytes:
        return read_if_there(self._root / "proc/vmstat")

    def _read_counts(self) -> _MemoryCounts:
        vmstat = self._read_vmstat()
        machine_kills = find_count(vmstat, b"oom_kill")
        kills = None
        limit_hits: dict[str, int] = {}
        at_limit: list[str] = []
        for group in limiting_groups(self._root, "memory"):
            own_kills = counted(
                group.folder / ("memory.oom_control" if group.is_v1 else "memory.events"),
                "oom_kill",
            )
            kills = own_kills if kills is None else kills
            for limit in _limits_of(group):
                if limit.hits is not None:
                    limit_hits[limit.text] = limit.hits
                if limit.is_reached:
                    at_limit.append(limit.text)
        huge_pages = {}
        for folder, is_v1, name in limiting_groups(self._root, "hugetlb"):
            for file in folder.glob("hugetlb.*.failcnt" if is_v1 else "hugetlb.*.events"):
                hits = read_number(file) if is_v1 else counted(file, "max")
                if hits is not None:
                    huge_pages[f"huge pages of cgroup {name} were used up ({file.stem})"] = hits
        return _MemoryCounts(
            kills=machine_kills if kills is None else kills,
            machine_kills=machine_kills,
            machine_waits=stalls_of(vmstat),
            limit_hits=limit_hits,
            at_limit=tuple(at_limit),
            huge_pages=huge_pages,
        )


class _GroupLimit(Struct, frozen=True, kw_only=True):
    """A limit of memory of one cgroup."""

    text: str  # what to say where it is the cause
    hits: int | None  # how often it was reached; None: not counted
    is_reached: bool  # whether the most that was used has reached it


def _limits_of(group: LimitingGroup) -> Iterator[_GroupLimit]:
    """Yield the limits of memory of a cgroup, first the one that the kernel holds first.

    Version 1 has one of memory with swap beside that of memory, and asks for the first before.
    Version 2 counts in `memory.events.local` what the limit of the cgroup itself did; its
    `memory.events` has those of all cgroups below it as well.
    """
    folder, is_v1, name = group
    together = ""
    if not is_v1 and read_number(folder / "memory.oom.group") == 1:
        together = ", and all processes of that cgroup are killed together (memory.oom.group)"
    both = [("memory and swap", "were", "memory.memsw"), ("memory", "was", "memory")]
    for noun, verb, controller in both if is_v1 else both[1:]:
        limit_bytes = group.limit(controller)
        if limit_bytes is None:
            continue
        peak = f"{controller}.max_usage_in_bytes" if is_v1 else "memory.peak"
        peak_bytes = read_number(folder / peak)
        yield _GroupLimit(
            text=f"{noun} of cgroup {name} ({limit_bytes / 1e6:.0f} MB) {verb} used up{together}",
            hits=read_number(folder / f"{controller}.failcnt") if is_v1 else _events(folder, "oom"),
            is_reached=peak_bytes is not None and peak_bytes > limit_bytes - _BATCH_BYTES,
        )


def _events(folder: Path, name: str) -> int | None:
    own = counted(folder / "memory.events.local", name)
    return counted(folder / "memory.events", name) if own is None else own


def _explain_by_limit(signal_number: int, cpu_s: float, limits: ProcessLimits) -> str | None:
    soft, hard = limits.get(_LIMIT_BY_SIGNAL.get(signal_number, ""), (_UNLIMITED, _UNLIMITED))
    limit = hard if signal_number == SIGKILL else soft
    if limit == _UNLIMITED:
        return None
    if signal_number == SIGXFSZ:
        return f"a file may have {limit} bytes (`ulimit -f`)"
    if signal_number == SIGXCPU:
        limit -= 1  # the kernel raises it by a second when it sends this
    if cpu_s >= _NEAR_SHARE * limit - _NEAR_S:
        return f"it used {cpu_s:.2f} s of CPU time, the limit is {limit} (`ulimit -t`)"
    return None

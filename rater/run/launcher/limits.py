"""Limits of this process that a run needs higher; what the kernel ended a copy for."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGBUS, SIGKILL, SIGXCPU, SIGXFSZ

from rater.plan.schedule import Order, Plan
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import capabilities, counted, read_number
from rater.system.errors import InputError

# -- Open files: what counters need, and pipes out of the way of what programs are given -----------

FIRST_FREE_FD = 10  # below lie the numbers that a spawned program gets its descriptors on
_FDS_OTHER = 64  # what is opened while copies run: pipes, trio, outputs that are judged


def _count_open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only how many there are
    except OSError:
        return 0


def _count_needed_files(copies: int, events: int) -> int:
    # Of a copy that is repeated another run waits behind the one that goes on.
    return 2 * copies * events + _FDS_OTHER + _count_open_files()


def open_files_problem(copies: int, *, events: int = 0, coming: int = 0) -> str | None:
    """Return why so many copies cannot have the files they need open; None: they can.

    `events`: that are counted of each copy, a file each; `coming`: files that rater itself will
    have opened until then.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _count_needed_files(copies, events) + coming
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
    """Return a pipe whose ends lie above the descriptors that a gate's own are put on."""
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


# -- Limits of this process (`ulimit`) that are too small for a run: told before it begins ---------

# What rater itself takes until it starts copies, and a little more.
_LEAST_FILES = 32
_LEAST_MEMORY_BYTES = 128 << 20  # of address space: libraries, stacks of threads
_TASKS_OTHER = 6  # processes and threads: launcher, checker, threads of rater
_LEAST_FILE_BYTES = 16 << 20  # the database and its log
_UNLIMITED = resource.RLIM_INFINITY
_EXEMPT_CAPABILITIES = (
    1 << 21 | 1 << 24
)  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE: the limit of processes is not theirs


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
            "-d`), which "
            "rater itself needs"
        )
    _raise_problems(problems, 1)


def refuse_copies(plan: Plan, events: int = 0) -> None:
    """Raise `InputError` where copies of a plan could not be started; `events`: counted of each."""
    files = open_files_problem(plan.copies, events=events, coming=_LEAST_FILES)
    follows = plan.order is Order.ROTATED or plan.window is not None
    _raise_problems([files] if files else [], plan.copies * (2 if follows else 1))


def _raise_problems(problems: list[str], copies: int) -> None:
    tasks = _tasks_problem(copies)
    problems += [tasks] if tasks else []
    if problems:
        raise InputError("limits are too small: " + "; ".join(problems))


def _tasks_problem(copies: int) -> str | None:
    """Return why so many processes cannot be started: the user has others, which count too."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    needed = copies + _TASKS_OTHER
    if limit == _UNLIMITED or os.getuid() == 0 or _EXEMPT_CAPABILITIES & capabilities():
        return None
    there = _count_tasks_of_user() if limit < 100 * needed else 0  # to count them takes a while
    if there + needed <= limit:
        return None
    return (
        f"this user may have {limit} processes and threads (`ulimit -u`) and has {there}; "
        f"{needed} more are needed"
    )


def _count_tasks_of_user() -> int:
    own = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    own += sum(1 for _ in (process / "task").iterdir())
    return own


# -- What the kernel ended a copy for: limits that it had, counts of the kernel before and after ---

_LIMIT_BY_SIGNAL: Mapping[int, str] = {
    SIGKILL: "cpu time",
    SIGXCPU: "cpu time",
    SIGXFSZ: "file size",
}
_NEAR_SHARE, _NEAR_S = 0.9, 0.2  # by ticks the kernel counts somewhat more CPU time than it tells
type ProcessLimits = Mapping[str, tuple[int, int]]  # soft, hard; -1: unlimited


def limits_at_end(pid: int) -> ProcessLimits:
    """Return the limits of a child of ours that ended and was not reaped."""
    return {
        "cpu time": resource.prlimit(pid, resource.RLIMIT_CPU),
        "file size": resource.prlimit(pid, resource.RLIMIT_FSIZE),
    }


class KernelKills:
    """What the kernel counts when it kills for memory, or refuses memory; from now on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._kills, self._refusals = self._read_counts()

    def cause(
        self, number: int, cpu_s: float, limits: ProcessLimits, *, handed_on: bool = False
    ) -> str | None:
        """Say why a signal that rater did not send ended a copy; None where that is not known.

        `handed_on`: it ended a command of the copy, a shell. Each kill explains one copy.
        """
        if number != SIGBUS and number not in _LIMIT_BY_SIGNAL:
            return None
        if limit := _explain_by_limit(number, cpu_s, limits):
            return limit
        kills, refusals = self._read_counts()
        risen = [words for words, n in refusals.items() if n > self._refusals.get(words, n)]
        if number == SIGBUS:
            return next((it for it in risen if it.startswith("huge pages")), None)
        if number == SIGKILL and kills is not None and self._kills is not None:
            if kills > self._kills:
                self._kills += 1
                of_group = (it for it in risen if it.startswith("memory"))
                where = next(of_group, "the machine's memory")
                return f"the kernel killed it: {where} was used up"
            if not handed_on:
                return "a process sent it: the kernel counted no kill for want of memory"
        return "killed from outside" if number == SIGKILL and not handed_on else None

    def _read_counts(self) -> tuple[int | None, dict[str, int]]:
        """Return kills for memory (of our cgroup, else of the machine), refusals by words."""
        kills, refusals = None, {}
        for group in limiting_groups(self._root, "memory"):
            folder, is_v1, name = group
            events = folder / ("memory.oom_control" if is_v1 else "memory.events")
            kills = counted(events, "oom_kill") if kills is None else kills
            limit = group.limit("memory")
            most = read_number(folder / "memory.failcnt") if is_v1 else counted(events, "oom")
            if limit is not None and most is not None:
                refusals[f"memory of cgroup {name} ({limit / 1e6:.0f} MB)"] = most
        for folder, is_v1, name in limiting_groups(self._root, "hugetlb"):
            for file in folder.glob("hugetlb.*.failcnt" if is_v1 else "hugetlb.*.events"):
                most = read_number(file) if is_v1 else counted(file, "max")
                if most is not None:
                    refusals[f"huge pages of cgroup {name} were used up ({file.stem})"] = most
        if kills is None:
            kills = counted(self._root / "proc/vmstat", "oom_kill")
        return kills, refusals


def _explain_by_limit(number: int, cpu_s: float, limits: ProcessLimits) -> str | None:
    soft, hard = limits.get(_LIMIT_BY_SIGNAL.get(number, ""), (_UNLIMITED, _UNLIMITED))
    limit = hard if number == SIGKILL else soft
    if limit == _UNLIMITED:
        return None
    if number == SIGXFSZ:
        return f"a file may have {limit} bytes (`ulimit -f`)"
    if number == SIGXCPU:
        limit -= 1  # the kernel raises it by a second when it sends this
    if cpu_s >= _NEAR_SHARE * limit - _NEAR_S:
        return f"it used {cpu_s:.2f} s of CPU time, the limit is {limit} (`ulimit -t`)"
    return None

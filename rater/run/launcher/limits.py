"""Limits of this process that are too low for a run, and why the kernel ended a copy."""

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
    tasks_problem = _tasks_problem(copies)
    problems += [tasks_problem] if tasks_problem else []
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


class KernelKills:
    """Counts of the kernel when it kills for want of memory or refuses memory, from now on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._kills, self._refusals = self._read_counts()

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
        kills, refusals = self._read_counts()
        risen_refusals = [
            refusal
            for refusal, refused_count in refusals.items()
            if refused_count > self._refusals.get(refusal, refused_count)
        ]
        if signal_number == SIGBUS:
            return next((it for it in risen_refusals if it.startswith("huge pages")), None)
        if signal_number == SIGKILL and kills is not None and self._kills is not None:
            if kills > self._kills:
                self._kills += 1
                of_group = (it for it in risen_refusals if it.startswith("memory"))
                where = next(of_group, "the machine's memory")
                return f"the kernel killed it: {where} was used up"
            if not handed_on:
                return "a process sent it: the kernel counted no kill for want of memory"
        return "killed from outside" if signal_number == SIGKILL and not handed_on else None

    def _read_counts(self) -> tuple[int | None, dict[str, int]]:
        """Return kills for memory (of our cgroup, else of the machine), refusals by words."""
        kills, refusals = None, {}
        for group in limiting_groups(self._root, "memory"):
            folder, is_v1, name = group
            events = folder / ("memory.oom_control" if is_v1 else "memory.events")
            kills = counted(events, "oom_kill") if kills is None else kills
            limit = group.limit("memory")
            limit_hits = read_number(folder / "memory.failcnt") if is_v1 else counted(events, "oom")
            if limit is not None and limit_hits is not None:
                refusals[f"memory of cgroup {name} ({limit / 1e6:.0f} MB)"] = limit_hits
        for folder, is_v1, name in limiting_groups(self._root, "hugetlb"):
            for file in folder.glob("hugetlb.*.failcnt" if is_v1 else "hugetlb.*.events"):
                limit_hits = read_number(file) if is_v1 else counted(file, "max")
                if limit_hits is not None:
                    refusals[f"huge pages of cgroup {name} were used up ({file.stem})"] = limit_hits
        if kills is None:
            kills = counted(self._root / "proc/vmstat", "oom_kill")
        return kills, refusals


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

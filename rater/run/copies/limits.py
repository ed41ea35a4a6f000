"""Limits of this process that a run needs higher, open files among them."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

from rater.errors import InputError
from rater.plan.schedule import Order, Plan

# -- Open files: the limit that copies need, and pipes out of the way of what they are given -------

FIRST_FREE_FD = 10  # below lie the numbers that a spawned program gets its descriptors on
_FDS_PER_COPY = 2  # a pidfd, and the writing end of its own gate
_FDS_OTHER = 64  # what is opened while copies run: pipes, trio, outputs that are judged


def _open_files() -> int:
    """Return how many descriptors are open already, inherited ones too."""
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only how many there are
    except OSError:
        return 0


def _needed_files(copies: int, own_gates: bool, events: int) -> int:
    return copies * ((_FDS_PER_COPY if own_gates else 1) + events) + _FDS_OTHER + _open_files()


def open_files_problem(
    copies: int, own_gates: bool = False, *, events: int = 0, coming: int = 0
) -> str | None:
    """Return why so many copies cannot have the files they need open; None: they can.

    `events`: that are counted of each copy, a file each; `coming`: files that rater itself will
    have opened until then.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _needed_files(copies, own_gates, events) + coming
    if hard == resource.RLIM_INFINITY or needed <= hard:
        return None
    counters, smaller = (
        (f" with {events} counters each", ", or count smaller groups") if events else ("", "")
    )
    return (
        f"{copies} copies{counters} need {needed} open files, the hard limit here is {hard}: raise "
        f"it (`ulimit -Hn`, limits.conf, LimitNOFILE=) or run fewer copies{smaller}"
    )


_raised_from: tuple[int, int] | None = None  # (our limit, the user's)


def raise_limit(copies: int, own_gates: bool, events: int = 0) -> int:
    """Raise our soft limit of open files to what the copies need; return the original one."""
    global _raised_from  # noqa: PLW0603 - a limit of this process, raised phase by phase
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Raised before by us, for an earlier phase: the user's own limit is the one before that.
    original = _raised_from[1] if _raised_from and _raised_from[0] == soft else soft
    needed = _needed_files(copies, own_gates, events)
    problem = open_files_problem(copies, own_gates, events=events)
    if problem:
        raise InputError(problem)
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        _raised_from = (needed, original)
    return original


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
_FILES = 32
_ROOM_BYTES = 128 << 20  # of address space: libraries, stacks of threads
_TASKS = 6  # processes and threads: watchdog, checker, threads of rater
_FILE_BYTES = 16 << 20  # the database and its log
_UNLIMITED = resource.RLIM_INFINITY
_ADMIN, _RESOURCE = 21, 24  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE: the limit of processes is not theirs


def refuse_small_limits() -> None:
    """Raise `InputError` where rater could not even begin a run; takes less than a millisecond."""
    files, size = (
        resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)
    )
    problems = []
    if files != _UNLIMITED and files < _FILES:
        problems.append(f"{files} files may be open (`ulimit -n`), rater itself needs {_FILES}")
    if size != _UNLIMITED and size < _FILE_BYTES:
        problems.append(
            f"a file may have {size} bytes (`ulimit -f`), the database needs {_FILE_BYTES >> 20} MB"
        )
    try:
        mmap.mmap(-1, _ROOM_BYTES, mmap.MAP_PRIVATE).close()
    except OSError:
        problems.append(
            f"no {_ROOM_BYTES >> 20} MB of memory are to be had (`ulimit -v`, `ulimit -d`), which "
            "rater itself needs"
        )
    _refuse(problems, 1)


def refuse_copies(plan: Plan, events: int = 0) -> None:
    """Raise `InputError` where copies of a plan could not be started; `events`: counted of each."""
    own_gates = bool(plan.order is Order.ROTATED or plan.stagger_ns or plan.window)
    files = open_files_problem(plan.copies, own_gates, events=events, coming=_FILES)
    _refuse([files] if files else [], plan.copies)


def _refuse(problems: list[str], copies: int) -> None:
    tasks = _tasks_problem(copies)
    problems += [tasks] if tasks else []
    if problems:
        raise InputError("limits are too small: " + "; ".join(problems))


def _tasks_problem(copies: int) -> str | None:
    """Return why so many processes cannot be started: the user has others, which count too."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    needed = copies + _TASKS
    if limit == _UNLIMITED or os.getuid() == 0 or _may_have_more():
        return None
    there = _own_tasks() if limit < 100 * needed else 0  # to count them takes a while
    if there + needed <= limit:
        return None
    return (
        f"this user may have {limit} processes and threads (`ulimit -u`) and has {there}; "
        f"{needed} more are needed"
    )


def _may_have_more() -> bool:
    found = re.search(r"\nCapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    held = int(found[1], 16) if found else 0
    return bool(held & (1 << _ADMIN | 1 << _RESOURCE))


def _own_tasks() -> int:
    """Return how many processes and threads this user has."""
    own = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    own += sum(1 for _ in (process / "task").iterdir())
    return own

"""Open files: the limit that copies need, and pipes out of the way of what they are given."""

from __future__ import annotations

import fcntl
import os
import resource

from rater.errors import InputError

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


def high_pipe() -> tuple[int, int]:
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

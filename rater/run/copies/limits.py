"""Limits of this process (`ulimit`) that are too small for a run: told before it begins."""

from __future__ import annotations

import mmap
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

from rater.errors import InputError
from rater.plan.schedule.phases import Order, Plan
from rater.run.copies.open_files import open_files_problem

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

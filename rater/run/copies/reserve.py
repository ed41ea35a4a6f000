"""The supervisor on the cores kept for it: all its threads, and the watchdog, away from copies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rater.errors import InputError
from rater.text.cpuset import format_list

_TASKS = Path("/proc/self/task")


@contextmanager
def living_on(cpus: Iterable[int], others: Iterable[int] = ()) -> Iterator[None]:
    """Keep this process, threads that begin later included, and the processes `others` on `cpus`.

    `cpus` are OS numbers; none: nothing changes. Enter it when all that may use the whole
    machine (compilers, set-ups) is done and before copies are spawned: each of these
    is bound by its spawning thread, so it does not inherit this. Left, every thread has the
    CPUs that the calling one had before; `others` stay where they are.
    Raises `InputError` when the kernel does not allow it.
    """
    wanted = frozenset(cpus)
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        _bind_threads(wanted)
        for pid in others:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, wanted)
    except OSError as error:
        _bind_threads(before)
        raise InputError(
            f"--reserve: the kernel does not let rater run on CPUs {format_list(sorted(wanted))} "
            f"({error.strerror}); see the cpuset of this shell, or leave --reserve out"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # CPUs went offline meanwhile: the kernel has seen to it
            _bind_threads(before)


def _bind_threads(cpus: Iterable[int]) -> None:
    for task in _TASKS.iterdir():
        with suppress(ProcessLookupError):  # it ended
            os.sched_setaffinity(int(task.name), cpus)

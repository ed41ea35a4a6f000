"""Let the supervisor's own threads run when a copy ends, even when every CPU is busy.

With more runnable copies than CPUs an ordinary thread wakes tens of milliseconds
late, and every finish would be stamped late by as much. As the supervisor sleeps
nearly always, real-time priority costs the copies nothing; what it starts gets
ordinary priority back (SCHED_RESET_ON_FORK).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def urgent() -> Iterator[bool]:
    """Run the calling thread at real-time priority if that is allowed; yield whether it is.

    Left alone when the user chose a policy or niceness: copies are to inherit that.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        yield False
        return
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

"""Whose run is it, and does that rater still live?

A pid alone comes back with another process; with the start of the process and
the boot it is unique on a machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that makes a run."""

    pid: int
    pid_start: int  # clock ticks after boot (/proc/PID/stat, field 22)
    boot_id: str


def this_process() -> Owner:
    """Return the calling process."""
    pid = os.getpid()
    start = _start_of(pid)
    if start is None:
        raise OSError(f"/proc/{pid}/stat cannot be read: is /proc mounted?")
    return Owner(pid, start, _boot_id())


def is_alive(owner: Owner) -> bool:
    """Tell whether exactly this process still runs, here, since the same boot."""
    return owner.boot_id == _boot_id() and _start_of(owner.pid) == owner.pid_start


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_of(pid: int) -> int | None:
    """Return the start of a process in clock ticks after boot, None when it is dead."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold blanks and parentheses itself.
    fields = text[text.rindex(")") + 1 :].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else int(start)

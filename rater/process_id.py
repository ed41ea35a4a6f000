"""A process by name: does it still live?

A pid alone comes back with another process; with the start of the process and
the boot it is unique on a machine.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = "proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process of this machine, or of a boot before."""

    pid: int
    pid_start: int | None  # clock ticks after boot (/proc/PID/stat, field 22); None: not known
    boot_id: str


def this_process(root: Path = Path("/")) -> ProcessId:
    """Return the calling process; `root` is where the machine's /proc/sys is."""
    pid = os.getpid()
    return ProcessId(pid, start_of(pid), boot_id(root))


def is_alive(process: ProcessId, root: Path = Path("/")) -> bool:
    """Tell whether exactly this process still runs, here, since the same boot."""
    started = start_of(process.pid)
    same = started is not None and process.pid_start in (None, started)
    return same and process.boot_id == boot_id(root)


def boot_id(root: Path = Path("/")) -> str:
    """Return the kernel's random name of this boot, `""` where it has none."""
    for base in (root, Path("/")):
        with suppress(OSError):
            return (base / _BOOT_ID).read_text().strip()
    return ""


def start_of(pid: int) -> int | None:
    """Return the start of a process in clock ticks after boot, None when it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold blanks and parentheses itself.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])

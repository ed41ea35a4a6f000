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
        fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
    return None if fields[3] in b"ZX" else int(fields[22])


def stat_fields(line: bytes, last: int = 52) -> list[bytes]:
    """Return the fields of /proc/PID/stat up to `last`, at the numbers of proc_pid_stat(5).

    Field 1 is the pid, 2 the name without its brackets, 22 the start. What is behind `last`
    is one more field; a line that was cut off has fewer.
    """
    # The name may hold blanks and brackets of its own.
    begin, end = line.find(b"("), line.rfind(b")")
    return [b"", line[: begin - 1], line[begin + 1 : end], *line[end + 2 :].split(b" ", last - 2)]

"""Kill what a dead supervisor left: run as a program of its own, it imports nothing of rater.

`python -I -S watchdog.py PIPE_FD SLOTS_FD MARKER [CGROUP]`: sleeps until the
pipe, which only the supervisor holds open, reaches end of file. A supervisor
that ended in order has emptied its slots by then and closes the pipe after
writing one byte, and nothing is done. Else, within two seconds:

1. the cgroup of the run, when there is one, is killed as a whole;
2. the process groups in the slots (32-bit numbers in a shared memory file,
   kept by the supervisor without a system call) are killed;
3. every process whose environment carries the marker `RATER_RUN=uuid` is
   killed, until none is left: this finds children in sessions of their own.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 1.8
ATTEMPT_GAP_S = 0.02


def kill_groups(slots: bytes) -> None:
    """Kill every process group named in the slots."""
    for (group,) in struct.iter_unpack("=i", slots[: len(slots) // 4 * 4]):
        if group > 1:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)


def kill_marked(is_marker: Callable[[bytes], bool]) -> set[int]:
    """Kill every process but us that has such an entry in its environment; return which."""
    found = set()
    own = os.getpid()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == own:
            continue
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if any(map(is_marker, environment.split(b"\0"))):
            found.add(int(process.name))
            with suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)
    return found


def main(argv: list[str]) -> int:
    """Wait for the supervisor's end and clean up after a bad one."""
    pipe, slots_fd, marker = int(argv[0]), int(argv[1]), argv[2].encode()
    cgroup = Path(argv[3]) if len(argv) > 3 else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if os.read(pipe, 1):
        return 0
    if cgroup is not None:
        with suppress(OSError):
            (cgroup / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + PATIENCE_S
    clean = 0
    while clean < 2 and time.monotonic() < deadline:
        kill_groups(os.pread(slots_fd, os.fstat(slots_fd).st_size, 0))
        clean = 0 if kill_marked(marker.__eq__) else clean + 1
        time.sleep(ATTEMPT_GAP_S)
    while cgroup is not None and cgroup.exists() and time.monotonic() < deadline:
        try:
            cgroup.rmdir()
        except OSError:
            time.sleep(ATTEMPT_GAP_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

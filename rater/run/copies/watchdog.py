"""Kill what a dead supervisor left: run as a program of its own, it imports nothing of rater.

`python -I -S watchdog.py PIPE_FD SLOTS_FD MARKER LIMIT SESSION [CGROUP]`: sleeps until the
pipe, which only the supervisor holds open, reaches end of file. A supervisor
that ended in order has emptied its slots by then and closes the pipe after
writing one byte, and nothing is done. Else, within two seconds:

1. the cgroup of the run, when there is one, is killed as a whole;
2. the process groups in the slots (32-bit numbers in a shared memory file,
   kept by the supervisor without a system call) are killed;
3. every process is killed whose limit of file locks is LIMIT or whose environment has
   the marker `RATER_RUN=uuid`, until none is left: this finds children in sessions of their
   own, orphans, and those with an empty environment.
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

RLIMIT_LOCKS = 10  # asm-generic/resource.h
PATIENCE_S = 1.8
LAST_PATIENCE_S = 60.0  # for what multiplies as fast as it is killed
ATTEMPT_GAP_S = 0.02
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGPIPE)


def kill_groups(slots: bytes) -> None:
    """Kill every process group named in the slots."""
    for (group,) in struct.iter_unpack("=i", slots[: len(slots) // 4 * 4]):
        if group > 1:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)


def kill_marked(
    is_marker: Callable[[bytes], bool], limit: bytes = b"", session: int | None = None
) -> set[int]:
    """Kill every process but us with such an entry in its environment, or this limit of locks.

    `session` is the supervisor's: in another one whole groups are killed, which a process that
    forks as fast as we look cannot slip out of. Return which there were, but for those that
    we may not kill.
    """
    found = set()
    own = os.getpid()
    with os.scandir("/proc") as processes:  # in the order of their numbers, new ones included
        for process in processes:
            if not process.name.isdigit() or int(process.name) == own:
                continue
            if _is_marked(process.path, is_marker, limit):
                with suppress(OSError):
                    found |= {int(process.name)} if _kill(int(process.name), session) else set()
    return found


def _kill(pid: int, session: int | None) -> bool:
    """Kill a process, or its group; tell whether it lived."""
    lived = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    if session is not None and os.getsid(pid) != session:
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return lived


def _is_marked(process: str, is_marker: Callable[[bytes], bool], limit: bytes) -> bool:
    with suppress(OSError):
        if limit and _limit_of_locks(process) == limit:
            return True
    with suppress(OSError):  # not ours to read
        return any(map(is_marker, Path(process, "environ").read_bytes().split(b"\0")))
    return False


def _limit_of_locks(process: str) -> bytes:
    for line in Path(process, "limits").read_bytes().splitlines():
        if line.startswith(b"Max file locks "):
            return line.split()[3]
    return b""


def main(argv: list[str]) -> int:
    """Wait for the supervisor's end and clean up after a bad one."""
    pipe, slots_fd, marker, limit = int(argv[0]), int(argv[1]), argv[2].encode(), argv[3].encode()
    # Told, not looked up: the supervisor may be dead before we look, and a wrong answer would
    # kill the process group of whoever started it.
    session = int(argv[4])
    cgroup = Path(argv[5]) if len(argv) > 5 else None
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if cgroup is not None:  # begun by a supervisor that is inside
        with suppress(OSError):
            (cgroup.parent / "cgroup.procs").write_text("0")
    if os.read(pipe, 1):
        return 0
    if cgroup is not None:
        with suppress(OSError):
            (cgroup / "cgroup.kill").write_text("1")
    began_s = time.monotonic()
    clean = 0
    while clean < 2 and (took_s := time.monotonic() - began_s) < LAST_PATIENCE_S:
        kill_groups(os.pread(slots_fd, os.fstat(slots_fd).st_size, 0))
        clean = 0 if kill_marked(marker.__eq__, limit, session) else clean + 1
        if clean or took_s > PATIENCE_S:  # else at once: what forks for ever must not win
            time.sleep(ATTEMPT_GAP_S)
    while cgroup is not None and cgroup.exists() and time.monotonic() - began_s < PATIENCE_S:
        try:
            cgroup.rmdir()
        except OSError:
            time.sleep(ATTEMPT_GAP_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The watchdog as rater sees it: started, itself watched, dismissed; and the mark it hunts by."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rater.run.copies import watchdog
from rater.run.copies.open_files import FIRST_FREE_FD, high_pipe
from rater.run.copies.spawn import spawn

MARKER = "RATER_RUN"  # environment variable of every copy: the run's uuid
_MARK_BITS = 61
_CHANGED = os.WEXITED | os.WSTOPPED | os.WNOHANG


def limit_mark(mark: str) -> int:
    """Return the number that stands for a mark as a limit."""
    return 1 << _MARK_BITS | int.from_bytes(hashlib.sha256(mark.encode()).digest()) >> (
        256 - _MARK_BITS
    )


@contextmanager
def marked_limit(mark: str) -> Iterator[None]:
    """Give this process, and all that it starts, a limit that is known again.

    It is inherited whatever becomes of environment, session, parent and user. The kernel
    has not looked at it since 2.4.25 (getrlimit(2): RLIMIT_LOCKS).
    """
    soft, hard = resource.getrlimit(watchdog.RLIMIT_LOCKS)
    with suppress(ValueError, OSError):  # a lower hard limit: the environment has to do
        resource.setrlimit(watchdog.RLIMIT_LOCKS, (limit_mark(mark), hard))
    try:
        yield
    finally:
        resource.setrlimit(watchdog.RLIMIT_LOCKS, (soft, hard))


class Watch:
    """The watchdog, and the memory shared with it: `groups`, a process group by slot."""

    def __init__(self, mark: str, slots: int, cgroup: Path | None) -> None:
        memory = os.memfd_create("rater-groups", os.MFD_CLOEXEC)
        self._memory = fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        os.close(memory)
        size = max(4 * slots, mmap.PAGESIZE)
        os.ftruncate(self._memory, size)
        self._map = mmap.mmap(self._memory, size)
        self.groups = memoryview(self._map).cast("i")
        self._argv = [sys.executable, "-I", "-S", "-B", watchdog.__file__, "3", "4"]
        self._argv += [f"{MARKER}={mark}", str(limit_mark(mark)), str(os.getsid(0))]
        self._argv += [] if cgroup is None else [str(cgroup)]
        self.pid, self._pipe = self._start()

    def _start(self) -> tuple[int, int]:
        read_end, write_end = high_pipe()
        try:
            pid = spawn(
                sys.executable,
                self._argv,
                {b"PATH": os.defpath.encode()},
                [
                    (os.POSIX_SPAWN_DUP2, read_end, 3),
                    (os.POSIX_SPAWN_DUP2, self._memory, 4),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                ],
                session=True,
            )
        finally:
            os.close(read_end)
        return pid, write_end

    def is_well(self) -> bool:
        """Tell whether the watchdog neither died nor was stopped. One system call."""
        with suppress(ChildProcessError):  # reaped by somebody
            return os.waitid(os.P_PID, self.pid, _CHANGED | os.WNOWAIT) is None
        return False

    def mend(self) -> str | None:
        """Start the watchdog again where it died, let it go on where it was stopped.

        Return what was wrong in words, None where nothing was. Takes the time of an exec.
        """
        with suppress(ChildProcessError):
            found = os.waitid(os.P_PID, self.pid, _CHANGED)
            if found is None:
                return None
            if found.si_code == os.CLD_STOPPED:
                os.kill(self.pid, signal.SIGCONT)
                return "rater's watchdog was stopped from outside; it was let go on"
        os.close(self._pipe)
        self.pid, self._pipe = self._start()
        return "rater's watchdog was killed from outside; another one was started"

    def dismiss(self, *, hunt: bool) -> None:
        """End the watchdog, or let it kill what is there, as if rater had been killed."""
        with suppress(OSError):  # it is gone already
            if not hunt:
                os.write(self._pipe, b".")
            os.kill(self.pid, signal.SIGCONT)
        os.close(self._pipe)
        if not hunt:
            with suppress(ChildProcessError):
                # Whoever stops it may do so now as well: then nobody else would let it go on.
                while os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1]):
                    os.kill(self.pid, signal.SIGCONT)
        self.groups.release()
        self._map.close()
        os.close(self._memory)

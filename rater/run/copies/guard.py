"""Nothing outlives the supervisor: what copies leave is adopted, killed and named."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from rater.run.copies.cgroup import Cgroup
from rater.run.copies.orphans import Leftover, children, describe, reap_dead
from rater.run.copies.spawn import spawn
from rater.run.copies.watch import Watch, marked_limit

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PAUSE_S = 0.005
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Helpers:
    """Children that are neither copies nor leftovers of copies; they end by themselves.

    Who starts or reaps one holds the lock: it never exists without being entered here.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    pids: set[int] = field(default_factory=set)

    def spawn(self, argv: list[str], environment: Mapping[str, str], fds: Mapping[int, int]) -> int:
        """Start one whose descriptors are `fds` (its number: ours), /dev/null and no others."""
        null = [
            (os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in {0, 1, 2} - fds.keys()
        ]
        with self.lock:
            # Ctrl-C and Ctrl-Z at the terminal are not for it. No session of its own:
            # the kernel may give a session as much as all copies together (autogroups).
            pid = spawn(
                argv[0],
                argv,
                {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
                [*((os.POSIX_SPAWN_DUP2, own, fd) for fd, own in fds.items()), *null],
            )
            self.pids.add(pid)
        return pid

    def end(self, pid: int) -> None:
        """Kill and reap one."""
        with self.lock:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self.pids.discard(pid)


class Guard:
    """The slots, the watchdog and the cgroup of one run. Use as a context manager via `guard`."""

    def __init__(self, mark: str, slots: int, cgroup: Cgroup | None) -> None:
        self.helpers = Helpers()
        self.watch = Watch(mark, slots, None if cgroup is None else cgroup.path)
        # Only now: the watchdog must stay outside.
        self.cgroup = cgroup if cgroup is not None and cgroup.enter() else None
        self._groups = self.watch.groups
        self._past: set[int] = set()  # groups of copies since leftovers were last killed
        self._found: dict[int, Leftover] = {}  # that were killed and named, since then as well
        self._immune: set[int] = set()  # children that may live on: we could not kill them

    def hold(self, slot: int, group: int) -> None:
        """Remember a copy's process group (0: the copy is gone)."""
        self._groups[slot] = group
        if group:
            self._past.add(group)

    def mend_watch(self) -> str | None:
        """See that the watchdog is there; return what was wrong with it."""
        with self.helpers.lock:
            return self.watch.mend()

    def orphans(self, copies: Mapping[int, int]) -> dict[int, list[int]]:
        """Return what living copies left without a parent, which is our child now, by copy.

        `copies`: their numbers by process.
        """
        found: dict[int, list[int]] = {}
        for pid in self._not_ours((*self._groups, *copies)):
            copy = copies.get(_group_of(pid))
            if copy is None:  # of a session of its own
                orphan = describe(pid)
                if orphan is None or orphan.copy is None or not orphan.copy.isdecimal():
                    continue
                copy = int(orphan.copy)
            found.setdefault(copy, []).append(pid)
        return found

    def kill_strays(self) -> None:
        """Kill what left the session of its copy and outlived it, while others live.

        Copies are of our own session, and what stays in their groups dies with them: a
        child of ours in a session of its own is an orphan that we adopted.
        """
        ours = os.getsid(0)
        for pid in self._not_ours(self._groups):
            with suppress(OSError):
                if os.getsid(pid) != ours:
                    self._kill(pid)
                    reap_dead([pid])

    def kill_leftovers(self) -> list[Leftover]:
        """Kill every process that outlived its copy; call only when no copy lives.

        As a child subreaper we adopt orphans, so all of them are our children. Returns
        those that were named since the last call, and whether they are dead.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while mine := self._not_ours(self._immune):
            for pid in mine:
                self._kill(pid)
            reap_dead(mine)
            if time.monotonic() > deadline:
                self._immune.update(self._not_ours())
                break
            if self._found:
                time.sleep(_PAUSE_S)
        found = [replace(it, killed=pid not in self._immune) for pid, it in self._found.items()]
        self._past.clear()
        self._found.clear()
        return found

    def _kill(self, pid: int) -> None:
        """Kill a leftover, and name it unless it was named before."""
        # What is of a copy's group was killed with it, and noted: it is only dying yet.
        if pid not in self._found and _group_of(pid) not in self._past:
            leftover = describe(pid)
            if leftover is not None:
                self._found[pid] = leftover
        try:
            if os.getsid(pid) != os.getsid(0):  # all at once: what forks for ever is the quicker
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            self._immune.add(pid)
        except ProcessLookupError:
            return

    def _not_ours(self, besides: Iterable[int] = ()) -> list[int]:
        """Return our children that are copies or were left by copies, but for `besides`."""
        with self.helpers.lock:
            ours = {self.watch.pid, *self.helpers.pids, *besides}
            return [pid for pid in children() if pid not in ours]

    def close(self) -> None:
        """Remove the cgroup, dismiss the watchdog; what could not be killed is left to that."""
        if self.cgroup is not None:
            self.cgroup.leave()
        self.watch.dismiss(hunt=any(pid in self._immune for pid in self._not_ours()))


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


@contextmanager
def guard(mark: str, slots: int, *, use_cgroup: bool = True) -> Iterator[Guard]:
    """Guard a run: while this context lives, nothing it starts outlives this process.

    `mark` tells its processes from those of all other runs.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with ExitStack() as stack:
        stack.callback(libc.prctl, _PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        with marked_limit(mark):
            keeper = Guard(mark, slots, Cgroup.make(mark[:8]) if use_cgroup else None)
            stack.callback(keeper.close)  # not before: a watchdog that hunts must not find us
            stack.callback(keeper.kill_leftovers)
            yield keeper

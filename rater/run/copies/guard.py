"""Nothing outlives the supervisor: the run's cgroup, its watchdog and the list of its groups."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rater.process_id import stat_fields
from rater.run.copies import watchdog

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MARKER = "RATER_RUN"  # environment variable of every copy: the run's uuid
FIRST_FREE_FD = 10  # below lie the numbers that a spawned program gets its descriptors on
_PAUSE_S = 0.005
_PATIENCE_S = 5.0
_EXEC_PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its copy and was killed."""

    pid: int
    command: str
    copy: str | None  # RATER_COPY of its environment


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
            pid = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[*((os.POSIX_SPAWN_DUP2, own, fd) for fd, own in fds.items()), *null],
                # Ctrl-C and Ctrl-Z at the terminal are not for it. No session of its own:
                # the kernel may give a session as much as all copies together (autogroups).
                setpgroup=0,
                setsigmask=(),
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


class Cgroup:
    """A cgroup v2 of the run; the supervisor lives in it while it runs, so copies inherit it."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home

    @classmethod
    def make(
        cls,
        name: str,
        mountinfo: Path = Path("/proc/self/mountinfo"),
        membership: Path = Path("/proc/self/cgroup"),
    ) -> Cgroup | None:
        """Make a cgroup below our own, or return None where that is not allowed."""
        home = _own_cgroup(mountinfo, membership)
        if home is None:
            return None
        _sweep(home)
        path = home / f"rater-{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError:
            return None
        if not (path / "cgroup.kill").exists():  # before Linux 5.14
            with suppress(OSError):
                path.rmdir()
            return None
        return cls(path, home)

    def enter(self) -> bool:
        """Move the supervisor in; return False, and remove the cgroup, when that is refused."""
        try:
            (self.path / "cgroup.procs").write_text("0")
        except OSError:
            with suppress(OSError):
                self.path.rmdir()
            return False
        return True

    def leave(self) -> None:
        """Move the supervisor back, kill what is left, remove the cgroup."""
        with suppress(OSError):
            (self.home / "cgroup.procs").write_text("0")
            (self.path / "cgroup.kill").write_text("1")
        for _ in range(100):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                _reap(children())
                time.sleep(_PAUSE_S)
            else:
                return


def _own_cgroup(mountinfo: Path, membership: Path) -> Path | None:
    """Return our cgroup's directory in the cgroup2 mount, which may be a hybrid one."""
    try:
        mounts = [line.split() for line in mountinfo.read_text().splitlines()]
        member = [line for line in membership.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        return None
    for fields in mounts:
        if "-" in fields and fields[fields.index("-") + 1] == "cgroup2" and member:
            root, mount_point = fields[3], Path(fields[4])
            path = member[0][3:]
            if root != "/":
                path = path.removeprefix(root)
            home = mount_point / path.lstrip("/")
            return home if home.is_dir() else None
    return None


def _sweep(home: Path) -> None:
    """Remove empty cgroups of dead supervisors."""
    for stale in home.glob("rater-*-*"):
        pid = stale.name.split("-")[1]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                stale.rmdir()


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def children() -> list[int]:
    """Return the process numbers of all our children, orphans we adopted included."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


class Guard:
    """The slots, the watchdog and the cgroup of one run. Use as a context manager via `guard`."""

    def __init__(self, uuid: str, slots: int, cgroup: Cgroup | None) -> None:
        self.helpers = Helpers()
        size = max(4 * slots, mmap.PAGESIZE)
        memory = os.memfd_create("rater-groups", os.MFD_CLOEXEC)
        os.ftruncate(memory, size)
        self._past: set[int] = set()  # groups of copies since leftovers were last killed
        self._dying: set[int] = set()  # leftovers that were killed and named
        self._map = mmap.mmap(memory, size)
        self._groups = memoryview(self._map).cast("i")
        read_end, self._pipe = os.pipe()
        argv = [sys.executable, "-I", "-S", "-B", watchdog.__file__, "3", "4", f"{MARKER}={uuid}"]
        if cgroup is not None:
            argv.append(str(cgroup.path))
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD) for fd in (read_end, memory)]
        try:
            self.watchdog_pid = os.posix_spawn(
                sys.executable,
                argv,
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, high[0], 3),
                    (os.POSIX_SPAWN_DUP2, high[1], 4),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                ],
                setsid=True,
                setsigmask=[],
            )
        finally:
            for fd in (*high, read_end, memory):
                os.close(fd)
        # Only now: the watchdog must stay outside.
        self.cgroup = cgroup if cgroup is not None and cgroup.enter() else None

    def hold(self, slot: int, group: int) -> None:
        """Remember a copy's process group (0: the copy is gone)."""
        self._groups[slot] = group
        if group:
            self._past.add(group)

    def orphans(self, copies: Mapping[int, int]) -> dict[int, list[int]]:
        """Return what living copies left without a parent, which is our child now, by copy.

        `copies`: their numbers by process.
        """
        found: dict[int, list[int]] = {}
        for pid in self._not_ours((*self._groups, *copies)):
            copy = copies.get(_group_of(pid))
            if copy is None:  # of a session of its own
                orphan = _describe(pid)
                if orphan is None or orphan.copy is None or not orphan.copy.isdecimal():
                    continue
                copy = int(orphan.copy)
            found.setdefault(copy, []).append(pid)
        return found

    def kill_strays(self) -> list[Leftover]:
        """Kill what left the session of its copy and outlived it, while others live.

        Copies are of our own session, and what stays in their groups dies with them: a
        child of ours in a session of its own is an orphan that we adopted.
        """
        found: list[Leftover] = []
        ours = os.getsid(0)
        mine = self._not_ours(self._groups)
        self._dying.intersection_update(mine)
        for pid in mine:
            with suppress(OSError):
                if os.getsid(pid) != ours:
                    self._kill(pid, found)
                    _reap([pid])
        return found

    def kill_leftovers(self) -> list[Leftover]:
        """Kill every process that outlived its copy; call only when no copy lives.

        As a child subreaper we adopt orphans, so all of them are our children.
        """
        found: list[Leftover] = []
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            mine = self._not_ours()
            if not mine:
                break
            self._dying.intersection_update(mine)
            for pid in mine:
                self._kill(pid, found)
            _reap(mine)
            time.sleep(_PAUSE_S if self._dying else 0)
        self._past.clear()
        return found

    def _kill(self, pid: int, found: list[Leftover]) -> None:
        """Kill a leftover, and add it to `found` unless it was named before."""
        # What is of a copy's group was killed with it, and noted: it is only dying yet.
        known = pid in self._dying or _group_of(pid) in self._past
        leftover = None if known else _describe(pid)
        if leftover is not None:
            found.append(leftover)
            self._dying.add(pid)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)

    def _not_ours(self, besides: Iterable[int] = ()) -> list[int]:
        """Return our children that are copies or were left by copies, but for `besides`."""
        with self.helpers.lock:
            ours = {self.watchdog_pid, *self.helpers.pids, *besides}
            return [pid for pid in children() if pid not in ours]

    def close(self) -> None:
        """Dismiss the watchdog and remove the cgroup; everything is dead by now."""
        if self.cgroup is not None:
            self.cgroup.leave()
        os.write(self._pipe, b".")
        os.close(self._pipe)
        with suppress(ChildProcessError):
            os.waitpid(self.watchdog_pid, 0)
        self._groups.release()
        self._map.close()


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _describe(pid: int) -> Leftover | None:
    """Return what a child is, or None when it is dead already."""
    deadline = time.monotonic() + _EXEC_PATIENCE_S
    try:
        while True:
            before = _arguments_at(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            after = _arguments_at(pid)
            if after is None:
                return None
            if (before == after and after[-1] != b"0") or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S / 10)
    except OSError:
        return None
    copies = [v.removeprefix(b"RATER_COPY=") for v in environment if v.startswith(b"RATER_COPY=")]
    return Leftover(
        pid,
        # Programs may empty their own command line.
        command.decode(errors="replace")[:80] if command else f"[{name}]",
        copies[0].decode(errors="replace") if copies else None,
    )


def _arguments_at(pid: int) -> list[bytes] | None:
    """Return where a process's arguments and environment lie; None when it is dead.

    In the midst of an exec there is new memory and nothing in it yet: the process looks
    as empty as a dead one, and env_end, the last to be set, is 0 (proc_pid_stat(5): state
    is field 3, arg_start to env_end are 48 to 51).
    """
    fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    return None if fields[3] in b"ZX" else fields[48:52]


@contextmanager
def guard(uuid: str, slots: int, *, use_cgroup: bool = True) -> Iterator[Guard]:
    """Guard a run: while this context lives, nothing it starts outlives this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = Guard(uuid, slots, Cgroup.make(uuid[:8]) if use_cgroup else None)
    try:
        yield keeper
    finally:
        keeper.kill_leftovers()
        keeper.close()
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

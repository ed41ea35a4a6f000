"""Nothing outlives the supervisor: adopted, killed and named, by cgroup where there is one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from rater.record.run import escape_undecodable
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import list_folder, read_file, status_of
from rater.run.launcher.launcher import Launcher
from rater.run.programs.inputs import remove_run_dir
from rater.system.process import delay_stop_signals, process_start_ticks, stat_fields

# -- Marks of a run's processes: a variable, and a limit for those that drop their variables -------

MARKER = "RATER_RUN"  # environment variable of every copy: the run's uuid
_MARK_BITS = 61
_RLIMIT_LOCKS = 10  # RLIMIT_LOCKS, asm-generic/resource.h


def limit_mark(mark: str) -> int:
    """Return the number that stands for a mark as a limit."""
    return 1 << _MARK_BITS | int.from_bytes(hashlib.sha256(mark.encode()).digest()) >> (
        256 - _MARK_BITS
    )


@contextmanager
def marked_limit(mark: str) -> Iterator[int]:
    """Mark this process, and all that it starts but copies, by a limit; yield the limit before.

    A limit is inherited whatever becomes of environment, session, parent and user. The kernel
    has not used this one since 2.4.25 (getrlimit(2): RLIMIT_LOCKS).
    """
    soft, hard = resource.getrlimit(_RLIMIT_LOCKS)
    with suppress(ValueError, OSError):  # below the hard limit there is no room: `MARKER` has to do
        resource.setrlimit(_RLIMIT_LOCKS, (limit_mark(mark), hard))
    try:
        yield soft
    finally:
        resource.setrlimit(_RLIMIT_LOCKS, (soft, hard))


def kill_marked(is_marker: Callable[[bytes], bool]) -> set[int]:
    """Kill every other process with such an entry in its environment; return those that lived."""
    killed = set()
    with os.scandir("/proc") as processes:  # in the order of their numbers, new ones included
        for process in processes:
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            with suppress(OSError):  # not ours to read
                if any(map(is_marker, Path(process, "environ").read_bytes().split(b"\0"))):
                    lived = process_start_ticks(int(process.name)) is not None
                    os.kill(int(process.name), signal.SIGKILL)
                    killed |= {int(process.name)} if lived else set()
    return killed


# -- Processes that we adopted, as child subreapers ------------------------------------------------

_ORPHANS_PAUSE_S = 0.0005
_EXEC_PATIENCE_S = 0.1
PREPARED = "--prepare"


class Leftover(Struct, frozen=True):
    """A process that outlived its copy and was sent SIGKILL."""

    pid: int
    command: str
    copy: str | None  # RATER_COPY of its environment, `PREPARED` where --prepare started it
    killed: bool = True  # False: it is another user's, or does not return from a system call


def reap_dead(pids: Iterable[int]) -> None:
    """Reap those of our children that have ended."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def child_pids(parent: int | str = "self") -> list[int]:
    """Return the process numbers of all children of a process, adopted orphans included."""
    pids: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - each phase does this
            with suppress(OSError):
                pids += map(int, read_file(f"/proc/{parent}/task/{task}/children").split())
    return pids


def describe_process(pid: int) -> Leftover | None:
    """Return command and copy of a child that is not dead."""
    deadline = time.monotonic() + _EXEC_PATIENCE_S
    try:
        while True:
            before = _arguments_location(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
            environment = b""
            with suppress(PermissionError):  # another user's by now
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            after = _arguments_location(pid)
            if after is None:
                return None
            if (before == after and after[-1] != b"0") or time.monotonic() > deadline:
                break
            time.sleep(_ORPHANS_PAUSE_S)
    except OSError:
        return None
    copy = re.search(rb"(?:^|\0)RATER_COPY=([^\0]*)", environment)
    return Leftover(
        pid,
        # Programs may empty their own command line.
        command.decode(errors="replace")[:80] if command else f"[{name}]",
        copy[1].decode(errors="replace") if copy else None,
    )


def _arguments_location(pid: int) -> list[bytes] | None:
    """Return where a process's arguments and environment lie; None when it is dead.

    In the midst of an exec there is new memory and nothing in it yet: the process looks
    as empty as a dead one, and env_end, the last to be set, is 0 (proc_pid_stat(5): state
    is field 3, arg_start to env_end are 48 to 51).
    """
    fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    return None if fields[3] in b"ZX" else fields[48:52]


# -- The cgroup of a run, where one can be made: killing it kills all that is in it at once --------

_CGROUP_PAUSE_S = 0.005


class Cgroup:
    """A cgroup v2 of the run; the supervisor lives in it while it runs, so copies inherit it."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home
        self._was_left = False

    @classmethod
    def make(cls, name: str) -> Cgroup | None:
        """Make a cgroup below our own, and return it if that is allowed."""
        # "cgroup2" finds those of version 2: no controller of version 1 has that name.
        home = next((group.folder for group in limiting_groups(Path("/"), "cgroup2")), None)
        if home is None or not home.is_dir():
            return None
        for stale in home.glob("rater-*-*"):
            if not Path("/proc", stale.name.split("-")[1]).exists():
                with suppress(OSError):
                    stale.rmdir()
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
        """Move the supervisor in; return False when that is refused."""
        try:
            (self.path / "cgroup.procs").write_text("0")
        except OSError:
            return False
        return True

    def leave(self, launcher: int | None = None) -> None:
        """Move supervisor and launcher back, kill what is left, remove the cgroup; once."""
        if self._was_left:
            return
        self._was_left = True
        if launcher is not None:
            with suppress(OSError):
                (self.home / "cgroup.procs").write_text(str(launcher))
        with suppress(OSError):
            (self.home / "cgroup.procs").write_text("0")
            (self.path / "cgroup.kill").write_text("1")
        for _ in range(100):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                reap_dead(child_pids())
                time.sleep(_CGROUP_PAUSE_S)
            else:
                return


# -- Nothing outlives the supervisor: orphans of copies are adopted, killed and named --------------

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_GUARD_PAUSE_S = 0.005
_GUARD_PATIENCE_S = 5.0
_TEND_S = 1.0  # between two looks at a launcher that gave no sign


class Helpers(Struct, eq=False):
    """Children that are neither copies nor leftovers of copies, and that end by themselves.

    Who starts or reaps one holds the lock: it never exists without being entered here.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    pids: set[int] = field(default_factory=set)

    def spawn(self, argv: list[str], environment: Mapping[str, str], fds: Mapping[int, int]) -> int:
        """Start a helper. `fds`: our descriptors by its numbers; 0 to 2 are /dev/null otherwise."""
        null = [
            (os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in {0, 1, 2} - fds.keys()
        ]
        with self.lock:
            # In a process group of its own it gets no Ctrl-C and Ctrl-Z of the terminal. It has
            # no session of its own, as the kernel may give a session as much CPU time as all
            # copies together have (autogroups).
            pid = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[
                    *((os.POSIX_SPAWN_DUP2, our_fd, fd) for fd, our_fd in fds.items()),
                    *null,
                ],
                setpgroup=0,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
            self.pids.add(pid)
        return pid

    def end(self, pid: int) -> None:
        """Kill and reap a helper."""
        with self.lock:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self.pids.discard(pid)


class Guard:
    """The launcher and the cgroup of one run. Use as a context manager via `guard`."""

    def __init__(self, launcher: Launcher, cgroup: Cgroup | None) -> None:
        self.helpers = Helpers()
        self.cgroup = cgroup
        self.launcher = launcher
        self.groups: set[int] = set()  # of copies since leftovers were last killed
        self.immune: set[int] = set()  # children that could not be killed
        self._tracers: set[int] = set()  # processes that traced the launcher, and were told
        self._named_leftovers: dict[
            int, Leftover
        ] = {}  # that were killed and named, since then as well

    def orphans(self, copies: Mapping[int, int]) -> dict[int, list[int]]:
        """Return orphans of living copies, which the launcher has adopted, by copy.

        `copies`: their numbers by process.
        """
        by_copy: dict[int, list[int]] = {}
        for pid in self._foreign_children(copies):
            copy = copies.get(_process_group(pid))
            if copy is None:  # it has a session of its own
                orphan = describe_process(pid)
                if orphan is None or orphan.copy is None or not orphan.copy.isdecimal():
                    continue
                copy = int(orphan.copy)
            by_copy.setdefault(copy, []).append(pid)
        return by_copy

    def kill_orphans(self, pid: int, copy: int) -> bool:
        """Kill the orphans of a copy; tell whether it had any."""
        orphans = self.orphans({pid: copy}).get(copy, [])
        for orphan in orphans:
            self._kill(orphan)
        return bool(orphans)

    async def tend_launcher(self, report: Callable[[str], None]) -> None:
        """Let the launcher go on where it is stopped or traced, until cancelled.

        The kernel tells us by SIGCHLD that it stopped. `report` gets what is to be said.
        """
        with trio.open_signal_receiver(signal.SIGCHLD) as arrivals:
            while True:
                with trio.move_on_after(_TEND_S):
                    await anext(arrivals)
                self.launcher.flush()
                for trouble in (self.launcher.continue_if_stopped(), self._end_new_tracer()):
                    if trouble is not None:
                        report(trouble)

    def _end_new_tracer(self) -> str | None:
        tracer = status_of(self.launcher.pid).tracer
        if not tracer or tracer in self._tracers:
            return None
        self._tracers.add(tracer)
        return self._end_tracer(tracer)

    def _end_tracer(self, pid: int) -> str:
        """Kill a process that traces the launcher if it is of this run; return what is to be said.

        A launcher that is traced stands still whenever its tracer wants.
        """
        tracer = describe_process(pid)
        command = f" ({tracer.command})" if tracer is not None else ""
        text = f"process {pid}{command} traced rater's launcher, which stamps the ends of copies"
        if not self._is_of_this_run(pid):
            return f"{text}: what ended while it held the launcher has no time; end it"
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        return f"{text}: it is of this run, and was killed"

    def _is_of_this_run(self, pid: int) -> bool:
        """Tell whether a process descends from the launcher."""
        while pid > 1 and pid != self.launcher.pid:
            try:
                pid = int(stat_fields(Path(f"/proc/{pid}/stat").read_bytes())[4])
            except OSError:
                return False
        return pid == self.launcher.pid

    def kill_strays(self, living: Iterable[int]) -> None:
        """Kill orphans of copies that have ended, while `living` copies go on.

        Copies are in our own session, and processes of their groups die with them. So a child
        in a session of its own is an orphan that was adopted.
        """
        ours = os.getsid(0)
        for pid in self._foreign_children(living):
            with suppress(OSError):
                if os.getsid(pid) == ours:
                    continue
                stray = _describe_leftover(pid)
                if stray is None or stray.copy != PREPARED:
                    self._kill(pid)
                    reap_dead([pid])

    def kill_leftovers(self) -> list[Leftover]:
        """Kill every process that outlived its copy; call only when no copy lives.

        We and the launcher adopt orphans, as child subreapers. Returns those that were named
        since the last call, and whether they are dead.
        """
        deadline = time.monotonic() + _GUARD_PATIENCE_S
        while leftover_pids := self._foreign_children(self.immune):
            for pid in leftover_pids:
                self._kill(pid)
            reap_dead(leftover_pids)
            if time.monotonic() > deadline:
                self.immune.update(self._foreign_children())
                break
            if self._named_leftovers:
                time.sleep(_GUARD_PAUSE_S)
        leftovers = [
            replace(leftover, killed=pid not in self.immune)
            for pid, leftover in self._named_leftovers.items()
        ]
        self.groups.clear()
        self._named_leftovers.clear()
        return leftovers

    def _kill(self, pid: int) -> None:
        """Kill a leftover, and name it unless it was named before."""
        # A process of a copy's group was killed and noted with the copy: it is dying.
        if pid not in self._named_leftovers and _process_group(pid) not in self.groups:
            leftover = _describe_leftover(pid)
            if leftover is not None:
                self._named_leftovers[pid] = leftover
        try:
            if os.getsid(pid) != os.getsid(
                0
            ):  # all at once, as a process that forks for ever is quicker than we are
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            self.immune.add(pid)
        except ProcessLookupError:
            return

    def _foreign_children(self, besides: Iterable[int] = ()) -> list[int]:
        """Return children of ours and of the launcher that are no helpers, without `besides`."""
        with self.helpers.lock:
            expected = {self.launcher.pid, *self.helpers.pids, *besides}
            pids = (*child_pids(), *child_pids(self.launcher.pid))
        return [pid for pid in pids if pid not in expected]

    def close(self) -> None:
        """Remove the cgroup and end the launcher, which hunts those that could not be killed."""
        if self.cgroup is not None:
            self.cgroup.leave(self.launcher.pid)
        self.launcher.close(hunt=any(pid in self.immune for pid in self._foreign_children()))


def _describe_leftover(pid: int) -> Leftover | None:
    leftover = describe_process(pid)
    # Orphans of copies are the launcher's children, orphans of --prepare are ours.
    is_prepared = leftover is not None and leftover.copy is None and pid in child_pids()
    return replace(leftover, copy=PREPARED) if leftover is not None and is_prepared else leftover


def _process_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


@contextmanager
def guard(mark: str, copies: int, *, use_cgroup: bool = True) -> Iterator[Guard]:
    """Guard a run: nothing that is started in this context outlives this process.

    `mark` tells its processes from those of all other runs, by a limit and `MARKER`.
    """
    with ExitStack() as stack:
        try:
            with delay_stop_signals():  # a launcher whose number nobody keeps would be left alone
                keeper = _enter_guard(stack, mark, copies, use_cgroup=use_cgroup)
            keeper.launcher.greet()
            yield keeper
        finally:
            with delay_stop_signals():
                stack.close()


def _enter_guard(stack: ExitStack, mark: str, copies: int, *, use_cgroup: bool) -> Guard:
    """Mark this process, and start the launcher; `stack` takes all back, the last first."""
    stack.callback(_mark_environment, os.environ.get(MARKER))
    _mark_environment(mark)
    libc = ctypes.CDLL(None, use_errno=True)
    stack.callback(libc.prctl, _PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    locks = stack.enter_context(marked_limit(mark))
    cgroup = Cgroup.make(mark[:8]) if use_cgroup else None
    if cgroup is not None:
        stack.callback(cgroup.leave)
        if not cgroup.enter():
            cgroup.leave()
            cgroup = None
    # Each copy has a process that runs, and may have one that waits to follow it.
    folder = None if cgroup is None else cgroup.path
    launcher = Launcher(2 * copies, limit_mark(mark), locks, folder)
    keeper = Guard(launcher, cgroup)
    stack.callback(keeper.close)
    stack.callback(keeper.kill_leftovers)
    return keeper


def _mark_environment(mark: str | None) -> None:
    if mark is None:
        os.environ.pop(MARKER, None)
    else:
        os.environ[MARKER] = mark


# -- Processes and files of killed attempts at a run, removed before the run goes on ---------------

_LEFTOVER_PROCESSES_PATIENCE_S = 2.0
_LEFTOVER_PROCESSES_PAUSE_S = 0.01


def end_leftovers(uuid: str, own_mark: str) -> int:
    """Kill processes of earlier attempts at a run, wait until they are gone; return their number.

    The launchers of those attempts do the same, in their own time. Every attempt marks its
    processes with the run's uuid and a suffix; `own_mark` is the mark of this attempt.
    """
    mark_prefix, own_entry = f"{MARKER}={uuid}".encode(), f"{MARKER}={own_mark}".encode()
    deadline = time.monotonic() + _LEFTOVER_PROCESSES_PATIENCE_S
    all_killed: set[int] = set()
    while killed := kill_marked(lambda entry: entry.startswith(mark_prefix) and entry != own_entry):
        all_killed |= killed
        if time.monotonic() > deadline:
            break
        time.sleep(_LEFTOVER_PROCESSES_PAUSE_S)
    return len(all_killed)


def remove_unnamed(folder: Path, kept: Collection[str], own_folder: Path) -> None:
    """Remove files of killed attempts from a run's folder, except those that are kept.

    `kept` are directories, or patterns of files that end in `*`. `own_folder` is the folder of
    this attempt. No symbolic link is followed: the links themselves are removed.
    """
    prefixes = [name.removesuffix("*") for name in kept if name.endswith("*")]
    for attempt in (folder, *list_folder(folder, "resume-*")):
        if attempt == own_folder or attempt.is_symlink():
            continue
        for entry in list_folder(attempt):
            text = escape_undecodable(str(entry))
            is_kept = text in kept or any(text.startswith(prefix) for prefix in prefixes)
            is_attempt = attempt == folder and entry.name.startswith("resume-")
            if is_kept or (is_attempt and not entry.is_symlink()):
                continue
            if entry.is_dir() or entry.is_symlink():
                remove_run_dir(entry)
            else:
                with suppress(OSError):
                    entry.unlink()
        if attempt != folder:
            with suppress(OSError):  # something of it is kept
                attempt.rmdir()

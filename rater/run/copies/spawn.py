"""posix_spawn(3), the watchdog that it starts, and the supervisor on the cores kept for both."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
import resource
import signal
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

from rater.errors import InputError
from rater.run.copies import watchdog
from rater.run.copies.limits import FIRST_FREE_FD, pipe_above_gate_descriptors
from rater.text.cpuset import format_list

# `os.posix_spawn` keeps the interpreter's lock until the child has executed its program, and on a
# full machine the child first waits for a CPU: that long no end of another copy could be stamped.

type Action = (
    tuple[int, int, int] | tuple[int, int, str, int, int]
)  # as of `os.posix_spawn`: dup2 or open

_DEFAULT_SIGNALS = (int(signal.SIGPIPE), int(signal.SIGXFSZ))  # Python ignores these two
# spawn.h, glibc and musl
_SET_GROUP, _SET_DEFAULT_SIGNALS, _SET_MASK, _SET_SESSION = 0x02, 0x04, 0x08, 0x80
# Of libc's opaque types (glibc: 80 and 336 bytes on 64 bits) and of a set of signals (128).
_ROOM_BYTES = 1024

_libc = ctypes.CDLL(None)  # not PyDLL: the interpreter's lock is free during a call


def _checked(error: int, program: str) -> None:
    if error:
        raise OSError(error, os.strerror(error), program)


def _attributes(of_its_own: int) -> ctypes.Array[ctypes.c_char]:
    """Return those of a process with a group or session, and signals as a shell hands them on."""
    attributes = ctypes.create_string_buffer(_ROOM_BYTES)
    defaults, none = (ctypes.create_string_buffer(_ROOM_BYTES) for _ in range(2))
    _libc.sigemptyset(none)
    _libc.sigemptyset(defaults)
    for number in _DEFAULT_SIGNALS:
        _libc.sigaddset(defaults, number)
    _checked(_libc.posix_spawnattr_init(attributes), "")
    _checked(_libc.posix_spawnattr_setpgroup(attributes, 0), "")
    _checked(_libc.posix_spawnattr_setsigmask(attributes, none), "")
    _checked(_libc.posix_spawnattr_setsigdefault(attributes, defaults), "")
    flags = of_its_own | _SET_DEFAULT_SIGNALS | _SET_MASK
    _checked(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(flags)), "")
    return attributes


_GROUP, _SESSION = map(_attributes, (_SET_GROUP, _SET_SESSION))


def _strings(texts: Sequence[bytes]) -> tuple[object, array[int], ctypes.c_void_p]:
    """Return an array of pointers to strings as C has it, last; the rest holds its memory."""
    joined = b"\0".join(texts) + b"\0"
    if joined.count(b"\0") != max(len(texts), 1):  # one would end early without a word
        raise ValueError("embedded null byte")
    memory = ctypes.create_string_buffer(joined, len(joined))
    starts = accumulate(map((1).__add__, map(len, texts)), initial=ctypes.addressof(memory))
    pointers = array("L", starts)  # as wide as a pointer wherever Linux runs
    pointers[-1] = 0
    return memory, pointers, ctypes.c_void_p(pointers.buffer_info()[0])


def spawn(
    program: str,
    argv: Sequence[str],
    environment: Mapping[bytes, bytes],
    actions: Sequence[Action],
    *,
    session: bool = False,
) -> int:
    """Spawn a process in a group (or session) of its own, with signals as a shell hands them on.

    Return its number; raises OSError as `os.posix_spawn` does.
    """
    pid = ctypes.c_int()
    arguments = _strings(list(map(os.fsencode, argv)))
    variables = _strings(list(map(b"=".join, environment.items())))
    files = ctypes.create_string_buffer(_ROOM_BYTES)
    _checked(_libc.posix_spawn_file_actions_init(files), program)
    try:
        for action in actions:
            if len(action) == 3:
                error = _libc.posix_spawn_file_actions_adddup2(files, *action[1:])
            else:
                _, fd, path, flags, mode = action
                error = _libc.posix_spawn_file_actions_addopen(
                    files, fd, os.fsencode(path), flags, mode
                )
            _checked(error, program)
        error = _libc.posix_spawn(
            ctypes.byref(pid),
            os.fsencode(program),
            files,
            _SESSION if session else _GROUP,
            arguments[-1],
            variables[-1],
        )
    finally:
        _libc.posix_spawn_file_actions_destroy(files)
    _checked(error, program)
    return pid.value


def spawn_alone(
    program: str,
    argv: tuple[str, ...],
    environment: Mapping[bytes, bytes],
    actions: Sequence[Action],
) -> int:
    """Do the same where no other thread has anything to do: for less CPU time (30 us)."""
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


# -- The watchdog as rater sees it: started, itself watched, dismissed; and the mark it hunts by ---

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


class Watchdog:
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
        read_end, write_end = pipe_above_gate_descriptors()
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


# -- The supervisor on the cores kept for it: all its threads, and the watchdog, away from copies --

_TASKS = Path("/proc/self/task")


@contextmanager
def living_on(cpus: Iterable[int], others: Iterable[int] = ()) -> Iterator[None]:
    """Keep this process, threads that begin later included, and the processes `others` on `cpus`.

    `cpus` are OS numbers; none: nothing changes. Enter it when all that may use the whole
    machine (compilers, set-ups) is done and before copies are spawned: each of these
    is bound by its spawning thread, so it does not inherit this. Left, every thread has the
    CPUs that the calling one had before; `others` stay where they are.
    Raises `InputError` when the kernel does not allow it.
    """
    wanted = frozenset(cpus)
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        _bind_threads(wanted)
        for pid in others:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, wanted)
    except OSError as error:
        _bind_threads(before)
        raise InputError(
            f"--reserve: the kernel does not let rater run on CPUs {format_list(sorted(wanted))} "
            f"({error.strerror}); see the cpuset of this shell, or leave --reserve out"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # CPUs went offline meanwhile: the kernel has seen to it
            _bind_threads(before)


def _bind_threads(cpus: Iterable[int]) -> None:
    for task in _TASKS.iterdir():
        with suppress(ProcessLookupError):  # it ended
            os.sched_setaffinity(int(task.name), cpus)

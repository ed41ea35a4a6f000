"""A copy as a process: bound before exec, waiting at its gate, killed as a tree."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rater.errors import RunError
from rater.plan.placement.place import Placement
from rater.plan.schedule import Step
from rater.record.events import GateFacts
from rater.run.copies.guard import Guard
from rater.run.copies.limits import (
    ProcessLimits,
    limits_at_end,
    pipe_above_gate_descriptors,
    raise_limit,
)
from rater.run.copies.spawn import Action, spawn, spawn_alone
from rater.run.host.procfs import SchedTimes
from rater.run.host.thread_binding import ThreadBinding, realtime_priority
from rater.run.programs.script import REPORT_FD
from rater.run.programs.tuning import transparent_pages

# -- The gate that every copy waits at: a shell that exists, bound and blocked, before time starts -
#
# It closes descriptor 4 to say that it is ready, and reads a line from descriptor 3:
#
# - own pipe (staggered copies, later steps of a queue): the supervisor writes a line;
# - one pipe shared by all copies: the supervisor closes it, which releases every
#   copy in one system call. A supervisor that was killed closes it too, so the gate
#   then needs the phase's go file, and without one ends with status 125.

GATE_NAME = b"rater-gate"  # how the gate's shell calls itself
GATE_SHELL = "/bin/sh"
NOT_RELEASED = 125  # exit code of a gate whose supervisor died
_NO_DIRECTORY = 126


@cache
def gate_script(late: int) -> str:
    """Return the gate's script.

    $1: the soft limit of open files rater itself was given, $2: go file, $3: directory, then
    `late` variables as NAME=VALUE that only the copy is to have, then the copy's words.
    """
    export = "".join(f'export "${number}"; ' for number in range(4, 4 + late))
    return (
        f'ulimit -Sn "$1"; cd -- "$3" || exit {_NO_DIRECTORY}; exec 4>&-; {export}'
        f'read -r rater_gate <&3 || [ -e "$2" ] || exit {NOT_RELEASED}; '
        f'shift {3 + late}; exec "$@" 3<&-'
    )


# -- A copy as a process: bound before exec, waiting at the gate, killed as a tree -----------------


@dataclass(frozen=True, slots=True)
class CopySpec:
    """Everything needed to start one step of one copy; paths as text, as a spawn takes them."""

    argv: tuple[str, ...]
    environment: dict[bytes, bytes]
    directory: str  # working directory of the copy
    output: str  # what the names of its files begin with: "DIR/" of its own, or "DIR/name."
    workloads: int = 0  # commands that its script reports as they end; 0: it reports none
    late: dict[bytes, bytes] = field(default_factory=dict)  # variables that its gate has not
    accepted: tuple[int, ...] = ()  # exit codes that are no failure, beside 0
    transparent: bool | None = None  # as `tuning.transparent_pages`; alike for all copies of a run

    @property
    def stdout(self) -> str:
        """The file of its standard output."""
        return f"{self.output}stdout"

    @property
    def stderr(self) -> str:
        """The file of its standard error."""
        return f"{self.output}stderr"

    @property
    def files(self) -> str:
        """Where its files are, for people: a directory, or a pattern of their names."""
        return self.output[:-1] if self.output.endswith("/") else f"{self.output}*"


class StartRequest(NamedTuple):
    """A step that is to be started."""

    copy: int
    position: int  # in the copy's queue
    step: Step
    spec: CopySpec


@dataclass(slots=True)
class Child:
    """One living copy. Mutable: the supervisor's only state per process."""

    copy: int
    position: int  # of the step in the copy's queue
    step: Step
    pid: int
    pidfd: int  # -1: not opened yet
    spec: CopySpec
    gate: int | None  # writing end of its own pipe; None behind the shared one
    planned_ns: int | None = None
    start_ns: int | None = None  # None: still behind the gate
    announced: bool = False  # its CopyStarted was emitted
    gate_cpu_ns: int = 0
    gate_facts: GateFacts | None = None  # None: not read
    last_cpu: int | None = None  # of its first thread; None: it runs, or was not read
    gate_delay_ns: int = 0  # as `sched_times` has it
    sched: SchedTimes | None = None  # of its first thread at the end; None: as above
    other_threads: Sequence[SchedTimes] = ()  # of all others when they were seen last
    filler: bool = False  # steady mode: only keeps the load up, began after the window had closed
    stopped_for: str | None = None  # "timeout", "output", "stop": why rater ended it
    late_ns: int | None = None  # its end lies up to so long before its stamp; None: in time
    ignored_s: float | None = None  # so long it did not end after SIGTERM
    notes: list[str] = field(default_factory=list)

    def send(self, number: int) -> bool:
        """Send a signal to the copy's process group, and to the copy where it left that.

        Return False where it belongs to another user by now, who alone may send it any. It is
        a child that was not reaped: its number cannot be another process's.
        """
        self.signal_group(number)
        try:
            os.kill(self.pid, 0 if os.getpgid(self.pid) == self.pid else number)
        except PermissionError:
            return False
        except ProcessLookupError:
            return True
        return True

    def signal_group(self, number: int) -> None:
        """Send a signal to the copy's whole process group."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def close_gate(self) -> None:
        """Close the writing end of the copy's own gate, if it is still open."""
        if self.gate is not None:
            os.close(self.gate)
            self.gate = None

    def read_gate_cpu(self) -> None:
        """Read the CPU time used so far (ns), while the gate is blocked."""
        # CPUCLOCK_SCHED of another process: linux/posix-timers.h, man 3 clock_getcpuclockid.
        with suppress(OSError):
            self.gate_cpu_ns = time.clock_gettime_ns((~self.pid << 3) | 2)


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """What the kernel says of a copy that ended."""

    exit_code: int | None
    signal: int | None
    usage: resource.struct_rusage
    max_rss_bytes: int | None  # None: not known
    left_group: bool  # processes of its group were still there (and were killed)
    limits: ProcessLimits  # that its signal can be of


def reap(child: Child) -> ExitInfo:
    """Kill what the copy left in its group, reap it, return exit status and rusage.

    The group is killed while the leader is a zombie, so its number can not have
    been given to somebody else. `ru_maxrss` of a process spawned by vfork begins
    at the peak of its parent (exec folds the old memory map's peak in,
    fs/exec.c): below that floor the copy's own peak is not known: None.
    """
    child.signal_group(signal.SIGKILL)
    limits = limits_at_end(child.pid)
    _, status, usage = os.wait4(child.pid, 0)
    left_group = True
    try:
        os.killpg(child.pid, 0)
    except OSError:
        left_group = False
    if child.pidfd >= 0:
        os.close(child.pidfd)
    code = os.waitstatus_to_exitcode(status)
    rss_bytes = usage.ru_maxrss * 1024
    return ExitInfo(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        usage=usage,
        max_rss_bytes=rss_bytes if _is_own_peak(rss_bytes) else None,
        left_group=left_group,
        limits=limits,
    )


# The kernel counts resident pages per CPU and folds them lazily: a margin on our own peak.
_RSS_MARGIN = 1.1
_floor_bytes = 0


def _is_own_peak(rss_bytes: int) -> bool:
    """Tell whether a peak is the copy's own: it lies above the peak of this process."""
    global _floor_bytes  # noqa: PLW0603 - our own peak only grows: asked again only when it matters
    if rss_bytes > _floor_bytes:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        _floor_bytes = round(own * _RSS_MARGIN)
    return rss_bytes > _floor_bytes


_A_TURN = 8


class Launcher:
    """Spawns gates. `original_nofile` is what copies get back as their soft limit.

    `commands_fd` is the writing end of the pipe that scripts of several commands report by.
    `events`: counted of each copy, which are opened at its gate; None: none are.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        guard: Guard,
        own_gates: bool,
        commands_fd: int | None = None,
        events: int | None = None,
    ) -> None:
        self._placements = placements
        self._guard = guard
        self._commands_fd = commands_fd
        self._counted = events is not None
        self.original_nofile = raise_limit(len(placements), own_gates, events or 0)

    def spawn(
        self,
        wanted: Sequence[StartRequest],
        shared_gate: int | None,
        ready: int,
        go_file: Path,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Child]:
        """Spawn a gate for each step that is wanted; runs in a worker thread.

        With `shared_gate` (the reading end of a pipe) all wait behind it, else
        each behind a pipe of its own. `ready` is the writing end that gates hold
        until they are ready. `stop` is asked between two spawns. When one spawn
        fails, those spawned before it are killed and the error is raised.
        """
        born: list[Child] = []
        # Before the first spawn: between two of them caches hold what the gates left there.
        prepared = [self._gate(one, shared_gate, ready, go_file) for one in self._in_turns(wanted)]
        try:
            pages = transparent_pages(wanted[0].spec.transparent if wanted else None)
            with pages, realtime_priority(), ThreadBinding() as binding:
                for one, argv, actions in prepared:
                    if stop():
                        break
                    binding.apply(self._placements[one.copy])
                    born.append(self._spawn_one(one, argv, actions, own_gate=shared_gate is None))
            # Not earlier: every spawn copies and closes all open descriptors.
            for child in born:
                child.pidfd = os.pidfd_open(child.pid)
        except BaseException as error:
            for child in born:
                self.discard(child)
            if isinstance(error, OSError):
                raise RunError(f"copies could not be watched: pidfd_open: {error}") from error
            raise
        born.sort(key=lambda child: child.copy)
        return born

    def _in_turns(self, wanted: Sequence[StartRequest]) -> list[StartRequest]:
        """Return them a few of each CPU in turn, as this thread moves to the CPU of each.

        With one of each in turn moving is half of what a spawn costs; with all of one CPU
        first, copies' first instructions lie twice as far apart (128 on 2 CPUs: 170 ms, not 89).
        """
        number: dict[tuple[int, ...] | None, int] = {}
        before: Counter[tuple[int, ...] | None] = Counter()
        keys = []
        for one in wanted:
            cpus = self._placements[one.copy].cpus
            keys.append((before[cpus] // _A_TURN, number.setdefault(cpus, len(number))))
            before[cpus] += 1
        return [wanted[at] for at in sorted(range(len(wanted)), key=keys.__getitem__)]

    def needs_gate(self, spec: CopySpec) -> bool:
        """Tell whether a later run of a copy needs a gate: for its directory, limits or counters.

        A gate is a shell that starts before the copy does: for programs of milliseconds,
        started again and again, it would be most of what the machine does.
        """
        if self._counted or spec.directory != os.getcwd():  # noqa: PTH109 - a text, as spec.directory is
            return True
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] != self.original_nofile

    def start(self, wanted: StartRequest, binding: ThreadBinding) -> Child | None:
        """Start a step at once, without a gate, on the thread that `binding` binds.

        Its time begins before the spawn, as `exec` belongs to it. None when the kernel
        does not execute the program (a script without `#!`): a gate's shell may.
        """
        spec = wanted.spec
        binding.apply(self._placements[wanted.copy])
        with transparent_pages(spec.transparent):
            now = time.monotonic_ns()
            try:
                pid = spawn(spec.argv[0], spec.argv, spec.environment | spec.late, _own_files(spec))
            except OSError:
                return None
        self._guard.hold(wanted.copy, pid)
        child = Child(wanted.copy, wanted.position, wanted.step, pid, -1, wanted.spec, None)
        child.start_ns = now
        try:
            child.pidfd = os.pidfd_open(pid)
        except OSError as error:
            self.discard(child)
            raise RunError(f"copies could not be watched: pidfd_open: {error}") from error
        return child

    def _gate(
        self, wanted: StartRequest, shared_gate: int | None, ready: int, go_file: Path
    ) -> tuple[StartRequest, tuple[str, ...], list[Action]]:
        """Return a step with what its gate is spawned from; a gate of its own comes last."""
        spec = wanted.spec
        actions: list[Action] = [*_own_files(spec), (os.POSIX_SPAWN_DUP2, ready, 4)]
        if spec.workloads and self._commands_fd is not None:
            actions.append((os.POSIX_SPAWN_DUP2, self._commands_fd, REPORT_FD))
        if shared_gate is not None:
            actions.append((os.POSIX_SPAWN_DUP2, shared_gate, 3))
        gate = (GATE_SHELL, "-c", gate_script(len(spec.late)), GATE_NAME.decode())
        late = (os.fsdecode(b"%b=%b" % pair) for pair in spec.late.items())
        argv = (*gate, str(self.original_nofile), str(go_file), spec.directory, *late, *spec.argv)
        return wanted, argv, actions

    def _spawn_one(
        self, wanted: StartRequest, argv: tuple[str, ...], actions: list[Action], *, own_gate: bool
    ) -> Child:
        copy, position, step, spec = wanted
        read_end, write_end = pipe_above_gate_descriptors() if own_gate else (-1, None)
        if own_gate:
            actions.append((os.POSIX_SPAWN_DUP2, read_end, 3))
        try:
            # Behind a gate of its own it may begin while others run, whose ends are stamped.
            start = spawn if own_gate else spawn_alone
            pid = start(GATE_SHELL, argv, spec.environment, actions)
        except OSError as error:
            if write_end is not None:
                os.close(write_end)
            raise RunError(
                f"copy {copy} of {step.benchmark} could not be started: {error.strerror} "
                f"({shlex.join(spec.argv)[:120]}); see `ulimit -u`, free memory, and the disk "
                f"that holds {spec.files}"
            ) from error
        finally:
            if own_gate:
                os.close(read_end)
        self._guard.hold(copy, pid)
        return Child(copy, position, step, pid, -1, spec, write_end)

    def discard(self, child: Child) -> None:
        """Kill and reap a copy that will not be measured."""
        child.close_gate()
        if child.send(signal.SIGKILL):
            reap(child)
        self._guard.hold(child.copy, 0)


def _own_files(spec: CopySpec) -> tuple[tuple[int, int, str, int, int], ...]:
    """Return the file actions that give a copy its standard input, output and error."""
    return (
        _NO_INPUT,
        (os.POSIX_SPAWN_OPEN, 1, spec.stdout, _WRITE, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, spec.stderr, _WRITE, 0o644),
    )


_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def open_gate(child: Child) -> None:
    """Let one copy through its own gate; the caller has stamped the time."""
    assert child.gate is not None
    with suppress(BrokenPipeError):  # it died at the gate: its pidfd shows it
        os.write(child.gate, b"\n")
    child.close_gate()

"""Counters of copies: perf_event_open(2), groups tried here, opened at gates, read at the end."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from rater.plan.counter_choice import TableGroup
from rater.plan.counter_tables import (
    CounterTable,
    EventCode,
    EventGroup,
    EventSource,
    Processor,
    parse_cpuinfo,
)
from rater.record.events import USER_ONLY, CopyCounted, EventCount, Noted, PhaseCounted
from rater.run.host.procfs import COUNTING, capabilities, list_folder, read_number, read_text
from rater.run.launcher.copies import Child
from rater.run.launcher.table import RequestKind
from rater.text.values import truncate_list

# Struct, flags and numbers of linux/perf_event.h; the C library has no function for the call.

_NUMBERS = {  # of the system call, asm/unistd.h
    "x86_64": 298,
    "aarch64": 241,
    "riscv64": 241,
    "ppc64le": 319,
    "ppc64": 319,
    "s390x": 331,
    "i686": 336,
    "armv7l": 364,
}
# type, size, config, sample_period, sample_type, read_format, flags, wakeup_events, bp_type,
# config1, config2: PERF_ATTR_SIZE_VER1, which every kernel since 2.6.33 takes.
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQQ")
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _ON_EXEC = (1 << n for n in (0, 1, 5, 6, 12))
_GROUP_WITH_TIMES = 1 | 2 | 8  # PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING, _GROUP
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC: copies do not inherit it
_ENABLE, _OF_GROUP = 0x2400, 1  # PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP


class PerfEvent(Struct, frozen=True):
    """An event as the kernel takes it."""

    type: int  # 0 hardware, 1 software, 4 raw, or that of a device below /sys
    config: int
    config1: int = 0


class GroupReading(Struct, frozen=True):
    """What a group came to, its processes and threads together."""

    values: tuple[int, ...]  # in the order they were opened
    enabled_ns: int  # CPU time while they were to be counted,
    running_ns: int  # and while they had counters


class PerfKernel:
    """The kernel's side of it; tests have one of their own."""

    def open_group(
        self, events: Sequence[PerfEvent], pid: int, *, user_only: bool, on_exec: bool
    ) -> tuple[int, ...]:
        """Open a group on a process, 0 is this one; return its descriptors, the leader first.

        Counting begins with the process's next exec (`on_exec`), or with `enable`, and goes on in
        all that it forks. Raises `OSError`, with nothing left open.
        """
        opened: list[int] = []
        try:
            for event in events:
                flags = _INHERIT | (_EXCLUDE_KERNEL | _EXCLUDE_HV if user_only else 0)
                if not opened:  # the others go with the leader
                    flags |= _DISABLED | (_ON_EXEC if on_exec else 0)
                opened.append(self.open(event, flags, pid, opened[0] if opened else -1))
        except OSError:
            self.close(opened)
            raise
        return tuple(opened)

    def open(self, event: PerfEvent, flags: int, pid: int, group: int) -> int:
        """Open one event; `group` is the leader's descriptor, -1: it leads. Raises `OSError`."""
        return perf_event_open(event, flags, _GROUP_WITH_TIMES, pid=pid, group=group)

    def enable(self, group: Sequence[int]) -> None:
        """Count from now on."""
        fcntl.ioctl(group[0], _ENABLE, _OF_GROUP)

    def read(self, group: Sequence[int]) -> GroupReading:
        """Return what a group has come to; also of a process that is gone. Raises `OSError`."""
        data = os.read(group[0], 8 * (3 + len(group)))
        _, enabled_ns, running_ns, *values = struct.unpack(f"={len(data) // 8}Q", data)
        return GroupReading(tuple(values), enabled_ns, running_ns)

    def close(self, group: Sequence[int]) -> None:
        """Close a group, its leader last: without it the others would each go on alone."""
        for descriptor in reversed(group):
            os.close(descriptor)


def perf_event_open(
    event: PerfEvent,
    flags: int = 0,
    reads: int = 0,
    *,
    pid: int = -1,
    cpu: int = -1,
    group: int = -1,
) -> int:
    """Open an event of a process (0: this one) on all CPUs, or of a CPU; return its descriptor.

    `flags`: bits of perf_event_attr; `reads`: its read_format. Raises `OSError`.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = _attributes(event, flags, reads)
    opened: int = _syscall()(number, attributes, pid, cpu, group, _CLOSE_ON_EXEC)
    if opened < 0:
        wrong = ctypes.get_errno()
        raise OSError(wrong, os.strerror(wrong))
    return opened


@cache
def _attributes(event: PerfEvent, flags: int, reads: int) -> bytes:
    return _ATTRIBUTES.pack(
        *(event.type, _ATTRIBUTES.size, event.config, 0, 0, reads, flags),
        *(0, 0, event.config1, 0),
    )


@cache
def _syscall() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).syscall
    long = ctypes.c_long
    function.argtypes = (long, ctypes.c_char_p, long, long, long, long)
    function.restype = long
    return function


# -- The processor of this machine, and the types that its counters have at this kernel ------------

_TYPES = {EventSource.HARDWARE: 0, EventSource.SOFTWARE: 1, EventSource.RAW: 4}


def this_processor(root: Path = Path("/")) -> Processor:
    """Return the processor of this machine."""
    return parse_cpuinfo(read_text(root / "proc/cpuinfo") or "")


def perf_events(
    table: CounterTable, group: EventGroup, root: Path = Path("/")
) -> tuple[PerfEvent, ...]:
    """Return the events of a group as this kernel takes them."""
    kind = _TYPES[table.source]
    if table.source is EventSource.RAW and table.device:
        for device in list_folder(root / "sys/bus/event_source/devices", table.device):
            own = read_number(device / "type")
            if own is not None:
                kind = own
                break
    return tuple(PerfEvent(kind, event.config, event.config1) for event in group.events)


# -- Groups tried for real on this process: which count, and why the others do not -----------------

_TRY_S = 0.01
_PARANOID = "proc/sys/kernel/perf_event_paranoid"
_WATCHDOG = "proc/sys/kernel/nmi_watchdog"
_REFUSALS = (errno.EACCES, errno.EPERM, errno.ENOSYS)
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.ENXIO)


class ReadyGroup(Struct, frozen=True):
    """A group that this machine counts, as it is to be opened."""

    name: str  # intel-skx:pipeline, with ":u" behind it where that is user mode only
    events: tuple[EventCode, ...]  # those that can be counted
    perf: tuple[PerfEvent, ...]  # the same as the kernel takes them
    user_only: bool


class GroupProbe(Struct, frozen=True):
    """What came of trying a group."""

    of: TableGroup
    ready: ReadyGroup | None = None  # None: it cannot be counted
    reading: GroupReading | None = None  # of 10 ms of this process
    missing: tuple[str, ...] = ()  # events that the rest is counted without
    why: str = ""  # it does not count, or not all
    remedy: str = ""  # what would change that: a command, or words


def probe_group(
    of: TableGroup, kernel: PerfKernel | None = None, root: Path = Path("/")
) -> GroupProbe:
    """Try a group on this process for 10 ms: as asked, of user mode only, then without parts."""
    kernel = kernel or PerfKernel()
    ready = ReadyGroup(of.name, of.group.events, perf_events(of.table, of.group, root), False)
    if of.user_only:
        ready = _in_user_mode(ready)
    try:
        return _counted(of, ready, kernel, root)
    except OSError as error:
        first = error
    if first.errno in _REFUSALS:
        user = _in_user_mode(ready)
        try:
            found = _counted(of, user, kernel, root)
        except OSError as error:
            if error.errno in _REFUSALS:
                return GroupProbe(of, None, None, (), *perf_refusal(error, 2, root))
            first, ready = error, user
        else:
            why, remedy = perf_refusal(first, 1, root)
            return replace(
                found,
                missing=tuple(event.name for event in of.group.events if event not in user.events),
                why=found.why or f"user mode only: {why}",
                remedy=found.remedy or remedy,
            )
    if first.errno not in _ABSENT:
        return GroupProbe(of, None, None, (), *_error_words(first))
    return _in_part(of, ready, kernel, root)


def _counted(of: TableGroup, ready: ReadyGroup, kernel: PerfKernel, root: Path) -> GroupProbe:
    if not ready.perf:
        raise OSError(errno.EACCES, "nothing is left")
    opened = kernel.open_group(ready.perf, 0, user_only=ready.user_only, on_exec=False)
    try:
        kernel.enable(opened)
        until = time.thread_time() + _TRY_S
        while time.thread_time() < until:
            pass
        reading = kernel.read(opened)
    finally:
        kernel.close(opened)
    if reading.running_ns:
        return GroupProbe(of=of, ready=ready, reading=reading)
    watchdog = read_number(root / _WATCHDOG)
    return GroupProbe(
        of=of,
        reading=reading,
        why="the kernel takes the events and never counts them: others have the counters"
        + (" (the NMI watchdog holds one on every CPU)" if watchdog else ""),
        remedy="sysctl kernel.nmi_watchdog=0"
        if watchdog
        else "end other users of the counters (`perf`, profilers)",
    )


def _in_part(of: TableGroup, ready: ReadyGroup, kernel: PerfKernel, root: Path) -> GroupProbe:
    """Leave out the events that this machine does not have, each tried alone."""
    absent: dict[str, OSError] = {}
    for event, perf in zip(ready.events, ready.perf, strict=True):
        try:
            kernel.close(kernel.open_group((perf,), 0, user_only=ready.user_only, on_exec=False))
        except OSError as error:
            absent[event.name] = error
    if not absent:
        return GroupProbe(
            of=of,
            why=f"each of its {len(ready.events)} events counts alone, together they do not: more "
            "than the processor counts at once",
            remedy="a table of your own with smaller groups (--counters ./MINE.toml)",
        )
    left = _without(ready, lambda event: event.name in absent, user_only=ready.user_only)
    first = _error_words(next(iter(absent.values())))[0]
    if len(absent) == len(ready.events):
        why = f"the kernel has no counters of the processor for it ({first})"
        return GroupProbe(of=of, why=why, remedy=_no_pmu(of))
    why = f"not on this machine: {truncate_list(list(absent))} ({first})"
    remedy = _no_pmu(of)
    try:
        found = _counted(of, left, kernel, root)
        if found.ready:
            return replace(found, missing=tuple(absent), why=why, remedy=remedy)
    except OSError as error:
        why = f"{why}; the others: {_error_words(error)[0]}"
    return GroupProbe(of=of, missing=tuple(absent), why=why, remedy=remedy)


def _in_user_mode(ready: ReadyGroup) -> ReadyGroup:
    return _without(ready, lambda event: event.in_kernel, user_only=True)


def _without(
    ready: ReadyGroup, left_out: Callable[[EventCode], bool], *, user_only: bool
) -> ReadyGroup:
    kept = [
        (event, perf)
        for event, perf in zip(ready.events, ready.perf, strict=True)
        if not left_out(event)
    ]
    return replace(
        ready,
        events=tuple(event for event, _ in kept),
        perf=tuple(perf for _, perf in kept),
        user_only=user_only,
        name=ready.name.removesuffix(USER_ONLY) + (USER_ONLY if user_only else ""),
    )


def _no_pmu(of: TableGroup) -> str:
    if of.table.source is EventSource.SOFTWARE:
        return ""
    return (
        "a virtual machine has counters where its host gives it some (KVM: a virtual PMU; in "
        "clouds: bare-metal or dedicated instances); a physical one in its firmware or kernel "
        "(`dmesg | grep -i pmu`); --counters software counts everywhere"
    )


def perf_refusal(error: OSError, most: int, root: Path = Path("/")) -> tuple[str, str]:
    """Return why perf_event_open was refused, and the way out.

    `most`: up to which kernel.perf_event_paranoid every user may do what was tried.
    """
    paranoid = read_number(root / _PARANOID)
    if paranoid is None and error.errno == errno.ENOSYS:
        return "this kernel has no perf events, ENOSYS", "a kernel with CONFIG_PERF_EVENTS"
    privileged = COUNTING & capabilities(root)
    if paranoid is None or paranoid <= most or privileged or error.errno == errno.ENOSYS:
        return (
            f"kernel settings allow it, and it is refused ({errno.errorcode[error.errno or 0]}): "
            "by a seccomp filter (container, sandbox, service) or an LSM",
            "docker, podman: run --cap-add PERFMON, or --security-opt seccomp=PROFILE that allows "
            "perf_event_open; systemd: SystemCallFilter=; SELinux: see `ausearch -m avc`",
        )
    what = "nothing" if most == 2 else "not the kernel's part" if most == 1 else "no whole CPUs"
    why = f"kernel.perf_event_paranoid is {paranoid}: {what}, for users but root"
    return why, f"sudo sysctl kernel.perf_event_paranoid={min(most, 1)}"


def perf_obstacle() -> tuple[str, str] | None:
    """Try an event that counts nothing on this process; return what `perf_refusal` says of it."""
    try:
        # PERF_COUNT_SW_DUMMY: there wherever perf events are
        os.close(perf_event_open(PerfEvent(1, 9), _EXCLUDE_KERNEL | _EXCLUDE_HV, pid=0))
    except OSError as error:
        return perf_refusal(error, 2)
    return None


_ERRORS = {  # in words, and what mends it
    errno.ENOENT: ("the processor or its driver has no such event", ""),
    errno.EINVAL: ("the kernel does not take it", ""),
    errno.EOPNOTSUPP: ("the driver does not count that", ""),
    errno.ENODEV: ("the processor does not count that", ""),
    errno.ENXIO: ("the processor does not count that", ""),
    errno.EMFILE: ("too many open files", "raise `ulimit -n`"),
    errno.ENFILE: ("too many open files on the whole machine", "raise `sysctl fs.file-max`"),
    errno.ESRCH: ("the process was gone", ""),
    errno.E2BIG: ("the kernel is too old for it", "a newer kernel"),
    errno.EBUSY: ("another has the counters for itself", "end it (`perf`, a profiler)"),
    errno.EACCES: ("not allowed", ""),
    errno.EPERM: ("not allowed", ""),
    errno.ENOSPC: ("no counter is left", ""),
}


def _error_words(error: OSError) -> tuple[str, str]:
    name = errno.errorcode.get(error.errno or 0, "?")
    words, remedy = _ERRORS.get(error.errno or 0, (error.strerror, ""))
    return f"{words}, {name}", remedy


def counter_error_text(error: OSError) -> str:
    """Return an error of opening a counter in words, with its way out."""
    return ": ".join(filter(None, _error_words(error)))


# -- Counters of the copies of one phase: opened at the gate, read and closed after the end --------


class CounterPlan(Struct, frozen=True):
    """What a run counts, and how."""

    turn: Callable[[int], tuple[ReadyGroup, ...]]  # groups of an iteration (from 1)
    most_events: int  # of a copy, open at the same time
    kernel: PerfKernel


type _Key = tuple[int, int]  # copy, position in its queue
type _Opened = list[tuple[ReadyGroup, tuple[int, ...]]]


class PhaseCounting:
    """The counters of one phase; on the trio thread.

    Opened in a worker thread; `ended` only puts something into a queue: while copies run nothing
    is read or closed here.
    """

    def __init__(
        self, counters: CounterPlan, phase: int, emit: Callable[[CopyCounted], None]
    ) -> None:
        self._counters = counters
        self._phase = phase
        self._emit = emit
        self._held: list[Child] = []  # at their gates, not to follow before they are counted
        self._some = trio.Event()
        self._open: dict[_Key, _Opened] = {}
        self._over: deque[tuple[_Key, bool]] = deque()
        self._lock = threading.Lock()
        self._cost_ns = {"open": 0, "read": 0, "close": 0}
        self._copies = 0
        self._user_only = False
        self._trouble: str | None = None

    def hold(self, child: Child) -> None:
        """Take in one that waits at its gate, to be allowed by `run`."""
        self._held.append(child)
        self._some.set()

    async def run(self) -> None:
        """Let follow what has its counters, until cancelled."""
        while True:
            await self._some.wait()
            self._some = trio.Event()
            held, self._held = self._held, []
            await self.count(held)
            for child in held:
                child.launcher.ask(RequestKind.ALLOW, child.token)

    async def count(self, copies: list[Child]) -> None:
        """Open the counters of copies at their gates, beside what is done meanwhile."""
        with trio.CancelScope(shield=True):  # else nobody would have what was settled
            settled = await trio.to_thread.run_sync(self._open_all, copies)
        for event in settled:
            self._emit(event)

    def _open_all(self, copies: Iterable[Child]) -> list[CopyCounted]:
        """Open the groups of their iterations.

        Return what those that ended before came to: their descriptors make room first.
        """
        with self._lock:
            settled = list(self._settled())
            kernel = self._counters.kernel
            for child in copies:
                opened: _Opened = []
                with self._timed("open"):
                    try:
                        for group in self._counters.turn(child.step.iteration):
                            how = {"user_only": group.user_only, "on_exec": True}
                            opened.append((group, kernel.open_group(group.perf, child.pid, **how)))
                            self._user_only |= group.user_only
                    except OSError as error:
                        for _, group_fds in opened:
                            kernel.close(group_fds)
                        opened = []
                        self._trouble = self._trouble or counter_error_text(error)
                if opened:
                    self._copies += 1
                    self._open[child.copy, child.position] = opened
            return settled

    def ended(self, child: Child, *, counts: bool) -> None:
        """Take note that a copy is over; without `counts` what it came to is of no interest."""
        self._over.append(((child.copy, child.position), counts))

    def close(self) -> list[CopyCounted | PhaseCounted | Noted]:
        """Return what is left of the phase, and what all of it cost; nothing is timed any more."""
        with self._lock:
            found: list[CopyCounted | PhaseCounted | Noted] = list(self._settled())
            for opened in self._open.values():  # discarded copies
                self._close(opened)
            self._open.clear()
        if self._trouble is not None:
            found.append(Noted(f"counters: not every copy was counted: {self._trouble}"))
        if self._copies:
            cost = self._cost_ns
            found.append(
                PhaseCounted(
                    phase=self._phase,
                    user_only=self._user_only,
                    copies=self._copies,
                    open_ns=cost["open"],
                    read_ns=cost["read"],
                    close_ns=cost["close"],
                )
            )
        return found

    def _settled(self) -> Iterator[CopyCounted]:
        while self._over:
            key, counts = self._over.popleft()
            opened = self._open.pop(key, None)
            if opened is None:
                continue
            if counts:
                with self._timed("read"):
                    rows = [row for it in opened for row in self._read(*it)]
                yield CopyCounted(self._phase, *key, tuple(rows))
            self._close(opened)

    def _read(self, group: ReadyGroup, opened: tuple[int, ...]) -> Iterator[EventCount]:
        try:
            reading = self._counters.kernel.read(opened)
        except OSError as error:
            self._trouble = self._trouble or counter_error_text(error)
            return
        for event, value in zip(group.events, reading.values, strict=True):
            yield EventCount(
                group_name=group.name,
                event=event.name,
                value=value if reading.running_ns else None,
                enabled_ns=reading.enabled_ns,
                running_ns=reading.running_ns,
            )

    def _close(self, opened: _Opened) -> None:
        with self._timed("close"):
            for _, descriptors in opened:
                self._counters.kernel.close(descriptors)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begin_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._cost_ns[what] += time.thread_time_ns() - begin_ns

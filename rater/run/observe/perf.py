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
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _ON_EXEC = (1 << bit for bit in (0, 1, 5, 6, 12))
_GROUP_WITH_TIMES = 1 | 2 | 8  # PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING, _GROUP
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC: copies do not inherit it
_ENABLE, _OF_GROUP = 0x2400, 1  # PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP


class PerfEvent(Struct, frozen=True):
    """An event as the kernel takes it."""

    type: int  # 0 hardware, 1 software, 4 raw, or that of a device below /sys
    config: int
    config1: int = 0


class GroupReading(Struct, frozen=True):
    """The counts of a group, summed over its processes and threads."""

    values: tuple[int, ...]  # in the order they were opened
    enabled_ns: int  # CPU time while the events were to be counted
    running_ns: int  # CPU time while they had counters of the processor


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
        """Open one event; `group` is the leader's descriptor, -1 for a leader. Raises `OSError`."""
        return perf_event_open(event, flags, _GROUP_WITH_TIMES, pid=pid, group=group)

    def enable(self, group: Sequence[int]) -> None:
        """Count from now on."""
        fcntl.ioctl(group[0], _ENABLE, _OF_GROUP)

    def read(self, group: Sequence[int]) -> GroupReading:
        """Return the counts of a group, also of a process that is gone. Raises `OSError`."""
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
    read_format: int = 0,
    *,
    pid: int = -1,
    cpu: int = -1,
    group: int = -1,
) -> int:
    """Open an event of a process (0: this one) on all CPUs, or of a CPU; return its descriptor.

    `flags`: bits of perf_event_attr; `reads`: its read_format. Raises `OSError`.
    """
    call_number = _NUMBERS.get(platform.machine())
    if call_number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = _attributes(event, flags, read_format)
    descriptor: int = _syscall()(call_number, attributes, pid, cpu, group, _CLOSE_ON_EXEC)
    if descriptor < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
    return descriptor


@cache
def _attributes(event: PerfEvent, flags: int, read_format: int) -> bytes:
    return _ATTRIBUTES.pack(
        event.type,
        _ATTRIBUTES.size,
        event.config,
        0,  # sample_period: events are counted, not sampled
        0,  # sample_type
        read_format,
        flags,
        0,  # wakeup_events
        0,  # bp_type
        event.config1,
        0,  # config2
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
    event_type = _TYPES[table.source]
    if table.source is EventSource.RAW and table.device:
        for device in list_folder(root / "sys/bus/event_source/devices", table.device):
            device_type = read_number(device / "type")
            if device_type is not None:
                event_type = device_type
                break
    return tuple(PerfEvent(event_type, event.config, event.config1) for event in group.events)


# -- Groups tried for real on this process: which count, and why the others do not -----------------

_TRY_S = 0.01
_PARANOID = "proc/sys/kernel/perf_event_paranoid"
_WATCHDOG = "proc/sys/kernel/nmi_watchdog"
_REFUSALS = (errno.EACCES, errno.EPERM, errno.ENOSYS)
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.ENXIO)


class ReadyGroup(Struct, frozen=True):
    """A group that this machine counts, with the arguments to open it."""

    name: str  # intel-skx:pipeline, with ":u" behind it where that is user mode only
    events: tuple[EventCode, ...]  # those that can be counted
    perf: tuple[PerfEvent, ...]  # the same as the kernel takes them
    user_only: bool


class GroupProbe(Struct, frozen=True, kw_only=True):
    """The result of trying a group."""

    of: TableGroup
    ready: ReadyGroup | None = None  # None when the group cannot be counted
    reading: GroupReading | None = None  # of 10 ms of this process
    missing: tuple[str, ...] = ()  # events that the rest is counted without
    why: str = ""  # the reason why the group does not count, or not all of it
    remedy: str = ""  # a command, or words


def probe_group(
    table_group: TableGroup, kernel: PerfKernel | None = None, root: Path = Path("/")
) -> GroupProbe:
    """Try a group on this process for 10 ms: as asked, of user mode only, then without parts."""
    kernel = kernel or PerfKernel()
    ready = ReadyGroup(
        table_group.name,
        table_group.group.events,
        perf_events(table_group.table, table_group.group, root),
        False,
    )
    if table_group.user_only:
        ready = _in_user_mode(ready)
    try:
        return _count_group(table_group, ready, kernel, root)
    except OSError as error:
        first_error = error
    if first_error.errno in _REFUSALS:
        user_group = _in_user_mode(ready)
        try:
            counted = _count_group(table_group, user_group, kernel, root)
        except OSError as error:
            if error.errno in _REFUSALS:
                reason, remedy = perf_refusal(error, 2, root)
                return GroupProbe(of=table_group, why=reason, remedy=remedy)
            first_error, ready = error, user_group
        else:
            reason, remedy = perf_refusal(first_error, 1, root)
            return replace(
                counted,
                missing=tuple(
                    event.name
                    for event in table_group.group.events
                    if event not in user_group.events
                ),
                why=counted.why or f"user mode only: {reason}",
                remedy=counted.remedy or remedy,
            )
    if first_error.errno not in _ABSENT:
        reason, remedy = _describe_error(first_error)
        return GroupProbe(of=table_group, why=reason, remedy=remedy)
    return _probe_parts(table_group, ready, kernel, root)


def _count_group(
    table_group: TableGroup, ready: ReadyGroup, kernel: PerfKernel, root: Path
) -> GroupProbe:
    if not ready.perf:
        raise OSError(errno.EACCES, "nothing is left")
    opened = kernel.open_group(ready.perf, 0, user_only=ready.user_only, on_exec=False)
    try:
        kernel.enable(opened)
        end_s = time.thread_time() + _TRY_S
        while time.thread_time() < end_s:
            pass
        reading = kernel.read(opened)
    finally:
        kernel.close(opened)
    if reading.running_ns:
        return GroupProbe(of=table_group, ready=ready, reading=reading)
    has_watchdog = read_number(root / _WATCHDOG)
    return GroupProbe(
        of=table_group,
        reading=reading,
        why="the kernel takes the events and never counts them: others have the counters"
        + (" (the NMI watchdog holds one on every CPU)" if has_watchdog else ""),
        remedy="sysctl kernel.nmi_watchdog=0"
        if has_watchdog
        else "end other users of the counters (`perf`, profilers)",
    )


def _probe_parts(
    table_group: TableGroup, ready: ReadyGroup, kernel: PerfKernel, root: Path
) -> GroupProbe:
    """Leave out the events that this machine does not have, each tried alone."""
    absent: dict[str, OSError] = {}
    for event, perf_event in zip(ready.events, ready.perf, strict=True):
        try:
            kernel.close(
                kernel.open_group((perf_event,), 0, user_only=ready.user_only, on_exec=False)
            )
        except OSError as error:
            absent[event.name] = error
    if not absent:
        return GroupProbe(
            of=table_group,
            why=f"each of its {len(ready.events)} events counts alone, together they do not: more "
            "than the processor counts at once",
            remedy="a table of your own with smaller groups (--counters ./MINE.toml)",
        )
    present_group = _leave_out(ready, lambda event: event.name in absent, user_only=ready.user_only)
    first_error = _describe_error(next(iter(absent.values())))[0]
    if len(absent) == len(ready.events):
        reason = f"the kernel has no counters of the processor for it ({first_error})"
        return GroupProbe(of=table_group, why=reason, remedy=_pmu_remedy(table_group))
    reason = f"not on this machine: {truncate_list(list(absent))} ({first_error})"
    remedy = _pmu_remedy(table_group)
    try:
        counted = _count_group(table_group, present_group, kernel, root)
        if counted.ready:
            return replace(counted, missing=tuple(absent), why=reason, remedy=remedy)
    except OSError as error:
        reason = f"{reason}; the others: {_describe_error(error)[0]}"
    return GroupProbe(of=table_group, missing=tuple(absent), why=reason, remedy=remedy)


def _in_user_mode(ready: ReadyGroup) -> ReadyGroup:
    return _leave_out(ready, lambda event: event.in_kernel, user_only=True)


def _leave_out(
    ready: ReadyGroup, left_out: Callable[[EventCode], bool], *, user_only: bool
) -> ReadyGroup:
    kept = [
        (event, perf_event)
        for event, perf_event in zip(ready.events, ready.perf, strict=True)
        if not left_out(event)
    ]
    return replace(
        ready,
        events=tuple(event for event, _ in kept),
        perf=tuple(perf_event for _, perf_event in kept),
        user_only=user_only,
        name=ready.name.removesuffix(USER_ONLY) + (USER_ONLY if user_only else ""),
    )


def _pmu_remedy(table_group: TableGroup) -> str:
    if table_group.table.source is EventSource.SOFTWARE:
        return ""
    return (
        "a virtual machine has counters where its host gives it some (KVM: a virtual PMU; in "
        "clouds: bare-metal or dedicated instances); a physical one in its firmware or kernel "
        "(`dmesg | grep -i pmu`); --counters software counts everywhere"
    )


def perf_refusal(error: OSError, most_paranoid: int, root: Path = Path("/")) -> tuple[str, str]:
    """Return why perf_event_open was refused, and the way out.

    `most`: up to which kernel.perf_event_paranoid every user may do what was tried.
    """
    paranoid = read_number(root / _PARANOID)
    if paranoid is None and error.errno == errno.ENOSYS:
        return "this kernel has no perf events, ENOSYS", "a kernel with CONFIG_PERF_EVENTS"
    privileged = COUNTING & capabilities(root)
    if paranoid is None or paranoid <= most_paranoid or privileged or error.errno == errno.ENOSYS:
        return (
            f"kernel settings allow it, and it is refused ({errno.errorcode[error.errno or 0]}): "
            "by a seccomp filter (container, sandbox, service) or an LSM",
            "docker, podman: run --cap-add PERFMON, or --security-opt seccomp=PROFILE that allows "
            "perf_event_open; systemd: SystemCallFilter=; SELinux: see `ausearch -m avc`",
        )
    allowed = (
        "nothing"
        if most_paranoid == 2
        else "not the kernel's part"
        if most_paranoid == 1
        else "no whole CPUs"
    )
    reason = f"kernel.perf_event_paranoid is {paranoid}: {allowed}, for users but root"
    return reason, f"sudo sysctl kernel.perf_event_paranoid={min(most_paranoid, 1)}"


def perf_obstacle() -> tuple[str, str] | None:
    """Try an event that counts nothing on this process; return the `perf_refusal` of it, if any."""
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


def _describe_error(error: OSError) -> tuple[str, str]:
    name = errno.errorcode.get(error.errno or 0, "?")
    words, remedy = _ERRORS.get(error.errno or 0, (error.strerror, ""))
    return f"{words}, {name}", remedy


def counter_error_text(error: OSError) -> str:
    """Return an error of opening a counter in words, with its way out."""
    return ": ".join(filter(None, _describe_error(error)))


# -- Counters of the copies of one phase: opened at the gate, read and closed after the end --------


class CounterPlan(Struct, frozen=True):
    """The counters of a run."""

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
        """Take in a copy that waits at its gate; `run` will allow it to go on."""
        self._held.append(child)
        self._some.set()

    async def run(self) -> None:
        """Open the counters of copies that are held and let them follow, until cancelled."""
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
        """Open the groups of the copies' iterations.

        Copies that ended before are read and closed first, for their descriptors; their counts
        are returned.
        """
        with self._lock:
            settled = list(self._read_ended())
            kernel = self._counters.kernel
            for child in copies:
                opened: _Opened = []
                with self._add_cost("open"):
                    try:
                        for group in self._counters.turn(child.step.iteration):
                            options = {"user_only": group.user_only, "on_exec": True}
                            opened.append(
                                (group, kernel.open_group(group.perf, child.pid, **options))
                            )
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
        """Take note that a copy is over; without `counts` its counters are closed unread."""
        self._over.append(((child.copy, child.position), counts))

    def close(self) -> list[CopyCounted | PhaseCounted | Noted]:
        """Return the counts that are left, and the cost of counting; nothing is timed any more."""
        with self._lock:
            events: list[CopyCounted | PhaseCounted | Noted] = list(self._read_ended())
            for opened in self._open.values():  # discarded copies
                self._close(opened)
            self._open.clear()
        if self._trouble is not None:
            events.append(Noted(f"counters: not every copy was counted: {self._trouble}"))
        if self._copies:
            cost_ns = self._cost_ns
            events.append(
                PhaseCounted(
                    phase=self._phase,
                    user_only=self._user_only,
                    copies=self._copies,
                    open_ns=cost_ns["open"],
                    read_ns=cost_ns["read"],
                    close_ns=cost_ns["close"],
                )
            )
        return events

    def _read_ended(self) -> Iterator[CopyCounted]:
        while self._over:
            key, counts = self._over.popleft()
            opened = self._open.pop(key, None)
            if opened is None:
                continue
            if counts:
                with self._add_cost("read"):
                    rows = [row for group, fds in opened for row in self._read(group, fds)]
                copy, step = key
                yield CopyCounted(phase=self._phase, copy=copy, step=step, counts=tuple(rows))
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
        with self._add_cost("close"):
            for _, descriptors in opened:
                self._counters.kernel.close(descriptors)

    @contextmanager
    def _add_cost(self, action: str) -> Iterator[None]:
        begin_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._cost_ns[action] += time.thread_time_ns() - begin_ns

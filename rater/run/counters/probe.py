"""Groups tried for real on this process: which count, and why the others do not."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rater.plan.counters.choice import TableGroup
from rater.plan.counters.table import EventCode, EventSource
from rater.record.events import USER_ONLY
from rater.run.counters.device import perf_events
from rater.run.counters.perf_event import GroupReading, PerfEvent, PerfKernel
from rater.run.host.sysfiles import read_number
from rater.text.words import some

_TRY_S = 0.01
_PARANOID = "proc/sys/kernel/perf_event_paranoid"
_WATCHDOG = "proc/sys/kernel/nmi_watchdog"
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.ENXIO)


@dataclass(frozen=True, slots=True)
class ReadyGroup:
    """A group that this machine counts, as it is to be opened."""

    name: str  # intel-skx:pipeline, with ":u" behind it where that is user mode only
    events: tuple[EventCode, ...]  # those that can be counted
    perf: tuple[PerfEvent, ...]  # the same as the kernel takes them
    user_only: bool


@dataclass(frozen=True, slots=True)
class GroupProbe:
    """What came of trying a group."""

    of: TableGroup
    ready: ReadyGroup | None  # None: it cannot be counted
    reading: GroupReading | None  # of 10 ms of this process
    missing: tuple[str, ...] = ()  # events that the rest is counted without
    why: str = ""  # it does not count, or not all
    remedy: str = ""  # what would change that: a command, or words


def probe(of: TableGroup, kernel: PerfKernel | None = None, root: Path = Path("/")) -> GroupProbe:
    """Try a group on this process for 10 ms: as asked, of user mode only, then without parts."""
    kernel = kernel or PerfKernel()
    ready = ReadyGroup(of.name, of.group.events, perf_events(of.table, of.group, root), False)
    if of.user_only:
        ready = _in_user_mode(ready)
    paranoid = read_number(root / _PARANOID)
    try:
        return _counted(of, ready, kernel, root)
    except OSError as error:
        first = error
    if first.errno in (errno.EACCES, errno.EPERM):
        user = _in_user_mode(ready)
        try:
            found = _counted(of, user, kernel, root)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return GroupProbe(of, None, None, why=_refused(paranoid), remedy=_allow(paranoid))
            first, ready = error, user
        else:
            return replace(
                found,
                missing=tuple(it.name for it in of.group.events if it not in user.events),
                why=found.why or f"user mode only: {_refused(paranoid)}",
                remedy=found.remedy or _allow(paranoid),
            )
    if first.errno not in _ABSENT:
        return GroupProbe(of, None, None, why=_told(first), remedy=_remedy(first))
    return _in_part(of, ready, kernel, root)


def _counted(of: TableGroup, ready: ReadyGroup, kernel: PerfKernel, root: Path) -> GroupProbe:
    """Count 10 ms of this process. Raises `OSError`."""
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
        return GroupProbe(of, ready, reading)
    watchdog = read_number(root / _WATCHDOG)
    return GroupProbe(
        of,
        None,
        reading,
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
            of,
            None,
            None,
            why=f"each of its {len(ready.events)} events counts alone, together they do not: more "
            "than the processor counts at once",
            remedy="a table of your own with smaller groups (--counters ./MINE.toml)",
        )
    left = _without(ready, lambda event: event.name in absent, user_only=ready.user_only)
    first = _told(next(iter(absent.values())))
    if len(absent) == len(ready.events):
        why = f"the kernel has no counters of the processor for it ({first})"
        return GroupProbe(of, None, None, why=why, remedy=_no_pmu(of))
    why = f"not on this machine: {some(list(absent))} ({first})"
    remedy = _no_pmu(of)
    try:
        found = _counted(of, left, kernel, root)
        if found.ready:
            return replace(found, missing=tuple(absent), why=why, remedy=remedy)
    except OSError as error:
        why = f"{why}; the others: {_told(error)}"
    return GroupProbe(of, None, None, missing=tuple(absent), why=why, remedy=remedy)


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


def _refused(paranoid: int | None) -> str:
    """Return why the kernel refuses a user; `paranoid`: kernel.perf_event_paranoid."""
    if paranoid is None:
        return "refused, and the kernel has no perf events (no kernel.perf_event_paranoid)"
    if paranoid >= 3:  # Debian, Ubuntu, Android
        return f"kernel.perf_event_paranoid is {paranoid}: nothing for users but root"
    if paranoid == 2:
        return "kernel.perf_event_paranoid is 2: not the kernel's part, for users but root"
    return f"refused though kernel.perf_event_paranoid is {paranoid}: seccomp or an LSM"


def _allow(paranoid: int | None) -> str:
    if paranoid is None or paranoid < 2:
        return (
            "a container: run it with --security-opt seccomp=unconfined or --cap-add PERFMON; "
            "SELinux: see `ausearch -m avc`"
        )
    return "sudo sysctl kernel.perf_event_paranoid=1"


def _told(error: OSError) -> str:
    words = {
        errno.ENOENT: "the processor or its driver has no such event",
        errno.EINVAL: "the kernel does not take it",
        errno.EOPNOTSUPP: "the driver does not count that",
        errno.ENODEV: "the processor does not count that",
        errno.ENXIO: "the processor does not count that",
        errno.EMFILE: "too many open files",
        errno.ENFILE: "too many open files on the whole machine",
        errno.ENOSYS: "this kernel has no perf events",
        errno.ESRCH: "the process was gone",
        errno.E2BIG: "the kernel is too old for it",
        errno.EBUSY: "another has the counters for itself",
        errno.EACCES: "not allowed",
        errno.EPERM: "not allowed",
        errno.ENOSPC: "no counter is left",
    }
    name = errno.errorcode.get(error.errno or 0, "?")
    return f"{words.get(error.errno or 0, error.strerror)}, {name}"


def _remedy(error: OSError) -> str:
    return {
        errno.EMFILE: "raise `ulimit -n`",
        errno.ENFILE: "raise `sysctl fs.file-max`",
        errno.ENOSYS: "a kernel with CONFIG_PERF_EVENTS",
        errno.EBUSY: "end it (`perf`, a profiler)",
        errno.E2BIG: "a newer kernel",
    }.get(error.errno or 0, "")


def told(error: OSError) -> str:
    """Return an error of opening a counter in words, with its way out."""
    remedy = _remedy(error)
    return _told(error) + (f": {remedy}" if remedy else "")

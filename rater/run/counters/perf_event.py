"""perf_event_open(2): events of one process, and of all that it starts, in groups.

Struct, flags and numbers of linux/perf_event.h; the C library has no function for the call.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """An event as the kernel takes it."""

    type: int  # 0 hardware, 1 software, 4 raw, or that of a device below /sys
    config: int
    config1: int = 0


@dataclass(frozen=True, slots=True)
class GroupReading:
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

"""CPU time as the kernel counts it: of the machine, and of every process that can be seen.

psutil reads what is read once; what is read around every phase has a reader here.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil

from rater.process_id import stat_fields

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT_BYTES = 2048  # a line of /proc/PID/stat has about 350
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of the kernel's sched.h


class MachineTimes(NamedTuple):
    """CPU time of the whole machine since it started, in seconds."""

    cpus: int  # that are online
    busy_s: float  # user, nice, system, interrupts; guests are part of user
    stolen_s: float  # wanted, but given to others by the hypervisor
    total_s: float


class ProcessTicks(NamedTuple):
    """One process as /proc/PID/stat tells it; times in ticks."""

    parent: int
    name: str  # at most 15 bytes
    kernel: bool  # a thread of the kernel
    own: int  # user and system time of all its threads
    children: int  # the same of children that ended and were waited for
    started: int  # since boot; with the pid it tells a process from a later one


def machine_times() -> MachineTimes | None:
    """Return the machine's times, None where /proc/stat can not be read or understood."""
    try:
        cpus, all_of_them = len(psutil.cpu_times(percpu=True)), psutil.cpu_times()
    except (OSError, ValueError, TypeError, IndexError):
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = all_of_them[:8]
    busy_s = user + nice + system + irq + softirq
    return MachineTimes(max(1, cpus), busy_s, steal, busy_s + idle + iowait + steal)


def cpu_ticks(stat: bytes) -> dict[int, tuple[int, ...]]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal of each CPU, in ticks.

    `stat` is the text of /proc/stat (proc_stat(5)). Raises `ValueError` where it is
    none.
    """
    found = {}
    for line in islice(stat.splitlines(), 1, None):  # the first one is of all CPUs
        if not line.startswith(b"cpu"):
            break
        name, *words = line.split()
        if len(words) >= 8:  # guest and guest_nice, which follow, are part of user and nice
            found[int(name[3:])] = tuple(int(word) for word in words[:8])
    return found


def process_cpu_s(pid: int) -> float:
    """Return the CPU time that another process has used so far, to the ns; 0 once it is gone."""
    # CPUCLOCK_SCHED of another process: linux/posix-timers.h, man 3 clock_getcpuclockid.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    except OSError:
        return 0.0


def process_ticks(proc: Path) -> dict[int, ProcessTicks]:
    """Return all processes that can be seen, by pid.

    Reads one file a process: 10 to 20 us each, two thirds of what psutil takes for the same,
    as it is done around every phase.
    """
    try:
        names = [path.name for path in proc.iterdir()]
    except OSError:
        return {}
    root = os.fsencode(proc)
    found = {}
    for name in names:
        if name.isdecimal():
            process = _process(b"%b/%b/stat" % (root, name.encode()))
            if process is not None:
                found[int(name)] = process
    return found


def _process(path: bytes) -> ProcessTicks | None:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            line = os.read(file, _STAT_BYTES)
        finally:
            os.close(file)
        fields = stat_fields(line, 22)
        return ProcessTicks(
            parent=int(fields[4]),
            name=fields[2].decode("utf-8", "replace"),
            kernel=bool(int(fields[9]) & _KERNEL_THREAD),
            own=int(fields[14]) + int(fields[15]),
            children=int(fields[16]) + int(fields[17]),
            started=int(fields[22]),
        )
    except (OSError, ValueError, IndexError):  # it is gone, or hidden from us
        return None

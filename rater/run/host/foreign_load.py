"""CPU time as the kernel counts it, and who else works on this machine when a run starts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
from msgspec import Struct

from rater.run.host.procfs import Stat, parse_stat, read_piece
from rater.system.files import user_name
from rater.text.values import join_and, printable

# psutil reads what is read once; what is read around every phase has a reader here.

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class MachineTimes(NamedTuple):
    """CPU time of the whole machine since it started, in seconds."""

    cpus: int  # that are online
    busy_s: float  # user, nice, system, interrupts; guests are part of user
    stolen_s: float  # wanted, but given to others by the hypervisor
    total_s: float


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


def process_stats(proc: Path) -> dict[int, Stat]:
    """Return all processes that can be seen, by pid: one file each, 10 to 20 us."""
    found = {}
    with suppress(OSError):
        for name in os.listdir(proc):  # noqa: PTH208 - the quicker one
            with suppress(OSError, ValueError):  # it is gone, hidden from us, or no process
                if stat := parse_stat(read_piece(f"{proc}/{int(name)}/stat")):
                    found[int(name)] = stat
    return found


# -- Who else works on this machine when a run starts? ---------------------------------------------
#
# Two samples of the CPU time of all processes, some time apart: what others used in
# between is what copies would have to share the machine with.

_LEAST_INTERVAL_S = 0.25
_STALE_S = 5.0  # a first sample before a long build says nothing of now
_LEAST_STOLEN = 0.01
_LEAST_UNSEEN_CPUS = 0.5  # ticks are counted by sampling: less may be chance
_LEAST_UNSEEN_SHARE = 0.005  # of the machine, for the same reason
_NAMED = 5
_NAME_WIDTH = 40
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|bash|dash|zsh|sh)[\d.]*")
_LONGEST_NAME = 15  # bytes, TASK_COMM_LEN of the kernel without its end
_INLINE = re.compile(r"-\w*[ce]|--eval")


class BusyProcess(Struct, frozen=True):
    """A process that worked between two samples."""

    pid: int
    command: str  # its name, for an interpreter with that of the script; never its arguments
    share: float  # of one CPU: 2.0 is two CPUs all the time
    user: str | None  # None for the kernel's own threads

    @property
    def kernel(self) -> bool:
        """Tell whether it is a thread of the kernel."""
        return self.user is None


class ForeignLoad(Struct, frozen=True):
    """What others than ourselves did with the machine between two samples."""

    processes: tuple[BusyProcess, ...]  # above the share asked for, largest first
    unseen: float  # CPUs kept busy by small, short-lived and hidden processes together
    stolen: float  # share of the machine's CPU time that the hypervisor gave to others

    @property
    def quiet(self) -> bool:
        """Tell whether there is nothing to say."""
        return not (self.processes or self.unseen or self.stolen)


class _Sample(Struct, frozen=True):
    at_s: float
    machine: MachineTimes | None
    processes: dict[int, Stat]


class ForeignLoadSampler:
    """Samples all processes when made, and again when asked who was busy.

    Made early and asked late it costs no waiting. `pid` is the root of the process
    tree that is ours and does not count; `clock` and `sleep` are in seconds.
    """

    def __init__(
        self,
        *,
        pid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._clock = clock
        self._sleep = sleep
        self._first = self._sample()

    def busy(self, least_share: float = 0.1, *, stale_s: float = _STALE_S) -> ForeignLoad:
        """Return who used more than `least_share` of a CPU since the first sample.

        Waits until a quarter of a second has passed since then. A first sample of
        more than `stale_s` ago is too old to tell of now: it is taken again.
        """
        if self._clock() - self._first.at_s > stale_s:
            self._first = self._sample()
        missing_s = self._first.at_s + _LEAST_INTERVAL_S - self._clock()
        if missing_s > 0:
            self._sleep(missing_s)
        return self._compare(self._first, self._sample(), least_share)

    @property
    def would_wait(self) -> bool:
        """Tell whether the first sample is too young to be compared with one of now."""
        return self._clock() - self._first.at_s < _LEAST_INTERVAL_S

    def _sample(self) -> _Sample:
        return _Sample(self._clock(), machine_times(), process_stats(Path(psutil.PROCFS_PATH)))

    def _compare(self, first: _Sample, second: _Sample, least_share: float) -> ForeignLoad:
        elapsed_s = second.at_s - first.at_s
        ticks = elapsed_s * TICKS_PER_S
        ours = _tree(second.processes, self._pid)
        accounted = 0
        above: list[tuple[int, int]] = []  # ticks used, pid
        for pid, now in second.processes.items():
            before = first.processes.get(pid)
            if before is None or before.started != now.started:
                before = now._replace(own=0, children=0)
            used = now.own - before.own
            if pid in ours:
                accounted += used + now.children - before.children
            elif used > least_share * ticks:
                accounted += used
                above.append((used, pid))
        processes = []
        for used, pid in sorted(above, key=lambda one: (-one[0], one[1])):
            process = second.processes[pid]
            user, command = (
                (None, process.name) if process.kernel else _user_and_command(pid, process.name)
            )
            processes.append(BusyProcess(pid, printable(command, _NAME_WIDTH), used / ticks, user))
        if first.machine is None or second.machine is None:
            return ForeignLoad(tuple(processes), 0.0, 0.0)
        return ForeignLoad(
            tuple(processes),
            _unseen_cpus(first.machine, second.machine, accounted / TICKS_PER_S, elapsed_s),
            _stolen_share(first.machine, second.machine),
        )


def foreign_load_warning(found: ForeignLoad) -> str | None:
    """Say in one line who was busy, None when it was quiet (pure).

    Processes of one name and user are named together, at most five of them.
    """
    who, parts = busy_names(found), []
    if who:
        parts.append(f"{join_and(who)}; this load shares the machine with the copies")
    if found.stolen:
        parts.append(
            f"the hypervisor gives {found.stolen * 100:.0f} % of this machine's CPU time to others "
            "(steal)"
        )
    return f"busy before the start: {'; '.join(parts)}" if parts else None


def busy_names(found: ForeignLoad) -> list[str]:
    """Name the processes that were busy, at most five, and what no process is known of (pure)."""
    who = _descriptions(found.processes)
    if found.unseen:
        who.append(f"small, short-lived or hidden processes ({_share(found.unseen)} together)")
    return who


def _descriptions(processes: Iterable[BusyProcess]) -> list[str]:
    groups: dict[tuple[str, str | None], list[BusyProcess]] = {}
    for one in processes:
        groups.setdefault((one.command, one.user), []).append(one)
    shares = {key: sum(one.share for one in group) for key, group in groups.items()}
    order = sorted(groups, key=lambda key: -shares[key])
    texts = []
    for key in order[:_NAMED]:
        group, (command, user) = groups[key], key
        kind = "kernel thread " if user is None else ""
        who = f"pid {group[0].pid}" if len(group) == 1 else f"{len(group)} processes"
        of = "" if user is None else f", user {user}"
        texts.append(f"{kind}{command} ({who}{of}, {_share(shares[key])})")
    more = sum(len(groups[key]) for key in order[_NAMED:])
    if more:
        texts.append(f"{more} more {'process' if more == 1 else 'processes'}")
    return texts


def _share(cpus: float) -> str:
    return f"{cpus * 100:.0f} % of a CPU" if cpus < 1.5 else f"{cpus:.1f} CPUs"


def _unseen_cpus(
    first: MachineTimes, second: MachineTimes, accounted_s: float, elapsed_s: float
) -> float:
    """Return the CPUs' worth of work that no process we know of did, 0 when it may be chance."""
    cpus = (second.busy_s - first.busy_s - accounted_s) / elapsed_s
    return cpus if cpus >= max(_LEAST_UNSEEN_CPUS, _LEAST_UNSEEN_SHARE * second.cpus) else 0.0


def _stolen_share(first: MachineTimes, second: MachineTimes) -> float:
    total_s = second.total_s - first.total_s
    share = (second.stolen_s - first.stolen_s) / total_s if total_s > 0 else 0.0
    return share if share > _LEAST_STOLEN else 0.0


def _tree(processes: dict[int, Stat], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found, ahead = {root}, [root]
    while ahead:
        new = children.get(ahead.pop(), [])
        found.update(new)
        ahead += new
    return found


_user_name = cache(user_name)  # asked for once: a directory service is slow


def _user_and_command(pid: int, name: str) -> tuple[str, str]:
    """Return the user and a name a person knows the process by, `?` and `name` where unknown.

    Only names of programs and scripts: other arguments may hold what is secret.
    """
    user = "?"  # it has just ended
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        user = _user_name(process.uids().real)
        return user, _command(name, process.cmdline())
    return user, name


def _command(name: str, arguments: Sequence[str]) -> str:
    if len(name.encode()) == _LONGEST_NAME:  # it may have been cut
        program = "".join(arguments[:1]).rpartition("/")[2].partition(" ")[0]
        return program if program.startswith(name) else name
    if _INTERPRETER.fullmatch(name):
        for argument in arguments[1:]:
            if _INLINE.fullmatch(argument):
                return name
            if argument and not argument.startswith("-"):
                return f"{name} {argument.rpartition('/')[2]}"
    return name

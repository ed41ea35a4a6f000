"""CPU time as the kernel counts it, and who else works on this machine when a run starts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from rater.run.host.procfs import Stat, parse_stat, read_file, read_piece
from rater.system.files import user_name
from rater.system.patterns import compile_later
from rater.text.values import join_and, printable

PROC = Path("/proc")  # another one in tests
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NUMBERS = Decoder(list[int])
_TIMES = 8  # of a CPU; guest and guest_nice, which follow, are part of user and nice


class MachineTimes(NamedTuple):
    """CPU time of the whole machine since it started, in seconds."""

    cpus: int  # that are online
    busy_s: float  # user, nice, system, interrupts; guests are part of user
    stolen_s: float  # wanted, but given to others by the hypervisor
    total_s: float


def machine_times() -> MachineTimes | None:
    """Return the machine's times; None when /proc/stat cannot be read or understood."""
    try:
        stat = read_file(PROC / "stat")
        words = stat.split(b"\n", 1)[0].split()[1:]
        user, nice, system, idle, iowait, irq, softirq, steal = (
            int(word) / TICKS_PER_S for word in words[:8]
        )
        cpus = len(cpu_ticks(stat))
    except (OSError, ValueError):
        return None
    busy_s = user + nice + system + irq + softirq
    return MachineTimes(max(1, cpus), busy_s, steal, busy_s + idle + iowait + steal)


def cpu_ticks(stat: bytes) -> dict[int, tuple[int, ...]]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal of each CPU, in ticks.

    `stat` is the text of /proc/stat (proc_stat(5)). Raises `ValueError` where it is
    none.
    """
    rows = stat[: stat.find(b"\nintr ") + 1]  # what follows is of the whole machine
    whole, _, of_cpus = (rows or stat).partition(b"\n")  # the first line is of all CPUs
    width = len(whole.split())
    listed = of_cpus.replace(b"cpu", b"").rstrip().replace(b"\n", b" ").replace(b" ", b",")
    try:  # numbers of a JSON list: word by word, and line by line, it takes six times as long
        numbers = _NUMBERS.decode(b"[%b]" % listed)
    except ValueError:
        return _ticks_line_by_line(of_cpus)
    if width <= _TIMES or len(numbers) != width * of_cpus.count(b"\n"):
        return _ticks_line_by_line(of_cpus)
    columns = [numbers[place::width] for place in range(1, _TIMES + 1)]
    return dict(zip(numbers[::width], zip(*columns, strict=True), strict=True))


def _ticks_line_by_line(of_cpus: bytes) -> dict[int, tuple[int, ...]]:
    """Return the same of a text with lines of unlike length, such as another system may write."""
    ticks_by_cpu = {}
    for line in of_cpus.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *words = line.split()
        if len(words) >= _TIMES:
            ticks_by_cpu[int(name[3:])] = tuple(int(word) for word in words[:_TIMES])
    return ticks_by_cpu


def process_cpu_ns(pid: int) -> int | None:
    """Return the CPU time that a process and its threads have used; None: the process is gone."""
    # CPUCLOCK_SCHED of another process: linux/posix-timers.h, man 3 clock_getcpuclockid.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None


def process_cpu_s(pid: int) -> float:
    """Return the same in seconds; 0 once it is gone."""
    return (process_cpu_ns(pid) or 0) / 1e9


def process_stats(proc: Path) -> dict[int, Stat]:
    """Return all processes that can be seen, by pid: one file each, 10 to 20 us."""
    stats_by_pid = {}
    with suppress(OSError):
        for name in os.listdir(proc):  # noqa: PTH208 - the quicker one
            with suppress(OSError, ValueError):  # it is gone, hidden from us, or no process
                if stat := parse_stat(read_piece(f"{proc}/{int(name)}/stat")):
                    stats_by_pid[int(name)] = stat
    return stats_by_pid


# -- Who else works on this machine when a run starts? ---------------------------------------------
#
# Two samples of the CPU time of all processes, some time apart: what others used in
# between is what copies would have to share the machine with.

_LEAST_INTERVAL_S = 0.25
_STALE_S = 5.0  # a first sample from before a long build says nothing of the present load
_LEAST_STOLEN = 0.01
_LEAST_UNSEEN_CPUS = 0.5  # ticks are counted by sampling: less may be chance
_LEAST_UNSEEN_SHARE = 0.005  # of the machine, for the same reason
_NAMED = 5
_NAME_WIDTH = 40
_INTERPRETER = compile_later(r"(python|pypy|perl|ruby|node|bash|dash|zsh|sh)[\d.]*")
_LONGEST_NAME = 15  # bytes, TASK_COMM_LEN of the kernel without its end
_INLINE = compile_later(r"-\w*[ce]|--eval")
_UID = compile_later(rb"^Uid:\s+(\d+)", re.MULTILINE)  # the real one stands first


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

    A sampler made early needs no waiting later. `pid` is the root of the process tree
    that is ours and does not count; `clock` and `sleep` are in seconds.
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
        return _Sample(self._clock(), machine_times(), process_stats(PROC))

    def _compare(self, first: _Sample, second: _Sample, least_share: float) -> ForeignLoad:
        elapsed_s = second.at_s - first.at_s
        ticks = elapsed_s * TICKS_PER_S
        our_pids = _tree(second.processes, self._pid)
        accounted_ticks = 0
        busy_pids: list[tuple[int, int]] = []  # ticks used, pid
        for pid, now in second.processes.items():
            before = first.processes.get(pid)
            if before is None or before.started != now.started:
                before = now._replace(own=0, children=0)
            used_ticks = now.own - before.own
            if pid in our_pids:
                accounted_ticks += used_ticks + now.children - before.children
            elif used_ticks > least_share * ticks:
                accounted_ticks += used_ticks
                busy_pids.append((used_ticks, pid))
        processes = []
        for used_ticks, pid in sorted(
            busy_pids, key=lambda ticks_and_pid: (-ticks_and_pid[0], ticks_and_pid[1])
        ):
            process = second.processes[pid]
            user, command = (
                (None, process.name) if process.kernel else _user_and_command(pid, process.name)
            )
            processes.append(
                BusyProcess(pid, printable(command, _NAME_WIDTH), used_ticks / ticks, user)
            )
        if first.machine is None or second.machine is None:
            return ForeignLoad(tuple(processes), 0.0, 0.0)
        return ForeignLoad(
            tuple(processes),
            _unseen_cpus(first.machine, second.machine, accounted_ticks / TICKS_PER_S, elapsed_s),
            _stolen_share(first.machine, second.machine),
        )


def foreign_load_warning(foreign_load: ForeignLoad) -> str | None:
    """Say in one line who was busy, None when it was quiet (pure).

    Processes of one name and user are named together, at most five of them.
    """
    busy_processes, parts = busy_names(foreign_load), []
    if busy_processes:
        parts.append(f"{join_and(busy_processes)}; this load shares the machine with the copies")
    if foreign_load.stolen:
        parts.append(
            f"the hypervisor gives {foreign_load.stolen * 100:.0f} % of this machine's CPU time to "
            "others (steal)"
        )
    return f"busy before the start: {'; '.join(parts)}" if parts else None


def busy_names(foreign_load: ForeignLoad) -> list[str]:
    """Name the processes that were busy, at most five, and what no process is known of (pure)."""
    names = _descriptions(foreign_load.processes)
    if foreign_load.unseen:
        names.append(
            f"small, short-lived or hidden processes ({_share(foreign_load.unseen)} together)"
        )
    return names


def _descriptions(processes: Iterable[BusyProcess]) -> list[str]:
    groups: dict[tuple[str, str | None], list[BusyProcess]] = {}
    for process in processes:
        groups.setdefault((process.command, process.user), []).append(process)
    shares = {key: sum(process.share for process in group) for key, group in groups.items()}
    by_share = sorted(groups, key=lambda key: -shares[key])
    descriptions = []
    for key in by_share[:_NAMED]:
        group, (command, user) = groups[key], key
        kind = "kernel thread " if user is None else ""
        processes_text = f"pid {group[0].pid}" if len(group) == 1 else f"{len(group)} processes"
        user_text = "" if user is None else f", user {user}"
        descriptions.append(f"{kind}{command} ({processes_text}{user_text}, {_share(shares[key])})")
    more_processes = sum(len(groups[key]) for key in by_share[_NAMED:])
    if more_processes:
        descriptions.append(
            f"{more_processes} more {'process' if more_processes == 1 else 'processes'}"
        )
    return descriptions


def _share(cpus: float) -> str:
    return f"{cpus * 100:.0f} % of a CPU" if cpus < 1.5 else f"{cpus:.1f} CPUs"


def _unseen_cpus(
    first: MachineTimes, second: MachineTimes, accounted_s: float, elapsed_s: float
) -> float:
    """Return the CPUs' worth of work that no process we know of did, 0 when it may be chance."""
    unseen = (second.busy_s - first.busy_s - accounted_s) / elapsed_s
    return unseen if unseen >= max(_LEAST_UNSEEN_CPUS, _LEAST_UNSEEN_SHARE * second.cpus) else 0.0


def _stolen_share(first: MachineTimes, second: MachineTimes) -> float:
    total_s = second.total_s - first.total_s
    share = (second.stolen_s - first.stolen_s) / total_s if total_s > 0 else 0.0
    return share if share > _LEAST_STOLEN else 0.0


def _tree(processes: dict[int, Stat], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    members, unvisited = {root}, [root]
    while unvisited:
        child_pids = children.get(unvisited.pop(), [])
        members.update(child_pids)
        unvisited += child_pids
    return members


_user_name = cache(user_name)  # a directory service that has to be asked is slow


def _user_and_command(pid: int, name: str) -> tuple[str, str]:
    """Return the user and a name a person knows the process by, `?` and `name` where unknown.

    Only names of programs and scripts: other arguments may hold what is secret.
    """
    user = "?"  # it has just ended
    with suppress(OSError):
        uid = _UID.search(read_piece(f"{PROC}/{pid}/status"))
        user = _user_name(int(uid[1])) if uid else user
        arguments = read_file(f"{PROC}/{pid}/cmdline").rstrip(b"\0").split(b"\0")
        return user, _command(name, [os.fsdecode(argument) for argument in arguments])
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

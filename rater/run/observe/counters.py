"""What the CPUs and the machine's counters do during a phase, whoever makes them do it.

Two readings, one before the first release and one when the last copy has ended:
nothing is timed then, so they may cost what they cost (1024 CPUs: milliseconds).
Only the frequency must be read while copies run; see `PhaseCounters.watch`.

Formats: proc_stat(5), Documentation/filesystems/proc.rst, accounting/psi.rst and
admin-guide/pm/cpufreq.rst of the kernel.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio

from rater.record.events import CpuReading, CpuReadings, MachineReadings
from rater.run.host.admission import limiting_groups
from rater.run.host.facts import cpu_quotas
from rater.run.host.foreign_load import TICKS_PER_S, cpu_ticks, process_stats
from rater.run.host.procfs import read_number
from rater.run.observe.energy import EnergyReader

_TICK_NS = 10**9 // TICKS_PER_S
_PRESSURES = ("cpu", "memory", "io")
_COUNTERS = (
    *(b"numa_hint_faults", b"pgmajfault", b"pgmigrate_success"),
    *(b"pswpin", b"pswpout", b"thp_fault_fallback"),
)
_THROTTLED = {  # names in cpu.stat: of both versions, of version 1, of version 2
    "nr_periods": ("cfs_periods", 1),
    "nr_throttled": ("cfs_throttled_periods", 1),
    "throttled_time": ("cfs_throttled_ns", 1),
    "throttled_usec": ("cfs_throttled_ns", 1000),
}
_STALLS = b"allocstall"  # one for each zone since Linux 4.10
# /proc/interrupts is a table of CPUs x interrupts, both of which grow with the machine:
# of 256 CPUs and 600 interrupts it takes 0.06 s to read.
_MOST_CPUS_WITH_INTERRUPTS = 128
# The average over the last tick where the kernel has it (Linux 6.15), else what the governor's
# driver last saw.
_FREQUENCY_FILES = ("cpuinfo_avg_freq", "scaling_cur_freq")
_FIRST_S = 0.2  # from the release to the first reading of frequencies
_EVERY_S = 1.0
_SHARE = 0.001  # of one CPU, for frequencies
_MOST_AT_ONCE = 64  # CPUs whose frequency is read in one turn
_DEEPEST = 100  # generations of a copy's processes
_TURN_NS = 300_000  # CPU time of a turn that can not be separated from other work
_READ_NS = 20_000  # of one file, before any was read


class _Snapshot(NamedTuple):
    """Counters at one moment, most of them as the kernel wrote them."""

    own: dict[str, int]  # the clock, rater's own CPU time, and energy by domain
    stat: bytes
    vmstat: bytes
    pressures: tuple[bytes, ...]  # as `_PRESSURES`
    interrupts: bytes
    throttles: dict[int, int]

    def counters(self) -> dict[str, int]:
        """Return those of the whole machine by name."""
        found = {**self.own, **_counters(self.vmstat)}
        for what, text in zip(_PRESSURES, self.pressures, strict=True):
            for kind, waited_ns in _pressure_ns(text).items():
                found[f"pressure_{what}_{kind}_ns"] = waited_ns
        return found


class MachineReader:
    """Reads the machine's counters; of one run.

    `spent_ns` and `elapsed_ns` add up what reading frequencies cost, and the time of
    the phases it was done in.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        energy: EnergyReader | None = None,
    ) -> None:
        self.proc = proc
        self.energy = energy
        # In a container another file system may lie over it, which numbers CPUs its own way
        # (lxcfs): its rows are not those of the CPUs that copies are on.
        self._stat = proc / "stat" if _is_kernels(proc / "stat") else None
        cpus = list(cpu_ticks(self._ticks()))
        self._quota = min(cpu_quotas(proc.parent), default=None)
        self._in_a_cgroup = any(limiting_groups(proc.parent, "cpu"))
        folders = [(cpu, sys / f"devices/system/cpu/cpu{cpu}") for cpu in cpus]
        self._with_interrupts = len(cpus) <= _MOST_CPUS_WITH_INTERRUPTS
        self._throttle_files = [
            (cpu, file)
            for cpu, folder in folders
            for what in ("core", "package")
            if (file := folder / f"thermal_throttle/{what}_throttle_count").exists()
        ]
        frequencies = [
            (cpu, files[0])
            for cpu, folder in folders
            if (files := [f for n in _FREQUENCY_FILES if (f := folder / "cpufreq" / n).exists()])
        ]
        # Each turn has CPUs of all of the machine, not neighbours.
        turns = -(-len(frequencies) // _MOST_AT_ONCE)
        self.frequency_turns = [frequencies[turn::turns] for turn in range(turns)]
        self.spent_ns = 0
        self.elapsed_ns = 0

    def before(self) -> _Snapshot:
        """Read what takes longest first: the time of the CPUs is to be that of the release."""
        slow = (self._interrupts(), self._throttles())
        return _Snapshot(*self._fast(), *slow)

    def after(self) -> _Snapshot:
        """Read the time of the CPUs first, as the copies have just ended."""
        return _Snapshot(*self._fast(), self._interrupts(), self._throttles())

    def _fast(self) -> tuple[dict[str, int], bytes, bytes, tuple[bytes, ...]]:
        times = {"elapsed_ns": time.monotonic_ns(), "rater_cpu_ns": time.process_time_ns()}
        joules = self.energy.read() if self.energy else {}
        return (
            times | self._throttled() | {f"energy_{name}_uj": it for name, it in joules.items()},
            self._ticks(),
            _read(self.proc / "vmstat"),
            tuple(_read(self.proc / "pressure" / what) for what in _PRESSURES),
        )

    def _ticks(self) -> bytes:
        return b"" if self._stat is None else _read(self._stat)

    def _throttled(self) -> dict[str, int]:
        """Return what the tightest quota kept from us; nothing where no cgroup can be seen."""
        if self._quota is None:
            return {"cfs_throttled_ns": 0} if self._in_a_cgroup else {}
        text = _read(self._quota[1] / "cpu.stat").decode()
        found = {name: int(value) for name, value in map(str.split, text.splitlines())}
        return {
            name: found[key] * scale for key, (name, scale) in _THROTTLED.items() if key in found
        }

    def _interrupts(self) -> bytes:
        return _read(self.proc / "interrupts") if self._with_interrupts else b""

    def _throttles(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for cpu, file in self._throttle_files:
            count = read_number(file)
            if count is not None:
                found[cpu] = found.get(cpu, 0) + count
        return found


class PhaseCounters:
    """The counters of one phase: `begin`, `watch` while copies run, `end`, then `events`.

    `place` returns the CPU that a copy was given, None when it is not bound.
    """

    def __init__(
        self, reader: MachineReader, phase: int, place: Callable[[int], int | None]
    ) -> None:
        self.reader = reader
        self.phase = phase
        self.place = place
        self._before: _Snapshot | None = None
        self._after: _Snapshot | None = None
        self._khz: dict[int, tuple[int, int]] = {}  # sum and number, by CPU
        self._fillers: Counter[int | None] = Counter()  # ns by CPU
        self._over = False

    def begin(self) -> None:
        """Read for the first time: all copies wait at their gates."""
        self._before = self.reader.before()

    def end(self) -> None:
        """Read for the last time; what comes later is no part of the phase."""
        if self._after is None:
            self._after = self.reader.after()

    def filler_ended(self, copy: int, cpu_ns: int) -> None:
        """Take the CPU time of a run that only kept the load up; after `end` it is too late."""
        if self._after is None:
            self._fillers[self.place(copy)] += cpu_ns

    def end_with_fillers(self, roots: Mapping[int, int]) -> None:
        """Read for the last time while fillers still run, with what they used so far.

        `roots`: copies by pid, also by that of a process whose parent is gone. Once they
        are killed most of their CPU time is lost: a parent is charged only for children that
        were waited for.
        """
        processes = process_stats(self.reader.proc)
        for pid, one in processes.items():
            root = pid
            # Numbers given anew while they were listed could make a ring of parents.
            for _ in range(_DEEPEST):
                if root in roots or root not in processes:
                    break
                root = processes[root].parent
            if root in roots:
                self.filler_ended(roots[root], (one.own + one.children) * _TICK_NS)
        self.end()

    async def watch(self) -> None:
        """Read frequencies until cancelled, in a thread: a copy's end is not to wait for it.

        A file takes 10 us (some kernels before 5.18: a few ms asleep). At most once a
        second, 64 CPUs at a time, and so seldom that it stays below 0.1 % of one CPU.
        """
        reader = self.reader
        if not reader.frequency_turns:
            return
        begin_ns, before_ns = time.monotonic_ns(), reader.elapsed_ns
        try:
            wait_s = _FIRST_S
            turn = 0
            each_ns = _READ_NS
            while True:
                await trio.sleep(wait_s)
                reader.elapsed_ns = before_ns + time.monotonic_ns() - begin_ns
                files = reader.frequency_turns[turn % len(reader.frequency_turns)]
                cost_ns = _TURN_NS + len(files) * each_ns
                lacking_ns = (reader.spent_ns + cost_ns) / _SHARE - reader.elapsed_ns
                if lacking_ns > 0:
                    wait_s = lacking_ns / 1e9
                    continue
                read_ns = await trio.to_thread.run_sync(
                    self._read_frequencies, files, abandon_on_cancel=True
                )
                reader.spent_ns += _TURN_NS + read_ns
                each_ns = read_ns // len(files)
                turn += 1
                wait_s = _EVERY_S
        finally:
            self._over = True
            reader.elapsed_ns = before_ns + time.monotonic_ns() - begin_ns

    def _read_frequencies(self, files: Iterable[tuple[int, Path]]) -> int:
        begin_ns = time.thread_time_ns()
        for cpu, file in files:
            khz = read_number(file)  # of an idle CPU there may be none
            if self._over:
                break
            if khz:
                total, number = self._khz.get(cpu, (0, 0))
                self._khz[cpu] = (total + khz, number + 1)
        return time.thread_time_ns() - begin_ns

    def events(self) -> tuple[CpuReadings, MachineReadings] | tuple[()]:
        """Return what both readings come to; nothing where one is missing."""
        if self._before is None or self._after is None:
            return ()
        values = _growth(self._before.counters(), self._after.counters())
        return (
            CpuReadings(self.phase, tuple(self._rows(self._before, self._after))),
            MachineReadings(self.phase, tuple(sorted(values.items()))),
        )

    def _rows(self, before: _Snapshot, after: _Snapshot) -> Iterable[CpuReading]:
        first, then = cpu_ticks(before.stat), cpu_ticks(after.stat)
        interrupts = _growth(_interrupts(before.interrupts), _interrupts(after.interrupts))
        throttles = _growth(before.throttles, after.throttles)
        unbound_ns = self._fillers[None]
        for cpu in then:
            if cpu not in first:  # it came online meanwhile
                continue
            user, nice, system, idle, iowait, irq, softirq, steal = (
                _more(one, other) * _TICK_NS
                for one, other in zip(first[cpu], then[cpu], strict=True)
            )
            total_khz, number = self._khz.get(cpu, (0, 0))
            yield CpuReading(
                cpu=cpu,
                user_ns=user + nice,
                system_ns=system,
                iowait_ns=iowait,
                irq_ns=irq + softirq,
                steal_ns=steal,
                idle_ns=idle,
                mean_khz=round(total_khz / number) if number else None,
                throttles=throttles.get(cpu),
                interrupts=interrupts.get(cpu),
                filler_ns=self._fillers[cpu] + unbound_ns,
            )
            unbound_ns = 0  # with the first CPU


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def _is_kernels(file: Path) -> bool:
    """Tell whether a file of /proc is of the same file system as its folder."""
    try:
        return file.stat().st_dev == file.parent.stat().st_dev
    except OSError:
        return False


def _counters(vmstat: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in vmstat.splitlines():
        name, _, value = line.partition(b" ")
        if name.startswith(_STALLS):
            name = _STALLS
        elif name not in _COUNTERS:
            continue
        found[name.decode()] = found.get(name.decode(), 0) + int(value)
    return found


def _pressure_ns(text: bytes) -> dict[str, int]:
    """Return the time that `some` and `full` tasks waited; the kernel counts microseconds."""
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(b" ")
        found[kind.decode()] = int(rest.rpartition(b"total=")[2]) * 1000
    return found


def _interrupts(text: bytes) -> dict[int, int]:
    lines = text.splitlines()
    if not lines:
        return {}
    cpus = [int(name[3:]) for name in lines[0].split()]
    totals = [0] * len(cpus)
    for line in lines[1:]:
        words = line.partition(b":")[2].split(maxsplit=len(cpus))[: len(cpus)]
        if len(words) == len(cpus) and all(word.isdigit() for word in words):  # ERR has a total
            totals = [total + int(word) for total, word in zip(totals, words, strict=True)]
    return dict(zip(cpus, totals, strict=True))


def _growth[Name](before: Mapping[Name, int], after: Mapping[Name, int]) -> dict[Name, int]:
    return {name: _more(before[name], after[name]) for name in after if name in before}


def _more(before: int, after: int) -> int:
    """Return by how much a counter grew: idle and iowait can go back a tick, says proc_stat(5)."""
    return max(0, after - before)

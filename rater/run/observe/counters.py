"""Counters of CPUs and machine over a phase, whichever process caused the work.

Two readings, one before the first release and one when the last copy has ended:
nothing is timed then, so their cost does not matter (1024 CPUs: milliseconds).
Frequencies must be read while copies run, and so are the samples of a series (`series`) between
the two; see `PhaseCounters.watch`.

Formats: proc_stat(5), Documentation/filesystems/proc.rst, accounting/psi.rst and
admin-guide/pm/cpufreq.rst of the kernel.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import trio

from rater.record.events import CpuReading, CpuReadings, MachineReadings, PhaseSeries
from rater.record.series import Column
from rater.run.host.admission import limiting_groups, tightest_memory_group
from rater.run.host.facts import cpu_quotas
from rater.run.host.foreign_load import TICKS_PER_S, cpu_ticks, process_stats
from rater.run.host.procfs import (
    KeptFile,
    find_count,
    read_if_there,
    read_number,
    stalls_of,
)
from rater.run.host.thread_binding import realtime_priority
from rater.run.observe.energy import EnergyReader
from rater.run.observe.memory_traffic import TrafficSource
from rater.run.observe.series import (
    CopyLook,
    EndedUse,
    MachineSample,
    PhaseSampler,
    SeriesSource,
)

_TICK_NS = 10**9 // TICKS_PER_S
_PRESSURES = ("cpu", "memory", "io")
_COUNTERS = (
    *(b"numa_hint_faults", b"pgmajfault", b"pgmigrate_success"),
    *(b"pswpin", b"pswpout", b"thp_fault_fallback"),
    *(b"pgpgin", b"pgpgout"),  # kilobytes read from and written to block devices
)
_THROTTLED = {  # names in cpu.stat: of both versions, of version 1, of version 2
    "nr_periods": ("cfs_periods", 1),
    "nr_throttled": ("cfs_throttled_periods", 1),
    "throttled_time": ("cfs_throttled_ns", 1),
    "throttled_usec": ("cfs_throttled_ns", 1000),
}
# /proc/interrupts is a table of CPUs x interrupts, both of which grow with the machine:
# of 256 CPUs and 600 interrupts it takes 0.06 s to read.
_MOST_CPUS_WITH_INTERRUPTS = 128
# The average over the last tick where the kernel has it (Linux 6.15), else what the governor's
# driver last saw.
_FREQUENCY_FILES = ("cpuinfo_avg_freq", "scaling_cur_freq")
_FIRST_S = 0.2  # from the release to the first reading of frequencies,
_FIRST_SAMPLE_S = 1.0  # and to the first sample of a series
_EVERY_S = 1.0
_SHARE = 0.001  # of one CPU, for frequencies,
_SHARE_WITH_SERIES = 0.003  # and together with the samples of a series
_MOST_AT_ONCE = 64  # CPUs whose frequency is read in one turn
_DEEPEST = 100  # generations of a copy's processes
_TORN_NS = 100_000_000  # from the first to the last file of a sample
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
        value_by_name = {**self.own, **_counters(self.vmstat)}
        for pressure, text in zip(_PRESSURES, self.pressures, strict=True):
            for kind, waited_ns in _pressure_ns(text).items():
                value_by_name[f"pressure_{pressure}_{kind}_ns"] = waited_ns
        return value_by_name

    def sample(self, khz: Mapping[int, int] | None = None) -> MachineSample:
        """Return what a series takes of it; `khz`: frequencies by CPU."""
        at_ns = self.own["elapsed_ns"]
        return MachineSample(
            at_ns=at_ns,
            stat=self.stat,
            counters=self.counters(),
            khz=khz or {},
            throttles=self.throttles,
        )


class MachineReader:
    """Reads the machine's counters; of one run.

    `sources` are what series have besides; None: there are to be no series.
    `spent_ns` and `elapsed_ns` add up what reading while copies run cost, and the time of
    the phases it was done in.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        energy: EnergyReader | None = None,
        sources: Sequence[SeriesSource] | None = None,
    ) -> None:
        self.proc = proc
        self.energy = energy
        self.sources = sources
        # Where rater lives on one CPU it would be the supervisor that waits.
        self.prompt = len(os.sched_getaffinity(0)) > 1
        # In a container another file system may lie over it, which numbers CPUs its own way
        # (lxcfs): its rows are not those of the CPUs that copies are on.
        has_stat = _is_kernels(proc / "stat")
        self._stat = KeptFile(proc / "stat") if has_stat else None
        self._vmstat = KeptFile(proc / "vmstat")
        self._interrupts = KeptFile(proc / "interrupts")
        self._pressures = [KeptFile(proc / "pressure" / name) for name in _PRESSURES]
        cpus = list(cpu_ticks(self._ticks()))
        self._quota = min(cpu_quotas(proc.parent), default=None)
        self._in_a_cgroup = any(limiting_groups(proc.parent, "cpu"))
        self._limits_memory = tightest_memory_group(proc.parent)
        folders = [(cpu, sys / f"devices/system/cpu/cpu{cpu}") for cpu in cpus]
        self._with_interrupts = len(cpus) <= _MOST_CPUS_WITH_INTERRUPTS
        self._throttle_files = [
            (cpu, file)
            for cpu, folder in folders
            for scope in ("core", "package")
            if (file := folder / f"thermal_throttle/{scope}_throttle_count").exists()
        ]
        frequencies = [
            (cpu, files[0])
            for cpu, folder in folders
            if (files := _existing(folder / "cpufreq" / name for name in _FREQUENCY_FILES))
        ]
        # Each turn has CPUs of all of the machine, not neighbours.
        turns = -(-len(frequencies) // _MOST_AT_ONCE)
        self.frequency_turns = [frequencies[turn::turns] for turn in range(turns)]
        self.spent_ns = 0
        self.elapsed_ns = 0

    def close(self) -> None:
        """Close the counters that the kernel keeps for this reader; nothing is read any more."""
        if self.energy is not None:
            self.energy.close()
        for file in (self._stat, self._vmstat, self._interrupts, *self._pressures):
            if file is not None:
                file.close()
        for source in self.sources or ():
            if isinstance(source, TrafficSource):
                source.close()

    def before(self) -> _Snapshot:
        """Read what takes longest first: the time of the CPUs is to be that of the release."""
        interrupts, throttles = self._read_interrupts(), self.read_throttles()
        return self.read_quick()._replace(interrupts=interrupts, throttles=throttles)

    def after(self) -> _Snapshot:
        """Read the time of the CPUs first, as the copies have just ended."""
        quick = self.read_quick()
        return quick._replace(interrupts=self._read_interrupts(), throttles=self.read_throttles())

    def read_quick(self) -> _Snapshot:
        """Read all but interrupts and throttles, the clock and the time of the CPUs first."""
        counters = {"elapsed_ns": time.monotonic_ns(), "rater_cpu_ns": time.process_time_ns()}
        energy_uj = self.energy.read() if self.energy else {}
        counters |= self._throttled()
        hits = None if self._limits_memory is None else self._limits_memory.memory_limit_hits()
        counters |= {} if hits is None else {"memory_limit_hits": hits}
        counters |= {f"energy_{name}_uj": total_uj for name, total_uj in energy_uj.items()}
        return _Snapshot(
            own=counters,
            stat=self._ticks(),
            vmstat=self._vmstat.read(),
            pressures=tuple(file.read() for file in self._pressures),
            interrupts=b"",
            throttles={},
        )

    def _ticks(self) -> bytes:
        return b"" if self._stat is None else self._stat.read()

    def _throttled(self) -> dict[str, int]:
        """Return how long the tightest quota kept us from running; empty without a cgroup."""
        if self._quota is None:
            return {"cfs_throttled_ns": 0} if self._in_a_cgroup else {}
        text = read_if_there(self._quota[1] / "cpu.stat").decode()
        value_by_key = {name: int(value) for name, value in map(str.split, text.splitlines())}
        return {
            name: value_by_key[key] * scale
            for key, (name, scale) in _THROTTLED.items()
            if key in value_by_key
        }

    def _read_interrupts(self) -> bytes:
        return self._interrupts.read() if self._with_interrupts else b""

    def read_throttles(self, cpus: Collection[int] | None = None) -> dict[int, int]:
        """Return how often CPUs were too hot, of those of `cpus` (None: all) that count it."""
        count_by_cpu: dict[int, int] = {}
        for cpu, file in self._throttle_files:
            if cpus is not None and cpu not in cpus:
                continue
            count = read_number(file)
            if count is not None:
                count_by_cpu[cpu] = count_by_cpu.get(cpu, 0) + count
        return count_by_cpu


class _Turn(NamedTuple):
    """What is read in one turn while copies run."""

    frequencies: Sequence[tuple[int, Path]]
    copies: Mapping[int, int] | None  # that run, by process; None: no sample is taken


class _TurnResult(NamedTuple):
    """What a turn gave."""

    at_ns: int  # when its sample was taken
    looks: Mapping[int, CopyLook] | None  # by copy; None: there is no sample
    cost_ns: int  # CPU time


class PhaseCounters:
    """The counters of one phase: `begin`, `watch` while copies run, `end`, then `events`.

    `place` returns the CPU that a copy was given, None when it is not bound; `copies` are the
    numbers of the phase's copies, for a series.
    """

    def __init__(
        self,
        reader: MachineReader,
        phase: int,
        place: Callable[[int], int | None],
        copies: Sequence[int] = (),
    ) -> None:
        self.reader = reader
        self.phase = phase
        self.place = place
        self._sampler = None if reader.sources is None else PhaseSampler(reader.sources, copies)
        self._before: _Snapshot | None = None
        self._after: _Snapshot | None = None
        self._khz: dict[int, tuple[int, int]] = {}  # sum and number, by CPU
        self._fillers: Counter[int | None] = Counter()  # ns by CPU
        self._over = False
        self._first_readings: Sequence[Sequence[Column]] = ()  # of the sampler's sources

    def begin(self) -> bytes:
        """Read for the first time: all copies wait at their gates. Return /proc/vmstat."""
        self._before = self.reader.before()
        if self._sampler is not None:
            self._first_readings = self._sampler.read_sources()
        return self._before.vmstat

    def end(self, copies: Mapping[int, int] | None = None) -> None:
        """Read for the last time; what comes later is no part of the phase.

        `copies`: those that still run, by process.
        """
        if self._after is not None:
            return
        self._after = self.reader.after()
        if self._sampler is not None and self._sampler.samples:  # else there is no series
            at_ns = self._after.own["elapsed_ns"]
            self._sampler.add(self._after.sample(), self._sampler.read_sources())
            self._sampler.add_copies(at_ns, self._sampler.look_at(copies or {}, at_ns))

    def copy_ended(self, copy: int, pid: int, use: EndedUse) -> None:
        """Take the end of a copy's run, which used so much in all."""
        if self._sampler is not None:
            self._sampler.copy_ended(copy, pid, use)

    def filler_ended(self, copy: int, cpu_ns: int) -> None:
        """Take the CPU time of a run that only kept the load up; after `end` it is too late."""
        if self._after is None:
            self._fillers[self.place(copy)] += cpu_ns

    def end_with_fillers(self, roots: Mapping[int, int]) -> None:
        """Read for the last time while fillers still run, with the CPU time they used so far.

        `roots` are copies by pid, also by that of a process whose parent is gone. Once fillers
        are killed most of their CPU time is lost: a parent is charged only for children that
        were waited for.
        """
        processes = process_stats(self.reader.proc)
        for pid, process in processes.items():
            root = pid
            # Numbers given anew while they were listed could make a ring of parents.
            for _ in range(_DEEPEST):
                if root in roots or root not in processes:
                    break
                root = processes[root].parent
            if root in roots:
                self.filler_ended(roots[root], (process.own + process.children) * _TICK_NS)
        self.end({pid: copy for pid, copy in roots.items() if pid in processes})

    async def watch(
        self, copies: Callable[[], Mapping[int, int]] = dict, begin_ns: int | None = None
    ) -> None:
        """Read frequencies and samples until cancelled, in a thread: no end is to wait for it.

        `copies` returns those that run, by process. They were released at `begin_ns` of
        CLOCK_MONOTONIC; None: now. A frequency takes 10 us (some kernels before
        5.18: a few ms asleep), a sample of 256 CPUs and copies 3 ms. At most once a second,
        64 frequencies at a time, and so seldom that all stay below their share of one CPU.
        """
        reader = self.reader
        turns = reader.frequency_turns
        if not turns and self._sampler is None:
            return
        share = _SHARE if self._sampler is None else _SHARE_WITH_SERIES
        entered_ns, before_ns = time.monotonic_ns(), reader.elapsed_ns
        begin_ns = entered_ns if begin_ns is None else begin_ns
        try:
            first_s = _FIRST_S if turns else _FIRST_SAMPLE_S
            wait_s = max(0.0, first_s - (entered_ns - begin_ns) / 1e9)
            turn_number = 0
            turn_ns = _READ_NS * len(turns[0]) if turns else 0
            while True:
                await trio.sleep(wait_s)
                now_ns = time.monotonic_ns()
                reader.elapsed_ns = before_ns + now_ns - begin_ns
                lacking_ns = (reader.spent_ns + _TURN_NS + turn_ns) / share - reader.elapsed_ns
                if lacking_ns > 0:
                    wait_s = lacking_ns / 1e9
                    continue
                is_sampled = now_ns - begin_ns >= _FIRST_SAMPLE_S * 1e9
                turn = _Turn(
                    frequencies=turns[turn_number % len(turns)] if turns else (),
                    copies=copies() if is_sampled and self._sampler is not None else None,
                )
                result = await trio.to_thread.run_sync(self._take, turn, abandon_on_cancel=True)
                if result.looks is not None:
                    self._add_copies(result.at_ns, result.looks, copies())
                turn_ns = result.cost_ns
                reader.spent_ns += _TURN_NS + turn_ns
                turn_number += 1
                wait_s = _EVERY_S if is_sampled or self._sampler is None else _FIRST_SAMPLE_S
        finally:
            self._over = True
            reader.elapsed_ns = before_ns + time.monotonic_ns() - begin_ns

    def _take(self, turn: _Turn) -> _TurnResult:
        """Read frequencies, and take a sample of all but the copies; in a thread.

        A sample whose parts are of different moments, as the thread lost its CPU amid it, is none.
        """
        begin_ns = time.thread_time_ns()
        khz = self._read_frequencies(turn.frequencies)
        sampler, looks, at_ns = self._sampler, None, 0
        if turn.copies is not None and sampler is not None and not self._over:
            throttles = self.reader.read_throttles({cpu for cpu, _ in turn.frequencies})
            # Copies that use all CPUs are not to come between two files.
            with realtime_priority() if self.reader.prompt else nullcontext():
                snapshot = self.reader.read_quick()
                at_ns = snapshot.own["elapsed_ns"]
                looks, readings = sampler.look_at(turn.copies, at_ns), sampler.read_sources()
            if time.monotonic_ns() - at_ns <= _TORN_NS and self._before is not None:
                if not sampler.samples:  # a phase without a second sample does not pay for this
                    sampler.add(self._before.sample(), self._first_readings)
                sampler.add(snapshot._replace(throttles=throttles).sample(khz), readings)
            else:
                looks = None
        return _TurnResult(at_ns, looks, time.thread_time_ns() - begin_ns)

    def _add_copies(
        self, at_ns: int, looks: Mapping[int, CopyLook], running: Mapping[int, int]
    ) -> None:
        """Add what was seen of copies that still run: others have told all with their end."""
        assert self._sampler is not None
        begin_ns = time.thread_time_ns()
        still = {copy: look for copy, look in looks.items() if running.get(look.pid) == copy}
        self._sampler.add_copies(at_ns, still, {*running.values()})
        self.reader.spent_ns += time.thread_time_ns() - begin_ns

    def _read_frequencies(self, files: Iterable[tuple[int, Path]]) -> dict[int, int]:
        """Return the frequencies in kHz by CPU, added to the phase's means."""
        khz_by_cpu = {}
        for cpu, file in files:
            khz = read_number(file)  # of an idle CPU there may be none
            if self._over:
                break
            if khz:
                total_khz, readings = self._khz.get(cpu, (0, 0))
                self._khz[cpu] = (total_khz + khz, readings + 1)
                khz_by_cpu[cpu] = khz
        return khz_by_cpu

    def series(self, origin_ns: int) -> tuple[PhaseSeries, ...]:
        """Return the series; `origin_ns`: time 0 of the run, of CLOCK_MONOTONIC."""
        return () if self._sampler is None else self._sampler.close(self.phase, origin_ns)

    def events(self) -> tuple[CpuReadings, MachineReadings] | tuple[()]:
        """Return the growth between both readings; nothing when one of them is missing."""
        if self._before is None or self._after is None:
            return ()
        values = _growth(self._before.counters(), self._after.counters())
        return (
            CpuReadings(self.phase, tuple(self._cpu_readings(self._before, self._after))),
            MachineReadings(self.phase, tuple(sorted(values.items()))),
        )

    def _cpu_readings(self, before: _Snapshot, after: _Snapshot) -> Iterable[CpuReading]:
        """Yield the growth of the counters of each CPU.

        Fillers that are not bound to a CPU count with the first one.
        """
        ticks_before, ticks_after = cpu_ticks(before.stat), cpu_ticks(after.stat)
        interrupts = _interrupts(before.interrupts, after.interrupts)
        throttles = _growth(before.throttles, after.throttles)
        unbound_ns = self._fillers[None]
        for cpu in ticks_after:
            if cpu not in ticks_before:  # it came online meanwhile
                continue
            user, nice, system, idle, iowait, irq, softirq, steal = (
                _more(earlier, later) * _TICK_NS
                for earlier, later in zip(ticks_before[cpu], ticks_after[cpu], strict=True)
            )
            yield CpuReading(
                cpu=cpu,
                user_ns=user + nice,
                system_ns=system,
                iowait_ns=iowait,
                irq_ns=irq + softirq,
                steal_ns=steal,
                idle_ns=idle,
                mean_khz=self._mean_khz(cpu),
                throttles=throttles.get(cpu),
                interrupts=interrupts.get(cpu),
                filler_ns=self._fillers[cpu] + unbound_ns,
            )
            unbound_ns = 0

    def _mean_khz(self, cpu: int) -> int | None:
        total_khz, readings = self._khz.get(cpu, (0, 0))
        return round(total_khz / readings) if readings else None


def _existing(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if file.exists()]


def _is_kernels(file: Path) -> bool:
    """Tell whether a file of /proc is of the same file system as its folder."""
    try:
        return file.stat().st_dev == file.parent.stat().st_dev
    except OSError:
        return False


def _counters(vmstat: bytes) -> dict[str, int]:
    count_by_name: dict[str, int] = {}
    for name in _COUNTERS:
        count = find_count(vmstat, name)
        if count is not None:
            count_by_name[name.decode()] = count
    stalls = stalls_of(vmstat)
    if stalls is not None:
        count_by_name["allocstall"] = stalls
    return count_by_name


def _pressure_ns(text: bytes) -> dict[str, int]:
    """Return the time that `some` and `full` tasks waited; the kernel counts microseconds."""
    waited_ns = {}
    for line in text.splitlines():
        kind, _, numbers = line.partition(b" ")
        waited_ns[kind.decode()] = int(numbers.rpartition(b"total=")[2]) * 1000
    return waited_ns


def _interrupts(before: bytes, after: bytes) -> dict[int, int]:
    """Return by CPU how many interrupts came between two readings of /proc/interrupts.

    Most of its lines are the same in both, and need not be read any further.
    """
    earlier, later = before.splitlines(), after.splitlines()
    if not earlier or not later or earlier[0] != later[0]:  # none, or a CPU came or went
        return _growth(_interrupt_totals(earlier), _interrupt_totals(later))
    same = {*earlier} & {*later[1:]}
    heading = later[0]
    return _growth(
        *(
            _interrupt_totals([heading, *(line for line in lines[1:] if line not in same)])
            for lines in (earlier, later)
        )
    )


def _interrupt_totals(lines: Sequence[bytes]) -> dict[int, int]:
    """Return the sums of lines of /proc/interrupts by CPU, of which the first line tells."""
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

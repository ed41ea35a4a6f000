"""What the CPUs did in each phase, and for whom: busy, foreign load, steal, heat; pure.

The foreign load of a CPU is the time it worked (user and system) less the CPU time
of the copies on it. Copies that may use several CPUs share them: such CPUs have one
foreign load together. Interrupts are not part of it, and where the kernel counts
them with the task they hit they make it a little less, never more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.account import cpus_of_copies, machine_counters, time_accounts
from rater.analysis.results.foreign_processes import worst_process
from rater.record.events import CopyEnded, CpuReading, CpuReadings, ForeignProcess
from rater.record.run import LEFT_BEHIND, CopyStatus
from rater.record.stored import StoredRun, kept_for_last
from rater.text.values import group_by_key

# From these shares on a disturbance is told.
FOREIGN_SHARE = 0.02  # of a CPU's time
STEAL_SHARE = 0.01  # of a CPU's time
QUOTA_SHARE = 0.01  # of the scheduler's periods
PRESSURE_SHARE = 0.01  # of the phase's time in which some task waited for memory
# Both readings and the copies' own times can be a tick (10 ms) off, and short phases have few.
LEAST_NS = 50_000_000
# A kernel that counts ticks in a guest misses work. So much less than the copies alone used, as a
# share of the time, is no error of ticks any more.
_MISSED_SHARE = 0.1
_MISSED_LEAST_S = 0.2


class CpuUse(Struct, frozen=True, kw_only=True):
    """One CPU in one phase; shares are of the time between the phase's two readings."""

    phase: int
    benchmark: str | None  # None: several (rotated order)
    iteration: int | None
    counted: bool
    cpu: int
    node: int | None
    copies: tuple[int, ...]  # that ran on it, or may have
    elapsed_s: float
    busy: float  # working for anybody, interrupts included
    # Working for others than copies. Where a copy there was ended from outside or left processes
    # behind, this is the least that it can be: their time is not known. None: nothing is known.
    foreign: float | None
    together: int  # CPUs that `foreign` is the mean of, as the same copies may use them all
    irq: float
    steal: float
    iowait: float
    mean_mhz: float | None
    throttles: int | None
    interrupts_per_s: float | None
    # Share that copies used by their own CPU time, where that is so much more than `busy` that the
    # kernel's statistics of this CPU miss work; None: they do not, or nothing is known of it.
    copies_used: float | None = None


class MachineUse(Struct, frozen=True, kw_only=True):
    """The machine's counters in one phase (names: `record.MachineReadings`)."""

    phase: int
    benchmark: str | None
    iteration: int | None
    counted: bool
    elapsed_s: float
    counters: Mapping[str, int]  # how far each went, by name

    def pressure(self, resource: str, kind: str = "some") -> float | None:
        """Return the share of the time that some, or all, tasks waited for `resource`."""
        stalled_ns = self.counters.get(f"pressure_{resource}_{kind}_ns")
        return None if stalled_ns is None else stalled_ns / 1e9 / self.elapsed_s

    @property
    def quota_used_up(self) -> float | None:
        """Share of the scheduler's periods in which the cgroup had used up its CPU quota."""
        periods = self.counters.get("cfs_periods")
        return self.counters.get("cfs_throttled_periods", 0) / periods if periods else None


class DisturbanceKind(StrEnum):
    """What of a machine's readings a person should know."""

    FOREIGN = "foreign load"
    STEAL = "steal"
    QUOTA = "CPU quota"
    THROTTLED = "throttled"
    SWAP = "swap"
    MEMORY = "memory stalls"


class MachineDisturbance(Struct, frozen=True, kw_only=True):
    """One matter where it was worst; `share` of the time, or how many `times`."""

    matter: DisturbanceKind
    phase: int
    benchmark: str | None
    iteration: int | None
    cpu: int | None  # None: of the whole machine
    share: float | None
    times: int | None
    cpus: tuple[int, ...]  # all that have it in any counted phase
    phases: int  # counted ones in which it was seen
    # Of foreign load: who used most of that CPU; None: not known, as of other matters.
    process: ForeignProcess | None = None


class RunCounters(Struct, frozen=True):
    """All readings of a run, torn attempts left out."""

    cpus: tuple[CpuUse, ...]  # by phase and CPU
    machine: tuple[MachineUse, ...]  # by phase
    notable: tuple[MachineDisturbance, ...]  # a matter each, in the order of `DisturbanceKind`
    # Of others than the run, those that used most CPU time; empty: none did, or not known.
    processes: tuple[ForeignProcess, ...] = ()

    @property
    def missed(self) -> CpuUse | None:
        """CPU whose statistics miss most of what copies used there; None: none does."""
        missing = [use for use in self.cpus if use.copies_used is not None]
        return max(missing, key=lambda use: (use.copies_used or 0.0) - use.busy, default=None)

    @property
    def disturber(self) -> ForeignProcess | None:
        """Process that used most of the CPU of copies which others used most; None: not known."""
        return next((disturbance.process for disturbance in self.notable), None)


@kept_for_last
def run_counters(run: StoredRun) -> RunCounters:
    """Return what the machine did while the run's copies ran; nothing where it was not read."""
    run = run.without_torn()
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    machine = tuple(
        MachineUse(
            phase=phase,
            benchmark=(bracket := brackets[phase]).benchmark,
            iteration=bracket.iteration,
            counted=bracket.counted,
            elapsed_s=elapsed_ns / 1e9,
            counters=counters,
        )
        for phase, counters in machine_counters(run).items()
        if (elapsed_ns := counters.get("elapsed_ns"))
    )
    phases = {use.phase: use for use in machine}
    copies = group_by_key((copy.phase, copy) for copy in run.copies) if run.cpu_readings else {}
    cpus_by_copy = cpus_of_copies(run) if run.cpu_readings else {}
    nodes = {pu.cpu: pu.node for pu in run.pus}
    cpus = tuple(
        use
        for reading in run.cpu_readings
        if reading.phase in phases
        for use in _phase_uses(
            reading, phases[reading.phase], copies.get(reading.phase, ()), cpus_by_copy, nodes
        )
    )
    waited = {  # share of its time that a copy waited for a CPU, by phase and copy
        key[:2]: account.waited_s / account.elapsed_s
        for key, account in (time_accounts(run) if run.cpu_readings else {}).items()
        if account.waited_s is not None
    }
    disturbances = (
        _with_process(disturbance, cpus, run.foreign_processes)
        for disturbance in _disturbances(cpus, machine, waited)
    )
    return RunCounters(cpus, machine, tuple(disturbances), run.foreign_processes)


def _cut_to_time(row: CpuReading, elapsed_s: float) -> CpuReading:
    """Return a reading with no more work than there was time: ticks may come to a few more."""
    used_ns = row.user_ns + row.system_ns + row.irq_ns
    if used_ns <= elapsed_s * 1e9:
        return row
    share = elapsed_s * 1e9 / used_ns
    return replace(
        row,
        user_ns=int(row.user_ns * share),
        system_ns=int(row.system_ns * share),
        irq_ns=int(row.irq_ns * share),
    )


class SharedCpus(Struct, eq=False):
    """CPUs that the same copies may use, and the CPU time of these copies."""

    cpus: frozenset[int]
    copies: set[int]
    own_ns: int = 0  # CPU time of the copies, at most
    known: bool = True  # False: it may have been less

    def size_s(self, elapsed_s: float) -> float:
        """Return the CPU time that these CPUs had to give."""
        return len(self.cpus) * elapsed_s


def _phase_uses(
    readings: CpuReadings,
    phase: MachineUse,
    copies: Sequence[CopyEnded],
    cpus_by_copy: Mapping[tuple[int, ...], tuple[int, ...] | None],
    nodes: Mapping[int, int | None],
) -> Iterable[CpuUse]:
    elapsed_s = phase.elapsed_s
    rows = {row.cpu: _cut_to_time(row, elapsed_s) for row in readings.rows}
    shared = group_cpus(rows, copies, cpus_by_copy)
    foreign_ns = {group: -group.own_ns for group in shared.values()}
    copies_of_group = {group: tuple(sorted(group.copies)) for group in foreign_ns}
    worked_ns = dict.fromkeys(foreign_ns, 0)  # whatever it was for
    for cpu, row in rows.items():
        foreign_ns[shared[cpu]] += row.user_ns + row.system_ns - row.filler_ns
        worked_ns[shared[cpu]] += row.user_ns + row.system_ns + row.irq_ns + row.steal_ns
    for cpu, row in rows.items():
        group = shared[cpu]
        foreign = foreign_ns[group] / len(group.cpus) / 1e9 / elapsed_s
        copies_used = _missed_use(group, worked_ns[group], elapsed_s)
        is_known = copies_used is None and (group.known or foreign > 0)
        yield CpuUse(
            phase=phase.phase,
            benchmark=phase.benchmark,
            iteration=phase.iteration,
            counted=phase.counted,
            cpu=cpu,
            node=nodes.get(cpu),
            copies=copies_of_group[group],
            elapsed_s=elapsed_s,
            busy=(row.user_ns + row.system_ns + row.irq_ns) / 1e9 / elapsed_s,
            foreign=max(0.0, foreign) if is_known else None,
            together=len(group.cpus),
            irq=row.irq_ns / 1e9 / elapsed_s,
            steal=row.steal_ns / 1e9 / elapsed_s,
            iowait=row.iowait_ns / 1e9 / elapsed_s,
            mean_mhz=None if row.mean_khz is None else row.mean_khz / 1e3,
            throttles=row.throttles,
            interrupts_per_s=None if row.interrupts is None else row.interrupts / elapsed_s,
            copies_used=copies_used,
        )


def _missed_use(group: SharedCpus, worked_ns: int, elapsed_s: float) -> float | None:
    """Return the share of CPUs that copies used, where that is more than these worked in all."""
    missed_s = (group.own_ns - worked_ns) / 1e9
    if not group.known or missed_s < max(_MISSED_LEAST_S, _MISSED_SHARE * group.size_s(elapsed_s)):
        return None
    return group.own_ns / 1e9 / group.size_s(elapsed_s)


def group_cpus(
    cpus: Iterable[int],
    copies: Sequence[CopyEnded],
    cpus_by_copy: Mapping[tuple[int, ...], tuple[int, ...] | None],
) -> dict[int, SharedCpus]:
    """Return for each CPU the group of CPUs that the same copies may use.

    `cpus_by_copy`: by phase, copy and step, None for a copy that may use them all.
    """
    groups = {cpu: SharedCpus(frozenset((cpu,)), set()) for cpu in cpus}
    everywhere = frozenset(groups)
    for copy in copies:
        allowed = cpus_by_copy[copy.phase, copy.copy, copy.step]
        mask = everywhere if allowed is None else everywhere.intersection(allowed)
        if not mask:  # its CPU went offline meanwhile
            continue
        group = _join_groups(groups, mask)
        group.copies.add(copy.copy)
        if has_all_cpu_time(copy):
            group.own_ns += _copy_cpu_ns(copy)
        else:  # processes of it that nobody waited for may have used the rest of its time
            group.own_ns += max(_copy_cpu_ns(copy), copy.elapsed_ns * len(mask))
            group.known = False
    return groups


def _join_groups(groups: dict[int, SharedCpus], mask: frozenset[int]) -> SharedCpus:
    group = groups[next(iter(mask))]
    if len(group.cpus) == len(groups) or mask <= group.cpus:
        return group
    parts = {groups[cpu] for cpu in mask}
    whole = SharedCpus(
        frozenset().union(*(part.cpus for part in parts)),
        set().union(*(part.copies for part in parts)),
        sum(part.own_ns for part in parts),
        all(part.known for part in parts),
    )
    for cpu in whole.cpus:
        groups[cpu] = whole
    return whole


def has_all_cpu_time(copy: CopyEnded) -> bool:
    """Tell whether the CPU time of a copy is all that its processes used.

    Not so where it was ended from outside or left processes behind: the kernel tells
    of children that were waited for.
    """
    ended = copy.status not in (CopyStatus.TIMEOUT, CopyStatus.INTERRUPTED)
    alone = LEFT_BEHIND not in (copy.note or "")
    return ended and copy.signal is None and alone and copy.cpu_ns is not None


def _copy_cpu_ns(copy: CopyEnded) -> int:
    """Return the CPU time that a copy used in its phase: with its gate's, if that came later."""
    if copy.step and copy.user_ns is not None and copy.system_ns is not None:
        return copy.user_ns + copy.system_ns
    return copy.cpu_ns or 0


# -- what a person should know -----------------------------------------------------------------


def _disturbances(
    cpus: Sequence[CpuUse], machine: Sequence[MachineUse], waited: Mapping[tuple[int, int], float]
) -> Iterable[MachineDisturbance]:
    counted = [use for use in cpus if use.counted and use.copies]
    # Where rater's own threads ran is not known.
    rater_s = {phase.phase: phase.counters.get("rater_cpu_ns", 0) / 1e9 for phase in machine}
    # Others' work is no matter where no copy wanted the CPU meanwhile, as far as that is known.
    foreign = (
        (use.foreign, use)
        for use in counted
        if any(waited.get((use.phase, copy), 1.0) > FOREIGN_SHARE for copy in use.copies)
    )
    yield from _worst_disturbance(
        DisturbanceKind.FOREIGN, _above_share(foreign, FOREIGN_SHARE, rater_s)
    )
    steal = ((use.steal, use) for use in counted)
    yield from _worst_disturbance(DisturbanceKind.STEAL, _above_share(steal, STEAL_SHARE))
    phases = [phase for phase in machine if phase.counted]
    quota = _above_share(((phase.quota_used_up, phase) for phase in phases), QUOTA_SHARE)
    yield from _worst_disturbance(DisturbanceKind.QUOTA, quota)
    throttled = [(float(use.throttles), use) for use in counted if use.throttles]
    yield from _worst_disturbance(DisturbanceKind.THROTTLED, throttled, times=True)
    swapped = [(float(_pages_swapped(phase)), phase) for phase in phases if _pages_swapped(phase)]
    yield from _worst_disturbance(DisturbanceKind.SWAP, swapped, times=True)
    stalled = _above_share(((phase.pressure("memory"), phase) for phase in phases), PRESSURE_SHARE)
    if stalled or any(phase.pressure("memory") is not None for phase in phases):
        yield from _worst_disturbance(DisturbanceKind.MEMORY, stalled)
        return
    # A kernel without pressure counts who had to free memory before getting any.
    stalls = [(float(phase.counters.get("allocstall", 0)), phase) for phase in phases]
    stalled = [(number, phase) for number, phase in stalls if number]
    yield from _worst_disturbance(DisturbanceKind.MEMORY, stalled, times=True)


def _with_process(
    disturbance: MachineDisturbance,
    cpus: Sequence[CpuUse],
    processes: Sequence[ForeignProcess],
) -> MachineDisturbance:
    """Return a disturbance with the process that used most of its CPU, if that is one's doing.

    CPUs that the same copies may use have one foreign load together: the process may be on any.
    """
    if disturbance.matter is not DisturbanceKind.FOREIGN:
        return disturbance
    uses = [use for use in cpus if use.phase == disturbance.phase]
    copies = {use.copies for use in uses if use.cpu == disturbance.cpu}
    its_cpus = {
        use.cpu
        for use in uses
        if use.cpu == disturbance.cpu or (use.together > 1 and use.copies in copies)
    }
    return replace(disturbance, process=worst_process(processes, disturbance.phase, its_cpus))


def _above_share[U: (CpuUse, MachineUse)](
    candidates: Iterable[tuple[float | None, U]],
    share: float,
    unknown_s: Mapping[int, float] | None = None,
) -> list[tuple[float, U]]:
    """Return what is more than a share of the time; `unknown_s`: time by phase to take off."""
    unknown_s = unknown_s or {}
    return [
        (value, use)
        for value, use in candidates
        if value
        and value * use.elapsed_s - unknown_s.get(use.phase, 0.0)
        > max(share * use.elapsed_s, LEAST_NS / 1e9)
    ]


def _pages_swapped(machine_use: MachineUse) -> int:
    return machine_use.counters.get("pswpin", 0) + machine_use.counters.get("pswpout", 0)


def _worst_disturbance(
    matter: DisturbanceKind,
    candidates: Sequence[tuple[float, CpuUse | MachineUse]],
    *,
    times: bool = False,
) -> Iterable[MachineDisturbance]:
    """Yield the worst of those found, the first of equals; nothing where there are none."""
    if not candidates:
        return
    value, worst = max(candidates, key=lambda pair: pair[0])
    yield MachineDisturbance(
        matter=matter,
        phase=worst.phase,
        benchmark=worst.benchmark,
        iteration=worst.iteration,
        cpu=worst.cpu if isinstance(worst, CpuUse) else None,
        share=None if times else value,
        times=round(value) if times else None,
        cpus=tuple(sorted({use.cpu for _, use in candidates if isinstance(use, CpuUse)})),
        phases=len({use.phase for _, use in candidates}),
    )

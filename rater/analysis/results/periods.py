"""Places in time: when of a phase something kept CPUs, memory or a disk from copies; pure.

A period is the part of a phase in which most of such a disturbance was. What went on now and then,
or all the time, is a period of the whole phase. Each kind is looked for in the series that show it;
`notable_periods` alone decides which are told, for the terminal, the page, the trace and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.series import CpuGroupTimes, PhaseTimes, Values
from rater.text.cpuset import copy_numbers_text, cpus_text, format_list
from rater.text.values import group_by_key, percent

# From these on something is looked for: on quiet machines others have 1 to 3 % of a CPU.
_LEAST_SHARE = 0.1  # of a CPU that others had, of the time in which tasks waited for a CPU
_LEAST_WAITED = 0.25  # of what others had of CPUs: copies that waited less did not want them
_LEAST_STOLEN = 0.05  # of a CPU that the hypervisor or interrupts had; a tick of a second is 1 %
_LEAST_STALLED = 0.02  # of the time in which tasks waited for memory, which quiet machines never do
_LEAST_KEPT_OFF = 0.05  # CPUs that a quota kept off
_LEAST_DROP = 0.15  # of the clock: single readings of it vary by a tenth
_LEAST_THROTTLES = 0.2  # a second
_LEAST_S = 0.5
_LEAST_LOST = 0.005  # of the time of a benchmark's brackets: what costs less is not told
_LEAST_LOST_S = 0.05  # of a copy that waited for a disk
_LATE_S = 0.05  # from the last end to the last sample of a phase
_SHORT_S = 0.25  # an interval at the end that is shorter has ticks of too little time
_MOST_OF_ALL = 2 / 3  # of the whole disturbance of the phase, that lies in the period
_HALF = 0.5  # of its largest value: where it begins and ends
_COMPUTES = 0.95  # of a CPU: from there on a copy computes
_LEAST_BYTES = 1e6  # a second: a copy that waits for a disk moves as many at least
_SAME_S = 1.0  # periods whose ends are so close are one,
_SAME_SHARE = 0.1  # or so close as a share of their length
_MINUTE_S = 60.0
_LONG_S = 180.0  # from there on seconds are told in minutes
_LOST_BY_HEAT = 0.05  # of a CPU that was too hot, where its clock is not known: the least it can be


# Sizes of a period that not all kinds have.
_OPTIONAL_SIZES = ("read_rate", "written_rate", "waited_s", "hits_per_s")


class PeriodKind(StrEnum):
    """What went on in a period."""

    OTHERS = "others"
    STEAL = "steal"
    INTERRUPTS = "interrupts"
    HEAT = "heat"  # CPUs that were throttled
    CLOCK = "clock"  # CPUs that were slower, by no heat that was counted
    QUOTA = "quota"
    CPU = "cpu"  # tasks waited for a CPU, where it is not known who had it
    MEMORY = "memory"
    DISK = "disk"
    STARTUP = "start-up"


class Period(Struct, frozen=True, kw_only=True):
    """Something that went on in a part of a phase; seconds count from its first release.

    `level` is a share of the CPUs or of the time; of a quota CPUs, of heat times a second, of a
    clock the share that it lacked, of a start-up and of a disk the share that copies computed.
    """

    kind: PeriodKind
    phase: int
    benchmark: str | None
    iteration: int | None
    begin_s: float
    end_s: float
    level: float
    lost: float  # share of its CPU that a copy lost meanwhile, about
    cpus: tuple[int, ...] = ()  # (): it is not of CPUs
    copies: tuple[int, ...] = ()  # that had it; (): those on its CPUs
    read_rate: float | None = None  # bytes a second of all these copies
    written_rate: float | None = None
    waited_s: float | None = None  # for a disk, by the kernel's pressure
    limit: float | None = None  # of a quota in CPUs, of memory in bytes; None: not known
    hits_per_s: float | None = None  # of the limit of memory
    mhz: tuple[float, float] | None = None  # in the period, and in the rest of the phase
    members: tuple[Period, ...] = ()  # of what came in several phases: each of them; else none

    @property
    def each(self) -> tuple[Period, ...]:
        """The periods of single phases that it stands for."""
        return self.members or (self,)

    @property
    def lost_s(self) -> float:
        """CPU time that a copy could not have, in all its phases."""
        return sum((one.end_s - one.begin_s) * one.lost for one in self.each)

    @property
    def cost_s(self) -> float:
        """The same of all copies that it is known to concern."""
        return self.lost_s * max(1, len(self.cpus), len(self.copies))

    @property
    def iterations(self) -> tuple[int, ...]:
        """The iterations that had it; empty where phases have several."""
        return tuple(sorted({one.iteration for one in self.each if one.iteration is not None}))


def phase_periods(phase: PhaseTimes) -> tuple[Period, ...]:
    """Return the periods of a phase."""
    return (*_cpu_periods(phase), *_machine_periods(phase), *_disk_periods(phase))


def notable_periods(phases: Iterable[PhaseTimes]) -> tuple[Period, ...]:
    """Return the periods of a run's counted phases that matter, the costliest first.

    What comes at the same time of several phases of a benchmark is one period.
    """
    phases = [phase for phase in phases if phase.counted]
    times = group_by_key((phase.benchmark, phase.seconds[-1]) for phase in phases)
    whole_s = {benchmark: sum(of_benchmark) for benchmark, of_benchmark in times.items()}
    joined = _join_phases([period for phase in phases for period in phase_periods(phase)])
    told = [it for it in joined if it.lost_s >= _LEAST_LOST * whole_s[it.benchmark]]
    return tuple(sorted(told, key=lambda period: -period.cost_s))


def _join_phases(periods: Iterable[Period]) -> Iterator[Period]:
    """Yield periods, those of several phases at the same time as one."""
    for alike in _group_alike(periods, _comes_again):
        yield alike[0] if len(alike) == 1 else _as_one(alike)


def _group_alike(
    periods: Iterable[Period], is_alike: Callable[[Period, Period], bool]
) -> list[list[Period]]:
    """Return the periods in groups, each member alike to the first of its group."""
    groups: list[list[Period]] = []
    for period in periods:
        own = next((group for group in groups if is_alike(group[0], period)), None)
        if own is None:
            groups.append([period])
        else:
            own.append(period)
    return groups


def _comes_again(period: Period, other: Period) -> bool:
    same_place = (period.kind, period.benchmark, period.cpus, period.copies) == (
        other.kind,
        other.benchmark,
        other.cpus,
        other.copies,
    )
    return same_place and period.phase != other.phase and _is_same(period, other)


def _as_one(periods: Sequence[Period]) -> Period:
    """Return one period for several, with their middle times and their mean sizes."""
    clocks = [period.mhz for period in periods if period.mhz is not None]
    means = {name: _mean_known(periods, name) for name in _OPTIONAL_SIZES}
    return replace(
        periods[0],
        begin_s=median(period.begin_s for period in periods),
        end_s=median(period.end_s for period in periods),
        level=fmean(period.level for period in periods),
        lost=fmean(period.lost for period in periods),
        mhz=tuple(map(fmean, zip(*clocks, strict=True))) if clocks else None,
        members=tuple(periods),
        **means,
    )


def _mean_known(periods: Sequence[Period], name: str) -> float | None:
    sizes = [getattr(period, name) for period in periods]
    known = [size for size in sizes if size is not None]
    return fmean(known) if known else None


def _is_same(period: Period, other: Period) -> bool:
    close_s = max(_SAME_S, _SAME_SHARE * (period.end_s - period.begin_s))
    return (
        abs(period.begin_s - other.begin_s) <= close_s
        and abs(period.end_s - other.end_s) <= close_s
    )


# -- Where in a phase most of something was --------------------------------------------------------


def find_period(
    seconds: Sequence[float], values: Values, least: float = _LEAST_SHARE
) -> tuple[float, float, float] | None:
    """Return begin, end and level of the period in which most of something was, if there is one.

    `seconds` are the edges of the intervals. An interval that the period covers in part has less
    than its level: from how much less follows where in it the period begins or ends. What was not
    mostly in one period has the whole phase with its mean, if that is as much as `least`.
    """
    seconds, levels = _with_long_intervals(seconds, values)
    lengths = [late - early for early, late in pairwise(seconds)]
    areas = [value * length for value, length in zip(levels, lengths, strict=True)]
    if not areas or max(levels) < least or seconds[-1] - seconds[0] < _LEAST_S:
        return None
    stretches = list(_stretches(levels, _HALF * max(levels)))
    first, last = max(stretches, key=lambda stretch: sum(areas[stretch[0] : stretch[1]]))
    before, behind = max(0, first - 1), min(len(levels), last + 1)
    if sum(areas[before:behind]) < _MOST_OF_ALL * sum(areas):
        mean = sum(areas) / sum(lengths)
        return (max(0.0, seconds[0]), seconds[-1], mean) if mean >= least else None
    level = median(levels[first:last])
    begin_s = seconds[first + 1] - _part(levels[first], level) * lengths[first]
    if first and levels[first] >= level * (1 - _SAME_SHARE):
        begin_s = seconds[first] - _part(levels[first - 1], level) * lengths[first - 1]
    end_s = seconds[last - 1] + _part(levels[last - 1], level) * lengths[last - 1]
    if last < len(levels) and levels[last - 1] >= level * (1 - _SAME_SHARE):
        end_s = seconds[last] + _part(levels[last], level) * lengths[last]
    return (max(0.0, begin_s), end_s, level) if end_s - begin_s >= _LEAST_S else None


def _with_long_intervals(
    seconds: Sequence[float], values: Values
) -> tuple[Sequence[float], list[float]]:
    """Return edges and values, a short last interval joined with the one before it.

    What is not known counts as nothing.
    """
    levels = [value or 0.0 for value in values]
    if len(levels) < 2 or seconds[-1] - seconds[-2] >= _SHORT_S:
        return (seconds, levels) if levels else ((), [])
    early_s, late_s = seconds[-2] - seconds[-3], seconds[-1] - seconds[-2]
    mean = (levels[-2] * early_s + levels[-1] * late_s) / (early_s + late_s)
    return (*seconds[:-2], seconds[-1]), [*levels[:-2], mean]


def _part(value: float, level: float) -> float:
    """Return how much of an interval a period of a level covers."""
    return min(1.0, value / level)


def _stretches(values: Sequence[float], least: float) -> Iterator[tuple[int, int]]:
    """Yield the ends of neighbours that are all at least so large; the second end is behind."""
    first: int | None = None
    for place, value in enumerate((*values, -1.0)):
        if value >= least and first is None:
            first = place
        elif value < least and first is not None:
            yield first, place
            first = None


def _mean_in(seconds: Sequence[float], values: Values, begin_s: float, end_s: float) -> float:
    """Return the mean of the known values in a period; 0 if none is known."""
    parts = [
        (value, min(late, end_s) - max(early, begin_s))
        for value, (early, late) in zip(values, pairwise(seconds), strict=False)
        if value is not None and early < end_s and late > begin_s
    ]
    whole_s = sum(length for _, length in parts)
    return sum(value * length for value, length in parts) / whole_s if whole_s else 0.0


# -- CPUs and the whole machine --------------------------------------------------------------------

_LEAST_OF_SHARES = {
    PeriodKind.OTHERS: _LEAST_SHARE,
    PeriodKind.STEAL: _LEAST_STOLEN,
    PeriodKind.INTERRUPTS: _LEAST_STOLEN,
}


def _period(
    kind: PeriodKind, phase: PhaseTimes, ends: tuple[float, float, float], *, lost: float
) -> Period:
    return Period(
        kind=kind,
        phase=phase.phase,
        benchmark=phase.benchmark,
        iteration=phase.iteration,
        begin_s=ends[0],
        end_s=ends[1],
        level=ends[2],
        lost=lost,
    )


def _cpu_periods(phase: PhaseTimes) -> Iterator[Period]:
    """Yield periods of the copies' CPUs, those of CPUs at the same time together."""
    periods = [
        replace(period, cpus=group.cpus)
        for group in phase.cpus
        if group.copies
        for period in _periods_of_group(phase, group)
    ]
    for of_kind in group_by_key((period.kind, period) for period in periods).values():
        for alike in _group_alike(of_kind, _is_same):
            cpus = tuple(sorted(cpu for period in alike for cpu in period.cpus))
            yield replace(_as_one(alike), cpus=cpus, members=())


def _periods_of_group(phase: PhaseTimes, group: CpuGroupTimes) -> Iterator[Period]:
    ran = sum(late_s <= _last_end_s(phase, group) + _LATE_S for late_s in phase.seconds[1:])
    for kind, least in _LEAST_OF_SHARES.items():
        values = cpu_values(kind, group)[:ran]
        ends = find_period(phase.seconds[: ran + 1], values, least)
        if ends and not (kind is PeriodKind.OTHERS and _nobody_waited(phase, group, ends)):
            yield _period(kind, phase, ends, lost=ends[2])
    usual, drops = _usual_mhz(group), cpu_values(PeriodKind.CLOCK, group)
    if ends := find_period(phase.seconds, group.throttles, _LEAST_THROTTLES):
        drop = max(0.0, _mean_in(phase.seconds, drops, *ends[:2]))
        period = _period(PeriodKind.HEAT, phase, ends, lost=max(drop, _LOST_BY_HEAT))
        yield replace(period, mhz=(usual * (1 - drop), usual) if usual else None)
    elif usual and (ends := find_period(phase.seconds, drops, _LEAST_DROP)):
        period = _period(PeriodKind.CLOCK, phase, ends, lost=ends[2])
        yield replace(period, mhz=(usual * (1 - ends[2]), usual))


def _nobody_waited(
    phase: PhaseTimes, group: CpuGroupTimes, ends: tuple[float, float, float]
) -> bool:
    """Tell whether copies waited for far less than others had of their CPUs: these were idle."""
    waits_s = [phase.waited_s.get(copy) for copy in group.copies]
    known_s = [wait_s for wait_s in waits_s if wait_s is not None]
    begin_s, end_s, level = ends
    taken_s = level * (end_s - begin_s) * len(group.cpus)
    return len(known_s) == len(waits_s) and sum(known_s) < _LEAST_WAITED * taken_s


def cpu_values(kind: PeriodKind, group: CpuGroupTimes) -> Values:
    """Return the series of CPUs in which periods of a kind are looked for."""
    match kind:
        case PeriodKind.OTHERS:
            return group.others
        case PeriodKind.STEAL:
            return group.steal
        case PeriodKind.INTERRUPTS:
            return group.irq
        case PeriodKind.HEAT:
            return group.throttles
        case PeriodKind.CLOCK:
            usual = _usual_mhz(group)
            return tuple(
                1 - mhz / usual if usual and mhz and (own or 0.0) >= _COMPUTES else 0.0
                for mhz, own in zip(group.mhz, group.own, strict=False)
            )
        case _:
            return ()


def _last_end_s(phase: PhaseTimes, group: CpuGroupTimes) -> float:
    """Return when the last of a group's copies ended: what came later cost them nothing.

    So others had a part of the interval in which it ended for nothing, and it is left out.
    """
    ends_s = [phase.spans_s[copy][1] for copy in group.copies if copy in phase.spans_s]
    return max(ends_s) if len(ends_s) == len(group.copies) else phase.seconds[-1]


def _usual_mhz(group: CpuGroupTimes) -> float | None:
    """Return the clock that CPUs had while copies computed: the middle of the faster half."""
    known = sorted(
        mhz
        for mhz, own in zip(group.mhz, group.own, strict=False)
        if mhz is not None and (own or 0.0) >= _COMPUTES
    )
    return median(known[len(known) // 2 :]) if known else None


def _machine_periods(phase: PhaseTimes) -> Iterator[Period]:
    """Yield periods of a quota, and of pressure that says more than what CPUs tell."""
    seconds, copies = phase.seconds, tuple(phase.copy_cpu)
    if ends := find_period(seconds, phase.throttled, _LEAST_KEPT_OFF):
        of_a_copy = ends[2] / max(1, len(phase.copy_cpu))
        period = _period(PeriodKind.QUOTA, phase, ends, lost=min(1.0, of_a_copy))
        yield replace(period, copies=copies, limit=phase.quota_cpus)
    if ends := find_period(seconds, phase.pressure.get("memory", ()), _LEAST_STALLED):
        period = _period(PeriodKind.MEMORY, phase, ends, lost=ends[2])
        hits_per_s = _mean_in(seconds, phase.limit_hits, *ends[:2])
        limit_bytes = phase.memory_limit_bytes if hits_per_s else None
        yield replace(period, copies=copies, limit=limit_bytes, hits_per_s=hits_per_s or None)
    used = [group for group in phase.cpus if group.copies]
    is_missed = any(group.others and not any(map(_is_known, group.others)) for group in used)
    room = sum(len(group.cpus) for group in used)
    if is_missed and len(phase.copy_cpu) <= room:
        ends = find_period(seconds, phase.pressure.get("cpu", ()))
        if ends is not None:
            period = _period(PeriodKind.CPU, phase, ends, lost=ends[2])
            yield replace(period, copies=copies)


def _is_known(value: float | None) -> bool:
    return value is not None


# -- Copies that wait for a disk -------------------------------------------------------------------


def _disk_periods(phase: PhaseTimes) -> Iterator[Period]:
    """Yield when copies moved bytes and did not compute, those at the same time together."""
    groups = {copy: group for group in phase.cpus for copy in group.copies}
    stretches = [
        (copy, stretch)
        for copy in phase.moved
        if copy in groups
        if (stretch := _disk_stretch(phase, copy, groups[copy])) is not None
    ]
    alike = group_by_key(((first, last), (copy, share)) for copy, (first, last, share) in stretches)
    for (first, last), shares in alike.items():
        copies = tuple(copy for copy, _ in shares)
        begin_s, end_s = max(0.0, phase.seconds[first]), phase.seconds[last]
        ends_s = [phase.spans_s[copy][1] for copy in copies if copy in phase.spans_s]
        whole_s = max(ends_s, default=phase.seconds[-1])
        is_startup = not first and end_s < (1 - _SAME_SHARE) * whole_s
        kind = PeriodKind.STARTUP if is_startup else PeriodKind.DISK
        level = fmean(share for _, share in shares)
        period = _period(kind, phase, (begin_s, end_s, level), lost=1 - level)
        yield _with_bytes(replace(period, copies=copies), phase)


def _with_bytes(period: Period, phase: PhaseTimes) -> Period:
    """Return a period with what its copies moved in it, and how long tasks waited for a disk."""
    moved = [phase.moved[copy] for copy in period.copies]

    def mean(values: Values) -> float:
        return _mean_in(phase.seconds, values, period.begin_s, period.end_s)

    pressure = phase.pressure.get("io")
    waited_s = None if pressure is None else mean(pressure) * (period.end_s - period.begin_s)
    return replace(
        period,
        read_rate=sum(mean(it.read) for it in moved),
        written_rate=sum(mean(it.written) for it in moved),
        waited_s=waited_s,
    )


def _disk_stretch(
    phase: PhaseTimes, copy: int, group: CpuGroupTimes
) -> tuple[int, int, float] | None:
    """Return the stretch in which a copy lost most CPU time: its ends, and the share it computed.

    The second end is behind. A copy that lost hardly any time has no such stretch.
    """
    shares, lengths = phase.copy_cpu.get(copy, ()), phase.lengths_s
    waits = [
        float(_waits(phase, copy, group, place)) for place in range(min(len(shares), len(lengths)))
    ]

    def computed_s(first: int, last: int) -> float:
        pairs = zip(shares[first:last], lengths[first:last], strict=True)
        return sum(min(1.0, share or 0.0) * length for share, length in pairs)

    best: tuple[float, int, int] = (0.0, 0, 0)
    for first, last in _stretches(waits, 1.0):
        length_s = sum(lengths[first:last])
        if length_s >= _LEAST_S:
            best = max(best, (length_s - computed_s(first, last), first, last))
    lost_s, first, last = best
    if lost_s < _LEAST_LOST_S:
        return None
    return first, last, computed_s(first, last) / sum(lengths[first:last])


def _waits(phase: PhaseTimes, copy: int, group: CpuGroupTimes, place: int) -> bool:
    """Tell whether a copy moved bytes in an interval, and left its CPU idle meanwhile.

    Others may have used that CPU: then tasks waited for a disk for most of what the copy lost.
    Of copies with several runs in a phase only the first interval is looked at: they end and begin.
    Bytes that were written may lie in memory yet: there tasks must have waited for a disk.
    """

    def value(values: Values) -> float:
        return (values[place] or 0.0) if place < len(values) else 0.0

    edges_s, span = phase.seconds[place : place + 2], phase.spans_s.get(copy)
    if place and (span is None or edges_s[1] > span[1]):
        return False
    if phase.copy_cpu[copy][place] is None or value(phase.throttled) >= _LEAST_KEPT_OFF:
        return False
    share = phase.copy_cpu[copy][place] or 0.0
    used = sum(map(value, (group.own, group.others, group.irq, group.steal)))
    moved, stalled = phase.moved[copy], value(phase.pressure.get("io", ()))
    is_written = value(moved.written) >= _LEAST_BYTES and stalled >= _LEAST_STALLED
    is_moving = value(moved.read) >= _LEAST_BYTES or is_written
    is_left_idle = max(used, share) < _COMPUTES
    is_stalled = share < _COMPUTES and stalled >= _HALF * (1 - share)
    return is_moving and (is_left_idle or is_stalled)


# -- In words --------------------------------------------------------------------------------------

_SUBJECTS = {
    PeriodKind.OTHERS: "others had",
    PeriodKind.STEAL: "the hypervisor's other guests had",
    PeriodKind.INTERRUPTS: "interrupts took",
}


def period_text(period: Period, *, is_named: bool = True) -> str:
    """Return a period in words, with its bracket and the way out if `is_named`."""
    text = _what_text(period)
    if not is_named:
        return text
    if period.iterations:
        unit = "iteration" if len(period.iterations) == 1 else "iterations"
        benchmark = period.benchmark or "all benchmarks"
        text += f" ({benchmark}, {unit} {format_list(period.iterations)})"
    if period.kind is PeriodKind.QUOTA:
        text += "; raise the cgroup's cpu.max, or run fewer copies"
    return text


def _what_text(period: Period) -> str:
    when = f"from second {_number(period.begin_s)} to {_number(period.end_s)}"
    share, size = f"{percent(period.level, 0)} %", _size_text(period.level)
    if period.kind in (PeriodKind.STARTUP, PeriodKind.DISK):
        return _disk_text(period, when)
    if period.cpus:
        what = {
            PeriodKind.HEAT: f"too hot {size} times a second {when}{_clock_text(period)}",
            PeriodKind.CLOCK: f"a slower clock {when}{_clock_text(period)}",
        }
        told = what.get(period.kind) or f"{_SUBJECTS[period.kind]} {share} {when}"
        return f"{cpus_text(period.cpus)}: {told}"
    quota = "" if period.limit is None else f" ({period.limit:.3g} CPUs)"
    plural = "" if size == "1" else "s"
    return {
        PeriodKind.QUOTA: f"the CPU quota{quota} kept copies off {size} CPU{plural} {when}",
        PeriodKind.MEMORY: f"tasks waited for memory {share} {when}{_limit_text(period)}",
        PeriodKind.CPU: f"tasks waited for a CPU {share} {when}, and who had it is not known",
    }[period.kind]


def _limit_text(period: Period) -> str:
    if period.hits_per_s is None:
        return ""
    size = "" if period.limit is None else f" ({period.limit / 1e6:.0f} MB)"
    return f": the memory limit{size} was reached {_size_text(period.hits_per_s)} times a second"


def _clock_text(period: Period) -> str:
    if period.mhz is None:
        return ""
    return f", at {period.mhz[0]:.0f} MHz in place of {period.mhz[1]:.0f}"


def _disk_text(period: Period, when: str) -> str:
    length_s = period.end_s - period.begin_s
    unit, divisor = ("minutes", _MINUTE_S) if length_s >= _LONG_S else ("s", 1.0)
    computed = f"{_number(period.level * length_s / divisor)} of {_number(length_s / divisor)}"
    rates = {"read": period.read_rate, "written": period.written_rate}
    facts = [
        f"{_rate_text(rate)} MB/s {name}" for name, rate in rates.items() if (rate or 0.0) >= 1e5
    ]
    waited_s = period.waited_s or 0.0
    if waited_s >= _LEAST_LOST_S:
        facts.append(f"{_number(waited_s / divisor)} {unit} waited for a disk")
    told = f"{computed} {unit} computed, {', '.join(facts)}"
    copies = copy_numbers_text(period.copies)
    if period.kind is PeriodKind.STARTUP:
        return f"start-up of {copies}: {told}"
    return f"{copies} waited for a disk {when}: {told}"


def _size_text(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _rate_text(bytes_per_s: float | None) -> str:
    rate = (bytes_per_s or 0.0) / 1e6
    return f"{rate:.{0 if rate >= 10 else 1}f}"


def _number(value: float) -> str:
    """Return seconds with a decimal where it says anything."""
    return f"{value:.1f}".removesuffix(".0")

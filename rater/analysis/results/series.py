"""CPUs, memory and copies over the time of a phase, as shares and rates; pure.

Between two samples, an interval, a counter grew: that over the time is a share of a CPU, bytes a
second, or a share of the time in which tasks waited. An interval has None if the counter was
not known at one of its ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from rater.analysis.results.account import TimeAccount, cpus_of_copies, time_accounts
from rater.analysis.results.cpu_use import group_cpus
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.series import UnpackedSeries, unpack_stored
from rater.record.stored import StoredRun
from rater.system.patterns import compile_later
from rater.text.values import group_by_key

type Values = tuple[float | None, ...]  # one an interval; None: not known

_HUNDREDTH_S = 0.01  # unit of the times of CPUs
# Copies that used so much more of CPUs than these worked: the kernel's statistics miss work.
_MISSED_SHARE = 0.1
_PRESSURES = ("cpu", "memory", "io")
_DECIMAL = compile_later(r"[0-9]+(\.[0-9]+)?")
_RATES = {  # counters of the machine: name here, and what its unit is in bytes
    "disk read": ("pgpgin", 1024),
    "disk written": ("pgpgout", 1024),
}


class CpuGroupTimes(Struct, frozen=True, kw_only=True):
    """CPUs that the same copies may use, together; shares of their time.

    `mhz` are means over those that were read in the interval.
    """

    cpus: tuple[int, ...]
    copies: tuple[int, ...]  # that may run on them
    own: Values  # for copies
    others: Values  # for anybody else; not known where the kernel's statistics miss work
    irq: Values
    steal: Values
    mhz: Values
    throttles: Values  # how many


class Moved(Struct, frozen=True, kw_only=True):
    """Bytes a second that a copy moved: from and to storage, and by calls, caches included."""

    read: Values
    written: Values
    read_calls: Values
    write_calls: Values


class PhaseTimes(Struct, frozen=True, kw_only=True, dict=True):
    """The series of one phase on one axis of time: intervals between the samples of its CPUs.

    Times are nanoseconds of the run. The first and the last sample lie before the first release
    and behind the last end, within milliseconds.
    """

    phase: int
    benchmark: str | None
    iteration: int | None
    counted: bool
    start_ns: int  # first release
    edges_ns: tuple[int, ...]  # one more than there are intervals
    cpus: tuple[CpuGroupTimes, ...]  # by their first CPU
    copy_cpu: dict[int, Values]  # share of one CPU, by copy
    moved: dict[int, Moved]  # by copy
    spans_s: dict[int, tuple[float, float]]  # start and end, of copies with one run in the phase
    waited_s: dict[int, float]  # for a CPU that others had, of copies of which all of it is known
    pressure: dict[str, Values]  # share of the time in which some task waited, by resource
    rates: dict[str, Values]  # of the machine, a second, by name
    watts: dict[str, Values]  # by domain of energy
    throttled: Values  # seconds a second that a CPU quota kept CPUs from the run; (): no quota
    quota_cpus: float | None  # of the tightest quota
    limit_hits: Values  # how often a second the limit of memory was reached; (): no limit
    memory_limit_bytes: int | None  # of the tightest limit
    temperatures_c: dict[int, Values]  # by package
    free_bytes: dict[int, Values]  # by NUMA node, at the end of an interval
    pages: dict[str, dict[int, Values]]  # a second, by counter of numastat and node
    traffic: dict[str, dict[int, Values]]  # bytes a second to and from memory, by kind and place

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """Return the edges in seconds from the phase's first release."""
        return tuple((at_ns - self.start_ns) / 1e9 for at_ns in self.edges_ns)

    @property
    def lengths_s(self) -> tuple[float, ...]:
        """Return how long each interval is."""
        pairs = zip(self.edges_ns[1:], self.edges_ns, strict=False)
        return tuple((later - earlier) / 1e9 for later, earlier in pairs)

    def read_rate(self) -> Values:
        """Return bytes a second that all copies read from storage, as far as they are known."""
        return _sum_known([moved.read for moved in self.moved.values()])

    def written_rate(self) -> Values:
        """Return the same of bytes that they wrote."""
        return _sum_known([moved.written for moved in self.moved.values()])


def phase_times(run: StoredRun) -> tuple[PhaseTimes, ...]:
    """Return the series of a run by phase, torn attempts left out; empty where it has none.

    Raises `InputError` where a blob is damaged.
    """
    run = run.without_torn()
    if not run.series:
        return ()
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    copies = group_by_key((copy.phase, copy) for copy in run.copies)
    facts = _facts_of(run)
    phases: dict[int, dict[str, UnpackedSeries]] = {}
    for packed in run.series:
        phases.setdefault(packed.phase, {})[packed.family] = unpack_stored(packed, run.head.run)
    return tuple(
        _phase_times(brackets[phase], families, copies.get(phase, ()), facts)
        for phase, families in phases.items()
        if phase in brackets and "cpu" in families and len(families["cpu"].times_ns) > 1
    )


class _RunFacts(Struct, frozen=True, kw_only=True):
    """What phases need of their run; a limit of rater's cgroup is None if there is none.

    So it is if the limit is not known.
    """

    masks: Mapping[tuple[int, ...], tuple[int, ...] | None]
    accounts: Mapping[tuple[int, int, int], TimeAccount]
    quota_cpus: float | None
    memory_limit_bytes: int | None


def _facts_of(run: StoredRun) -> _RunFacts:
    settings = dict(run.settings)
    quota = settings.get("cgroup.cpu_quota", "")
    memory = settings.get("cgroup.memory_limit_bytes", "")
    return _RunFacts(
        masks=cpus_of_copies(run),
        accounts=time_accounts(run),
        quota_cpus=float(quota) if _DECIMAL.fullmatch(quota) else None,
        memory_limit_bytes=int(memory) if memory.isdecimal() else None,
    )


class _Family:
    """The numbers of one family over the intervals between some edges."""

    def __init__(self, series: UnpackedSeries | None, edges_ns: Sequence[int]) -> None:
        self._series = series
        self._edges_ns = edges_ns
        self.places = series.places if series is not None else ()
        self.columns = tuple(series.values) if series is not None else ()

    def rate(self, column: str, place: int = 0, unit: float = 1.0) -> Values:
        """Return by how much a counter grew a second, in units of the counter's."""
        if self._series is None or not (values := self._series.values_of(column, place)):
            return ()
        if self._series.times_ns == self._edges_ns and None not in values:
            at_edges: Sequence[float | None] = values
        else:
            at_edges = _values_at(self._series.times_ns, values, self._edges_ns)
        return tuple(
            None
            if before is None or after is None
            else max(0.0, after - before) * unit / ((late_ns - early_ns) / 1e9)
            for before, after, early_ns, late_ns in zip(
                at_edges, at_edges[1:], self._edges_ns, self._edges_ns[1:], strict=False
            )
            if late_ns > early_ns
        )

    def rates(self, columns: Sequence[str]) -> dict[str, dict[int, Values]]:
        """Return the rates of columns at all places, by column without `_bytes`, and by place."""
        return {
            column.removesuffix("_bytes"): {
                place: self.rate(column, place) for place in self.places
            }
            for column in columns
        }

    def level(self, column: str, place: int = 0, unit: float = 1.0) -> Values:
        """Return a gauge at the end of each interval, if it was read then."""
        if self._series is None or not (values := self._series.values_of(column, place)):
            return ()
        at = dict(zip(self._series.times_ns, values, strict=True))
        known = (at.get(edge_ns) for edge_ns in self._edges_ns[1:])
        return tuple(None if value is None else value * unit for value in known)


def _values_at(
    times_ns: Sequence[int], values: Sequence[int | None], moments_ns: Sequence[int]
) -> list[float | None]:
    """Return a counter at some moments: between two readings it grew evenly.

    Before the first reading and behind the last one it is not known.
    """
    readings = [
        (at_ns, value) for at_ns, value in zip(times_ns, values, strict=True) if value is not None
    ]
    reading_times_ns = [at_ns for at_ns, _ in readings]
    return [_value_at(readings, reading_times_ns, at_ns) for at_ns in moments_ns]


def _value_at(
    readings: Sequence[tuple[int, int]], times_ns: Sequence[int], moment_ns: int
) -> float | None:
    place = bisect_right(times_ns, moment_ns)
    if place and times_ns[place - 1] == moment_ns:
        return readings[place - 1][1]
    if not place or place == len(times_ns):
        return None
    (early_ns, before), (late_ns, after) = readings[place - 1], readings[place]
    return before + (after - before) * (moment_ns - early_ns) / (late_ns - early_ns)


def _phase_times(
    bracket: PhaseEnded,
    families: Mapping[str, UnpackedSeries],
    copies: Sequence[CopyEnded],
    facts: _RunFacts,
) -> PhaseTimes:
    edges_ns = tuple(dict.fromkeys(sorted(families["cpu"].times_ns)))

    def family(name: str) -> _Family:
        return _Family(families.get(name), edges_ns)

    machine, copy, node, package, traffic, resctrl = map(
        family, ("machine", "copy", "node", "package", "traffic", "resctrl")
    )
    copy_cpu = {number: copy.rate("cpu_ms", number, 1e-3) for number in copy.places}
    starts = [row.start_ns for row in copies if row.start_ns is not None]
    start_ns = bracket.start_ns if bracket.start_ns is not None else min(starts, default=0)
    return PhaseTimes(
        phase=bracket.phase,
        benchmark=bracket.benchmark,
        iteration=bracket.iteration,
        counted=bracket.counted,
        start_ns=start_ns,
        edges_ns=edges_ns,
        cpus=tuple(_cpu_times(family("cpu"), copy_cpu, copies, facts.masks)),
        copy_cpu=copy_cpu,
        moved={number: _moved(copy, number) for number in copy.places},
        spans_s=_spans_s(copies, start_ns),
        waited_s=_waited_s(copies, facts.accounts),
        pressure=_known(
            {name: machine.rate(f"pressure_{name}_some_ns", unit=1e-9) for name in _PRESSURES}
        ),
        rates=_known(
            {name: machine.rate(column, unit=unit) for name, (column, unit) in _RATES.items()}
        ),
        watts={
            name.removeprefix("energy_").removesuffix("_uj"): machine.rate(name, unit=1e-6)
            for name in machine.columns
            if name.startswith("energy_")
        },
        throttled=machine.rate("cfs_throttled_ns", unit=1e-9),
        quota_cpus=facts.quota_cpus,
        limit_hits=machine.rate("memory_limit_hits"),
        memory_limit_bytes=facts.memory_limit_bytes,
        temperatures_c={
            number: package.level("temperature_mc", number, 1e-3) for number in package.places
        },
        free_bytes={number: node.level("free_kb", number, 1024) for number in node.places},
        pages=node.rates([name for name in node.columns if not name.endswith("_kb")]),
        traffic=traffic.rates(traffic.columns) | resctrl.rates(resctrl.columns),
    )


def _spans_s(copies: Sequence[CopyEnded], origin_ns: int) -> dict[int, tuple[float, float]]:
    """Return start and end of copies that ran once, in seconds from `origin_ns`."""
    return {
        copy: ((row.start_ns - origin_ns) / 1e9, (row.start_ns + row.elapsed_ns - origin_ns) / 1e9)
        for copy, [row, *later] in group_by_key((row.copy, row) for row in copies).items()
        if row.start_ns is not None and not later
    }


def _waited_s(
    copies: Sequence[CopyEnded], accounts: Mapping[tuple[int, int, int], TimeAccount]
) -> dict[int, float]:
    """Return how long each copy waited for a CPU in all its runs, unless one is not known."""
    waits: dict[int, list[float | None]] = {}
    for row in copies:
        account = accounts.get((row.phase, row.copy, row.step))
        waits.setdefault(row.copy, []).append(None if account is None else account.waited_s)
    return {
        copy: sum(wait_s for wait_s in of_runs if wait_s is not None)
        for copy, of_runs in waits.items()
        if None not in of_runs
    }


def _moved(copy: _Family, number: int) -> Moved:
    return Moved(
        read=copy.rate("read_bytes", number),
        written=copy.rate("written_bytes", number),
        read_calls=copy.rate("read_calls_bytes", number),
        write_calls=copy.rate("write_calls_bytes", number),
    )


def _known(values_by_name: Mapping[str, Values]) -> dict[str, Values]:
    return {name: values for name, values in values_by_name.items() if values}


def _cpu_times(
    cpu: _Family,
    copy_cpu: Mapping[int, Values],
    copies: Sequence[CopyEnded],
    masks: Mapping[tuple[int, ...], tuple[int, ...] | None],
) -> Iterable[CpuGroupTimes]:
    groups = group_cpus(cpu.places, copies, masks)
    for group in dict.fromkeys(groups.values()):
        members = sorted(group.cpus)

        def mean_share(*columns: str, members: Sequence[int] = members) -> Values:
            rows = [
                cpu.rate(column, member, _HUNDREDTH_S) for member in members for column in columns
            ]
            return _shares(rows, len(members))

        busy = mean_share("user", "system")
        of_copies = [copy_cpu[number] for number in sorted(group.copies) if number in copy_cpu]
        copies_share = _shares(of_copies, len(members)) if of_copies else (0.0,) * len(busy)
        irq, steal = mean_share("irq"), mean_share("steal")
        worked = sum(map(_mean, (busy, irq, steal)))
        is_missed = _mean(copies_share) > worked + _MISSED_SHARE
        yield CpuGroupTimes(
            cpus=tuple(members),
            copies=tuple(sorted(group.copies)),
            own=copies_share,
            others=tuple(
                None
                if used is None or copies_used is None or is_missed
                else max(0.0, used - copies_used)
                for used, copies_used in zip(busy, copies_share, strict=False)
            ),
            irq=irq,
            steal=steal,
            mhz=_mean_known([cpu.level("mhz", member) for member in members]),
            throttles=_sum_all([cpu.rate("throttles", member) for member in members]),
        )


def _sum_all(rows: Sequence[Values]) -> Values:
    """Return sums of intervals in which all numbers are known."""
    return tuple(
        None if None in column else sum(it for it in column if it is not None)
        for column in zip(*rows, strict=False)
    )


def _sum_known(rows: Sequence[Values]) -> Values:
    """Return sums of those numbers that are known, if any is."""
    columns = ([it for it in column if it is not None] for column in zip(*rows, strict=False))
    return tuple(sum(known) if known else None for known in columns)


def _mean_known(rows: Sequence[Values]) -> Values:
    columns = ([it for it in column if it is not None] for column in zip(*rows, strict=False))
    return tuple(sum(known) / len(known) if known else None for known in columns)


def _mean(values: Values) -> float:
    """Return the mean of the values that are known; 0 of none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _shares(rows: Sequence[Values], cpus: int) -> Values:
    """Return what rows took together of the time of some CPUs, at most all of it.

    The kernel counts ticks of 10 ms: an interval may have one more than it is long, or many more
    where a hypervisor ticked late.
    """
    return tuple(None if value is None else min(value / cpus, 1.0) for value in _sum_all(rows))

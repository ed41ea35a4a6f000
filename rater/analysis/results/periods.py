"""Places in time: when of a phase others took CPUs, a quota kept copies off, or copies read; pure.

A period is the part of a phase in which most of such a disturbance was, if that was much shorter
than the phase: what went on all the time has no place in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.series import PhaseTimes, Values, phase_times
from rater.record.stored import StoredRun
from rater.text.cpuset import copy_numbers_text, cpus_text
from rater.text.values import percent

_LEAST_SHARE = 0.1  # of a CPU: less is no disturbance with a place
_LEAST_S = 0.5
_MOST_OF_PHASE = 0.9  # a period that is longer is the whole phase
_MOST_OF_ALL = 2 / 3  # of the whole disturbance of the phase, that lies in the period
_HALF = 0.5  # of its largest value: where it begins and ends
_COMPUTES = 0.9  # of a CPU: from there on a copy computes, and has started
_LEAST_READ = 1e6  # bytes a second: a copy that starts reads as much at least
_SAME_S = 1.0  # periods of CPUs whose ends are so close are one
_MINUTE_S = 60.0
_LONG_S = 180.0  # from there on seconds are told in minutes
_MOST_TOLD = 3


class PeriodKind(StrEnum):
    """What went on in a period."""

    OTHERS = "others"
    STEAL = "steal"
    QUOTA = "quota"
    STARTUP = "start-up"


class Period(Struct, frozen=True, kw_only=True):
    """Something that went on in a part of a phase; seconds count from its first release."""

    kind: PeriodKind
    phase: int
    benchmark: str | None
    iteration: int | None
    begin_s: float
    end_s: float
    level: float  # share of the CPUs; of a quota CPUs; of a start-up the share that was computed
    cpus: tuple[int, ...] = ()  # (): all
    copies: tuple[int, ...] = ()  # of a start-up
    read_rate: float | None = None  # of a start-up, bytes a second of all its copies

    @property
    def cost_s(self) -> float:
        """CPU time that copies could not have."""
        cpus = max(1, len(self.cpus), len(self.copies))
        lost = 1 - self.level if self.kind is PeriodKind.STARTUP else self.level
        return (self.end_s - self.begin_s) * lost * cpus


def phase_periods(phase: PhaseTimes) -> tuple[Period, ...]:
    """Return the periods of a phase."""
    return (*_cpu_periods(phase), *_quota_periods(phase), *_startups(phase))


def notable_periods(run: StoredRun) -> tuple[Period, ...]:
    """Return the periods of a run's counted phases that cost most, the costliest first.

    Of what comes again in several phases the costliest one stands for all.
    """
    periods = [
        period for phase in phase_times(run) if phase.counted for period in phase_periods(phase)
    ]
    periods.sort(key=lambda period: -period.cost_s)
    different = {(it.kind, it.cpus, it.copies, it.benchmark): it for it in reversed(periods)}
    return tuple(sorted(different.values(), key=lambda period: -period.cost_s)[:_MOST_TOLD])


def find_period(seconds: Sequence[float], values: Values) -> tuple[float, float, float] | None:
    """Return begin, end and level of the period in which most of something was, if there is one.

    `seconds` are the edges of the intervals. An interval that the period covers in part has less
    than its level: from how much less follows where in it the period begins or ends.
    """
    levels = [value or 0.0 for value in values]
    lengths = [late - early for early, late in pairwise(seconds)]
    areas = [value * length for value, length in zip(levels, lengths, strict=False)]
    if not areas or max(levels) < _LEAST_SHARE:
        return None
    stretches = list(_stretches(levels, _HALF * max(levels)))
    first, last = max(stretches, key=lambda stretch: sum(areas[stretch[0] : stretch[1]]))
    level = median(levels[first:last])
    before, behind = max(0, first - 1), min(len(levels), last + 1)
    if sum(areas[before:behind]) < _MOST_OF_ALL * sum(areas):
        return None
    begin_s = seconds[first + 1] - _part(levels[first], level) * lengths[first]
    if first and levels[first] >= level * (1 - _LEAST_SHARE):
        begin_s = seconds[first] - _part(levels[first - 1], level) * lengths[first - 1]
    end_s = seconds[last - 1] + _part(levels[last - 1], level) * lengths[last - 1]
    if last < len(levels) and levels[last - 1] >= level * (1 - _LEAST_SHARE):
        end_s = seconds[last] + _part(levels[last], level) * lengths[last]
    whole_s = seconds[-1] - seconds[0]
    if end_s - begin_s < _LEAST_S or end_s - begin_s > _MOST_OF_PHASE * whole_s:
        return None
    return max(0.0, begin_s), end_s, level


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


def _cpu_periods(phase: PhaseTimes) -> Iterator[Period]:
    """Yield periods of others and of the hypervisor, CPUs with the same ones together."""
    for kind in (PeriodKind.OTHERS, PeriodKind.STEAL):
        merged: list[list[Period]] = []
        for group in phase.cpus:
            values = group.others if kind is PeriodKind.OTHERS else group.steal
            ends = find_period(phase.seconds, values) if group.copies else None
            if ends is None:
                continue
            period = _period(kind, phase, ends, cpus=group.cpus)
            same = next((some for some in merged if _is_same(some[0], period)), None)
            if same is None:
                merged.append([period])
            else:
                same.append(period)
        for periods in merged:
            yield replace(
                periods[0],
                begin_s=median(it.begin_s for it in periods),
                end_s=median(it.end_s for it in periods),
                level=fmean(it.level for it in periods),
                cpus=tuple(sorted(cpu for it in periods for cpu in it.cpus)),
            )


def _period(
    kind: PeriodKind,
    phase: PhaseTimes,
    ends: tuple[float, float, float],
    *,
    cpus: tuple[int, ...] = (),
) -> Period:
    return Period(
        kind=kind,
        phase=phase.phase,
        benchmark=phase.benchmark,
        iteration=phase.iteration,
        begin_s=ends[0],
        end_s=ends[1],
        level=ends[2],
        cpus=cpus,
    )


def _is_same(period: Period, other: Period) -> bool:
    return (
        abs(period.begin_s - other.begin_s) <= _SAME_S
        and abs(period.end_s - other.end_s) <= _SAME_S
    )


def _quota_periods(phase: PhaseTimes) -> Iterator[Period]:
    ends = find_period(phase.seconds, phase.throttled)
    if ends is not None:
        yield _period(PeriodKind.QUOTA, phase, ends)


def _startups(phase: PhaseTimes) -> Iterator[Period]:
    """Yield the time until copies that read at their start compute, those of the same length."""
    by_length: dict[int, list[tuple[int, float, float, float]]] = {}
    for copy in phase.moved:
        startup = _startup(phase, copy)
        if startup is not None:
            by_length.setdefault(startup[0], []).append((copy, *startup[1:]))
    for copies in by_length.values():
        yield Period(
            kind=PeriodKind.STARTUP,
            phase=phase.phase,
            benchmark=phase.benchmark,
            iteration=phase.iteration,
            begin_s=0.0,
            end_s=copies[0][1],
            level=fmean(computed_s / end_s for _, end_s, computed_s, _ in copies),
            copies=tuple(copy for copy, *_ in copies),
            read_rate=sum(read / end_s for _, end_s, _, read in copies),
        )


def _startup(phase: PhaseTimes, copy: int) -> tuple[int, float, float, float] | None:
    """Return intervals, end, CPU seconds and bytes of a copy's start-up, if it read much in it."""
    shares, rates = phase.copy_cpu.get(copy, ()), phase.moved[copy].read
    seconds, computed_s, read = phase.seconds, 0.0, 0.0
    intervals = 0
    for share, rate, length in zip(shares, rates, phase.lengths_s, strict=False):
        if share is None or share >= _COMPUTES or rate is None or rate < _LEAST_READ:
            break
        computed_s += share * length
        read += rate * length
        intervals += 1
    end_s = seconds[intervals]
    if not intervals or end_s < _LEAST_S:
        return None
    return intervals, end_s, min(computed_s, end_s), read


# -- In words --------------------------------------------------------------------------------------


def period_text(period: Period, *, is_named: bool = True) -> str:
    """Return a period in words, with its bracket if `is_named`."""
    where = ""
    if is_named and period.iteration is not None:
        where = f" ({period.benchmark or 'all benchmarks'}, iteration {period.iteration})"
    if period.kind is PeriodKind.STARTUP:
        return _startup_text(period) + where
    when = f"from second {_number(period.begin_s)} to {_number(period.end_s)}"
    if period.kind is PeriodKind.QUOTA:
        return f"the CPU quota kept copies off {period.level:.2g} CPUs {when}{where}"
    who = "others" if period.kind is PeriodKind.OTHERS else "the hypervisor's other guests"
    return f"{cpus_text(period.cpus)}: {who} had {percent(period.level, 0)} % {when}{where}"


def _startup_text(period: Period) -> str:
    length_s = period.end_s
    computed_s = period.level * length_s
    unit, divisor = ("minutes", _MINUTE_S) if length_s >= _LONG_S else ("s", 1.0)
    rate = (period.read_rate or 0.0) / 1e6
    return (
        f"start-up of {copy_numbers_text(period.copies)}: {_number(computed_s / divisor)} of "
        f"{_number(length_s / divisor)} {unit} computed, {rate:.{0 if rate >= 10 else 1}f} MB/s "
        "read"
    )


def _number(value: float) -> str:
    """Return seconds with a decimal where it says anything."""
    return f"{value:.1f}".removesuffix(".0")

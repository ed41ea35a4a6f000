"""What a comparison says, as values: sides, order, parts of the cycles per instruction; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.differences import DisturbedRun, DoctorDifference, PointDifference
from rater.analysis.results.copies import Point, PointRun, counts_of
from rater.analysis.results.measure import MetricMeasure
from rater.analysis.results.rates import RunRates
from rater.analysis.stats.intervals import CONFIDENCE, Decision, RatioInterval
from rater.plan.counter_tables import OTHER

# -- In which order the compared runs were made, and in which sessions -----------------------------

_SESSION_GAP_S = 3600.0


def in_order(runs: dict[int, RunRates], point_runs: Iterable[PointRun]) -> dict[int, RunRates]:
    """Return the runs with their places in time; unchanged if the start of one is not known.

    An hour in which none of them ran parts two sessions: others have been at work since, or the
    machine was off.
    """
    heads = {point_run.run.head.run: point_run.run.head for point_run in point_runs}
    if any(head.started_at is None for head in heads.values()):
        return runs
    order = sorted(heads.values(), key=lambda head: (head.started_at or "", head.run))
    placed, session, ended_s = {}, 0, None
    for place, head in enumerate(order):
        begun_s = datetime.fromisoformat(head.started_at or "").timestamp()
        if ended_s is not None and begun_s - ended_s > _SESSION_GAP_S:
            session += 1
        ended_s = max(ended_s or 0.0, begun_s + (head.elapsed_s or 0.0))
        placed[head.run] = replace(runs[head.run], place=place, session=session)
    return {number: placed[number] for number in runs}


# -- What a comparison of points says, as values; `rater.analysis.compare.compare` makes them ------


class Side(Struct, frozen=True):
    """One column: a point, or with `by` all points with one value of an axis."""

    label: str
    points: tuple[Point, ...]  # one; with `by` one for each combination of the other axes' values

    @property
    def runs(self) -> tuple[PointRun, ...]:
        """All its runs."""
        return tuple(chain.from_iterable(point.runs for point in self.points))


class CpuTimeValues(Struct, frozen=True, kw_only=True):
    """What a verdict by CPU time compares: geometric means over the runs that it stands on."""

    baseline: float
    value: float
    unit: str  # "copies/CPU hour", or "ratio by CPU time" where the row's unit is a ratio


class Effect(Struct, frozen=True, kw_only=True):
    """One benchmark (or suite) of a side against the baseline's."""

    # Results, in the row's unit: geometric means over the runs that are compared, of the
    # score of each (`rater show`); None: no valid result.
    baseline: float | None
    value: float | None
    speedup: RatioInterval | None  # of rates; None: see `reason`
    # The inside of a run: median copies (above 1: faster) and slowest over median copy (above 1:
    # the slow copies are slower); None: one copy, other numbers of copies, rates of other kinds,
    # or no such thing.
    median_copy: RatioInterval | None
    slowest_over_median: RatioInterval | None
    joules_per_copy: RatioInterval | None  # above 1: takes more energy; None: not known
    p_holm: float | None  # p with all comparisons of the table considered (Holm)
    holds: bool  # whether better or worse holds up with all of them considered
    reason: str | None  # why there is no comparison
    by_cpu: CpuTimeValues | None = None  # None: elapsed time judges

    @property
    def judged_baseline(self) -> float | None:
        """The baseline's value in the unit of the verdict."""
        return self.by_cpu.baseline if self.by_cpu else self.baseline

    @property
    def judged_value(self) -> float | None:
        """The side's value in the unit of the verdict."""
        return self.by_cpu.value if self.by_cpu else self.value

    @property
    def improvement(self) -> float | None:
        """(T_baseline - T) / T, a share; None: not known, or the runs were disturbed."""
        speedup = self.speedup
        return (
            speedup.ratio - 1 if speedup and speedup.verdict is not Decision.CANNOT_TELL else None
        )

    @property
    def reduction(self) -> float | None:
        """(T_baseline - T) / T_baseline, a share."""
        improvement = self.improvement
        return None if improvement is None else 1 - 1 / (1 + improvement)


class EffectRow(Struct, frozen=True, kw_only=True):
    """A benchmark, or a suite, in all sides."""

    name: str  # of the benchmark; "all", "int" or "fp"
    tune: str | None  # None: there is one only
    category: str | None
    unit: str  # of the values: "ratio", or "copies/hour" where a reference is missing or differs
    over: tuple[str, ...]  # of a suite: its benchmarks
    cells: tuple[Effect, ...]  # one for each side but the baseline

    def unit_of(self, cell: Effect) -> str:
        """Return the unit of the verdict of one of the row's cells, and of its judged values."""
        return cell.by_cpu.unit if cell.by_cpu else self.unit

    @property
    def decided(self) -> bool:
        """Whether every side is better, worse or the same as the baseline."""
        return all(cell.speedup and cell.speedup.decided for cell in self.cells)

    @property
    def energy_decided(self) -> bool:
        """Whether every side takes more, less or the same energy as the baseline."""
        return all(cell.joules_per_copy and cell.joules_per_copy.decided for cell in self.cells)


class MetricRows(Struct, frozen=True, kw_only=True):
    """What a comparison says of a metric that programs report, beside their times."""

    measure: MetricMeasure
    rows: tuple[EffectRow, ...]  # benchmarks, then suites; values in the metric's unit


class Comparison(Struct, frozen=True, kw_only=True):
    """Points beside the first of them."""

    sides: tuple[Side, ...]  # the baseline first
    by: str | None  # the axis that is compared, the others held; None: points as they are
    differences: tuple[PointDifference, ...]  # what differs beside the axes
    copies: tuple[int, ...]  # numbers of copies that runs have
    mixed_copies: bool  # whether runs with other numbers of copies are compared with each other
    # What the rates are, and the runs: several that are compared with each other are not alike.
    kinds: tuple[tuple[str, tuple[int, ...]], ...]
    mixed_kinds: bool
    benchmarks: tuple[EffectRow, ...]
    suites: tuple[EffectRow, ...]  # all, int, fp: those with two benchmarks at least
    left_out: tuple[str, ...]  # what does not count, and why
    # Benchmarks that have a valid result in a point of the baseline and none in its counterpart,
    # with the label of that point.
    lost: tuple[tuple[str, str], ...]
    margin: float
    confidence: float  # of the intervals
    looks: int  # how often was looked before it was decided to stop, at most
    compared: int  # benchmarks x sides that have a p value
    troubles: tuple[DisturbedRun, ...]  # what disturbed runs, as it was recorded
    # In what the doctor would have said of the machine that they were made on.
    doctor: tuple[DoctorDifference, ...]
    pages: tuple[str, ...] = ()  # what is wrong with comparing these page layouts
    measure: MetricMeasure | None = (
        None  # the metric that is compared; None: the time that copies take
    )
    metrics: tuple[MetricRows, ...] = ()  # where times are compared: what programs report as well

    @property
    def is_empty(self) -> bool:
        """Whether no benchmark has a valid result in the baseline and in another side."""
        return not any(cell.speedup for row in self.benchmarks for cell in row.cells)

    @property
    def by_chance(self) -> float:
        """How many of them say better or worse where nothing differs, on average."""
        # All looks together err as one at the usual level does.
        return self.compared * (1 - CONFIDENCE)

    @property
    def overall(self) -> EffectRow | None:
        """The one row that stands for all: the suite, or the only benchmark."""
        rows = self.suites[:1] or (self.benchmarks if len(self.benchmarks) == 1 else ())
        return rows[0] if rows else None

    @property
    def suite_rows(self) -> tuple[EffectRow, ...]:
        """The suite, and its INT and FP parts where they are not all of it."""
        whole = self.suites[:1]
        return (*whole, *(row for row in self.suites[1:] if row.over != whole[0].over))

    def unjudged(self) -> list[tuple[EffectRow, Side, str]]:
        """Return what both sides have, but so that no verdict can stand on it, and why."""
        return [
            (row, side, cell.speedup.refused)
            for row, side, cell in self.verdicts()
            if not row.over and cell.speedup and cell.speedup.refused
        ]

    def verdicts(self) -> list[tuple[EffectRow, Side, Effect]]:
        """Return every cell with its row and side, suites last."""
        return [
            (row, side, cell)
            for row in (*self.benchmarks, *self.suites)
            for side, cell in zip(self.sides[1:], row.cells, strict=True)
        ]


# -- What became of each part of the cycles per instruction ----------------------------------------

TOTAL = "CPI"  # the row that the parts add up to


class CpiChange(Struct, frozen=True, kw_only=True):
    """One part of a benchmark's CPI in all sides."""

    benchmark: str
    tune: str | None
    part: str  # or TOTAL
    cycles: tuple[float | None, ...]  # per instruction, the baseline first; None: not counted
    cpi: float  # of the baseline

    @property
    def changes(self) -> tuple[float | None, ...]:
        """What each other side adds to the baseline's CPI, as a share of that."""
        first = self.cycles[0]
        return tuple(
            None if first is None or value is None else (value - first) / self.cpi
            for value in self.cycles[1:]
        )


def cpi_changes(sides: Sequence[Side]) -> tuple[CpiChange, ...]:
    """Return the CPI and its parts of benchmarks that the baseline and another side counted."""
    return tuple(_changes([_stacks(side) for side in sides]))


# By benchmark, tune and whether user mode alone was counted: that is not compared with both.
type _Stacks = dict[tuple[str, str | None, bool], dict[str, float]]


def _stacks(side: Side) -> _Stacks:
    stacks: _Stacks = {}
    for counts in counts_of(side.runs):
        if counts.stack is not None and counts.rates is not None and counts.rates.cpi:
            key = (counts.benchmark, counts.tune, counts.user_only)
            parts = {part.name: part.cycles for part in counts.stack.parts}
            stacks.setdefault(key, {TOTAL: counts.rates.cpi, **parts})
    return stacks


def _changes(stacks: Sequence[_Stacks]) -> Iterator[CpiChange]:
    for key, first in stacks[0].items():
        benchmark, tune, _ = key
        sides = [first, *(stack.get(key, {}) for stack in stacks[1:])]
        if not any(sides[1:]):
            continue
        parts = dict.fromkeys(name for side in sides for name in side)
        for name in sorted(parts, key=lambda name: name == OTHER):
            yield CpiChange(
                benchmark=benchmark,
                tune=tune,
                part=name,
                cycles=tuple(side.get(name) for side in sides),
                cpi=first[TOTAL],
            )


# -- What became of the instructions per cycle and of misses ---------------------------------------

IPC = "instructions per cycle"


class CountedChange(Struct, frozen=True, kw_only=True):
    """A rate that was counted, of one benchmark in all sides."""

    benchmark: str
    tune: str | None
    name: str  # IPC, or a metric of the table: walks_mpki
    values: tuple[float | None, ...]  # the baseline first; None: not counted

    @property
    def _ratios(self) -> tuple[float | None, ...]:
        first = self.values[0]
        return tuple(
            value / first if first and value is not None else None for value in self.values[1:]
        )

    @property
    def improvements(self) -> tuple[float | None, ...]:
        """By how much each other side has more, as a share; None for misses."""
        return tuple(
            ratio - 1 if ratio is not None and self.name == IPC else None for ratio in self._ratios
        )

    @property
    def reductions(self) -> tuple[float | None, ...]:
        """By how much each other side has less, as a share; None for instructions per cycle."""
        return tuple(
            1 - ratio if ratio is not None and self.name != IPC else None for ratio in self._ratios
        )


def counted_changes(sides: Sequence[Side]) -> tuple[CountedChange, ...]:
    """Return IPC and metrics of benchmarks that the baseline and another side counted."""
    rates = [_counted_rates(side) for side in sides]
    changes: list[CountedChange] = []
    for (benchmark, tune, user_only), first in rates[0].items():
        others = [side.get((benchmark, tune, user_only), {}) for side in rates[1:]]
        changes += [
            CountedChange(
                benchmark=benchmark,
                tune=tune,
                name=name,
                values=(value, *(other.get(name) for other in others)),
            )
            for name, value in first.items()
            if any(name in other for other in others)
        ]
    return tuple(changes)


def _counted_rates(side: Side) -> _Stacks:
    rates: _Stacks = {}
    for counts in counts_of(side.runs):
        if counts.rates is not None and counts.rates.cpi:
            key = (counts.benchmark, counts.tune, counts.user_only)
            rates.setdefault(key, {IPC: 1 / counts.rates.cpi, **dict(counts.metrics)})
    return rates

"""The time of every copy, and how the copies of one benchmark lie beside each other; pure.

Source of the statistics: Table 4 of the SPECrate2006 paper (J. Henning): times of
the copies over the median copy of a chosen run, with their median, arithmetic mean,
sample standard deviation and maximum, once of all copies and once without the
slowest few. Its Table 3 puts the ratios of two runs side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.results.copy_outcome import FailedCopy, failed_copy, is_good
from rater.analysis.results.energy import copy_estimates
from rater.analysis.results.model import Summary
from rater.analysis.results.rates import Key, benchmark_rates
from rater.analysis.results.steady import is_steady, share_inside
from rater.groups import grouped
from rater.record.stored import PER_HOUR, RATIO, StoredBracket, StoredCopy, StoredRun


@dataclass(frozen=True, slots=True)
class CopyPoint:
    """One copy in one iteration of one benchmark; None where its place is not known.

    A copy that ran several times (steady mode) stands with its median run.
    """

    copy: int
    cpu: int | None
    core: int | None
    node: int | None  # OS number of its lgroup
    package: int | None
    elapsed_s: float
    fastest_s: float
    slowest_s: float
    runs: int
    joules_estimate: float | None  # of a run, by `energy.copy_estimates`


@dataclass(frozen=True, slots=True)
class Cell:
    """One benchmark in one iteration (a round in rotated order, a window in steady mode)."""

    benchmark: str
    tune: str | None
    iteration: int
    counted: bool  # False: discarded
    points: tuple[CopyPoint, ...]  # copies that ran well, by number
    failed: tuple[FailedCopy, ...]  # runs that did not, by copy

    @property
    def key(self) -> Key:
        """Benchmark and tune."""
        return self.benchmark, self.tune


@dataclass(frozen=True, slots=True)
class TimeStatistics:
    """Statistics of normalised times: 1.02 is 2 % more than the yardstick."""

    count: int
    median: float
    mean: float  # arithmetic
    sd: float | None  # of the sample (divided by n - 1); None for one copy
    maximum: float


@dataclass(frozen=True, slots=True)
class CellTimes:
    """A cell normalised: to `yardstick_s`, the median copy of the same benchmark elsewhere."""

    cell: Cell
    yardstick_s: float | None  # None: the baseline does not have the benchmark
    every: TimeStatistics | None  # of all copies; None: none ran well, or there is no yardstick
    kept: TimeStatistics | None  # without the slowest; None: none were dropped, or none is left
    dropped: tuple[CopyPoint, ...]  # the slowest, slowest first

    def normalised(self, point: CopyPoint) -> float | None:
        """Return one copy's time over the yardstick."""
        return point.elapsed_s / self.yardstick_s if self.yardstick_s else None


@dataclass(frozen=True, slots=True)
class RatioPair:
    """The result of one benchmark (or suite) in two runs; None where there is none."""

    name: str
    tune: str | None
    unit: str  # "ratio", or "copies/hour" where one of the two has no reference time
    baseline: float | None
    value: float | None

    @property
    def change(self) -> float | None:
        """Value over baseline, less one."""
        if self.value is None or not self.baseline:
            return None
        return self.value / self.baseline - 1


def cells_of(run: StoredRun) -> tuple[Cell, ...]:
    """Return a run's cells: by tune, benchmark (in the order of the ring) and iteration.

    In steady mode the runs that lie in the window, at least in part, count.
    """
    run = run.without_torn()
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    ring = {name: place for place, name in enumerate(run.head.benchmarks)}
    rows = grouped(((row.tune, row.benchmark, row.iteration), row) for row in run.copies)
    joules = copy_estimates(run)
    cells = []
    for tune, name, iteration in sorted(
        rows, key=lambda key: (key[0] or "", ring.get(key[1], len(ring)), key[1:])
    ):
        own = [row for row in rows[tune, name, iteration] if _counts(run, row, brackets)]
        failed = sorted((row for row in own if not is_good(row)), key=lambda row: row.copy)
        cells.append(
            Cell(
                benchmark=name,
                tune=tune,
                iteration=iteration,
                counted=all(row.counted for row in own),
                points=_points(own, joules),
                failed=tuple(map(failed_copy, failed)),
            )
        )
    return tuple(cells)


def _counts(run: StoredRun, row: StoredCopy, brackets: Mapping[int, StoredBracket]) -> bool:
    bracket = brackets.get(row.phase)
    if not is_steady(run.head) or bracket is None or bracket.window_finish_ns is None:
        return True
    return share_inside(row, bracket) > 0


def yardsticks(cells: Iterable[Cell], iteration: int | None = None) -> dict[Key, float]:
    """Return the median copy of each benchmark in seconds, over all its counted iterations.

    `iteration`: over this one alone. A benchmark without a good copy there has none.
    """
    times = grouped(
        (cell.key, point.elapsed_s)
        for cell in cells
        if (cell.counted if iteration is None else cell.iteration == iteration)
        for point in cell.points
    )
    return {key: statistics.median(of) for key, of in times.items()}


def normalise(
    cells: Sequence[Cell], medians_s: Mapping[Key, float], drop: int = 0
) -> tuple[CellTimes, ...]:
    """Return each cell over its benchmark's yardstick, also without its `drop` slowest copies.

    A benchmark of another tune is measured by the only tune that the yardsticks have of it.
    """
    by_name = grouped((name, median_s) for (name, _), median_s in medians_s.items())
    found = []
    for cell in cells:
        others = by_name.get(cell.benchmark, [])
        yardstick_s = medians_s.get(cell.key, others[0] if len(others) == 1 else None)
        order = sorted(cell.points, key=lambda point: (-point.elapsed_s, point.copy))
        found.append(
            CellTimes(
                cell=cell,
                yardstick_s=yardstick_s,
                every=_shape(order, yardstick_s),
                kept=_shape(order[drop:], yardstick_s) if drop else None,
                dropped=tuple(order[:drop]),
            )
        )
    return tuple(found)


def slowest_points(
    times: Iterable[CellTimes], most: int
) -> tuple[tuple[CellTimes, CopyPoint, float], ...]:
    """Return the `most` slowest copies of all cells, each with its normalised time."""
    found = [
        (one, point, point.elapsed_s / one.yardstick_s)
        for one in times
        if one.yardstick_s
        for point in one.cell.points
    ]
    return tuple(sorted(found, key=lambda entry: -entry[2])[:most])


def ratio_pairs(summary: Summary, baseline: Summary) -> tuple[RatioPair, ...]:
    """Return the results of all benchmarks in either run, side by side, the suites' after them.

    They are ratios where both runs have them, else copies per hour.
    """
    ours, theirs = _results(summary), _results(baseline)
    tunes = {tune for _, tune in ours}, {tune for _, tune in theirs}
    if tunes[0] != tunes[1] and all(len(some) == 1 for some in tunes):  # base against peak
        (tune,) = tunes[0]
        theirs = {(name, tune): result for (name, _), result in theirs.items()}
    pairs = []
    for name, tune in dict.fromkeys((*ours, *theirs)):
        ours_here, theirs_here = ours.get((name, tune)), theirs.get((name, tune))
        known = [one for one in (ours_here, theirs_here) if one and one[1] is not None]
        place = 0 if all(one[0] is not None for one in known) else 1
        pairs.append(
            RatioPair(
                name,
                tune,
                (RATIO, PER_HOUR)[place],
                theirs_here[place] if theirs_here else None,
                ours_here[place] if ours_here else None,
            )
        )
    for kind in ("all", "int", "fp"):
        scores = [
            next((s for s in one.suites if s.kind == kind and s.ratio is not None), None)
            for one in (summary, baseline)
        ]
        if scores[0] and scores[1] and set(scores[0].over) == set(scores[1].over):
            name = "suite" if kind == "all" else f"suite, {kind}"
            pairs.append(RatioPair(name, None, "ratio", scores[1].ratio, scores[0].ratio))
    return tuple(pairs)


def _points(
    rows: Sequence[StoredCopy], joules: Mapping[tuple[int, int, int], float]
) -> tuple[CopyPoint, ...]:
    runs = grouped((row.copy, row) for row in rows if is_good(row))
    found = []
    for copy, of_it in sorted(runs.items()):
        first = of_it[0]
        times = [row.elapsed_s for row in of_it]
        drawn = [joules.get((row.phase, row.copy, row.step)) for row in of_it]
        found.append(
            CopyPoint(
                copy=copy,
                cpu=first.cpu,
                core=first.core,
                node=first.node,
                package=first.package,
                elapsed_s=statistics.median(times),
                fastest_s=min(times),
                slowest_s=max(times),
                runs=len(times),
                joules_estimate=statistics.median(it for it in drawn if it is not None)
                if None not in drawn
                else None,
            )
        )
    return tuple(found)


def _shape(points: Sequence[CopyPoint], yardstick_s: float | None) -> TimeStatistics | None:
    if not points or not yardstick_s:
        return None
    values = [point.elapsed_s / yardstick_s for point in points]
    return TimeStatistics(
        count=len(values),
        median=statistics.median(values),
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        maximum=max(values),
    )


def _results(summary: Summary) -> dict[Key, tuple[float | None, float | None]]:
    """Return each benchmark's ratio and copies per hour."""
    in_ratios = summary.rotated is None or summary.rotated.unit == RATIO
    return {
        (one.benchmark, one.tune): (one.ratio if in_ratios else None, one.per_hour)
        for one in benchmark_rates(summary)
    }

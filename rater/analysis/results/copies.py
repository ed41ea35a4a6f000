"""The time of every copy, and what copies used: CPUs, memory, counts of several runs; pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.counters import BenchmarkCounts, run_counts
from rater.analysis.results.metrics import copy_estimates
from rater.analysis.results.rates import Key
from rater.analysis.results.score import SuiteScore, Summary
from rater.analysis.results.steady import is_steady, share_inside
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.stored import PER_HOUR, RATIO, StoredRun, is_good
from rater.text.cpuset import format_list
from rater.text.values import count, group_by_key

# -- Runs that stand for one value of what is compared: a point of a sweep, or a word of the user --
#
# What is compared (`rater compare`) and what is drawn against copies (`rater scale`) are
# points; where their runs were made in rounds, runs of one round are neighbours in time.


class PointRun(Struct, frozen=True):
    """One run of a point."""

    run: StoredRun
    # Runs of one block (round) were made next to each other, one or more of every point:
    # what drifts in the machine hits them alike. None: not known.
    block: int | None


class Point(Struct, frozen=True):
    """All runs under one set of values."""

    label: str  # as a heading: "thp=always", "run 7"
    values: tuple[tuple[str, str], ...]  # axis and value, in the axes' order; (): plain runs
    runs: tuple[PointRun, ...]  # never empty; of several points, the first is the baseline

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its runs in the database."""
        return tuple(point_run.run.head.run for point_run in self.runs)


_TELLING_TIMES = 3  # different ones: fewer may be alike in two runs by chance


def without_repeats(points: Sequence[Point]) -> tuple[tuple[Point, ...], dict[int, int]]:
    """Return the points without imported runs that are another one under another uuid.

    The same host, start and times of all copies to the last digit are one run, however often it was
    captured. Also returned is by number of such a run that of the one which counts.
    """
    first: dict[object, int] = {}
    repeats: dict[int, int] = {}
    for run in (point_run.run for point in points for point_run in point.runs):
        different = {copy.elapsed_ns for copy in run.copies}
        is_imported = run.head.source == "import" and run.head.started_at is not None
        if not is_imported or len(different) < _TELLING_TIMES:
            continue
        measured = tuple(
            (copy.benchmark, copy.tune, copy.iteration, copy.copy, copy.elapsed_ns)
            for copy in run.copies
        )
        number = first.setdefault((run.head.hostname, run.head.started_at, measured), run.head.run)
        if number != run.head.run:
            repeats[run.head.run] = number
    if not repeats:
        return tuple(points), {}
    kept = (
        replace(
            point,
            runs=tuple(
                point_run for point_run in point.runs if point_run.run.head.run not in repeats
            ),
        )
        for point in points
    )
    return tuple(point for point in kept if point.runs), repeats


# -- What the counters of several runs of one point came to, as if they were one -------------------


def counts_of(runs: Sequence[PointRun]) -> tuple[BenchmarkCounts, ...]:
    """Return what runs counted together, by the newest of the tables that these used."""
    all_runs = (point_run.run.without_torn() for point_run in runs)
    whole = [run for run in all_runs if any(copy.counts for copy in run.copies)]
    if not whole:
        return ()
    copies = tuple(copy for run in whole for copy in run.copies)
    settings = tuple(dict(setting for run in whole for setting in run.settings).items())
    return run_counts(replace(whole[-1], copies=copies, settings=settings)).benchmarks


# -- Resident memory of benchmarks: mean and maximum over copies, beside each other by point -------
#
# Source: appendix A of the page-size paper (J. Korn and others), a column pair for each page size.


class MemoryCell(Struct, frozen=True):
    """One benchmark at one point, a copy's memory in bytes."""

    average_bytes: float | None  # over time and copies; None: no copy lived to be looked at
    max_bytes: int | None  # of any copy at any time
    looks: int
    copy_runs: int  # that counted and ended well


class MemoryRow(Struct, frozen=True):
    """One benchmark at all points."""

    benchmark: str
    tune: str | None
    cells: tuple[MemoryCell | None, ...]  # by point; None: no copy of the point ran it well


def memory_rows(points: Sequence[Point]) -> tuple[MemoryRow, ...]:
    """Return benchmarks in the order they ran in, with all runs of a point together."""
    by_point = [
        group_by_key(
            ((copy.benchmark, copy.tune), copy)
            for point_run in point.runs
            for copy in point_run.run.without_torn().copies
            if copy.counted and is_good(copy)
        )
        for point in points
    ]
    keys = dict.fromkeys(key for copies in by_point for key in copies)
    return tuple(
        MemoryRow(
            benchmark=key[0],
            tune=key[1],
            cells=tuple(_cell(copies[key]) if key in copies else None for copies in by_point),
        )
        for key in keys
    )


def _cell(copies: Iterable[CopyEnded]) -> MemoryCell:
    """Return the mean of the copies' own means: one that ran longer weighs no more."""
    copies = list(copies)
    means = [copy.mean_rss_bytes for copy in copies if copy.mean_rss_bytes is not None]
    # What the kernel kept of a single process misses no peak, but hugetlb pages.
    most = [
        size
        for copy in copies
        for size in (copy.peak_rss_bytes, copy.max_rss_bytes)
        if size is not None
    ]
    return MemoryCell(
        average_bytes=sum(means) / len(means) if means else None,
        max_bytes=max(most, default=None),
        looks=sum(copy.rss_looks or 0 for copy in copies),
        copy_runs=len(copies),
    )


# -- What of the machine the copies of a run were given: cores, CPUs, lgroups ----------------------
#
# By the plan, not by the number of copies alone: eight copies can have eight cores, or both
# threads of four.


class Share(StrEnum):
    """What of the machine a copy had for itself."""

    CORES = "own core"  # no core has two copies
    THREADS = "own CPU"  # some core has two copies, each on a thread of its own
    CPUS = "shared CPU"  # some CPU has two copies
    UNKNOWN = "not known"


class CpusUsed(Struct, frozen=True, kw_only=True):
    """Where the copies of a run were placed; None: not known."""

    copies: int
    share: Share
    cores: tuple[int, ...] | None  # in use, ascending
    per_core: tuple[int, int] | None  # copies on the core with the least of them, with the most
    threads: int | None  # CPUs of each used core; None as well where they differ
    lgroups: tuple[int, ...] | None  # copies on each lgroup in use, descending
    used_cpus: int | None  # that were given to copies
    cpus: int | None  # usable ones of the machine
    machine_cores: int | None  # that these belong to
    on: tuple[int, ...] | None = None  # the CPUs that were given to copies, ascending
    memory: str | None = None  # "local", "bind 0-1": policy, and nodes where any are named

    @property
    def even(self) -> int | None:
        """Copies on each used core; None: not known, or not the same on all of them."""
        if self.per_core is None or self.per_core[0] != self.per_core[1]:
            return None
        return self.per_core[0]

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be the same for rates of so many copies to be rates of the same.

        Which of equal cores they were given is not in it.
        """
        cores = None if self.cores is None else len(self.cores)
        return (self.share, cores, self.per_core, self.used_cpus, self.lgroups)

    @property
    def nodes_used(self) -> int | None:
        """NUMA nodes in use; None: not known."""
        return None if self.lgroups is None else len(self.lgroups)

    def has_no_more_room(self, fewer: CpusUsed) -> bool:
        """Tell whether a copy has at most the part of cores and nodes that fewer copies left it.

        Of fewer copies that do not share their cores evenly nothing can be told. The crowd of nodes
        is the mean number of copies on a copy's node.
        """
        if fewer.even is None and fewer.per_core is not None:
            return False
        if Share.UNKNOWN in (self.share, fewer.share):
            return self.share is fewer.share
        order = (Share.CORES, Share.THREADS, Share.CPUS)
        has_part = order.index(self.share) >= order.index(fewer.share)
        nodes, fewer_nodes = self.lgroups, fewer.lgroups
        if not nodes or not fewer_nodes:
            return has_part
        crowd = sum(copies**2 for copies in nodes) / sum(nodes)
        return has_part and crowd >= sum(copies**2 for copies in fewer_nodes) / sum(fewer_nodes)

    def __str__(self) -> str:
        """Say where they were: `8 on 4 cores (8 CPUs), 6+2 by lgroup`."""
        if self.cores is None:
            return f"{self.copies} on cores not known"
        text = f"{self.copies} on {count(len(self.cores), 'core')}"
        if self.used_cpus not in (None, len(self.cores)):
            text += f" ({count(self.used_cpus or 0, 'CPU')})"
        if self.even is None and self.per_core is not None:
            text += f", {self.per_core[0]}-{self.per_core[1]} each"
        if self.lgroups is not None and len(self.lgroups) > 1:
            text += f", {'+'.join(map(str, self.lgroups))} by NUMA node"
        return text


def cpus_used(run: StoredRun) -> CpusUsed:
    """Return where the copies of a run were placed: by its plan, else by what its rows tell."""
    head = run.head
    if run.placements:
        rows = [(placed.cpu, placed.core, placed.node) for placed in run.placements]
    else:
        first = {copy.copy: copy for copy in reversed(run.copies)}
        rows = [(copy.cpu, copy.core, copy.node) for copy in first.values()]
    on_cpu = _count_numbers(cpu for cpu, _, _ in rows)
    on_core = _count_numbers(core for _, core, _ in rows)
    on_node = _count_numbers(node for _, _, node in rows)
    cpus = len(run.pus) or None
    pus_of_core = Counter(pu.core for pu in run.pus if pu.core is not None)
    threads = {pus_of_core[core] for core in on_core or () if core in pus_of_core}
    return CpusUsed(
        copies=head.copies,
        share=_share(head.copies, on_cpu, on_core, cpus),
        cores=tuple(sorted(on_core)) if on_core else None,
        per_core=(min(on_core.values()), max(on_core.values())) if on_core else None,
        threads=threads.pop() if len(threads) == 1 else None,
        lgroups=tuple(sorted(on_node.values(), reverse=True)) if on_node else None,
        used_cpus=len(on_cpu) if on_cpu else None,
        cpus=cpus,
        machine_cores=len(pus_of_core) or None,
        on=tuple(sorted(on_cpu)) if on_cpu else None,
        memory=_memory(run),
    )


def _memory(run: StoredRun) -> str | None:
    """Return policy and nodes of the copies' memory; of rows, the nodes that they tell."""
    nodes = format_list({node for placed in run.placements for node in placed.memory_nodes})
    policies = dict.fromkeys(placed.memory_policy for placed in run.placements)
    if not run.placements:
        nodes = format_list({node for copy in run.copies for node in copy.mem_nodes})
    return " ".join(word for word in (" and ".join(policies), nodes) if word) or None


def _count_numbers(numbers: Iterable[int | None]) -> Counter[int] | None:
    """Return how often each number occurs; None: one of the numbers is not known."""
    counts: Counter[int] = Counter()
    for number in numbers:
        if number is None:
            return None
        counts[number] += 1
    return counts or None


def _share(
    copies: int, on_cpu: Counter[int] | None, on_core: Counter[int] | None, cpus: int | None
) -> Share:
    if cpus is not None and copies > cpus:  # bound or not
        return Share.CPUS
    if on_cpu is None or on_core is None:
        return Share.UNKNOWN
    if max(on_cpu.values()) > 1:
        return Share.CPUS
    return Share.THREADS if max(on_core.values()) > 1 else Share.CORES


def fair_copies(places: Sequence[CpusUsed]) -> int:
    """Return up to how many copies one curve is of one kind: each has a core to itself.

    Where there are no two such points, each a CPU; where not that, the smallest number.
    `places` by copies, ascending, never empty.
    """
    with_own_core = [place.copies for place in places if place.share is Share.CORES]
    if len(with_own_core) > 1:
        return with_own_core[-1]
    return max(
        (place.copies for place in places if place.share is not Share.CPUS),
        default=places[0].copies,
    )


# -- The time of every copy, and how the copies of one benchmark lie beside each other -------------
#
# Source of the statistics: Table 4 of the SPECrate2006 paper (J. Henning): times of the copies over
# the median copy of a chosen run, with their median, arithmetic mean, sample standard deviation and
# maximum, once of all copies and once without the slowest. Its Table 3 has ratios of two runs.


class CopyPoint(Struct, frozen=True, kw_only=True):
    """One copy in one iteration of one benchmark; parts of its place that are not known are None.

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


class Cell(Struct, frozen=True, kw_only=True):
    """One benchmark in one iteration (a round in rotated order, a window in steady mode)."""

    benchmark: str
    tune: str | None
    iteration: int
    counted: bool  # False: discarded
    points: tuple[CopyPoint, ...]  # copies that ran well, by number
    failed: tuple[CopyEnded, ...]  # runs that did not, by copy

    @property
    def key(self) -> Key:
        """Benchmark and tune."""
        return self.benchmark, self.tune


class TimeStatistics(Struct, frozen=True, kw_only=True):
    """Statistics of normalised times: 1.02 is 2 % more than the yardstick."""

    count: int
    median: float
    mean: float  # arithmetic
    sd: float | None  # of the sample (divided by n - 1); None for one copy
    maximum: float


class CellTimes(Struct, frozen=True, kw_only=True):
    """A cell normalised: to `yardstick_s`, the median copy of the same benchmark elsewhere."""

    cell: Cell
    yardstick_s: float | None  # None: the baseline does not have the benchmark
    every: TimeStatistics | None  # of all copies; None: none ran well, or there is no yardstick
    kept: TimeStatistics | None  # without the slowest; None: none were dropped, or none is left
    dropped: tuple[CopyPoint, ...]  # the slowest, slowest first

    def normalised(self, point: CopyPoint) -> float | None:
        """Return one copy's time over the yardstick."""
        return point.elapsed_s / self.yardstick_s if self.yardstick_s else None


class RatioPair(Struct, frozen=True, kw_only=True):
    """The result of one benchmark (or suite) in two runs; a run without a result has None."""

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


def group_cells(run: StoredRun) -> tuple[Cell, ...]:
    """Return a run's cells: by tune, benchmark (in the order of the ring) and iteration.

    In steady mode the runs that lie in the window, at least in part, count.
    """
    run = run.without_torn()
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    ring = {name: place for place, name in enumerate(run.head.benchmarks)}
    rows = group_by_key(((row.tune, row.benchmark, row.iteration), row) for row in run.copies)
    joules = copy_estimates(run)
    cells = []
    for tune, name, iteration in sorted(
        rows, key=lambda key: (key[0] or "", ring.get(key[1], len(ring)), key[1:])
    ):
        counted_rows = [row for row in rows[tune, name, iteration] if in_window(run, row, brackets)]
        failed = sorted((row for row in counted_rows if not is_good(row)), key=lambda row: row.copy)
        cells.append(
            Cell(
                benchmark=name,
                tune=tune,
                iteration=iteration,
                counted=all(row.counted for row in counted_rows),
                points=_points(counted_rows, joules),
                failed=tuple(failed),
            )
        )
    return tuple(cells)


def in_window(run: StoredRun, row: CopyEnded, brackets: Mapping[int, PhaseEnded]) -> bool:
    """Tell whether a run of a copy counts: in steady mode one that lies in the window."""
    bracket = brackets.get(row.phase)
    if not is_steady(run.head) or bracket is None or bracket.window_finish_ns is None:
        return True
    return share_inside(row, bracket) > 0


def median_copy_times(cells: Iterable[Cell], iteration: int | None = None) -> dict[Key, float]:
    """Return the median copy of each benchmark in seconds, over all its counted iterations.

    `iteration`: over this one alone. A benchmark without a good copy there has none.
    """
    times = group_by_key(
        (cell.key, point.elapsed_s)
        for cell in cells
        if (cell.counted if iteration is None else cell.iteration == iteration)
        for point in cell.points
    )
    return {key: statistics.median(times_s) for key, times_s in times.items()}


def normalise(
    cells: Sequence[Cell], medians_s: Mapping[Key, float], drop: int = 0
) -> tuple[CellTimes, ...]:
    """Return each cell over its benchmark's yardstick, also without its `drop` slowest copies.

    A benchmark of another tune is measured by the only tune that the yardsticks have of it.
    """
    by_name = group_by_key((name, median_s) for (name, _), median_s in medians_s.items())
    normalised = []
    for cell in cells:
        tunes_s = by_name.get(cell.benchmark, [])
        yardstick_s = medians_s.get(cell.key, tunes_s[0] if len(tunes_s) == 1 else None)
        slowest_first = sorted(cell.points, key=lambda point: (-point.elapsed_s, point.copy))
        normalised.append(
            CellTimes(
                cell=cell,
                yardstick_s=yardstick_s,
                every=_shape(slowest_first, yardstick_s),
                kept=_shape(slowest_first[drop:], yardstick_s) if drop else None,
                dropped=tuple(slowest_first[:drop]),
            )
        )
    return tuple(normalised)


def slowest_points(
    times: Iterable[CellTimes], most: int
) -> tuple[tuple[CellTimes, CopyPoint, float], ...]:
    """Return the `most` slowest copies of all cells, each with its normalised time."""
    candidates = [
        (time, point, point.elapsed_s / time.yardstick_s)
        for time in times
        if time.yardstick_s
        for point in time.cell.points
    ]
    return tuple(sorted(candidates, key=lambda entry: -entry[2])[:most])


def ratio_pairs(summary: Summary, baseline: Summary) -> tuple[RatioPair, ...]:
    """Return the results of all benchmarks in either run, side by side, the suites' after them.

    They are ratios where both runs have them, else copies per hour.
    """
    ours, theirs = _results(summary), _results(baseline)
    our_tunes, their_tunes = {tune for _, tune in ours}, {tune for _, tune in theirs}
    if our_tunes != their_tunes and len(our_tunes) == len(their_tunes) == 1:  # base against peak
        (tune,) = our_tunes
        theirs = {(name, tune): result for (name, _), result in theirs.items()}
    pairs = []
    for name, tune in dict.fromkeys((*ours, *theirs)):
        pair = ours.get((name, tune), _NO_RATES), theirs.get((name, tune), _NO_RATES)
        by_ratio = all(rates.ratio is not None for rates in pair if rates.per_hour is not None)
        value, reference = (rates.ratio if by_ratio else rates.per_hour for rates in pair)
        pairs.append(
            RatioPair(
                name=name,
                tune=tune,
                unit=RATIO if by_ratio else PER_HOUR,
                baseline=reference,
                value=value,
            )
        )
    for kind in ("all", "int", "fp"):
        score, baseline_score = _suite_score(summary, kind), _suite_score(baseline, kind)
        if score and baseline_score and set(score.over) == set(baseline_score.over):
            pairs.append(
                RatioPair(
                    name="suite" if kind == "all" else f"suite, {kind}",
                    tune=None,
                    unit="ratio",
                    baseline=baseline_score.ratio,
                    value=score.ratio,
                )
            )
    return tuple(pairs)


class _BenchmarkRates(NamedTuple):
    """The result of one benchmark in one run."""

    ratio: float | None
    per_hour: float | None


_NO_RATES = _BenchmarkRates(ratio=None, per_hour=None)


def _suite_score(summary: Summary, kind: str) -> SuiteScore | None:
    """Return the first ratio of this kind of suite: "all", "int" or "fp"."""
    scores = (score for score in summary.suites if score.kind == kind)
    return next((score for score in scores if score.ratio is not None), None)


def _points(
    rows: Sequence[CopyEnded], joules: Mapping[tuple[int, int, int], float]
) -> tuple[CopyPoint, ...]:
    runs = group_by_key((row.copy, row) for row in rows if is_good(row))
    points = []
    for copy, copy_rows in sorted(runs.items()):
        first = copy_rows[0]
        times = [row.elapsed_s for row in copy_rows]
        drawn_joules = [joules.get((row.phase, row.copy, row.step)) for row in copy_rows]
        points.append(
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
                joules_estimate=statistics.median(
                    joules_of_run for joules_of_run in drawn_joules if joules_of_run is not None
                )
                if None not in drawn_joules
                else None,
            )
        )
    return tuple(points)


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


def _results(summary: Summary) -> dict[Key, _BenchmarkRates]:
    in_ratios = summary.rotated is None or summary.rotated.unit == RATIO
    return {
        (score.benchmark, score.tune): _BenchmarkRates(
            ratio=score.ratio if in_ratios else None, per_hour=score.per_hour
        )
        for score in summary.scores
    }

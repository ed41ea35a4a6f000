"""The search for divots over CPU seconds, for runs that others disturbed; pure.

The same search runs over the CPU time of each copy in place of its elapsed time, where the one
rule (`CpuTimeRule`) lets CPU time judge. CPU time is not immune: who comes back to a CPU after
others finds its caches filled with their data, and a hypervisor's steal may be counted as work.
So no place is accused from one phase, and what others did on a place's CPUs stands against it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median, stdev
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import PLACED, Analysis, CpuJudgement, Finding, Thresholds
from rater.analysis.results.cpu_time import CpuTimeRule, CpuTimes
from rater.analysis.results.cpu_use import CpuUse, RunCounters
from rater.analysis.stats.robust import MAD_TO_SD, Floats
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun, TimeRow, is_good
from rater.text.values import group_by_key, percent

type BenchmarkName = tuple[str, str | None]  # benchmark and tune

ONE_PHASE: Final = "one iteration of one benchmark says nothing by CPU time"
_BENCHMARK, _START, _ELAPSED, _CPU_TIME = map(
    TimeRow._fields.index, ("benchmark", "start_ns", "elapsed_ns", "cpu_ns")
)
# Measured on a virtual machine of two CPUs (`benchmarks/cpu_time.py`), copies bound, of programs
# that fill nothing, the L1 and the L2 cache: a competitor that takes half of one CPU adds up to
# so much of a copy's CPU time there.
_INFLATION: Final = 0.06


# Deviations of single iterations: so far a state that lasts for all of a run may move a copy.
_STATES: Final = 3.0
_LEAST_PART: Final = 0.5  # of a benchmark's iterations, in which a place has to be slow


class CpuRows(Struct, frozen=True, eq=False, kw_only=True):
    """Times of a run with CPU seconds in place of elapsed seconds."""

    chunks: tuple[Any, ...]  # float64 (n, 14): the columns of `TimeRow`
    others_took: float  # share of the copies' time that they waited for others, on average


def cpu_rows(
    run: StoredRun,
    chunks: Sequence[Any],
    benchmarks: Sequence[BenchmarkName],
    counters: RunCounters | None = None,
) -> CpuRows | str:
    """Return the rows (`TimeRow`) of benchmarks that CPU time may judge, or why there are none.

    `benchmarks` are those that the rows number, with their tunes.
    """
    rule = CpuTimeRule(run, counters)
    times: dict[int, CpuTimes] = {}
    reasons = []
    for number, key in enumerate(benchmarks):
        if judged := rule.times(key):
            times[number] = judged
        else:
            reasons.append(rule.why_not(key))
    if not times:
        return next(filter(None, reasons), "no copy ended well")
    return CpuRows(
        chunks=tuple(_with_cpu_times(chunk, times.keys()) for chunk in chunks),
        others_took=fmean(judged.others_took for judged in times.values()),
    )


def _with_cpu_times(chunk: Floats, numbers: Collection[int]) -> Floats:
    """Return rows of benchmarks with their CPU time as elapsed time, which has no start."""
    rows: Floats = chunk[np.isin(chunk[:, _BENCHMARK], [*numbers])].copy()
    rows[:, _ELAPSED] = rows[:, _CPU_TIME]
    rows[:, _START] = np.nan
    return rows


def judge_by_cpu_time(
    analysis: Analysis,
    run: StoredRun,
    chunks: Sequence[Any],
    benchmarks: Sequence[BenchmarkName],
    counters: RunCounters,
    *,
    thresholds: Thresholds,
    core_pus: Sequence[tuple[int, int]] = (),
) -> Analysis:
    """Return the analysis of a disturbed run by CPU time, or with the reason why there is none."""
    rows = cpu_rows(run, chunks, benchmarks, counters)
    if isinstance(rows, str):
        return replace(analysis, not_by_cpu=rows)
    counted_phases = {copy.phase for copy in run.copies if copy.counted}
    if len(counted_phases) < 2:
        return replace(analysis, not_by_cpu=ONE_PHASE)
    by_cpu = analyse(rows.chunks, benchmarks, thresholds, core_pus=core_pus)
    load, noise = _LoadBeside(run, counters.cpus), _state_noise(run)
    findings = [
        load.explain(replace(finding, by_cpu=True))
        for finding in by_cpu.findings
        if finding.kind not in PLACED or _is_steady(finding, run, noise)
    ]
    findings.sort(key=lambda finding: finding.explained)
    least = math.expm1(_STATES * noise)
    return replace(
        by_cpu,
        findings=tuple(findings),
        # A place is accused of what stays, and of no single iteration.
        visible={
            scope: size if scope == "iteration" else max(size, least)
            for scope, size in by_cpu.visible.items()
            if scope != "copy"
        },
        others_cost=analysis.others_cost,
        noise_cost=analysis.noise_cost,
        by_cpu=CpuJudgement(others_took=rows.others_took, noise_cost=by_cpu.noise_cost),
    )


def _is_steady(finding: Finding, run: StoredRun, noise: float) -> bool:
    """Tell whether a place is slow by CPU time in most of a run, beyond states that come and go.

    What others do to caches, and guests of the hypervisor to a core, stays for many iterations, so
    that iterations are not independent: their number does not make a small difference sure.
    """
    cells = {(cell.benchmark, cell.tune, cell.iteration): cell.slowdown for cell in finding.cells}
    names = {benchmark for benchmark, _, _ in cells}
    counted = {
        (copy.benchmark, copy.iteration)
        for copy in run.copies
        if copy.counted and copy.benchmark in names
    }
    if len(cells) < max(2.0, _LEAST_PART * len(counted)):
        return False
    sizes = [math.log(slowdown) for slowdown in cells.values()]
    return abs(math.log(finding.slowdown)) >= _STATES * max(noise, stdev(sizes))


def _state_noise(run: StoredRun) -> float:
    """Return how far a copy's CPU time varies over the iterations, as a deviation of its logarithm.

    The median deviation from the copy's own median, over all copies and benchmarks, times 1.4826
    n / (n - .8) for n iterations (C. Croux and P. J. Rousseeuw, COMPSTAT 1992); 0 where each
    benchmark ran once.
    """
    cells = group_by_key(
        ((copy.benchmark, copy.tune, copy.copy), math.log(copy.cpu_ns))
        for copy in run.without_torn().copies
        if copy.counted and is_good(copy) and copy.cpu_ns
    )
    several = [values for values in cells.values() if len(values) > 1]
    deviations = [
        abs(value - median(values)) * len(values) / (len(values) - 0.8)
        for values in several
        for value in values
    ]
    return MAD_TO_SD * median(deviations) if deviations else 0.0


# -- What others on a place's CPUs may have made ---------------------------------------------------


class _LoadBeside:
    """The share of each copy's CPU that others and the hypervisor had, and what it costs a copy."""

    def __init__(self, run: StoredRun, uses: Sequence[CpuUse]) -> None:
        run = run.without_torn()
        use_by_cpu = {(use.phase, use.cpu): use for use in uses}
        self._rows = [
            (copy, (use.foreign or 0.0) + use.steal)
            for copy in run.copies
            if copy.counted and is_good(copy) and copy.cpu_ns
            if (use := use_by_cpu.get((copy.phase, _cpu_of(copy))))
        ]
        self._slope: float = _inflation_by_share(self._rows)

    def explain(self, finding: Finding) -> Finding:
        """Return a finding, explained where what others did on its CPUs may make all of it."""
        if finding.kind not in PLACED or finding.fast or finding.explained:
            return finding
        cells = {(cell.benchmark, cell.iteration) for cell in finding.cells}
        shares: dict[bool, list[float]] = {True: [], False: []}
        for copy, share in self._rows:
            if (copy.benchmark, copy.iteration) in cells:
                shares[copy.copy in finding.copies].append(share)
        if not all(shares.values()):
            return finding
        had, others_had = median(shares[True]), median(shares[False])
        if math.log(finding.slowdown) > self._slope * max(0.0, had - others_had):
            return finding
        expectation = (
            f"others had {percent(had, 0)} % of its CPU ({percent(others_had, 0)} % of those of "
            "other copies), which can cost as much in caches"
        )
        return replace(finding, explained=True, expectation=expectation)


def _cpu_of(copy: CopyEnded) -> int:
    cpu = copy.cpu if copy.last_cpu is None else copy.last_cpu
    return -1 if cpu is None else cpu


def _inflation_by_share(rows: Sequence[tuple[CopyEnded, float]]) -> float:
    """Return by how much (ln) a copy's CPU time grows with the share that others have of its CPU.

    The slope of ln(CPU time) on the share, each less the mean of the same copy and benchmark over
    the iterations (the within estimator of panel data, Wooldridge, Econometric Analysis of Cross
    Section and Panel Data, 10.5): what a copy or a place is by itself cancels. It is held to what
    was measured elsewhere, a normal prior about 0 with the deviation p = 2 `_INFLATION`: with the
    standard error e the slope counts p^2 / (p^2 + e^2), with the error (1 / e^2 + 1 / p^2)^-1/2.
    Returned is the slope and one such error, p at least.
    """
    shares, logs = [], []
    cells = group_by_key(
        ((copy.benchmark, copy.tune, copy.copy), (copy, share)) for copy, share in rows
    )
    for of_copy in cells.values():
        values = [math.log(copy.cpu_ns or 1) for copy, _ in of_copy]
        mean_log, mean_share = fmean(values), fmean(share for _, share in of_copy)
        logs += [value - mean_log for value in values]
        shares += [share - mean_share for _, share in of_copy]
    squares = sum(share**2 for share in shares)
    freedom = len(shares) - len(cells) - 1
    prior = 2 * _INFLATION  # of all of a CPU, as measured of half of one
    if freedom < 1 or squares <= 0:
        return prior
    slope = sum(share * value for share, value in zip(shares, logs, strict=True)) / squares
    rest = sum((value - slope * share) ** 2 for share, value in zip(shares, logs, strict=True))
    variance = rest / freedom / squares
    weight = prior**2 / (prior**2 + variance)
    return max(prior, slope * weight + math.sqrt(variance * weight))

"""Results of the rotated order, where copies run different benchmarks side by side; pure.

There is no bracket per benchmark, so SPEC CPU 2026 reports per benchmark the
median over rounds for each copy, then mean and population CV over the copies
(public write-ups, `notes/spec-formats.md` section 4). The per-copy geometric
means and their mean are a proposal (arXiv 2609.29681), no official score.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.result import (
    HOUR_S,
    CopyTime,
    Missing,
    Result,
    why_missing,
)
from rater.analysis.results.steady import gaps_ns
from rater.analysis.stats.estimate import geometric_mean, spread
from rater.plan.schedule import ring_steps
from rater.record.events import CopyEnded
from rater.record.run import BenchmarkUsed, CopyStatus
from rater.record.stored import PER_HOUR, RATIO, RunHead, StoredRun, is_good
from rater.text.values import group_by_key

PROPOSED_IN = "proposed in arXiv 2609.29681"


class CopyScore(Struct, frozen=True):
    """Geometric mean of one copy's rates over the benchmarks, and where it ran."""

    copy: int
    cpu: int | None
    node: int | None
    rate: float


class RunTail(Struct, frozen=True, kw_only=True):
    """The end of the run, when some copies had nothing left to do."""

    total_s: float  # first release to last finish
    length_s: float  # finish of the first copy to be done, to the last finish
    idle_share: float  # of the copies' time over the whole run
    core_idle_share: float | None  # of the used PUs' time over the whole run; None: not bound
    runs_in_tail: int  # runs of a benchmark that were still going when it began


class Gaps(Struct, frozen=True):
    """Time between two steps of a copy, when it ran nothing."""

    count: int
    median_s: float
    longest_s: float
    share: float  # of the copies' time over the whole run


class Ring(Struct, frozen=True, kw_only=True):
    """What a run in rotated order says beside the results of its benchmarks."""

    rounds: int  # that count
    unit: str  # of the rates: "ratio", or "copies/hour" where a reference time is missing
    copies: tuple[CopyScore, ...]  # those that ran every benchmark well, by number
    score: float | None  # mean of the copies' geometric means
    cv: float | None  # population SD of them / mean
    reason: str | None  # why there is no score, in words
    tail: RunTail | None
    gaps: Gaps | None
    # Over the whole run, tail and rounds that do not count included; None: a run is missing.
    work_rate: float | None = None  # reference seconds of work per second
    runs_per_hour: float | None = None
    proposed_in: str = PROPOSED_IN


def ring_of(run: StoredRun) -> tuple[list[Result], Ring]:
    """Return a result for each benchmark over all counted rounds, and what all come to.

    Where not all copies have a benchmark in their queue there is a rate of those that do, and the
    reason why it is no part of a score.
    """
    used = {benchmark.name: benchmark for benchmark in run.benchmarks}
    benchmarks = [used.get(name, BenchmarkUsed(name=name)) for name in run.head.benchmarks]
    by_ratio = all(benchmark.reference_s for benchmark in benchmarks)
    # What one run is worth: the rate of a copy is this by its time.
    work_s = {
        benchmark.name: (by_ratio and benchmark.reference_s) or HOUR_S for benchmark in benchmarks
    }
    typical, planned = _typical_times(run), _planned_runs(run.head)
    results = [
        _result(
            run,
            benchmark,
            times=typical.get(benchmark.name, {}),
            planned_runs=planned[benchmark.name],
            work_s=work_s[benchmark.name],
        )
        for benchmark in benchmarks
    ]
    copies = _copy_scores(run, typical, planned, work_s)
    return results, _ring(run, results, copies, by_ratio=by_ratio)


def _ring(
    run: StoredRun, results: Sequence[Result], copies: tuple[CopyScore, ...], *, by_ratio: bool
) -> Ring:
    head = run.head
    reason = next(
        (f"{result.benchmark}: {result.reason}" for result in results if result.reason), None
    )
    if reason is None and (len(copies) < head.copies or not copies):
        reason = f"{len(copies)} of {head.copies} copies ran every benchmark"
    population = None if reason else spread([copy.rate for copy in copies])
    tail = _tail(run.copies, head.copies)
    # With a run missing, the work that was done is not that of the time.
    is_whole = tail is not None and not reason and all(is_good(copy) for copy in run.copies)
    total_s = tail.total_s if tail and is_whole else None
    references = {result.benchmark: result.reference_s or 0.0 for result in results}
    work_done_s = sum(references.get(copy.benchmark, 0.0) for copy in run.copies)
    return Ring(
        rounds=head.iterations - head.discard,
        unit=RATIO if by_ratio else PER_HOUR,
        copies=copies,
        score=population.mean if population else None,
        cv=population.cv if population else None,
        reason=reason,
        tail=tail,
        gaps=_gaps(run.copies, head.copies),
        work_rate=work_done_s / total_s if total_s and by_ratio else None,
        runs_per_hour=len(run.copies) * HOUR_S / total_s if total_s else None,
    )


def _result(
    run: StoredRun,
    benchmark: BenchmarkUsed,
    *,
    times: Mapping[int, CopyTime],
    planned_runs: Mapping[int, int],
    work_s: float,
) -> Result:
    """Return what came of one benchmark; `times` and `planned_runs` are by copy."""
    head, planned = run.head, sum(planned_runs.values())
    rows = [copy for copy in run.copies if copy.benchmark == benchmark.name and copy.counted]
    is_own = head.source == "run"
    missing = (
        why_missing(rows, planned, unit="runs", checked=is_own, rounds=True) if planned else None
    )
    not_queued = None
    if len(planned_runs) < head.copies:
        not_queued = Missing.NOT_QUEUED.describe(
            done=len(planned_runs), of=head.copies, increment=head.increment
        )
    rates = [head.copies * work_s / time.elapsed_s for time in times.values()]
    rates_over_copies = None if missing else spread(rates)
    times_s = spread([time.elapsed_s for time in times.values()])
    return Result(
        benchmark=benchmark.name,
        tune=head.tune,
        category=benchmark.category,
        reference_s=benchmark.reference_s,
        iteration=None,
        selected=rates_over_copies is not None,
        copies=len(planned_runs),
        good=len(times),
        per_s=rates_over_copies.mean / work_s if rates_over_copies else None,
        reason=missing or not_queued,
        median_copy_s=times_s.median if times_s else None,
        slowest=max(times.values(), key=lambda time: (time.elapsed_s, -time.copy), default=None),
        times_s=times_s,
        rates=rates_over_copies,
    )


def _planned_runs(head: RunHead) -> dict[str, dict[int, int]]:
    """Return by benchmark and copy how many counted runs are planned, where there are any."""
    ring = head.benchmarks
    planned: dict[str, dict[int, int]] = {name: {} for name in ring}
    rounds = head.iterations - head.discard
    # Copies whose numbers differ by a multiple of the ring's length have the same queue.
    queues = [Counter(ring_steps(number, len(ring), head.increment)) for number in range(len(ring))]
    for copy in range(head.copies if ring else 0):
        for position, times in queues[copy % len(ring)].items():
            planned[ring[position]][copy] = times * rounds
    return planned


def _typical_times(run: StoredRun) -> dict[str, dict[int, CopyTime]]:
    """Return by benchmark and copy the median over counted rounds of the good times above zero."""
    rows = group_by_key(
        ((copy.benchmark, copy.copy), copy)
        for copy in run.copies
        if copy.counted and is_good(copy) and copy.elapsed_ns > 0
    )
    times: dict[str, dict[int, CopyTime]] = {}
    for (name, number), rounds in sorted(rows.items()):
        median_s = statistics.median(copy.elapsed_s for copy in rounds)
        first = rounds[0]
        time = CopyTime(copy=number, cpu=first.cpu, node=first.node, elapsed_s=median_s)
        times.setdefault(name, {})[number] = time
    return times


def _copy_scores(
    run: StoredRun,
    typical: Mapping[str, Mapping[int, CopyTime]],
    planned: Mapping[str, Mapping[int, int]],
    work_s: Mapping[str, float],
) -> tuple[CopyScore, ...]:
    """Return the score of each copy that ran all its counted runs of every benchmark well."""
    good_runs = Counter(
        (copy.benchmark, copy.copy) for copy in run.copies if copy.counted and is_good(copy)
    )
    places = {copy: time for times in typical.values() for copy, time in times.items()}
    rates: dict[int, list[float]] = {}
    for name in run.head.benchmarks:
        for copy, time in typical.get(name, {}).items():
            if good_runs[name, copy] >= planned[name].get(copy, 0):
                rate = run.head.copies * work_s[name] / time.elapsed_s
                rates.setdefault(copy, []).append(rate)
    scores = []
    for copy, copy_rates in sorted(rates.items()):
        has_all = len(copy_rates) == len(run.head.benchmarks)
        mean = geometric_mean(copy_rates) if has_all else None
        if mean is not None:
            place = places[copy]
            scores.append(CopyScore(copy=copy, cpu=place.cpu, node=place.node, rate=mean))
    return tuple(scores)


def _tail(rows: Sequence[CopyEnded], copies: int) -> RunTail | None:
    times = [
        (row, row.start_ns, row.finish_ns)
        for row in rows
        if row.start_ns is not None
        and row.finish_ns is not None
        and row.status is not CopyStatus.INTERRUPTED
    ]
    finishes_by_copy = group_by_key((row.copy, finish) for row, _, finish in times)
    if len(times) < len(rows) or not times or len(finishes_by_copy) < copies:
        return None  # the end of a run that was stopped is no tail
    last_finishes = [max(finishes) for finishes in finishes_by_copy.values()]
    # Copies that share a PU leave it idle only once the last of them is done.
    finishes_by_pu = group_by_key((row.cpu, finish) for row, _, finish in times)
    begin, end, first_done = (
        min(start for _, start, _ in times),
        max(last_finishes),
        min(last_finishes),
    )
    whole_ns = end - begin
    if whole_ns <= 0:
        return None
    pu_idle_ns = sum(end - max(finishes) for finishes in finishes_by_pu.values())
    return RunTail(
        total_s=whole_ns / 1e9,
        length_s=(end - first_done) / 1e9,
        idle_share=sum(end - finish for finish in last_finishes) / (copies * whole_ns),
        core_idle_share=None
        if None in finishes_by_pu
        else pu_idle_ns / (len(finishes_by_pu) * whole_ns),
        runs_in_tail=sum(finish > first_done for _, _, finish in times),
    )


def _gaps(rows: Sequence[CopyEnded], copies: int) -> Gaps | None:
    gaps = [start - finish for finish, start in gaps_ns(rows)]
    if not gaps:
        return None
    timed_rows = [row for row in rows if row.start_ns is not None and row.finish_ns is not None]
    begin = min(row.start_ns or 0 for row in timed_rows)
    copy_time_ns = copies * (max(row.finish_ns or 0 for row in timed_rows) - begin)
    return Gaps(
        count=len(gaps),
        median_s=statistics.median(gaps) / 1e9,
        longest_s=max(gaps) / 1e9,
        share=sum(gaps) / copy_time_ns if copy_time_ns > 0 else 0.0,
    )

"""A steady run beside one of the same copies with a barrier (or, rotated, with an end); pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from rater.analysis.compare.differences import (
    differ_beyond_mode,
    minor_differences,
)
from rater.analysis.results.score import Summary
from rater.analysis.stats.estimate import geometric_mean
from rater.record.run import BenchmarkUsed, RunStatus
from rater.record.stored import RunHead

# Homogeneous mode rates N copies by a bracket: all wait for the slowest one. What
# that costs, its own score lost says: 1 - median copy time / bracket. Steady mode
# has no such wait, but its copies drift apart and meet each other in other phases
# of their work, so that a run itself can take longer or shorter: the medians of
# the run times, side by side, say that.


class BarrierBenchmark(Struct, frozen=True, kw_only=True):
    """One benchmark in both runs; None: not known or not given."""

    benchmark: str
    tune: str | None
    steady_ratio: float | None
    steady_per_hour: float | None
    steady_run_s: float | None  # median run
    steady_occupied: float | None  # share of the copies' time in its window in which runs went
    other_ratio: float | None
    other_per_hour: float | None
    other_run_s: float | None  # median copy
    difference: float | None  # 0.05: steady completes 5 % more per hour
    longer: float | None  # 0.02: a run takes 2 % more time in steady mode
    score_lost: float | None  # of the other run
    reason: str | None  # why there is no difference, in words


class BarrierComparison(Struct, frozen=True, kw_only=True):
    """A steady run and another one, side by side."""

    steady: int  # numbers of the runs
    other: int
    order: str  # homogeneous or rotated, of both
    other_mode: str  # homogeneous or rotated
    differences: tuple[str, ...]  # in rests and inherited variables, in words
    sides: tuple[BarrierBenchmark, ...]
    # Geometric means over the benchmarks that have both; in rotated order, `difference` is that
    # of the whole mix: reference seconds of work (without references, runs) in a second.
    difference: float | None
    longer: float | None
    score_lost: float | None
    steady_ratio: float | None  # of the suite, over the same benchmarks; rotated: of the mix
    other_ratio: float | None
    idle_share: float | None  # of the copies' time in the tail of the other, rotated order
    steady_occupied: float | None  # the least of the windows that are compared


def find_barrier_run(head: RunHead, heads: Sequence[RunHead]) -> int | None:
    """Return the number of the run to show beside a steady one, None if no run qualifies.

    The latest complete run of the same host, suite, size, tune, copies, layout,
    memory and options that change what a copy does (`differ_beyond_mode`) that ran all
    of its benchmarks in homogeneous mode (for a steady run in rotated order: in
    rotated mode, and exactly the same benchmarks).
    """
    candidates = [
        other.run
        for other in heads
        if other.run != head.run
        and other.status is RunStatus.COMPLETE
        and other.source == "run"
        and other.mode == head.order
        and head.hostname is not None
        and not differ_beyond_mode(head, other)
        and _has_benchmarks(head, other)
    ]
    return max(candidates, default=None)


def _has_benchmarks(head: RunHead, other: RunHead) -> bool:
    if head.order == "rotated":  # another mix loads the machine in another way
        return head.benchmarks == other.benchmarks and head.increment == other.increment
    return set(head.benchmarks) <= set(other.benchmarks)


def compare_with_barrier(summary: Summary, other: Summary) -> BarrierComparison:
    """Compare a steady run with one of the same order that has brackets (or an end)."""
    sides = tuple(_compare_benchmarks(summary, other))
    compared = [side for side in sides if side.difference is not None]
    ratios = [side for side in compared if side.steady_ratio and side.other_ratio]
    complete = len(ratios) == len(sides)
    difference = _mean_change([side.difference for side in compared])
    steady_ratio = geometric_mean([side.steady_ratio or 0.0 for side in ratios])
    other_ratio = geometric_mean([side.other_ratio or 0.0 for side in ratios])
    kept = geometric_mean([1 - side.score_lost for side in compared if side.score_lost is not None])
    occupied = [side.steady_occupied for side in compared if side.steady_occupied is not None]
    idle = None
    if summary.mix is not None:
        chosen, rotated = summary.mix.selected, other.rotated
        steady_ratio = chosen.ratio if chosen else None
        other_ratio = rotated.work_rate if rotated else None
        difference = _change(steady_ratio, other_ratio)
        if difference is None and chosen and rotated:
            difference = _change(chosen.per_hour, rotated.runs_per_hour)
        idle = rotated.tail.idle_share if rotated and rotated.tail else None
        complete = all(side.reason is None for side in sides)
        occupied = [chosen.occupied] if chosen and chosen.occupied is not None else []
    return BarrierComparison(
        steady=summary.head.run,
        other=other.head.run,
        order=summary.head.order,
        other_mode=other.head.mode,
        differences=minor_differences(summary.run, other.run),
        sides=sides,
        difference=difference if complete or summary.mix is None else None,
        longer=_mean_change([side.longer for side in sides if side.reason is None]),
        score_lost=None if kept is None else 1 - kept,
        steady_ratio=steady_ratio if complete else None,
        other_ratio=other_ratio if complete else None,
        idle_share=idle,
        steady_occupied=min(occupied, default=None),
    )


def _compare_benchmarks(summary: Summary, other: Summary) -> Iterator[BarrierBenchmark]:
    """Yield each benchmark in both runs; in rotated order only the times of its runs compare."""
    other_scores = {(score.benchmark, score.tune): score for score in other.scores}
    programs = {benchmark.name: benchmark for benchmark in summary.run.benchmarks}
    other_programs = {benchmark.name: benchmark for benchmark in other.run.benchmarks}
    for score in summary.scores:
        name = score.benchmark
        steady, other_score = score.chosen, other_scores.get((name, score.tune))
        other_result = other_score.chosen if other_score else None
        if summary.mix:
            # A ring with missing times has no chosen iteration: its first one holds the others.
            has_times = other_score and other.rotated and other_score.iterations[0].times_s
            other_result = other_score.iterations[0] if other_score and has_times else None
        reason = _program_difference(programs.get(name), other_programs.get(name))
        if steady is None or (summary.mix and steady.median_copy_s is None):
            reason = f"run {summary.head.run} has no result of it"
        elif other_result is None:
            reason = f"run {other.head.run} has no result of it"
        # Runs of a ring have no rate of their own: only the whole mix has one.
        other_rated = None if summary.mix else other_result
        steady_per_hour = steady.per_hour if steady else None
        steady_run_s = steady.median_copy_s if steady else None
        other_per_hour = other_rated.per_hour if other_rated else None
        other_run_s = other_result.median_copy_s if other_result else None
        yield BarrierBenchmark(
            benchmark=name,
            tune=score.tune,
            steady_ratio=steady.ratio if steady else None,
            steady_per_hour=steady_per_hour,
            steady_run_s=steady_run_s,
            steady_occupied=steady.steady.occupied if steady and steady.steady else None,
            other_ratio=other_rated.ratio if other_rated else None,
            other_per_hour=other_per_hour,
            other_run_s=other_run_s,
            difference=None if reason else _change(steady_per_hour, other_per_hour),
            longer=None if reason else _change(steady_run_s, other_run_s),
            score_lost=other_rated.score_lost if other_rated else None,
            reason=reason,
        )


def _program_difference(
    program: BenchmarkUsed | None, other_program: BenchmarkUsed | None
) -> str | None:
    """Say why two programs of one name are not the same, as far as is known."""
    if program is None or other_program is None:
        return None
    if program.command != other_program.command:
        return "the commands differ"
    for part, sha256, other_sha256 in (
        ("programs", program.binary_sha256, other_program.binary_sha256),
        ("inputs", program.inputs_sha256, other_program.inputs_sha256),
    ):
        if sha256 and other_sha256 and sha256 != other_sha256:
            return f"the {part} differ"
    return "the threads of a copy differ" if program.threads != other_program.threads else None


def _change(value: float | None, base: float | None) -> float | None:
    return value / base - 1 if value is not None and base else None


def _mean_change(changes: Sequence[float | None]) -> float | None:
    mean = geometric_mean([1 + change for change in changes if change is not None])
    return None if mean is None else mean - 1

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


class BarrierBenchmark(Struct, frozen=True):
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
    """Return the number of the run to show beside a steady one, None where there is none.

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
    sides = tuple(_benchmarks(summary, other))
    compared = [side for side in sides if side.difference is not None]
    ratios = [side for side in compared if side.steady_ratio and side.other_ratio]
    complete = len(ratios) == len(sides)
    difference = _mean_change([side.difference for side in compared])
    steady_ratio = geometric_mean([side.steady_ratio or 0.0 for side in ratios])
    other_ratio = geometric_mean([side.other_ratio or 0.0 for side in ratios])
    kept = geometric_mean([1 - it.score_lost for it in compared if it.score_lost is not None])
    occupied = [s.steady_occupied for s in compared if s.steady_occupied is not None]
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


def _benchmarks(summary: Summary, other: Summary) -> Iterator[BarrierBenchmark]:
    """Yield each benchmark in both runs; in rotated order only the times of its runs compare."""
    mix, programs = (
        summary.mix,
        [{benchmark.name: benchmark for benchmark in of.run.benchmarks} for of in (summary, other)],
    )
    theirs = {(it.benchmark, it.tune): it for it in other.scores}
    for score in summary.scores:
        here, that = score.chosen, theirs.get((score.benchmark, score.tune))
        there = that.chosen if that else None
        if mix:  # of a ring the times stand where some are missing
            known = that and other.rotated and that.iterations[0].times_s
            there = that.iterations[0] if that and known else None
        reason = _program(*(program.get(score.benchmark) for program in programs))
        if here is None or (mix and here.median_copy_s is None):
            reason = f"run {summary.head.run} has no result of it"
        elif there is None:
            reason = f"run {other.head.run} has no result of it"
        rated, phase = None if mix else there, here.steady if here else None
        rates = [(it.ratio, it.per_hour) if it else (None, None) for it in (here, rated)]
        times_s = [it.median_copy_s if it else None for it in (here, there)]
        compares = reason is None
        yield BarrierBenchmark(
            *(score.benchmark, score.tune, *rates[0], times_s[0]),
            phase.occupied if phase else None,
            *(*rates[1], times_s[1]),
            difference=_change(rates[0][1], rates[1][1]) if compares else None,
            longer=_change(*times_s) if compares else None,
            score_lost=rated.score_lost if rated else None,
            reason=reason,
        )


def _program(program: BenchmarkUsed | None, other_program: BenchmarkUsed | None) -> str | None:
    """Say why two programs of one name are not the same, as far as is known."""
    if program is None or other_program is None:
        return None
    if program.command != other_program.command:
        return "the commands differ"
    for name, mine, other in (
        ("programs", program.binary_sha256, other_program.binary_sha256),
        ("inputs", program.inputs_sha256, other_program.inputs_sha256),
    ):
        if mine and other and mine != other:
            return f"the {name} differ"
    return "the threads of a copy differ" if program.threads != other_program.threads else None


def _change(value: float | None, base: float | None) -> float | None:
    return value / base - 1 if value is not None and base else None


def _mean_change(changes: Sequence[float | None]) -> float | None:
    mean = geometric_mean([1 + change for change in changes if change is not None])
    return None if mean is None else mean - 1

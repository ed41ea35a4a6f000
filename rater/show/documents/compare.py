"""Documents of `rater compare --json`."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from rater.analysis.results.cpu_use import DisturbanceKind
from rater.analysis.results.measure import Better
from rater.analysis.stats.estimate import Basis
from rater.analysis.stats.intervals import Decision
from rater.record.documents import ForeignProcessJson
from rater.show.documents.common import Benchmark, Category, Reason, RunNumber, Tune, Uuid


class PointRunJson(TypedDict):
    """A run of a point."""

    run: RunNumber
    uuid: Uuid
    block: Annotated[int | None, "Round in which it was made; null: none."]


class PointJson(TypedDict):
    """A point: runs under one set of values."""

    label: Annotated[str, "Name of the point."]
    baseline: Annotated[bool, "true: the others are compared with it."]
    values: Annotated[list[dict[str, str]], "Values of the axes, of each point put together."]
    runs: Annotated[list[PointRunJson], "Runs of the point."]


class ValueOfRunsJson(TypedDict):
    """A value, and the runs that have it."""

    value: Annotated[str | None, "The value; null: not known."]
    runs: Annotated[list[int], "Numbers of the runs."]


class PointDifferenceJson(TypedDict):
    """Something that is not alike in all runs of a comparison."""

    what: Annotated[str, "What differs, in words."]
    weighs: Annotated[bool, "true: it may explain a difference; false: worth a note."]
    differs_within: Annotated[list[str], "Points whose own runs differ in it."]
    values: Annotated[list[ValueOfRunsJson], "Values, and the runs that have them."]


class DoctorValueJson(TypedDict):
    """What the doctor would have said, and of which runs."""

    verdict: Annotated[str, "bad, consider, good or cannot tell."]
    seen: Annotated[str, "What was seen, in words."]
    runs: Annotated[list[int], "Numbers of the runs."]


class DoctorDifferenceJson(TypedDict):
    """A check of the doctor that differs between runs."""

    check: Annotated[str, "Name of the check."]
    why: Annotated[str, "Why it matters, in words."]
    values: Annotated[list[DoctorValueJson], "What was seen, and in which runs."]


class KindRunsJson(TypedDict):
    """Runs with one kind of rates."""

    rates: Annotated[str, "Kind of the rates."]
    runs: Annotated[list[int], "Numbers of the runs."]


class LostJson(TypedDict):
    """A result that the baseline has and a point has not."""

    benchmark: Benchmark
    point: Annotated[str, "Name of the point."]


class MatterJson(TypedDict):
    """One thing that disturbed a run, where it was worst."""

    matter: Annotated[DisturbanceKind, "What disturbed."]
    share: Annotated[float | None, "Share of the time; null: it is counted in times."]
    times: Annotated[int | None, "How many times; null: it has a share."]
    cpu: Annotated[int | None, "CPU where it was worst; null: of the whole machine."]
    cpus: Annotated[list[int], "All CPUs that had it in a counted phase."]
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    process: Annotated[
        ForeignProcessJson | None,
        "Of foreign load: the process that used most of that CPU; null: not known.",
    ]


class DisturbedRunJson(TypedDict):
    """A run that was disturbed."""

    run: RunNumber
    too_disturbed: Annotated[list[str], "Why nothing can be said of it; empty: it can."]
    others_cost: Annotated[float | None, "Share of its score that other processes cost."]
    matters: Annotated[list[MatterJson], "What disturbed it."]
    placement_not_met: Annotated[list[int], "Copies that were not as planned."]
    warnings: Annotated[list[str], "Its warnings, in words."]
    share: Annotated[bool, "true: made with --share, another run may have been beside it."]


class SlowRunsJson(TypedDict):
    """Runs that lie far below all others of their side."""

    count: Annotated[int, "Number of these runs."]
    of: Annotated[int, "Runs of that side."]
    slower: Annotated[float, "0.2: they take 20 % more time than its others."]
    of_baseline: Annotated[bool, "true: they are the baseline's."]


class RatioJson(TypedDict):
    """A ratio with its interval, and what that says."""

    ratio: Annotated[float, "1.02: 2 % more than the baseline."]
    interval: Annotated[list[float] | None, "Low and high end; null: noise is not known."]
    verdict: Annotated[Decision, "What the interval says."]
    words: Annotated[str, "The verdict as tables show it."]
    within_margin: Annotated[bool, "true: the interval lies within the margin."]
    more_rounds: Annotated[int | None, "More rounds that would tell; 0: not known; null: too many."]
    p: Annotated[float | None, "How often equal things differ so much by chance."]
    recorded_step: Annotated[float, "What the steps of recorded times add to the interval."]
    degrees_of_freedom: Annotated[float | None, "Degrees of freedom of the noise."]
    basis: Annotated[Basis, "What the noise is known from."]
    values: Annotated[int, "Rounds or runs, of the side that has fewer."]
    doubts: Annotated[list[str], "What a verdict would need, in words."]
    refused: Annotated[str | None, "Why there can be no verdict, in words."]
    slow_runs: Annotated[list[SlowRunsJson], "Runs far below the others of their side."]
    by_cpu_time: Annotated[str | None, "Why it is of CPU time; null: it is of time."]


class CpuTimeValuesJson(TypedDict):
    """What a verdict by CPU time compares."""

    baseline: Annotated[float, "Result of the baseline by CPU time."]
    value: Annotated[float, "Result of the point by CPU time."]
    unit: Annotated[str, "Unit of both: copies/CPU hour, or ratio by CPU time."]


class EffectJson(TypedDict):
    """A benchmark (or suite) at a point beside the baseline."""

    label: Annotated[str, "Name of the point."]
    baseline: Annotated[float | None, "Result of the baseline, in the unit of the row."]
    value: Annotated[float | None, "Result of the point, in the unit of the row."]
    by_cpu_time: Annotated[
        CpuTimeValuesJson | None, "What the speedup compares; null: elapsed time, as above."
    ]
    speedup: Annotated[RatioJson | None, "Ratio of the rates; null: see `reason`."]
    p_holm: Annotated[float | None, "p with all comparisons of the table considered (Holm)."]
    holds: Annotated[bool, "Whether better or worse holds up with all of them considered."]
    improvement: Annotated[float | None, "Time of the baseline over time, less one."]
    reduction: Annotated[float | None, "Share of the baseline's time that is saved."]
    median_copy_speedup: Annotated[RatioJson | None, "Of median copies; above 1: faster."]
    slowest_over_median: Annotated[RatioJson | None, "Above 1: the slow copies are slower."]
    joules_per_copy: Annotated[RatioJson | None, "Above 1: a copy takes more energy."]
    reason: Reason


class EffectRowJson(TypedDict):
    """What rows of benchmarks and suites have."""

    tune: Tune
    category: Category
    unit: Annotated[str, "Unit of the results: ratio or copies/hour."]
    baseline: Annotated[float | None, "Result of the baseline."]
    points: Annotated[list[EffectJson], "The other points."]


class BenchmarkEffectsJson(EffectRowJson):
    """A benchmark at all points."""

    benchmark: Benchmark


class SuiteEffectsJson(EffectRowJson):
    """A suite at all points."""

    name: Annotated[str, "all, int or fp."]
    over: Annotated[list[str], "Benchmarks that it is over."]


class CpiChangeJson(TypedDict):
    """One part of a benchmark's cycles per instruction at all points."""

    benchmark: Benchmark
    tune: Tune
    part: Annotated[str, "Name of the part, or the total."]
    cycles: Annotated[list[float | None], "Cycles per instruction, the baseline first."]
    changes: Annotated[list[float | None], "What the others add, as a share of the baseline's CPI."]


class MeasureJson(TypedDict):
    """A metric that programs report, as what is compared."""

    name: Annotated[str, "Name of the metric."]
    unit: Annotated[str, "Its unit; empty: none was given."]
    better: Annotated[Better, "Which direction is better; ratios above 1 are better."]


class MetricRowsJson(TypedDict):
    """A metric at all points, beside the times."""

    measure: Annotated[MeasureJson, "The metric."]
    rows: Annotated[list[BenchmarkEffectsJson | SuiteEffectsJson], "Benchmarks, then the suite."]


class CountedChangeJson(TypedDict):
    """A rate that was counted, of one benchmark at all points."""

    benchmark: Benchmark
    tune: Tune
    name: Annotated[str, "instructions per cycle, or a metric, as walks_mpki."]
    values: Annotated[list[float | None], "The baseline first; null: not counted."]
    improvements: Annotated[list[float | None], "Of instructions per cycle: share that is more."]
    reductions: Annotated[list[float | None], "Of misses: share that is less."]


class ComparisonDocument(TypedDict):
    """Points beside the first of them."""

    by: Annotated[str | None, "Axis that is compared, the others held; null: points as they are."]
    margin: Annotated[float, "Change that means the same, as a share."]
    confidence: Annotated[float, "Confidence of the intervals."]
    looks: Annotated[int, "How often was looked before it was decided to stop, at most."]
    comparisons: Annotated[int, "Comparisons that have a p value."]
    by_chance: Annotated[float, "Of these, better or worse by chance where nothing differs."]
    points: Annotated[list[PointJson], "Points; the baseline first."]
    differences: Annotated[list[PointDifferenceJson], "What differs beside the axes."]
    copies: Annotated[list[int], "Numbers of copies that runs have."]
    mixed_copies: Annotated[bool, "true: runs with other numbers of copies are compared."]
    mixed_kinds: Annotated[bool, "true: runs with other kinds of rates are compared."]
    kinds: Annotated[list[KindRunsJson], "Kinds of rates, and the runs that have them."]
    left_out: Annotated[list[str], "What does not count, and why, in words."]
    lost: Annotated[list[LostJson], "Results that the baseline has and a point has not."]
    disturbed: Annotated[list[DisturbedRunJson], "Runs that were disturbed."]
    doctor: Annotated[list[DoctorDifferenceJson], "Checks of the doctor that differ."]
    page_sizes: Annotated[list[str], "What is wrong with comparing these page layouts."]
    measure: Annotated[
        MeasureJson | None, "Metric that is compared; null: the time that copies take."
    ]
    metrics: Annotated[list[MetricRowsJson], "Metrics beside the times, each by itself."]
    benchmarks: Annotated[list[BenchmarkEffectsJson], "By benchmark."]
    suite: Annotated[dict[str, SuiteEffectsJson], "Suites by name: all, int, fp."]
    cpi: NotRequired[Annotated[list[CpiChangeJson], "Changes of the CPI, where it was counted."]]
    counted: NotRequired[Annotated[list[CountedChangeJson], "Instructions per cycle, and misses."]]
    points_without_runs: NotRequired[Annotated[list[str], "Points that have no runs."]]


class CommandNameJson(TypedDict):
    """A command that was compared."""

    name: Annotated[str, "What tells it from the others: the label of its point."]
    command: Annotated[str, "All of it."]


class VersusDocument(ComparisonDocument):
    """Commands beside the first of them, and what the gate says."""

    sweeps: Annotated[list[int], "Sweeps that were made: the tries, the last one compared."]
    commands: Annotated[list[CommandNameJson], "Commands, in the order of the command line."]
    gate_exit_status: Annotated[
        int | None, "0: worse is excluded; 1: worse, or a copy failed; 3: cannot be judged."
    ]


class MemoryPointJson(TypedDict):
    """Memory of a benchmark's copies at a point; only the label: it did not run there."""

    label: Annotated[str, "Name of the point."]
    average_bytes: NotRequired[Annotated[float | None, "Mean resident memory of a copy."]]
    max_bytes: NotRequired[Annotated[int | None, "Most resident memory of a copy."]]
    looks: NotRequired[Annotated[int, "Looks at the copies."]]
    copy_runs: NotRequired[Annotated[int, "Runs of copies that counted and ended well."]]


class MemoryRowJson(TypedDict):
    """Memory of one benchmark."""

    benchmark: Benchmark
    tune: Tune
    points: Annotated[list[MemoryPointJson], "By point."]


class MemoryDocument(TypedDict):
    """Resident memory of benchmarks, point by point."""

    memory: Annotated[list[MemoryRowJson], "By benchmark."]
    points_without_runs: NotRequired[Annotated[list[str], "Points that have no runs."]]

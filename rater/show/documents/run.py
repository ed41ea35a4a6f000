"""Documents of `rater run --json` and `rater show --json`."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from rater.analysis.results.cpu_use import DisturbanceKind
from rater.analysis.results.steadiness import DriftVerdict
from rater.record.documents import ForeignProcessJson
from rater.record.run import CopyStatus
from rater.show.documents.common import (
    AnyIteration,
    Benchmark,
    Category,
    Copy,
    CopyTimeJson,
    Counted,
    Cpu,
    Iteration,
    Node,
    Phase,
    RateUnit,
    Reason,
    RunNumber,
    SpreadJson,
    Tune,
    Uuid,
)
from rater.show.documents.copies import CopyRowJson, CopyRunJson, CopyTimesJson
from rater.show.documents.divots import DivotJson
from rater.show.documents.readings import CountersJson, PlacementProofJson, ReadingsJson

# -- Steady mode -----------------------------------------------------------------------------------


class CopyRateJson(TypedDict):
    """The rate of a copy in a window."""

    copy: Copy
    cpu: Cpu
    node: Node
    completions: Annotated[float, "Completed runs; a run across an edge by its share inside."]
    whole: Annotated[int, "Runs that lie inside."]
    rate: Annotated[float, "Completions per time, in the window's unit."]


class NodeRateJson(TypedDict):
    """The rate of the copies of a NUMA node in a window."""

    node: Node
    copies: Annotated[int, "Number of copies."]
    rate: Annotated[float, "Sum of the copies' rates, in the window's unit."]
    per_copy: Annotated[float, "Mean rate of a copy."]
    slowdown: Annotated[
        float | None, "Mean rate of all copies over the mean of this node's; above 1: slower."
    ]


class CopyFallJson(TypedDict):
    """A copy that is much slower in the second half of a window, where the usual one is not."""

    copy: Annotated[int, "Number of the copy."]
    change: Annotated[float, "Change of its rate; -0.28: the second half is 28 % slower."]
    usual_change: Annotated[float, "The same of the median copy."]


class HalvesJson(TypedDict):
    """Whether a window was steady: its second half beside its first."""

    verdict: Annotated[DriftVerdict, "What the halves say of the window."]
    difference: Annotated[
        float | None, "Change of the rate; -0.023: the second half is 2.3 % slower."
    ]
    interval_95: Annotated[list[float] | None, "95 % interval of the difference, low and high."]
    fewest_whole_runs: Annotated[int, "Whole runs in a half, of the copy that has the fewest."]
    needed_window_s: Annotated[float | None, "Length of a window that would show it."]
    falls: Annotated[list[CopyFallJson], "Copies that slowed down alone, the most first."]


class WindowPartJson(TypedDict):
    """Times and rates of a window."""

    warmup_s: Annotated[float, "From the first release to the window."]
    window_s: Annotated[float, "Length of the window."]
    halves: Annotated[HalvesJson | None, "null: no good run reached into the window."]
    longest_warmup_run_s: Annotated[float | None, "Longest good run that began before the window."]
    needed_warmup_s: Annotated[float | None, "A warm-up that is long enough; null: it was."]
    unit: RateUnit
    copies: Annotated[list[CopyRateJson], "Rates of the copies, by number."]
    rates: Annotated[SpreadJson | None, "How the copies' rates are distributed."]
    slowest: Annotated[CopyRateJson | None, "The copy with the lowest rate."]
    occupied: Annotated[float | None, "Share of the copies' time in which runs went."]
    gap_s: Annotated[float | None, "Median time between two runs of a copy."]
    lgroups: Annotated[list[NodeRateJson], "Rates of NUMA nodes; copies of no known node last."]
    reason: Reason


class InWindowJson(TypedDict):
    """Runs of one benchmark in a window."""

    completions: Annotated[float, "Completed runs; a run across an edge by its share inside."]
    whole_runs: Annotated[int, "Runs that lie inside."]
    copies_per_hour: Annotated[float, "Completions per hour."]
    median_run_s: Annotated[float | None, "Median time of a run."]


class SteadyJson(InWindowJson, WindowPartJson):
    """A benchmark in a window of its own."""


class MixWindowJson(WindowPartJson):
    """A window of several benchmarks (steady mode in rotated order)."""

    iteration: Iteration
    counted: Counted
    selected: Annotated[bool, "true: the window that stands for the run."]
    ratio: Annotated[float | None, "Reference seconds of work per second."]
    copies_per_hour: Annotated[float | None, "Completed runs of any benchmark per hour."]


class MixJson(TypedDict):
    """Windows of several benchmarks together."""

    ratio: Annotated[float | None, "Ratio of the window that stands for the run."]
    windows: Annotated[list[MixWindowJson], "Windows by iteration."]
    reason: Annotated[str | None, "What is missing; may stand beside a result."]


# -- Benchmarks ------------------------------------------------------------------------------------


class AccountJson(TypedDict):
    """Where the time of the good copies went, the mean of them; null: not known."""

    elapsed_s: Annotated[float, "Time of a copy."]
    ran_s: Annotated[float | None, "On a CPU."]
    waited_s: Annotated[float | None, "Runnable, but others had the CPU."]
    throttled_s: Annotated[float | None, "Kept from the CPU by a cgroup's quota."]
    stopped_s: Annotated[float | None, "Stopped by a signal or a debugger."]
    slept_s: Annotated[float | None, "Waiting for anything else: a disk, a lock, a timer."]
    known: Annotated[float | None, "Share of the CPU time whose waiting was seen; 1: all."]


class FileSaysJson(TypedDict):
    """What an imported result file says itself of a benchmark."""

    reported_s: Annotated[float | None, "First start to last finish."]
    ratio: Annotated[float | None, "Ratio."]
    selected: Annotated[bool | None, "Whether it stands for the benchmark."]
    valid: Annotated[str | None, "S: valid; CE, RE, VE, NR, ...: why not."]
    errors: Annotated[list[str], "Error lines of the file."]


class SteadyPart(TypedDict):
    """What the row of a benchmark has in steady mode alone."""

    steady: NotRequired[Annotated[SteadyJson, "Its window; only in steady mode."]]


class FileSaysPart(TypedDict):
    """What the row of a benchmark has where a result file was imported."""

    file_says: NotRequired[
        Annotated[FileSaysJson, "What the imported file says itself; not of runs made here."]
    ]


class ModelessBenchmarkJson(TypedDict):
    """What one benchmark has in every mode."""

    benchmark: Benchmark
    category: Category
    iteration: Annotated[int | None, "From 1; null: over all counted rounds (rotated order)."]
    bracket_s: Annotated[
        float | None, "First start to last finish; null in steady and rotated mode."
    ]
    reference_s: Annotated[float | None, "Time of the reference machine; null: there is none."]
    ratio: Annotated[float | None, "Copies x reference time / bracket; null: no result."]
    score_lost: Annotated[float | None, "Share of the score that slow copies cost, 0 to 1."]
    median_copy_s: Annotated[float | None, "Median time of the good copies."]
    slowest: Annotated[CopyTimeJson | None, "Slowest good copy."]
    reason: Reason


class AloneJson(ModelessBenchmarkJson, SteadyPart, FileSaysPart):
    """One benchmark that all copies ran at the same time, in one iteration."""

    tune: Tune
    counted: Counted
    selected: Annotated[bool, "true: the iteration that stands for the benchmark."]
    copies: Annotated[int, "Copies that should have run."]
    good_copies: Annotated[int, "Copies that ran well."]
    failed_copies: Annotated[int, "Copies that failed."]
    bracket_from_slowest: Annotated[
        bool, "true: start times are not known, the bracket is the slowest copy's time."
    ]
    overlap_s: Annotated[float | None, "Last start to first finish; below 0: never all at once."]
    copies_per_hour: Annotated[float | None, "Copies that complete in an hour."]
    placement_not_met: Annotated[list[int], "Copies that were not as planned."]
    account: Annotated[AccountJson | None, "Where the copies' time went."]


class InRingJson(ModelessBenchmarkJson):
    """One benchmark over the counted rounds of rotated order."""

    times_s: Annotated[SpreadJson | None, "Times of the copies."]
    rates: Annotated[SpreadJson | None, "Rates of the copies."]
    queued_copies: Annotated[int, "Copies that had it in their queue."]


class InMixJson(ModelessBenchmarkJson):
    """One benchmark in a window that all benchmarks share (steady mode in rotated order)."""

    counted: Counted
    copies_per_hour: Annotated[float | None, "Copies that complete in an hour."]
    steady: Annotated[InWindowJson, "What runs of it came to in the window."]


type BenchmarkJson = AloneJson | InRingJson | InMixJson


class ResultJson(TypedDict):
    """One benchmark over its iterations."""

    benchmark: Benchmark
    tune: Tune
    category: Category
    reference_s: Annotated[float | None, "Time of the reference machine; null: there is none."]
    ratio: Annotated[float | None, "Ratio of the iteration that stands for it."]
    copies_per_hour: Annotated[float | None, "Copies that complete in an hour."]
    iterations: Annotated[int, "Number of iterations."]
    reason: Annotated[str | None, "What is missing; may stand beside a result."]


class SuiteScoreJson(TypedDict):
    """Geometric mean of the ratios of a suite."""

    tune: Tune
    kind: Annotated[str, "all, int or fp: over which benchmarks."]
    ratio: Annotated[float | None, "Geometric mean of the ratios; null: one has none."]
    reason: Reason


class LeftOutJson(TypedDict):
    """A benchmark of the suite that did not run."""

    benchmark: Benchmark
    reason: Annotated[str, "Why it was left out, in words."]


class SuiteRatioJson(TypedDict):
    """The suite's ratios of the first tune."""

    ratio: Annotated[float | None, "Geometric mean of all benchmarks' ratios."]
    fp: Annotated[float | None, "The same over benchmarks of category fp."]
    over: Annotated[list[str], "Benchmarks that the ratio is over, or would be."]
    reason: Reason
    tunes: NotRequired[Annotated[list[SuiteScoreJson], "Scores of all tunes, where several ran."]]
    int: Annotated[float | None, "The same over benchmarks of category int."]


class SuiteJson(SuiteRatioJson):
    """The suite's ratios, and the benchmarks that are not in them."""

    left_out: Annotated[list[LeftOutJson], "Benchmarks of the suite that did not run."]


# -- Metrics, failures, rotated order --------------------------------------------------------------


class MetricCopyJson(TypedDict):
    """A metric of one copy."""

    copy: Copy
    cpu: Cpu
    node: Node
    value: Annotated[float, "What the copy reported."]


class MetricNodeJson(TypedDict):
    """A metric of the copies of a NUMA node."""

    node: Node
    copies: Annotated[int, "Number of copies."]
    value: Annotated[float | None, "Sum or mean over them; null: too large a number."]
    minimum: Annotated[float, "Smallest value of a copy."]
    maximum: Annotated[float, "Largest value of a copy."]


class MetricJson(TypedDict):
    """A number that a benchmark reports of itself."""

    benchmark: Benchmark
    name: Annotated[str, "Name of the metric, as the suite declares it."]
    unit: Annotated[str, "Unit of the values."]
    better: Annotated[str | None, "higher, lower; null: neither."]
    combine: Annotated[str, "How copies are put together: sum or mean."]
    iteration: AnyIteration
    iterations: Annotated[int, "Iterations of which it is the median one."]
    value: Annotated[float | None, "Over all copies; null: a copy has none."]
    copies: Annotated[int, "Copies that reported it."]
    median: Annotated[float | None, "Median of the copies."]
    minimum: Annotated[MetricCopyJson | None, "Copy with the smallest value."]
    maximum: Annotated[MetricCopyJson | None, "Copy with the largest value."]
    lgroups: Annotated[list[MetricNodeJson], "By NUMA node; copies of no known node last."]
    reason: Reason
    worst: Annotated[MetricCopyJson | None, "Copy with the worst value; null: neither is better."]


class FailedCopyJson(TypedDict):
    """A copy that did not end well."""

    benchmark: Benchmark
    tune: Tune
    iteration: Iteration
    copy: Copy
    cpu: Cpu
    node: Node
    elapsed_s: Annotated[float, "Time from its release to its end."]
    status: Annotated[CopyStatus, "How it ended."]
    what: Annotated[str, "What happened, in words."]
    run_dir: Annotated[str | None, "Where its files are kept; null: they are not."]


class CopyScoreJson(TypedDict):
    """The score of a copy in rotated order."""

    copy: Copy
    cpu: Cpu
    node: Node
    rate: Annotated[float, "Geometric mean of its benchmarks' rates."]


class TailJson(TypedDict):
    """The end of a run in rotated order, when the first copies are done."""

    total_s: Annotated[float, "First release to last finish."]
    length_s: Annotated[float, "Finish of the first copy that is done to the last finish."]
    idle_share: Annotated[float, "Idle share of the copies' time over the whole run."]
    core_idle_share: Annotated[
        float | None, "Idle share of the used CPUs' time; null: copies were not bound."
    ]
    runs_in_tail: Annotated[int, "Runs of a benchmark that still went when it began."]


class GapsJson(TypedDict):
    """Time between two runs of a copy."""

    count: Annotated[int, "Number of gaps."]
    median_s: Annotated[float, "Median gap."]
    longest_s: Annotated[float, "Longest gap."]
    share: Annotated[float, "Share of the copies' time over the whole run."]


class RotatedJson(TypedDict):
    """The result of a run in rotated order."""

    proposed_in: Annotated[str, "Where this score was proposed."]
    score: Annotated[float | None, "Mean of the copies' geometric means."]
    cv: Annotated[float | None, "Their standard deviation over their mean."]
    unit: RateUnit
    rounds: Annotated[int, "Rounds that count."]
    reason: Reason
    copies: Annotated[list[CopyScoreJson], "Copies that ran every benchmark well, by number."]
    tail: Annotated[TailJson | None, "The end of the run, when the first copies are done."]
    gaps: Annotated[GapsJson | None, "Time between two runs of a copy."]
    work_rate: Annotated[float | None, "Reference seconds of work per second."]
    runs_per_hour: Annotated[float | None, "Completed runs per hour."]


# -- Energy ----------------------------------------------------------------------------------------


class EnergyPhaseJson(TypedDict):
    """Energy of one phase."""

    phase: Phase
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: AnyIteration
    counted: Counted
    elapsed_s: Annotated[float, "Time between the two readings."]
    joules: Annotated[float | None, "Energy of the packages with copies."]
    watts: Annotated[float | None, "Mean power."]
    energy_delay_js: Annotated[float | None, "Energy x time, in joule seconds."]
    idle_watts: Annotated[float | None, "Power of these packages while they idle, if known."]
    above_idle_joules: Annotated[float | None, "Energy above that; null: not known."]
    memory_joules: Annotated[float | None, "Energy of memory, where it is counted apart."]
    domains: Annotated[dict[str, float], "Joules of each domain, whoever drew them."]
    reason: Annotated[str | None, "Why no energy is told, in words."]
    joules_per_copy: Annotated[float | None, "Energy of one copy (rotated: of one run)."]


class EnergyJson(TypedDict):
    """Energy of a run."""

    suite_joules: Annotated[float | None, "Of the iterations that stand for the benchmarks."]
    idle_power: Annotated[str | None, "How idle power is known, in words; null: it is not."]
    phases: Annotated[list[EnergyPhaseJson], "By phase, of those with readings."]


# -- A steady run beside one with a barrier --------------------------------------------------------


class BarrierBenchmarkJson(TypedDict):
    """One benchmark in a steady run and in another."""

    benchmark: Benchmark
    tune: Tune
    steady_ratio: Annotated[float | None, "Ratio in steady mode."]
    steady_per_hour: Annotated[float | None, "Copies per hour in steady mode."]
    steady_run_s: Annotated[float | None, "Median time of a run in steady mode."]
    steady_occupied: Annotated[float | None, "Share of the copies' time in which runs went."]
    other_ratio: Annotated[float | None, "Ratio of the other run."]
    other_per_hour: Annotated[float | None, "Copies per hour of the other run."]
    other_run_s: Annotated[float | None, "Median time of a copy in the other run."]
    difference: Annotated[float | None, "0.05: steady completes 5 % more per hour."]
    longer: Annotated[float | None, "0.02: a run takes 2 % more time in steady mode."]
    score_lost: Annotated[float | None, "Share of the score lost in the other run."]
    reason: Annotated[str | None, "Why there is no difference, in words."]


class BarrierJson(TypedDict):
    """A steady run beside one whose copies wait for each other."""

    steady: Annotated[int, "Number of the steady run."]
    other: Annotated[int, "Number of the other run."]
    order: Annotated[str, "Order of both: homogeneous or rotated."]
    other_mode: Annotated[str, "Mode of the other run: homogeneous or rotated."]
    differences: Annotated[list[str], "In what else they differ, in words."]
    sides: Annotated[list[BarrierBenchmarkJson], "By benchmark."]
    difference: Annotated[float | None, "Geometric mean of the differences."]
    longer: Annotated[float | None, "Geometric mean of how much longer runs take."]
    score_lost: Annotated[float | None, "Geometric mean of the score lost in the other run."]
    steady_ratio: Annotated[float | None, "Ratio of the suite in steady mode."]
    other_ratio: Annotated[float | None, "Ratio of the suite in the other run."]
    idle_share: Annotated[float | None, "Idle share of the copies' time in the other's tail."]
    steady_occupied: Annotated[float | None, "Least share of time in which runs went."]


# -- The whole run ---------------------------------------------------------------------------------


class NotableJson(TypedDict):
    """One thing that disturbed the machine, where it was worst."""

    matter: Annotated[DisturbanceKind, "What disturbed."]
    phase: Phase
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: AnyIteration
    cpu: Annotated[int | None, "CPU where it was worst; null: of the whole machine."]
    share: Annotated[float | None, "Share of the time; null: it is counted in times."]
    times: Annotated[int | None, "How many times; null: it has a share."]
    cpus: Annotated[list[int], "All CPUs that had it in a counted phase."]
    phases: Annotated[int, "Counted phases in which it was seen."]
    process: Annotated[
        ForeignProcessJson | None,
        "Of foreign load: the process that used most of that CPU; null: not known.",
    ]


class RunHeadJson(TypedDict):
    """What ran, when and where."""

    run: RunNumber
    uuid: Uuid
    status: Annotated[str, "running, complete, failed or interrupted."]
    reason: Annotated[str | None, "Why the run did not complete, in words."]
    mode: Annotated[str, "homogeneous, rotated, staggered, steady, or as imported."]
    copies: Annotated[int, "Number of copies."]
    started_at: Annotated[str | None, "Start in UTC, ISO 8601; null: not known."]
    elapsed_s: Annotated[float | None, "First release to last finish."]
    host: Annotated[str | None, "Name of the machine."]
    source: Annotated[str, "run: made here; import: read from a file."]
    suite_name: Annotated[str | None, "Name of the suite; null: commands."]
    size: Annotated[str | None, "Size of the inputs."]
    tune: Tune
    iterations: Annotated[int, "Iterations of each benchmark."]
    discard: Annotated[int, "First iterations that do not count."]
    stagger_ms: Annotated[float, "Milliseconds between the starts of two copies."]
    increment: Annotated[int, "Step between the copies' queues (rotated order)."]
    layout: Annotated[str | None, "Layout of the copies; null: not known."]
    memory: Annotated[str | None, "Memory policy; null: not known."]
    tags: Annotated[dict[str, str], "Tags of the run, by name."]


class StaggeredStartsJson(TypedDict):
    """How copies started that were to start one after another."""

    apart_s: Annotated[float, "Median time between the starts of two neighbours."]
    most_late_s: Annotated[float, "Start after its turn, of the copy that was latest."]


class SummaryDocument(RunHeadJson):
    """The results of a run."""

    benchmarks: Annotated[list[BenchmarkJson], "An entry for each benchmark and iteration."]
    results: Annotated[list[ResultJson], "An entry for each benchmark; none in rotated order."]
    suite: Annotated[SuiteJson, "Ratios of the suite."]
    metrics: Annotated[list[MetricJson], "Numbers that benchmarks report of themselves."]
    failed: Annotated[list[FailedCopyJson], "Copies that did not end well."]
    remarks: Annotated[list[str], "Warnings and notes of the run, in words."]
    starts: NotRequired[Annotated[StaggeredStartsJson, "Starts of staggered copies."]]
    rotated: NotRequired[Annotated[RotatedJson, "Result of the run (rotated order)."]]
    warmup_s: NotRequired[Annotated[float | None, "Warm-up asked for (steady mode)."]]
    window_s: NotRequired[Annotated[float | None, "Window asked for (steady mode)."]]
    mix: NotRequired[Annotated[MixJson, "Windows of all benchmarks (steady, rotated order)."]]
    energy: NotRequired[Annotated[EnergyJson, "Energy; not where the machine counts none."]]
    comparison: NotRequired[Annotated[BarrierJson, "A run with a barrier beside a steady one."]]


class RunDocument(SummaryDocument):
    """A run with its results, placements and divots."""

    placement: Annotated[PlacementProofJson | None, "Where copies ran and their memory lay."]
    asked: Annotated[
        dict[str, str] | None,
        "Options that are not the default, by name, as typed; null: not known (imported).",
    ]
    notable: Annotated[list[NotableJson], "What disturbed the machine; empty: nothing seen."]
    pages: NotRequired[Annotated[dict[str, Any] | None, "Page sizes that copies had (--pages)."]]
    readings: NotRequired[Annotated[ReadingsJson, "What CPUs did (--cpus)."]]
    counters: NotRequired[Annotated[CountersJson, "What was counted (--counters)."]]
    copy_times: NotRequired[Annotated[CopyTimesJson, "Times of copies (--copies)."]]
    copy_table: NotRequired[
        Annotated[list[CopyRowJson], "A row a copy (--copies; with -v for each iteration)."]
    ]
    copy_runs: NotRequired[Annotated[list[CopyRunJson], "Every run of a copy (--copies)."]]
    divots: NotRequired[Annotated[list[DivotJson], "What is slow; not before the run has ended."]]
    disturbed: NotRequired[
        Annotated[list[str], "Why the run is too disturbed to judge; empty: it is not."]
    ]
    others_cost: NotRequired[
        Annotated[float | None, "Share of the score that other processes cost; null: not known."]
    ]
    noise_cost: NotRequired[
        Annotated[float | None, "Share of the score that noise alone cost; null: not known."]
    ]

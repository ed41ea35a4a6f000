"""What `rater show --copies --json` has of each copy, and `rater show plot --json`."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from rater.record.run import CopyStatus, Validity
from rater.show.documents.common import (
    Benchmark,
    Copy,
    Core,
    Counted,
    Cpu,
    Iteration,
    Node,
    Package,
    Tune,
)


class TimeStatisticsJson(TypedDict):
    """Statistics of times relative to the median copy: 1.02 is 2 % more time."""

    count: Annotated[int, "Number of copies."]
    median: Annotated[float, "Median."]
    mean: Annotated[float, "Arithmetic mean."]
    sd: Annotated[float | None, "Sample standard deviation; null: one copy."]
    maximum: Annotated[float, "Largest value."]


class CopyPointJson(TypedDict):
    """One copy in one iteration of one benchmark; several runs stand with their median."""

    copy: Copy
    cpu: Cpu
    core: Core
    node: Node
    package: Package
    elapsed_s: Annotated[float, "Time of its median run."]
    fastest_s: Annotated[float, "Time of its fastest run."]
    slowest_s: Annotated[float, "Time of its slowest run."]
    runs: Annotated[int, "Number of its runs."]
    joules_estimate: Annotated[float | None, "Energy of a run: its share of the package's."]
    normalised: Annotated[float | None, "Time over the baseline's median copy."]


class CellWhereJson(TypedDict):
    """Which benchmark, in which iteration."""

    benchmark: Benchmark
    tune: Tune
    iteration: Iteration


class SlowCopyJson(CellWhereJson, CopyPointJson):
    """One of the slowest copies of a run."""


class CellTimesJson(CellWhereJson):
    """Times of copies in one iteration of one benchmark."""

    counted: Counted
    baseline_median_s: Annotated[float | None, "Median copy of the baseline; null: not there."]
    all: Annotated[TimeStatisticsJson | None, "Of all copies; null: none ran well."]
    kept: Annotated[TimeStatisticsJson | None, "Without the slowest; null: none were dropped."]
    dropped: Annotated[list[CopyPointJson], "Copies that were dropped, the slowest first."]
    failed_copies: Annotated[int, "Copies that failed."]
    copies: Annotated[int, "Copies that ran well."]


class RatioPairJson(TypedDict):
    """A result in the run and in its baseline."""

    name: Annotated[str, "Benchmark, or suite."]
    tune: Tune
    unit: Annotated[str, "ratio, or copies/hour where a reference time is missing."]
    baseline: Annotated[float | None, "Result of the baseline."]
    value: Annotated[float | None, "Result of the run."]
    change: Annotated[float | None, "Value over baseline, less one."]


class CopyTimesJson(TypedDict):
    """Times of copies relative to the median copy of a baseline."""

    baseline: Annotated[int, "Number of the run whose medians are 1."]
    baseline_copies: Annotated[int, "Number of copies of that run."]
    baseline_iteration: Annotated[int | None, "Its iteration; null: over all that count."]
    drop: Annotated[int, "So many of the slowest copies are left out in `kept`."]
    cells: Annotated[list[CellTimesJson], "By tune, benchmark and iteration."]
    slowest: Annotated[list[SlowCopyJson], "The slowest copies of the run."]
    ratios: Annotated[list[RatioPairJson], "Results beside the baseline's; empty: no other run."]


class WorkloadJson(TypedDict):
    """One of the commands that a copy ran in order."""

    workload: Annotated[int, "Number of the command, from 1."]
    start_s: Annotated[float | None, "From the run's first release; null: not known."]
    elapsed_s: Annotated[float, "Time of the command."]
    exit_code: Annotated[int | None, "Exit code; null: a signal ended it, or not known."]
    signal: Annotated[int | None, "Signal that ended it."]
    pid: Annotated[int | None, "Process id of the command."]


class CopyRunJson(TypedDict):
    """One run of one benchmark by one copy."""

    benchmark: Benchmark
    iteration: Iteration
    copy: Copy
    step: Annotated[int, "Place in the copy's queue, from 0."]
    cpu: Cpu
    node: Node
    start_s: Annotated[float | None, "From the run's first release; null: not known."]
    elapsed_s: Annotated[float, "Time from its release to its end."]
    status: Annotated[CopyStatus, "How it ended."]
    validity: Annotated[Validity, "What is known of its output."]
    validity_detail: Annotated[str | None, "The first difference, in words."]
    workloads: Annotated[list[WorkloadJson], "Its commands, where it ran several."]
    exit_code: Annotated[int | None, "Exit code; null: a signal ended it, or not known."]
    signal: Annotated[int | None, "Signal that ended it."]


# -- `rater show plot --json` ----------------------------------------------------------------------


class DotJson(TypedDict):
    """A dot of the picture: a copy; with its times, or with its values of another measure."""

    copy: Copy
    cpu: Cpu
    iteration: Iteration
    elapsed_s: NotRequired[Annotated[float, "Time of its median run."]]
    fastest_s: NotRequired[Annotated[float, "Time of its fastest run."]]
    slowest_s: NotRequired[Annotated[float, "Time of its slowest run."]]
    value: NotRequired[Annotated[float, "Value of its median run."]]
    lowest: NotRequired[Annotated[float, "Lowest value of its runs."]]
    highest: NotRequired[Annotated[float, "Highest value of its runs."]]


class FailedDotJson(TypedDict):
    """A copy for which the picture has no dot."""

    copy: Copy
    iteration: Iteration


class PanelJson(TypedDict):
    """The picture of one benchmark."""

    benchmark: Benchmark
    tune: Tune
    median_s: NotRequired[Annotated[float | None, "Median time of the copies."]]
    axis_s: NotRequired[Annotated[list[float] | None, "Both ends of the axis of times."]]
    median: NotRequired[Annotated[float | None, "Median value of the copies."]]
    axis_ends: NotRequired[Annotated[list[float] | None, "Both ends of the axis of values."]]
    dots: Annotated[list[DotJson], "A dot for each copy."]
    failed: Annotated[list[FailedDotJson], "Copies that failed."]
    not_known: Annotated[list[FailedDotJson], "Copies that ran well and have no such value."]
    labels: Annotated[list[dict[str, object]], "Words at the picture: what is slow, and where."]


class NodeSpanJson(TypedDict):
    """Where the copies of a NUMA node stand on the axis."""

    node: Node
    first: Annotated[int, "Place of the first one, from 0."]
    size: Annotated[int, "Number of places."]


class DrawnMeasureJson(TypedDict):
    """What is drawn of copies in place of their times."""

    name: Annotated[str, "Name of the metric, or CPU time."]
    unit: Annotated[str, "Its unit; empty: none."]
    better: Annotated[str | None, "Which direction is better; null: neither."]


class PlotDocument(TypedDict):
    """Copies as a picture shows them."""

    run: Annotated[int, "Number of the run."]
    file: Annotated[str | None, "File of the picture; null: none was asked for."]
    measure: Annotated[DrawnMeasureJson | None, "What --by asked for; null: times."]
    axis: Annotated[str, "What the axis counts: copy, or CPU."]
    places: Annotated[list[int | str], "Numbers along the axis."]
    lgroups: Annotated[list[NodeSpanJson], "NUMA nodes along the axis."]
    benchmarks: Annotated[list[PanelJson], "By benchmark."]


class CopyRowJson(TypedDict):
    """One copy of one benchmark; null: not known."""

    benchmark: Benchmark
    tune: Tune
    iteration: Annotated[int | None, "Iteration; null: the median over those that count."]
    counted: Annotated[bool, "false: of a discarded iteration."]
    copy: Annotated[int, "Number of the copy."]
    cpu: Annotated[int | None, "CPU that it was given; null as well: several."]
    node: Annotated[int | None, "NUMA node of the CPU."]
    elapsed_s: Annotated[float, "Time, seconds."]
    over_median: Annotated[float | None, "Time over that of the median copy of the iteration."]
    cpu_s: Annotated[float | None, "CPU time, seconds."]
    waited: Annotated[float | None, "Share of its time that it waited for a CPU."]
    waited_own: Annotated[float | None, "Share that it waited for other copies of the run."]
    waited_others: Annotated[float | None, "Share that it waited for other processes."]
    slept: Annotated[float | None, "Share that it slept, was stopped, or had no quota left."]
    memory_bytes: Annotated[int | None, "Most memory that was resident."]
    faults: Annotated[int | None, "Page faults, major and minor."]
    exit: Annotated[str, "ok, or how it ended."]
    metrics: Annotated[dict[str, float], "What the program reported, by name."]

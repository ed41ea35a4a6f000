"""What `rater show --json` has of placements, CPUs (`--cpus`) and counters (`--counters`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rater.analysis.results.placement import PlacementVerdict
from rater.record.documents import ForeignProcessJson
from rater.show.documents.common import (
    AnyIteration,
    Benchmark,
    Copy,
    Counted,
    Iteration,
    Node,
    Phase,
    Tune,
)
from rater.show.documents.divots import PeriodJson

# -- Placement -------------------------------------------------------------------------------------


class GateJson(TypedDict):
    """What the kernel allowed a copy that waited at its gate."""

    cpus: Annotated[list[int] | None, "CPUs it could use; null: could not be read."]
    mems: Annotated[list[int] | None, "NUMA nodes that its cpuset lets it take memory of."]


class SamplesJson(TypedDict):
    """Samples of one copy together; null or empty: not known."""

    samples: Annotated[int, "Number of samples."]
    last_age_s: Annotated[float | None, "Time of the last sample from the copy's release."]
    cpus: Annotated[list[int], "CPUs on which its threads were seen."]
    allowed: Annotated[list[list[int]], "Affinity masks, in the order in which they were seen."]
    migrations: Annotated[int | None, "Moves to another CPU, up to the last sample."]
    pages_migrated: Annotated[int | None, "Pages that NUMA balancing moved."]
    rss_average_bytes: Annotated[float | None, "Mean resident memory."]
    rss_max_bytes: Annotated[int | None, "Most resident memory."]
    swap_bytes: Annotated[int | None, "Most memory that was swapped out."]
    node_bytes: Annotated[dict[str, float] | None, "Mean anonymous memory by NUMA node."]
    page_bytes: Annotated[dict[str, float] | None, "The same by page size."]
    policy: Annotated[str | None, "Memory policy, as the kernel names it."]
    unread: Annotated[int, "Processes whose memory was not read, most in one sample."]
    worst: Annotated[
        list[list[float | list[list[int]]]],
        "Of each sample: time, and bytes by node of the look with most memory elsewhere.",
    ]


class CopyProofJson(TypedDict):
    """Whether one run of a copy was where it was planned."""

    phase: Phase
    benchmark: Benchmark
    iteration: Iteration
    copy: Copy
    step: Annotated[int, "Place in the copy's queue, from 0."]
    counted: Counted
    planned: Annotated[bool, "false: it might run, and have its memory, anywhere."]
    cpu: Annotated[int | None, "CPU that was planned."]
    node: Annotated[int | None, "NUMA node that was planned."]
    verdict: Annotated[PlacementVerdict, "Whether the plan was met."]
    reasons: Annotated[list[str], "Why it was not met, or is not known, in words."]
    gate: Annotated[GateJson | None, "What the kernel allowed it; null: not looked at."]
    seen: Annotated[SamplesJson, "What samples saw of it."]
    unseen_s: Annotated[float | None, "From its last sample to its end."]
    local_share: Annotated[float | None, "Share of its memory on planned (else home) nodes."]
    evenness: Annotated[
        float | None, "Interleaved: least share of a planned node x their number; 1: even."
    ]


class BenchmarkProofJson(TypedDict):
    """Memory of one benchmark's copies over all iterations; null: not known."""

    benchmark: Benchmark
    copies: Annotated[int, "Runs of copies."]
    sampled: Annotated[int, "Of these, sampled ones."]
    rss_average_bytes: Annotated[float | None, "Mean resident memory of a copy."]
    rss_max_bytes: Annotated[int | None, "Most resident memory of a copy."]
    page_shares: Annotated[dict[str, float], "Share of memory by page size in bytes."]
    local_share: Annotated[float | None, "Mean share of memory on the copy's nodes."]
    least_local_share: Annotated[float | None, "The same of the worst copy."]
    migrations: Annotated[float | None, "Mean moves of a copy to another CPU."]


class SamplingCostJson(TypedDict):
    """What sampling the copies cost."""

    cadence: Annotated[str, "As asked for: auto, once, or seconds."]
    samples: Annotated[int, "Number of samples."]
    interval_s: Annotated[float | None, "Mean time between two samples of one copy."]
    cpu_s: Annotated[float, "CPU time of all samples."]
    share: Annotated[float, "Share of one CPU while copies ran."]
    longest_read_s: Annotated[float, "Longest sample."]
    unknown: Annotated[list[str], "What cannot be seen on this machine, in words."]


class NotKnownJson(TypedDict):
    """Copies of which it is not known where they were."""

    reasons: Annotated[list[str], "Why it is not known, in words."]
    copies: Annotated[list[int], "Numbers of the copies."]


class PlacementProofJson(TypedDict):
    """Where copies ran and their memory lay."""

    looked_at: Annotated[bool, "false: copies were not sampled."]
    met: Annotated[int, "Runs of copies that were as planned."]
    not_met: Annotated[int, "Runs of copies that were not."]
    not_known: Annotated[int, "Runs of copies of which it is not known."]
    not_known_because: Annotated[list[NotKnownJson], "Why it is not known."]
    observed: Annotated[SamplingCostJson | None, "What sampling cost; null: it was off."]
    benchmarks: Annotated[list[BenchmarkProofJson], "By benchmark, in the order they ran."]
    copies_listed: Annotated[str, "Which runs of copies follow: all, or not met."]
    copies: Annotated[list[CopyProofJson], "Runs of copies."]


# -- CPUs and the machine --------------------------------------------------------------------------


class PhasePlace(TypedDict):
    """Which phase readings are of."""

    phase: Phase
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: AnyIteration
    counted: Counted
    elapsed_s: Annotated[float, "Time between the two readings of the phase."]


class CpuUseJson(PhasePlace):
    """What one CPU did in one phase; shares are of the time between two readings."""

    cpu: Annotated[int, "The kernel's number of the CPU."]
    node: Node
    copies: Annotated[list[int], "Copies that ran on it, or may have."]
    busy: Annotated[float, "Share of the time in which it worked, interrupts included."]
    foreign: Annotated[float | None, "Share for other processes than copies; null: not known."]
    together: Annotated[int, "CPUs that `foreign` is the mean of: the same copies may use them."]
    irq: Annotated[float, "Share for interrupts."]
    steal: Annotated[float, "Share that the hypervisor gave to others."]
    iowait: Annotated[float, "Share of waiting for a disk."]
    mean_mhz: Annotated[float | None, "Mean frequency while copies ran."]
    throttles: Annotated[int | None, "Times that core or package was too hot."]
    interrupts_per_s: Annotated[float | None, "Interrupts per second."]
    copies_used: Annotated[
        float | None,
        "Share that copies used by their own CPU time, where the kernel's statistics miss work; "
        "null: they do not, or it is not known.",
    ]


class PressureJson(TypedDict):
    """Share of the time in which some task waited (pressure stall information)."""

    cpu: Annotated[float | None, "For a CPU."]
    memory: Annotated[float | None, "For memory."]
    io: Annotated[float | None, "For a disk."]


class MachineUseJson(PhasePlace):
    """What the machine's counters came to in one phase."""

    values: Annotated[dict[str, int], "Counters by name, most as in /proc/vmstat."]
    pressure: Annotated[PressureJson, "Share of the time in which some task waited."]


class ReadingsJson(TypedDict):
    """What CPUs and machine did."""

    cpus: Annotated[list[CpuUseJson], "By phase and CPU."]
    machine: Annotated[list[MachineUseJson], "By phase."]
    processes: Annotated[
        list[ForeignProcessJson],
        "Other processes that used most CPU time, by phase; empty: none used much, or not known.",
    ]


# -- Over time -------------------------------------------------------------------------------------


class TrackJson(TypedDict):
    """One quantity over a phase."""

    name: Annotated[str, "What it is of, in words."]
    unit: Annotated[str, "Unit of the values."]
    values: Annotated[list[float | None], "A number an interval; null: not known."]


class CpuSeriesJson(TypedDict):
    """CPUs that the same copies may use, over a phase; a share of their time an interval."""

    cpus: Annotated[list[int], "The kernel's numbers of the CPUs."]
    copies: Annotated[list[int], "Copies that may run on them."]
    own: Annotated[list[float | None], "Share for copies; null: not known."]
    others: Annotated[list[float | None], "Share for other processes, rater included."]
    irq: Annotated[list[float | None], "Share for interrupts."]
    steal: Annotated[list[float | None], "Share that the hypervisor gave to others."]
    mhz: Annotated[list[float | None], "Frequency at the end of the interval."]


class PhaseSeriesJson(TypedDict):
    """What the machine did over the time of one phase."""

    phase: Phase
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: AnyIteration
    counted: Counted
    edges_s: Annotated[
        list[float], "Ends of the intervals from the phase's first release: one more than values."
    ]
    tracks: Annotated[list[TrackJson], "Quantities that have anything to tell."]
    cpus: Annotated[list[CpuSeriesJson], "CPU by CPU."]


class SeriesDocument(TypedDict):
    """What the machine did over the time of a run's phases."""

    run: Annotated[int, "Number of the run."]
    file: Annotated[str | None, "File that was drawn."]
    phases: Annotated[list[PhaseSeriesJson], "By phase."]
    periods: Annotated[list[PeriodJson], "Places in time of these phases, the costliest first."]


# -- Counters --------------------------------------------------------------------------------------


class StackPartJson(TypedDict):
    """One part of the cycles per instruction."""

    name: Annotated[str, "Name of the part."]
    cycles: Annotated[float, "Cycles per instruction."]


class CpiStackJson(TypedDict):
    """Where the cycles of an instruction go; the parts add up to the CPI."""

    parts: Annotated[list[StackPartJson], "Bottom to top, `other` last."]
    excess: Annotated[float, "Share of the CPI by which the parts were too large, and are scaled."]
    missing: Annotated[list[str], "Parts whose events were not counted: in `other`."]
    estimated: Annotated[list[str], "Parts that are misses x what one costs, and no count."]
    not_estimated: Annotated[list[str], "Parts that would be: what a miss costs is not known."]


class CountedGroupJson(TypedDict):
    """One group of events."""

    name: Annotated[str, "Table and group, as intel-skx:pipeline."]
    iterations: Annotated[list[int], "Iterations in which it was counted."]
    runs: Annotated[int, "Runs of copies."]
    share: Annotated[float, "Share of CPU time in which it was counted; below 1: scaled."]
    cpi: Annotated[float | None, "Cycles per instruction."]
    means: Annotated[list[list[str | float]], "Event, and its mean of a copy's run."]


class CpuCountsJson(TypedDict):
    """What the copies came to that ran on one CPU."""

    cpu: Annotated[int, "Number of the CPU."]
    node: Annotated[int | None, "Its NUMA node; null: not known."]
    runs: Annotated[int, "Runs of copies."]
    cpi: Annotated[float, "Cycles per instruction."]
    translation: Annotated[float | None, "Share of the cycles in page walks; null: not known."]
    metrics: Annotated[dict[str, float], "Metrics by name."]


class BenchmarkCountsJson(TypedDict):
    """What the counters of a benchmark's copies came to."""

    benchmark: Benchmark
    tune: Tune
    table: Annotated[str, "Table of events."]
    cpi: Annotated[float | None, "Cycles per instruction."]
    ipc: Annotated[float | None, "Instructions per cycle."]
    ghz: Annotated[float | None, "Frequency while counted; null: user mode alone."]
    instructions: Annotated[float | None, "Instructions of a copy's run."]
    cpi_spread: Annotated[float | None, "By how much the CPI differs between iterations."]
    stack: Annotated[CpiStackJson | None, "Where the cycles go; null: not known of this CPU."]
    metrics: Annotated[dict[str, float], "Metrics by name."]
    miss_cycles: Annotated[float | None, "Cycles of a TLB miss, measured; null: not known."]
    cpus: Annotated[list[CpuCountsJson], "By CPU, of copies that were bound."]
    groups: Annotated[list[CountedGroupJson], "Groups of events."]
    rates: Annotated[dict[str, float] | None, "Events per instruction."]


class CountersJson(TypedDict):
    """What the counters of a run came to."""

    benchmarks: Annotated[list[BenchmarkCountsJson], "By benchmark and table."]
    user_only: Annotated[bool, "true: without the kernel's work for the copies."]
    cost_us: Annotated[float | None, "rater's CPU time for a copy's run, outside of its time."]

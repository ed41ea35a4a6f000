"""Documents of `rater list`, `rater export --format json` and of observations: keys and meaning.

As in `rater.show.documents`: type checkers and `make schemas` read this, no command imports it.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from rater.record.run import CopyStatus, MemoryPolicy, Validity


class HeadJson(TypedDict):
    """What one line of `rater list` stands on: a stored run without its rows."""

    run: Annotated[int, "Its number in this database."]
    uuid: Annotated[str, "UUID of the run, the same in every database."]
    source: Annotated[str, "'run' (made here) or 'import'."]
    status: Annotated[str, "running, complete, failed or interrupted."]
    reason: Annotated[str | None, "Why it did not complete, in words."]
    started_at: Annotated[str | None, "UTC, ISO 8601 with 'Z'; null: not known (imported)."]
    elapsed_s: Annotated[float | None, "First release to last finish; null: not known."]
    hostname: Annotated[str | None, "Name of the machine."]
    mode: Annotated[str, "As asked for or imported: homogeneous, rotated, staggered, steady,."]
    order: Annotated[str, "Homogeneous or rotated: who ran what."]
    copies: Annotated[int, "Number of copies."]
    iterations: Annotated[int, "Iterations of each benchmark."]
    discard: Annotated[int, "First iterations that do not count."]
    stagger_ms: Annotated[float, "Milliseconds between the starts of two copies."]
    increment: Annotated[int, "Step between the copies' queues (rotated order)."]
    suite: Annotated[str | None, "Name of the suite."]
    size: Annotated[str | None, "Size of the inputs."]
    tune: Annotated[str | None, "SPEC's tune, base or peak; null: there are none."]
    layout: Annotated[str | None, "null: not known (imported); the same below."]
    memory: Annotated[str | None, "Memory policy."]
    timeout_s: Annotated[float | None, "Time limit of a copy."]
    wrap: Annotated[str | None, "Command that each copy runs under."]
    command_line: Annotated[str | None, "Command as it was typed."]
    rater_version: Annotated[str | None, "Version of rater that made the run."]
    benchmarks: Annotated[list[str], "Names in ring order."]
    tags: Annotated[dict[str, str], "Tags of the run, by name."]
    warmup_s: Annotated[float | None, "Steady mode: from the first release to the window."]
    window_s: Annotated[float | None, "Steady mode: in which completions count."]
    directory: Annotated[str | None, "Where rater was called."]
    request: Annotated[str | None, "What the user asked for, as JSON; null: imported, older rater."]
    suite_path: Annotated[str | None, "File of the suite."]
    suite_sha256: Annotated[str | None, "SHA-256 of that file."]
    resumed: Annotated[int, "How many times the run was taken up again."]
    others_cost: Annotated[
        float | None,
        "Shares of the score, as the last search for divots says; null: not searched, or not "
        "known. what work of others on the copies' CPUs cost.",
    ]
    noise_cost: Annotated[float | None, "What noise alone cost."]


class ExportDocument(TypedDict):
    """A run with all its rows, read back."""

    run: Annotated[HeadJson, "The run without its rows."]
    host: Annotated[HostJson, "The machine."]
    settings: Annotated[dict[str, str], "Of the machine, as they stood at the start."]
    environment: Annotated[dict[str, str], "What --env added."]
    redacted: Annotated[list[str], "Names of what has its value left out, as secrets have."]
    benchmarks: Annotated[list[BenchmarkUsedJson], "In ring order; command '' where not known."]
    placements: Annotated[list[PlacementJson], "By copy; imported: only of files of our own."]
    pus: Annotated[list[MachinePUJson], "By cpu; empty when nothing is known of the machine."]
    imported: Annotated[ImportedFileJson | None, "The result file that it was read from."]
    brackets: Annotated[list[PhaseEndedJson], "By phase."]
    copies: Annotated[list[CopyEndedJson], "By phase, copy, step."]
    samples: Annotated[list[SampledJson], "Of copies while they ran, by phase, copy, step, age."]
    observed: Annotated[
        ObservedJson | None,
        "What that came to; null: it was off, or rater was killed.",
    ]
    counted: Annotated[list[PhaseCountedJson], "By phase; those whose copies were counted."]
    foreign_processes: Annotated[
        list[ForeignProcessJson],
        "Processes that were none of the run's, by phase, those that used most CPU time first; "
        "empty: none used much, or not known.",
    ]
    cpu_readings: Annotated[list[CpuReadingJson], "What CPUs did, by phase and CPU."]
    phase_readings: Annotated[
        list[dict[str, int]], "The number of a phase, and the machine's counters in it by name."
    ]
    series: Annotated[
        list[FamilySeriesJson], "Samples over time, by phase and family; empty: none was taken."
    ]
    warnings: Annotated[list[str], "Given before the first phase."]
    notes: Annotated[list[str], "Made since, in order."]


class FamilySeriesJson(TypedDict):
    """The samples of one family in one phase."""

    phase: Annotated[int, "Number of the phase, from 0."]
    family: Annotated[str, "cpu, machine, node, package, copy or traffic."]
    times_s: Annotated[list[float], "When samples were taken, from the run's first release."]
    values: Annotated[
        dict[str, dict[str, list[int | None]]],
        "By column and place, a number a sample; counters are from 0; null: not known.",
    ]


class HostJson(TypedDict):
    """The machine a run was made on; null: not known."""

    fingerprint: Annotated[
        str,
        "Stable over reboots: model, topology, microcode; never measured MHz.",
    ]
    hostname: Annotated[str | None, "Name of the machine."]
    machine_id_hash: Annotated[str | None, "Tells machines of one model apart without naming them."]
    cpu_model: Annotated[str | None, "Model of the CPU."]
    microcode: Annotated[str | None, "Version of the microcode."]
    vendor: Annotated[str | None, "Vendor of the CPU."]
    memory_bytes: Annotated[int | None, "Memory of the machine."]
    pus: Annotated[int | None, "Number of CPUs."]
    cores: Annotated[int | None, "Number of cores."]
    nodes: Annotated[int | None, "Number of NUMA nodes."]
    packages: Annotated[int | None, "Number of packages."]
    architecture: Annotated[str | None, "As uname -m."]
    product: Annotated[str | None, "Vendor and product as the firmware names them."]


class BenchmarkUsedJson(TypedDict):
    """One benchmark as this run used it."""

    name: Annotated[str, "Name."]
    category: Annotated[str | None, "'int', 'fp' or None."]
    command: Annotated[str, "The command line as a shell would take it, without the wrap prefix."]
    reference_s: Annotated[float | None, "Time of the reference machine."]
    binary_sha256: Annotated[str | None, "Of the executable, null when it could not be read."]
    compiler: Annotated[str | None, "Version line of the compiler, null for a plain command."]
    flags: Annotated[str | None, "Flags of the compiler."]
    inputs_sha256: Annotated[str | None, "Of the names and contents of its input files, if any."]
    threads: Annotated[int, "CPUs that one copy uses."]
    metrics: Annotated[list[MetricUsedJson], "In the order of the suite."]


class PlacementJson(TypedDict):
    """Where one copy runs and where its memory comes from (the database's `placement` row)."""

    copy: Annotated[int, "Number of the copy, from 0."]
    cpus: Annotated[list[int] | None, "Affinity mask by OS number, ascending; null: not bound."]
    cpu: Annotated[int | None, "The PU it was given (the mask may be wider); null when not bound."]
    core: Annotated[int | None, "Hwloc logical index of the core."]
    llc: Annotated[int | None, "Hwloc logical index of the last-level cache."]
    node: Annotated[int | None, "OS number of the home NUMA node (lgroup)."]
    package: Annotated[int | None, "Hwloc logical index of the package."]
    memory_policy: Annotated[MemoryPolicy, "Memory policy of the copy."]
    memory_nodes: Annotated[list[int], "OS numbers; empty for 'local' and 'none'."]


class MachinePUJson(TypedDict):
    """One hardware thread of the run's machine (flat: the database's `pu` row)."""

    cpu: Annotated[int, "OS number."]
    core: Annotated[int | None, "Hwloc logical index."]
    llc: Annotated[int | None, "Hwloc logical index of the last-level cache."]
    node: Annotated[int | None, "OS number of the home NUMA node (lgroup)."]
    package: Annotated[int | None, "Hwloc logical index."]


class ImportedFileJson(TypedDict):
    """The file that a run was read from."""

    name: Annotated[str, "Without its folder."]
    sha256: Annotated[str, "SHA-256 of the file."]
    format: Annotated[str, "'rsf' or 'log'."]
    suite: Annotated[str | None, "'cpu2017'."]
    metric: Annotated[str | None, "As the file says: 'CINT2006'."]
    base_mean: Annotated[float | None, "Geometric means as the file says."]
    peak_mean: Annotated[float | None, "Geometric mean of peak ratios, as the file says."]
    problems: Annotated[int, "Lines that could not be read."]
    disagreements: Annotated[int, "Values that its own numbers contradict."]


class PhaseEndedJson(TypedDict):
    """One bracket: emitted when the last copy of a phase finished or was stopped."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    benchmark: Annotated[str | None, "null: the phase ran several (rotated order)."]
    iteration: Annotated[int | None, "Own ones count from 1, imported ones as recorded."]
    tune: Annotated[str | None, "null in the row: the run's."]
    counted: Annotated[bool, "false: of a discarded iteration."]
    start_ns: Annotated[int | None, "First release."]
    finish_ns: Annotated[int | None, "Last finish."]
    last_start_ns: Annotated[int | None, "Release of the last copy to start its first step."]
    first_finish_ns: Annotated[int | None, "Finish of the first copy to end its last step."]
    complete: Annotated[bool, "Every copy of the plan ran to its end, well or not."]
    torn: Annotated[bool, "An attempt that was interrupted; the phase was run again as a whole."]
    window_start_ns: Annotated[int | None, "Steady mode: the window in which completions count."]
    window_finish_ns: Annotated[int | None, "End of the window."]
    reported: Annotated[PublishedResultJson | None, "Of a result file's bracket."]


class CopyEndedJson(TypedDict):
    """One run of one benchmark by one copy, and where it was planned to run: a row of `copy`."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    benchmark: Annotated[str, "Name of the benchmark."]
    tune: Annotated[str | None, "null in the row: the run's."]
    iteration: Annotated[int, "Number of the iteration, from 1."]
    copy: Annotated[int, "Number of the copy, from 0."]
    step: Annotated[int, "Position in the copy's queue, from 0."]
    counted: Annotated[bool, "false for discarded iterations."]
    cpu: Annotated[int | None, "The kernel's number of the CPU; null: not known, or not bound."]
    core: Annotated[int | None, "Number of the core (hwloc's logical index); null: not known."]
    llc: Annotated[int | None, "Number of the last-level cache (hwloc's logical index)."]
    node: Annotated[int | None, "The kernel's number of the NUMA node; null: not known."]
    package: Annotated[int | None, "Number of the package (hwloc's logical index)."]
    mem_nodes: Annotated[list[int], "Nodes its memory was bound to or found on; empty: not known."]
    planned_start_ns: Annotated[
        int | None,
        "null where nothing was planned (later steps of a queue).",
    ]
    start_ns: Annotated[int | None, "null: not known (imported); so is finish_ns then."]
    finish_ns: Annotated[int | None, "Last end; null: not known."]
    elapsed_ns: Annotated[int, "Release to end."]
    status: Annotated[CopyStatus, "How it ended."]
    exit_code: Annotated[int | None, "null when a signal ended it."]
    signal: Annotated[int | None, "Signal that ended it."]
    validity: Annotated[Validity, "NOT_CHECKED when there is nothing to compare with."]
    validity_detail: Annotated[str | None, "The first difference of the output, in words."]
    cpu_ns: Annotated[
        int | None,
        "User and system CPU time, the gate's taken off. Read before the release, the gate's "
        "share can exceed what the kernel rounds the whole to: never below 0.",
    ]
    user_ns: Annotated[int | None, "Gate included; null: not known (imported); the same below."]
    system_ns: Annotated[int | None, "System CPU time."]
    gate_cpu_ns: Annotated[int | None, "CPU time the gate had used before the release."]
    max_rss_bytes: Annotated[
        int | None,
        "null: below what can be told (see run/supervise/ends.py).",
    ]
    minor_faults: Annotated[int | None, "Page faults without reading a disk."]
    major_faults: Annotated[int | None, "Page faults that read a disk."]
    voluntary_switches: Annotated[int | None, "Context switches of its own accord."]
    involuntary_switches: Annotated[int | None, "Context switches that were forced."]
    pid: Annotated[int | None, "Process id."]
    note: Annotated[str | None, "In words, what is odd: 'left 2 processes behind'."]
    run_dir: Annotated[
        str | None,
        "Where its files are, if kept: a directory, or a pattern of names.",
    ]
    metrics: Annotated[dict[str, float], "What it reported, in the suite's order."]
    last_cpu: Annotated[int | None, "Its first thread ran on at the end; null: not known."]
    placement: Annotated[str | None, "As planned? 'met', 'not met', 'not known'; null: not judged."]
    placement_note: Annotated[str | None, "Why it is not 'met', in words."]
    workloads: Annotated[
        list[WorkloadTimeJson],
        "Those that began, in order; (): a single command.",
    ]
    late_ns: Annotated[int | None, "The true end lies up to so long before finish; null: in time."]
    counts: Annotated[list[EventCountJson], "Of its counters, group after group; (): none."]
    pages: Annotated[list[PageRegionJson], "By category; (): --pages was not given."]
    mean_rss_bytes: Annotated[int | None, "Mean resident memory; null: not looked at."]
    peak_rss_bytes: Annotated[int | None, "Most resident memory."]
    rss_looks: Annotated[int | None, "Looks that these two are of."]
    stopped_ns: Annotated[int | None, "Time in which it was stopped by a signal or a debugger."]
    run_delay_ns: Annotated[
        int | None,
        "How long its threads were runnable without a CPU, all together (sched-stats.rst of "
        "the kernel), and the CPU time of the threads that this is known of. null: not known.",
    ]
    run_delay_cpu_ns: Annotated[int | None, "CPU time of the threads whose delay is known."]
    gate_cpus: Annotated[list[int] | None, "CPUs that the kernel let it use; null: not known."]
    gate_mems: Annotated[
        list[int] | None,
        "Nodes that its cpuset let it take memory of; null: not known.",
    ]


class SampledJson(TypedDict):
    """What was seen of a running copy: its process and the processes below it."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    copy: Annotated[int, "Number of the copy, from 0."]
    step: Annotated[int, "Place in the copy's queue, from 0."]
    age_ns: Annotated[int, "Since the copy's release."]
    processes: Annotated[int, "That were looked at."]
    unread: Annotated[int, "Processes whose memory was not: too many of them, or another user's."]
    cpus: Annotated[list[int], "Where its threads ran last, ascending, each once."]
    allowed: Annotated[list[int] | None, "Affinity mask of the copy's first process by now."]
    migrations: Annotated[
        int | None,
        "Of threads that still live: moves to another CPU, and pages the kernel's balancing moved.",
    ]
    pages_migrated: Annotated[int | None, "Pages that NUMA balancing moved."]
    node_bytes: Annotated[
        dict[str, int] | None,
        "Anonymous memory and huge pages by NUMA node; file pages (libraries) are not among them.",
    ]
    policy: Annotated[
        str | None,
        "Memory policy of most of it in the kernel's words: local, bind:2.",
    ]
    page_bytes: Annotated[dict[str, int] | None, "The same memory: page size, bytes."]
    rss_bytes: Annotated[
        int | None,
        "Resident, huge pages included; what its processes share counts once.",
    ]
    peak_bytes: Annotated[int | None, "Highest since its exec, null for several processes."]
    swap_bytes: Annotated[int | None, "Swapped out."]
    read_ns: Annotated[int, "How long the look took."]
    looks: Annotated[
        int,
        "How many it stands for: averages of those, their extremes, the last one's age.",
    ]
    astray_bytes: Annotated[
        dict[str, int] | None,
        "Of several looks node_bytes of the one with most away from where it was planned; "
        "null: the same as node_bytes.",
    ]


class ObservedJson(TypedDict):
    """What observing the copies of a run came to."""

    cadence: Annotated[str, "As asked for: 'auto', 'once', or seconds."]
    samples: Annotated[int, "Number of samples."]
    interval_s: Annotated[
        float | None,
        "Mean time between two looks at the same copy; null: none had two.",
    ]
    cpu_s: Annotated[float, "CPU time all of it took."]
    share: Annotated[float, "Of one CPU, while copies ran."]
    longest_read_s: Annotated[float, "Longest sample."]
    unknown: Annotated[list[str], "What could not be seen on this machine, each said once."]


class PhaseCountedJson(TypedDict):
    """What counting the copies of a phase cost rater, outside of their times."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    user_only: Annotated[bool, "The kernel's part was not to be seen."]
    copies: Annotated[int, "Runs of copies that were counted."]
    open_ns: Annotated[int, "CPU time of rater for all of them."]
    read_ns: Annotated[int, "CPU time for reading counters."]
    close_ns: Annotated[int, "CPU time for closing counters."]


class MetricUsedJson(TypedDict):
    """A number that a benchmark reports of itself, as the suite declares it."""

    name: Annotated[str, "Name."]
    unit: Annotated[str, "Unit of the values."]
    better: Annotated[str | None, "'higher', 'lower' or null: neither."]
    combine: Annotated[str, "Over copies: 'sum' or 'mean'."]


class PublishedResultJson(TypedDict):
    """What an imported result file says itself of a bracket; null: it does not say."""

    copies: Annotated[int | None, "That ran, whether or not their times are in the file."]
    reported_s: Annotated[float | None, "Start of the first copy to finish of the last."]
    reference_s: Annotated[float | None, "Time of the reference machine."]
    ratio: Annotated[float | None, "Copies x reference time / time."]
    selected: Annotated[bool | None, "Whether it stands for the benchmark."]
    valid: Annotated[str | None, "S: valid; CE, RE, VE, NR, ...: why not."]
    errors: Annotated[str | None, "A line each."]


class WorkloadTimeJson(TypedDict):
    """One of the commands that a copy ran in order, where it ran several (or SPEC's tools did)."""

    workload: Annotated[int, "Counts from 1, as SPEC's logs do."]
    start_ns: Annotated[int | None, "null: not known (imported); so is finish_ns then."]
    finish_ns: Annotated[int | None, "Last end; null: not known."]
    elapsed_ns: Annotated[int, "Time in nanoseconds."]
    exit_code: Annotated[int | None, "null when a signal ended it, and when it is not known."]
    signal: Annotated[int | None, "Signal that ended it."]
    pid: Annotated[int | None, "Of the command's own process, where that is told."]


class EventCountJson(TypedDict):
    """One event of a group as it was counted over all processes and threads of a copy."""

    group_name: Annotated[
        str,
        "With its table: intel-skx:pipeline; ends with ':u' for user mode only.",
    ]
    event: Annotated[str, "Name of the event."]
    value: Annotated[int | None, "null: it had no counter, or never ran."]
    enabled_ns: Annotated[int, "CPU time while it was to be counted, of all threads together,."]
    running_ns: Annotated[int, "And while it was: less where others had the counters."]


class PageRegionJson(TypedDict):
    """One category of data of a copy: of its largest process, when most of it was there."""

    category: Annotated[str, "Heap, mmap, static; rest: what of the process no layout reaches."]
    split: Annotated[bool, "Blocks of 128 KB and more are of mmap, not of heap."]
    share_of_bytes: Annotated[
        int | None,
        "What shares of the layout were taken of; null: there were none.",
    ]
    extent_bytes: Annotated[int, "From its start to its last page."]
    resident_bytes: Annotated[int, "Of that, in memory."]
    planned_bytes: Annotated[int, "Of the extent, what was to lie in pages larger than base pages."]
    touched_bytes: Annotated[int, "Pages of that with anything in them, as a whole."]
    huge_bytes: Annotated[
        int | None,
        "Of it, what did lie in such pages; null: that cannot be seen.",
    ]
    stray_bytes: Annotated[int, "In larger pages that were not planned."]
    page_bytes: Annotated[list[list[int]], "Page size, bytes."]
    largest_page_bytes: Annotated[int, "That was planned; base pages where none was."]
    seen: Annotated[
        str,
        "Exit, peak, fork: by the library in the copy; look: from outside while it ran.",
    ]
    processes: Annotated[int, "Of the copy that the library was in."]
    forks: Annotated[int, "Of the largest process."]
    note: Annotated[str | None, "In words, what went wrong."]


class ListedRunJson(HeadJson):
    """A run of the list."""

    disturbed: Annotated[list[str], "Why the run is too disturbed to judge; empty: it is not."]
    score: Annotated[float | None, "The one number of the run, larger is better; null: none."]
    score_unit: Annotated[str | None, "ratio or copies/hour."]
    divots: Annotated[int | None, "Number of divots; null: nobody searched."]


class CpuReadingJson(TypedDict):
    """What one CPU did between the two readings around a phase."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    cpu: Annotated[int, "The kernel's number of the CPU."]
    user_ns: Annotated[int, "User time, low priority and guests included."]
    system_ns: Annotated[int, "System time."]
    iowait_ns: Annotated[int, "Waiting for a disk."]
    irq_ns: Annotated[int, "Interrupts and soft interrupts."]
    steal_ns: Annotated[int, "Given to others by the hypervisor."]
    idle_ns: Annotated[int, "Idle time."]
    mean_khz: Annotated[int | None, "Mean frequency while copies ran; null: no reading."]
    throttles: Annotated[int | None, "Times that core or package was too hot; null: not told."]
    interrupts: Annotated[int | None, "Interrupts of all kinds; null: not read."]
    filler_ns: Annotated[int, "CPU time of runs that only kept the load up (steady mode)."]


class ForeignProcessJson(TypedDict):
    """A process that is none of the run's, and the CPU time that it used on one CPU in a phase."""

    phase: Annotated[int, "Number of the phase of the run, from 0."]
    cpu: Annotated[int, "The kernel's number of the CPU where it ran by the looks at it."]
    pid: Annotated[int, "Number of the process."]
    name: Annotated[str, "As the kernel has it: at most 15 characters, printable."]
    cpu_ns: Annotated[int, "CPU time between the first look of the phase and the last."]
    observed_ns: Annotated[int, "Time between these two looks."]


# -- Observations ----------------------------------------------------------------------------------


class WindowJson(TypedDict):
    """A window of steady mode."""

    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: Annotated[int | None, "Number of the iteration, from 1."]
    start_s: Annotated[float, "Start, from the run's first release."]
    finish_s: Annotated[float, "End, from the run's first release."]


class PhaseJoulesJson(TypedDict):
    """Energy of one phase."""

    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: Annotated[int | None, "Number of the iteration, from 1."]
    elapsed_s: Annotated[float, "Time between the two readings."]
    joules: Annotated[dict[str, float], "Joules by domain."]


class ObservedMetricJson(TypedDict):
    """A metric that observations of the run have."""

    name: Annotated[str, "Name of the metric."]
    benchmark: NotRequired[Annotated[str, "Its benchmark; all that have the metric if missing."]]
    unit: NotRequired[Annotated[str, "Unit of the metric."]]
    better: NotRequired[Annotated[str, "higher or lower; neither if missing."]]
    combine: NotRequired[Annotated[str, "Over copies: sum or mean (the default)."]]


class ObservedRunJson(TypedDict):
    """The head of a run in an observations document."""

    uuid: Annotated[str, "UUID: a run is stored once."]
    host: Annotated[str | None, "Name of the machine."]
    mode: Annotated[str, "homogeneous, rotated, staggered, steady, or any other word."]
    copies: Annotated[int, "Number of copies."]
    started_at: Annotated[str | None, "Start in UTC, ISO 8601; null: not known."]
    status: NotRequired[Annotated[str, "How it ended, where its copies do not say."]]
    reason: NotRequired[Annotated[str, "Why it did not complete, in words."]]
    tags: NotRequired[Annotated[dict[str, str], "Tags of the run, by name."]]
    stagger_ms: NotRequired[Annotated[float, "Milliseconds between the starts of two copies."]]
    order: NotRequired[Annotated[str, "homogeneous or rotated (steady mode)."]]
    warmup_s: NotRequired[Annotated[float | None, "Warm-up (steady mode)."]]
    window_s: NotRequired[Annotated[float | None, "Window (steady mode)."]]
    windows: NotRequired[Annotated[list[WindowJson], "Windows (steady mode)."]]
    increment: NotRequired[Annotated[int, "Step between the copies' queues (rotated order)."]]
    counter_tables: NotRequired[Annotated[list[dict[str, object]], "Tables of counted events."]]
    energy: NotRequired[Annotated[list[PhaseJoulesJson], "Energy by phase."]]
    metrics: NotRequired[Annotated[list[ObservedMetricJson], "What its metrics are."]]


class TopologyJson(TypedDict):
    """Which CPUs share a core, a cache, a NUMA node or a package; unknown ones are left out."""

    cores: Annotated[dict[str, list[int]], "CPUs by number of their core."]
    llcs: Annotated[dict[str, list[int]], "CPUs by number of their last-level cache."]
    nodes: Annotated[dict[str, list[int]], "CPUs by number of their NUMA node."]
    packages: Annotated[dict[str, list[int]], "CPUs by number of their package."]


class ObservationJson(TypedDict):
    """One run of one benchmark by one copy."""

    benchmark: Annotated[str, "Name of the benchmark."]
    iteration: Annotated[int, "Number of the iteration, from 1."]
    copy: Annotated[int, "Number of the copy, from 0."]
    cpu: Annotated[int | None, "The kernel's number of the CPU; null: not known."]
    core: Annotated[int | None, "Number of the core; null: not known."]
    llc: Annotated[int | None, "Number of the last-level cache; null: not known."]
    node: Annotated[int | None, "The kernel's number of the NUMA node; null: not known."]
    package: Annotated[int | None, "Number of the package; null: not known."]
    start_s: Annotated[float | None, "Start, from the run's first release; null: not known."]
    elapsed_s: Annotated[float, "Time of the copy."]
    step: NotRequired[Annotated[int, "Place in the copy's queue, from 0."]]
    tune: NotRequired[Annotated[str, "SPEC's tune, base or peak."]]
    mem_nodes: NotRequired[Annotated[list[int], "NUMA nodes of its memory."]]
    cpu_s: NotRequired[Annotated[float, "User and system CPU time."]]
    status: NotRequired[Annotated[str, "How it ended."]]
    placement: NotRequired[Annotated[str, "Whether it was as planned: met, not met, not known."]]
    placement_note: NotRequired[Annotated[str, "Why it was not, in words."]]
    mean_rss_bytes: NotRequired[Annotated[int, "Mean resident memory."]]
    peak_rss_bytes: NotRequired[Annotated[int, "Most resident memory."]]
    counted: NotRequired[Annotated[bool, "false: of a discarded iteration."]]
    counts: NotRequired[
        Annotated[list[EventCountJson] | dict[str, float], "What was counted; or numbers by event."]
    ]
    metrics: NotRequired[Annotated[dict[str, float], "What the copy reported, by metric."]]
    joules: NotRequired[Annotated[float, "Energy of the copy; becomes its metric `energy`."]]
    category: NotRequired[Annotated[str, "Of the benchmark: int or fp."]]
    reference_s: NotRequired[Annotated[float, "Of the benchmark: time on the reference machine."]]


class ObservationsDocument(TypedDict):
    """Times of copies in the form that can be imported."""

    run: Annotated[ObservedRunJson, "The run."]
    topology: Annotated[TopologyJson, "Which CPUs share what."]
    observations: Annotated[list[ObservationJson], "Runs of copies."]

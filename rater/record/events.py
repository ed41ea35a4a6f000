"""What the supervisor emits: one event is one row; pure."""

from __future__ import annotations

from msgspec import Struct

from rater.record.run import CopyStatus, RunStatus, Validity

# -- Page sizes that copies had (`--pages`), as they were seen -------------------------------------


class PageRegion(Struct, frozen=True):
    """One category of data of a copy: of its largest process, when most of it was there.

    Sizes are in bytes. `extent` counts from the start of the region to its last page; within one
    of 1 GB, to where data was known to go.
    """

    category: str  # heap, mmap, static; rest: what of the process no layout reaches
    split: bool  # blocks of 128 KB and more are of mmap, not of heap
    share_of_bytes: int | None  # the whole of the layout's shares; None: the layout has none
    extent_bytes: int
    resident_bytes: int
    planned_bytes: int  # part of the extent that was to lie in pages larger than base pages
    touched_bytes: int  # planned pages with anything in them, counted as a whole
    huge_bytes: int | None  # touched bytes that did lie in such pages; None: cannot be seen
    stray_bytes: int  # in larger pages that were not planned
    page_bytes: tuple[tuple[int, int], ...]  # page size, bytes
    largest_page_bytes: int  # largest page size of the plan; without one, that of base pages
    seen: str  # exit, peak, fork: by the library in the copy; look: from outside while it ran
    processes: int  # processes of the copy that had the library
    forks: int  # of the largest process
    note: str | None  # in words, what went wrong


class PagesHad(Struct, frozen=True):
    """The page sizes that a copy's run had; emitted after its phase."""

    phase: int
    copy: int
    step: int
    regions: tuple[PageRegion, ...]  # empty: the run was not seen


# -- What the supervisor emits: one event is one row -----------------------------------------------
#
# Times are integer nanoseconds of CLOCK_MONOTONIC counted from the run's first release
# (the first copy let go starts at 0). An event is emitted when it happened and never changed
# afterwards, except that a copy's output is judged after its phase (`OutputChecked`).


class PhaseStarted(Struct, frozen=True, kw_only=True):
    """All copies of a phase exist and wait at the gate; time has not begun."""

    phase: int  # counts from 0 over the whole run
    benchmark: str | None  # None: the phase runs several (rotated order)
    iteration: int | None  # counts from 1; None in rotated order
    counted: bool  # False for discarded iterations
    total_phases: int
    expected_s: float | None  # a guess for the progress display only
    # Steady mode, from the phase's first release: when completions begin to count, and cease to.
    window_ns: tuple[int, int] | None = None


class GateFacts(Struct, frozen=True):
    """What the kernel allows a copy that waits at its gate; the benchmark inherits it."""

    cpus: tuple[int, ...] | None  # OS numbers, ascending; None: could not be read
    mems: tuple[int, ...] | None  # nodes its cpuset lets it take memory of


class Sampled(Struct, frozen=True, kw_only=True):
    """A look at a running copy: its process and the processes below it."""

    phase: int
    copy: int
    step: int
    age_ns: int  # since the copy's release
    processes: int  # that were looked at
    unread: int  # processes whose memory was not read: too many of them, or another user's
    cpus: tuple[int, ...]  # where its threads ran last, ascending, each once
    allowed: tuple[int, ...] | None  # affinity mask of the copy's first process by now
    # Of threads that still live: moves to another CPU, and pages the kernel's balancing moved.
    migrations: int | None
    pages_migrated: int | None
    # Anonymous memory and huge pages by NUMA node; file pages (libraries) are not among them.
    node_bytes: tuple[tuple[int, int], ...] | None
    policy: str | None  # memory policy of most pages in the kernel's words: "local", "bind:2"
    page_bytes: tuple[tuple[int, int], ...] | None  # the same memory: page size, bytes
    rss_bytes: int | None  # resident, huge pages included; what its processes share counts once
    peak_bytes: int | None  # highest since its exec, None for several processes
    swap_bytes: int | None  # swapped out
    read_ns: int  # how long the look took
    # Several looks in one row: averages of them, their extremes, the age of the last one.
    looks: int = 1
    # `node_bytes` of the look with most memory away from its planned nodes; None: the same as
    # `node_bytes`.
    astray_bytes: tuple[tuple[int, int], ...] | None = None

    @property
    def private_bytes(self) -> int | None:
        """Anonymous memory and huge pages whose node is known."""
        return None if self.node_bytes is None else sum(size for _, size in self.node_bytes)


class Observed(Struct, frozen=True, kw_only=True):
    """How the copies of a run were observed, and the cost of that."""

    cadence: str  # as asked for: "auto", "once", or seconds
    samples: int
    interval_s: float | None  # mean time between two looks at the same copy; None: none had two
    cpu_s: float  # CPU time of all looks
    share: float  # of the time of one CPU while copies ran
    longest_read_s: float
    unknown: tuple[str, ...]  # facts that could not be seen on this machine, each once


class CpuReading(Struct, frozen=True, kw_only=True):
    """What one CPU did between the two readings around a phase; times by the kernel's ticks."""

    cpu: int
    user_ns: int  # low priority and guests included
    system_ns: int
    iowait_ns: int
    irq_ns: int  # interrupts and soft interrupts
    steal_ns: int  # wanted, but given to others by the hypervisor
    idle_ns: int
    mean_khz: int | None  # of the readings while copies ran; None: there were none
    throttles: int | None  # times that core or package was too hot; None: not known
    interrupts: int | None  # that the CPU took, of all kinds; None: not read
    # Steady mode: CPU time of runs that only kept the load up, of copies placed on this CPU (of
    # copies that are not bound: with the first CPU). There are no rows of those runs.
    filler_ns: int = 0


class CpuReadings(Struct, frozen=True):
    """What the CPUs of the machine did during a phase."""

    phase: int
    rows: tuple[CpuReading, ...]  # by CPU, those that were online all the time


class MachineReadings(Struct, frozen=True):
    """How far the machine's counters went during a phase, those that the kernel has.

    `elapsed_ns` (between the two readings) and `rater_cpu_ns` (CPU time of rater's
    own process) are always there; `pressure_WHAT_some_ns` and `..._full_ns` are time
    that some, or all, tasks waited for cpu, memory or io (kernel: accounting/psi.rst);
    `energy_DOMAIN_uj` is microjoules of `package-0` (hwloc's number) or `package-0-die-1`,
    of what is below one (`package-0-dram`, `-core`, `-uncore`), `psys` or a chip's own name;
    `cfs_periods`, `cfs_throttled_periods` and `cfs_throttled_ns` are those of the tightest CPU
    quota of rater's cgroups (periods in which any of it ran, those in which it was used up, and
    for how long CPUs were then kept from it, all together); `memory_limit_hits` is how often tasks
    had to free memory to stay below the tightest limit of rater's cgroups;
    the others are named as in /proc/vmstat, `allocstall` over all zones.
    """

    phase: int
    values: tuple[tuple[str, int], ...]  # by name


class ForeignProcess(Struct, frozen=True, kw_only=True):
    """A process that is none of the run's, and the CPU time that it used on one CPU in a phase.

    Of a phase those that used most, as far as they could be seen; none is there of a phase that was
    too short to be looked at, which is not known then.
    """

    phase: int
    cpu: int  # where it ran by the looks at it
    pid: int
    name: str  # as the kernel has it, at most 15 characters, printable
    cpu_ns: int  # between the first look of the phase and the last,
    observed_ns: int  # which are so far apart

    @property
    def share(self) -> float:
        """CPU time as a share of the CPU, over the time between the looks."""
        return self.cpu_ns / self.observed_ns if self.observed_ns else 0.0


class PhaseSeries(Struct, frozen=True, kw_only=True):
    """What one family of readings came to over a phase, sample by sample, packed.

    `rater.record.series` packs and unpacks it, and says how.
    """

    phase: int
    family: str  # cpu, machine, node, package or copy
    begin_ns: int  # the first sample, in the run's time; before 0 where that was before its start
    samples: int
    places: tuple[int, ...]  # CPUs, nodes, packages or copies; a single 0: the whole machine
    columns: tuple[str, ...]
    packed: bytes


class CopyStarted(Struct, frozen=True, kw_only=True):
    """A copy was let through its gate."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int  # position in the copy's queue, from 0
    start_ns: int
    planned_start_ns: int | None  # None: no plan (later steps of a queue)


class WorkloadTime(Struct, frozen=True):
    """One of the commands that a copy ran in order, where it ran several (or SPEC's tools did).

    The first begins with its copy, each of the others as the one before it ends.
    """

    workload: int  # counts from 1, as SPEC's logs do
    start_ns: int | None  # None: not known (imported); so is finish_ns then
    finish_ns: int | None
    elapsed_ns: int
    exit_code: int | None  # None when a signal ended it, and when it is not known
    signal: int | None
    pid: int | None = None  # of the command's own process


class AtGate:
    """A copy with the facts of its gate, flat as the database's `copy` row has them."""

    __slots__ = ()
    gate: GateFacts | None

    @property
    def gate_cpus(self) -> tuple[int, ...] | None:
        """CPUs that the kernel let the copy use; None: not known."""
        return self.gate.cpus if self.gate else None

    @property
    def gate_mems(self) -> tuple[int, ...] | None:
        """Nodes that its cpuset let the copy take memory of; None: not known."""
        return self.gate.mems if self.gate else None


class OutputChecked(Struct, frozen=True, kw_only=True):
    """The output of a copy that had ended well was compared with what was expected."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int
    validity: Validity
    detail: str | None  # the first difference, in words
    run_dir: str | None = None  # where its files are, kept because the output is wrong
    metrics: tuple[tuple[str, float], ...] = ()  # what the copy reported: name, value


USER_ONLY = ":u"  # as perf writes it


class EventCount(Struct, frozen=True):
    """One event of a group as it was counted over all processes and threads of a copy."""

    group_name: str  # with its table: intel-skx:pipeline; ends with ":u" for user mode only
    event: str
    value: int | None  # None: the event had no counter, or its copy never ran
    enabled_ns: int  # CPU time while it was to be counted, of all threads together,
    running_ns: int  # and while it was: less where others had the counters

    @property
    def user_only(self) -> bool:
        """Tell whether the kernel's part was not to be seen."""
        return self.group_name.endswith(USER_ONLY)

    @property
    def in_full(self) -> bool:
        """Tell whether the event was counted all the time."""
        return self.value is not None and self.running_ns == self.enabled_ns

    @property
    def estimate(self) -> float | None:
        """The value, scaled to the whole time when the event was counted for a part of it."""
        if self.value is None or not self.running_ns:
            return None
        return self.value * self.enabled_ns / self.running_ns


class CopyEnded(AtGate, Struct, frozen=True):
    """One run of one benchmark by one copy, and where it was planned to run: a row of `copy`.

    Emitted when the copy was reaped, in one transaction; of an imported run most is not known.
    `OutputChecked`, `CopyCounted`, `PagesHad` and `PlacementJudgement` complete the row later.
    It is made by position: rows are read by the hundred thousand, and keywords double the time.
    """

    phase: int
    benchmark: str
    tune: str | None  # None in the row: the run's
    iteration: int
    copy: int
    step: int  # position in the copy's queue, from 0
    counted: bool  # False for discarded iterations
    cpu: int | None
    core: int | None
    llc: int | None
    node: int | None
    package: int | None
    mem_nodes: tuple[int, ...]  # nodes its memory was bound to or found on; empty: not known
    planned_start_ns: int | None  # None: no plan (later steps of a queue)
    start_ns: int | None  # None: not known (imported); so is finish_ns then
    finish_ns: int | None
    elapsed_ns: int  # release to end
    status: CopyStatus
    exit_code: int | None  # None when a signal ended it
    signal: int | None
    validity: Validity  # NOT_CHECKED when there is nothing to compare with
    validity_detail: str | None
    # User and system CPU time, the gate's taken off. Read before the release, the gate's share can
    # exceed what the kernel rounds the whole to: never below 0.
    cpu_ns: int | None
    user_ns: int | None = None  # gate included; None: not known (imported); the same below
    system_ns: int | None = None
    gate_cpu_ns: int | None = None  # CPU time the gate had used before the release
    max_rss_bytes: int | None = None  # None: below what can be told (see run/supervise/ends.py)
    minor_faults: int | None = None
    major_faults: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    pid: int | None = None
    note: str | None = None  # in words, what is odd: "left 2 processes behind"
    run_dir: str | None = None  # where its files are, if kept: a directory, or a pattern of names
    metrics: tuple[tuple[str, float], ...] = ()  # what it reported, in the suite's order
    gate: GateFacts | None = None  # None: not looked at
    last_cpu: int | None = None  # its first thread ran on at the end; None: not known
    placement: str | None = None  # as planned? "met", "not met", "not known"; None: not judged
    placement_note: str | None = None  # why it is not "met", in words
    workloads: tuple[WorkloadTime, ...] = ()  # those that began, in order; (): a single command
    late_ns: int | None = None  # the true end lies up to so long before finish; None: in time
    counts: tuple[EventCount, ...] = ()  # of its counters, group after group; (): none
    pages: tuple[PageRegion, ...] = ()  # by category; (): --pages was not given
    # Memory of its processes, hugetlb pages included, by looks that stand for the time since the
    # one before; and the time of those at which it was stopped (SIGSTOP, a debugger). None: not
    # looked at.
    mean_rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    rss_looks: int | None = None
    stopped_ns: int | None = None
    # How long its threads were runnable without a CPU, all together (sched-stats.rst of the
    # kernel), and the CPU time of the threads that this is known of. None: not known.
    run_delay_ns: int | None = None
    run_delay_cpu_ns: int | None = None

    @property
    def elapsed_s(self) -> float:
        """Release to end, seconds."""
        return self.elapsed_ns / 1e9

    @property
    def cpu_s(self) -> float | None:
        """User and system CPU seconds of the copy itself."""
        return None if self.cpu_ns is None else self.cpu_ns / 1e9


class CopyCounted(Struct, frozen=True):
    """The counts of a copy's run, after its end."""

    phase: int
    copy: int
    step: int
    counts: tuple[EventCount, ...]


COUNT_GROUP = "generic:count" + USER_ONLY  # what `--count instructions` counts by the PMU


def instructions_counted(counts: tuple[EventCount, ...]) -> tuple[float, ...]:
    """Return the instructions of a copy where `--count` had them counted all the time, else ()."""
    return tuple(
        float(count.value)
        for count in counts
        if count.group_name == COUNT_GROUP and count.in_full and count.value is not None
    )


class PhaseCounted(Struct, frozen=True, kw_only=True):
    """The CPU time that rater spent on counting the copies of a phase, outside of their times."""

    phase: int
    user_only: bool  # the kernel's part was not to be seen
    copies: int  # runs of copies that were counted
    open_ns: int  # CPU time of rater for all of them
    read_ns: int
    close_ns: int


class PublishedResult(Struct, frozen=True, kw_only=True):
    """The result of a bracket as an imported file states it; None: the file has no such value."""

    copies: int | None  # that ran, whether or not their times are in the file
    reported_s: float | None  # start of the first copy to finish of the last
    reference_s: float | None
    ratio: float | None
    selected: bool | None  # whether it stands for the benchmark
    valid: str | None  # S: valid; CE, RE, VE, NR, ...: why not
    errors: str | None  # a line each

    @property
    def fault(self) -> str | None:
        """Why the file calls the result not valid; None: valid, or not said."""
        if self.valid in (None, "S"):
            return None
        words = _FAULTS.get(self.valid or "", f"the file calls it {self.valid}")
        return f"{words}: {self.errors.splitlines()[0]}" if self.errors else words


_FAULTS = {
    "CE": "it could not be built (CE)",
    "RE": "it failed while it ran (RE)",
    "VE": "its output was wrong (VE)",
    "NR": "it did not run (NR)",
}


class PhaseEnded(Struct, frozen=True, kw_only=True):
    """One bracket: emitted when the last copy of a phase finished or was stopped.

    The times are None while the phase had not ended when rater died, and for imported runs without
    start times: the slowest copy is then all that is known of the bracket.
    """

    phase: int
    benchmark: str | None  # None: the phase ran several (rotated order)
    iteration: int | None  # own ones count from 1, imported ones as recorded
    tune: str | None  # None in the row: the run's
    counted: bool
    start_ns: int | None  # first release
    finish_ns: int | None  # last finish
    last_start_ns: int | None  # release of the last copy to start its first step
    first_finish_ns: int | None  # finish of the first copy to end its last step
    complete: bool  # every copy of the plan ran to its end, well or not
    torn: bool = False  # an attempt that was interrupted; the phase was run again as a whole
    window_start_ns: int | None = None  # steady mode: the window in which completions count
    window_finish_ns: int | None = None
    reported: PublishedResult | None = None  # of a result file's bracket

    @property
    def bracket_s(self) -> float | None:
        """First release to last finish, as measured, else as the result file says."""
        if self.reported is not None and self.reported.reported_s is not None:
            return self.reported.reported_s
        if self.start_ns is None or self.finish_ns is None:
            return None
        return (self.finish_ns - self.start_ns) / 1e9


class PhaseTorn(Struct, frozen=True):
    """A phase that had ended was cut short all the same: copies died of what stops the run now."""

    phase: int


class Noted(Struct, frozen=True):
    """A warning or a fact about the run worth keeping."""

    text: str


class Resting(Struct, frozen=True):
    """Why the next phase waits, for the screen; not stored."""

    text: str


class RunEnded(Struct, frozen=True):
    """The run is over."""

    status: RunStatus
    reason: str | None
    iterations: int | None = None  # that it came to be, where it ended before the planned ones


type Event = (
    PhaseStarted
    | CopyStarted
    | CopyEnded
    | CopyCounted
    | PhaseCounted
    | PagesHad
    | Sampled
    | OutputChecked
    | CpuReadings
    | MachineReadings
    | ForeignProcess
    | PhaseSeries
    | PhaseEnded
    | PhaseTorn
    | Noted
    | Resting
    | Observed
    | RunEnded
)

"""What the supervisor emits, the database holds and the analysis reads.

One event is one row. Times are integer nanoseconds of CLOCK_MONOTONIC counted
from the run's first release (the first copy let go starts at 0). An event is
emitted when it happened and never changed afterwards, except that a copy's
output is judged after its phase (`OutputChecked`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

LAYOUT_TEXT = "layout.text"  # setting of a run: the user's own layout file as it was


def storable(text: str) -> str:
    """Return text of the system (arguments, paths) as Unicode: stray bytes as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class CopyStatus(StrEnum):
    """How a copy ended."""

    OK = "ok"
    FAILED = "failed"  # exit code not 0, killed by a signal, or more output than allowed
    TIMEOUT = "timeout"
    WRONG_OUTPUT = "wrong-output"
    INTERRUPTED = "interrupted"


class Validity(StrEnum):
    """What is known of a copy's output."""

    UNCHECKED = "unchecked"  # nobody looked yet: the copy has just ended, or rater died first
    NOT_CHECKED = "no-expectation"  # there is nothing to compare with (a plain command)
    VALID = "valid"
    INVALID = "invalid"


class RunStatus(StrEnum):
    """State of a whole run; `RUNNING` in the database of a dead rater means it was killed."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"  # never stored: what reading says of `RUNNING` whose rater is gone

    @property
    def reported(self) -> str:
        """The word of the JSON documents: a killed rater has interrupted its run."""
        return (RunStatus.INTERRUPTED if self is RunStatus.KILLED else self).value


@dataclass(frozen=True, slots=True)
class MetricUsed:
    """A number that a benchmark reports of itself, as the suite declares it."""

    name: str
    unit: str
    better: str | None  # "higher", "lower" or None: neither
    combine: str  # over copies: "sum" or "mean"


@dataclass(frozen=True, slots=True)
class BenchmarkUsed:
    """One benchmark as this run used it."""

    name: str
    category: str | None  # "int", "fp" or None
    command: str  # the command line as a shell would take it, without the wrap prefix
    reference_s: float | None
    binary_sha256: str | None  # of the executable, None when it could not be read
    compiler: str | None  # version line of the compiler, None for a plain command
    flags: str | None
    inputs_sha256: str | None = None  # of the names and contents of its input files, if any
    threads: int = 1  # CPUs that one copy uses
    metrics: tuple[MetricUsed, ...] = ()  # in the order of the suite


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """Where one copy was planned to run (flat: the database's `placement` row)."""

    copy: int
    cpus: tuple[int, ...] | None  # affinity mask by OS number, ascending; None: not bound
    cpu: int | None  # the PU the copy was given; None when not bound
    core: int | None  # hwloc logical index of the core
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index of the package
    memory_policy: str  # "local", "bind", "preferred", "interleave", "weighted" or "none"
    memory_nodes: tuple[int, ...]  # OS numbers; empty for "local" and "none"


@dataclass(frozen=True, slots=True)
class Run:
    """Head of a run, emitted once, before the first phase."""

    uuid: str
    started_at: str  # UTC, ISO 8601 with "Z"
    mode: str  # homogeneous, rotated, staggered, steady
    order: str  # homogeneous or rotated: who runs what
    copies: int
    iterations: int
    discard: int  # first iterations that are measured but not counted
    stagger_ms: float  # 0: all copies are released together
    increment: int  # of the ring, rotated order only; 1 otherwise
    suite: str | None  # None for a plain command
    size: str | None
    tune: str | None
    layout: str
    memory: str
    timeout_s: float | None
    wrap: str | None
    command_line: str  # how rater was called, as a shell would take it
    rater_version: str
    tags: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # what --env added
    benchmarks: tuple[BenchmarkUsed, ...] = ()
    placements: tuple[PlacedCopy, ...] = ()
    warnings: tuple[str, ...] = ()
    warmup_s: float | None = None  # steady mode: from the first release to the window
    window_s: float | None = None  # steady mode: in which completions count
    directory: str | None = None  # where rater was called
    request: str | None = None  # what the user asked for, as JSON: enough to ask for it again
    suite_path: str | None = None
    suite_sha256: str | None = None  # of the suite file's text


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """All copies of a phase exist and wait at the gate; time has not begun."""

    phase: int  # counts from 0 over the whole run
    benchmark: str | None  # None: the phase runs several (rotated order)
    iteration: int | None  # counts from 1; None in rotated order
    counted: bool  # False for discarded iterations
    total_phases: int
    expected_s: float | None  # a guess for the progress display only
    # Steady mode, from the phase's first release: when completions begin to count, and cease to.
    window_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What the kernel allows a copy that waits at its gate; the benchmark inherits it."""

    cpus: tuple[int, ...] | None  # OS numbers, ascending; None: could not be read
    mems: tuple[int, ...] | None  # nodes its cpuset lets it take memory of


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was seen of a running copy: its process and the processes below it."""

    phase: int
    copy: int
    step: int
    age_ns: int  # since the copy's release
    processes: int  # that were looked at
    unread: int  # processes whose memory was not: too many of them, or another user's
    cpus: tuple[int, ...]  # where its threads ran last, ascending, each once
    allowed: tuple[int, ...] | None  # affinity mask of the copy's first process by now
    # Of threads that still live: moves to another CPU, and pages the kernel's balancing moved.
    migrations: int | None
    pages_migrated: int | None
    # Anonymous memory and huge pages by NUMA node; file pages (libraries) are not among them.
    node_bytes: tuple[tuple[int, int], ...] | None
    policy: str | None  # memory policy of most of it in the kernel's words: "local", "bind:2"
    page_bytes: tuple[tuple[int, int], ...] | None  # the same memory: page size, bytes
    rss_bytes: int | None  # resident, huge pages included; what its processes share counts once
    peak_bytes: int | None  # highest since its exec, None for several processes
    swap_bytes: int | None  # swapped out
    read_ns: int  # how long the look took
    looks: int = 1  # how many it stands for: averages of those, their extremes, the last one's age
    # Of several looks `node_bytes` of the one with most away from where it was planned; None: the
    # same as `node_bytes`.
    astray_bytes: tuple[tuple[int, int], ...] | None = None

    @property
    def private_bytes(self) -> int | None:
        """Anonymous memory and huge pages whose node is known."""
        return None if self.node_bytes is None else sum(size for _, size in self.node_bytes)


@dataclass(frozen=True, slots=True)
class Observed:
    """What observing the copies of a run came to."""

    cadence: str  # as asked for: "auto", "once", or seconds
    samples: int
    interval_s: float | None  # mean time between two looks at the same copy; None: none had two
    cpu_s: float  # CPU time all of it took
    share: float  # of one CPU, while copies ran
    longest_read_s: float
    unknown: tuple[str, ...]  # what could not be seen on this machine, each said once


@dataclass(frozen=True, slots=True)
class CpuReading:
    """What one CPU did between the two readings around a phase; times by the kernel's ticks."""

    cpu: int
    user_ns: int  # low priority and guests included
    system_ns: int
    iowait_ns: int
    irq_ns: int  # interrupts and soft interrupts
    steal_ns: int  # wanted, but given to others by the hypervisor
    idle_ns: int
    mean_khz: int | None  # of the readings while copies ran; None: there were none
    throttles: int | None  # times that core or package was too hot; None: not told
    interrupts: int | None  # that it took, all kinds; None: not read
    # Steady mode: CPU time of runs that only kept the load up, of copies placed on this CPU (of
    # copies that are not bound: with the first CPU). There are no rows of those runs.
    filler_ns: int = 0


@dataclass(frozen=True, slots=True)
class CpuReadings:
    """What the CPUs of the machine did during a phase."""

    phase: int
    rows: tuple[CpuReading, ...]  # by CPU, those that were online all the time


@dataclass(frozen=True, slots=True)
class MachineReadings:
    """What the machine's counters came to during a phase, as far as the kernel has them.

    `elapsed_ns` (between the two readings) and `rater_cpu_ns` (CPU time of rater's
    own process) are always there; `pressure_WHAT_some_ns` and `..._full_ns` are time
    that some, or all, tasks waited for cpu, memory or io (kernel: accounting/psi.rst);
    the others are named as in /proc/vmstat, `allocstall` over all zones.
    """

    phase: int
    values: tuple[tuple[str, int], ...]  # by name


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """A copy was let through its gate."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int  # position in the copy's queue, from 0
    start_ns: int
    planned_start_ns: int | None  # None where nothing was planned (later steps of a queue)


@dataclass(frozen=True, slots=True)
class WorkloadTime:
    """One of the commands that a copy ran in order, where it ran several (or SPEC's tools did).

    The first begins with its copy, each of the others as the one before it ends.
    """

    workload: int  # counts from 1, as SPEC's logs do
    start_ns: int | None  # None: not known (imported); so is finish_ns then
    finish_ns: int | None
    elapsed_ns: int
    exit_code: int | None  # None when a signal ended it, and when it is not known
    signal: int | None
    pid: int | None = None  # of the command's own process, where that is told


@dataclass(frozen=True, slots=True)
class CopyEnded:
    """A copy ended and was reaped; one database transaction."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int
    pid: int
    start_ns: int
    planned_start_ns: int | None
    finish_ns: int
    status: CopyStatus
    exit_code: int | None  # None when a signal ended it
    signal: int | None
    user_ns: int  # CPU time in user mode as the kernel counted it, gate included
    system_ns: int  # the same in system mode
    gate_cpu_ns: int  # CPU time the gate had used before the release, to be taken off
    max_rss_bytes: int | None  # None when it is below what can be told (see run/launch.py)
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    note: str | None  # in words, what is odd: "left 2 processes behind", "wrote more than 1 GiB"
    run_dir: str | None  # where its files are, if kept: a directory, or a pattern of names
    validity: Validity = Validity.UNCHECKED  # NOT_CHECKED when there is nothing to compare with
    gate: GateFacts | None = None  # None: was not looked at
    last_cpu: int | None = None  # its first thread ran on at the end; None: not looked at
    workloads: tuple[WorkloadTime, ...] = ()  # those that began, in order; (): a single command

    @property
    def elapsed_ns(self) -> int:
        """Release to end."""
        return self.finish_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class OutputChecked:
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


@dataclass(frozen=True, slots=True)
class PhaseEnded:
    """The last copy of a phase has finished (or was stopped): one bracket."""

    phase: int
    benchmark: str | None
    iteration: int | None
    counted: bool
    start_ns: int  # first release
    finish_ns: int  # last finish
    last_start_ns: int  # release of the last copy to start its first step
    first_finish_ns: int  # finish of the first copy to end its last step
    complete: bool  # every copy of the plan ran to its end, well or not
    window_start_ns: int | None = None  # steady mode: the window in which completions count
    window_finish_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A warning or a fact about the run worth keeping."""

    text: str


@dataclass(frozen=True, slots=True)
class Resting:
    """What is waited for between two phases, for the screen; not stored."""

    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over."""

    status: RunStatus
    reason: str | None


type Event = (
    PhaseStarted
    | CopyStarted
    | CopyEnded
    | Sampled
    | OutputChecked
    | CpuReadings
    | MachineReadings
    | PhaseEnded
    | Noted
    | Resting
    | Observed
    | RunEnded
)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a run was made on; what is not known of an imported one is None."""

    fingerprint: str  # stable over reboots: model, topology, microcode; never measured MHz
    hostname: str | None
    machine_id_hash: str | None  # tells machines of one model apart without naming them
    cpu_model: str | None
    microcode: str | None
    vendor: str | None
    memory_bytes: int | None
    pus: int | None
    cores: int | None
    nodes: int | None
    packages: int | None
    architecture: str | None = None  # as `uname -m`
    product: str | None = None  # vendor and product as the firmware names them


@dataclass(frozen=True, slots=True)
class MachinePU:
    """One hardware thread of the run's machine (flat: the database's `pu` row)."""

    cpu: int  # OS number
    core: int | None  # hwloc logical index
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index


@dataclass(frozen=True, slots=True)
class RunHead:
    """What one line of `rater list` stands on: a stored run without its rows."""

    run: int  # its number in this database
    uuid: str
    source: str  # "run" (made here) or "import"
    status: RunStatus
    reason: str | None  # why it did not complete, in words
    started_at: str | None  # UTC, ISO 8601 with "Z"; None: not known (imported)
    elapsed_s: float | None  # first release to last finish; None: not known
    hostname: str | None
    mode: str  # as asked for or imported: homogeneous, rotated, staggered, steady, ...
    order: str  # homogeneous or rotated: who ran what
    copies: int
    iterations: int
    discard: int
    stagger_ms: float
    increment: int
    suite: str | None
    size: str | None
    tune: str | None
    layout: str | None  # None: not known (imported); the same below
    memory: str | None
    timeout_s: float | None
    wrap: str | None
    command_line: str | None
    rater_version: str | None
    benchmarks: tuple[str, ...]  # names in ring order
    tags: tuple[tuple[str, str], ...]
    warmup_s: float | None = None  # steady mode: from the first release to the window
    window_s: float | None = None  # steady mode: in which completions count
    directory: str | None = None  # where rater was called
    request: str | None = None  # what the user asked for, as JSON; None: imported, older rater
    suite_path: str | None = None
    suite_sha256: str | None = None
    resumed: int = 0  # how many times the run was taken up again


@dataclass(frozen=True, slots=True)
class Reported:
    """What an imported result file says itself of a bracket; None for what it does not say."""

    copies: int | None  # that ran, whether or not their times are in the file
    reported_s: float | None  # start of the first copy to finish of the last
    reference_s: float | None
    ratio: float | None
    selected: bool | None  # whether it stands for the benchmark
    valid: str | None  # S: valid; CE, RE, VE, NR, ...: why not
    errors: str | None  # a line each

    @property
    def fault(self) -> str | None:
        """Why the file calls it not valid, None where it does not."""
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


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The file that a run was read from."""

    name: str  # without its folder
    sha256: str
    format: str  # "rsf" or "log"
    suite: str | None  # "cpu2017"
    metric: str | None  # as the file says: "CINT2006"
    base_mean: float | None  # geometric means as the file says
    peak_mean: float | None
    problems: int  # lines that could not be read
    disagreements: int  # values that its own numbers contradict


@dataclass(frozen=True, slots=True)
class StoredBracket:
    """One phase of a stored run.

    The times are None while the phase had not ended when rater died, and for
    imported runs without start times: the slowest copy is then all that is
    known of the bracket.
    """

    phase: int
    benchmark: str | None  # None: the phase ran several (rotated order)
    iteration: int | None  # own ones count from 1, imported ones as recorded
    tune: str | None
    counted: bool
    start_ns: int | None
    finish_ns: int | None
    last_start_ns: int | None
    first_finish_ns: int | None
    complete: bool  # every copy of the plan ran to its end, well or not
    torn: bool = False  # an attempt that was interrupted; the phase was run again as a whole
    window_start_ns: int | None = None  # steady mode: the window in which completions count
    window_finish_ns: int | None = None
    reported: Reported | None = None  # of a result file's bracket

    @property
    def bracket_s(self) -> float | None:
        """First release to last finish, as measured, else as the result file says."""
        if self.reported is not None and self.reported.reported_s is not None:
            return self.reported.reported_s
        if self.start_ns is None or self.finish_ns is None:
            return None
        return (self.finish_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """One run of one benchmark by one copy, with where it was planned to run."""

    phase: int
    benchmark: str
    tune: str | None
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
    planned_start_ns: int | None
    start_ns: int | None  # None: not known (imported); so is finish_ns then
    finish_ns: int | None
    elapsed_ns: int
    status: CopyStatus
    exit_code: int | None
    signal: int | None
    validity: Validity
    validity_detail: str | None
    cpu_ns: int | None  # user + system, the gate's taken off
    user_ns: int | None = None  # gate included; None: not known (imported); the same below
    system_ns: int | None = None
    gate_cpu_ns: int | None = None
    max_rss_bytes: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    pid: int | None = None
    note: str | None = None
    run_dir: str | None = None
    metrics: tuple[tuple[str, float], ...] = ()  # what it reported, in the suite's order
    gate: GateFacts | None = None  # None: not looked at
    last_cpu: int | None = None  # its first thread ran on at the end; None: not known
    placement: str | None = None  # as planned? "met", "not met", "not known"; None: not judged
    placement_note: str | None = None  # why it is not "met", in words
    workloads: tuple[WorkloadTime, ...] = ()  # those that began, in order; (): a single command

    @property
    def elapsed_s(self) -> float:
        """Release to end, seconds."""
        return self.elapsed_ns / 1e9

    @property
    def cpu_s(self) -> float | None:
        """User and system CPU seconds of the copy itself."""
        return None if self.cpu_ns is None else self.cpu_ns / 1e9


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether one copy run ran, and had its memory, where it was planned."""

    phase: int
    copy: int
    step: int
    verdict: str  # "met", "not met", "not known"
    note: str | None  # why it is not "met"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with all its rows, read back."""

    head: RunHead
    host: Host
    settings: tuple[tuple[str, str], ...]  # of the machine, as they stood at the start
    environment: tuple[tuple[str, str], ...]  # what --env added
    benchmarks: tuple[BenchmarkUsed, ...]  # in ring order; command "" where not known
    placements: tuple[PlacedCopy, ...]  # by copy; imported: only of files of our own
    pus: tuple[MachinePU, ...]  # by cpu; empty when nothing is known of the machine
    brackets: tuple[StoredBracket, ...]  # by phase
    copies: tuple[StoredCopy, ...]  # by phase, copy, step
    warnings: tuple[str, ...]  # given before the first phase
    notes: tuple[str, ...]  # made since, in order
    samples: tuple[Sampled, ...] = ()  # of copies while they ran, by phase, copy, step, age
    observed: Observed | None = None  # what that came to; None: it was off, or rater was killed
    imported: ImportedFile | None = None  # the result file that it was read from
    cpu_readings: tuple[CpuReadings, ...] = ()  # by phase; those that ended and were watched
    machine_readings: tuple[MachineReadings, ...] = ()  # by phase

    def without_torn(self) -> StoredRun:
        """Return the run without attempts at phases that were run again: what results are of."""
        torn = {bracket.phase for bracket in self.brackets if bracket.torn}
        if not torn:
            return self
        return replace(
            self,
            brackets=tuple(it for it in self.brackets if it.phase not in torn),
            copies=tuple(it for it in self.copies if it.phase not in torn),
            samples=tuple(it for it in self.samples if it.phase not in torn),
            cpu_readings=tuple(it for it in self.cpu_readings if it.phase not in torn),
            machine_readings=tuple(it for it in self.machine_readings if it.phase not in torn),
        )

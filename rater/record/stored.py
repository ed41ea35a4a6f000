"""What the database gives back: heads, brackets and copies of stored runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rater.record.events import (
    CopyEnded,
    CpuReadings,
    ForeignProcess,
    MachineReadings,
    Observed,
    PhaseCounted,
    PhaseEnded,
    PhaseSeries,
    Sampled,
)
from rater.record.run import (
    BenchmarkUsed,
    CopyStatus,
    Host,
    MachinePU,
    Placement,
    RunStatus,
    Validity,
)
from rater.system.patterns import compile_later

RATIO, PER_HOUR = "ratio", "copies/hour"  # units of the one number of a run
CPU_RATIO, PER_CPU_HOUR = "ratio by CPU time", "copies/CPU hour"  # the same by CPU time
_UUID = compile_later(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def folder_of(uuid: str) -> str | None:
    """Return the name of the folder of a run's directories; None: `uuid` is none.

    A database or document may have any text as a uuid, and folders of runs are removed.
    """
    return uuid if _UUID.fullmatch(uuid) else None


class RunHead(Struct, frozen=True, kw_only=True):
    """A stored run without its rows: what `rater list` needs for a line."""

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
    suite: str | None = None
    size: str | None = None
    tune: str | None = None
    layout: str | None = None  # None: not known (imported); the same below
    memory: str | None = None
    timeout_s: float | None = None
    wrap: str | None = None
    command_line: str | None = None
    rater_version: str | None = None
    benchmarks: tuple[str, ...] = ()  # names in ring order
    tags: tuple[tuple[str, str], ...] = ()
    warmup_s: float | None = None  # steady mode: from the first release to the window
    window_s: float | None = None  # steady mode: in which completions count
    directory: str | None = None  # where rater was called
    request: str | None = None  # what the user asked for, as JSON; None: imported, older rater
    suite_path: str | None = None
    suite_sha256: str | None = None
    resumed: int = 0  # how many times the run was taken up again
    # Shares of the score, as the last search for divots says; None: not searched, or not known.
    others_cost: float | None = None  # what work of others on the copies' CPUs cost
    noise_cost: float | None = None  # what noise alone cost

    @property
    def folder(self) -> str | None:
        """Name of the folder of its run directories; None: `uuid` has another form."""
        return folder_of(self.uuid)


class ImportedFile(Struct, frozen=True, kw_only=True):
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


class TimeRow(NamedTuple):
    """One copy run as the search for divots reads it: the columns of `times.sql`."""

    benchmark: int  # number of its name and tune in the list beside the rows
    iteration: int
    copy: int
    step: int
    cpu: int | None
    core: int | None
    llc: int | None
    node: int | None
    package: int | None
    memory: int | None  # node of its memory, -2: several
    start_ns: int | None
    elapsed_ns: int
    cpu_ns: int | None
    good: int  # 1: ended well


class PlacementJudgement(Struct, frozen=True, kw_only=True):
    """Whether one copy run had the CPUs and the memory of its plan."""

    phase: int
    copy: int
    step: int
    placement: str  # "met", "not met", "not known"
    note: str | None  # why it is not "met"


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run with all its rows, read back."""

    head: RunHead
    host: Host
    settings: tuple[tuple[str, str], ...] = ()  # of the machine, as they stood at the start
    environment: tuple[tuple[str, str], ...] = ()  # what --env added
    benchmarks: tuple[BenchmarkUsed, ...] = ()  # in ring order; command "" where not known
    placements: tuple[Placement, ...] = ()  # by copy; imported: only of files of our own
    pus: tuple[MachinePU, ...] = ()  # by cpu; empty when nothing is known of the machine
    brackets: tuple[PhaseEnded, ...] = ()  # by phase
    copies: tuple[CopyEnded, ...] = ()  # by phase, copy, step
    warnings: tuple[str, ...] = ()  # given before the first phase
    notes: tuple[str, ...] = ()  # made since, in order
    samples: tuple[Sampled, ...] = ()  # of copies while they ran, by phase, copy, step, age
    observed: Observed | None = None  # cost of the samples; None: off, or rater was killed
    imported: ImportedFile | None = None  # the result file that it was read from
    cpu_readings: tuple[CpuReadings, ...] = ()  # by phase; those that ended and were watched
    machine_readings: tuple[MachineReadings, ...] = ()  # by phase
    # Processes that were none of the run's, by phase, those that used most CPU time first; empty:
    # none used much, or not known.
    foreign_processes: tuple[ForeignProcess, ...] = ()
    series: tuple[PhaseSeries, ...] = ()  # by phase and family; of phases that had samples
    counted: tuple[PhaseCounted, ...] = ()  # by phase; those whose copies were counted
    redacted: tuple[str, ...] = ()  # names of secrets, whose values are left out

    def without_torn(self) -> StoredRun:
        """Return the run without attempts at phases that were run again: what results are of."""
        torn = {bracket.phase for bracket in self.brackets if bracket.torn}
        if not torn:
            return self
        return replace(
            self,
            brackets=tuple(bracket for bracket in self.brackets if bracket.phase not in torn),
            copies=tuple(copy for copy in self.copies if copy.phase not in torn),
            samples=tuple(sample for sample in self.samples if sample.phase not in torn),
            cpu_readings=tuple(
                reading for reading in self.cpu_readings if reading.phase not in torn
            ),
            machine_readings=tuple(
                reading for reading in self.machine_readings if reading.phase not in torn
            ),
            foreign_processes=tuple(
                process for process in self.foreign_processes if process.phase not in torn
            ),
            series=tuple(series for series in self.series if series.phase not in torn),
            counted=tuple(phase for phase in self.counted if phase.phase not in torn),
        )


def kept_for_last[A, R](function: Callable[[A], R]) -> Callable[[A], R]:
    """Return a function that works once where it is called for the very same thing in a row.

    What several readers of a run need (accounts of times, counters) is then worked out once; and
    what runs have in common, as the CPUs of their machine, once for all of them. Its result must
    not be changed.
    """
    last: tuple[A, R] | None = None

    @wraps(function)
    def kept(argument: A) -> R:
        nonlocal last
        known = last
        if known is None or known[0] is not argument:
            last = known = argument, function(argument)
        return known[1]

    return kept


def is_good(copy: CopyEnded) -> bool:
    """Tell whether the copy ran to its end, well, and its output was not found wrong."""
    return copy.status is CopyStatus.OK and copy.validity is not Validity.INVALID


# A setting of runs in a virtual machine that reports its free pages: the host takes their memory
# back, and each first touch then costs what the host needs, which large pages change as well.
_FREE_MEMORY, _REPORTED = "virtualization.free_memory", "reported"


def wants_user_time(runs: Sequence[StoredRun]) -> bool:
    """Tell whether the host took memory back from some runs, and all have user time."""
    is_taken = any(dict(run.settings).get(_FREE_MEMORY) == _REPORTED for run in runs)
    return is_taken and all(copy.user_ns for run in runs for copy in run.copies if is_good(copy))

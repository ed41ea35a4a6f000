"""A copy of a phase, its runs as processes, and the entry by which the launcher forks one."""

from __future__ import annotations

import errno
import math
import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import batched, zip_longest
from pathlib import Path

from msgspec import Struct, field

from rater.plan.schedule import Step
from rater.record.events import GateFacts, ResidentMemory
from rater.record.run import Placement
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import SchedTimes, read_number
from rater.run.host.thread_binding import (
    MODES,
    KernelPolicy,
    cannot_bind_cpus,
    cannot_bind_memory,
)
from rater.run.launcher.launcher import Launcher
from rater.run.launcher.table import ProcessEntry, ProcessFlag, Record, RequestKind, StartStep
from rater.system.errors import RaterError, RunError
from rater.text.cpuset import numbers_of
from rater.text.secrets import command_text


class CopySpec(Struct, frozen=True, kw_only=True):
    """Everything needed to start one step of one copy; paths as text."""

    argv: tuple[str, ...]
    shared_variables: Mapping[bytes, bytes]  # variables; one object for all copies of a program
    directory: str  # working directory of the copy
    output: str  # what the names of its files begin with: "DIR/" of its own, or "DIR/name."
    workloads: int = 0  # commands that its script reports as they end; 0: it reports none
    own_variables: Mapping[bytes, bytes] = field(default_factory=dict)  # variables of this copy
    accepted: tuple[int, ...] = ()  # exit codes that are no failure, beside 0
    transparent: bool | None = None  # huge pages of the kernel's own accord; None: as it is

    @property
    def environment(self) -> dict[bytes, bytes]:
        """All variables of the copy."""
        return {**self.shared_variables, **self.own_variables}

    @property
    def stdout(self) -> str:
        """The file of its standard output."""
        return f"{self.output}stdout"

    @property
    def stderr(self) -> str:
        """The file of its standard error."""
        return f"{self.output}stderr"

    @property
    def files(self) -> str:
        """Where its files are, for people: a directory, or a pattern of their names."""
        return self.output[:-1] if self.output.endswith("/") else f"{self.output}*"


class Child(Struct, eq=False):
    """One run of a copy as a process. Mutable: all that is known of it.

    It is at its gate as soon as it has a `pid`, runs as soon as it has a `start_ns`, and is over
    with an `end_record`.
    """

    launcher: Launcher
    token: int  # what the launcher calls it; 0: it has not heard of it
    copy: int
    position: int  # of the step in the copy's queue
    step: Step
    spec: CopySpec
    phase: int = 0
    repeats: bool = False  # what it did before in this phase
    pid: int = 0
    after: int = 0  # token of the process whose end it begins with; 0: with the release of all
    offset_ns: int = 0  # from that release
    planned_ns: int | None = None
    start_ns: int | None = None
    end_record: Record | None = None
    gate_facts: GateFacts | None = None  # None: not read
    other_threads: Sequence[SchedTimes] = ()  # of all but the first when they were seen last
    memory: ResidentMemory | None = None  # None: it was not looked at
    is_filler: bool = (
        False  # steady mode: only keeps the load up, began after the window had closed
    )
    stop_reason: str | None = None  # "timeout", "output", "stop": why rater ended it
    killed: bool = False
    orphaned: bool = False  # it did not die, and what it had started was killed for that
    due_s: float = math.inf  # when it is asked to end, or killed, or given up as immortal
    late_ns: int | None = None  # its end lies up to so long before its stamp; None: in time
    ignored_s: float | None = None  # so long it did not end after SIGTERM
    not_executed: int | None = None  # errno of its exec
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The copy in words."""
        return f"copy {self.copy} of {self.step.benchmark}"

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None: a signal ended it."""
        assert self.end_record is not None
        return (
            os.WEXITSTATUS(self.end_record.status) if os.WIFEXITED(self.end_record.status) else None
        )

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        assert self.end_record is not None
        return None if os.WIFEXITED(self.end_record.status) else os.WTERMSIG(self.end_record.status)

    @property
    def ended_well(self) -> bool:
        """Tell whether it ended with an exit code that is no failure."""
        return self.exit_code in (0, *self.spec.accepted)

    def send(self, number: int) -> None:
        """Send a signal to the copy's process group, and to the copy where it left that."""
        self.launcher.ask(RequestKind.SIGNAL, self.token, number)


class Copy(Struct, eq=False, kw_only=True):
    """One copy in one phase: its queue, the run that goes on, and the one that follows it."""

    number: int
    steps: tuple[Step, ...]
    repeats: bool  # steady mode: the queue begins anew
    child: Child | None = None  # it runs
    latest: Child | None = None  # the run that began last; it may be over
    coming: Child | None = None  # forked, and not begun
    is_being_made: bool = False  # what is needed for the next run is being made
    is_last: bool = False  # no further run is to begin
    start_ns: int | None = None  # of its first run, and
    finish_ns: int | None = None  # of its last one that counts, in the run's time

    @property
    def next_position(self) -> int:
        """What follows the run that began last, counted from 0."""
        return 0 if self.latest is None else self.latest.position + 1

    @property
    def next_step(self) -> Step:
        """The same as a step; of a copy that is not through."""
        return self.steps[self.next_position % len(self.steps)]

    @property
    def has_own_directory(self) -> bool:
        """Tell whether a directory is made for each run."""
        return self.latest is not None and self.latest.spec.output.endswith("/")

    @property
    def is_through(self) -> bool:
        """Tell whether the last run of the queue has begun."""
        return not self.repeats and self.next_position == len(self.steps)


# -- How the launcher is told of processes, and what it says of those that it could not start ------

_PROCESSES_PER_TURN = 8


def interleave_by_cpus(wanted: Iterable[Child], placements: Sequence[Placement]) -> Iterator[Child]:
    """Yield them a few of each CPU in turn, as the launcher moves to the CPU of each.

    With one of each in turn moving is half of what a fork costs; with all of one CPU first,
    copies' first instructions lie twice as far apart (128 on 2 CPUs: 170 ms, not 89).
    """
    of_cpus: dict[tuple[int, ...] | None, list[Child]] = {}
    for child in wanted:
        of_cpus.setdefault(placements[child.copy].cpus, []).append(child)
    turns = zip_longest(
        *(batched(those, _PROCESSES_PER_TURN) for those in of_cpus.values()), fillvalue=()
    )
    return (child for turn in turns for some in turn for child in some)


def make_entry(child: Child, place: Placement, flags: int) -> ProcessEntry:
    """Return a process for the launcher's table."""
    spec = child.spec
    return ProcessEntry(
        token=child.token,
        copy=child.copy,
        argv=[*map(os.fsencode, spec.argv)],
        shared_variables=spec.shared_variables,
        own_variables=spec.own_variables,
        directory=os.fsencode(spec.directory),
        output=os.fsencode(spec.stdout),
        error=os.fsencode(spec.stderr),
        cpus=place.cpus,
        policy=MODES[place.memory_policy],
        nodes=place.memory_nodes,
        transparent=spec.transparent,
        accepted=(0, *spec.accepted),
        after=child.after,
        flags=flags | (ProcessFlag.REPORTS if spec.workloads else 0),
        offset_ns=child.offset_ns,
    )


def what_is_broken(child: Child, place: Placement, record: Record) -> RaterError | None:
    """Return what a process could not do; None: its program could not be executed."""
    spec, number, stage = child.spec, record.error, StartStep(record.status)
    who, why = f"{child.label}: ", os.strerror(number)
    given = int.from_bytes(record.text, "little")
    match stage:
        case StartStep.EXECUTE:
            child.not_executed = number
            return None
        case StartStep.CPUS | StartStep.CPUS_GIVEN:
            given_cpus = numbers_of(given)
            return cannot_bind_cpus(place, why if stage is StartStep.CPUS else given_cpus, who)
        case StartStep.MEMORY | StartStep.MEMORY_GIVEN:
            policy = KernelPolicy(number, given)
            return cannot_bind_memory(place, why if stage is StartStep.MEMORY else policy, who)
        case StartStep.FORKED:
            return cannot_fork(child.label, number, spec.argv)
    paths = {
        StartStep.OUTPUT: spec.stdout,
        StartStep.ERROR: spec.stderr,
        StartStep.DIRECTORY: spec.directory,
    }
    return cannot_open(child.label, stage.name.lower(), number, paths.get(stage, ""))


# -- Why a process could not begin: in words, with the way out -------------------------------------

_EXEC_ADVICE = {
    errno.ENOENT: "the program, or what its first line names to run it, is not there",
    errno.EACCES: "it may not be executed: `chmod +x`, or its file system is mounted noexec",
    errno.E2BIG: "arguments and variables are longer than the kernel takes: see `getconf ARG_MAX`",
    errno.ENOEXEC: "it is no program for this machine (`file` tells for which it is)",
    errno.ETXTBSY: "somebody writes to it: run it once that is done",
    errno.ENOMEM: "no memory is left",
}


def cannot_execute(number: int, argv: Sequence[str]) -> str:
    """Return why a copy that was released could not be executed, with the way out."""
    why = _EXEC_ADVICE.get(number, "see its file and the limits of this shell")
    return f"could not be executed: {os.strerror(number)} ({command_text(argv)[:120]}): {why}"


def cannot_fork(who: str, number: int, argv: Sequence[str]) -> RaterError:
    """Return the error of a process that does not exist."""
    short = "no memory is left for it"
    if number == errno.EAGAIN:
        short = f"as many processes and threads run as may: {', '.join(_process_limits())}"
    return RunError(
        f"{who} could not be started: {os.strerror(number)} ({command_text(argv)[:120]}): {short}"
    )


def _process_limits() -> Iterator[str]:
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY:
        yield f"`ulimit -u` is {most}"
    for folder, _, name in limiting_groups(Path("/"), "pids"):
        if (most_here := read_number(folder / "pids.max")) is not None:
            yield f"pids.max of cgroup {name} is {most_here}"
    yield f"kernel.pid_max is {read_number(Path('/proc/sys/kernel/pid_max'))}"


def cannot_open(who: str, where: str, number: int, path: str) -> RaterError:
    """Return the error of a process whose directory or files could not be opened."""
    return RunError(
        f"{who} could not be started: {where} {path}: {os.strerror(number)}; make room on "
        "its disk, or see who may write there"
    )

"""What a run needs of this machine, and what its parts share while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rater.plan.evidence import Cadence
from rater.plan.place import Placement
from rater.plan.schedule import Phase, Plan, Step
from rater.record import Event, Validity
from rater.run.evident import GateCheck
from rater.run.guard import Guard
from rater.run.idle import IdleWatch
from rater.run.judge_process import Checker
from rater.run.launch import CopySpec
from rater.run.observe import Observer
from rater.run.readings import MachineReader


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a copy's output once somebody has looked."""

    validity: Validity
    detail: str | None = None  # the first difference, in words
    metrics: tuple[tuple[str, float], ...] = ()  # what the copy reported: name, value


class Workplace(Protocol):
    """Where copies run and how their output is judged; called in worker threads."""

    def specs(self, phase: Phase, stop: Callable[[], bool]) -> dict[tuple[int, int], CopySpec]:
        """Make the run directories; return what to start by (copy, position in its queue).

        Of a phase with a window, whose queues have no end, only for each copy's first run.
        `stop` is asked while set-up commands run: they end when it says so.
        """
        ...

    def spec(self, copy: int, position: int, step: Step, stop: Callable[[], bool]) -> CopySpec:
        """Make what a later run of a copy needs, of a phase with a window."""
        ...

    @property
    def keeps(self) -> bool:
        """Tell whether the files of copies that ended well are kept too."""
        ...

    def expects(self, benchmark: str) -> bool:
        """Tell whether there is an output to compare with."""
        ...

    def uses_checker(self, benchmark: str) -> bool:
        """Tell whether `judge` will want the process that checks: it takes a while to start."""
        ...

    def judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[Judged]:
        """Compare outputs with what is expected, and read what they report.

        `Validity.UNCHECKED` is who was not looked at before the run was stopped.
        """
        ...

    def clear(self, spec: CopySpec) -> None:
        """Remove the files of a copy that ended well (unless they are to be kept)."""
        ...

    def take_notices(self) -> list[str]:
        """Return what a person should know of the above, each thing once."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A plan with everything it needs of this machine."""

    plan: Plan
    placements: tuple[Placement, ...]
    workplace: Workplace
    work: Path  # existing directory for gates; its file system is watched
    timeout_s: float | None = None
    grace_s: float = 5.0
    prepare: str | None = None  # shell command before each phase
    cooldown_s: float = 0.0  # rest between phases
    until_idle: IdleWatch | None = None  # between phases, wait until the machine is as before
    prepare_environment: Mapping[str, str] = field(default_factory=dict)
    output_limit_bytes: int = 1 << 30
    expected_s: Mapping[str, float] = field(default_factory=dict)  # by benchmark, one phase
    elapsed_before_ns: int = 0  # time of the first release: beyond 0 where a run is taken up again
    runs_before: int = 0  # copy runs of the phases that such a run has behind it,
    failed_before: int = 0  # and those of them that failed
    proof: Cadence | None = None  # how often to look where copies run and their memory lies
    own_cpus: bool = False  # rater has CPUs that no copy is on: looks at copies cost them nothing
    suspend: Callable[[], None] = lambda: None  # before Ctrl-Z stops us
    resume: Callable[[], None] = lambda: None


@dataclass
class RunState:
    """Shared by the supervisor and the phase that runs; mutable, of one run."""

    job: Job
    guard: Guard
    emit: Callable[[Event], None]  # gets every event in order, always on the same thread
    stop: Callable[[int | None, str | None], None]  # for a signal, or for a reason
    stop_flag: threading.Event = field(default_factory=threading.Event)
    origin_ns: int | None = None  # CLOCK_MONOTONIC of the run's first release
    gates: GateCheck | None = None  # None: where copies run is not looked at
    observer: Observer | None = None
    reader: MachineReader | None = None

"""What a run needs of this machine, and what its parts share while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rater.plan.placement.place import Placement
from rater.plan.request.request import DEFAULT_CHECK_LIMIT_S
from rater.plan.request.sampling import Cadence
from rater.plan.schedule.phases import Plan
from rater.record.events import Event
from rater.run.check.workplace import Workplace
from rater.run.copies.guard import Guard
from rater.run.counters.counting import CounterSet
from rater.run.host.idle import IdleWatch
from rater.run.observe.counters import MachineReader
from rater.run.observe.gate_check import GateCheck
from rater.run.observe.observer import Observer
from rater.run.page_sizes.proof import PageSetup
from rater.run.supervise.outside import OutsideSignals


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
    check_limit_s: float = DEFAULT_CHECK_LIMIT_S  # for the output of one copy, by the wall clock
    expected_s: Mapping[str, float] = field(default_factory=dict)  # by benchmark, one phase
    elapsed_before_ns: int = 0  # time of the first release: beyond 0 where a run is taken up again
    runs_before: int = 0  # copy runs of the phases that such a run has behind it,
    failed_before: int = 0  # and those of them that failed
    proof: Cadence | None = (
        None  # how often copies are sampled: where they run, and their memory lies
    )
    energy: Path | None = None  # below which the machine's counters of energy are; None: not read
    own_cpus: bool = False  # rater has CPUs that no copy is on: samples cost copies nothing
    counters: CounterSet | None = None  # None: nothing is counted
    pages: PageSetup | None = None  # None: page sizes of copies are not chosen
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
    gates: GateCheck | None = None  # None: where copies run is not checked
    observer: Observer | None = None
    reader: MachineReader | None = None
    outside: OutsideSignals = field(default_factory=OutsideSignals)

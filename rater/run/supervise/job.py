"""A job: a plan with its needs of this machine. The state of its run; the record of one phase."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Protocol

import trio
from msgspec import Struct, field

from rater.plan.options import Cadence
from rater.plan.request import DEFAULT_CHECK_LIMIT_S
from rater.plan.schedule import Phase, Plan, Step
from rater.record.events import (
    CopyEnded,
    CopyStarted,
    Event,
    Noted,
    PhaseEnded,
    PhaseStarted,
)
from rater.record.run import CopyStatus, Placement, Validity, is_from_outside
from rater.record.samples import Samples
from rater.run.host.idle import IdleWatch
from rater.run.launcher.copies import Child, Copy, CopySpec
from rater.run.launcher.guard import Guard
from rater.run.launcher.limits import KernelKills
from rater.run.launcher.table import Record
from rater.run.observe.counters import MachineReader, PhaseCounters
from rater.run.observe.foreign_processes import ForeignReader, PhaseProcesses
from rater.run.observe.observer import Observer
from rater.run.observe.perf import CounterPlan
from rater.run.observe.probe import GateCheck
from rater.run.supervise.ends import CommandReports, ended_event, ended_use, workload_times
from rater.run.workplace.run_dirs import RunFolders
from rater.system.process import STOP_SIGNALS

# -- Signals that killed copies and that rater had not sent: the same may be on its way to rater ---
#
# A scheduler that ends a job signals all of its processes at once (Slurm: SIGTERM, SIGKILL after
# KillWait). Copies may be dead, and their phase closed, before rater hears of the signal: their
# times are no measurement, and a resumed run has to repeat them.

_BELONGS_NS = 2_000_000_000  # a death so shortly before rater's own stop belongs to that
_WAIT_NS = 500_000_000  # a run that is over waits so long for a signal that its copies had
_SHELL = 128  # a shell exits with this number plus the signal that ended its program


class ExternalSignals:
    """Deaths of copies by signals from outside, of the last moments; on the trio thread."""

    def __init__(self) -> None:
        self._last_death_ns: dict[int, int] = {}  # by phase
        self._death_at_gate: tuple[int, str] | None = (
            None  # when, and the reason that the run ended with
        )
        self._stopping_ns: int | None = None  # the last death by a signal that stops rater too

    def note_death(self, phase: int, signal: int | None, exit_code: int | None) -> None:
        """Note how a copy failed that rater had not asked to end."""
        number = signal
        if exit_code is not None and exit_code - _SHELL in (*STOP_SIGNALS, SIGKILL):
            number = exit_code - _SHELL
        if number is not None and is_from_outside(number):
            self._note_signal(number)
            self._last_death_ns[phase] = time.monotonic_ns()

    def note_death_at_gate(self, signal: int | None, reason: str) -> None:
        """Note that a copy died before it was released, and the reason the run ends with."""
        if signal is not None and is_from_outside(signal):
            self._note_signal(signal)
            self._death_at_gate = (time.monotonic_ns(), reason)

    def torn_phases(self) -> tuple[int, ...]:
        """Return the phases that a signal which rater gets now had reached before."""
        now_ns = time.monotonic_ns()
        return tuple(
            phase
            for phase, at_ns in sorted(self._last_death_ns.items())
            if now_ns - at_ns <= _BELONGS_NS
        )

    def explains(self, reason: str | None) -> bool:
        """Tell whether a run that ended for `reason` ended for the signal that rater gets now."""
        if self._death_at_gate is None or self._death_at_gate[1] != reason:
            return False
        return time.monotonic_ns() - self._death_at_gate[0] <= _BELONGS_NS

    def wait_s(self) -> float:
        """Return how long a run that is over should wait for a signal to itself; mostly 0."""
        if self._stopping_ns is None:
            return 0.0
        return max(0, self._stopping_ns + _WAIT_NS - time.monotonic_ns()) / 1e9

    def _note_signal(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._stopping_ns = time.monotonic_ns()


# -- The needs of a run, and the state that its parts share ----------------------------------------


class PageProof(Protocol):
    """Looks at page sizes of the copies of one phase; on the trio thread."""

    @property
    def spent_ns(self) -> int:
        """CPU time of all looks."""

    async def watch(self, children: Mapping[int, Child]) -> None:
        """Look at copies that have begun until cancelled."""

    def ended(self, child: Child, now_ns: int) -> None:
        """Take note of a copy that ended and counts."""

    def close(self) -> Iterable[Event]:
        """Return the page sizes of each copy; called when nothing is timed any more."""


class PageSetup(Protocol):
    """Page sizes that a run's copies are to have."""

    def proof(self, phase: int) -> PageProof:
        """Return the proof of the copies of a phase."""


class IterationsWatch(Protocol):
    """Tells whether the iterations that are done are enough; on the trio thread."""

    def put(self, event: Event) -> None:
        """Take an event of the run."""

    @property
    def iterations(self) -> int | None:
        """The last iteration that was made, once there are enough; None: there are not."""

    def is_over(self) -> bool:
        """Tell whether the run may end before its other iterations."""

    def remark(self) -> str:
        """Return in a sentence why it ended, or did not."""


class Job(Struct, frozen=True, kw_only=True):
    """A plan with everything it needs of this machine."""

    plan: Plan
    placements: tuple[Placement, ...]
    workplace: RunFolders
    work: Path  # existing directory; its file system is watched
    timeout_s: float | None = None
    grace_s: float = 5.0
    prepare: str | None = None  # shell command before each phase
    conclude: str | None = None  # shell command after each phase
    until: IterationsWatch | None = None  # None: all iterations are made
    cooldown_s: float = 0.0  # rest between phases
    until_idle: IdleWatch | None = None  # between phases, wait until the machine is as before
    prepare_environment: Mapping[str, str] = field(default_factory=os.environ.copy)
    output_limit_bytes: int = 1 << 30
    check_limit_s: float = DEFAULT_CHECK_LIMIT_S  # for the output of one copy, by the wall clock
    expected_s: Mapping[str, float] = field(default_factory=dict)  # by benchmark, one phase
    elapsed_before_ns: int = 0  # time of the first release: beyond 0 where a run is taken up again
    runs_before: int = 0  # copy runs of the phases that such a run has behind it,
    failed_before: int = 0  # and those of them that failed
    proof: Cadence | None = None  # how often copies are sampled: where they run, their memory lies
    energy: Path | None = None  # below which the machine's counters of energy are; None: not read
    series: Path | None = None  # below which series of the machine are read; None: there are none
    own_cpus: bool = False  # rater has CPUs that no copy is on: samples cost copies nothing
    counters: CounterPlan | None = None  # None: nothing is counted
    pages: PageSetup | None = None  # None: page sizes of copies are not chosen
    # Gets the files of output of each copy that ended, before they are removed; on any thread.
    show_output: Callable[[CopyEnded, CopySpec], None] = lambda event, spec: None
    suspend: Callable[[], None] = lambda: None  # before Ctrl-Z stops us
    resume: Callable[[], None] = lambda: None


class RunState(Struct, eq=False, kw_only=True):
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
    foreign: ForeignReader | None = None  # None: other processes are not looked at
    outside: ExternalSignals = field(default_factory=ExternalSignals)
    kills: KernelKills = field(default_factory=KernelKills)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Facts that could not be seen on this machine, in words."""
        sources = (self.reader.sources if self.reader is not None else None) or ()
        refused = (source.refused for source in sources if source.refused is not None)
        return (*(self.foreign.unknown if self.foreign is not None else ()), *refused)


# -- The record of one phase: ends of its copies, samples, counters, and the phase's own end -------


class EndedCopy(Struct, frozen=True):
    """A copy that ended, with all that judging its output needs; a filler has no event."""

    event: CopyEnded | None
    step: Step
    spec: CopySpec

    @property
    def is_open(self) -> bool:
        """Tell whether its output is still to be judged."""
        event = self.event
        return event is not None and (event.status, event.validity) == (
            CopyStatus.OK,
            Validity.UNCHECKED,
        )


class PhaseRecord:
    """Emits the events of one phase, and keeps the ends to be judged; on the trio thread."""

    def __init__(self, state: RunState, phase: Phase) -> None:
        placements = state.job.placements
        self._state = state
        self._phase = phase
        self.copies = {
            queue.copy: Copy(number=queue.copy, steps=queue.steps, repeats=bool(phase.window))
            for queue in phase.queues
        }
        self.reports = CommandReports()
        self._ended: list[EndedCopy] = []
        self._interrupted = False
        self._samples = Samples(state.emit, placements)
        pages = state.job.pages
        self._pages = pages.proof(phase.number) if pages is not None else None
        self._counters = (
            PhaseCounters(
                state.reader, phase.number, lambda copy: placements[copy].cpu, [*self.copies]
            )
            if state.reader is not None
            else None
        )
        self._processes = (
            PhaseProcesses(state.foreign, phase.number) if state.foreign is not None else None
        )

    @property
    def origin_ns(self) -> int:
        """Time 0 of the run, of CLOCK_MONOTONIC; only once a copy was released."""
        assert self._state.origin_ns is not None
        return self._state.origin_ns

    def begin(self, head: PhaseStarted) -> None:
        """Emit the phase's begin, and read the counters; all copies wait at their gates."""
        self._state.emit(head)
        self._state.kills.begin_phase(None if self._counters is None else self._counters.begin())

    def watch(self, nursery: trio.Nursery, children: Mapping[int, Child], begin_ns: int) -> None:
        """Start what observes copies and the machine until the last copy has ended.

        `begin_ns`: their release, of CLOCK_MONOTONIC.
        """
        observer = self._state.observer
        if observer is not None:
            nursery.start_soon(observer.run, self._find_orphans, self._samples.take)
            if self._pages is not None:
                nursery.start_soon(self._pages.watch, children)
        if self._counters is not None:
            nursery.start_soon(self._counters.watch, self._running_copies, begin_ns)
            if self._counters.reader.energy is not None:
                nursery.start_soon(self._counters.reader.energy.keep_up)
        if self._processes is not None:
            nursery.start_soon(self._processes.watch, self._running_copies, begin_ns)

    def _find_orphans(self) -> Mapping[int, Sequence[int]]:
        return self._state.guard.orphans(self._living_copies())

    def _living_copies(self) -> dict[int, int]:
        """Return the copies that run or wait at a gate, as far as is known, by process."""
        runs = (run for copy in self.copies.values() for run in (copy.coming, copy.child))
        return {run.pid: run.copy for run in runs if run is not None}

    def _running_copies(self) -> dict[int, int]:
        """Return the copies that run, by process."""
        return {
            copy.child.pid: copy.number for copy in self.copies.values() if copy.child is not None
        }

    def record_start(self, copy: Copy, child: Child, start_ns: int, planned_ns: int | None) -> None:
        """Take the start of a run, and emit it; fillers go without. Of CLOCK_MONOTONIC."""
        if self._state.origin_ns is None:
            self._state.origin_ns = start_ns - self._state.job.elapsed_before_ns
        child.start_ns, child.planned_ns = start_ns, planned_ns
        if child.is_filler:
            return
        run_start_ns = start_ns - self.origin_ns
        copy.start_ns = run_start_ns if copy.start_ns is None else copy.start_ns
        if self._state.observer is not None:
            self._state.observer.started(child)
        self._state.emit(
            CopyStarted(
                phase=child.phase,
                benchmark=child.step.benchmark,
                iteration=child.step.iteration,
                copy=child.copy,
                step=child.position,
                start_ns=run_start_ns,
                planned_start_ns=None if planned_ns is None else planned_ns - self.origin_ns,
            )
        )

    def record_end(self, copy: Copy, child: Child, record: Record) -> CopyStatus:
        """Emit the end of a released copy that counts."""
        workplace = self._state.job.workplace
        workloads = workload_times(
            self.reports.take(child.pid),
            child.spec.workloads,
            (record.start_ns, record.at_ns),
            child.exit_code,
            child.signal,
            accepted=(0, *child.spec.accepted),
            origin_ns=self.origin_ns,
        )
        event = ended_event(
            child,
            self.origin_ns,
            self._state.job.placements[child.copy],
            counted=child.step.iteration > self._state.job.plan.discard,
            kills=self._state.kills,
            expects=workplace.programs[child.step.benchmark].is_judged,
            keeps=workplace.keeps,
            workloads=workloads,
        )
        copy.finish_ns = event.finish_ns
        if self._counters is not None:
            self._counters.copy_ended(child.copy, child.pid, ended_use(record))
        if event.status is CopyStatus.INTERRUPTED:
            self._interrupted = True
        elif event.status is CopyStatus.FAILED and child.stop_reason is None:
            self._state.outside.note_death(event.phase, event.signal, event.exit_code)
        self._ended.append(EndedCopy(event, child.step, child.spec))
        self._samples.ended(child.copy, child.position)
        if self._pages is not None:
            self._pages.ended(child, record.at_ns)
        self._state.emit(event)
        return event.status

    def keep_uncounted(self, child: Child) -> None:
        """Keep a run that does not count, or did not begin, for its files."""
        if child.is_filler and child.end_record is not None and self._counters is not None:
            use = ended_use(child.end_record)
            self._counters.filler_ended(child.copy, use.cpu_ns)
            self._counters.copy_ended(child.copy, child.pid, use)
        self._ended.append(EndedCopy(None, child.step, child.spec))

    def end_counters(self, *, fillers: bool = False) -> None:
        """Read the counters for the last time; `fillers` run on."""
        if self._counters is None:
            return
        running = self._running_copies()
        if not fillers:
            self._counters.end()
        else:
            orphans = self._state.guard.orphans(running)
            self._counters.end_with_fillers(
                running | {pid: copy for copy, pids in orphans.items() for pid in pids}
            )
        if self._processes is not None:
            self._processes.end(running)

    def take_ended(self) -> list[EndedCopy]:
        """Return the copies that have ended since the last call, to be judged."""
        taken, self._ended = self._ended, []
        return taken

    def close(self, window_ns: tuple[int, int] | None, counted: Iterable[Event]) -> None:
        """Emit all that was gathered, and the phase's end; nothing is timed any more.

        `window_ns`: begin and end of the window in the run's time, if there is one and it closed.
        `counted`: events of the counters.
        """
        self._samples.close()
        if self._state.observer is not None:
            parts = (part for part in (self._pages, self._processes) if part is not None)
            self._state.observer.looked_ns += sum(part.spent_ns for part in parts)
        starts = [copy.start_ns for copy in self.copies.values() if copy.start_ns is not None]
        finishes = [copy.finish_ns for copy in self.copies.values() if copy.finish_ns is not None]
        if not starts or not finishes:
            return
        for event in (*counted, *(self._pages.close() if self._pages is not None else ())):
            self._state.emit(event)
        if self._counters is not None:
            for event in (*self._counters.events(), *self._counters.series(self.origin_ns)):
                self._state.emit(event)
            energy = self._counters.reader.energy
            for note in energy.take_notes() if energy else ():
                self._state.emit(Noted(note))
        for process in self._processes.busiest() if self._processes is not None else ():
            self._state.emit(process)
        complete = not self._interrupted and not self._state.stop_flag.is_set()
        self._state.emit(
            PhaseEnded(
                phase=self._phase.number,
                benchmark=self._phase.benchmark,
                iteration=self._phase.iteration,
                tune=None,
                counted=self._phase.counted,
                start_ns=min(starts),
                finish_ns=max(finishes),
                last_start_ns=max(starts),
                first_finish_ns=min(finishes),
                complete=complete and (self._phase.window is None or window_ns is not None),
                window_start_ns=window_ns[0] if window_ns else None,
                window_finish_ns=window_ns[1] if window_ns else None,
            )
        )

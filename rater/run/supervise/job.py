"""What a run needs of this machine and its parts share, and the record of one phase."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Protocol

import trio

from rater.plan.options import Cadence
from rater.plan.request import DEFAULT_CHECK_LIMIT_S
from rater.plan.schedule import Phase, Plan, Window
from rater.process import STOP_SIGNALS
from rater.record.events import Event, Noted, PhaseEnded, PhaseStarted, WorkloadTime
from rater.record.run import CopyStatus, Placement, is_from_outside
from rater.run.copies.counters import CounterPlan
from rater.run.copies.exits import CopyEnding, ended_event
from rater.run.copies.guard import Guard
from rater.run.copies.launch import Child, CopySpec, StartRequest
from rater.run.copies.limits import KernelKills
from rater.run.host.idle import IdleWatch
from rater.run.observe.counters import MachineReader, PhaseCounters
from rater.run.observe.observer import FIRST_S, Observer, ResidentLooks
from rater.run.observe.probe import GateCheck, Samples
from rater.run.workplace.checker import EndedCopy, Workplace

# -- Steady mode's window: which runs count, and when nothing that counts runs any more ------------
#
# A run that began before the window closed counts, by its share inside; it has to
# end for that share to be known. Copies that end before the last of these begin
# once more (fillers), so that it ends under the same load as the others.


class WindowWatch:
    """The window of one phase; on the trio thread, but for `begin` and `is_past`."""

    def __init__(self, window: Window, copies: int) -> None:
        self._window = window
        self._to_warm_up = copies if window.grows else 0  # copies that have not run once
        self._begin_ns: int | None = None  # CLOCK_MONOTONIC of the phase's first release
        self._opens_ns: int | None = None  # None: not known yet
        self.counting = 0  # runs that count and still go
        self.closed = False  # nothing that counts runs any more
        self._spoiled = False

    def begin(self, now_ns: int) -> None:
        """Take the time of a release; the first one of the phase sets the window."""
        if self._begin_ns is None:
            self._begin_ns = now_ns
            if not self._to_warm_up:
                self._opens_ns = now_ns + self._window.warmup_ns

    def is_past(self, now_ns: int) -> bool:
        """Tell whether the window has closed: what starts now does not count."""
        return self._opens_ns is not None and now_ns >= self._opens_ns + self._window.length_ns

    def one_less(self, now_ns: int, *, first: bool) -> bool:
        """Take note that a run (`first`: of its copy) has ended; tell whether it was the last."""
        self.counting -= 1
        self._to_warm_up -= first
        if self._opens_ns is None and not self._to_warm_up and self._begin_ns is not None:
            grown_ns = (now_ns - self._begin_ns) * 3 // 2  # the next runs can be longer
            self._opens_ns = self._begin_ns + max(self._window.warmup_ns, grown_ns)
        return not self.counting and self.is_past(now_ns)

    def suspended(self) -> bool:
        """Take note that copies stood still; tell whether the window says nothing for it."""
        self._spoiled |= self._begin_ns is not None and not self.closed
        return self._spoiled

    def bounds_ns(self, origin_ns: int) -> tuple[int, int] | None:
        """Return begin and end of the window in the run's time.

        None if it did not close, or copies stood still in it.
        """
        if self._spoiled or self._opens_ns is None or not self.is_past(time.monotonic_ns()):
            return None
        opens_ns = self._opens_ns - origin_ns
        return opens_ns, opens_ns + self._window.length_ns

    async def run(self, close: Callable[[], None]) -> None:
        """Call `close` at the window's end if no run that counts goes on then."""
        while not self.is_past(now_ns := time.monotonic_ns()):
            opens_ns = now_ns if self._opens_ns is None else self._opens_ns  # or later
            await trio.sleep(max(0, opens_ns + self._window.length_ns - now_ns) / 1e9)
        if not self.counting and not self.closed:
            close()


# -- Signals that copies died of and rater had not sent: the same one may be on its way to rater ---
#
# A scheduler that ends a job signals all of its processes at once (Slurm: SIGTERM, SIGKILL after
# KillWait). Copies may be dead, and their phase closed, before rater hears of it: what they did
# until then is no measurement, and a resumed run has to do it again.

_BEFORE_NS = 2_000_000_000  # so long before rater's own stop a death belongs to it
_WAIT_NS = 500_000_000  # so long a run that is over waits for a signal that its copies had
_SHELL = 128  # a shell exits with this and the signal that ended its program


class ExternalSignals:
    """Deaths of copies by signals from outside, of the last moments; on the trio thread."""

    def __init__(self) -> None:
        self._phases: dict[int, int] = {}  # when last, by phase
        self._gate: tuple[int, str] | None = None  # when, and why the run ended for it
        self._stopping_ns: int | None = None  # when last by a signal that stops rater too

    def died(self, phase: int, signal: int | None, exit_code: int | None) -> None:
        """Note how a copy failed that rater had not asked to end."""
        number = signal
        if exit_code is not None and exit_code - _SHELL in (*STOP_SIGNALS, SIGKILL):
            number = exit_code - _SHELL
        if number is not None and is_from_outside(number):
            self._note(number)
            self._phases[phase] = time.monotonic_ns()

    def died_at_gate(self, signal: int | None, reason: str) -> None:
        """Note that a copy died before it was released, and the reason the run ends with."""
        if signal is not None and is_from_outside(signal):
            self._note(signal)
            self._gate = (time.monotonic_ns(), reason)

    def torn(self) -> tuple[int, ...]:
        """Return the phases that a signal which rater gets now had reached before."""
        now_ns = time.monotonic_ns()
        return tuple(
            phase for phase, at_ns in sorted(self._phases.items()) if now_ns - at_ns <= _BEFORE_NS
        )

    def explains(self, reason: str | None) -> bool:
        """Tell whether a run that ended for `reason` ended for the signal that rater gets now."""
        if self._gate is None or self._gate[1] != reason:
            return False
        return time.monotonic_ns() - self._gate[0] <= _BEFORE_NS

    def wait_s(self) -> float:
        """Return how long a run that is over should wait for a signal to itself; mostly 0."""
        if self._stopping_ns is None:
            return 0.0
        return max(0, self._stopping_ns + _WAIT_NS - time.monotonic_ns()) / 1e9

    def _note(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._stopping_ns = time.monotonic_ns()


# -- What a run needs of this machine, and what its parts share while it goes on -------------------


class PageProof(Protocol):
    """What looks at page sizes of the copies of one phase; on the trio thread."""

    @property
    def spent_ns(self) -> int:
        """CPU time of all looks."""

    async def watch(self, alive: Mapping[int, Child]) -> None:
        """Look at copies until cancelled."""

    def ended(self, child: Child, now_ns: int) -> None:
        """Take note of a copy that ended and counts."""

    def close(self) -> Iterable[Event]:
        """Return what each copy had; nothing is timed any more."""


class PageSetup(Protocol):
    """Page sizes that a run's copies are to have."""

    def proof(self, phase: int) -> PageProof:
        """Return what looks at the copies of a phase."""


@dataclass(frozen=True, slots=True)
class Job:
    """A plan with everything it needs of this machine."""

    plan: Plan
    placements: tuple[Placement, ...]
    workplace: Workplace
    work: Path  # existing directory; its file system is watched
    timeout_s: float | None = None
    grace_s: float = 5.0
    prepare: str | None = None  # shell command before each phase
    cooldown_s: float = 0.0  # rest between phases
    until_idle: IdleWatch | None = None  # between phases, wait until the machine is as before
    prepare_environment: Mapping[str, str] = field(default_factory=os.environ.copy)
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
    counters: CounterPlan | None = None  # None: nothing is counted
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
    outside: ExternalSignals = field(default_factory=ExternalSignals)


# -- No copy fills the disk: outputs are watched while copies run ----------------------------------

_CHECK_S = 1.0
_RESERVE_BYTES = 64 << 20  # below this much free space the largest writer is stopped
_WORTH_STOPPING_BYTES = 1 << 20
_KEPT_BYTES = 1 << 20  # of a stopped copy's output: enough to see what it was


async def watch_disk(job: Job, alive: Mapping[int, Child]) -> None:
    """Stop a copy that writes more output than allowed, before the disk is full.

    One system call a second while the disk does not shrink by more than the limit.
    """
    free_before = _free_bytes(job)
    while True:
        await trio.sleep(_CHECK_S)
        free = _free_bytes(job)
        full = free < _RESERVE_BYTES
        if not full and free_before - free < job.output_limit_bytes:
            continue
        sizes = sorted(
            ((_output_bytes(it.spec), token, it) for token, it in alive.items()), reverse=True
        )
        for written, _, child in sizes:
            over = written > job.output_limit_bytes
            if child.stopped_for is None and (over or (full and written > _WORTH_STOPPING_BYTES)):
                limit = (
                    f"the limit of {job.output_limit_bytes / 1e6:.0f} MB (--output-limit)"
                    if over
                    else "the disk can hold"
                )
                child.stopped_for = "output"
                child.notes.append(f"wrote {written / 1e6:.0f} MB of output, more than {limit}")
                child.send(signal.SIGKILL)
                _truncate(child.spec)
                full = False


def _free_bytes(job: Job) -> int:
    now = os.statvfs(job.work)
    return now.f_bavail * now.f_frsize


def _output_bytes(spec: CopySpec) -> int:
    total = 0
    for path in (spec.stdout, spec.stderr):
        try:
            total += Path(path).stat().st_blocks * 512
        except OSError:
            continue
    return total


def _truncate(spec: CopySpec) -> None:
    for path in (spec.stdout, spec.stderr):
        try:
            os.truncate(path, min(Path(path).stat().st_size, _KEPT_BYTES))
        except OSError:
            continue


# -- The record of one phase: ends of its copies, samples, counters, and the phase's own end -------


class PhaseRecord:
    """Emits what becomes of one phase, and keeps what is to be judged; on the trio thread."""

    def __init__(self, state: RunState, phase: Phase) -> None:
        placements = state.job.placements
        self._state = state
        self._phase = phase
        self._ended: list[EndedCopy] = []
        self._finishes: dict[int, int] = {}  # last finish by copy
        self._interrupted = False
        self._kills = KernelKills()
        self._samples = Samples(state.emit, placements)
        self._resident = ResidentLooks()
        pages = state.job.pages
        self._pages = pages.proof(phase.number) if pages is not None else None
        self._counters = (
            PhaseCounters(state.reader, phase.number, lambda copy: placements[copy].cpu)
            if state.reader is not None
            else None
        )

    def begin(self, head: PhaseStarted) -> None:
        """Emit the phase's begin, and read the counters; all copies wait at their gates."""
        self._state.emit(head)
        if self._counters is not None:
            self._counters.begin()

    def watch(self, nursery: trio.Nursery, alive: Mapping[int, Child]) -> None:
        """Start what observes copies and the machine until the last copy has ended."""
        if self._state.observer is not None:
            nursery.start_soon(self._observe, alive)
            if not self._state.observer.once:
                nursery.start_soon(self._resident.watch, alive)
            if self._pages is not None:
                nursery.start_soon(self._pages.watch, alive)
        if self._counters is not None:
            nursery.start_soon(self._counters.watch)
            if self._counters.reader.energy is not None:
                nursery.start_soon(self._counters.reader.energy.keep_up)

    async def _observe(self, alive: Mapping[int, Child]) -> None:
        """Sample copies, but leave a phase of short ones alone: not even a thread begins."""
        assert self._state.observer is not None
        await trio.sleep(FIRST_S)
        await self._state.observer.run(lambda: self._orphans(alive), self._samples.take)

    def _orphans(self, alive: Mapping[int, Child]) -> dict[int, list[int]]:
        """Return the processes that running copies left without a parent, by copy."""
        return self._state.guard.orphans({it.pid: it.copy for it in alive.values()})

    def ended(
        self,
        child: Child,
        ending: CopyEnding,
        origin_ns: int,
        workloads: tuple[WorkloadTime, ...],
    ) -> CopyStatus:
        """Emit the end of a released copy that counts; times are of CLOCK_MONOTONIC."""
        workplace = self._state.job.workplace
        event = ended_event(
            child,
            ending,
            self._phase.number,
            origin_ns,
            kills=self._kills,
            expects=workplace.expects(child.step.benchmark),
            keeps=workplace.keeps,
            workloads=workloads,
            memory=self._resident.ended(child),
        )
        self._finishes[child.copy] = event.finish_ns
        if event.status is CopyStatus.INTERRUPTED:
            self._interrupted = True
        elif event.status is CopyStatus.FAILED and child.stopped_for is None:
            self._state.outside.died(event.phase, event.signal, event.exit_code)
        self._ended.append(EndedCopy(event, child.step, child.spec))
        self._samples.ended(child)
        if self._pages is not None:
            self._pages.ended(child, ending.record.at_ns)
        self._state.emit(event)
        return event.status

    def uncounted(self, child: Child, ending: CopyEnding | None = None) -> None:
        """Keep a run that does not count, for its files; `ending`: it was a filler."""
        self._resident.ended(child)
        if ending is not None and self._counters is not None:
            used_ns = ending.record.user_ns + ending.record.system_ns
            self._counters.filler_ended(child.copy, used_ns)
        self._ended.append(EndedCopy(None, child.step, child.spec))

    def unused(self, request: StartRequest) -> None:
        """Keep what was made for a run that does not begin."""
        self._ended.append(EndedCopy(None, request.step, request.spec))

    def end_counters(self, alive: Mapping[int, Child] | None = None) -> None:
        """Read the counters for the last time; `alive`: while these fillers still run."""
        if self._counters is None:
            return
        if alive is None:
            self._counters.end()
            return
        running = {child.pid: child.copy for child in alive.values()}
        orphans = {pid: copy for copy, pids in self._orphans(alive).items() for pid in pids}
        self._counters.end_with_fillers(running | orphans)

    def take_ended(self) -> list[EndedCopy]:
        """Return what has ended since the last call, to be judged."""
        taken, self._ended = self._ended, []
        return taken

    def close(
        self,
        starts: Mapping[int, int],
        window_ns: tuple[int, int] | None,
        counted: Iterable[Event],
    ) -> None:
        """Emit what was gathered, and the phase's end; nothing is timed any more.

        `starts`: first starts by copy; `window_ns`: the window in the run's time, None
        where it did not close or there is none; `counted`: what counters came to.
        """
        self._samples.close()
        if self._state.observer is not None:
            self._state.observer.looked_ns += self._resident.spent_ns
            if self._pages is not None:
                self._state.observer.looked_ns += self._pages.spent_ns
        if not starts or not self._finishes:
            return
        for one in counted:
            self._state.emit(one)
        if self._pages is not None:
            for had in self._pages.close():
                self._state.emit(had)
        if self._counters is not None:
            for event in self._counters.events():
                self._state.emit(event)
            for note in self._counters.reader.energy_notes():
                self._state.emit(Noted(note))
        complete = not self._interrupted and not self._state.stop_flag.is_set()
        self._state.emit(
            PhaseEnded(
                phase=self._phase.number,
                benchmark=self._phase.benchmark,
                iteration=self._phase.iteration,
                counted=self._phase.counted,
                start_ns=min(starts.values()),
                finish_ns=max(self._finishes.values()),
                last_start_ns=max(starts.values()),
                first_finish_ns=min(self._finishes.values()),
                complete=complete and (self._phase.window is None or window_ns is not None),
                window_start_ns=window_ns[0] if window_ns else None,
                window_finish_ns=window_ns[1] if window_ns else None,
            )
        )

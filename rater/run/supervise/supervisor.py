"""One run: phase after phase, signals, and the events of what happened.

The supervisor sleeps while copies run. It wakes for an ending copy, a signal,
a time limit, and once a second to see that no copy fills the disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import batched

import trio
from msgspec import Struct

from rater.plan.schedule import Phase
from rater.record.events import (
    CopyEnded,
    Event,
    Noted,
    OutputChecked,
    PhaseStarted,
    PhaseTorn,
    Resting,
    RunEnded,
)
from rater.record.run import CopyStatus, RunStatus, Validity, escape_undecodable
from rater.run.host.idle import cool_down
from rater.run.host.thread_binding import realtime_priority
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.guard import PREPARED, Guard, Leftover
from rater.run.observe.counters import MachineReader
from rater.run.observe.energy import EnergyReader
from rater.run.observe.foreign_processes import ForeignReader
from rater.run.observe.observer import Observer
from rater.run.observe.probe import GateCheck
from rater.run.observe.series import machine_sources
from rater.run.supervise.job import EndedCopy, Job, RunState
from rater.run.supervise.phase import PhaseRun
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import CheckResult
from rater.system.errors import RaterError, RunError
from rater.system.process import DeferredSignals
from rater.text.secrets import Redactor
from rater.text.values import ending_text, signal_name

# A thread that holds the interpreter (drawing, SQLite) must not delay a time stamp by the default
# of 5 ms: it lets another thread in after so long.
_SWITCH_INTERVAL_S = 0.0005
_MOST_LEFTOVERS_NAMED = 8


@contextmanager
def _quick_switches() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def _machine_reader(job: Job) -> MachineReader:
    energy = EnergyReader(job.energy) if job.energy is not None else None
    return MachineReader(energy=energy, sources=machine_sources(job.series))


class Outcome(Struct, frozen=True):
    """How a run ended."""

    status: RunStatus
    reason: str | None
    signal: int | None


class Supervisor:
    """Runs one `Job`; `emit` gets every event in order, always on the same thread.

    `signals` are held as long as it runs: the first that came stops the run, whenever that was.
    """

    def __init__(
        self, job: Job, guard: Guard, emit: Callable[[Event], None], signals: DeferredSignals
    ) -> None:
        self._state = RunState(job=job, guard=guard, emit=emit, stop=self.stop)
        if job.proof is not None:
            self._state.gates = GateCheck(job.placements, emit)
            self._state.observer = Observer(
                job.proof, spread=not job.own_cpus, adopter=guard.launcher.pid
            )
            if not job.proof.once:
                self._state.foreign = ForeignReader((os.getpid(), guard.launcher.pid))
            self._state.reader = _machine_reader(job)
        self._job = job
        self._emit = emit
        self._signals = signals
        self._stopped_by: int | None = None
        self._signalled = trio.Event()
        self._failure: str | None = None
        self._checker = Checker(guard.helpers, self._state.stop_flag.is_set, job.check_limit_s)
        self._judge = Judge(job, emit, self._checker)
        self._nursery: trio.Nursery | None = None
        self._phase: PhaseRun | None = None
        self._waiting: trio.CancelScope | None = None
        self._suspended: str | None = None
        self._suspensions = 0  # of ours, of which the SIGCONT has not been read
        self._token: trio.lowlevel.TrioToken | None = None

    # -- the run ------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Run all phases; never raises for what a copy does."""
        self._token = token = trio.lowlevel.current_trio_token()
        with (
            _quick_switches(),
            closing(self._job.workplace.spare_outputs),
            nullcontext() if self._state.reader is None else closing(self._state.reader),
            self._signals.deliver_to(partial(self.stop, reason=None), token.run_sync_soon),
            realtime_priority(),
            self._checker,
        ):
            await self._run_phases()
        outcome = self._outcome()
        if self._state.observer is not None:
            self._emit(self._state.observer.report(self._state.unknown))
        until = self._job.until
        self._emit(RunEnded(outcome.status, outcome.reason, until.iterations if until else None))
        return outcome

    async def _run_phases(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._watch_ctrl_z)
            nursery.start_soon(
                self._state.guard.tend_launcher, lambda text: self._emit(Noted(text))
            )
            try:
                await self._take_baseline()
                for position, phase in enumerate(self._job.plan.phases):
                    if position:
                        await self._cool_down()
                    if self._state.stop_flag.is_set():
                        break
                    await self._run_phase(phase)
                    if self._job.until is not None and self._job.until.is_over():
                        break
            except RaterError as error:
                self._failure = self._failure or str(error)
            wait_s = self._state.outside.wait_s()
            if wait_s and self._stopped_by is None:
                with trio.move_on_after(wait_s):
                    await self._signalled.wait()
            nursery.cancel_scope.cancel()

    async def _take_baseline(self) -> None:
        if self._job.until_idle is not None and len(self._job.plan.phases) > 1:
            with self._stoppable():
                for remark in await self._job.until_idle.take_baseline():
                    self._emit(Noted(remark))

    async def _cool_down(self) -> None:
        if self._job.cooldown_s:
            self._emit(Resting(f"cooling down for {self._job.cooldown_s:g} s"))
        with self._stoppable():
            note = await cool_down(
                self._job.cooldown_s,
                self._job.until_idle,
                report=lambda text: self._emit(Resting(text)),
            )
            if note:
                self._emit(Noted(note))

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Let `stop` end at once all that is awaited in this context."""
        with trio.CancelScope() as self._waiting:
            if self._state.stop_flag.is_set():
                self._waiting.cancel()
            yield
        self._waiting = None

    def _outcome(self) -> Outcome:
        if self._failure is not None:
            return Outcome(RunStatus.FAILED, self._failure, None)
        if self._stopped_by is not None:
            name = signal_name(self._stopped_by)
            return Outcome(RunStatus.INTERRUPTED, f"stopped by {name}", self._stopped_by)
        if self._suspended is not None:
            return Outcome(RunStatus.INTERRUPTED, self._suspended, None)
        if self._judge.failed_copies:
            return Outcome(
                RunStatus.FAILED, _describe_failures(self._job, self._judge.failed_copies), None
            )
        return Outcome(RunStatus.COMPLETE, None, None)

    async def _run_phase(self, phase: Phase) -> None:
        if self._job.prepare is not None:
            await self._run_command("--prepare", self._job.prepare)
        workplace = self._job.workplace
        takes_time = workplace.takes_time(phase)
        make_specs = partial(workplace.specs, phase, self._state.stop_flag.is_set)
        specs = await trio.to_thread.run_sync(make_specs) if takes_time else make_specs()
        if self._state.stop_flag.is_set():
            return
        await self._judge.prepare(phase)
        self._emit_notices()
        self._phase = phase_run = PhaseRun(self._state, phase, specs)
        over, done = trio.Event(), trio.Event()
        if phase.window is not None:
            assert self._nursery is not None
            self._nursery.start_soon(
                self._judge.judge_as_they_end, partial(self._take_ended, phase_run), over, done
            )
        else:
            done.set()
        try:
            await phase_run.run(_phase_head(self._job, phase))
        finally:
            self._phase = None
            over.set()
        for note in _leftover_notes(self._state.guard.kill_leftovers(), phase):
            self._emit(note)
        await done.wait()
        await self._judge.judge(phase_run.record.take_ended(), in_thread=takes_time)
        self._judge.clear_lasting_files()
        self._emit_notices()
        if self._job.conclude is not None and not self._state.stop_flag.is_set():
            await self._run_command("--conclude", self._job.conclude)

    def _emit_notices(self) -> None:
        for notice in self._job.workplace.take_notices():
            self._emit(Noted(notice))

    def _take_ended(self, phase_run: PhaseRun) -> list[EndedCopy]:
        """Return the copies that have ended; their orphans are killed now, not with the phase."""
        self._state.guard.kill_strays(phase_run.living_pids())
        return phase_run.record.take_ended()

    async def _run_command(self, option: str, command: str) -> None:
        """Run the user's command before or after a phase; not timed, its output goes to stderr."""
        with self._stoppable():
            environment = {**self._job.prepare_environment, "RATER_COPY": PREPARED}
            status = await _run_in_group(command, environment)
            if status and not self._state.stop_flag.is_set():
                raise _command_error(option, command, status)

    # -- stopping -----------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Stop the run because it can not go on (thread-safe)."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(partial(self.stop, None, reason))

    def stop(self, number: int | None, reason: str | None) -> None:
        """Stop for a signal or a reason; a second time, at once (trio thread only)."""
        again = self._state.stop_flag.is_set()
        self._failure = self._failure or reason
        if number is not None and self._stopped_by is None:
            self._stopped_by = number
            self._signalled.set()
            self._tear_phases_reached_before()
        self._state.stop_flag.set()
        if self._phase is not None:
            if again:
                self._phase.kill_all(last=True)
            else:
                self._phase.begin_stop()
        if self._waiting is not None:
            self._waiting.cancel()

    def _tear_phases_reached_before(self) -> None:
        """Mark phases whose copies died of the signal that stops us, before we heard of it."""
        outside = self._state.outside
        if outside.explains(self._failure):
            self._failure = None
        for phase in outside.torn_phases():
            self._emit(PhaseTorn(phase))
            self._emit(
                Noted(
                    f"copies of phase {phase} had died of a signal from outside just before rater "
                    "was stopped: they are taken as stopped with it, and `--resume` repeats them"
                )
            )

    async def _watch_ctrl_z(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTSTP, signal.SIGCONT) as arrivals:
            task_status.started()
            async for number in arrivals:
                if number == signal.SIGTSTP:
                    self._suspend()
                elif self._suspensions:
                    self._suspensions -= 1
                else:
                    self._emit(Noted("rater itself was stopped from outside and let go on"))

    def _suspend(self) -> None:
        """On Ctrl-Z: stop the copies, then ourselves; later go on together, and mark the run."""
        if self._phase is not None:
            self._phase.signal_all(signal.SIGSTOP)
        self._job.suspend()
        self._suspensions += 1
        begin_ns = time.monotonic_ns()
        os.kill(os.getpid(), signal.SIGSTOP)
        pause_s = (time.monotonic_ns() - begin_ns) / 1e9
        if self._phase is not None and self._phase.resume(pause_s):
            self._suspended = "suspended (Ctrl-Z) inside a window, which says nothing of a rate"
        self._job.resume()
        self._emit(
            Noted(
                f"suspended (Ctrl-Z) for {pause_s:.1f} s while copies ran: "
                "their times include the pause"
            )
        )


def _describe_failures(job: Job, failed: int) -> str:
    plan = job.plan
    if plan.window is not None:  # how many runs there are is the result, not the plan
        return f"{failed} copy {'run' if failed == 1 else 'runs'} failed"
    ahead = sum(len(queue.steps) for phase in plan.phases for queue in phase.queues)
    total = job.runs_before + ahead
    if total == plan.copies:
        return f"{failed} {'copy' if failed == 1 else 'copies'} failed"
    return f"{failed} of {total} copy runs failed"


def _phase_head(job: Job, phase: Phase) -> PhaseStarted:
    window = phase.window
    return PhaseStarted(
        phase=phase.number,
        benchmark=phase.benchmark,
        iteration=phase.iteration,
        counted=phase.counted,
        total_phases=len(job.plan.phases),
        expected_s=_expected_s(job, phase),
        window_ns=None if window is None else (window.warmup_ns, window.end_ns),
    )


def _expected_s(job: Job, phase: Phase) -> float | None:
    if phase.window is not None:
        return phase.window.end_ns / 1e9
    names = [step.benchmark for step in phase.queues[0].steps]
    if not all(name in job.expected_s for name in names):
        return None
    return sum(job.expected_s[name] for name in names) + phase.queues[-1].offset_ns / 1e9


def _leftover_notes(leftovers: Sequence[Leftover], phase: Phase) -> Iterator[Noted]:
    """Name processes that copies of a phase left behind: all that live, the first few dead ones."""
    benchmark = phase.benchmark or "the ring"
    dead = [leftover for leftover in leftovers if leftover.killed]
    for leftover in (
        *(leftover for leftover in leftovers if not leftover.killed),
        *dead[:_MOST_LEFTOVERS_NAMED],
    ):
        owner = "a copy" if leftover.copy is None else f"copy {leftover.copy}"
        owner = PREPARED if leftover.copy == PREPARED else f"{owner} of {benchmark}"
        outcome = (
            "it was killed"
            if leftover.killed
            else f"it could not be killed: `sudo kill -9 {leftover.pid}`"
        )
        yield Noted(f"{owner} left process {leftover.pid} ({leftover.command}) behind; {outcome}")
    unnamed = len(dead) - _MOST_LEFTOVERS_NAMED
    if unnamed > 0:
        processes = "process was" if unnamed == 1 else "processes were"
        yield Noted(
            f"{unnamed} more {processes} left behind in the phase of {benchmark} and killed"
        )


def _command_error(option: str, command: str, status: int) -> RunError:
    return RunError(
        f"{option} {Redactor().redact(command)!r} {ending_text(status)}: no copy was "
        "started after it; mend the command or leave it out"
    )


async def _run_in_group(command: str, environment: Mapping[str, str]) -> int:
    """Run a shell command in a process group of its own, killed when cancelled."""

    async def kill_group(process: trio.Process) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()

    completed = await trio.run_process(
        command,
        shell=True,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=2,
        env=dict(environment),
        process_group=0,
        deliver_cancel=kill_group,
    )
    return completed.returncode


# -- Ended copies: outputs compared, reports read, files cleared, while no copy is timed -----------

_GATHER_S = 0.5  # between two looks at copies that have ended in a window
_JUDGED_TOGETHER = (
    32  # copies checked together: it spares waiting for a full machine between any two
)


class Judge:
    """Judges ended copies, emits the verdicts, and counts the copies that failed."""

    def __init__(
        self,
        job: Job,
        emit: Callable[[Event], None],
        checker: Checker,
    ) -> None:
        self._workplace = job.workplace
        self._phases = job.plan.phases
        self._may_reuse = False  # files of output serve later runs
        self._show_output = job.show_output
        self._emit = emit
        self._checker = checker
        self.failed_copies = job.failed_before
        self._lasting: dict[str, tuple[CopySpec, bool]] = {}  # by output; whether all was well

    async def prepare(self, phase: Phase) -> None:
        """Start the process that checks outputs, if there will be outputs to check."""
        is_last = phase.number == self._phases[-1].number
        self._may_reuse = phase.window is not None or not is_last
        names = {step.benchmark for queue in phase.queues for step in queue.steps}
        if any(self._workplace.programs[name].rules for name in names):
            await trio.to_thread.run_sync(self._checker.start)

    async def judge(self, ended: list[EndedCopy], *, in_thread: bool = True) -> None:
        """Judge ended copies; emit the verdicts in the order of `ended`.

        `in_thread`: signals and other tasks go on meanwhile.
        """
        for batch in batched(ended, _JUDGED_TOGETHER):
            judge = partial(self._judge, batch)
            verdicts = await trio.to_thread.run_sync(judge) if in_thread else judge()
            await trio.lowlevel.checkpoint()  # a signal is heard between any two batches
            for ended_copy, check in zip(batch, verdicts, strict=True):
                if ended_copy.event is not None:
                    self._report(ended_copy.event, ended_copy.spec, check)

    async def judge_as_they_end(
        self, take: Callable[[], list[EndedCopy]], over: trio.Event, done: trio.Event
    ) -> None:
        """Judge the copies that `take` returns, twice a second, until `over`; then set `done`.

        For phases that repeat their runs: files that are not cleared in time fill the disk.
        """
        while not over.is_set():
            with trio.move_on_after(_GATHER_S):
                await over.wait()
            await self.judge(take())
        done.set()

    def _report(self, event: CopyEnded, spec: CopySpec, check: CheckResult) -> None:
        is_invalid = check.validity is Validity.INVALID
        if check.validity is not event.validity or check.metrics:
            self._emit(
                OutputChecked(
                    phase=event.phase,
                    benchmark=event.benchmark,
                    iteration=event.iteration,
                    copy=event.copy,
                    step=event.step,
                    validity=check.validity,
                    detail=check.detail,
                    run_dir=escape_undecodable(spec.files) if is_invalid else event.run_dir,
                    metrics=check.metrics,
                )
            )
        if is_invalid or event.status is not CopyStatus.OK:
            self.failed_copies += 1

    def _judge(self, batch: Sequence[EndedCopy]) -> list[CheckResult]:
        to_check = [
            (ended_copy.step, ended_copy.spec) for ended_copy in batch if ended_copy.is_open
        ]
        checks = iter(self._workplace.judge(to_check, self._checker))
        verdicts = []
        for ended_copy in batch:
            validity = Validity.UNCHECKED if ended_copy.event is None else ended_copy.event.validity
            check = next(checks) if ended_copy.is_open else CheckResult(validity)
            if ended_copy.event is not None:
                self._show_output(ended_copy.event, ended_copy.spec)
            # Files that explain a failure stay.
            status = ended_copy.event.status if ended_copy.event else CopyStatus.INTERRUPTED
            is_well = status is CopyStatus.OK and check.validity is not Validity.INVALID
            all_of_it = is_well or status is CopyStatus.INTERRUPTED
            spec = ended_copy.spec
            if spec.has_lasting_files:  # the next run but one of the copy may write there by now
                _, was_well = self._lasting.get(spec.output, (spec, True))
                self._lasting[spec.output] = (spec, was_well and all_of_it)
            else:
                self._workplace.clear(spec, all_of_it=all_of_it, may_reuse=self._may_reuse)
            verdicts.append(check)
        return verdicts

    def clear_lasting_files(self) -> None:
        """Clear files that served many runs of a copy: no copy runs any more."""
        for spec, was_well in self._lasting.values():
            self._workplace.clear(spec, all_of_it=was_well, may_reuse=self._may_reuse)
        self._lasting.clear()

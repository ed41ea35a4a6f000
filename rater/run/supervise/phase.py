"""One phase, by the records of the launcher: copies wait at the gate, are released, and end.

A phase only writes down what happened. Outputs of copies are judged later, by
`supervisor.Judge`, so that no check runs beside a copy that is timed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import trio

from rater.plan.schedule import Phase
from rater.record.events import Event, Noted, PhaseStarted
from rater.record.run import CopyStatus
from rater.run.host.procfs import read_text, status_of
from rater.run.launcher.child_state import IllegalMoveError, Move, can_move, move_of
from rater.run.launcher.copies import Child, Copy, CopySpec, StopReason
from rater.run.launcher.launcher import LauncherDiedError
from rater.run.launcher.limits import raise_limit
from rater.run.launcher.start_errors import start_error
from rater.run.launcher.table import ProcessFlag, Record, RecordKind, RequestKind, StartStep
from rater.run.observe.perf import PhaseCounting
from rater.run.supervise.ends import describe_exit, lateness_ns, suspended_ns
from rater.run.supervise.job import PhaseRecord, RunState
from rater.run.supervise.next_runs import PhaseCopies
from rater.run.supervise.stopping import Stopper, WindowWatch, free_traced, watch_disk

# -- A phase from its first fork to its last end ---------------------------------------------------

_TEND_S = 1.0  # between two looks at whether the launcher was stopped from outside


class PhaseRun:
    """Runs one phase of a run, on the trio thread; `record` has the ends that are to be judged."""

    def __init__(
        self, state: RunState, phase: Phase, specs: dict[tuple[int, int], CopySpec]
    ) -> None:
        job = state.job
        self._state = state
        self._launcher = state.guard.launcher
        self._window = WindowWatch(phase.window, len(phase.queues)) if phase.window else None
        self._counting = None
        if job.counters:
            raise_limit(len(job.placements), job.counters.most_events)
            self._counting = PhaseCounting(job.counters, phase.number, state.emit)
        first_flags = ProcessFlag(0) if state.gates is None else ProcessFlag.PROOF
        later_flags = first_flags | (ProcessFlag.WELL if self._window else 0)
        later_flags |= ProcessFlag.HELD if self._counting else 0
        self.record = PhaseRecord(state, phase)
        self._copies = PhaseCopies(
            state, phase, specs, self.record, first_flags=first_flags, later_flags=later_flags
        )
        self._children = self._copies.children
        self._stopper = Stopper(job, self._children, self._give_up, self._copies.end_repeating)
        self._pauses = Pauses()
        self._released = False

    # -- from start to end ----------------------------------------------------------------------

    async def run(self, head: PhaseStarted) -> None:
        """Run the phase to its end."""
        counted: Iterable[Event] = ()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_records)
                # From the first fork on, as the launcher may be stopped while it forks.
                nursery.start_soon(self._tend_launcher)
                await self._release_and_wait(head, nursery)
            self.record.end_counters()
        except* (LauncherDiedError, IllegalMoveError) as errors:
            self._state.stop(None, str(errors.exceptions[0]))
        finally:
            with trio.CancelScope(shield=True):
                await self._end_all()
            counted = self._counting.close() if self._counting else ()
        bounds_ns = self._window.bounds_ns(self._state.origin_ns or 0) if self._window else None
        self.record.close(bounds_ns, counted)
        for note in self._pauses.notes():
            self._state.emit(note)

    async def _release_and_wait(self, head: PhaseStarted, nursery: trio.Nursery) -> None:
        await self._copies.fork_first()
        await self._copies.all_at_gates.wait()
        if self._state.gates is not None:
            self._state.gates.check(self._children.values())
        if self._counting is not None:
            await self._counting.count([*self._children.values()])
        if self._state.stop_flag.is_set():
            nursery.cancel_scope.cancel()
            return
        self.record.begin(head)
        self._start_watching(nursery)
        self._launcher.ask(RequestKind.RELEASE)
        self._released = True
        with self._copies.until_over:
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()

    def _start_watching(self, nursery: trio.Nursery) -> None:
        """Start what goes on beside the copies until the last of them has ended."""
        nursery.start_soon(self._stopper.run)
        nursery.start_soon(watch_disk, self._state.job, self._children, self._stopper.kill)
        nursery.start_soon(free_traced, self._children, self._state.guard)
        if self._window is not None:
            nursery.start_soon(self._window.run, self._close_window)
        if self._copies.has_followers:
            nursery.start_soon(self._copies.make_next)
            if self._counting is not None:
                nursery.start_soon(self._counting.run)
        self.record.watch(nursery, self._children)

    async def _tend_launcher(self) -> None:
        while True:
            await trio.sleep(_TEND_S)
            self._launcher.flush()
            trouble = self._launcher.continue_if_stopped()
            if trouble is not None:
                self._state.emit(Noted(trouble))

    async def _end_all(self) -> None:
        """Kill the runs that were not waited for, and take their ends, which do not count."""
        self._launcher.ask(RequestKind.DISCARD)
        self.signal_all(signal.SIGKILL)
        with trio.move_on_after(_TEND_S), suppress(LauncherDiedError):
            while self._children:
                for record in await self._launcher.receive():
                    if record.kind == RecordKind.ENDED:
                        self._children.pop(record.token, None)
        self._children.clear()

    # -- records of the launcher ------------------------------------------------------------------

    async def _take_records(self) -> None:
        while True:
            for record in await self._launcher.receive():
                self._take_record(record)
            pids = [child.pid for child in self._children.values()]
            if not self._released and pids and all(pids):
                self._copies.all_at_gates.set()
            if self.record.reports.flooded and not self._state.stop_flag.is_set():
                self._state.stop(
                    None,
                    "a copy floods the pipe by which scripts report when their commands end "
                    "(descriptor 9 of its script): no time is to be had with that",
                )

    def _take_record(self, record: Record) -> None:
        """Change the phase by one record; raises `IllegalMoveError` before anything is changed."""
        match record.kind:
            case RecordKind.REPORT:
                self.record.reports.read(record.text, record.at_ns)
            case RecordKind.STALLED:
                self._pauses.stalls_ns.append(record.at_ns)
            case RecordKind.RELEASED:
                self._note_release(record.at_ns)
            case _:
                child = self._children.get(record.token)
                if child is not None:  # else it was given up, or ended with the run
                    self._take_record_of(child, record)

    def _take_record_of(self, child: Child, record: Record) -> None:
        move = move_of(record)
        if move is not None:
            child.move(move)
        match record.kind:
            case RecordKind.READY:
                self._note_process(child, record.pid)
                if child.after and self._counting is not None:
                    self._counting.hold(child)
            case RecordKind.STARTED:
                self._note_process(child, record.pid)
                self._note_start(child, record.start_ns, record.planned_ns or None)
            case RecordKind.BROKEN:
                self._note_broken(child, record)
            case RecordKind.REFUSED:
                self._give_up(child, of_another=True)
            case RecordKind.ENDED:
                self._note_end(child, record)

    def _note_process(self, child: Child, pid: int) -> None:
        if not child.pid:
            child.pid = pid
            self._state.guard.groups.add(pid)
            if child.spec.workloads:
                self.record.reports.expect(pid, child.spec.workloads)

    def _note_release(self, at_ns: int) -> None:
        """Take the start of all that waited at the gate of all; those with an offset follow."""
        for child in self._children.values():
            if not child.offset_ns:
                child.move(Move.START)
                self._note_start(child, at_ns, at_ns)

    def _note_broken(self, child: Child, record: Record) -> None:
        if record.pid and record.status == StartStep.EXECUTE:  # it fails, the others run on
            child.remarks.exec_errno = record.error
            return
        never_forked = []
        if not record.pid:  # the launcher leaves a table at the first process that it cannot fork
            behind = [other for other in self._children.values() if other.token > child.token]
            for other in behind:
                other.move(Move.FORK_FAILED)
            never_forked = [(run, self._copies.remove(run)) for run in (child, *behind)]
        place = self._state.job.placements[child.copy]
        self._state.stop(None, str(start_error(child, place, record)))
        for run, copy in never_forked:
            self._note_never_began(run, copy)

    def _note_start(self, child: Child, start_ns: int, planned_ns: int | None) -> None:
        copy = self._copies.copies[child.copy]
        copy.child, copy.latest, copy.coming = child, child, None
        child.is_filler = self._window is not None and self._window.note_start(start_ns)
        self.record.record_start(copy, child, start_ns, planned_ns)
        if not child.is_filler:
            self._stopper.hold_to_time_limit(child)
        if child.after and self._state.gates is not None:
            self._state.gates.check([child])
        self._copies.continue_copy(copy)
        if self._window is not None and self._window.closed:
            self._stopper.kill(child)
        elif self._state.stop_flag.is_set():  # it began before the launcher read DISCARD
            child.stop_reason = StopReason.STOP
            self._stopper.ask_to_end(child)

    def _note_end(self, child: Child, record: Record) -> None:
        child.end_record, child.pid = record, record.pid
        copy = self._copies.remove(child)
        if self._state.observer is not None:
            self._state.observer.ended(child)
        if self._counting is not None:
            self._counting.ended(child, counts=child.has_begun and not child.is_filler)
        if not child.has_begun:
            self._note_never_began(child, copy)
            return
        if not self._record_end(copy, child, record):
            # It would only fail again, perhaps a thousand times a second.
            self._copies.end_repeating(child)
        self._copies.continue_copy(copy)

    def _record_end(self, copy: Copy, child: Child, record: Record) -> bool:
        """Record the end of a run that had begun; tell whether the next one is worth to begin."""
        if child.is_filler:
            self.record.keep_uncounted(child)
            return child.ended_well
        child.remarks.late_ns = lateness_ns(record) if record.stalled_ns else None
        status = self.record.record_end(copy, child, record)
        first = child.position == 0
        if self._window is not None and self._window.note_end(record.at_ns, first=first):
            self._close_window()
        # A late stamp is the launcher's failure, not the benchmark's.
        only_late = child.remarks.late_ns is not None and child.ended_well
        return status is CopyStatus.OK or only_late

    def _note_never_began(self, child: Child, copy: Copy) -> None:
        self.record.keep_uncounted(child)
        if copy.child is not None:  # its end has the next run made
            return
        if child.end_record is not None and not self._copies.begins_no_more(copy):
            why = describe_exit(child)
            reason = f"{child.label} ended at the gate, before it was released ({why})"
            self._state.outside.note_death_at_gate(child.signal, reason)
            self._state.stop(None, reason)
        self._copies.continue_copy(copy)

    # -- ending copies early ----------------------------------------------------------------------

    def begin_stop(self) -> None:
        """SIGTERM now, SIGKILL after the grace; copies still at the gate never start."""
        self._copies.all_at_gates.set()
        self._launcher.ask(RequestKind.DISCARD)
        for child in [*self._children.values()]:
            child.stop_reason = child.stop_reason or StopReason.STOP
            if child.has_begun:
                self._stopper.ask_to_end(child)

    def resume(self, pause_s: float) -> bool:
        """Let stopped copies go on, their time limits later; tell whether the window is spoiled."""
        self._stopper.pause(pause_s)
        self.signal_all(signal.SIGCONT)
        return self._window is not None and self._window.note_suspension()

    def signal_all(self, signal_number: int) -> None:
        """Send a signal to every living copy."""
        for child in self._children.values():
            child.send(signal_number)

    def kill_all(self, *, last: bool = False) -> None:
        """Kill every living copy; `last`: a copy that does not die of it is soon given up."""
        for child in [*self._children.values()]:
            self._stopper.kill(child, last=last)

    def living_pids(self) -> set[int]:
        """Return the processes of copies."""
        return {child.pid for child in self._children.values()}

    def _close_window(self) -> None:
        """Nothing that counts runs any more: end the fillers, which only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        self.record.end_counters(fillers=True)
        for copy in self._copies.copies.values():
            copy.is_last = True
        self.kill_all()

    def _give_up(self, child: Child, *, of_another: bool = False) -> None:
        """Go on without a copy that rater cannot end: the run ends, the copy does not."""
        may_free = can_move(child.state, Move.FREE)
        if may_free and self._state.guard.kill_orphans(child.pid, child.copy):
            child.move(Move.FREE)  # one of its descendants may have traced it
            self._stopper.kill_freed(child)
            return
        child.move(Move.GIVE_UP)
        copy = self._copies.remove(child)
        self._state.guard.immune.add(child.pid)
        self._state.stop(None, _describe_immortal(child, of_another=of_another))
        self._copies.continue_copy(copy)


# -- What went wrong, in words ---------------------------------------------------------------------

_SUSPENDED_NS = 1_000_000_000  # less may lie between the readings of two clocks


class Pauses:
    """How long launcher and machine stood still while copies ran."""

    def __init__(self) -> None:
        self.stalls_ns: list[int] = []  # of the launcher, each time
        self._asleep_ns = suspended_ns()

    def notes(self) -> Iterator[Noted]:
        """Say it, where it was long."""
        if self.stalls_ns:
            times = f" {len(self.stalls_ns)} times," if len(self.stalls_ns) > 1 else ""
            niceness = os.getpriority(os.PRIO_PROCESS, 0)
            way_out = f"; rater was started at nice {niceness}: others go first"
            yield Noted(
                f"rater's launcher did not run{times} for {max(self.stalls_ns) / 1e9:.3g} s while "
                "copies did (stopped, without a CPU, or the whole machine was paused): what ended "
                "then has no time; if the machine was paused, times of copies that ran on include "
                f"it{way_out if niceness > 0 else ''}"
            )
        slept_ns = suspended_ns() - self._asleep_ns
        if slept_ns > _SUSPENDED_NS:
            yield Noted(
                f"the machine was suspended for {slept_ns / 1e9:.3g} s while copies ran: their "
                "times are without that, and with the cold caches they found afterwards"
            )


def _describe_immortal(child: Child, *, of_another: bool) -> str:
    """Return why a copy was not waited for, in words."""
    if of_another:
        return (
            f"{child.label} became another user's, whose processes rater cannot end: process "
            f"{child.pid} still runs; end it with `sudo kill -9 {child.pid}`"
        )
    status = status_of(child.pid)
    state, tracer = status.state, status.tracer
    if state.startswith("Z") and tracer:
        return (
            f"{child.label} is dead, and process {tracer}, which traces it, does not let go of it: "
            f"end that one (`kill -9 {tracer}`)"
        )
    where = (read_text(Path(f"/proc/{child.pid}/wchan")) or "").strip("0")
    return (
        f"{child.label} does not die of SIGKILL: process {child.pid}, state {state or 'not known'}"
        f"{where and f", in the kernel's {where}"}; it goes when what it waits for comes back "
        "(a file system, a device, a frozen cgroup): see `dmesg`"
    )

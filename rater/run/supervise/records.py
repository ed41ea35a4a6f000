"""What each record of the launcher changes in a phase: copies begin, end, or did not start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rater.record.events import Noted
from rater.record.run import CopyStatus
from rater.run.host.procfs import read_text, status_of
from rater.run.launcher.child_state import Move, can_move, move_of, next_state
from rater.run.launcher.copies import Child, Copy, StopReason
from rater.run.launcher.start_errors import start_error
from rater.run.launcher.table import Record, RecordKind, StartStep
from rater.run.observe.perf import PhaseCounting
from rater.run.supervise.ends import describe_exit, lateness_ns, suspended_ns
from rater.run.supervise.job import PhaseRecord, RunState
from rater.run.supervise.next_runs import PhaseCopies
from rater.run.supervise.stopping import Stopper, WindowWatch


class RecordTaker:
    """Changes one phase by the records of the launcher; on the trio thread."""

    def __init__(
        self,
        state: RunState,
        record: PhaseRecord,
        copies: PhaseCopies,
        *,
        window: WindowWatch | None,
        counting: PhaseCounting | None,
    ) -> None:
        """`window` of steady mode; `counting` where events of each copy are counted."""
        self._state = state
        self._record = record
        self._copies = copies
        self._children = copies.children
        self._window = window
        self._counting = counting
        self.stopper = Stopper(state.job, copies.children, self._give_up, copies.end_repeating)
        self.pauses = Pauses()

    def take(self, record: Record) -> None:
        """Change the phase by one record; raises `IllegalMoveError` before anything is changed."""
        match record.kind:
            case RecordKind.REPORT:
                self._record.reports.read(record.text, record.at_ns)
            case RecordKind.STALLED:
                self.pauses.stalls_ns.append(record.at_ns)
                if self._window is not None:
                    self._window.note_stall(record.at_ns)
            case RecordKind.RELEASED:
                self._note_release(record.at_ns)
            case RecordKind.REPEATED:
                child = self._copies.add_repeated(record.token, before=record.status)
                if child is not None:
                    self._note_process(child, record.pid)
            case _:
                child = self._children.get(record.token)
                if child is not None:  # else it was given up, or ended with the run
                    self._take_of_one(child, record)

    def _take_of_one(self, child: Child, record: Record) -> None:
        move = move_of(record)
        if move is Move.FORK_FAILED:
            self._note_unforked(child, record)
            return
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
                self._record.reports.expect(pid, child.spec.workloads)

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
        place = self._state.job.placements[child.copy]
        self._state.stop(None, str(start_error(child, place, record)))

    def _note_unforked(self, child: Child, record: Record) -> None:
        """Take a process that could not be forked: there the launcher leaves a table."""
        unforked = [run for run in self._children.values() if run.token >= child.token]
        for run in unforked:
            next_state(run.state, Move.FORK_FAILED)  # raises before the first is changed
        for run in unforked:
            run.move(Move.FORK_FAILED)
        without_run = [(run, self._copies.remove(run)) for run in unforked]
        place = self._state.job.placements[child.copy]
        self._state.stop(None, str(start_error(child, place, record)))
        for run, copy in without_run:
            self._note_never_began(run, copy)

    def _note_start(self, child: Child, start_ns: int, planned_ns: int | None) -> None:
        copy = self._copies.copies[child.copy]
        copy.child, copy.latest, copy.coming = child, child, None
        child.is_filler = self._window is not None and self._window.note_start(start_ns)
        self._record.record_start(copy, child, start_ns, planned_ns)
        if not child.is_filler:
            self.stopper.hold_to_time_limit(child)
        if child.after and self._state.gates is not None:
            self._state.gates.check([child])
        if child.next_spec is None:
            self._copies.continue_copy(copy)
        if self._window is not None and self._window.closed:
            self.stopper.kill(child)
        elif self._state.stop_flag.is_set():  # it began before the launcher read DISCARD
            child.stop_reason = StopReason.STOP
            self.stopper.ask_to_end(child)

    def _note_end(self, child: Child, record: Record) -> None:
        child.end_record, child.pid = record, record.pid
        copy = self._copies.remove(child)
        if self._state.observer is not None:
            self._state.observer.ended(child, record.look_cpu_ns)
        if self._counting is not None:
            self._counting.ended(child, counts=child.has_begun and not child.is_filler)
        if not child.has_begun:
            self._note_never_began(child, copy)
            return
        if not self._write_end(copy, child, record):
            # It would only fail again, perhaps a thousand times a second.
            self._copies.end_repeating(child)
        self._copies.continue_copy(copy)

    def _write_end(self, copy: Copy, child: Child, record: Record) -> bool:
        """Record the end of a run that had begun; tell whether the next one is worth to begin."""
        if child.is_filler:
            self._record.keep_uncounted(child)
            return child.ended_well
        child.remarks.late_ns = lateness_ns(record) if record.stalled_ns else None
        status = self._record.record_end(copy, child, record)
        first = child.position == 0
        if self._window is not None and self._window.note_end(record.at_ns, first=first):
            self.close_window()
        # A late stamp is the launcher's failure, not the benchmark's.
        only_late = child.remarks.late_ns is not None and child.ended_well
        return status is CopyStatus.OK or only_late

    def _note_never_began(self, child: Child, copy: Copy) -> None:
        self._record.keep_uncounted(child)
        if copy.child is not None:  # its end has the next run made
            return
        if child.end_record is not None and not self._copies.begins_no_more(copy):
            why = describe_exit(child)
            reason = f"{child.label} ended at the gate, before it was released ({why})"
            self._state.outside.note_death_at_gate(child.signal, reason)
            self._state.stop(None, reason)
        self._copies.continue_copy(copy)

    def close_window(self) -> None:
        """Nothing that counts runs any more: end the fillers, which only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        self._record.end_counters(fillers=True)
        for copy in self._copies.copies.values():
            copy.is_last = True
        self.stopper.kill_all()

    def _give_up(self, child: Child, *, of_another: bool = False) -> None:
        """Go on without a copy that rater cannot end: the run ends, the copy does not."""
        may_free = can_move(child.state, Move.FREE)
        if may_free and self._state.guard.kill_orphans(child.pid, child.copy):
            child.move(Move.FREE)  # one of its descendants may have traced it
            self.stopper.kill_freed(child)
            return
        child.move(Move.GIVE_UP)
        copy = self._copies.remove(child)
        self._state.guard.immune.add(child.pid)
        self._state.stop(None, _describe_immortal(child, of_another=of_another))
        self._copies.continue_copy(copy)


# -- What went wrong, in words ---------------------------------------------------------------------

_SUSPENDED_NS = 1_000_000_000  # less may lie between the readings of two clocks


class Pauses:
    """Times for which the launcher or the machine stood still while copies ran."""

    def __init__(self) -> None:
        self.stalls_ns: list[int] = []  # of the launcher, each time
        self._asleep_ns = suspended_ns()

    def notes(self) -> Iterator[Noted]:
        """Return notes of long pauses."""
        if self.stalls_ns:
            times = f" {len(self.stalls_ns)} times," if len(self.stalls_ns) > 1 else ""
            niceness = os.getpriority(os.PRIO_PROCESS, 0)
            way_out = f"; rater was started at nice {niceness}: others go first"
            yield Noted(
                f"rater's launcher did not run{times} for {max(self.stalls_ns) / 1e9:.3g} s while "
                "copies did (stopped, traced, without a CPU, or the whole machine was paused): an "
                "end that is late by more than 1 % of its copy's time has no time; if the machine "
                "was paused, times of copies that ran on include "
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

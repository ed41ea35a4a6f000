"""One phase: copies held at the gate, released, their ends taken, judged by nobody yet."""

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
from rater.run.launcher.copies import (
    Child,
    Copy,
    CopySpec,
    interleave_by_cpus,
    make_entry,
    what_is_broken,
)
from rater.run.launcher.launcher import LauncherDiedError
from rater.run.launcher.limits import raise_limit
from rater.run.launcher.table import ProcessFlag, Record, RecordKind, RequestKind
from rater.run.observe.perf import PhaseCounting
from rater.run.supervise.ends import describe_exit, lateness_ns, suspended_ns
from rater.run.supervise.job import PhaseRecord, RunState
from rater.run.supervise.stopping import Stopper, WindowWatch, free_traced, watch_disk
from rater.system.errors import RaterError

# -- The copies of a phase: which run of each follows the one that goes on, made ready for it ------


class PhaseCopies:
    """Has the next run of each copy waiting, or being made, while one goes on; on the trio thread.

    The launcher begins it with the end of the one before. In steady mode runs that set something
    up first are made after that end: what they do is not to be beside a run of the same copy.
    """

    def __init__(
        self,
        state: RunState,
        phase: Phase,
        specs: dict[tuple[int, int], CopySpec],
        record: PhaseRecord,
        flags: tuple[int, int],
    ) -> None:
        """`specs` by copy and position in its queue; `flags` of first runs, and of later ones."""
        self.copies = record.copies
        self.children: dict[int, Child] = {}  # by token: those that are not over
        self.has_followers = bool(phase.window) or any(
            len(queue.steps) > 1 for queue in phase.queues
        )
        self.until_over = trio.CancelScope()
        self.all_at_gates = trio.Event()  # all that begin with the release
        self._state = state
        self._phase = phase.number
        self._specs = specs
        self._programs = state.job.workplace.programs
        self._record = record
        self._flags = flags
        self._offsets_ns = {queue.copy: queue.offset_ns for queue in phase.queues}
        self._unfinished = set(self.copies)
        self._to_make: list[Copy] = []  # whose next runs are to be made
        self._requested = trio.Event()

    async def fork_first(self) -> None:
        """Have the first run of every copy forked."""
        first = [self._make_child(copy) for copy in self.copies.values()]
        for child in first:
            child.offset_ns = self._offsets_ns[child.copy]
        await self._fork(first)

    async def make_next(self) -> None:
        """Make what is to follow, as much together as there is, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            asked, self._to_make = self._to_make, []
            if any(self._runs_setup(it) or (it.repeats and it.has_own_directory) for it in asked):
                made = await trio.to_thread.run_sync(self._try_to_make, asked)
            else:
                made = self._try_to_make(asked)
            for copy, one in zip(asked, made, strict=True):
                copy.is_being_made = False
                if isinstance(one, RaterError):
                    self._state.stop(None, str(one))
            going = []
            for copy, one in zip(asked, made, strict=True):
                if isinstance(one, Child) and not self.begins_no_more(copy):
                    going.append(one)
                    continue
                if isinstance(one, Child):
                    self._record.keep_uncounted(one)
                self.continue_copy(copy)
            if going:
                await self._fork(going)

    def _try_to_make(self, copies: Iterable[Copy]) -> list[Child | RaterError]:
        made: list[Child | RaterError] = []
        for copy in copies:
            try:
                made.append(self._make_child(copy))
            except RaterError as error:
                made.append(error)
        return made

    def _make_child(self, copy: Copy) -> Child:
        """Return the next run of a copy, with what it needs; in a worker thread if that is made."""
        position, step = copy.next_position, copy.next_step
        spec = self._specs.get((copy.number, position))
        if spec is None:
            workplace, stop = self._state.job.workplace, self._state.stop_flag.is_set
            spec = workplace.spec(copy.number, position, step, stop)
        before = 0 if copy.latest is None else copy.latest.token
        launcher = self._state.guard.launcher
        repeats = position >= len(copy.steps)
        whose = (launcher, 0, copy.number, position, step, spec, self._phase, repeats)
        return Child(*whose, after=before)

    def _runs_setup(self, copy: Copy) -> bool:
        """Tell whether a command is run before each run of a copy that is repeated."""
        return copy.repeats and bool(self._programs[copy.next_step.benchmark].setup)

    async def _fork(self, children: Iterable[Child]) -> None:
        launcher, placements = self._state.guard.launcher, self._state.job.placements
        table = []
        for child in interleave_by_cpus(children, placements):
            child.token = next(launcher.tokens)
            self.children[child.token] = self.copies[child.copy].coming = child
            table.append(make_entry(child, placements[child.copy], self._flags[bool(child.after)]))
        await launcher.start(table)

    def begins_no_more(self, copy: Copy) -> bool:
        """Tell whether no further run of a copy is to begin."""
        return copy.is_last or copy.is_through or self._state.stop_flag.is_set()

    def continue_copy(self, copy: Copy) -> None:
        """Have the next run of a copy made, or take note that it has come to its end."""
        if copy.coming is not None or copy.is_being_made:
            return
        if self.begins_no_more(copy):
            if copy.child is None:
                self._unfinished.discard(copy.number)
                if not self._unfinished:
                    self.until_over.cancel()
        elif copy.child is None or not self._runs_setup(copy):
            copy.is_being_made = True
            self._to_make.append(copy)
            self._requested.set()

    def end_repeating(self, child: Child) -> None:
        """Begin no further run of a copy that is repeated."""
        copy = self.copies[child.copy]
        copy.is_last |= copy.repeats
        if copy.is_last and copy.coming is not None:
            child.launcher.ask(RequestKind.DISCARD, copy.coming.token)

    def remove(self, child: Child) -> Copy:
        """Take note that one is over, or will not be waited for; `continue_copy` is to follow."""
        del self.children[child.token]
        copy = self.copies[child.copy]
        if copy.child is child:
            copy.child = None
        else:
            copy.coming = None
        return copy


# -- A phase from its first fork to its last end ---------------------------------------------------

_TEND_S = 1.0  # how often it is seen to that the launcher goes on


class PhaseRun:
    """Runs one phase of a run, on the trio thread; `record` has what is to be judged."""

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
        first = ProcessFlag(0) if state.gates is None else ProcessFlag.PROOF
        later = first | (ProcessFlag.WELL if self._window else 0)
        later |= ProcessFlag.HELD if self._counting else 0
        self.record = PhaseRecord(state, phase)
        self._copies = PhaseCopies(state, phase, specs, self.record, (first, later))
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
        except* LauncherDiedError as errors:
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
        self._launcher.ask(RequestKind.RELEASE)
        self._released = True
        with self._copies.until_over:
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()

    async def _tend_launcher(self) -> None:
        while True:
            await trio.sleep(_TEND_S)
            self._launcher.flush()
            trouble = self._launcher.continue_if_stopped()
            if trouble is not None:
                self._state.emit(Noted(trouble))

    async def _end_all(self) -> None:
        """Kill what was not waited for, and take its end; nothing of it counts."""
        self._launcher.ask(RequestKind.DISCARD)
        self.signal_all(signal.SIGKILL)
        with trio.move_on_after(_TEND_S), suppress(LauncherDiedError):
            while self._children:
                for record in await self._launcher.receive():
                    if record.kind == RecordKind.ENDED:
                        self._children.pop(record.token, None)
        self._children.clear()

    # -- what the launcher says -------------------------------------------------------------------

    async def _take_records(self) -> None:
        while True:
            for record in await self._launcher.receive():
                self._take_record(record)
            gates = [child.pid for child in self._children.values()]
            if not self._released and gates and all(gates):
                self._copies.all_at_gates.set()
            if self.record.reports.flooded and not self._state.stop_flag.is_set():
                self._state.stop(
                    None,
                    "a copy floods the pipe by which scripts report when their commands end "
                    "(descriptor 9 of its script): no time is to be had with that",
                )

    def _take_record(self, record: Record) -> None:
        child = self._children.get(record.token)
        match record.kind:
            case RecordKind.REPORT:
                self.record.reports.read(record.text, record.at_ns)
            case RecordKind.STALLED:
                self._pauses.stalls_ns.append(record.at_ns)
            case RecordKind.RELEASED:
                for one in self._children.values():
                    if not one.offset_ns:
                        self._note_start(one, record.at_ns, record.at_ns)
            case RecordKind.READY if child is not None:
                self._note_process(child, record.pid)
                if child.after and self._counting is not None:
                    self._counting.hold(child)
            case RecordKind.STARTED if child is not None:
                self._note_process(child, record.pid)
                self._note_start(child, record.start_ns, record.planned_ns or None)
            case RecordKind.BROKEN if child is not None:
                self._note_broken(child, record)
            case RecordKind.REFUSED if child is not None:
                self._give_up(child, of_another=True)
            case RecordKind.ENDED if child is not None:
                self._note_end(child, record)

    def _note_process(self, child: Child, pid: int) -> None:
        if not child.pid:
            child.pid = pid
            self._state.guard.groups.add(pid)
            if child.spec.workloads:
                self.record.reports.expect(pid, child.spec.workloads)

    def _note_broken(self, child: Child, record: Record) -> None:
        trouble = what_is_broken(child, self._state.job.placements[child.copy], record)
        if trouble is not None:
            self._state.stop(None, str(trouble))
        if not record.pid:  # it does not exist, and nothing behind it in its table
            for one in [it for it in self._children.values() if it.token >= child.token]:
                self._note_never_began(one, self._copies.remove(one))

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
        elif self._state.stop_flag.is_set():  # the launcher was quicker
            child.stop_reason = "stop"
            self._stopper.ask_to_end(child)

    def _note_end(self, child: Child, record: Record) -> None:
        child.end_record, child.pid = record, record.pid
        copy = self._copies.remove(child)
        if self._state.observer is not None:
            self._state.observer.ended(child)
        if self._counting is not None:
            self._counting.ended(child, counts=child.start_ns is not None and not child.is_filler)
        if child.start_ns is None:
            self._note_never_began(child, copy)
            return
        if child.is_filler:
            self.record.keep_uncounted(child)
            well = child.ended_well
        else:
            child.late_ns = lateness_ns(record) if record.stalled_ns else None
            status = self.record.record_end(copy, child, record)
            well = status is CopyStatus.OK or (child.late_ns is not None and child.ended_well)
            first = child.position == 0
            if self._window is not None and self._window.note_end(record.at_ns, first=first):
                self._close_window()
        if not well:  # it would only fail again, perhaps a thousand times a second
            self._copies.end_repeating(child)
        self._copies.continue_copy(copy)

    def _note_never_began(self, child: Child, copy: Copy) -> None:
        self.record.keep_uncounted(child)
        if copy.child is not None:  # with its end another one is made
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
            child.stop_reason = child.stop_reason or "stop"
            if child.start_ns is not None:
                self._stopper.ask_to_end(child)

    def resume(self, pause_s: float) -> bool:
        """Let stopped copies go on, their time limits later; tell whether the window is spoiled."""
        self._stopper.pause(pause_s)
        self.signal_all(signal.SIGCONT)
        return self._window is not None and self._window.note_suspension()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living copy."""
        for child in self._children.values():
            child.send(number)

    def kill_all(self, *, last: bool = False) -> None:
        """Kill every living copy; `last`: what does not die of it is soon given up."""
        for child in [*self._children.values()]:
            self._stopper.kill(child, last=last)

    def living_pids(self) -> set[int]:
        """Return the processes of copies."""
        return {child.pid for child in self._children.values()}

    def _close_window(self) -> None:
        """Nothing that counts runs any more: end what only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        self.record.end_counters(fillers=True)
        for copy in self._copies.copies.values():
            copy.is_last = True
        self.kill_all()

    def _give_up(self, child: Child, *, of_another: bool = False) -> None:
        """Go on without a copy that nobody here can end: the run ends, the copy does not."""
        if not child.orphaned and self._state.guard.kill_orphans(child.pid, child.copy):
            child.orphaned, child.killed = True, False  # one of them may have traced it
            self._stopper.kill(child, last=True)
            return
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

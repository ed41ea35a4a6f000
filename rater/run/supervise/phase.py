"""One phase: copies held at the gate, released, their ends taken, judged by nobody yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import trio

from rater.plan.schedule import Phase
from rater.record.events import Noted, PhaseStarted, WorkloadTime
from rater.record.run import CopyStatus
from rater.run.copies.counters import PhaseCounting
from rater.run.copies.exits import (
    CommandReports,
    CopyEnding,
    asleep_ns,
    how_it_ended,
    late_ns,
    workload_times,
)
from rater.run.copies.launch import Child, CopySpec, Starts
from rater.run.copies.limits import raise_limit
from rater.run.launcher.launcher import Launcher, LauncherDiedError
from rater.run.launcher.table import Record, Told
from rater.run.supervise.job import PhaseRecord, RunState, WindowWatch, watch_disk
from rater.run.supervise.starts import PhaseQueues, Release, Stopper

_SUSPENDED_NS = 1_000_000_000  # less may lie between the readings of two clocks
# Ends come in bursts, and the launcher has stamped them: what is done with one on a CPU that others
# still run on can wait. After a kill -9 it is missing, with what the recorder gathers (`sinks`).
_GATHER_S = 0.02
_BEAT_S = 1.0  # how often it is seen to that the launcher goes on


class Children:
    """The processes of one phase by token: what they are, and whether they are at their gates."""

    def __init__(self, state: RunState) -> None:
        self.alive: dict[int, Child] = {}  # released or not, but for those that follow
        self.following: dict[int, Child] = {}
        self.reports = CommandReports()
        self.at_gates = trio.Event()  # all that follow nobody
        self._state = state
        self._unready: set[int] = set()  # tokens that are on their way to their gates

    def add(self, children: Iterable[Child]) -> None:
        """Take in what was forked."""
        for child in children:
            (self.following if child.after else self.alive)[child.token] = child
            if not child.after:
                self._unready.add(child.token)

    def of(self, token: int) -> Child | None:
        """Return one that lives."""
        return self.alive.get(token) or self.following.get(token)

    def waiting(self) -> list[Child]:
        """Return those that the release of all lets go."""
        return [it for it in self.alive.values() if it.shares_gate]

    def behind(self, token: int) -> list[Child]:
        """Return those of a token, and of all that were asked for later."""
        every = (*self.alive.values(), *self.following.values())
        return [it for it in every if it.token >= token]

    def settle(self, token: int) -> None:
        """Take note that one has come to its gate, or will not."""
        self._unready.discard(token)
        if not self._unready:
            self.at_gates.set()

    def is_there(self, child: Child, pid: int) -> None:
        """Take note of a process, before it is released."""
        if not child.pid:
            child.pid = pid
            self._state.guard.hold(pid)
            if child.spec.workloads:
                self.reports.expect(pid, child.spec.workloads)

    def began(self, record: Record) -> Child:
        """Return one that was released alone."""
        child = self.of(record.token)
        assert child is not None
        self.following.pop(record.token, None)
        self.alive[record.token] = child
        self.is_there(child, record.pid)
        return child

    def remove(self, token: int, pid: int) -> Child | None:
        """Return one that is no more, or that will not be waited for."""
        child = self.alive.pop(token, None) or self.following.pop(token, None)
        self._state.guard.let_go(pid)
        self.settle(token)
        return child

    async def end(self, launcher: Launcher) -> None:
        """Kill what was not waited for, and take its end; nothing of it counts."""
        launcher.discard()
        for child in self.alive.values():
            child.stopped_for = child.stopped_for or "stop"
            child.send(signal.SIGKILL)
        with trio.move_on_after(_BEAT_S), suppress(LauncherDiedError):
            while self.alive or self.following:
                for record in await launcher.receive():
                    if record.kind == Told.ENDED:
                        self.remove(record.token, record.pid)
        self.alive.clear()

    def workloads(
        self, child: Child, ending: CopyEnding, origin_ns: int
    ) -> tuple[WorkloadTime, ...]:
        """Return the times of an ended copy's commands, in the run's time."""
        if not child.spec.workloads:
            return ()
        return workload_times(
            self.reports.take(child.pid),
            child.spec.workloads,
            (ending.record.start_ns, ending.record.at_ns),
            ending.exit_code,
            ending.signal,
            well=(0, *child.spec.accepted),
            origin_ns=origin_ns,
        )


class HeldCopies:
    """Copies whose counters are opened before they may follow; on the trio thread."""

    def __init__(self, state: RunState, counting: PhaseCounting | None) -> None:
        self._state = state
        self._counting = counting
        self._waiting: list[Child] = []
        self._some = trio.Event()

    def add(self, child: Child) -> None:
        """Take in one that waits at its gate."""
        self._waiting.append(child)
        self._some.set()

    async def count(self, children: list[Child]) -> None:
        """Open their counters, beside what is taken meanwhile."""
        assert self._counting is not None
        with trio.CancelScope(shield=True):  # else nobody would have what was settled
            settled = await trio.to_thread.run_sync(self._counting.open, children)
        for event in settled:
            self._state.emit(event)

    async def run(self) -> None:
        """Let follow what has its counters, until cancelled."""
        while True:
            await self._some.wait()
            self._some = trio.Event()
            children, self._waiting = self._waiting, []
            await self.count(children)
            for child in children:
                child.launcher.allow(child.token)


class Pauses:
    """How long launcher and machine stood still while copies ran."""

    def __init__(self) -> None:
        self.stalls_ns: list[int] = []  # of the launcher, each time
        self._asleep_ns = asleep_ns()

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
        slept_ns = asleep_ns() - self._asleep_ns
        if slept_ns > _SUSPENDED_NS:
            yield Noted(
                f"the machine was suspended for {slept_ns / 1e9:.3g} s while copies ran: their "
                "times are without that, and with the cold caches they found afterwards"
            )


class PhaseRun:
    """Runs one phase of a run, on the trio thread; `record` has what is to be judged."""

    def __init__(
        self, state: RunState, phase: Phase, specs: dict[tuple[int, int], CopySpec]
    ) -> None:
        job = state.job
        self.record = PhaseRecord(state, phase)
        self._state = state
        self._launcher = state.guard.launcher
        self._window = WindowWatch(phase.window, len(phase.queues)) if phase.window else None
        self._children = Children(state)
        self._alive = self._children.alive
        self._stopper = Stopper(job, self._alive, self._give_up, self._end_queue)
        self._release = Release(state, phase, self._window, self._stopper)
        self._counting = PhaseCounting(job.counters, phase.number) if job.counters else None
        self._held = HeldCopies(state, self._counting)
        if job.counters:
            raise_limit(len(job.placements), job.counters.most_events)
        self._starts = Starts(
            self._launcher,
            job.placements,
            proof=state.gates is not None,
            ring=self._window is None,
            held=self._counting is not None,
        )
        self._queues = PhaseQueues(
            state,
            phase,
            specs,
            window=self._window,
            starts=self._starts,
            record=self.record,
            alive=self._alive,
            forked=self._children.add,
        )
        self._released = False
        self._pauses = Pauses()

    # -- from start to end ----------------------------------------------------------------------

    async def run(self, head: PhaseStarted) -> None:
        """Run the phase to its end."""
        counted: Iterable[object] = ()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_records)
                nursery.start_soon(self._beat)  # from the first fork on: it may be stopped there
                await self._go(head, nursery)
            self.record.end_counters()
        except* LauncherDiedError as errors:
            self._state.stop(None, str(errors.exceptions[0]))
        finally:
            with trio.CancelScope(shield=True):
                await self._children.end(self._launcher)
            counted = self._counting.close() if self._counting else ()
        starts = self._release.starts
        bounds_ns = self._window and starts and self._window.bounds_ns(self._release.origin_ns)
        self.record.close(starts, bounds_ns or None, counted)
        for note in self._pauses.notes():
            self._state.emit(note)

    async def _go(self, head: PhaseStarted, nursery: trio.Nursery) -> None:
        children = await self._starts.start(self._queues.first())
        self._children.add(children)
        await self._children.at_gates.wait()
        if self._state.gates is not None:
            self._state.gates.check(self._alive.values())
        if self._counting is not None:
            await self._held.count(children)
        if self._state.stop_flag.is_set():
            nursery.cancel_scope.cancel()
            return
        self.record.begin(head)
        self._watch(nursery)
        self._launcher.release()
        self._released = True
        with self._queues.over:
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()

    def _watch(self, nursery: trio.Nursery) -> None:
        """Start what goes on until the last copy has ended."""
        nursery.start_soon(self._stopper.run)
        nursery.start_soon(watch_disk, self._state.job, self._alive)
        if self._window is not None:
            nursery.start_soon(self._window.run, self._close_window)
        if self._queues.several:
            nursery.start_soon(self._queues.run)
            if self._counting is not None:
                nursery.start_soon(self._held.run)
        self.record.watch(nursery, self._alive)

    def _close_window(self) -> None:
        """Nothing that counts runs any more: end what only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        self.record.end_counters(self._alive)
        self._queues.end_all()
        self.kill_all()

    async def _beat(self) -> None:
        while True:
            await trio.sleep(_BEAT_S)
            self._launcher.flush()
            trouble = self._launcher.mend()
            if trouble is not None:
                self._state.emit(Noted(trouble))

    # -- what the launcher tells ------------------------------------------------------------------

    async def _take_records(self) -> None:
        while True:
            records = await self._launcher.receive()
            try:
                if self._released and not self._queues.several:
                    await _gather(self._launcher, records, len(self._alive))
            finally:
                for record in records:
                    self._take(record)
            if self._children.reports.flooded and not self._state.stop_flag.is_set():
                self._state.stop(
                    None,
                    "a copy floods the pipe by which scripts report when their commands end "
                    "(descriptor 9 of its script): no time is to be had with that",
                )

    def _take(self, record: Record) -> None:
        child = self._children.of(record.token)
        match record.kind:
            case Told.REPORT:
                self._children.reports.read(record.text, record.at_ns)
            case Told.STALLED:
                self._pauses.stalls_ns.append(record.at_ns)
            case Told.RELEASED:
                for one in self._children.waiting():
                    self._begin(one, record.at_ns, record.at_ns)
            case Told.READY if child is not None:
                self._children.is_there(child, record.pid)
                self._children.settle(record.token)
                if child.after:
                    self._held.add(child)
            case Told.STARTED if child is not None:
                self._children.began(record)
                self._begin(child, record.start_ns, record.planned_ns or None)
            case Told.BROKEN if child is not None:
                self._is_broken(child, record)
            case Told.REFUSED if child is not None:
                self._give_up(child, of_another=True)
            case Told.ENDED if child is not None:
                self._finish(child, record)

    def _is_broken(self, child: Child, record: Record) -> None:
        self._starts.take_trouble(child, record)
        if child.trouble is not None:
            self._children.settle(record.token)
            self._state.stop(None, str(child.trouble))
        if not record.pid:  # it does not exist, and nothing behind it in its table
            for one in self._children.behind(child.token):
                self._children.remove(one.token, 0)
                self._queues.ended(one, well=False)

    def _begin(self, child: Child, start_ns: int, planned_ns: int | None) -> None:
        self._release.take(child, start_ns, planned_ns)
        if child.after and self._state.gates is not None:
            self._state.gates.check([child])
        self._queues.began(child)
        if self._window is not None and self._window.closed:
            self._stopper.kill(child)
        elif self._state.stop_flag.is_set():  # the launcher was quicker
            child.stopped_for = "stop"
            self._stopper.ask_to_end(child)

    def _finish(self, child: Child, record: Record) -> None:
        self._children.remove(record.token, record.pid)
        if self._state.observer is not None:
            self._state.observer.ended(child.pid)
        ending = CopyEnding.of(record)
        counts = child.start_ns is not None and not child.filler
        if self._counting is not None:
            self._counting.ended(child, counts=counts)
        if child.start_ns is None:
            if not child.after and not self._state.stop_flag.is_set():
                reason = (
                    f"{child.who} ended at the gate, before it was released "
                    f"({how_it_ended(ending)})"
                )
                self._state.outside.died_at_gate(ending.signal, reason)
                self._state.stop(None, reason)
            self._queues.ended(child, well=False)
            return
        if child.filler:
            self.record.uncounted(child, ending)
            self._queues.ended(child, well=ending.exit_code in (0, *child.spec.accepted))
            return
        child.late_ns = late_ns(record) if record.stalled_ns else None
        origin_ns = self._release.origin_ns
        workloads = self._children.workloads(child, ending, origin_ns)
        status = self.record.ended(child, ending, origin_ns, workloads)
        if self._window is not None and self._window.one_less(
            record.at_ns, first=child.position == 0
        ):
            self._close_window()
        late = child.late_ns is not None and ending.exit_code in (0, *child.spec.accepted)
        self._queues.ended(child, well=status is CopyStatus.OK or late)

    # -- ending copies early ----------------------------------------------------------------------

    def begin_stop(self) -> None:
        """SIGTERM now, SIGKILL after the grace; copies still at the gate never start."""
        self._children.at_gates.set()
        self._queues.end_all()
        self._launcher.discard()
        for child in list(self._alive.values()):
            child.stopped_for = child.stopped_for or "stop"
            if child.start_ns is not None:
                self._stopper.ask_to_end(child)

    def resume(self, pause_s: float) -> bool:
        """Let stopped copies go on, their time limits later; tell whether the window is spoiled."""
        self._stopper.pause(pause_s)
        self.signal_all(signal.SIGCONT)
        return self._window is not None and self._window.suspended()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living copy."""
        for child in self._alive.values():
            child.send(number)

    def kill_all(self, *, last: bool = False) -> None:
        """Kill every living copy; `last`: what does not die of it is soon given up."""
        for child in list(self._alive.values()):
            self._stopper.kill(child, last=last)

    def _end_queue(self, child: Child) -> None:
        self._queues.end(child)

    def _give_up(self, child: Child, *, of_another: bool = False) -> None:
        """Go on without a copy that nobody here can end: the run ends, the copy does not."""
        self._alive.pop(child.token)
        self._state.guard.let_go(child.pid, lives=True)
        self._state.stop(None, _immortal(child, of_another=of_another))
        self._queues.finish_one()


async def _gather(launcher: Launcher, records: list[Record], most: int) -> None:
    """Add what else ends in a moment, if anything has; `most`: so many can."""
    ends = sum(record.kind == Told.ENDED for record in records)
    with trio.move_on_after(_GATHER_S):
        while ends and ends < most:
            more = await launcher.receive()
            ends += sum(record.kind == Told.ENDED for record in more)
            records += more


def _immortal(child: Child, *, of_another: bool) -> str:
    """Return why a copy was not waited for, in words."""
    if of_another:
        return (
            f"{child.who} became another user's, whose processes rater cannot end: process "
            f"{child.pid} still runs; end it with `sudo kill -9 {child.pid}`"
        )
    return (
        f"{child.who} does not die of SIGKILL: process {child.pid}, {_state_of(child.pid)}; it "
        "goes when what it waits for comes back (a file system, a device, a frozen cgroup): see "
        "`dmesg`"
    )


_STATES = {"D": "in the midst of a system call", "T": "stopped", "t": "stopped by a debugger"}


def _state_of(pid: int) -> str:
    """Return what a process does that does not die, in words."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except (OSError, IndexError):
        return "whose state is not known"
    state = f"state {letter}" + (f", {_STATES[letter]}" if letter in _STATES else "")
    return f"{state}, in the kernel's {where}" if where else state

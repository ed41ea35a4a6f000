"""One phase, by the records of the launcher: copies wait at the gate, are released, and end.

A phase only writes down what happened. Outputs of copies are judged later, by
`supervisor.Judge`, so that no check runs beside a copy that is timed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import trio

from rater.plan.schedule import Phase
from rater.record.events import Event, Noted, PhaseStarted
from rater.run.launcher.child_state import IllegalMoveError
from rater.run.launcher.copies import CopySpec, StopReason
from rater.run.launcher.launcher import LauncherDiedError
from rater.run.launcher.limits import raise_limit
from rater.run.launcher.table import ProcessFlag, RecordKind, RequestKind
from rater.run.observe.observer import FIRST_S
from rater.run.observe.perf import PhaseCounting
from rater.run.supervise.job import PhaseRecord, RunState
from rater.run.supervise.next_runs import PhaseCopies
from rater.run.supervise.records import RecordTaker
from rater.run.supervise.stopping import WindowWatch, free_bytes_of, free_traced, watch_disk

_DEATH_S = 1.0  # killed runs that have not ended by then are left to the guard


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
        self._taker = RecordTaker(
            state, self.record, self._copies, window=self._window, counting=self._counting
        )
        self._stopper = self._taker.stopper
        self._released = False

    # -- from start to end ----------------------------------------------------------------------

    async def run(self, head: PhaseStarted) -> None:
        """Run the phase to its end."""
        counted: Iterable[Event] = ()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_records)
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
        for note in self._taker.pauses.notes():
            self._state.emit(note)
        if self._window is not None and (stalled_ns := self._window.stalled_ns) is not None:
            text = f"the launcher did not run for {stalled_ns / 1e9:.3g} s of a window"
            self._state.emit(Noted(f"{text}: more than 1 % of it, so it says nothing of a rate"))

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
        free_bytes = free_bytes_of(self._state.job.work)
        begin_ns = time.monotonic_ns()
        self._launcher.ask(RequestKind.RELEASE)
        self._released = True
        with self._copies.until_over:
            self._start_followers(nursery)
            # A phase of short copies is over before anything but their deadlines is to be watched.
            with trio.move_on_after(FIRST_S):
                await self._stopper.run()
            self._start_watching(nursery, begin_ns, free_bytes)
            await self._stopper.run()
        nursery.cancel_scope.cancel()

    def _start_followers(self, nursery: trio.Nursery) -> None:
        """Start what makes the next runs of copies, and what ends a window."""
        if self._window is not None:
            nursery.start_soon(self._window.run, self._taker.close_window)
        if self._copies.has_followers:
            nursery.start_soon(self._copies.make_next)
            if self._counting is not None:
                nursery.start_soon(self._counting.run)

    def _start_watching(self, nursery: trio.Nursery, begin_ns: int, free_bytes: int) -> None:
        """Start what looks at copies and the machine until the last copy has ended.

        `begin_ns` of CLOCK_MONOTONIC, and `free_bytes` of the disk, are of the release.
        """
        guard, children = self._state.guard, self._children
        nursery.start_soon(watch_disk, self._state.job, children, self._stopper.kill, free_bytes)
        nursery.start_soon(free_traced, children, guard)
        self.record.watch(nursery, children, begin_ns)

    async def _end_all(self) -> None:
        """Kill the runs that were not waited for, and take their ends, which do not count."""
        if not self._children:
            return
        self._launcher.ask(RequestKind.DISCARD)
        self.signal_all(signal.SIGKILL)
        with trio.move_on_after(_DEATH_S), suppress(LauncherDiedError):
            while self._children:
                for record in await self._launcher.receive():
                    if record.kind == RecordKind.ENDED:
                        self._children.pop(record.token, None)
                    elif record.kind in (RecordKind.REPEATED, RecordKind.STARTED):
                        self._launcher.ask(RequestKind.SIGNAL, record.token, signal.SIGKILL)
        self._children.clear()

    # -- records of the launcher ------------------------------------------------------------------

    async def _take_records(self) -> None:
        while True:
            for record in await self._launcher.receive():
                self._taker.take(record)
            is_waiting = not self._released and bool(self._children)
            if is_waiting and all(child.pid for child in self._children.values()):
                self._copies.all_at_gates.set()
            if self.record.reports.flooded and not self._state.stop_flag.is_set():
                self._state.stop(
                    None,
                    "a copy floods the pipe by which scripts report when their commands end "
                    "(descriptor 9 of its script): no time is to be had with that",
                )

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
        self._stopper.kill_all(last=last)

    def living_pids(self) -> set[int]:
        """Return the processes of copies."""
        return {child.pid for child in self._children.values()}

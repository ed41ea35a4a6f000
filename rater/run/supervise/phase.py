"""One phase: copies spawned behind the gate, released, reaped, judged by nobody yet."""

from __future__ import annotations

import os
import signal

import trio

from rater.plan.schedule import Phase
from rater.record.events import Noted, PhaseStarted
from rater.record.run import CopyStatus
from rater.run.copies.counters import PhaseCounting
from rater.run.copies.exit_watcher import ExitWatcher, how_it_ended
from rater.run.copies.launch import Child, CopySpec, Launcher, reap
from rater.run.host.procfs import last_cpu, sched_times
from rater.run.supervise.job import PhaseRecord, RunState, WindowWatch, watch_disk
from rater.run.supervise.starts import PhaseQueues, Release, Spawner, Stopper

_SUSPENDED_NS = 1_000_000_000  # less may lie between the readings of two clocks


class PhaseRun:
    """Runs one phase of a run, on the trio thread; `record` has what is to be judged."""

    def __init__(
        self, state: RunState, phase: Phase, specs: dict[tuple[int, int], CopySpec]
    ) -> None:
        job = state.job
        self.record = PhaseRecord(state, phase)
        self._state = state
        self._staggered = any(queue.offset_ns for queue in phase.queues)
        self._window = WindowWatch(phase.window, len(phase.queues)) if phase.window else None
        queued = self._window is not None or any(len(queue.steps) > 1 for queue in phase.queues)
        # Later runs in a window may be of benchmarks that the first ones are not of.
        commands = self._window is not None or any(spec.workloads for spec in specs.values())
        self._ends = ExitWatcher(commands=commands, at_once=queued)
        self._alive = self._ends.alive
        self._stopper = Stopper(job, self._alive, self._give_up)
        self._release = Release(state, phase, self._window, self._stopper)
        counters = job.counters
        self._counting = PhaseCounting(counters, phase.number) if counters else None
        self._launcher = Launcher(
            job.placements,
            state.guard,
            self._staggered or queued,
            self._ends.commands_fd,
            counters.most_events if counters else None,
        )
        self._go_file = job.work / f"go.{phase.number}"
        self._spawner = Spawner(state, self._launcher, self._counting, self._go_file)
        self._queues = PhaseQueues(
            state,
            phase,
            specs,
            self._window,
            launcher=self._launcher,
            spawner=self._spawner,
            release=self._release,
            ends=self._ends,
            record=self.record,
        )

    # -- from start to end ----------------------------------------------------------------------

    async def run(self, head: PhaseStarted) -> None:
        """Run the phase to its end."""
        try:
            await self._run(head)
        finally:
            self._ends.close()

    async def _run(self, head: PhaseStarted) -> None:
        first = self._queues.first()
        shared: int | None = None
        if self._staggered:
            children = await self._spawner.spawn(lambda: first)
        else:
            children, shared = await self._spawner.behind_shared_gate(first)
        for child in children:
            self._ends.expect(child)
        try:
            if self._state.stop_flag.is_set():
                return
            self.record.begin(head)
            async with trio.open_nursery() as nursery:
                try:
                    self._watch(nursery)
                    self._ends.released()
                    if shared is None:
                        token = trio.lowlevel.current_trio_token()
                        nursery.start_soon(
                            trio.to_thread.run_sync, self._release.in_turn, children, token
                        )
                    else:
                        self._release.together(children, shared, self._go_file)
                        shared = None
                    await self._reap_until_done()
                    nursery.cancel_scope.cancel()
                finally:
                    self._queues.close()
            self.record.end_counters()
        finally:
            if shared is not None:
                os.close(shared)
            for child in children:
                child.close_gate()
            for child in self._alive.values():
                self._launcher.discard(child)
            self._alive.clear()
            self._go_file.unlink(missing_ok=True)
            counted = self._counting.close() if self._counting else ()
        starts = self._release.starts
        bounds_ns = self._window and starts and self._window.bounds_ns(self._release.origin_ns)
        self.record.close(starts, bounds_ns or None, counted)
        self._note_pauses()

    def _note_pauses(self) -> None:
        if self._ends.stalls:
            self._state.emit(Noted(_stall_note(self._ends.stalls)))
        slept_ns = self._ends.slept_ns
        if slept_ns > _SUSPENDED_NS:
            self._state.emit(
                Noted(
                    f"the machine was suspended for {slept_ns / 1e9:.3g} s while copies ran: their "
                    "times are without that, and with the cold caches they found afterwards"
                )
            )

    def _watch(self, nursery: trio.Nursery) -> None:
        """Start what goes on until the last copy has ended."""
        nursery.start_soon(self._stopper.run)
        nursery.start_soon(watch_disk, self._state.job, self._alive)
        nursery.start_soon(self._beat)
        if self._window is not None:
            nursery.start_soon(self._window.run, self._close_window)
        self._queues.open(nursery)
        self.record.watch(nursery, self._alive)

    def _close_window(self) -> None:
        """Nothing that counts runs any more: end what only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        self.record.end_counters(self._alive)
        self.kill_all()

    # -- reaping --------------------------------------------------------------------------------

    async def _reap_until_done(self) -> None:
        with self._queues.over:
            while self._queues.unfinished:
                await self._ends.wait()
                for child, now_ns in self._ends.gather():
                    self._finish(child, now_ns)
                if self._ends.flooded and not self._state.stop_flag.is_set():
                    self._state.stop(
                        None,
                        "a copy floods the pipe by which scripts report when their commands end "
                        "(descriptor 9 of its script): no time is to be had with that",
                    )

    async def _beat(self) -> None:
        while True:
            await self._ends.beat()
            for child, now_ns in self._ends.take():
                self._finish(child, now_ns)
            # What would kill all copies if rater died must not die itself. Ends are stamped while
            # another one is started.
            if not self._state.guard.watch.is_well():
                trouble = await trio.to_thread.run_sync(self._state.guard.mend_watch)
                if trouble is not None:
                    self._state.emit(Noted(trouble))

    def _finish(self, child: Child, now_ns: int) -> None:
        if self._state.gates is not None:
            child.last_cpu = last_cpu(child.pid)
            child.sched = sched_times(f"/proc/{child.pid}")
        if self._state.observer is not None:
            self._state.observer.ended(child.pid)
        reaped = reap(child)
        self._state.guard.hold(child.copy, 0)
        if self._counting is not None:
            self._counting.ended(child, counts=child.start_ns is not None and not child.filler)
        if child.start_ns is None:
            if not self._state.stop_flag.is_set():
                reason = (
                    f"copy {child.copy} of {child.step.benchmark} ended at the gate, before it "
                    f"was released ({how_it_ended(reaped)})"
                )
                self._state.outside.died_at_gate(reaped.signal, reason)
                self._state.stop(None, reason)
            self._queues.finish_one()
            return
        if not child.announced:
            self._release.announce(child)
        if child.filler:
            self.record.uncounted(child, reaped)
            self._queues.go_on(child, well=reaped.exit_code in (0, *child.spec.accepted))
            return
        origin_ns = self._release.origin_ns
        workloads = self._ends.workloads(child, reaped, now_ns, origin_ns)
        status = self.record.ended(child, reaped, origin_ns, now_ns, workloads)
        if self._window is not None and self._window.one_less(now_ns, first=child.position == 0):
            self._close_window()
        late = child.late_ns is not None and reaped.exit_code in (0, *child.spec.accepted)
        self._queues.go_on(child, well=status is CopyStatus.OK or late)

    # -- ending copies early ----------------------------------------------------------------------

    def begin_stop(self) -> None:
        """SIGTERM now, SIGKILL after the grace; copies still at the gate never start."""
        self._spawner.cancel()
        for child, now_ns in self._ends.take():
            self._finish(child, now_ns)
        for child in list(self._alive.values()):
            child.stopped_for = child.stopped_for or "stop"
            if child.start_ns is None:
                self._stopper.kill(child)
            else:
                self._stopper.ask_to_end(child)

    def resume(self, pause_s: float) -> bool:
        """Let stopped copies go on, their time limits later; tell whether the window is spoiled."""
        stalls = self._ends.stalls
        for child, now_ns in self._ends.take():
            self._finish(child, now_ns)
        self._ends.stalls = stalls  # it was asked for, and is noted
        self._stopper.pause(pause_s)
        self.signal_all(signal.SIGCONT)
        return self._window is not None and self._window.suspended()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living copy."""
        for child in self._alive.values():
            child.send(number)

    def kill_all(self) -> None:
        """Kill every living copy."""
        for child in list(self._alive.values()):
            self._stopper.kill(child)

    def _give_up(self, child: Child) -> None:
        """Go on without a copy that became another user's: the run ends, the copy does not."""
        self._ends.forget(child)
        self._state.guard.hold(child.copy, 0)
        self._state.stop(
            None,
            f"copy {child.copy} of {child.step.benchmark} became another user's, whose processes "
            f"rater cannot end: process {child.pid} still runs; end it with "
            f"`sudo kill -9 {child.pid}`",
        )
        self._queues.finish_one()


def _stall_note(stalls_ns: tuple[int, ...]) -> str:
    times = "" if len(stalls_ns) == 1 else f" {len(stalls_ns)} times,"
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    way_out = f"; rater was started at nice {niceness}: others go first" if niceness > 0 else ""
    return (
        f"rater itself did not run{times} for {max(stalls_ns) / 1e9:.3g} s while copies did "
        "(stopped, without a CPU, or the whole machine was paused): what ended then has no time; "
        f"if the machine was paused, times of copies that ran on include it{way_out}"
    )

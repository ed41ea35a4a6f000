"""One phase: copies spawned behind the gate, released, reaped, judged by nobody yet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import trio

from rater.errors import RaterError
from rater.plan.schedule.phases import Phase, Queue
from rater.record.events import CopyStarted, PhaseEnded, PhaseStarted
from rater.record.status import CopyStatus
from rater.run.check.judge import Ended
from rater.run.copies.copy_ended import ended_event, how_it_ended
from rater.run.copies.ends import Ends
from rater.run.copies.gate import high_pipe
from rater.run.copies.launch import (
    Child,
    CopySpec,
    Launcher,
    Wanted,
    open_gate,
    reap,
)
from rater.run.copies.starter import Begun, Starter
from rater.run.host.priority import urgent
from rater.run.host.proc_dir import last_cpu
from rater.run.observe.counters import PhaseReadings
from rater.run.observe.observer import FIRST_S, Observer
from rater.run.observe.probe import RunningCopy
from rater.run.observe.samples import Samples
from rater.run.supervise.disk_watch import watch_disk
from rater.run.supervise.job import RunState
from rater.run.supervise.stopping import Stopper
from rater.run.supervise.window import WindowWatch


class PhaseRun:
    """Runs one phase of a run; all methods but `_release_in_turn` on the trio thread."""

    def __init__(
        self, state: RunState, phase: Phase, specs: dict[tuple[int, int], CopySpec]
    ) -> None:
        job = state.job
        self._state = state
        self._job = job
        self._phase = phase
        self._specs = specs
        self._queues: dict[int, Queue] = {queue.copy: queue for queue in phase.queues}
        self._staggered = any(queue.offset_ns for queue in phase.queues)
        self._window = WindowWatch(phase.window) if phase.window is not None else None
        queued = self._window is not None or any(len(queue.steps) > 1 for queue in phase.queues)
        # Later runs in a window may be of benchmarks that the first ones are not of.
        tells = self._window is not None or any(spec.workloads for spec in specs.values())
        self._ends = Ends(tells=tells, at_once=queued)
        self._launcher = Launcher(
            job.placements,
            state.guard,
            self._staggered or queued,
            self._ends.tell,
        )
        self._starter = Starter(self._launcher, self._next_in_window, self._begun)
        self._alive = self._ends.alive
        self._stopper = Stopper(job, self._alive)
        self._unfinished = len(phase.queues)
        self._ended: list[Ended] = []
        self._samples = Samples(state.emit, job.placements)
        self._readings = (
            PhaseReadings(state.reader, phase.number, lambda copy: job.placements[copy].cpu)
            if state.reader is not None
            else None
        )
        self._starts: dict[int, int] = {}  # first start by copy
        self._finishes: dict[int, int] = {}  # last finish by copy
        self._interrupted = 0
        self._nursery: trio.Nursery | None = None
        self._reaping = trio.CancelScope()
        self._go_file = job.work / f"go.{phase.number}"
        self._readying = trio.CancelScope()

    # -- from start to end ----------------------------------------------------------------------

    async def run(self, head: PhaseStarted) -> None:
        """Run the phase to its end; `take_ended` has what is to be judged."""
        try:
            await self._run(head)
        finally:
            self._ends.close()

    async def _run(self, head: PhaseStarted) -> None:
        children, shared = await self._spawn_all()
        for child in children:
            self._ends.expect(child)
        try:
            if self._state.stop_flag.is_set():
                return
            self._state.emit(head)
            if self._readings is not None:
                self._readings.begin()
            async with trio.open_nursery() as self._nursery:
                try:
                    self._watch(self._nursery)
                    if self._staggered:
                        token = trio.lowlevel.current_trio_token()
                        self._nursery.start_soon(
                            trio.to_thread.run_sync, self._release_in_turn, children, token
                        )
                    else:
                        assert shared is not None
                        self._release_together(children, shared)
                        shared = None
                    await self._reap_until_done()
                    self._nursery.cancel_scope.cancel()
                finally:
                    self._starter.close()
            if self._readings is not None:
                self._readings.end()
        finally:
            if shared is not None:
                os.close(shared)
            for child in children:
                child.close_gate()
            for child in self._alive.values():
                self._launcher.discard(child)
            self._alive.clear()
            self._go_file.unlink(missing_ok=True)
        self._samples.close()
        self._emit_end()

    def _watch(self, nursery: trio.Nursery) -> None:
        """Start what goes on beside the copies until the last one has ended."""
        nursery.start_soon(self._stopper.run)
        nursery.start_soon(watch_disk, self._job, self._alive)
        if self._window is not None:
            nursery.start_soon(self._window.run, self._close_window)
            nursery.start_soon(self._starter.run)
        if self._state.observer is not None:
            nursery.start_soon(self._observe, self._state.observer)
        if self._readings is not None:
            nursery.start_soon(self._readings.watch)

    def take_ended(self) -> list[Ended]:
        """Return what has ended since the last call."""
        taken, self._ended = self._ended, []
        return taken

    async def _spawn_all(self) -> tuple[list[Child], int | None]:
        """Spawn the first step of every queue; wait until all are ready at the gate."""
        wanted = [
            Wanted(queue.copy, 0, queue.steps[0], self._specs[queue.copy, 0])
            for queue in self._phase.queues
        ]
        gate_read, gate_write = (None, None) if self._staggered else high_pipe()
        try:
            children = await self._spawn(lambda: wanted, gate_read)
        except BaseException:
            if gate_write is not None:
                os.close(gate_write)
            raise
        finally:
            if gate_read is not None:
                os.close(gate_read)
        return children, gate_write

    async def _spawn(
        self, wanted: Callable[[], list[Wanted]], shared_gate: int | None
    ) -> list[Child]:
        """Spawn what `wanted` returns, asked in a worker thread, behind gates."""

        def spawn() -> list[Child]:
            return self._launcher.spawn(
                wanted(), shared_gate, ready_write, self._go_file, self._state.stop_flag.is_set
            )

        ready_read, ready_write = high_pipe()
        try:
            try:
                children = await trio.to_thread.run_sync(spawn)
            finally:
                os.close(ready_write)
            with trio.CancelScope() as self._readying:
                # End of file: every gate has closed its end, ready or dead.
                await trio.lowlevel.wait_readable(ready_read)
        finally:
            os.close(ready_read)
        for child in children:
            child.read_gate_cpu()
        if self._state.gates is not None:
            self._state.gates.check(children)
        return children

    async def _observe(self, observer: Observer) -> None:
        """Look at copies, but leave a phase of short ones alone: not even a thread begins."""
        await trio.sleep(FIRST_S)
        await observer.run(self._orphans, self._samples.take)

    def _orphans(self) -> dict[int, list[int]]:
        """Return the processes that running copies left without a parent, by copy."""
        return self._state.guard.orphans({it.pid: it.copy for it in self._alive.values()})

    def _emit_end(self) -> None:
        if not self._starts or not self._finishes:
            return
        for event in self._readings.events() if self._readings is not None else ():
            self._state.emit(event)
        window = self._window.bounds_ns(self._origin_ns) if self._window else None
        complete = not self._interrupted and not self._state.stop_flag.is_set()
        self._state.emit(
            PhaseEnded(
                phase=self._phase.number,
                benchmark=self._phase.benchmark,
                iteration=self._phase.iteration,
                counted=self._phase.counted,
                start_ns=min(self._starts.values()),
                finish_ns=max(self._finishes.values()),
                last_start_ns=max(self._starts.values()),
                first_finish_ns=min(self._finishes.values()),
                complete=complete and (self._window is None or window is not None),
                window_start_ns=window[0] if window else None,
                window_finish_ns=window[1] if window else None,
            )
        )

    # -- releasing ------------------------------------------------------------------------------

    def _release_together(self, children: list[Child], gate: int) -> None:
        """Let all copies go with one system call."""
        self._go_file.touch()
        now = time.monotonic_ns()
        os.close(gate)
        self._set_origin(now)
        for child in children:
            child.planned_ns = child.start_ns = now
        for child in children:
            self._started(child)

    def _release_in_turn(self, children: list[Child], token: trio.lowlevel.TrioToken) -> None:
        """Let copies go one after another at their offsets; a thread of its own for precision."""
        with urgent():
            self._release_at_offsets(children, token)

    def _release_at_offsets(self, children: list[Child], token: trio.lowlevel.TrioToken) -> None:
        flag = self._state.stop_flag
        begin = time.monotonic_ns()
        for child in children:
            planned = begin + self._queues[child.copy].offset_ns
            remaining_ns = planned - time.monotonic_ns()
            if flag.wait(remaining_ns / 1e9) if remaining_ns > 0 else flag.is_set():
                return
            child.planned_ns = planned
            self._release_own(child)
            token.run_sync_soon(self._started, child)

    def _release_own(self, child: Child) -> None:
        now = time.monotonic_ns()
        self._set_origin(now)
        child.start_ns = now
        child.filler = self._window is not None and self._window.is_past(now)
        open_gate(child)

    def _set_origin(self, now_ns: int) -> None:
        if self._state.origin_ns is None:
            self._state.origin_ns = now_ns - self._job.elapsed_before_ns
        if self._window is not None:
            self._window.begin(now_ns)

    def _started(self, child: Child) -> None:
        if child.announced:
            return
        child.announced = True
        if child.filler:
            return
        assert child.start_ns is not None
        if self._window is not None:
            self._window.counting += 1
        start = child.start_ns - self._origin_ns
        self._starts.setdefault(child.copy, start)
        self._stopper.watch(child)
        if self._state.observer is not None:
            repeats = child.position >= len(self._queues[child.copy].steps)
            self._state.observer.started(
                RunningCopy(
                    self._phase.number,
                    child.copy,
                    child.position,
                    child.pid,
                    child.start_ns,
                    repeats,
                )
            )
        self._state.emit(
            CopyStarted(
                self._phase.number,
                child.step.benchmark,
                child.step.iteration,
                child.copy,
                child.position,
                start,
                None if child.planned_ns is None else child.planned_ns - self._origin_ns,
            )
        )

    @property
    def _origin_ns(self) -> int:
        assert self._state.origin_ns is not None
        return self._state.origin_ns

    async def _start_behind_gate(self, copy: int, position: int) -> None:
        """Start the next step of a copy's queue behind a gate of its own."""
        begun: Begun = None
        try:
            for child in await self._spawn(partial(self._wanted, copy, position), None):
                begun = child
        except RaterError as error:
            begun = error
        self._take_up(begun)

    def _begun(self, copy: int, position: int, begun: Begun) -> None:
        """Take what came of a start without a gate; a gate's shell may execute what fails here."""
        if begun is None and not self._state.stop_flag.is_set():
            assert self._nursery is not None
            self._nursery.start_soon(self._start_behind_gate, copy, position)
            return
        if isinstance(begun, Child) and self._state.gates is not None:
            self._state.gates.take_over(begun)
        self._take_up(begun)

    def _take_up(self, child: Begun) -> None:
        """Let a copy's next run be part of the phase, unless that is over."""
        if isinstance(child, RaterError):
            self._state.stop(None, str(child))
            child = None
        closed = self._window is not None and self._window.closed
        if child is None or closed or self._state.stop_flag.is_set():
            if child is not None:
                self._launcher.discard(child)
                self._ended.append(Ended(None, child.step, child.spec))
            self._queue_done()
            return
        self._ends.expect(child)
        if child.start_ns is None:
            self._release_own(child)
        elif self._window is not None:
            child.filler = self._window.is_past(child.start_ns)
        self._started(child)

    def _wanted(self, copy: int, position: int) -> list[Wanted]:
        steps = self._queues[copy].steps
        if self._window is None:
            return [Wanted(copy, position, steps[position], self._specs[copy, position])]
        step = steps[position % len(steps)]
        spec = self._job.workplace.spec(copy, position, step, self._state.stop_flag.is_set)
        return [Wanted(copy, position, step, spec)]

    def _next_in_window(self, copy: int, position: int) -> Wanted | None:
        return None if self._state.stop_flag.is_set() else self._wanted(copy, position)[0]

    def _close_window(self) -> None:
        """Nothing that counts runs any more: end what only kept the load up."""
        assert self._window is not None
        self._window.closed = True
        if self._readings is not None:
            running = {child.pid: child.copy for child in self._alive.values()}
            left = {pid: copy for copy, pids in self._orphans().items() for pid in pids}
            self._readings.end_with_fillers(running | left)
        for child in self._alive.values():
            child.signal_group(signal.SIGKILL)

    # -- reaping --------------------------------------------------------------------------------

    async def _reap_until_done(self) -> None:
        with self._reaping:
            while self._unfinished:
                await self._ends.wait()
                for child, now_ns in self._ends.gather():
                    self._finish(child, now_ns)

    def _finish(self, child: Child, now_ns: int) -> None:
        if self._state.gates is not None:
            child.last_cpu = last_cpu(child.pid)
        if self._state.observer is not None:
            self._state.observer.ended(child.pid)
        reaped = reap(child)
        self._launcher.forget(child)
        if child.start_ns is None:
            if not self._state.stop_flag.is_set():
                self._state.stop(
                    None,
                    f"copy {child.copy} of {child.step.benchmark} ended at the gate, before it "
                    f"was released ({how_it_ended(reaped)}); is something killing processes?",
                )
            self._queue_done()
            return
        self._started(child)
        if child.filler:
            if self._readings is not None:
                self._readings.filler_ended(child.copy, reaped.user_ns + reaped.system_ns)
            self._ended.append(Ended(None, child.step, child.spec))
            self._go_on(child, well=reaped.exit_code == 0)
            return
        workplace = self._job.workplace
        event = ended_event(
            child,
            reaped,
            self._phase.number,
            self._origin_ns,
            now_ns,
            expects=workplace.expects(child.step.benchmark),
            keeps=workplace.keeps,
            workloads=self._ends.workloads(child, reaped, now_ns, self._origin_ns),
        )
        self._finishes[child.copy] = event.finish_ns
        if event.status is CopyStatus.INTERRUPTED:
            self._interrupted += 1
        self._ended.append(Ended(event, child.step, child.spec))
        self._samples.ended(child)
        self._state.emit(event)
        if self._window is not None and self._window.one_less(now_ns):
            self._close_window()
        self._go_on(child, well=event.status is CopyStatus.OK)

    def _go_on(self, child: Child, *, well: bool) -> None:
        """Start the copy's next step, if there is one."""
        following = child.position + 1
        if self._window is not None:
            # A copy that failed would only fail again, perhaps a thousand times a second.
            more = well and not self._window.closed
        else:
            more = following < len(self._queues[child.copy].steps)
        if not more or self._state.stop_flag.is_set():
            self._queue_done()
        elif self._window is not None and not self._launcher.needs_gate(child.spec):
            self._starter.start(child.copy, following)
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._start_behind_gate, child.copy, following)

    def _queue_done(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._reaping.cancel()

    # -- ending copies early ----------------------------------------------------------------------

    def begin_stop(self) -> None:
        """SIGTERM now, SIGKILL after the grace; copies still at the gate never start."""
        self._readying.cancel()
        for child, now_ns in self._ends.take():
            self._finish(child, now_ns)
        for child in list(self._alive.values()):
            child.stopped_for = child.stopped_for or "stop"
            if child.start_ns is None:
                child.signal_group(signal.SIGKILL)
            else:
                self._stopper.ask_to_end(child)

    def resume(self, pause_s: float) -> bool:
        """Let stopped copies go on; the pause does not count for their time limit.

        Tell whether it has spoiled the phase's window.
        """
        self._stopper.pause(pause_s)
        self.signal_all(signal.SIGCONT)
        return self._window is not None and self._window.suspended()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living copy's group."""
        for child in self._alive.values():
            child.signal_group(number)

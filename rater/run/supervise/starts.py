"""Copies of a phase begin and are ended: spawned, released, the next of a queue, stopped."""

from __future__ import annotations

import math
import os
import queue
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from rater.errors import RaterError
from rater.plan.schedule import Phase
from rater.record.events import CopyStarted
from rater.run.copies.counters import PhaseCounting
from rater.run.copies.exit_watcher import ExitWatcher
from rater.run.copies.launch import Child, CopySpec, Launcher, StartRequest, open_gate
from rater.run.copies.limits import pipe_above_gate_descriptors
from rater.run.host.thread_binding import ThreadBinding, realtime_priority
from rater.run.observe.probe import RunningCopy
from rater.run.supervise.job import Job, PhaseRecord, RunState, WindowWatch

# -- A thread that starts the next runs of copies, one after another, as fast as they are asked for
#
# Of programs that run for milliseconds, started again and again, a thread of trio's pool for
# each start (its priority set and put back, its CPUs too) was most of what the supervisor did.

# What came of a start: None where the kernel does not execute the program, or the run stops.
type StartResult = Child | RaterError | None


class Starter:
    """The thread; `started` gets what came of each start, in order, on the trio thread.

    `wanted` makes what is to be started, on the thread; None: the run stops.
    """

    def __init__(
        self,
        launcher: Launcher,
        wanted: Callable[[int, int], StartRequest | None],
        started: Callable[[int, int, StartResult], None],
    ) -> None:
        self._launcher = launcher
        self._wanted = wanted
        self._started = started
        self._asked: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()

    def start(self, copy: int, position: int) -> None:
        """Have a copy's next run started; returns at once."""
        self._asked.put((copy, position))

    def close(self) -> None:
        """Let the thread end with what was asked for before."""
        self._asked.put(None)

    async def run(self) -> None:
        """Be the thread until `close`; what it started is handed over before this returns."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._serve, trio.lowlevel.current_trio_token())

    def _serve(self, token: trio.lowlevel.TrioToken) -> None:
        with realtime_priority(), ThreadBinding() as binding:
            while (asked := self._asked.get()) is not None:
                result: StartResult
                try:
                    wanted = self._wanted(*asked)
                    result = None if wanted is None else self._launcher.start(wanted, binding)
                except RaterError as error:
                    result = error
                token.run_sync_soon(self._started, *asked, result)


# -- Copies spawned behind their gates, until all of them wait there -------------------------------


class Spawner:
    """Spawns copies of one phase; what it spawns waits to be released."""

    def __init__(
        self, state: RunState, launcher: Launcher, counting: PhaseCounting | None, go_file: Path
    ) -> None:
        self._state = state
        self._launcher = launcher
        self._counting = counting
        self._go_file = go_file
        self._readying = trio.CancelScope()

    async def behind_shared_gate(self, wanted: list[StartRequest]) -> tuple[list[Child], int]:
        """Spawn copies that all wait for the end of one pipe; return its writing end too."""
        gate_read, gate_write = pipe_above_gate_descriptors()
        try:
            children = await self.spawn(lambda: wanted, gate_read)
        except BaseException:
            os.close(gate_write)
            raise
        finally:
            os.close(gate_read)
        return children, gate_write

    async def spawn(
        self, wanted: Callable[[], list[StartRequest]], shared_gate: int | None = None
    ) -> list[Child]:
        """Spawn what `wanted` returns, asked in a worker thread; wait until all are ready.

        `shared_gate`: the reading end of a pipe; None: each waits behind one of its own.
        """

        def spawn() -> list[Child]:
            return self._launcher.spawn(
                wanted(), shared_gate, ready_write, self._go_file, self._state.stop_flag.is_set
            )

        ready_read, ready_write = pipe_above_gate_descriptors()
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
        if self._counting is not None:
            await self._count(self._counting, children)
        return children

    async def _count(self, counting: PhaseCounting, children: list[Child]) -> None:
        """Open the counters of copies at their gates, beside what is stamped meanwhile."""
        with trio.CancelScope(shield=True):  # else nobody would have the copies
            settled = await trio.to_thread.run_sync(counting.open, children)
        for event in settled:
            self._state.emit(event)

    def cancel(self) -> None:
        """Wait no longer for gates to be ready: the run stops."""
        self._readying.cancel()


# -- Ending copies before they end: the time limit, SIGTERM, and SIGKILL after the grace -----------


class Stopper:
    """Asks copies to end, and makes them; `run` is a task beside the phase."""

    def __init__(
        self, job: Job, alive: Mapping[int, Child], give_up: Callable[[Child], None]
    ) -> None:
        self._job = job
        self._give_up = give_up  # is told of a copy that cannot be killed
        self._alive = alive  # by pidfd
        self._deadlines: deque[tuple[float, Child]] = deque()  # one limit for all: in order
        self._asked: deque[tuple[float, Child]] = deque()  # one grace for all: in order
        self._changed = trio.Event()

    def watch(self, child: Child) -> None:
        """Hold a copy that was just released to the time limit, if there is one."""
        if self._job.timeout_s is not None:
            assert child.start_ns is not None
            # Copies that start again and again: what has ended needs no deadline any more.
            while self._deadlines and not self._lives(self._deadlines[0][1]):
                self._deadlines.popleft()
            self._deadlines.append((child.start_ns / 1e9 + self._job.timeout_s, child))
            self._changed.set()

    def ask_to_end(self, child: Child) -> None:
        """Send SIGTERM; what still lives after the grace is killed."""
        child.send(signal.SIGTERM)
        child.send(signal.SIGCONT)  # a stopped process must run to take its SIGTERM
        self._asked.append((time.monotonic() + self._job.grace_s, child))
        self._changed.set()

    def pause(self, pause_s: float) -> None:
        """Move the time limits on by the time that copies were stopped (Ctrl-Z)."""
        self._deadlines = deque((due_s + pause_s, child) for due_s, child in self._deadlines)
        self._changed.set()

    async def run(self) -> None:
        """Sleep until the next copy is due, until cancelled."""
        while True:
            now_s = time.monotonic()
            while self._deadlines and self._deadlines[0][0] <= now_s:
                self._time_is_up(self._deadlines.popleft()[1])
            while self._asked and self._asked[0][0] <= now_s:
                self._kill(self._asked.popleft()[1])
            self._changed = trio.Event()
            due = [line[0][0] for line in (self._deadlines, self._asked) if line]
            with trio.move_on_after(max(0.0, min(due) - time.monotonic()) if due else math.inf):
                await self._changed.wait()

    def _lives(self, child: Child) -> bool:
        return self._alive.get(child.pidfd) is child

    def _time_is_up(self, child: Child) -> None:
        if self._lives(child) and child.stopped_for is None:
            child.stopped_for = "timeout"
            child.notes.append(f"ran longer than {self._job.timeout_s:g} s")
            self.ask_to_end(child)

    def _kill(self, child: Child) -> None:
        if self._lives(child):
            child.ignored_s = self._job.grace_s
            self.kill(child)

    def kill(self, child: Child) -> None:
        """Kill a copy that lives, or give it up where only another user may."""
        if self._lives(child) and not child.send(signal.SIGKILL):
            self._give_up(child)


# -- The instant at which copies begin: all at once, in turn at their offsets, or one alone --------


class Release:
    """Releases the copies of one phase, and emits their starts.

    All methods but `in_turn` on the trio thread. `starts`: the first one of each copy,
    in the run's time (ns).
    """

    def __init__(
        self, state: RunState, phase: Phase, window: WindowWatch | None, stopper: Stopper
    ) -> None:
        self.starts: dict[int, int] = {}
        self._state = state
        self._number = phase.number
        self._queues = {queue.copy: queue for queue in phase.queues}
        self._window = window
        self._stopper = stopper

    @property
    def origin_ns(self) -> int:
        """Time 0 of the run, of CLOCK_MONOTONIC; only once a copy was released."""
        assert self._state.origin_ns is not None
        return self._state.origin_ns

    def together(self, children: list[Child], gate: int, go_file: Path) -> None:
        """Let all copies go with one system call."""
        go_file.touch()
        now = time.monotonic_ns()
        os.close(gate)
        self._set_origin(now)
        for child in children:
            child.planned_ns = child.start_ns = now
        for child in children:
            self.announce(child)

    def in_turn(self, children: list[Child], token: trio.lowlevel.TrioToken) -> None:
        """Let copies go one after another at their offsets; a thread of its own for precision."""
        flag = self._state.stop_flag
        with realtime_priority():
            begin = time.monotonic_ns()
            for child in children:
                planned = begin + self._queues[child.copy].offset_ns
                remaining_ns = planned - time.monotonic_ns()
                if flag.wait(remaining_ns / 1e9) if remaining_ns > 0 else flag.is_set():
                    return
                child.planned_ns = planned
                self.alone(child)
                token.run_sync_soon(self.announce, child)

    def alone(self, child: Child) -> None:
        """Let one copy through its own gate."""
        now = time.monotonic_ns()
        self._set_origin(now)
        child.start_ns = now
        child.filler = self._window is not None and self._window.is_past(now)
        open_gate(child)

    def _set_origin(self, now_ns: int) -> None:
        if self._state.origin_ns is None:
            self._state.origin_ns = now_ns - self._state.job.elapsed_before_ns
        if self._window is not None:
            self._window.begin(now_ns)

    def announce(self, child: Child) -> None:
        """Emit that a released copy began, once, and have it watched; fillers go without."""
        if child.announced:
            return
        child.announced = True
        if child.filler:
            return
        assert child.start_ns is not None
        if self._window is not None:
            self._window.counting += 1
        start = child.start_ns - self.origin_ns
        self.starts.setdefault(child.copy, start)
        self._stopper.watch(child)
        if self._state.observer is not None:
            self._state.observer.started(
                RunningCopy(
                    self._number,
                    child.copy,
                    child.position,
                    child.pid,
                    child.start_ns,
                    repeats=child.position >= len(self._queues[child.copy].steps),
                )
            )
        self._state.emit(
            CopyStarted(
                self._number,
                child.step.benchmark,
                child.step.iteration,
                child.copy,
                child.position,
                start,
                None if child.planned_ns is None else child.planned_ns - self.origin_ns,
            )
        )


# -- The queues of a phase: which run of a copy follows the one that ended, and its start ----------


class PhaseQueues:
    """Starts the later runs of a phase's copies; `over` is cancelled with the last queue.

    On the trio thread, but for `_wanted` and `_next_in_window`.
    """

    def __init__(
        self,
        state: RunState,
        phase: Phase,
        specs: dict[tuple[int, int], CopySpec],
        window: WindowWatch | None,
        *,
        launcher: Launcher,
        spawner: Spawner,
        release: Release,
        ends: ExitWatcher,
        record: PhaseRecord,
    ) -> None:
        self.over = trio.CancelScope()
        self.unfinished = len(phase.queues)
        self._state = state
        self._specs = specs
        self._window = window
        self._launcher = launcher
        self._spawner = spawner
        self._release = release
        self._ends = ends
        self._record = record
        self._steps = {queue.copy: queue.steps for queue in phase.queues}
        self._starter = Starter(launcher, self._next_in_window, self._started)
        self._nursery: trio.Nursery | None = None

    def first(self) -> list[StartRequest]:
        """Return the first step of every queue."""
        return [
            StartRequest(copy, 0, steps[0], self._specs[copy, 0])
            for copy, steps in self._steps.items()
        ]

    def open(self, nursery: trio.Nursery) -> None:
        """Start later runs in this nursery, until `close`."""
        self._nursery = nursery
        if self._window is not None:
            nursery.start_soon(self._starter.run)

    def close(self) -> None:
        """Let the starting thread end."""
        self._starter.close()

    def go_on(self, child: Child, *, well: bool) -> None:
        """Start the next run of a copy that has ended, if there is one."""
        following = child.position + 1
        if self._window is not None:
            # A copy that failed would only fail again, perhaps a thousand times a second.
            more = well and not self._window.closed
        else:
            more = following < len(self._steps[child.copy])
        if not more or self._state.stop_flag.is_set():
            self.finish_one()
        elif self._window is not None and not self._launcher.needs_gate(child.spec):
            self._starter.start(child.copy, following)
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._start_behind_gate, child.copy, following)

    def finish_one(self) -> None:
        """Take note that a queue has come to its end."""
        self.unfinished -= 1
        if not self.unfinished:
            self.over.cancel()

    async def _start_behind_gate(self, copy: int, position: int) -> None:
        """Start the next step of a copy's queue behind a gate of its own."""
        result: StartResult = None
        try:
            for child in await self._spawner.spawn(lambda: [self._wanted(copy, position)]):
                result = child
        except RaterError as error:
            result = error
        self._take_up(result)

    def _started(self, copy: int, position: int, result: StartResult) -> None:
        """Take what came of a start without a gate; a gate's shell may execute what fails here."""
        if result is None and not self._state.stop_flag.is_set():
            assert self._nursery is not None
            self._nursery.start_soon(self._start_behind_gate, copy, position)
            return
        if isinstance(result, Child) and self._state.gates is not None:
            self._state.gates.inherit(result)
        self._take_up(result)

    def _take_up(self, child: StartResult) -> None:
        """Let a copy's next run be part of the phase, unless that is over."""
        if isinstance(child, RaterError):
            self._state.stop(None, str(child))
            child = None
        closed = self._window is not None and self._window.closed
        if child is None or closed or self._state.stop_flag.is_set():
            if child is not None:
                self._launcher.discard(child)
                self._record.uncounted(child)
            self.finish_one()
            return
        self._ends.expect(child)
        if child.start_ns is None:
            self._release.alone(child)
        elif self._window is not None:
            child.filler = self._window.is_past(child.start_ns)
        self._release.announce(child)

    def _wanted(self, copy: int, position: int) -> StartRequest:
        steps = self._steps[copy]
        if self._window is None:
            return StartRequest(copy, position, steps[position], self._specs[copy, position])
        step = steps[position % len(steps)]
        workplace = self._state.job.workplace
        spec = workplace.spec(copy, position, step, self._state.stop_flag.is_set)
        return StartRequest(copy, position, step, spec)

    def _next_in_window(self, copy: int, position: int) -> StartRequest | None:
        return None if self._state.stop_flag.is_set() else self._wanted(copy, position)

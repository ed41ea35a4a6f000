"""Copies of a phase begin and are ended: released, the next of a queue, stopped."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import trio

from rater.errors import RaterError
from rater.plan.schedule import Phase, Step
from rater.record.events import CopyStarted
from rater.run.copies.launch import Child, CopySpec, StartRequest, Starts
from rater.run.observe.probe import RunningCopy
from rater.run.supervise.job import Job, PhaseRecord, RunState, WindowWatch

# -- Ending copies before they end: the time limit, SIGTERM, and SIGKILL after the grace -----------

_DEATH_S = 5.0  # so long a copy may take to die of SIGKILL,
_LAST_DEATH_S = 1.0  # or so long when the user has asked twice


class Stopper:
    """Asks copies to end, and makes them; `run` is a task beside the phase.

    `give_up` is told of a copy that cannot be killed, `ending` of one that is asked to end.
    """

    def __init__(
        self,
        job: Job,
        alive: Mapping[int, Child],
        give_up: Callable[[Child], None],
        ending: Callable[[Child], None],
    ) -> None:
        self._job = job
        self._give_up = give_up
        self._ending = ending
        self._alive = alive  # by token
        self._deadlines: deque[tuple[float, Child]] = deque()  # one limit for all: in order
        self._asked: deque[tuple[float, Child]] = deque()  # one grace for all: in order
        self._killed: dict[Child, float] = {}  # when they are to be dead
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
        self._ending(child)
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
                child = self._asked.popleft()[1]
                if self._lives(child):
                    child.ignored_s = self._job.grace_s
                    self.kill(child)
            self._killed = {it: due_s for it, due_s in self._killed.items() if self._lives(it)}
            for child in [it for it, due_s in self._killed.items() if due_s <= now_s]:
                self._give_up(child)
            self._changed = trio.Event()
            due = [line[0][0] for line in (self._deadlines, self._asked) if line]
            due += [due_s for it, due_s in self._killed.items() if self._lives(it)]
            with trio.move_on_after(max(0.0, min(due) - time.monotonic()) if due else math.inf):
                await self._changed.wait()

    def _lives(self, child: Child) -> bool:
        return self._alive.get(child.token) is child

    def _time_is_up(self, child: Child) -> None:
        if self._lives(child) and child.stopped_for is None:
            child.stopped_for = "timeout"
            child.notes.append(f"ran longer than {self._job.timeout_s:g} s")
            self.ask_to_end(child)

    def kill(self, child: Child, *, last: bool = False) -> None:
        """Kill a copy that lives; one that does not die of it is given up. `last`: soon."""
        if self._lives(child):
            self._ending(child)
            child.send(signal.SIGKILL)
            due_s = time.monotonic() + (_LAST_DEATH_S if last else _DEATH_S)
            self._killed[child] = min(due_s, self._killed.get(child, due_s))
            self._changed.set()


# -- The instant at which copies begin: the launcher has stamped it --------------------------------


class Release:
    """Takes releases of the copies of one phase, and emits their starts; on the trio thread.

    `starts`: the first one of each copy, in the run's time (ns).
    """

    def __init__(
        self, state: RunState, phase: Phase, window: WindowWatch | None, stopper: Stopper
    ) -> None:
        self.starts: dict[int, int] = {}
        self._state = state
        self._number = phase.number
        self._steps = {queue.copy: len(queue.steps) for queue in phase.queues}
        self._window = window
        self._stopper = stopper

    @property
    def origin_ns(self) -> int:
        """Time 0 of the run, of CLOCK_MONOTONIC; only once a copy was released."""
        assert self._state.origin_ns is not None
        return self._state.origin_ns

    def take(self, child: Child, start_ns: int, planned_ns: int | None) -> None:
        """Take the start of a copy, and emit it; fillers go without."""
        if self._state.origin_ns is None:
            self._state.origin_ns = start_ns - self._state.job.elapsed_before_ns
        if self._window is not None:
            self._window.begin(start_ns)
            child.filler = self._window.is_past(start_ns)
        child.start_ns, child.planned_ns = start_ns, planned_ns
        if child.filler:
            return
        if self._window is not None:
            self._window.counting += 1
        start = start_ns - self.origin_ns
        self.starts.setdefault(child.copy, start)
        self._stopper.watch(child)
        if self._state.observer is not None:
            self._state.observer.started(
                RunningCopy(
                    self._number,
                    child.copy,
                    child.position,
                    child.pid,
                    start_ns,
                    repeats=child.position >= self._steps[child.copy],
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
                None if planned_ns is None else planned_ns - self.origin_ns,
            )
        )


# -- The queues of a phase: which run of a copy follows the one that goes on, made ready for it ----


class PhaseQueues:
    """Has the next run of each copy waiting, or being made, while one goes on; on the trio thread.

    The launcher begins it with the end of the one before. Runs that set something up first are
    made after that end: what they do is not to be beside the run of the same copy.
    """

    def __init__(
        self,
        state: RunState,
        phase: Phase,
        specs: dict[tuple[int, int], CopySpec],
        *,
        window: WindowWatch | None,
        starts: Starts,
        record: PhaseRecord,
        alive: Mapping[int, Child],
        forked: Callable[[Iterable[Child]], None],
    ) -> None:
        self.over = trio.CancelScope()
        self.unfinished = len(phase.queues)
        self._state = state
        self._specs = specs
        self._window = window
        self._starts = starts
        self._record = record
        self._alive = alive  # by token
        self._forked = forked
        self._steps = {queue.copy: queue.steps for queue in phase.queues}
        self._offsets_ns = {queue.copy: queue.offset_ns for queue in phase.queues}
        self._next: dict[int, Child | None] = {}  # by copy; None: it is being made
        self._unwanted: set[int] = set()  # copies whose next run is not to begin
        self._asked: list[Child] = []  # whose next runs are to be made
        self._some = trio.Event()

    @property
    def several(self) -> bool:
        """Tell whether copies run more than once."""
        return self._window is not None or any(len(it) > 1 for it in self._steps.values())

    def first(self) -> list[StartRequest]:
        """Return the first step of every queue."""
        return [
            StartRequest(copy, 0, steps[0], self._specs[copy, 0], 0, self._offsets_ns[copy])
            for copy, steps in self._steps.items()
        ]

    def began(self, child: Child) -> None:
        """Make the run that follows one that has just begun."""
        if self._next.get(child.copy) is child:
            del self._next[child.copy]
        if self._is_over(child) or child.copy in self._unwanted:
            self._unwanted.discard(child.copy)
            return
        if self._window is None or not self._sets_up(child):
            self._ask(child)

    def ended(self, child: Child, *, well: bool) -> None:
        """Go on with a copy whose run has ended, if there is more."""
        if child.start_ns is None:  # discarded at its gate
            self._next.pop(child.copy, None)
            self._record.uncounted(child)
            if child.after not in self._alive:
                self.finish_one()
            return
        # A copy that failed would only fail again, perhaps a thousand times a second.
        over = self._is_over(child) or (self._window is not None and not well)
        if child.copy in self._next:
            if over:
                self.end(child)
        elif over:
            self.finish_one()
        else:
            self._ask(child)

    def end(self, child: Child) -> None:
        """Begin no further run of a copy that is repeated."""
        if self._window is None:
            return
        coming = self._next.get(child.copy)
        if coming is not None:
            coming.launcher.discard(coming.token)
        elif child.copy in self._next:
            self._unwanted.add(child.copy)

    def end_all(self) -> None:
        """Begin no further run of any copy."""
        for copy, coming in self._next.items():
            if coming is None:
                self._unwanted.add(copy)
            else:
                coming.launcher.discard(coming.token)

    def _is_over(self, child: Child) -> bool:
        if self._window is not None:
            return self._window.closed or self._state.stop_flag.is_set()
        last = len(self._steps[child.copy]) - 1
        return child.position >= last or self._state.stop_flag.is_set()

    def finish_one(self) -> None:
        """Take note that a queue has come to its end."""
        self.unfinished -= 1
        if not self.unfinished:
            self.over.cancel()

    def _ask(self, child: Child) -> None:
        self._next[child.copy] = None
        self._asked.append(child)
        self._some.set()

    async def run(self) -> None:
        """Make what is asked for, as much together as there is, until cancelled."""
        while True:
            await self._some.wait()
            self._some = trio.Event()
            before, self._asked = self._asked, []
            if self._window is not None and not self._in_place(before):
                wanted = await trio.to_thread.run_sync(self._requests, before)
            else:
                wanted = self._requests(before)
            for error in wanted:
                if isinstance(error, RaterError):
                    self._state.stop(None, str(error))
            await self._start(before, wanted)

    def _sets_up(self, before: Child) -> bool:
        step = self._step(before.copy, before.position + 1)
        return self._state.job.workplace.sets_up(step.benchmark)

    def _in_place(self, before: list[Child]) -> bool:
        """Tell whether nothing has to be made for what follows these: no directory of its own."""
        return not any(it.spec.output.endswith("/") or self._sets_up(it) for it in before)

    def _requests(self, before: list[Child]) -> list[StartRequest | RaterError]:
        """Return what follows these; in a worker thread where something is made for it."""
        found: list[StartRequest | RaterError] = []
        for child in before:
            try:
                found.append(self._request(child, child.position + 1))
            except RaterError as error:
                found.append(error)
        return found

    def _request(self, child: Child, position: int) -> StartRequest:
        copy, step = child.copy, self._step(child.copy, position)
        if self._window is None:
            return StartRequest(copy, position, step, self._specs[copy, position], child.token)
        workplace = self._state.job.workplace
        spec = workplace.spec(copy, position, step, self._state.stop_flag.is_set)
        return StartRequest(copy, position, step, spec, child.token)

    def _step(self, copy: int, position: int) -> Step:
        steps = self._steps[copy]
        return steps[position % len(steps)] if self._window is not None else steps[position]

    async def _start(self, before: list[Child], wanted: list[StartRequest | RaterError]) -> None:
        going = []
        for child, one in zip(before, wanted, strict=True):
            if isinstance(one, StartRequest):
                if child.copy not in self._unwanted and not self._is_over(child):
                    going.append(one)
                    continue
                self._record.unused(one)
            del self._next[child.copy]
            self._unwanted.discard(child.copy)
            if child.token not in self._alive:
                self.finish_one()
        if going:
            children = await self._starts.start(going)
            self._next.update((child.copy, child) for child in children)
            self._forked(children)

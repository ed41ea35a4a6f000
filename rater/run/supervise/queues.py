"""The queues of a phase: which run of a copy follows the one that ended, and its start."""

from __future__ import annotations

import trio

from rater.errors import RaterError
from rater.plan.schedule.phases import Phase
from rater.run.copies.ends import Ends
from rater.run.copies.launch import Child, CopySpec, Launcher, Wanted
from rater.run.copies.starter import Starter, StartResult
from rater.run.supervise.job import RunState
from rater.run.supervise.phase_record import PhaseRecord
from rater.run.supervise.release import Release
from rater.run.supervise.spawning import Spawner
from rater.run.supervise.window import WindowWatch


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
        ends: Ends,
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

    def first(self) -> list[Wanted]:
        """Return the first step of every queue."""
        return [
            Wanted(copy, 0, steps[0], self._specs[copy, 0]) for copy, steps in self._steps.items()
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
            self._state.gates.take_over(result)
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

    def _wanted(self, copy: int, position: int) -> Wanted:
        steps = self._steps[copy]
        if self._window is None:
            return Wanted(copy, position, steps[position], self._specs[copy, position])
        step = steps[position % len(steps)]
        workplace = self._state.job.workplace
        spec = workplace.spec(copy, position, step, self._state.stop_flag.is_set)
        return Wanted(copy, position, step, spec)

    def _next_in_window(self, copy: int, position: int) -> Wanted | None:
        return None if self._state.stop_flag.is_set() else self._wanted(copy, position)

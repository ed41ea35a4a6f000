"""The instant at which copies begin: all at once, in turn at their offsets, or one alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import trio

from rater.plan.schedule.phases import Phase
from rater.record.events import CopyStarted
from rater.run.copies.launch import Child, open_gate
from rater.run.host.priority import urgent
from rater.run.observe.probe import RunningCopy
from rater.run.supervise.job import RunState
from rater.run.supervise.stopping import Stopper
from rater.run.supervise.window import WindowWatch


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
        with urgent():
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

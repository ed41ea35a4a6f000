"""Ending copies before they end: the time limit, SIGTERM, and SIGKILL after the grace."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping

import trio

from rater.run.copies.launch import Child
from rater.run.supervise.job import Job


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

"""A thread that looks at copies, for as long as a phase runs.

A thread of trio's pool wakes as an ordinary one: with 64 busy copies a CPU that
is up to 0.1 s late for every batch. This one takes real-time priority once, and
is then not preempted either while the kernel holds a lock of a copy's memory for it.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import trio

from rater.record.events import Sampled
from rater.run.host.priority import urgent
from rater.run.observe.probe import NoSample, Watched


@dataclass(frozen=True, slots=True)
class Wanted:
    """A copy to be looked at."""

    watched: Watched
    directory: int  # an open descriptor of its /proc/PID
    past_gate: bool
    orphans: tuple[int, ...] = ()  # processes of it that are our children


@dataclass(frozen=True, slots=True)
class Look:
    """What came of it."""

    result: Sampled | NoSample
    at_ns: int  # of CLOCK_MONOTONIC, when it was done
    cpu_ns: int  # CPU time it took


class Reading:
    """The thread; `prompt`: it may push a copy off its CPU.

    Never so where rater lives on one CPU: there it would be the supervisor that waits.
    """

    def __init__(
        self,
        look: Callable[[Watched, int, bool, tuple[int, ...]], Sampled | NoSample],
        *,
        prompt: bool,
    ) -> None:
        self._look = look
        self._prompt = prompt
        self._batches: queue.SimpleQueue[Sequence[Wanted] | None] = queue.SimpleQueue()
        self._done = trio.Event()
        self._looks: list[Look] = []

    async def run(self) -> None:
        """Be the thread until `close`."""
        try:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._serve)
        finally:
            self._deliver([])  # nobody waits for it, unless it broke

    def close(self) -> None:
        """Let the thread end."""
        self._batches.put(None)

    async def read(self, batch: Sequence[Wanted]) -> list[Look]:
        """Look at each in order; not to be cancelled, as the descriptors are in use.

        Nothing comes back when the thread broke: `run` raises why.
        """
        self._done = trio.Event()
        self._batches.put(batch)
        with trio.CancelScope(shield=True):
            await self._done.wait()
        return self._looks

    def _serve(self) -> None:
        prompt = self._prompt and len(os.sched_getaffinity(0)) > 1
        with urgent() if prompt else nullcontext():
            while (batch := self._batches.get()) is not None:
                trio.from_thread.run_sync(self._deliver, [self._one(wanted) for wanted in batch])

    def _one(self, wanted: Wanted) -> Look:
        begin = time.thread_time_ns()
        result = self._look(wanted.watched, wanted.directory, wanted.past_gate, wanted.orphans)
        return Look(result, time.monotonic_ns(), time.thread_time_ns() - begin)

    def _deliver(self, looks: list[Look]) -> None:
        self._looks = looks
        self._done.set()

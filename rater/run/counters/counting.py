"""Counters of the copies of one phase: opened at the gate, read and closed after the end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rater.record.events import CopyCounted, EventCount, Noted, PhaseCounted
from rater.run.copies.launch import Child
from rater.run.counters.perf_event import PerfKernel
from rater.run.counters.probe import ReadyGroup, told


@dataclass(frozen=True, slots=True)
class CounterSet:
    """What a run counts, and how."""

    turn: Callable[[int], tuple[ReadyGroup, ...]]  # groups of an iteration (from 1)
    most_events: int  # of a copy, open at the same time
    kernel: PerfKernel


type _Key = tuple[int, int]  # copy, position in its queue
type _Opened = list[tuple[ReadyGroup, tuple[int, ...]]]


class Counting:
    """The counters of one phase.

    `open` and `settle` in a worker thread or on the trio thread, one at a time; `ended` and
    `dropped` on the trio thread, and only put something into a queue: while copies run nothing is
    read or closed there.
    """

    def __init__(self, counters: CounterSet, phase: int) -> None:
        self._counters = counters
        self._phase = phase
        self._open: dict[_Key, _Opened] = {}
        self._over: deque[tuple[_Key, bool]] = deque()
        self._lock = threading.Lock()
        self._cost_ns = {"open": 0, "read": 0, "close": 0}
        self._copies = 0
        self._user_only = False
        self._trouble: str | None = None

    def open(self, copies: Iterable[Child]) -> list[CopyCounted]:
        """Open the groups of their iterations on copies at their gates.

        Return what those that ended before came to: their descriptors make room first.
        """
        with self._lock:
            settled = list(self._settled())
            kernel = self._counters.kernel
            for child in copies:
                opened: _Opened = []
                with self._timed("open"):
                    try:
                        for group in self._counters.turn(child.step.iteration):
                            how = {"user_only": group.user_only, "on_exec": True}
                            opened.append((group, kernel.open_group(group.perf, child.pid, **how)))
                            self._user_only |= group.user_only
                    except OSError as error:
                        for _, group_fds in opened:
                            kernel.close(group_fds)
                        opened = []
                        self._trouble = self._trouble or told(error)
                if opened:
                    self._copies += 1
                    self._open[child.copy, child.position] = opened
            return settled

    def ended(self, child: Child, *, counts: bool) -> None:
        """Take note that a copy is over; without `counts` what it came to is of no interest."""
        self._over.append(((child.copy, child.position), counts))

    def close(self) -> list[CopyCounted | PhaseCounted | Noted]:
        """Return what is left of the phase, and what all of it cost; nothing is timed any more."""
        with self._lock:
            found: list[CopyCounted | PhaseCounted | Noted] = list(self._settled())
            for opened in self._open.values():  # discarded copies
                self._close(opened)
            self._open.clear()
        if self._trouble is not None:
            found.append(Noted(f"counters: not every copy was counted: {self._trouble}"))
        if self._copies:
            cost = self._cost_ns
            found.append(
                PhaseCounted(
                    self._phase,
                    self._user_only,
                    self._copies,
                    open_ns=cost["open"],
                    read_ns=cost["read"],
                    close_ns=cost["close"],
                )
            )
        return found

    def _settled(self) -> Iterator[CopyCounted]:
        while self._over:
            key, counts = self._over.popleft()
            opened = self._open.pop(key, None)
            if opened is None:
                continue
            if counts:
                with self._timed("read"):
                    rows = [row for it in opened for row in self._read(*it)]
                yield CopyCounted(self._phase, *key, tuple(rows))
            self._close(opened)

    def _read(self, group: ReadyGroup, opened: tuple[int, ...]) -> Iterator[EventCount]:
        try:
            reading = self._counters.kernel.read(opened)
        except OSError as error:
            self._trouble = self._trouble or told(error)
            return
        for event, value in zip(group.events, reading.values, strict=True):
            yield EventCount(
                group.name,
                event.name,
                value if reading.running_ns else None,
                reading.enabled_ns,
                reading.running_ns,
            )

    def _close(self, opened: _Opened) -> None:
        with self._timed("close"):
            for _, descriptors in opened:
                self._counters.kernel.close(descriptors)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begin_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._cost_ns[what] += time.thread_time_ns() - begin_ns

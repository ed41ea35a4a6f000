"""Where the events of a run go: into the database and onto the screen, each on its own thread.

The supervisor only appends to a queue: a disk that stalls or a slow terminal must not delay the
time stamp of the next copy that ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from rater.plan.schedule import Phase
from rater.record.events import (
    CopyCounted,
    CopyStarted,
    CpuReadings,
    Event,
    MachineReadings,
    Noted,
    Observed,
    PagesHad,
    PhaseCounted,
    PhaseSeries,
    Resting,
    RunEnded,
    Sampled,
)
from rater.run.host.thread_binding import realtime_priority

if TYPE_CHECKING:
    from rater.show.live.lines import View

_AFTER_A_PHASE = (CpuReadings, MachineReadings, PhaseSeries, CopyCounted, PhaseCounted, PagesHad)
# Events that are stored with the next other event: the end of a copy brings its start along.
_CAN_WAIT = (CopyStarted, Sampled, *_AFTER_A_PHASE)
_NOT_SHOWN = (Sampled, Observed, *_AFTER_A_PHASE)
# A terminal that takes nothing for so long (Ctrl-S) is given up; all is stored by then.
_CLOSE_PATIENCE_S = 60.0
# Copies end in bursts, whose rows share a transaction. Rows of the last such moment are lost by a
# kill -9.
_GATHER_S = 0.05
_DRAW_GAP_S = 0.25  # four pictures a second are as many as one reads


class Sink(Protocol):
    """Where events go: `put` is called by the supervisor and must return at once."""

    def start(self) -> None:
        """Begin, before the first event."""
        ...

    def put(self, event: Event) -> None:
        """Take an event."""
        ...

    def close(self) -> None:
        """Finish with all events taken; no other event comes."""
        ...


class Recorder(threading.Thread):
    """Appends events to the store, in order; events that could not be stored are kept in `unsaved`.

    `append` stores its events in one transaction: those that came while it was busy with the
    transaction before. `trouble` is told why events could not be stored.
    """

    def __init__(self, append: Callable[..., None], trouble: Callable[[str], None]) -> None:
        super().__init__(name="recorder", daemon=True)
        self._append = append
        self._trouble = trouble
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._over = False
        self.unsaved: list[Event] = []
        self.problem: str | None = None

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        self._events.append(event)
        if not (isinstance(event, _CAN_WAIT) or self._wake.is_set()):
            self._wake.set()

    def run(self) -> None:
        """Store events until `close`; after a failure only collect them."""
        with realtime_priority():
            while True:
                self._wake.wait()
                time.sleep(_GATHER_S)
                self._wake.clear()
                is_last = self._over
                self._store([self._events.popleft() for _ in range(len(self._events))])
                if is_last:
                    return

    def _store(self, events: list[Event]) -> None:
        if self.unsaved or not events:
            self.unsaved += events
            return
        try:
            self._append(*events)
        except Exception as error:  # of any kind: no measurement must be lost
            self.problem = str(error) or type(error).__name__
            self.unsaved += events
            self._trouble(self.problem)

    def close(self) -> None:
        """Wait until everything is stored; events that could not be stored are tried once more."""
        self._over = True
        self._wake.set()
        # Without a limit, however slow the disk is: the database is closed next.
        self.join()
        while self.unsaved:
            try:
                self._append(self.unsaved[0])
            except Exception as error:  # of any kind, as in `_store`
                self.problem = str(error) or type(error).__name__
                return
            del self.unsaved[0]


class Screen(threading.Thread):
    """Feeds a `View` on a thread of its own.

    The view counts phases from 0. In a run that was resumed the phases ahead have other numbers,
    which are in `phases`.
    """

    def __init__(self, view: View, phases: Sequence[Phase] = ()) -> None:
        super().__init__(name="screen", daemon=True)
        self._view = view
        self._positions = {phase.number: position for position, phase in enumerate(phases)}
        self._renumbers = any(number != position for number, position in self._positions.items())
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Take an event; returns at once. Samples and counts are not shown while copies run."""
        if not isinstance(event, _NOT_SHOWN):
            self._events.append(event)
            self._wake.set()

    def run(self) -> None:
        """Draw when something changed, four times a second at most, and when the view wants to."""
        wait_s = 0.0
        while not self._over.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            with self._lock:
                self._drain()
                wait_s = self._view.tick(time.monotonic_ns())
            self._over.wait(_DRAW_GAP_S)

    def pause(self) -> None:
        """Stop drawing, for Ctrl-Z."""
        self._lock.acquire()
        self._view.pause()

    def resume(self) -> None:
        """Go on drawing."""
        self._view.resume()
        self._lock.release()

    def close(self) -> None:
        """Draw the last events and leave the terminal clean."""
        self._over.set()
        self._wake.set()
        self.join(_CLOSE_PATIENCE_S)
        self._drain()
        self._view.stop()

    def _drain(self) -> None:
        while self._events:
            event = self._events.popleft()
            if self._renumbers and not isinstance(event, Noted | Resting | Observed | RunEnded):
                event = replace(event, phase=self._positions[event.phase])
            self._view.event(event)

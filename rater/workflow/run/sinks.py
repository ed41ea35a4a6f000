"""Where a run's events go: into the database and onto the screen, each on a thread of its own.

The supervisor only appends to a queue: a disk that stalls or a slow terminal
must not delay the time stamp of the next copy that ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rater.plan.schedule.phases import Phase
from rater.record.events import (
    CopyCounted,
    CopyStarted,
    CpuReadings,
    Event,
    MachineReadings,
    Noted,
    Observed,
    PhaseCounted,
    Resting,
    RunEnded,
    Sampled,
)
from rater.record.page_sizes import PagesHad
from rater.run.host.priority import urgent

if TYPE_CHECKING:
    from rater.show.live.live import View

_AFTERWARDS = (CpuReadings, MachineReadings, CopyCounted, PhaseCounted, PagesHad)
_CAN_WAIT = (CopyStarted, Sampled, *_AFTERWARDS)
_NOT_SHOWN = (Sampled, Observed, *_AFTERWARDS)
_CLOSE_PATIENCE_S = 60.0
_GATHER_S = 0.05  # what ended this long before a kill -9 may not be in the database yet
_DRAW_GAP_S = 0.25  # at most four times a second


class Sink(Protocol):
    """Where events go: `put` is called by the supervisor and must return at once."""

    def start(self) -> None:
        """Begin, before the first event."""
        ...

    def put(self, event: Event) -> None:
        """Take an event."""
        ...

    def close(self) -> None:
        """Finish with what was taken, after the last event."""
        ...


class Recorder(threading.Thread):
    """Appends events to the store, in order; what could not be stored is kept for another try.

    `append` takes events that belong in one transaction: those that came while it
    was busy with the ones before.
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
        # Its end brings a copy's start along; samples and readings go with what comes next.
        if not (isinstance(event, _CAN_WAIT) or self._wake.is_set()):
            self._wake.set()

    def run(self) -> None:
        """Store what comes until `close`; after a failure only collect."""
        with urgent():
            while True:
                self._wake.wait()
                # Copies end in bursts: those of the next moment share a transaction.
                time.sleep(_GATHER_S)
                self._wake.clear()
                over = self._over
                self._store([self._events.popleft() for _ in range(len(self._events))])
                if over:
                    return

    def _store(self, events: list[Event]) -> None:
        if self.unsaved or not events:
            self.unsaved += events
            return
        try:
            self._append(*events)
        except Exception as error:  # whatever it is: what was measured must not be lost
            self.problem = str(error) or type(error).__name__
            self.unsaved += events
            self._trouble(self.problem)

    def close(self) -> None:
        """Wait until everything is stored, and try once more what could not be."""
        self._over = True
        self._wake.set()
        self.join()  # however long a disk takes: the database is closed next, which it must not use
        while self.unsaved:
            try:
                self._append(self.unsaved[0])
            except Exception as error:  # as above
                self.problem = str(error) or type(error).__name__
                return
            del self.unsaved[0]


class Screen(threading.Thread):
    """Feeds a `View` on a thread of its own.

    The view counts phases from 0, whatever numbers those ahead have in the run.
    """

    def __init__(self, view: View, phases: Sequence[Phase] = ()) -> None:
        super().__init__(name="screen", daemon=True)
        self._view = view
        self._positions = {it.number: position for position, it in enumerate(phases)}
        self._renumbers = any(number != place for number, place in self._positions.items())
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Take an event; returns at once. What is seen of copies and CPUs is for later."""
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
        """Draw what is left and leave the terminal clean."""
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

"""Steady mode's window: which runs count, and when nothing that counts runs any more.

A run that began before the window closed counts, by its share inside; it has to
end for that share to be known. Copies that end before the last of these begin
once more (fillers), so that it ends under the same load as the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from rater.plan.schedule.phases import Window


class WindowWatch:
    """The window of one phase; on the trio thread, but for `begin` and `is_past`."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._begin_ns: int | None = None  # CLOCK_MONOTONIC of the phase's first release
        self.counting = 0  # runs that count and still go
        self.closed = False  # nothing that counts runs any more
        self._spoiled = False

    def begin(self, now_ns: int) -> None:
        """Take the time of a release; the first one of the phase sets the window."""
        if self._begin_ns is None:
            self._begin_ns = now_ns

    def is_past(self, now_ns: int) -> bool:
        """Tell whether the window has closed: what starts now does not count."""
        return self._begin_ns is not None and now_ns >= self._begin_ns + self._window.end_ns

    def one_less(self, now_ns: int) -> bool:
        """Take note that a run that counts has ended; tell whether it was the last one."""
        self.counting -= 1
        return not self.counting and self.is_past(now_ns)

    def suspended(self) -> bool:
        """Take note that copies stood still; tell whether the window says nothing for it."""
        if self._begin_ns is not None and not self.closed:
            self._spoiled = True
        return self._spoiled

    def bounds_ns(self, origin_ns: int) -> tuple[int, int] | None:
        """Return begin and end of the window in the run's time.

        None if it did not close, or copies stood still in it.
        """
        if self._spoiled or self._begin_ns is None or not self.is_past(time.monotonic_ns()):
            return None
        begin_ns = self._begin_ns - origin_ns
        return begin_ns + self._window.warmup_ns, begin_ns + self._window.end_ns

    async def run(self, close: Callable[[], None]) -> None:
        """Call `close` at the window's end if no run that counts goes on then."""
        while self._begin_ns is None:
            await trio.sleep(0.001)
        await trio.sleep(
            max(0.0, (self._begin_ns + self._window.end_ns - time.monotonic_ns()) / 1e9)
        )
        if not self.counting and not self.closed:
            close()

"""Steady mode as it goes on: where a phase stands, and what its window has counted; pure."""

from __future__ import annotations

from dataclasses import dataclass

_EARLY = 0.1  # of the window: a rate would jump with every run


@dataclass(frozen=True, slots=True)
class WindowState:
    """Where a phase of steady mode stands."""

    stage: str  # "warm-up", "window" or "closing"
    elapsed_s: float  # of the warm-up or the window
    length_s: float
    runs: int  # that ended in the window
    per_s: float | None  # the same a second; None: too early to tell
    waiting: int  # copies whose run began before the window closed and has not ended


class WindowCount:
    """Counts what copies complete; times in nanoseconds on the clock of the events."""

    def __init__(self, release_ns: int, window_ns: tuple[int, int]) -> None:
        """`window_ns`: when it opens and closes, from the first release on."""
        self.begin_ns = release_ns + window_ns[0]
        self.end_ns = release_ns + window_ns[1]
        self.completions = 0.0  # of good runs, those across an edge by their share inside
        self._release_ns = release_ns
        self._runs = 0
        self._opened = False
        self._in_flight: set[int] = set()

    def started(self, copy: int, start_ns: int) -> bool:
        """Take in a start; tell whether the run began before the window closed."""
        if start_ns < self.end_ns:
            self._in_flight.add(copy)
        return start_ns < self.end_ns

    def opens(self, finish_ns: int) -> bool:
        """Tell whether this is the first end in the window: its times begin anew then."""
        first = not self._opened and finish_ns > self.begin_ns
        self._opened = self._opened or first
        return first

    def ended(self, copy: int, start_ns: int, finish_ns: int, good: bool) -> bool:
        """Take in an end; tell whether it was the copy's last one to be waited for."""
        self._in_flight.discard(copy)
        self._runs += self.begin_ns < finish_ns <= self.end_ns
        inside_ns = min(finish_ns, self.end_ns) - max(start_ns, self.begin_ns)
        if inside_ns > 0 and good:
            self.completions += inside_ns / (finish_ns - start_ns)
        return finish_ns >= self.end_ns

    def state(self, elapsed_s: float) -> WindowState:
        """Return where the phase stands so many seconds after its first release."""
        begin_s = (self.begin_ns - self._release_ns) / 1e9
        length_s = (self.end_ns - self.begin_ns) / 1e9
        waiting = len(self._in_flight)
        if elapsed_s < begin_s:
            return WindowState("warm-up", max(0.0, elapsed_s), begin_s, 0, None, waiting)
        inside_s = min(elapsed_s - begin_s, length_s)
        early = inside_s < length_s * _EARLY or not self._runs
        per_s = None if early else self._runs / inside_s
        stage = "window" if elapsed_s < begin_s + length_s else "closing"
        return WindowState(stage, inside_s, length_s, self._runs, per_s, waiting)

"""The live view on a terminal while copies run."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Protocol

from rich.console import Console, ConsoleDimensions, ConsoleOptions
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.style import Style

from rater.record.events import Event
from rater.record.run import Run
from rater.show.console import is_ascii
from rater.show.format import align_columns, format_clock, format_number, sanitize
from rater.show.live.grid import (
    NEVER_S,
    Grid,
    LineView,
    choose_layout,
    copies_by_node,
    phase_name,
    result_text,
    title,
)
from rater.show.live.progress import Outlier, PhaseAhead, Progress, WindowState
from rater.text.secrets import sanitizing_stream
from rater.text.values import count

_CHANGED_NS = 250_000_000  # at most four redraws a second when something changed,
_UNCHANGED_NS = 1_000_000_000  # otherwise at most one
_BELOW = (6, 4, 2, 1)  # lines under the grid; fewer only where one sign per copy needs the room
_STANDOUTS = 3
_BOLD = Style(bold=True)
_DIM = Style(dim=True)
_RED = Style(color="red", bold=True)
_YELLOW = Style(color="yellow", bold=True)
_LINE_END = Segment.line()

type Line = list[Segment]


class View(Protocol):
    """What the command that runs feeds; `event` and `tick` from one thread, the rest from any."""

    def event(self, event: Event) -> None:
        """Take in one event; draws nothing (a few microseconds)."""
        ...

    def tick(self, now_ns: int) -> float:
        """Draw if it is time (`time.monotonic_ns()`); return the seconds until it is again.

        To be called again after that long or after the next event, whichever
        comes first.
        """
        ...

    def pause(self) -> None:
        """Leave the terminal to others (Ctrl-Z)."""
        ...

    def resume(self) -> None:
        """Go on after `pause`."""
        ...

    def stop(self) -> None:
        """End for good and leave the terminal clean; can be called twice."""
        ...


def make_view(console: Console, run: Run, phases: Sequence[PhaseAhead] = ()) -> View:
    """Return the live view where `console` is a terminal that can move its cursor, else lines."""
    if console.is_terminal and console.is_interactive and not console.is_dumb_terminal:
        return LiveView(console, run, phases)
    return LineView(sanitizing_stream(console.file), run)


class _Frame:
    """Ready-made lines as something rich draws."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for place, line in enumerate(self.lines):
            if place:
                yield _LINE_END
            yield from line


class LiveView:
    """Phase, time, and every copy as a sign, redrawn in place below what was printed before."""

    def __init__(
        self,
        console: Console,
        run: Run,
        phases: Sequence[PhaseAhead] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.progress = Progress(run, phases, clock_ns)
        self._console = console
        self._ascii = is_ascii(console.encoding)
        self._places = {placed.copy: (placed.cpu, placed.node) for placed in run.placements}
        self._groups = copies_by_node(run.copies, run.placements)
        self._grid = Grid(self._groups, ascii_only=self._ascii)
        self._title = title(run, self._ascii)
        self._begin_ns = clock_ns()
        self._drawn_ns: int | None = None
        self._size: ConsoleDimensions | None = None
        self._space = (0, 0)  # rows of the grid and of what is under it
        self._slow: set[int] = set()
        self._frame = _Frame()
        self._live: Live | None = None
        self._closed = self._paused = False
        self._lock = threading.RLock()
        self._poll = _writable_poll(console.file)

    def event(self, event: Event) -> None:
        """Take in one event; draws nothing."""
        self.progress.event(event)

    def tick(self, now_ns: int) -> float:
        """Draw if it is time; return the seconds until it is again."""
        with self._lock:
            if self._closed or self._paused:
                return NEVER_S
            if self._drawn_ns is not None:
                wait_ns = _CHANGED_NS if self.progress.changed else _UNCHANGED_NS
                left_ns = self._drawn_ns + wait_ns - now_ns
                if left_ns > 0:
                    return left_ns / 1e9
            self._drawn_ns = now_ns
            # A terminal that takes no more (Ctrl-S) would block us, and the run with us.
            if self._poll is None or self._poll.poll(0):
                self._draw(now_ns)
            return _UNCHANGED_NS / 1e9

    def pause(self) -> None:
        """Erase the view and give the terminal back; `tick` draws nothing until `resume`."""
        with self._lock:
            self._paused = True
            self._take_down()

    def resume(self) -> None:
        """Draw again from the next `tick` on."""
        with self._lock:
            self._paused = False
            self._drawn_ns = None

    def stop(self) -> None:
        """Erase the view and show the cursor."""
        with self._lock:
            self._closed = True
            self._take_down()

    def _take_down(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):  # the terminal is gone: there is nothing to clean
                self._after_resize(self._console.size)
                live.stop()
            self._size = None

    def _draw(self, now_ns: int) -> None:
        try:
            size = self._console.size
            if self._live is None:
                self._live = Live(
                    self._frame,
                    console=self._console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,  # may be a pipe that gets the JSON document
                    vertical_overflow="crop",
                )
                self._live.start()
            if size != self._size:
                self._after_resize(size)
                self._size = size
                self._space = self._split(size)
            self._frame.lines = self._lines(now_ns, size)
            self._live.refresh()
        except OSError:
            # The terminal went away (its window was closed); the run does not depend on it.
            self._closed = True
            self._live = None

    def _after_resize(self, size: ConsoleDimensions) -> None:
        """Climb over the rows into which a narrower terminal has wrapped the old frame."""
        if self._size is None or size.width >= self._size.width:
            return
        lengths = [sum(part.cell_length for part in line) for line in self._frame.lines]
        wrapped = sum(max(0, length - 1) // size.width for length in lengths)
        erase = (ControlType.ERASE_IN_LINE, 2)
        steps = ((ControlType.CURSOR_UP, 1), erase) * wrapped
        self._console.control(Control(ControlType.CARRIAGE_RETURN, erase, *steps))

    def _split(self, size: ConsoleDimensions) -> tuple[int, int]:
        """Share the rows among the grid and what is under it (four lines above, two between)."""
        for below in _BELOW:
            rows = size.height - 1 - 6 - below
            if rows > 0 and choose_layout(self._groups, size.width - 1, rows).kind == "signs":
                return rows, below
        below = min(3, size.height // 6)
        return max(1, size.height - 1 - 6 - below), below

    # -- the lines ------------------------------------------------------------------------------

    def _lines(self, now_ns: int, size: ConsoleDimensions) -> list[Line]:
        progress = self.progress
        progress.changed = False
        touched, progress.touched = progress.touched, set()
        standouts = progress.standouts(now_ns)
        slow = {one.copy for one in standouts if one.running}
        touched |= slow ^ self._slow
        self._slow = slow
        rows, below = self._space
        grid = self._grid.lines(progress.states, slow, touched, size.width - 1, rows)
        lines: list[Line] = [
            [Segment(self._title, _BOLD)],
            [Segment(self._phase_text())],
            [Segment(self._time_text(now_ns))],
            self._grid.legend(progress.counts, len(slow)),
            [],
            *grid,
        ]
        under = self._under(standouts, below)
        if under:
            lines += [[], *under]
        return lines[: max(1, size.height - 1)]

    def _phase_text(self) -> str:
        progress = self.progress
        phase = progress.phase
        if phase is None:
            return "setting up"
        if progress.stage == "resting":
            waits_for = sanitize(progress.waits_for, ascii_only=self._ascii)
            return f"{waits_for}, then phase {progress.phase_number + 1} of {phase.total_phases}"
        text = f"phase {progress.phase_number} of {phase.total_phases}: "
        text += phase_name(phase.benchmark, phase.iteration, phase.counted, self._ascii)
        if progress.steps_per_copy is not None and progress.steps_per_copy > 1:
            steps = progress.run.copies * progress.steps_per_copy
            text += f", {progress.steps_done} of {steps} steps done"
        if progress.stage == "at the gate":
            text += ", all copies wait at the gate"
        elif progress.stage == "checking outputs":
            text += ", is over: checking its outputs"
        if progress.next_benchmark is not None:
            text += f"; next: {sanitize(progress.next_benchmark, ascii_only=self._ascii)}"
        return text

    def _time_text(self, now_ns: int) -> str:
        parts = [f"elapsed {format_clock((now_ns - self._begin_ns) / 1e9)}"]
        phase_s = self.progress.phase_elapsed_s(now_ns)
        window = self.progress.window_state(now_ns)
        if window is not None and self.progress.stage == "running":
            parts.append(_window_text(window))
        elif phase_s is not None and self.progress.stage == "running":
            parts.append(f"this phase {format_clock(phase_s)}")
        left = self.progress.time_left_s(now_ns)
        if left is not None:
            seconds, late = left
            if not late:
                parts.append(f"about {format_clock(math.ceil(seconds))} left")
            elif seconds > 0:
                parts.append(f"more than {format_clock(seconds)} left")
            else:
                parts.append("running longer than estimated")
        return "   ".join(parts)

    def _under(self, standouts: Sequence[Outlier], room: int) -> list[Line]:
        """Return what is to say under the grid, the most urgent where there is little room."""
        progress = self.progress
        rows = [self._standout_row(one) for one in standouts[:_STANDOUTS]]
        table = align_columns(rows, (False, False, False, False, True, False)) if rows else []
        wanted: list[tuple[int, int, Line]] = [  # place, urgency, line
            (place, place * 2, [Segment(text, _YELLOW if standouts[place].running else None)])
            for place, text in enumerate(table)
        ]
        if progress.last_failure is not None:
            text = sanitize(progress.last_failure, ascii_only=self._ascii)
            if progress.failures > 1:
                text = f"{progress.failures} failed, the last: {text}"
            wanted.append((10, 1, [Segment(text, _RED)]))
        if progress.rotated and len(progress.done_of) > 1:
            done = ", ".join(
                f"{sanitize(name, ascii_only=self._ascii)} {progress.done_of[name]}"
                for name in sorted(progress.done_of)
            )
            wanted.append((9, 9, [Segment(f"done: {done}", _DIM)]))
        if progress.last_phase is not None and progress.stage != "over":
            text = f"last phase: {result_text(progress.last_phase, self._ascii)}"
            wanted.append((11, 11, [Segment(text, _DIM)]))
        if progress.last_note is not None:
            text = f"note: {sanitize(progress.last_note, ascii_only=self._ascii)}"
            wanted.append((12, 12, [Segment(text, _DIM)]))
        kept = sorted(wanted, key=lambda item: item[1])[:room]
        return [line for _, _, line in sorted(kept, key=lambda item: item[0])]

    def _standout_row(self, one: Outlier) -> tuple[str, ...]:
        cpu, node = self._places.get(one.copy, (None, None))
        what = sanitize(one.benchmark, ascii_only=self._ascii) if self.progress.rotated else ""
        return (
            f"slow: copy {one.copy}",
            "not bound" if cpu is None else f"CPU {cpu}",
            "" if node is None else f"lgroup {node}",
            what,
            f"{format_number(one.elapsed_s)} s",
            f"{one.over * 100:.0f} % over the median{', still running' if one.running else ''}",
        )


def _window_text(window: WindowState) -> str:
    """Return `warm-up 3 of 10 s`, `window 42 of 60 s, 1234 runs, 98/s`, or what it waits for."""
    if window.stage == "closing":
        return f"closing: waiting for {count(window.waiting, 'run')}"
    places = 0 if window.length_s >= 10 else 1
    step = 10**places  # rounded down: "60 of 60 s" is what stands there when it is over
    elapsed = f"{math.floor(window.elapsed_s * step) / step:.{places}f}"
    text = f"{window.stage} {elapsed} of {window.length_s:g} s"
    if window.stage == "window":
        text += f", {count(window.runs, 'run')}"
    return text if window.per_s is None else f"{text}, {format_number(window.per_s)}/s"


def _writable_poll(stream: IO[str]) -> select.poll | None:
    """Return something that tells whether the terminal takes more, None where nothing can."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):
        return None
    return poll

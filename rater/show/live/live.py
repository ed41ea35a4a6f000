"""The live view on a terminal while copies run: one table, a row for each NUMA node."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import IO

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.style import Style

from rater.record.events import Event
from rater.record.stored import StoredRun
from rater.show.live.lines import NEVER_S, View, phase_name, result_text, title
from rater.show.live.progress import (
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    WAITING,
    Outlier,
    PhaseAhead,
    Progress,
)
from rater.show.screen.console import is_ascii
from rater.show.screen.format import (
    align_columns,
    format_clock,
    format_number,
    place_texts,
    sanitize,
)
from rater.text.values import group_by_key, printable_lines

_CHANGED_NS = 250_000_000  # at most four redraws a second when something changed,
_UNCHANGED_NS = 1_000_000_000  # otherwise at most one
_STANDOUTS = 3
_SLOW = STOPPED + 1  # a running copy that stands out
_COLUMNS = (WAITING, RUNNING, _SLOW, DONE, FAILED, STOPPED)
_OPTIONAL = (_SLOW, STOPPED)  # columns that are there when a copy is
_SIGNS = "·►✓✗■!", ".>+x#!"  # by state, in UTF-8 and plain ASCII
_NAMES = ("waiting", "running", "done", "failed", "stopped", "slow")
_BOLD = Style(bold=True)
_DIM = Style(dim=True)
_RED = Style(color="red", bold=True)
_YELLOW = Style(color="yellow", bold=True)
_STYLES = (_DIM, Style(color="cyan"), Style(color="green"), _RED, Style(color="magenta"), _YELLOW)
_BAR = 40  # signs that stand for all copies of a NUMA node, at most
_LEAST_BAR = 8
_NARROW = 60  # headings are signs alone
_LINE_END = Segment.line()

type Line = list[Segment]


class LiveConsole(Console):
    """Everything that is drawn goes through `render`: control codes come from rich alone."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is drawn; text of others cannot move the cursor."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


class _Frame:
    """Ready-made lines as something rich draws."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for place, line in enumerate(self.lines):
            if place:
                yield _LINE_END
            yield from line


class StateTable:
    """How many copies of each NUMA node wait, run and have ended; a sign or a bar for them."""

    def __init__(self, run: StoredRun, *, ascii_only: bool) -> None:
        nodes = {placement.copy: placement.node for placement in run.placements}
        of_nodes = group_by_key((nodes.get(copy), copy) for copy in range(run.head.copies))
        ordered = sorted(of_nodes.items(), key=lambda item: (item[0] is None, item[0] or 0))
        self._groups = [
            ("not bound" if number is None else str(number), copies) for number, copies in ordered
        ]
        self._signs = _SIGNS[ascii_only]

    def lines(self, states: bytearray, slow: set[int], width: int, height: int) -> list[Line]:
        """Return the table in at most `height` lines; `slow` are running copies that stand out."""
        drawn = _with_slow(states, slow)
        columns = [state for state in _COLUMNS if state not in _OPTIONAL or state in drawn]
        heads = [
            self._signs[state] + (f" {_NAMES[state]}" if width >= _NARROW else "")
            for state in columns
        ]
        total = [(f"all {len(states)}", drawn)] if len(self._groups) > 1 else []
        rows = [(name, bytes([drawn[copy] for copy in of])) for name, of in self._groups]
        shown, more = self._with_room(rows, height - 1 - len(total))
        first = max(len(name) for name, _ in (("NUMA node", b""), *rows, *total))
        widths = [max(len(head), len(str(len(states)))) for head in heads]
        room = width - first - sum(widths) - 2 * len(widths) - 2
        most = max(len(of_group) for _, of_group in rows)
        lines: list[Line] = [
            [
                Segment(f"{'NUMA node':<{first}}", _BOLD),
                *(
                    Segment(f"  {head:>{cells}}", _STYLES[state])
                    for state, head, cells in zip(columns, heads, widths, strict=True)
                ),
            ]
        ]
        for name, of_group in (*shown, *total):
            lines.append([_counts_segment(f"{name:<{first}}", of_group, columns, widths)])
            if of_group is not drawn and room >= min(most, _LEAST_BAR):
                lines[-1] += self._group_bar(of_group, most, room)
        if more:
            lines.insert(1 + len(shown), [Segment(f"and {more} more NUMA nodes", _DIM)])
        return lines

    def _group_bar(self, states: Sequence[int], most: int, room: int) -> Line:
        """Return a sign for each copy, or a bar where the largest group has more than `room`."""
        signs = states if most <= room else _bar(states, min(room, _BAR))
        return [
            Segment("  "),
            *(
                Segment(self._signs[state] * len(list(alike)), _STYLES[state])
                for state, alike in groupby(signs)
            ),
        ]

    def _with_room(
        self, rows: list[tuple[str, bytes]], height: int
    ) -> tuple[list[tuple[str, bytes]], int]:
        """Return rows for which there is room, those with a slow or failed copy before others."""
        if len(rows) <= max(1, height):
            return rows, 0
        wanted = sorted(
            rows, key=lambda row: not any(state in row[1] for state in (_SLOW, FAILED, STOPPED))
        )
        kept = {name for name, _ in wanted[: max(1, height - 1)]}
        return [row for row in rows if row[0] in kept], len(rows) - len(kept)


def _with_slow(states: bytearray, slow: set[int]) -> bytearray:
    """Return the states with a state of their own for running copies that stand out."""
    drawn = bytearray(states)
    for copy in slow:
        if drawn[copy] == RUNNING:
            drawn[copy] = _SLOW
    return drawn


def _counts_segment(
    name: str, states: Sequence[int], columns: Sequence[int], widths: Sequence[int]
) -> Segment:
    """Return the name of a group and its number of copies in each state, in the worst's colour."""
    counts = zip(map(states.count, columns), widths, strict=True)
    worst = next((_STYLES[state] for state in (FAILED, _SLOW) if state in states), None)
    return Segment(name + "".join(f"  {number:>{cells}}" for number, cells in counts), worst)


def _bar(states: Sequence[int], length: int) -> Sequence[int]:
    """Return as many signs in proportion; a share too small for one still has one."""
    shares = [(state, states.count(state)) for state in (DONE, FAILED, STOPPED)]
    shares += [(state, states.count(state)) for state in (_SLOW, RUNNING, WAITING)]
    lengths = {
        kind: max(1, round(copy_count * length / len(states)))
        for kind, copy_count in shares
        if copy_count
    }
    while (lacking := length - sum(lengths.values())) != 0:
        lengths[max(lengths, key=lambda kind: lengths[kind])] += 1 if lacking > 0 else -1
    return [state for state, copy_count in lengths.items() for _ in range(copy_count)]


class LiveView(View):
    """Phase, time, table and remarks, redrawn in place below what was printed before."""

    def __init__(
        self,
        console: Console,
        run: StoredRun,
        phases: Sequence[PhaseAhead] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.progress = Progress(run, phases, clock_ns)
        self._console = console
        self._ascii = is_ascii(console.encoding)
        self._places = {placed.copy: (placed.cpu, placed.node) for placed in run.placements}
        self._table = StateTable(run, ascii_only=self._ascii)
        self._title = title(run, self._ascii)
        self._begin_ns = clock_ns()
        self._drawn_ns: int | None = None
        self._size: ConsoleDimensions | None = None
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

    # -- the lines ------------------------------------------------------------------------------

    def _lines(self, now_ns: int, size: ConsoleDimensions) -> list[Line]:
        progress, most = self.progress, max(1, size.height - 1)
        progress.changed = False
        standouts = progress.standouts(now_ns)
        slow = {standout.copy for standout in standouts if standout.running}
        lines: list[Line] = [
            [Segment(self._title, _BOLD)],
            [Segment(self._phase_text())],
            [Segment(self._time_text(now_ns))],
            [],
        ]
        remarks = self._remarks(standouts)[: size.height // 4]
        room = most - len(lines) - len(remarks) - bool(remarks)
        lines += self._table.lines(progress.states, slow, size.width - 1, room)
        return [*lines, *([[], *remarks] if remarks else [])][:most]

    def _phase_text(self) -> str:
        progress = self.progress
        phase = progress.phase
        if phase is None:
            return "setting up"
        if progress.stage == "resting":
            waits_for = self._clean(progress.waits_for)
            return f"{waits_for}, then phase {progress.phase_number + 1} of {phase.total_phases}"
        text = f"phase {progress.phase_number} of {phase.total_phases}: "
        text += phase_name(phase.benchmark, phase.iteration, phase.counted, self._ascii)
        if progress.steps_per_copy is not None and progress.steps_per_copy > 1:
            steps = progress.run.head.copies * progress.steps_per_copy
            text += f", {progress.steps_done} of {steps} steps done"
        if progress.stage == "at the gate":
            text += ", all copies wait at the gate"
        elif progress.stage == "checking outputs":
            text += ", is over: checking its outputs"
        if progress.next_benchmark is not None:
            text += f"; next: {self._clean(progress.next_benchmark)}"
        return text

    def _time_text(self, now_ns: int) -> str:
        parts = [f"elapsed {format_clock((now_ns - self._begin_ns) / 1e9)}"]
        phase_s = self.progress.phase_elapsed_s(now_ns)
        window = self.progress.window_text(now_ns)
        if window is not None and self.progress.stage == "running":
            parts.append(window)
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

    def _remarks(self, standouts: Sequence[Outlier]) -> list[Line]:
        """Return what is to say below the table, the most urgent first."""
        progress = self.progress
        rows = [self._standout_row(standout) for standout in standouts[:_STANDOUTS]]
        right = (False, False, *([False] if progress.rotated else []), True, False)
        table = align_columns(rows, right) if rows else []
        lines = [
            [Segment(text, _YELLOW if standout.running else None)]
            for text, standout in zip(table, standouts, strict=False)
        ]
        if progress.last_failure is not None:
            text = self._clean(progress.last_failure)
            if progress.failures > 1:
                text = f"{progress.failures} failed, the last: {text}"
            lines.insert(0, [Segment(text, _RED)])
        remarks: list[str] = []
        if progress.rotated and len(progress.done_of) > 1:
            done = (f"{self._clean(it)} {many}" for it, many in sorted(progress.done_of.items()))
            remarks.append(f"done: {', '.join(done)}")
        if progress.last_phase is not None and progress.stage != "over":
            remarks.append(f"last phase: {result_text(progress.last_phase, self._ascii)}")
        if progress.last_note is not None:
            remarks.append(f"note: {self._clean(progress.last_note)}")
        return lines + [[Segment(text, _DIM)] for text in remarks]

    def _standout_row(self, outlier: Outlier) -> tuple[str, ...]:
        where = place_texts(*self._places.get(outlier.copy, (None, None)))
        return (
            f"slow: copy {outlier.copy}",
            ", ".join(where) or "not bound",
            *([self._clean(outlier.benchmark)] if self.progress.rotated else []),
            f"{format_number(outlier.elapsed_s)} s",
            f"{outlier.over * 100:.0f} % over the median{' so far' if outlier.running else ''}",
        )

    def _clean(self, text: str) -> str:
        return sanitize(text, ascii_only=self._ascii)


def _writable_poll(stream: IO[str]) -> select.poll | None:
    """Return a poll that tells whether the terminal takes more, or None if it cannot be polled."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):
        return None
    return poll

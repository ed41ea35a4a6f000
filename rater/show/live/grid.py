"""The copies as signs in rows by lgroup, or a line per finished phase."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import IO, Literal

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style

from rater.analysis.results.steady import NO_WINDOW
from rater.record.events import Event, PhaseEnded, PhaseStarted, RunEnded
from rater.record.run import Placement, Run
from rater.show.console import is_ascii
from rater.show.format import format_duration, format_number, run_title, sanitize
from rater.show.live.progress import DONE, FAILED, RUNNING, STOPPED, WAITING, PhaseResult, Progress
from rater.text.values import copies_text, count

_SLOW = STOPPED + 1  # drawn over RUNNING
UNICODE_SIGNS = "·►✓✗■!"  # by state, then a running copy that stands out
ASCII_SIGNS = ".>+x#!"
NAMES = ("waiting", "running", "done", "failed", "stopped", "slow")
_STYLES = {
    WAITING: Style(dim=True),
    RUNNING: Style(color="cyan"),
    DONE: Style(color="green"),
    FAILED: Style(color="red", bold=True),
    STOPPED: Style(color="magenta"),
    _SLOW: Style(color="yellow", bold=True),
}
_LABEL = Style(bold=True)
_GAP = 2  # between cells side by side
_LEAST_SIGNS = 8  # in a row of a cell
_BAR = 12  # signs that stand for all copies of an lgroup
_RUNS = re.compile(rb"(.)\1*", re.DOTALL)


class NodeCopies(Struct, frozen=True):
    """The copies of one lgroup."""

    label: str
    copies: tuple[int, ...]


class GridLayout(Struct, frozen=True):
    """How the groups lie in the space there is."""

    kind: Literal["signs", "counts"]
    columns: int  # cells side by side
    cell: int  # characters of a cell
    per_row: int  # signs in a row of a cell
    shown: int  # groups for which there is room; a line says how many more there are


def copies_by_node(copies: int, placements: Sequence[Placement]) -> tuple[NodeCopies, ...]:
    """Return the copies by home node, ascending; those without one last."""
    nodes = {placement.copy: placement.node for placement in placements}
    found: dict[int | None, list[int]] = {}
    for copy in range(copies):
        found.setdefault(nodes.get(copy), []).append(copy)
    ordered = sorted(found.items(), key=lambda item: (item[0] is None, item[0] or 0))
    return tuple(
        NodeCopies("not bound" if node is None else f"lgroup {node}", tuple(members))
        for node, members in ordered
    )


def choose_layout(groups: Sequence[NodeCopies], width: int, height: int) -> GridLayout:
    """Choose the layout that says most in `width` x `height` characters."""
    label = max((len(group.label) for group in groups), default=0)
    most = max((len(group.copies) for group in groups), default=0)
    columns = 1
    while True:
        cell = (width - _GAP * (columns - 1)) // columns
        room = cell - label - 1
        if room < min(_LEAST_SIGNS, most) or room < 1 or columns > max(1, len(groups)):
            break
        # Rows of a multiple of eight can be counted by eye.
        per_row = room if most <= room or room < _LEAST_SIGNS else room // 8 * 8
        if _sign_rows(groups, columns, per_row) <= height:
            return GridLayout("signs", columns, cell, per_row, len(groups))
        columns += 1
    digits = len(str(most))
    cell = label + 1 + _BAR + 1 + 2 * digits + 4 + 3 + digits
    columns = max(1, (width + _GAP) // (cell + _GAP))
    shown = len(groups)
    if -(-shown // columns) > height:
        shown = max(0, height - 1) * columns
    return GridLayout("counts", columns, cell, _BAR, shown)


def _sign_rows(groups: Sequence[NodeCopies], columns: int, per_row: int) -> int:
    rows = [-(-len(group.copies) // per_row) for group in groups]
    return sum(max(rows[i : i + columns]) for i in range(0, len(rows), columns))


class Grid:
    """The lines of the grid, made again only for groups that changed."""

    def __init__(self, groups: Sequence[NodeCopies], *, ascii_only: bool) -> None:
        self.groups = tuple(groups)
        self.signs = ASCII_SIGNS if ascii_only else UNICODE_SIGNS
        self._group_of = {copy: g for g, group in enumerate(groups) for copy in group.copies}
        self._label = max((len(group.label) for group in groups), default=0)
        self._space: tuple[int, int] | None = None
        self._layout = GridLayout("signs", 1, 80, 70, 0)
        self._cells: list[list[list[Segment]]] = []
        self._lines: list[list[Segment]] = []

    def lines(
        self, states: bytearray, slow: set[int], touched: set[int], width: int, height: int
    ) -> list[list[Segment]]:
        """Return the lines for these states; `touched` copies differ from the last call's.

        `slow` are the running copies that stand out. The list is the grid's
        own: look, do not change.
        """
        if self._space != (width, height):
            self._space = (width, height)
            self._layout = choose_layout(self.groups, width, height)
            self._cells = [[] for _ in self.groups]
            dirty = set(range(len(self.groups)))
        elif touched:
            dirty = {self._group_of[copy] for copy in touched}
        else:
            return self._lines
        drawn = bytearray(states)
        for copy in slow:
            if drawn[copy] == RUNNING:
                drawn[copy] = _SLOW
        make = self._sign_cell if self._layout.kind == "signs" else self._count_cell
        for this_number in dirty:
            if this_number < self._layout.shown:
                group = self.groups[this_number]
                self._cells[this_number] = make(
                    group, bytes([drawn[copy] for copy in group.copies])
                )
        self._lines = self._joined()
        return self._lines

    def legend(self, counts: Sequence[int], slow: int) -> list[Segment]:
        """Return the counts by state as a line that also says what the signs mean."""
        shown = [*counts, slow]
        shown[RUNNING] -= slow
        segments = []
        for state, how_many in enumerate(shown):
            if state <= FAILED or how_many:
                text = f"{self.signs[state]} {how_many} {NAMES[state]}"
                quiet = state == FAILED and not how_many
                segments.append(Segment(text, _STYLES[WAITING if quiet else state]))
                segments.append(Segment("   "))
        return segments[:-1]

    def _runs(self, states: bytes) -> list[Segment]:
        return [
            Segment(self.signs[run[0][0]] * len(run[0]), _STYLES[run[0][0]])
            for run in _RUNS.finditer(states)
        ]

    def _sign_cell(self, group: NodeCopies, states: bytes) -> list[list[Segment]]:
        rows = []
        for start in range(0, len(states), self._layout.per_row):
            label = group.label if start == 0 else ""
            row = states[start : start + self._layout.per_row]
            line = [Segment(f"{label:<{self._label}} ", _LABEL), *self._runs(row)]
            rows.append(self._padded(line, self._label + 1 + len(row)))
        return rows

    def _count_cell(self, group: NodeCopies, states: bytes) -> list[list[Segment]]:
        total = len(states)
        # A share too small for a sign still gets one: a failed copy must not vanish in a bar.
        shares = [(state, states.count(state)) for state in (DONE, FAILED, STOPPED)]
        shares += [(state, states.count(state)) for state in (_SLOW, RUNNING, WAITING)]
        lengths = {s: max(1, round(n * _BAR / total)) for s, n in shares if n}
        while sum(lengths.values()) != _BAR:
            longest = max(lengths, key=lambda s: lengths[s])
            lengths[longest] += 1 if sum(lengths.values()) < _BAR else -1
        bar = b"".join(bytes([state]) * length for state, length in lengths.items())
        ended = states.count(DONE) + states.count(FAILED)
        failed = states.count(FAILED)
        tail = f" {ended:>{len(str(total))}} of {total}"
        line = [Segment(f"{group.label:<{self._label}} ", _LABEL), *self._runs(bar), Segment(tail)]
        used = self._label + 1 + _BAR + len(tail)
        if failed:
            text = f" {self.signs[FAILED]} {failed}"
            line.append(Segment(text, _STYLES[FAILED]))
            used += len(text)
        return [self._padded(line, used)]

    def _padded(self, line: list[Segment], used: int) -> list[Segment]:
        if self._layout.columns > 1 and used < self._layout.cell:
            line.append(Segment(" " * (self._layout.cell - used)))
        return line

    def _joined(self) -> list[list[Segment]]:
        columns, shown = self._layout.columns, self._layout.shown
        lines: list[list[Segment]] = []
        for first in range(0, shown, columns):
            band = self._cells[first : min(first + columns, shown)]
            for row in range(max(len(cell) for cell in band)):
                line: list[Segment] = []
                for place, cell in enumerate(band):
                    if place:
                        line.append(Segment(" " * _GAP))
                    blank = [Segment(" " * self._layout.cell)]
                    line += cell[row] if row < len(cell) else blank
                lines.append(line)
        if shown < len(self.groups):
            rest = len(self.groups) - shown
            lines.append([Segment(f"and {rest} more lgroups", _STYLES[WAITING])])
        return lines


# -- One line per finished phase, where there is no terminal to draw on ----------------------------

NEVER_S = 3600.0  # nothing to draw unless an event comes


def title(run: Run, ascii_only: bool) -> str:
    """Return what runs, and how, in a line."""
    what, how_many = run_title(run.suite, [used.name for used in run.benchmarks])
    details = ", ".join(detail for detail in (run.size, run.tune) if detail)
    stagger = f", {run.stagger_ms:g} ms between starts" if run.stagger_ms else ""
    order = " in rotated order" if run.window_s is not None and run.order == "rotated" else ""
    what += f" ({details})" if details else ""
    text = f"{what}{f', {how_many}' if how_many else ''}   {run.mode}{order}, "
    return sanitize(text + copies_text(run.copies) + stagger, ascii_only=ascii_only)


def phase_name(
    benchmark: str | None, iteration: int | None, counted: bool, ascii_only: bool
) -> str:
    """Return `gups, iteration 2`, or what stands for a phase of several benchmarks."""
    name = "all benchmarks in rotation" if benchmark is None else benchmark
    text = sanitize(name, ascii_only=ascii_only)
    if iteration is not None:
        text += f", iteration {iteration}"
    return text if counted else f"{text} (not counted)"


def result_text(result: PhaseResult, ascii_only: bool) -> str:
    """Return what a finished phase took."""
    text = phase_name(result.benchmark, result.iteration, result.counted, ascii_only)
    if result.window_s is not None:
        text += (
            f": {format_number(result.completions, 1)} runs in {format_duration(result.window_s)}, "
            f"{format_number(result.completions / result.window_s)}/s"
        )
        return text + (f", median {format_number(result.median_s)} s" if result.median_s else "")
    if result.steady:
        return f"{text}: {format_duration(result.bracket_s)}"
    text += f": bracket {format_number(result.bracket_s)} s"
    if result.median_s is not None:
        text += f", median {format_number(result.median_s)} s"
    if result.slowest is not None:
        text += f", slowest {format_number(result.slowest[1])} s"
    return text


class LineView:
    """One line per finished phase, for output that is not a terminal."""

    def __init__(self, stream: IO[str], run: Run) -> None:
        self.progress = Progress(run)
        self._stream: IO[str] | None = stream
        self._ascii = is_ascii(getattr(stream, "encoding", None))
        self._places = {placed.copy: (placed.cpu, placed.node) for placed in run.placements}
        self._told = 0  # failures that a line has told of

    def event(self, event: Event) -> None:
        """Take in one event; writes a line when a phase ended or its outputs were wrong."""
        progress = self.progress
        if isinstance(event, PhaseStarted | RunEnded) and progress.failures > self._told:
            # Outputs are judged after their phase: what came since its line is wrong output.
            wrong = progress.failures - self._told
            self._write(f"{count(wrong, 'wrong output')}; the last: {progress.last_failure}")
        progress.event(event)
        if isinstance(event, PhaseEnded) and progress.last_phase and progress.phase:
            result = progress.last_phase
            text = result_text(result, self._ascii)
            if result.slowest and not result.steady:
                cpu, node = self._places.get(result.slowest[0], (None, None))
                where = [f"copy {result.slowest[0]}"]
                where += [f"CPU {cpu}"] if cpu is not None else []
                where += [f"lgroup {node}"] if node is not None else []
                text += f" ({', '.join(where)})"
            if result.failed:
                # In rotated order and steady mode a copy has several runs, each of which can fail.
                one_run = progress.steps_per_copy == 1
                words = ("copy", "copies") if one_run else ("copy run",)
                text += f"; {count(result.failed, *words)} failed"
                text += f", the last: {progress.last_failure}"
            if result.all_failed:
                text += "; all copies failed before the window closed"
            elif not result.complete:
                done = f"{progress.counts[DONE]} of {progress.run.copies} copies done"
                text += f"; {NO_WINDOW if progress.steady else f'stopped: {done}'}"
            self._write(f"phase {result.number} of {progress.phase.total_phases}: {text}")
        if isinstance(event, PhaseEnded | PhaseStarted):
            self._told = progress.failures

    def tick(self, now_ns: int) -> float:
        """Draw nothing: lines are written when a phase ends."""
        return NEVER_S

    def pause(self) -> None:
        """Do nothing: there is no terminal to give back."""

    def resume(self) -> None:
        """Do nothing, as `pause`."""

    def stop(self) -> None:
        """Write no more."""
        self._stream = None

    def _write(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(sanitize(text, ascii_only=self._ascii) + "\n")
                self._stream.flush()
            except OSError:  # nobody reads it any more; the run goes on
                self._stream = None

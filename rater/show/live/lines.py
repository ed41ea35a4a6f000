"""The lines of a run that is not watched on a terminal, and the words of the live view."""

from __future__ import annotations

from typing import IO

from rater.analysis.results.result import Missing
from rater.record.events import Event, PhaseEnded, PhaseStarted, RunEnded
from rater.record.stored import StoredRun
from rater.show.live.progress import DONE, PhaseResult, Progress
from rater.show.screen.console import is_ascii
from rater.show.screen.format import (
    format_duration,
    format_number,
    place_texts,
    run_title,
    sanitize,
)
from rater.text.values import copies_text, count

NEVER_S = 3600.0  # nothing to draw unless an event comes


class View:
    """What the command that runs feeds; `event` and `tick` from one thread, the rest from any."""

    def event(self, event: Event) -> None:
        """Take in one event; draws nothing (a few microseconds)."""

    def tick(self, now_ns: int) -> float:
        """Draw if it is time (`time.monotonic_ns()`); return the seconds until it is again.

        To be called again after that long or after the next event, whichever
        comes first.
        """
        return NEVER_S

    def pause(self) -> None:
        """Leave the terminal to others (Ctrl-Z)."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def stop(self) -> None:
        """End for good and leave the terminal clean; can be called twice."""


def title(run: StoredRun, ascii_only: bool) -> str:
    """Return what runs, and how, in a line."""
    head = run.head
    what_ran, how_many = run_title(head.suite, [used.name for used in run.benchmarks])
    details = ", ".join(detail for detail in (head.size, head.tune) if detail)
    stagger = f", {head.stagger_ms:g} ms between starts" if head.stagger_ms else ""
    order = " in rotated order" if head.window_s is not None and head.order == "rotated" else ""
    what_ran += f" ({details})" if details else ""
    text = f"{what_ran}{f', {how_many}' if how_many else ''}   {head.mode}{order}, "
    return sanitize(text + copies_text(head.copies) + stagger, ascii_only=ascii_only)


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
    ended, window_s = result.ended, result.window_s
    text = phase_name(ended.benchmark, ended.iteration, ended.counted, ascii_only)
    median = f", median {format_number(result.median_s)} s" if result.median_s is not None else ""
    if result.completions is None:
        text += f": bracket {format_number(ended.bracket_s)} s{median}"
        return text + (f", slowest {format_number(result.slowest[1])} s" if result.slowest else "")
    if window_s is None:
        return f"{text}: {format_duration(ended.bracket_s or 0.0)}"
    runs, rate = result.completions, format_number(result.completions / window_s)
    return f"{text}: {format_number(runs, 1)} runs in {format_duration(window_s)}, {rate}/s{median}"


class LineView(View):
    """One line per finished phase, for output that is not a terminal."""

    def __init__(self, stream: IO[str], run: StoredRun) -> None:
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
            if result.slowest and result.completions is None:
                copy = result.slowest[0]
                where = place_texts(*self._places.get(copy, (None, None)))
                text += f" ({', '.join((f'copy {copy}', *where))})"
            if result.failed:
                # In rotated order and steady mode a copy has several runs, each of which can fail.
                one_run = progress.steps_per_copy == 1
                words = ("copy", "copies") if one_run else ("copy run",)
                text += f"; {count(result.failed, *words)} failed"
                text += f", the last: {progress.last_failure}"
            if result.all_failed:
                text += "; all copies failed before the window closed"
            elif not event.complete:
                done = f"{progress.counts[DONE]} of {progress.run.head.copies} copies done"
                text += f"; {Missing.NO_WINDOW if progress.steady else f'stopped: {done}'}"
            self._write(f"phase {result.number} of {progress.phase.total_phases}: {text}")
        if isinstance(event, PhaseEnded | PhaseStarted):
            self._told = progress.failures

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

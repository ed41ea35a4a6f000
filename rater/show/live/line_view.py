"""One line per finished phase, where there is no terminal to draw on."""

from __future__ import annotations

from typing import IO

from rater.analysis.results.steady import NO_WINDOW
from rater.record.events import Event, PhaseEnded, PhaseStarted, RunEnded
from rater.record.run import Run
from rater.show.console.format import duration, number, plain, what_ran
from rater.show.console.page import is_ascii
from rater.show.live.progress import DONE, PhaseResult, Progress
from rater.text.words import copies_text, count

NEVER_S = 3600.0  # nothing to draw unless an event comes


def title(run: Run, ascii_only: bool) -> str:
    """Return what runs, and how, in a line."""
    what, how_many = what_ran(run.suite, [used.name for used in run.benchmarks])
    details = ", ".join(detail for detail in (run.size, run.tune) if detail)
    stagger = f", {run.stagger_ms:g} ms between starts" if run.stagger_ms else ""
    order = " in rotated order" if run.window_s is not None and run.order == "rotated" else ""
    what += f" ({details})" if details else ""
    text = f"{what}{f', {how_many}' if how_many else ''}   {run.mode}{order}, "
    return plain(text + copies_text(run.copies) + stagger, ascii_only=ascii_only)


def phase_name(
    benchmark: str | None, iteration: int | None, counted: bool, ascii_only: bool
) -> str:
    """Return `gups, iteration 2`, or what stands for a phase of several benchmarks."""
    name = "all benchmarks in rotation" if benchmark is None else benchmark
    text = plain(name, ascii_only=ascii_only)
    if iteration is not None:
        text += f", iteration {iteration}"
    return text if counted else f"{text} (not counted)"


def result_text(result: PhaseResult, ascii_only: bool) -> str:
    """Return what a finished phase took."""
    text = phase_name(result.benchmark, result.iteration, result.counted, ascii_only)
    if result.window_s is not None:
        text += (
            f": {number(result.completions, 1)} runs in {duration(result.window_s)}, "
            f"{number(result.completions / result.window_s)}/s"
        )
        return text + (f", median {number(result.median_s)} s" if result.median_s else "")
    if result.steady:
        return f"{text}: {duration(result.bracket_s)}"
    text += f": bracket {number(result.bracket_s)} s"
    if result.median_s is not None:
        text += f", median {number(result.median_s)} s"
    if result.slowest is not None:
        text += f", slowest {number(result.slowest[1])} s"
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
                self._stream.write(plain(text, ascii_only=self._ascii) + "\n")
                self._stream.flush()
            except OSError:  # nobody reads it any more; the run goes on
                self._stream = None

"""What the events of a run have said so far, and how long its phases will take; pure."""

from __future__ import annotations

import math
import statistics
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from rater.analysis.results.result import describe_end
from rater.record.events import (
    CopyEnded,
    CopyStarted,
    Event,
    Noted,
    OutputChecked,
    PhaseEnded,
    PhaseStarted,
    Resting,
    RunEnded,
)
from rater.record.run import CopyStatus, Validity
from rater.record.stored import StoredRun
from rater.show.screen.format import format_number
from rater.text.values import count

# -- Steady mode as it goes on: where a phase stands, and what its window has counted --------------

_EARLY = 0.1  # of the window: a rate would jump with every run


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

    def describe(self, elapsed_s: float) -> str:
        """Return `warm-up 3 of 10 s`, `window 42 of 60 s, 1234 runs, 98/s`, or what it waits for.

        `elapsed_s`: since the first release of the phase.
        """
        begin_s = (self.begin_ns - self._release_ns) / 1e9
        length_s = (self.end_ns - self.begin_ns) / 1e9
        if elapsed_s >= begin_s + length_s:
            return f"closing: waiting for {count(len(self._in_flight), 'run')}"
        if elapsed_s < begin_s:
            return f"warm-up {_whole(max(0.0, elapsed_s), begin_s)}"
        inside_s = elapsed_s - begin_s
        text = f"window {_whole(inside_s, length_s)}, {count(self._runs, 'run')}"
        early = inside_s < length_s * _EARLY or not self._runs
        return text if early else f"{text}, {format_number(self._runs / inside_s)}/s"


def _whole(elapsed_s: float, length_s: float) -> str:
    """Return `3 of 10 s`, rounded down: "60 of 60 s" is shown when it is over."""
    step = 1 if length_s >= 10 else 10
    return f"{math.floor(elapsed_s * step) / step:.{step // 10}f} of {length_s:g} s"


# -- How long the phases of a run will take, by what the plan expects and what phases took ---------


class PhaseAhead(Struct, frozen=True):
    """A phase of this call, in the order in which they come, for the time left."""

    benchmark: str | None  # None: several (rotated order)
    expected_s: float | None  # None: not known


_UNKNOWN = PhaseAhead(None, None)


class Forecast:
    """What phases are expected to take.

    What a benchmark took in an earlier iteration counts before what the plan expected; the
    rest of the plan is scaled by how the phases so far compared with it.
    """

    def __init__(self, run: StoredRun, phases: Sequence[PhaseAhead]) -> None:
        self._run = run
        self._phases = dict(enumerate(phases, 1))  # by number; as they are known when they start
        self._number = 0  # of the phase that started last
        self._measured_s: dict[str, float] = {}  # bracket of the last iteration by benchmark
        self._scale = [0.0, 0.0]  # measured and expected seconds of the phases that are over

    def started(self, phase: PhaseStarted, number: int) -> None:
        """Take in the start of a phase."""
        expected_s = phase.expected_s or self.planned(number).expected_s
        self._number, self._phases[number] = number, PhaseAhead(phase.benchmark, expected_s)

    def took(self, bracket_s: float) -> None:
        """Take in that the phase which started last ended well."""
        phase = self.planned(self._number)
        if phase.benchmark is not None:
            self._measured_s[phase.benchmark] = bracket_s
        if phase.expected_s:
            self._scale[0] += bracket_s
            self._scale[1] += phase.expected_s

    def planned(self, number: int) -> PhaseAhead:
        """Return the phase as it was planned; an unknown one has no benchmark and no time."""
        return self._phases.get(number, _UNKNOWN)

    def phase_s(self, number: int, run_s: float) -> float | None:
        """Return the expected seconds of a phase, or None; `run_s`: of one run, in steady mode."""
        head, phase = self._run.head, self.planned(number)
        if head.window_s is not None:  # until the window is over, and one run more
            return (head.warmup_s or 0.0) + head.window_s + run_s
        name, only = phase.benchmark, self._run.benchmarks
        if name is None and len(only) == 1 and head.order != "rotated":
            name = only[0].name
        if name is not None and name in self._measured_s:
            return self._measured_s[name]
        if phase.expected_s is None or not self._scale[1]:
            return phase.expected_s
        return phase.expected_s * self._scale[0] / self._scale[1]


# -- What the events of a run have said so far: who runs, who stands out, what is left -------------
#
# Fed by every event, so each costs little; what a person reads is worked out
# when it is drawn.

WAITING, RUNNING, DONE, FAILED, STOPPED = range(5)
# A running copy stands out when it is this much over the median of the finished ones, a finished
# one when it is that much over: less is what copies of one program differ by on any machine.
_RUNNING_OVER = 0.20
_FINISHED_OVER = 0.05
_SLOWEST_KEPT = 3
_TIMES_KEPT = 4096  # of steady mode's runs, which have no end: the latest ones make the median


class Outlier(Struct, frozen=True, kw_only=True):
    """A copy that takes longer than its peers."""

    copy: int
    benchmark: str
    elapsed_s: float  # so far, when it still runs
    over: float  # 0.41: 41 % over the median of the finished ones
    running: bool


class PhaseResult(Struct, frozen=True, kw_only=True):
    """A phase that is over."""

    ended: PhaseEnded
    number: int  # counts from 1, as they came
    median_s: float | None  # of the copies that ended well; None in rotated order too
    slowest: tuple[int, float] | None  # copy, seconds; of the same copies
    failed: int  # runs of a benchmark; in rotated order one copy can have several
    completions: float | None  # steady mode: in the window; runs across an edge by their share
    all_failed: bool  # steady mode: every copy, before the window closed

    @property
    def window_s(self) -> float | None:
        """Length of the window of steady mode, or None if it never closed."""
        start_ns, finish_ns = self.ended.window_start_ns, self.ended.window_finish_ns
        return None if start_ns is None or finish_ns is None else (finish_ns - start_ns) / 1e9


class _Times(Struct):
    """Times of the copies of one benchmark that ended well in this phase."""

    elapsed_ns: array[int] = field(default_factory=lambda: array("q"))
    slowest: list[tuple[int, int]] = field(default_factory=list)  # (ns, copy), longest first
    median_of: int = 0  # how many times `median_ns` is over
    median_ns: float = 0.0

    def add(self, elapsed_ns: int, copy: int) -> None:
        self.elapsed_ns.append(elapsed_ns)
        if len(self.elapsed_ns) > 2 * _TIMES_KEPT:
            del self.elapsed_ns[:_TIMES_KEPT]
            self.median_of = 0
        if len(self.slowest) < _SLOWEST_KEPT or elapsed_ns > self.slowest[-1][0]:
            self.slowest.append((elapsed_ns, copy))
            self.slowest.sort(reverse=True)
            del self.slowest[_SLOWEST_KEPT:]

    def median(self) -> float:
        if self.median_of != len(self.elapsed_ns):
            self.median_ns = statistics.median(self.elapsed_ns)
            self.median_of = len(self.elapsed_ns)
        return self.median_ns


class Progress:
    """State of a run as its events tell it; times on the monotonic clock, in nanoseconds."""

    def __init__(
        self,
        run: StoredRun,
        phases: Sequence[PhaseAhead] = (),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.run = run
        self.rotated = run.head.order == "rotated"
        self.steady = run.head.window_s is not None
        rounds = len(run.benchmarks) if self.rotated and run.head.increment else 1
        # Of a phase; None: steady mode, where a copy goes on until the window has closed.
        self.steps_per_copy = None if self.steady else rounds
        if self.steps_per_copy is not None and self.rotated:
            self.steps_per_copy *= run.head.iterations
        self.states = bytearray(run.head.copies)
        self.counts = [run.head.copies, 0, 0, 0, 0]
        self.changed = True  # anything at all changed since whoever draws cleared it
        self.phase: PhaseStarted | None = None
        self.phase_number = 0  # of this call, from 1: a resumed run begins with a later phase
        self.stage = "setting up"
        self.steps_done = 0
        self.done_of: Counter[str] = Counter()  # of this phase, by benchmark
        self._window: WindowCount | None = None  # steady mode, from the phase's first release
        self.last_phase: PhaseResult | None = None
        self.failures = 0  # runs of a benchmark, of the whole run
        self._failures_before = 0  # the same, before this phase
        self.last_failure: str | None = None
        self.last_note: str | None = None
        self.waits_for = ""  # between two phases, in words
        self._forecast = Forecast(run, phases)
        self._clock = clock
        self._origin_ns: int | None = None  # clock at the run's first release
        self._phase_start_ns: int | None = None
        self._start_ns = [0] * run.head.copies
        self._benchmark = [""] * run.head.copies
        self._times: dict[str, _Times] = {}

    # -- events -------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take in one event, in the order of the run."""
        self.changed = True
        if isinstance(event, CopyEnded):
            self._copy_ended(event)
        elif isinstance(event, CopyStarted):
            self._copy_started(event)
        elif isinstance(event, OutputChecked):
            if event.validity is Validity.INVALID:
                words = describe_end(CopyStatus.WRONG_OUTPUT, None, None, event.detail)
                self._failed(event, words)
        elif isinstance(event, PhaseStarted):
            self._phase_started(event)
        elif isinstance(event, PhaseEnded):
            self._phase_ended(event)
        elif isinstance(event, Noted):
            self.last_note = event.text
        elif isinstance(event, Resting):
            self.stage, self.waits_for = "resting", event.text
        elif isinstance(event, RunEnded):
            self.stage = "over"

    def _set(self, copy: int, state: int) -> None:
        self.counts[self.states[copy]] -= 1
        self.counts[state] += 1
        self.states[copy] = state

    def _phase_started(self, event: PhaseStarted) -> None:
        copies = self.run.head.copies
        self.phase = event
        self.phase_number += 1
        self._forecast.started(event, self.phase_number)
        self.stage = "at the gate"
        self.states = bytearray(copies)
        self.counts = [copies, 0, 0, 0, 0]
        self.done_of.clear()
        self.steps_done = 0
        self._window = None
        self._failures_before = self.failures
        self._phase_start_ns = None
        self._times.clear()

    def _copy_started(self, event: CopyStarted) -> None:
        copy = event.copy
        if self._phase_start_ns is None:
            self._phase_start_ns = event.start_ns
            self.stage = "running"
            if self._origin_ns is None:
                self._origin_ns = self._clock() - event.start_ns
            if self.phase is not None and self.phase.window_ns is not None:
                self._window = WindowCount(event.start_ns, self.phase.window_ns)
        if self._window is not None and not self._window.started(copy, event.start_ns):
            return  # it keeps up the load until the others have ended; its time is not taken
        self._start_ns[copy] = event.start_ns
        self._benchmark[copy] = event.benchmark
        if self.states[copy] == WAITING:
            self._set(copy, RUNNING)

    def _copy_ended(self, event: CopyEnded) -> None:
        copy = event.copy
        assert event.start_ns is not None and event.finish_ns is not None  # but of imported ones
        self.steps_done += 1
        self.done_of[event.benchmark] += 1
        last = event.step + 1 == self.steps_per_copy
        if self._window is not None:
            if self._window.opens(event.finish_ns):
                self._times.clear()
            good = event.status is CopyStatus.OK
            last = self._window.ended(copy, event.start_ns, event.finish_ns, good)
        if event.status is CopyStatus.OK:
            times = self._times.get(event.benchmark)
            if times is None:
                times = self._times[event.benchmark] = _Times()
            times.add(event.elapsed_ns, copy)
            if last and self.states[copy] == RUNNING:
                self._set(copy, DONE)
        elif event.status is CopyStatus.INTERRUPTED:
            self._set(copy, STOPPED)
        else:
            late = event.late_ns is not None
            self._failed(
                event, describe_end(event.status, event.exit_code, event.signal, late=late)
            )

    def _failed(self, event: CopyEnded | OutputChecked, words: str) -> None:
        self.failures += 1
        self.last_failure = f"copy {event.copy} of {event.benchmark}: {words}"
        self._set(event.copy, FAILED)

    def _phase_ended(self, event: PhaseEnded) -> None:
        times = None if event.benchmark is None else self._times.get(event.benchmark)
        failed, window = self.counts[FAILED], self._window
        assert event.bracket_s is not None and event.finish_ns is not None  # but of imported ones
        self.stage = "checking outputs"
        self.last_phase = PhaseResult(
            ended=event,
            number=self.phase_number,
            median_s=times.median() / 1e9 if times else None,
            slowest=(times.slowest[0][1], times.slowest[0][0] / 1e9) if times else None,
            failed=self.failures - self._failures_before,
            completions=window.completions if window else 0.0 if self.steady else None,
            all_failed=window is not None
            and failed == len(self.states)
            and event.finish_ns < window.end_ns,
        )
        if event.complete and not failed:
            self._forecast.took(event.bracket_s)

    # -- what a person reads --------------------------------------------------------------------

    @property
    def next_benchmark(self) -> str | None:
        """What the next phase runs; None: nothing, or several benchmarks, or it is not known."""
        return self._forecast.planned(self.phase_number + 1).benchmark

    def phase_elapsed_s(self, now_ns: int) -> float | None:
        """Return the time since the phase's first release, None before it."""
        if self._phase_start_ns is None or self._origin_ns is None:
            return None
        return (now_ns - self._origin_ns - self._phase_start_ns) / 1e9

    def window_text(self, now_ns: int) -> str | None:
        """Say how far a phase of steady mode is, None of others and before its start."""
        elapsed_s = self.phase_elapsed_s(now_ns)
        return self._window.describe(elapsed_s) if self._window and elapsed_s is not None else None

    def standouts(self, now_ns: int) -> list[Outlier]:
        """Return the copies that stand out, each once, furthest over its median first.

        A benchmark has a median worth the name once half of the copies that run
        it side by side have finished.
        """
        outliers: dict[int, Outlier] = {}
        ring = len(self.run.benchmarks) if self.rotated else 1
        needed = max(1, self.run.head.copies // max(1, ring) // 2)
        limits: dict[str, float] = {}
        for name, times in self._times.items():
            if len(times.elapsed_ns) < needed or times.median() <= 0:
                continue
            median = limits[name] = times.median()
            for elapsed, copy in times.slowest:
                over = elapsed / median - 1
                if over > _FINISHED_OVER and (copy not in outliers or over > outliers[copy].over):
                    outliers[copy] = Outlier(
                        copy=copy, benchmark=name, elapsed_s=elapsed / 1e9, over=over, running=False
                    )
        if limits and self.counts[RUNNING] and self._origin_ns is not None:
            run_ns = now_ns - self._origin_ns
            for copy, state in enumerate(self.states):
                median = limits.get(self._benchmark[copy], 0.0) if state == RUNNING else 0.0
                elapsed = run_ns - self._start_ns[copy]
                if median and elapsed > median * (1 + _RUNNING_OVER):
                    outliers[copy] = Outlier(
                        copy=copy,
                        benchmark=self._benchmark[copy],
                        elapsed_s=elapsed / 1e9,
                        over=elapsed / median - 1,
                        running=True,
                    )
        return sorted(outliers.values(), key=lambda one: (-one.over, one.copy))

    def time_left_s(self, now_ns: int) -> tuple[float, bool] | None:
        """Return the expected seconds to the end and whether that is a lower bound.

        None when something ahead is not known (`Forecast` says what counts).
        """
        if self.phase is None or self.stage == "over":
            return None
        numbers = range(self.phase_number + 1, self.phase.total_phases + 1)
        expected = [self._expected_s(number) for number in numbers]
        known_s = [one for one in expected if one is not None]
        if len(known_s) < len(expected):
            return None
        ahead_s = sum(known_s, 0.0)
        if self.stage in ("checking outputs", "resting"):
            return ahead_s, False
        elapsed_s = max(0.0, self.phase_elapsed_s(now_ns) or 0.0)
        expected_s = self._expected_s(self.phase_number)
        if expected_s is None and (self.steps_per_copy or 0) > 1:
            share = self.steps_done / (self.run.head.copies * (self.steps_per_copy or 1))
            # By the steps that are done, once they are enough to tell.
            expected_s = elapsed_s / share if share >= 0.1 else None
        if expected_s is None:
            return None
        return ahead_s + max(0.0, expected_s - elapsed_s), elapsed_s > expected_s

    def _expected_s(self, number: int) -> float | None:
        run_s = max((times.median() / 1e9 for times in self._times.values()), default=0.0)
        return self._forecast.phase_s(number, run_s)

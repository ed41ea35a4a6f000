"""How long the phases of a run will take, by what the plan expects and what phases took; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.record.events import PhaseStarted
from rater.record.run import Run


@dataclass(frozen=True, slots=True)
class PhaseAhead:
    """A phase of this call, in the order in which they come, for the time left."""

    benchmark: str | None  # None: several (rotated order)
    expected_s: float | None  # None: not known


class Forecast:
    """What phases are expected to take.

    What a benchmark took in an earlier iteration counts before what the plan expected; the
    rest of the plan is scaled by how the phases so far compared with it.
    """

    def __init__(self, run: Run, phases: Sequence[PhaseAhead]) -> None:
        self._run = run
        self._ahead = dict(enumerate(phases, 1))
        self._phase: PhaseStarted | None = None
        self._number = 0  # of it, as they come, from 1
        self._measured_s: dict[str, float] = {}  # bracket of the last iteration by benchmark
        self._scale = [0.0, 0.0]  # measured and expected seconds of the phases that are over

    def started(self, phase: PhaseStarted, number: int) -> None:
        """Take in the start of a phase."""
        self._phase, self._number = phase, number

    def took(self, bracket_s: float) -> None:
        """Take in that the phase which started last ended well."""
        planned_s = self._planned_s(self._number)
        if self._phase is not None and self._phase.benchmark is not None:
            self._measured_s[self._phase.benchmark] = bracket_s
        if planned_s:
            self._scale[0] += bracket_s
            self._scale[1] += planned_s

    def name_of(self, number: int) -> str | None:
        """Return the benchmark of a phase to come; None: not known, or several."""
        return self._ahead[number].benchmark if number in self._ahead else None

    def phase_s(self, number: int, run_s: float) -> float | None:
        """Return what a phase takes, None where that is not known; `run_s`: a run, steady mode."""
        run = self._run
        if run.window_s is not None:  # until the window is over, and one run more
            return (run.warmup_s or 0.0) + run.window_s + run_s
        name = self._ahead[number].benchmark if number in self._ahead else None
        if self._phase is not None and self._number == number:
            name = self._phase.benchmark
        elif name is None and len(run.benchmarks) == 1 and run.order != "rotated":
            name = run.benchmarks[0].name
        if name is not None and name in self._measured_s:
            return self._measured_s[name]
        planned_s = self._planned_s(number)
        if planned_s is None or not self._scale[1]:
            return planned_s
        return planned_s * self._scale[0] / self._scale[1]

    def _planned_s(self, number: int) -> float | None:
        if self._phase is not None and self._number == number and self._phase.expected_s:
            return self._phase.expected_s
        return self._ahead[number].expected_s if number in self._ahead else None

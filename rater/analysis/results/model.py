"""What a run comes to, as values: brackets, ratios, scores of its benchmarks and suites."""

from __future__ import annotations

from dataclasses import dataclass

from rater.analysis.page_sizes.proof import RunPages
from rater.analysis.placement.proof import RunProof
from rater.analysis.results.copy_outcome import CopyTime, FailedCopy
from rater.analysis.results.energy import PhaseEnergy
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.rotated import RotatedScore
from rater.analysis.results.steady import SteadyMix, SteadyPhase, is_steady
from rater.record.run import BenchmarkUsed
from rater.record.stored import Reported, RunHead

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationScore:
    """One benchmark, run once by all copies (one bracket), or in steady mode through a window.

    In steady mode there is no bracket: the ratio is that of the window, `median_copy_s` is a
    run's, the slowest copy is the one with the lowest rate (with its median run), and good and
    failed copies are those of the window.
    """

    benchmark: str
    tune: str | None
    iteration: int
    counted: bool  # False: discarded, shown only
    selected: bool = False  # the iteration whose ratio is the benchmark's
    copies: int  # that should have run
    good: int  # that ran well
    failed: int  # that crashed, timed out or answered wrongly
    bracket_s: float | None = (
        None  # start of the first copy to finish of the last; None: never closed
    )
    bracket_from_slowest: bool = False  # start times are not known: the slowest copy stands for it
    # Start of the last copy to finish of the first; can be negative.
    overlap_s: float | None = None
    ratio: float | None  # copies x reference / bracket
    per_hour: float | None  # copies per hour; the result where there is no reference time
    median_copy_s: float | None  # over the good copies
    slowest: CopyTime | None  # of the good copies
    score_lost: float | None = None  # share of the score that the slow copies cost
    reason: str | None  # why there is no ratio, in words
    steady: SteadyPhase | None = None  # steady mode: the window
    reported: Reported | None = None  # what an imported result file says itself
    energy: PhaseEnergy | None = None  # None: there are no readings of it

    @property
    def joules_per_copy(self) -> float | None:
        """Energy of one copy: of the bracket by its copies; in a window mean power by the rate."""
        if self.energy is None or self.energy.joules is None or not self.per_hour:
            return None
        if self.steady is not None:  # its readings span the warm-up, and fillers ran as well
            return self.energy.joules / self.energy.elapsed_s * HOUR_S / self.per_hour
        return self.energy.joules / self.copies

    @property
    def fault(self) -> str | None:
        """Why the result file calls it not valid."""
        return self.reported.fault if self.reported else None


@dataclass(frozen=True, slots=True)
class BenchmarkScore:
    """One benchmark over its iterations."""

    benchmark: str
    tune: str | None
    category: str | None
    reference_s: float | None
    iterations: tuple[IterationScore, ...]
    ratio: float | None  # of the selected iteration
    per_hour: float | None  # the same
    reason: str | None  # what is missing, in words; may stand beside a ratio


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run says."""

    head: RunHead
    benchmarks: tuple[BenchmarkScore, ...]  # empty in rotated order
    rotated: RotatedScore | None
    suites: tuple[SuiteScore, ...]  # all, int, fp for each tune; empty in rotated order
    failed: tuple[FailedCopy, ...]
    remarks: tuple[str, ...]  # warnings and notes of the run
    mix: SteadyMix | None  # steady mode in rotated order; `rotated` is None then
    metrics: tuple[MetricResult, ...]  # by benchmark, in the suite's order
    used: tuple[BenchmarkUsed, ...]
    left_out: tuple[tuple[str, str], ...]  # benchmarks of the suite that did not run, and why
    settings: tuple[tuple[str, str], ...]  # of the machine, and `env.*` that copies inherited
    selected: bool  # the user named some of the suite's benchmarks
    proof: RunProof  # where copies ran and their memory lay, as far as it was seen
    energies: tuple[PhaseEnergy, ...] = ()  # by phase, of those with readings
    pages: RunPages | None = None  # page sizes that copies had; None: they were not chosen

    @property
    def joules(self) -> float | None:
        """Energy of the suite: of the iterations that stand for the benchmarks, or of the ring.

        None where one has none, and in steady mode, whose windows have any length.
        """
        if self.steady:
            return None
        chosen = [it.energy for b in self.benchmarks for it in b.iterations if it.selected]
        whole = len(chosen) == len(self.benchmarks)
        of = [*self.energies] if self.rotated is not None else chosen if whole else []
        known = [it.joules for it in of if it is not None and it.joules is not None]
        return sum(known) if of and len(known) == len(of) else None

    @property
    def staggered(self) -> bool:
        """Whether the copies were released one after another (homogeneous order)."""
        return self.rotated is None and not self.steady and self.head.stagger_ms > 0

    @property
    def steady(self) -> bool:
        """Whether there are windows instead of brackets."""
        return is_steady(self.head)


@dataclass(frozen=True, slots=True)
class SuiteScore:
    """Geometric mean of ratios."""

    kind: str  # "all", "int" or "fp"
    tune: str | None
    ratio: float | None
    over: tuple[str, ...]  # the benchmarks it is, or would be, over
    reason: str | None  # why there is none, in words

"""What a run comes to: brackets, ratios, score lost, suite ratios; pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.account import TimeAccount, accounts_of, mean_account
from rater.analysis.results.metrics import MetricResult, PhaseEnergy, metric_results, phase_energies
from rater.analysis.results.outcome import (
    CopyTime,
    FailedCopy,
    failed_copy,
    is_selection,
    left_out,
    slowest,
    why_no_ratio,
)
from rater.analysis.results.placement import RunProof, prove_run
from rater.analysis.results.rotated import RotatedScore, score_rotated
from rater.analysis.results.steady import SteadyMix, SteadyPhase, is_steady, score_mix, score_window
from rater.analysis.stats.estimate import geometric_mean, lower_median_index
from rater.record.run import BenchmarkUsed, CopyStatus
from rater.record.stored import (
    PublishedResult,
    RunHead,
    StoredBracket,
    StoredCopy,
    StoredRun,
    is_good,
)
from rater.text.values import group_by_key
from rater.wings import Hook

HOUR_S = 3600.0


class RunPages(Protocol):
    """Page sizes that the copies of a run had."""

    @property
    def layout(self) -> str:
        """What was asked for."""


class PageProofs(Protocol):
    """What a wing knows of runs with `--pages`."""

    def prove_pages(self, run: StoredRun) -> RunPages | None:
        """Return what the copies of a run had; None where page sizes were not chosen."""

    def base_side(self, sides: Sequence[Sequence[StoredRun]]) -> int | None:
        """Return which side the others are compared with; None where none has a layout."""

    def layout_warnings(self, sides: Sequence[tuple[str, Sequence[StoredRun]]]) -> tuple[str, ...]:
        """Return what is wrong with comparing these sides."""


PAGE_PROOFS = Hook[PageProofs]("page proofs")


class IterationScore(Struct, frozen=True, kw_only=True):
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
    reported: PublishedResult | None = None  # what an imported result file says itself
    energy: PhaseEnergy | None = None  # None: there are no readings of it
    account: TimeAccount | None = None  # where the time went, mean of the good copies' runs

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


class BenchmarkScore(Struct, frozen=True):
    """One benchmark over its iterations."""

    benchmark: str
    tune: str | None
    category: str | None
    reference_s: float | None
    iterations: tuple[IterationScore, ...]
    ratio: float | None  # of the selected iteration
    per_hour: float | None  # the same
    reason: str | None  # what is missing, in words; may stand beside a ratio


class Summary(Struct, frozen=True):
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


class SuiteScore(Struct, frozen=True):
    """Geometric mean of ratios."""

    kind: str  # "all", "int" or "fp"
    tune: str | None
    ratio: float | None
    over: tuple[str, ...]  # the benchmarks it is, or would be, over
    reason: str | None  # why there is none, in words


# -- A stored run in, its results out: brackets, ratios, score lost, suite ratios ------------------
#
# Source of the formulas: SPEC CPU's run rules 1.2.1 and 4.10 (ratio = copies x
# reference / bracket; of three iterations the median, of two the slower; suite =
# geometric mean), and the words of rater's own design (score lost). The rotated
# order has no bracket per benchmark: see `rater.analysis.results.rotated`; steady mode has
# none at all: see `rater.analysis.results.steady`.

_WITHOUT_SCORE_LOST = ("rotated", "heterogeneous", "steady")


def summarise(run: StoredRun, proof: RunProof | None = None) -> Summary:
    """Return the results of a run, whatever of it there is (killed and interrupted ones too).

    `proof`: where copies were, if that was worked out before.
    """
    run = run.without_torn()
    rotated = run.head.order == "rotated"
    energies = phase_energies(run)
    benchmarks = () if rotated else _benchmarks(run, {it.phase: it for it in energies})
    return Summary(
        head=run.head,
        benchmarks=benchmarks,
        rotated=score_rotated(run) if rotated and not is_steady(run.head) else None,
        suites=() if rotated else _suites(benchmarks),
        failed=tuple(failed_copy(copy) for copy in run.copies if not is_good(copy)),
        remarks=run.warnings + run.notes,
        mix=score_mix(run) if rotated and is_steady(run.head) else None,
        metrics=metric_results(run),
        used=run.benchmarks,
        left_out=left_out(run.warnings),
        settings=run.settings,
        selected=is_selection(run.head),
        proof=prove_run(run) if proof is None else proof,
        energies=energies,
        pages=PAGE_PROOFS().prove_pages(run),
    )


def _benchmarks(run: StoredRun, energies: Mapping[int, PhaseEnergy]) -> tuple[BenchmarkScore, ...]:
    brackets = group_by_key(
        ((bracket.tune, bracket.benchmark), bracket)
        for bracket in run.brackets
        if bracket.benchmark is not None and bracket.iteration is not None
    )
    if run.head.source == "run":
        for name in run.head.benchmarks:
            brackets.setdefault((run.head.tune, name), [])
    copies = group_by_key((copy.phase, copy) for copy in run.copies)
    spent = accounts_of(run)
    good = (it for it in run.copies if is_good(it) and it.elapsed_ns > 0)
    accounts = group_by_key((it.phase, spent[it.phase, it.copy, it.step]) for it in good)
    means = {phase: mean_account(of) for phase, of in accounts.items()}
    ring = {name: place for place, name in enumerate(run.head.benchmarks)}
    keys = sorted(brackets, key=lambda key: (key[0] or "", ring.get(key[1], len(ring)), key[1]))
    return tuple(
        _benchmark(run, tune, name, brackets[tune, name], copies, energies=energies, accounts=means)
        for tune, name in keys
    )


def _benchmark(
    run: StoredRun,
    tune: str | None,
    name: str,
    brackets: Sequence[StoredBracket],
    copies: Mapping[int, Sequence[StoredCopy]],
    *,
    energies: Mapping[int, PhaseEnergy],
    accounts: Mapping[int, TimeAccount | None],
) -> BenchmarkScore:
    used = next((used for used in run.benchmarks if used.name == name), None)
    reference_s = used.reference_s if used else None
    iterations = [
        replace(
            _window(run.head, bracket, copies.get(bracket.phase, ()), used)
            if is_steady(run.head) and used
            else _iteration(run.head, name, bracket, copies.get(bracket.phase, ()), reference_s),
            energy=energies.get(bracket.phase),
            account=accounts.get(bracket.phase),
        )
        for bracket in sorted(brackets, key=lambda bracket: bracket.iteration or 0)
    ]
    counted = [it for it in iterations if it.counted]
    valid = [it for it in counted if it.reason is None and it.per_hour is not None]
    chosen = None
    if valid and not any(it.failed or it.fault for it in counted):
        chosen = valid[lower_median_index([it.per_hour or 0.0 for it in valid])]
    return BenchmarkScore(
        benchmark=name,
        tune=tune,
        category=used.category if used else None,
        reference_s=reference_s,
        iterations=tuple(replace(it, selected=it is chosen) for it in iterations),
        ratio=chosen.ratio if chosen else None,
        per_hour=chosen.per_hour if chosen else None,
        reason=_what_is_missing(run.head, iterations),
    )


def _what_is_missing(head: RunHead, iterations: Sequence[IterationScore]) -> str | None:
    counted = [it for it in iterations if it.counted]
    # Failures before what merely did not finish: they are what a person must act on.
    for it in sorted((it for it in counted if it.reason), key=lambda it: not it.failed):
        return it.reason if len(iterations) == 1 else f"iteration {it.iteration}: {it.reason}"
    wanted = head.iterations - head.discard
    if head.source == "run" and len(counted) < wanted:
        return f"{len(counted)} of {wanted} counted iterations ran" if counted else "did not run"
    return None


def _iteration(
    head: RunHead,
    name: str,
    bracket: StoredBracket,
    copies: Sequence[StoredCopy],
    reference_s: float | None,
) -> IterationScore:
    own = head.source == "run"
    reported = bracket.reported
    planned = head.copies if own else (reported and reported.copies) or len(copies)
    good = [copy for copy in copies if is_good(copy)]
    failed = [c for c in copies if not is_good(c) and c.status is not CopyStatus.INTERRUPTED]
    reason = why_no_ratio(copies, planned, checked=own)
    last = slowest(good)
    bracket_s, overlap_s = _bracket_times(bracket, copies, planned)
    if reported is not None and not failed:
        if reported.fault:
            reason = reported.fault
        elif reported.valid and reported.reported_s and not copies:
            reason = None  # the file has no times of copies, and calls it valid
    if reported is not None and bracket_s is None:
        bracket_s = reported.reported_s
    from_slowest = bracket_s is None and reason is None and last is not None
    if from_slowest and last is not None:
        bracket_s = last.elapsed_s
    median_s = statistics.median(copy.elapsed_s for copy in good) if good else None
    rate = planned / bracket_s if reason is None and bracket_s else None
    return IterationScore(
        benchmark=name,
        tune=bracket.tune,
        iteration=bracket.iteration or 0,
        counted=bracket.counted,
        copies=planned,
        good=len(good),
        failed=len(failed),
        bracket_s=bracket_s,
        bracket_from_slowest=from_slowest,
        overlap_s=overlap_s,
        ratio=rate * reference_s if rate is not None and reference_s else None,
        per_hour=rate * HOUR_S if rate is not None else None,
        median_copy_s=median_s,
        slowest=last,
        score_lost=_score_lost(head, bracket_s, median_s, last) if rate is not None else None,
        reason=reason,
        reported=reported,
    )


def _window(
    head: RunHead, bracket: StoredBracket, copies: Sequence[StoredCopy], used: BenchmarkUsed
) -> IterationScore:
    window = score_window(head, bracket, copies, (used,))
    (rate,) = window.benchmarks
    last = None
    if window.slowest is not None:
        of_it = [c.elapsed_s for c in copies if c.copy == window.slowest.copy and is_good(c)]
        place = window.slowest
        last = CopyTime(place.copy, place.cpu, place.node, statistics.median(of_it))
    valid = window.reason is None
    return IterationScore(
        benchmark=used.name,
        tune=bracket.tune,
        iteration=bracket.iteration or 0,
        counted=bracket.counted,
        copies=head.copies,
        good=window.good_copies,
        failed=window.failed_copies,
        ratio=rate.ratio if valid else None,
        per_hour=rate.per_hour if valid else None,
        median_copy_s=rate.median_run_s,
        slowest=last,
        reason=window.reason,
        steady=window,
    )


def _bracket_times(
    bracket: StoredBracket, copies: Sequence[StoredCopy], planned: int
) -> tuple[float | None, float | None]:
    """Return the bracket and the time in which all copies ran, as far as they are known.

    A phase that rater did not live to close has them when every copy is there.
    """
    overlap_s = None
    if bracket.first_finish_ns is not None and bracket.last_start_ns is not None:
        overlap_s = (bracket.first_finish_ns - bracket.last_start_ns) / 1e9
    if bracket.bracket_s is not None:
        return bracket.bracket_s, overlap_s
    starts = [copy.start_ns for copy in copies if copy.start_ns is not None]
    finishes = [copy.finish_ns for copy in copies if copy.finish_ns is not None]
    if not copies or len(starts) < planned or len(finishes) < planned:
        return None, None
    return (max(finishes) - min(starts)) / 1e9, (min(finishes) - max(starts)) / 1e9


def _score_lost(
    head: RunHead, bracket_s: float | None, median_s: float | None, last: CopyTime | None
) -> float | None:
    """1 - median copy / bracket; staggered, 1 - median copy / slowest copy."""
    if head.mode in _WITHOUT_SCORE_LOST or median_s is None or last is None:
        return None
    whole_s = last.elapsed_s if head.stagger_ms > 0 else bracket_s
    return 1 - median_s / whole_s if whole_s else None


def _suites(benchmarks: Sequence[BenchmarkScore]) -> tuple[SuiteScore, ...]:
    """Return the scores over all benchmarks, over int and over fp, for each tune."""
    return tuple(
        _suite(kind, tune, [one for one in of_tune if kind in ("all", one.category)])
        for tune, of_tune in group_by_key((one.tune, one) for one in benchmarks).items()
        for kind in ("all", "int", "fp")
    )


def _suite(kind: str, tune: str | None, members: Sequence[BenchmarkScore]) -> SuiteScore:
    over = tuple(member.benchmark for member in members)
    reason = None
    missing = [it.benchmark for it in members if it.reason or it.ratio is None]
    # What failed may be all the file knows of a benchmark, its reference time not among it.
    without = [it.benchmark for it in members if not (it.reference_s or it.reason)]
    if not members:
        reason = "no benchmarks" if kind == "all" else f"no {kind} benchmark in this run"
    elif without:
        reason = f"no reference time: {', '.join(without)}"
    elif missing:
        reason = f"{', '.join(missing)} did not complete"
    ratio = None if reason else geometric_mean([member.ratio or 0.0 for member in members])
    return SuiteScore(kind, tune, ratio, over, reason)

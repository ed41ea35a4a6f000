"""What a run comes to: brackets, ratios, score lost, suite ratios; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.account import (
    TimeAccount,
    crowded_remarks,
    mean_account,
    time_accounts,
)
from rater.analysis.results.metrics import MetricResult, metric_results, phase_energies
from rater.analysis.results.placement import RunProof, prove_run
from rater.analysis.results.result import (
    BenchmarkScore,
    CopyTime,
    Missing,
    PhaseEnergy,
    Result,
    failures,
    why_incomplete,
    why_missing,
)
from rater.analysis.results.rotated import Ring, ring_of
from rater.analysis.results.steady import Mix, is_steady, mix_of, window_results
from rater.analysis.stats.estimate import geometric_mean, lower_median_index
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import BenchmarkUsed
from rater.record.stored import PER_HOUR, RATIO, RunHead, StoredRun, is_good
from rater.text.values import group_by_key
from rater.wings import Hook


class RunPages(Protocol):
    """Page sizes that the copies of a run had."""

    @property
    def layout(self) -> str:
        """The request, as `--pages` was given it."""


class PageProofs(Protocol):
    """What a wing knows of runs with `--pages`."""

    def prove_pages(self, run: StoredRun) -> RunPages | None:
        """Return the page sizes that the copies of a run had; None: the run chose none."""

    def base_side(self, sides: Sequence[Sequence[StoredRun]]) -> int | None:
        """Return the position of the side that is the baseline; None: no side has a layout."""

    def layout_warnings(self, sides: Sequence[tuple[str, Sequence[StoredRun]]]) -> tuple[str, ...]:
        """Return what is wrong with comparing these sides."""


PAGE_PROOFS = Hook[PageProofs]("page proofs")


class Overall(Struct, frozen=True):
    """The one number of a run, larger is better."""

    value: float
    unit: str  # RATIO, or PER_HOUR where a reference time is missing


class Summary(Struct, frozen=True, kw_only=True):
    """What a run says."""

    run: StoredRun  # torn attempts left out
    scores: tuple[BenchmarkScore, ...]
    rotated: Ring | None
    suites: tuple[SuiteScore, ...]  # all, int, fp for each tune; empty in rotated order
    remarks: tuple[str, ...]  # warnings and notes of the run, and what its rows say in a word
    mix: Mix | None  # steady mode in rotated order; `rotated` is None then
    metrics: tuple[MetricResult, ...]  # by benchmark, in the suite's order
    proof: RunProof  # where copies ran and their memory lay, as far as it was seen
    energies: tuple[PhaseEnergy, ...] = ()  # by phase, of those with readings
    pages: RunPages | None = None  # page sizes that copies had; None: they were not chosen

    @property
    def head(self) -> RunHead:
        """Its head."""
        return self.run.head

    @property
    def failed(self) -> tuple[CopyEnded, ...]:
        """The copies that do not count."""
        return tuple(copy for copy in self.run.copies if not is_good(copy))

    @property
    def benchmarks(self) -> tuple[BenchmarkScore, ...]:
        """Those that ran alone: none in rotated order, whose results are of a mix."""
        return () if self.head.order == "rotated" else self.scores

    @property
    def overall(self) -> Overall | None:
        """The suite's ratio, else the geometric mean of the benchmarks' copies an hour.

        Of rotated order it is the mean of the copies' geometric means. A run with a benchmark that
        has no valid result has None: the number would be that of another selection.
        """
        value, unit = None, RATIO
        if self.rotated is not None:
            value, unit = self.rotated.score, self.rotated.unit
        elif self.mix is not None:
            window = self.mix.selected
            if window is not None:
                by_ratio = window.ratio is not None
                value, unit = (window.ratio, RATIO) if by_ratio else (window.per_hour, PER_HOUR)
        elif any(score.reference_s for score in self.scores):
            ratios = [suite.ratio for suite in self.suites if suite.kind == "all"]
            value = next((ratio for ratio in ratios if ratio is not None), None)
        elif not any(score.reason or not score.per_hour for score in self.scores):
            value, unit = geometric_mean([score.per_hour or 0.0 for score in self.scores]), PER_HOUR
        return None if value is None else Overall(value, unit)

    @property
    def joules(self) -> float | None:
        """Energy of the suite: of the iterations that stand for the benchmarks, or of the ring.

        None: a benchmark has no energy, or the mode is steady, whose windows have any length.
        """
        if self.steady:
            return None
        chosen = [
            iteration.energy
            for benchmark in self.benchmarks
            for iteration in benchmark.iterations
            if iteration.selected
        ]
        all_have_one = len(chosen) == len(self.benchmarks)
        energies = [*self.energies] if self.rotated is not None else chosen if all_have_one else []
        known_joules = [
            energy.joules for energy in energies if energy is not None and energy.joules is not None
        ]
        return sum(known_joules) if energies and len(known_joules) == len(energies) else None

    @property
    def staggered(self) -> bool:
        """Whether the copies were released one after another (homogeneous order)."""
        return self.rotated is None and not self.steady and self.head.stagger_ms > 0

    @property
    def steady(self) -> bool:
        """Whether there are windows instead of brackets."""
        return is_steady(self.head)


class SuiteScore(Struct, frozen=True, kw_only=True):
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
    results = run_results(run, _accounts_by_phase(run))
    alone = () if run.head.order == "rotated" else results.scores
    return Summary(
        run=run,
        scores=results.scores,
        rotated=results.rotated,
        suites=tuple(
            _suite(kind, tune, [score for score in tune_scores if kind in ("all", score.category)])
            for tune, tune_scores in group_by_key((score.tune, score) for score in alone).items()
            for kind in ("all", "int", "fp")
        ),
        remarks=(*run.warnings, *run.notes, *crowded_remarks(run)),
        mix=results.mix,
        metrics=metric_results(run),
        proof=prove_run(run) if proof is None else proof,
        energies=results.energies,
        pages=PAGE_PROOFS().prove_pages(run),
    )


class RunResults(Struct, frozen=True, kw_only=True):
    """The results of a run alone."""

    scores: tuple[BenchmarkScore, ...]
    rotated: Ring | None  # of rotated order
    mix: Mix | None  # of steady mode in rotated order
    energies: tuple[PhaseEnergy, ...]


def run_results(run: StoredRun, accounts: Mapping[int, TimeAccount | None] = {}) -> RunResults:
    """Return the results of a run without torn attempts.

    `accounts`: where the time of each phase went, which is only told.
    """
    head, energies = run.head, phase_energies(run)
    rotated, mix = None, None
    if head.order != "rotated":
        results = window_results(run) if is_steady(head) else _bracket_results(run)
        energy_of_phase = {energy.phase: energy for energy in energies}
        scores = _scores(
            run,
            [
                replace(
                    result,
                    energy=energy_of_phase.get(result.phase or 0),
                    account=accounts.get(result.phase or 0),
                )
                for result in results
            ],
        )
    elif is_steady(head):
        mixed_results = [*window_results(run)]
        windows = {result.phase: result.steady for result in mixed_results if result.steady}
        mix = mix_of(run, [*windows.values()])
        scores = tuple(_score_in_mix(benchmark, mixed_results, mix) for benchmark in run.benchmarks)
    else:
        mixed_results, rotated = ring_of(run)
        scores = tuple(
            BenchmarkScore(
                benchmark=result.benchmark,
                tune=result.tune,
                category=result.category,
                reference_s=result.reference_s,
                iterations=(result,),
                reason=None if result.selected else result.reason,
            )
            for result in mixed_results
        )
    return RunResults(scores=scores, rotated=rotated, mix=mix, energies=energies)


def _score_in_mix(used: BenchmarkUsed, results: Sequence[Result], mix: Mix) -> BenchmarkScore:
    """Return a benchmark in all windows; that of the selected one stands for it."""
    benchmark_results = [
        replace(result, selected=result.steady is mix.selected)
        for result in results
        if result.benchmark == used.name
    ]
    chosen = next((result for result in benchmark_results if result.selected), None)
    reason = mix.reason or (None if chosen and chosen.per_s else Missing.NO_RESULT)
    tune = benchmark_results[0].tune if benchmark_results else None
    return BenchmarkScore(
        benchmark=used.name,
        tune=tune,
        category=used.category,
        reference_s=used.reference_s,
        iterations=tuple(benchmark_results),
        reason=reason,
    )


def _scores(run: StoredRun, results: Iterable[Result]) -> tuple[BenchmarkScore, ...]:
    """Return benchmarks that ran alone; of own runs those as well of which nothing is stored."""
    used = {benchmark.name: benchmark for benchmark in run.benchmarks}
    by_benchmark = group_by_key(((result.tune, result.benchmark), result) for result in results)
    for name in run.head.benchmarks if run.head.source == "run" else ():
        by_benchmark.setdefault((run.head.tune, name), [])
    ring = {name: place for place, name in enumerate(run.head.benchmarks)}
    in_order = sorted(
        by_benchmark.items(),
        key=lambda item: (item[0][0] or "", ring.get(item[0][1], len(ring)), item[0][1]),
    )
    return tuple(
        _score(run.head, used.get(name, BenchmarkUsed(name=name)), tune, benchmark_results)
        for (tune, name), benchmark_results in in_order
    )


def _accounts_by_phase(run: StoredRun) -> dict[int, TimeAccount | None]:
    """Return where the time of the good copies of each phase went, on average."""
    time_of_copy = time_accounts(run)
    accounts = group_by_key(
        (copy.phase, time_of_copy[copy.phase, copy.copy, copy.step])
        for copy in run.copies
        if is_good(copy) and copy.elapsed_ns > 0
    )
    return {phase: mean_account(of_phase) for phase, of_phase in accounts.items()}


def _score(
    head: RunHead, benchmark: BenchmarkUsed, tune: str | None, results: Sequence[Result]
) -> BenchmarkScore:
    iterations = sorted(results, key=lambda result: result.iteration or 0)
    chosen = _choose_iteration(iterations)
    return BenchmarkScore(
        benchmark=benchmark.name,
        tune=tune,
        category=benchmark.category,
        reference_s=benchmark.reference_s,
        iterations=tuple(replace(result, selected=result is chosen) for result in iterations),
        reason=why_incomplete(head, iterations),
    )


def _choose_iteration(iterations: Sequence[Result]) -> Result | None:
    """Return the result that stands for a benchmark: of three the median, of two the slower.

    A counted iteration that failed leaves no result to pick.
    """
    counted = [result for result in iterations if result.counted]
    if any(result.failed or (result.reported and result.reported.fault) for result in counted):
        return None
    valid = [result for result in counted if result.reason is None and result.per_s is not None]
    if not valid:
        return None
    return valid[lower_median_index([result.per_s or 0.0 for result in valid])]


def _bracket_results(run: StoredRun) -> Iterator[Result]:
    """Yield a result for each bracket of a benchmark: all copies released, until the last ended."""
    head, used = run.head, {benchmark.name: benchmark for benchmark in run.benchmarks}
    rows = group_by_key((copy.phase, copy) for copy in run.copies)
    for bracket in run.brackets:
        if bracket.benchmark is not None and bracket.iteration is not None:
            benchmark_used = used.get(bracket.benchmark, BenchmarkUsed(name=bracket.benchmark))
            yield _bracket_result(head, benchmark_used, bracket, rows.get(bracket.phase, ()))


def _bracket_result(
    head: RunHead, benchmark: BenchmarkUsed, bracket: PhaseEnded, copies: Sequence[CopyEnded]
) -> Result:
    is_own = head.source == "run"
    reported = bracket.reported
    planned = head.copies if is_own else (reported and reported.copies) or len(copies)
    good, failed = [copy for copy in copies if is_good(copy)], failures(copies)
    reason = why_missing(copies, planned, checked=is_own)
    slowest = max(good, key=lambda copy: (copy.elapsed_ns, -copy.copy), default=None)
    slowest_time = (
        CopyTime(slowest.copy, slowest.cpu, slowest.node, slowest.elapsed_s) if slowest else None
    )
    bracket_s, overlap_s = _bracket_times(bracket, copies, planned)
    if reported is not None and not failed:
        if reported.fault:
            reason = Missing.FILE.describe(fault=reported.fault)
        elif reported.valid and reported.reported_s and not copies:
            reason = None  # the file has no times of copies, and calls it valid
    if reported is not None and bracket_s is None:
        bracket_s = reported.reported_s
    from_slowest = bracket_s is None and reason is None and slowest_time is not None
    if from_slowest and slowest_time is not None:
        bracket_s = slowest_time.elapsed_s
    median_s = statistics.median(copy.elapsed_s for copy in good) if good else None
    per_s = planned / bracket_s if reason is None and bracket_s else None
    # 1 - median copy / bracket; staggered, 1 - median copy / slowest copy.
    has_lost = (
        per_s is not None and slowest_time is not None and head.mode not in _WITHOUT_SCORE_LOST
    )
    whole_s = slowest_time.elapsed_s if head.stagger_ms > 0 and slowest_time else bracket_s
    return Result(
        benchmark=benchmark.name,
        tune=bracket.tune,
        category=benchmark.category,
        reference_s=benchmark.reference_s,
        phase=bracket.phase,
        iteration=bracket.iteration,
        counted=bracket.counted,
        copies=planned,
        good=len(good),
        failed=len(failed),
        per_s=per_s,
        reason=reason,
        median_copy_s=median_s,
        slowest=slowest_time,
        bracket_s=bracket_s,
        bracket_from_slowest=from_slowest,
        overlap_s=overlap_s,
        score_lost=1 - median_s / whole_s
        if has_lost and whole_s and median_s is not None
        else None,
        reported=reported,
    )


def _bracket_times(
    bracket: PhaseEnded, copies: Sequence[CopyEnded], planned: int
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


def _suite(kind: str, tune: str | None, members: Sequence[BenchmarkScore]) -> SuiteScore:
    over = tuple(member.benchmark for member in members)
    reason: str | None = None
    missing = [member.benchmark for member in members if member.reason or member.ratio is None]
    # What failed may be all the file knows of a benchmark, its reference time not among it.
    without_reference = [
        member.benchmark for member in members if not (member.reference_s or member.reason)
    ]
    if not members:
        reason = "no benchmarks" if kind == "all" else f"no {kind} benchmark in this run"
    elif without_reference:
        reason = Missing.NO_REFERENCE.describe(names=", ".join(without_reference))
    elif missing:
        reason = Missing.INCOMPLETE.describe(names=", ".join(missing))
    ratio = None if reason else geometric_mean([member.ratio or 0.0 for member in members])
    return SuiteScore(kind=kind, tune=tune, ratio=ratio, over=over, reason=reason)

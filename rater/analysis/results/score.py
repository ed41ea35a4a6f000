"""What a run comes to: brackets, ratios, score lost, suite ratios; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.account import mean_account, time_accounts
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
    remarks: tuple[str, ...]  # warnings and notes of the run
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

        Of rotated order the mean of the copies' geometric means. None where a benchmark has no
        valid result: the number would be that of another selection.
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

        None where one has none, and in steady mode, whose windows have any length.
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
        known_joules = [it.joules for it in energies if it is not None and it.joules is not None]
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
    head, energies = run.head, phase_energies(run)
    rotated, mix = None, None
    if head.order != "rotated":
        results = window_results(run) if is_steady(head) else _bracket_results(run)
        scores = _scores(run, results, {energy.phase: energy for energy in energies})
    elif is_steady(head):
        mixed_results = [*window_results(run)]
        mix = mix_of(run, [*{it.phase: it.steady for it in mixed_results if it.steady}.values()])
        scores = tuple(_score_in_mix(benchmark, mixed_results, mix) for benchmark in run.benchmarks)
    else:
        mixed_results, rotated = ring_of(run)
        scores = tuple(
            BenchmarkScore(
                benchmark=it.benchmark,
                tune=it.tune,
                category=it.category,
                reference_s=it.reference_s,
                iterations=(it,),
                reason=None if it.selected else it.reason,
            )
            for it in mixed_results
        )
    alone = () if head.order == "rotated" else scores
    return Summary(
        run=run,
        scores=scores,
        rotated=rotated,
        suites=tuple(
            _suite(kind, tune, [one for one in of_tune if kind in ("all", one.category)])
            for tune, of_tune in group_by_key((one.tune, one) for one in alone).items()
            for kind in ("all", "int", "fp")
        ),
        remarks=run.warnings + run.notes,
        mix=mix,
        metrics=metric_results(run),
        proof=prove_run(run) if proof is None else proof,
        energies=energies,
        pages=PAGE_PROOFS().prove_pages(run),
    )


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


def _scores(
    run: StoredRun, results: Iterable[Result], energies: Mapping[int, PhaseEnergy]
) -> tuple[BenchmarkScore, ...]:
    """Return benchmarks that ran alone; of own runs those as well of which nothing is stored."""
    head, used = run.head, {benchmark.name: benchmark for benchmark in run.benchmarks}
    spent = time_accounts(run)
    good = (copy for copy in run.copies if is_good(copy) and copy.elapsed_ns > 0)
    accounts = group_by_key((it.phase, spent[it.phase, it.copy, it.step]) for it in good)
    found: dict[tuple[str | None, str], list[Result]] = {}
    for it in results:
        account = mean_account(accounts.get(it.phase or 0, ()))
        measured = replace(it, energy=energies.get(it.phase or 0), account=account)
        found.setdefault((it.tune, it.benchmark), []).append(measured)
    for name in head.benchmarks if head.source == "run" else ():
        found.setdefault((head.tune, name), [])
    ring = {name: place for place, name in enumerate(head.benchmarks)}
    scores = []
    for tune, name in sorted(
        found, key=lambda it: (it[0] or "", ring.get(it[1], len(ring)), it[1])
    ):
        own = sorted(found[tune, name], key=lambda it: it.iteration or 0)
        counted = [it for it in own if it.counted]
        valid = [it for it in counted if it.reason is None and it.per_s is not None]
        chosen = None
        if valid and not any(it.failed or (it.reported and it.reported.fault) for it in counted):
            chosen = valid[lower_median_index([it.per_s or 0.0 for it in valid])]
        its = used.get(name, BenchmarkUsed(name=name))
        iterations = tuple(replace(it, selected=it is chosen) for it in own)
        reason = why_incomplete(head, own)
        scores.append(
            BenchmarkScore(
                benchmark=name,
                tune=tune,
                category=its.category,
                reference_s=its.reference_s,
                iterations=iterations,
                reason=reason,
            )
        )
    return tuple(scores)


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

"""The JSON document of a run's results, of `rater run --json` and `rater show --json`; pure.

`rater.show.documents.run` says what each key means. Where a value is not known or not given it is
null; keys that only some modes have are left out in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.analysis.results.result import (
    HOUR_S,
    BenchmarkScore,
    Result,
    SteadyWindow,
    benchmarks_left_out,
    failure_text,
)
from rater.analysis.results.starts import staggered_starts
from rater.record.run import CopyStatus
from rater.show.results.cpu_use import energy_json
from rater.text.values import to_json

if TYPE_CHECKING:
    from rater.analysis.compare.barrier import BarrierComparison
    from rater.analysis.results.metrics import MetricResult
    from rater.analysis.results.rotated import Ring
    from rater.analysis.results.score import SuiteScore, Summary
    from rater.analysis.results.steadiness import Steadiness
    from rater.analysis.results.steady import Mix
    from rater.record.events import CopyEnded, PublishedResult
    from rater.show.documents.run import (
        AloneJson,
        BenchmarkJson,
        FailedCopyJson,
        FileSaysJson,
        FileSaysPart,
        HalvesJson,
        InMixJson,
        InRingJson,
        InWindowJson,
        MetricJson,
        MixJson,
        MixWindowJson,
        ResultJson,
        RotatedJson,
        SteadyPart,
        SuiteJson,
        SuiteRatioJson,
        SuiteScoreJson,
        SummaryDocument,
        WindowPartJson,
    )


def summary_document(
    summary: Summary, barrier_comparison: BarrierComparison | None = None
) -> SummaryDocument:
    """Return the results of a run; seconds are floats, iterations count from 1.

    `beside`: the run with a barrier that a steady one is compared with.
    """
    head = summary.head
    document: SummaryDocument = {
        "run": head.run,
        "uuid": head.uuid,
        "status": head.status.reported,
        "reason": head.reason,
        "mode": head.mode,
        "copies": head.copies,
        "started_at": head.started_at,
        "elapsed_s": head.elapsed_s,
        "host": head.hostname,
        "source": head.source,
        "suite_name": head.suite,
        "size": head.size,
        "tune": head.tune,
        "iterations": head.iterations,
        "discard": head.discard,
        "stagger_ms": head.stagger_ms,
        "increment": head.increment,
        "layout": head.layout,
        "memory": head.memory,
        "tags": dict(head.tags),
        "benchmarks": _benchmarks(summary),
        "results": [_result(score) for score in summary.benchmarks],
        "suite": _suite(summary),
        "metrics": [_metric(metric) for metric in summary.metrics],
        "failed": [_failed_copy(copy) for copy in summary.failed],
        "remarks": [*summary.remarks],
    }
    if starts := staggered_starts(summary.run):
        document["starts"] = {"apart_s": starts.apart_s, "most_late_s": starts.most_late_s}
    if summary.rotated:
        document["rotated"] = _rotated(summary.rotated)
    if summary.steady:
        document["warmup_s"] = head.warmup_s
        document["window_s"] = head.window_s
    if summary.mix:
        document["mix"] = _mix(summary.mix)
    if summary.energies:
        document["energy"] = energy_json(summary)
    if barrier_comparison:
        document["comparison"] = to_json(barrier_comparison)
    return document


# -- Benchmarks, iteration by iteration ------------------------------------------------------------


def _benchmarks(summary: Summary) -> list[BenchmarkJson]:
    results = [iteration for score in summary.scores for iteration in score.iterations]
    if summary.rotated:
        return [_in_ring(result) for result in results]
    if summary.mix:
        results.sort(key=lambda result: result.iteration or 0)
        return [_in_mix(result) for result in results]
    not_met = summary.proof.not_met()
    return [
        _alone(result, not_met.get((result.benchmark, result.iteration or 0), ()))
        for result in results
    ]


def _alone(result: Result, not_met: Sequence[int]) -> AloneJson:
    """Return a benchmark that all copies ran at the same time; `not_met`: copies off their plan."""
    steady: SteadyPart = {}
    if result.steady is not None:
        steady = {"steady": {**_in_window(result, result.steady), **_window(result.steady)}}
    file_says: FileSaysPart = {}
    if result.reported is not None:
        file_says = {"file_says": _file_says(result.reported)}
    return {
        **steady,
        "benchmark": result.benchmark,
        "tune": result.tune,
        "category": result.category,
        "iteration": result.iteration,
        "counted": result.counted,
        "selected": result.selected,
        "copies": result.copies,
        "good_copies": result.good,
        "failed_copies": result.failed,
        "bracket_s": result.bracket_s,
        "bracket_from_slowest": result.bracket_from_slowest,
        "overlap_s": result.overlap_s,
        "reference_s": result.reference_s,
        "ratio": result.ratio,
        "copies_per_hour": result.per_hour,
        "score_lost": result.score_lost,
        "median_copy_s": result.median_copy_s,
        "slowest": to_json(result.slowest),
        "placement_not_met": [*not_met],
        "account": to_json(result.account),
        **file_says,
        "reason": result.reason,
    }


def _in_ring(result: Result) -> InRingJson:
    """Return a benchmark of rotated order, which has no bracket of its own."""
    return {
        "benchmark": result.benchmark,
        "category": result.category,
        "iteration": result.iteration,
        "bracket_s": None,
        "reference_s": result.reference_s,
        "ratio": None,
        "score_lost": None,
        "median_copy_s": result.median_copy_s,
        "slowest": to_json(result.slowest),
        "times_s": to_json(result.times_s),
        "rates": to_json(result.rates),
        "queued_copies": result.copies,
        "reason": result.reason,
    }


def _in_mix(result: Result) -> InMixJson:
    """Return a benchmark of a window that all of them share: steady mode in rotated order."""
    if result.steady is None:
        raise ValueError(f"{result.benchmark}: no window")
    return {
        "benchmark": result.benchmark,
        "category": result.category,
        "iteration": result.iteration,
        "counted": result.counted,
        "bracket_s": None,
        "reference_s": result.reference_s,
        "ratio": result.ratio,
        "copies_per_hour": result.per_hour,
        "score_lost": None,
        "median_copy_s": result.median_copy_s,
        "slowest": to_json(result.slowest),
        "steady": _in_window(result, result.steady),
        "reason": result.reason,
    }


def _file_says(published: PublishedResult) -> FileSaysJson:
    return {
        "reported_s": published.reported_s,
        "ratio": published.ratio,
        "selected": published.selected,
        "valid": published.valid,
        "errors": published.errors.splitlines() if published.errors else [],
    }


# -- Windows of steady mode ------------------------------------------------------------------------


def _in_window(result: Result, window: SteadyWindow) -> InWindowJson:
    """Return what runs of one benchmark came to in a window, whether it is a result or not."""
    return {
        "completions": result.completions,
        "whole_runs": result.whole,
        "copies_per_hour": result.completions / window.window_s * HOUR_S,
        "median_run_s": result.median_copy_s,
    }


def _window(window: SteadyWindow) -> WindowPartJson:
    return {
        "warmup_s": window.warmup_s,
        "window_s": window.window_s,
        "halves": None if window.halves is None else _halves(window.halves),
        "longest_warmup_run_s": window.longest_warmup_run_s,
        "needed_warmup_s": window.needed_warmup_s,
        "unit": window.unit,
        "copies": to_json(window.copies),
        "rates": to_json(window.rates),
        "slowest": to_json(window.slowest),
        "occupied": window.occupied,
        "gap_s": window.gap_s,
        "lgroups": to_json(window.lgroups),
        "reason": window.reason,
    }


def _halves(steadiness: Steadiness) -> HalvesJson:
    return {
        "verdict": steadiness.verdict,
        "difference": steadiness.difference,
        "interval_95": None if steadiness.interval is None else [*steadiness.interval],
        "fewest_whole_runs": steadiness.fewest,
        "needed_window_s": steadiness.needed_s,
        "falls": [
            {"copy": fall.copy, "change": fall.change, "usual_change": fall.usual_change}
            for fall in steadiness.falls
        ],
    }


def _mix(mix: Mix) -> MixJson:
    return {
        "ratio": None if mix.selected is None else mix.selected.ratio,
        "windows": [_mix_window(window, window is mix.selected) for window in mix.windows],
        "reason": mix.reason,
    }


def _mix_window(window: SteadyWindow, selected: bool) -> MixWindowJson:
    """Return a window of several benchmarks."""
    valid = window.reason is None
    return {
        "iteration": window.iteration,
        "counted": window.counted,
        "selected": selected,
        "ratio": window.ratio if valid else None,
        "copies_per_hour": window.per_hour if valid else None,
        **_window(window),
    }


# -- Suites, metrics, failures, rotated order ------------------------------------------------------


def _result(score: BenchmarkScore) -> ResultJson:
    return {
        "benchmark": score.benchmark,
        "tune": score.tune,
        "category": score.category,
        "reference_s": score.reference_s,
        "ratio": score.ratio,
        "copies_per_hour": score.per_hour,
        "iterations": len(score.iterations),
        "reason": score.reason,
    }


def _suite(summary: Summary) -> SuiteJson:
    return {
        **_suite_ratio(summary.suites),
        "left_out": [
            {"benchmark": benchmark, "reason": reason}
            for benchmark, reason in benchmarks_left_out(summary.run.warnings)
        ],
    }


def _suite_ratio(suites: Sequence[SuiteScore]) -> SuiteRatioJson:
    """Return the scores of the first tune; the others under `tunes` beside it."""
    if not suites:
        return {"ratio": None, "int": None, "fp": None, "over": [], "reason": None}
    first = {score.kind: score for score in suites if score.tune == suites[0].tune}
    scores: SuiteRatioJson = {
        "ratio": first["all"].ratio,
        "int": first["int"].ratio,
        "fp": first["fp"].ratio,
        "over": [*first["all"].over],
        "reason": first["all"].reason,
    }
    if len(first) < len(suites):
        scores["tunes"] = [_suite_score(score) for score in suites]
    return scores


def _suite_score(score: SuiteScore) -> SuiteScoreJson:
    return {
        "tune": score.tune,
        "kind": score.kind,
        "ratio": score.ratio,
        "reason": score.reason,
    }


def _metric(metric: MetricResult) -> MetricJson:
    fields: MetricJson = to_json(metric)
    fields["worst"] = to_json(metric.worst)
    return fields


def _failed_copy(copy: CopyEnded) -> FailedCopyJson:
    return {
        "benchmark": copy.benchmark,
        "tune": copy.tune,
        "iteration": copy.iteration,
        "copy": copy.copy,
        "cpu": copy.cpu,
        "node": copy.node,
        "elapsed_s": copy.elapsed_s,
        # A copy that ended well and does not count gave a wrong answer.
        "status": CopyStatus.WRONG_OUTPUT if copy.status is CopyStatus.OK else copy.status,
        "what": failure_text(copy),
        "run_dir": copy.run_dir,
    }


def _rotated(ring: Ring) -> RotatedJson:
    return {
        "proposed_in": ring.proposed_in,
        "score": ring.score,
        "cv": ring.cv,
        "unit": ring.unit,
        "rounds": ring.rounds,
        "reason": ring.reason,
        "copies": to_json(ring.copies),
        "tail": to_json(ring.tail),
        "gaps": to_json(ring.gaps),
        "work_rate": ring.work_rate,
        "runs_per_hour": ring.runs_per_hour,
    }

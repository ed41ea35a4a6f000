"""The JSON document of `rater run --json` and `rater show --json`; pure.

The keys of design.md's contract are `run`, `uuid`, `status`, `mode`, `copies`,
`benchmarks` (one entry per benchmark and iteration) and `suite`; others stand
beside them: `steady` in the entries of a run in steady mode, `mix` for its
windows in rotated order, `metrics`, and `comparison` where another run stands
beside a steady one. Where a value is not known or not given it is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rater.analysis.compare.barrier import Beside
from rater.analysis.results.copy_outcome import CopyTime
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.model import BenchmarkScore, IterationScore, SuiteScore, Summary
from rater.analysis.results.rotated import RotatedBenchmark, RotatedScore
from rater.analysis.results.steadiness import Steadiness
from rater.analysis.results.steady import SteadyMix, SteadyPhase, SteadyRate
from rater.analysis.stats.descriptive import Spread

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None


def to_json(summary: Summary, beside: Beside | None = None) -> dict[str, Json]:
    """Return the summary as JSON values; seconds are floats, iterations count from 1."""
    head = summary.head
    rotated, mix = summary.rotated, summary.mix
    not_met = summary.proof.not_met()
    document: dict[str, Json] = {
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
        "benchmarks": (
            [_rotated_benchmark(benchmark) for benchmark in rotated.benchmarks]
            if rotated
            else [_mixed(p, rate) for p in mix.phases for rate in p.benchmarks]
            if mix
            else [_iteration(b, it, not_met) for b in summary.benchmarks for it in b.iterations]
        ),
        "results": [
            {
                "benchmark": b.benchmark,
                "tune": b.tune,
                "category": b.category,
                "reference_s": b.reference_s,
                "ratio": b.ratio,
                "copies_per_hour": b.per_hour,
                "iterations": len(b.iterations),
                "reason": b.reason,
            }
            for b in summary.benchmarks
        ],
        "suite": _suite(summary.suites)
        | {"left_out": [{"benchmark": n, "reason": why} for n, why in summary.left_out]},
        "metrics": [_metric(metric) for metric in summary.metrics],
        "failed": [
            {
                "benchmark": f.benchmark,
                "tune": f.tune,
                "iteration": f.iteration,
                "copy": f.copy,
                "cpu": f.cpu,
                "node": f.node,
                "elapsed_s": f.elapsed_s,
                "status": f.status.value,
                "what": f.what,
                "run_dir": f.run_dir,
            }
            for f in summary.failed
        ],
        "remarks": list(summary.remarks),
    }
    if rotated:
        document["rotated"] = _rotated(rotated)
    if summary.steady:
        document["warmup_s"] = head.warmup_s
        document["window_s"] = head.window_s
    if mix:
        document["mix"] = _mix(mix)
    if beside:
        document["comparison"] = _comparison(beside)
    return document


def _iteration(
    benchmark: BenchmarkScore, it: IterationScore, not_met: Mapping[tuple[str, int], Sequence[int]]
) -> Json:
    steady: dict[str, Json] = {}
    if it.steady:
        steady["steady"] = _rate(it.steady.benchmarks[0]) | _window(it.steady)
    return steady | {
        "benchmark": it.benchmark,
        "tune": it.tune,
        "category": benchmark.category,
        "iteration": it.iteration,
        "counted": it.counted,
        "selected": it.selected,
        "copies": it.copies,
        "good_copies": it.good,
        "failed_copies": it.failed,
        "bracket_s": it.bracket_s,
        "bracket_from_slowest": it.bracket_from_slowest,
        "overlap_s": it.overlap_s,
        "reference_s": benchmark.reference_s,
        "ratio": it.ratio,
        "copies_per_hour": it.per_hour,
        "score_lost": it.score_lost,
        "median_copy_s": it.median_copy_s,
        "slowest": _copy_time(it.slowest),
        "placement_not_met": list(not_met.get((it.benchmark, it.iteration), ())),
        **_reported(it),
        "reason": it.reason,
    }


def _reported(it: IterationScore) -> dict[str, Json]:
    """Return what an imported result file says itself, to stand beside what its times come to."""
    if it.reported is None:
        return {}
    told = it.reported
    return {
        "file_says": {
            "reported_s": told.reported_s,
            "ratio": told.ratio,
            "selected": told.selected,
            "valid": told.valid,
            "errors": list[Json](told.errors.splitlines() if told.errors else ()),
        }
    }


def _rotated_benchmark(benchmark: RotatedBenchmark) -> Json:
    times = benchmark.times_s
    return {
        "benchmark": benchmark.benchmark,
        "category": benchmark.category,
        "iteration": None,
        "bracket_s": None,
        "reference_s": benchmark.reference_s,
        "ratio": None,
        "score_lost": None,
        "median_copy_s": times.median if times else None,
        "slowest": _copy_time(benchmark.slowest),
        "times_s": _spread(times),
        "rates": _spread(benchmark.rates),
        "queued_copies": benchmark.queued,
        "reason": benchmark.reason,
    }


def _mixed(phase: SteadyPhase, rate: SteadyRate) -> Json:
    valid = phase.reason is None
    return {
        "benchmark": rate.benchmark,
        "category": rate.category,
        "iteration": phase.iteration,
        "counted": phase.counted,
        "bracket_s": None,
        "reference_s": rate.reference_s,
        "ratio": rate.ratio if valid else None,
        "copies_per_hour": rate.per_hour if valid else None,
        "score_lost": None,
        "median_copy_s": rate.median_run_s,
        "slowest": None,
        "steady": _rate(rate),
        "reason": phase.reason,
    }


def _rate(rate: SteadyRate) -> dict[str, Json]:
    return {
        "completions": rate.completions,
        "whole_runs": rate.whole,
        "copies_per_hour": rate.per_hour,
        "median_run_s": rate.median_run_s,
    }


def _window(phase: SteadyPhase) -> dict[str, Json]:
    return {
        "warmup_s": phase.warmup_s,
        "window_s": phase.window_s,
        "halves": _halves(phase.halves),
        "longest_warmup_run_s": phase.longest_warmup_run_s,
        "needed_warmup_s": phase.needed_warmup_s,
        "unit": phase.unit,
        "copies": [asdict(copy) for copy in phase.copies],
        "rates": _spread(phase.rates),
        "slowest": asdict(phase.slowest) if phase.slowest else None,
        "occupied": phase.occupied,
        "gap_s": phase.gap_s,
        "lgroups": [asdict(lgroup) for lgroup in phase.lgroups],
        "reason": phase.reason,
    }


def _halves(halves: Steadiness | None) -> Json:
    if halves is None:
        return None
    return {
        "verdict": halves.verdict.value,
        "difference": halves.difference,
        "interval_95": list(halves.interval) if halves.interval else None,
        "fewest_whole_runs": halves.fewest,
        "needed_window_s": halves.needed_s,
    }


def _mix(mix: SteadyMix) -> Json:
    windows: list[Json] = []
    for phase in mix.phases:
        valid = phase.reason is None
        windows.append(
            {
                "iteration": phase.iteration,
                "counted": phase.counted,
                "selected": phase is mix.selected,
                "ratio": phase.ratio if valid else None,
                "copies_per_hour": phase.per_hour if valid else None,
                **_window(phase),
            }
        )
    chosen = mix.selected
    return {"ratio": chosen.ratio if chosen else None, "windows": windows, "reason": mix.reason}


def _metric(metric: MetricResult) -> Json:
    worst = metric.worst
    return asdict(metric) | {"worst": asdict(worst) if worst else None}


def _comparison(beside: Beside) -> Json:
    return asdict(beside) | {"differences": list(beside.differences)}


def _rotated(rotated: RotatedScore) -> Json:
    return {
        "proposed_in": rotated.proposed_in,
        "score": rotated.score,
        "cv": rotated.cv,
        "unit": rotated.unit,
        "rounds": rotated.rounds,
        "reason": rotated.reason,
        "copies": [asdict(copy) for copy in rotated.copies],
        "tail": asdict(rotated.tail) if rotated.tail else None,
        "gaps": asdict(rotated.gaps) if rotated.gaps else None,
        "work_rate": rotated.work_rate,
        "runs_per_hour": rotated.runs_per_hour,
    }


def _suite(suites: tuple[SuiteScore, ...]) -> dict[str, Json]:
    """Return the scores of the first tune; the others under `tunes` beside it."""
    first = [score for score in suites if score.tune == suites[0].tune]
    by_kind = {score.kind: score for score in first}
    values: dict[str, Json] = {
        "ratio": by_kind["all"].ratio if first else None,
        "int": by_kind["int"].ratio if first else None,
        "fp": by_kind["fp"].ratio if first else None,
    }
    values["over"] = list(by_kind["all"].over) if first else []
    values["reason"] = by_kind["all"].reason if first else None
    if len(first) < len(suites):
        values["tunes"] = [
            {"tune": s.tune, "kind": s.kind, "ratio": s.ratio, "reason": s.reason} for s in suites
        ]
    return values


def _copy_time(time: CopyTime | None) -> Json:
    return asdict(time) if time else None


def _spread(values: Spread | None) -> Json:
    return asdict(values) if values else None

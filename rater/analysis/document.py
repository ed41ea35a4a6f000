"""The JSON document of `rater run --json` and `rater show --json`; pure.

The keys of design.md's contract are `run`, `uuid`, `status`, `mode`, `copies`,
`benchmarks` (one entry per benchmark and iteration) and `suite`; others stand
beside them. Where a value is not known or not given it is null.
"""

from __future__ import annotations

from dataclasses import asdict

from rater.analysis.outcome import CopyTime
from rater.analysis.rotated import RotatedBenchmark, RotatedScore
from rater.analysis.score import BenchmarkScore, IterationScore, SuiteScore, Summary
from rater.analysis.stats import Spread

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None


def to_json(summary: Summary) -> dict[str, Json]:
    """Return the summary as JSON values; seconds are floats, iterations count from 1."""
    head = summary.head
    rotated = summary.rotated
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
            else [_iteration(b, it) for b in summary.benchmarks for it in b.iterations]
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
        "suite": _suite(summary.suites),
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
    return document


def _iteration(benchmark: BenchmarkScore, it: IterationScore) -> Json:
    return {
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
        "reason": it.reason,
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
    }


def _suite(suites: tuple[SuiteScore, ...]) -> Json:
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

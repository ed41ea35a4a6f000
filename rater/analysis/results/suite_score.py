"""Suite ratios, and over which of a suite's benchmarks they are; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rater.analysis.results.model import SuiteScore
from rater.analysis.stats.descriptive import geometric_mean

if TYPE_CHECKING:
    from rater.analysis.results.model import BenchmarkScore


def suite_scores(benchmarks: Sequence[BenchmarkScore]) -> tuple[SuiteScore, ...]:
    """Return the scores over all benchmarks, over int and over fp, for each tune."""
    tunes = dict.fromkeys(benchmark.tune for benchmark in benchmarks)
    scores = []
    for tune in tunes:
        of_tune = [benchmark for benchmark in benchmarks if benchmark.tune == tune]
        scores.append(_suite("all", tune, of_tune))
        scores += [
            _suite(kind, tune, [b for b in of_tune if b.category == kind]) for kind in ("int", "fp")
        ]
    return tuple(scores)


def _suite(kind: str, tune: str | None, members: Sequence[BenchmarkScore]) -> SuiteScore:
    over = tuple(member.benchmark for member in members)
    reason = None
    missing = [member for member in members if member.reason or member.ratio is None]
    # What failed may be all the file knows of a benchmark, its reference time not among it.
    without = [member for member in members if not (member.reference_s or member.reason)]
    if not members:
        reason = "no benchmarks" if kind == "all" else f"no {kind} benchmark in this run"
    elif without:
        reason = f"no reference time: {_names(without)}"
    elif missing:
        reason = f"not complete: {_names(missing)}"
    ratio = None if reason else geometric_mean([member.ratio or 0.0 for member in members])
    return SuiteScore(kind, tune, ratio, over, reason)


def _names(benchmarks: Iterable[BenchmarkScore]) -> str:
    return ", ".join(benchmark.benchmark for benchmark in benchmarks)

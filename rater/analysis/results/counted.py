"""What the counters of several runs of one point came to, as if they were one; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rater.analysis.counters.counted import BenchmarkCounts, run_counts
from rater.analysis.results.points import PointRun


def counts_of(runs: Sequence[PointRun]) -> tuple[BenchmarkCounts, ...]:
    """Return what runs counted together, by the newest of their tables."""
    whole = [one.run.without_torn() for one in runs]
    copies = tuple(copy for run in whole for copy in run.copies)
    settings = dict(it for run in whole for it in run.settings)
    pooled = replace(whole[-1], copies=copies, settings=tuple(settings.items()))
    return run_counts(pooled).benchmarks

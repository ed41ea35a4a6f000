"""Resident memory of benchmarks: mean and maximum over copies, beside each other by point; pure.

Source: appendix A of the page-size paper (J. Korn and others), a column pair for each page size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.analysis.results.copy_outcome import is_good
from rater.analysis.results.points import Point
from rater.groups import grouped
from rater.record.stored import StoredCopy


@dataclass(frozen=True, slots=True)
class MemoryCell:
    """One benchmark at one point, a copy's memory in bytes."""

    average_bytes: float | None  # over time and copies; None: no copy lived to be looked at
    max_bytes: int | None  # of any copy at any time
    looks: int
    copy_runs: int  # that counted and ended well


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One benchmark at all points."""

    benchmark: str
    tune: str | None
    cells: tuple[MemoryCell | None, ...]  # by point; None: it has no such copy


def memory_rows(points: Sequence[Point]) -> tuple[MemoryRow, ...]:
    """Return benchmarks in the order they ran in, with all runs of a point together."""
    by_point = [
        grouped(
            ((copy.benchmark, copy.tune), copy)
            for one in point.runs
            for copy in one.run.without_torn().copies
            if copy.counted and is_good(copy)
        )
        for point in points
    ]
    keys = dict.fromkeys(key for found in by_point for key in found)
    return tuple(
        MemoryRow(*key, tuple(_cell(found[key]) if key in found else None for found in by_point))
        for key in keys
    )


def _cell(copies: Iterable[StoredCopy]) -> MemoryCell:
    """Return the mean of the copies' own means: one that ran longer weighs no more."""
    copies = list(copies)
    means = [it.mean_rss_bytes for it in copies if it.mean_rss_bytes is not None]
    # What the kernel kept of a single process misses no peak, but hugetlb pages.
    most = [
        size for it in copies for size in (it.peak_rss_bytes, it.max_rss_bytes) if size is not None
    ]
    return MemoryCell(
        average_bytes=sum(means) / len(means) if means else None,
        max_bytes=max(most, default=None),
        looks=sum(it.rss_looks or 0 for it in copies),
        copy_runs=len(copies),
    )

"""Average and maximum memory of benchmarks by point."""

from __future__ import annotations

from rater.analysis.results.copies import MemoryCell, Point, PointRun, memory_rows
from rater.record.run import CopyStatus
from rater.record.stored import StoredCopy
from tests.support.example_runs import copy_row, stored


def looked_at(copy: int, mean: int | None, peak: int | None, kept: int | None) -> StoredCopy:
    looks = None if mean is None else 3
    return copy_row(
        copy, 10.0, mean_rss_bytes=mean, peak_rss_bytes=peak, max_rss_bytes=kept, rss_looks=looks
    )


def point(label: str, *copies: StoredCopy) -> Point:
    return Point(label, (), (PointRun(stored(copies), None),))


def test_copies_are_averaged_and_the_most_of_any_is_taken() -> None:
    """Looks know of hugetlb pages, the kernel's maximum does not; failed copies do not count."""
    base = point("base", looked_at(0, 100, 150, 160), looked_at(1, 300, 350, None))
    huge = point(
        "huge",
        looked_at(0, 800, 900, 10),
        copy_row(1, 1.0, status=CopyStatus.FAILED, mean_rss_bytes=9999, rss_looks=1),
    )
    short = point("short", looked_at(0, None, None, 70))
    (row,) = memory_rows([base, huge, short])
    assert row.benchmark == "a"
    assert row.cells == (
        MemoryCell(200.0, 350, 6, 2),
        MemoryCell(800.0, 900, 3, 1),
        MemoryCell(None, 70, 0, 1),
    )

"""How much of a window of steady mode its copies ran, and what lay between two runs; pure.

Between two runs of a copy lies rater's own start of the next one (milliseconds),
and a set-up per copy or the laying out of its inputs where a suite has them: all
that is inside the window and lowers the rate, and is not the program's doing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from rater.groups import grouped
from rater.record.stored import StoredCopy

ENOUGH = 0.95  # of the window; below, a rate says too much of rater and too little of the program


def occupied_share(
    rows: Sequence[StoredCopy], window_ns: tuple[int, int], copies: int
) -> float | None:
    """Return the share of the copies' time in the window in which their runs went, good or bad."""
    begin, end = window_ns
    if end <= begin or not copies:
        return None
    inside_ns = sum(
        max(0, min(row.finish_ns, end) - max(row.start_ns, begin))
        for row in rows
        if row.start_ns is not None and row.finish_ns is not None
    )
    return inside_ns / (copies * (end - begin))


def gaps_ns(rows: Sequence[StoredCopy]) -> list[tuple[int, int]]:
    """Return the end of each run of a copy with the start of its next, copy by copy."""
    runs = grouped(
        (row.copy, (row.start_ns, row.finish_ns))
        for row in rows
        if row.start_ns is not None and row.finish_ns is not None
    )
    return [
        (sooner[1], later[0])
        for times in runs.values()
        for sooner, later in pairwise(sorted(times))
    ]


def median_gap_s(rows: Sequence[StoredCopy], window_ns: tuple[int, int]) -> float | None:
    """Return the median time between two runs of a copy, of all gaps that reach into the window.

    None where no copy has two runs there. What a copy began after the window is not stored.
    """
    begin, end = window_ns
    inside = [
        max(0, start - finish) for finish, start in gaps_ns(rows) if finish < end and start > begin
    ]
    return statistics.median(inside) / 1e9 if inside else None

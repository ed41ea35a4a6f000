"""Start-up trouble that start times and CPU times show; pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from rater.analysis.divots.model.causes import Cause, Facts
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.table import Table
from rater.analysis.stats.robust import Floats, median, overall_median

_LATE: Final = 0.015  # of the time: the default threshold of groups
_IDLE: Final = 0.05  # share of the time that a CPU did nothing
_CALM: Final = 0.02  # of it that the other benchmarks have at most
_SHARED: Final = 0.15  # of it in later iterations: copies wait for a CPU that they share
# A program's first start reads it and its libraries, 20 MB at 1 GB/s: that is no fault of a run.
FIRST_READ_S: Final = 0.02


def find_startups(table: Table) -> list[Cause]:
    """Return late starts and waits for input, which the times of the copies alone do not show."""
    causes = []
    if table.barrier and not table.staggered:
        is_known = ~np.isnan(table.start_s)
        last = np.max(np.where(is_known, table.start_s, -np.inf), axis=2)
        late_s = last - np.min(np.where(is_known, table.start_s, np.inf), axis=2)
        share = late_s / np.exp(median(table.log_s))
        share = np.where(share >= _LATE, share, 0.0)
        is_late = share > 0
        typical = float(np.log1p(np.median(share[is_late]))) if share.any() else 0.0
        seconds = float(np.median(late_s[is_late])) if share.any() else 0.0
        late: Facts = {"mode": "late-start", "rise": typical, "seconds": seconds}
        causes.append(_make_cause(table, share, late))
    if table.barrier and table.copies > 1:
        share = _idle_shares(table)
        waits_s = share / (1 + share) * np.exp(median(table.log_s))
        waited_s = float(np.nanmax(waits_s, initial=0.0))
        seconds = float(np.nanmedian(waits_s[share > 0])) if share.any() else 0.0
        waits: Facts = {"mode": "input-wait", "waited_s": waited_s, "seconds": seconds}
        causes.append(_make_cause(table, share, waits))
    return [cause for cause in causes if cause.covered.any()]


def _make_cause(table: Table, share: Floats, facts: Facts) -> Cause:
    """Return the cause of cells (B, I) that took longer by a share of their time."""
    covered = (share > 0)[:, :, None] & ~np.isnan(table.log_s)
    return Cause(
        kind=Kind.STARTUP,
        covered=covered,
        effect=np.where(covered, np.log1p(share)[:, :, None], 0.0),
        facts=facts,
    )


def _idle_shares(table: Table) -> Floats:
    """Return (B, I) how long copies waited in the first iteration while their CPU was idle.

    As a share of the time that they computed.
    """
    benchmarks, iterations, _ = table.shape
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    shares, first = np.zeros((benchmarks, iterations)), idle[:, 0]
    if iterations > 1:
        later = np.maximum(0.0, median(idle[:, 1:]))
        more = np.nan_to_num(first - later)
        waits = (more >= _IDLE) & (later < _SHARED)
        shares[:, 0] = np.where(waits, more / np.maximum(1 - first, _IDLE), 0.0)
    elif benchmarks >= 3 and np.mean(first >= _IDLE) <= 1 / 3 and overall_median(first) < _CALM:
        shares[:, 0] = np.where(first >= _IDLE, first, 0.0)
    return shares

"""Start-up trouble that start times and CPU times show: late starts, waiting for input; pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from rater.analysis.divots.model.causes import Hit
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.table import Table
from rater.analysis.stats.robust import Floats, median, overall_median

_LATE: Final = 0.015  # of the time: the default threshold of groups
_IDLE: Final = 0.05  # share of the time that a CPU did nothing
_CALM: Final = 0.02  # of it that the other benchmarks have at most
_SHARED: Final = 0.15  # of it in later iterations: copies wait for a CPU that they share


def startup_hits(table: Table) -> list[Hit]:
    """Return what went wrong in the beginning, beyond what the times themselves show."""
    found = []
    if table.barrier and not table.staggered and not np.isnan(table.start_s).all():
        found.append(_late_start(table))
    if table.barrier and table.copies > 1:
        found.append(_input_wait(table))
    return [one for one in found if one.covered.any()]


def _late_start(table: Table) -> Hit:
    known = ~np.isnan(table.start_s)
    last = np.max(np.where(known, table.start_s, -np.inf), axis=2)
    first = np.min(np.where(known, table.start_s, np.inf), axis=2)
    several = known.sum(axis=2) >= 2
    late = np.where(several, last, 0.0) - np.where(several, first, 0.0)
    size = np.nan_to_num(late / np.exp(median(table.log_s)))
    size = np.where(size >= _LATE, size, 0.0)
    covered = (size > 0)[:, :, None] & ~np.isnan(table.log_s)
    facts: dict[str, float | str] = {"mode": "late-start"}
    return Hit(Kind.STARTUP, covered, np.zeros(table.shape), facts=facts, skew=size)


def _input_wait(table: Table) -> Hit:
    """Find first iterations in which copies waited while their CPU did nothing."""
    b, i, _ = table.shape
    size = np.zeros((b, i))
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    if i > 1:
        usual = np.maximum(0.0, median(idle[:, 1:]))
        more = np.nan_to_num(idle[:, 0] - usual)
        there = (more >= _IDLE) & (usual < _SHARED)
        size[:, 0] = np.where(there, more / np.maximum(1 - idle[:, 0], _IDLE), 0.0)
    elif b >= 3:
        few = np.mean(idle[:, 0] >= _IDLE) <= 1 / 3
        if few and overall_median(idle[:, 0]) < _CALM:
            size[:, 0] = np.where(idle[:, 0] >= _IDLE, idle[:, 0], 0.0)
    covered = (size > 0)[:, :, None] & ~np.isnan(table.log_s)
    effect = np.where(covered, np.log1p(size)[:, :, None], 0.0)
    return Hit(Kind.STARTUP, covered, effect, facts={"mode": "input-wait"})


def told_once(hits: list[Hit]) -> list[Hit]:
    """Return hits without slow first iterations that a start-up explains in the same cells."""
    starts = [hit for hit in hits if hit.kind is Kind.STARTUP and hit.skew is None]
    return [
        hit
        for hit in hits
        if hit.kind not in (Kind.SLOW_ITERATION, Kind.WARM_UP)
        or not any(_inside(hit, one.covered.any(axis=2)) for one in starts)
    ]


def _inside(hit: Hit, cells: Floats) -> bool:
    own = hit.covered.any(axis=2)
    return bool((own & cells).sum() >= 0.7 * own.sum())

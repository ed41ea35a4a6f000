"""What findings cost: the score worked out again without them; pure.

The score is the geometric mean over the benchmarks, of each the iteration that stands by
SPEC's rule: of three the median, of two the slower. Where copies do not wait for each
other (rotated order, steady mode) there is no bracket: all copies' time stands for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.hit import Hit
from rater.analysis.divots.data.table import Table
from rater.analysis.stats.robust import Floats, mean, median


@dataclass(frozen=True, slots=True)
class Cost:
    """What one finding costs, as shares from 0 to 1."""

    whole: float  # of the run's score; without a barrier, of all copies' time
    share: float  # of the same, after what costs more has been taken away already
    rate: float  # of the result of the benchmark that loses most
    cells: dict[tuple[int, int], float]  # of the rate of each cell that it covers


def costs_of(table: Table, hits: list[Hit]) -> list[Cost]:
    """Return the cost of each hit.

    Each alone: 1 - score / (score with its effect taken away). The shares are those of
    taking them away one after the other, the most costly first: they add up to what all
    cost together.
    """
    log_s, start = table.log_s, np.nan_to_num(table.start_s)
    actual = _times(table, log_s, start)
    alone = [_times(table, *_without(log_s, start, hit)) for hit in hits]
    wholes = [_lost(table, actual, without) for without in alone]
    shares = [0.0] * len(hits)
    taken, late, lost = log_s, start, 0.0
    for place in sorted(range(len(hits)), key=lambda at: (-wholes[at], at)):
        taken, late = _without(taken, late, hits[place])
        now = max(lost, _lost(table, actual, _times(table, taken, late)))
        shares[place], lost = now - lost, now
    found = []
    for hit, without, whole, share in zip(hits, alone, wholes, shares, strict=True):
        rates = 1 - _results(without) / _results(actual)
        cells = {cell: max(0.0, 1 - float(without[cell] / actual[cell])) for cell in hit.cells}
        rate = float(np.nanmax(rates[hit.benchmarks], initial=0.0)) if hit.benchmarks else 0.0
        found.append(Cost(whole, share, max(0.0, rate), cells))
    return found


def noise_cost(table: Table, rest: Floats) -> float | None:
    """Return what noise alone costs, 0 to 1: what nothing explains of the times, ln (B, I, S).

    Of each benchmark the iteration that stands. None where copies do not wait for each other.
    """
    if not table.barrier:
        return None
    known = rest[~np.isnan(rest).all(axis=(1, 2))]
    if not len(known):
        return None
    slowest = np.max(np.where(np.isnan(known), -np.inf, known), axis=2)
    over = np.where(np.isfinite(slowest), slowest - median(known), np.nan)
    return max(0.0, 1 - math.exp(-float(np.mean(_results(over)))))


def _without(log_s: Floats, start: Floats, hit: Hit) -> tuple[Floats, Floats]:
    """Return ln times and starts with a hit's effect taken away; what is faster stays so."""
    falls = float(hit.facts.get("rise", 0.0)) < 0  # what gets faster was not slowed down before
    fair = log_s if falls else log_s - np.maximum(hit.effect, 0.0)
    if hit.skew is None or hit.effect.any():
        return fair, start
    late = hit.covered.any(axis=2)[:, :, None]
    known = np.where(np.isnan(log_s), np.inf, start)
    return fair, np.where(late, np.min(known, axis=2, keepdims=True), start)


def _times(table: Table, log_s: Floats, start: Floats) -> Floats:
    """Return (B, I) seconds of each cell: its bracket, without a barrier its copies' time."""
    elapsed = np.exp(log_s)
    if not table.barrier:
        return np.where(np.isnan(elapsed).all(axis=2), np.nan, np.nansum(elapsed, axis=2))
    known = ~np.isnan(elapsed)
    last = np.max(np.where(known, start + np.nan_to_num(elapsed), -np.inf), axis=2)
    first = np.min(np.where(known, start, np.inf), axis=2)
    return np.where(known.any(axis=2), np.maximum(last - first, 1e-9), np.nan)


def _results(seconds: Floats) -> Floats:
    """Return (B,) the time that stands: of three iterations the median, of two the slower."""
    ordered = np.sort(seconds, axis=1)
    count = np.sum(~np.isnan(seconds), axis=1)
    found: Floats = ordered[np.arange(len(ordered)), np.minimum(count // 2, len(ordered[0]) - 1)]
    return found


def _lost(table: Table, actual: Floats, without: Floats) -> float:
    """Return the share of the score, or of all copies' time, that is won without something."""
    if not table.barrier:
        return max(0.0, 1 - float(np.nansum(without) / np.nansum(actual)))
    ratio = np.log(_results(without) / _results(actual))
    return max(0.0, 1 - float(np.exp(mean(ratio))))

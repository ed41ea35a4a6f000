"""Findings while they are being made: what they do to the times, and what that costs; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rater.analysis.divots.robust import Bools, Floats, Ints
from rater.analysis.divots.table import Table
from rater.analysis.finding import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What a finding does in one cell: ln slowdown of some slots."""

    b: int
    i: int
    slots: Ints
    effect: Floats


@dataclass(slots=True, eq=False)
class Draft:
    """A finding with array indices instead of names."""

    kind: Kind
    parts: list[Part]
    slots: Bools
    size: float  # typical ln slowdown
    level: str = ""  # of a group: node, llc, package, memory, node+memory, run
    group: int = -1
    everywhere: bool = False
    benchmark_wide: bool = False  # all benchmarks are meant, not a list
    facts: dict[str, float | str] = field(default_factory=dict)
    skew: Floats | None = None  # (B, I): late start, as share of the median time

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Benchmark and iteration of its parts."""
        return [(part.b, part.i) for part in self.parts]


def total_effect(table: Table, drafts: list[Draft]) -> Floats:
    """Return (B, I, S) the sum of all that was found."""
    total = np.zeros(table.log_s.shape)
    for draft in drafts:
        for part in draft.parts:
            total[part.b, part.i, part.slots] += part.effect
    return total


def rates_lost(table: Table, draft: Draft, total: Floats) -> list[float]:
    """Return what a finding alone costs of the rate of each of its cells, 0 to 1.

    1 - (bracket with all copies at their fair time) / (bracket with this finding
    only): several findings in one cell do not hide each other's cost. Where copies do
    not wait for each other (rotated order, steady mode) there is no bracket: the share
    of all copies' time.
    """
    lost = []
    for part in draft.parts:
        fair = table.log_s[part.b, part.i] - total[part.b, part.i]
        known = ~np.isnan(fair)
        start = np.nan_to_num(table.start_s[part.b, part.i])
        if not table.barrier:
            slowed = np.zeros(len(fair))
            slowed[part.slots] = part.effect
            together = float(np.sum(np.exp(fair[known])))
            alone = float(np.sum(np.exp(fair[known] + slowed[known])))
        elif draft.skew is not None:
            together = _bracket_s(np.zeros(int(known.sum())), np.exp(fair[known]))
            alone = _bracket_s(start[known], np.exp(fair[known]))
        else:
            slowed = fair.copy()
            slowed[part.slots] += part.effect
            together = _bracket_s(start[known], np.exp(fair[known]))
            alone = _bracket_s(start[known], np.exp(slowed[known]))
        lost.append(max(0.0, 1 - together / alone) if alone > 0 else 0.0)
    return lost


def score_lost(table: Table, lost: list[float]) -> float:
    """Return the share of the run's score: geometric mean over all benchmarks and iterations."""
    cells = int(np.sum(~np.isnan(table.log_s).all(axis=2)))
    return 1 - math.exp(sum(math.log1p(-min(one, 0.999999)) for one in lost) / max(1, cells))


def _bracket_s(start: Floats, elapsed: Floats) -> float:
    if not len(start):
        return 0.0
    return float(np.max(start + elapsed) - np.min(start))

"""Findings while they are being made: what they do to the times, and what that costs; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.table import Table
from rater.analysis.stats.robust import Bools, Floats, Ints


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
    level: str = ""  # of a group: node, llc, package, memory, node+memory, remote, run
    group: int = -1
    members: tuple[int, ...] = ()  # several groups of the level together
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


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding alone costs, as shares from 0 to 1."""

    cells: tuple[float, ...]  # of the rate of each of its parts' cells
    rates: tuple[float, ...]  # of the result of each of its benchmarks
    whole: float  # of the run's score; without a barrier, of all copies' time


@dataclass(frozen=True, slots=True)
class _Brackets:
    """Seconds of a cell from the first start to the last end."""

    alone: float  # with one finding alone
    fair: float  # without any
    actual: float


def cost_of(table: Table, draft: Draft, total: Floats) -> Cost:
    """Return what a finding costs: 1 - (bracket without it) / (bracket with it alone).

    `total` (B, I, S) is what all findings do: several in one cell do not hide each
    other's cost. The score is the geometric mean over the benchmarks, of each the
    iteration that stands by SPEC's rule: of three the median, of two the slower.
    Where copies do not wait for each other (rotated order, steady mode) there is no
    bracket: the share of all copies' time.
    """
    parts = {(part.b, part.i): part for part in draft.parts}
    rates: dict[int, float] = {}
    cells: dict[tuple[int, int], float] = {}
    for b in sorted({part.b for part in draft.parts}):
        brackets: list[_Brackets] = []
        for i in range(table.shape[1]):
            fair = table.log_s[b, i] - total[b, i]
            if np.isnan(fair).all():
                continue
            part = parts.get((b, i))
            slowed = fair.copy()
            if part is not None:
                slowed[part.slots] += part.effect
            late = draft.skew is not None and part is not None
            brackets.append(_brackets(table, (b, i), slowed, fair, late=late))
            if part is not None:
                cells[b, i] = _share(brackets[-1].alone, brackets[-1].fair)
        rates[b] = _of_result(brackets)
    if draft.kind is Kind.DRIFT and draft.size < 0:
        # What gets faster was not slowed down in the beginning.
        cells = dict.fromkeys(cells, 0.0)
        rates = dict.fromkeys(rates, 0.0)
    if table.barrier:
        whole, of = list(rates.values()), table.shape[0]
    else:
        whole = list(cells.values())
        of = int(np.sum(~np.isnan(table.log_s).all(axis=2)))
    score = 1 - math.exp(sum(math.log1p(-min(one, 0.999999)) for one in whole) / max(1, of))
    return Cost(tuple(cells.get((p.b, p.i), 0.0) for p in draft.parts), tuple(whole), score)


def _brackets(
    table: Table, cell: tuple[int, int], slowed: Floats, fair: Floats, *, late: bool
) -> _Brackets:
    """Return the brackets of a cell.

    `slowed` and `fair` are ln times (S,); `late`: what the finding is about is when
    the copies started.
    """
    known = ~np.isnan(fair)
    start = np.nan_to_num(table.start_s[cell])
    if not table.barrier:
        alone, without = float(np.sum(np.exp(slowed[known]))), float(np.sum(np.exp(fair[known])))
        return _Brackets(alone, without, without)
    actual = _bracket_s(start[known], np.exp(table.log_s[cell][known]))
    if late:
        at_once = np.zeros(int(known.sum()))
        elapsed = np.exp(fair[known])
        return _Brackets(_bracket_s(start[known], elapsed), _bracket_s(at_once, elapsed), actual)
    return _Brackets(
        _bracket_s(start[known], np.exp(slowed[known])),
        _bracket_s(start[known], np.exp(fair[known])),
        actual,
    )


def _of_result(brackets: list[_Brackets]) -> float:
    """Return the share of a benchmark's result that a finding costs.

    Alone; or, where other findings slow the other iterations down, in the iteration that
    stands, no more than all of them cost.
    """
    place = len(brackets) // 2  # the median; of two the slower
    alone = sorted(it.alone for it in brackets)[place]
    fair = sorted(it.fair for it in brackets)[place]
    stands = sorted(brackets, key=lambda it: it.actual)[place]
    together = min(_share(stands.alone, stands.fair), _share(stands.actual, fair))
    return max(_share(alone, fair), together)


def _share(slowed_s: float, fair_s: float) -> float:
    return max(0.0, 1 - fair_s / slowed_s) if slowed_s > 0 else 0.0


def _bracket_s(start: Floats, elapsed: Floats) -> float:
    if not len(start):
        return 0.0
    return float(np.max(start + elapsed) - np.min(start))

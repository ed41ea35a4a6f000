"""Which benchmarks of a comparison are worth a line where not all have room."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from rater.analysis.compare.model import EffectRow
from rater.analysis.stats.ratio_interval import Decision

_CHANGES = frozenset({Decision.BETTER, Decision.WORSE, Decision.RARELY})


def most_telling(rows: Sequence[EffectRow], most: int) -> list[EffectRow]:
    """Return the suite's rows and, of many benchmarks, those that changed most, in their order."""
    told = sorted((row for row in rows if not row.over), key=_change, reverse=True)
    kept = told[: max(1, most - sum(bool(row.over) for row in rows))]
    return [row for row in rows if row.over or row in kept]


def _change(row: EffectRow) -> tuple[bool, float]:
    """Return what sorts rows by their largest change, those with a verdict of one first."""
    told = [cell.speedup for cell in row.cells if cell.speedup]
    changed = any(one.verdict in _CHANGES for one in told)
    return changed, max((abs(log(one.ratio)) for one in told if one.ratio > 0), default=0.0)

"""A comparison as the JSON document of `rater compare --json`."""

from __future__ import annotations

from rater.analysis.compare.model import Cell, Comparison, Row
from rater.analysis.conditions.differences import Apart
from rater.analysis.stats.ratio_interval import Told
from rater.show.compare.disturbances import troubles_document


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """Return all of it: shares and factors as numbers, verdicts in the words of the table."""
    return {
        "by": comparison.by,
        "margin": comparison.margin,
        "confidence": comparison.confidence,
        "looks": comparison.looks,
        "comparisons": comparison.compared,
        "by_chance": comparison.by_chance,
        "points": [
            {
                "label": side.label,
                "baseline": place == 0,
                "values": [dict(point.values) for point in side.points],
                "runs": [
                    {"run": one.run.head.run, "uuid": one.run.head.uuid, "block": one.block}
                    for one in side.runs
                ],
            }
            for place, side in enumerate(comparison.sides)
        ],
        "differences": [_apart(one) for one in comparison.apart],
        "copies": list(comparison.copies),
        "mixed_copies": comparison.mixed_copies,
        "mixed_kinds": comparison.mixed_kinds,
        "kinds": [{"rates": kind, "runs": list(runs)} for kind, runs in comparison.kinds],
        "left_out": list(comparison.left_out),
        "lost": [{"benchmark": name, "point": label} for name, label in comparison.lost],
        "disturbed": troubles_document(comparison.troubles),
        "benchmarks": [_row(row, comparison) for row in comparison.benchmarks],
        "suite": {row.name: _row(row, comparison) for row in comparison.suites},
    }


def _apart(one: Apart) -> dict[str, object]:
    return {
        "what": one.what,
        "weighs": one.weighs,
        "differs_within": list(one.inside),
        "values": [{"value": value, "runs": list(runs)} for value, runs in one.values],
    }


def _row(row: Row, comparison: Comparison) -> dict[str, object]:
    labels = [side.label for side in comparison.sides[1:]]
    document: dict[str, object] = {"name": row.name} if row.over else {"benchmark": row.name}
    document |= {"tune": row.tune, "category": row.category, "unit": row.unit}
    if row.over:
        document["over"] = list(row.over)
    cells = zip(labels, row.cells, strict=True)
    return document | {
        "baseline": row.cells[0].baseline,
        "points": [{"label": label} | _cell(cell) for label, cell in cells],
    }


def _cell(cell: Cell) -> dict[str, object]:
    return {
        "baseline": cell.baseline,
        "value": cell.value,
        "speedup": _told(cell.speedup),
        "p_holm": cell.p_holm,
        "holds": cell.holds,
        "improvement": cell.improvement,
        "reduction": cell.reduction,
        "median_copy_speedup": _told(cell.median_copy),
        "slowest_over_median": _told(cell.slowest_over_median),
        "reason": cell.reason,
    }


def _told(told: Told | None) -> dict[str, object] | None:
    if told is None:
        return None
    return {
        "ratio": told.ratio,
        "interval": None if told.low is None else [told.low, told.high],
        "verdict": told.verdict.value,
        "words": told.words,
        "within_margin": told.within,
        "more_rounds": told.more,
        "p": told.p,
        "recorded_step": told.blur,
        "degrees_of_freedom": told.degrees,
        "basis": told.basis.value,
        "values": told.count,
    }

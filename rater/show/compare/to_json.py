"""A comparison as the JSON document of `rater compare --json`."""

from __future__ import annotations

from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.conditions.differences import PointDifference
from rater.analysis.conditions.disturbances import DisturbedRun
from rater.analysis.counters.cpu_use import Notable
from rater.analysis.doctor.differences import DoctorDifference
from rater.analysis.results.points import PointRun
from rater.analysis.stats.estimate import SlowRuns
from rater.analysis.stats.ratio_interval import RatioInterval
from rater.text.to_json import Members, objects, to_json


def _points(comparison: Comparison) -> list[dict[str, object]]:
    return [
        {
            "label": side.label,
            "baseline": place == 0,
            "values": [dict(point.values) for point in side.points],
            "runs": side.runs,
        }
        for place, side in enumerate(comparison.sides)
    ]


TABLE = {
    Comparison: Members(
        "by margin confidence looks comparisons=compared by_chance",
        {"points": _points},
        "differences copies mixed_copies mixed_kinds",
        {"kinds": lambda comparison: objects("rates runs", comparison.kinds)},
        "left_out",
        {"lost": lambda comparison: objects("benchmark point", comparison.lost)},
        "disturbed=troubles doctor page_sizes=pages",
        {
            "benchmarks": lambda it: [_row(row, it) for row in it.benchmarks],
            "suite": lambda it: {row.name: _row(row, it) for row in it.suites},
        },
    ),
    PointRun: Members("run.head.run run.head.uuid block"),
    PointDifference: Members(
        "what weighs=significant differs_within=inside",
        {"values": lambda one: objects("value runs", one.values)},
    ),
    DoctorDifference: Members(
        "check why", {"values": lambda one: objects("verdict seen runs", one.values)}
    ),
    DisturbedRun: Members(
        "run too_disturbed matters=notable placement_not_met=not_met warnings share=shared"
    ),
    Notable: Members("matter share times cpu cpus benchmark"),
    Effect: Members(
        "baseline value speedup p_holm holds improvement reduction"
        " median_copy_speedup=median_copy slowest_over_median joules_per_copy reason"
    ),
    RatioInterval: Members(
        "ratio",
        {"interval": lambda told: None if told.low is None else [told.low, told.high]},
        "verdict words within_margin=within more_rounds=more p recorded_step=blur"
        " degrees_of_freedom=degrees basis values=count doubts refused slow_runs=slow",
    ),
    SlowRuns: Members("count of slower of_baseline"),
}


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """Return all of it: shares and factors as numbers, verdicts in the words of the table."""
    document: dict[str, object] = to_json(comparison, TABLE)
    return document


def _row(row: EffectRow, comparison: Comparison) -> dict[str, object]:
    cells = zip(comparison.sides[1:], row.cells, strict=True)
    return {
        "name" if row.over else "benchmark": row.name,
        "tune": row.tune,
        "category": row.category,
        "unit": row.unit,
        **({"over": row.over} if row.over else {}),
        "baseline": row.cells[0].baseline,
        "points": [{"label": side.label} | TABLE[Effect].of(cell) for side, cell in cells],
    }

"""A run's results as gauges of OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rater.analysis.results.metrics import MetricResult
from rater.record.stored import RunHead
from rater.show.documents.run import RunDocument
from rater.show.results.ci import MetricFamily, label_name

# Keys of a benchmark in the document of a run: the gauge, its unit, and its help.
_OF_BENCHMARK: Final = {
    "bracket_s": ("rater_bracket_seconds", "seconds", "First start to last finish of a benchmark."),
    "median_copy_s": ("rater_median_copy_seconds", "seconds", "Median time of the good copies."),
    "copies_per_hour": ("rater_copies_per_hour", "", "Copies that complete in an hour."),
    "ratio": ("rater_score", "", "Copies x reference time over bracket."),
    "score_lost": ("rater_score_lost_ratio", "ratio", "Share of the score that slow copies cost."),
}


def run_families(
    head: RunHead, document: RunDocument, metrics: Sequence[MetricResult]
) -> Iterator[MetricFamily]:
    """Yield the results that count of each benchmark, what is slow, and how the run ended."""
    of_run: dict[str, object] = {"run": head.run, "host": head.hostname, "suite": head.suite}
    of_run |= {f"tag_{label_name(name)}": value for name, value in head.tags}
    info = of_run | {"uuid": head.uuid, "mode": head.mode, "status": head.status.reported}
    yield MetricFamily(
        name="rater_run", help="A run and how it ended; always 1.", samples=[(info, 1.0)]
    )
    rows = [row for row in document["benchmarks"] if row.get("selected", True)]
    for key, (name, unit, help_text) in _OF_BENCHMARK.items():
        samples = [
            (
                of_run | {"benchmark": row["benchmark"], "tune": row.get("tune")},
                _number(row.get(key)),
            )
            for row in rows
        ]
        yield MetricFamily(name=name, unit=unit, help=help_text, samples=samples)
    suite = document["suite"]
    yield MetricFamily(
        name="rater_suite_score",
        help="Geometric mean of the benchmarks' scores.",
        samples=[
            (of_run | {"mean": name}, _number(suite.get(name))) for name in ("ratio", "int", "fp")
        ],
    )
    yield MetricFamily(
        name="rater_metric",
        help="What a benchmark reports of itself.",
        samples=[
            (
                of_run
                | {"benchmark": metric.benchmark, "metric": metric.name, "unit": metric.unit},
                metric.value,
            )
            for metric in metrics
        ],
    )
    divots = document.get("divots")
    slow = None if divots is None else float(sum(not divot["explained"] for divot in divots))
    yield MetricFamily(
        name="rater_divots",
        help="Slow parts that were found and are not explained.",
        samples=[(of_run, slow)],
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None

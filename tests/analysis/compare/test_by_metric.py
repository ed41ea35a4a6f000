"""Comparisons, gates and curves by numbers that programs report of themselves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.gate import judge_comparison
from rater.analysis.compare.scaling import scaling_curves
from rater.analysis.results.gates import gate_status
from rater.analysis.results.measure import find_measure
from rater.analysis.stats.intervals import Decision
from rater.record.run import MetricUsed
from rater.record.stored import StoredRun
from rater.show.compare.comparison import comparison_parts
from rater.show.compare.scaling import scaling_parts
from rater.system.errors import InputError
from rater.workflow.results.compare import split_by
from tests.support.compared_runs import SIX, beside_others, brackets, only, point, run, speedup_of
from tests.support.printed import in_words, text_of

BANDWIDTH = MetricUsed("bandwidth", "MB/s", "higher", "sum")
LATENCY = MetricUsed("latency", "ns", "lower", "mean")
OLD = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8]
SAME = [time_s / 6.0 for time_s in SIX]


def reporting(
    runs: Sequence[StoredRun], metric: MetricUsed, values: Sequence[float]
) -> list[StoredRun]:
    """The runs, whose copies each report a value: a run a value."""
    return [
        replace(
            made,
            benchmarks=tuple(replace(used, metrics=(metric,)) for used in made.benchmarks),
            copies=tuple(replace(row, metrics=((metric.name, value),)) for row in made.copies),
        )
        for made, value in zip(runs, values, strict=True)
    ]


def changed(metric: MetricUsed, factor: float) -> list[StoredRun]:
    """Runs that report so many times what the old ones do, the last one's first."""
    values = [OLD[place - 1] * factor for place in range(len(OLD))]
    return reporting(brackets(7, SIX), metric, values)


def test_a_metric_judges_in_place_of_times_where_it_is_named() -> None:
    old = point("old", *reporting(brackets(1, SIX), BANDWIDTH, OLD))
    new = point("new", *changed(BANDWIDTH, 1.1))
    comparison = compare([old, new], by_metric="bandwidth")
    speedup = speedup_of(comparison)
    assert (speedup.verdict, round(speedup.ratio, 2)) == (Decision.BETTER, 1.1)
    row = only(comparison)
    assert (row.unit, round(row.cells[0].baseline or 0)) == ("MB/s", 200)  # of two copies
    assert row.cells[0].median_copy is None
    text = in_words(text_of(comparison_parts(comparison), 100))
    assert "By bandwidth (MB/s), as copies report it: higher is better." in text


@pytest.mark.parametrize(
    ("factor", "verdict", "status"), [(1.1, Decision.WORSE, 1), (0.9, Decision.BETTER, 0)]
)
def test_of_a_metric_that_is_better_lower_a_ratio_above_1_is_better(
    factor: float, verdict: Decision, status: int
) -> None:
    old = point("old", *reporting(brackets(1, SIX), LATENCY, OLD))
    comparison = compare([old, point("new", *changed(LATENCY, factor))], by_metric="latency")
    speedup = speedup_of(comparison)
    assert (speedup.verdict, round(speedup.ratio, 3)) == (verdict, round(1 / factor, 3))
    assert gate_status(judge_comparison(comparison, 0.02)) == status


def test_beside_the_times_a_comparison_has_every_metric_by_itself() -> None:
    old = point("old", *reporting(brackets(1, SIX), LATENCY, OLD))
    comparison = compare([old, point("new", *changed(LATENCY, 1.1))])
    assert speedup_of(comparison).verdict is Decision.SAME  # of the times
    (metric,) = comparison.metrics
    (cell,) = metric.rows[0].cells
    assert cell.speedup is not None and cell.speedup.verdict is Decision.WORSE
    text = in_words(text_of(comparison_parts(comparison), 100))
    assert "a latency (ns) lower 100.0 110 0.909" in text


def test_a_small_value_is_not_written_as_nought() -> None:
    """A latency in seconds, 85 ns, was `0.000000`."""
    small = [85e-9 * value / 100 for value in OLD]
    old = reporting(brackets(1, SIX), LATENCY, small)
    new = reporting(brackets(7, SIX), LATENCY, [value * 2 for value in small])
    points = [point("old", *old), point("new", *new)]
    assert "a latency (ns) lower 8.500e-08 1.700e-07" in in_words(
        text_of(comparison_parts(compare(points)), 100)
    )
    by_latency = compare(points, by_metric="latency")
    assert "a 8.500e-08 1.700e-07" in in_words(text_of(comparison_parts(by_latency), 100))


def test_a_disturbed_metric_has_no_verdict_as_no_cpu_time_stands_for_it() -> None:
    old = reporting(beside_others(1, SIX, 4.0), BANDWIDTH, OLD)
    new = reporting(beside_others(7, SIX, 4.0), BANDWIDTH, [value * 2 for value in OLD])
    comparison = compare([point("old", *old), point("new", *new)], by_metric="bandwidth")
    assert speedup_of(comparison).verdict_text == "cannot tell: 6 of 6 runs disturbed"
    assert gate_status(judge_comparison(comparison, 0.02)) == 3


def test_a_run_that_does_not_report_a_metric_is_left_out_with_the_reason() -> None:
    old = reporting(brackets(1, SIX), BANDWIDTH, OLD)
    silent = replace(old[0], copies=tuple(replace(row, metrics=()) for row in old[0].copies))
    new = point("new", *changed(BANDWIDTH, 1.1))
    comparison = compare([point("old", silent, *old[1:]), new], by_metric="bandwidth")
    assert any(text.startswith("run 1: a: no bandwidth: ") for text in comparison.left_out)


def test_a_metric_without_a_direction_judges_nothing() -> None:
    metric = MetricUsed("nodes", "", None, "mean")
    old = reporting(brackets(1, SIX), metric, OLD)
    with pytest.raises(
        InputError, match=r"--by nodes: it is not declared alike .* higher or lower"
    ):
        find_measure("nodes", old)
    with pytest.raises(InputError, match=r"--by latency: neither an axis .* nor a metric"):
        find_measure("latency", old)
    assert compare([point("old", *old), point("new", *changed(metric, 1.1))]).metrics == ()


def test_by_takes_an_axis_a_metric_and_cpu_an_axis_first() -> None:
    points = [point("a", *brackets(1, SIX), thp="always")]
    words = split_by(["thp", "bandwidth"], points)
    assert (words.axis, words.metric, words.cpu_time) == ("thp", "bandwidth", False)
    assert split_by(["metric:thp"], points).metric == "thp"
    assert split_by(["thp", "cpu"], points).cpu_time
    with pytest.raises(InputError, match="--by latency: one axis and one measure at a time"):
        split_by(["bandwidth", "latency"], points)
    with pytest.raises(InputError, match="--by bandwidth and --by cpu: one measure at a time"):
        split_by(["bandwidth", "cpu"], points)


@pytest.mark.parametrize(
    ("metric", "of_copy", "unit", "rates"),
    [
        (BANDWIDTH, [100.0, 90.0], "MB/s", [100.0, 180.0]),
        (LATENCY, [10.0, 20.0], "1/ns", [0.1, 0.1]),
    ],
)
def test_a_curve_of_a_metric_is_of_all_copies_together(
    metric: MetricUsed, of_copy: list[float], unit: str, rates: list[float]
) -> None:
    runs = [
        reporting([run(copies, {"a": [[6.0] * copies]})], metric, [value])[0]
        for copies, value in zip([1, 2], of_copy, strict=True)
    ]
    points = [point(f"copies={place}", one, copies=str(place)) for place, one in enumerate(runs, 1)]
    scaling = scaling_curves(points, measure=find_measure(metric.name, runs))
    (series,) = scaling.curves[0].series
    assert series.unit == unit
    assert [round(scale_point.rate, 6) for scale_point in series.points] == rates
    assert unit in text_of(scaling_parts(scaling, (), ()), 100)

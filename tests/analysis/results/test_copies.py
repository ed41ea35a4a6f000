"""Copies beside the median copy, and the metrics that they report of themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.copies import (
    Cell,
    CellTimes,
    RatioPair,
    TimeStatistics,
    group_cells,
    median_copy_times,
    normalise,
    ratio_pairs,
    slowest_points,
)
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.result import failure_text
from rater.analysis.results.score import summarise
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus, MetricUsed
from rater.record.stored import StoredRun
from rater.show.results.run_document import summary_document
from rater.store.observations import read_observations
from tests.support.example_runs import copy_row, in_turn, stored, windowed
from tests.support.places import DIVOT_CASES, needs_cases

CASES = DIVOT_CASES / "cases"


def four(**changes: object) -> list[CopyEnded]:
    """10, 10, 11 and 13 s: median 10.5, mean 11, sample variance (1 + 1 + 0 + 4) / 3 = 2."""
    return [copy_row(number, s, **changes) for number, s in enumerate((10.0, 13.0, 10.0, 11.0))]


def shape(spread: TimeStatistics | None) -> tuple[float | None, ...]:
    assert spread is not None
    return (spread.count, spread.median, spread.mean, spread.sd, spread.maximum)


def times(run: StoredRun, drop: int = 0) -> tuple[CellTimes, ...]:
    cells = group_cells(run)
    return normalise(cells, median_copy_times(cells), drop)


def test_a_hand_computed_case_with_and_without_the_slowest_copy() -> None:
    (workload,) = times(stored(four()))
    assert (workload.yardstick_s, workload.kept, workload.dropped) == (10.5, None, ())
    # Deviations divided by n - 1; without the slowest still over the median of all four.
    every = (4, 1.0, 11 / 10.5, sqrt(2) / 10.5, 13 / 10.5)
    kept = (3, 10 / 10.5, 31 / 3 / 10.5, sqrt(1 / 3) / 10.5, 11 / 10.5)
    assert shape(workload.every) == pytest.approx(every)
    (workload,) = times(stored(four()), drop=1)
    assert shape(workload.every) == pytest.approx(every)
    assert shape(workload.kept) == pytest.approx(kept)
    assert [point.copy for point in workload.dropped] == [1]


def test_all_copies_can_be_dropped_of_equal_ones_the_lower_first_and_one_has_no_sd() -> None:
    (workload,) = times(stored(four()), drop=9)
    assert (workload.kept, len(workload.dropped)) == (None, 4)
    (alone,) = times(stored([copy_row(0, 3.0)], copies=1))
    assert shape(alone.every) == (1, 1.0, 1.0, None, 1.0)
    (workload,) = times(stored([copy_row(copy, 5.0) for copy in range(4)]), drop=2)
    assert [point.copy for point in workload.dropped] == [0, 1]
    assert shape(workload.every) == (4, 1.0, 1.0, 0.0, 1.0)


def test_the_yardstick_is_over_all_counted_iterations_or_over_one() -> None:
    rows = [
        *four(phase=0, iteration=1, counted=False),
        *[replace(row, elapsed_ns=2 * row.elapsed_ns) for row in four(phase=1, iteration=2)],
        *four(phase=2, iteration=3),
    ]
    cells = group_cells(stored(rows))
    # Of 10 10 11 13 20 20 22 26, the discarded iteration left out.
    assert median_copy_times(cells) == {("a", "base"): 16.5}
    assert median_copy_times(cells, iteration=2) == {("a", "base"): 21.0}
    assert median_copy_times(cells, iteration=9) == {}
    assert [cell.counted for cell in cells] == [False, True, True]


def test_another_run_is_the_yardstick_and_lacks_a_benchmark() -> None:
    ours = group_cells(stored([*four(), *four(benchmark="b", phase=1)]))
    theirs = group_cells(stored([copy_row(0, 5.0)]))
    first, second = normalise(ours, median_copy_times(theirs))
    assert shape(first.every)[1] == 2.1
    assert (second.yardstick_s, second.every) == (None, None)
    assert slowest_points((first, second), 2) == (
        (first, first.cell.points[1], 2.6),
        (first, first.cell.points[3], 2.2),
    )


def test_peak_is_measured_by_the_only_tune_of_the_baseline() -> None:
    theirs = group_cells(stored([copy_row(0, 10.0, tune="base")]))
    (one,) = normalise(
        group_cells(stored([copy_row(0, 5.0, tune="peak")])), median_copy_times(theirs)
    )
    assert one.yardstick_s == 10.0


def test_failed_copies_stand_apart() -> None:
    rows = [*four()[:3], copy_row(3, 0.1, status=CopyStatus.FAILED, exit_code=3)]
    (cell,) = group_cells(stored(rows))
    assert [point.copy for point in cell.points] == [0, 1, 2]
    assert [(failed_copy.copy, failure_text(failed_copy)) for failed_copy in cell.failed] == [
        (3, "exit status 3")
    ]


def test_in_steady_mode_a_copy_stands_with_its_median_run_in_the_window() -> None:
    rows = [*in_turn(0, (9.0, 2.0, 3.0, 4.0, 9.0)), *in_turn(1, (3.0,) * 9)]
    (cell,) = group_cells(windowed(rows, 9.0, 18.0))
    first, second = cell.points
    assert (first.elapsed_s, first.fastest_s, first.slowest_s, first.runs) == (3.0, 2.0, 4.0, 3)
    assert (second.elapsed_s, second.runs) == (3.0, 3)


def test_in_rotated_order_each_round_is_a_cell() -> None:
    rows = [
        row
        for copy in range(2)
        for number in range(2)
        for row in in_turn(copy, (2.0, 3.0), names="ab", iteration=number + 1)
    ]
    cells = group_cells(stored(rows, order="rotated", mode="rotated", benchmarks=("b", "a")))
    found = [(cell.benchmark, cell.iteration) for cell in cells]
    assert found == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]


def test_results_of_two_runs_side_by_side() -> None:
    """Copies x reference / bracket: 2 x 10 / 4 = 5 and 2 x 10 / 5 = 4."""
    before = summarise(stored([copy_row(0, 4.0), copy_row(1, 3.0)]))
    after = summarise(stored([copy_row(0, 5.0), copy_row(1, 3.0)]))
    pair, suite = ratio_pairs(after, before)
    assert pair == RatioPair(name="a", tune="base", unit="ratio", baseline=5.0, value=4.0)
    assert pair.change == pytest.approx(-0.2)
    assert suite.name == "suite"
    assert suite.baseline == pytest.approx(5.0)
    # Without reference times by copies per hour.
    before = summarise(stored([copy_row(0, 4.0), copy_row(1, 4.0)], reference_s=None))
    after = summarise(stored([copy_row(0, 5.0), copy_row(1, 3.0)]))
    (pair,) = ratio_pairs(after, before)
    assert pair == RatioPair(
        name="a", tune="base", unit="copies/hour", baseline=1800.0, value=1440.0
    )


def test_benchmarks_of_one_run_only_have_no_change() -> None:
    before = summarise(stored([copy_row(0, 4.0, benchmark="old")], copies=1))
    after = summarise(stored([copy_row(0, 4.0)], copies=1))
    pairs = ratio_pairs(after, before)
    assert [(pair.name, pair.baseline, pair.value, pair.change) for pair in pairs] == [
        ("a", None, 2.5, None),
        ("old", 2.5, None, None),
    ]


def cells(name: str) -> tuple[Cell, ...]:
    path = CASES / name
    return group_cells(read_observations(path.read_bytes(), name))


@needs_cases
def test_table_4_of_the_paper() -> None:
    """Runs 2 and 3 of 436.cactusADM, 127 copies, over the median copy of run 2."""
    second, third = cells("paper-table4-run2-only.json"), cells("paper-table4-run3-only.json")
    over = median_copy_times(second)
    found = []
    for workload in (*normalise(second, over, drop=6), *normalise(third, over, drop=6)):
        found += [shape(workload.every), shape(workload.kept)]
    # The paper prints 1.0000 .9916 .0232 1.0104 of run 2, .9907 .0235 1.0072 without its six
    # .9947 .9990 .0844 1.3837, and .9813 .0284 1.0086; the rebuilt case lies this near.
    assert found == [
        (127, *(pytest.approx(value, abs=5e-5) for value in (1.0, 0.9917, 0.0231, 1.0104))),
        (121, *(pytest.approx(value, abs=5e-5) for value in (0.9994, 0.9910, 0.0234, 1.0058))),
        (127, *(pytest.approx(value, abs=5e-5) for value in (0.9934, 0.9990, 0.0846, 1.3837))),
        (121, *(pytest.approx(value, abs=5e-5) for value in (0.9933, 0.9813, 0.0284, 1.0086))),
    ]
    (workload,) = normalise(third, over, drop=6)
    assert sorted(point.copy for point in workload.dropped) == [3, 5, 38, 53, 58, 74]


BANDWIDTH = MetricUsed("bandwidth", "GB/s", "higher", "sum")
LATENCY = MetricUsed("latency", "ns", "lower", "mean")


def declared(run: StoredRun, *metrics: MetricUsed) -> StoredRun:
    return replace(
        run, benchmarks=tuple(replace(benchmark, metrics=metrics) for benchmark in run.benchmarks)
    )


def reporting(row: CopyEnded, value: float, name: str = "bandwidth") -> CopyEnded:
    return replace(row, metrics=((name, value),))


def only(run: StoredRun, metric: MetricUsed = BANDWIDTH) -> MetricResult:
    (found,) = summarise(declared(run, metric)).metrics
    return found


def iterations_of(*values: Sequence[float], discard: int = 0) -> StoredRun:
    """Iteration i, in which copy c reported values[i][c]; lgroups of two copies."""
    rows = [
        reporting(
            copy_row(c, 1.0, phase=i, iteration=i + 1, counted=i >= discard, node=c // 2), value
        )
        for i, of_copies in enumerate(values)
        for c, value in enumerate(of_copies)
    ]
    return stored(rows, iterations=len(values), discard=discard, copies=len(values[0]))


def test_over_copies_and_lgroups_a_metric_is_the_sum_or_the_mean_as_the_suite_says() -> None:
    run = iterations_of([1.0, 2.0, 4.0, 5.0])
    assert only(run, replace(BANDWIDTH, combine="mean")).value == 3.0
    found = only(run)
    assert found.value == 12.0
    assert [
        (lgroup.node, lgroup.copies, lgroup.value, lgroup.minimum, lgroup.maximum)
        for lgroup in found.lgroups
    ] == [
        (0, 2, 3.0, 1.0, 2.0),
        (1, 2, 9.0, 4.0, 5.0),
    ]


def test_the_extreme_copies_have_their_places_and_the_worst_is_by_direction() -> None:
    run = iterations_of([1.0, 2.0, 4.0, 5.0])
    found = only(run)
    assert found.minimum is not None and found.maximum is not None
    assert (found.minimum.copy, found.minimum.cpu, found.minimum.node) == (0, 0, 0)
    assert (found.maximum.copy, found.maximum.value, found.median) == (3, 5.0, 3.0)
    assert found.worst is found.minimum
    lower = only(run, replace(BANDWIDTH, better="lower"))
    assert lower.worst is lower.maximum
    assert only(run, replace(BANDWIDTH, better=None)).worst is None


@pytest.mark.parametrize(("better", "value"), [("higher", 2.0), ("lower", 3.0), (None, 2.0)])
def test_the_median_counted_iteration_stands_for_all_and_of_two_the_worse(
    better: str | None, value: float
) -> None:
    assert only(iterations_of([2.0], [3.0]), replace(BANDWIDTH, better=better)).value == value
    found = only(iterations_of([99.0], [3.0], [1.0], [2.0], discard=1))
    assert (found.value, found.iteration, found.iterations) == (2.0, 4, 3)


def test_a_copy_that_reported_nothing_or_failed_leaves_no_value_but_the_others_stand() -> None:
    rows = [reporting(copy_row(0, 1.0), 3.0), copy_row(1, 1.0)]
    metric = only(stored(rows))
    assert (metric.value, metric.copies, metric.median) == (None, 1, 3.0)
    assert metric.reason == "1 of 2 copies have none"
    rows[1] = replace(rows[1], status=CopyStatus.FAILED, exit_code=3)
    assert only(stored(rows)).reason == "copy 1: exit status 3"
    assert only(stored(rows[:1])).reason == "1 of 2 copies have none"
    run = iterations_of([2.0], [3.0])  # of which one goes wrong
    copies = (run.copies[0], replace(run.copies[1], status=CopyStatus.TIMEOUT))
    metric = only(replace(run, copies=copies))
    assert (metric.value, metric.reason) == (None, "copy 0: stopped at its time limit")


def test_a_metric_of_a_benchmark_that_did_not_run_is_named() -> None:
    run = replace(stored([], benchmarks=("a",)), brackets=())
    assert only(run).reason == "did not run"
    assert summarise(run).metrics == ()  # none declared


def test_in_rotated_order_a_copy_stands_for_its_mean_over_the_counted_rounds() -> None:
    rows = [
        reporting(
            copy_row(copy, 1.0, iteration=step, step=step - 1, counted=step > 1), copy * 10.0 + step
        )
        for copy in range(2)
        for step in (1, 2, 3)
    ]
    run = stored(rows, mode="rotated", order="rotated", iterations=3, discard=1)
    found = only(run)
    assert (found.value, found.iteration) == (2.5 + 12.5, None)
    largest = 1.7976931348623157e308  # whose mean is a value
    rows = [
        reporting(copy_row(0, 1.0, iteration=step, step=step - 1), largest) for step in (1, 2, 3)
    ]
    assert only(stored(rows, mode="rotated", order="rotated", iterations=3)).value == largest


def test_in_steady_mode_runs_count_by_their_share_in_the_window() -> None:
    # Runs of 2 s from 0 on; of the window from 3 to 7 s the second has half, the third all, the
    # fourth half.
    rows = [
        reporting(row, value)
        for row, value in zip(in_turn(0, [2.0] * 4), [100.0, 4.0, 2.0, 8.0], strict=True)
    ]
    found = only(windowed(rows, 3.0, 7.0))
    assert found.value == (0.5 * 4 + 2 + 0.5 * 8) / 2
    assert found.copies == 1


def test_in_steady_mode_what_failed_before_the_window_is_no_matter() -> None:
    rows = [reporting(row, 1.0) for row in in_turn(0, [2.0] * 4)]
    early = [replace(rows[0], status=CopyStatus.WRONG_OUTPUT), *rows[1:]]
    assert only(windowed(early, 3.0, 7.0)).value == 1.0
    late = [*rows[:2], replace(rows[2], status=CopyStatus.WRONG_OUTPUT), rows[3]]
    found = only(windowed(late, 3.0, 7.0))
    assert (found.value, found.reason) == (None, "copy 0: wrong output")


def test_metrics_are_in_the_suites_order_and_in_the_document() -> None:
    both = (("latency", 90.0), ("bandwidth", 3.0))
    rows = [replace(copy_row(copy, 1.0), metrics=both) for copy in range(2)]
    summary = summarise(declared(stored(rows), BANDWIDTH, LATENCY))
    document: Any = json.loads(json.dumps(summary_document(summary), allow_nan=False))
    first, second = document["metrics"]
    told = [first[key] for key in ("name", "unit", "better", "combine")]
    assert told == ["bandwidth", "GB/s", "higher", "sum"]
    assert (first["value"], second["name"], second["value"]) == (6.0, "latency", 90.0)
    assert first["lgroups"][1]["node"] == 1
    assert second["worst"]["copy"] == 0


def test_values_too_large_to_add_up_leave_no_value_but_their_mean_and_median_stand() -> None:
    run = iterations_of([1e308, 1.2e308, 1.4e308, 1.6e308])
    found = only(run)
    assert (found.value, found.reason) == (None, "too large to add up")
    assert found.median == pytest.approx(1.3e308)
    assert [(group.node, group.value) for group in found.lgroups] == [(0, None), (1, None)]
    mean = only(run, replace(BANDWIDTH, combine="mean"))
    assert mean.value == pytest.approx(1.3e308)
    assert only(iterations_of([-1.7e308, -1.7e308])).reason == "too large to add up"
    json.dumps(summary_document(summarise(declared(run, BANDWIDTH))), allow_nan=False)

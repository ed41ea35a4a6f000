"""Numbers that benchmarks report of themselves, over copies, lgroups, iterations and windows."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.score import summarise
from rater.record.run import CopyStatus, MetricUsed
from rater.record.stored import StoredCopy, StoredRun
from rater.show.results.to_json import summary_document
from tests.support.example_runs import copy_row, in_turn, stored, windowed

BANDWIDTH = MetricUsed("bandwidth", "GB/s", "higher", "sum")
LATENCY = MetricUsed("latency", "ns", "lower", "mean")


def declared(run: StoredRun, *metrics: MetricUsed) -> StoredRun:
    return replace(run, benchmarks=tuple(replace(one, metrics=metrics) for one in run.benchmarks))


def reporting(row: StoredCopy, value: float, name: str = "bandwidth") -> StoredCopy:
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
    assert [(g.node, g.copies, g.value, g.minimum, g.maximum) for g in found.lgroups] == [
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
    found = only(stored(rows))
    assert (found.value, found.copies, found.median) == (None, 1, 3.0)
    assert found.reason == "1 of 2 copies have none"
    rows[1] = replace(rows[1], status=CopyStatus.FAILED, exit_code=3)
    assert only(stored(rows)).reason == "copy 1: exit status 3"
    assert only(stored(rows[:1])).reason == "1 of 2 copies have none"
    run = iterations_of([2.0], [3.0])  # of which one goes wrong
    copies = (run.copies[0], replace(run.copies[1], status=CopyStatus.TIMEOUT))
    found = only(replace(run, copies=copies))
    assert (found.value, found.reason) == (None, "copy 0: stopped at its time limit")


def test_a_metric_of_a_benchmark_that_did_not_run_is_named() -> None:
    run = replace(stored([], benchmarks=("a",)), brackets=())
    assert only(run).reason == "did not run"
    assert summarise(run).metrics == ()  # none declared


def test_in_rotated_order_a_copy_stands_for_its_mean_over_the_counted_rounds() -> None:
    rows = [
        reporting(copy_row(c, 1.0, iteration=i, step=i - 1, counted=i > 1), c * 10.0 + i)
        for c in range(2)
        for i in (1, 2, 3)
    ]
    run = stored(rows, mode="rotated", order="rotated", iterations=3, discard=1)
    found = only(run)
    assert (found.value, found.iteration) == (2.5 + 12.5, None)
    largest = 1.7976931348623157e308  # whose mean is a value
    rows = [reporting(copy_row(0, 1.0, iteration=i, step=i - 1), largest) for i in (1, 2, 3)]
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
    rows = [replace(copy_row(c, 1.0), metrics=both) for c in range(2)]
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

"""Times of the copies over the median copy, as in Table 4 of the SPECrate2006 paper."""

from dataclasses import replace
from math import sqrt

import pytest

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
from rater.analysis.results.score import summarise
from rater.record.run import CopyStatus
from rater.record.stored import StoredCopy, StoredRun
from rater.store.observations import read_observations
from tests.support.example_runs import copy_row, in_turn, stored, windowed
from tests.support.places import DIVOT_CASES, needs_cases

CASES = DIVOT_CASES / "cases"


def four(**changes: object) -> list[StoredCopy]:
    """10, 10, 11 and 13 s: median 10.5, mean 11, sample variance (1 + 1 + 0 + 4) / 3 = 2."""
    return [copy_row(n, s, **changes) for n, s in enumerate((10.0, 13.0, 10.0, 11.0))]


def shape(spread: TimeStatistics | None) -> tuple[float | None, ...]:
    assert spread is not None
    return (spread.count, spread.median, spread.mean, spread.sd, spread.maximum)


def times(run: StoredRun, drop: int = 0) -> tuple[CellTimes, ...]:
    cells = group_cells(run)
    return normalise(cells, median_copy_times(cells), drop)


def test_a_hand_computed_case_with_and_without_the_slowest_copy() -> None:
    (one,) = times(stored(four()))
    assert (one.yardstick_s, one.kept, one.dropped) == (10.5, None, ())
    # Deviations divided by n - 1; without the slowest still over the median of all four.
    every = (4, 1.0, 11 / 10.5, sqrt(2) / 10.5, 13 / 10.5)
    kept = (3, 10 / 10.5, 31 / 3 / 10.5, sqrt(1 / 3) / 10.5, 11 / 10.5)
    assert shape(one.every) == pytest.approx(every)
    (one,) = times(stored(four()), drop=1)
    assert shape(one.every) == pytest.approx(every)
    assert shape(one.kept) == pytest.approx(kept)
    assert [point.copy for point in one.dropped] == [1]


def test_all_copies_can_be_dropped_of_equal_ones_the_lower_first_and_one_has_no_sd() -> None:
    (one,) = times(stored(four()), drop=9)
    assert (one.kept, len(one.dropped)) == (None, 4)
    (alone,) = times(stored([copy_row(0, 3.0)], copies=1))
    assert shape(alone.every) == (1, 1.0, 1.0, None, 1.0)
    (one,) = times(stored([copy_row(n, 5.0) for n in range(4)]), drop=2)
    assert [point.copy for point in one.dropped] == [0, 1]
    assert shape(one.every) == (4, 1.0, 1.0, 0.0, 1.0)


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
    assert [(one.copy, one.what) for one in cell.failed] == [(3, "exit status 3")]


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
    assert pair == RatioPair("a", "base", "ratio", 5.0, 4.0)
    assert pair.change == pytest.approx(-0.2)
    assert suite.name == "suite"
    assert suite.baseline == pytest.approx(5.0)
    # Without reference times by copies per hour.
    before = summarise(stored([copy_row(0, 4.0), copy_row(1, 4.0)], reference_s=None))
    after = summarise(stored([copy_row(0, 5.0), copy_row(1, 3.0)]))
    (pair,) = ratio_pairs(after, before)
    assert pair == RatioPair("a", "base", "copies/hour", 1800.0, 1440.0)


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
    for one in (*normalise(second, over, drop=6), *normalise(third, over, drop=6)):
        found += [shape(one.every), shape(one.kept)]
    # The paper prints 1.0000 .9916 .0232 1.0104 of run 2, .9907 .0235 1.0072 without its six
    # .9947 .9990 .0844 1.3837, and .9813 .0284 1.0086; the rebuilt case lies this near.
    assert found == [
        (127, *(pytest.approx(value, abs=5e-5) for value in (1.0, 0.9917, 0.0231, 1.0104))),
        (121, *(pytest.approx(value, abs=5e-5) for value in (0.9994, 0.9910, 0.0234, 1.0058))),
        (127, *(pytest.approx(value, abs=5e-5) for value in (0.9934, 0.9990, 0.0846, 1.3837))),
        (121, *(pytest.approx(value, abs=5e-5) for value in (0.9933, 0.9813, 0.0284, 1.0086))),
    ]
    (one,) = normalise(third, over, drop=6)
    assert sorted(point.copy for point in one.dropped) == [3, 5, 38, 53, 58, 74]

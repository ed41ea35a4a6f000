"""Points beside a baseline: pairs, runs, iterations, suites, slow copies, what does not count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare, is_decided
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.estimate import Basis
from rater.analysis.stats.intervals import Decision
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import CopyStatus, RunStatus
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from tests.support.compared_runs import (
    brackets,
    known,
    made_at,
    only,
    point,
    run,
    speedup_of,
    speedup_words,
)
from tests.support.example_runs import copy_row, stored, with_energy


def test_runs_of_a_block_are_paired_and_what_drifts_between_blocks_cancels() -> None:
    # Every block is slower than the one before; the second point takes 4, 5 and 6 % less time.
    base = point("base", *brackets(1, [10.0, 20.0, 40.0]))
    new = point("new", *brackets(4, [9.6, 19.0, 37.6]))
    row = only(compare([base, new]))
    speedup = known(row.cells[0].speedup)
    assert speedup.ratio == pytest.approx((10 / 9.6 * 20 / 19 * 40 / 37.6) ** (1 / 3))
    assert (speedup.basis, speedup.count, speedup.degrees) == (Basis.BLOCKS, 3, 2)
    assert speedup.verdict_text == "better (3 rounds)"  # too few to see whether they hang together
    # As ratios: 2 copies x reference 10 s / bracket, geometric means over the runs.
    assert row.cells[0].baseline == pytest.approx(20 / 20)
    assert row.cells[0].value == pytest.approx(20 / (9.6 * 19.0 * 37.6) ** (1 / 3))
    # Without blocks the drift is noise.
    loose = compare(
        [
            point("base", *brackets(1, [10.0, 20.0, 40.0]), blocks=False),
            point("new", *brackets(4, [9.6, 19.0, 37.6]), blocks=False),
        ]
    )
    assert speedup_words(loose).startswith("inconclusive")
    assert speedup_of(loose).basis is Basis.RUNS


def test_both_signs_are_told_alike_and_improvement_and_reduction_are_two_things() -> None:
    slow, fast = [10.0, 10.01, 10.02, 9.99], [9.8, 9.82, 9.81, 9.79]
    there = compare([point("x", *brackets(1, slow)), point("y", *brackets(5, fast))])
    back = compare([point("y", *brackets(5, fast)), point("x", *brackets(1, slow))])
    assert (speedup_words(there), speedup_words(back)) == ("better (4 rounds)", "worse (4 rounds)")
    assert only(there).cells[0].improvement == pytest.approx(0.0204, abs=1e-4)
    assert only(back).cells[0].improvement == pytest.approx(-0.0200, abs=1e-4)
    half = compare([point("x", *brackets(1, [10.0, 10.1])), point("y", *brackets(3, [5.0, 5.05]))])
    cell = only(half).cells[0]
    assert cell.improvement == pytest.approx(1.0)  # (10 - 5) / 5
    assert cell.reduction == pytest.approx(0.5)  # (10 - 5) / 10


def test_iterations_of_a_run_are_one_value_where_there_are_several_runs() -> None:
    # Run 1 is a slow run, whatever its iterations say of each other: two values, not six.
    base = [run(1, {"a": [[12.0, 12.0]] * 3}), run(2, {"a": [[10.0, 10.0]] * 3})]
    new = [run(3, {"a": [[9.0, 9.0]] * 3}), run(4, {"a": [[9.1, 9.1]] * 3})]
    comparison = compare([point("x", *base, blocks=False), point("y", *new, blocks=False)])
    speedup = speedup_of(comparison)
    assert (speedup.count, speedup.basis) == (2, Basis.RUNS)
    assert not speedup.decided


def test_of_single_runs_the_results_are_compared_and_decide_nothing() -> None:
    # Of three iterations the median counts: 10 against 9, whatever the others were.
    base = point("x", run(1, {"a": [[10.0, 10.0], [70.0, 70.0], [9.9, 9.9]]}))
    new = point("y", run(2, {"a": [[9.0, 9.0], [9.1, 9.1], [8.9, 8.9]]}))
    comparison = compare([base, new])
    speedup = speedup_of(comparison)
    assert speedup.ratio == pytest.approx(10 / 9)
    assert (speedup.basis, speedup.count, speedup.low) == (Basis.NOTHING, 1, None)
    assert speedup.verdict_text == "inconclusive: one run each"
    assert comparison.compared == 0
    assert not comparison.benchmarks[0].cells[0].holds
    assert comparison.unjudged() == [(only(comparison), comparison.sides[1], "one run each")]


def test_the_suite_of_single_runs_is_that_of_their_results() -> None:
    base = run(1, {"a": [[10.0] * 2, [10.1] * 2], "b": [[20.0] * 2, [20.2] * 2]})
    new = run(2, {"a": [[9.0] * 2, [9.1] * 2], "b": [[18.0] * 2, [18.1] * 2]})
    (suite, *_) = compare([point("x", base), point("y", new)]).suites
    speedup = known(suite.cells[0].speedup)
    assert speedup.verdict_text == "inconclusive: one run each"
    assert speedup.ratio == pytest.approx(math.sqrt(10.1 / 9.1 * 20.2 / 18.1))  # the slower of two
    assert suite.cells[0].value == pytest.approx(speedup.ratio * (suite.cells[0].baseline or 0))


def test_iterations_that_are_discarded_do_not_count() -> None:
    def warmed(number: int, first: float, second: float) -> StoredRun:
        it = run(number, {"a": [[first] * 2, [second] * 2]}, discard=1)
        brackets = tuple(
            replace(bracket, counted=bracket.iteration != 1) for bracket in it.brackets
        )
        copies = tuple(replace(copy, counted=copy.iteration != 1) for copy in it.copies)
        return replace(it, brackets=brackets, copies=copies)

    base = point("x", warmed(1, 50.0, 10.0), warmed(2, 90.0, 10.02))
    new = point("y", warmed(3, 10.0, 9.0), warmed(4, 20.0, 9.02))
    speedup = speedup_of(compare([base, new]))
    assert speedup.ratio == pytest.approx(10 / 9, rel=1e-3)


def test_two_runs_of_a_point_in_one_block_are_one_value() -> None:
    runs = brackets(1, [10.0, 10.4, 10.2])
    blocks = zip(runs, (1, 1, 2), strict=True)
    base = Point("x", (), tuple(PointRun(made_at(it, block), block) for it, block in blocks))
    new = point("y", *brackets(4, [9.5, 9.0, 9.1]))  # blocks 0, 1 and 2
    speedup = speedup_of(compare([base, new]))
    assert (speedup.count, speedup.basis) == (2, Basis.BLOCKS)
    assert speedup.ratio == pytest.approx(math.sqrt(math.sqrt(10 * 10.4) / 9.0 * 10.2 / 9.1))


def test_other_reference_times_are_compared_in_copies_an_hour() -> None:
    base = [run(number, {"a": [[10.0] * 2]}) for number in (1, 2)]
    new = [run(number, {"a": [[9.0 + number / 100] * 2]}, reference_s=99.0) for number in (3, 4)]
    row = only(compare([point("x", *base), point("y", *new)]))
    assert row.unit == "copies/hour"
    assert row.cells[0].baseline == pytest.approx(720)
    assert known(row.cells[0].speedup).ratio == pytest.approx(10 / 9.035, rel=1e-4)


def test_one_value_each_cannot_be_told() -> None:
    comparison = compare([point("x", *brackets(1, [10.0])), point("y", *brackets(2, [5.0]))])
    assert speedup_words(comparison) == "inconclusive: one run each"
    assert only(comparison).cells[0].p_holm is None
    assert comparison.compared == 0


def test_a_point_against_copies_of_itself_is_better_or_worse_in_few_of_many() -> None:
    # Through stored runs and the whole comparison: 60 sweeps of 4 points in 5 blocks.
    rng = np.random.default_rng(8)
    apart = compared = 0
    for _ in range(20):
        points = [
            point(
                f"p{number}", *brackets(5 * number + 1, list(10 * np.exp(rng.normal(0, 0.02, 5))))
            )
            for number in range(4)
        ]
        comparison = compare(points)
        cells = [cell for _, _, cell in comparison.verdicts()]
        verdicts = [cell.speedup.verdict for cell in cells if cell.speedup]
        apart += sum(verdict in (Decision.BETTER, Decision.WORSE) for verdict in verdicts)
        compared += len(verdicts)
    assert compared == 60
    assert apart <= 8  # 3 expected; 9 and more by chance in 0.4 % of seeds


def test_the_suite_is_the_geometric_mean_of_each_run() -> None:
    base = [
        run(number, {"a": [[10.0] * 2], "b": [[20.0] * 2], "c": [[5.0] * 2]})
        for number in (1, 2, 3)
    ]
    times = [(8.0, 20.0, 6.0), (8.1, 20.1, 6.05), (7.9, 19.9, 5.95)]
    new = [
        run(4 + number, {"a": [[a] * 2], "b": [[b] * 2], "c": [[c] * 2]})
        for number, (a, b, c) in enumerate(times)
    ]
    comparison = compare([point("x", *base), point("y", *new)])
    suites = {row.name: known(row.cells[0].speedup) for row in comparison.suites}
    assert set(suites) == {"all", "int"}  # one fp benchmark is no suite
    speedups = [1000 / (a * b * c) for a, b, c in times]
    assert suites["all"].ratio == pytest.approx(math.prod(speedups) ** (1 / 9))
    ints = [200 / (a * b) for a, b, _ in times]
    assert suites["int"].ratio == pytest.approx(math.prod(ints) ** (1 / 6))
    (row, *_) = comparison.suites
    assert row.over == ("a", "b", "c")
    # The baseline's ratios are 2, 1 and 4.
    assert row.cells[0].baseline == pytest.approx(2.0)


def test_a_benchmark_that_a_point_lacks_is_told_and_no_part_of_the_suite() -> None:
    base = [
        run(number, {"a": [[10.0] * 2], "b": [[20.0] * 2], "c": [[5.0] * 2]}) for number in (1, 2)
    ]
    new = [run(number, {"a": [[9.0] * 2], "b": [[20.0] * 2]}) for number in (3, 4)]
    comparison = compare([point("x", *base), point("y", *new)])
    rows = {row.name: row for row in comparison.benchmarks}
    assert rows["c"].cells[0].speedup is None
    assert rows["c"].cells[0].reason == "no valid result on one of the sides"
    assert comparison.suites[0].over == ("a", "b")
    assert comparison.left_out == (
        "no valid result in y: c",
        "suite: over the 2 benchmarks of 3 that all points have",
    )


def test_failed_copies_and_runs_that_did_not_end_are_left_out_and_told() -> None:
    base = brackets(1, [10.0, 10.1, 10.2])
    new = brackets(4, [9.0, 9.1, 9.2])
    bad = replace(new[1].copies[0], status=CopyStatus.FAILED, exit_code=3)
    new[1] = replace(new[1], copies=(bad, new[1].copies[1]))
    head = replace(new[2].head, status=RunStatus.INTERRUPTED, reason="Ctrl-C")
    new[2] = replace(new[2], head=head)
    comparison = compare([point("x", *base), point("y", *new)])
    speedup = speedup_of(comparison)
    assert speedup.count == 2  # blocks 0 and 2
    assert comparison.left_out == (
        "run 5: a: copy 0: exit status 3",
        "run 6: interrupted (Ctrl-C), what it finished counts",
    )


def test_a_tunable_that_only_removes_the_slow_copies_is_a_win_that_is_named() -> None:
    rng = np.random.default_rng(9)
    base, new = [], []
    for number in range(6):
        usual = list(10 * np.exp(rng.normal(0, 0.0005, 7)))
        base.append(run(1 + number, {"a": [[*usual, 12.0 + 0.01 * number]]}))
        usual = list(10 * np.exp(rng.normal(0, 0.0005, 8)))
        new.append(run(10 + number, {"a": [usual]}))
    cell = only(compare([point("x", *base), point("y", *new)])).cells[0]
    assert known(cell.speedup).short == "better"
    assert known(cell.median_copy).short == "same within 1 %"
    slowest = known(cell.slowest_over_median)
    assert slowest.short == "better"
    assert slowest.ratio == pytest.approx(10 / 12, abs=0.01)


def test_points_of_other_copies_are_compared_in_throughput_alone() -> None:
    base = point("x", *(run(number, {"a": [[10.0]]}) for number in (1, 2)))
    new = point("y", *(run(number, {"a": [[12.0 + number / 100] * 4]}) for number in (3, 4)))
    comparison = compare([base, new])
    cell = only(comparison).cells[0]
    assert comparison.copies == (1, 4)
    assert known(cell.speedup).ratio == pytest.approx(4 * 10 / 12.035, rel=1e-4)
    assert (cell.median_copy, cell.slowest_over_median) == (None, None)


def test_base_and_peak_of_two_runs_are_one_benchmark() -> None:
    base = [run(number, {"a": [[10.0] * 2]}, tune="base") for number in (1, 2)]
    peak = []
    for number in (3, 4):
        it = run(number, {"a": [[9.0 + number / 100] * 2]}, tune="peak")
        tuned = tuple(replace(bracket, tune="peak") for bracket in it.brackets)
        copies = tuple(replace(copy, tune="peak") for copy in it.copies)
        peak.append(replace(it, brackets=tuned, copies=copies))
    comparison = compare([point("base", *base), point("peak", *peak)])
    assert only(comparison).tune is None
    assert speedup_words(comparison) == "better (2 rounds)"


def in_two_tunes(number: int, base_s: Sequence[float], peak_s: Sequence[float]) -> StoredRun:
    """A result file with base and peak of one benchmark, each in several iterations."""
    both_tunes = run(number, {"a": [[time_s] for time_s in (*base_s, *peak_s)]})
    place = {number + 1: ("base", number + 1) for number in range(len(base_s))}
    place |= {len(base_s) + number + 1: ("peak", number + 1) for number in range(len(peak_s))}

    def tuned[R: (PhaseEnded, CopyEnded)](row: R) -> R:
        tune, iteration = place[row.iteration or 0]
        return replace(row, tune=tune, iteration=iteration)

    return replace(
        both_tunes,
        head=replace(both_tunes.head, source="import", iterations=len(base_s)),
        brackets=tuple(map(tuned, both_tunes.brackets)),
        copies=tuple(map(tuned, both_tunes.copies)),
    )


def test_a_measurement_that_counts_as_base_and_peak_is_one_comparison() -> None:
    base = point("x", *(in_two_tunes(number, [10.0, 10.1], [10.0, 10.1]) for number in (1, 2)))
    new = point("y", *(in_two_tunes(number, [9.0, 9.1], [9.0, 9.1]) for number in (3, 4)))
    assert [(row.name, row.tune) for row in compare([base, new]).benchmarks] == [("a", "base")]
    # Where the other side measured its peak, that is compared with what counts as peak here.
    own = point("z", *(in_two_tunes(number, [9.0, 9.1], [8.0, 8.1]) for number in (5, 6)))
    rows = {row.tune: known(row.cells[0].speedup) for row in compare([base, own]).benchmarks}
    assert rows["base"].ratio == pytest.approx(10.1 / 9.1)
    assert rows["peak"].ratio == pytest.approx(10.1 / 8.1)


def test_verdicts_that_hold_with_all_comparisons_considered_are_marked() -> None:
    base = point("p0", *brackets(1, [10.0, 10.1, 9.9, 10.0]))
    slightly = point("p1", *brackets(5, [9.9, 9.93, 9.83, 9.85]))  # p about 0.02
    much = point("p2", *brackets(9, [9.0, 9.09, 8.92, 9.0]))
    comparison = compare([base, slightly, much])
    first, second = only(comparison).cells
    assert (
        known(first.speedup).verdict_text
        == known(second.speedup).verdict_text
        == "better (4 rounds)"
    )
    assert second.p_holm == pytest.approx(2 * (known(second.speedup).p or 0))
    assert first.p_holm == pytest.approx(known(first.speedup).p)  # the last one in order
    assert second.holds
    assert comparison.by_chance == pytest.approx(0.1)


def grid(noise: float, effect: float) -> list[Point]:
    """Two copies x two pages in four blocks; pages=large takes `effect` less time."""
    rng = np.random.default_rng(10)
    points: list[Point] = []
    for copies in ("1", "2"):
        for pages in ("small", "large"):
            usual = 10 * int(copies) * (1 - effect * (pages == "large"))
            times = usual * np.exp(rng.normal(0, noise, 4))
            label = f"copies={copies} pages={pages}"
            runs = brackets(4 * len(points) + 1, list(times))
            points.append(point(label, *runs, copies=copies, pages=pages))
    return points


def test_along_one_axis_the_others_are_held() -> None:
    points = grid(0.002, 0.05)
    comparison = compare(points, by="pages")
    assert [side.label for side in comparison.sides] == ["pages=small", "pages=large"]
    speedup = speedup_of(comparison)
    assert speedup.verdict_text == "better (4 rounds)"
    assert speedup.ratio == pytest.approx(1 / 0.95, rel=0.004)
    assert speedup.degrees is not None
    assert 3 < speedup.degrees <= 6  # two strata of four blocks
    assert comparison.copies == (2,)
    assert comparison.left_out == ()
    other = compare(points, by="copies")
    assert speedup_words(other) == "worse (4 rounds)"
    # A value that only one side has beside the axis has no partner.
    less = compare(points[:3], by="pages")
    assert less.left_out == (
        "compared without copies=2 pages=small: pages=large has no such point",
    )
    assert known(only(less).cells[0].speedup)
    # Without `by` every point stands beside the first.
    assert len(compare(points).sides) == 4


def test_the_baseline_can_be_named() -> None:
    points = grid(0.002, 0.05)
    assert compare(points, baseline="copies=2 pages=large").sides[0].label == "copies=2 pages=large"
    by = compare(points, by="pages", baseline="pages=large")
    assert [side.label for side in by.sides] == ["pages=large", "pages=small"]
    assert speedup_words(by) == "worse (4 rounds)"
    with pytest.raises(InputError, match="2 points have it"):
        compare(points, baseline="pages=large")
    with pytest.raises(InputError, match="no such point"):
        compare(points, baseline="pages=huge")
    with pytest.raises(InputError, match="not an axis of all points; their axes: copies, pages"):
        compare(points, by="thp")
    with pytest.raises(InputError, match="expected two or more"):
        compare(points[:1])


def test_a_sweep_stops_when_every_point_is_told() -> None:
    base = point("p0", *brackets(1, [10.0, 10.01, 9.99, 10.0]))
    same = point("p1", *brackets(5, [10.0, 10.02, 9.98, 10.0]))
    noisy = point("p2", *brackets(9, [10.0, 12.0, 9.0, 11.0]))
    assert is_decided([base, same], 0.01)
    assert not is_decided([base, noisy], 0.01)
    assert not is_decided([base, same, noisy], 0.01)
    # Looked at many times, the same data have to be clearer.
    assert not is_decided([base, same], 0.01, looks=1000)


def test_energy_of_a_copy_is_compared_and_decided_beside_times() -> None:
    """As fast, for half the joules: 100 J in the baseline, 50 J in the other."""
    runs = brackets(1, [10.0] * 4), brackets(5, [10.0] * 4)
    base, saving = (
        [with_energy(it, joules + place) for place, it in enumerate(some)]
        for some, joules in zip(runs, (100, 50), strict=True)
    )
    points = [point("x=0", *base, x="0"), point("x=1", *saving, x="1")]
    told = only(compare(points)).cells[0].joules_per_copy
    assert told is not None
    assert told.ratio == pytest.approx(0.5, abs=0.01)
    assert told.verdict is Decision.BETTER
    assert is_decided(points, 0.01, energy=True)
    without = [points[0], point("x=1", *runs[1], x="1")]
    assert only(compare(without)).cells[0].joules_per_copy is None
    assert is_decided(without, 0.01)
    assert not is_decided(without, 0.01, energy=True)


def test_a_sweep_of_several_benchmarks_is_decided_by_the_suite() -> None:
    base = [run(number, {"a": [[10.0] * 2], "b": [[10.0] * 2]}) for number in (1, 2, 3)]
    new = [
        run(4 + number, {"a": [[8.0 * by] * 2], "b": [[8.0 / by + 0.01 * number] * 2]})
        for number, by in enumerate((1.0, 1.3, 0.8))
    ]
    points = [point("x", *base), point("y", *new)]
    assert is_decided(points, 0.01)
    cells = [row.cells[0].speedup for row in compare(points).benchmarks]
    assert not any(cell.decided for cell in cells if cell)


def test_rotated_runs_are_compared_by_their_score() -> None:
    def rotated(number: int, times: Sequence[float]) -> StoredRun:
        a, b = times
        rows = [
            copy_row(0, a, benchmark="a", step=0),
            copy_row(0, b, benchmark="b", step=1),
            copy_row(1, b, benchmark="b", step=0),
            copy_row(1, a, benchmark="a", step=1),
        ]
        return stored(rows, run=number, mode="rotated", order="rotated", benchmarks=("a", "b"))

    base = [rotated(1, (10.0, 20.0)), rotated(2, (10.1, 20.2))]
    new = [rotated(3, (8.0, 20.0)), rotated(4, (8.08, 20.21))]
    comparison = compare([point("x", *base), point("y", *new)])
    assert known(comparison.benchmarks[0].cells[0].speedup).ratio == pytest.approx(1.25)
    (suite,) = comparison.suites
    assert known(suite.cells[0].speedup).ratio == pytest.approx(math.sqrt(1.25), rel=1e-3)
    assert suite.cells[0].baseline == pytest.approx(20 / math.sqrt(200), rel=0.01)


def test_values_and_all_suites_are_of_the_same_runs() -> None:
    # Run 2 lacks the fp benchmark and is ten times faster in a: no part of any suite.
    whole: dict[str, Sequence[Sequence[float]]] = {
        "a": [[10.0] * 2],
        "b": [[20.0] * 2],
        "c": [[5.0] * 2],
    }
    torn: dict[str, Sequence[Sequence[float]]] = {"a": [[1.0] * 2], "b": [[20.0] * 2]}
    base = point("x", run(1, whole), run(2, torn), run(3, whole), blocks=False)
    new = point("y", run(4, whole), run(5, whole), blocks=False)
    comparison = compare([base, new])
    cells = {row.name: row.cells[0] for row in comparison.suites}
    assert set(cells) == {"all", "int"}
    for cell in cells.values():
        assert cell.value == pytest.approx(cell.baseline)
        assert known(cell.speedup).ratio == pytest.approx(1.0)
    assert comparison.left_out == ("suite: without run 2, which lacks a benchmark",)


def test_the_value_and_the_speedup_are_of_the_score_of_a_run() -> None:
    base = [run(number, {"a": [[10.0] * 2, [12.0] * 2]}) for number in (1, 2)]
    new = [run(number, {"a": [[10.0] * 2, [10.0] * 2]}) for number in (3, 4)]
    cell = only(compare([point("x", *base), point("y", *new)])).cells[0]
    assert cell.baseline == pytest.approx(20 / 12)  # of two iterations the slower
    assert cell.value == pytest.approx(2.0)
    assert known(cell.speedup).ratio == pytest.approx(1.2)


def test_a_run_without_a_block_does_not_undo_the_pairs_of_the_others() -> None:
    slow, fast = brackets(1, [10.0, 20.0, 40.0]), brackets(4, [9.6, 19.0, 37.6])
    loose = PointRun(run(9, {"a": [[1.0, 1.0]]}), None)
    alone = PointRun(run(10, {"a": [[1.0, 1.0]]}), 7)
    base = point("x", *slow)
    base = replace(base, runs=(*base.runs, loose, alone))
    comparison = compare([base, point("y", *fast)])
    cell = only(comparison).cells[0]
    speedup = known(cell.speedup)
    assert (speedup.basis, speedup.verdict_text) == (Basis.BLOCKS, "better (3 rounds)")
    # The rate of the point is that of all its runs: 2, 1, .5, 20 and 20.
    assert cell.baseline == pytest.approx(400 ** (1 / 5))
    assert speedup.ratio == pytest.approx((10 / 9.6 * 20 / 19 * 40 / 37.6) ** (1 / 3))
    assert comparison.left_out == (
        "run 9: not compared, the others are in pairs: no block is known",
        "run 10: not compared, the others are in pairs: alone in its round",
    )


def test_a_stratum_in_which_a_benchmark_is_missing_is_told_and_in_no_value() -> None:
    points = []
    for number, (copies, pages) in enumerate(
        (name, p) for name in "12" for p in ("small", "large")
    ):
        times = {"a": 10.0 * (1 + number // 2), "b": 10.0}
        if (copies, pages) == ("2", "large"):
            del times["a"]
        runs = [
            run(
                4 * number + index,
                {name: [[time_s + index / 100] * 2] for name, time_s in times.items()},
            )
            for index in range(1, 4)
        ]
        points.append(point(f"copies={copies} pages={pages}", *runs, copies=copies, pages=pages))
    comparison = compare(points, by="pages")
    rows = {row.name: row.cells[0] for row in comparison.benchmarks}
    assert rows["a"].baseline == pytest.approx(rows["a"].value)
    assert rows["a"].baseline == pytest.approx(20 / 10.02, rel=1e-3)
    assert known(rows["b"].speedup)
    assert "a: without copies=2: no valid result in pages=large" in comparison.left_out
    assert comparison.lost == (("a", "pages=large copies=2"),)


def test_a_result_file_with_times_of_some_copies_is_no_result() -> None:
    rows = [copy_row(copy, 10.0, iteration=1) for copy in range(4)]
    half = stored(rows, run=9, source="import", copies=8)
    comparison = compare([point("x", *brackets(1, [10.0, 10.1])), point("y", half)])
    assert only(comparison).cells[0].speedup is None
    assert comparison.left_out[0] == "run 9: a: times of 4 of 8 copies only"


def test_a_factor_of_two_without_noise_is_told_from_whole_seconds() -> None:
    def file(number: int, time_s: float) -> StoredRun:
        return run(number, {"a": [[time_s] * 2] * 3}, source="import")

    def verdict(base_s: float, other_s: float) -> str:
        base = point("x", file(1, base_s), file(2, base_s), blocks=False)
        return speedup_words(
            compare([base, point("y", file(3, other_s), file(4, other_s), blocks=False)])
        )

    assert verdict(10.0, 5.0) == "better (unblocked)"
    assert verdict(10.0, 10.0) == "inconclusive: times too coarse"
    assert verdict(1000.0, 1000.0) == "same within 1 % (unblocked)"
    assert verdict(10.25, 10.26) == "same within 1 % (unblocked)"  # hundredths


def test_scores_of_other_kinds_are_told_and_slow_copies_are_not_compared() -> None:
    rows = [
        copy_row(copy, 10.0 + step, benchmark="ab"[(copy + step) % 2], step=step)
        for copy in (0, 1)
        for step in (0, 1)
    ]
    names: dict[str, Any] = {"mode": "rotated", "order": "rotated", "benchmarks": ("a", "b")}
    turned = [stored(rows, run=number, **names) for number in (3, 4)]
    plain = [run(number, {"a": [[10.0] * 2], "b": [[10.0 + number] * 2]}) for number in (1, 2)]
    comparison = compare([point("x", *plain), point("y", *turned)])
    assert comparison.mixed_kinds
    assert comparison.kinds == (("brackets", (1, 2)), ("copies' own times", (3, 4)))
    assert all(row.cells[0].slowest_over_median is None for row in comparison.benchmarks)
    assert not compare([point("x", *plain[:1]), point("y", *plain[1:])]).mixed_kinds


def test_what_disturbed_runs_is_told_by_run() -> None:
    quiet, loud = (replace(bracket, warnings=()) for bracket in brackets(1, [10.0, 10.1]))
    busy = replace(
        loud,
        warnings=("busy before the start: rm", "left out: b: not built"),
        head=replace(loud.head, request='{"share": true}'),
    )
    assert compare([point("x", quiet), point("y", loud)]).troubles == ()
    (trouble,) = compare([point("x", quiet), point("y", busy)]).troubles
    assert (trouble.run, trouble.warnings, trouble.shared) == (
        2,
        ("busy before the start: rm",),
        True,
    )
    moved = replace(
        loud, copies=tuple(replace(copy, placement="not met") for copy in loud.copies[1:])
    )
    (trouble,) = compare([point("x", quiet), point("y", moved)]).troubles
    assert (trouble.run, trouble.not_met, trouble.notable, trouble.too_disturbed) == (
        2,
        (1,),
        (),
        (),
    )
    noisy = replace(loud, head=replace(loud.head, noise_cost=0.44))
    (trouble,) = compare([point("x", quiet), point("y", noisy)]).troubles
    assert trouble.too_disturbed == (
        "times vary so much that noise alone lowered the score by 44 %",
    )


def test_runs_of_one_point_after_those_of_the_other_may_differ_by_a_drift() -> None:
    slower = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7]
    base = point("x", *brackets(1, slower[:4]), blocks=False)
    new = point("y", *brackets(5, slower[4:]), blocks=False)
    assert speedup_words(compare([base, new])) == (
        "inconclusive: a drift would look the same (make them in turn)"
    )
    # In turn the same drift is in both.
    base = point("x", *brackets(1, slower[::2]))
    new = point("y", *brackets(5, [time_s * 0.97 for time_s in slower[1::2]]))
    assert speedup_words(compare([base, new])) == "better (4 rounds)"


def test_names_of_blocks_do_not_make_blocks_of_runs_made_one_point_after_the_other() -> None:
    base = [
        PointRun(made_at(bracket, number), number)
        for number, bracket in enumerate(brackets(1, [10.0, 10.2, 10.4]))
    ]
    new = [
        PointRun(made_at(bracket, 9 + number), number)
        for number, bracket in enumerate(brackets(4, [9.0, 9.1, 9.2]))
    ]
    comparison = compare([Point("x", (), tuple(base)), Point("y", (), tuple(new))])
    assert speedup_of(comparison).basis is Basis.RUNS


def test_a_run_that_was_made_again_later_spoils_its_own_block_only() -> None:
    base = [
        made_at(bracket, number)
        for number, bracket in enumerate(brackets(1, [10.0, 10.2, 10.1, 10.3]))
    ]
    new = [
        made_at(bracket, number)
        for number, bracket in enumerate(brackets(5, [9.0, 9.1, 9.05, 9.2]))
    ]
    base[1] = made_at(base[1], 30)  # after all others
    points = [
        Point(label, (), tuple(PointRun(run, number) for number, run in enumerate(runs)))
        for label, runs in (("x", base), ("y", new))
    ]
    comparison = compare(points)
    speedup = speedup_of(comparison)
    assert (speedup.basis, speedup.count) == (Basis.BLOCKS, 3)
    assert comparison.left_out == (
        "runs 2, 6: not compared, the others are in pairs: alone in its round",
    )


def test_runs_each_point_of_which_has_a_session_of_its_own_are_not_judged() -> None:
    def day(number: int, runs: list[StoredRun]) -> list[StoredRun]:
        heads = [
            replace(run.head, started_at=f"2026-11-{number}T12:0{index}:00Z")
            for index, run in enumerate(runs)
        ]
        return [replace(run, head=head) for run, head in zip(runs, heads, strict=True)]

    base = point("x", *day(20, brackets(1, [10.0, 10.1, 10.2])), blocks=False)
    new = point("y", *day(21, brackets(4, [9.0, 9.1, 9.2])), blocks=False)
    comparison = compare([base, new])
    assert speedup_words(comparison) == "inconclusive: each in a session of its own"
    assert [side.label for _, side, _ in comparison.unjudged()] == ["y"]
    # Back and forth, the sessions are what is compared.
    again = [
        point(
            label,
            *day(first, brackets(number, [time_s, time_s + 0.01])),
            *day(first + 2, brackets(number + 2, [time_s + 0.02, time_s + 0.03])),
            blocks=False,
        )
        for label, first, number, time_s in (("x", 20, 1, 10.0), ("y", 21, 5, 9.0))
    ]
    speedup = speedup_of(compare(again))
    assert (speedup.verdict_text, speedup.count) == ("better (unblocked)", 2)


def test_what_stays_with_a_point_in_all_benchmarks_is_seen_in_them_together() -> None:
    # Of each benchmark alone eight rounds say little.
    rng = np.random.default_rng(4)
    state = (0.0, 0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.02)
    base, new = [], []

    def times(faster: float) -> dict[str, Sequence[Sequence[float]]]:
        return {
            name: [[10 * math.exp(rng.normal(-faster, 0.008))] * 2]
            for name in ("a", "b", "d", "e", "g", "h", "i", "j")
        }

    for number, of_it in enumerate(state):
        base.append(run(1 + number, times(0.0)))
        new.append(run(20 + number, times(of_it)))
    (suite, *_) = compare([point("x", *base), point("y", *new)]).suites
    assert "not independent" in known(suite.cells[0].speedup).verdict_text


def test_a_run_that_was_imported_under_several_uuids_is_one_run() -> None:
    def captured(number: int, first_s: float, minute: int) -> StoredRun:
        times = [
            [first_s + 0.0013 * copy + 0.01 * iteration for copy in range(4)]
            for iteration in range(3)
        ]
        made = made_at(run(number, {"a": times}, source="import"), minute)
        return replace(made, head=replace(made.head, uuid=f"capture-{number}"))

    base = [captured(number, 10.123, 1) for number in (1, 2, 3)]
    other = [captured(number, 10.321, 2) for number in (4, 5, 6)]
    sides = [
        Point(label, (), tuple(PointRun(member, None) for member in members))
        for label, members in (("x", base), ("y", other))
    ]
    comparison = compare(sides)
    assert speedup_words(comparison) == "inconclusive: one run each"
    assert comparison.left_out[:2] == (
        "runs 2, 3: the same host, start and times as run 1: counted once",
        "runs 5, 6: the same host, start and times as run 4: counted once",
    )
    with pytest.raises(InputError, match="nothing to compare: run 2: the same host"):
        compare(
            [Point("x", (), (PointRun(base[0], None),)), Point("y", (), (PointRun(base[1], None),))]
        )


def test_one_round_time_makes_no_coarse_clock() -> None:
    base = [10.02, 9.98, 10.00, 10.01, 9.99, 10.03]
    other = [10.22, 10.18, 10.21, 10.19, 10.23, 10.22]
    sides = [
        point(
            label,
            *(
                run(first + place, {"a": [[time_s]]}, source="import")
                for place, time_s in enumerate(times)
            ),
        )
        for label, first, times in (("x", 1, base), ("y", 11, other))
    ]
    assert speedup_of(compare(sides)).verdict is Decision.WORSE
    assert speedup_of(compare(sides)).blur < 0.003


def test_what_the_order_leaves_open_asks_for_turns() -> None:
    base, other = [0.2191, 0.3959, 0.2138], [0.3352, 0.2916, 0.3298]
    sides = [
        point("x", *brackets(1, base), blocks=False),
        point("y", *brackets(4, other), blocks=False),
    ]
    ordered = [
        Point(
            side.label,
            (),
            tuple(
                PointRun(made_at(one.run, 10 * place + number), None)
                for number, one in enumerate(side.runs)
            ),
        )
        for place, side in enumerate(sides)
    ]
    speedup = speedup_of(compare(ordered))
    assert speedup.verdict is Decision.UNKNOWN
    assert "made in turn" in speedup.verdict_text or "in turn)" in speedup.verdict_text
    # No interval passes what two of the values give: .2138 / .3352 and .3959 / .2916.
    assert speedup.low is not None and speedup.high is not None
    assert speedup.low > 0.5 and speedup.high < 1.7

"""Shapes that once were told wrongly: few copies, few cells, neighbours, one slow iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.divot_cases import shapes
from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Finding, Kind, Thresholds
from tests.support.divot_runs import (
    Machine,
    Times,
    analysed,
    divots,
    names,
    quiet,
    rows_of,
)

EIGHT = Machine(8, 8)
FOUR = Machine(4, 8)


def only_finding(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [(divot.place, divot.summary) for divot in findings]
    return findings[0]


def text_of(finding: Finding, name: str) -> str:
    return next(it.text for it in finding.evidence if it.name == name)


# -- what is no divot -----------------------------------------------------------------------------


@pytest.mark.parametrize("benchmarks", [3, 4])
def test_two_long_tails_in_a_few_cells_are_no_slow_cpu(benchmarks: int) -> None:
    kinds = []
    for seed in range(20):
        noise = np.exp(0.6 * np.random.default_rng(seed).standard_normal((benchmarks, 1, 64)))
        times = 100 * np.exp(0.008 * (noise - noise.mean()) / noise.std())
        kinds += [found.kind for found in divots(times, Machine(4, 16))]
    assert kinds.count(Kind.SLOW_CPU) <= 1


def test_three_neighbours_of_a_fast_minority_are_no_group() -> None:
    told = []
    for seed in range(10):
        times = quiet(8, 1, 128, seed=seed)
        times *= np.where(np.random.default_rng(seed).random(times.shape) < 0.16, 0.95, 1.0)
        told += [divot for divot in divots(times, Machine(8, 16)) if divot.kind is Kind.SLOW_GROUP]
    assert told == []


def test_a_small_ramp_does_not_make_the_last_package_slow() -> None:
    times = quiet(2, 2, 32, noise=0.004)
    times[0] *= 1 + 0.02 * np.arange(32) / 32
    assert not any(divot.kind is Kind.SLOW_LGROUP for divot in divots(times, Machine(2, 16)))


@pytest.mark.parametrize(("nodes", "span"), [(2, 0.028), (4, 0.028), (2, 0.022)])
def test_a_ramp_of_little_more_than_two_per_cent_is_told_and_no_lgroup_for_it(
    nodes: int, span: float
) -> None:
    times = quiet(6, 3, 64, noise=0.002)
    times *= 1 + span * np.arange(64) / 64
    found = only_finding(divots(times, Machine(nodes, 64 // nodes)))
    assert found.kind is Kind.STARTUP
    assert found.slowdown == pytest.approx(1 + span, abs=0.003)


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [4, 8])
def test_an_lgroup_of_two_copies_is_told_once(nodes: int) -> None:
    times = quiet(12, 3, 2 * nodes)
    times[:, :, 2:4] *= 1.2
    found = only_finding(divots(times, Machine(nodes, 2)))
    assert (found.kind, found.place, found.copies) == (Kind.SLOW_LGROUP, "node 1", (2, 3))
    assert found.slowdown == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize("nodes", [2, 3])
def test_an_lgroup_slow_in_one_of_two_iterations_is_the_lgroup(nodes: int) -> None:
    times = quiet(6, 2, 16 * nodes)
    times[3, 1, :16] *= 1.05
    found = only_finding(divots(times, Machine(nodes, 16)))
    assert (found.kind, found.place, found.iteration) == (Kind.SLOW_LGROUP, "node 0", 2)
    assert found.benchmark == "b3"


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("slow", [(1, 2), (4, 5, 6), (6, 7)])
def test_neighbouring_slow_lgroups_are_named_as_lgroups(
    iterations: int, slow: tuple[int, ...]
) -> None:
    times = quiet(6, iterations, 64)
    copies = [copy for copy in range(64) if copy // 8 in slow]
    times[1:3, :, copies] *= 1.2
    found = only_finding(divots(times, EIGHT))
    assert (found.kind, found.nodes) == (Kind.SLOW_LGROUP, slow)
    assert found.place == f"nodes {slow[0]}-{slow[-1]}"
    assert found.copies == tuple(copies)


def test_an_lgroup_one_copy_of_which_kept_its_speed_is_still_the_lgroup() -> None:
    times = quiet(6, 3, 32)
    times[:, :, 8:15] *= 1.08
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.node) == (Kind.SLOW_LGROUP, 1)


def test_remote_memory_of_a_part_of_every_lgroup_is_named_as_that() -> None:
    remote = [copy for copy in range(64) if copy % 16 >= 8]
    machine = Machine(4, 16, memory={copy: (copy // 16 + 1) % 4 for copy in remote})
    times = quiet(8, 3, 64)
    times[[[3], [7]], :, remote] *= 1.14
    found = only_finding(divots(times, machine))
    assert found.kind is Kind.SLOW_GROUP and found.copies == tuple(remote)
    assert found.place.endswith("(memory on another node)")


def test_an_lgroup_with_all_its_memory_elsewhere_says_so() -> None:
    machine = Machine(2, 16, memory=dict.fromkeys(range(16, 32), 0))
    times = quiet(8, 3, 32)
    times[3:5, :, 16:] *= 1.3
    found = only_finding(divots(times, machine))
    assert found.place == "node 1"
    assert text_of(found, "memory") == "its memory is on node 0"


def test_what_all_benchmarks_show_alike_is_not_the_load_of_an_lgroup() -> None:
    times = quiet(12, 3, 30)
    times[:, :, :16] *= 1.045  # 16 copies against 14: a load could cost 14 %
    found = only_finding(divots(times, Machine(2, 16)))
    assert (found.kind, found.node) == (Kind.SLOW_LGROUP, 0)


@pytest.mark.parametrize("cut", [1.04, 1.06])
def test_every_second_cluster_is_one_pattern_and_no_copies_beside_it(cut: float) -> None:
    times = quiet(12, 3, 64, noise=0.002)
    slow = [copy for copy in range(64) if copy // 4 % 2]
    times[[[3], [7], [9], [10]], :, slow] *= cut
    assert only_finding(divots(times, Machine(2, 32))).copies == tuple(slow)


# -- over time ------------------------------------------------------------------------------------


@pytest.mark.parametrize("benchmarks", [1, 5])
def test_a_benchmark_that_drifts_alone_is_drift(benchmarks: int) -> None:
    times = quiet(benchmarks, 5, 32)
    times[0] *= np.linspace(1, 1.1, 5)[:, None]
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.benchmark) == (Kind.DRIFT, "b0")
    assert found.slowdown == pytest.approx(1.1, abs=0.005)


@pytest.mark.parametrize("benchmarks", [1, 4])
@pytest.mark.parametrize(
    ("iterations", "slow"),
    [(12, range(6, 13)), (10, range(1, 8)), (20, range(8, 21)), (60, range(20, 61)), (5, [2])],
)
@pytest.mark.parametrize(("copies", "place"), [((8, 16), "node 1"), ((4, 5), "CPU 4")])
def test_a_part_that_is_slow_from_some_time_on_is_told_in_those_iterations_only(
    benchmarks: int, iterations: int, slow: Sequence[int], copies: tuple[int, int], place: str
) -> None:
    times = quiet(benchmarks, iterations, 16, noise=0.01)
    times[:, slow[0] - 1 : slow[-1], slice(*copies)] *= 1.25
    found = only_finding(divots(times, Machine(2, 8)))
    assert found.place in (place, "copy 4")
    assert found.iterations == tuple(slow)
    assert found.slowdown == pytest.approx(1.25, abs=0.015)
    assert len(slow) == 1 or f"iterations: {slow[0]}-{slow[-1]})" in found.summary


@pytest.mark.parametrize("benchmarks", [1, 6])
@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize(
    ("iterations", "slow"), [(8, {3, 6}), (10, {2, 5, 9}), (5, {2, 4}), (20, {4, 5, 11, 18})]
)
def test_several_slow_iterations_do_not_hide_each_other(
    benchmarks: int, copies: int, iterations: int, slow: set[int]
) -> None:
    times = quiet(benchmarks, iterations, copies, noise=0.005)
    times[:, [at - 1 for at in slow]] *= 1.2
    found = divots(times, Machine(1, copies))
    assert {it.iteration for it in found} == slow
    assert {it.kind for it in found} == {Kind.SLOW_ITERATION}


def test_the_copies_that_kept_their_speed_are_named() -> None:
    times = quiet(5, 3, 32)
    times[1, 1, 1:] *= 1.09
    assert only_finding(divots(times, FOUR)).summary.endswith(
        "against the other iterations, all but copy 0"
    )


def test_one_slow_iteration_of_three_costs_the_score_nothing() -> None:
    times = quiet(4, 3, 32, noise=0.0005)
    times[2, 1] *= 1.2
    found = only_finding(divots(times, FOUR))
    assert found.score_lost == pytest.approx(0, abs=1e-3)
    assert text_of(found, "cost") == (
        "costs nothing of the score (the median iteration counts), 17 % of that iteration's rate"
    )


@pytest.mark.parametrize(("iterations", "slow"), [(3, 2), (2, 1), (1, 1)])
def test_the_iteration_that_stands_is_what_a_divot_costs(iterations: int, slow: int) -> None:
    times = quiet(4, iterations, 32, noise=0.0005)
    times[2, :slow, 8:16] *= 1.2
    found = only_finding(divots(times, FOUR))
    assert found.score_lost == pytest.approx(1 - (1 / 1.2) ** 0.25, abs=2e-3)


def test_what_gets_faster_costs_nothing() -> None:
    times = quiet(6, 4, 32)
    times *= np.linspace(1, 0.97, 4)[:, None]
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.fast, found.score_lost) == (Kind.DRIFT, True, 0)
    assert text_of(found, "cost") == "costs nothing: it only got faster"


def test_copies_that_are_slower_the_earlier_they_start_cost_as_those_that_are_the_later() -> None:
    slope = 1 + 0.1 * np.arange(32) / 31
    lost = []
    for each in (slope, slope[::-1]):
        found = only_finding(divots(quiet(4, 3, 32) * each, Machine(1, 32)))
        lost.append(found.score_lost)
    assert lost[0] == pytest.approx(lost[1], abs=0.005)
    assert lost[0] == pytest.approx(0.09, abs=0.01)


def test_a_slow_first_iteration_that_waits_for_input_is_told_once() -> None:
    times = quiet(4, 3, 32)
    times[1, 0] *= 1.3
    rows = [
        (*row[:12], float(row[11] or 0) * (0.8 if (row[0], row[1]) == (1, 1) else 1.0), row[13])
        for row in rows_of(times, FOUR)
    ]
    found = only_finding([*analyse([rows], names(4), Thresholds()).findings])
    assert (found.kind, found.benchmark, found.iteration) == (Kind.STARTUP, "b1", 1)


# -- copies ---------------------------------------------------------------------------------------


def test_a_single_copy_is_named_and_said_to_be_slower_or_faster() -> None:
    times = quiet(6, 1, 32)
    times[3, 0, 9] *= 0.42
    assert only_finding(divots(times, FOUR)).summary.startswith("b3 -5")
    times = quiet(6, 2, 32)
    times[3, 1, 9] *= 1.42
    found = only_finding(divots(times, FOUR))
    assert found.summary.startswith("b3 +4")
    assert found.summary.endswith(" % (copy 9, 1 of 32 copies, 1 of 2 iterations: iteration 2)")


def test_copies_of_the_tail_are_not_told_for_the_sake_of_those_far_out() -> None:
    times = quiet(4, 1, 256, noise=0.01)
    far = [3, 50, 90, 130, 170, 210]
    times[1, 0, far] *= 1.6
    times[1, 0, [20, 30]] = 105.0
    assert only_finding(divots(times, Machine(16, 16))).copies == tuple(far)


def test_a_whole_second_clock_does_not_hide_a_copy_far_out() -> None:
    base = np.array([58.4, 10.5, 20.5, 15.5, 12.5, 30, 9, 40])
    times: Times = np.round(base[:, None, None] * quiet(8, 2, 64) / 100)
    times[0, 0, 2] = 78
    found = only_finding(divots(times, Machine(2, 32)))
    assert (found.kind, found.benchmark, found.copies) == (Kind.OUTLIER_COPY, "b0", (2,))


def test_two_modes_of_sixteen_copies_are_two_modes() -> None:
    times = quiet(4, 3, 16)
    times[2, :, ::3] *= 1.13
    assert only_finding(divots(times, Machine(1, 16))).kind is Kind.BIMODAL


def test_two_modes_are_not_explained_by_how_many_copies_an_lgroup_has() -> None:
    times = quiet(8, 1, 61)
    times[4, 0, np.random.default_rng(1).random(61) < 0.5] *= 1.2
    found = divots(times, Machine(2, 32))
    assert (only_finding(found).kind, only_finding(found).benchmark) == (Kind.BIMODAL, "b4")


# -- words and thresholds -------------------------------------------------------------------------


def test_a_benchmark_far_worse_than_is_typical_is_named() -> None:
    times = quiet(6, 3, 32)
    times[:, :, 8:16] *= np.array([1.05, 1.05, 1.05, 1.05, 1.05, 1.4])[:, None, None]
    assert only_finding(divots(times, FOUR)).summary.startswith(
        "all benchmarks +5.0 % (+5 to +40 %, most in b5)"
    )


def test_a_larger_threshold_is_meant_as_it_is_said() -> None:
    times = quiet(6, 3, 32)
    times[:, :, 8:16] *= 1.08
    times[:, :, 20] *= 1.08
    assert len(divots(times, FOUR)) == 2
    assert analysed(times, FOUR, thresholds=Thresholds(group=0.1)).findings == ()


def test_what_could_be_seen_is_no_number_where_the_noise_hides_all() -> None:
    times = quiet(2, 1, 16, noise=0.5)
    assert "copy" not in analysed(times, Machine(2, 8)).visible


# -- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("copies", "size"), [(4, 1.5), (6, 1.2), (8, 1.2), (8, 2.0), (10, 0.6)])
def test_one_copy_far_from_few_others_is_found_in_a_single_cell(copies: int, size: float) -> None:
    for seed in range(5):
        times = quiet(1, 1, copies, noise=0.005, seed=seed)
        assert divots(times, Machine(1, copies)) == []
        times[0, 0, 1] *= size
        [found] = divots(times, Machine(1, copies))
        assert found.copies == (1,)
        assert found.slowdown == pytest.approx(size, rel=0.03)


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("slow", [(0, 1, 2), (0, 1, 5)])
def test_three_slow_copies_of_eight_are_one_finding_wherever_they_lie(
    slow: tuple[int, ...], iterations: int
) -> None:
    times = quiet(8, iterations, 8, noise=0.005)
    times[:, :, slow] *= 1.1
    [found] = divots(times, Machine(2, 4))
    assert found.copies == slow
    assert found.slowdown == pytest.approx(1.1, abs=0.01)


def test_another_copy_in_each_iteration_of_a_small_run_is_found() -> None:
    times = quiet(1, 3, 8, noise=0.005)
    for iteration, copy in enumerate((2, 5, 6)):
        times[0, iteration, copy] *= 1.5
    found = divots(times, Machine(1, 8))
    singles = [(single.iteration, single.copy) for one_of in found for single in one_of.singles]
    assert sorted(singles) == [(1, 2), (2, 5), (3, 6)]


def test_a_single_copy_that_a_small_run_is_said_to_show_is_found() -> None:
    hits = 0
    for seed in range(10):
        times = quiet(1, 1, 8, noise=0.005, seed=seed)
        seen = analysed(times, Machine(1, 8)).visible["copy"]
        times[0, 0, 3] *= 1 + 1.25 * seen
        hits += [divot.copies for divot in divots(times, Machine(1, 8))] == [(3,)]
    assert hits >= 8


@pytest.mark.parametrize("slow", [(4, 5), (1, 2), (2, 5)])
def test_two_slow_iterations_of_five_do_not_make_the_others_fast(slow: tuple[int, int]) -> None:
    for benchmarks in ((0,), (0, 1, 2, 3)):
        times = quiet(4, 5, 32)
        for benchmark in benchmarks:
            for iteration in slow:
                times[benchmark, iteration - 1] *= 1.22
        found = divots(times, FOUR)
        assert not any(it.fast for it in found)
        if slow == (4, 5):
            assert [it.iterations for it in found] == [slow] * len(found)
            assert all(it.kind is Kind.STEP for it in found)


def test_a_fast_iteration_of_five_is_still_found() -> None:
    times = quiet(4, 5, 32)
    times[:, 2] *= 0.8
    [found] = divots(times, FOUR)
    assert (found.kind, found.iteration, found.fast) == (Kind.SLOW_ITERATION, 3, True)


@pytest.mark.parametrize("size", [1.04, 1.1])
def test_odd_cpus_that_are_second_threads_are_one_finding(size: float) -> None:
    times = quiet(6, 2, 96)
    times[:, :, 1::2] *= size
    rows = [(*row[:5], int(row[4] or 0) // 2, *row[6:]) for row in rows_of(times, Machine(4, 24))]
    found = only_finding([*analyse([rows], names(6), Thresholds()).findings])
    assert found.place == "second threads of the cores (odd CPUs 1-95)"
    assert found.slowdown == pytest.approx(size, abs=0.005)


@pytest.mark.parametrize("cpus", [2, 4])
def test_a_slow_cpu_of_twelve_copies_is_named_not_its_copies(cpus: int) -> None:
    times = quiet(2, 1, 12 * cpus)
    times[:, :, ::cpus] *= 1.053
    machine = Machine(1, cpus, cpu=lambda copy, iteration: copy % cpus)
    rows = [(*row[:5], row[4], *row[6:]) for row in rows_of(times, machine)]
    found = only_finding([*analyse([rows], names(2), Thresholds()).findings])
    assert (found.kind, found.place) == (Kind.SLOW_CPU, "CPU 0 (12 copies)")


def test_one_slow_copy_in_each_phase_by_chance_is_no_place() -> None:
    times = quiet(4, 2, 32)
    for benchmark in range(4):
        times[benchmark, benchmark % 2, 9 * benchmark] *= 1.4
    found = only_finding(divots(times, Machine(4, 8)))
    assert (found.kind, found.copies) == (Kind.NO_PLACE, (0, 9, 18, 27))


def slowdowns_by_copies(findings: list[Finding]) -> dict[tuple[int, ...], float]:
    """Slowdowns by the copies that they are told of."""
    return {tuple(divot.copies): round(divot.slowdown, 2) for divot in findings}


@pytest.mark.parametrize("memory", [{}, {7: 0}])
def test_a_slow_copy_is_told_from_the_others_wherever_its_memory_is(memory: dict[int, int]) -> None:
    times = quiet(1, 1, 12, noise=0.001)
    times[0, 0, 7] *= 1.15
    assert slowdowns_by_copies(divots(times, Machine(3, 4, memory=memory))) == {(7,): 1.15}


def test_what_is_left_of_a_slow_copy_does_not_make_the_others_quiet() -> None:
    times = quiet(14, 1, 6, noise=0.02, seed=2)
    times[:, :, 5] *= 1.33
    found = divots(times, Machine(2, 3))
    assert [it.copies for it in found] == [(5,)]
    assert found[0].slowdown == pytest.approx(1.33, abs=0.02)


def test_an_lgroup_of_two_slow_in_iteration_1_is_no_start_up() -> None:
    times = quiet(7, 5, 4, noise=0.005)
    times[:, 0, 2:] *= 2
    found = divots(times, Machine(2, 2))
    assert [(it.kind, it.nodes, it.iterations) for it in found] == [(Kind.SLOW_LGROUP, (1,), (1,))]


def test_one_slow_copy_of_four_in_a_cold_iteration_1_is_no_start_up() -> None:
    times = quiet(14, 3, 4, noise=0.003)
    times[:, 0] *= 1.08
    times[3, 0, 2] *= 1.10
    assert Kind.STARTUP not in [divot.kind for divot in divots(times, Machine(1, 4))]


def test_an_lgroup_that_is_slow_now_more_now_less_takes_no_turns() -> None:
    times = quiet(3, 2, 8, noise=0.002, seed=3)
    times[:, :, [0, 1, 3]] *= 1.3
    times[:, :, [2, 4]] *= 1.1
    times[:, :, :4] *= 1.6
    times[2, 0, :4] *= 1.15
    assert not [divot for divot in divots(times, Machine(2, 4)) if "take turns" in divot.summary]


@pytest.mark.parametrize(
    ("slow", "where"),
    [([6, 7, 9, 10], "all on node 1, not all of it"), ([1, 4, 7, 10], "not by NUMA node or CPU")],
)
def test_two_groups_of_copies_are_not_denied_their_lgroup(slow: list[int], where: str) -> None:
    times = quiet(5, 3, 12, noise=0.002)
    times[0][:, slow] *= 1.3
    [found] = divots(times, Machine(2, 6))
    assert found.kind is Kind.BIMODAL
    assert where in found.summary


@pytest.mark.parametrize("seed", [2, 9, 53])
def test_what_two_slow_copies_of_four_leave_are_no_two_groups(seed: int) -> None:
    times = quiet(14, 1, 4, noise=0.03, seed=seed)
    times[:, :, 2:] *= 1.3
    [found] = divots(times, Machine(2, 2))
    assert found.copies == (2, 3)


def test_of_ordinary_shapes_healthy_ones_are_silent_and_large_causes_are_found() -> None:
    """Against an oracle: from four times the size that it needs, nine in ten are found."""
    judged = [
        (made, shapes.verdict(made))
        for made in (shapes.make("tests", number) for number in range(90))
    ]
    clean = [it for made, it in judged if made.kind == "clean"]
    large = [it for made, it in judged if made.multiple >= 4]
    assert len(clean) > 20
    assert sum(wrong for _, wrong, _ in clean) <= 1
    assert sum(hit for hit, _, _ in large) >= 0.9 * len(large) > 15
    assert sum(place for _, _, place in (it for _, it in judged)) <= 1


def test_copies_slow_together_throughout_and_others_once_are_told_side_by_side() -> None:
    times = quiet(2, 3, 64, noise=0.01, seed=0)
    times[0, :, :5] *= 1.06
    times[0, 1, :5] *= 1.08
    times[1, 2, 3:9] *= 1.08
    found = divots(times, Machine(1, 64))
    assert {0, 1, 2, 3, 4} in [set(it.copies) for it in found if it.benchmarks == ("b0",)]


def test_half_of_one_lgroup_is_one_finding_and_no_sum_of_larger_halves() -> None:
    times = quiet(5, 3, 32, noise=0.01)
    times[:, :, 16:24] *= 1.1
    found = only_finding(divots(times, Machine(2, 16)))
    assert found.place == "lower half of node 1 (CPUs 16-23)"
    assert found.slowdown == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize(
    ("copies", "slow", "machine"),
    [
        (16, range(3), Machine(1, 16)),
        (16, range(12, 16), Machine(1, 16)),
        (16, range(12, 16), Machine(2, 8)),
        (32, range(24, 32), Machine(1, 32, places=False)),
    ],
)
def test_copies_slow_at_an_end_of_the_order_are_no_gradient_and_no_start_up(
    copies: int, slow: range, machine: Machine
) -> None:
    times = quiet(4, 3, copies, noise=0.01)
    times[:, :, slow] *= 1.1
    found = only_finding(divots(times, machine))
    assert found.copies == tuple(slow)
    assert found.slowdown == pytest.approx(1.1, rel=0.01)


def test_cpus_of_different_size_are_told_with_the_range_of_their_sizes() -> None:
    times = quiet(5, 4, 64, noise=0.005)
    for cpu, size in ((3, 1.10), (20, 1.12), (50, 1.10)):
        times[:, :, cpu] *= size
    (told,) = [divot.summary for divot in divots(times, Machine(4, 16)) if 20 in divot.copies]
    assert "(+10 to +12 %)" in told


def test_cpus_of_unlike_size_are_findings_of_their_own() -> None:
    times = quiet(5, 4, 64, noise=0.005)
    for cpu, size in ((3, 1.10), (20, 1.15), (50, 1.08)):
        times[:, :, cpu] *= size
    (twenty,) = [divot for divot in divots(times, Machine(4, 16)) if 20 in divot.copies]
    assert twenty.copies == (20,)
    assert twenty.slowdown == pytest.approx(1.15, abs=0.01)

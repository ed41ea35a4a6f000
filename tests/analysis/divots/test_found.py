"""The detector names what was planted and no layout explains, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Finding, Kind, Thresholds, from_json, to_json
from rater.analysis.divots.model.table import Row
from tests.support.divot_runs import Machine, Times, analysed, divots, names, quiet, rows_of

FOUR = Machine(4, 8)
FOUR_LARGE = Machine(4, 24)


def only_finding(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [divot.summary for divot in findings]
    return findings[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("benchmarks", "iterations"), [(6, 3), (3, 1), (1, 2), (12, 2)])
def test_a_healthy_run_has_no_divots(seed: int, benchmarks: int, iterations: int) -> None:
    times = quiet(benchmarks, iterations, 32, noise=0.008, seed=seed)
    assert divots(times, FOUR) == []


def test_a_healthy_run_says_what_it_could_have_seen() -> None:
    visible = analysed(quiet(6, 3, 32), FOUR).visible
    assert visible["group"] == pytest.approx(0.012, abs=0.003)
    assert visible["group-benchmark"] == pytest.approx(0.017, abs=0.003)
    assert 0.03 <= visible["copy"] < 0.09


def test_a_quieter_run_sees_smaller_effects() -> None:
    quieter = analysed(quiet(6, 3, 32, noise=0.001), FOUR).visible
    louder = analysed(quiet(6, 3, 32, noise=0.02), FOUR).visible
    assert quieter["group-benchmark"] < louder["group-benchmark"]
    assert quieter["copy"] < louder["copy"]


# -- groups ---------------------------------------------------------------------------------------


def test_a_slow_lgroup_is_one_finding_not_eight_copies() -> None:
    times = quiet(6, 3, 32)
    times[2, :, 8:16] *= 1.18
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.place, found.node) == (Kind.SLOW_LGROUP, "node 1", 1)
    assert (found.benchmark, found.copies) == ("b2", tuple(range(8, 16)))
    assert found.slowdown == pytest.approx(1.18, abs=0.01)
    assert found.summary == "b2 +18.1 % (8 of 8 copies, 3 of 3 iterations)"


def test_an_lgroup_that_is_slow_in_all_benchmarks_is_found_below_the_threshold_of_one() -> None:
    times = quiet(8, 3, 32, noise=0.002)
    times[:, :, 24:] *= 1.013
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.node, found.benchmarks) == (Kind.SLOW_LGROUP, 3, ())


def test_an_lgroup_slow_in_one_iteration_names_the_iteration() -> None:
    times = quiet(4, 3, 32)
    times[1, 2, 0:8] *= 1.3
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.node, found.iteration) == (Kind.SLOW_LGROUP, 0, 3)


def test_copies_with_memory_elsewhere_are_named_by_what_they_share() -> None:
    machine = Machine(4, 8, memory=dict.fromkeys(range(12, 16), 2))
    times = quiet(6, 3, 32)
    times[:3, :, 12:16] *= 1.07
    found = only_finding(divots(times, machine))
    assert found.kind is Kind.SLOW_GROUP
    assert found.place == "copies 12-15 (memory on node 2, CPUs on node 1)"
    assert found.copies == (12, 13, 14, 15)


def test_the_same_group_slow_in_some_benchmarks_and_fast_in_another_is_told_twice() -> None:
    machine = Machine(4, 8, memory=dict.fromkeys(range(8, 16), 0))
    times = quiet(6, 3, 32, noise=0.002)
    times[:3, :, 8:16] *= 1.05
    times[5, :, 8:16] *= 0.9
    slow, fast = divots(times, machine)
    assert (slow.slowdown > 1, slow.benchmarks) == (True, ("b0", "b1", "b2"))
    assert (fast.slowdown < 1, fast.benchmarks, fast.score_lost) == (True, ("b5",), 0)
    assert slow.copies == fast.copies == tuple(range(8, 16))


@pytest.mark.parametrize("places", [True, False])
def test_a_run_of_cpus_that_no_description_knows_is_found_in_the_times(places: bool) -> None:
    machine = Machine(4, 8, places=places)
    times = quiet(6, 3, 32, noise=0.002)
    times[1:4, :, 20:24] *= 1.06
    found = only_finding(divots(times, machine))
    assert found.copies == (20, 21, 22, 23)
    assert found.place == ("CPUs 20-23 of node 2" if places else "copies 20-23")
    assert found.benchmarks == ("b1", "b2", "b3")


@pytest.mark.parametrize("lgroup", range(5))
def test_a_fast_lgroup_does_not_make_the_others_slow(lgroup: int) -> None:
    times = quiet(4, 2, 40)
    fast = slice(8 * lgroup, 8 * lgroup + 8)
    times[:, :, fast] *= 0.8
    finding = only_finding(divots(times, Machine(5, 8)))
    assert (finding.kind, finding.place, finding.copies) == (
        Kind.SLOW_GROUP,
        f"node {lgroup}",
        tuple(range(40)[fast]),
    )
    assert finding.slowdown == pytest.approx(0.8, abs=0.01)


def test_no_finding_costs_more_of_the_score_than_of_its_worst_rate() -> None:
    times = quiet(4, 2, 40)
    times[:, :, 8:16] *= 1.2
    times[1, :, 24:] *= 1.3
    found = divots(times, Machine(5, 8))
    assert len(found) >= 2
    assert all((it.score_lost or 0) <= max(cell.rate_lost for cell in it.cells) for it in found)
    assert all(
        len({(cell.benchmark, cell.iteration) for cell in it.cells}) == len(it.cells)
        for it in found
    )


def test_one_half_of_every_lgroup_is_one_pattern() -> None:
    machine = Machine(4, 16)
    times = quiet(8, 3, 64, noise=0.0015)
    for node in range(4):
        times[:, :, 16 * node + 8 : 16 * node + 16] *= 1.018
    found = only_finding(divots(times, machine))
    assert found.place == "upper half of every NUMA node (CPUs 8-15,24-31,40-47,56-63)"
    assert found.slowdown == pytest.approx(1.018, abs=0.001)


def test_lgroups_that_take_turns_are_one_benchmark_that_does_not_repeat() -> None:
    times = quiet(4, 3, 32, noise=0.002)
    for iteration, node in enumerate((2, 0, 3)):
        times[1, iteration, 8 * node : 8 * node + 8] *= 1.06
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.benchmark) == (Kind.WANDERING, "b1")
    assert found.summary.startswith(
        "b1: another NUMA node is slow in each iteration (iteration 1: "
    )
    assert "iteration 2: node 0 +6" in found.summary


@pytest.mark.parametrize("slow", [(2, 5), (1, 3, 6)])
def test_two_or_three_slow_cpus_of_eight_are_named_with_their_size(slow: tuple[int, ...]) -> None:
    for size in (1.1, 1.3, 2.0):
        times = quiet(6, 3, 8, noise=0.005)
        times[:, :, list(slow)] *= size
        found = only_finding(divots(times, Machine(1, 8)))
        assert found.cpus == slow
        assert found.slowdown == pytest.approx(size, rel=0.02)


def test_where_one_half_differs_which_is_normal_is_left_open() -> None:
    times = quiet(6, 3, 8)
    times[:, :, [0, 2, 3, 5]] *= 1.29
    found = only_finding(divots(times, Machine(1, 8)))
    assert found.copies == (0, 2, 3, 5)
    assert "this run cannot show which half is normal" in found.summary


def test_slow_second_threads_of_cores_are_one_finding() -> None:
    machine = Machine(1, 32)
    times = quiet(6, 2, 32)
    times[:, :, 16:] *= 1.1
    rows = [(*row[:5], int(row[4] or 0) % 16, *row[6:]) for row in rows_of(times, machine)]
    found = only_finding([*analyse([rows], names(6), Thresholds()).findings])
    assert found.place == "second threads of the cores (CPUs 16-31)"
    assert found.slowdown == pytest.approx(1.1, abs=0.005)


def test_costs_are_the_score_without_the_finding_and_shares_add_up() -> None:
    times = quiet(2, 1, 8, noise=0.0001)
    times[0, 0, 2] *= 1.25  # hides behind the next: without it alone nothing is won
    times[0, 0, 5] *= 1.5
    times[1, 0, :4] *= 1.2
    analysis = analysed(times, Machine(2, 4))
    assert analysis.lost == pytest.approx(1 - (1 / 1.5 / 1.2) ** 0.5, abs=0.002)
    assert sum(finding.share_lost or 0 for finding in analysis.findings) == pytest.approx(
        analysis.lost
    )


def test_a_copy_of_a_slow_lgroup_that_kept_its_speed_is_no_fast_one() -> None:
    times = quiet(6, 2, 32)
    times[:, :, 8:16] *= 1.9
    times[2, 1, 11] /= 1.93  # the noise of the others makes it 3 % faster than them
    found = only_finding(divots(times, FOUR))
    assert found.place == "node 1"
    assert found.slowdown == pytest.approx(1.9, abs=0.01)


# -- iterations -----------------------------------------------------------------------------------


def test_a_slow_iteration_is_not_a_fast_copy_that_kept_its_speed() -> None:
    times = quiet(5, 3, 32)
    times[1, 1, 1:] *= 1.09
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.iteration, found.benchmark) == (Kind.SLOW_ITERATION, 2, "b1")
    assert 0 not in found.copies
    assert found.summary.endswith("all but copy 0")


def test_a_slow_iteration_has_a_size_where_copies_failed_in_the_other_one() -> None:
    times = quiet(2, 2, 32)
    times[1, 1, 1:] *= 1.2
    found = only_finding(divots(times, FOUR, bad=[(1, 0, copy) for copy in range(20, 28)]))
    assert (found.kind, found.iteration, found.benchmark) == (Kind.SLOW_ITERATION, 2, "b1")
    assert found.slowdown == pytest.approx(1.2, abs=0.01)


def test_an_iteration_slow_in_all_benchmarks_is_one_finding() -> None:
    times = quiet(5, 3, 32)
    times[:, 2] *= 1.05
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.iteration, found.benchmarks) == (Kind.SLOW_ITERATION, 3, ())


def test_a_measurement_that_counts_as_base_and_peak_is_found_once() -> None:
    machine = Machine(nodes=1)
    times = quiet(2, 3, machine.copies)
    times[0, 1] *= 1.2
    rows = rows_of(times, machine)
    assert len(analyse([rows], [("a", "base"), ("b", "base")], Thresholds()).findings) == 1
    times[1] = times[0]
    both = [("a", "base"), ("a", "peak")]
    again = analyse([rows_of(times, machine)], both, Thresholds()).findings
    assert [(one.iterations, one.tune) for one in again] == [((2,), "base")]


def test_a_steady_rise_over_the_iterations_is_drift() -> None:
    times = quiet(5, 4, 32)
    times *= np.array([1.0, 1.01, 1.02, 1.03])[None, :, None]
    found = only_finding(divots(times, FOUR))
    assert found.kind is Kind.DRIFT
    assert found.slowdown == pytest.approx(1.03, abs=0.004)


# -- CPUs and copies ------------------------------------------------------------------------------


def test_a_cpu_slow_in_every_benchmark_is_one_finding() -> None:
    times = quiet(6, 2, 32)
    times[:, :, 13] *= 1.05
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.cpus, found.core) == (Kind.SLOW_CPU, (13,), 13)


def test_a_cpu_keeps_its_name_when_the_copies_rotate() -> None:
    machine = Machine(4, 8, cpu=lambda copy, iteration: (copy + 5 * iteration) % 32)
    times = quiet(6, 3, 32)
    for iteration in range(3):
        times[:, iteration, (13 - 5 * iteration) % 32] *= 1.06
    found = only_finding(divots(times, machine))
    assert (found.kind, found.cpus) == (Kind.SLOW_CPU, (13,))
    assert len(found.copies) == 3


def test_a_cpu_slow_in_some_benchmarks_names_them() -> None:
    times = quiet(8, 3, 32, noise=0.002)
    times[[1, 4, 6], :, 0] *= 1.5
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.cpus, found.benchmarks) == (Kind.SLOW_CPU, (0,), ("b1", "b4", "b6"))


def test_a_few_slow_copies_of_one_cell_are_one_finding() -> None:
    times = quiet(4, 3, 32)
    times[2, 1, [3, 17]] *= 1.25
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.copies) == (Kind.OUTLIER_COPY, (3, 17))
    assert [(single.copy, single.cpu, single.iteration) for single in found.singles] == [
        (3, 3, 2),
        (17, 17, 2),
    ]


@pytest.mark.parametrize(("share", "wrong"), [(0.005, 3), (0.02, 0), (0.04, 6)])
def test_many_scattered_slow_copies_do_not_hide_each_other(share: float, wrong: int) -> None:
    times = quiet(16, 3, 96)
    slow = np.random.default_rng(3).random(times.shape) < share
    times[slow] *= 1.2
    analysis = analysed(times, FOUR_LARGE)
    found = analysis.findings[0]
    assert (found.kind, found.place) == (Kind.NO_PLACE, "no place")
    assert "no place is at fault" in found.summary
    named = {
        (single.benchmark, single.iteration, single.copy)
        for finding in analysis.findings
        for single in finding.singles
    }
    planted = {
        (f"b{benchmark}", iteration + 1, copy)
        for benchmark, iteration, copy in np.argwhere(slow).tolist()
    }
    assert len(named ^ planted) <= wrong  # of 22, 103 and 184
    assert analysis.visible["copy"] < 0.1


@pytest.mark.parametrize("slow", [9, 14, 24])
def test_a_minority_slow_in_one_iteration_is_told_whole(slow: int) -> None:
    times = quiet(4, 3, 64)
    copies = np.sort(np.random.default_rng(5).choice(64, slow, replace=False))
    times[0, 1, copies] *= 1.2
    found = only_finding(divots(times, Machine(4, 16)))
    assert (found.benchmark, found.iteration) == ("b0", 2)
    assert found.copies == tuple(copies)


def test_a_fast_copy_is_a_divot_too() -> None:
    machine = Machine(1, 10, places=False)
    times = quiet(12, 1, 10)
    times[3, 0, 9] *= 0.42
    found = only_finding(divots(times, machine))
    assert (found.kind, found.copies, found.place) == (Kind.OUTLIER_COPY, (9,), "copy 9")
    assert found.slowdown == pytest.approx(0.42, abs=0.01)
    assert found.score_lost == 0


def test_a_copy_that_is_off_every_time_is_found_below_the_spread_of_all_copies() -> None:
    random = np.random.default_rng(3)
    times = quiet(4, 3, 32, noise=0.001)
    times[1] *= np.exp(0.012 * random.standard_normal(32))[None, :]
    times[1, :, 11] = times[1].mean() * 1.09 * times[0, :, 11] / 100
    found = [divot for divot in divots(times, FOUR) if divot.benchmark == "b1"]
    assert 11 in {copy for it in found if it.slowdown > 1 for copy in it.copies}


def test_one_benchmark_in_two_modes_is_no_list_of_cpus() -> None:
    times = quiet(1, 3, 64)
    times[:, :, np.arange(64) % 3 == 1] *= 1.2
    assert only_finding(divots(times, Machine(1, 64))).kind is Kind.BIMODAL


def test_two_modes_are_not_many_outliers() -> None:
    times = quiet(5, 2, 64)
    times[2, :, np.random.default_rng(5).random(64) < 0.4] *= 1.12
    found = only_finding(divots(times, Machine(4, 16)))
    assert (found.kind, found.benchmark) == (Kind.BIMODAL, "b2")
    assert found.slowdown == pytest.approx(1.12, abs=0.01)


# -- runs that say little -------------------------------------------------------------------------


def test_equal_times_have_no_divots() -> None:
    times = np.full((3, 2, 16), 50.0)
    assert divots(times, Machine(2, 8)) == []


def test_one_copy_off_among_equal_times_is_found() -> None:
    times = np.full((3, 2, 16), 50.0)
    times[1, 0, 5] = 60.0
    found = only_finding(divots(times, Machine(2, 8)))
    assert (found.kind, found.copies, found.iteration) == (Kind.OUTLIER_COPY, (5,), 1)


@pytest.mark.parametrize("copies", [1, 2])
def test_one_or_two_copies_are_no_reason_to_fail(copies: int) -> None:
    analysis = analysed(quiet(3, 3, copies, noise=0.01), Machine(1, copies))
    assert analysis.findings == ()
    assert ("cpu" in analysis.visible) == (copies == 2)


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize(("benchmarks", "iterations"), [(4, 3), (10, 1), (1, 5)])
def test_the_slow_one_of_two_or_three_copies_is_found(
    copies: int, benchmarks: int, iterations: int
) -> None:
    times = quiet(benchmarks, iterations, copies)
    times[:, :, 1] *= 1.35
    found = only_finding(divots(times, Machine(1, copies)))
    assert (found.kind, found.cpus) == (Kind.SLOW_CPU, (1,))
    assert found.slowdown == pytest.approx(1.35, abs=0.02)
    assert found.score_lost is not None and found.score_lost > 0.2


def test_a_single_time_says_nothing() -> None:
    assert analysed(quiet(1, 1, 1), Machine(1, 1)).findings == ()


def test_failed_copies_are_not_judged() -> None:
    times = quiet(4, 2, 32)
    times[1, 0, 7] = 0.5  # died at once
    assert divots(times, FOUR, bad=[(1, 0, 7)]) == []


def test_a_benchmark_whose_copies_all_failed_is_left_out() -> None:
    times = quiet(3, 1, 8)
    bad = [(1, 0, copy) for copy in range(8)]
    assert divots(times, Machine(1, 8), bad=bad) == []


def test_a_run_without_a_good_copy_has_no_findings() -> None:
    bad = [(0, 0, 0), (0, 0, 1)]
    analysis = analysed(quiet(1, 1, 2), Machine(1, 2), bad=bad)
    assert (analysis.findings, analysis.visible) == ((), {})


def test_thresholds_are_the_smallest_effects_told() -> None:
    times = quiet(6, 3, 32)
    times[2, :, 8:16] *= 1.04
    assert analysed(times, FOUR).findings
    assert not analysed(times, FOUR, thresholds=Thresholds(group=0.08, copy=0.08)).findings


def test_the_same_run_is_told_the_same_way() -> None:
    times = quiet(6, 3, 32, noise=0.01, seed=9)
    times[2, :, 8:16] *= 1.1
    times[4, 1, 3] *= 1.5
    assert analysed(times, FOUR) == analysed(times.copy(), FOUR)


def test_findings_are_the_same_after_the_store() -> None:
    times = quiet(6, 3, 32)
    times[2, :, 8:16] *= 1.1
    times[4, 1, 3] *= 1.5
    findings = analysed(times, FOUR).findings
    assert len(findings) == 2
    assert tuple(from_json(to_json(finding)) for finding in findings) == findings


def test_costs_are_shares_of_the_score_and_rank_the_findings() -> None:
    times = quiet(2, 1, 32, noise=0.0005)
    times[0, 0, 4] *= 1.25
    times[1, 0, 9] *= 2.0
    large, small = divots(times, FOUR)
    assert (large.benchmark, small.benchmark) == ("b1", "b0")
    assert large.score_lost == pytest.approx(1 - 0.5**0.5, abs=0.01)
    assert [cell.rate_lost for cell in small.cells] == pytest.approx([0.2], abs=0.01)


# -- copies that cannot have done their work -------------------------------------------------------


@pytest.mark.parametrize(("size", "checked"), [(0.45, True), (0.55, False)])
@pytest.mark.parametrize("copies", [3, 8, 32])
def test_a_copy_that_took_less_than_half_of_any_others_time_has_its_output_checked(
    copies: int, size: float, checked: bool
) -> None:
    times = quiet(4, 1, copies)
    times[0, 0, 1] *= size
    found = only_finding(divots(times, Machine(1, copies)))
    assert (found.copies, found.fast) == ((1,), True)
    told = [it.text for it in found.evidence if it.name == "output"]
    text = "copy 1 took less than half of any other's time: check its output"
    assert told == ([text] if checked else [])


type Places = list[tuple[int, int, int]]  # CPU, core, lgroup of each copy


def findings_of(
    times: Times, places: Places, core_pus: dict[int, int] | None = None
) -> list[Finding]:
    rows: list[Row] = [
        (
            benchmark,
            iteration,
            copy,
            0,
            *places[copy][:2],
            None,
            places[copy][2],
            None,
            None,
            None,
            float(times[benchmark, iteration, copy]) * 1e9,
        )
        + (None, True)
        for benchmark, iteration, copy in np.ndindex(*times.shape)
    ]
    pus = tuple((core_pus or {}).items())
    return list(analyse([rows], names(len(times)), Thresholds(), core_pus=pus).findings)


def test_two_copies_on_one_core_are_explained() -> None:
    places = [(cpu, cpu % 16, cpu % 16 // 8) for cpu in range(20)]  # cores 0-3 have two
    times = quiet(5, 2, 20)
    times[:, :, [0, 1, 2, 3, 16, 17, 18, 19]] *= 1.4
    (one,) = findings_of(times, places)
    assert one.explained
    assert one.expectation == "2 copies on one core where most cores have 1"
    assert one.copies == (0, 1, 2, 3, 16, 17, 18, 19)
    assert one.slowdown == pytest.approx(1.4, abs=0.02)


def test_two_copies_on_one_cpu_are_explained() -> None:
    places = [(cpu % 12, cpu % 12, cpu % 12 // 6) for cpu in range(16)]
    times = quiet(5, 1, 16)
    times[:, :, [0, 1, 2, 3, 12, 13, 14, 15]] *= 1.97
    assert [(divot.explained, divot.kind) for divot in findings_of(times, places)] == [
        (True, "layout")
    ]


def test_sharing_explains_no_more_than_it_can_cost() -> None:
    places = [(cpu, cpu % 16, cpu % 16 // 8) for cpu in range(20)]
    times = quiet(5, 2, 20, noise=0.002)
    times[:, :, [0, 1, 2, 3, 16, 17, 18, 19]] *= 2.6
    told = findings_of(times, places)
    # Sharing costs a factor of two at most: 1.3 is left.
    (left,) = [finding for finding in told if not finding.explained]
    assert left.copies == (0, 1, 2, 3, 16, 17, 18, 19)
    assert left.slowdown == pytest.approx(1.3, abs=0.03)


def test_fuller_lgroups_are_explained() -> None:
    sizes = [16, 16, 8, 8, 8, 8]
    nodes = [node for node, size in enumerate(sizes) for _ in range(size)]
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(5, 2, len(nodes))
    times[:, :, :32] *= 1.2
    told = findings_of(times, places)
    assert told and all(finding.explained for finding in told)
    assert {node for finding in told for node in finding.nodes} == {0, 1}


def test_an_lgroup_with_fewer_copies_that_is_slower_is_a_divot() -> None:
    nodes = [0] * 8 + [1] * 8 + [2] * 8 + [3] * 4
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(6, 3, 28)
    times[:4, :, 24:] *= 1.06
    told = [divot for divot in findings_of(times, places) if not divot.explained]
    assert [(finding.place, finding.slowdown > 1) for finding in told] == [("node 3", True)]


def test_a_lighter_lgroup_that_is_faster_is_no_divot() -> None:
    nodes = [node for node in range(8) for _ in range(8)] + [8] * 4
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(6, 3, len(nodes))
    times[:, :, 64:] *= 0.7
    assert [divot for divot in findings_of(times, places) if not divot.explained] == []


def test_another_kind_of_core_is_explained() -> None:
    places = [(cpu, cpu, 0) for cpu in range(16)]
    times = quiet(6, 3, 16)
    times[:, :, 10:] *= 1.7
    pus = {cpu: 2 if cpu < 10 else 1 for cpu in range(16)}
    (one,) = findings_of(times, places, pus)
    assert (one.explained, one.expectation) == (True, "another kind of core")
    assert one.copies == tuple(range(10, 16))


def test_without_kinds_of_cores_slow_ones_are_divots() -> None:
    places = [(cpu, cpu, 0) for cpu in range(16)]
    times = quiet(6, 3, 16)
    times[:, :, 10:] *= 1.7
    assert any(not divot.explained for divot in findings_of(times, places))

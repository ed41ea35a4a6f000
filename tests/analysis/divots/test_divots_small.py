"""What runs of few copies showed, and faults that lie one on another."""

import numpy as np
import pytest

from rater.analysis.divots.findings import build_findings
from rater.analysis.divots.model.detect import _joined, detect
from rater.analysis.divots.model.finding import Finding, Kind, Thresholds
from rater.analysis.divots.model.fit import PartEffect
from rater.analysis.divots.model.layout import sharing_classes
from rater.analysis.divots.model.parts import like_groups, machine_parts, part_from_set
from tests.support.divot_runs import Machine, divots, quiet, table_of


def told(found: list[Finding]) -> dict[tuple[int, ...], float]:
    """Slowdowns by the copies that they are told of."""
    return {tuple(it.copies): round(it.slowdown, 2) for it in found}


@pytest.mark.parametrize("memory", [{}, {7: 0}])
def test_a_slow_copy_is_told_from_the_others_wherever_its_memory_is(memory: dict[int, int]) -> None:
    times = quiet(1, 1, 12, noise=0.001)
    times[0, 0, 7] *= 1.15
    assert told(divots(times, Machine(3, 4, memory=memory))) == {(7,): 1.15}


def test_a_copy_that_a_finer_group_leaves_alone_is_in_no_group_of_its_own() -> None:
    # CPU 0 has five copies; copy 7 is the only other one of that lgroup.
    table = table_of(quiet(1, 1, 8), Machine(2, 4, cpu=lambda c, _: [0, 0, 0, 0, 0, 4, 5, 1][c]))
    groups = like_groups(table, sharing_classes(table)[1])
    assert groups.tolist().count(groups[0]) == 5
    assert groups[5] == groups[6] == groups[7] == -1


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
    assert Kind.STARTUP not in [it.kind for it in divots(times, Machine(1, 4))]


def test_a_copy_4_percent_slow_is_not_one_of_those_that_are_30_percent_slow() -> None:
    every = np.ones(3, dtype=bool)
    others = ~np.isin(np.arange(16), [3, 11])
    fast, slow = (
        PartEffect(part_from_set(slots), every, every, np.full((3, 3), size), 1.0, everywhere=True)
        for slots, size in ((others, -0.26), (np.arange(16) == 8, 0.04))
    )
    found = {
        tuple(np.flatnonzero(it.part.slots)): it.size[0, 0] for it in _joined([fast, slow], [])
    }
    assert found == {(3, 11): 0.26, (8,): 0.04}


def test_an_lgroup_that_is_slow_now_more_now_less_takes_no_turns() -> None:
    times = quiet(3, 2, 8, noise=0.002, seed=3)
    times[:, :, [0, 1, 3]] *= 1.3
    times[:, :, [2, 4]] *= 1.1
    times[:, :, :4] *= 1.6
    times[2, 0, :4] *= 1.15
    assert not [it for it in divots(times, Machine(2, 4)) if "take turns" in it.summary]


def test_no_half_of_an_lgroup_parts_copies_of_one_cpu() -> None:
    table = table_of(quiet(1, 1, 6), Machine(1, 6, cpu=lambda c, _: [0, 1, 0, 0, 0, 0][c]))
    for part in machine_parts(table, np.zeros(6, dtype=np.int64)):
        if part.kind != "copy":
            assert part.slots[table.cpu == 0].sum() in (0, 5)


def test_four_copies_of_three_levels_are_not_silent_because_they_ran_once() -> None:
    times = quiet(3, 1, 4, noise=0.001)
    times[:] *= np.array([1.95, 1.30, 1.95, 1.00])
    assert told(divots(times, Machine(2, 2))) == {(1,): 0.67, (3,): 0.51}


def test_what_the_layout_explains_of_one_benchmark_is_told_of_that_one() -> None:
    times = quiet(7, 3, 10, noise=0.002)
    times[4, :, 3:7] *= 1.2
    machine = Machine(3, 4, cpu=lambda c, _: [0, 1, 2, 4, 5, 6, 7, 8, 9, 10][c])
    found = build_findings(detect(table_of(times, machine), Thresholds()))
    explained = {it.summary: it.benchmarks for it in found if it.explained}
    assert explained
    for summary, benchmarks in explained.items():
        assert summary.endswith(" % in b4")
        assert benchmarks == ("b4",)


@pytest.mark.parametrize(
    ("slow", "where"),
    [([6, 7, 9, 10], "all on lgroup 1, not all of it"), ([1, 4, 7, 10], "not by lgroup or CPU")],
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

"""The detector's small parts: quantiles, ranks, modes, tails, runs, tables, start-up, words."""

import math

import numpy as np
import pytest

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.data import words
from rater.analysis.divots.data.finding import Finding, Kind
from rater.analysis.divots.data.noise_scales import clock_steps
from rater.analysis.divots.data.table import SEVERAL, UNKNOWN, Row, build_table
from rater.analysis.divots.detectors.copies import fit_tail, poisson_tail
from rater.analysis.divots.detectors.cpu_runs import cut, two_classes
from rater.analysis.divots.detectors.modes import dip
from rater.analysis.divots.search import analyse
from rater.analysis.stats.robust import mad, median, quantiles, rank_sum_z, ranks, theil_sen
from tests.support.divot_runs import (
    Machine,
    Times,
    analysed,
    divots,
    names,
    quiet,
    rows_of,
    table_of,
)

# -- statistics -----------------------------------------------------------------------------------


def test_quantiles_with_gaps_are_those_of_the_values_that_are_there() -> None:
    values = np.array([[3.0, np.nan, 1.0, 2.0, np.nan], [5.0, 4.0, 9.0, 1.0, 7.0]])
    low, high = quantiles(values, 0.25, 0.9)
    assert low == pytest.approx([1.5, 4.0])
    assert high == pytest.approx([2.8, 8.2])
    assert median(np.full((2, 3), np.nan)) == pytest.approx([np.nan, np.nan], nan_ok=True)
    assert mad(np.array([1.0, 2.0, 3.0, 100.0])) == pytest.approx(1.4826)


def test_ranks_share_ties() -> None:
    assert ranks(np.array([10.0, 20.0, 10.0, 5.0])).tolist() == [2.5, 4.0, 2.5, 1.0]


def test_mann_whitneys_z_is_the_textbooks() -> None:
    # 4 against 4, all of the one above the other: U = 16, mean 8, sd sqrt(12).
    z, most = rank_sum_z(np.array([5.0, 6.0, 7.0, 8.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert z == pytest.approx(8 / math.sqrt(12))
    assert most == pytest.approx(z)
    assert rank_sum_z(np.ones(4), np.ones(5)) == (0.0, 0.0)


def test_theil_sen_is_the_median_slope() -> None:
    assert theil_sen(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 10.0])) == 5.0
    assert theil_sen(np.ones(3), np.arange(3.0)) == 0.0


def test_poissons_tail_is_exact_where_one_minus_would_cancel() -> None:
    assert poisson_tail(2.0, 1) == pytest.approx(1 - math.exp(-2))
    assert poisson_tail(1e-5, 2) == pytest.approx(5e-11, rel=1e-4)
    assert poisson_tail(0.0, 1) == 0.0


def test_the_tail_of_noise_is_not_that_of_its_outliers() -> None:
    z = np.random.default_rng(1).standard_normal(10_000)
    z[:300] = 50.0  # more than all of the narrowest tail
    tail = fit_tail(z)
    assert tail.start < 3
    assert tail.beta < 1


def test_the_tail_of_equal_values_is_no_longer_for_one_that_is_off() -> None:
    values = np.zeros(96)
    values[3] = 15.0
    assert fit_tail(values).beta < 0.7


@pytest.mark.parametrize("n", [64, 256])
def test_one_mode_at_its_worst_seldom_exceeds_the_limits_of_the_dip(n: int) -> None:
    random = np.random.default_rng(n)
    found = np.array([dip(random.random(n)) for _ in range(200)])
    assert np.mean(found > 0.455) < 0.08
    assert np.mean(found > 0.53) < 0.02
    assert 0.25 < np.median(found) < 0.35


def test_two_modes_have_a_large_dip() -> None:
    random = np.random.default_rng(0)
    assert dip(np.concatenate((random.normal(0, 1, 80), random.normal(8, 1, 80)))) > 0.6
    assert dip(random.normal(0, 1, 160)) < 0.4


def test_a_coarse_clock_has_a_step() -> None:
    times = np.full((2, 2, 8), 50.0) + np.arange(4.0).repeat(8).reshape(2, 2, 8)
    assert clock_steps(table_of(times, Machine(1, 8)))[0] == pytest.approx(1 / 50.5)
    assert clock_steps(table_of(quiet(2, 2, 8), Machine(1, 8))).tolist() == [0.0, 0.0]


# -- runs of CPUs ---------------------------------------------------------------------------------


def test_profiles_are_cut_where_they_change() -> None:
    z = np.random.default_rng(2).standard_normal((3, 40))
    z[:, 12:20] += 6
    of_run = cut(z)
    assert np.flatnonzero(np.diff(of_run)).tolist() == [11, 19]
    assert cut(np.random.default_rng(3).standard_normal((3, 40))).max() == 0


def test_runs_of_two_sorts_are_told_apart_and_of_one_are_not() -> None:
    of_run = np.arange(8).repeat(8)
    noise = 0.0005 * np.random.default_rng(4).standard_normal((4, 2, 64))
    slow = (of_run % 2 == 1).astype(np.int64)
    assert two_classes(noise + 0.008 * slow, of_run) == pytest.approx(slow)
    assert two_classes(noise + 0.001 * of_run, of_run) is None


# -- the table ------------------------------------------------------------------------------------


def row(**given: float | None) -> Row:
    usual = {
        "benchmark": 0, "iteration": 1, "copy": 0, "step": 0, "cpu": 0, "core": 0, "llc": None,
        "node": 0, "package": 0, "memory": None, "start": 0, "elapsed": 1e9, "cpu_time": None,
        "good": 1,
    }  # fmt: skip
    return tuple((usual | given).values())


def test_a_copys_repeats_count_as_their_median() -> None:
    rows = [row(step=step, elapsed=s * 1e9) for step, s in enumerate((1.0, 5.0, 2.0))]
    table = build_table([rows], names(1))
    assert table is not None
    assert np.exp(table.log_s).ravel() == pytest.approx([2.0])


def test_base_and_peak_are_benchmarks_of_their_own() -> None:
    rows = [row(benchmark=tune, elapsed=(1 + tune) * 1e9) for tune in (0, 1)]
    table = build_table([rows], [("a", "base"), ("a", "peak")])
    assert table is not None
    assert [table.name(b) for b in (0, 1)] == ["a (base)", "a (peak)"]


def test_two_copies_on_one_cpu_have_a_slot_each() -> None:
    rows = [row(copy=copy, cpu=copy % 2, iteration=i) for i in (1, 2) for copy in (0, 1, 2)]
    table = build_table([rows], names(1))
    assert table is not None
    assert table.cpu.tolist() == [0, 0, 1]
    assert table.copy[0, 0].tolist() == [0, 2, 1]


def test_copies_that_rotate_have_slots_by_cpu() -> None:
    rows = [
        row(copy=copy, cpu=(copy + i) % 3, iteration=i, node=(copy + i) % 3)
        for i in (1, 2)
        for copy in range(3)
    ]
    table = build_table([rows], names(1))
    assert table is not None
    assert not table.fixed
    assert (table.cpu.tolist(), table.node.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert table.copy[0].tolist() == [[2, 0, 1], [1, 2, 0]]


def test_places_that_nobody_knows_leave_slots_by_copy() -> None:
    unknown = {"cpu": None, "core": None, "node": None, "package": None}
    table = build_table([[row(copy=c, **unknown) for c in (2, 0, 1)]], names(1))
    assert table is not None
    assert table.copy[0, 0].tolist() == [0, 1, 2]
    assert set(table.node.tolist()) == {UNKNOWN}


def test_memory_on_several_nodes_is_no_node() -> None:
    table = build_table([[row(memory=-2), row(copy=1, cpu=1, memory=1)]], names(1))
    assert table is not None
    assert table.memory.tolist() == [SEVERAL, 1]


def test_nothing_good_is_no_table() -> None:
    assert build_table([], names(1)) is None
    assert build_table([[row(good=0)]], names(1)) is None


# -- start-up -------------------------------------------------------------------------------------


def started(times: Times, starts: Times) -> list[Finding]:
    """What is found of copies with start times (benchmarks, iterations, copies), seconds."""
    rows = [
        (
            *one[:10],
            starts[int(one[0] or 0), int(one[1] or 1) - 1, int(one[2] or 0)] * 1e9,
            *one[11:],
        )
        for one in rows_of(times, Machine(2, 16))
    ]
    return list(analyse([rows], names(len(times)), Thresholds()).findings)


def test_a_late_start_is_told_with_its_share() -> None:
    starts = np.broadcast_to(np.linspace(0, 4, 32), (3, 2, 32))
    (found,) = started(quiet(3, 2, 32), starts)
    assert (found.kind, dict(found.details)["mode"]) == (Kind.STARTUP, "late-start")
    assert found.slowdown == pytest.approx(1.04, abs=0.002)
    assert found.score_lost is not None and found.score_lost > 0.02


def test_a_ramp_over_the_launch_order_is_one_finding_on_two_lgroups() -> None:
    times = quiet(4, 2, 32)
    times[1] *= np.linspace(1, 1.2, 32)
    starts = np.broadcast_to(np.linspace(0, 0.01, 32), times.shape)
    (found,) = started(times, starts)
    assert (found.benchmark, dict(found.details)["mode"]) == ("b1", "ramp")
    assert found.slowdown == pytest.approx(1.2, abs=0.03)


@pytest.mark.parametrize("late", [16, 24, 32])
def test_what_starts_last_and_is_slow_as_a_whole_is_no_ramp(late: int) -> None:
    times = quiet(1, 1, 48)
    times[:, :, 48 - late :] *= 1.1
    (found,) = divots(times, Machine(6, 8))
    assert found.kind is not Kind.STARTUP
    assert len(found.copies) in (late, 48 - late)


def test_a_convoy_in_the_first_iteration_is_one_finding() -> None:
    times = quiet(4, 3, 32)
    times[2, 0] *= 1 + 0.5 * np.random.default_rng(8).random(32)
    (found,) = divots(times, Machine(4, 8))
    assert (found.kind, found.iteration) == (Kind.STARTUP, 1)
    assert dict(found.details)["mode"] == "convoy"


# -- words ----------------------------------------------------------------------------------------


def test_sizes_read_well() -> None:
    assert words.per_cent(1.182) == "+18.2 %"
    assert words.per_cent(0.418) == "-58.2 %"
    assert words.sizes([1.33, 1.39]) == "+33 to +39 %"
    assert words.cost(0.061) == "6.1 %"
    assert words.cost(0.0001) == "less than 0.1 %"
    assert words.chance(3e-8) == "<1e-6"
    assert words.named(["a", "b", "c"], 9) == "a, b and c"
    assert words.named(list("abcd"), 9) == "4 of 9 benchmarks"
    assert words.named(list("abcd"), 4) == "all benchmarks"
    assert words.cpus([3]) == "CPU 3"
    assert words.copies([1, 2, 3]) == "copies 1-3"


def test_a_place_is_named_by_the_smallest_part_that_explains_it() -> None:
    machine = Machine(4, 8)
    times = quiet(6, 3, 32)
    times[2, :, 8:16] *= 1.2
    rows = [
        (*one[:6], int(one[4] or 0) // 4, one[7], int(one[7] or 0) // 2, *one[9:])
        for one in rows_of(times, machine)
    ]
    table = build_table([rows], names(6))
    assert table is not None
    assert analysed(times, machine).findings[0].place == "lgroup 1"
    for slots, place in ((slice(8, 12), "LLC 2 (lgroup 1)"), (slice(0, 16), "package 0")):
        times = quiet(6, 3, 32)
        times[2, :, slots] *= 1.2
        rows = [
            (*one[:6], int(one[4] or 0) // 4, one[7], int(one[7] or 0) // 2, *one[9:])
            for one in rows_of(times, machine)
        ]
        assert [it.place for it in found_in(rows)] == [place]


def found_in(rows: list[Row]) -> list[Finding]:
    return [it for it in analyse([rows], names(6), Thresholds()).findings if not it.explained]

"""Hosts of one kind held against each other: who is slow, in what, and who is not."""

from __future__ import annotations

import numpy as np
import pytest

from rater.analysis.stats.robust import Floats
from rater.fleet.model import compare_hosts


def fleet(hosts: int, seed: int = 1, benchmarks: int = 6, iterations: int = 3) -> Floats:
    """ln times: iterations 1 % apart with the tail of t4, hosts .3 %."""
    random = np.random.default_rng(seed)
    noise = 0.007 * random.standard_t(4, (hosts, benchmarks, iterations))
    return np.asarray(4.6 + noise + 0.003 * random.standard_normal((hosts, benchmarks, 1)))


@pytest.mark.parametrize("hosts", [4, 8, 100])
def test_a_host_slow_in_all_benchmarks_is_the_only_one_named(hosts: int) -> None:
    logs = fleet(hosts)
    logs[2] += 0.05
    (slow,) = compare_hosts(logs).slow
    assert (slow.host, slow.benchmarks) == (2, ())
    assert slow.effect == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("hosts", [8, 100])
def test_a_host_slow_in_two_benchmarks_is_level_in_the_others(hosts: int) -> None:
    logs = fleet(hosts)
    logs[3, 1] += 0.12
    logs[3, 4] += 0.15
    (slow,) = compare_hosts(logs).slow
    assert (slow.host, slow.effect, slow.benchmarks) == (3, 0.0, (4, 1))
    assert slow.effects == pytest.approx((0.15, 0.12), abs=0.02)


def test_slow_in_all_and_slower_in_one_is_told_apart() -> None:
    logs = fleet(16)
    logs[0] += 0.05
    logs[0, 2] += 0.15
    (slow,) = compare_hosts(logs).slow
    assert slow.effect == pytest.approx(0.05, abs=0.01)
    assert slow.benchmarks == (2,)
    assert slow.worst == pytest.approx(0.20, abs=0.02)


def test_one_slow_iteration_of_three_makes_no_slow_host() -> None:
    logs = fleet(16)
    logs[5, :, 1] += 0.3
    assert compare_hosts(logs).slow == ()


@pytest.mark.parametrize("hosts", [4, 16, 200])
def test_a_fleet_without_slow_hosts_names_none(hosts: int) -> None:
    assert [it.host for seed in range(5) for it in compare_hosts(fleet(hosts, seed)).slow] == []


def test_what_is_expected_is_a_little_slowness_that_is_no_finding() -> None:
    logs = fleet(64)
    logs[7] += 0.008
    assert compare_hosts(logs).slow == ()


def test_missing_benchmarks_and_iterations_are_left_out() -> None:
    logs = fleet(12)
    logs[2] += 0.06
    logs[2, 0] = np.nan
    logs[4, 3, 2] = np.nan
    logs[5] = np.nan
    compared = compare_hosts(logs)
    assert [it.host for it in compared.slow] == [2]
    assert np.isnan(compared.distances[2, 0])


def test_a_slow_host_is_among_what_the_fleet_says_it_can_see() -> None:
    found = compare_hosts(fleet(16))
    assert 0.015 <= found.visible_whole < 0.03 <= found.visible_one < 0.12


def test_three_hosts_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="3 hosts, expected 4 or more"):
        compare_hosts(fleet(3))

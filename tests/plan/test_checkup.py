"""What a checkup runs on made machines."""

from __future__ import annotations

import pytest

from rater.plan.checkup import (
    FULL,
    QUICK,
    CheckupLimits,
    CheckupPoint,
    CheckupProbe,
    checkup_points,
    request_of_point,
    usable_cpus,
    window_ms,
)
from rater.plan.request import Request
from rater.plan.topology import Topology
from rater.run.host.discover import parse_synthetic

GB = 1 << 30


def points_of(described: str, free: int = 64 * GB) -> tuple[CheckupPoint, ...]:
    topology = parse_synthetic(described)
    return checkup_points(
        topology, usable_cpus(topology), {node.os: free for node in topology.nodes}
    )


def machine(described: str) -> Topology:
    return parse_synthetic(described)


def test_a_run_measures_the_memory_of_all_nodes_and_each_place_has_a_turn() -> None:
    latency, bandwidth, loaded, core, mix = points_of("nodes=4x2")
    assert [point.probe for point in (latency, bandwidth, loaded, core, mix)] == [*CheckupProbe]
    assert (latency.cpus, latency.memory_nodes) == ((0, 2, 4, 6), (0, 1, 2, 3))
    assert latency.places[:5] == ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1))
    assert latency.turns == tuple(range(16))
    assert bandwidth.cpus == tuple(range(8))
    assert bandwidth.turns[:10] == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)
    assert loaded.leaders == (0, 2, 4, 6)
    # Two of each cell, one of each, five loads of each node, one of each core.
    assert [point.windows for point in (latency, bandwidth, loaded, core)] == [32, 16, 20, 8]


def test_copies_of_many_nodes_are_parted_among_runs() -> None:
    parted = [it for it in points_of("nodes=8x24") if it.probe is CheckupProbe.BANDWIDTH]
    assert [point.memory_nodes for point in parted] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert {len(point.places) for point in parted} == {2 * 8 * 24}


def test_little_memory_makes_working_sets_smaller_and_none_leaves_the_matrix_out() -> None:
    small = points_of("nodes=2x2", free=100 << 20)
    assert {point.probe: point.bytes >> 20 for point in small if point.memory_nodes} == {
        CheckupProbe.LATENCY: 20,  # 40 % of 100 MB for two copies
        CheckupProbe.BANDWIDTH: 10,  # for four
    }
    assert {point.probe for point in points_of("nodes=2x2", free=1 << 20)} == {
        CheckupProbe.CORE,
        CheckupProbe.MIX,
    }


def test_a_node_without_free_memory_is_left_out_of_the_matrix_alone() -> None:
    topology = machine("nodes=2x2")
    (latency, *_) = checkup_points(topology, usable_cpus(topology), {0: GB, 1: 1 << 20})
    assert latency.memory_nodes == (0,)


def test_one_cpu_a_node_has_no_bandwidth_of_all_and_no_load() -> None:
    assert {point.probe for point in points_of("nodes=2x1")} == {
        CheckupProbe.LATENCY,
        CheckupProbe.CORE,
        CheckupProbe.MIX,
    }


@pytest.mark.parametrize("described", ["nodes=1x4", "nodes=4x2", "nodes=8x24"])
@pytest.mark.parametrize("limits", [QUICK, FULL])
def test_rounds_take_as_long_as_promised_on_machines_of_up_to_eight_nodes(
    described: str, limits: CheckupLimits
) -> None:
    points = points_of(described)
    fixed_s = 1.5 * len(points)  # of a round: a run takes so long beside its windows
    window = window_ms(points, round_s=limits.total_s / limits.rounds, fixed_s=fixed_s)
    round_s = fixed_s + sum(point.windows_s(window) for point in points)
    assert window >= 50
    assert limits.rounds * round_s < limits.total_s + 1


def test_a_machine_that_is_slow_to_set_up_has_longer_windows() -> None:
    points = points_of("nodes=4x2")  # 5 runs of 8 s a round, 110 s for three rounds
    assert window_ms(points, round_s=110 / 3, fixed_s=40) == 250


def test_a_point_says_by_the_environment_whose_turn_comes_when() -> None:
    (point, *_) = points_of("nodes=2x2")
    request = request_of_point(point, Request(suites=()), window=40, limits=QUICK)
    assert request.suites == ("matrix/node-latency",)
    assert (request.copies, request.layout, request.memory) == ("4", "list:0,2", "bind:each=0-1")
    assert dict(request.environment) == {
        "MATRIX_KIB": str(point.bytes >> 10),
        "MATRIX_WINDOW_MS": "40",
        "MATRIX_TURNS": "0,1,2,3",
        "MATRIX_LEADERS": "0,1,2,3",
    }
    assert dict(request.tags) == {"probe": "node-latency"}

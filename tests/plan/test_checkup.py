"""What a checkup runs on made machines."""

from __future__ import annotations

from rater.plan.checkup import (
    FULL,
    QUICK,
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


def test_each_node_has_the_memory_once_and_all_cpus_have_their_turn() -> None:
    points = points_of("nodes=4x2")
    assert [(point.probe, point.memory_node) for point in points] == [
        *(
            (probe, node)
            for node in range(4)
            for probe in (CheckupProbe.LATENCY, CheckupProbe.BANDWIDTH)
        ),
        (CheckupProbe.LOADED, None),
        (CheckupProbe.CORE, None),
        (CheckupProbe.MIX, None),
    ]
    assert points[0].cpus == (0, 2, 4, 6)
    assert points[1].cpus == tuple(range(8))
    assert points[0].turns == "0,1,2,3"
    loaded = points[8]
    assert loaded.leaders == (0, 2, 4, 6)
    assert loaded.slots == 20  # five loads of each node


def test_little_memory_makes_working_sets_smaller_and_none_leaves_the_matrix_out() -> None:
    small = points_of("nodes=2x2", free=100 << 20)
    assert {point.probe: point.bytes >> 20 for point in small if point.memory_node == 0} == {
        CheckupProbe.LATENCY: 20,  # 40 % of 100 MB for two copies
        CheckupProbe.BANDWIDTH: 10,  # for four
    }
    assert {point.probe for point in points_of("nodes=2x2", free=1 << 20)} == {
        CheckupProbe.CORE,
        CheckupProbe.MIX,
    }


def test_one_cpu_a_node_has_no_bandwidth_of_all_and_no_load() -> None:
    assert {point.probe for point in points_of("nodes=2x1")} == {
        CheckupProbe.LATENCY,
        CheckupProbe.CORE,
        CheckupProbe.MIX,
    }


def test_windows_are_as_long_as_the_time_allows() -> None:
    points = points_of("nodes=8x24")
    for limits in (QUICK, FULL):
        window_s = window_ms(points, limits, setup_s=0.25) / 1e3
        slots = sum(point.slots for point in points)
        runs = sum(bool(point.slots) for point in points)
        expected_s = limits.rounds * (1.1 * slots * window_s + runs * 1.0)
        assert expected_s < 2.1 * limits.matrix_s
        assert window_s >= 0.05
    # A guest that needs 3 s to set up measures for 0.375 s, whatever time that takes.
    assert window_ms(points, QUICK, setup_s=3.0) == 375


def test_a_point_says_by_the_environment_whose_turn_comes_when() -> None:
    (point, *_) = points_of("nodes=2x2")
    request = request_of_point(point, Request(suites=()), setup_s=0.25, window=40, limits=QUICK)
    assert request.suites == ("matrix/node-latency",)
    assert (request.copies, request.layout, request.memory) == ("2", "list:0,2", "bind:nodes=0")
    assert dict(request.environment) == {
        "MATRIX_KIB": str(point.bytes >> 10),
        "MATRIX_WINDOW_MS": "40",
        "MATRIX_SETUP_MS": "250",
        "MATRIX_TURNS": "0,1",
    }
    assert dict(request.tags) == {"probe": "node-latency", "memory": "0"}

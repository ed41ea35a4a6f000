"""Verdicts of a checkup from made readings, and which place is worse than its peers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.divots.cells import FLOOR, CellsJudgement, PlaceValue, judge_cells
from rater.analysis.divots.checkup import (
    MEASURES,
    CheckupMeasure,
    CheckupSection,
    CheckupVerdict,
    PlaceReading,
    doctor_section,
    exit_status,
    facts_section,
    measure_section,
)
from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict
from rater.plan.topology import Topology
from rater.run.host.discover import parse_synthetic
from rater.run.host.hardware import hardware_facts

LATENCY = MEASURES[0]
TWO_NODES = parse_synthetic("nodes=2x2")
type Values = Mapping[tuple[int, int], tuple[float, float, float]]
ALIKE: Values = {
    (0, 0): (90.0, 91.0, 92.0),
    (1, 1): (91.0, 92.0, 90.0),
    (0, 1): (140.0, 141.0, 142.0),
    (1, 0): (141.0, 142.0, 140.0),
}


def section(
    values: Mapping[Any, tuple[float, float, float]] = ALIKE,
    *,
    measure: CheckupMeasure = LATENCY,
    is_taken: bool = False,
    is_proved: bool = True,
    machine: Topology = TWO_NODES,
) -> CheckupSection:
    readings = [
        PlaceReading(
            measure=measure,
            place=place,
            value=value,
            is_taken=is_taken,
            is_proved=is_proved or place[1] == 1,
        )
        for place, of_rounds in values.items()
        for value in of_rounds
    ]
    measured = measure_section(measure, readings, machine)
    assert measured is not None
    return measured


def test_places_that_are_alike_pass_with_the_size_that_could_be_seen() -> None:
    judged = section()
    assert judged.verdict is CheckupVerdict.PASS
    assert judged.lines == ("5 % would be seen of one place",)


def test_a_place_that_is_worse_than_its_peer_is_to_be_looked_at() -> None:
    judged = section({**ALIKE, (1, 0): (210.0, 212.0, 211.0)})
    assert judged.verdict is CheckupVerdict.LOOK
    assert judged.lines[0] == (
        "CPUs of node 1, memory of node 0: 211 ns, 50 % worse than its peers"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"is_taken": True}, "others took more than 10 % of CPUs of nodes 0-1"),
        ({"is_proved": False}, "6 of 12 measurements without proof of their CPUs and memory"),
    ],
)
def test_what_cannot_be_told_is_no_pass(changes: dict[str, Any], said: str) -> None:
    judged = section(ALIKE, **changes)
    assert judged.verdict is CheckupVerdict.UNKNOWN
    assert judged.lines[0].startswith(said)


def test_noise_that_would_hide_everything_is_no_pass() -> None:
    judged = section({place: (50.0, 500.0, 90.0) for place in ALIKE} | {(0, 0): (9.0, 80.0, 700.0)})
    assert judged.verdict is CheckupVerdict.UNKNOWN
    assert judged.lines == ("rounds differ so much that a place twice as bad could hide",)


def measured(name: str, *values: tuple[tuple[int, int], float]) -> CheckupSection:
    cells = tuple(PlaceValue(place=place, value=value) for place, value in values)
    return CheckupSection(
        name=name,
        is_judged=False,
        cells=CellsJudgement(cells=cells, visible=None),
    )


def test_an_empty_channel_and_half_of_the_rated_bandwidth_are_to_be_looked_at() -> None:
    settings = {
        "dimms.channels": "7 of 8 populated",
        "dimm.P0 CHANNEL H/DIMM 0": "empty",
        "dimms.peak_mb_s": "268800",
        "unread.TLBs": "no reason",
    }
    had = measured("bandwidth, all CPUs of a node", ((0, 0), 100.0), ((0, 1), 999.0))
    judged = facts_section(settings, [had])
    assert judged.verdict is CheckupVerdict.LOOK
    assert judged.lines == (
        "memory channels: 7 of 8 populated; empty: P0 CHANNEL H/DIMM 0",
        "100 GB/s read, 37 % of the 268.8 of its channels",
        "TLBs not known: no reason",
    )


def promised(root: Path) -> dict[str, str]:
    """Return the facts of a tree of three nodes: 200,000 MiB/s (209.7 GB/s) and 80 ns of each.

    Node 2 has no CPUs; those of node 0 are the nearest.
    """
    for node, nearest in ((0, 0), (1, 1), (2, 0)):
        initiators = root / f"sys/devices/system/node/node{node}/access0/initiators"
        (initiators / f"node{nearest}").mkdir(parents=True)
        (initiators / "read_bandwidth").write_text("200000\n")
        (initiators / "read_latency").write_text("80\n")
    facts = dict(hardware_facts(root))
    return {name: text for name, text in facts.items() if name.startswith("hmat.")}


def test_cells_are_rated_against_what_the_firmware_promises(tmp_path: Path) -> None:
    bandwidth = measured(
        "bandwidth, all CPUs of a node",
        *(((0, 0), 157.3), ((1, 1), 94.37), ((0, 1), 1.0), ((0, 2), 20.97), ((2, 0), 2.0)),
    )
    latency = measured("latency of memory, one CPU", ((0, 0), 120.0), ((1, 1), 200.0))
    judged = facts_section(promised(tmp_path), [bandwidth, latency])
    # 200,000 x 1,048,576 B/s are 209.7 GB/s, of which 157.3 are 75 % and 94.37 are 45 %.
    assert judged.lines == (
        "CPUs of node 1, memory of node 1: 94.37 GB/s read, 45 % of the 209.7 promised",
        "CPUs of node 1, memory of node 1: 200 ns, 2.5 times the 80 promised",
        "CPUs of node 0, memory of node 2: 20.97 GB/s read, 10 % of the 209.7 promised",
        "CPUs of node 0, memory of node 0: 157.3 GB/s read, 75 % of the 209.7 promised",
        "CPUs of node 0, memory of node 0: 120 ns, 1.5 times the 80 promised",
    )
    assert judged.verdict is CheckupVerdict.LOOK


@pytest.mark.parametrize(
    ("modules", "line"),
    [
        ("8 x 64 GB DDR5 at 4800 MT/s, 2 x 128 GB DDR5 on CXL at 5600 MT/s", None),
        ("8 x 64 GB DDR4 at 2666 MT/s, 8 x 128 GB persistent memory at 2666 MT/s", None),
        (
            "7 x 64 GB DDR5 at 4800 MT/s, 1 x 64 GB DDR5 at 4400 MT/s, 2 x 9 GB DDR5 on CXL",
            "memory modules are not alike: "
            "7 x 64 GB DDR5 at 4800 MT/s, 1 x 64 GB DDR5 at 4400 MT/s",
        ),
    ],
)
def test_modules_of_one_kind_of_memory_should_be_alike(modules: str, line: str | None) -> None:
    assert facts_section({"dimms.found": modules}, []).lines == (() if line is None else (line,))


def test_what_others_disturbed_is_rated_against_nothing(tmp_path: Path) -> None:
    latency = measured("latency of memory, one CPU", ((0, 0), 900.0))
    disturbed = replace(latency, obstacles=("others took more than 10 % of CPU 0",))
    judged = facts_section(promised(tmp_path), [disturbed])
    assert (judged.verdict, judged.lines) == (CheckupVerdict.SHOWN, ())


def finding(check: str, settings: tuple[tuple[str, str], ...] = ()) -> DoctorFinding:
    return DoctorFinding(
        check=check, why="", seen="bad", verdict=DoctorVerdict.BAD, settings=settings
    )


def test_the_doctor_passes_what_is_set_for_the_time_of_the_checkup() -> None:
    balancing = finding("NUMA balancing", (("numa_balancing", "0"),))
    verdicts = [
        doctor_section(findings, tuned).verdict
        for findings, tuned in (
            ([balancing], {}),
            ([balancing], {"numa_balancing": "0"}),
            ([finding("other load")], {}),
            ([], {}),
        )
    ]
    assert verdicts == [
        CheckupVerdict.LOOK,
        CheckupVerdict.PASS,
        CheckupVerdict.UNKNOWN,
        CheckupVerdict.PASS,
    ]


PASSED = CheckupSection(name="")
SHOWN = CheckupSection(name="", is_judged=False)
UNKNOWN = CheckupSection(name="", obstacles=("others",))
LOOK = CheckupSection(name="", found=("CPU 3",), obstacles=("others",))


@pytest.mark.parametrize(
    ("sections", "status"),
    [((PASSED, SHOWN), 0), ((PASSED, UNKNOWN), 3), ((UNKNOWN, LOOK), 1)],
)
def test_the_exit_status_is_that_of_the_worst_section(
    sections: tuple[CheckupSection, ...], status: int
) -> None:
    assert exit_status(sections) == status


# -- What is slow together is one thing, with one size ---------------------------------------------

FOUR_NODES = parse_synthetic("nodes=4x2")
LOADED, CORES = MEASURES[3:]


def slow_where(is_slow: Callable[[int, int], bool], times: float = 1.5) -> Mapping[Any, Any]:
    """Return latencies of four nodes, 90 ns at home and 140 elsewhere, some of them longer."""
    return {
        (cpus, memory): tuple(
            (90.0 if cpus == memory else 140.0) * (times if is_slow(cpus, memory) else 1) + noise
            for noise in (0.0, 0.1, 0.2)
        )
        for cpus in range(4)
        for memory in range(4)
    }


@pytest.mark.parametrize(
    ("is_slow", "said"),
    [
        (
            lambda cpus, _: cpus == 3,
            ["CPUs of node 3, memory of all 4 nodes: 135.1 to 210.1 ns, 50 % worse than their"],
        ),
        (
            lambda _, memory: memory == 1,
            ["CPUs of nodes 0-3, memory of node 1: 135.1 to 210.1 ns, 50 % worse than their"],
        ),
        (
            lambda cpus, memory: cpus == 2 and memory != 2,
            ["CPUs of node 2, memory of nodes 0-1,3: 210.1 ns, 50 % worse than their"],
        ),
        (
            lambda cpus, memory: (cpus, memory) in ((0, 1), (2, 3)),
            [
                "CPUs of node 0, memory of node 1: 210.1 ns, 50 % worse than its",
                "CPUs of node 2, memory of node 3: 210.1 ns, 50 % worse than its",
            ],
        ),
    ],
)
def test_a_slow_row_or_column_of_the_matrix_is_one_finding(
    is_slow: Callable[[int, int], bool], said: list[str]
) -> None:
    judged = section(slow_where(is_slow), machine=FOUR_NODES)
    assert judged.verdict is CheckupVerdict.LOOK
    assert [text.removesuffix(" peers") for text in judged.found] == said


def test_loads_of_a_node_and_cores_of_a_node_are_one_finding() -> None:
    loads = {
        (node, load): (100.0 * load * (1.3 if node == 2 and load > 2 else 1.0),) * 3
        for node in range(4)
        for load in range(1, 6)
    }
    [loaded] = section(loads, measure=LOADED, machine=FOUR_NODES).found
    assert loaded == "CPUs of node 2 at load 3-5 of 5: 390 to 650 ns, 30 % worse than their peers"
    rates = {(cpu,): (50.0 if cpu in (2, 3, 7) else 100.0,) * 3 for cpu in range(8)}
    assert [*section(rates, measure=CORES, machine=FOUR_NODES).found] == [
        "CPUs 2-3 (node 1): 50 per us, 100 % worse than their peers",
        "CPU 7 (node 3): 50 per us, 100 % worse than its peers",
    ]


# -- Places against their peers --------------------------------------------------------------------

NODES = range(4)
PEERS = {(cpus, memory): 10 + 6 * (cpus ^ memory) for cpus in NODES for memory in NODES}


def matrix(
    seed: int, *, noise: float, slow: tuple[int, int] | None = None, by: float = 1.3
) -> dict[tuple[int, int], list[float]]:
    """Return a made matrix of latencies in three rounds: 100 ns at home, more further away."""
    chance = random.Random(seed)
    return {
        place: [
            10.0 * distance * (by if place == slow else 1.0) * chance.lognormvariate(0, noise)
            for _ in range(3)
        ]
        for place, distance in PEERS.items()
    }


def places_of(cells: tuple[PlaceValue, ...]) -> list[tuple[int, ...]]:
    return [cell.place for cell in cells]


def test_a_planted_slow_cell_is_named_and_no_other_in_nine_of_ten_matrices() -> None:
    named = 0
    for seed in range(10):
        slow = (seed % 4, (seed * 3 + 1) % 4)
        judgement = judge_cells(matrix(seed, noise=0.05, slow=slow), PEERS, higher_is_worse=True)
        named += places_of(judgement.slow) == [slow]
    assert named >= 9


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2, 0.6])
def test_no_cell_of_twenty_clean_matrices_is_named(noise: float) -> None:
    named = [
        judge_cells(
            matrix(seed, noise=noise), PEERS, higher_is_worse=True, lines_of=lambda place: place
        ).slow
        for seed in range(20)
    ]
    assert named == [()] * 20


def test_bursts_in_a_fifth_of_the_readings_name_no_place_and_hide_no_slow_one() -> None:
    named = exact = 0
    for seed in range(100):
        chance = random.Random(seed)
        values = {
            place: [
                value * (math.exp(chance.expovariate(4)) if chance.random() < 0.2 else 1.0)
                for value in of_rounds
            ]
            for place, of_rounds in matrix(seed, noise=0.05).items()
        }
        judgement = judge_cells(values, PEERS, higher_is_worse=True, lines_of=lambda place: place)
        named += bool(judgement.slow)
        values[2, 1] = [1.6 * value for value in values[2, 1]]
        judgement = judge_cells(values, PEERS, higher_is_worse=True)
        exact += places_of(judgement.slow) == [(2, 1)]
    assert named <= 2  # 1 by chance
    assert exact >= 75


@pytest.mark.parametrize("axis", [0, 1])
def test_a_slow_line_of_the_matrix_is_named_whole_where_noise_hides_some_of_its_places(
    axis: int,
) -> None:
    whole = 0
    for seed in range(20):
        line = [place for place in PEERS if place[axis] == seed % 4]
        values = matrix(seed, noise=0.1)
        values |= {place: [1.4 * value for value in values[place]] for place in line}
        judgement = judge_cells(values, PEERS, higher_is_worse=True, lines_of=lambda place: place)
        whole += sorted(places_of(judgement.slow)) == sorted(line)
    assert whole >= 19  # without a judgement of lines 4


def test_a_slow_place_makes_neither_its_row_nor_its_column_slow() -> None:
    values = matrix(3, noise=0.01, slow=(1, 2), by=3)
    judgement = judge_cells(values, PEERS, higher_is_worse=True, lines_of=lambda place: place)
    assert places_of(judgement.slow) == [(1, 2)]


def test_a_burst_in_one_round_names_nothing() -> None:
    values = matrix(1, noise=0.01)
    values[2, 3][1] *= 8
    assert judge_cells(values, PEERS, higher_is_worse=True).slow == ()


def test_nothing_is_named_among_bursts_of_many_times_the_usual() -> None:
    values = matrix(1, noise=0.05)
    values[3, 0] = [9000.0, 340.0, 3754.0]  # of a clean guest beside a load of 60
    values[1, 3] = [3000.0, 260.0, 348.8]
    judgement = judge_cells(values, PEERS, higher_is_worse=True)
    assert (judgement.slow, judgement.visible is not None and judgement.visible > 1) == ((), True)


def test_a_place_is_worse_by_its_mean_over_rounds_against_the_median_of_its_peers() -> None:
    values = {(0,): [100.0] * 3, (1,): [100.0] * 3, (2,): [100.0] * 3, (3,): [150.0] * 3}
    judgement = judge_cells(values, dict.fromkeys(values, "core"), higher_is_worse=True)
    assert places_of(judgement.slow) == [(3,)]
    assert judgement.cells[3].worse == pytest.approx(0.5)
    assert judgement.visible == FLOOR  # no noise at all


def test_of_bandwidth_less_is_worse() -> None:
    values = {(0,): [100.0, 101.0, 99.0], (1,): [100.0, 99.0, 101.0], (2,): [50.0, 50.5, 49.5]}
    judgement = judge_cells(values, dict.fromkeys(values, 0), higher_is_worse=False)
    assert places_of(judgement.slow) == [(2,)]


def test_a_place_without_peers_is_measured_and_not_judged() -> None:
    judgement = judge_cells({(0, 0): [90.0, 91.0, 89.0]}, {(0, 0): 10}, higher_is_worse=True)
    assert judgement.visible is None
    assert judgement.cells == (PlaceValue(place=(0, 0), value=90.0),)

"""Verdicts of a checkup from made readings, and which place is worse than its peers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.divots.cells import FLOOR, CellsJudgement, PlaceValue, judge_cells
from rater.analysis.divots.checkup import (
    MEASURES,
    CheckupSection,
    CheckupVerdict,
    PlaceReading,
    ProbeRun,
    doctor_section,
    exit_status,
    facts_section,
    measure_section,
)
from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict
from rater.plan.checkup import CheckupProbe
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
    values: Values = ALIKE, *, others_took: bool = False, placed: int = 2
) -> CheckupSection:
    runs = [
        ProbeRun(
            run=10 * memory + number,
            probe=CheckupProbe.LATENCY,
            round=number,
            readings=tuple(
                PlaceReading(
                    metric="latency", place=place, value=of_rounds[number], taken=others_took
                )
                for place, of_rounds in values.items()
                if place[1] == memory
            ),
            copies=2,
            placed=placed,
        )
        for memory in (0, 1)
        for number in range(3)
    ]
    measured = measure_section(LATENCY, runs, TWO_NODES)
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
        ({"others_took": True}, "others took more than 10 % of CPUs of node 0, CPUs of node 1"),
        ({"placed": 1}, "6 of 12 copies without proof of their CPUs and memory"),
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
        verdict=CheckupVerdict.SHOWN,
        lines=(),
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
        "not known: TLBs (`rater topo --facts`)",
    )


def promised(root: Path) -> dict[str, str]:
    """Return the facts of a tree of two nodes: 200,000 MiB/s (209.7 GB/s) and 80 ns of each."""
    for node in "01":
        initiators = root / f"sys/devices/system/node/node{node}/access0/initiators"
        (initiators / f"node{node}").mkdir(parents=True)
        (initiators / "read_bandwidth").write_text("200000\n")
        (initiators / "read_latency").write_text("80\n")
    facts = dict(hardware_facts(root))
    return {name: text for name, text in facts.items() if name.startswith("hmat.")}


def test_cells_are_rated_against_what_the_firmware_promises(tmp_path: Path) -> None:
    bandwidth = measured(
        "bandwidth, all CPUs of a node", ((0, 0), 157.3), ((1, 1), 62.92), ((0, 1), 1.0)
    )
    latency = measured("latency of memory, one CPU", ((0, 0), 120.0), ((1, 1), 200.0))
    judged = facts_section(promised(tmp_path), [bandwidth, latency])
    # 200,000 x 1,048,576 B/s are 209.7 GB/s, of which 157.3 are 75 % and 62.92 are 30 %.
    assert judged.lines == (
        "CPUs of node 1, memory of node 1: 62.92 GB/s read, 30 % of the 209.7 promised",
        "CPUs of node 1, memory of node 1: 200 ns, 2.5 times the 80 promised",
        "CPUs of node 0, memory of node 0: 157.3 GB/s read, 75 % of the 209.7 promised",
        "CPUs of node 0, memory of node 0: 120 ns, 1.5 times the 80 promised",
    )
    assert judged.verdict is CheckupVerdict.LOOK


def test_what_others_disturbed_is_rated_against_nothing(tmp_path: Path) -> None:
    latency = measured("latency of memory, one CPU", ((0, 0), 900.0))
    disturbed = replace(latency, verdict=CheckupVerdict.UNKNOWN)
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


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ((CheckupVerdict.PASS, CheckupVerdict.SHOWN), 0),
        ((CheckupVerdict.PASS, CheckupVerdict.UNKNOWN), 3),
        ((CheckupVerdict.UNKNOWN, CheckupVerdict.LOOK), 1),
    ],
)
def test_the_exit_status_is_that_of_the_worst_section(
    verdicts: tuple[CheckupVerdict, ...], status: int
) -> None:
    sections = [CheckupSection(name="", verdict=verdict, lines=()) for verdict in verdicts]
    assert exit_status(sections) == status


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
        judge_cells(matrix(seed, noise=noise), PEERS, higher_is_worse=True).slow
        for seed in range(20)
    ]
    assert named == [()] * 20


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

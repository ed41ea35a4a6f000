"""Parts of the detector's model, and what differs between slow copies and the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from rater.analysis.divots.evidence import add_evidence
from rater.analysis.divots.measures import CPU_TIME
from rater.analysis.divots.model.finding import (
    Analysis,
    CellEffect,
    CopyEffect,
    Evidence,
    EvidenceKind,
    Finding,
    Kind,
    from_json,
    to_json,
)
from rater.analysis.divots.model.table import build_table, clock_steps
from rater.record.events import CopyEnded, CpuReading, CpuReadings, MachineReadings, Sampled
from rater.record.run import CopyStatus, MachinePU, MemoryPolicy, Placement
from rater.record.stored import StoredRun
from rater.show.results.to_json import divot_rows, divots_document, evidence_line
from tests.support import json_schemas
from tests.support.counted_runs import SKX_TABLE, group_counts
from tests.support.divot_runs import Machine, analysed, divots, names, quiet, rows_of
from tests.support.example_findings import finding_of
from tests.support.example_runs import HEAD, S, copy_row, reading, stored

ONE_MODE = np.array([NormalDist().inv_cdf((iteration + 0.5) / 50) for iteration in range(50)])


@pytest.mark.parametrize(
    ("seconds", "step"),
    [
        ([100.00, 100.01, 100.01, 100.02, 100.02, 100.02, 100.01, 100.00], 0.01 / 100.01),
        ([100.00, 100.01, 100.02, 100.03, 100.04, 100.05, 100.06, 100.07], 1e-4),  # digits
        ([7.0, 7.0, 7.0, 8.0, 8.0, 8.0, 9.0, 9.0], 1 / 8),
        ([100.0] * 4 + [110.0] * 4, 1 / 105),  # two times ten seconds apart are no clock of 10 s
        ([100.0] * 8, 0.0),  # one time says nothing of the clock
    ],
)
def test_a_coarse_clock_is_told_by_times_that_come_again(seconds: list[float], step: float) -> None:
    table = build_table([rows_of(np.array([[seconds]]), Machine(1, 8))], names(1))
    assert table is not None
    assert clock_steps(table) == pytest.approx([step], rel=0.001)


def test_four_of_five_effects_as_large_as_a_run_is_said_to_show_are_found() -> None:
    are_found = []
    for nodes, per_node, benchmarks, iterations, noise in (
        (4, 8, 6, 3, 0.003),
        (4, 16, 4, 1, 0.01),
        (2, 16, 8, 2, 0.02),
    ):
        machine = Machine(nodes, per_node)
        shape = (benchmarks, iterations, machine.copies)
        for seed in range(4):
            seen = analysed(quiet(*shape, noise=noise, seed=seed), machine).visible
            for fresh in (seed + 100, seed + 200):
                lgroup, copy = (quiet(*shape, noise=noise, seed=fresh) for _ in range(2))
                lgroup[1, :, :per_node] *= 1 + seen["group-benchmark"]
                copy[2, 0, 5] *= 1 + seen["copy"]
                are_found += [any(divot.nodes in ((0,), (1,)) for divot in divots(lgroup, machine))]
                are_found += [any(divot.copies == (5,) for divot in divots(copy, machine))]
    assert 0.7 <= np.mean(are_found) <= 0.97  # of 48


def test_lgroups_of_two_copies_as_slow_as_is_promised_are_found() -> None:
    are_found, machine = [], Machine(4, 2)
    for seed in range(8):
        size = analysed(quiet(10, 1, 8, noise=0.005, seed=seed), machine).visible["group"]
        for fresh in range(3):
            times = quiet(10, 1, 8, noise=0.005, seed=100 + 3 * seed + fresh)
            times[..., :2] *= 1 + size
            are_found += [any(divot.nodes == (0,) for divot in divots(times, machine))]
    assert 0.7 <= np.mean(are_found) <= 0.95  # of 24


@pytest.mark.parametrize("kind", EvidenceKind)
def test_no_cause_is_recorded_where_all_evidence_is_of_the_cost(kind: EvidenceKind) -> None:
    found = finding(evidence=(kind.evidence("words"),))
    assert evidence_line(found).endswith("words") == kind.of_cause
    assert evidence_line(found).endswith("; cause not recorded") == (kind is EvidenceKind.COST)


def test_a_number_that_differs_is_a_cause() -> None:
    found = finding(evidence=(Evidence(name="steal", text="words", value=0.2, others=0.0),))
    assert found.evidence[0].of_cause
    assert evidence_line(found).endswith("words")


MIB = 1 << 20
COPIES = 8
SLOW = (4, 5, 6, 7)  # on node 1


def finding(kind: Kind = Kind.SLOW_LGROUP, **changes: Any) -> Finding:
    """Copies 4 to 7 of benchmark a, iteration 1, are slow."""
    made_finding = finding_of(
        kind,
        "node 1",
        SLOW,
        iterations=(1,),
        nodes=(1,),
        score_lost=0.06,
        summary="a +20.0 % (4 of 4 copies)",
        evidence=(Evidence(name="cost", text="costs 6.0 % of the score", weight=100.0),),
        cells=(CellEffect(benchmark="a", tune="base", iteration=1, slowdown=1.2, rate_lost=0.06),),
    )
    return replace(made_finding, **changes)


def row(number: int, **changes: Any) -> CopyEnded:
    """10 s, 12 s on node 1, all of it computing."""
    seconds = 12.0 if number in SLOW else 10.0
    given = {"node": number // 4, "cpu_ns": round(seconds * S), **changes}
    return copy_row(number, seconds, **given)


def sample(number: int, nodes: dict[int, int], **changes: Any) -> Sampled:
    sampled = Sampled(
        phase=0,
        copy=number,
        step=0,
        age_ns=9 * S,
        processes=1,
        unread=0,
        cpus=(number,),
        allowed=(number,),
        migrations=0,
        pages_migrated=0,
        node_bytes=tuple((node, size * MIB) for node, size in nodes.items()),
        policy="local",
        page_bytes=((4096, 100 * MIB),),
        rss_bytes=100 * MIB,
        peak_bytes=100 * MIB,
        swap_bytes=0,
        read_ns=1,
    )
    return replace(sampled, **changes)


def run_of(
    rows: Sequence[CopyEnded],
    samples: Sequence[Sampled] = (),
    readings: Sequence[CpuReading] = (),
    **head: Any,
) -> StoredRun:
    """Copy c bound to CPU c, four on a node; one phase of 10 s where it was read."""
    copies = sorted({row.copy for row in rows})
    return replace(
        stored(rows, copies=len(copies), **head),
        placements=tuple(
            Placement(
                copy=c,
                cpus=(c,),
                cpu=c,
                core=c,
                llc=0,
                node=c // 4,
                package=0,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            )
            for c in copies
        ),
        pus=tuple(MachinePU(cpu=c, core=c, llc=0, node=c // 4, package=0) for c in copies),
        samples=tuple(samples),
        cpu_readings=tuple(
            CpuReadings(phase, tuple(readings)) for phase in sorted({row.phase for row in rows})
        )
        if readings
        else (),
        machine_readings=tuple(
            MachineReadings(phase, (("elapsed_ns", 10 * S),))
            for phase in sorted({row.phase for row in rows})
        )
        if readings
        else (),
    )


def measured_texts(run: StoredRun, at_first: Finding | None = None) -> list[str]:
    """What was measured, most different first; of the CPU time, which times tell as well, no."""
    (explained,) = add_evidence([at_first or finding()], run)
    measured = [it for it in explained.evidence if it.others is not None and it.name != CPU_TIME]
    return [it.text for it in sorted(measured, key=lambda it: -it.weight)]


def evidence_names(run: StoredRun, at_first: Finding | None = None) -> set[str]:
    (explained,) = add_evidence([at_first or finding()], run)
    return {it.name for it in explained.evidence if it.others is not None} - {CPU_TIME}


def test_copies_that_are_alike_but_for_their_time_have_no_evidence() -> None:
    samples = [sample(copy, {copy // 4: 100}) for copy in range(COPIES)]
    readings = [reading(copy, user_ns=10 * S, mean_khz=3_000_000) for copy in range(COPIES)]
    run = run_of([row(copy) for copy in range(COPIES)], samples, readings)
    assert measured_texts(run) == []
    (found,) = add_evidence([finding()], run)
    assert evidence_line(found).endswith(
        "; used 20 % more CPU time: it did more work, or computed more slowly"
    )


def counted(group: str, **slow: Any) -> StoredRun:
    """All copies counted one group; the slow ones with other counts."""
    rows = [
        row(copy, counts=group_counts(group, 1.0, **(slow if copy in SLOW else {})))
        for copy in range(COPIES)
    ]
    return replace(run_of(rows), settings=SKX_TABLE)


@pytest.mark.parametrize(
    ("group", "slow", "text"),
    [
        (
            *("numa", {"dram_local": 2, "dram_remote": 6, "cycles": 3000, "llc_miss": 20}),
            "75 % of its loads from DRAM were remote (others 25 %)",
        ),
        (
            *("numa", {"llc_miss": 40}),
            "40 misses of the last cache in 1000 instructions (others 20)",
        ),
        (
            *("translation", {"walk_load": 450}),
            "0.50 cycles of page walks an instruction (others 0.20)",
        ),
        ("pipeline", {"cycles": 2400}, "2.40 cycles an instruction (others 2.00)"),
        ("pipeline", {"cycles": 1800}, "ran at 1.80 GHz (others 2.00 GHz)"),
        (
            *("pipeline", {"instructions": 1200, "cycles": 2400}),
            "did other work: 1.2e-06 x 10^9 instructions (others 1e-06 x 10^9)",
        ),
    ],
)
def test_what_was_counted_in_full_is_evidence(group: str, slow: dict[str, int], text: str) -> None:
    assert text in measured_texts(counted(group, **slow))
    assert measured_texts(counted(group)) == []
    part = {it: value for it, value in slow.items()} | {"running": 0.5}
    assert text not in measured_texts(counted(group, **part))


def test_remote_memory_is_told_as_a_share() -> None:
    samples = [
        sample(copy, {0: 74, 1: 26} if copy in SLOW else {0: 100}, allowed=(copy,))
        for copy in range(COPIES)
    ]
    run = run_of([row(copy) for copy in range(COPIES)], samples)
    assert "memory 74 % remote" in measured_texts(run)
    (found,) = add_evidence([finding()], run)
    assert evidence_line(found).startswith(
        "node 1: a +20.0 % (4 of 4 copies); costs 6.0 % of the score; "
    )
    assert "; memory 74 % remote" in evidence_line(found)


def test_a_slow_copy_with_local_memory_is_not_accused_with_those_that_have_none() -> None:
    """CPU 0 is slow by itself, copies 4 to 7 have a hard binding to the other node."""
    slow = (0, *SLOW)
    samples = [
        sample(copy, {0: 100} if copy in SLOW else {copy // 4: 100}, allowed=(copy,))
        for copy in range(12)
    ]
    rows = [row(copy) for copy in range(12)]
    assert [
        text.partition(": copy")[0]
        for text in measured_texts(run_of(rows, samples), finding(copies=slow, cpus=slow))
    ] == ["copies 4-7: memory 100 % remote", "copies 4-7: not placed as planned"]


def test_memory_that_the_plan_put_on_another_node_is_remote_and_at_home_it_is_not() -> None:
    rows = [row(copy) for copy in range(COPIES)]

    def planned_on_node_0(home: bool) -> StoredRun:
        samples = [
            sample(copy, {1 if home and copy in SLOW else 0: 100}, allowed=(copy,), policy="bind")
            for copy in range(COPIES)
        ]
        run = run_of(rows, samples)
        return replace(
            run,
            placements=tuple(
                replace(placement, memory_policy="bind", memory_nodes=(0,))
                for placement in run.placements
            ),
        )

    assert measured_texts(planned_on_node_0(home=False)) == ["memory 100 % remote"]
    assert [text.partition(":")[0] for text in measured_texts(planned_on_node_0(home=True))] == [
        "not placed as planned"
    ]


def test_what_is_known_of_few_of_the_copies_is_told_of_none() -> None:
    rows = [row(copy) for copy in range(COPIES)]
    for seen in ((4, 0, 1, 2, 3), (4, 5, 6, 7, 0)):
        samples = [sample(copy, {0: 100}, allowed=(copy,)) for copy in seen]
        assert measured_texts(run_of(rows, samples)) == []
    samples = [sample(copy, {0: 100}, allowed=(copy,)) for copy in (4, 5, 6, 0, 1, 2)]
    assert measured_texts(run_of(rows, samples))[0] == "copies 4-6: memory 100 % remote"


def test_counters_that_count_nothing_anywhere_differ_by_nothing() -> None:
    nothing = [row(copy, counts=group_counts("numa", 1.0, llc_miss=0)) for copy in range(COPIES)]
    assert measured_texts(replace(run_of(nothing), settings=SKX_TABLE)) == []


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.WARM_UP])
def test_a_step_and_a_warm_up_are_compared_with_the_other_iterations(kind: Kind) -> None:
    rows = [
        row(copy, phase=phase, iteration=phase + 1, major_faults=500 if phase > 1 else 0)
        for phase in range(4)
        for copy in range(4)
    ]
    cells = tuple(
        CellEffect(benchmark="a", tune="base", iteration=number, slowdown=1.2, rate_lost=0.1)
        for number in (3, 4)
    )
    one = finding(kind, copies=(0, 1, 2, 3), cpus=(), cells=cells)
    assert measured_texts(run_of(rows), one) == ["500 major page faults"]


def test_a_gradient_is_compared_slow_against_fast() -> None:
    rows = [
        copy_row(
            copy, 10 + copy, cpu_ns=round((10 + copy) * S), major_faults=900 if copy > 3 else 0
        )
        for copy in range(COPIES)
    ]
    one = finding(Kind.GRADIENT, copies=tuple(range(8)), cpus=tuple(range(8)))
    assert measured_texts(run_of(rows), one) == ["900 major page faults"]


def test_a_competitor_is_told_before_the_wait_that_it_makes() -> None:
    rows = [row(copy, cpu_ns=6 * S) if copy in SLOW else row(copy) for copy in range(COPIES)]
    readings = [reading(copy, user_ns=10 * S) for copy in range(COPIES)]
    first, second = measured_texts(run_of(rows, readings=readings))
    assert first == "other processes took 40 % of the CPU"
    assert second == "was on a CPU 50 % of the time (others 100 %)"


def test_a_copy_that_waited_for_its_cpu_says_for_which() -> None:
    def waited(copy: int, share: float) -> CopyEnded:
        one = row(copy)
        ran_ns = round(one.elapsed_ns * (1 - share))
        waited_ns = one.elapsed_ns - ran_ns
        one = replace(one, cpu_ns=ran_ns, last_cpu=copy)
        return replace(one, run_delay_ns=waited_ns, run_delay_cpu_ns=ran_ns)

    run = run_of([waited(copy, 0.31 if copy == 5 else 0.0) for copy in range(COPIES)])
    assert (
        measured_texts(run, finding(copies=(5,), cpus=(5,)))[0]
        == "waited 31 % of the time for CPU 5, which other processes had"
    )
    both = run_of([waited(copy, 0.31 if copy in (5, 6) else 0.1) for copy in range(COPIES)])
    words = "waited 31 % of the time for a CPU, which other processes had (others 10 %)"
    assert measured_texts(both, finding(copies=(5, 6), cpus=(5, 6)))[0] == words


@pytest.mark.parametrize(
    ("slow", "usual", "name"),
    [
        ({"steal_ns": S}, {}, "steal"),
        ({"irq_ns": S}, {}, "interrupts"),
        ({"mean_khz": 2_000_000}, {"mean_khz": 3_000_000}, "frequency"),
        ({"throttles": 9}, {"throttles": 0}, "throttled"),
        ({"iowait_ns": S}, {}, "iowait"),
        ({"interrupts": 90_000}, {"interrupts": 900}, "interrupt-rate"),
    ],
)
def test_what_the_cpus_readings_show(
    slow: dict[str, Any], usual: dict[str, Any], name: str
) -> None:
    readings = [reading(copy, **(slow if copy in SLOW else usual)) for copy in range(COPIES)]
    rows = [row(copy) for copy in range(COPIES)]
    assert evidence_names(run_of(rows, readings=readings)) == {name}
    # The other way round it would make the copies faster: nothing that explains slow ones.
    readings = [reading(copy, **(usual if copy in SLOW else slow)) for copy in range(COPIES)]
    assert evidence_names(run_of(rows, readings=readings)) == set()


@pytest.mark.parametrize(
    ("slow", "usual", "text"),
    [
        ({"major_faults": 500}, {}, "500 major page faults"),
        ({"involuntary_switches": 2400}, {}, "taken off the CPU 200 times a second"),
        ({"major_faults": 5}, {}, None),
        ({"involuntary_switches": 2400}, {"involuntary_switches": 2000}, None),
    ],
)
def test_what_the_copies_rows_show(
    slow: dict[str, Any], usual: dict[str, Any], text: str | None
) -> None:
    run = run_of([row(copy, **(slow if copy in SLOW else usual)) for copy in range(COPIES)])
    assert measured_texts(run) == ([] if text is None else [text])


def test_page_sizes_count_in_both_directions() -> None:
    huge, small = ((2 * MIB, 100 * MIB),), ((4096, 100 * MIB),)
    rows = [row(copy) for copy in range(COPIES)]
    for slow, usual, text in (
        (small, huge, "0 % of the memory in huge pages (others 100 %)"),
        (huge, small, "100 % of the memory in huge pages (others 0 %)"),
    ):
        samples = [
            sample(copy, {copy // 4: 100}, page_bytes=slow if copy in SLOW else usual)
            for copy in range(COPIES)
        ]
        (only,) = measured_texts(run_of(rows, samples))
        assert only.removesuffix(" (others 0 %)") == text.removesuffix(" (others 0 %)")


def test_what_the_others_differ_by_among_themselves_is_noise() -> None:
    waited = [1.0, 0.6, 0.8, 0.7, 0.6, 0.6, 0.7, 0.6]  # of its time; slow copies are the last four
    rows = [
        row(copy, cpu_ns=round((12 if copy in SLOW else 10) * waited[copy] * S))
        for copy in range(COPIES)
    ]
    assert measured_texts(run_of(rows)) == []


def test_copies_that_were_not_placed_as_planned_say_so() -> None:
    samples = [
        sample(copy, {copy // 4: 100}, cpus=(0,) if copy in SLOW else (copy,))
        for copy in range(COPIES)
    ]
    (only,) = measured_texts(run_of([row(copy) for copy in range(COPIES)], samples))
    assert only.startswith("not placed as planned: ")


def test_a_single_copy_is_compared_in_its_own_cell_only() -> None:
    outlier = finding(
        Kind.OUTLIER_COPY,
        copies=(5,),
        cpus=(5,),
        singles=(
            CopyEffect(
                benchmark="a", tune="base", iteration=1, copy=5, cpu=5, node=1, slowdown=1.2
            ),
        ),
    )
    rows = [row(copy, **({"major_faults": 500} if copy == 5 else {})) for copy in range(COPIES)]
    # The same copy in iteration 2 has none, and is not looked at.
    rows += [row(copy, phase=1, iteration=2) for copy in range(COPIES)]
    assert measured_texts(run_of(rows), outlier) == ["500 major page faults"]


def test_fast_copies_want_what_makes_them_fast() -> None:
    rows = [row(copy, **({} if copy in SLOW else {"major_faults": 500})) for copy in range(COPIES)]
    assert measured_texts(run_of(rows), finding(slowdown=0.8)) == [
        "0 major page faults (others 500)"
    ]
    assert measured_texts(run_of(rows), finding(slowdown=1.2)) == []


def test_a_slow_iteration_is_compared_with_the_others_copy_by_copy() -> None:
    # One CPU is always half busy with something else; in iteration 2 all have 20 % more of it.
    rows = [
        row(
            copy,
            phase=phase,
            iteration=phase + 1,
            cpu_ns=round((5 - 2 * (phase == 1)) * S if copy else 2 * S),
        )
        for phase in range(3)
        for copy in range(4)
    ]
    slow_iteration = finding(
        Kind.SLOW_ITERATION,
        copies=(0, 1, 2, 3),
        cpus=(),
        cells=(CellEffect(benchmark="a", tune="base", iteration=2, slowdown=1.2, rate_lost=0.1),),
    )
    assert measured_texts(run_of(rows), slow_iteration) == [
        "copies 1-3: was on a CPU 30 % of the time (other iterations 50 %)"
    ]


def test_two_modes_are_compared_slow_against_fast() -> None:
    times = [10.0, 12.1, 10.1, 12.0, 10.2, 12.2, 10.0, 12.0]
    rows = [
        copy_row(copy, time_s, cpu_ns=round(time_s * S), major_faults=900 if time_s > 11 else 0)
        for copy, time_s in enumerate(times)
    ]
    one = finding(Kind.BIMODAL, copies=tuple(range(8)), cpus=tuple(range(8)))
    assert measured_texts(run_of(rows), one) == ["900 major page faults"]


def test_failed_and_discarded_copies_are_left_out() -> None:
    bad = {"major_faults": 500}
    rows = [
        row(
            copy,
            **(bad if copy in SLOW else {}),
            status=CopyStatus.FAILED if copy in SLOW else CopyStatus.OK,
        )
        for copy in range(COPIES)
    ]
    assert measured_texts(run_of(rows)) == []
    assert measured_texts(run_of([row(copy, **bad, counted=False) for copy in range(COPIES)])) == []


def test_what_the_layout_explains_stays_as_it_is() -> None:
    one = finding(Kind.LAYOUT, explained=True)
    run = run_of([row(copy, major_faults=500 if copy in SLOW else 0) for copy in range(COPIES)])
    assert add_evidence([one], run) == (one,)


def test_three_are_in_the_line_and_all_in_json() -> None:
    rows = [
        row(copy, major_faults=500, involuntary_switches=2400, cpu_ns=6 * S)
        if copy in SLOW
        else row(copy)
        for copy in range(COPIES)
    ]
    readings = [
        reading(copy, user_ns=10 * S, steal_ns=S if copy in SLOW else 0) for copy in range(COPIES)
    ]
    (explained,) = add_evidence([finding()], run_of(rows, readings=readings))
    (json,) = divot_rows([explained])
    measured = json["measured"]
    assert isinstance(measured, list)
    assert {evidence["name"] for evidence in measured} == {
        "foreign",
        "on-cpu",
        "steal",
        "major-faults",
        "taken-off",
    }
    assert sum(evidence["text"] in evidence_line(explained) for evidence in measured) == 3
    assert from_json(to_json(explained)) == explained


def test_what_the_benchmarks_of_a_slow_lgroup_share_is_told() -> None:
    mib = {"a": 900, "b": 40, "c": 800, "d": 3, "e": 10, "f": 700}
    rows = [
        row(number, phase=phase, benchmark=name, max_rss_bytes=size * MIB)
        for phase, (name, size) in enumerate(mib.items())
        for number in range(COPIES)
    ]
    one = finding(benchmarks=("a", "c", "f"))
    assert measured_texts(stored(rows), one) == [
        "these use 700 MiB of memory each or more (other benchmarks at most 40 MiB)"
    ]
    assert measured_texts(stored(rows), finding(benchmarks=("a", "b", "c"))) == []  # f has as much
    assert measured_texts(stored(rows), finding(benchmarks=())) == []  # all of them


def test_what_two_of_four_benchmarks_share_may_be_chance() -> None:
    rows = [
        row(number, phase=phase, benchmark=name, max_rss_bytes=size * MIB)
        for phase, (name, size) in enumerate((("a", 900), ("b", 900), ("c", 3), ("d", 3)))
        for number in range(COPIES)
    ]
    assert measured_texts(stored(rows), finding(benchmarks=("a", "b"))) == []  # one of six ways


@pytest.mark.parametrize(
    ("kind", "place", "summary", "line"),
    [
        *(
            (kind, "whole run", "iterations 5-10: all benchmarks +10.0 %", "iterations 5-10: ")
            for kind in (Kind.STEP, Kind.WARM_UP, Kind.GRADIENT, Kind.NO_PLACE)
        ),
        (Kind.STEP, "node 1", "all benchmarks +10.0 %", "node 1: all benchmarks +10.0 %"),
    ],
)
def test_a_finding_names_a_place_only_where_it_has_one(
    kind: Kind, place: str, summary: str, line: str
) -> None:
    one = finding(kind, place=place, summary=summary)
    assert evidence_line(one).startswith(line)
    # That no place is at fault is all there is to say; of the others the cause may be looked for.
    assert ("cause not recorded" in evidence_line(one)) is (kind is not Kind.NO_PLACE)
    document = divots_document(
        [(HEAD, Analysis(findings=(one,), visible={"group": 0.01, "iteration": 0.02}))], []
    )
    validator = Draft202012Validator(json_schemas.closed(json_schemas.schema_of("divots")))
    assert list(validator.iter_errors({**document, "rater": 1})) == []

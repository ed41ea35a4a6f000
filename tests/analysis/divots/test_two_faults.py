"""Two faults at once, faults by degrees and from some iteration on, and what is no slow place."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.divot_cases import two_faults
from benchmarks.divot_cases.direct import findings_in, table_of
from rater.analysis.divots.model.finding import Finding, Kind
from tests.support.divot_runs import Machine, Times, divots, quiet
from tests.support.places import TEST_DATA, needs

TWO = Machine(2, 16)
FOUR = Machine(4, 8)
TRUTH = TEST_DATA / "cases/truth5"


def describe_sizes(times: Times, machine: Machine) -> list[tuple[Kind, str, int]]:
    """Return kind, place and size in per cent of each finding, the largest size first."""
    found = [
        (finding.kind, finding.place, round(100 * (finding.slowdown - 1)))
        for finding in divots(times, machine)
    ]
    return sorted(found, key=lambda words: -words[2])


@pytest.mark.parametrize("cpu", [4, 20])
@pytest.mark.parametrize("noise", [0.005, 0.015])
def test_a_slow_node_and_a_slow_cpu_are_two_findings_wherever_the_cpu_is(
    cpu: int, noise: float
) -> None:
    times = quiet(3, 3, 32, noise=noise)
    times[:, :, 16:] *= 1.05
    times[:, :, cpu] *= 1.2
    kinds = [(kind, place) for kind, place, _ in describe_sizes(times, TWO)]
    assert kinds == [(Kind.SLOW_CPU, f"CPU {cpu}"), (Kind.SLOW_LGROUP, "node 1")]


def test_two_nodes_of_unlike_size_are_two_findings_and_no_healthy_node_is_named() -> None:
    times = quiet(3, 3, 32)
    times[:, :, 8:16] *= 1.04
    times[:, :, 16:24] *= 1.08
    assert describe_sizes(times, FOUR) == [
        (Kind.SLOW_LGROUP, "node 2", 8),
        (Kind.SLOW_LGROUP, "node 1", 4),
    ]


def test_three_faults_at_once_are_three_findings() -> None:
    times = quiet(5, 3, 32)
    times[:, :, 8:16] *= 1.05
    times[:, :, 20] *= 1.15
    times[:, :, 12] *= 1.3
    assert [place for _, place, _ in describe_sizes(times, FOUR)] == ["CPU 12", "CPU 20", "node 1"]


def test_unlike_cpus_of_one_core_are_named_beside_a_third_fault() -> None:
    times = quiet(4, 3, 32, noise=0.005)
    times[:, :, 0] *= 1.13
    times[:, :, 1] *= 1.27
    times[:, :, 8:12] *= 1.05
    machine = Machine(16, 2)  # a node of two copies, which differ
    found = {finding.copies: finding.slowdown for finding in divots(times, machine)}
    assert found[(1,)] == pytest.approx(1.27, abs=0.02)
    assert found[(0,)] == pytest.approx(1.13, abs=0.02)


def test_a_node_and_a_cluster_of_another_one_that_are_as_slow_are_two_findings() -> None:
    times = quiet(4, 3, 64, noise=0.005)
    times[:, :, 38:43] *= 1.05
    times[:, :, 48:] *= 1.05
    found = {finding.copies for finding in divots(times, Machine(4, 16))}
    assert found == {tuple(range(38, 43)), tuple(range(48, 64))}


def test_two_slow_nodes_of_four_are_no_gradient_over_the_copies() -> None:
    times = quiet(4, 3, 16, noise=0.01)
    times[:, :, :4] *= 1.105
    times[:, :, 4:8] *= 1.05
    assert [place for _, place, _ in describe_sizes(times, Machine(4, 4))] == ["node 0", "node 1"]


@pytest.mark.parametrize("first", [5, 13, 16, 27])
def test_a_cluster_that_no_description_knows_takes_no_healthy_neighbours_along(first: int) -> None:
    times = quiet(5, 3, 32, noise=0.005)
    times[:, :, first : first + 4] *= 1.033
    [found] = divots(times, TWO)
    assert found.copies == tuple(range(first, first + 4))


def test_a_node_that_is_slow_by_degrees_is_told_from_both_sides() -> None:
    times = quiet(8, 3, 32, noise=0.015, seed=4)
    times[:, :, 16:] *= np.linspace(1, 1.04, 8)[:, None, None]
    [found] = divots(times, TWO)
    assert (found.kind, found.place) == (Kind.SLOW_LGROUP, "node 1")


def test_no_finding_vanishes_where_a_further_benchmark_shows_it() -> None:
    """Over random runs: a node is slow in one benchmark, then in more of them by some more."""
    vanished = []
    for seed in range(25):
        random = np.random.default_rng(seed)
        benchmarks, machine = int(random.integers(2, 9)), [TWO, FOUR][seed % 2]
        times = quiet(benchmarks, 3, 32, noise=0.01, seed=seed)
        node = np.s_[machine.copies - machine.per_node :]
        times[0, :, node] *= 1 + random.uniform(0.02, 0.05)
        more = times.copy()
        for benchmark in range(1, 1 + int(random.integers(1, benchmarks))):
            more[benchmark, :, node] *= 1 + random.uniform(0.002, 0.04)
        copies = tuple(range(machine.copies - machine.per_node, machine.copies))
        one, several = ({found.copies for found in divots(it, machine)} for it in (times, more))
        vanished += [seed] if copies in one - several else []
    assert vanished == []


THROTTLED = 1 + 0.025 * (np.arange(10) >= 5)
HEATING = 1 + 0.04 * np.arange(10) / 9
WINDOW = 1 + 0.03 * ((np.arange(10) >= 3) & (np.arange(10) < 6))


@pytest.mark.parametrize(
    ("sizes", "iterations"),
    [(THROTTLED, range(6, 11)), (WINDOW, range(4, 7)), (HEATING, range(2, 11))],
)
def test_a_package_that_changes_in_the_course_of_a_run_is_named_and_not_the_machine(
    sizes: Times, iterations: range
) -> None:
    times = quiet(3, 10, 32, noise=0.006)
    times *= np.exp(0.003 * np.random.default_rng(2).standard_normal((3, 10, 1)))
    times[:, :, 16:] *= sizes[:, None]
    [found] = divots(times, TWO)
    assert found.place == "node 1"
    assert len(set(found.iterations) ^ set(iterations)) <= 2


def test_two_nodes_that_change_at_times_of_their_own_are_both_named() -> None:
    times = quiet(3, 10, 64, noise=0.005)
    times[:, 3:, :16] *= 1.04
    times[:, 7:, 48:] *= 1.04
    found = {finding.place: finding.iterations for finding in divots(times, Machine(4, 16))}
    assert found == {"node 0": tuple(range(4, 11)), "node 3": (8, 9, 10)}


@pytest.mark.parametrize(("iterations", "since"), [(10, 6), (6, 4)])
def test_a_slow_iteration_does_not_hide_a_step_of_all_copies(iterations: int, since: int) -> None:
    times = quiet(4, iterations, 32, noise=0.005)
    times[:, 1] *= 1.06
    times[:, since - 1 :] *= 1.06
    found = {finding.kind: finding.iterations for finding in divots(times, FOUR)}
    assert found == {
        Kind.STEP: tuple(range(since, iterations + 1)),
        Kind.SLOW_ITERATION: (2,),
    }


def test_what_all_copies_share_is_no_change_of_a_part() -> None:
    times = quiet(3, 10, 32)
    times[:, 5:] *= 1.05
    assert [finding.kind for finding in divots(times, TWO)] == [Kind.STEP]


def test_nodes_that_take_turns_are_one_finding_though_a_few_copies_are_lucky() -> None:
    times = quiet(3, 6, 64, noise=0.005)
    for iteration, node in enumerate((1, 3, 0, 3, 2, 1)):
        times[1, iteration, 16 * node + 1 : 16 * node + 16] *= 1.04  # but for its first copy
    [found] = divots(times, Machine(4, 16))
    assert (found.kind, found.benchmark) == (Kind.WANDERING, "b1")
    assert "iteration 1: node 1 +" in found.summary
    assert "iteration 3: node 0 +" in found.summary


def test_what_makes_a_cpu_unsteady_is_said_with_its_size() -> None:
    times = quiet(5, 5, 32, noise=0.005)
    times[:, :, 9] *= np.exp(0.03 * np.random.default_rng(7).standard_normal((5, 5)))
    [found] = divots(times, TWO)
    assert (found.kind, found.place, found.copies) == (Kind.UNSTEADY, "CPU 9", (9,))
    assert "times as much as those of other copies, about the same mean" in found.summary


def test_an_unsteady_cpu_is_not_called_slow() -> None:
    told_as: list[set[Kind]] = []
    for seed in range(8):
        times = quiet(5, 5, 32, noise=0.005, seed=seed)
        extra = np.random.default_rng(100 + seed).standard_normal((5, 5))
        times[:, :, 9] *= np.exp(0.025 * (extra - extra.mean()))
        found = divots(times, TWO)
        assert {finding.place for finding in found} <= {"CPU 9"}
        told_as.append({finding.kind for finding in found})
    assert not any(Kind.SLOW_CPU in kinds for kinds in told_as)
    assert sum(Kind.UNSTEADY in kinds for kinds in told_as) >= 6


def test_an_unsteady_cpu_that_is_slow_as_well_is_told_twice() -> None:
    times = quiet(8, 8, 32, noise=0.003)
    extra = np.random.default_rng(3).standard_normal((8, 8))
    times[:, :, 9] *= 1.15 * np.exp(0.02 * extra)
    kinds = {finding.kind: finding.copies for finding in divots(times, TWO)}
    assert kinds == {Kind.SLOW_CPU: (9,), Kind.UNSTEADY: (9,)}


@pytest.mark.parametrize("size", [0.978, 0.985])
def test_a_first_iteration_that_is_fast_by_less_than_twice_the_floor_is_none(size: float) -> None:
    times = quiet(3, 3, 32)
    times[:, 0] *= size
    assert divots(times, TWO) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_node_below_its_limit_is_no_gradient(seed: int) -> None:
    times = quiet(5, 3, 32, noise=0.01, seed=seed)
    times[:, :, 16:] *= 1.012
    assert Kind.GRADIENT not in {finding.kind for finding in divots(times, TWO)}


@pytest.mark.parametrize("kind", [*two_faults.KINDS])
def test_made_runs_of_each_kind_are_told_right(kind: str) -> None:
    answers = []
    for nodes, noise in ((2, 0.005), (4, 0.015), (8, 0.005)):
        made = two_faults.make(kind, "tests", 0, nodes, noise)
        answers.append(two_faults.verdict(made, two_faults.findings_of(made)))
    hard = kind in ("small node", "two parts from k on", "nodes in turn")
    assert kind == "nodes in turn" or "wrong" not in answers
    assert hard or answers == ["right"] * 3


def places_of(findings: list[Finding]) -> set[str]:
    return {finding.place for finding in findings if finding.has_place}


@needs(TRUTH)
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("two-faults-two-nodes", {"node 1", "CPU 4"}),
        ("two-unlike-nodes", {"node 1", "node 2"}),
        ("node-graded-not-told", {"node 1"}),
        ("node-one-benchmark-told", {"node 1"}),
        ("package-throttles-2pc", {"node 1"}),
        ("cluster-of-four", {"CPUs 16-19 of node 1"}),
    ],
)
def test_the_shared_cases_of_two_faults_are_told_right(name: str, right: set[str]) -> None:
    document: dict[str, Any] = json.loads((TRUTH / f"{name}.json").read_text())
    assert places_of(list(findings_in(table_of(document)))) == right

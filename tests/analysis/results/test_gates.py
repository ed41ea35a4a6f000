"""A gate passes where its limit is excluded, fails where it is found, and else gives 3."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.gate import judge_comparison
from rater.analysis.divots.gate import GateLimit, JudgedRun, judge_run
from rater.analysis.divots.model.finding import Analysis, Kind
from rater.analysis.results.gates import GateVerdict, gate_status, repeats_needed
from tests.support.compared_runs import brackets, point
from tests.support.example_findings import finding_of
from tests.support.example_runs import HEAD

HEALTHY = Analysis(findings=(), visible={"group": 0.02, "cpu": 0.05, "copy": 0.3})


def of_run(
    limit: str, least: float = 0.0, nodes: int | None = 4, **changes: Any
) -> list[GateVerdict]:
    head = replace(HEAD, run=7, iterations=5, discard=0)
    run = JudgedRun(head=head, analysis=replace(HEALTHY, **changes), nodes=nodes)
    return [*judge_run(run, [GateLimit(limit, least)])]


@pytest.mark.parametrize(
    ("limit", "least", "status"),
    [
        ("slow-lgroup", 0.02, 0),
        ("slow-lgroup", 0.019, 3),
        ("slow-cpu", 0.05, 0),
        ("slow-cpu", 0.04, 3),
        ("outlier-copy", 0.25, 3),
        ("outlier-copy", 0.31, 0),
        ("slow-lgroup", 0.0, 0),  # without a limit: nothing large
        ("slow-iteration", 0.5, 3),  # nothing is known of iterations
        ("any", 0.05, 3),  # of iterations neither
    ],
)
def test_a_run_passes_where_it_could_have_shown_what_was_asked(
    limit: str, least: float, status: int
) -> None:
    assert gate_status(of_run(limit, least)) == status


def test_what_hides_the_asked_size_is_told_with_a_way_out() -> None:
    (verdict,) = of_run("slow-cpu", 0.025)
    assert verdict.reason == (
        "run 7: 2.5 % was asked of a CPU, 5.0 % can be seen: about 15 more iterations would show it"
    )
    (verdict,) = of_run("slow-cpu", 0.025, visible={})
    assert verdict.reason == "run 7: 2.5 % was asked of a CPU, noise hides all"


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (0, "no node is known: a node has nothing to be compared with"),
        (1, "its copies ran on one node: a node has nothing to be compared with"),
    ],
)
def test_a_gate_for_a_place_that_a_run_does_not_have_is_open(nodes: int, why: str) -> None:
    (verdict,) = of_run("slow-lgroup", 0.5, nodes, visible={"cpu": 0.02})
    assert (gate_status([verdict]), verdict.reason) == (3, f"run 7: {why}")


@pytest.mark.parametrize(("limit", "nodes", "cpus"), [("slow-lgroup", 1, 8), ("slow-cpu", 4, 0)])
def test_what_shows_of_other_places_excludes_no_place_that_a_run_does_not_have(
    limit: str, nodes: int, cpus: int
) -> None:
    # The group that shows 2 % is a last-level cache, the CPU a copy that is bound to none.
    run = JudgedRun(head=HEAD, analysis=HEALTHY, nodes=nodes, cpus=cpus)
    assert gate_status([*judge_run(run, [GateLimit(limit, 0.5)])]) == 3


def test_what_is_found_fails_and_what_load_explains_is_open() -> None:
    slow = replace(finding_of(Kind.SLOW_CPU, "CPU 2", (2,)), slowdown=1.08, cells=())
    assert gate_status(of_run("slow-cpu", 0.05, findings=(slow,))) == 1
    assert gate_status(of_run("slow-cpu", 0.1, findings=(slow,))) == 0
    explained = replace(slow, explained=True, by_cpu=True, expectation="others had it")
    verdicts = of_run("slow-cpu", 0.05, findings=(explained,))
    assert (gate_status(verdicts), verdicts[0].reason) == (3, "run 7: CPU 2: others had it")
    of_layout = replace(slow, explained=True, expectation="no more than the layout explains")
    assert gate_status(of_run("slow-cpu", 0.05, findings=(of_layout,))) == 0


def test_a_finding_whose_true_size_may_reach_the_limit_does_not_pass() -> None:
    slow = replace(finding_of(Kind.SLOW_CPU, "CPU 2", (2,)), slowdown=1.0498, cells=())
    near, beyond = of_run("slow-cpu", 0.05, findings=(slow,))
    assert near.reason == "run 7: CPU 2: 5.0 % was found, 6.7 % is possible, 5.0 % was asked"
    assert (gate_status([near]), gate_status([beyond])) == (3, 0)
    assert gate_status(of_run("slow-cpu", 0.07, findings=(slow,))) == 0


def test_any_asks_for_a_copy_of_one_iteration_too() -> None:
    seen = {"group": 0.02, "cpu": 0.05, "iteration": 0.05}
    [verdict] = [it for it in of_run("any", 0.1, visible=seen | {"copy": 0.588}) if it.reason]
    assert verdict.reason == (
        "run 7: 10.0 % was asked of a copy in one iteration, 58.8 % can be seen"
    )
    assert gate_status(of_run("any", 0.1, visible=seen | {"copy": 0.09})) == 0


def test_a_kind_that_a_run_cannot_have_is_no_passed_gate() -> None:
    one = replace(HEAD, iterations=1, discard=0)
    nothing_known = JudgedRun(head=one, analysis=HEALTHY, nodes=4, has_starts=False)
    for kind in ("startup", "wandering", "once", "recurring"):
        assert gate_status([*judge_run(nothing_known, [GateLimit(kind, 0.5)])]) == 3
    with_others = replace(nothing_known, is_alone=False)
    for kind in ("once", "recurring"):
        assert [*judge_run(with_others, [GateLimit(kind, 0.5)])] == []


def test_a_disturbed_run_is_open_whatever_was_found_in_it() -> None:
    slow = replace(finding_of(Kind.SLOW_CPU, "CPU 2", (2,)), slowdown=1.5, cells=())
    verdicts = of_run("slow-cpu", 0.05, findings=(slow,), others_cost=0.4)
    assert gate_status(verdicts) == 3
    assert verdicts[0].reason.startswith("run 7 cannot be judged: other processes")


STEADY = [10.0, 10.02, 9.99, 10.01, 10.0, 9.98, 10.01, 10.0]
LOUD = [10.0, 10.5, 9.6, 10.3, 9.8, 10.4, 9.7, 10.1]


@pytest.mark.parametrize(
    ("times", "slower", "least", "status"),
    [
        (STEADY, 1.0, 0.02, 0),
        (STEADY, 1.05, 0.02, 1),
        (STEADY, 1.015, 0.02, 0),  # worse, but by less than was asked
        (LOUD, 1.0, 0.02, 3),
        (LOUD, 1.0, 0.2, 0),
        (STEADY, 1.0, 0.0, 0),  # same within 1 %
        (LOUD, 1.0, 0.0, 3),
        ([10.0], 1.0, 0.02, 3),
    ],
)
def test_a_comparison_passes_where_the_interval_excludes_what_was_asked(
    times: list[float], slower: float, least: float, status: int
) -> None:
    base = point("old", *brackets(1, times))
    new = point("new", *brackets(20, [time_s * slower for time_s in [*times[1:], times[0]]]))
    verdicts = [*judge_comparison(compare([base, new]), least)]
    assert gate_status(verdicts) == status


@pytest.mark.parametrize(("least", "status"), [(0.02, 3), (0.2, 0)])
def test_no_gate_passes_by_luck_of_rounds_that_depend_on_each_other(
    least: float, status: int
) -> None:
    """Two states of a machine: the interval of 0.986 to 1.21 excludes 2 % by its ratio alone."""
    base = point("old", *brackets(1, [10.3, 10.4, 10.3, 10.4, 11.5, 11.6, 11.5, 11.6]))
    new = point("new", *brackets(20, [10.0] * 8))
    verdicts = [*judge_comparison(compare([base, new]), least)]
    assert gate_status(verdicts) == status
    if status == 3:
        assert verdicts[0].reason.endswith(": inconclusive: rounds not independent")


def test_repeats_follow_the_square_of_what_is_asked() -> None:
    assert repeats_needed(6, 0.04, 0.02) == 24
    assert repeats_needed(6, 0.02, 0.04) is None  # so many are there
    assert repeats_needed(6, 0.5, 0.001) is None  # no way out

"""What is to be done next for a fleet."""

from __future__ import annotations

import pytest

from rater.fleet.plan import (
    LIVE,
    AttemptState,
    Ending,
    FleetRules,
    NodeAttempt,
    deciding_attempt,
    due_actions,
    is_settled,
)

NODES = ("n1", "n2", "n3")


def tried(node: str, *states: str) -> tuple[NodeAttempt, ...]:
    return tuple(
        NodeAttempt(node, number, AttemptState(state), 0.0)
        for number, state in enumerate(states, 1)
    )


def wanted(
    rules: FleetRules, attempts: dict[str, tuple[NodeAttempt, ...]], **more: set[str]
) -> list[tuple[str, int]]:
    return list(due_actions(rules, NODES, attempts, **more).submit)


def test_every_node_is_tried_once_at_first_and_idle_ones_come_before_busy_ones() -> None:
    assert wanted(FleetRules(2, None), {}) == [("n1", 1), ("n2", 1), ("n3", 1)]
    assert wanted(FleetRules(2, None), {}, idle={"n3"}) == [("n3", 1), ("n1", 1), ("n2", 1)]


def test_there_are_never_more_jobs_than_were_asked_for() -> None:
    assert wanted(FleetRules(2, 2), {}) == [("n1", 1), ("n2", 1)]
    running = {"n1": tried("n1", "running"), "n2": tried("n2", "complete")}
    assert wanted(FleetRules(2, 2), running) == [("n3", 1)]
    assert wanted(FleetRules(2, 1), running) == []


@pytest.mark.parametrize("state", list(AttemptState))
def test_only_what_another_attempt_may_mend_is_tried_again(state: AttemptState) -> None:
    again = {"lost", "timeout", "never", "partial"}
    attempts = {
        "n1": tried("n1", state),
        "n2": tried("n2", "complete"),
        "n3": tried("n3", "failed"),
    }
    assert wanted(FleetRules(2, None), attempts) == ([("n1", 2)] if state in again else [])
    assert wanted(FleetRules(1, None), attempts) == []


def test_nodes_not_tried_yet_come_before_second_attempts() -> None:
    attempts = {"n1": tried("n1", "lost"), "n2": tried("n2", "complete")}
    assert wanted(FleetRules(3, 1), attempts) == [("n3", 1)]


def test_a_named_node_is_tried_again_whatever_became_of_it() -> None:
    attempts = {node: tried(node, "refused") for node in NODES}
    assert wanted(FleetRules(1, None), attempts, again={"n2"}) == [("n2", 2)]
    attempts["n2"] = tried("n2", "running")
    assert wanted(FleetRules(1, None), attempts, again={"n2"}) == []


def test_a_cancelled_fleet_submits_nothing_and_ends_its_jobs() -> None:
    attempts = {"n1": tried("n1", "running"), "n2": tried("n2", "lost")}
    found = due_actions(FleetRules(3, None, is_cancelled=True), NODES, attempts)
    assert found.submit == ()
    assert found.end == ((attempts["n1"][0], Ending.CANCELLED),)


def test_an_attempt_is_ended_when_one_before_it_turns_out_to_be_complete() -> None:
    attempts = {"n1": tried("n1", "complete", "pending")}
    assert due_actions(FleetRules(3, None), ("n1",), attempts).end == (
        (attempts["n1"][1], Ending.NOT_NEEDED),
    )
    assert deciding_attempt(attempts["n1"]).attempt == 1


@pytest.mark.parametrize("state", LIVE)
def test_a_fleet_with_a_job_is_not_at_its_end(state: AttemptState) -> None:
    others = [tried("n2", "complete"), tried("n3", "refused")]
    assert not is_settled(FleetRules(1, None), [tried("n1", state), *others])
    assert not is_settled(FleetRules(1, None, is_cancelled=True), [tried("n1", state)])


def test_a_fleet_is_at_its_end_when_nothing_is_left_to_do() -> None:
    rules = FleetRules(2, None)
    assert is_settled(rules, [tried("n1", "lost", "complete"), tried("n2", "lost", "lost")])
    assert not is_settled(rules, [tried("n1", "lost"), tried("n2", "complete")])
    assert not is_settled(rules, [()])
    assert is_settled(FleetRules(2, None, is_cancelled=True), [(), tried("n1", "lost")])

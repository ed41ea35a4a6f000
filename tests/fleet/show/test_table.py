"""A fleet as it is shown: what wants attention first, and no more rows than one reads."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from rater.fleet.plan import AttemptState, NodeAttempt, NodeVerdict, VerdictStatus
from rater.fleet.table import FleetView, NodeView, fleet_document, print_fleet, what_text
from rater.show.console import Printer

VERDICT = NodeVerdict(
    *(1, "f", "n", 1, "17", VerdictStatus.PARTIAL, None, "USR1", "n.db", "ab", 9, "u", 12, 16),
    *("2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z", {}),
)


def node(name: str, state: str, reason: str | None = None, attempt: int = 1) -> NodeView:
    it = NodeAttempt(name, attempt, AttemptState(state), 0.0, reason=reason, job="17")
    return NodeView(name, it, (it,))


def view(*nodes: NodeView, silent: str | None = None) -> FleetView:
    return FleetView(3, "u", "t", "slurm", "/f", "mini", "running", silent, nodes)


def printed(it: FleetView) -> list[str]:
    console = Console(file=StringIO(), width=80)
    print_fleet(it, Printer(console))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_what_wants_attention_comes_first_and_each_node_has_its_reason() -> None:
    waiting = NodeView("n4", None, ())
    lost = node("n3", "lost", "the node failed (NODE_FAIL)")
    assert printed(view(node("n1", "complete"), node("n2", "running"), lost, waiting)) == [
        "Fleet 3: mini, 4 nodes: 1 running, 1 complete, 1 lost, 1 waiting",
        "node  state     try  job  copies  why",
        "n3    lost        1   17       -  the node failed (NODE_FAIL)",
        "n2    running     1   17       -  -",
        "n4    waiting     -    -       -  -",
        "n1    complete    1   17       -  -",
    ]


def test_a_second_attempt_tells_why_there_was_a_first_one_and_copies_are_told_once() -> None:
    late = node("n1", "timeout", "the time limit was near; 12 of 16 copies")
    assert late.stands is not None
    part = replace(late.stands, verdict=VERDICT)
    again = replace(part, attempt=2, state=AttemptState.COMPLETE, reason=None)
    lines = printed(view(NodeView("n1", again, (part, again)), NodeView("n2", part, (part,))))
    assert lines[2:] == [
        "n2    timeout     1   17   12/16  the time limit was near",
        "n1    complete    2   17   12/16  attempt 1 timeout: the time limit was near",
    ]


def test_many_nodes_take_a_line_for_all_that_are_complete() -> None:
    nodes = [node(f"n{n:03}", "complete") for n in range(1, 129)]
    nodes[6] = node("n007", "refused", "another rater")
    assert printed(view(*nodes))[-2:] == [
        "n007  refused    1   17       -  another rater",
        "127 more nodes complete: n[001-006,008-128]",
    ]


def test_a_silent_scheduler_is_told_before_the_nodes() -> None:
    [_, said, *_] = printed(view(node("n1", "running"), silent="timed out"))
    assert said == "the scheduler gave no answer, nothing is concluded: timed out"


def test_a_fleet_is_a_document() -> None:
    document = fleet_document(view(node("n1", "lost", "power"), NodeView("n2", None, ())))
    assert document["counts"] == {"lost": 1, "waiting": 1}
    assert document["nodes"] == [
        {
            "node": "n1",
            "state": "lost",
            "reason": "power",
            "run": None,
            "attempts": [
                {
                    "attempt": 1,
                    "state": "lost",
                    "reason": "power",
                    "job": "17",
                    "copies_done": None,
                    "copies_planned": None,
                    "database": None,
                    "collected": False,
                    "notes": [],
                    "host": {},
                }
            ],
        },
        {"node": "n2", "state": "waiting", "reason": None, "run": None, "attempts": []},
    ]


def test_what_is_measured_is_the_command_or_the_suites() -> None:
    assert what_text(("mini", "--copies=4"), None) == "mini"
    assert what_text(("--copies=4",), None) == "mini"
    assert what_text((), ("./my bench", "-x")) == "'./my bench' -x"

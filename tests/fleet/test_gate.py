"""The gate of a fleet passes where a host so slow is excluded, and is not passed blind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.divots.gate import GateLimit
from rater.analysis.results.gates import GateAnswer, GateVerdict, gate_status
from rater.fleet.gate import judge_fleet
from rater.fleet.hosts import (
    FleetComparison,
    KindComparison,
    PossibleSlowdown,
    SlowBenchmark,
    SlowHost,
)
from rater.fleet.show import MissingHost
from tests.support.fleets import indexed_run

HOSTS = ("n1", "n2", "n3", "n4")
KIND = KindComparison(
    kind=indexed_run("n1"),
    apart=(),
    hosts=HOSTS,
    slowdowns={},
    slow=(),
    visible_whole=0.02,
    visible_one=0.05,
    quiet=(),
    odd_settings={},
    iterations=3,
)
SLOW = SlowHost(
    host="n3",
    attempt=1,
    slowdown=1.04,
    typical_copy=1.04,
    alike=2,
    of=2,
    benchmarks=(SlowBenchmark("lu", 1.08, 1.08),),
    by_chance=0.0,
    odd_settings=(),
)
GONE = MissingHost(host="n5", state="lost", reason="node failed", attempts=1, has_times=False)


def verdicts(
    kind: str = "slow-host",
    least: float = 0.05,
    *missing: MissingHost,
    failed: tuple[str, ...] = (),
    **changes: Any,
) -> list[GateVerdict]:
    comparison = FleetComparison((replace(KIND, **changes),), ())
    return [*judge_fleet(comparison, missing, failed, [GateLimit(kind, least)])]


@pytest.mark.parametrize(
    ("kind", "least", "status"),
    [
        ("slow-host", 0.05, 0),
        ("any", 0.05, 0),
        ("slow-host", 0.04, 3),  # in one benchmark it would hide
        ("slow-throughout", 0.02, 0),
        ("slow-throughout", 0.019, 3),
        ("slow-host", 0.0, 0),  # without a limit: nothing large
    ],
)
def test_a_fleet_passes_where_it_could_have_shown_what_was_asked(
    kind: str, least: float, status: int
) -> None:
    assert gate_status(verdicts(kind, least)) == status


def test_what_hides_the_asked_size_is_told_with_ways_out() -> None:
    hidden = [it.reason for it in verdicts("slow-host", 0.04) if it.reason]
    assert hidden == [
        "4.0 % was asked of a host in one benchmark, 5.0 % can be seen: about 2 more iterations "
        "would show it; slow-throughout:4.0% asks of all benchmarks"
    ]


def test_what_is_never_called_slow_is_told_and_no_number_of_iterations() -> None:
    visible: dict[str, Any] = {"visible_whole": 0.031, "visible_one": 0.031}
    visible["slowdowns"] = {"n1": {"lu": 1.0}}
    for kind in ("slow-host", "slow-throughout"):
        (reason, *_) = [it.reason for it in verdicts(kind, 0.02, **visible) if it.reason]
        assert reason.endswith("3.1 % can be seen: less than 3.0 % is never called slow")


@pytest.mark.parametrize(
    ("kind", "least", "status"),
    [
        ("slow-host", 0.07, 1),
        ("slow-host", 0.09, 0),
        ("slow-throughout", 0.04, 1),
        ("slow-throughout", 0.05, 0),
        ("slow-host", 0.0, 1),
    ],
)
def test_a_slow_host_is_found_from_its_size_on(kind: str, least: float, status: int) -> None:
    assert gate_status(verdicts(kind, least, slow=(SLOW,))) == status


def test_a_host_whose_size_may_be_what_was_asked_is_not_excluded() -> None:
    near = PossibleSlowdown(host="n2", benchmark="lu", slowdown=1.046, most=1.061)
    found = verdicts("slow-host", 0.05, possible=(near,))
    assert gate_status(found) == 3
    assert found[-1].reason == "n2: lu +4.6 %, +6.1 % possible, 5.0 % was asked"
    assert gate_status(verdicts("slow-throughout", 0.05, possible=(near,))) == 0
    assert gate_status(verdicts("slow-host", 0.07, possible=(near,))) == 0


def test_a_missing_host_keeps_a_gate_open_and_one_whose_every_copy_failed_fails_it() -> None:
    assert gate_status(verdicts("slow-host", 0.05, GONE)) == 3
    broken = replace(GONE, state="failed", reason="6 of 6 copy runs failed")
    found = verdicts("slow-host", 0.001, broken, failed=("n5",), visible_whole=None)
    assert gate_status(found) == 1
    assert found[0] == GateVerdict(answer=GateAnswer.FOUND, reason="every copy failed on n5")
    assert gate_status(verdicts("slow-host", 0.05, broken)) == 3  # a part of its copies


def test_hosts_that_cannot_be_compared_keep_a_gate_open_and_those_held_beside_others_do_not() -> (
    None
):
    assert gate_status(verdicts(hosts=("n1", "n2"))) == 3
    assert gate_status(verdicts(hosts=("n1", "n2"), beside=())) == 0
    assert gate_status(verdicts(disturbed=HOSTS)) == 3

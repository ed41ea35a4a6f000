"""Slow hosts run again beside quiet ones: who beside whom, and what the pairs say."""

from __future__ import annotations

import pytest

from rater.analysis.divots.confirm import ConfirmVerdict
from rater.fleet.history import HostPair, Suspect, judge_suspect, pair_slowdown, pairs_of
from rater.fleet.model import (
    FleetComparison,
    HostKind,
    HostResult,
    KindComparison,
    SlowBenchmark,
    SlowHost,
)

KIND = HostKind("CPU 9000", "0x1", 64 << 30, "6.1", 4, 4, "mini")
N1 = Suspect("n1", (), 1.05)


def slow(host: str, whole: float, *benchmarks: tuple[str, float]) -> SlowHost:
    each = tuple(SlowBenchmark(name, size, size) for name, size in benchmarks)
    return SlowHost(host, 1, whole, whole, 2, 2, each, 1e-6, ())


def fleet(slow_hosts: list[SlowHost], quiet: list[str]) -> FleetComparison:
    hosts = tuple([it.host for it in slow_hosts] + quiet)
    kind = KindComparison(KIND, (), hosts, ("lu", "vm"), {}, tuple(slow_hosts), 0.0, 0.0,
                        tuple(quiet), {})  # fmt: skip
    return FleetComparison((kind,), ())


def result(host: str, lu: float, vm: float) -> HostResult:
    times: dict[str, tuple[float, ...]] = {"lu": (lu, lu * 1.01, lu), "vm": (vm, vm, vm * 1.01)}
    return HostResult(host, 1, 1, KIND, {}, times, times)


def names(found: FleetComparison, chosen: list[str], rounds: int) -> list[list[str]]:
    made = pairs_of(found, chosen, rounds)
    return [[f"{it.suspect.host}/{it.quiet}" for it in turn] for turn in made]


def test_each_round_has_other_quiet_hosts_the_quietest_first() -> None:
    two = [slow("n1", 1.05), slow("n2", 1.0, ("lu", 1.1))]
    assert names(fleet(two, [f"q{it}" for it in range(1, 8)]), ["n1", "n2"], 3) == [
        ["n1/q1", "n2/q2"],
        ["n1/q3", "n2/q4"],
        ["n1/q5", "n2/q6"],
    ]
    assert names(fleet(two, ["q1", "q2", "q3"]), ["n2"], 2) == [["n2/q1"], ["n2/q2"]]


def test_more_suspects_than_quiet_hosts_share_them() -> None:
    many = [slow(f"n{it}", 1.05) for it in range(1, 5)]
    assert names(fleet(many, ["q1", "q2"]), ["n1", "n2", "n3", "n4"], 2) == [
        ["n1/q1", "n2/q2", "n3/q1", "n4/q2"],
        ["n1/q2", "n2/q1", "n3/q2", "n4/q1"],
    ]


def test_a_pair_is_of_what_was_slow() -> None:
    results = {"n1": result("n1", 11.0, 20.0), "q1": result("q1", 10.0, 20.0)}
    only_lu = HostPair(Suspect("n1", ("lu",), 1.1), "q1")
    assert pair_slowdown(only_lu, results) == pytest.approx(1.1)
    assert pair_slowdown(HostPair(N1, "q1"), results) == pytest.approx(1.1**0.5)
    assert pair_slowdown(HostPair(N1, "gone"), results) is None


@pytest.mark.parametrize(
    ("again", "answer"),
    [
        ([1.05, 1.049, 1.051], ConfirmVerdict.CONFIRMED),
        ([1.001, 0.999, 1.0], ConfirmVerdict.NOT_CONFIRMED),
        ([1.02, 1.019, 1.021], ConfirmVerdict.SMALLER),
        ([1.1, 0.98, 1.05], ConfirmVerdict.OPEN),
    ],
)
def test_three_rounds_say_whether_a_host_is_slow_again(
    again: list[float], answer: ConfirmVerdict
) -> None:
    quiet = ["q1", "q2", "q3"]
    rounds = [
        ([HostPair(N1, q)], {"n1": result("n1", 10 * x, 20 * x), q: result(q, 10.0, 20.0)})
        for q, x in zip(quiet, again, strict=True)
    ]
    told = judge_suspect(N1, rounds)
    assert told is not None
    assert told.answer is answer


def test_one_round_alone_says_nothing() -> None:
    one = ([HostPair(N1, "q1")], {"n1": result("n1", 11, 22), "q1": result("q1", 10, 20)})
    assert judge_suspect(N1, [one, ([HostPair(N1, "q2")], {})]) is None

"""Hosts of a fleet, kind by kind: which are compared, what is odd about a slow one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rater.fleet.hosts import compare_fleet, results_of
from rater.fleet.model import FleetComparison, OddSetting
from rater.fleet.record import HostTimes, IndexedRun, latest
from rater.record.run import RunStatus

SETTINGS = {1: {"cpu.governor": "performance", "load.1min": "0.1"}}


def run(host: str, **other: Any) -> IndexedRun:
    made = IndexedRun(
        fleet=1, host=host, attempt=1, run=1, uuid=host, hostname=host, machine_id_hash=None,
        status=RunStatus.COMPLETE, reason=None, started_at=None, suite="mini", size="ref",
        tune="base", mode="homogeneous", copies=4, cpu_model="CPU 9000", microcode="0x1",
        memory_bytes=64 << 30, kernel="6.1", cpus=4, setting=1, copy_runs=8, failed=0,
        sha256="", bytes=1,
    )  # fmt: skip
    return replace(made, **other)


def times(host: str, slow: float = 1.0, copy: float | None = None, **other: Any) -> list[HostTimes]:
    """Two benchmarks of three iterations; hosts are a little apart."""
    little = 1 + 0.0004 * (sum(map(ord, host)) % 5)
    found = []
    for name, seconds in (("lu", 10.0), ("vm", 20.0)):
        bracket = tuple(seconds * slow * little * (1 + 0.001 * i) for i in range(3))
        median = tuple(0.98 * it / slow * (copy or slow) for it in bracket)
        found.append(HostTimes(host, 1, 1, name, bracket, median))
    return [replace(it, **other) for it in found]


def compared(
    runs: list[IndexedRun], rows: list[list[HostTimes]], settings: Any = SETTINGS
) -> FleetComparison:
    return compare_fleet(results_of(runs, [it for row in rows for it in row], settings))


def test_the_slow_host_is_named_with_what_is_set_otherwise_there() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    runs = [run(host, setting=2 if host == "n4" else 1) for host in hosts]
    settings = SETTINGS | {2: {"cpu.governor": "powersave", "load.1min": "9.9"}}
    found = compared(runs, [times(h, 1.06 if h == "n4" else 1.0) for h in hosts], settings)
    (slow,) = found.slow
    assert (slow.host, slow.alike, slow.of, slow.benchmarks) == ("n4", 2, 2, ())
    assert slow.slowdown == pytest.approx(1.06, abs=0.003)
    assert slow.odd_settings == (OddSetting("cpu.governor", "powersave", "performance"),)
    (kind,) = found.kinds
    assert kind.hosts[0] == "n4"
    assert "n4" not in kind.quiet
    assert sorted([*kind.quiet, "n4"]) == hosts


def test_a_host_whose_median_copy_is_level_is_slow_in_a_part() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    rows = [times(h, 1.06, copy=1.0) if h == "n4" else times(h) for h in hosts]
    (slow,) = compared([run(host) for host in hosts], rows).slow
    assert slow.slowdown == pytest.approx(1.06, abs=0.003)
    assert slow.typical_copy == pytest.approx(1.0, abs=0.003)


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        ({"microcode": "0x2"}, "microcode 0x2"),
        ({"kernel": "6.2"}, "kernel 6.2"),
        ({"cpu_model": "CPU 10"}, "CPU CPU 10"),
        ({"memory_bytes": 32 << 30}, "memory 32 GiB"),
        ({"cpus": 3}, "3 usable CPUs"),
        ({"copies": 3}, "3 copies"),
    ],
)
def test_hosts_of_another_kind_stand_apart_and_are_not_called_slow(
    other: dict[str, Any], apart: str
) -> None:
    hosts = [f"n{number}" for number in range(1, 8)]
    runs = [run(host, **(other if host == "n7" else {})) for host in hosts]
    found = compared(runs, [times(h, 1.5 if h == "n7" else 1.0) for h in hosts])
    first, second = found.kinds
    assert (found.slow, len(first.hosts), second.hosts) == ((), 6, ("n7",))
    assert (second.apart, second.cannot_tell, second.visible_one) == ((apart,), True, None)


def test_a_little_less_memory_is_the_same_kind() -> None:
    hosts = [f"n{number}" for number in range(1, 5)]
    sizes = (64 << 30, (64 << 30) - 200_000_000, 64 << 30, 64 << 30)
    runs = [run(h, memory_bytes=size) for h, size in zip(hosts, sizes, strict=True)]
    assert len(compared(runs, [times(h) for h in hosts]).kinds) == 1


def test_three_hosts_show_their_times_and_no_verdict() -> None:
    hosts = ["n1", "n2", "n3"]
    found = compared([run(h) for h in hosts], [times("n1", 1.5), times("n2"), times("n3")])
    (kind,) = found.kinds
    assert (kind.cannot_tell, kind.slow, kind.quiet) == (True, (), ())
    assert kind.slowdowns["n1"][0] == pytest.approx(1.5, abs=0.01)


def test_the_last_complete_attempt_counts_and_else_the_last() -> None:
    torn = RunStatus.INTERRUPTED
    runs = [
        *(run("n1"), run("n1", attempt=2, status=torn)),
        *(run("n2", status=torn), run("n2", attempt=2, status=torn)),
        *(run("n3", status=torn), run("n3", attempt=2)),
    ]
    found = latest(runs)
    assert {host: own[0].attempt for host, own in found.items()} == {"n1": 1, "n2": 2, "n3": 2}


def test_a_host_without_times_is_said_and_not_compared() -> None:
    hosts = ["n1", "n2", "n3", "n4", "n5"]
    found = compared([run(h) for h in hosts], [times(h) for h in hosts[:4]])
    assert (found.hosts, found.without_times) == (4, ("n5",))


def test_without_brackets_the_median_copies_are_compared() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    rows = [times(h, 1.06 if h == "n4" else 1.0, bracket_s=()) for h in hosts]
    assert [it.host for it in compared([run(h) for h in hosts], rows).slow] == ["n4"]

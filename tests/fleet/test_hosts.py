"""Hosts of one kind held against each other: who is slow, since when, and how it is shown."""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.divots.confirm import ConfirmVerdict
from rater.analysis.stats.robust import Floats
from rater.analysis.stats.steps import find_steps
from rater.fleet.archive import IndexedRun, latest
from rater.fleet.history import (
    FactChange,
    HistoryPoint,
    Suspect,
    benchmark_history,
    host_history,
    judge_suspect,
    pair_slowdown,
    pairs_of,
    points_of_benchmark,
    points_of_host,
)
from rater.fleet.hosts import (
    FleetComparison,
    HostResult,
    KindComparison,
    OddSetting,
    SlowBenchmark,
    SlowHost,
    compare_fleet,
    results_of,
)
from rater.fleet.plan import AttemptState, NodeAttempt, NodeVerdict, StoredFleet, VerdictStatus
from rater.fleet.show import (
    MissingHost,
    changes_lines,
    finding_text,
    fleet_document,
    fleet_parts,
    histories_parts,
    history_document,
    part_lines,
)
from rater.fleet.show_nodes import nodes_document, nodes_parts
from rater.fleet.slowness import compare_hosts
from rater.record.run import RunStatus
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import print_parts
from rater.system.process import this_process
from rater.text.values import to_dict
from tests.support.fleets import ASKED, indexed_run

SETTINGS = {1: {"cpu.governor": "performance", "load.1min": "0.1"}}


type Times = dict[tuple[str, int, int], dict[str, tuple[tuple[float, ...], tuple[float, ...]]]]


def times(
    host: str, slow: float = 1.0, copy: float | None = None, *, brackets: bool = True
) -> Times:
    """Two benchmarks of three iterations; hosts are a little apart."""
    little = 1 + 0.0004 * (sum(map(ord, host)) % 5)
    found = {}
    for name, seconds in (("lu", 10.0), ("vm", 20.0)):
        bracket = tuple(seconds * slow * little * (1 + 0.001 * number) for number in range(3))
        median = tuple(0.98 * it / slow * (copy or slow) for it in bracket)
        found[name] = (bracket if brackets else (), median)
    return {(host, 1, 1): found}


def compared(
    runs: list[IndexedRun], rows: list[Times], settings: Any = SETTINGS
) -> FleetComparison:
    return compare_fleet(results_of(runs, dict(ChainMap(*rows)), settings))


def test_the_slow_host_is_named_with_what_is_set_otherwise_there() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    runs = [indexed_run(host, setting=2 if host == "n4" else 1) for host in hosts]
    settings = SETTINGS | {2: {"cpu.governor": "powersave", "load.1min": "9.9"}}
    comparison = compared(
        runs, [times(host, 1.06 if host == "n4" else 1.0) for host in hosts], settings
    )
    (slow,) = comparison.slow
    assert slow.mean_slowdown == pytest.approx(1.06, abs=0.003)
    assert (slow.host, slow.alike, slow.of, slow.benchmarks) == ("n4", 2, 2, ())
    assert slow.slowdown == pytest.approx(1.06, abs=0.003)
    assert slow.odd_settings == (OddSetting("cpu.governor", "powersave", "performance"),)
    (kind,) = comparison.kinds
    assert kind.hosts[0] == "n4"
    assert "n4" not in kind.quiet
    assert sorted([*kind.quiet, "n4"]) == hosts


def test_a_host_whose_median_copy_is_level_is_slow_in_a_part() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    rows = [times(host, 1.06, copy=1.0) if host == "n4" else times(host) for host in hosts]
    (slow,) = compared([indexed_run(host) for host in hosts], rows).slow
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
        ({"cpus": 0}, "usable CPUs not known"),
        ({"copies": 3}, "3 copies"),
    ],
)
def test_hosts_of_another_kind_stand_apart(other: dict[str, Any], apart: str) -> None:
    hosts = [f"n{number}" for number in range(1, 8)]
    runs = [indexed_run(host, **(other if host == "n7" else {})) for host in hosts]
    comparison = compared(runs, [times(host, 1.5 if host == "n7" else 1.0) for host in hosts])
    first, second = comparison.kinds
    assert (first.slow, second.slow, len(first.hosts), second.hosts) == ((), (), 6, ("n7",))
    # The same machine with another kernel or microcode is held against the others, and marked.
    same = apart.startswith(("microcode", "kernel"))
    assert [it.host for it in second.beside or ()] == (["n7"] if same else [])
    assert [it.host for it in comparison.slow] == (["n7"] if same else [])
    text = screen(comparison)
    assert ("(median) compared with hosts of another kernel or microcode" in text) is same
    assert text.startswith(f"Fleet 1: {'1 slow host' if same else 'No slow hosts'}. 7 hosts")
    assert "0 CPUs" not in text
    assert (second.apart, second.visible_one) == ((apart,), None)
    assert second.why_not


def screen(comparison: FleetComparison, *missing: MissingHost) -> str:
    out = StringIO()
    parts = fleet_parts(fleet_document(1, comparison, {}, missing))
    print_parts(parts, Printer(TextScreen(out, width=200)))
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize(
    ("loud", "said"),
    [(4, "Cannot tell: 4 of 4 hosts disturbed"), (2, "1 slow host"), (0, "1 slow host")],
)
def test_a_fleet_whose_hosts_are_mostly_disturbed_names_none(loud: int, said: str) -> None:
    hosts = ["n1", "n2", "n3", "n4"]
    runs = [
        indexed_run(host, others_cost=0.3 if number < loud else 0.02)
        for number, host in enumerate(hosts)
    ]
    found = compared(runs, [times(host, 1.5 if host == "n4" else 1.0) for host in hosts])
    assert screen(found).startswith(f"Fleet 1: {said}. 4 hosts compared.")
    assert ("No slow hosts" in screen(found), len(found.slow)) == (False, int(loud < 4))


def test_a_fleet_that_could_not_show_a_slow_host_does_not_say_that_there_is_none() -> None:
    hosts = ["n1", "n2", "n3", "n4"]
    comparison = compared(
        [indexed_run(host) for host in hosts],
        [times(host, 1 + 0.5 * place) for place, host in enumerate(hosts)],
    )
    (kind,) = comparison.kinds
    assert kind.slow or kind.why_not
    wide = replace(comparison, kinds=(replace(kind, slow=(), visible_whole=1.62, visible_one=1.7),))
    said = "Cannot tell: only a host slower by 162 % or more would show"
    assert screen(wide).startswith(f"Fleet 1: {said}. 4 hosts compared.")
    late = MissingHost(
        host="n4", state="never", reason="pending too long", attempts=1, has_times=False
    )
    assert "not complete state reason n4 not started pending too long" in screen(comparison, late)
    gone = [
        MissingHost(host=host, state="lost", reason="node failed", attempts=2, has_times=False)
        for host in ("n2", "n3", "n4")
    ]
    alone = compared([indexed_run("n1")], [times("n1")])
    assert screen(alone, *gone).startswith(
        "Fleet 1: Cannot tell: one host alone of this kind, and fewer than 4 do not show what is "
        "usual; 3 of 4 hosts not complete."
    )
    part = replace(gone[0], host="n1", state="failed", reason="copies failed", has_times=True)
    text = screen(alone, part, *gone)  # as many as the table has
    assert "4 of 4 hosts not complete." in text
    assert "next: `rater fleet retry 1` runs what is missing" in text
    assert "next: `rater fleet retry 1 --nodes n1` runs these again, once they are mended" in text
    fine = compared([indexed_run(host) for host in hosts], [times(host) for host in hosts])
    assert "No slow hosts among those that are complete (3 of 7 hosts not" in screen(fine, *gone)


def test_settings_that_one_host_has_otherwise_are_always_listed() -> None:
    hosts = ["n1", "n2", "n3", "n4"]
    settings = SETTINGS | {2: {"cpu.governor": "powersave"}}
    runs = [indexed_run(host, setting=2 if host == "n3" else 1) for host in hosts]
    text = screen(compared(runs, [times(host) for host in hosts], settings))
    assert "n3 differs: cpu.governor is powersave (most others: performance)" in text


def test_a_little_less_memory_is_the_same_kind() -> None:
    hosts = [f"n{number}" for number in range(1, 5)]
    sizes = (64 << 30, (64 << 30) - 200_000_000, 64 << 30, 64 << 30)
    runs = [indexed_run(host, memory_bytes=size) for host, size in zip(hosts, sizes, strict=True)]
    assert len(compared(runs, [times(host) for host in hosts]).kinds) == 1


def test_three_hosts_show_their_times_and_no_verdict() -> None:
    hosts = ["n1", "n2", "n3"]
    found = compared(
        [indexed_run(host) for host in hosts], [times("n1", 1.5), times("n2"), times("n3")]
    )
    (kind,) = found.kinds
    assert (kind.slow, kind.quiet) == ((), ())
    assert kind.why_not
    assert kind.slowdowns["n1"]["lu"] == pytest.approx(1.5, abs=0.01)


def test_the_last_complete_attempt_counts_and_else_the_last() -> None:
    torn = RunStatus.INTERRUPTED
    runs = [
        *(indexed_run("n1"), indexed_run("n1", attempt=2, status=torn)),
        *(indexed_run("n2", status=torn), indexed_run("n2", attempt=2, status=torn)),
        *(indexed_run("n3", status=torn), indexed_run("n3", attempt=2)),
    ]
    found = latest(runs)
    assert {host: own[0].attempt for host, own in found.items()} == {"n1": 1, "n2": 2, "n3": 2}


def test_a_host_without_times_is_said_and_not_compared() -> None:
    hosts = ["n1", "n2", "n3", "n4", "n5"]
    found = compared([indexed_run(host) for host in hosts], [times(host) for host in hosts[:4]])
    assert (len(found.kinds[0].hosts), found.without_times) == (4, ("n5",))


def test_without_brackets_the_median_copies_are_compared() -> None:
    hosts = [f"n{number}" for number in range(1, 7)]
    rows = [times(host, 1.06 if host == "n4" else 1.0, brackets=False) for host in hosts]
    assert [it.host for it in compared([indexed_run(host) for host in hosts], rows).slow] == ["n4"]


def fleet(hosts: int, seed: int = 1, benchmarks: int = 6, iterations: int = 3) -> Floats:
    """ln times: iterations 1 % apart with the tail of t4, hosts .3 %."""
    random = np.random.default_rng(seed)
    noise = 0.007 * random.standard_t(4, (hosts, benchmarks, iterations))
    return np.asarray(4.6 + noise + 0.003 * random.standard_normal((hosts, benchmarks, 1)))


@pytest.mark.parametrize("hosts", [4, 8, 100])
def test_a_host_slow_in_all_benchmarks_is_the_only_one_named(hosts: int) -> None:
    logs = fleet(hosts)
    logs[2] += 0.05
    (slow,) = compare_hosts(logs).slow
    assert (slow.host, slow.benchmarks) == (2, ())
    assert slow.effect == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("hosts", [8, 100])
def test_a_host_slow_in_two_benchmarks_is_level_in_the_others(hosts: int) -> None:
    logs = fleet(hosts)
    logs[3, 1] += 0.12
    logs[3, 4] += 0.15
    (slow,) = compare_hosts(logs).slow
    assert (slow.host, slow.effect, slow.benchmarks) == (3, 0.0, (4, 1))
    assert slow.effects == pytest.approx((0.15, 0.12), abs=0.02)


def test_slow_hosts_are_ranked_by_the_geometric_mean_of_all_their_benchmarks() -> None:
    logs = fleet(16)
    logs[2] += 0.05
    logs[3, 1] += 0.12
    assert [it.host for it in compare_hosts(logs).slow] == [2, 3]


def test_slow_in_all_and_slower_in_one_is_told_apart() -> None:
    logs = fleet(16)
    logs[0] += 0.05
    logs[0, 2] += 0.15
    (slow,) = compare_hosts(logs).slow
    assert slow.effect == pytest.approx(0.05, abs=0.01)
    assert slow.benchmarks == (2,)
    assert slow.worst == pytest.approx(0.20, abs=0.02)


@pytest.mark.parametrize(("hosts", "slow"), [(8, 2), (12, 3), (16, 3), (40, 5), (100, 20)])
def test_slow_hosts_do_not_hide_each_other(hosts: int, slow: int) -> None:
    logs = fleet(hosts)
    logs[:slow] += 0.06
    judged = compare_hosts(logs)
    assert sorted(it.host for it in judged.slow) == [*range(slow)]
    assert all(it.benchmarks == () and 0.05 < it.effect < 0.07 for it in judged.slow)
    assert judged.visible_whole < 0.04  # what is slow does not widen what can be seen


def test_hosts_slow_in_all_a_little_and_in_one_benchmark_are_named_in_one_fleet() -> None:
    logs = fleet(12)
    logs[2] += 0.06
    logs[6] += 0.03
    logs[4, 3] += 0.18
    slow = {it.host: (it.effect > 0, it.benchmarks) for it in compare_hosts(logs).slow}
    assert slow == {2: (True, ()), 6: (True, ()), 4: (False, (3,))}


def test_a_host_as_slow_as_the_printed_limit_is_named_beside_slow_hosts() -> None:
    logs = fleet(12)
    logs[:2] += 0.06
    visible = compare_hosts(logs).visible_whole
    logs[11] += visible * 1.2
    assert 11 in {it.host for it in compare_hosts(logs).slow}


def test_half_of_the_hosts_slow_is_two_groups_and_no_verdict() -> None:
    logs = fleet(8)
    logs[:4] += 0.06
    assert compare_hosts(logs).slow == ()


def test_one_slow_iteration_of_three_makes_no_slow_host() -> None:
    logs = fleet(16)
    logs[5, :, 1] += 0.3
    assert compare_hosts(logs).slow == ()


@pytest.mark.parametrize("hosts", [4, 16, 200])
def test_a_fleet_without_slow_hosts_names_none(hosts: int) -> None:
    assert [it.host for seed in range(5) for it in compare_hosts(fleet(hosts, seed)).slow] == []


def test_what_is_expected_is_a_little_slowness_that_is_no_finding() -> None:
    logs = fleet(64)
    logs[7] += 0.008
    assert compare_hosts(logs).slow == ()


def test_missing_benchmarks_and_iterations_are_left_out() -> None:
    logs = fleet(12)
    logs[2] += 0.06
    logs[2, 0] = np.nan
    logs[4, 3, 2] = np.nan
    logs[5] = np.nan
    compared = compare_hosts(logs)
    assert [it.host for it in compared.slow] == [2]
    assert np.isnan(compared.distances[2, 0])


def test_a_slow_host_is_among_what_the_fleet_says_it_can_see() -> None:
    found = compare_hosts(fleet(16))
    assert 0.015 <= found.visible_whole < 0.03 <= found.visible_one < 0.12


def test_what_can_be_seen_in_a_noisier_benchmark_is_told_apart() -> None:
    logs = fleet(100)
    logs[:, 2] += 0.03 * np.random.default_rng(5).standard_normal((100, 3))
    found = compare_hosts(logs)
    assert int(np.argmax(found.visible_each)) == 2
    assert found.visible_each[2] > 1.5 * found.visible_one


def test_three_hosts_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="3 hosts, expected 4 or more"):
        compare_hosts(fleet(3))


def noise(count: int, seed: int = 1) -> list[float]:
    return list(0.004 * np.random.default_rng(seed).standard_t(4, count))


def points(
    weeks: int,
    rate_of: Callable[[int, str], float],
    facts: Callable[[int], dict[str, str]] = lambda _: {},
    usual_facts: Callable[[int], dict[str, str]] = lambda _: {},
) -> list[HistoryPoint]:
    fleet_points = []
    for week in range(1, weeks + 1):
        little = noise(2, week)
        logs = {
            name: math.log(rate_of(week, name) * (1 + little[place]))
            for place, name in enumerate(("lu", "vm"))
        }
        date = f"2026-09-{week:02}T12:00:00Z"
        fleet_points.append(
            HistoryPoint(
                fleet=week,
                started_at=date,
                logs=logs,
                hosts=7,
                facts=facts(week),
                usual_facts=usual_facts(week),
            )
        )
    return fleet_points


def test_a_host_has_a_history_for_each_command_line_and_for_each_suite_and_size() -> None:
    hosts = ["n1", "n2", "n3", "n4", "n5"]
    fleets = {}
    for fleet in range(1, 13):
        slow = 1.05 if fleet % 2 == 0 and fleet > 6 else 1.0  # of the other program alone
        rows = dict(ChainMap(*(times(host, slow if host == "n2" else 1.0) for host in hosts)))
        command = "./solve --big" if fleet % 2 == 0 else None
        fleets[fleet] = results_of([indexed_run(host) for host in hosts], rows, SETTINGS, command)
    keys = {
        program: host_history("n2", them) for program, them in points_of_host("n2", fleets).items()
    }
    assert [(it, len(of.series[0].fleets)) for it, of in keys.items()] == [
        ("mini, test", 6),
        ("./solve --big", 6),
    ]
    assert (keys["mini, test"].steps, keys["mini, test"].program) == ((), "mini, test")
    assert [step.fleet for step in keys["./solve --big"].steps] == [8]
    assert points_of_benchmark("lu", fleets).keys() == keys.keys()


def test_a_step_is_found_where_it_is_and_nothing_else() -> None:
    values = [0.03 * (place >= 12) + it for place, it in enumerate(noise(20))]
    (step,) = find_steps(values, 0.015)
    assert (step.first, step.by_chance < 0.001) == (12, True)
    assert step.size == pytest.approx(0.03, abs=0.005)


def test_two_steps_are_two_and_one_bad_week_is_none() -> None:
    values = [
        0.05 * (place >= 10) - 0.05 * (place >= 20) + it for place, it in enumerate(noise(30))
    ]
    assert [step.first for step in find_steps(values, 0.015)] == [10, 20]
    bad = noise(20)
    bad[9] += 0.2
    assert find_steps(bad, 0.015) == ()


def test_short_series_and_small_steps_tell_nothing() -> None:
    assert find_steps([0.0, 0.0, 0.0, 0.1, 0.1], 0.015) == ()
    assert find_steps([0.01 * (place >= 10) for place in range(20)], 0.015) == ()


def test_a_host_that_became_slower_is_told_with_what_changed_on_it_alone() -> None:
    history = host_history(
        "n2",
        points(
            12,
            lambda week, _: 1.05 if week >= 7 else 1.0,
            lambda week: {"kernel": "6.2" if week >= 7 else "6.1", "thp": str(week >= 7)},
            lambda week: {"kernel": "6.1", "thp": str(week >= 7)},
        ),
    )
    (step,) = history.steps
    assert (step.benchmark, step.fleet, step.fleets_since) == (None, 7, 6)
    assert step.ratio == pytest.approx(1.05, abs=0.006)
    assert step.changes == (
        FactChange("kernel", "6.1", "6.2", others_too=False),
        FactChange("thp", "False", "True", others_too=True),
    )
    out = StringIO()
    document = history_document([history])
    print_parts(histories_parts(document), Printer(TextScreen(out, width=80)))
    told = " ".join(out.getvalue().split())
    assert told.startswith("n2 in : history of a host against the others of its kind, 12 fleets")
    assert re.search(r" 7 2026-09-07 all \+[45]\.\d \+[45]\.\d 6 kernel 6.1 -> 6.2 on most", told)
    assert changes_lines(document["steps"][0]["changes"]) == [
        "kernel 6.1 -> 6.2",
        "on most others as well: thp False -> True",
    ]


def test_a_step_in_one_benchmark_is_told_for_that_alone() -> None:
    found = host_history("n2", points(12, lambda w, name: 1.1 if w >= 7 and name == "lu" else 1.0))
    assert [step.benchmark for step in found.steps if step.benchmark] == ["lu"]
    (line,) = changes_lines([to_dict(change) for change in found.steps[-1].changes])
    assert line.startswith("nothing that is recorded changed")


def test_without_others_or_with_few_fleets_there_are_no_steps() -> None:
    few = host_history("n2", points(5, lambda week, _: 1.05 if week >= 3 else 1.0))
    assert (few.points, few.steps) == (5, ())
    alone = [HistoryPoint(fleet=1, started_at=None, logs={}, hosts=0, facts={}, usual_facts={})]
    assert host_history("n2", alone).alone == 1


def test_a_benchmark_tells_its_usual_time_and_the_hosts_that_left_it() -> None:
    usual = [
        HistoryPoint(
            fleet=point.fleet,
            started_at=point.started_at,
            logs={"lu": math.log(11.0 if point.fleet >= 7 else 10.0)},
            hosts=7,
            facts={"kernel": "6.2" if point.fleet >= 7 else "6.1"},
            usual_facts={},
        )
        for point in points(12, lambda *_: 1.0)
    ]
    hosts = {
        "n1": points(12, lambda *_: 1.0),
        "n2": points(12, lambda week, _: 1.2 if week >= 4 else 1.0),
    }
    found = benchmark_history("lu", usual, hosts)
    assert [(step.host, step.fleet) for step in found.steps] == [(None, 7), ("n2", 4)]
    assert found.steps[0].changes == (FactChange("kernel", "6.1", "6.2", others_too=False),)


N1 = Suspect("n1", (), 1.05)


def slow(host: str, whole: float, *benchmarks: tuple[str, float]) -> SlowHost:
    each = tuple(SlowBenchmark(name, size, size) for name, size in benchmarks)
    return SlowHost(
        host=host,
        attempt=1,
        slowdown=whole,
        typical_copy=whole,
        alike=2,
        of=2,
        benchmarks=each,
        by_chance=1e-6,
        odd_settings=(),
    )


def compared_fleet(slow_hosts: list[SlowHost], quiet: list[str]) -> FleetComparison:
    hosts = tuple([host.host for host in slow_hosts] + quiet)
    kind = KindComparison(
        kind=indexed_run("n1"),
        apart=(),
        hosts=hosts,
        slowdowns={},
        slow=tuple(slow_hosts),
        visible_whole=0.0,
        visible_one=0.0,
        quiet=tuple(quiet),
        odd_settings={},
    )
    return FleetComparison((kind,), ())


def result(host: str, lu: float, vm: float) -> HostResult:
    times: dict[str, tuple[float, ...]] = {"lu": (lu, lu * 1.01, lu), "vm": (vm, vm, vm * 1.01)}
    return HostResult(run=indexed_run(host), settings={}, bracket_s=times, copy_s=times)


def names(comparison: FleetComparison, chosen: list[str], rounds: int) -> list[list[str]]:
    made = pairs_of(comparison, chosen, rounds)
    return [["/".join(pair) for pair in turn.items()] for turn in made]


def test_each_round_has_other_quiet_hosts_the_quietest_first() -> None:
    two = [slow("n1", 1.05), slow("n2", 1.0, ("lu", 1.1))]
    assert names(compared_fleet(two, [f"q{it}" for it in range(1, 8)]), ["n1", "n2"], 3) == [
        ["n1/q1", "n2/q2"],
        ["n1/q3", "n2/q4"],
        ["n1/q5", "n2/q6"],
    ]
    assert names(compared_fleet(two, ["q1", "q2", "q3"]), ["n2"], 2) == [["n2/q1"], ["n2/q2"]]


def test_more_suspects_than_quiet_hosts_share_them() -> None:
    many = [slow(f"n{it}", 1.05) for it in range(1, 5)]
    assert names(compared_fleet(many, ["q1", "q2"]), ["n1", "n2", "n3", "n4"], 2) == [
        ["n1/q1", "n2/q2", "n3/q1", "n4/q2"],
        ["n1/q2", "n2/q1", "n3/q2", "n4/q1"],
    ]


def test_a_pair_is_of_what_was_slow() -> None:
    results = {"n1": result("n1", 11.0, 20.0), "q1": result("q1", 10.0, 20.0)}
    only_lu = Suspect("n1", ("lu",), 1.1)
    assert pair_slowdown(only_lu, "q1", results) == pytest.approx(1.1)
    assert pair_slowdown(N1, "q1", results) == pytest.approx(1.1**0.5)
    assert pair_slowdown(N1, "gone", results) is None


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
        ({"n1": q}, {"n1": result("n1", 10 * x, 20 * x), q: result(q, 10.0, 20.0)})
        for q, x in zip(quiet, again, strict=True)
    ]
    told = judge_suspect(N1, rounds)
    assert told is not None
    assert told.answer is answer


def test_a_pair_that_others_disturbed_says_nothing() -> None:
    n4 = Suspect("n4", (), 1.1)
    measured = {it.host: it for it in (result("n4", 11.0, 22.0), result("n1", 10.0, 20.0))}
    assert pair_slowdown(n4, "n1", measured) == pytest.approx(1.1)
    measured["n1"] = replace(measured["n1"], run=indexed_run("n1", others_cost=0.5))
    assert pair_slowdown(n4, "n1", measured) is None


def test_one_round_alone_says_nothing() -> None:
    one = ({"n1": "q1"}, {"n1": result("n1", 11, 22), "q1": result("q1", 10, 20)})
    assert judge_suspect(N1, [one, ({"n1": "q2"}, {})]) is None


def slow_host(whole: float, alike: int, *benchmarks: tuple[str, float], typical: float) -> SlowHost:
    each = tuple(SlowBenchmark(name, size, typical) for name, size in benchmarks)
    return SlowHost(
        host="n1",
        attempt=1,
        slowdown=whole,
        typical_copy=typical,
        alike=alike,
        of=14,
        benchmarks=each,
        by_chance=1e-6,
        odd_settings=(),
        mean_slowdown=1.009,
    )


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (slow_host(1.05, 14, typical=1.05), "+5.0 % in all benchmarks (median)"),
        (
            slow_host(1.05, 12, typical=1.05),
            "+5.0 % in all benchmarks (median, 12 of 14 benchmarks)",
        ),
        (
            slow_host(1.05, 14, ("lu", 1.2), typical=1.05),
            "+5.0 % in all benchmarks (median); most of all lu +20.0 %",
        ),
        (
            slow_host(1.0, 0, ("gups", 1.093), ("vm", 1.04), typical=1.04),
            "gups +9.3 % and vm +4.0 %; level in the other 12 (geometric mean +0.9 %)",
        ),
    ],
)
def test_a_finding_says_where_and_how_much(host: SlowHost, text: str) -> None:
    assert finding_text(host) == text


def test_a_level_median_copy_says_that_a_part_is_slow() -> None:
    assert part_lines(slow_host(1.05, 14, typical=1.05)) == []
    assert part_lines(slow_host(1.05, 14, typical=1.001)) == [
        "its median copy is at +0.1 %: only a part of it is slow"
    ]


VERDICT = NodeVerdict(
    rater=1,
    fleet="f",
    node="n",
    attempt=1,
    job="17",
    status=VerdictStatus.PARTIAL,
    reason=None,
    ended_by="USR1",
    database="n.db",
    sha256="ab",
    bytes=9,
    run="u",
    copies_done=12,
    copies_planned=16,
    started_at="2026-11-23T08:00:00Z",
    ended_at="2026-11-23T08:01:00Z",
    host={},
)


def node(name: str, state: str, reason: str | None = None, attempt: int = 1) -> NodeAttempt:
    return NodeAttempt(
        node=name,
        attempt=attempt,
        state=AttemptState(state),
        intended_s=0.0,
        reason=reason,
        job="17",
    )


def view(*tried: NodeAttempt, untried: Sequence[str] = ()) -> StoredFleet:
    attempts: dict[str, tuple[NodeAttempt, ...]] = {}
    for it in tried:
        attempts[it.node] = (*attempts.get(it.node, ()), it)
    attempts |= {node: () for node in untried}
    return StoredFleet(
        number=3,
        asked=ASKED,
        begun=True,
        cancelled_at=None,
        owner=this_process(),
        attempts=attempts,
    )


def printed(fleet: StoredFleet, silent: str | None = None) -> list[str]:
    screen = TextScreen(StringIO(), width=80)
    print_parts(nodes_parts(nodes_document(fleet, silent)), Printer(screen))
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_what_wants_attention_comes_first_and_each_node_has_its_reason() -> None:
    tried = [
        node("n1", "complete"),
        node("n2", "waiting", "for rater run 1a2b"),
        node("n3", "lost", "the node failed (NODE_FAIL)"),
        node("n5", "never", "pending too long"),
    ]
    assert printed(view(*tried, untried=["n4"])) == [
        "Fleet 3: mini, 5 nodes: 1 waiting, 1 complete, 1 lost, 1 not started, 1 not",
        "    submitted",
        "",
        "node  state          try  job  why",
        "n3    lost             1   17  the node failed (NODE_FAIL)",
        "n5    not started      1   17  pending too long",
        "n2    waiting          1   17  for rater run 1a2b",
        "n4    not submitted    -    -",
        "n1    complete         1   17",
    ]


def test_a_second_attempt_tells_why_there_was_a_first_one_and_copies_are_told_once() -> None:
    late = node("n1", "timeout", "the time limit was near; 12 of 16 copies")
    part = replace(late, verdict=VERDICT)
    again = replace(part, attempt=2, state=AttemptState.COMPLETE, reason=None)
    lines = printed(view(part, again, replace(part, node="n2")))
    assert lines[3:] == [
        "n2    timeout     1   17   12/16  the time limit was near",
        "n1    complete    2   17   12/16  attempt 1 timeout: the time limit was near",
    ]


def test_many_nodes_take_a_line_for_all_that_are_complete() -> None:
    nodes = [node(f"n{number:03}", "complete") for number in range(1, 129)]
    nodes[6] = node("n007", "refused", "another rater")
    assert printed(view(*nodes))[-3:] == [
        "n007  refused    1   17  another rater",
        "",
        "127 more nodes complete: n[001-006,008-128]",
    ]


def test_a_silent_scheduler_is_told_before_the_nodes() -> None:
    [_, said, *_] = printed(view(node("n1", "running")), "timed out")
    assert said == "The scheduler gave no answer, so nothing is concluded: timed out"


def test_a_fleet_is_a_document() -> None:
    document = nodes_document(view(node("n1", "lost", "power"), untried=["n2"]), None)
    assert document["counts"] == {"lost": 1, "not submitted": 1}
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
            "attempt": 1,
            "why": "power",
        },
        {
            **{"node": "n2", "state": "not submitted", "reason": None, "run": None},
            **{"attempts": [], "attempt": None, "why": None},
        },
    ]


def test_what_is_measured_is_the_command_or_the_suites() -> None:
    assert replace(ASKED, words=("mini", "--copies=4")).workload_text == "mini"
    assert replace(ASKED, words=("--copies=4",)).workload_text == "mini"
    assert replace(ASKED, words=(), command=("./my bench", "-x")).workload_text == "'./my bench' -x"

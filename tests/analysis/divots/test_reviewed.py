"""Cases of a reviewer, and where they lie, shared cases with a known truth and servers' results."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.divot_cases.direct import findings_in, for_scorer, scorer, shared_cases, table_of
from rater.analysis.divots.findings import analyse
from rater.analysis.divots.gate import GateLimit, JudgedRun, judge_run
from rater.analysis.divots.model.finding import Analysis, Finding, Kind, Thresholds
from rater.analysis.results.gates import GateVerdict, gate_status
from rater.show.results.to_json import divot_rows
from tests.support.divot_runs import Machine, divots, names, quiet, rows_of
from tests.support.example_runs import HEAD
from tests.support.places import DIVOT_CASES, SAMPLES, needs_cases, needs_samples

FOUR = Machine(4, 16)
ONE = Machine(1, 64)


def only_finding(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [(divot.place, divot.summary) for divot in findings]
    return findings[0]


def gate_of(finding: Finding, least: float) -> list[GateVerdict]:
    """What a gate says of slow nodes in a run that can show 1 %."""
    analysis = Analysis(findings=(finding,), visible={"group": 0.01})
    run = JudgedRun(head=HEAD, analysis=analysis, nodes=4)
    return [*judge_run(run, [GateLimit("slow-lgroup", least)])]


@pytest.mark.parametrize(("slowdown", "number"), [(1.013, 0), (1.022, 1)])
def test_an_lgroup_below_the_threshold_is_not_told_where_lgroups_differ_anyway(
    slowdown: float, number: int
) -> None:
    times = quiet(12, 3, 64, noise=0.002)
    natural = 0.002 * np.random.default_rng(7).standard_normal((12, 1, 4))
    times *= np.exp(np.repeat(natural - np.median(natural, axis=2, keepdims=True), 16, axis=2))
    times[3, :, 16:32] = slowdown * quiet(1, 3, 16, noise=0.002)[0]
    assert len(divots(times, FOUR)) == number


def test_the_limit_for_ci_is_that_of_a_benchmark_not_of_one_of_its_iterations() -> None:
    times = quiet(12, 3, 64, noise=0.001)
    times[3, :, 16:32] *= np.array([1.019, 1.020, 1.025])[:, None]
    found = only_finding(divots(times, FOUR))
    assert found.kind is Kind.SLOW_LGROUP
    assert gate_status(gate_of(found, 0.026)) == 0
    assert gate_status(gate_of(found, 0.018)) == 1
    assert "node 1 (" in gate_of(found, 0.018)[0].reason


def test_eight_slow_copies_of_64_make_no_fast_ones() -> None:
    random = np.random.default_rng(1)
    times = quiet(12, 1, 64)
    slow = random.choice(64, 8, replace=False)
    times[3, 0, slow] *= 1.16
    found = only_finding(divots(times, ONE))
    assert found.kind is Kind.OUTLIER_COPY
    assert set(found.copies) == set(slow.tolist())
    assert "8 of 64 copies" in found.summary


def test_one_slow_benchmark_of_two_copies_is_the_slow_copys_whole_difference() -> None:
    times = quiet(6, 3, 2, noise=0.002)
    times[2, :, 1] *= 1.35
    found = only_finding(divots(times, Machine(1, 2)))
    assert (found.kind, found.copies, found.benchmarks) == (Kind.OUTLIER_COPY, (1,), ("b2",))
    assert found.slowdown == pytest.approx(1.35, abs=0.01)


def test_one_slow_lgroup_of_two_with_two_copies_each() -> None:
    times = quiet(6, 3, 4, noise=0.002)
    times[:, :, 2:] *= 1.05
    found = only_finding(divots(times, Machine(2, 2)))
    assert (found.kind, found.place) == (Kind.SLOW_LGROUP, "node 1")


@pytest.mark.parametrize("benchmarks", [slice(3, 4), slice(0, 6)])
def test_a_fast_iteration_is_not_two_slow_ones(benchmarks: slice) -> None:
    times = quiet(6, 3, 64)
    times[benchmarks, 0] *= 0.95
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.iterations) == (Kind.SLOW_ITERATION, (1,))
    assert found.slowdown == pytest.approx(0.95, abs=0.005)
    assert found.score_lost == 0


def test_a_slow_iteration_that_spared_an_lgroup_is_told_once() -> None:
    times = quiet(6, 3, 64)
    times[3, 0, :48] *= 1.12
    found = only_finding(divots(times, FOUR))
    assert found.kind is Kind.SLOW_ITERATION
    assert found.summary.endswith("all but node 3")
    assert found.copies == tuple(range(48))


def test_a_cpu_in_one_iteration_of_all_benchmarks_is_told_once() -> None:
    times = quiet(12, 3, 64)
    times[:, 1, 20] *= 1.06
    found = only_finding(divots(times, FOUR))
    assert (found.kind, found.place, found.iterations) == (Kind.SLOW_CPU, "CPU 20", (2,))
    assert "1 of 3 iterations: iteration 2" in found.summary


def test_copies_that_failed_are_not_counted_as_not_slow() -> None:
    times = quiet(6, 3, 64)
    times[3, :, 40:48] *= 1.1
    bad = [(3, number, copy) for number in range(3) for copy in range(40, 46)]
    rows = rows_of(times, Machine(8, 8), bad)
    divot = only_finding(
        [
            finding
            for finding in analyse([rows], names(6), Thresholds()).findings
            if not finding.explained
        ]
    )
    assert "2 of 2 copies" in divot.summary
    assert divot.cpus == (46, 47)


def test_the_same_copies_in_several_benchmarks_are_one_group() -> None:
    times = quiet(8, 3, 64)
    times[:4, :, 1::2] *= 1.05
    found = only_finding(divots(times, ONE))
    assert (found.kind, found.copies) == (Kind.SLOW_GROUP, tuple(range(1, 64, 2)))
    assert found.benchmarks == ("b0", "b1", "b2", "b3")


@pytest.mark.parametrize("benchmarks", [slice(3, 4), slice(0, 6)])
def test_a_copy_that_is_slow_wherever_it_runs_is_told_by_its_number(benchmarks: slice) -> None:
    times = quiet(6, 3, 64)
    times[benchmarks, :, 5] *= 1.1
    turned = replace(ONE, cpu=lambda copy, iteration: (copy + 17 * iteration) % 64)
    found = only_finding(divots(times, turned))
    assert (found.kind, found.place) == (Kind.OUTLIER_COPY, "copy 5, wherever it ran")
    assert (found.copies, found.cpus) == ((5,), ())


def test_slower_cores_of_one_thread_beside_cores_of_two_are_another_kind() -> None:
    times = quiet(8, 3, 24)
    times[:, :, 16:] *= np.linspace(0.95, 1.2, 8)[:, None, None]
    rows = [
        (*row[:5], c // 2 if (c := int(row[2] or 0)) < 16 else c - 8, *row[6:])
        for row in rows_of(times, Machine(1, 24))
    ]
    pus = [(copy, 2 if copy < 16 else 1) for copy in range(24)]
    (found,) = analyse([rows], names(8), Thresholds(), core_pus=pus).findings
    assert (found.explained, found.expectation) == (True, "another kind of core")
    assert found.cpus == tuple(range(16, 24))


def test_a_first_iteration_beside_other_work_is_no_start_up_where_cpus_are_shared() -> None:
    # Four copies a CPU run a quarter of the time; in iteration 1 others take a fifth of each CPU.
    times = quiet(3, 3, 8)
    times[:, 0] *= 1.25
    machine = Machine(1, 8, cpu=lambda copy, iteration: copy % 2)
    rows = [
        (*row[:12], 25e9, row[13])  # CPU time stands between elapsed time and status
        for row in rows_of(times, machine)
    ]
    found = analyse([rows], names(3), Thresholds()).findings
    assert [(one.kind, one.iteration) for one in found if not one.explained] == [
        (Kind.SLOW_ITERATION, 1)
    ]


@pytest.mark.parametrize(("benchmarks", "copies", "slow"), [(1, 12, (1, 2, 5, 6, 8, 9))])
def test_of_as_many_slow_as_fast_copies_in_one_iteration_none_are_called_normal(
    benchmarks: int, copies: int, slow: tuple[int, ...]
) -> None:
    times = quiet(benchmarks, 1, copies)
    times[:, :, slow] *= 1.29
    finding = only_finding(divots(times, Machine(1, copies)))
    assert finding.copies == slow
    assert finding.slowdown == pytest.approx(1.29, abs=0.01)
    half = copies // 2
    assert (
        f"{half} of {copies} copies differ; this run cannot show which half is normal; use "
        "--iterations 3 or compare with another run"
    ) in finding.summary


def test_two_and_two_of_four_copies_are_told_seldom_where_there_is_only_a_heavy_tail() -> None:
    random = np.random.default_rng(3)
    runs = [100 * np.exp(0.02 * random.standard_t(3, (1, 1, 4))) for _ in range(300)]
    assert sum(bool(divots(times, Machine(1, 4))) for times in runs) <= 9


def test_costs_of_findings_that_hide_each_other_have_words_that_are_true() -> None:
    times = quiet(6, 1, 32)
    times[:, :, 8:16] *= 1.1
    times[:, :, 20] *= 1.3
    copy, lgroup = divots(times, Machine(4, 8))
    assert copy.evidence[0].text == "costs 15 % of the score"
    assert lgroup.evidence[0].text == "costs nothing: slower copies are waited for"


def test_a_slow_iteration_has_the_range_of_its_benchmarks_and_is_one_finding() -> None:
    times = quiet(6, 3, 32)
    times[:, 1] *= np.linspace(1.05, 1.44, 6)[:, None]
    found = only_finding(divots(times, Machine(4, 8)))
    assert found.summary == (
        "iteration 2: all benchmarks +24.4 % (+5 to +44 %, most in b5) against the other iterations"
    )
    own = {cell.benchmark: cell.slowdown for cell in found.cells}
    assert own["b0"] == pytest.approx(1.05, abs=0.01)
    assert own["b5"] == pytest.approx(1.44, abs=0.01)


def test_an_lgroup_that_is_slow_by_more_each_time_is_one_finding_with_its_range() -> None:
    times = quiet(2, 3, 32)
    times[:, :, 8:16] *= np.array([1.05, 1.2, 1.44])[:, None]
    found = only_finding(divots(times, Machine(4, 8)))
    assert (found.place, found.iterations) == ("node 1", ())
    assert "+20.0 % (+5 to +44 %) (8 of 8 copies, 3 of 3 iterations)" in found.summary


@pytest.mark.parametrize("iterations", [2, 3, 4])
def test_two_lgroups_that_swap_are_no_slow_lgroup_and_sizes_are_against_the_other(
    iterations: int,
) -> None:
    times = quiet(1, iterations, 16)
    for iteration in range(iterations):
        times[0, iteration, 8 * (iteration % 2) : 8 * (iteration % 2) + 8] *= 1.15
    found = only_finding(divots(times, Machine(2, 8)))
    assert found.kind is Kind.WANDERING
    assert "iteration 1: node 0 +15.1 %; iteration 2: node 1 +14.9 %" in found.summary
    assert "node 0 -" not in found.summary
    assert gate_status(gate_of(found, 0.01)) == 0


def findings(document: dict[str, Any]) -> list[Finding]:
    return list(findings_in(table_of(document)))


@pytest.mark.slow
@needs_cases
def test_the_shared_cases_are_told_as_they_are() -> None:
    """At the scorer's floors: precision .90, recall .93, .05 false alarms a healthy case."""
    score = scorer()
    told = []
    for name, table in shared_cases():
        told += for_scorer(name, divot_rows(findings_in(table)))
    result = score.score(score.load_truths(DIVOT_CASES / "truth"), told)
    found, truths, false = (
        sum(kind[what] for kind in result["kinds"].values())
        for what in ("found", "truths", "false")
    )
    assert found / (found + false) >= 0.90
    assert found / truths >= 0.93
    assert result["clean"]["alarms"] <= 0.15 * result["clean"]["cases"]


@needs_samples
def test_64_copies_of_a_real_server_show_what_their_times_show() -> None:
    pattern = re.compile(
        r"spec\.cpu2006\.results\.(\w+)\.base\.(\d+)\.copytime(\d+): ([0-9.]+)", re.ASCII
    )
    observations = []
    for line in (SAMPLES / "CINT2006-64copies.rsf").read_text().splitlines():
        match = pattern.match(line)
        if match:
            cpu = int(match[3])  # bindN: numactl -m N/16 --physcpubind=N
            place = {"cpu": cpu, "core": None, "node": cpu // 16, "package": None}
            observations.append(
                {
                    "benchmark": match[1].replace("_", ".", 1),
                    "iteration": int(match[2]),
                    "copy": cpu,
                    "memory": cpu // 16,
                    "elapsed_s": float(match[4]),
                }
                | place
            )
    divots = findings({"observations": observations})
    told = {(divot.kind, divot.place, divot.benchmarks, divot.iterations) for divot in divots}
    # By hand: 812.7 s against 740 s; 401.bzip2 1586 s against 1543 s.
    assert (Kind.SLOW_ITERATION, "all copies", ("400.perlbench",), (1,)) in told
    perlbench = next(divot for divot in divots if divot.benchmark == "400.perlbench")
    assert perlbench.slowdown == pytest.approx(1.098, abs=0.002)
    # 462.libquantum is 1.3 % slower on lgroup 0, but lgroups differ by up to 1.1 % there anyway.
    assert not any(divot.kind is Kind.SLOW_LGROUP for divot in divots)
    # The upper halves of all lgroups are 0.1 to 0.9 % slower: under what counts as a divot.
    assert not any(divot.kind is Kind.OUTLIER_COPY for divot in divots)
    assert len(divots) == 2


@needs_samples
def test_the_fast_copy_of_ten_is_all_that_the_power8_shows() -> None:
    text = (SAMPLES / "CPU2006-10copies-power8.log").read_text()
    died = set(re.findall(r"(\S+): copy (\d+) non-zero return code", text))
    pattern = re.compile(
        r"Copy (\d+) of (\S+) \(peak\s+ref\) run 1 finished at [^.]+\.\s+"
        r"Total\s+elapsed\s+time:\s*([0-9.]+)"
    )
    observations = [
        {"benchmark": name, "iteration": 1, "copy": int(copy), "elapsed_s": float(seconds)}
        | dict.fromkeys(("cpu", "core", "node", "package"))
        | {"status": "failed" if (name, copy) in died else "ok"}
        for copy, name, seconds in pattern.findall(text)
    ]
    assert len(observations) == 290
    (one,) = findings({"observations": observations})
    assert (one.kind, one.benchmark, one.copies) == (Kind.OUTLIER_COPY, "429.mcf", (9,))
    assert one.slowdown == pytest.approx(0.4153, abs=0.0005)  # 161.4 of 388.7 s, the middle of nine

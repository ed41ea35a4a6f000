"""Divots by CPU time where others disturbed a run, and the causes of extra time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.divots.by_cpu_time import judge_by_cpu_time
from rater.analysis.divots.evidence import add_evidence
from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Analysis, Finding, Kind, Thresholds
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import foreign_load_cost
from rater.record.events import CopyEnded, CpuReadings, ForeignProcess, MachineReadings
from rater.record.run import MachinePU
from rater.record.stored import StoredRun, TimeRow
from rater.show.results.to_json import evidence_line
from tests.support.example_findings import finding_of
from tests.support.example_runs import S, copy_row, reading, stored

COPIES, ITERATIONS = 8, 5
NAMES = (("a", "base"),)
ALIKE = np.full((ITERATIONS, COPIES), 10.0)


def own_work(seed: int = 1, noise: float = 0.003) -> Any:
    """CPU seconds (iterations, copies) of copies that do the same."""
    return ALIKE * np.exp(np.random.default_rng(seed).normal(0, noise, ALIKE.shape))


def ended(copy: int, iteration: int, cpu_s: float, others_s: float, cpu: int) -> CopyEnded:
    took_s = cpu_s + others_s
    return copy_row(
        copy,
        took_s,
        phase=iteration,
        iteration=iteration + 1,
        cpu=cpu,
        node=0,
        cpu_ns=round(cpu_s * S),
        user_ns=round(cpu_s * S),
        run_delay_ns=round(others_s * S),
        run_delay_cpu_ns=round(cpu_s * S),
    )


def beside_others(
    cpu_s: Any, others_s: Any, cpus: int = COPIES, command: str = "./wc input"
) -> StoredRun:
    """A run of copies, each on CPU `copy % cpus`, beside others that had so much of the CPUs."""
    waits = np.broadcast_to(others_s, cpu_s.shape)
    iterations, copies = cpu_s.shape
    rows = [
        ended(copy, iteration, cpu_s[iteration, copy], waits[iteration, copy], copy % cpus)
        for iteration in range(iterations)
        for copy in range(copies)
    ]
    run = stored(rows, copies=copies, iterations=iterations)
    longest_ns = max(row.elapsed_ns for row in rows)

    def worked_ns(cpu: int, iteration: int) -> int:
        """What a CPU worked for copies and others: all the time where copies share it."""
        there = [row for row in rows if row.cpu == cpu and row.phase == iteration]
        if len(there) > 1:
            return longest_ns
        return sum((row.cpu_ns or 0) + (row.run_delay_ns or 0) for row in there)

    readings = [
        CpuReadings(
            iteration,
            tuple(reading(cpu, user_ns=worked_ns(cpu, iteration)) for cpu in range(cpus)),
        )
        for iteration in range(iterations)
    ]
    return replace(
        run,
        pus=tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=0, package=0) for cpu in range(cpus)),
        benchmarks=tuple(replace(used, command=command) for used in run.benchmarks),
        cpu_readings=tuple(readings),
        machine_readings=tuple(
            MachineReadings(iteration, (("elapsed_ns", longest_ns),))
            for iteration in range(iterations)
        ),
    )


def time_rows(run: StoredRun) -> Any:
    """The rows that the search reads, as `Store.times` gives them."""
    values = [
        TimeRow(
            benchmark=0,
            iteration=copy.iteration,
            copy=copy.copy,
            step=copy.step,
            cpu=copy.cpu,
            core=copy.cpu,
            llc=0,
            node=0,
            package=0,
            memory=0,
            start_ns=0,
            elapsed_ns=copy.elapsed_ns,
            cpu_ns=copy.cpu_ns,
            good=1,
        )
        for copy in run.copies
    ]
    return np.array(values, dtype=np.float64)


def judged(run: StoredRun) -> Analysis:
    """What `rater divots` finds: by elapsed time, else by CPU time."""
    chunks, counters, thresholds = (time_rows(run),), run_counters(run), Thresholds()
    analysis = analyse(chunks, NAMES, thresholds)
    analysis = replace(analysis, others_cost=foreign_load_cost(run, counters))
    if analysis.disturbed:
        analysis = judge_by_cpu_time(analysis, run, chunks, NAMES, counters, thresholds=thresholds)
    return replace(analysis, findings=add_evidence(analysis.findings, run))


WAITS = np.abs(np.random.default_rng(5).normal(6.0, 2.0, ALIKE.shape))


def test_a_copy_that_works_more_is_found_by_cpu_time_beside_others() -> None:
    cpu_s = own_work()
    cpu_s[:, 3] *= 1.1
    analysis = judged(beside_others(cpu_s, WAITS))
    assert analysis.disturbed == ()
    assert analysis.disturbed_times != ()
    (finding,) = analysis.findings
    assert (finding.copies, finding.by_cpu) == ((3,), True)
    assert finding.slowdown == pytest.approx(1.1, abs=0.01)
    line = evidence_line(finding)
    assert ", by CPU time;" in line
    assert "used 9.9 % more CPU time: it did more work, or computed more slowly" in line
    assert analysis.visible["cpu"] < 0.04


@pytest.mark.parametrize("seed", range(6))
def test_copies_that_do_the_same_beside_others_have_no_divot(seed: int) -> None:
    waits = np.abs(np.random.default_rng(seed).normal(6.0, 3.0, ALIKE.shape))
    waits[:, 2] += 10.0  # a competitor stays on CPU 2
    analysis = judged(beside_others(own_work(seed), waits))
    assert (analysis.disturbed, analysis.findings) == ((), ())
    assert analysis.by_cpu is not None


def test_what_others_on_a_cpu_cost_in_caches_is_no_fault_of_the_cpu() -> None:
    cpu_s, waits = own_work(), np.zeros(ALIKE.shape)
    waits[:, 2] = 10.0
    cpu_s[:, 2] *= 1.04
    (explained,) = judged(beside_others(cpu_s, waits)).findings
    assert (explained.explained, explained.copies) == (True, (2,))
    assert explained.expectation is not None
    assert explained.expectation.startswith("others had 49 % of its CPU (0 % of those of other")
    cpu_s[:, 2] *= 1.2
    (finding,) = judged(beside_others(cpu_s, waits)).findings
    assert (finding.explained, finding.copies) == (False, (2,))


def test_a_state_of_some_iterations_accuses_no_place_by_cpu_time() -> None:
    cpu_s = own_work()
    cpu_s[3:, 2] *= 1.2  # 2 of 5 iterations
    analysis = judged(beside_others(cpu_s, WAITS))
    assert [finding for finding in analysis.findings if finding.copies == (2,)] == []
    assert analysis.by_cpu is not None


def test_a_difference_within_the_states_of_noisy_copies_accuses_no_place() -> None:
    cpu_s = own_work(noise=0.06)
    cpu_s[:, 2] *= 1.12
    analysis = judged(beside_others(cpu_s, WAITS))
    assert analysis.findings == ()
    assert min(analysis.visible.get("cpu", 1.0), 1.0) > 0.15  # and none is promised


def test_copies_that_share_cpus_are_not_judged_by_cpu_time() -> None:
    cpu_s = own_work()
    cpu_s[:, 3] *= 1.5
    analysis = judged(beside_others(cpu_s, 50.0, cpus=2))
    assert analysis.not_by_cpu == "8 copies share 2 CPUs"
    assert analysis.by_cpu is None
    assert analysis.disturbed != ()


def test_one_iteration_says_nothing_by_cpu_time() -> None:
    cpu_s = own_work()[:1]
    cpu_s[:, 3] *= 1.5
    analysis = judged(beside_others(cpu_s, WAITS[:1]))
    assert analysis.not_by_cpu == "one iteration of one benchmark says nothing by CPU time"


def slow(*copies: int, **changes: Any) -> Finding:
    """A finding of all iterations whose copies are slow."""
    return replace(
        finding_of(Kind.SLOW_CPU, f"CPU {copies[0]}", copies, **changes),
        benchmarks=(),
        iterations=(),
    )


def finding_of_copy_3(run: StoredRun) -> Finding:
    (finding,) = (finding for finding in judged(run).findings if finding.copies == (3,))
    return finding


def test_the_three_causes_of_extra_time_have_their_shares() -> None:
    cpu_s, others_s = own_work(noise=0.001), np.zeros(ALIKE.shape)
    cpu_s[:, 3] += 3.0
    others_s[:, 3] = 1.0
    finding = finding_of_copy_3(beside_others(cpu_s, others_s, cpus=COPIES))
    shares = finding.time_shares
    assert shares is not None
    assert shares.cpu == pytest.approx(0.75, abs=0.02)
    assert shares.waited_others == pytest.approx(0.25, abs=0.02)
    assert (shares.waited_own, shares.waited, shares.slept) == (0.0, None, 0.0)
    line = evidence_line(finding)
    assert "of the extra time: 75 % more CPU time, 25 % waiting for other processes" in line


def test_a_copy_with_an_input_of_its_own_is_named_and_not_its_cpu() -> None:
    cpu_s = own_work(noise=0.001)
    cpu_s[:, 3] *= 1.5
    same = finding_of_copy_3(beside_others(cpu_s, 0.0))
    assert (same.kind, same.place) == (Kind.SLOW_CPU, "CPU 3")
    own = finding_of_copy_3(
        beside_others(cpu_s, 0.0, command="sh -c 'exec ./wc in$RATER_COPY.txt'")
    )
    assert (own.kind, own.place) == (Kind.OUTLIER_COPY, "copy 3 (CPU 3)")
    imported = beside_others(cpu_s, 0.0, command="")
    imported = replace(imported, head=replace(imported.head, source="import"))
    both = finding_of_copy_3(imported)
    assert (both.kind, both.place) == (Kind.SLOW_CPU, "CPU 3 (copy 3)")


def test_a_cpu_on_which_a_copy_waited_keeps_its_name() -> None:
    others_s = np.zeros(ALIKE.shape)
    others_s[:, 3] = 0.8
    finding = finding_of_copy_3(
        beside_others(own_work(noise=0.001), others_s, command="./wc in$RATER_COPY.txt")
    )
    assert (finding.kind, finding.place) == (Kind.SLOW_CPU, "CPU 3")
    assert "waited 7.4 % of the time for CPU 3, which other processes had" in evidence_line(finding)


def test_who_had_the_cpu_that_a_copy_waited_for_is_named() -> None:
    others_s = np.zeros(ALIKE.shape)
    others_s[:, 3] = 0.8
    run = beside_others(own_work(noise=0.001), others_s)
    burn = ForeignProcess(
        phase=0, cpu=3, pid=123, name="burn", cpu_ns=700_000_000, observed_ns=10 * S
    )
    named = replace(
        run,
        foreign_processes=tuple(replace(burn, phase=phase) for phase in range(ITERATIONS)),
    )
    line = evidence_line(finding_of_copy_3(named))
    assert "for CPU 3, which other processes had, mostly burn (PID 123)" in line
    assert "mostly" not in evidence_line(finding_of_copy_3(run))

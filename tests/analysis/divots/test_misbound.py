"""A server whose bind list gives eight copies the memory of another node, and whose CPU 0 is slow.

After a public result of an arm64 server: copy 0 was accused of remote memory, and what the two
faults cost stood in the wrong order.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, median

import pytest

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.record.stored import TimeRow
from rater.show.results.to_json import evidence_line

REMOTE, COPIES, BENCHMARKS, ITERATIONS = range(16, 24), 64, 12, (1, 2, 3)


def seconds(seed: int, cpu_0: float, remote: float) -> dict[tuple[int, int, int], float]:
    """Both slow what waits for memory, every other benchmark, and nothing else."""
    noise = random.Random(seed)
    return {
        (benchmark, iteration, copy): (100 + benchmark)
        * math.exp(noise.gauss(0, 0.004))
        * (1 + (cpu_0 if copy == 0 else remote if copy in REMOTE else 0.0) * (benchmark % 2))
        for benchmark in range(BENCHMARKS)
        for iteration in ITERATIONS
        for copy in range(COPIES)
    }


def findings_of(times: dict[tuple[int, int, int], float]) -> list[Finding]:
    rows = [
        TimeRow(
            benchmark=benchmark,
            iteration=iteration,
            copy=copy,
            step=0,
            cpu=copy,
            core=copy,
            llc=None,
            node=copy // 16,
            package=copy // 32,
            memory=2 if copy in REMOTE else copy // 16,
            start_ns=0,
            elapsed_ns=round(1e9 * time_s),
            cpu_ns=None,
            good=1,
        )
        for (benchmark, iteration, copy), time_s in times.items()
    ]
    names = [(f"b{benchmark:02}", None) for benchmark in range(BENCHMARKS)]
    pus = [(cpu, 1) for cpu in range(COPIES)]
    return [*analyse([rows], names, Thresholds(), core_pus=pus).findings]


def score(times: dict[tuple[int, int, int], float]) -> float:
    """The geometric mean of what the slowest copy allows in the median iteration, by hand."""
    slowest = [
        median(
            max(times[benchmark, iteration, copy] for copy in range(COPIES))
            for iteration in ITERATIONS
        )
        for benchmark in range(BENCHMARKS)
    ]
    return math.exp(-fmean(map(math.log, slowest)))


@pytest.mark.parametrize(("cpu_0", "remote"), [(0.12, 0.12), (0.18, 0.12), (0.12, 0.18)])
@pytest.mark.parametrize("seed", [1, 2])
def test_remote_memory_is_told_of_the_copies_that_have_it_and_costs_are_those_of_the_score(
    seed: int, cpu_0: float, remote: float
) -> None:
    times = seconds(seed, cpu_0, remote)
    findings = findings_of(times)
    of_memory = [finding for finding in findings if "memory" in evidence_line(finding)]
    assert [divot.copies for divot in of_memory] == [tuple(REMOTE)]
    assert {finding.copies for finding in findings} == {tuple(REMOTE), (0,)}
    assert findings == sorted(findings, key=lambda divot: -divot.cost)
    without = {tuple(REMOTE): seconds(seed, cpu_0, 0.0), (0,): seconds(seed, 0.0, remote)}
    for divot in findings:
        lost = 1 - score(times) / score(without[divot.copies])
        assert divot.score_lost == pytest.approx(lost, abs=0.005)

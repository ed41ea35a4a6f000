"""When something slowed a finding's copies: the period that they had and others had not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rater.analysis.divots.model.finding import CellEffect, EvidenceKind, Finding, Kind
from rater.analysis.divots.over_time import add_periods
from rater.record.stored import StoredRun
from tests.support.example_findings import finding_of
from tests.support.series import busy_run, packed

RUN = busy_run(iterations=2)


def evidence_of(finding: Finding, run: StoredRun = RUN) -> list[tuple[str, Any]]:
    [with_periods] = add_periods([finding], run)
    return [(evidence.text, evidence.during) for evidence in with_periods.evidence]


def slow_cpu(*cpus: int, iterations: tuple[int, ...], **changes: Any) -> Finding:
    cells = tuple(
        CellEffect(benchmark="a", tune="base", iteration=iteration, slowdown=1.1, rate_lost=0.1)
        for iteration in iterations
    )
    return finding_of(Kind.SLOW_CPU, "CPU", cpus, cells=cells, **changes)


def test_a_slow_cpu_has_the_seconds_in_which_others_had_it() -> None:
    expected = ("CPU 1: others had 50 % from second 3 to 6", (3.0, 6.0))
    assert evidence_of(slow_cpu(1, iterations=(2,))) == [expected]


def test_of_several_brackets_the_one_is_named() -> None:
    [(text, during)] = evidence_of(slow_cpu(1, iterations=(1, 2)))
    assert text == "CPU 1: others had 50 % from second 3 to 6 (a, iteration 2)"
    assert during == (3.0, 6.0)


def test_cpus_without_a_period_and_brackets_before_it_have_none() -> None:
    assert evidence_of(slow_cpu(2, iterations=(2,))) == []
    assert evidence_of(slow_cpu(1, iterations=(1,))) == []


def test_a_copy_that_read_at_its_start_has_that_and_replaces_not_explained() -> None:
    nothing = EvidenceKind.UNEXPLAINED.evidence("nothing recorded explains it")
    finding = slow_cpu(0, iterations=(1,), evidence=(nothing,))
    assert evidence_of(finding) == [
        ("start-up of copy 0: 0.3 of 1 s computed, 60 MB/s read", (0.0, 1.0))
    ]


def test_a_node_whose_memory_moved_less_than_others_has_both_rates() -> None:
    gigabyte = 10**9
    rows: dict[float, Any] = {
        20 + second: [[second * 21 * gigabyte, second * 34 * gigabyte], [0, 0]]
        for second in range(11)
    }
    traffic = packed("traffic", (0, 1), ("written_bytes", "read_bytes"), rows, phase=1)
    run = replace(RUN, series=(*RUN.series, traffic))
    slow_node = slow_cpu(2, 3, iterations=(2,), nodes=(0,))
    assert evidence_of(slow_node, run) == [
        ("node 0 wrote 21 GB/s, others 34, while slow", None),
    ]
    fast_node = slow_cpu(2, 3, iterations=(2,), nodes=(1,))
    assert evidence_of(fast_node, run) == []


def test_what_the_layout_explains_and_runs_without_series_are_left_alone() -> None:
    finding = slow_cpu(1, iterations=(2,))
    assert evidence_of(replace(finding, explained=True)) == []
    assert evidence_of(finding, replace(RUN, series=())) == []
    damaged = replace(RUN.series[0], packed=b"")
    assert evidence_of(finding, replace(RUN, series=(damaged,))) == []

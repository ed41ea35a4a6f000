"""Comparisons by CPU time, and where it judges nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.differences import disturbed_points
from rater.analysis.stats.intervals import Decision
from rater.record.stored import StoredRun
from tests.support.compared_runs import (
    SIX,
    beside_others,
    brackets,
    only,
    point,
    speedup_of,
    speedup_words,
)
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading

BESIDE_A_THREAD = "not by CPU time: a CPU was shared with another thread of its core"


@pytest.mark.parametrize(
    ("loud", "words"),
    [
        (6, f"cannot tell: 6 of 6 runs disturbed; {BESIDE_A_THREAD}"),
        (4, f"cannot tell: 4 of 6 runs disturbed; {BESIDE_A_THREAD}"),
        (3, ""),  # half is not most
    ],
)
def test_a_point_whose_runs_are_mostly_disturbed_has_no_verdict(loud: int, words: str) -> None:
    # The other thread of the core worked: CPU time is no judge either.
    taken = beside_others(7, SIX[:loud], 4.0, sibling_s=5.0)
    quiet = beside_others(7 + loud, SIX[loud:], 0.0)
    comparison = compare([point("x", *beside_others(1, SIX, 0.0)), point("y", *taken, *quiet)])
    speedup = speedup_of(comparison)
    assert (speedup.verdict is Decision.CANNOT_TELL) is bool(words)
    if words:
        assert (speedup.verdict_text, speedup.low, only(comparison).cells[0].holds) == (
            words,
            None,
            False,
        )
        assert comparison.unjudged()[0][2] == words.partition(": ")[2]
        assert (only(comparison).cells[0].improvement, only(comparison).cells[0].reduction) == (
            None,
            None,
        )
        (disturbed,) = disturbed_points(side.points[0] for side in comparison.sides)
        assert disturbed == f"y: {words.partition(';')[0]}"


@pytest.mark.parametrize(
    ("cpu_s", "words"),
    [
        (SIX[1:] + SIX[:1], "same (by CPU time: others took 40 % of the CPU)"),
        ([it * 1.05 for it in SIX], "worse (by CPU time: others took 39 % of the CPU)"),
    ],
)
def test_cpu_time_judges_programs_that_others_took_the_cpu_of(
    cpu_s: list[float], words: str
) -> None:
    quiet = point("x", *beside_others(1, SIX, 0.0))
    found = compare([quiet, point("y", *beside_others(7, cpu_s, 4.0))])
    assert speedup_words(found).startswith(words.split(maxsplit=1)[0])
    assert speedup_words(found).endswith(words.partition(" ")[2])
    assert only(found).cells[0].value == pytest.approx(1.0, rel=0.06)  # its ratio stays


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"asleep_s": 1.0}, "copies slept 9 % of the time"),
        ({"sibling_s": 5.0}, "a CPU was shared with another thread of its core"),
    ],
)
def test_cpu_time_is_no_judge_where_a_program_sleeps_or_shares_a_core(
    changes: dict[str, float], why: str
) -> None:
    quiet = point("x", *beside_others(1, SIX, 0.0))
    taken = point("y", *beside_others(7, SIX, 4.0, **changes))
    words = f"cannot tell: 6 of 6 runs disturbed; not by CPU time: {why}"
    assert speedup_words(compare([quiet, taken])) == words
    assert speedup_words(compare([quiet, taken], by_cpu=True)) == words


def test_cpu_time_judges_quiet_runs_where_it_is_asked_for() -> None:
    points = [point("x", *beside_others(1, SIX, 0.0)), point("y", *beside_others(7, SIX, 0.0))]
    assert "by CPU time" not in speedup_words(compare(points))
    assert speedup_words(compare(points, by_cpu=True)).endswith("others took 0 % of the CPU)")
    unread = point("x", *brackets(1, [10.0, 10.1])), point("y", *brackets(3, [10.0, 10.1]))
    assert speedup_words(compare(unread, by_cpu=True)) == (
        "cannot tell: not by CPU time: it is not known how long copies waited for a CPU"
    )


def test_values_of_a_verdict_by_cpu_time_are_in_its_unit() -> None:
    # The reference takes 10 s, a copy 6.005 s of CPU time (6.01 s is the median) or a fifth more;
    # with the 4 s of others its time is 11.2 s.
    quiet, slow = point("x", *beside_others(1, SIX, 0.0)), [cpu_s * 1.2 for cpu_s in SIX]
    cell = only(compare([quiet, point("y", *beside_others(7, slow, 4.0))])).cells[0]
    assert cell.by_cpu is not None
    assert cell.by_cpu.unit == "ratio by CPU time"
    assert cell.by_cpu.baseline == pytest.approx(1.665, abs=0.001)
    assert cell.by_cpu.value == pytest.approx(1.665 / 1.2, abs=0.001)
    assert cell.speedup is not None
    assert cell.by_cpu.value / cell.by_cpu.baseline == pytest.approx(cell.speedup.ratio)
    assert cell.value == pytest.approx(0.893, abs=0.001)
    assert (cell.judged_baseline, cell.judged_value) == (cell.by_cpu.baseline, cell.by_cpu.value)


@pytest.mark.parametrize("copies", [2, 3, 8])
def test_a_point_of_more_copies_than_cpus_has_no_verdict_by_cpu_time(copies: int) -> None:
    def run_of(number: int, copies: int) -> StoredRun:
        """Copies on CPUs 0 and 2, cores of their own; others take 4 s of each CPU."""
        own_s = 12.0 / copies
        rows = [
            computed(copy, own_s, cpu=2 * (copy % 2), run_delay_ns=round((10.0 - own_s) * S))
            for copy in range(copies)
        ]
        rows = [replace(row, run_delay_cpu_ns=row.cpu_ns) for row in rows]
        run = read_run(rows, *(reading(cpu, 10.0 * (cpu in (0, 2))) for cpu in range(4)))
        head = replace(run.head, run=number, uuid=f"u-{number}", copies=copies)
        pus = tuple(pu for pu in run.pus if pu.cpu in (0, 2))
        return replace(run, head=head, pus=pus)

    few = point("few", *(run_of(number, 2) for number in range(1, 7)))
    many = point("many", *(run_of(number, copies) for number in range(7, 13)))
    words = speedup_words(compare([few, many], by_cpu=True))
    if copies == 2:
        assert words.startswith("same within 1 %") or "by CPU time" in words
    else:
        assert words.endswith(f"not by CPU time: {copies} copies share 2 CPUs")
        assert words.startswith("cannot tell")

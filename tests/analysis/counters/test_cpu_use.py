"""Whose work the CPUs did: small cases whose answer stands beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rater.analysis.results.cpu_use import CpuUse, DisturbanceKind, MachineDisturbance, run_counters
from rater.record.events import CpuReading
from rater.record.run import CopyStatus
from rater.record.stored import StoredCopy, StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading, stored


def uses(run: StoredRun) -> list[CpuUse]:
    return list(run_counters(run).cpus)


def foreign(run: StoredRun) -> list[float | None]:
    return [None if use.foreign is None else round(use.foreign, 6) for use in uses(run)]


def matters(run: StoredRun) -> dict[DisturbanceKind, MachineDisturbance]:
    return {one.matter: one for one in run_counters(run).notable}


def test_shares_are_of_the_time_between_both_readings() -> None:
    row = reading(
        5, 6.0, 1.0, irq_ns=S, iowait_ns=2 * S, steal_ns=S // 2, mean_khz=2_500_000, interrupts=300
    )
    [use] = uses(read_run([computed(0, 4.0, cpu=5)], row))
    assert (use.cpu, use.node, use.copies, use.together) == (5, 1, (0,), 1)
    assert (use.busy, use.irq, use.iowait, use.steal) == (0.8, 0.1, 0.2, 0.05)
    assert use.foreign == pytest.approx(0.3)  # 7 s of work, 4 s of it the copy's
    assert (use.mean_mhz, use.interrupts_per_s, use.throttles) == (2500.0, 30.0, None)


def test_all_copies_of_a_cpu_are_its_own_and_a_cpu_without_copies_has_none() -> None:
    run = read_run(
        [computed(0, 3.0, cpu=1), computed(1, 4.0, cpu=1)], reading(0, 1.0), reading(1, 9.0)
    )
    assert foreign(run) == [0.1, 0.2]
    assert [use.copies for use in uses(run)] == [(), (0, 1)]
    # What the kernel rounds is no foreign load below nothing.
    assert foreign(read_run([computed(0, 5.01)], reading(0, 5.0))) == [0.0]


def test_ticks_that_come_to_more_than_the_time_there_was_are_no_more_than_all_of_it() -> None:
    others, own = uses(read_run([computed(0, 4.0, cpu=1)], reading(0, 10.4), reading(1, 10.3)))
    assert (others.busy, others.foreign) == (1.0, 1.0)
    assert (own.busy, own.foreign) == (1.0, 0.6)


def test_cpus_that_the_same_copies_may_use_share_their_foreign_load() -> None:
    rows = [reading(0, 9.0), reading(1, 2.0), reading(2, 4.0), reading(3, 1.0)]
    # Copies 0 and 1 have CPUs 0-1 and 1-2 and so all three: 15 s of work, 9 s are theirs.
    copies = [computed(0, 4.0), computed(1, 5.0)]
    run = read_run(copies, *rows, masks=[(0, 1), (1, 2)])
    assert foreign(run) == [0.2, 0.2, 0.2, 0.1]
    assert [use.together for use in uses(run)] == [3, 3, 3, 1]


def test_copies_that_are_not_bound_may_use_all_cpus() -> None:
    copies = [computed(0, 4.0, cpu=None), computed(1, 4.0, cpu=None)]
    run = read_run(copies, reading(0, 5.0), reading(1, 5.0))
    assert foreign(run) == [0.1, 0.1]
    assert [use.copies for use in uses(run)] == [(0, 1), (0, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": CopyStatus.TIMEOUT},
        {"status": CopyStatus.INTERRUPTED},
        {"status": CopyStatus.FAILED, "exit_code": None, "signal": 9},
        {"note": "left processes behind in its process group; they were killed"},
        {"last_cpu": 6},
    ],
)
def test_where_not_all_of_a_copys_time_is_known_neither_is_the_foreign_load(
    changes: dict[str, Any],
) -> None:
    run = read_run(
        [computed(0, 4.0, **changes), computed(1, 4.0)], reading(0, 9.0), reading(1, 9.0)
    )
    assert foreign(run) == [None, 0.5]


def test_later_runs_of_a_queue_had_their_gate_in_the_phase_and_fillers_are_no_foreign_load() -> (
    None
):
    first = replace(computed(0, 2.0), user_ns=3 * S)  # 1 s of gate, before the release
    then = replace(computed(0, 2.0, step=1), user_ns=3 * S)
    run = read_run([first, then], reading(0, 7.0, filler_ns=S))
    assert foreign(run) == [0.1]  # 7 s less 2 s, 3 s, and 1 s of fillers


def test_a_copy_counts_where_it_ran_though_its_run_went_on_elsewhere() -> None:
    run = read_run([computed(0, 4.0, cpu=1)], reading(1, 4.0), reading(2, 0.0), masks=[(2,)])
    run = replace(run, placements=(replace(run.placements[0], cpu=2),))
    assert [use.copies for use in uses(run)] == [(0,), ()]


def test_a_torn_attempt_has_no_readings() -> None:
    run = read_run([computed(0, 4.0), computed(0, 4.0, phase=1)], reading(0, 9.0))
    torn = replace(run, brackets=(replace(run.brackets[0], torn=True), run.brackets[1]))
    assert [use.phase for use in uses(torn)] == [1]
    assert [it.phase for it in run_counters(torn).machine] == [1]


def test_a_run_without_readings_says_nothing() -> None:
    result = run_counters(stored([computed(0, 4.0)]))
    assert (result.cpus, result.machine, result.notable) == ((), (), ())


# -- what is notable -------------------------------------------------------------------------------


def test_foreign_load_names_the_cpu_with_most_and_all_that_have_it() -> None:
    copies = [computed(n, 5.0, phase=p, iteration=p + 1) for p in range(2) for n in range(3)]
    run = read_run(copies, reading(0, 5.1), reading(1, 5.3), reading(2, 8.0))
    assert matters(run) == {
        DisturbanceKind.FOREIGN: MachineDisturbance(
            DisturbanceKind.FOREIGN, 0, "a", 1, 2, share=0.3, times=None, cpus=(1, 2), phases=2
        )
    }


@pytest.mark.parametrize(
    ("copy", "rows", "counters"),
    [
        # A quiet machine: 1.5 % and 0.9 %; CPU 1 has no copy.
        (
            computed(0, 10.0),
            [reading(0, 10.15, steal_ns=S // 11), reading(1, 9.0)],
            {"pswpin": 0, "pressure_memory_some_ns": S // 11},
        ),
        # What rater itself used is not held against others.
        (computed(0, 5.0), [reading(0, 5.3)], {"rater_cpu_ns": S // 5}),
        # A few ticks of a short phase: 4 %.
        (computed(0, 0.5), [reading(0, 0.54, steal_ns=S // 25)], {"elapsed_ns": S}),
        # An iteration that does not count: 40 %.
        (computed(0, 5.0, counted=False), [reading(0, 9.0)], {}),
    ],
)
def test_what_is_little_or_does_not_count_is_not_notable(
    copy: StoredCopy, rows: list[CpuReading], counters: dict[str, Any]
) -> None:
    run = read_run([copy], *rows, **counters)
    assert any(foreign(run))
    assert run_counters(run).notable == ()


def test_steal_heat_swap_and_waits_for_memory_are_told_where_they_were_worst() -> None:
    rows = [
        reading(0, 5.0, steal_ns=S // 2, throttles=0),
        reading(1, 5.0, steal_ns=S // 4, throttles=7),
    ]
    copies = [computed(0, 5.0), computed(1, 5.0)]
    found = matters(read_run(copies, *rows, pswpin=2, pswpout=3, pressure_memory_some_ns=S))
    steal, hot = found[DisturbanceKind.STEAL], found[DisturbanceKind.THROTTLED]
    assert (steal.cpu, steal.share, steal.cpus) == (0, 0.05, (0, 1))
    assert (hot.cpu, hot.times, hot.cpus) == (1, 7, (1,))
    assert (found[DisturbanceKind.SWAP].cpu, found[DisturbanceKind.SWAP].times) == (None, 5)
    assert (found[DisturbanceKind.MEMORY].share, found[DisturbanceKind.MEMORY].times) == (0.1, None)
    assert list(found) == [
        DisturbanceKind.STEAL,
        DisturbanceKind.THROTTLED,
        DisturbanceKind.SWAP,
        DisturbanceKind.MEMORY,
    ]


def test_without_pressure_the_waits_for_memory_are_counted() -> None:
    found = matters(read_run([computed(0, 5.0)], reading(0, 5.0), allocstall=12))
    assert (found[DisturbanceKind.MEMORY].share, found[DisturbanceKind.MEMORY].times) == (None, 12)
    known = read_run([computed(0, 5.0)], reading(0, 5.0), allocstall=12, pressure_memory_some_ns=0)
    assert matters(known) == {}

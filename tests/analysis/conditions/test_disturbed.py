"""What others cost a run, and from where on it cannot be judged: small cases, the answer beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import disturbance_reasons, foreign_load_cost
from rater.record.events import CpuReading
from rater.record.stored import StoredCopy, StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading, stored


def cost(run: StoredRun) -> float | None:
    found = foreign_load_cost(run, run_counters(run))
    return None if found is None else round(found, 3)


QUIET = (reading(0, 9.9), reading(1, 9.9))


@pytest.mark.parametrize(
    ("copies", "rows", "lost"),
    [
        # Nobody else worked.
        ([computed(0, 9.9), computed(1, 9.9)], QUIET, 0.0),
        # Others had half of both CPUs: without them the copies take 5 s instead of 10.
        ([computed(0, 5.0), computed(1, 5.0)], (reading(0, 10.0), reading(1, 10.0)), 0.5),
        # Of one CPU: its copy ends last, at 10 s; without them both end at 6 s.
        (
            [computed(0, 5.0), replace(computed(1, 6.0), elapsed_ns=6 * S)],
            (reading(0, 10.0), reading(1, 6.0)),
            0.4,
        ),
        # The copy waited by itself, for input or a neighbour: it lost 1 s, what others worked.
        ([computed(0, 5.0)], (reading(0, 6.0),), 0.1),
        # It had its CPU all the time: others worked there when it was done.
        ([replace(computed(0, 4.0), elapsed_ns=4 * S)], (reading(0, 9.0),), 0.0),
        # A copy that sleeps wants no CPU: others worked there all the time, and took .1 s at most.
        ([computed(0, 0.1)], (reading(0, 10.0),), 0.01),
        # The hypervisor's other guests are others, too.
        ([computed(0, 7.0)], (reading(0, 7.0, steal_ns=3 * S),), 0.3),
        # Two copies share the CPU, each has half of it; others had a fifth.
        (
            [computed(0, 4.0, cpu=0), computed(1, 4.0, cpu=0)],
            (reading(0, 10.0),),
            0.2,
        ),
        # Not bound: of two CPUs 16 s were theirs and 4 s others'.
        (
            [computed(0, 8.0, cpu=None), computed(1, 8.0, cpu=None)],
            (reading(0, 10.0), reading(1, 10.0)),
            0.2,
        ),
        # Of three iterations the median stands: one that was disturbed costs nothing.
        (
            [computed(0, 5.0 if k == 1 else 9.9, phase=k, iteration=k + 1) for k in range(3)],
            (reading(0, 9.9),),
            0.0,
        ),
        # An iteration that does not count.
        ([computed(0, 5.0, counted=False)], (reading(0, 10.0),), None),
    ],
)
def test_what_others_cost_is_the_score_without_the_time_they_took(
    copies: list[StoredCopy], rows: tuple[CpuReading, ...], lost: float | None
) -> None:
    assert cost(read_run(copies, *rows)) == lost


def test_of_many_others_a_copy_may_have_waited_for_each() -> None:
    run = read_run([computed(0, 2.0)], reading(0, 10.0))
    assert cost(run) == 0.2  # with one other, which got as much
    assert cost(replace(run, settings=(("load.1min", "4.10"),))) == 0.8
    assert cost(replace(run, settings=(("load.1min", "nan"),))) == 0.2


def test_rater_itself_is_no_other() -> None:
    assert cost(read_run([computed(0, 9.0)], reading(0, 10.0), rater_cpu_ns=S)) == 0.0


def test_without_a_barrier_it_is_the_share_of_all_copies_time() -> None:
    run = read_run([computed(0, 5.0), computed(1, 10.0)], reading(0, 10.0), reading(1, 10.0))
    assert cost(replace(run, head=replace(run.head, order="rotated"))) == 0.25
    # Of a queue each run lost its part of what others worked: 1 s of 5 s.
    queue = [replace(computed(0, 2.0, step=k), elapsed_ns=5 * S, user_ns=2 * S) for k in range(2)]
    run = read_run(queue, reading(0, 6.0))
    assert cost(replace(run, head=replace(run.head, order="rotated"))) == 0.2


def test_where_cpus_were_not_read_nothing_is_known() -> None:
    assert cost(stored([computed(0, 5.0)])) is None


@pytest.mark.parametrize(
    ("others", "noise", "told"),
    [
        (None, None, ()),
        (0.099, 0.19, ()),
        (0.44, 0.1, ("other work on these CPUs lowered the score by 44 %",)),
        (None, 0.3, ("times vary so much that noise alone lowered the score by 30 %",)),
    ],
)
def test_a_run_is_too_disturbed_where_others_or_noise_cost_too_much(
    others: float | None, noise: float | None, told: tuple[str, ...]
) -> None:
    assert disturbance_reasons(others, noise) == told

"""Counts of a run as cycles per instruction and their parts."""

from __future__ import annotations

import random
from dataclasses import replace
from math import fsum

import pytest

from rater.analysis.results.counters import BenchmarkCounts, Rates, metrics_of, run_counts, stack_of
from rater.plan.counter_tables import TABLE_TEXT, load_table, table_names
from rater.record.events import EventCount
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from tests.support.counted_runs import SKX, STACK, counted_run, group_counts
from tests.support.example_runs import copy_row, stored


def only(run: StoredRun) -> BenchmarkCounts:
    [found] = run_counts(run).benchmarks
    return found


def test_groups_of_several_iterations_make_one_stack() -> None:
    found = only(counted_run())
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.0)
    assert found.rates.ghz == pytest.approx(3.0)  # 2000 and 4000 cycles in 1000 ns each
    assert found.rates.instructions == 1500
    assert found.stack
    assert {part.name: part.cycles for part in found.stack.parts} == pytest.approx(STACK)
    assert (found.stack.excess, found.stack.missing) == (0.0, ())
    assert dict(found.metrics) == pytest.approx(
        {"llc_mpki": 20.0, "branch_mpki": 4.0, "walk_cycles": 0.2, "remote_dram_share": 0.25}
    )
    assert found.cpi_spread == pytest.approx(0.0)
    assert [(it.name, it.iterations, it.runs, it.share) for it in found.groups] == [
        (f"{SKX}:{name}", (n,), 2, 1.0)
        for n, name in enumerate(("pipeline", "memory", "translation", "numa"), 1)
    ]
    assert run_counts(counted_run()).cost_us == pytest.approx(60.0)


def test_each_count_is_divided_by_the_instructions_of_its_own_run() -> None:
    run = counted_run(("pipeline", "memory"))
    slow = tuple(
        replace(copy, counts=group_counts("memory", 1 + copy.copy, cycles=3000))
        if copy.iteration == 2
        else copy
        for copy in run.copies
    )
    found = only(replace(run, copies=slow))
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.5)
    assert found.cpi_spread == pytest.approx(0.4)
    assert found.stack
    assert found.stack.missing == ("translation", "l1")
    assert found.stack.parts[-1].cycles == pytest.approx(2.5 - 0.3 - 0.1 - 0.05 - 0.2 - 0.2 - 0.5)


def test_what_was_counted_for_a_part_of_the_time_is_scaled_and_told() -> None:
    found = only(counted_run(running=0.5))
    assert found.rates
    assert found.rates.instructions == pytest.approx(1500)
    assert found.rates.ghz == pytest.approx(3.0)
    assert {group.share for group in found.groups} == {0.5}


def test_user_mode_alone_has_no_clock_as_its_time_is_of_the_kernel_too() -> None:
    run = counted_run(end=":u")
    found = only(run)
    assert run_counts(run).user_only
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.0)
    assert found.rates.ghz is None
    assert found.stack


def test_a_group_that_was_never_counted_is_none_and_not_0() -> None:
    never = tuple(replace(it, value=None, running_ns=0) for it in group_counts("numa"))
    found = only(replace(counted_run(), copies=(copy_row(0, 1.0, counts=never),)))
    assert (found.rates, found.stack, found.metrics) == (None, None, ())
    assert [(it.share, it.cpi, it.means) for it in found.groups] == [(0.0, None, ())]


def test_copies_that_failed_or_do_not_count_are_left_out() -> None:
    run = counted_run(("pipeline",))
    failed = tuple(replace(copy, status=CopyStatus.FAILED) for copy in run.copies)
    discarded = tuple(replace(copy, counted=False) for copy in run.copies)
    assert not run_counts(replace(run, copies=failed + discarded)).benchmarks


def test_a_damaged_table_leaves_what_needs_no_table() -> None:
    found = only(replace(counted_run(), settings=((f"{TABLE_TEXT}{SKX}", "[pmu"),)))
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.0)
    assert (found.stack, found.metrics) == (None, ())


def test_parts_and_metrics_without_bounds_are_left_out_and_the_rest_stays_finite() -> None:
    text = load_table(SKX).text
    for formula in ("l3_miss", "dram_remote / (dram_local + dram_remote)"):
        text = text.replace(f'= "{formula}"', f'= "{" * ".join(["1e12"] * 27)}"')
    found = only(replace(counted_run(), settings=((f"{TABLE_TEXT}{SKX}", text),)))
    assert found.stack
    assert fsum(part.cycles for part in found.stack.parts) == pytest.approx(2.0)
    assert "llc_mpki" in dict(found.metrics)
    assert "remote_dram_share" not in dict(found.metrics)


def test_software_events_are_means_of_a_copy_run() -> None:
    counts = (EventCount("software:software", "minor_faults", 500, 10, 10),)
    found = only(stored([copy_row(0, 1.0, counts=counts), copy_row(1, 1.0, counts=counts)]))
    assert found.rates is None
    assert found.groups[0].means == (("minor_faults", 500.0),)


def test_the_parts_of_every_stack_add_up_to_the_cpi_whatever_was_counted() -> None:
    chance = random.Random(16)
    scaled = 0
    for name in table_names():
        table = load_table(name)
        events = sorted({event.name for group in table.groups for event in group.events})
        for _ in range(200 if table.stack else 0):
            sizes = {event: 10 ** chance.uniform(-6, 2) for event in events}
            zero = {event: 0.0 for event in events if chance.random() < 0.1}
            rates = Rates({**sizes, **zero, "instructions": 1.0}, 1e9, 3.0)
            found = stack_of(table, rates)
            assert min(part.cycles for part in found.parts) >= 0
            total = fsum(part.cycles for part in found.parts)
            assert total == pytest.approx(rates.cpi, rel=1e-12, abs=1e-12)
            scaled += found.excess > 0
            assert all(value >= 0 for value in metrics_of(table, rates).values())
    assert scaled > 100
